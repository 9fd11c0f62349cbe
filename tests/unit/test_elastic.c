/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_sync and what belongs to it: in jobs that are not elastic, and in elastic
 * ones whose ranks die, come late, or meet again.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { ELEMS = 1000, NEVER = -1 /* a step */ };

/* What a test does, and where. */
struct scene {
    const char *place; /* of the ranks, as in struct world */
    int size;
    int victim; /* rank that dies */
    int at;     /* in which step */
    int late;   /* ranks that come late */
};

static int64_t weights[ELEMS], grad[ELEMS];
static struct {
    int64_t step, weight;
} progress;

/* ---- A training ---------------------------------------------------------- */

static hvd_state *make_state(unsigned flags)
{
    hvd_state *s = NULL;

    if (hvd_state_new(&s) < 0 ||
        hvd_state_add(s, "progress", &progress, sizeof(progress), flags) < 0 ||
        hvd_state_add(s, "weights", weights, sizeof(weights), flags) < 0)
        return NULL;
    return s;
}

static int is_all(const int64_t *p, int64_t value)
{
    for (int i = 0; i < ELEMS; i++)
        if (p[i] != value)
            return 0;
    return 1;
}

/* Adds up (step + 1) * (rank + 1) of all ranks.  Returns a status, or 1 if the
 * sum is wrong. */
static int add_up(void)
{
    int64_t n = hvd_size();
    int rc;

    for (int i = 0; i < ELEMS; i++)
        grad[i] = (progress.step + 1) * (hvd_rank() + 1);
    rc = hvd_allreduce(grad, grad, ELEMS, HVD_INT64, HVD_SUM, NULL);
    if (rc < 0)
        return rc;
    return !is_all(grad, (progress.step + 1) * n * (n + 1) / 2);
}

/* Does a step.  Returns a status, or 1 if a sum is wrong. */
static int step_once(hvd_state *s)
{
    int rc = add_up();

    if (rc)
        return rc;
    for (int i = 0; i < ELEMS; i++)
        weights[i] += grad[i];
    progress.weight += grad[0];
    progress.step++;
    return hvd_commit(s);
}

/* Trains up to step `last`; the victim kills itself in step `at`. */
static int train(hvd_state *s, int64_t last, int is_victim, int at)
{
    int rc = 0;

    while (rc == 0 && progress.step < last) {
        if (is_victim && progress.step == at)
            kill(getpid(), SIGKILL);
        rc = step_once(s);
        if (rc == -HVD_ERESIZED)
            rc = hvd_sync(s);
    }
    return rc;
}

/* ---- Jobs that are not elastic, and worlds of one ------------------------ */

static int resized;

static int on_resize(void *arg, const struct hvd_change *c)
{
    resized++;
    *(struct hvd_change *)arg = *c;
    return 0;
}

