/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training whose ranks have shards of an array of integers, all of which are
 * checked.
 *
 *     elastic_shards STEPS[:GENERATION] COUNT [FLAGS]
 *
 * Does STEPS steps.  With GENERATION, does more until at least 20 steps follow
 * the change to that generation, or to a later one.
 * Element i of COUNT in all is i + k * 1000003 after step k, on the rank that
 * has it: the ranks' parts are as equal as they can be.  Prints "done RANK SIZE
 * STEPS" at the end, "removed RANK STEP" if the rank was asked to leave, "lost
 * TEXT" if hvd_sync says that a shard is lost, or what was wrong.  FLAGS,
 * letters:
 *
 *     f   prints "working SIZE" in rank 0 after the first step in each
 *         generation: its shards and their copies are committed then
 *     m   measures: does nothing in a step, and at the end prints in rank 0
 *         "commit MS BYTES" with the median time of a commit and the bytes of
 *         its shard
 *     p   sleeps 1 ms in each step
 *     t   prints "restored MS BYTES" in rank 0 after each change of the
 *         world: the time of hvd_sync, and the bytes of its shard then
 */
#include "lib/base/sys/clock.h"
#include "runtime/hvd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROWTH = 1000003, TIMES_MAX = 10000 };
enum { SOME = 20 }; /* steps in the last generation */

static int64_t step, *shard, first, elems, count;
static int64_t synced; /* the step of the last hvd_sync */
static int prints_first, prints_sync, measures, pauses;
static int printed; /* the last generation of which "working" was printed */
static double times_ms[TIMES_MAX];
static int times;

static int fail(const char *what)
{
    fprintf(stderr, "elastic_shards: %s: %s\n", what, hvd_error_message());
    return 1;
}

/* Takes this rank's part of the array.  Returns 0 or negative. */
static int take_part(hvd_state *s, int rank, int size)
{
    size_t bytes;
    int64_t *more;

    first = count * rank / size;
    elems = count * (rank + 1) / size - first;
    bytes = (size_t)elems * sizeof(*shard);
    more = realloc(shard, bytes + 1);
    if (!more)
        return -HVD_ENOMEM;
    shard = more;
    return hvd_state_resize(s, "shard", shard, bytes);
}

static int on_resize(void *arg, const struct hvd_change *c)
{
    return take_part(arg, c->rank, c->size);
}

static int check(const char *when)
{
    for (int64_t i = 0; i < elems; i++)
        if (shard[i] != first + i + step * GROWTH) {
            fprintf(stderr,
                    "elastic_shards: rank %d of %d, step %" PRId64
                    ", %s: [%" PRId64 "] is %" PRId64 "\n",
                    hvd_rank(), hvd_size(), step, when, first + i, shard[i]);
            return 1;
        }
    return 0;
}

static void print_first(void)
{
    if (!prints_first || hvd_rank() != 0 || hvd_generation() == printed)
        return;
    printed = hvd_generation();
    printf("working %d\n", hvd_size());
    fflush(stdout);
}

static int commit(hvd_state *s)
{
    uint64_t begun_ns = hb_now_ns();
    int rc = hvd_commit(s);

    if (times < TIMES_MAX)
        times_ms[times++] = (double)(hb_now_ns() - begun_ns) / 1e6;
    return rc;
}

/* Does a step.  Returns a status of libhvd, or 1 if a value is wrong. */
static int step_once(hvd_state *s)
{
    int64_t ranks = 1;
    int rc;

    if (!measures) {
        step++;
        for (int64_t i = 0; i < elems; i++)
            shard[i] += GROWTH;
    }
    rc = hvd_allreduce(&ranks, &ranks, 1, HVD_INT64, HVD_SUM, NULL);
    if (rc < 0)
        return rc;
    if (ranks != hvd_size())
        return 1;
    if (pauses)
        usleep(1000);
    rc = commit(s);
    if (rc == 0)
        print_first();
    return rc;
}

/* Joins the next generation, and may tell how long that took. */
static int sync_again(hvd_state *s)
{
    uint64_t begun_ns = hb_now_ns();
    int rc = hvd_sync(s);

    synced = step;
    if (rc == 0 && prints_sync && hvd_rank() == 0) {
        printf("restored %.3f %" PRId64 "\n",
               (double)(hb_now_ns() - begun_ns) / 1e6, elems * 8);
        fflush(stdout);
    }
    return rc;
}

/* Returns whether there are more steps to do: the same on all ranks. */
static int goes_on(int64_t done, int64_t steps, int generation)
{
    return done < steps || hvd_generation() < generation ||
           (generation > 0 && step < synced + SOME);
}

static int run(hvd_state *s, int64_t steps, int generation)
{
    int rc = hvd_sync(s), rank = rc == 0 ? hvd_rank() : -1;
    int64_t done = 0;

    synced = step;
    while (rc == 0 && goes_on(measures ? done++ : step, steps, generation)) {
        if (check("before a step"))
            return 1;
        rc = step_once(s);
        if (rc == -HVD_ERESIZED)
            rc = sync_again(s);
        if (rc == 0)
            rank = hvd_rank();
    }
    if (rc == -HVD_EREMOVED) {
        printf("removed %d %" PRId64 "\n", rank, step);
        return 0;
    }
    if (rc == -HVD_ENOENT) {
        printf("lost %s\n", hvd_error_message());
        return 3;
    }
    if (rc != 0)
        return rc > 0 ? 1 : fail("run");
    if (check("at the end"))
        return 1;
    printf("done %d %d %" PRId64 "\n", hvd_rank(), hvd_size(), step);
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_times(void)
{
    if (!measures || hvd_rank() != 0 || times == 0)
        return;
    qsort(times_ms, (size_t)times, sizeof(times_ms[0]), compare);
    printf("commit %.3f %" PRId64 "\n", times_ms[times / 2], elems * 8);
}

int main(int argc, char **argv)
{
    const char *flags = argc > 3 ? argv[3] : "";
    hvd_state *s = NULL;
    int64_t steps;
    char *end;
    int rc, generation = 0;

    if (argc < 3 || (count = strtoll(argv[2], NULL, 10)) <= 0)
        return 2;
    steps = strtoll(argv[1], &end, 10);
    if (*end == ':')
        generation = atoi(end + 1);
    prints_first = strchr(flags, 'f') != NULL;
    prints_sync = strchr(flags, 't') != NULL;
    measures = strchr(flags, 'm') != NULL;
    pauses = strchr(flags, 'p') != NULL;
    rc = hvd_init();
    if (rc == -HVD_EREMOVED)
        return 0;
    if (rc < 0)
        return fail("init");
    if (hvd_state_new(&s) < 0 ||
        hvd_state_add(s, "step", &step, sizeof(step), 0) < 0 ||
        hvd_state_add(s, "shard", NULL, 0, HVD_STATE_SHARDED) < 0 ||
        take_part(s, hvd_rank(), hvd_size()) < 0)
        return fail("state");
    for (int64_t i = 0; i < elems; i++)
        shard[i] = first + i;
    hvd_on_resize(on_resize, s);
    rc = run(s, steps, generation);
    print_times();
    hvd_state_free(s);
    free(shard);
    hvd_shutdown();
    return rc;
}
