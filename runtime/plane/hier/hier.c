/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hierarchical plane: its life, and going through the steps; see
 * hier.h.
 */
#include "runtime/plane/hier/hier_impl.h"

#include "lib/base/alloc.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static int nothing_more(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)h;
    (void)op;
    (void)rc;
    return 0;
}

static int again_begin(struct hvd__hier *h, struct hvd__op *op);

static const struct hier_step_ops steps[] = {
    [HIER_LOCAL] = {0, hier_local_begin, hier_local_end},
    [HIER_TELL] = {1, hier_tell_begin, hier_tell_end},
    [HIER_VERDICT] = {0, hier_verdict_begin, hier_verdict_end},
    [HIER_SCATTER] = {0, hier_scatter_begin, nothing_more},
    [HIER_RING] = {1, hier_ring_begin, hier_ring_end},
    [HIER_JOIN] = {0, hier_join_begin, hier_join_end},
    [HIER_SPREAD] = {0, hier_spread_begin, nothing_more},
    [HIER_CHAIN] = {1, hier_chain_begin, nothing_more},
    [HIER_COLLECT] = {0, hier_collect_begin, nothing_more},
    [HIER_PIECE] = {0, hier_piece_begin, hier_piece_end},
    [HIER_SWAP] = {1, hier_swap_begin, hier_swap_end},
    [HIER_SHARE] = {0, hier_share_begin, hier_share_end},
    [HIER_ROWS] = {0, hier_rows_begin, nothing_more},
    [HIER_REDUCE] = {1, hier_reduce_begin, hier_reduce_end},
    [HIER_PASS] = {0, hier_pass_begin, hier_pass_end},
    [HIER_LEND] = {0, hier_lend_begin, nothing_more},
    [HIER_CROSS] = {1, hier_cross_begin, hier_cross_end},
    [HIER_HAND] = {0, hier_hand_begin, hier_hand_end},
    [HIER_AGAIN] = {0, again_begin, nothing_more},
};

enum { LOOP_AT = 3 }; /* index of the first step after the agreement */

static const enum hier_step agree[] = {HIER_LOCAL, HIER_TELL, HIER_VERDICT,
                                       HIER_DONE};
static const enum hier_step allreduce[] = {
    HIER_LOCAL, HIER_TELL, HIER_VERDICT, HIER_SCATTER,
    HIER_RING,  HIER_JOIN, HIER_AGAIN,   HIER_DONE};
static const enum hier_step broadcast[] = {
    HIER_LOCAL, HIER_TELL,    HIER_VERDICT, HIER_SPREAD,
    HIER_CHAIN, HIER_COLLECT, HIER_DONE};
static const enum hier_step allgather[] = {HIER_LOCAL, HIER_TELL, HIER_VERDICT,
                                           HIER_PIECE, HIER_SWAP, HIER_SHARE,
                                           HIER_AGAIN, HIER_DONE};
static const enum hier_step reducescatter[] = {
    HIER_LOCAL,  HIER_TELL, HIER_VERDICT, HIER_ROWS,
    HIER_REDUCE, HIER_PASS, HIER_AGAIN,   HIER_DONE};
static const enum hier_step alltoall[] = {HIER_LOCAL, HIER_TELL,  HIER_VERDICT,
                                          HIER_LEND,  HIER_CROSS, HIER_HAND,
                                          HIER_AGAIN, HIER_DONE};

/* How the kinds are carried out, as members of struct hvd__hier say. */
static const struct {
    const enum hier_step *plan;
    int (*prepare)(struct hvd__hier *h, struct hvd__op *op);
} kinds[] = {
    [HVD__ALLREDUCE] = {allreduce, hier_lanes_prepare},
    [HVD__BROADCAST] = {broadcast, NULL},
    [HVD__ALLGATHER] = {allgather, hier_gather_counts},
    [HVD__BARRIER] = {agree, NULL},
    [HVD__ALLTOALL] = {alltoall, hier_alltoall_counts},
    [HVD__REDUCESCATTER] = {reducescatter, hier_rows_prepare},
    [HVD__JOIN] = {agree, NULL},
};

static int again_begin(struct hvd__hier *h, struct hvd__op *op)
{
    (void)op;
    if (++h->round < h->rounds)
        h->at = LOOP_AT - 1; /* the caller adds 1 */
    return 0;
}

const char *hier_algorithm(const struct hvd__hier *h, const char *tcp)
{
    static const char *const names[][2] = {
        {"tcp.rd", "hier.rd"},       {"tcp.rabenseifner", "hier.rabenseifner"},
        {"tcp.ring", "hier.ring"},   {"tcp.tree", "hier.tree"},
        {"tcp.chain", "hier.chain"}, {"tcp.direct", "hier.direct"},
    };

    if (hvd__map_is_flat(h->map))
        return tcp;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i][0], tcp) == 0)
            return names[i][1];
    return "hier";
}

