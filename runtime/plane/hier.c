/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hierarchical plane: its life, and going through the steps; see
 * hier.h.
 */
#include "runtime/plane/hier_impl.h"

#include "lib/base/alloc.h"

#include <string.h>

static int nothing_more(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)h;
    (void)op;
    (void)rc;
    return 0;
}

static const struct hier_step_ops steps[] = {
    [HIER_LOCAL] = {0, hier_local_begin, hier_local_end},
    [HIER_TELL] = {1, hier_tell_begin, hier_tell_end},
    [HIER_EXPLAIN] = {1, hier_explain_begin, hier_explain_end},
    [HIER_VERDICT] = {0, hier_verdict_begin, hier_verdict_end},
    [HIER_SCATTER] = {0, hier_scatter_begin, nothing_more},
    [HIER_RING] = {1, hier_ring_begin, nothing_more},
    [HIER_SPREAD] = {0, hier_spread_begin, nothing_more},
    [HIER_CHAIN] = {1, hier_chain_begin, nothing_more},
    [HIER_COLLECT] = {0, hier_collect_begin, nothing_more},
    [HIER_PIECE] = {0, hier_piece_begin, hier_piece_end},
    [HIER_SWAP] = {1, hier_swap_begin, hier_swap_end},
    [HIER_SHARE] = {0, hier_share_begin, hier_share_end},
    [HIER_AGAIN] = {0, hier_again_begin, nothing_more},
};

static const enum hier_step *plan_for(const struct hvd__hier *h,
                                      const struct hvd__op *op)
{
    static const enum hier_step agree[] = {HIER_LOCAL, HIER_TELL, HIER_EXPLAIN,
                                           HIER_VERDICT, HIER_DONE};
    static const enum hier_step allreduce[] = {
        HIER_LOCAL,   HIER_TELL, HIER_EXPLAIN, HIER_VERDICT,
        HIER_SCATTER, HIER_RING, HIER_COLLECT, HIER_DONE};
    static const enum hier_step broadcast[] = {
        HIER_LOCAL,  HIER_TELL,  HIER_EXPLAIN, HIER_VERDICT,
        HIER_SPREAD, HIER_CHAIN, HIER_COLLECT, HIER_DONE};
    static const enum hier_step allgather[] = {
        HIER_LOCAL, HIER_TELL,  HIER_EXPLAIN, HIER_VERDICT, HIER_PIECE,
        HIER_SWAP,  HIER_SHARE, HIER_AGAIN,   HIER_DONE};

    if (op->kind == HVD__ALLGATHER)
        return allgather;
    if (op->kind == HVD__ALLREDUCE && !hier_small(h, op))
        return allreduce;
    if (op->kind == HVD__BROADCAST && !hier_small(h, op))
        return broadcast;
    return agree;
}

/* ---- Steps in shared memory ------------------------------------------ */

struct hvd__op *hier_sub(struct hvd__hier *h, enum hvd__kind kind)
{
    struct hvd__op *sub = &h->sub;

    memset(sub, 0, sizeof(*sub));
    sub->kind = kind;
    sub->dtype = HVD_UINT8;
    sub->elem_bytes = 1;
    sub->prescale = sub->postscale = 1.0;
    sub->name = "";
    sub->err = &h->sub_err;
    return sub;
}

/* Local ranks go through the same steps, so the step is signature enough. */
int hier_start_sub(struct hvd__hier *h, enum hier_step step)
{
    int rc;

    h->sub.signature = (uint64_t)step;
    rc = hvd__shm_start_as(h->shm, &h->sub, &h->sub);
    return rc < 0 ? rc : 1;
}

/* ---- Failing for good ------------------------------------------------- */

/* Local ranks wait in the segment. */
static void tell_local_ranks(struct hvd__hier *h, int rc)
{
    uint32_t n = (uint32_t)h->local_size, rank = (uint32_t)h->broken.rank;

    if (h->broken.rank < 0)
        return;
    if (rc == -HVD_ESHUTDOWN)
        segment_miss(h->head, n, rank);
    else if (rc == -HVD_EPEER)
        segment_lose(h->head, n, rank);
}

/* Before this host has said anything in this operation, the leaders of the
 * others wait for that, and can be told who is gone; later, any rank of the
 * lane may wait for data. */
static void tell_other_hosts(struct hvd__hier *h, enum hier_step step, int rc)
{
    if (!h->tcp)
        return;
    if (step != HIER_LOCAL || rc != -HVD_ESHUTDOWN)
        hvd__tcp_hang_up(h->tcp);
    else if (h->broken.rank >= 0 && hier_leads(h))
        hvd__tcp_tell_gone(h->tcp, (uint32_t)h->broken.rank);
}

static int give_up(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    h->broken = h->sub_err;
    if (!h->broken.status)
        hb_error_set(&h->broken, (enum hvd_status) - rc, "%s",
                     hb_status_text(rc));
    *op->err = h->broken;
    if (steps[h->plan[h->at]].is_tcp)
        tell_local_ranks(h, rc);
    tell_other_hosts(h, h->plan[h->at], rc);
    return rc;
}

/* ---- The plane's table ----------------------------------------------- */

static int hier_supports(const struct hvd__plane *plane,
                         const struct hvd__op *op)
{
    (void)plane;
    (void)op;
    return 1;
}

static int hier_start(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    if (h->broken.status) {
        *op->err = h->broken;
        return h->broken.status;
    }
    atomic_store(&h->between, 0);
    h->plan = plan_for(h, op);
    h->at = 0;
    h->begun = 0;
    h->in_tcp = 0;
    return 0;
}

