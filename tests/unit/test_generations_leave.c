/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/elastic/generations: ranks that are asked to leave. */
#include "lib/job/elastic/generations.h"
#include "tests/unit/unit.h"

#include <string.h>

static int is_made_of(const struct generations *g, const char *want)
{
    int ranks[8], count = generations_members(g, ranks);
    char have[9] = "";

    for (int i = 0; i < count; i++)
        have[i] = (char)('0' + ranks[i]);
    return strcmp(have, want) == 0;
}

static enum generations_action fails(struct generations *g, int rank)
{
    return generations_ended(g, &rank, 1, GENERATIONS_FAILED);
}

static void open_job(struct generations *g, int size, int min_np,
                     int reset_limit)
{
    const struct generations_config config = {
        .size = size, .np = size, .min_np = min_np, .reset_limit = reset_limit};

    generations_init(g, &config);
}

/* Makes the first generation of all ranks. */
static void begin(struct generations *g, int size, int min_np, int reset_limit)
{
    open_job(g, size, min_np, reset_limit);
    for (int i = 0; i < size; i++)
        ck_assert_int_eq(generations_ready(g, i),
                         i < size - 1 ? GENERATIONS_NOTHING : GENERATIONS_MADE);
    ck_assert_uint_eq(g->number, 1);
    ck_assert_int_eq(g->joined, size);
}

static int take_removed(struct generations *g, const char *want)
{
    int ranks[8], count = generations_take_removed(g, ranks);
    char have[9] = "";

    for (int i = 0; i < count; i++)
        have[i] = (char)('0' + ranks[i]);
    return strcmp(have, want) == 0;
}

START_TEST(ranks_are_removed)
{
    static const int gone[] = {1, 2};
    struct generations g;

    begin(&g, 4, 2, -1);
    ck_assert(generations_can_remove(&g, gone, 2));
    ck_assert_int_eq(generations_remove(&g, gone, 2), GENERATIONS_CHANGE);
    ck_assert_int_eq(generations_remove(&g, gone, 2), GENERATIONS_NOTHING);
    ck_assert(generations_can_remove(&g, gone, 2)); /* they go already */
    generations_committed(&g, 1);
    for (int i = 0; i < 3; i++) {
        generations_left(&g, i);
        ck_assert_int_eq(generations_ready(&g, i), GENERATIONS_NOTHING);
    }
    ck_assert(take_removed(&g, ""));
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "03"));
    ck_assert_int_eq(g.removed, 2);
    ck_assert(take_removed(&g, "12") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ended(&g, gone, 2, GENERATIONS_FINISHED),
                     GENERATIONS_NOTHING);
    ck_assert_int_eq(g.lives[GENERATIONS_REMOVED], 2);
    ck_assert_int_eq(fails(&g, 0), GENERATIONS_TOO_FEW);
    generations_fini(&g);
}
END_TEST

/* The others get one more step before the rank is let go, so that its state is
 * that of a commit. */
START_TEST(a_death_delays_the_removal)
{
    struct generations g;
    int rank = 1;

    begin(&g, 4, 2, -1);
    ck_assert_int_eq(generations_remove(&g, &rank, 1), GENERATIONS_CHANGE);
    fails(&g, 2);
    generations_ready(&g, 0);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "013") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    generations_committed(&g, 2);
    generations_ready(&g, 0);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "03") && take_removed(&g, "1"));
    generations_fini(&g);
}
END_TEST

/* A rank that is needed is kept, but not for longer than that. */
START_TEST(too_few_would_stay)
{
    struct generations g;
    int rank = 1;

    begin(&g, 3, 2, -1);
    ck_assert_int_eq(generations_remove(&g, &rank, 1), GENERATIONS_CHANGE);
    rank = 2;
    ck_assert(!generations_can_remove(&g, &rank, 1));
    fails(&g, 2);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "01") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ended(&g, &(int){0}, 1, GENERATIONS_FINISHED),
                     GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    ck_assert_int_eq(fails(&g, 1), GENERATIONS_TOO_FEW);
    generations_fini(&g);
}
END_TEST

/* Who is no member, or does not run, goes at once. */
START_TEST(outsiders_are_removed)
{
    static const int gone[] = {1, 2};
    struct generations g;

    begin(&g, 4, 2, -1);
    generations_ended(&g, gone, 2, GENERATIONS_PENDING);
    generations_started(&g, 2);
    ck_assert_int_eq(generations_remove(&g, gone, 2), GENERATIONS_NOTHING);
    ck_assert(take_removed(&g, "2"));
    generations_started(&g, 1);
    ck_assert_int_eq(generations_given_up(&g, 1), GENERATIONS_NOTHING);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "03"));
    generations_fini(&g);
    open_job(&g, 2, 1, -1); /* before the first generation */
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_remove(&g, gone, 1), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "0") && take_removed(&g, "1"));
    generations_fini(&g);
}
END_TEST

