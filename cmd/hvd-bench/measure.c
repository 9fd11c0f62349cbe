/* SPDX-License-Identifier: Apache-2.0 */
/* One measurement: a collective at one size. */
#include "cmd/hvd-bench/measure.h"

#include "cmd/hvd-bench/raw.h"
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <stdlib.h>

enum {
    BLOCK_NS = 1000000,    /* a block lasts at least this long */
    ESTIMATE_NS = 2000000, /* length of the blocks that the estimate uses */
    SETTLE_NS = 20000000,  /* the first iterations may be slow for so long */
    BLOCKS_MIN = 7,
    BLOCKS_MAX = 10000
};

struct plan {
    int64_t block;   /* iterations in a block */
    int64_t nblocks; /* timed blocks */
    int64_t warmup;  /* iterations */
};

enum calls { LIBHVD, RAW };

static int iterate(struct bench_work *w, enum calls calls, struct hb_error *err)
{
    int rc;

    if (calls == LIBHVD) {
        rc = bench_work_iterate(w);
        return rc < 0 ? bench_work_failed(w, rc, err) : 0;
    }
    rc = bench_raw_iterate(w->gpu.raw, w, bench_cuda_stream(w->gpu.cuda), err);
    return rc < 0 || w->o->stream ? rc : bench_cuda_wait(w->gpu.cuda, err);
}

static int run_block(struct bench_work *w, enum calls calls, int64_t n,
                     struct hb_error *err)
{
    int rc = 0;

    while (rc == 0 && n-- > 0)
        rc = iterate(w, calls, err);
    return rc < 0 || !w->o->stream ? rc : bench_cuda_wait(w->gpu.cuda, err);
}

/* Sets *ns to the time of n iterations, after a barrier. */
static int time_block(struct bench_work *w, enum calls calls, int64_t n,
                      double *ns, struct hb_error *err)
{
    int rc = hvd_barrier(&w->plain);
    uint64_t begin = hb_now_ns();

    if (rc < 0)
        return bench_work_failed(w, rc, err);
    if (w->o->events)
        rc = bench_cuda_start(w->gpu.cuda, err);
    if (rc == 0)
        rc = run_block(w, calls, n, err);
    *ns = (double)(hb_now_ns() - begin);
    return rc < 0 || !w->o->events ? rc : bench_cuda_stop(w->gpu.cuda, ns, err);
}

static int checked_block(struct bench_work *w, enum calls calls, int64_t n,
                         int64_t turn, double *ns, struct hb_error *err)
{
    int checks = w->o->check && bench_work_repeats(w);
    int rc = checks ? bench_work_spoil(w, turn, err) : 0;

    if (rc == 0)
        rc = time_block(w, calls, n, ns, err);
    return rc == 0 && checks ? bench_work_check(w, turn, err) : rc;
}

static int slowest(struct bench_work *w, double *v, size_t count,
                   struct hb_error *err)
{
    int rc = hvd_allreduce(v, v, count, HVD_FLOAT64, HVD_MAX, &w->plain);

    return rc < 0 ? bench_work_failed(w, rc, err) : 0;
}

/* Estimates the undisturbed time of an iteration: the fastest of longer and
 * longer blocks, until two are long enough.  The same on every rank. */
static int estimate(struct bench_work *w, double *once, struct hb_error *err)
{
    int64_t n = 1, most = w->o->iters ? w->o->iters : INT64_C(1) << 24;
    double ns = 0, total = w->o->iters ? SETTLE_NS : 0;
    int enough = 0, rc = 0;

    *once = 1e18;
    while (enough < 2 || total < SETTLE_NS) {
        rc = time_block(w, LIBHVD, n, &ns, err);
        rc = rc < 0 ? rc : slowest(w, &ns, 1, err);
        if (rc < 0)
            return rc;
        total += ns;
        if (ns / (double)n < *once)
            *once = ns / (double)n;
        if (ns > ESTIMATE_NS || n >= most)
            enough++;
        else
            n *= 2;
    }
    return 0;
}

static int make_plan(struct bench_work *w, struct plan *plan,
                     struct hb_error *err)
{
    const struct bench_options *o = w->o;
    double once = 0;
    int64_t most;
    int rc = estimate(w, &once, err);

    if (rc < 0)
        return rc;
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
    return 0;
}