/* The world never changes. */
static int static_body(int rank, void *arg)
{
    struct hvd_change c, seen;
    hvd_state *s = make_state(HVD_STATE_SNAPSHOT);

    (void)arg;
    want(s);
    want(hvd_on_resize(on_resize, &seen) == 0);
    want(hvd_generation() == -HVD_ENOTINIT);
    want(hvd_change(&c) == -HVD_ENOTINIT);
    want(hvd_sync(s) == -HVD_ENOTINIT && hvd_commit(s) == -HVD_ENOTINIT);
    want(hvd_restore(s) == -HVD_EINVAL);
    for (int round = 0; round < 2; round++) {
        want(hvd_init() == 0);
        want(hvd_generation() == 0);
        memset(&c, 1, sizeof(c));
        want(hvd_change(&c) == 0);
        want(c.generation == 0 && c.rank == rank && c.size == hvd_size());
        want(c.lost == 0 && c.joined == 0 && c.source == -1 && !c.why[0]);
        want(hvd_change(NULL) == -HVD_EINVAL);
        want(hvd_commit(NULL) == -HVD_EINVAL);
        want(hvd_sync(NULL) == 0);
        progress.step = rank + 7; /* rank 0's wins, the first time */
        want(hvd_sync(s) == 0);
        want(progress.step == (round == 0 ? 7 : rank + 7));
        want(hvd_change(&c) == 0);
        want(c.source == (round == 0 && hvd_size() > 1 ? 0 : -1) ||
             hvd_size() == 1);
        progress.step = 0;
        want(train(s, 20, 0, NEVER) == 0);
        want(is_all(weights, progress.weight));
        progress.step = 99;
        want(hvd_restore(s) == 0 && progress.step == 20);
        want(hvd_sync(s) == 0 && progress.step == 20);
        want(hvd_shutdown() == 0);
    }
    want(resized == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_static)
{
    ck_assert_int_eq(world_run(_i, static_body, NULL), 0);
}
END_TEST

/* A process that was not started by hvdrun. */
static int alone_body(int rank, void *arg)
{
    unsetenv("HVD_RENDEZVOUS");
    unsetenv("HVD_RANK");
    unsetenv("HVD_SIZE");
    return static_body(rank, arg);
}

START_TEST(test_alone)
{
    ck_assert_int_eq(world_run(1, alone_body, NULL), 0);
}
END_TEST

/* Ranks whose states differ in a name, a size, a flag or the order, or of which
 * one has none: all get the same error, and the world still works. */
static int layouts_body(int rank, void *arg)
{
    static char memory[3][64];
    int odd;

    (void)arg;
    want(hvd_init() == 0);
    odd = rank == hvd_size() - 1;
    for (int how = 0; how < 5; how++) {
        hvd_state *s = NULL;
        int order = odd && how == 3;

        want(hvd_state_new(&s) == 0);
        want(hvd_state_add(s, order ? "b" : "a", memory[0], 8, 0) == 0);
        want(hvd_state_add(s, order ? "a" : "b", memory[1], 8, 0) == 0);
        want(hvd_state_add(s, odd && how == 0 ? "d" : "c", memory[2],
                           odd && how == 1 ? 9 : 8,
                           odd && how == 2 ? HVD_STATE_SNAPSHOT : 0) == 0);
        want(hvd_sync(odd && how == 4 ? NULL : s) == -HVD_EMISMATCH);
        want(strstr(hvd_error_message(), "ranks 0 and 2 have added different"));
        hvd_state_free(s);
    }
    want(add_up() == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_layouts)
{
    ck_assert_int_eq(world_run(3, layouts_body, NULL), 0);
}
END_TEST

static int steps_left;

static int count_down(void *arg)
{
    hvd_state *s = arg;
    int rc = step_once(s);

    return rc ? rc : --steps_left == 0;
}

static int fail_at_once(void *arg)
{
    (void)arg;
    return -HVD_ESYSTEM;
}

static int run_body(int rank, void *arg)
{
    hvd_state *s = make_state(0);

    (void)arg;
    want(s && hvd_elastic_run(s, count_down, s) == -HVD_ENOTINIT);
    want(hvd_init() == 0);
    want(hvd_elastic_run(NULL, count_down, s) == -HVD_EINVAL);
    want(hvd_elastic_run(s, NULL, s) == -HVD_EINVAL);
    steps_left = 5;
    progress.step = rank;
    want(hvd_elastic_run(s, count_down, s) == 0);
    want(steps_left == 0 && progress.step == 5);
    want(hvd_elastic_run(s, fail_at_once, NULL) == -HVD_ESYSTEM);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_run)
{
    ck_assert_int_eq(world_run(_i, run_body, NULL), 0);
}
END_TEST

/* ---- Elastic jobs -------------------------------------------------------- */

/* Runs a scene as an elastic job; returns how many ranks failed. */
static int play(struct scene *scene, world_fn *body)
{
    struct world w = {.size = scene->size,
                      .body = body,
                      .arg = scene,
                      .place = scene->place,
                      .elastic = 1,
                      .late = scene->late};

    return world_run_with(&w);
}

/* One rank dies; the others go on with the same step. */
static int death_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    struct hvd_change c, seen = {0};
    hvd_state *s = make_state(0);
    int left = scene->size - 1;

    want(s && hvd_on_resize(on_resize, &seen) == 0);
    want(hvd_init() == 0);
    want(hvd_generation() == 1 && hvd_rank() == rank);
    want(hvd_size() == scene->size);
    want(hvd_change(&c) == 0);
    want(c.old_rank == -1 && c.old_size == 0 && c.lost == 0);
    want(c.joined == scene->size && c.generation == 1);
    /* The victim of step 0 may die while the others are in here. */
    want(hvd_sync(s) == 0 && (resized == 0 || scene->at == 0));
    want(train(s, 10, rank == scene->victim, scene->at) == 0);
    want(is_all(weights, progress.weight) && progress.step == 10);
    want(hvd_generation() == 2 && hvd_size() == left);
    want(hvd_rank() == rank - (rank > scene->victim));
    want(hvd_change(&c) == 0);
    want(resized == 1 && seen.generation == 2 && seen.rank == c.rank);
    want(c.generation == 2 && c.old_rank == rank && c.rank == hvd_rank());
    want(c.old_size == scene->size && c.size == left);
    want(c.lost == 1 && c.joined == 0);
    want(strstr(c.why, "killed by signal 9"));
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

static const struct scene deaths[] = {
    {NULL, 2, 0, 4, 0},   {NULL, 2, 1, 4, 0},    {NULL, 4, 0, 1, 0},
    {NULL, 4, 2, 4, 0},   {NULL, 4, 3, 9, 0},    {"aabb", 4, 0, 4, 0},
    {"aabb", 4, 1, 4, 0}, {"aabb", 4, 3, 0, 0},  {"abb", 3, 0, 4, 0},
    {"abc", 3, 1, 4, 0},  {"aabbc", 5, 4, 4, 0}, {"ab", 2, 1, 4, 0},
};

START_TEST(test_death)
{
    struct scene scene = deaths[_i];

    ck_assert_int_eq(play(&scene, death_body), 1);
}
END_TEST

/* An operation that was under way, and those that follow, fail with
 * HVD_ERESIZED until hvd_sync, and name the rank. */
static int flight_body(int rank, void *arg)
{
    static int64_t own[2], sum[2];
    hvd_request *req[2];
    int done;

    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < 2; i++)
        own[i] = 1;
    if (rank == 1) {
        want(hvd_allreduce_async("a", own, sum, 1, HVD_INT64, HVD_SUM, NULL,
                                 &req[0]) == 0);
        want(hvd_wait(req[0]) == 0);
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 2; i++)
        want(hvd_allreduce_async(i ? "b" : "a", own + i, sum + i, 1, HVD_INT64,
                                 HVD_SUM, NULL, &req[i]) == 0);
    want(hvd_wait(req[0]) == 0 && sum[0] == 3);
    while (hvd_test(req[1], &done) == 0 && !done)
        continue;
    want(hvd_barrier(NULL) == -HVD_ERESIZED);
    want(strstr(hvd_error_message(), "generation 1 has ended: "));
    want(strstr(hvd_error_message(), "rank 1 on host testhost: killed by"));
    want(hvd_broadcast(own, own, 1, HVD_INT64, 0, NULL) == -HVD_ERESIZED);
    want(hvd_sync(NULL) == 0);
    want(hvd_wait(req[1]) == -HVD_ERESIZED);
    want(hvd_allreduce(own, sum, 1, HVD_INT64, HVD_SUM, NULL) == 0);
    want(sum[0] == 2);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_in_flight)
{
    struct scene scene = {.size = 3};

    ck_assert_int_eq(play(&scene, flight_body), 1);
}
END_TEST

static _Atomic int told;

static void on_done(void *arg, int status)
{
    (void)arg;
    atomic_store(&told, status);
}

/* What options.done gets is what hvd_wait returns. */
static int done_body(int rank, void *arg)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int64_t own = 1, sum;
    hvd_request *req;

    (void)arg;
    opts.done = on_done;
    want(hvd_init() == 0 && hvd_sync(NULL) == 0);
    if (rank == 1)
        kill(getpid(), SIGKILL);
    want(hvd_allreduce_async("a", &own, &sum, 1, HVD_INT64, HVD_SUM, &opts,
                             &req) == 0);
    want(hvd_wait(req) == -HVD_ERESIZED);
    want(atomic_load(&told) == -HVD_ERESIZED);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_done_status)
{
    struct scene scene = {.size = 2};

    ck_assert_int_eq(play(&scene, done_body), 1);
}
END_TEST

