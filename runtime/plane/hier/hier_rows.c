/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large reducescatter over hosts, in rounds; see hier.h.
 *
 * In a round every rank gets the next `slice` elements of its share.  They are
 * laid out by lane, then by host, then by local rank: first the lane's own
 * rank, then the ranks without a lane that it serves.  So the reduce-scatter
 * inside a host gives each lane's rank one vector, and the reduce-scatter over
 * the lane gives each host one piece of it.
 */
#include "runtime/plane/hier/hier_impl.h"

enum { ALIGN_BYTES = 64 };

static size_t align_elems(const struct hvd__op *op)
{
    return ALIGN_BYTES / op->elem_bytes;
}

static int own_lane(const struct hvd__hier *h)
{
    return h->local_rank % h->map->lanes;
}

/* Returns a rank's elements of this round. */
static struct hvd__share part_of(const struct hvd__hier *h,
                                 const struct hvd__op *op, uint32_t rank)
{
    struct hvd__share s = hvd__op_share(op, (int)rank, h->map->size);
    size_t skip = h->round * h->slice;

    skip = skip < s.count ? skip : s.count;
    s.first += skip;
    s.count -= skip;
    if (s.count > h->slice)
        s.count = h->slice;
    return s;
}

/* Returns the elements of a host's ranks in a lane that are below local rank
 * `end`. */
static size_t lane_elems(const struct hvd__hier *h, const struct hvd__op *op,
                         int host, int lane, int end)
{
    size_t sum = 0;

    for (int l = lane; l < end; l += h->map->lanes)
        sum += part_of(h, op, hvd__map_rank(h->map, host, l)).count;
    return sum;
}

static size_t longest_lane(const struct hvd__hier *h, const struct hvd__op *op)
{
    size_t longest = 0, align = align_elems(op);

    for (int lane = 0; lane < h->map->lanes; lane++) {
        size_t sum = 0;

        for (int i = 0; i < h->map->hosts; i++)
            sum += lane_elems(h, op, i, lane, hvd__map_local_size(h->map, i));
        longest = sum > longest ? sum : longest;
    }
    return (longest + align - 1) / align * align;
}

/* Returns how many ranks the first lane serves; no lane serves more. */
static size_t most_served(const struct hvd__hier *h)
{
    int lanes = h->map->lanes;
    size_t sum = 0;

    for (int i = 0; i < h->map->hosts; i++)
        sum += (size_t)((hvd__map_local_size(h->map, i) + lanes - 1) / lanes);
    return sum;
}

/* Chooses the slice so that all lanes, padded to the longest, and the
 * passed-on data behind them fit into the plane's memory. */
int hier_rows_prepare(struct hvd__hier *h, struct hvd__op *op)
{
    size_t room = h->work_bytes / op->elem_bytes;
    size_t most = hvd__op_share(op, 0, h->map->size).count;
    size_t lanes = (size_t)h->map->lanes;

    room -= lanes * align_elems(op);
    h->slice = room / (lanes * most_served(h) + (size_t)h->local_max);
    h->rounds = (most + h->slice - 1) / h->slice;
    return 0;
}

/* ---- Inside the host ----------------------------------------------------- */

static unsigned char *lay_host(const struct hvd__hier *h,
                               const struct hvd__op *op, int host, int lane,
                               unsigned char *at)
{
    int end = hvd__map_local_size(h->map, host);

    for (int l = lane; l < end; l += h->map->lanes) {
        struct hvd__share s = part_of(h, op, hvd__map_rank(h->map, host, l));

        hvd__op_pack(op, at, s.first, s.count);
        at += s.count * op->elem_bytes;
    }
    return at;
}

int hier_rows_begin(struct hvd__hier *h, struct hvd__op *op)
{
    enum hvd__kind kind = hier_alone(h) ? HVD__ALLREDUCE : HVD__LANE_SCATTER;
    struct hvd__op *local = hier_local_reduction(h, kind, op);
    size_t each = longest_lane(h, op), lane_bytes = each * op->elem_bytes;

    h->lane_elems = each;
    for (int lane = 0; lane < h->map->lanes; lane++) {
        unsigned char *begin = h->work + (size_t)lane * lane_bytes;
        unsigned char *at = begin;

        for (int i = 0; i < h->map->hosts; i++)
            at = lay_host(h, op, i, lane, at);
        memset(at, 0, lane_bytes - (size_t)(at - begin));
    }
    local->sendbuf = local->recvbuf = h->work;
    local->count = (size_t)h->map->lanes * each;
    if (hier_alone(h) && local->args.pre == 1.0)
        return 0;
    return hier_start_local(h, HIER_ROWS);
}

