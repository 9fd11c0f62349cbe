/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce and reducescatter.
 *
 * A direct, unscaled and short operation goes from sendbuf to recvbuf in one
 * call.  Our kernels apply prescale before it and postscale and divisor after
 * it, in recvbuf.  An operation that is not direct goes through scratch memory
 * in blocks.  All ranks cut alike, as they agreed on counts, scales and parts.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the place of an element; buf may be NULL if this rank receives
 * nothing. */
static unsigned char *recv_at(const struct hvd__op *op, void *buf, size_t elems)
{
    return buf ? (unsigned char *)buf + elems * op->elem_bytes : NULL;
}

static const unsigned char *send_at(const struct hvd__op *op, size_t elems)
{
    return (const unsigned char *)op->sendbuf + elems * op->elem_bytes;
}

/* Computes dst = src * prescale. */
static void scale_before(const struct hvd__op *op, void *dst, const void *src,
                         size_t count)
{
    const struct hvd__reduce_args args = {op->args.pre, 1.0, 1, 0};

    if (op->args.pre != 1.0)
        op->reduce(dst, &src, 1, count, &args);
    else if (dst != src)
        hvd__copy(dst, src, count * op->elem_bytes, 0);
}

static void scale_after(const struct hvd__op *op, void *buf, size_t count)
{
    const struct hvd__reduce_args args = {1.0, op->args.post, op->args.divisor,
                                          0};
    const void *src = buf;

    if (count && (args.post != 1.0 || args.divisor != 1))
        op->reduce(buf, &src, 1, count, &args);
}

/* ---- Allreduce -------------------------------------------------------- */

static int issue_block(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    size_t most = mp_max_elems();
    void *buf = p->scratch;
    const void *send = buf;

    if (!hvd__op_direct(op))
        most = least(most, MP_SCRATCH_BYTES / op->elem_bytes);
    run->block = least(op->count - run->at, most);
    if (!hvd__op_direct(op)) {
        hvd__op_pack(op, buf, run->at, run->block);
        scale_before(op, buf, buf, run->block);
    } else {
        buf = recv_at(op, op->recvbuf, run->at);
        send = send_at(op, run->at);
        /* MPI_IN_PLACE must be used on all ranks or on none. */
        if (op->args.pre != 1.0 ||
            !(p->head[MP_FLAGS] & (MP_IN_PLACE | MP_APART))) {
            scale_before(op, buf, send, run->block);
            send = buf;
        }
    }
    return mp_allreduce(p, op->err, buf, send, run->block, mp_type(op->dtype),
                        mp_op(op->dtype, op->op));
}

static void deliver_block(struct mp_plane *p, const struct hvd__op *op)
{
    struct mp_run *run = &p->run;

    if (hvd__op_direct(op)) {
        scale_after(op, recv_at(op, op->recvbuf, run->at), run->block);
    } else {
        scale_after(op, p->scratch, run->block);
        hvd__op_unpack(op, p->scratch, run->at, run->block, 0);
    }
    run->at += run->block;
    run->block = 0;
}

int mp_allreduce_advance(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;

    op->trace.algorithm = p->solo ? "mpi.allreduce" : "mpi.iallreduce";
    for (;;) {
        int rc = mp_collective_done(p, op);

        if (rc <= 0)
            return rc;
        if (run->block)
            deliver_block(p, op);
        if (run->at == op->count)
            return 1;
        rc = issue_block(p, op);
        if (rc < 0)
            return rc;
    }
}

/* ---- Reducescatter -------------------------------------------------------
 */

/* Begins the reduce-scatter of the next `piece` elements of every rank's
 * share: packed in scratch memory if windowed, else all of sendbuf in place. */
static int issue_shares(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    unsigned char *to = p->scratch;

    for (int r = 0; r < p->n; r++) {
        struct hvd__share s = hvd__op_share(op, r, p->n);
        size_t skip = least(run->at, s.count);
        size_t count = least(s.count - skip, run->plan.piece);

        p->ints[r] = (int)count;
        if (!run->plan.windowed || count == 0)
            continue;
        scale_before(op, to, send_at(op, s.first + skip), count);
        to += count * op->elem_bytes;
    }
    run->block = run->plan.piece;
    return mp_reduce_scatter(p, op,
                             run->plan.windowed ? p->scratch : op->sendbuf,
                             recv_at(op, op->recvbuf, run->at), p->ints);
}

static void plan_shares(struct mp_plane *p, const struct hvd__op *op)
{
    struct mp_run *run = &p->run;
    size_t most = least(mp_max_elems(), MP_SCRATCH_BYTES / op->elem_bytes);

    run->plan.rounds = hvd__op_share(op, 0, p->n).count; /* the longest share */
    run->plan.windowed = op->args.pre != 1.0 || op->count > mp_max_elems();
    run->plan.piece =
        run->plan.windowed ? most / (size_t)p->n : run->plan.rounds;
    if (run->plan.piece == 0)
        run->plan.piece = 1;
    run->step = 1;
}

int mp_scatter_advance(struct mp_plane *p, struct hvd__op *op)
{
    struct mp_run *run = &p->run;

    op->trace.algorithm =
        p->solo ? "mpi.reduce_scatter" : "mpi.ireduce_scatter";
    if (run->step == 0)
        plan_shares(p, op);
    for (;;) {
        int rc = mp_collective_done(p, op);

        if (rc <= 0)
            return rc;
        run->at += run->block;
        run->block = 0;
        if (run->at >= run->plan.rounds)
            break;
        rc = issue_shares(p, op);
        if (rc < 0)
            return rc;
    }
    scale_after(op, op->recvbuf, hvd__op_share(op, p->me, p->n).count);
    return 1;
}