/* A rank that shuts down is lost as one that dies: the others go on. */
static int leave_body(int rank, void *arg)
{
    hvd_state *s = make_state(0);

    (void)arg;
    want(s && hvd_init() == 0 && hvd_sync(s) == 0);
    if (rank != 1) {
        want(train(s, 10, 0, NEVER) == 0);
        want(hvd_size() == 2 && hvd_generation() == 2);
        want(is_all(weights, progress.weight));
    }
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_leave)
{
    struct scene scene = {.size = 3};

    ck_assert_int_eq(play(&scene, leave_body), 0);
}
END_TEST

/* All but one die, one after the other. */
static int many_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    hvd_state *s = make_state(0);
    int n = scene->size;

    want(s && hvd_init() == 0 && hvd_sync(s) == 0);
    want(train(s, 3 * n, rank < n - 1, 3 * rank + 1) == 0);
    want(hvd_size() == 1 && hvd_rank() == 0 && hvd_generation() == n);
    want(is_all(weights, progress.weight));
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_many_deaths)
{
    static const char *const places[] = {NULL, "aabbcc"};
    struct scene scene = {.size = 6, .place = places[_i]};

    ck_assert_int_eq(play(&scene, many_body), 5);
}
END_TEST

/* A second rank dies while the others are in hvd_sync: in the function that it
 * calls, or before it has called it. */
