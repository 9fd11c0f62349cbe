/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: an operation handed to an engine.
 *
 * An asynchronous request is heap memory that hvd_wait frees; a blocking call
 * keeps its request on the stack.  The engine writes op and err until it sets
 * `done`, and never touches the request after that.  on_done is called just
 * before.
 *
 * A group of allreduces is one operation with several parts; a group of
 * another kind has one operation per member, which are carried out one
 * after the other.
 */
#ifndef HVD_CORE_REQUEST_H
#define HVD_CORE_REQUEST_H

#include "runtime/core/world/context.h"
#include "runtime/plane/op.h"
#include "runtime/trace/stats.h"

#include <stdatomic.h>

struct hvd__engine;
struct hvd__entry;

/* All arguments of a blocking call without options. */
struct hvd__given {
    uint32_t kind, dtype, op;
    int root;
    size_t count, row_elems, recvcap;
    const void *sendbuf;
    void *recvbuf;
    size_t *recvcounts;
};

/* Compares member by member, without a branch for each.  A memcmp would load
 * wider words than those just stored, and wait for the stores. */
static inline int hvd__given_same(const struct hvd__given *a,
                                  const struct hvd__given *b)
{
    uintptr_t differ = (uintptr_t)(a->kind ^ b->kind);

    differ |= (a->dtype ^ b->dtype) | (a->op ^ b->op);
    differ |= (uintptr_t)(a->root != b->root);
    differ |= (a->count ^ b->count) | (a->row_elems ^ b->row_elems);
    differ |= a->recvcap ^ b->recvcap;
    differ |= (uintptr_t)a->sendbuf ^ (uintptr_t)b->sendbuf;
    differ |= (uintptr_t)a->recvbuf ^ (uintptr_t)b->recvbuf;
    differ |= (uintptr_t)a->recvcounts ^ (uintptr_t)b->recvcounts;
    return differ == 0;
}

struct hvd_request {
    struct hvd__op op;
    struct hb_error err; /* err.status is the operation's status */
    struct hvd__engine *engine;
    struct hvd_request *next, *before; /* in the engine's queue */
    struct hvd_request *same;          /* next request without a name */
    struct hvd__entry *entry;          /* the plan's entry of its name */
    uint64_t signature; /* of this request; op.signature is of the operation
                           that carries it out */
    uint64_t issued_ns; /* on hb_now_ns's clock; 0: not timed */
    uint64_t stall_ns;  /* the same on trace/stall.h's clock */
    enum hvd__timing timing;
    const void *caller; /* call site, plane/site.h; or NULL */
    uint64_t opened;    /* if launched: engine->opened at that time */
    int priority;
    int *last_rank;       /* join: out; may be NULL */
    hvd_done_fn *on_done; /* of an asynchronous request, or NULL */
    void *done_arg;
    const struct hvd__given *given; /* the call's arguments, or NULL */
    struct hvd__op *members;        /* of a group other than of allreduces */
    size_t member_count;
    const struct hvd_shape *shapes; /* shapes.h; NULL: not given */
    _Atomic int done;
};

/* Returns a copy of from's operation, name, parts, members, shapes and
 * sendcounts (n ranks) in one heap block, or NULL: no memory. */
struct hvd_request *hvd__request_copy(const struct hvd_request *from, int n);
void hvd__request_free(struct hvd_request *req);

/* Initialises *req, which holds nothing yet; the caller sets op and
 * signature. */
void hvd__request_init(struct hvd_request *req);

/* Gives back op->device.ready, if it is set: when the operation is over or has
 * never begun. */
static inline void hvd__op_release(struct hvd__op *op)
{
    if (op->device.ready)
        hvd__context.release(op->device.ready);
    op->device.ready = NULL;
}

static inline int hvd__request_done(const struct hvd_request *req)
{
    /* Acquire: pairs with the release in the engine's finish. */
    return atomic_load_explicit(&req->done, memory_order_acquire);
}

#endif
