/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large allreduce and broadcast over lanes; see hier.h.  The parts are at
 * their place in recvbuf from the beginning, so nothing is moved twice.
 */
#include "runtime/plane/hier_impl.h"

static int root_is_here(const struct hvd__hier *h, const struct hvd__op *op)
{
    return (int)h->map->host_of[op->root] == h->host;
}

static struct hvd__span own_span(const struct hvd__hier *h,
                                 const struct hvd__op *op)
{
    return hvd__lane_span(op->count, op->elem_bytes, h->map->lanes,
                          h->local_rank);
}

static unsigned char *own_part(const struct hvd__hier *h,
                               const struct hvd__op *op)
{
    return (unsigned char *)op->recvbuf +
           own_span(h, op).first * op->elem_bytes;
}

int hier_scatter_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *sub = hier_sub(h, HVD__REDUCE_SCATTER);

    sub->sendbuf = op->sendbuf;
    sub->recvbuf = op->recvbuf;
    sub->count = op->count;
    sub->elem_bytes = op->elem_bytes;
    sub->lanes = h->map->lanes;
    sub->reduce = op->reduce;
    sub->args = op->args;
    sub->args.post = 1.0;
    sub->args.divisor = 1;
    return hier_start_sub(h, HIER_SCATTER);
}

int hier_ring_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__tcp_ring ring = {.buf = own_part(h, op),
                                 .count = own_span(h, op).count,
                                 .elem_bytes = op->elem_bytes,
                                 .reduce = op->reduce,
                                 .args = op->args,
                                 .chunk = h->scratch,
                                 .chunk_bytes = HIER_CHUNK_BYTES};

    if (!h->tcp)
        return 0;
    hvd__tcp_ring(h->tcp, &ring);
    return 1;
}

int hier_spread_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *sub;

    if (!root_is_here(h, op))
        return 0;
    sub = hier_sub(h, HVD__BROADCAST);
    sub->root = op->root;
    sub->sendbuf = op->sendbuf;
    sub->recvbuf = op->recvbuf;
    sub->count = hier_bytes(op);
    return hier_start_sub(h, HIER_SPREAD);
}

int hier_chain_begin(struct hvd__hier *h, struct hvd__op *op)
{
    if (!h->tcp)
        return 0;
    hvd__tcp_chain(h->tcp, own_part(h, op),
                   own_span(h, op).count * op->elem_bytes,
                   (int)h->map->host_of[op->root]);
    return 1;
}

int hier_collect_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *sub;

    if (h->local_size == 1 ||
        (op->kind == HVD__BROADCAST && root_is_here(h, op)))
        return 0;
    sub = hier_sub(h, HVD__ALLGATHER);
    sub->sendbuf = own_part(h, op);
    sub->count = own_span(h, op).count * op->elem_bytes;
    sub->recvbuf = op->recvbuf;
    sub->recvcap = hier_bytes(op);
    return hier_start_sub(h, HIER_COLLECT);
}