static int victim_on_resize(void *arg, const struct hvd_change *c)
{
    int64_t one = 1;

    (void)arg;
    resized++;
    if (c->generation == 2 && c->old_rank == 0)
        kill(getpid(), SIGKILL);
    return hvd_allreduce(&one, &one, 1, HVD_INT64, HVD_SUM, NULL);
}

static int again_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    hvd_state *s = make_state(0);
    int rc;

    if (scene->at == 0)
        want(hvd_on_resize(victim_on_resize, NULL) == 0);
    want(s && hvd_init() == 0 && hvd_sync(s) == 0);
    /* A rank that has done a step knows that all have the whole state. */
    rc = step_once(s);
    want(rc == 0 || (rc == -HVD_ERESIZED && rank != 1));
    if (rank == 1)
        kill(getpid(), SIGKILL);
    if (rank == 0 && scene->at == 1) {
        want(step_once(s) == -HVD_ERESIZED);
        usleep(50000);
        kill(getpid(), SIGKILL);
    }
    want(train(s, 10, 0, NEVER) == 0);
    want(hvd_size() == scene->size - 2);
    want(is_all(weights, progress.weight));
    want(hvd_generation() == (scene->at == 0 ? 3 : 2));
    /* A rank may not have joined generation 2 when rank 0 died. */
    want(scene->at == 0 ? resized >= 1 && resized <= 2 : resized == 0);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_death_in_sync)
{
    static const char *const places[] = {NULL, "aabb"};
    struct scene scene = {.size = 4, .place = places[_i / 2], .at = _i % 2};

    ck_assert_int_eq(play(&scene, again_body), 2);
}
END_TEST

/* A program that changes its state between operations: what was committed comes
 * back. */
static int snapshot_step(void *arg)
{
    const struct scene *scene = arg;
    int64_t before = weights[0];
    int rc;

    if (progress.step == 10)
        return 1;
    for (int i = 0; i < ELEMS; i++)
        weights[i] += 1000;
    if (progress.step == scene->at && hvd_rank() == scene->victim &&
        hvd_generation() == 1)
        kill(getpid(), SIGKILL);
    rc = add_up();
    if (rc)
        return rc < 0 ? rc : -HVD_ESYSTEM;
    if (before != progress.weight)
        return -HVD_ESYSTEM;
    for (int i = 0; i < ELEMS; i++)
        weights[i] += grad[i] - 1000;
    progress.weight += grad[0];
    progress.step++;
    return 0;
}

static hvd_state *running;

static int commit_step(void *arg)
{
    int rc = snapshot_step(arg);

    return rc ? rc : hvd_commit(running);
}

static int snapshot_body(int rank, void *arg)
{
    const struct scene *scene = arg;

    (void)rank;
    running = make_state(HVD_STATE_SNAPSHOT);
    want(running && hvd_init() == 0);
    want(hvd_elastic_run(running, commit_step, arg) == 0);
    want(progress.step == 10 && is_all(weights, progress.weight));
    want(hvd_size() == scene->size - 1);
    want(hvd_shutdown() == 0);
    hvd_state_free(running);
    return 0;
}

START_TEST(test_snapshot)
{
    struct scene scene = {.size = 3, .victim = _i, .at = 5};

    ck_assert_int_eq(play(&scene, snapshot_body), 1);
}
END_TEST

/* Of two ranks with the same version, the one that has carried out more
 * operations since has the newer state. */
