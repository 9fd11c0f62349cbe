/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large allreduce and broadcast over lanes; see hier.h.  The lanes' parts of a
 * direct operation are computed in place in recvbuf, so nothing is moved
 * twice.  Other operations are done slice by slice in the plane's memory.
 */
#include "runtime/plane/hier/hier_impl.h"

/* Returns the elements of this round. */
static struct hvd__span slice_span(const struct hvd__hier *h,
                                   const struct hvd__op *op)
{
    struct hvd__span s = {h->round * h->slice, h->slice};

    if (s.count > op->count - s.first)
        s.count = op->count - s.first;
    return s;
}

static unsigned char *slice_buf(const struct hvd__hier *h,
                                const struct hvd__op *op)
{
    return hvd__op_direct(op) ? op->recvbuf : h->work;
}

/* Returns the part of this rank's lane, out of `count` elements. */
static struct hvd__span own_span(const struct hvd__hier *h,
                                 const struct hvd__op *op, size_t count)
{
    return hvd__lane_span(count, op->elem_bytes, h->map->lanes, h->local_rank);
}

int hier_lanes_prepare(struct hvd__hier *h, struct hvd__op *op)
{
    h->slice = op->count;
    if (!hvd__op_direct(op))
        h->slice = h->work_bytes / op->elem_bytes;
    h->rounds = h->slice ? (op->count + h->slice - 1) / h->slice : 0;
    return 0;
}

/* ---- Allreduce ----------------------------------------------------------- */

/* Returns whether the lane can read sendbuf: the rank is alone on its host and
 * there is nothing to scale. */
static int needs_no_scatter(const struct hvd__hier *h, const struct hvd__op *op)
{
    return hier_alone(h) && op->args.pre == 1.0;
}

int hier_scatter_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__span s = slice_span(h, op);
    enum hvd__kind kind = hier_alone(h) ? HVD__ALLREDUCE : HVD__LANE_SCATTER;
    struct hvd__op *local = hier_local_reduction(h, kind, op);

    local->sendbuf = op->sendbuf;
    local->recvbuf = slice_buf(h, op);
    local->count = s.count;
    if (!hvd__op_direct(op)) {
        hvd__op_pack(op, h->work, s.first, s.count);
        local->sendbuf = h->work;
    }
    return needs_no_scatter(h, op) ? 0 : hier_start_local(h, HIER_SCATTER);
}

int hier_ring_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__span s = own_span(h, op, slice_span(h, op).count);
    struct hvd__tcp_reduction r = {.buf = slice_buf(h, op) +
                                          s.first * op->elem_bytes,
                                   .count = s.count,
                                   .elem_bytes = op->elem_bytes,
                                   .reduce = op->reduce,
                                   .args = op->args,
                                   .chunk = h->scratch,
                                   .chunk_bytes = HIER_CHUNK_BYTES};

    if (!h->tcp)
        return 0;
    if (hvd__op_direct(op) && needs_no_scatter(h, op) &&
        op->sendbuf != op->recvbuf)
        r.src = op->sendbuf;
    r.args.stream = 0;
    op->trace.algorithm = hier_algorithm(
        h,
        hvd__tcp_algorithm_name(hvd__tcp_allreduce(h->tcp, &r, HVD__TCP_AUTO)));
    return 1;
}

static void deliver_slice(const struct hvd__hier *h, const struct hvd__op *op)
{
    struct hvd__span s = slice_span(h, op);

    if (!hvd__op_direct(op))
        hvd__op_unpack(op, h->work, s.first, s.count, 0);
}

int hier_ring_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    if (hier_alone(h))
        deliver_slice(h, op);
    return 0;
}

static void sub_collect(struct hvd__hier *h, const struct hvd__op *op,
                        unsigned char *buf, size_t count)
{
    struct hvd__span own = own_span(h, op, count);
    struct hvd__op *local = hier_local_op(h, HVD__ALLGATHER);

    local->sendbuf = buf + own.first * op->elem_bytes;
    local->count = own.count * op->elem_bytes;
    local->recvbuf = buf;
    local->recvcap = count * op->elem_bytes;
}

int hier_join_begin(struct hvd__hier *h, struct hvd__op *op)
{
    if (hier_alone(h))
        return 0;
    sub_collect(h, op, slice_buf(h, op), slice_span(h, op).count);
    return hier_start_local(h, HIER_JOIN);
}

int hier_join_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    deliver_slice(h, op);
    return 0;
}

/* ---- Broadcast ----------------------------------------------------------- */

static int root_is_here(const struct hvd__hier *h, const struct hvd__op *op)
{
    return (int)h->map->host_of[op->root] == h->host;
}

int hier_spread_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *local;

    if (!root_is_here(h, op))
        return 0;
    local = hier_local_op(h, HVD__BROADCAST);
    local->root = op->root;
    local->sendbuf = op->sendbuf;
    local->recvbuf = op->recvbuf;
    local->count = hier_bytes(op);
    return hier_start_local(h, HIER_SPREAD);
}

int hier_chain_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__span s = own_span(h, op, op->count);

    if (!h->tcp)
        return 0;
    op->trace.algorithm = hier_algorithm(
        h, hvd__tcp_algorithm_name(hvd__tcp_broadcast(
               h->tcp, (unsigned char *)op->recvbuf + s.first * op->elem_bytes,
               s.count * op->elem_bytes, (int)h->map->host_of[op->root],
               HVD__TCP_AUTO)));
    return 1;
}

int hier_collect_begin(struct hvd__hier *h, struct hvd__op *op)
{
    if (hier_alone(h) || root_is_here(h, op))
        return 0;
    sub_collect(h, op, op->recvbuf, op->count);
    return hier_start_local(h, HIER_COLLECT);
}
