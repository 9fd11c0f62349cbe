/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alltoall over hosts; see hier.h.  A split is what one rank sends to another.
 *
 * In the agreement, each leader tells each other host what its ranks send to
 * the ranks there, and the size of the largest split of all its ranks, from
 * which all compute the number of rounds.  A round moves the next `slice`
 * bytes of every split.
 *
 * With one rank on each host, splits go straight from sendbuf to recvbuf,
 * small ones along with the counts.  Otherwise a round has three steps.  Ranks
 * without a lane give what they send to other hosts to the local rank that
 * carries it.  The lanes exchange one message per host.  Each rank hands each
 * local rank what it has itself for it and what it carried.  The plane's
 * memory has four areas for that.
 */
#include "runtime/plane/hier/hier_impl.h"

enum { SLICE_MIN_BYTES = 64 };

/* More than any process has.  The sum over 65536 ranks (CONTROL_RANKS_MAX)
 * then still fits into 63 bits: otherwise one rank could find its own sums
 * impossible and fail while others on its host wait for it. */
static const uint64_t SPLIT_MAX_BYTES = (uint64_t)1 << 46;

static int is_flat(const struct hvd__hier *h)
{
    return hvd__map_is_flat(h->map);
}

static uint32_t rank_at(const struct hvd__hier *h, int host, int local_rank)
{
    return hvd__map_rank(h->map, host, local_rank);
}

static int local_size(const struct hvd__hier *h, int host)
{
    return hvd__map_local_size(h->map, host);
}

/* Returns the bytes that a local rank sends to `rank`. */
static uint64_t wanted(const struct hvd__hier *h, int local_rank, uint32_t rank)
{
    return hier_get_u64(h->wants +
                        ((size_t)local_rank * (size_t)h->map->size + rank) * 8);
}

/* Returns the bytes that `rank` sends to a local rank. */
static uint64_t coming(const struct hvd__hier *h, uint32_t rank, int local_rank)
{
    const unsigned char *at = h->verdict->payload + 8;

    return hier_get_u64(
        at + ((size_t)rank * (size_t)h->local_size + (size_t)local_rank) * 8);
}

/* ---- Sizes --------------------------------------------------------------- */

enum area { OUT, IN, HAND, GOT, AREAS };

/* Returns the slices that an area must hold, on the rank that needs most. */
static size_t area_slices(const struct hvd__hier *h, enum area a)
{
    size_t n = (size_t)h->map->size, hosts = (size_t)h->map->hosts;
    size_t local = (size_t)h->local_max, lanes = (size_t)h->map->lanes;
    size_t sources = (local + lanes - 1) / lanes; /* ranks of a host that a
                                                     lane serves */
    size_t hand = local * (1 + hosts * sources);

    switch (a) {
    case IN:
        return hosts * sources * local;
    case HAND:
        return hand > n ? hand : n;
    case OUT:
    case GOT:
    case AREAS:
        break;
    }
    return sources * n;
}

static size_t all_slices(const struct hvd__hier *h)
{
    size_t sum = 0;

    for (int a = 0; a < AREAS; a++)
        sum += area_slices(h, (enum area)a);
    return sum;
}

size_t hier_alltoall_room(const struct hvd__hier *h)
{
    return all_slices(h) * SLICE_MIN_BYTES;
}

static unsigned char *area(const struct hvd__hier *h, enum area which)
{
    unsigned char *at = h->work;

    for (int a = 0; a < (int)which; a++)
        at += area_slices(h, (enum area)a) * h->slice;
    return at;
}

/* Returns the bytes of a split that move in this round. */
static size_t slice_of(const struct hvd__hier *h, uint64_t bytes)
{
    uint64_t begin = (uint64_t)h->round * h->slice;
    uint64_t left = bytes > begin ? bytes - begin : 0;

    return left < h->slice ? (size_t)left : h->slice;
}

/* ---- While agreeing ------------------------------------------------------ */

