/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions that NCCL lacks (bitwise, bool, 16-bit integers): in blocks
 * through pinned host memory, by the base plane, with its results.  Which ones
 * these are follows from the signature, so all ranks do the same.  A
 * reducescatter is done as an allreduce of which each rank keeps its share.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/sys/clock.h"

int nc_needs_staging(const struct hvd__op *op)
{
    switch (op->dtype) {
    case HVD_BOOL:
    case HVD_INT16:
    case HVD_UINT16:
        return 1;
    default:
        return op->op == HVD_BAND || op->op == HVD_BOR;
    }
}

/* ---- Copies
 * ------------------------------------------------------------------
 */

enum direction { TO_HOST, TO_DEVICE };

/* A stretch of device memory that holds elements [first, first + count). */
struct stretch {
    const void *send;
    void *recv;
    size_t first, count;
};

/* Copies the stretch's elements that are in the present block. */
static int copy_stretch(const struct nc_plane *p, const struct stretch *s,
                        enum direction direction, struct hb_error *err)
{
    const struct nc_run *run = &p->run;
    size_t bytes = run->view.elem_bytes;
    size_t from = s->first > run->at ? s->first : run->at;
    size_t end = s->first + s->count, block_end = run->at + run->block;
    CUdeviceptr host = (CUdeviceptr)p->on->pinned + (from - run->at) * bytes;
    size_t skip;

    end = end < block_end ? end : block_end;
    if (from >= end)
        return 0;
    skip = (from - s->first) * bytes;
    if (direction == TO_HOST)
        return HVD__CU(err, MemcpyAsync, host, (CUdeviceptr)s->send + skip,
                       (end - from) * bytes, p->on->cuda);
    return HVD__CU(err, MemcpyAsync, (CUdeviceptr)s->recv + skip, host,
                   (end - from) * bytes, p->on->cuda);
}

static struct stretch whole(const struct nc_plane *p, enum direction direction)
{
    const struct hvd__op *op = &p->run.view;
    struct stretch s = {op->sendbuf, op->recvbuf, 0, op->count};

    if (op->kind == HVD__REDUCESCATTER && direction == TO_DEVICE) {
        struct hvd__share share = hvd__op_share(op, p->me, p->n);

        s.first = share.first;
        s.count = share.count;
    }
    return s;
}

static int copy_block(const struct nc_plane *p, enum direction direction,
                      struct hb_error *err)
{
    const struct hvd__op *op = &p->run.view;
    struct stretch s = whole(p, direction);
    int rc = 0;

    if (hvd__op_direct(op))
        return copy_stretch(p, &s, direction, err);
    for (size_t i = 0; i < op->nparts && rc == 0; i++) {
        const struct hvd__part *part = &op->parts[i];

        s = (struct stretch){part->sendbuf, part->recvbuf, part->first,
                             part->count};
        rc = copy_stretch(p, &s, direction, err);
    }
    return rc;
}

/* ---- Blocks
 * ------------------------------------------------------------------
 */

enum step { TAKE, ARRIVES, REDUCES };

static int take(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    size_t most = NC_STAGE_BYTES / run->view.elem_bytes;

    run->block = run->view.count - run->at;
    if (run->block > most)
        run->block = most;
    run->step = ARRIVES;
    run->since_ns = hb_now_ns(); /* the time limit is per block */
    return copy_block(p, TO_HOST, err);
}

/* Starts the reduction of the block when the stream is idle: the block has then
 * arrived and the one before was delivered. */
static int arrive(struct nc_plane *p, struct hb_error *err)
{
    CUresult r = hvd__cuda.StreamQuery(p->on->cuda);
    const struct hvd__op *op = &p->run.view;
    struct hvd__op *base_op;

    if (r == CUDA_ERROR_NOT_READY)
        return 0;
    if (hvd__cuda_check(r, "cuStreamQuery", err) < 0)
        return err->status;
    base_op = nc_base_op(p, HVD__ALLREDUCE, op->dtype);
    base_op->op = op->op;
    base_op->prescale = op->prescale;
    base_op->postscale = op->postscale;
    base_op->args = op->args;
    base_op->reduce = op->reduce;
    base_op->sendbuf = base_op->recvbuf = p->on->pinned;
    base_op->count = p->run.block;
    p->run.step = REDUCES;
    return nc_base_op_start(p);
}

static int reduce(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int rc = nc_base_op_progress(p);

    if (rc != 1)
        return rc;
    rc = copy_block(p, TO_DEVICE, err);
    run->at += run->block;
    run->block = 0;
    run->step = TAKE;
    return rc;
}

int nc_staged_progress(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int rc = 0, before;

    do {
        before = run->step;
        if (run->step == TAKE && run->at == run->view.count)
            return 1;
        if (run->step == TAKE)
            rc = take(p, err);
        else if (run->step == ARRIVES)
            rc = arrive(p, err);
        else
            rc = reduce(p, err);
    } while (rc == 0 && run->step != before);
    return rc;
}
