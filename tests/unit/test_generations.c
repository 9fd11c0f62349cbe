/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/elastic/generations, step by step.  test_generations_model.c checks
 * whole jobs. */
#include "lib/job/elastic/generations.h"
#include "tests/unit/unit.h"

#include <string.h>

/* ---- Single steps ---- */

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

START_TEST(survivors_of_a_death)
{
    struct generations g;

    begin(&g, 3, 2, -1);
    ck_assert(is_made_of(&g, "012"));
    ck_assert_int_eq(fails(&g, 1), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_NOTHING);
    ck_assert(generations_waits(&g));
    ck_assert(generations_is_missing(&g, 0));
    ck_assert(!generations_is_missing(&g, 1));
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "02"));
    ck_assert_uint_eq(g.number, 2);
    ck_assert_int_eq(g.joined, 0);
    ck_assert(!generations_waits(&g));
    generations_fini(&g);
}
END_TEST

/* The death of the last rank that is not ready is what the others wait for. */
START_TEST(the_missing_rank_dies)
{
    struct generations g;

    open_job(&g, 3, 1, -1);
    generations_ready(&g, 0);
    generations_ready(&g, 1);
    ck_assert(!generations_waits(&g)); /* hvd_init has its own limit */
    ck_assert_int_eq(fails(&g, 2), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "01"));
    generations_fini(&g);
}
END_TEST

/* Ranks of a lost host are never in a generation without each other. */
START_TEST(a_host_is_lost)
{
    static const int lost[] = {1, 2};
    struct generations g;

    begin(&g, 4, 1, -1);
    generations_ready(&g, 0);
    generations_ready(&g, 2);
    generations_ready(&g, 3);
    ck_assert_int_eq(generations_ended(&g, lost, 2, GENERATIONS_FAILED),
                     GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "03"));
    ck_assert_int_eq(generations_ended(&g, lost, 2, GENERATIONS_FAILED),
                     GENERATIONS_NOTHING);
    ck_assert_int_eq(g.lives[GENERATIONS_FAILED], 2);
    generations_fini(&g);
}
END_TEST

START_TEST(a_rank_leaves_for_good)
{
    struct generations g;

    begin(&g, 3, 1, -1);
    ck_assert_int_eq(generations_left(&g, 1), GENERATIONS_NOTHING);
    generations_ready(&g, 0);
    ck_assert(!generations_settles(&g));
    ck_assert_int_eq(generations_settled(&g), GENERATIONS_NOTHING);
    generations_ready(&g, 2);
    ck_assert(generations_settles(&g));
    ck_assert_int_eq(generations_settled(&g), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "02"));
    ck_assert(!generations_settles(&g));
    generations_fini(&g);
}
END_TEST

START_TEST(a_rank_comes_late)
{
    struct generations g;

    begin(&g, 3, 1, -1);
    generations_left(&g, 1);
    generations_ready(&g, 0);
    generations_ready(&g, 2);
    generations_settled(&g);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_CHANGE);
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "012"));
    ck_assert_uint_eq(g.number, 3);
    ck_assert_int_eq(g.joined, 0); /* it was in the first one */
    generations_left(&g, 0);
    generations_ready(&g, 1);
    generations_ready(&g, 2);
    generations_settled(&g);
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_CHANGE);
    generations_fini(&g);
}
END_TEST

/* A rank may have left before it was ever a member. */
START_TEST(a_newcomer_counts_once)
{
    struct generations g;

    open_job(&g, 2, 1, -1);
    generations_left(&g, 1);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_settled(&g), GENERATIONS_MADE);
    ck_assert_int_eq(g.joined, 1);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_CHANGE);
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_MADE);
    ck_assert_int_eq(g.joined, 1);
    generations_fini(&g);
}
END_TEST

START_TEST(too_few)
{
    struct generations g;
    int rank = 0;

    begin(&g, 4, 3, -1);
    ck_assert_int_eq(generations_ended(&g, &rank, 1, GENERATIONS_FINISHED),
                     GENERATIONS_NOTHING);
    ck_assert_int_eq(fails(&g, 1), GENERATIONS_NOTHING);
    ck_assert_int_eq(fails(&g, 2), GENERATIONS_TOO_FEW);
    ck_assert_int_eq(fails(&g, 3), GENERATIONS_NOTHING);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_NOTHING);
    ck_assert(!generations_waits(&g) && !generations_settles(&g));
    generations_fini(&g);
}
END_TEST

START_TEST(reset_limit)
{
    struct generations g;

    begin(&g, 4, 1, 1);
    fails(&g, 0);
    generations_ready(&g, 1);
    generations_ready(&g, 2);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    fails(&g, 1);
    generations_ready(&g, 2);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_TOO_MANY);
    ck_assert_uint_eq(g.number, 2);
    ck_assert_int_eq(fails(&g, 2), GENERATIONS_NOTHING);
    generations_fini(&g);
}
END_TEST

START_TEST(no_reset_is_allowed)
{
    struct generations g;

    begin(&g, 2, 1, 0);
    fails(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_TOO_MANY);
    generations_fini(&g);
}
END_TEST

START_TEST(overdue)
{
    struct generations g;

    begin(&g, 2, 1, -1);
    ck_assert_int_eq(generations_overdue(&g), GENERATIONS_NOTHING);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_overdue(&g), GENERATIONS_OVERDUE);
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_NOTHING);
    generations_fini(&g);
}
END_TEST

