/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory plane: layout of the segment, headers and matching.
 * The rules of the memory are in shm_impl.h.
 */
#include "runtime/plane/shm/shm_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct shm_line) == SHM_LINE_BYTES,
               "a header is one pair of cache lines");
_Static_assert(sizeof(struct shm_rank) % SEGMENT_LINE_BYTES == 0,
               "ranks share no cache line");

static uint64_t ranks_bytes(int ranks)
{
    return sizeof(struct shm_shared) +
           (uint64_t)ranks * sizeof(struct shm_rank);
}

static uint64_t control_bytes(int ranks)
{
    uint64_t n = (uint64_t)ranks;
    uint64_t bytes = ranks_bytes(ranks) + n * 2 * n * sizeof(uint64_t);

    return (bytes + 4095) & ~(uint64_t)4095;
}

static uint64_t set_bytes(int ranks)
{
    return control_bytes(ranks) + (uint64_t)ranks * 2 * SHM_REGION_BYTES +
           (uint64_t)SHM_EXCHANGE_SLOTS * HVD__SHM_EXCHANGE_MAX;
}

uint64_t hvd__shm_segment_bytes(int segment_ranks)
{
    return segment_head_bytes((uint32_t)segment_ranks) +
           HVD_PROCESS_SETS_MAX * set_bytes(segment_ranks);
}

int hvd__shm_exchange_size(uint32_t *bytes, struct hb_error *err)
{
    /* A core works on four slots at a time: they fill a quarter of its cache
     * at most. */
    enum { LEAST = 4096, UNKNOWN = 64 << 10, CACHE_PART = 16 };
    const char *text = hb_knob("EXCHANGE_BYTES");
    uint64_t n = UNKNOWN;
#ifdef _SC_LEVEL2_CACHE_SIZE
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);

    if (cache > 0)
        n = (uint64_t)cache / CACHE_PART;
#endif
    if (text && hb_parse_size(text, &n, err) < 0)
        return hb_error_context(err, "HVD_EXCHANGE_BYTES");
    if (n > HVD__SHM_EXCHANGE_MAX)
        n = HVD__SHM_EXCHANGE_MAX;
    if (n > 0 && n < LEAST)
        n = LEAST;
    *bytes = (uint32_t)n / SHM_CACHE_LINE * SHM_CACHE_LINE;
    return 0;
}

/* ---- The kinds ------------------------------------------------------- */

struct collective {
    void (*stage)(struct hvd__shm *p, const struct hvd__op *op);
    int (*advance)(struct hvd__shm *p, struct hvd__op *op);
};

static void stage_nothing(struct hvd__shm *p, const struct hvd__op *op)
{
    (void)p;
    (void)op;
}

static int advance_nothing(struct hvd__shm *p, struct hvd__op *op)
{
    (void)p;
    op->trace.algorithm = "shm.header";
    return 1;
}

static const struct collective collectives[] = {
    [HVD__ALLREDUCE] = {shm_allreduce_stage, shm_allreduce_advance},
    [HVD__BROADCAST] = {shm_gather_stage, shm_gather_advance},
    [HVD__ALLGATHER] = {shm_gather_stage, shm_gather_advance},
    [HVD__BARRIER] = {stage_nothing, advance_nothing},
    [HVD__ALLTOALL] = {shm_alltoall_stage, shm_alltoall_advance},
    [HVD__REDUCESCATTER] = {shm_scatter_stage, shm_scatter_advance},
    [HVD__JOIN] = {stage_nothing, advance_nothing},
    [HVD__LANE_SCATTER] = {shm_scatter_stage, shm_scatter_advance},
};

static int shm_supports(const struct hvd__plane *plane,
                        const struct hvd__op *op)
{
    (void)plane;
    return (size_t)op->kind < sizeof(collectives) / sizeof(collectives[0]) &&
           collectives[op->kind].advance;
}

/* ---- Headers ---------------------------------------------------------- */

/* Sets the block size of exchanges between two ranks: the smaller of both
 * values.  Called at the beginning of the second operation; the headers of the
 * first show that both values are written. */
static void agree_exchange(struct hvd__shm *p)
{
    size_t least = HVD__SHM_EXCHANGE_MAX;

    for (int r = 0; r < p->n; r++) {
        size_t bytes = atomic_load(&p->ranks[r].exchange_bytes);

        if (bytes < least)
            least = bytes;
    }
    p->exchange_bytes = least / SHM_CACHE_LINE * SHM_CACHE_LINE;
}

