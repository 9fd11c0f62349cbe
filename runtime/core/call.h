/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a caller's arguments to a request: what the functions in collective.c
 * are made of.
 *
 *     struct hvd__call c;
 *     int rc = hvd__call_begin(&c, HVD__BARRIER, NULL, opts);
 *     if (rc == 0)
 *         rc = hvd__call_...(&c, ...);
 *     return hvd__call_run(&c, rc);
 *
 * Everything lives on the caller's stack, but for groups and for an alltoall
 * of many ranks.  run, submit and submit_and_wait end the call, tell its
 * error (message.h) and return its status.
 */
#ifndef HVD_CORE_CALL_H
#define HVD_CORE_CALL_H

#include "runtime/core/context.h"
#include "runtime/core/message.h"
#include "runtime/core/set.h"

/* Everything that a call makes; lives on its stack. */
struct hvd__call {
    struct hvd_request req;
    struct hvd__set *set;
    struct hvd_options o;
    struct hvd__part part;
    size_t even[HVD__EVEN_MAX]; /* alltoall without sendcounts */
    size_t *more;               /* the same for more ranks; heap */
    struct hvd__part *parts;
    struct hvd__op *members; /* heap */
    int needs_device;        /* no host can reduce that dtype */
};

/* What a caller passes; count is what this rank sends. */
struct hvd__buffers {
    const void *sendbuf;
    void *recvbuf;
    size_t count;
    enum hvd_dtype dtype;
};

/* The arrays of a group call. */
struct hvd__group {
    size_t n;
    const void *const *sendbufs;
    void *const *recvbufs;
    const size_t *counts;
    enum hvd_dtype dtype;
};

/* Where what others send goes. */
struct hvd__received {
    size_t cap, *counts;
};

/* What all calls begin with. */
int hvd__call_begin(struct hvd__call *c, enum hvd__kind kind, const char *name,
                    const struct hvd_options *opts);

/* No options but the defaults. */
int hvd__call_is_plain(const struct hvd_options *o);

/* Carries out the world's last call once more if this one is the same, and
 * nothing but that is to be done: 1, and its status in *rc.  c holds nothing
 * yet, and has nothing to be freed then. */
static inline int hvd__call_again(struct hvd__call *c,
                                  const struct hvd__given *given,
                                  const struct hvd_options *opts, int *rc)
{
    if ((opts && !hvd__call_is_plain(opts)) || !hvd__alive() ||
        !hvd__engine_again(&hvd__sets[HVD_WORLD].engine, given, &c->req,
                           c->even, rc))
        return 0;
    if (*rc < 0)
        hvd__tell(&c->req.err);
    return 1;
}

/* rc: what making it gave. */
int hvd__call_run(struct hvd__call *c, int rc);
int hvd__call_submit(struct hvd__call *c, int rc, hvd_request **out);
/* Blocking, by way of the queue. */
int hvd__call_submit_and_wait(struct hvd__call *c, int rc);

/* ---- Makers: 0 or negative with the request's err set ---- */

int hvd__call_allreduce(struct hvd__call *c, const struct hvd__buffers *b,
                        enum hvd_op rop);
int hvd__call_group_allreduce(struct hvd__call *c, const struct hvd__group *g,
                              enum hvd_op rop);
int hvd__call_reducescatter(struct hvd__call *c, struct hvd__op *op,
                            const struct hvd__buffers *b, size_t row_elems);
int hvd__call_broadcast(struct hvd__call *c, const struct hvd__buffers *b,
                        int root);
int hvd__call_allgather(struct hvd__call *c, struct hvd__op *op,
                        const struct hvd__buffers *b,
                        const struct hvd__received *r);
int hvd__call_alltoall(struct hvd__call *c, const struct hvd__buffers *b,
                       const size_t *sendcounts, const struct hvd__received *r);
int hvd__call_group_allgather(struct hvd__call *c, const struct hvd__group *g,
                              const size_t *recvcaps, size_t *recvcounts);
int hvd__call_group_reducescatter(struct hvd__call *c,
                                  const struct hvd__group *g,
                                  const size_t *row_elems, enum hvd_op rop);
int hvd__call_set_reduction(struct hvd__call *c, enum hvd_dtype dtype,
                            enum hvd_op rop);
int hvd__call_set_dtype(struct hvd__op *op, enum hvd_dtype dtype,
                        struct hb_error *err);
/* Scales would do nothing. */
int hvd__call_no_scales(const struct hvd_options *o, struct hb_error *err);

#endif
