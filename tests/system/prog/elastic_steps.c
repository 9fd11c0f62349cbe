/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training of integers, every sum of which is checked.
 *
 *     elastic_steps STEPS[:GENERATION] COUNT [FLAGS]
 *
 * Does STEPS steps.  With GENERATION, does more until at least 20 steps follow
 * the change to that generation, or to a later one.
 * In step k each rank gives (k + 1) * (its rank + 1) to each of COUNT elements
 * of a sum, which is then added to the weights.  So after each step all weights
 * are known from the sizes of the world so far, which are part of the state.
 * Prints "done RANK SIZE STEPS" at the end, "removed RANK STEP" if the rank was
 * asked to leave, or what was wrong.  FLAGS, letters:
 *
 *     a   buffers from hvd_alloc
 *     c   never commits
 *     e   does more than STEPS steps: until rank 0 finds a file named "end" in
 *         its working directory
 *     f   prints "working" in rank 0 after the first step
 *     g   adds up, in each step, in a process set of the even and in one of the
 *         odd ranks, too, which are made anew only when no member is left
 *     l   the ranks 1 and 2 leave after 100 steps and print "left": one by
 *         hvd_shutdown, the other by its exit alone
 *     n   prints "notice RANK MS" when hvd_notice first tells of one
 *     o   a rank may be left out of generations, and then misses steps
 *     p   sleeps 1 ms in each step
 *     r   prints, in each rank, "right GENERATION HOST:PID US SIZE STEP" after
 *         the first right sum of each generation, with the microseconds of the
 *         clock of day, and "weight WEIGHT" before "done"
 *     s   takes snapshots, and changes the weights before the last operation
 *     x   exits with 3 in its first step, in the last rank
 *     t   prints, in rank 0, "change GENERATION OLD NEW MS" after each change,
 *         with the milliseconds from the failed operation to the next good one
 *     w   comes 3 ms late to each step, in the last rank
 */
#include "lib/base/sys/clock.h"
#include "runtime/hvd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static struct {
    int64_t step;
    int64_t weight;  /* of each element */
    int64_t sets[2]; /* of even and odd ranks, or -1 */
} state = {.sets = {-1, -1}};

enum { SOME = 20 }; /* steps in the last generation */

static int64_t synced; /* the step of the last hvd_sync */
static int awaits_end, is_ended;
static int64_t *weights, *grad;
static size_t count;
static int uses_alloc, pauses, waits, snapshots, tells, tells_first, leaves;
static int exits;
static int commits = 1, notices, tells_right, uses_sets, is_left_out;
static uint64_t failed_ns;

static int fail(const char *what)
{
    fprintf(stderr, "elastic_steps: %s: %s\n", what, hvd_error_message());
    return 1;
}

/* Returns the sum of a step over all ranks. */
static int64_t sum_of(int64_t step, int size)
{
    return (step + 1) * size * (size + 1) / 2;
}

static int compare(const int64_t *values, int64_t want, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != want) {
            fprintf(stderr,
                    "elastic_steps: rank %d of %d, step %" PRId64
                    ": %s [%zu] is %" PRId64 ", not %" PRId64 "\n",
                    hvd_rank(), hvd_size(), state.step, what, i, values[i],
                    want);
            return -1;
        }
    return 0;
}

static void tell_change(void)
{
    struct hvd_change c;

    if (!failed_ns || hvd_change(&c) < 0)
        return;
    if (c.rank == 0 && tells) {
        printf("change %d %d %d %.2f\n", c.generation, c.old_size, c.size,
               (double)(hb_now_ns() - failed_ns) / 1e6);
        fflush(stdout);
    }
    failed_ns = 0;
}

/* Prints the generation, the first time that it has made a right sum. */
static void tell_right(void)
{
    static int told;
    struct utsname host;
    struct timespec t;

    if (!tells_right || told == hvd_generation())
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    told = hvd_generation();
    if (uname(&host) < 0)
        return;
    printf("right %d %s:%d %lld%06ld %d %" PRId64 "\n", told, host.nodename,
           (int)getpid(), (long long)t.tv_sec, t.tv_nsec / 1000, hvd_size(),
           state.step);
    fflush(stdout);
}

/* Prints the notice, the first time that there is one. */
static void tell_notice(void)
{
    int64_t ms;

    if (!notices || hvd_notice(&ms) < 0 || ms < 0)
        return;
    printf("notice %d %" PRId64 "\n", hvd_rank(), ms);
    fflush(stdout);
    notices = 0;
}