static int furthest_body(int rank, void *arg)
{
    int64_t value = -1, sum;
    hvd_state *s = NULL;
    struct hvd_change c;

    (void)arg;
    want(hvd_init() == 0 && hvd_state_new(&s) == 0);
    want(hvd_state_add(s, "value", &value, sizeof(value), 0) == 0);
    want(hvd_sync(s) == 0);
    want(hvd_commit(s) == 0);
    /* Rank 2 counts an operation in which rank 1 was told of the death. */
    sum = 1;
    if (rank == 0) {
        want(hvd_barrier(NULL) == 0);
        kill(getpid(), SIGKILL);
    }
    want(hvd_barrier(NULL) == 0);
    value = 100; /* the same in both */
    want(hvd_allreduce(&sum, &sum, 1, HVD_INT64, HVD_SUM, NULL) ==
         -HVD_ERESIZED);
    want(hvd_sync(s) == 0);
    want(value == 100 && hvd_change(&c) == 0 && c.source == -1);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_furthest)
{
    struct scene scene = {.size = 3};

    ck_assert_int_eq(play(&scene, furthest_body), 1);
}
END_TEST

/* ---- What a program makes for each generation ---------------------------- */

static int ends = -1; /* the set of the first and the last rank */

/* Makes a process set, as make_sets does, in place of that of the generation
 * before, which would keep its members. */
static int sets_on_resize(void *arg, const struct hvd_change *c)
{
    int ranks[2] = {0, c->size - 1}, sets[2], rc = 0;

    (void)arg;
    if (hvd_process_sets(sets, 2) == 2)
        rc = hvd_process_set_remove(sets[1]);
    return rc < 0 ? rc : hvd_process_set_add(ranks, 2, &ends);
}

/* Makes a process set after hvd_init; the function of hvd_on_resize does the
 * same, because other ranks may join this generation in hvd_sync. */
static int make_sets(hvd_state *s)
{
    struct hvd_change c;
    int rc = hvd_change(&c);

    if (rc == 0)
        rc = hvd_on_resize(sets_on_resize, NULL);
    if (rc == 0)
        rc = sets_on_resize(NULL, &c);
    return rc == 0 || rc == -HVD_ERESIZED ? hvd_sync(s) : rc;
}

/* Adds up in the set; returns 0 if the sum is right. */
static int use_set(void)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int64_t one = 1, sum = 0;
    int place = hvd_rank() == hvd_size() - 1 ? 1 : -HVD_ENOTMEMBER;

    place = hvd_rank() == 0 ? 0 : place;
    want(hvd_process_set_rank(ends) == place);
    want(hvd_process_set_size(ends) == 2);
    opts.process_set = ends;
    if (place >= 0)
        want(hvd_allreduce(&one, &sum, 1, HVD_INT64, HVD_SUM, &opts) == 0 &&
             sum == 2);
    return 0;
}

/* Memory from hvd_alloc stays; process sets can be made anew. */
static int kept_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    int64_t *old = NULL, *new = NULL;
    int rc;

    want(hvd_init() == 0 && make_sets(NULL) == 0);
    want(hvd_alloc(ELEMS * sizeof(*old), (void **)&old) == 0);
    for (int i = 0; i < ELEMS; i++)
        old[i] = rank;
    if (rank == scene->victim)
        kill(getpid(), SIGKILL);
    while (hvd_generation() < 2) {
        rc = hvd_barrier(NULL);
        want(rc == 0 || (rc == -HVD_ERESIZED && hvd_sync(NULL) == 0));
    }
    want(hvd_size() == scene->size - 1 && is_all(old, rank));
    want(hvd_alloc(ELEMS * sizeof(*new), (void **)&new) == 0);
    want(is_all(new, 0));
    want(hvd_allreduce(old, new, ELEMS, HVD_INT64, HVD_MAX, NULL) == 0);
    want(is_all(new, scene->size - 1 - (scene->victim == scene->size - 1)));
    want(hvd_allreduce(new, old, ELEMS, HVD_INT64, HVD_SUM, NULL) == 0);
    want(is_all(old, new[0] * hvd_size()));
    want(use_set() == 0);
    want(hvd_free(old) == 0 && hvd_free(old) == -HVD_EINVAL);
    want(hvd_free(new) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_kept)
{
    static const char *const places[] = {NULL, "aabb"};
    struct scene scene = {.size = 4, .place = places[_i % 2], .victim = _i / 2};

    ck_assert_int_eq(play(&scene, kept_body), 1);
}
END_TEST