/* ---- Steps in shared memory ---------------------------------------------- */

struct hvd__op *hier_local_op(struct hvd__hier *h, enum hvd__kind kind)
{
    struct hvd__op *local = &h->local_op;

    memset(local, 0, sizeof(*local));
    local->kind = kind;
    local->dtype = local->part_dtype = HVD_UINT8;
    local->elem_bytes = 1;
    local->row_elems = 1;
    local->prescale = local->postscale = 1.0;
    local->name = "";
    local->err = &h->step_err;
    return local;
}

struct hvd__op *hier_local_reduction(struct hvd__hier *h, enum hvd__kind kind,
                                     const struct hvd__op *op)
{
    struct hvd__op *local = hier_local_op(h, kind);

    local->dtype = local->part_dtype = op->dtype;
    local->op = op->op;
    local->elem_bytes = op->elem_bytes;
    local->lanes = h->map->lanes;
    local->reduce = op->reduce;
    local->args = op->args;
    local->args.post = 1.0;
    local->args.divisor = 1;
    local->args.stream = 0;
    return local;
}

int hier_start_local(struct hvd__hier *h, enum hier_step step)
{
    struct hvd__op *local = &h->local_op;
    int rc;

    /* Local ranks execute the same steps. */
    local->signature = local->first_signature = (uint64_t)step;
    local->entries = 1;
    rc = h->shm->ops->start(h->shm, local);
    return rc < 0 ? rc : 1;
}

int hier_out_of_step(struct hvd__hier *h, int host)
{
    h->step_err.rank = (int)hvd__map_world(h->map, host, 0);
    snprintf(h->step_err.host, sizeof(h->step_err.host), "%s",
             h->map->names[host]);
    return hb_error_set(&h->step_err, HVD_EPROTO,
                        "rank %u on host %s: its message is not of this "
                        "operation",
                        hvd__map_world(h->map, host, 0), h->map->names[host]);
}

/* ---- Failing for good ---------------------------------------------------- */

/* Marks the broken rank in the segment, where the local ranks wait: as one that
 * left (rc -HVD_ESHUTDOWN) or as lost. */
static void tell_local_ranks(struct hvd__hier *h, int rc)
{
    uint32_t n = h->segment_ranks, rank = (uint32_t)h->broken.rank;

    if (h->broken.rank < 0 || hier_alone(h))
        return;
    if (rc == -HVD_ESHUTDOWN)
        segment_miss(h->head, n, rank);
    else
        segment_lose(h->head, n, rank);
}

static int claim(struct hvd__hier *h, enum hier_phase phase)
{
    int between = HIER_BETWEEN;

    return atomic_compare_exchange_strong(&h->phase, &between, phase);
}

/* Tells the other hosts which rank is gone, or closes the connections.  Until
 * this host has sent its message of this operation, the other leaders wait for
 * it and can be told.  Later any rank of the lane may be waiting for data, so
 * only the end of the connection tells it. */
static void tell_other_hosts(struct hvd__hier *h, enum hier_step step, int rc)
{
    if (!h->tcp)
        return;
    if (step != HIER_LOCAL || rc != -HVD_ESHUTDOWN)
        hvd__tcp_hang_up(h->tcp);
    else if (h->broken.rank >= 0 && hier_leads(h) &&
             (atomic_load(&h->phase) == HIER_BUSY || claim(h, HIER_LEFT)))
        hvd__tcp_tell_gone(h->tcp, (uint32_t)h->broken.rank);
}

static void break_down(struct hvd__hier *h, int rc)
{
    h->broken = h->step_err;
    if (!h->broken.status)
        hb_error_set(&h->broken, (enum hvd_status) - rc, "%s",
                     hb_status_text(rc));
}

static int give_up(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    enum hier_step step = h->plan[h->at];

    break_down(h, rc);
    *op->err = h->broken;
    if (steps[step].is_tcp)
        tell_local_ranks(h, rc);
    tell_other_hosts(h, step, rc);
    return rc;
}

/* ---- The plane's table --------------------------------------------------- */

static int hier_supports(const struct hvd__plane *plane,
                         const struct hvd__op *op)
{
    (void)plane;
    return (size_t)op->kind < sizeof(kinds) / sizeof(kinds[0]) &&
           kinds[op->kind].plan;
}

static int hier_start(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    if (h->broken.status) {
        *op->err = h->broken;
        return h->broken.status;
    }
    if (!claim(h, HIER_BUSY))
        return hb_error_set(op->err, HVD_ESHUTDOWN,
                            "this rank has said that it leaves");
    hier_watch_disarm(&h->watch);
    h->plan = hier_data_rides(h, op) ? agree : kinds[op->kind].plan;
    h->prepare = kinds[op->kind].prepare;
    h->round = 0;
    h->rounds = 1;
    h->at = 0;
    h->step_started = 0;
    h->in_tcp = 0;
    return 0;
}