int hvd__shm_start_as(struct hvd__plane *plane, struct hvd__op *op,
                      const struct hvd__op *what)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    struct shm_line *line;
    int rc = shm_check_abort(p, op->err);

    if (rc < 0)
        return rc;
    if (p->broken.status) {
        *op->err = p->broken;
        return p->broken.status;
    }
    p->seq++;
    p->run.matched = 0;
    p->run.differ = 0;
    p->run.lent = 0;
    p->run.peer = 0;
    p->run.stage = 0;
    p->run.round = 0;
    if (p->n == 2 && p->seq == 2)
        agree_exchange(p);
    line = shm_line(p, p->me);
    line->signature = what->signature;
    line->first_signature = what->first_signature;
    line->entries = what->entries ? what->entries : 1;
    collectives[op->kind].stage(p, op);
    shm_publish(p, &line->seq, p->seq);
    return 0;
}

static int shm_start(struct hvd__plane *plane, struct hvd__op *op)
{
    return hvd__shm_start_as(plane, op, op);
}

/* Returns HVD__CUT or -HVD_EMISMATCH, because signatures differ; the same on
 * all ranks, as all see the same headers. */
static int disagree(struct hvd__shm *p, struct hvd__op *op)
{
    const struct shm_line *own = shm_line(p, p->me);
    uint32_t entries = own->entries;

    for (int r = 0; r < p->n; r++) {
        const struct shm_line *line = shm_line(p, r);

        if (line->first_signature != own->first_signature)
            return hb_error_set(op->err, HVD_EMISMATCH,
                                "ranks have begun different operations");
        if (line->entries < entries)
            entries = line->entries;
    }
    op->agreed_entries = entries;
    return HVD__CUT;
}

/* Returns 1 if all headers have arrived and agree; else returns like
 * progress. */
static int match(struct hvd__shm *p, struct hvd__op *op)
{
    struct shm_run *run = &p->run;
    uint64_t signature = shm_line(p, p->me)->signature;

    for (; run->peer < p->n; run->peer++) {
        const struct shm_line *line = shm_line(p, run->peer);
        int rc;

        if (run->peer == p->me)
            continue;
        rc = shm_reached(p, run->peer, &line->seq, p->seq, op->err);
        if (rc == 0)
            hvd__op_misses(op, p->group_ranks[run->peer]);
        if (rc <= 0)
            return rc;
        run->differ |= line->signature != signature;
    }
    run->peer = 0;
    run->matched = 1;
    hvd__op_agreed(op);
    return run->differ ? disagree(p, op) : 1;
}

static int advance(struct hvd__shm *p, struct hvd__op *op)
{
    if (!p->run.matched) {
        int rc = match(p, op);
        if (rc != 1)
            return rc;
    }
    return collectives[op->kind].advance(p, op);
}

static void give_up(struct hvd__shm *p, const struct hb_error *err)
{
    p->broken = *err;
    atomic_store(&p->ranks[p->me].gave_up, 1);
    /* Orders gave_up before the caller's reuse of its buffers; pairs with the
     * fence in shm_still_lent. */
    shm_fence();
}

static int ended(struct hvd__shm *p, struct hvd__op *op, int rc)
{
    if (rc != 0)
        shm_disarm(p);
    /* After a mismatch, or a failure of this rank alone, the ranks are still in
     * step. */
    if (rc < 0 && rc != -HVD_EMISMATCH && !hvd__op_alone(op, rc))
        give_up(p, op->err);
    return rc;
}

static int shm_progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    return ended(p, op, advance(p, op));
}

static int domains_progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    int rc = p->run.matched ? 1 : shm_domains_match(p, op);

    return rc == 1 ? shm_progress(plane, op) : ended(p, op, rc);
}

void shm_pack(const struct hvd__shm *p, const struct hvd__op *op, void *dst,
              size_t first, size_t count)
{
    size_t bytes = op->elem_bytes, step = SHM_PIECE_BYTES / bytes;
    uint64_t began_ns = hvd__op_copy_begin(op);
    unsigned char *to = dst;

    if (hvd__op_direct(op))
        hvd__copy_shared(to, (const unsigned char *)op->sendbuf + first * bytes,
                         count * bytes);
    for (size_t i = 0; !hvd__op_direct(op) && i < count; i += step) {
        size_t n = count - i < step ? count - i : step;

        hvd__op_pack_piece(op, p->scratch, first + i, n);
        hvd__copy_shared(to + i * bytes, p->scratch, n * bytes);
    }
    hvd__op_copy_end(op, HVD__COPY_IN, began_ns);
}

/* ---- Long waits ---------------------------------------------------------- */

/* Returns the first member that has not begun the operation; the lowest one
 * that has reports it. */