/* A spare takes over at once, and waits as long as it is not needed. */
START_TEST(a_spare_takes_over)
{
    const struct generations_config config = {.size = 4,
                                              .np = 2,
                                              .min_np = 2,
                                              .most = 2,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    generations_init(&g, &config);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    generations_started(&g, 3);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_NOTHING);
    ck_assert_int_eq(fails(&g, 0), GENERATIONS_CHANGE);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "13"));
    ck_assert_int_eq(g.joined, 1);
    generations_fini(&g);
}
END_TEST

/* A generation has a multiple of the ranks, those that worked first. */
START_TEST(multiples)
{
    const struct generations_config config = {.size = 5,
                                              .np = 4,
                                              .min_np = 2,
                                              .multiple = 2,
                                              .reset_limit = -1,
                                              .grows = 1};
    struct generations g;

    generations_init(&g, &config);
    for (int i = 0; i < 4; i++)
        generations_ready(&g, i);
    ck_assert(is_made_of(&g, "0123"));
    fails(&g, 1);
    generations_ready(&g, 0);
    generations_ready(&g, 2);
    ck_assert_int_eq(generations_ready(&g, 3), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "02"));
    ck_assert(!generations_waits(&g)); /* rank 3 is a spare now */
    generations_started(&g, 4);
    ck_assert_int_eq(generations_ready(&g, 4), GENERATIONS_CHANGE);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_MADE);
    ck_assert(is_made_of(&g, "0234"));
    ck_assert_int_eq(g.joined, 2);
    generations_fini(&g);
}
END_TEST

/* Spares do not begin anew when the others have finished. */
START_TEST(spares_are_not_needed)
{
    struct generations_config config = {
        .size = 2, .np = 1, .min_np = 1, .most = 1, .reset_limit = -1};
    struct generations g;
    int rank = 0;

    generations_init(&g, &config);
    ck_assert_int_eq(generations_ready(&g, 0), GENERATIONS_MADE);
    generations_started(&g, 1);
    generations_ready(&g, 1);
    ck_assert_int_eq(generations_ended(&g, &rank, 1, GENERATIONS_FINISHED),
                     GENERATIONS_DONE);
    generations_fini(&g);
    config.size = 3;
    config.np = config.min_np = config.most = 2;
    generations_init(&g, &config);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    generations_started(&g, 2);
    generations_ready(&g, 2);
    ck_assert_int_eq(generations_ended(&g, &rank, 1, GENERATIONS_FINISHED),
                     GENERATIONS_NOTHING);
    ck_assert_int_eq(fails(&g, 1), GENERATIONS_TOO_FEW);
    generations_fini(&g);
}
END_TEST

START_TEST(nobody_waits_for_a_start)
{
    struct generations g;
    int rank = 2;

    begin(&g, 3, 1, -1);
    ck_assert_int_eq(generations_ended(&g, &rank, 1, GENERATIONS_PENDING),
                     GENERATIONS_NOTHING);
    generations_started(&g, 2);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    ck_assert_int_eq(generations_ready(&g, 2), GENERATIONS_CHANGE);
    ck_assert_int_eq(generations_waits(&g), 0);
    generations_ready(&g, 0);
    ck_assert_int_eq(generations_waits(&g), 1);
    ck_assert_int_eq(generations_ready(&g, 1), GENERATIONS_MADE);
    ck_assert_int_eq(g.joined, 1);
    generations_fini(&g);
}
END_TEST

/* An event costs no walk through all ranks: with one, this takes longer than a
 * test may. */
START_TEST(many_ranks)
{
    enum { MANY = 65536 };
    struct generations g;
    int *ranks = hb_xcalloc(MANY, sizeof(*ranks));

    open_job(&g, MANY, 1, -1);
    for (int times = 0; times < 3; times++)
        for (int i = 0; i < MANY; i++) {
            ck_assert_int_eq(generations_ready(&g, i), i < MANY - 1
                                                           ? GENERATIONS_NOTHING
                                                           : GENERATIONS_MADE);
            ck_assert_int_eq(generations_waits(&g), times > 0 && i < MANY - 1);
            ck_assert(!generations_settles(&g));
            ck_assert_int_eq(generations_take_removed(&g, ranks), 0);
        }
    ck_assert_uint_eq(g.number, 3);
    for (int i = 0; i < MANY - 1; i++)
        ck_assert_int_eq(fails(&g, i), GENERATIONS_NOTHING);
    hb_free(ranks);
    generations_fini(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generations");
    TCase *tc = tcase_create("steps");

    tcase_add_test(tc, survivors_of_a_death);
    tcase_add_test(tc, the_missing_rank_dies);
    tcase_add_test(tc, a_host_is_lost);
    tcase_add_test(tc, a_rank_leaves_for_good);
    tcase_add_test(tc, a_rank_comes_late);
    tcase_add_test(tc, a_newcomer_counts_once);
    tcase_add_test(tc, too_few);
    tcase_add_test(tc, reset_limit);
    tcase_add_test(tc, no_reset_is_allowed);
    tcase_add_test(tc, overdue);
    tcase_add_test(tc, nobody_waits_for_a_start);
    tcase_add_test(tc, a_spare_takes_over);
    tcase_add_test(tc, multiples);
    tcase_add_test(tc, spares_are_not_needed);
    tcase_add_test(tc, many_ranks);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
