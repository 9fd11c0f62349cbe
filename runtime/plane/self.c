/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plane of a world of one: every operation is local and done as soon
 * as it starts.  Reductions still go through the kernel, so that scales,
 * and bool's 0 and 1, mean the same as in larger worlds.
 */
#include "runtime/plane/plane.h"

#include <string.h>

static int self_supports(const struct hvd__plane *p, const struct hvd__op *op)
{
    (void)p;
    (void)op;
    return 1;
}

static int self_gather(struct hvd__op *op)
{
    if (op->recvcounts)
        op->recvcounts[0] = op->count;
    if (!op->recvbuf && op->recvcap == 0)
        return 0;
    if (op->count > op->recvcap)
        return hb_error_set(op->err, HVD_EINVAL,
                            "allgather: recvbuf has room for %zu elements "
                            "and %zu are gathered",
                            op->recvcap, op->count);
    if (op->count)
        memmove(op->recvbuf, op->sendbuf, op->count * op->elem_bytes);
    return 0;
}

static int self_start(struct hvd__plane *p, struct hvd__op *op)
{
    (void)p;
    switch (op->kind) {
    case HVD__ALLREDUCE:
        if (op->count)
            op->reduce(op->recvbuf, &op->sendbuf, 1, op->count, &op->args);
        return 0;
    case HVD__BROADCAST:
        if (op->count && op->recvbuf != op->sendbuf)
            memcpy(op->recvbuf, op->sendbuf, op->count * op->elem_bytes);
        return 0;
    case HVD__ALLGATHER:
        return self_gather(op);
    case HVD__BARRIER:
    case HVD__REDUCE_SCATTER:
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
        .interrupt = self_nothing,
        .leave = self_nothing,
        .free = self_nothing,
    };
    static struct hvd__plane plane = {&ops};

    return &plane;
}
