/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded memory in worlds whose ranks die, at each instant of a commit and of
 * a restore. */
#include "runtime/core/set/words.h"
#include "tests/unit/shards_training.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static int count(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* ---- Deaths -------------------------------------------------------------- */

static int death_body(int rank, void *arg)
{
    int left = shards_scene->size - count(shards_scene->victims);
    struct hvd_change c;
    hvd_state *s;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s);
    rc = shards_train(s, shards_scene->victims >> rank & 1);
    if (shards_scene->is_lost) {
        want(rc == -HVD_ENOENT);
        want(strstr(hvd_error_message(), "is lost: both it and rank"));
        return 0;
    }
    want(rc == 0 && shards_step == SHARDS_STEPS && hvd_size() == left);
    want(hvd_change(&c) == 0 && c.size == left && shards_resizes >= 1);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

/* Of two to five ranks in any place one dies, at each instant. */
START_TEST(test_one_dies)
{
    static const struct shards_scene scenes[] = {
        {NULL, 2, 1u << 0, 3, 0, 100, 0, 0, 0},
        {NULL, 3, 1u << 1, 1, 0, 100, 0, 0, 0},
        {NULL, 4, 1u << 3, 5, 0, 40000, 0, 0, 0},
        {"ab", 2, 1u << 1, 3, 0, 100, 0, 0, 0},
        {"aabb", 4, 1u << 2, 4, 0, 5000, 0, 0, 0},
        {"aabb", 4, 1u << 0, 2, 0, 100, 0, 0, 0},
        {"aaab", 4, 1u << 3, 2, 0, 100, 0, 0, 0},
        {"abc", 3, 1u << 1, 3, 0, 70000, 0, 0, 0},
    };
    struct shards_scene one = scenes[_i / INSTANTS];

    one.when = (enum instant)(_i % INSTANTS);
    ck_assert_int_eq(shards_play(&one, death_body), 1);
}
END_TEST

/* Several at the same instant: hosts, and ranks that do or do not keep each
 * other's shards. */
START_TEST(test_some_die)
{
    static const struct shards_scene scenes[] = {
        {"aabb", 4, 0x3, 3, 0, 1000, 0, 0, 0},     /* a host */
        {"aabb", 4, 0x9, 3, 0, 1000, 0, 0, 0},     /* one of each pair */
        {"aabb", 4, 0x5, 3, 0, 1000, 0, 1, 0},     /* a pair */
        {"aabbcc", 6, 0xc, 3, 0, 5000, 0, 0, 0},   /* a host of three */
        {"aaab", 4, 0x7, 3, 0, 1000, 0, 0, 0},     /* the larger host */
        {NULL, 4, 0x5, 3, 0, 1000, 0, 0, 0},       /* one of each pair */
        {NULL, 4, 0xc, 3, 0, 1000, 0, 1, 0},       /* a pair */
        {NULL, 4, 0x3, 3, 0, 3, 0, 0, 0},          /* one with nothing */
        {NULL, 6, 0x2a, 3, 0, 1000, 0, 0, 0},      /* one of each pair */
        {"aabbccdd", 8, 0xcc, 2, 0, 900, 0, 0, 0}, /* one host of each pair */
        {"aabbccdd", 8, 0xf, 2, 0, 900, 0, 1, 0},  /* both of a pair */
    };
    struct shards_scene some = scenes[_i / INSTANTS];

    some.when = (enum instant)(_i % INSTANTS);
    ck_assert_int_eq(shards_play(&some, death_body), count(some.victims));
}
END_TEST

/* All but one die, one after the other. */
static int many_body(int rank, void *arg)
{
    int rc, last = shards_scene->size - 1;
    hvd_state *s;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s);
    rc = shards_sync(s);
    while (rc == 0 && (shards_step < 3 * last || hvd_size() > 1)) {
        rc = shards_do_step(s, rank < last && shards_step == 3 * rank + 1
                                   ? rank % INSTANTS
                                   : NEVER);
        if (rc == -HVD_ERESIZED)
            rc = shards_sync(s);
    }
    want(rc == 0 && hvd_size() == 1 && shards_are_right());
    want(hvd_generation() == shards_scene->size);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_many_deaths)
{
    static const char *const places[] = {NULL, "aabbcc", "aaaabc"};
    struct shards_scene many = {.size = 6, .place = places[_i], .elems = 3000};

    ck_assert_int_eq(shards_play(&many, many_body), 5);
}
END_TEST