void hier_alltoall_wants(struct hvd__hier *h, const struct hvd__op *op)
{
    h->leaps[0] = 0;
    for (int r = 0; r < h->map->size; r++) {
        size_t bytes = op->sendcounts[r] * op->elem_bytes;

        h->leaps[r + 1] = h->leaps[r] + bytes;
        hier_put_u64(h->work + (size_t)r * 8, bytes);
    }
}

/* Returns the largest split that local ranks send and that needs rounds: none
 * that stays on a rank alone on its host, or travels with the counts. */
static uint64_t largest_split(const struct hvd__hier *h)
{
    uint64_t largest = 0;

    for (int l = 0; l < h->local_size; l++)
        for (int r = 0; r < h->map->size; r++) {
            uint64_t bytes = wanted(h, l, (uint32_t)r);

            if (bytes > largest && !(is_flat(h) && r == h->rank) &&
                !hier_rides(h, bytes))
                largest = bytes;
        }
    return largest;
}

static unsigned char *put_word(const struct hvd__hier *h,
                               const struct hvd__op *op, int host,
                               unsigned char *at)
{
    memcpy(at, hier_block(h, h->host), HIER_HEAD_BYTES);
    at += HIER_HEAD_BYTES;
    hier_put_u64(at, largest_split(h));
    at += 8;
    for (int l = 0; l < h->local_size; l++)
        for (int m = 0; m < local_size(h, host); m++, at += 8)
            hier_put_u64(at, wanted(h, l, rank_at(h, host, m)));
    if (is_flat(h)) {
        uint32_t rank = rank_at(h, host, 0);
        size_t bytes = (size_t)wanted(h, 0, rank);

        if (bytes && hier_rides(h, bytes)) {
            memcpy(at, (const unsigned char *)op->sendbuf + h->leaps[rank],
                   bytes);
            at += bytes;
        }
    }
    return at;
}

/* Returns the size of the counts between a host's ranks and the local ranks,
 * in either direction. */
static size_t counts_bytes(const struct hvd__hier *h, int host)
{
    return (size_t)local_size(h, host) * (size_t)h->local_size * 8;
}

void hier_alltoall_tell(struct hvd__hier *h, const struct hvd__op *op)
{
    unsigned char *at = h->work;

    for (int i = 0; i < h->map->hosts; i++) {
        unsigned char *begin = at;

        if (i != h->host)
            at = put_word(h, op, i, at);
        h->outgoing[i] = (struct hvd__tcp_block){begin, (size_t)(at - begin)};
        h->words[i] =
            i == h->host ? 0 : HIER_HEAD_BYTES + 8 + counts_bytes(h, i);
    }
    hvd__tcp_alltoallv(h->tcp, h->outgoing, h->words, h->blocks, 0);
}

/* Returns the counts in a host's message, which its data follows. */
static const unsigned char *word_counts(const struct hvd__hier *h, int host)
{
    return hier_block(h, host) + HIER_HEAD_BYTES + 8;
}

static int word_is_whole(const struct hvd__hier *h, int host)
{
    size_t bytes = HIER_HEAD_BYTES + 8 + counts_bytes(h, host);
    uint64_t data;

    if (h->blocks[host].len < bytes)
        return 0;
    data = is_flat(h) ? hier_get_u64(word_counts(h, host)) : 0;
    return h->blocks[host].len == bytes + (hier_rides(h, data) ? data : 0);
}

/* Fills the verdict: the largest split of all hosts, then what each rank sends
 * to each local rank. */
