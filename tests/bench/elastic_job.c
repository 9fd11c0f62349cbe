/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the steps of a training that only communicates:
 *
 *     elastic_job SECONDS BYTES how
 *
 * In each step all ranks add up BYTES of fp32 and, if how is "commit", call
 * hvd_commit.  Rank 0 prints {"us": N}, the microseconds of a step: the lower
 * quartile over blocks of steps, as other programs only add.  Each rank keeps
 * to one core.
 */
#include "lib/base/sys/clock.h"
#include "runtime/hvd.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 41, WARM_UP = 20 };

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "elastic_job: %s: %s\n", what, hvd_error_message());
    exit(1);
}

static void pin(void)
{
    cpu_set_t all, one;
    int nth = hvd_local_rank();

    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return;
    nth %= CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && nth-- == 0)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

/* A training: its buffer and its state. */
struct job {
    float *x;
    size_t count;
    hvd_state *state; /* NULL: no commits */
};

/* Does some steps; returns the nanoseconds of one. */
static double time_steps(const struct job *job, int64_t steps)
{
    uint64_t began_ns = hb_now_ns();

    for (int64_t i = 0; i < steps; i++) {
        must(hvd_allreduce(job->x, job->x, job->count, HVD_FLOAT32, HVD_SUM,
                           NULL),
             "hvd_allreduce");
        if (job->state)
            must(hvd_commit(job->state), "hvd_commit");
    }
    return (double)(hb_now_ns() - began_ns) / (double)steps;
}

static int by_value(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;

    return (a > b) - (a < b);
}

/* Times blocks of steps, which take about `seconds` together. */
static void measure(const struct job *job, double seconds)
{
    double ns[BLOCKS];
    int64_t steps;

    time_steps(job, WARM_UP);
    steps = (int64_t)(seconds * 1e9 / BLOCKS / time_steps(job, WARM_UP)) + 1;
    must(hvd_broadcast(&steps, &steps, 1, HVD_INT64, 0, NULL), "hvd_broadcast");
    for (int i = 0; i < BLOCKS; i++)
        ns[i] = time_steps(job, steps);
    qsort(ns, BLOCKS, sizeof(ns[0]), by_value);
    if (hvd_rank() == 0)
        printf("{\"us\": %.4f}\n", ns[BLOCKS / 4] / 1000);
}

int main(int argc, char **argv)
{
    struct job job = {0};
    static int64_t step;
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    hvd_state *s;

    if (argc != 4 || bytes < sizeof(float))
        return 2;
    must(hvd_init(), "hvd_init");
    pin();
    job.count = bytes / sizeof(float);
    job.x = calloc(job.count, sizeof(float));
    must(hvd_state_new(&s), "hvd_state_new");
    must(hvd_state_add(s, "step", &step, sizeof(step), 0), "hvd_state_add");
    must(hvd_sync(s), "hvd_sync");
    if (strcmp(argv[3], "commit") == 0)
        job.state = s;
    if (job.x)
        measure(&job, strtod(argv[1], NULL));
    hvd_state_free(s);
    free(job.x);
    return hvd_shutdown() < 0;
}
