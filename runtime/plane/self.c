/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plane of a world of one: every operation is local and done as soon
 * as it starts.  Reductions still go through the kernel, so that scales,
 * and bool's 0 and 1, mean the same as in larger worlds.
 */
#include "runtime/plane/plane.h"

#include <string.h>

enum { PIECE_BYTES = 8 << 10 };

static int self_supports(const struct hvd__plane *p, const struct hvd__op *op)
{
    (void)p;
    (void)op;
    return 1;
}

/* Completes an allgather or alltoall: this rank's data is the result. */
static int self_gather(struct hvd__op *op)
{
    int rc;

    if (op->recvcounts)
        op->recvcounts[0] = op->count;
    if (op->count && op->count <= op->recvcap)
        memmove(op->recvbuf, op->sendbuf, op->count * op->elem_bytes);
    rc = hvd__op_gathered(op, op->count <= op->recvcap, op->count);
    return rc < 0 ? rc : 0;
}

/* Reduces; if not direct, in pieces, through a buffer on the stack. */
static void self_reduce(struct hvd__op *op)
{
    _Alignas(64) unsigned char piece[PIECE_BYTES];
    const void *src = piece;
    size_t step = sizeof(piece) / op->elem_bytes;

    if (hvd__op_direct(op)) {
        op->reduce(op->recvbuf, &op->sendbuf, 1, op->count, &op->args);
        return;
    }
    for (size_t i = 0; i < op->count; i += step) {
        size_t n = op->count - i < step ? op->count - i : step;

        hvd__op_pack(op, piece, i, n);
        op->reduce(piece, &src, 1, n, &op->args);
        hvd__op_unpack(op, piece, i, n, 0);
    }
}

static int self_start(struct hvd__plane *p, struct hvd__op *op)
{
    (void)p;
    op->algorithm = "self";
    hvd__op_agreed(op);
    switch (op->kind) {
    case HVD__ALLREDUCE:
    case HVD__REDUCESCATTER:
        if (op->count)
            self_reduce(op);
        return 0;
    case HVD__BROADCAST:
        if (op->count && op->recvbuf != op->sendbuf)
            memcpy(op->recvbuf, op->sendbuf, op->count * op->elem_bytes);
        return 0;
    case HVD__ALLGATHER:
    case HVD__ALLTOALL:
        return self_gather(op);
    case HVD__BARRIER:
    case HVD__JOIN:
    case HVD__LANE_SCATTER:
        break;
    }
    return 0;
}

static int self_progress(struct hvd__plane *p, struct hvd__op *op)
{
    (void)p;
    (void)op;
    return 1;
}

static int self_began(struct hvd__plane *p, struct hb_error *err)
{
    (void)p;
    (void)err;
    return 0;
}

static void self_nothing(struct hvd__plane *p)
{
    (void)p;
}

struct hvd__plane *hvd__self_plane(void)
{
    static const struct hvd__plane_ops ops = {
        .name = "self",
        .supports = self_supports,
        .start = self_start,
        .progress = self_progress,
        .pause = self_nothing,
        .began = self_began,
        .interrupt = self_nothing,
        .leave = self_nothing,
        .free = self_nothing,
    };
    static struct hvd__plane plane = {&ops};

    return &plane;
}
