/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharded memory (HVD_STATE_SHARDED) in worlds whose ranks die at each instant
 * of a commit and of a restore, leave, and join.
 *
 * Together the shards are an array of integers: element i is i + step * GROWTH
 * after each step, so that a byte of another step or another rank shows.
 */
#include "lib/base/alloc.h"
#include "runtime/core/api/shard_sync.h"
#include "runtime/core/set/words.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROWTH = 1000003, STEPS = 8, NEVER = -1 };

/* When a victim dies in its step: */
enum instant {
    AT_WORK,      /* before hvd_commit */
    BEFORE_COPY,  /* once the ranks have agreed what to copy */
    BEFORE_ALL,   /* its copy is made, but it knows of no others */
    AFTER_COMMIT, /* it knows of all */
    INSTANTS
};

struct scene {
    const char *place; /* as in struct world */
    int size;
    unsigned victims; /* 1 << rank */
    int at;           /* in which step they die */
    enum instant when;
    int elems; /* of the array */
    int late;
    int is_lost; /* a shard is */
    int in_sync; /* another rank dies in the hvd_sync after that */
};

static const struct scene *scene;
static int64_t step, *shard, *extra;
static int64_t check_value;
static int resizes;

/* ---- The array ----------------------------------------------------------- */

/* Returns where the shard of a rank begins: uneven, and the first is empty. */
static int64_t begins(int rank, int size)
{
    return scene->elems * (int64_t)rank * rank / ((int64_t)size * size);
}

static int64_t shard_elems(int rank, int size)
{
    return begins(rank + 1, size) - begins(rank, size);
}

/* Gives the shards the sizes that they have in this world. */
static int resize(hvd_state *s, int rank, int size)
{
    size_t bytes = (size_t)shard_elems(rank, size) * sizeof(*shard);
    int64_t *more = realloc(shard, bytes + 1);
    int rc;

    if (!more)
        return -HVD_ENOMEM;
    shard = more;
    rc = hvd_state_resize(s, "shard", shard, bytes);
    /* The last rank has all of this one. */
    if (rc == 0)
        rc = hvd_state_resize(s, "extra", extra,
                              rank == size - 1 ? 8 * sizeof(*extra) : 0);
    return rc;
}

static void fill(void)
{
    int64_t at = begins(hvd_rank(), hvd_size());
    int64_t n = shard_elems(hvd_rank(), hvd_size());

    for (int64_t i = 0; i < n; i++)
        shard[i] = at + i + step * GROWTH;
    for (int i = 0; i < 8; i++)
        extra[i] = step + i;
}

static int is_right(void)
{
    int64_t at = begins(hvd_rank(), hvd_size());
    int64_t n = shard_elems(hvd_rank(), hvd_size());

    for (int64_t i = 0; i < n; i++)
        if (shard[i] != at + i + step * GROWTH) {
            fprintf(stderr,
                    "rank %d of %d, step %lld: [%lld] is %lld, not %lld\n",
                    hvd_rank(), hvd_size(), (long long)step, (long long)i,
                    (long long)shard[i], (long long)(at + i + step * GROWTH));
            return 0;
        }
    for (int i = 0; i < 8 && hvd_rank() == hvd_size() - 1; i++)
        if (extra[i] != step + i)
            return 0;
    return check_value == step * 7;
}

static int on_resize(void *arg, const struct hvd_change *c)
{
    resizes++;
    return resize(arg, c->rank, c->size);
}

/* Makes the state for the world of hvd_init. */
static hvd_state *make_state(void)
{
    hvd_state *s = NULL;

    extra = calloc(8, sizeof(*extra));
    if (hvd_state_new(&s) < 0 ||
        hvd_state_add(s, "step", &step, sizeof(step), 0) < 0 ||
        hvd_state_add(s, "shard", NULL, 0, HVD_STATE_SHARDED) < 0 ||
        hvd_state_add(s, "check", &check_value, sizeof(check_value), 0) < 0 ||
        hvd_state_add(s, "extra", NULL, 0, HVD_STATE_SHARDED) < 0 ||
        resize(s, hvd_rank(), hvd_size()) < 0)
        return NULL;
    fill();
    hvd_on_resize(on_resize, s);
    return s;
}

