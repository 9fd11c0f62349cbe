/* SPDX-License-Identifier: Apache-2.0 */
/* One measurement: a collective at one size. */
#include "cmd/hvd-bench/measure.h"

#include "cmd/hvd-bench/data.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_NS = 1000000,    /* a block lasts at least this long */
    ESTIMATE_NS = 2000000, /* what the estimate of its length is based on */
    BLOCKS_MIN = 5,
    BLOCKS_MAX = 10000,
    PAGE = 4096
};

/* One operation in flight. */
struct lane {
    char name[24];
    void *send, *recv; /* the same in place */
    hvd_request *req;
};

struct run {
    const struct bench_options *o;
    int rank, size;
    size_t count;      /* elements that a rank sends */
    size_t recv_count; /* elements that it receives */
    struct lane *lanes;
    int nlanes;
    struct bench_data data; /* of the first lane; the seed counts up */
};

static int failed(const struct run *run, struct hb_error *err, int rc)
{
    return hb_error_set(err, (enum hvd_status) - rc, "rank %d: %s: %s",
                        run->rank, bench_what_name(run->o->what),
                        hvd_error_message());
}

/* ---- Buffers --------------------------------------------------------- */

static void *pages(size_t bytes, struct hb_error *err)
{
    size_t room = (bytes + PAGE) / PAGE * PAGE;
    void *p = aligned_alloc(PAGE, room);

    if (p)
        memset(p, 0, room);
    else
        hb_error_set(err, HVD_ENOMEM, "no memory for a buffer of %zu bytes",
                     bytes);
    return p;
}

static void run_fini(struct run *run)
{
    for (int i = 0; run->lanes && i < run->nlanes; i++) {
        if (run->lanes[i].send != run->lanes[i].recv)
            free(run->lanes[i].send);
        free(run->lanes[i].recv);
    }
    hb_free(run->lanes);
}

static int run_init(struct run *run, const struct bench_options *o,
                    size_t bytes, struct hb_error *err)
{
    size_t elem = hvd_dtype_size(o->dtype);

    *run = (struct run){.o = o, .rank = hvd_rank(), .size = hvd_size()};
    run->recv_count = run->count = o->what == BENCH_BARRIER ? 0 : bytes / elem;
    if (o->what == BENCH_ALLGATHER) {
        run->count = (run->count + (size_t)run->size - 1) / (size_t)run->size;
        run->recv_count = run->count * (size_t)run->size;
    }
    run->data = (struct bench_data){o->dtype, o->op, run->size,
                                    UINT64_C(88172645463325252) + bytes};
    run->nlanes = o->async ? o->async : 1;
    run->lanes = hb_calloc((size_t)run->nlanes, sizeof(*run->lanes));
    if (!run->lanes)
        return hb_error_set(err, HVD_ENOMEM, "no memory");
    for (int i = 0; i < run->nlanes; i++) {
        struct lane *lane = &run->lanes[i];

        snprintf(lane->name, sizeof(lane->name), "bench.%d", i);
        lane->recv = pages(run->recv_count * elem, err);
        lane->send = o->in_place ? lane->recv : pages(run->count * elem, err);
        if (!lane->recv || !lane->send)
            return -HVD_ENOMEM;
    }
    return 0;
}

/* ---- The loop -------------------------------------------------------- */

static int call(const struct run *run, const struct lane *lane)
{
    const struct bench_options *o = run->o;

    switch (o->what) {
    case BENCH_ALLREDUCE:
        return hvd_allreduce(lane->send, lane->recv, run->count, o->dtype,
                             o->op, NULL);
    case BENCH_BROADCAST:
        return hvd_broadcast(lane->send, lane->recv, run->count, o->dtype, 0,
                             NULL);
    case BENCH_ALLGATHER:
        return hvd_allgather(lane->send, run->count, lane->recv,
                             run->recv_count, NULL, o->dtype, NULL);
    default:
        return hvd_barrier(NULL);
    }
}

