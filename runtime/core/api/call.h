/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a caller's arguments into a request: the building blocks of the
 * functions in collective.c.
 *
 *     struct hvd__call c;
 *     int rc = hvd__call_begin(&c, HVD__BARRIER, NULL, opts);
 *     if (rc == 0)
 *         rc = hvd__call_...(&c, ...);
 *     return hvd__call_run(&c, rc);
 *
 * Everything is on the caller's stack, except the arrays of groups and of an
 * alltoall among many ranks.  run, submit and submit_and_wait end the call,
 * record its error for hvd_error_message (message.h) and return its status.
 */
#ifndef HVD_CORE_CALL_H
#define HVD_CORE_CALL_H

#include "runtime/core/set/set.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

/* The state of one call; lives on the caller's stack. */
struct hvd__call {
    struct hvd_request req;
    struct hvd__set *set;
    struct hvd_options o;
    struct hvd__part part;
    size_t even[HVD__EVEN_MAX]; /* sendcounts of an alltoall called without */
    size_t *more;               /* the same for larger sets; heap */
    struct hvd__part *parts;
    struct hvd__op *members; /* heap */
    size_t elems;            /* alltoall: the caller's count, of which
                                sendcounts may leave out the end */
    int needs_device;        /* the host cannot reduce this dtype */
};

/* The caller's buffers; count is the number of elements this rank sends. */
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

/* Receive side: capacity of recvbuf in elements, and where to store the count
 * from each rank, or NULL. */
struct hvd__received {
    size_t cap, *counts;
};

/* Begins a call of that kind: checks that the library is initialised, the name,
 * the options and the process set, and fills in what all kinds have in common.
 * caller: the return address of the public function.  Returns 0, or negative
 * with c->req.err set; the call has to be ended in either case. */
int hvd__call_begin_at(struct hvd__call *c, enum hvd__kind kind,
                       const char *name, const struct hvd_options *opts,
                       const void *caller);
/* For the functions of hvd.h themselves, whose return address is in the
 * program. */
#define hvd__call_begin(c, kind, name, opts) \
    hvd__call_begin_at(c, kind, name, opts, __builtin_return_address(0))

/* Returns whether `o` holds the defaults only. */
int hvd__call_is_plain(const struct hvd_options *o);

/* Repeats the world's last call if this one has the same arguments and default
 * options, and nothing else is pending.  Returns 1 with its status in *rc, or
 * 0: make the call as usual.  c is uninitialised before, and needs no freeing
 * after. */
static inline int hvd__call_again(struct hvd__call *c,
                                  const struct hvd__given *given,
                                  const struct hvd_options *opts, int *rc)
{
    if ((opts && !hvd__call_is_plain(opts)) || !hvd__alive() ||
        !hvd__engine_again(&hvd__context.sets[HVD_WORLD].engine, given, &c->req,
                           c->even, rc))
        return 0;
    if (*rc < 0)
        *rc = hvd__tell(&c->req.err);
    return 1;
}

/* Ends a call; rc is the status of making it, and if negative, it is only
 * reported.  run carries the operation out and returns its status.  submit
 * queues it and sets *out; returns 0 or why it was not queued. */
int hvd__call_run(struct hvd__call *c, int rc);
int hvd__call_submit(struct hvd__call *c, int rc, hvd_request **out);
/* Queues the operation and waits for it: for groups and joins. */
int hvd__call_submit_and_wait(struct hvd__call *c, int rc);

/* ---- Makers: fill in c; 0 or negative with the request's err set --------- */

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
/* Takes over the options' shapes, which are not NULL, for an operation that is
 * made: 0, or -HVD_EINVAL with err set if they do not fit its counts. */
int hvd__call_shapes(struct hvd__call *c);
/* Refuses scales other than 1: -HVD_EINVAL with err set. */
int hvd__call_no_scales(const struct hvd_options *o, struct hb_error *err);

#endif
