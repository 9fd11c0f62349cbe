/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded memory (HVD_STATE_SHARDED): its sizes, and ranks that leave and
 * join. */
#include "lib/base/alloc.h"
#include "runtime/core/api/shard_deal.h"
#include "tests/unit/shards_training.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <unistd.h>

/* ---- Jobs that are not elastic ------------------------------------------- */

static int static_body(int rank, void *arg)
{
    size_t bytes[4];
    hvd_state *s;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s);
    want(hvd_state_shards(s, "shard", bytes, 4) == -HVD_ENOENT);
    want(shards_train(s, 0) == 0 && shards_step == SHARDS_STEPS);
    want(hvd_state_shards(s, "shard", bytes, 4) == hvd_size());
    for (int r = 0; r < hvd_size(); r++)
        want(bytes[r] == 8 * (size_t)shards_elems(r, hvd_size()));
    want(hvd_state_shards(s, "extra", bytes, 4) == hvd_size());
    want(bytes[hvd_size() - 1] == 64 && (hvd_size() == 1 || bytes[0] == 0));
    /* A change that was not committed is taken back, by both calls. */
    memset(shards_own, 1, 8 * (size_t)shards_elems(rank, hvd_size()));
    shards_step = 99;
    want(hvd_restore(s) == 0 && shards_are_right() &&
         shards_step == SHARDS_STEPS);
    memset(shards_own, 1, 8 * (size_t)shards_elems(rank, hvd_size()));
    shards_check = 99;
    want(shards_sync(s) == 0 && shards_step == SHARDS_STEPS);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_static)
{
    struct shards_scene any = {.elems = 1000};

    shards_scene = &any;
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
    struct shards_scene sizes = {.size = 3};

    ck_assert_int_eq(world_run(3, sizes_body, NULL), 0);
    ck_assert_int_eq(shards_play(&sizes, sizes_body), 0);
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
    s->shards.known = hvd__shard_layout_new(2, 1);
    ck_assert_int_eq(hvd_state_shards(s, "m", NULL, 0), 2);
    ck_assert_int_eq(hvd_state_add(s, "b", NULL, 0, HVD_STATE_SHARDED), 0);
    ck_assert_int_eq(hvd_state_shards(s, "b", NULL, 0), -HVD_ENOENT);
    s->whole = HVD__STATE_SYNCED;
    ck_assert_int_eq(hvd_state_add(s, "c", NULL, 0, HVD_STATE_SHARDED),
                     -HVD_EINVAL);
    hvd_state_free(s);
}
END_TEST

/* Finds what three ranks' cards tell of shards 5; this rank is the first. */
static int find(const struct hvd__shard_card *cards,
                struct hvd__shard_slot *slot)
{
    struct hvd__shard_deal deal = {
        .cards = cards, .n = 3, .seq = 5, .slot = slot};
    int rc = hvd__shard_deal_find(&deal, 1);

    hvd__shard_deal_fini(&deal);
    return rc;
}

/* Cards that contradict each other or this rank's own slot. */
START_TEST(test_hostile_cards)
{
    struct hvd__shard_card c[3] = {{.confirmed = 5}};
    struct hvd__shard_slot slot = {.seq = 5,
                                   .layout = hvd__shard_layout_new(3, 1)};

    ck_assert_int_eq(find(c, NULL), -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "no rank has shards 5"));
    for (uint32_t i = 0; i < 3; i++)
        c[i] = (struct hvd__shard_card){.seq = {5}, .rank = {i}, .size = {3}};
    ck_assert_int_eq(find(c, &slot), 0);
    c[2].size[0] = 4;
    ck_assert_int_eq(find(c, &slot), -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(),
                                 "rank 0 tells of 3 shards, and rank 2 of 4"));
    c[0].size[0] = c[1].size[0] = 4;
    ck_assert_int_eq(find(c, &slot), -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(hvd_error_message(), "there are 3"));
    for (int i = 0; i < 3; i++)
        c[i].size[0] = HVD__SHARD_RANKS_MAX + 1;
    ck_assert_int_eq(find(c, &slot), -HVD_EPROTO);
    hvd__shard_layout_unref(slot.layout);
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
    s = shards_make();
    want(s && shards_sync(s) == 0);
    for (int n = 1; n < 100; n++) {
        int rc;

        s->shards.is_resized = 1;
        hb_alloc_fail_after(n);
        rc = n % 2 ? hvd_commit(s) : hvd_sync(s);
        hb_alloc_fail_after(-1);
        want(rc == 0 || rc == -HVD_ENOMEM);
        fails += rc < 0;
        want(n % 2 == 0 || rc == 0 || shards_sync(s) == 0);
        want(shards_sync(s) == 0 && hvd_commit(s) == 0);
    }
    want(fails > 10);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_no_memory)
{
    struct shards_scene any = {.elems = 100};

    shards_scene = &any;
    ck_assert_int_eq(world_run(1, no_memory_body, NULL), 0);
}
END_TEST

