/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allgather over hosts, in rounds; see hier.h.
 *
 * The data of a host's local ranks, one after the other, is the host's stream.
 * In round i every host contributes the i-th piece of its stream.  A round's
 * pieces lie in the scratch memory, in the order of hosts, from where each
 * rank copies them to their places in recvbuf.
 */
#include "runtime/plane/hier/hier_impl.h"

static uint64_t bytes_of(const struct hvd__hier *h, int host, int local_rank)
{
    return h->counts[hvd__map_rank(h->map, host, local_rank)];
}

static size_t piece_bytes(const struct hvd__hier *h, int host)
{
    uint64_t begin = (uint64_t)h->round * h->stride;
    uint64_t left =
        h->host_bytes[host] > begin ? h->host_bytes[host] - begin : 0;

    return left < h->stride ? (size_t)left : h->stride;
}

static unsigned char *piece_at(const struct hvd__hier *h, int host)
{
    unsigned char *at = h->scratch;

    for (int i = 0; i < host; i++)
        at += piece_bytes(h, i);
    return at;
}

/* A local rank's share of its host's piece in this round. */
struct share {
    uint64_t skip; /* offset in what the rank sends */
    size_t at;     /* offset in the piece */
    size_t bytes;
};

static struct share share_of(const struct hvd__hier *h, int host,
                             int local_rank)
{
    uint64_t from = (uint64_t)h->round * h->stride, to, begin = 0, end;
    struct share s = {0, 0, 0};

    to = from + piece_bytes(h, host);
    for (int l = 0; l < local_rank; l++)
        begin += bytes_of(h, host, l);
    end = begin + bytes_of(h, host, local_rank);
    if (end <= from || begin >= to)
        return s;
    s.skip = from > begin ? from - begin : 0;
    s.at = begin > from ? (size_t)(begin - from) : 0;
    s.bytes = (size_t)((end < to ? end : to) - (begin + s.skip));
    return s;
}

/* ---- Counts -------------------------------------------------------------- */

static void take_counts(struct hvd__hier *h)
{
    const unsigned char *at = h->verdict->payload;

    for (int i = 0; i < h->map->hosts; i++) {
        h->host_bytes[i] = 0;
        for (int l = 0; l < hvd__map_local_size(h->map, i); l++) {
            uint64_t bytes = hier_get_u64(at);

            at += sizeof(bytes);
            h->counts[hvd__map_rank(h->map, i, l)] = bytes;
            h->host_bytes[i] += bytes;
        }
    }
}

int hier_gather_places(struct hvd__hier *h, struct hvd__op *op)
{
    h->offsets[0] = 0;
    for (int r = 0; r < h->map->size; r++) {
        h->offsets[r + 1] = h->offsets[r];
        if (!hvd__op_add(&h->offsets[r + 1], h->counts[r], 1))
            return hvd__op_nonsense(op);
        if (op->recvcounts)
            op->recvcounts[r] = (size_t)(h->counts[r] / op->elem_bytes);
    }
    h->deliver = hvd__op_room(op, h->offsets[h->map->size]);
    return 0;
}

/* Places the data that came with the counts.  This rank's own must be in place
 * already, as its sendbuf may overlap. */
static void place_riding(const struct hvd__hier *h, const struct hvd__op *op)
{
    for (int i = 0; h->deliver && i < h->map->hosts; i++) {
        const unsigned char *data = hier_block(h, i) + HIER_HEAD_BYTES;
        size_t bytes = hier_riding_bytes(h, data);
        uint32_t rank = hvd__map_rank(h->map, i, 0);

        if (i != h->host && bytes)
            memcpy((unsigned char *)op->recvbuf + h->offsets[rank],
                   data + hier_counts_bytes(h, i), bytes);
    }
}

int hier_gather_counts(struct hvd__hier *h, struct hvd__op *op)
{
    int rc;

    take_counts(h);
    rc = hier_gather_places(h, op);
    if (rc < 0)
        return rc;
    h->slice = hvd__map_is_flat(h->map) ? HIER_FLAT_BYTES : h->stride;
    h->rounds = 0;
    for (int i = 0; i < h->map->hosts; i++) {
        size_t n = (size_t)((h->host_bytes[i] + h->slice - 1) / h->slice);

        if (!hier_rides(h, h->host_bytes[i]))
            h->rounds = n > h->rounds ? n : h->rounds;
    }
    h->own = op->sendbuf;
    /* Move sendbuf to its place before other data can overwrite it: it may lie
     * anywhere in recvbuf. */
    if (h->deliver && op->count) {
        unsigned char *dst = (unsigned char *)op->recvbuf + h->offsets[h->rank];

        memmove(dst, op->sendbuf, hier_bytes(op));
        h->own = dst;
    }
    if (hvd__map_is_flat(h->map))
        place_riding(h, op);
    op->trace.algorithm =
        hier_algorithm(h, h->rounds ? "tcp.direct" : "tcp.exchange");
    return 0;
}

