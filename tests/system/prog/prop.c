/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that carries out random operations and checks every result: `prop SEED
 * SEEDS BATCHES`.  The operations are of all kinds, dtypes and ops; blocking,
 * asynchronous, named in any order, or grouped; in the world and in process
 * sets; in place or not.  In the last batches ranks join one by one.
 *
 * Exits 0 when all was right; else 1 after a line with the seed, which suffices
 * to repeat the failure.
 */
#include "tests/system/prog/prop_job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOIN_BATCHES = 5 };

/* ---- Checking --------------------------------------------------------- */

static void check_reduced(const struct run *run, const struct job *job, int m)
{
    const struct step *s = job->step;
    const struct team *team = &run->team[s->team];
    struct reduction r = {s, m, givers(run, s), team, 1};
    size_t first = 0;
    int64_t at;

    if (s->op == HVD_AVERAGE)
        r.divisor = s->opts.live_average ? r.team->n : team->n;
    if (s->kind == REDUCESCATTER)
        first = s->row *
                share_first(s->count[m], (size_t)team->n, (size_t)job->place);
    at = check_result(&r, job->recv[m], first, job->recv_count[m]);
    if (at >= 0)
        wrong(run, job, "element", at);
}

/* Checks that member m holds what each rank sent, in rank order. */
static void check_gathered(const struct run *run, const struct job *job, int m)
{
    const struct step *s = job->step;
    const struct team *team = &run->team[s->team];
    size_t elem = hvd_dtype_size(s->dtype);
    const unsigned char *at = job->recv[m];

    for (int k = 0; k < team->n; k++) {
        int rank = team->rank[k];
        size_t count = 0, first = 0;
        int64_t bad;

        if (place_in(givers(run, s), rank) >= 0)
            count = s->kind == ALLGATHER ? gather_count(s, m, rank)
                                         : send_count(s, rank, run->me);
        if (job->counts[m * team->n + k] != count)
            wrong(run, job, "count of place", k);
        for (int j = 0; s->kind == ALLTOALL && j < job->place; j++)
            first += send_count(s, rank, team->rank[j]);
        bad = check_bytes(s, m, rank, at, first * elem, count * elem);
        if (bad >= 0)
            wrong(run, job, "byte", bad);
        at += count * elem;
    }
}

static void check_guards(const struct run *run, const struct job *job, int m)
{
    size_t elem = hvd_dtype_size(job->step->dtype);
    const unsigned char *end = job->recv[m] + job->recv_count[m] * elem;

    for (int i = 0; i < GUARD_BYTES; i++)
        if (job->recv[m][i - GUARD_BYTES] != GUARD ||
            (end[i] != GUARD &&
             end + i < job->recv[m] + job->recv_cap[m] * elem + GUARD_BYTES))
            wrong(run, job, "written beside the buffer", i);
}

/* Checks that the send buffer of member m is unchanged. */
static void check_sent(const struct run *run, const struct job *job, int m)
{
    const struct step *s = job->step;
    size_t bytes = job->send_count[m] * hvd_dtype_size(s->dtype);
    unsigned char *again;

    if (is_in_place(s) || (s->kind == BROADCAST && root_of(run, s) != run->me))
        return;
    again = malloc(bytes + 1);
    if (!again)
        wrong(run, job, "no memory", 0);
    if (s->kind == ALLREDUCE || s->kind == REDUCESCATTER)
        fill_input(s, m, run->me, again, job->send_count[m]);
    else
        fill_bytes(s, m, run->me, again, bytes);
    if (memcmp(again, job->send[m], bytes) != 0)
        wrong(run, job, "the input was changed", 0);
    free(again);
}

static void check(const struct run *run, const struct job *job)
{
    const struct step *s = job->step;
    size_t bytes;

    if (job->place < 0 || s->kind == BARRIER)
        return;
    for (int m = 0; m < members_of(s); m++) {
        if (s->kind == ALLREDUCE || s->kind == REDUCESCATTER) {
            check_reduced(run, job, m);
        } else if (s->kind == BROADCAST) {
            bytes = s->count[m] * hvd_dtype_size(s->dtype);
            if (check_bytes(s, m, root_of(run, s), job->recv[m], 0, bytes) >= 0)
                wrong(run, job, "broadcast", 0);
        } else {
            check_gathered(run, job, m);
        }
        check_guards(run, job, m);
        check_sent(run, job, m);
    }
}

/* Checks that a result that is only approximate is the same on all ranks. */
static void compare(const struct run *run, const struct job *job)
{
    const struct step *s = job->step;
    uint64_t mine = 1, all[RANKS_MAX];
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int n = givers(run, s)->n;

    if (!s->rough || s->kind != ALLREDUCE || job->place < 0)
        return;
    for (int m = 0; m < members_of(s); m++)
        for (size_t i = 0; i < job->recv_count[m] * hvd_dtype_size(s->dtype);
             i++)
            mine = (mine ^ job->recv[m][i]) * 0x100000001b3u;
    opts.process_set = s->opts.process_set;
    must(run, job, "allgather of hashes",
         hvd_allgather(&mine, sizeof(mine), all, sizeof(all), NULL, HVD_UINT8,
                       &opts));
    for (int k = 0; k < n; k++)
        if (all[k] != mine)
            wrong(run, job, "other bits than on the rank in place", k);
}

/* ---- Running ---------------------------------------------------------- */

