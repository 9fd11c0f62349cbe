/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own operations of the world; see words.h. */
#include "runtime/core/set/words.h"

#include "runtime/core/set/set.h"
#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/plane/site.h"

/* Initialises a request of `count` elements. */
static void init(struct hvd_request *req, enum hvd__kind kind, size_t count,
                 enum hvd_dtype dtype)
{
    struct hvd__op *op = &req->op;

    hvd__op_init(op);
    hvd__request_init(req);
    op->kind = kind;
    op->name = "";
    op->prescale = op->postscale = 1.0;
    op->dtype = op->part_dtype = dtype;
    op->elem_bytes = hvd_dtype_size(dtype);
    op->count = count;
}

/* Carries out a request.  caller: as hvd__site_hash. */
static int run(struct hvd_request *req, const void *caller,
               struct hb_error *err)
{
    struct hvd__set *world = hvd__alive() ? hvd__set_find(HVD_WORLD) : NULL;
    struct hb_error *why = &req->err;

    if (world && hvd__context.knobs.compares_sites) {
        req->op.hashes.site = hvd__site_hash(caller);
        req->caller = caller;
    }
    req->signature = hvd__op_signature(&req->op);
    if (world)
        hvd__engine_run(&world->engine, req);
    else
        hb_error_set(why, HVD_ENOTINIT, "%s: hvd_init has not been called",
                     collective_name(req->op.kind));
    if (!why->status)
        return 0;
    hvd__blame(why);
    return hb_error_set(err, (enum hvd_status) - why->status, "%s", why->text);
}

int hvd__words_allgather(const void *own, size_t len, void *all, size_t room,
                         struct hb_error *err)
{
    struct hvd_request req;

    init(&req, HVD__ALLGATHER, len, HVD_UINT8);
    req.op.flags = HVD__OP_WORDS;
    req.op.sendbuf = own;
    req.op.recvbuf = all;
    req.op.recvcap = room;
    return run(&req, __builtin_return_address(0), err);
}

int hvd__words_allreduce(const void *own, void *out, size_t count,
                         enum hvd_dtype dtype, enum hvd_op op,
                         struct hb_error *err)
{
    struct hvd_request req;

    init(&req, HVD__ALLREDUCE, count, dtype);
    req.op.flags = HVD__OP_WORDS;
    req.op.sendbuf = own;
    req.op.recvbuf = out;
    req.op.op = op;
    req.op.args = (struct hvd__reduce_args){.pre = 1, .post = 1, .divisor = 1};
    req.op.reduce = hvd__reduce_get(dtype, op);
    return run(&req, __builtin_return_address(0), err);
}

int hvd__words_barrier(struct hb_error *err)
{
    struct hvd_request req;

    init(&req, HVD__BARRIER, 0, HVD_UINT8);
    return run(&req, __builtin_return_address(0), err);
}