/* Checks, after hvd_sync, that no step was left out or is done twice: if ranks
 * have died, one of the others may have got a step further than this one, which
 * was at `step` of a generation.  Returns 0 or -1. */
static int check_progress(int64_t step, int generation)
{
    struct hvd_change c;

    if (hvd_change(&c) < 0 || state.step == step ||
        (c.lost > 0 && state.step == step + 1) ||
        (is_left_out && c.generation > generation + 1 && state.step > step))
        return 0;
    fprintf(stderr,
            "elastic_steps: rank %d: a change with %d ranks lost led from step "
            "%" PRId64 " to %" PRId64 "\n",
            c.rank, c.lost, step, state.step);
    return -1;
}

/* ---- Process sets -------------------------------------------------------- */

enum { RANKS_MAX = 64 };

/* Finds a set with those ranks: its number, or -1. */
static int find_set(const int *ranks, int n)
{
    int sets[HVD_PROCESS_SETS_MAX], has[RANKS_MAX];
    int known = hvd_process_sets(sets, HVD_PROCESS_SETS_MAX);

    for (int i = 0; i < known; i++)
        if (hvd_process_set_ranks(sets[i], has, RANKS_MAX) == n &&
            memcmp(has, ranks, (size_t)n * sizeof(*has)) == 0)
            return sets[i];
    return -1;
}

/* Makes the set of the even or odd ranks of this generation, or takes one that
 * has them by now. */
static int make_set(int odd)
{
    int ranks[RANKS_MAX], n = 0, set, rc = 0;

    for (int r = odd; r < hvd_size() && n < RANKS_MAX; r += 2)
        ranks[n++] = r;
    set = n > 0 ? find_set(ranks, n) : -1;
    if (set < 0 && n > 0)
        rc = hvd_process_set_add(ranks, (size_t)n, &set);
    if (rc == 0)
        state.sets[odd] = set;
    return rc;
}

/* Adds up in a set, if this rank is in it.  Returns a status, or 1 if the sum
 * is wrong. */
static int add_up_in(int set)
{
    int64_t own = (state.step + 1) * (hvd_rank() + 1), sum = 0, want = 0;
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int ranks[RANKS_MAX], rc;
    int n = hvd_process_set_ranks(set, ranks, RANKS_MAX);

    if (hvd_process_set_rank(set) < 0)
        return 0;
    opts.process_set = set;
    rc = hvd_allreduce(&own, &sum, 1, HVD_INT64, HVD_SUM, &opts);
    for (int i = 0; i < n; i++)
        want += (state.step + 1) * (ranks[i] + 1);
    if (rc < 0 || sum == want)
        return rc;
    fprintf(stderr,
            "elastic_steps: rank %d, step %" PRId64
            ": the sum in set %d of %d is %" PRId64 ", not %" PRId64 "\n",
            hvd_rank(), state.step, set, n, sum, want);
    return 1;
}

static int use_sets(void)
{
    int rc = 0;

    for (int odd = 0; odd < 2 && rc == 0; odd++) {
        int n = hvd_process_set_size((int)state.sets[odd]);

        if (n == 0)
            rc = hvd_process_set_remove((int)state.sets[odd]);
        if (n <= 0 && rc == 0)
            rc = make_set(odd);
        if (rc == 0 && state.sets[odd] >= 0)
            rc = add_up_in((int)state.sets[odd]);
    }
    return rc;
}

/* Does a step.  Returns a status of libhvd, or 1 if a sum is wrong. */
/* Asks rank 0 whether there is a file "end".  Returns a status of libhvd. */
static int look_for_end(void)
{
    int64_t ends = hvd_rank() == 0 && access("end", F_OK) == 0;
    int rc = hvd_broadcast(&ends, &ends, 1, HVD_INT64, 0, NULL);

    is_ended = rc == 0 && ends;
    return rc;
}

static int step_once(hvd_state *s)
{
    int64_t own = (state.step + 1) * (hvd_rank() + 1), want;
    int rc = uses_sets ? use_sets() : 0;

    if (rc != 0)
        return rc;
    if (exits && hvd_rank() == hvd_size() - 1)
        exit(3);
    if (waits && hvd_rank() == hvd_size() - 1)
        usleep(3000);

    for (size_t i = 0; i < count; i++)
        grad[i] = own;
    if (snapshots)
        weights[0] += 1000; /* hvd_restore has to undo it */
    rc = hvd_allreduce(grad, grad, count, HVD_INT64, HVD_SUM, NULL);
    if (rc < 0)
        return rc;
    if (snapshots)
        weights[0] -= 1000;
    want = sum_of(state.step, hvd_size());
    if (compare(grad, want, "sum") < 0)
        return 1;
    tell_change();
    tell_right();
    if (tells_first && state.step == 0 && hvd_rank() == 0) {
        printf("working\n");
        fflush(stdout);
    }
    for (size_t i = 0; i < count; i++)
        weights[i] += grad[i];
    state.weight += want;
    state.step++;
    if (pauses)
        usleep(1000);
    tell_notice();
    return commits ? hvd_commit(s) : 0;
}

