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

int main(void)
{
    Suite *suite = suite_create("generations_leave");
    TCase *tc = tcase_create("leave");

    tcase_add_test(tc, ranks_are_removed);
    tcase_add_test(tc, a_death_delays_the_removal);
    tcase_add_test(tc, too_few_would_stay);
    tcase_add_test(tc, outsiders_are_removed);
    tcase_add_test(tc, all_stop);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