START_TEST(all_stop)
{
    struct generations g;

    begin(&g, 3, 3, 0);
    ck_assert_int_eq(generations_stop(&g), GENERATIONS_CHANGE);
    generations_committed(&g, 1);
    generations_ready(&g, 0);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_STOPPED);
    ck_assert(take_removed(&g, "012"));
    ck_assert_int_eq(fails(&g, 2), GENERATIONS_NOTHING);
    generations_fini(&g);
    open_job(&g, 2, 1, -1);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_stop(&g), GENERATIONS_STOPPED);
    ck_assert(take_removed(&g, "01"));
    generations_fini(&g);
}
END_TEST

/* A job that might get new ranks does not wait for them any more, and one that
 * was started all the same is removed with the others. */
START_TEST(a_growing_job_stops)
{
    const struct generations_config config = {.size = 4,
                                              .np = 3,
                                              .min_np = 3,
                                              .most = 4,
                                              .multiple = _i ? 3 : 0,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    generations_init(&g, &config);
    for (int i = 0; i < 3; i++)
        generations_ready(&g, i);
    ck_assert_int_eq(generations_stop(&g), GENERATIONS_CHANGE);
    if (_i) {
        ck_assert_int_eq(fails(&g, 2), GENERATIONS_TOO_FEW);
        generations_fini(&g);
        return;
    }
    generations_ready(&g, 0);
    generations_ready(&g, 1);
    ck_assert_int_eq(fails(&g, 2), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "01") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    generations_started(&g, 3);
    generations_committed(&g, 2);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_STOPPED);
    ck_assert(take_removed(&g, "013"));
    generations_fini(&g);
}
END_TEST

/* ---- Nobody is left who has the state ---- */

/* Begins a job of `np` ranks with newcomers above them. */
static void begin_with_newcomers(struct generations *g,
                                 const struct generations_config *config)
{
    generations_init(g, config);
    for (int i = 0; i < config->np; i++)
        generations_ready(g, i);
    ck_assert_uint_eq(g->number, 1);
    for (int i = config->np; i < config->size; i++)
        generations_started(g, i);
}

/* Makes a commit, after which these members are ready. */
static void all_ready(struct generations *g, const char *members)
{
    enum generations_action action = GENERATIONS_NOTHING;

    generations_committed(g, g->number);
    for (; *members; members++) {
        ck_assert_int_eq(action, GENERATIONS_NOTHING);
        action = generations_ready(g, *members - '0');
    }
    ck_assert_int_eq(action, GENERATIONS_MADE);
}