/* ---- Over the lane ------------------------------------------------------- */

static unsigned char *lane_buf(const struct hvd__hier *h,
                               const struct hvd__op *op, int lane)
{
    return h->work + (size_t)lane * h->lane_elems * op->elem_bytes;
}

int hier_reduce_begin(struct hvd__hier *h, struct hvd__op *op)
{
    int lane = own_lane(h);
    struct hvd__tcp_reduction r = {.buf = lane_buf(h, op, lane),
                                   .elem_bytes = op->elem_bytes,
                                   .reduce = op->reduce,
                                   .args = op->args,
                                   .chunk = h->scratch,
                                   .chunk_bytes = HIER_CHUNK_BYTES};

    if (!h->tcp)
        return 0;
    h->firsts[0] = 0;
    for (int i = 0; i < h->map->hosts; i++)
        h->firsts[i + 1] =
            h->firsts[i] +
            lane_elems(h, op, i, lane, hvd__map_local_size(h->map, i));
    r.count = h->firsts[h->map->hosts];
    r.args.stream = 0;
    op->trace.algorithm = hier_algorithm(h, "tcp.ring");
    hvd__tcp_reduce_scatter(h->tcp, &r, h->firsts);
    return 1;
}

/* Copies this rank's elements of the round to recvbuf. */
static void deliver(const struct hvd__hier *h, const struct hvd__op *op,
                    const unsigned char *from)
{
    struct hvd__share s = part_of(h, op, (uint32_t)h->rank);

    if (s.count)
        memcpy((unsigned char *)op->recvbuf +
                   h->round * h->slice * op->elem_bytes,
               from, s.count * op->elem_bytes);
}

static unsigned char *host_piece(const struct hvd__hier *h,
                                 const struct hvd__op *op)
{
    return lane_buf(h, op, own_lane(h)) + h->firsts[h->host] * op->elem_bytes;
}

int hier_reduce_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    deliver(h, op, host_piece(h, op));
    return 0;
}

/* ---- To ranks without a lane --------------------------------------------- */

static unsigned char *passed(const struct hvd__hier *h,
                             const struct hvd__op *op)
{
    return lane_buf(h, op, h->map->lanes);
}

/* Returns the elements that a lane passes on to ranks below local rank
 * `end`. */
static size_t passed_elems(const struct hvd__hier *h, const struct hvd__op *op,
                           int lane, int end)
{
    size_t own = lane_elems(h, op, h->host, lane, lane + 1);

    return end > lane ? lane_elems(h, op, h->host, lane, end) - own : 0;
}

int hier_pass_begin(struct hvd__hier *h, struct hvd__op *op)
{
    size_t own, sum = 0;
    struct hvd__op *local;

    if (h->local_size == h->map->lanes)
        return 0;
    for (int lane = 0; lane < h->map->lanes; lane++)
        sum += passed_elems(h, op, lane, h->local_size);
    local = hier_local_op(h, HVD__ALLGATHER);
    if (h->tcp) {
        own = part_of(h, op, (uint32_t)h->rank).count;
        local->sendbuf = host_piece(h, op) + own * op->elem_bytes;
        local->count =
            passed_elems(h, op, h->local_rank, h->local_size) * op->elem_bytes;
    }
    local->recvbuf = passed(h, op);
    local->recvcap = sum * op->elem_bytes;
    return hier_start_local(h, HIER_PASS);
}

int hier_pass_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    int lane = own_lane(h);
    size_t at = passed_elems(h, op, lane, h->local_rank);

    (void)rc;
    if (h->tcp)
        return 0;
    for (int before = 0; before < lane; before++)
        at += passed_elems(h, op, before, h->local_size);
    deliver(h, op, passed(h, op) + at * op->elem_bytes);
    return 0;
}