static int begin_step(struct hvd__hier *h, struct hvd__op *op)
{
    const struct hier_step_ops *step = &steps[h->plan[h->at]];
    int rc;

    hb_error_clear(&h->sub_err);
    rc = step->begin(h, op);
    h->begun = rc > 0;
    h->in_tcp = h->begun && step->is_tcp;
    return rc;
}

/* 1 when the step is over, 0 to come again, negative: *final tells whether
 * that lasts. */
static int go_on(struct hvd__hier *h, struct hvd__op *op, int *final)
{
    enum hier_step step = h->plan[h->at];
    int rc = h->begun ? 1 : begin_step(h, op);

    *final = 1;
    if (rc <= 0)
        return rc < 0 ? rc : 1;
    rc = steps[step].is_tcp ? hvd__tcp_progress(h->tcp, &h->sub_err)
                            : h->shm->ops->progress(h->shm, &h->sub);
    if (rc == 0)
        return 0;
    h->begun = h->in_tcp = 0;
    if (rc < 0 && !(step == HIER_LOCAL && rc == -HVD_EMISMATCH))
        return rc;
    rc = steps[step].end(h, op, rc);
    *final = rc != -HVD_EMISMATCH;
    return rc < 0 ? rc : 1;
}

static int finish(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    if (rc < 0)
        *op->err = h->sub_err;
    else if (op->kind == HVD__ALLGATHER)
        rc = hier_gather_result(h, op);
    atomic_store(&h->between, 1);
    return rc < 0 ? rc : 1;
}

static int hier_progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    while (h->plan[h->at] != HIER_DONE) {
        int final = 0;
        int rc = go_on(h, op, &final);

        if (rc == 0)
            return 0;
        if (rc < 0)
            return final ? give_up(h, op, rc) : finish(h, op, rc);
        h->at++;
    }
    return finish(h, op, 0);
}

static void hier_pause(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    if (h->in_tcp)
        hvd__tcp_pause(h->tcp);
    else
        h->shm->ops->pause(h->shm);
}

/* Another thread cannot know where the driver waits. */
static void hier_interrupt(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    h->shm->ops->interrupt(h->shm);
    if (h->tcp)
        hvd__tcp_interrupt(h->tcp);
}

/* Leaders expect each other's word at the beginning of an operation only;
 * in the middle of one, the end of the connection must do. */
static void hier_leave(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

    h->shm->ops->leave(h->shm);
    if (!atomic_exchange(&h->left, 1) && h->tcp && hier_leads(h) &&
        atomic_load(&h->between))
        hvd__tcp_tell_gone(h->tcp, h->rank);
}

static void free_memory(struct hvd__hier *h)
{
    hb_free(h->blocks);
    hb_free((void *)h->srcs);
    hb_free(h->scratch);
    hb_free(h->verdict);
    hb_free(h->counts);
    hb_free(h->offsets);
    hb_free(h->host_bytes);
    hb_free(h);
}

static void hier_free(struct hvd__plane *plane)
{
    struct hvd__hier *h = (struct hvd__hier *)plane;

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
    .interrupt = hier_interrupt,
    .leave = hier_leave,
    .free = hier_free,
};

/* ---- Life ------------------------------------------------------------ */

/* The same on every rank: what is small must be small for all. */
static void choose_sizes(struct hvd__hier *h)
{
    size_t stride = HIER_SCRATCH_BYTES / (size_t)h->map->hosts;

    if (stride < HIER_BLOCK_MIN_BYTES)
        stride = HIER_BLOCK_MIN_BYTES;
    if (stride > HIER_BLOCK_MAX_BYTES)
        stride = HIER_BLOCK_MAX_BYTES;
    h->stride = stride / 64 * 64;
    h->small_bytes = h->stride - 64;
    if (h->small_bytes > HIER_SMALL_BYTES)
        h->small_bytes = HIER_SMALL_BYTES;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int make_memory(struct hvd__hier *h)
{
    size_t hosts = (size_t)h->map->hosts, size = (size_t)h->map->size;
    size_t told =
        most(most(h->small_bytes, size * sizeof(uint64_t)), HB_ERROR_TEXT_MAX);

    h->blocks = hb_calloc(hosts, sizeof(*h->blocks));
    h->srcs = hb_calloc(hosts, sizeof(*h->srcs));
    h->scratch = hb_calloc(hosts, h->stride);
    h->verdict = hb_calloc(1, sizeof(*h->verdict) + told);
    h->counts = hb_calloc(size, sizeof(*h->counts));
    h->offsets = hb_calloc(size + 1, sizeof(*h->offsets));
    h->host_bytes = hb_calloc(hosts, sizeof(*h->host_bytes));
    return h->blocks && h->srcs && h->scratch && h->verdict && h->counts &&
           h->offsets && h->host_bytes;
}

struct hvd__plane *hvd__hier_new(const struct hvd__hier_config *config)
{
    struct hvd__hier *h = hb_calloc(1, sizeof(*h));
    const struct hvd__map *map = config->map;

    if (!h)
        return NULL;
    h->plane.ops = &hier_ops;
    h->map = map;
    h->rank = config->rank;
    h->host = (int)map->host_of[config->rank];
    h->local_size = hvd__map_local_size(map, h->host);
    while (hvd__map_rank(map, h->host, h->local_rank) != config->rank)
        h->local_rank++;
    h->shm = config->shm;
    h->tcp = config->tcp;
    h->head = config->head;
    hb_error_clear(&h->broken);
    atomic_store(&h->between, 1);
    choose_sizes(h);
    if (make_memory(h))
        return &h->plane;
    free_memory(h);
    return NULL;
}