static void free_state(hvd_state *s)
{
    hvd_state_free(s);
    free(shard);
    free(extra);
}

/* ---- A training ---------------------------------------------------------- */

static void die(void)
{
    kill(getpid(), SIGKILL);
}

/* Does what hvd_commit does until the victim's instant has come. */
static int commit_and_die(hvd_state *s, enum instant when)
{
    struct hvd__shard_layout *layout = NULL;
    int target = s->shards.confirmed == 0, rc;

    if (when == AT_WORK)
        die();
    rc = hvd__shards_commit_begin(s, 0, &layout);
    if (rc == 0 && when == BEFORE_COPY)
        die();
    if (rc == 0)
        rc = hvd__shards_copy(s, layout, target);
    if (rc == 0 && when == BEFORE_ALL)
        die();
    if (rc == 0)
        rc = hvd__shards_confirm(s, target);
    /* Or one of the other victims has died before. */
    if (rc == 0 || rc == -HVD_ERESIZED)
        die();
    hvd__shard_layout_unref(layout);
    return rc;
}

/* Adds to the shard and to all else; as a program does, before the last
 * operation of the step.  dies: an instant of this step's commit, or NEVER. */
static int step_once(hvd_state *s, int dies)
{
    int64_t n = shard_elems(hvd_rank(), hvd_size());
    int64_t ranks = 1;
    int rc;

    for (int64_t i = 0; i < n; i++)
        shard[i] += GROWTH;
    for (int i = 0; i < 8; i++)
        extra[i]++;
    step++;
    check_value += 7;
    rc = hvd_allreduce(&ranks, &ranks, 1, HVD_INT64, HVD_SUM, NULL);
    if (rc == -HVD_ERESIZED && dies != NEVER)
        die();
    if (rc < 0)
        return rc;
    if (ranks != hvd_size() || !is_right())
        return 1;
    return dies == NEVER ? hvd_commit(s)
                         : commit_and_die(s, (enum instant)dies);
}

static int sync_once(hvd_state *s)
{
    int rc = hvd_sync(s);

    return rc == 0 && !is_right() ? 1 : rc;
}

/* Trains to the end; returns a status, or 1 if a value is wrong. */
static int train(hvd_state *s, int is_victim)
{
    int rc = sync_once(s);

    while (rc == 0 && step < STEPS) {
        rc = step_once(s, is_victim && step + 1 == scene->at ? (int)scene->when
                                                             : NEVER);
        if (rc == -HVD_ERESIZED)
            rc = sync_once(s);
    }
    return rc;
}

/* Does steps until the world has this size. */
static int train_until(hvd_state *s, int size)
{
    int rc = 0;

    while (rc == 0 && hvd_size() != size) {
        rc = step_once(s, NEVER);
        usleep(1000);
        if (rc == -HVD_ERESIZED)
            rc = sync_once(s);
    }
    return rc;
}

static int play(struct scene *played, world_fn *body)
{
    struct world w = {.size = played->size,
                      .body = body,
                      .arg = played,
                      .place = played->place,
                      .elastic = 1,
                      .late = played->late};

    scene = played;
    return world_run_with(&w);
}