/* Puts the numbers 0 to n - 1 in an order of this rank's own. */
static void shuffle(const struct run *run, int salt, int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(mix(run->seed ^ run->batch << 8, (uint64_t)run->me + 1000,
                          (uint64_t)(salt * BATCH_MAX + i)) %
                      (uint64_t)(i + 1));
        int other = order[k];

        order[k] = order[i];
        order[i] = other;
    }
}

/* A step that runs in a thread of its own. */
struct task {
    const struct run *run;
    struct job *job;
    pthread_t thread;
};

static void *task_main(void *arg)
{
    struct task *t = arg;

    issue(t->run, t->job, NAMED);
    await(t->run, t->job);
    return NULL;
}

static void run_threads(const struct run *run, struct job *job, int n)
{
    struct task task[BATCH_MAX];

    for (int k = 0; k < n; k++) {
        task[k] = (struct task){.run = run, .job = &job[k]};
        must(run, &job[k], "pthread_create",
             -pthread_create(&task[k].thread, NULL, task_main, &task[k]));
    }
    for (int k = 0; k < n; k++)
        pthread_join(task[k].thread, NULL);
}

static void run_in_order(const struct run *run, struct job *job,
                         const struct batch *b)
{
    int order[BATCH_MAX];

    shuffle(run, 0, order, b->steps);
    for (int k = 0; k < b->steps; k++)
        issue(run, &job[b->mode == NAMED ? order[k] : k], b->mode);
    shuffle(run, 1, order, b->steps);
    for (int k = 0; k < b->steps; k++)
        await(run, &job[order[k]]);
}

static void run_batch(struct run *run, uint64_t i)
{
    struct job job[BATCH_MAX];
    struct batch b;

    run->batch = i;
    script_batch(run->seed, i, run->team, run->joining, &b);
    for (int k = 0; k < b.steps; k++) {
        prepare(run, &b.step[k], &job[k]);
        snprintf(job[k].name, sizeof(job[k].name), "step.%d", k);
    }
    if (b.mode == THREADS)
        run_threads(run, job, b.steps);
    else
        run_in_order(run, job, &b);
    for (int k = 0; k < b.steps; k++) {
        check(run, &job[k]);
        compare(run, &job[k]);
        give_back(run, &job[k]);
        run->done += job[k].place >= 0;
    }
}

static int same_ranks(const struct team *a, const struct team *b)
{
    return a->n == b->n &&
           memcmp(a->rank, b->rank, (size_t)a->n * sizeof(a->rank[0])) == 0;
}

/* Makes the random process sets.  Sets of the same ranks are one. */
static void add_sets(struct run *run)
{
    for (int t = 1; t < SETS_MAX; t++) {
        struct team *team = &run->team[t];
        int twin = 0;

        script_team(run->seed, t, hvd_size(), team);
        while (twin < t && !same_ranks(&run->team[twin], team))
            twin++;
        team->id = run->team[twin].id;
        if (twin == t)
            must(run, NULL, "hvd_process_set_add",
                 hvd_process_set_add(team->rank, (size_t)team->n, &team->id));
        if (hvd_process_set_size(team->id) != team->n)
            wrong(run, NULL, "hvd_process_set_size", team->id);
    }
}

static void remove_sets(struct run *run)
{
    for (int t = SETS_MAX - 1; t > 0; t--) {
        int twin = 0;

        while (run->team[twin].id != run->team[t].id)
            twin++;
        if (twin == t)
            must(run, NULL, "hvd_process_set_remove",
                 hvd_process_set_remove(run->team[t].id));
    }
}

/* Returns how many batches a rank does before it joins. */
static uint64_t stays(const struct run *run, int rank)
{
    return mix(run->seed, 0x101, (uint64_t)rank) % JOIN_BATCHES;
}

static void join_one_by_one(struct run *run)
{
    uint64_t longest = 0;
    int last = -1, want = -1;

    run->joining = 1;
    for (int r = 0; r < hvd_size(); r++)
        if (stays(run, r) >= longest) {
            longest = stays(run, r);
            want = r;
        }
    for (uint64_t i = 0; i < stays(run, run->me); i++) {
        run->live.n = 0;
        for (int r = 0; r < hvd_size(); r++)
            if (stays(run, r) > i)
                run->live.rank[run->live.n++] = r;
        run_batch(run, i);
    }
    must(run, NULL, "hvd_join", hvd_join(&last, NULL));
    if (last != want)
        wrong(run, NULL, "the last to join", last);
    run->joining = 0;
}

static long run_seed(uint64_t seed, uint64_t batches)
{
    struct run run = {.seed = seed};

    must(&run, NULL, "hvd_init", hvd_init());
    run.me = hvd_rank();
    script_team(seed, 0, hvd_size(), &run.team[0]);
    add_sets(&run);
    for (uint64_t i = 0; i < batches; i++)
        run_batch(&run, i);
    remove_sets(&run);
    add_sets(&run);
    join_one_by_one(&run);
    run_batch(&run, batches);
    must(&run, NULL, "hvd_barrier", hvd_barrier(NULL));
    must(&run, NULL, "hvd_shutdown", hvd_shutdown());
    return run.done;
}

int main(int argc, char **argv)
{
    unsigned long long first, seeds, batches;
    long done = 0;

    if (argc != 4 || sscanf(argv[1], "%llu", &first) != 1 ||
        sscanf(argv[2], "%llu", &seeds) != 1 ||
        sscanf(argv[3], "%llu", &batches) != 1) {
        fprintf(stderr, "usage: prop SEED SEEDS BATCHES\n");
        return 99;
    }
    for (unsigned long long s = first; s < first + seeds; s++)
        done += run_seed(s, batches);
    printf("%ld operations\n", done);
    return 0;
}