int hier_alltoall_heard(struct hvd__hier *h, const struct hvd__op *op)
{
    unsigned char *out = h->verdict->payload;
    uint64_t largest = largest_split(h);

    (void)op;
    for (int i = 0; i < h->map->hosts; i++) {
        const unsigned char *counts = word_counts(h, i);

        if (i != h->host && !word_is_whole(h, i))
            return hier_out_of_step(h, i);
        if (i != h->host && hier_get_u64(counts - 8) > largest)
            largest = hier_get_u64(counts - 8);
        for (int l = 0; l < local_size(h, i); l++)
            for (int m = 0; m < h->local_size; m++, counts += 8) {
                size_t at = (size_t)rank_at(h, i, l) * (size_t)h->local_size +
                            (size_t)m;
                uint64_t bytes = i == h->host ? wanted(h, l, rank_at(h, i, m))
                                              : hier_get_u64(counts);

                if (bytes > SPLIT_MAX_BYTES && largest <= SPLIT_MAX_BYTES)
                    return hier_out_of_step(h, i);
                hier_put_u64(out + 8 + at * 8, bytes);
            }
    }
    hier_put_u64(out, largest);
    return 0;
}

static void deliver(const struct hvd__hier *h, const struct hvd__op *op,
                    uint32_t rank, size_t skip, const void *from, size_t bytes)
{
    if (h->deliver && bytes)
        memcpy((unsigned char *)op->recvbuf + h->offsets[rank] + skip, from,
               bytes);
}

/* Places what arrived with the counts, and this rank's own split. */
static void place_small(const struct hvd__hier *h, const struct hvd__op *op)
{
    for (int i = 0; i < h->map->hosts; i++) {
        uint32_t rank = rank_at(h, i, 0);
        size_t bytes = (size_t)h->counts[rank];

        if (bytes == 0)
            continue; /* buffers may be NULL */
        if (i == h->host)
            deliver(h, op, rank, 0,
                    (const unsigned char *)op->sendbuf + h->leaps[rank], bytes);
        else if (hier_rides(h, bytes))
            deliver(h, op, rank, 0, word_counts(h, i) + 8, bytes);
    }
}

int hier_alltoall_counts(struct hvd__hier *h, struct hvd__op *op)
{
    uint64_t largest = hier_get_u64(h->verdict->payload);
    int rc;

    if (largest > SPLIT_MAX_BYTES)
        return hvd__op_nonsense(op);
    for (int r = 0; r < h->map->size; r++)
        h->counts[r] = coming(h, (uint32_t)r, h->local_rank);
    rc = hier_gather_places(h, op);
    if (rc < 0)
        return rc;
    h->slice =
        h->work_bytes / all_slices(h) / SLICE_MIN_BYTES * SLICE_MIN_BYTES;
    if (is_flat(h))
        h->slice = HIER_FLAT_BYTES;
    h->rounds = (size_t)((largest + h->slice - 1) / h->slice);
    if (is_flat(h))
        place_small(h, op);
    op->trace.algorithm =
        hier_algorithm(h, h->rounds ? "tcp.direct" : "tcp.exchange");
    return 0;
}

/* ---- One rank on each host ----------------------------------------------- */

static void cross_flat(struct hvd__hier *h, const struct hvd__op *op)
{
    size_t skip = h->round * h->slice;

    for (int i = 0; i < h->map->hosts; i++) {
        uint32_t rank = rank_at(h, i, 0);
        uint64_t to = wanted(h, 0, rank), from = h->counts[rank];
        struct hvd__tcp_block *out = &h->outgoing[i], *in = &h->blocks[i];

        *out = *in = (struct hvd__tcp_block){h->work, 0};
        if (i == h->host)
            continue;
        if (!hier_rides(h, to) && slice_of(h, to)) {
            /* The cast drops const; the memory is only read. */
            out->p =
                (unsigned char *)(uintptr_t)op->sendbuf + h->leaps[rank] + skip;
            out->len = slice_of(h, to);
        }
        if (!hier_rides(h, from) && slice_of(h, from)) {
            if (h->deliver)
                in->p = (unsigned char *)op->recvbuf + h->offsets[rank] + skip;
            in->len = slice_of(h, from);
        }
    }
}

/* ---- Ranks without a lane ------------------------------------------------ */