static int begin_step(struct hvd__hier *h, struct hvd__op *op)
{
    const struct hier_step_ops *step = &steps[h->plan[h->at]];
    int rc;

    if (h->at >= LOOP_AT && h->round >= h->rounds)
        return 0;
    hb_error_clear(&h->step_err);
    rc = step->begin(h, op);
    h->step_started = rc > 0;
    h->in_tcp = h->step_started && step->is_tcp;
    return rc;
}

/* Returns whether the result ends the operation but leaves the plane usable. */
static int is_outcome(enum hier_step step, int rc)
{
    return (step == HIER_LOCAL || step == HIER_VERDICT) &&
           (rc == HVD__CUT || rc == -HVD_EMISMATCH);
}

/* Runs the present step: 1 when it is done, 0 to call again, else the
 * operation's result. */
static int go_on(struct hvd__hier *h, struct hvd__op *op)
{
    enum hier_step step = h->plan[h->at];
    int rc = h->step_started ? 1 : begin_step(h, op);

    if (rc <= 0)
        return rc < 0 ? rc : 1;
    rc = steps[step].is_tcp ? hvd__tcp_progress(h->tcp, &h->step_err)
                            : h->shm->ops->progress(h->shm, &h->local_op);
    if (rc == 0)
        return 0;
    h->step_started = h->in_tcp = 0;
    if (rc < 0 && !is_outcome(step, rc))
        return rc;
    rc = steps[step].end(h, op, rc);
    return rc ? rc : 1;
}

static int finish(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    if (rc == 1 && (op->kind == HVD__ALLGATHER || op->kind == HVD__ALLTOALL))
        rc = hier_gather_result(h, op);
    atomic_store(&h->phase, HIER_BETWEEN);
    return rc;
}

static int hier_progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    while (h->plan[h->at] != HIER_DONE) {
        int rc = go_on(h, op);

        if (rc == 0)
            return 0;
        if (is_outcome(h->plan[h->at], rc))
            return finish(h, op, rc);
        if (rc < 0)
            return give_up(h, op, rc);
        h->at++;
    }
    return finish(h, op, 1);
}

static int hier_began(struct hvd__plane *plane, struct hb_error *err)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;
    int rc = 0;

    if (h->broken.status) {
        *err = h->broken;
        return err->status;
    }
    hb_error_clear(&h->step_err);
    if (!hier_alone(h))
        rc = h->shm->ops->began(h->shm, &h->step_err);
    if (rc < 0) {
        break_down(h, rc);
        tell_other_hosts(h, HIER_LOCAL, rc);
    } else if (rc == 0 && hier_leads(h)) {
        rc = hvd__tcp_began(h->tcp, &h->step_err);
        if (rc < 0) {
            break_down(h, rc);
            tell_local_ranks(h, rc);
            hvd__tcp_hang_up(h->tcp);
        }
    }
    if (rc < 0)
        *err = h->broken;
    return rc;
}

static void hier_pause(struct hvd__plane *plane, uint64_t until_ns)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;
    int parked = atomic_load(&h->phase) == HIER_BETWEEN;

    if (h->in_tcp || (parked && hier_alone(h)))
        hvd__tcp_pause(h->tcp, until_ns);
    else if (parked && hier_leads(h) && hier_watch_arm(&h->watch, h->tcp) < 0)
        sched_yield();
    else
        h->shm->ops->pause(h->shm, until_ns);
}

/* Wakes the driver in both planes: another thread cannot know where it
 * waits. */
static void hier_interrupt(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    h->shm->ops->interrupt(h->shm);
    if (h->tcp)
        hvd__tcp_interrupt(h->tcp);
}

/* Leaves the host's plane and, if this rank leads, tells the other leaders.
 * They expect such a message only at the beginning of an operation; during one,
 * the end of the connection has to do. */
static void hier_leave(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    h->shm->ops->leave(h->shm);
    if (!atomic_exchange(&h->left, 1) && h->tcp && hier_leads(h) &&
        claim(h, HIER_LEFT))
        hvd__tcp_tell_gone(h->tcp, h->map->world[h->rank]);
}

static void free_memory(struct hvd__hier *h)
{
    hb_free(h->blocks);
    hb_free(h->outgoing);
    hb_free(h->words);
    hb_free((void *)h->srcs);
    hb_free(h->scratch);
    hb_free(h->verdict);
    hb_free(h->work);
    hb_free(h->firsts);
    hb_free(h->counts);
    hb_free(h->offsets);
    hb_free(h->host_bytes);
    hb_free(h->wants);
    hb_free(h->leaps);
    hb_free(h->local_counts);
    hb_free(h);
}