int hier_gather_result(const struct hvd__hier *h, struct hvd__op *op)
{
    return hvd__op_gathered(op, h->deliver,
                            h->offsets[h->map->size] / op->elem_bytes);
}

/* ---- Rounds -------------------------------------------------------------- */

static void place_piece(const struct hvd__hier *h, const struct hvd__op *op,
                        int host)
{
    const unsigned char *piece = piece_at(h, host);

    for (int l = 0; h->deliver && l < hvd__map_local_size(h->map, host); l++) {
        uint32_t rank = hvd__map_rank(h->map, host, l);
        struct share s = share_of(h, host, l);

        if ((int)rank != h->rank && s.bytes)
            memcpy((unsigned char *)op->recvbuf + h->offsets[rank] + s.skip,
                   piece + s.at, s.bytes);
    }
}

static void place_others(const struct hvd__hier *h, const struct hvd__op *op)
{
    for (int i = 0; i < h->map->hosts; i++)
        if (i != h->host)
            place_piece(h, op, i);
}

int hier_piece_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct share s;
    struct hvd__op *local;

    (void)op;
    if (hvd__map_is_flat(h->map))
        return 0;
    s = share_of(h, h->host, h->local_rank);
    local = hier_local_op(h, HVD__ALLGATHER);
    local->sendbuf = s.bytes ? h->own + s.skip : h->own; /* may be NULL */
    local->count = s.bytes;
    local->recvbuf = piece_at(h, h->host);
    local->recvcap = piece_bytes(h, h->host);
    return hier_start_local(h, HIER_PIECE);
}

int hier_piece_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    place_piece(h, op, h->host);
    return 0;
}

/* Returns the bytes of a host's rank in this round, with one rank per host. */
static size_t flat_bytes(const struct hvd__hier *h, int host)
{
    size_t skip = h->round * h->slice;
    uint64_t bytes = h->host_bytes[host];

    if (hier_rides(h, bytes) || bytes <= skip)
        return 0;
    return bytes - skip < h->slice ? (size_t)bytes - skip : h->slice;
}

static void swap_flat(struct hvd__hier *h, const struct hvd__op *op)
{
    size_t skip = h->round * h->slice;
    /* The cast drops const; the memory is only read. */
    unsigned char *own = (unsigned char *)(uintptr_t)h->own;

    for (int i = 0; i < h->map->hosts; i++) {
        uint32_t rank = hvd__map_rank(h->map, i, 0);
        size_t bytes = flat_bytes(h, h->host);

        h->outgoing[i] =
            (struct hvd__tcp_block){bytes ? own + skip : h->work, bytes};
        h->words[i] = hier_is_words(op) ? bytes : 0;
        h->blocks[i] = (struct hvd__tcp_block){h->work, flat_bytes(h, i)};
        if (h->deliver && h->blocks[i].len)
            h->blocks[i].p =
                (unsigned char *)op->recvbuf + h->offsets[rank] + skip;
    }
    hvd__tcp_alltoallv(h->tcp, h->outgoing, h->words, h->blocks, 1);
}

int hier_swap_begin(struct hvd__hier *h, struct hvd__op *op)
{
    if (!hier_leads(h))
        return 0;
    if (hvd__map_is_flat(h->map)) {
        swap_flat(h, op);
        return 1;
    }
    for (int i = 0; i < h->map->hosts; i++)
        h->blocks[i] =
            (struct hvd__tcp_block){piece_at(h, i), piece_bytes(h, i)};
    hvd__tcp_exchange(h->tcp, piece_at(h, h->host), piece_bytes(h, h->host),
                      hier_is_words(op) ? piece_bytes(h, h->host) : 0,
                      h->blocks);
    return 1;
}

int hier_swap_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    int flat = hvd__map_is_flat(h->map);

    (void)rc;
    for (int i = 0; i < h->map->hosts; i++)
        if (i != h->host &&
            h->blocks[i].len != (flat ? flat_bytes(h, i) : piece_bytes(h, i)))
            return hier_out_of_step(h, i);
    if (hier_alone(h) && !flat)
        place_others(h, op);
    return 0;
}

int hier_share_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *local;

    (void)op;
    if (hier_alone(h))
        return 0;
    local = hier_local_op(h, HVD__BROADCAST);
    local->root = (int)hvd__map_rank(h->map, h->host, 0);
    local->sendbuf = h->scratch;
    local->recvbuf = h->scratch;
    local->recvcap = (size_t)h->map->hosts * h->stride;
    if (hier_leads(h))
        local->count = (size_t)(piece_at(h, h->map->hosts) - h->scratch);
    return hier_start_local(h, HIER_SHARE);
}

int hier_share_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    place_others(h, op);
    return 0;
}