static int count(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* ---- Jobs that are not elastic ------------------------------------------- */

static int static_body(int rank, void *arg)
{
    size_t bytes[4];
    hvd_state *s;

    (void)arg;
    want(hvd_init() == 0);
    s = make_state();
    want(s);
    want(hvd_state_shards(s, "shard", bytes, 4) == -HVD_ENOENT);
    want(train(s, 0) == 0 && step == STEPS);
    want(hvd_state_shards(s, "shard", bytes, 4) == hvd_size());
    for (int r = 0; r < hvd_size(); r++)
        want(bytes[r] == 8 * (size_t)shard_elems(r, hvd_size()));
    want(hvd_state_shards(s, "extra", bytes, 4) == hvd_size());
    want(bytes[hvd_size() - 1] == 64 && (hvd_size() == 1 || bytes[0] == 0));
    /* A change that was not committed is taken back, by both calls. */
    memset(shard, 1, 8 * (size_t)shard_elems(rank, hvd_size()));
    step = 99;
    want(hvd_restore(s) == 0 && is_right() && step == STEPS);
    memset(shard, 1, 8 * (size_t)shard_elems(rank, hvd_size()));
    check_value = 99;
    want(sync_once(s) == 0 && step == STEPS);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_static)
{
    struct scene any = {.elems = 1000};

    scene = &any;
    ck_assert_int_eq(world_run(_i, static_body, NULL), 0);
}
END_TEST

/* Sizes change at any time; what is committed is what is there. */
static int sizes_body(int rank, void *arg)
{
    static int64_t memory[100];
    size_t bytes[3] = {7, 7, 7};
    hvd_state *s = NULL;

    (void)arg;
    want(hvd_init() == 0 && hvd_state_new(&s) == 0);
    want(hvd_state_add(s, "m", memory, 8, HVD_STATE_SHARDED) == 0);
    want(hvd_sync(s) == 0);
    for (size_t k = 0; k < 20; k++) {
        size_t n = (k * 7 + (size_t)rank * 3) % 100;

        want(hvd_state_resize(s, "m", memory, 8 * n) == 0);
        for (size_t i = 0; i < n; i++)
            memory[i] = (int64_t)(k + i);
        want(hvd_commit(s) == 0);
        memset(memory, 1, sizeof(memory));
        want(hvd_restore(s) == 0);
        for (size_t i = 0; i < n; i++)
            want(memory[i] == (int64_t)(k + i));
        want(hvd_state_shards(s, "m", bytes, 2) == 3 && bytes[2] == 7);
        want(bytes[1] == 8 * ((k * 7 + 3) % 100));
    }
    /* The shards have 3 * 8 + 8 * 3 * 33 bytes in all now. */
    want(hvd_state_shards(s, "m", bytes, 3) == 3);
    want(hvd_state_resize(s, "m", memory, 8) == 0);
    want(hvd_sync(s) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "the 3 shards of 'm' have"));
    want(hvd_state_resize(s, "m", memory, bytes[(rank + 1) % 3]) == 0);
    want(hvd_sync(s) == 0);
    want(hvd_state_shards(s, "m", bytes, 3) == 3);
    want(hvd_shutdown() == 0);
    hvd_state_free(s);
    return 0;
}

START_TEST(test_sizes)
{
    struct scene sizes = {.size = 3};

    ck_assert_int_eq(world_run(3, sizes_body, NULL), 0);
    ck_assert_int_eq(play(&sizes, sizes_body), 0);
}
END_TEST

START_TEST(test_arguments)
{
    int64_t m;
    size_t bytes;
    hvd_state *s = NULL;

    ck_assert_int_eq(hvd_state_new(&s), 0);
    ck_assert_int_eq(hvd_state_add(s, "a", &m, 8, 0), 0);
    ck_assert_int_eq(hvd_state_add(s, "m", NULL, 8, HVD_STATE_SHARDED),
                     -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_add(s, "m", NULL, 0, HVD_STATE_SNAPSHOT),
                     -HVD_EINVAL);
    ck_assert(!s->blocks[0].copy);
    ck_assert_int_eq(hvd_state_add(s, "m", NULL, 0, HVD_STATE_SHARDED), 0);
    ck_assert(s->blocks[0].copy); /* of all that is not sharded */
    ck_assert_int_eq(hvd_state_add(s, "m", NULL, 0, HVD_STATE_SHARDED),
                     -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_resize(NULL, "m", &m, 8), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_resize(s, NULL, &m, 8), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_resize(s, "n", &m, 8), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_resize(s, "a", &m, 8), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_resize(s, "m", NULL, 8), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_resize(s, "m", &m, 8), 0);
    ck_assert_int_eq(hvd_state_shards(NULL, "m", &bytes, 1), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_shards(s, "a", &bytes, 1), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_shards(s, "m", NULL, 1), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_shards(s, "m", &bytes, -1), -HVD_EINVAL);
    ck_assert_int_eq(hvd_state_shards(s, "m", NULL, 0), -HVD_ENOENT);
    s->whole = HVD__STATE_SYNCED;
    ck_assert_int_eq(hvd_state_add(s, "b", NULL, 0, HVD_STATE_SHARDED),
                     -HVD_EINVAL);
    hvd_state_free(s);
}
END_TEST