/* A second rank dies in the hvd_sync after a death: before or while the shards
 * are dealt out. */
static int again_on_resize(void *arg, const struct hvd_change *c)
{
    int rc = shards_resize(arg, c->rank, c->size);

    if (c->generation == 2 && c->old_rank == 0) {
        if (shards_scene->in_sync == 1)
            shards_die();
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
    s = shards_make();
    want(s);
    hvd_on_resize(again_on_resize, s);
    rc = shards_train(s, shards_scene->victims >> rank & 1);
    if (rc == 0) /* rank 0 may have got so far */
        rc = shards_train_until(s, shards_scene->size - 2);
    want(rc == 0 && shards_step >= SHARDS_STEPS &&
         hvd_size() == shards_scene->size - 2);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_again)
{
    static const char *const places[] = {NULL, "aabb", "aabbccdd", "abcd"};
    struct shards_scene again = {.place = places[_i % 4],
                                 .size = _i % 4 == 2 ? 8 : 4,
                                 .victims = 1u << 3,
                                 .at = 3,
                                 .when = (enum instant)(_i / 4 % INSTANTS),
                                 .elems = 100000,
                                 .in_sync = 1 + _i / 4 / INSTANTS};

    ck_assert_int_eq(shards_play(&again, again_body), 2);
}
END_TEST

/* Of four ranks the last dies just after a commit that rank 1, or 1 and 2, do
 * not know to be complete; then rank 0 dies at an instant of the restore.  The
 * other two return to that commit, or to the one before, if neither has learned
 * of it. */

static uint64_t committed; /* its number */
static int behind;         /* the last rank that does not know of it */

/* Does what hvd_sync does in the second generation, until the instant. */
static void restore_and_die(hvd_state *s)
{
    struct hvd__state_age mine = hvd__state_age(s, 0, 0), ages[4];
    struct hvd__shard_layout *layout;
    struct hb_error err = HB_ERROR_INIT;
    int target;

    if (shards_scene->when == AT_WORK)
        shards_die();
    /* Others are behind, and this rank gives out its state. */
    if (hvd__words_allgather(&mine, sizeof(mine), ages, sizeof(ages), &err) <
            0 ||
        hvd_broadcast(&shards_step, &shards_step, 8, HVD_UINT8, 0, NULL) < 0 ||
        hvd_broadcast(&shards_check, &shards_check, 8, HVD_UINT8, 0, NULL) <
            0 ||
        hvd__shards_sync_begin(s, mine.version, &layout, &target) < 0 ||
        !layout)
        exit(9);
    if (shards_scene->when == BEFORE_COPY)
        shards_die();
    if (hvd__shards_copy(s, layout, target) < 0)
        exit(9);
    if (shards_scene->when == BEFORE_ALL)
        shards_die();
    if (hvd__shards_confirm(s, target) < 0)
        exit(9);
    shards_die();
}

static int restore_on_resize(void *arg, const struct hvd_change *c)
{
    hvd_state *s = arg;
    int rc = shards_resize(s, c->rank, c->size);

    if (rc == 0 && c->generation == 2 && c->old_rank == 0)
        restore_and_die(s);
    /* No copy counts that not all are known to have, and all have learned of
     * the commit. */
    if (c->generation == 3 &&
        (shards_scene->when == BEFORE_COPY ||
         shards_scene->when == BEFORE_ALL) &&
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
    int64_t known = behind == 2 && shards_scene->when == AT_WORK ? 2 : 3;
    hvd_state *s;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s && shards_sync(s) == 0);
    hvd_on_resize(restore_on_resize, s);
    for (int i = 0; i < 2; i++)
        want(shards_do_step(s, NEVER) == 0);
    shards_grow();
    want((rank == 1 || rank == behind ? commit_in_part(s) : hvd_commit(s)) ==
         0);
    committed = s->shards.last;
    rc = hvd_barrier(NULL);
    if (rank == 3)
        shards_die();
    while (rc == 0)
        rc = hvd_barrier(NULL);
    want(rc == -HVD_ERESIZED && shards_sync(s) == 0);
    want(shards_step == known);
    want(shards_train_until(s, 2) == 0);
    for (int i = 0; i < 3; i++)
        want(shards_do_step(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_restore)
{
    static const char *const places[] = {NULL, "abba"};
    struct shards_scene deaths = {.size = 4,
                                  .place = places[_i / INSTANTS % 2],
                                  .when = (enum instant)(_i % INSTANTS),
                                  .elems = 5000};

    behind = 1 + _i / INSTANTS / 2;
    ck_assert_int_eq(shards_play(&deaths, restore_body), 2);
}
END_TEST

/* A program that does not resize its shards is told so, may look at what there
 * was, and go on. */
static int forgets_body(int rank, void *arg)
{
    size_t bytes[4];
    hvd_state *s;
    int rc = 0;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s && shards_sync(s) == 0);
    hvd_on_resize(NULL, NULL);
    while (rc == 0) {
        rc = shards_do_step(s, NEVER);
        if (rank == 1)
            shards_die();
    }
    want(rc == -HVD_ERESIZED && hvd_sync(s) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "the 4 shards of 'shard' have 8000 bytes "
                                     "in all, and the memory of the 3 ranks"));
    want(hvd_state_shards(s, "shard", bytes, 4) == 4);
    for (int r = 0; r < 4; r++)
        want(bytes[r] == 8 * (size_t)shards_elems(r, 4));
    want(shards_resize(s, hvd_rank(), hvd_size()) == 0);
    want(shards_sync(s) == 0 && shards_step <= 1);
    want(hvd_state_shards(s, "shard", bytes, 4) == 3);
    want(shards_do_step(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_forgets)
{
    static const char *const places[] = {NULL, "aabb"};
    struct shards_scene scene = {.size = 4, .place = places[_i], .elems = 1000};

    ck_assert_int_eq(shards_play(&scene, forgets_body), 1);
}
END_TEST

/* A rank dies before or in the first hvd_sync, which takes the start values of
 * the shards.  They are the shards for as long as the memory is the same. */
static int replaces;

static int first_body(int rank, void *arg)
{
    hvd_state *s;
    int rc;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s);
    if (!replaces)
        hvd_on_resize(NULL, NULL);
    if (rank == 2)
        shards_die();
    rc = hvd_sync(s);
    if (!replaces) {
        want(rc == 0 && hvd_commit(s) == 0);
        want(hvd_state_shards(s, "shard", NULL, 0) == 2);
        want(hvd_shutdown() == 0);
    } else {
        want(rc == -HVD_ENOENT);
        want(strstr(hvd_error_message(), "replaced the start values"));
    }
    shards_free(s);
    return 0;
}

START_TEST(test_first)
{
    struct shards_scene scene = {.size = 3, .elems = 1000};

    replaces = _i;
    ck_assert_int_eq(shards_play(&scene, first_body), 1);
}
END_TEST

/* Of two states, one is not synchronised after a death. */
static int two_body(int rank, void *arg)
{
    hvd_state *s, *other;
    int64_t more = 0;
    int rc = 0;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s && hvd_state_new(&other) == 0);
    want(hvd_state_add(other, "more", &more, sizeof(more), 0) == 0);
    want(hvd_commit(s) == -HVD_EINVAL); /* it has shards */
    want(shards_sync(s) == 0 && hvd_sync(other) == 0);
    while (rc == 0) {
        more++;
        rc = hvd_commit(other);
        if (rank == 1 && more == 3)
            shards_die();
    }
    want(rc == -HVD_ERESIZED && shards_sync(s) == 0);
    want(hvd_commit(other) == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "for this state in this generation"));
    want(hvd_commit(s) == 0);
    want(hvd_sync(other) == 0 && hvd_commit(other) == 0);
    want(hvd_shutdown() == 0);
    hvd_state_free(other);
    shards_free(s);
    return 0;
}

START_TEST(test_two)
{
    struct shards_scene scene = {.size = 3, .elems = 1000};

    ck_assert_int_eq(shards_play(&scene, two_body), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shards_deaths");
    TCase *tc = tcase_create("shards_deaths");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_one_dies, 0, 8 * INSTANTS);
    tcase_add_loop_test(tc, test_some_die, 0, 11 * INSTANTS);
    tcase_add_loop_test(tc, test_many_deaths, 0, 3);
    tcase_add_loop_test(tc, test_again, 0, 2 * 4 * INSTANTS);
    tcase_add_loop_test(tc, test_restore, 0, 2 * 2 * INSTANTS);
    tcase_add_loop_test(tc, test_forgets, 0, 2);
    tcase_add_loop_test(tc, test_first, 0, 2);
    tcase_add_test(tc, test_two);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