static int call_async(const struct run *run, struct lane *lane)
{
    const struct bench_options *o = run->o;

    switch (o->what) {
    case BENCH_ALLREDUCE:
        return hvd_allreduce_async(lane->name, lane->send, lane->recv,
                                   run->count, o->dtype, o->op, NULL,
                                   &lane->req);
    case BENCH_BROADCAST:
        return hvd_broadcast_async(lane->name, lane->send, lane->recv,
                                   run->count, o->dtype, 0, NULL, &lane->req);
    case BENCH_ALLGATHER:
        return hvd_allgather_async(lane->name, lane->send, run->count,
                                   lane->recv, run->recv_count, NULL, o->dtype,
                                   NULL, &lane->req);
    default:
        return hvd_barrier_async(lane->name, NULL, &lane->req);
    }
}

/* Every lane once.  What was started is waited for even after a failure. */
static int iterate(struct run *run)
{
    int rc = 0, started, waited;

    if (!run->o->async)
        return call(run, run->lanes);
    for (started = 0; started < run->nlanes && rc == 0;)
        rc = call_async(run, &run->lanes[started++]);
    if (rc < 0)
        started--;
    for (int i = 0; i < started; i++) {
        waited = hvd_wait(run->lanes[i].req);
        rc = rc < 0 ? rc : waited;
    }
    return rc;
}

/* n iterations in *ns, from when every rank is there. */
static int time_block(struct run *run, int64_t n, double *ns,
                      struct hb_error *err)
{
    int rc = hvd_barrier(NULL);
    uint64_t begin = hb_now_ns();

    while (rc == 0 && n-- > 0)
        rc = iterate(run);
    *ns = (double)(hb_now_ns() - begin);
    return rc < 0 ? failed(run, err, rc) : 0;
}

static int slowest(struct run *run, double *v, size_t count,
                   struct hb_error *err)
{
    int rc = hvd_allreduce(v, v, count, HVD_FLOAT64, HVD_MAX, NULL);

    return rc < 0 ? failed(run, err, rc) : 0;
}

/* ---- Results --------------------------------------------------------- */

static void fill(struct run *run)
{
    struct bench_data d = run->data;
    size_t elem = hvd_dtype_size(d.dtype);
    int sends = run->o->what != BENCH_BROADCAST || run->rank == 0;

    for (int i = 0; i < run->nlanes; i++, d.seed++) {
        memset(run->lanes[i].recv, 0xee, run->recv_count * elem);
        if (sends)
            bench_data_fill(&d, run->rank, run->lanes[i].send, run->count);
    }
}

static int compare(const struct run *run, const struct bench_data *d,
                   const struct lane *lane, int source, size_t at,
                   struct hb_error *err)
{
    size_t elem = hvd_dtype_size(d->dtype);
    const char *recv = (const char *)lane->recv + at * elem;
    uint64_t got, want;
    size_t i = bench_data_compare(d, source, recv, run->count, &got, &want);

    if (i == run->count)
        return 0;
    return hb_error_set(err, HVD_EPROTO,
                        "rank %d: wrong result: %s of %zu %s: element %zu has "
                        "the bits %#llx, not %#llx",
                        run->rank, bench_what_name(run->o->what),
                        run->recv_count, hvd_dtype_name(d->dtype), at + i,
                        (unsigned long long)got, (unsigned long long)want);
}

static int verify(const struct run *run, struct hb_error *err)
{
    struct bench_data d = run->data;
    int rc = 0;

    for (int i = 0; i < run->nlanes && rc == 0; i++, d.seed++) {
        const struct lane *lane = &run->lanes[i];

        if (run->o->what == BENCH_ALLREDUCE)
            rc = compare(run, &d, lane, BENCH_REDUCED, 0, err);
        if (run->o->what == BENCH_BROADCAST)
            rc = compare(run, &d, lane, 0, 0, err);
        if (run->o->what == BENCH_ALLGATHER)
            for (int r = 0; r < run->size && rc == 0; r++)
                rc = compare(run, &d, lane, r, (size_t)r * run->count, err);
    }
    return rc;
}

/* ---- Statistics ------------------------------------------------------ */

struct plan {
    int64_t block;   /* iterations in a block */
    int64_t nblocks; /* timed */
    int64_t warmup;  /* iterations */
};

