/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: an operation in the hands of the engine.
 *
 * An asynchronous one is heap memory that hvd_wait frees; a blocking call
 * keeps one on its stack.  The engine writes op and err until it sets
 * `done`, and never touches the request after that.
 */
#ifndef HVD_CORE_REQUEST_H
#define HVD_CORE_REQUEST_H

#include "runtime/plane/op.h"

#include <stdatomic.h>

struct hvd__engine;

struct hvd_request {
    struct hvd__op op;
    struct hb_error err; /* err.status is the operation's */
    struct hvd__engine *engine;
    struct hvd_request *next; /* in the engine's queue */
    int started;              /* the plane has it; driver only */
    _Atomic int done;
    char name[]; /* asynchronous ones: what op.name points to */
};

/* A heap request with a copy of op and of its name; NULL: no memory. */
struct hvd_request *hvd__request_new(const struct hvd__op *op);
void hvd__request_free(struct hvd_request *req);

/* Makes a request out of memory that holds op already. */
void hvd__request_init(struct hvd_request *req);

static inline int hvd__request_done(const struct hvd_request *req)
{
    /* Acquire: pairs with the release in the engine's finish. */
    return atomic_load_explicit(&req->done, memory_order_acquire);
}

#endif