/* Returns the bytes that a local rank sends to other hosts in this round. */
static size_t lent_bytes(const struct hvd__hier *h, int local_rank)
{
    size_t sum = 0;

    for (int r = 0; r < h->map->size; r++)
        if ((int)h->map->host_of[r] != h->host)
            sum += slice_of(h, wanted(h, local_rank, (uint32_t)r));
    return sum;
}

/* Begins an alltoall of h->local_counts from HAND to GOT. */
static int start_local(struct hvd__hier *h, enum hier_step step)
{
    struct hvd__op *local = hier_local_op(h, HVD__ALLTOALL);

    local->sendbuf = area(h, HAND);
    local->sendcounts = h->local_counts;
    for (int l = 0; l < h->local_size; l++)
        local->count += h->local_counts[l];
    local->recvbuf = area(h, GOT);
    local->recvcap = area_slices(h, GOT) * h->slice;
    return hier_start_local(h, step);
}

/* Appends this rank's slice for `rank` at `at`; returns its end. */
static unsigned char *put_own(const struct hvd__hier *h,
                              const struct hvd__op *op, uint32_t rank,
                              unsigned char *at)
{
    size_t bytes = slice_of(h, wanted(h, h->local_rank, rank));

    if (bytes)
        memcpy(at,
               (const unsigned char *)op->sendbuf + h->leaps[rank] +
                   h->round * h->slice,
               bytes);
    return at + bytes;
}

int hier_lend_begin(struct hvd__hier *h, struct hvd__op *op)
{
    unsigned char *at;

    if (is_flat(h) || h->local_size == h->map->lanes)
        return 0;
    at = area(h, HAND);
    memset(h->local_counts, 0, (size_t)h->local_size * sizeof(size_t));
    if (h->local_rank >= h->map->lanes) {
        for (int i = 0; i < h->map->hosts; i++)
            for (int m = 0; i != h->host && m < local_size(h, i); m++)
                at = put_own(h, op, rank_at(h, i, m), at);
        h->local_counts[h->local_rank % h->map->lanes] =
            lent_bytes(h, h->local_rank);
    }
    return start_local(h, HIER_LEND);
}

/* ---- Over the lanes ------------------------------------------------------ */

/* Writes the message to a host: from each local rank that this lane serves, to
 * each rank there. lent[l]: the unread data of local rank l; advanced. */
static unsigned char *put_message(const struct hvd__hier *h,
                                  const struct hvd__op *op, int host,
                                  const unsigned char **lent, unsigned char *at)
{
    for (int l = h->local_rank; l < h->local_size; l += h->map->lanes)
        for (int m = 0; m < local_size(h, host); m++) {
            uint32_t rank = rank_at(h, host, m);
            size_t bytes = slice_of(h, wanted(h, l, rank));

            if (l == h->local_rank) {
                at = put_own(h, op, rank, at);
                continue;
            }
            memcpy(at, lent[l], bytes);
            lent[l] += bytes;
            at += bytes;
        }
    return at;
}

/* Returns the bytes that this lane's rank on a host sends here. */
static size_t message_bytes(const struct hvd__hier *h, int host)
{
    size_t sum = 0;

    for (int l = h->local_rank; l < local_size(h, host); l += h->map->lanes)
        for (int m = 0; m < h->local_size; m++)
            sum += slice_of(h, coming(h, rank_at(h, host, l), m));
    return sum;
}

static void cross_lanes(struct hvd__hier *h, const struct hvd__op *op)
{
    const unsigned char *lent[HVD__SHM_LOCAL_MAX];
    const unsigned char *got = area(h, GOT);
    unsigned char *out = area(h, OUT), *in = area(h, IN);

    for (int l = h->local_rank + h->map->lanes; l < h->local_size;
         l += h->map->lanes) {
        lent[l] = got;
        got += lent_bytes(h, l);
    }
    for (int i = 0; i < h->map->hosts; i++) {
        unsigned char *begin = out;

        h->outgoing[i] = h->blocks[i] = (struct hvd__tcp_block){out, 0};
        if (i == h->host)
            continue;
        out = put_message(h, op, i, lent, out);
        h->outgoing[i].len = (size_t)(out - begin);
        h->blocks[i] = (struct hvd__tcp_block){in, message_bytes(h, i)};
        in += h->blocks[i].len;
    }
}