/* ---- Ranks that come and go ---------------------------------------------- */

/* A rank that comes late gets its part of the array. */
static int late_body(int rank, void *arg)
{
    int is_late = rank >= shards_scene->size - shards_scene->late;
    hvd_state *s;

    (void)arg;
    while (is_late && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    want(hvd_init() == 0);
    s = shards_make();
    want(s);
    if (is_late)
        memset(shards_own, 1, 8 * (size_t)shards_elems(hvd_rank(), hvd_size()));
    want(shards_sync(s) == 0);
    if (rank == 0 && shards_do_step(s, NEVER) == 0)
        atomic_store(&world_board->flag[0], 1);
    else if (!is_late)
        want(shards_do_step(s, NEVER) == 0);
    want(shards_train_until(s, shards_scene->size) == 0 && shards_step > 0);
    for (int i = 0; i < 5; i++)
        want(shards_do_step(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_late)
{
    static const char *const places[] = {NULL, "aabb", "aaab"};
    struct shards_scene late = {
        .size = 4, .place = places[_i], .late = 1, .elems = 9000};

    ck_assert_int_eq(shards_play(&late, late_body), 0);
}
END_TEST

/* A spare takes over when a rank dies: the world is as large as before. */
static int spare_body(int rank, void *arg)
{
    int is_spare = rank == shards_scene->size - 1;
    hvd_state *s;
    int rc;

    (void)arg;
    while (is_spare && !atomic_load(&world_board->flag[0]))
        usleep(1000);
    if (is_spare)
        atomic_store(&world_board->flag[1], 1);
    want(hvd_init() == 0);
    s = shards_make();
    want(s && hvd_size() == shards_scene->size - 1);
    rc = shards_sync(s);
    while (rc == 0 && (shards_step < 4 || hvd_generation() == 1)) {
        if (shards_step == 2 && rank == 0)
            atomic_store(&world_board->flag[0], 1);
        /* Before the others commit again, and let the spare in. */
        while (shards_step == 2 && !atomic_load(&world_board->flag[1]))
            usleep(1000);
        if (shards_step == 2 && shards_scene->victims >> rank & 1) {
            usleep(50000);
            shards_die();
        }
        rc = shards_do_step(s, NEVER);
        if (rc == -HVD_ERESIZED)
            rc = shards_sync(s);
    }
    want(rc == 0 && hvd_size() == shards_scene->size - 1);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_spare)
{
    static const char *const places[] = {NULL, "aabb", "abcc"};
    struct shards_scene spare = {.size = 4,
                                 .place = places[_i / 3],
                                 .late = 1,
                                 .victims = 1u << _i % 3,
                                 .elems = 9000};

    ck_assert_int_eq(shards_play(&spare, spare_body), 1);
}
END_TEST

/* A rank that is asked to leave hands its shard over; no step is done again. */
static int removed_body(int rank, void *arg)
{
    int is_victim = shards_scene->victims >> rank & 1, rc;
    int64_t at;
    hvd_state *s;

    (void)arg;
    want(hvd_init() == 0);
    s = shards_make();
    want(s && shards_sync(s) == 0 && shards_do_step(s, NEVER) == 0);
    if (rank == 0) {
        atomic_store(&world_board->remove,
                     __builtin_ctz(shards_scene->victims) + 1);
        atomic_store(&world_board->change, 1);
    }
    while ((rc = shards_do_step(s, NEVER)) == 0)
        usleep(1000);
    want(rc == -HVD_ERESIZED);
    at = shards_step;
    rc = hvd_sync(s);
    want(shards_step == at);
    if (is_victim) {
        want(rc == -HVD_EREMOVED && hvd_shutdown() == 0);
        shards_free(s);
        return 0;
    }
    want(rc == 0 && shards_are_right() && hvd_size() == shards_scene->size - 1);
    for (int i = 0; i < 5; i++)
        want(shards_do_step(s, NEVER) == 0);
    want(hvd_shutdown() == 0);
    shards_free(s);
    return 0;
}

START_TEST(test_removed)
{
    static const char *const places[] = {NULL, "aabb", "abbb"};
    struct shards_scene removed = {.size = 4,
                                   .place = places[_i % 3],
                                   .victims = 1u << _i / 3,
                                   .elems = 9000};

    ck_assert_int_eq(shards_play(&removed, removed_body), 0);
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
    tcase_add_test(tc, test_hostile_cards);
    tcase_add_test(tc, test_memory);
    tcase_add_test(tc, test_no_memory);
    tcase_add_loop_test(tc, test_late, 0, 3);
    tcase_add_loop_test(tc, test_spare, 0, 9);
    tcase_add_loop_test(tc, test_removed, 0, 12);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