static int make_one(void *arg)
{
    static char memory[100];
    hvd_state *s = NULL;
    int rc = hvd_state_new(&s);
    size_t before = 0;

    (void)arg;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = hvd_state_add(s, (const char *[]){"a", "b", "c"}[i], memory, 100,
                           i == 2 ? HVD_STATE_SHARDED : 0);
    for (size_t i = 0; s && i < s->count; i++)
        before += s->blocks[i].copy != NULL;
    ck_assert(rc == 0 ? before == 2 : before == 0);
    ck_assert(rc == 0 || rc == -HVD_ENOMEM);
    hvd_state_free(s);
    return rc;
}

START_TEST(test_memory)
{
    unit_fail_each(make_one, NULL);
}
END_TEST

/* A commit or a restore without memory says so, and leaves a state from which
 * the same call succeeds. */
static int no_memory_body(int rank, void *arg)
{
    hvd_state *s;
    int fails = 0;

    (void)arg;
    (void)rank;
    want(hvd_init() == 0);
    s = make_state();
    want(s && sync_once(s) == 0);
    for (int n = 1; n < 100; n++) {
        int rc;

        s->shards.is_resized = 1;
        hb_alloc_fail_after(n);
        rc = n % 2 ? hvd_commit(s) : hvd_sync(s);
        hb_alloc_fail_after(-1);
        want(rc == 0 || rc == -HVD_ENOMEM);
        fails += rc < 0;
        want(n % 2 == 0 || rc == 0 || sync_once(s) == 0);
        want(sync_once(s) == 0 && hvd_commit(s) == 0);
    }
    want(fails > 10);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_no_memory)
{
    struct scene any = {.elems = 100};

    scene = &any;
    ck_assert_int_eq(world_run(1, no_memory_body, NULL), 0);
}
END_TEST

/* ---- Deaths -------------------------------------------------------------- */