/* Newcomers get the state before the last rank that has it is removed. */
START_TEST(all_hand_over)
{
    static const int gone[] = {0, 1};
    const struct generations_config config = {.size = 4,
                                              .np = 2,
                                              .min_np = 1,
                                              .most = 4,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    ck_assert(generations_can_remove(&g, gone, 2));
    ck_assert_int_eq(generations_remove(&g, gone, 2), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_CHANGE);
    generations_ready(&g, 3);
    all_ready(&g, "01");
    ck_assert(is_made_of(&g, "0123") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    all_ready(&g, "0123");
    ck_assert(is_made_of(&g, "23") && take_removed(&g, "01"));
    generations_fini(&g);
}
END_TEST

/* They fail before a commit, perhaps because the newcomer has only a part of
 * the state: nobody who has it is let go. */
START_TEST(no_handover_without_a_commit)
{
    static const int gone[] = {0};
    const struct generations_config config = {.size = 2,
                                              .np = 1,
                                              .min_np = 1,
                                              .most = 2,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    generations_ready(&g, 1);
    generations_remove(&g, gone, 1);
    all_ready(&g, "0");
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    generations_committed(&g, 1); /* an old one */
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "01") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    all_ready(&g, "01");
    ck_assert(is_made_of(&g, "1") && take_removed(&g, "0"));
    generations_fini(&g);
}
END_TEST

/* Nobody leaves before the newcomers have the state, even if there is no room
 * for all: those who leave could be all that have a part of it. */
START_TEST(some_hand_over)
{
    static const int gone[] = {0, 1, 2};
    const struct generations_config config = {.size = 6,
                                              .np = 3,
                                              .min_np = 3,
                                              .most = 3,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    generations_ready(&g, 3);
    ck_assert_int_eq(generations_remove(&g, gone, 3), GENERATIONS_CHANGE);
    all_ready(&g, "012");
    ck_assert(is_made_of(&g, "0123") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    generations_ready(&g, 4);
    ck_assert_int_eq(generations_ready(&g, 5), GENERATIONS_NOTHING);
    all_ready(&g, "0123");
    ck_assert(is_made_of(&g, "345") && take_removed(&g, "012"));
    generations_fini(&g);
}
END_TEST

/* No more newcomers than may stay take part, and those that have joined are not
 * sent away when an operation fails before they could have the state. */
START_TEST(pairs_hand_over)
{
    static const int gone[] = {0, 1};
    const struct generations_config config = {.size = 5,
                                              .np = 2,
                                              .min_np = 1,
                                              .most = 2,
                                              .multiple = 2,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    ck_assert_int_eq(generations_remove(&g, gone, 2), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_CHANGE);
    generations_ready(&g, 4);
    all_ready(&g, "01");
    ck_assert(is_made_of(&g, "0123") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(generations_ready(&g, i), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "0123") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    all_ready(&g, "0123");
    ck_assert(is_made_of(&g, "23") && take_removed(&g, "01"));
    generations_fini(&g);
}
END_TEST

/* The members have made their commit without knowing of it: what the rank has
 * may be on no other yet. */
START_TEST(a_late_notice_waits)
{
    static const int first = 1, second = 2;
    struct generations g;

    begin(&g, 4, 1, -1);
    ck_assert_int_eq(generations_remove(&g, &first, 1), GENERATIONS_CHANGE);
    generations_committed(&g, 1);
    generations_ready(&g, 0);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_remove(&g, &second, 1), GENERATIONS_NOTHING);
    generations_ready(&g, 2);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "023") && take_removed(&g, "1"));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    all_ready(&g, "023");
    ck_assert(is_made_of(&g, "03") && take_removed(&g, "2"));
    generations_fini(&g);
}
END_TEST

START_TEST(the_only_rank_hands_over)
{
    static const int gone[] = {0};
    const struct generations_config config = {.size = 2,
                                              .np = 1,
                                              .min_np = 1,
                                              .most = 1,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_remove(&g, gone, 1), GENERATIONS_CHANGE);
    all_ready(&g, "0");
    ck_assert(is_made_of(&g, "01") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_CHANGE);
    all_ready(&g, "01");
    ck_assert(is_made_of(&g, "1") && take_removed(&g, "0"));
    generations_fini(&g);
}
END_TEST

/* A spare may not join once a rank has finished: the one that has the state
 * stays, and nobody is asked to stop. */
START_TEST(no_handover_after_an_exit)
{
    static const int gone[] = {1};
    const struct generations_config config = {.size = 3,
                                              .np = 2,
                                              .min_np = 2,
                                              .most = 2,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    generations_ready(&g, 2);
    generations_ended(&g, &(int){0}, 1, GENERATIONS_FINISHED);
    ck_assert(!generations_can_remove(&g, gone, 1));
    ck_assert_int_eq(generations_remove(&g, gone, 1), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "1") && take_removed(&g, ""));
    ck_assert_int_eq(generations_begun(&g), GENERATIONS_NOTHING);
    generations_fini(&g);
}
END_TEST

/* Members that have called hvd_shutdown, and live, are waited for. */
START_TEST(all_leave_by_themselves)
{
    const struct generations_config config = {.size = 3,
                                              .np = 2,
                                              .min_np = 1,
                                              .most = 3,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    begin_with_newcomers(&g, &config);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_CHANGE);
    generations_left(&g, 0);
    ck_assert_int_eq(generations_left(&g, 1), GENERATIONS_NOTHING);
    ck_assert(!generations_settles(&g));
    ck_assert_int_eq(generations_settled(&g), GENERATIONS_NOTHING);
    generations_ready(&g, 1);
    ck_assert(generations_settles(&g));
    ck_assert_int_eq(generations_settled(&g), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "12"));
    generations_fini(&g);
    begin_with_newcomers(&g, &config);
    generations_ready(&g, 2);
    generations_left(&g, 0);
    generations_left(&g, 1);
    generations_ended(&g, &(int){0}, 1, GENERATIONS_FINISHED);
    ck_assert_int_eq(generations_ended(&g, &(int){1}, 1, GENERATIONS_FINISHED),
                     GENERATIONS_DONE);
    generations_fini(&g);
}
END_TEST

/* What does not fit into a multiple is no reason to wait for ever. */
START_TEST(too_few_for_a_multiple)
{
    const struct generations_config config = {
        .size = 4, .np = 4, .min_np = 1, .multiple = 4, .reset_limit = -1};
    struct generations g;
    int rank = 0;

    begin_with_newcomers(&g, &config);
    ck_assert(!generations_can_remove(&g, &rank, 1));
    ck_assert(!generations_can_lose(&g, 1));
    ck_assert_int_eq(fails(&g, 0), GENERATIONS_TOO_FEW);
    generations_fini(&g);
    begin_with_newcomers(&g, &config);
    generations_ended(&g, &rank, 1, GENERATIONS_FINISHED);
    all_ready(&g, "123");
    ck_assert(is_made_of(&g, "123"));
    generations_fini(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generations_leave");
    TCase *tc = tcase_create("leave");

    tcase_add_test(tc, ranks_are_removed);
    tcase_add_test(tc, a_death_delays_the_removal);
    tcase_add_test(tc, too_few_would_stay);
    tcase_add_test(tc, outsiders_are_removed);
    tcase_add_test(tc, all_stop);
    tcase_add_loop_test(tc, a_growing_job_stops, 0, 2);
    tcase_add_test(tc, all_hand_over);
    tcase_add_test(tc, no_handover_without_a_commit);
    tcase_add_test(tc, some_hand_over);
    tcase_add_test(tc, pairs_hand_over);
    tcase_add_test(tc, a_late_notice_waits);
    tcase_add_test(tc, the_only_rank_hands_over);
    tcase_add_test(tc, no_handover_after_an_exit);
    tcase_add_test(tc, all_leave_by_themselves);
    tcase_add_test(tc, too_few_for_a_multiple);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