static void hier_free(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    hier_watch_fini(&h->watch);
    hvd__tcp_free(h->tcp);
    h->shm->ops->free(h->shm);
    free_memory(h);
}

static const struct hvd__plane_ops hier_ops = {
    .name = "hier",
    .supports = hier_supports,
    .start = hier_start,
    .progress = hier_progress,
    .pause = hier_pause,
    .began = hier_began,
    .interrupt = hier_interrupt,
    .leave = hier_leave,
    .free = hier_free,
};

/* ---- Life ---------------------------------------------------------------- */

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Computes stride, small_bytes and work_bytes, equal on all ranks.  small_bytes
 * decides the steps; a block must also hold the message of a leader that began
 * another operation. */
static void choose_sizes(struct hvd__hier *h)
{
    size_t hosts = (size_t)h->map->hosts, size = (size_t)h->map->size;
    size_t local = (size_t)h->local_max;
    size_t stride = HIER_SCRATCH_BYTES / hosts;
    size_t counts = local * local * sizeof(uint64_t);

    stride = most(stride, HIER_BLOCK_MIN_BYTES);
    if (stride > HIER_BLOCK_MAX_BYTES)
        stride = HIER_BLOCK_MAX_BYTES;
    stride = most(stride, counts + 64) / 64 * 64;
    h->stride = stride;
    h->small_bytes = HIER_SMALL_BYTES;
    if (hvd__map_is_flat(h->map))
        h->small_bytes = hvd__tcp_ride_bytes(hvd__tcp_model(h->tcp));
    if (h->small_bytes > stride - 64)
        h->small_bytes = stride - 64;
    h->work_bytes =
        most(HIER_WORK_BYTES, local * size * sizeof(uint64_t) + hosts * stride);
    h->work_bytes = most(h->work_bytes, hier_alltoall_room(h));
}

static int make_memory(struct hvd__hier *h)
{
    size_t hosts = (size_t)h->map->hosts, size = (size_t)h->map->size;
    size_t local = (size_t)h->local_size;
    size_t counts = local * size * sizeof(uint64_t);
    size_t payload_bytes = most(h->small_bytes, counts + sizeof(uint64_t));

    h->blocks = hb_calloc(hosts, sizeof(*h->blocks));
    h->outgoing = hb_calloc(hosts, sizeof(*h->outgoing));
    h->words = hb_calloc(hosts, sizeof(*h->words));
    h->srcs = hb_calloc(hosts, sizeof(*h->srcs));
    h->scratch = hb_calloc(hosts, h->stride);
    h->verdict_bytes = sizeof(*h->verdict) + payload_bytes;
    h->verdict = hb_calloc(1, h->verdict_bytes);
    h->work = hb_malloc(h->work_bytes);
    h->firsts = hb_calloc(hosts + 1, sizeof(*h->firsts));
    h->counts = hb_calloc(size, sizeof(*h->counts));
    h->offsets = hb_calloc(size + 1, sizeof(*h->offsets));
    h->host_bytes = hb_calloc(hosts, sizeof(*h->host_bytes));
    h->wants = hb_calloc(1, counts);
    h->leaps = hb_calloc(size + 1, sizeof(*h->leaps));
    h->local_counts = hb_calloc(local, sizeof(*h->local_counts));
    return h->blocks && h->outgoing && h->words && h->srcs && h->scratch &&
           h->verdict && h->work && h->firsts && h->counts && h->offsets &&
           h->host_bytes && h->wants && h->leaps && h->local_counts;
}

static void find_place(struct hvd__hier *h, const struct hvd__map *map)
{
    h->host = (int)map->host_of[h->rank];
    h->local_size = hvd__map_local_size(map, h->host);
    while ((int)hvd__map_rank(map, h->host, h->local_rank) != h->rank)
        h->local_rank++;
    for (int i = 0; i < map->hosts; i++)
        if (hvd__map_local_size(map, i) > h->local_max)
            h->local_max = hvd__map_local_size(map, i);
}

struct hvd__plane *hvd__hier_new(const struct hvd__hier_config *config)
{
    struct hvd__hier *h = hb_calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    h->plane.ops = &hier_ops;
    h->map = config->map;
    h->rank = (int)config->rank;
    find_place(h, config->map);
    h->shm = config->shm ? config->shm : hvd__self_plane();
    h->tcp = config->tcp;
    h->head = config->head;
    h->segment_ranks = config->segment_ranks;
    hb_error_clear(&h->broken);
    atomic_store(&h->phase, HIER_BETWEEN);
    choose_sizes(h);
    if (!make_memory(h)) {
        free_memory(h);
        return NULL;
    }
    hier_watch_init(&h->watch, h->shm);
    return &h->plane;
}