static int death_body(int rank, void *arg)
{
    int left = scene->size - count(scene->victims);
    struct hvd_change c;
    hvd_state *s;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    s = make_state();
    want(s);
    rc = train(s, scene->victims >> rank & 1);
    if (scene->is_lost) {
        want(rc == -HVD_ENOENT);
        want(strstr(hvd_error_message(), "is lost: both it and rank"));
        return 0;
    }
    want(rc == 0 && step == STEPS && hvd_size() == left);
    want(hvd_change(&c) == 0 && c.size == left && resizes >= 1);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

/* Of two to five ranks in any place one dies, at each instant. */
START_TEST(test_one_dies)
{
    static const struct scene scenes[] = {
        {NULL, 2, 1u << 0, 3, 0, 100, 0, 0, 0},
        {NULL, 3, 1u << 1, 1, 0, 100, 0, 0, 0},
        {NULL, 4, 1u << 3, 5, 0, 40000, 0, 0, 0},
        {"ab", 2, 1u << 1, 3, 0, 100, 0, 0, 0},
        {"aabb", 4, 1u << 2, 4, 0, 5000, 0, 0, 0},
        {"aabb", 4, 1u << 0, 2, 0, 100, 0, 0, 0},
        {"aaab", 4, 1u << 3, 2, 0, 100, 0, 0, 0},
        {"abc", 3, 1u << 1, 3, 0, 70000, 0, 0, 0},
    };
    struct scene one = scenes[_i / INSTANTS];

    one.when = (enum instant)(_i % INSTANTS);
    ck_assert_int_eq(play(&one, death_body), 1);
}
END_TEST

/* Several at the same instant: hosts, and ranks that do or do not keep each
 * other's shards. */
START_TEST(test_some_die)
{
    static const struct scene scenes[] = {
        {"aabb", 4, 0x3, 3, 0, 1000, 0, 0, 0},     /* a host */
        {"aabb", 4, 0x9, 3, 0, 1000, 0, 0, 0},     /* one of each pair */
        {"aabb", 4, 0x5, 3, 0, 1000, 0, 1, 0},     /* a pair */
        {"aabbcc", 6, 0xc, 3, 0, 5000, 0, 0, 0},   /* a host of three */
        {"aaab", 4, 0x7, 3, 0, 1000, 0, 0, 0},     /* the larger host */
        {NULL, 4, 0x5, 3, 0, 1000, 0, 0, 0},       /* one of each pair */
        {NULL, 4, 0xc, 3, 0, 1000, 0, 1, 0},       /* a pair */
        {NULL, 6, 0x2a, 3, 0, 1000, 0, 0, 0},      /* one of each pair */
        {"aabbccdd", 8, 0xcc, 2, 0, 900, 0, 0, 0}, /* one host of each pair */
        {"aabbccdd", 8, 0xf, 2, 0, 900, 0, 1, 0},  /* both of a pair */
    };
    struct scene some = scenes[_i / INSTANTS];

    some.when = (enum instant)(_i % INSTANTS);
    ck_assert_int_eq(play(&some, death_body), count(some.victims));
}
END_TEST

/* All but one die, one after the other. */
static int many_body(int rank, void *arg)
{
    int rc, last = scene->size - 1;
    hvd_state *s;

    (void)arg;
    want(hvd_init() == 0);
    s = make_state();
    want(s);
    rc = sync_once(s);
    while (rc == 0 && (step < 3 * last || hvd_size() > 1)) {
        rc = step_once(s, rank < last && step == 3 * rank + 1 ? rank % INSTANTS
                                                              : NEVER);
        if (rc == -HVD_ERESIZED)
            rc = sync_once(s);
    }
    want(rc == 0 && hvd_size() == 1 && is_right());
    want(hvd_generation() == scene->size);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_many_deaths)
{
    static const char *const places[] = {NULL, "aabbcc", "aaaabc"};
    struct scene many = {.size = 6, .place = places[_i], .elems = 3000};

    ck_assert_int_eq(play(&many, many_body), 5);
}
END_TEST

/* A second rank dies in the hvd_sync after a death: before or while the shards
 * are dealt out. */
static int again_on_resize(void *arg, const struct hvd_change *c)
{
    int rc = resize(arg, c->rank, c->size);

    if (c->generation == 2 && c->old_rank == 0) {
        if (scene->in_sync == 1)
            die();
        /* From here on, some time later. */
        atomic_store(&world_board->kill_rank, 1);
    }
    return rc;
}

static int again_body(int rank, void *arg)
{
    hvd_state *s;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    s = make_state();
    want(s);
    hvd_on_resize(again_on_resize, s);
    rc = train(s, scene->victims >> rank & 1);
    if (rc == 0) /* rank 0 may have got so far */
        rc = train_until(s, scene->size - 2);
    want(rc == 0 && step >= STEPS && hvd_size() == scene->size - 2);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_again)
{
    static const char *const places[] = {NULL, "aabb", "aabbccdd", "abcd"};
    struct scene again = {.place = places[_i % 4],
                          .size = _i % 4 == 2 ? 8 : 4,
                          .victims = 1u << 3,
                          .at = 3,
                          .when = (enum instant)(_i / 4 % INSTANTS),
                          .elems = 100000,
                          .in_sync = 1 + _i / 4 / INSTANTS};

    ck_assert_int_eq(play(&again, again_body), 2);
}
END_TEST

/* Of four ranks the last dies just after a commit that rank 1 does not know to
 * be complete; then rank 0 dies at an instant of the restore.  The other two
 * return to that commit. */

static uint64_t committed; /* its number */

/* Does what hvd_sync does in the second generation, until the instant. */
static void restore_and_die(hvd_state *s)
{
    struct hvd__state_age mine = hvd__state_age(s, 0, 0), ages[4];
    struct hvd__shard_layout *layout;
    struct hb_error err = HB_ERROR_INIT;
    int target;

    if (scene->when == AT_WORK)
        die();
    /* Rank 1 is behind, and this rank gives out its state. */
    if (hvd__words_allgather(&mine, sizeof(mine), ages, sizeof(ages), &err) <
            0 ||
        hvd_broadcast(&step, &step, 8, HVD_UINT8, 0, NULL) < 0 ||
        hvd_broadcast(&check_value, &check_value, 8, HVD_UINT8, 0, NULL) < 0 ||
        hvd__shards_sync_begin(s, &layout, &target) < 0 || !layout)
        exit(9);
    if (scene->when == BEFORE_COPY)
        die();
    if (hvd__shards_copy(s, layout, target) < 0)
        exit(9);
    if (scene->when == BEFORE_ALL)
        die();
    if (hvd__shards_confirm(s, target) < 0)
        exit(9);
    die();
}

static int restore_on_resize(void *arg, const struct hvd_change *c)
{
    hvd_state *s = arg;
    int rc = resize(s, c->rank, c->size);

    if (rc == 0 && c->generation == 2 && c->old_rank == 0)
        restore_and_die(s);
    /* No copy counts that not all are known to have, and all have learned of
     * the commit. */
    if (c->generation == 3 &&
        (scene->when == BEFORE_COPY || scene->when == BEFORE_ALL) &&
        s->shards.slot[s->shards.confirmed].seq != committed)
        return -HVD_EPROTO;
    return rc;
}

/* Commits as if the last operation had failed on this rank. */
static int commit_in_part(hvd_state *s)
{
    struct hvd__shard_layout *layout = NULL;
    int before = s->shards.confirmed, target = before == 0;
    int rc = hvd__shards_commit_begin(s, 0, &layout);

    if (rc == 0)
        rc = hvd__shards_copy(s, layout, target);
    if (rc == 0)
        rc = hvd__shards_confirm(s, target);
    s->shards.confirmed = before;
    hvd__shard_layout_unref(layout);
    return rc;
}

static int restore_body(int rank, void *arg)
{
    hvd_state *s;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    s = make_state();
    want(s && sync_once(s) == 0);
    hvd_on_resize(restore_on_resize, s);
    for (int i = 0; i < 2; i++)
        want(step_once(s, NEVER) == 0);
    for (int64_t i = 0; i < shard_elems(rank, 4); i++)
        shard[i] += GROWTH;
    for (int i = 0; i < 8; i++)
        extra[i]++;
    step++;
    check_value += 7;
    want((rank == 1 ? commit_in_part(s) : hvd_commit(s)) == 0);
    committed = s->shards.last;
    rc = hvd_barrier(NULL);
    if (rank == 3)
        die();
    while (rc == 0)
        rc = hvd_barrier(NULL);
    want(rc == -HVD_ERESIZED && sync_once(s) == 0 && step == 3);
    want(train_until(s, 2) == 0);
    for (int i = 0; i < 3; i++)
        want(step_once(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_restore)
{
    static const char *const places[] = {NULL, "abba"};
    struct scene deaths = {.size = 4,
                           .place = places[_i / INSTANTS],
                           .when = (enum instant)(_i % INSTANTS),
                           .elems = 5000};

    ck_assert_int_eq(play(&deaths, restore_body), 2);
}
END_TEST

/* ---- Ranks that come and go ---------------------------------------------- */

/* A rank that comes late gets its part of the array. */
static int late_body(int rank, void *arg)
{
    int is_late = rank >= scene->size - scene->late;
    hvd_state *s;

    (void)arg;
    while (is_late && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    want(hvd_init() == 0);
    s = make_state();
    want(s);
    if (is_late)
        memset(shard, 1, 8 * (size_t)shard_elems(hvd_rank(), hvd_size()));
    want(sync_once(s) == 0);
    if (rank == 0 && step_once(s, NEVER) == 0)
        atomic_store(&world_board->flag[0], 1);
    else if (!is_late)
        want(step_once(s, NEVER) == 0);
    want(train_until(s, scene->size) == 0 && step > 0);
    for (int i = 0; i < 5; i++)
        want(step_once(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_late)
{
    static const char *const places[] = {NULL, "aabb", "aaab"};
    struct scene late = {
        .size = 4, .place = places[_i], .late = 1, .elems = 9000};

    ck_assert_int_eq(play(&late, late_body), 0);
}
END_TEST

/* A spare takes over when a rank dies: the world is as large as before. */
static int spare_body(int rank, void *arg)
{
    int is_spare = rank == scene->size - 1;
    hvd_state *s;
    int rc;

    (void)arg;
    while (is_spare && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    if (is_spare)
        atomic_store(&world_board->flag[1], 1);
    want(hvd_init() == 0);
    s = make_state();
    want(s && hvd_size() == scene->size - 1);
    rc = sync_once(s);
    while (rc == 0 && (step < 4 || hvd_generation() == 1)) {
        if (step == 2 && rank == 0)
            atomic_store(&world_board->flag[0], 1);
        /* Before the others commit again, and let the spare in. */
        while (step == 2 && !atomic_load(&world_board->flag[1]))
            usleep(1000);
        if (step == 2 && scene->victims >> rank & 1) {
            usleep(50000);
            die();
        }
        rc = step_once(s, NEVER);
        if (rc == -HVD_ERESIZED)
            rc = sync_once(s);
    }
    want(rc == 0 && hvd_size() == scene->size - 1);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_spare)
{
    static const char *const places[] = {NULL, "aabb", "abcc"};
    struct scene spare = {.size = 4,
                          .place = places[_i / 3],
                          .late = 1,
                          .victims = 1u << _i % 3,
                          .elems = 9000};

    ck_assert_int_eq(play(&spare, spare_body), 1);
}
END_TEST

/* A rank that is asked to leave hands its shard over; no step is done again. */
static int removed_body(int rank, void *arg)
{
    int is_victim = scene->victims >> rank & 1, rc;
    int64_t at;
    hvd_state *s;

    (void)arg;
    want(hvd_init() == 0);
    s = make_state();
    want(s && sync_once(s) == 0 && step_once(s, NEVER) == 0);
    if (rank == 0) {
        atomic_store(&world_board->remove, __builtin_ctz(scene->victims) + 1);
        atomic_store(&world_board->change, 1);
    }
    while ((rc = step_once(s, NEVER)) == 0)
        usleep(1000);
    want(rc == -HVD_ERESIZED);
    at = step;
    rc = hvd_sync(s);
    want(step == at);
    if (is_victim) {
        want(rc == -HVD_EREMOVED && hvd_shutdown() == 0);
        free_state(s);
        return 0;
    }
    want(rc == 0 && is_right() && hvd_size() == scene->size - 1);
    for (int i = 0; i < 5; i++)
        want(step_once(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    free_state(s);
    return 0;
}

START_TEST(test_removed)
{
    static const char *const places[] = {NULL, "aabb", "abbb"};
    struct scene removed = {.size = 4,
                            .place = places[_i % 3],
                            .victims = 1u << _i / 3,
                            .elems = 9000};

    ck_assert_int_eq(play(&removed, removed_body), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shards");
    TCase *tc = tcase_create("shards");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_static, 1, 5);
    tcase_add_test(tc, test_sizes);
    tcase_add_test(tc, test_arguments);
    tcase_add_test(tc, test_memory);
    tcase_add_test(tc, test_no_memory);
    tcase_add_loop_test(tc, test_one_dies, 0, 8 * INSTANTS);
    tcase_add_loop_test(tc, test_some_die, 0, 10 * INSTANTS);
    tcase_add_loop_test(tc, test_many_deaths, 0, 3);
    tcase_add_loop_test(tc, test_again, 0, 2 * 4 * INSTANTS);
    tcase_add_loop_test(tc, test_restore, 0, 2 * INSTANTS);
    tcase_add_loop_test(tc, test_late, 0, 3);
    tcase_add_loop_test(tc, test_spare, 0, 9);
    tcase_add_loop_test(tc, test_removed, 0, 12);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