static int shm_missing(struct hvd__plane *plane, uint64_t *number, int *reports)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    int missing = p->run.peer;

    if (p->run.matched || missing >= p->n || missing == p->me ||
        atomic_load(&shm_line(p, missing)->seq) >= p->seq)
        return -1;
    *number = p->seq;
    *reports = 1;
    for (int r = 0; r < p->me; r++)
        if (atomic_load(&shm_line(p, r)->seq) >= p->seq)
            *reports = 0;
    return p->group_ranks[missing];
}

static void shm_give_up(struct hvd__plane *plane, const struct hb_error *why)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    segment_abort(p->head, (uint32_t)p->config.segment_ranks,
                  why->rank < 0 ? SEGMENT_NO_RANK : (uint32_t)why->rank,
                  HVD_ETIMEOUT, why->text);
}

/* ---- Life --------------------------------------------------------------- */

static void shm_leave(struct hvd__plane *plane)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    atomic_store(&p->ranks[p->me].left, 1);
    for (int r = 0; r < p->n; r++)
        if (r != p->me)
            segment_wake(p->head, p->local_index[r]);
}

static void shm_free(struct hvd__plane *plane)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    shm_disarm(p);
    hb_free(p->scratch);
    hb_free(p);
}

static const struct hvd__plane_ops shm_ops = {
    .name = "shm",
    .supports = shm_supports,
    .start = shm_start,
    .progress = shm_progress,
    .pause = shm_pause,
    .began = shm_began,
    .interrupt = shm_interrupt,
    .missing = shm_missing,
    .give_up = shm_give_up,
    .leave = shm_leave,
    .free = shm_free,
};

/* For ranks of several cache domains. */
static const struct hvd__plane_ops domains_ops = {
    .name = "shm",
    .supports = shm_supports,
    .start = shm_start,
    .progress = domains_progress,
    .pause = shm_pause,
    .began = shm_began,
    .interrupt = shm_interrupt,
    .missing = shm_missing,
    .give_up = shm_give_up,
    .leave = shm_leave,
    .free = shm_free,
};

static void take_members(struct hvd__shm *p, const struct hvd__shm_config *c)
{
    for (int i = 0; i < p->n; i++) {
        p->world_ranks[i] = c->world_ranks[i];
        p->group_ranks[i] = c->group_ranks ? c->group_ranks[i] : i;
        p->local_index[i] = (uint32_t)(c->local_index ? c->local_index[i] : i);
    }
    snprintf(p->host, sizeof(p->host), "%s", c->host);
}

/* Returns the part of the segment of that number. */
static struct shm_shared *part_of(struct segment_head *head, int ranks,
                                  int slot)
{
    unsigned char *at = (unsigned char *)head;

    at +=
        segment_head_bytes((uint32_t)ranks) + (uint64_t)slot * set_bytes(ranks);
    return (struct shm_shared *)(void *)at;
}

int hvd__shm_claim(struct segment_head *head, int segment_ranks, int slot)
{
    struct shm_shared *part = part_of(head, segment_ranks, slot);

    return atomic_exchange(&part->is_claimed, 1) == 0;
}

void hvd__shm_unclaim(struct segment_head *head, int segment_ranks, int slot)
{
    atomic_store(&part_of(head, segment_ranks, slot)->is_claimed, 0);
}

/* Sets the pointers into the segment. */
static void lay_out(struct hvd__shm *p)
{
    int ranks = p->config.segment_ranks;
    unsigned char *at = (unsigned char *)p->head;

    if (p->config.arena_bytes)
        p->arena = at + hvd__shm_arena_at(ranks, (int)p->local_index[p->me],
                                          p->config.arena_bytes);
    p->shared = part_of(p->head, ranks, p->config.slot);
    at = (unsigned char *)p->shared;
    p->ranks = (struct shm_rank *)(void *)(at + sizeof(*p->shared));
    p->counts = (uint64_t *)(void *)(at + ranks_bytes(ranks));
    p->data = at + control_bytes(ranks);
    p->exchange = p->data + (uint64_t)ranks * 2 * SHM_REGION_BYTES;
}

struct hvd__plane *hvd__shm_new(const struct hvd__shm_config *config)
{
    struct hvd__shm *p = hb_calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->scratch = hb_malloc(SHM_SCRATCH_BYTES);
    if (!p->scratch) {
        hb_free(p);
        return NULL;
    }
    p->config = *config;
    if (!p->config.segment_ranks)
        p->config.segment_ranks = config->local_size;
    p->head = config->head;
    p->n = config->local_size;
    p->me = config->local_rank;
    take_members(p, config);
    p->plane.ops =
        shm_domains_init(p, config->domains) ? &domains_ops : &shm_ops;
    lay_out(p);
    memset(&p->ranks[p->me], 0, sizeof(p->ranks[p->me]));
    atomic_store(&p->ranks[p->me].exchange_bytes, config->exchange_bytes);
    shm_wait_init(p);
    return &p->plane;
}