int hier_cross_begin(struct hvd__hier *h, struct hvd__op *op)
{
    if (!h->tcp)
        return 0;
    if (is_flat(h))
        cross_flat(h, op);
    else
        cross_lanes(h, op);
    hvd__tcp_alltoallv(h->tcp, h->outgoing, NULL, h->blocks, 1);
    return 1;
}

int hier_cross_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)op;
    (void)rc;
    for (int i = 0; i < h->map->hosts; i++) {
        uint64_t from = h->counts[rank_at(h, i, 0)];
        size_t bytes = is_flat(h)
                           ? (hier_rides(h, from) ? 0 : slice_of(h, from))
                           : message_bytes(h, i);

        if (i != h->host && h->blocks[i].len != bytes)
            return hier_out_of_step(h, i);
    }
    return 0;
}

/* ---- To the local ranks -------------------------------------------------- */

/* Returns the bytes that local rank `from` hands to `to`: its own and what it
 * carried. */
static size_t handed_bytes(const struct hvd__hier *h, int from, int to)
{
    size_t sum = slice_of(h, wanted(h, from, rank_at(h, h->host, to)));

    for (int i = 0; from < h->map->lanes && i < h->map->hosts; i++)
        for (int l = from; i != h->host && l < local_size(h, i);
             l += h->map->lanes)
            sum += slice_of(h, coming(h, rank_at(h, i, l), to));
    return sum;
}

/* Appends what this lane carried to each local rank's data at to[]; advances
 * them. */
static void put_carried(const struct hvd__hier *h, unsigned char **to)
{
    const unsigned char *in = area(h, IN);

    for (int i = 0; i < h->map->hosts; i++)
        for (int l = h->local_rank; i != h->host && l < local_size(h, i);
             l += h->map->lanes)
            for (int m = 0; m < h->local_size; m++) {
                size_t bytes = slice_of(h, coming(h, rank_at(h, i, l), m));

                memcpy(to[m], in, bytes);
                to[m] += bytes;
                in += bytes;
            }
}

/* Places what local rank `from` handed over; returns the end of its data. */
static const unsigned char *take(const struct hvd__hier *h,
                                 const struct hvd__op *op, int from,
                                 const unsigned char *at)
{
    size_t skip = h->round * h->slice;
    uint32_t rank = rank_at(h, h->host, from);
    size_t bytes = slice_of(h, wanted(h, from, (uint32_t)h->rank));

    deliver(h, op, rank, skip, at, bytes);
    at += bytes;
    for (int i = 0; from < h->map->lanes && i < h->map->hosts; i++)
        for (int l = from; i != h->host && l < local_size(h, i);
             l += h->map->lanes) {
            rank = rank_at(h, i, l);
            bytes = slice_of(h, coming(h, rank, h->local_rank));
            deliver(h, op, rank, skip, at, bytes);
            at += bytes;
        }
    return at;
}

int hier_hand_begin(struct hvd__hier *h, struct hvd__op *op)
{
    unsigned char *to[HVD__SHM_LOCAL_MAX], *at;

    if (is_flat(h))
        return 0;
    at = area(h, HAND);
    for (int m = 0; m < h->local_size; m++) {
        to[m] = put_own(h, op, rank_at(h, h->host, m), at);
        h->local_counts[m] = handed_bytes(h, h->local_rank, m);
        at += h->local_counts[m];
    }
    if (h->tcp)
        put_carried(h, to);
    if (!hier_alone(h))
        return start_local(h, HIER_HAND);
    take(h, op, 0, area(h, HAND));
    return 0;
}

int hier_hand_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    const unsigned char *at = area(h, GOT);

    (void)rc;
    for (int l = 0; l < h->local_size; l++)
        at = take(h, op, l, at);
    return 0;
}