static int get_memory(int64_t **p)
{
    if (uses_alloc)
        return hvd_alloc(count * sizeof(**p), (void **)p);
    *p = calloc(count, sizeof(**p));
    return *p ? 0 : -1;
}

/* Leaves the job, if this rank is to: then does not return. */
static void leave(void)
{
    int rank = hvd_rank();

    if (!leaves || state.step != 100 || hvd_generation() != 1 ||
        (rank != 1 && rank != 2))
        return;
    printf("left %d\n", rank);
    if (rank == 1)
        hvd_shutdown();
    exit(0);
}

/* Returns whether there are more steps to do: the same on all ranks. */
static int goes_on(int64_t steps, int generation)
{
    if (awaits_end)
        return !is_ended;
    return state.step < steps || hvd_generation() < generation ||
           (generation > 0 && state.step < synced + SOME);
}

static int run(hvd_state *s, int64_t steps, int last)
{
    int rc = hvd_sync(s), rank = rc == 0 ? hvd_rank() : -1;
    int64_t step;
    int generation;

    synced = state.step;
    while (rc == 0 && goes_on(steps, last)) {
        generation = hvd_generation();
        leave();
        rc = awaits_end && state.step >= steps ? look_for_end() : 0;
        if (rc == 0 && !is_ended)
            rc = step_once(s);
        if (rc == 1)
            return 1;
        if (rc != -HVD_ERESIZED)
            continue;
        if (!failed_ns)
            failed_ns = hb_now_ns();
        if (snapshots && hvd_restore(s) < 0)
            return fail("restore");
        step = state.step;
        rc = hvd_sync(s);
        synced = state.step;
        if (rc == 0 && check_progress(step, generation) < 0)
            return 1;
        if (rc == 0)
            rank = hvd_rank();
        if (rc == 0 && compare(weights, state.weight, "weight") < 0)
            return 1;
    }
    if (rc == -HVD_EREMOVED) {
        printf("removed %d %" PRId64 "\n", rank, state.step);
        return 0;
    }
    if (rc < 0)
        return fail("run");
    if (compare(weights, state.weight, "weight") < 0)
        return 1;
    if (tells_right)
        printf("weight %" PRId64 "\n", state.weight);
    printf("done %d %d %" PRId64 "\n", hvd_rank(), hvd_size(), state.step);
    return 0;
}

int main(int argc, char **argv)
{
    const char *flags = argc > 3 ? argv[3] : "";
    hvd_state *s = NULL;
    int64_t steps;
    unsigned how;
    char *end;
    int rc, last = 0;

    if (argc < 3 || (count = strtoul(argv[2], NULL, 10)) == 0)
        return 2;
    steps = strtoll(argv[1], &end, 10);
    if (*end == ':')
        last = atoi(end + 1);
    uses_sets = strchr(flags, 'g') != NULL;
    uses_alloc = strchr(flags, 'a') != NULL;
    pauses = strchr(flags, 'p') != NULL;
    waits = strchr(flags, 'w') != NULL;
    snapshots = strchr(flags, 's') != NULL;
    tells = strchr(flags, 't') != NULL;
    tells_first = strchr(flags, 'f') != NULL;
    awaits_end = strchr(flags, 'e') != NULL;
    leaves = strchr(flags, 'l') != NULL;
    exits = strchr(flags, 'x') != NULL;
    commits = strchr(flags, 'c') == NULL;
    notices = strchr(flags, 'n') != NULL;
    is_left_out = strchr(flags, 'o') != NULL;
    tells_right = strchr(flags, 'r') != NULL;
    how = snapshots ? HVD_STATE_SNAPSHOT : 0;
    if (hvd_init() < 0)
        return fail("init");
    if (get_memory(&weights) < 0 || get_memory(&grad) < 0 ||
        hvd_state_new(&s) < 0 ||
        hvd_state_add(s, "state", &state, sizeof(state), how) < 0 ||
        hvd_state_add(s, "weights", weights, count * sizeof(*weights), how) < 0)
        return fail("state");
    rc = run(s, steps, last);
    hvd_state_free(s);
    hvd_shutdown();
    return rc;
}
