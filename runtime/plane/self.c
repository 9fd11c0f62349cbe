/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plane of a world of one: every operation is local, and done as soon as
 * it starts, or an allgather or alltoall at the first look at its progress.
 * Reductions still go through the kernel, so that scales, and bool's 0 and 1,
 * mean the same as in larger worlds.
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
    size_t bytes = op->count * op->elem_bytes;
    int deliver;

    if (op->recvcounts)
        op->recvcounts[0] = op->count;
    deliver = hvd__op_room(op, bytes);
    if (bytes && deliver)
        memmove(op->recvbuf, op->sendbuf, bytes);
    return hvd__op_gathered(op, deliver, op->count);
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
    op->trace.algorithm = "self";
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
    case HVD__ALLTOALL: /* progress does it: start must not fail alone */
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
    if (op->kind == HVD__ALLGATHER || op->kind == HVD__ALLTOALL)
        return self_gather(op);
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

static void self_pause(struct hvd__plane *p, uint64_t until_ns)
{
    (void)p;
    (void)until_ns;
}

struct hvd__plane *hvd__self_plane(void)
{
    static const struct hvd__plane_ops ops = {
        .name = "self",
        .supports = self_supports,
        .start = self_start,
        .progress = self_progress,
        .pause = self_pause,
        .began = self_began,
        .interrupt = self_nothing,
        .leave = self_nothing,
        .free = self_nothing,
    };
    static struct hvd__plane plane = {&ops};

    return &plane;
}