/* ---- Statistics ------------------------------------------------------ */

double bench_bus_factor(enum bench_what what, int ranks)
{
    double n = ranks;

    switch (what) {
    case BENCH_ALLREDUCE:
        return 2 * (n - 1) / n;
    case BENCH_ALLGATHER:
    case BENCH_ALLTOALL:
    case BENCH_REDUCESCATTER:
        return (n - 1) / n;
    default:
        return 1;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Returns the median; sorts v. */
static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static void summarize(const struct bench_work *w, const struct plan *plan,
                      double *ns, struct bench_result *r)
{
    double share = w->o->mode == BENCH_ASYNC ? w->ntensors : 1;
    double per = (double)plan->block * share * 1e3;
    size_t n = (size_t)plan->nblocks;

    *r = (struct bench_result){.bytes = w->bytes, .count = w->count};
    if (w->gpu.raw) {
        double *raw = ns + n, *overhead_ns = raw + n;

        for (size_t i = 0; i < n; i++)
            overhead_ns[i] = ns[i] - raw[i];
        r->raw_us = median(raw, n) / per;
        r->over_us = median(overhead_ns, n) / per;
    }
    r->median_us = median(ns, n) / per;
    r->min_us = ns[0] / per;
    r->max_us = ns[n - 1] / per;
    r->of_raw = r->raw_us / r->median_us;
    r->iters = plan->block * plan->nblocks;
    r->algbw = (double)w->total_bytes / share / r->median_us / 1e3;
    r->busbw = r->algbw * bench_bus_factor(w->o->what, w->set.size);
}

/* Times one block of each kind of calls. */
static int time_pair(struct bench_work *w, const struct plan *plan, int64_t i,
                     double *blocks, struct hb_error *err)
{
    double *ns[] = {&blocks[i], &blocks[plan->nblocks + i]};
    int kinds = w->gpu.raw ? 2 : 1, rc = 0;

    for (int k = 0; k < kinds && rc == 0; k++) {
        int calls = (k + (int)(i % kinds)) % kinds;

        rc =
            checked_block(w, (enum calls)calls, plan->block, i, ns[calls], err);
    }
    return rc;
}

static int warm_up(struct bench_work *w, const struct plan *plan,
                   struct hb_error *err)
{
    double ns;
    int rc = time_block(w, LIBHVD, plan->warmup, &ns, err);

    return rc < 0 || !w->gpu.raw ? rc
                                 : time_block(w, RAW, plan->warmup, &ns, err);
}

static int timed(struct bench_work *w, struct bench_result *result,
                 struct hb_error *err)
{
    struct plan plan;
    double *blocks;
    int rc = make_plan(w, &plan, err);

    if (rc < 0)
        return rc;
    /* of libhvd, of NCCL's own calls, and their differences */
    blocks = hb_calloc(3 * (size_t)plan.nblocks, sizeof(*blocks));
    if (!blocks)
        return hb_error_set(err, HVD_ENOMEM, "no memory");
    rc = warm_up(w, &plan, err);
    for (int64_t i = 0; i < plan.nblocks && rc == 0; i++)
        rc = time_pair(w, &plan, i, blocks, err);
    if (rc == 0)
        rc = slowest(w, blocks, 2 * (size_t)plan.nblocks, err);
    if (rc == 0)
        summarize(w, &plan, blocks, result);
    hb_free(blocks);
    return rc;
}

static int measure(struct bench_work *w, struct bench_result *result,
                   struct hb_error *err)
{
    int rc = run_block(w, LIBHVD, 1, err);

    if (rc == 0 && w->o->check)
        rc = bench_work_verify(w, err);
    if (rc == 0 && !bench_work_repeats(w))
        rc = bench_work_zero(w, err);
    if (rc == 0)
        rc = timed(w, result, err);
    if (rc == 0 && w->o->check && bench_work_repeats(w))
        rc = bench_work_verify(w, err);
    return rc;
}

int bench_measure(const struct bench_options *o, const struct bench_set *set,
                  const struct bench_gpu *gpu, size_t bytes,
                  struct bench_result *result, struct hb_error *err)
{
    struct bench_work w;
    int rc = bench_work_open(&w, o, set, gpu, bytes, err);

    if (rc == 0)
        rc = measure(&w, result, err);
    bench_work_close(&w);
    return rc;
}