/* The same on every rank, because the estimate is. */
static int make_plan(struct run *run, struct plan *plan, struct hb_error *err)
{
    const struct bench_options *o = run->o;
    double ns = 0, once;
    int64_t n, most;
    int rc = 0;

    for (n = 1; rc == 0; n *= 2) {
        rc = time_block(run, n, &ns, err);
        rc = rc < 0 ? rc : slowest(run, &ns, 1, err);
        if (ns > ESTIMATE_NS || n > INT64_C(1) << 24 ||
            (o->iters && n >= o->iters))
            break;
    }
    once = ns / (double)n;
    plan->block = once > 0 ? (int64_t)(BLOCK_NS / once) + 1 : 1;
    most = o->iters ? (o->iters + 10) / 11 : INT64_MAX;
    plan->block = plan->block < most ? plan->block : most;
    plan->nblocks = (int64_t)((double)o->measure_ms * 1e6 /
                              ((double)plan->block * once + 1));
    if (plan->nblocks < BLOCKS_MIN)
        plan->nblocks = BLOCKS_MIN;
    if (plan->nblocks > BLOCKS_MAX)
        plan->nblocks = BLOCKS_MAX;
    if (o->iters)
        plan->nblocks = (o->iters + plan->block - 1) / plan->block;
    plan->warmup = o->warmup < 0 ? 2 * plan->block : o->warmup;
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarize(const struct run *run, const struct plan *plan,
                      double *ns, struct bench_result *r)
{
    double per = (double)plan->block * run->nlanes * 1e3;
    size_t n = (size_t)plan->nblocks;
    double ranks = run->size, factor = 1;

    qsort(ns, n, sizeof(*ns), by_value);
    r->median_us = (ns[(n - 1) / 2] + ns[n / 2]) / 2 / per;
    r->min_us = ns[0] / per;
    r->max_us = ns[n - 1] / per;
    r->count = run->recv_count;
    r->bytes = r->count * hvd_dtype_size(run->o->dtype);
    r->iters = plan->block * plan->nblocks;
    if (run->o->what == BENCH_ALLREDUCE)
        factor = 2 * (ranks - 1) / ranks;
    if (run->o->what == BENCH_ALLGATHER)
        factor = (ranks - 1) / ranks;
    r->algbw = (double)r->bytes / r->median_us / 1e3;
    r->busbw = r->algbw * factor;
}

static int timed(struct run *run, struct bench_result *result,
                 struct hb_error *err)
{
    struct plan plan;
    double ns;
    double *blocks;
    int rc = make_plan(run, &plan, err);

    if (rc < 0)
        return rc;
    blocks = hb_calloc((size_t)plan.nblocks, sizeof(*blocks));
    if (!blocks)
        return hb_error_set(err, HVD_ENOMEM, "no memory");
    rc = time_block(run, plan.warmup, &ns, err);
    for (int64_t i = 0; i < plan.nblocks && rc == 0; i++)
        rc = time_block(run, plan.block, &blocks[i], err);
    if (rc == 0)
        rc = slowest(run, blocks, (size_t)plan.nblocks, err);
    if (rc == 0)
        summarize(run, &plan, blocks, result);
    hb_free(blocks);
    return rc;
}

int bench_measure(const struct bench_options *o, size_t bytes,
                  struct bench_result *result, struct hb_error *err)
{
    int checks = o->check && o->what != BENCH_BARRIER;
    struct run run;
    int rc = run_init(&run, o, bytes, err);

    if (rc == 0 && checks) {
        fill(&run);
        rc = iterate(&run);
        rc = rc < 0 ? failed(&run, err, rc) : verify(&run, err);
    }
    /* In place, sums would grow without end; zeros stay. */
    for (int i = 0; o->in_place && i < run.nlanes && rc == 0; i++)
        memset(run.lanes[i].recv, 0, run.recv_count * hvd_dtype_size(o->dtype));
    if (rc == 0)
        rc = timed(&run, result, err);
    if (rc == 0 && checks && !o->in_place)
        rc = verify(&run, err);
    run_fini(&run);
    return rc;
}