/* A rank that comes late enters at a commit, and gets the state. */
static int late_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    int is_late = rank >= scene->size - scene->late, rc;
    hvd_state *s = make_state(0);
    struct hvd_change c;

    while (is_late && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    want(s && hvd_init() == 0);
    want(hvd_size() == scene->size - (is_late ? 0 : scene->late));
    want(make_sets(s) == 0 && (is_late || use_set() == 0));
    while (!is_late && hvd_size() < scene->size) {
        rc = step_once(s);
        if (rank == 0 && progress.step == 3)
            atomic_store(&world_board->flag[0], 1);
        usleep(1000);
        if (rc == 0)
            continue;
        want(rc == -HVD_ERESIZED &&
             strstr(hvd_error_message(), "wait to join"));
        want(hvd_sync(s) == 0);
    }
    want(progress.step >= 3 && is_all(weights, progress.weight));
    want(hvd_change(&c) == 0 && c.generation == 2);
    want(c.joined == scene->late && c.lost == 0 && c.size == scene->size);
    want(c.old_size == (is_late ? 0 : scene->size - scene->late));
    want(c.source == 0 && use_set() == 0);
    want(train(s, progress.step + 5, 0, NEVER) == 0);
    want(is_all(weights, progress.weight));
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_late)
{
    static const char *const places[] = {NULL, "aabb", "aaab"};
    struct scene scene = {.size = 4, .place = places[_i], .late = 1};

    ck_assert_int_eq(play(&scene, late_body), 0);
}
END_TEST

/* A rank that is asked to leave does so at a commit; the others do no step
 * again. */
static int removed_body(int rank, void *arg)
{
    const struct scene *scene = arg;
    hvd_state *s = make_state(0);
    struct hvd_change c;
    int64_t step, ms;
    int rc;

    want(hvd_notice(&ms) == -HVD_ENOTINIT);
    want(s && hvd_init() == 0 && hvd_sync(s) == 0);
    want(train(s, 5, 0, NEVER) == 0);
    want(hvd_notice(&ms) == 0 && ms == -1 && hvd_notice(NULL) == -HVD_EINVAL);
    want(hvd_barrier(NULL) == 0);
    if (rank == 0) {
        atomic_store(&world_board->remove, scene->victim + 1);
        atomic_store(&world_board->change, 1);
    }
    while ((rc = step_once(s)) == 0)
        usleep(1000);
    want(rc == -HVD_ERESIZED);
    want(hvd_notice(&ms) == 0);
    want(rank == scene->victim ? ms > 50000 && ms <= 60000 : ms == -1);
    step = progress.step;
    rc = hvd_sync(s);
    want(progress.step == step && is_all(weights, progress.weight));
    if (rank == scene->victim) {
        want(rc == -HVD_EREMOVED &&
             strstr(hvd_error_message(), "asked to leave"));
        want(hvd_change(&c) == -HVD_ENOTINIT && hvd_shutdown() == 0);
        hvd_state_free(s);
        return 0;
    }
    want(rc == 0 && hvd_change(&c) == 0);
    want(c.lost == 0 && c.removed == 1 && c.joined == 0 && c.source == -1);
    want(c.size == scene->size - 1 && c.old_size == scene->size);
    want(strstr(c.why, "is asked to leave"));
    want(train(s, step + 5, 0, NEVER) == 0);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_removed)
{
    static const char *const places[] = {NULL, "aabb", "abbb"};
    struct scene scene = {.size = 4, .place = places[_i % 3], .victim = _i / 3};

    ck_assert_int_eq(play(&scene, removed_body), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("elastic");
    TCase *tc = tcase_create("elastic");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_static, 1, 4);
    tcase_add_test(tc, test_alone);
    tcase_add_test(tc, test_layouts);
    tcase_add_loop_test(tc, test_run, 1, 3);
    tcase_add_loop_test(tc, test_death, 0,
                        (int)(sizeof(deaths) / sizeof(deaths[0])));
    tcase_add_test(tc, test_in_flight);
    tcase_add_test(tc, test_done_status);
    tcase_add_test(tc, test_leave);
    tcase_add_loop_test(tc, test_many_deaths, 0, 2);
    tcase_add_loop_test(tc, test_death_in_sync, 0, 4);
    tcase_add_loop_test(tc, test_snapshot, 0, 3);
    tcase_add_test(tc, test_furthest);
    tcase_add_loop_test(tc, test_kept, 0, 4);
    tcase_add_loop_test(tc, test_late, 0, 3);
    tcase_add_loop_test(tc, test_removed, 0, 9);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
