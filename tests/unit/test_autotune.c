/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/core/tune/autotune.h: the search, with made-up costs. */
#include "runtime/core/tune/autotune.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

/* ---- The search --------------------------------------------------------- */

enum { STEPS = 10, SAMPLES = 20, BYTES = 1000, SEEDS = 200 };

/* The cost of a step, and its disturbances. */
struct model {
    double slope[HVD__AUTOTUNE_AXES]; /* % more per place away from `at` */
    int at[HVD__AUTOTUNE_AXES];       /* best place */
    double noise;                     /* up to this many % more */
    double rare;  /* every 20th step, at random, takes this many times as
                   * long */
    double drift; /* % more with every step */
    unsigned seed;
    int steps;
};

static double next_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return (double)(*state >> 16 & 0x7fff) / 0x8000;
}

static double true_cost(const struct model *m,
                        const struct hvd__autotune_setting *s)
{
    double cost = 1e6;

    for (int i = 0; i < HVD__AUTOTUNE_AXES; i++)
        cost *= 1 + m->slope[i] / 100 * abs(s->at[i] - m->at[i]);
    return cost;
}

static uint64_t disturbed(struct model *m,
                          const struct hvd__autotune_setting *s)
{
    double cost = true_cost(m, s);

    cost *= 1 + m->noise / 100 * next_random(&m->seed);
    cost *= 1 + m->drift / 100 * m->steps++;
    if (m->rare > 0 && next_random(&m->seed) < 0.05)
        cost *= m->rare;
    return (uint64_t)cost;
}

static struct hvd__autotune_config usual(void)
{
    return (struct hvd__autotune_config){.places = {5, 5, 5},
                                         .start = {{2, 2, 2}},
                                         .guess = {{2, 2, 2}},
                                         .warmup = 3,
                                         .steps = STEPS,
                                         .samples = SAMPLES};
}

struct seen {
    int samples[HVD__AUTOTUNE_OVER];
    struct hvd__autotune_setting kept, first[2];
};

/* Runs a search to its end; checks that every setting tried exists. */
static struct seen search(const struct hvd__autotune_config *c, struct model *m)
{
    struct hvd__autotune t;
    struct seen seen = {0};
    int tried = 0;

    ck_assert_int_eq(hvd__autotune_init(&t, c), 0);
    while (t.phase != HVD__AUTOTUNE_OVER) {
        struct hvd__autotune_setting s = t.next;

        for (int i = 0; i < HVD__AUTOTUNE_AXES; i++)
            ck_assert_int_lt(s.at[i], c->places[i]);
        for (int i = 1; i < c->steps; i++)
            ck_assert_int_eq(hvd__autotune_step(&t, BYTES, disturbed(m, &s)),
                             0);
        ck_assert_int_eq(hvd__autotune_step(&t, BYTES, disturbed(m, &s)), 1);
        ck_assert(hvd__autotune_same(&s, &t.last.setting));
        ck_assert(t.last.cost.q1 <= t.last.cost.median &&
                  t.last.cost.median <= t.last.cost.q3);
        seen.samples[t.last.phase]++;
        if (t.last.phase == HVD__AUTOTUNE_SEARCH && tried < 2)
            seen.first[tried++] = s;
    }
    seen.kept = t.next;
    ck_assert_int_eq(seen.samples[HVD__AUTOTUNE_WARMUP], c->warmup);
    ck_assert_int_le(seen.samples[HVD__AUTOTUNE_SEARCH] +
                         seen.samples[HVD__AUTOTUNE_VERIFY],
                     c->samples);
    hvd__autotune_fini(&t);
    hvd__autotune_fini(&t);
    return seen;
}

static void keeps(const struct seen *seen, int a, int b, int c)
{
    const struct hvd__autotune_setting wanted = {
        {(unsigned char)a, (unsigned char)b, (unsigned char)c}};

    ck_assert_msg(hvd__autotune_same(&seen->kept, &wanted),
                  "%d %d %d instead of %d %d %d", seen->kept.at[0],
                  seen->kept.at[1], seen->kept.at[2], a, b, c);
}

/* The best setting is at either end of each axis, or in the middle. */
static const int ends[][3] = {{0, 2, 2}, {4, 2, 2}, {2, 0, 2}, {2, 4, 2},
                              {2, 2, 0}, {2, 2, 4}, {2, 2, 2}};

START_TEST(test_finds_the_end_of_an_axis)
{
    const int *at = ends[_i];
    struct hvd__autotune_config c = usual();

    for (unsigned seed = 1; seed <= 20; seed++) {
        struct model m = {.slope = {30, 30, 30},
                          .at = {at[0], at[1], at[2]},
                          .noise = 5,
                          .rare = 20,
                          .seed = seed};
        struct seen seen = search(&c, &m);

        keeps(&seen, at[0], at[1], at[2]);
    }
}
END_TEST

START_TEST(test_finds_two_axes)
{
    struct hvd__autotune_config c = usual();
    struct model m = {.slope = {40, 40, 0}, .at = {0, 4, 0}, .noise = 2};
    struct seen seen;

    seen = search(&c, &m);
    ck_assert_int_eq(seen.kept.at[0], 0);
    ck_assert_int_eq(seen.kept.at[1], 4);
}
END_TEST

/* If all settings cost the same, noise seldom makes the search leave the
 * start. */
START_TEST(test_flat_keeps_the_start)
{
    static const double noises[] = {0, 5, 50}, drifts[] = {0, 0.05};
    struct hvd__autotune_config c = usual();
    int moved = 0;

    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct model m = {.noise = noises[_i % 3],
                          .drift = drifts[_i / 3],
                          .rare = _i % 3 ? 10 : 0,
                          .seed = seed};
        struct seen seen = search(&c, &m);

        moved += !hvd__autotune_same(&seen.kept, &c.start);
    }
    ck_assert_int_le(moved, SEEDS / 20);
}
END_TEST

/* With random costs the result is never worse than the start. */
START_TEST(test_never_worse)
{
    struct hvd__autotune_config c = usual();
    int better = 0;

    for (unsigned seed = 1; seed <= 5 * SEEDS; seed++) {
        unsigned state = seed * 7919;
        struct model m = {
            .noise = 30 * next_random(&state), .rare = 10, .seed = seed};
        double start, kept;
        struct seen seen;

        for (int i = 0; i < HVD__AUTOTUNE_AXES; i++) {
            m.slope[i] = 30 * next_random(&state);
            m.at[i] = (int)(5 * next_random(&state));
            c.start.at[i] = (unsigned char)(5 * next_random(&state));
        }
        c.guess = c.start;
        start = true_cost(&m, &c.start);
        seen = search(&c, &m);
        kept = true_cost(&m, &seen.kept);
        ck_assert_msg(kept <= 1.01 * start, "seed %u: %g, was %g", seed, kept,
                      start);
        better += kept < 0.99 * start;
    }
    ck_assert_int_gt(better, 5 * SEEDS / 2);
}
END_TEST

START_TEST(test_pinned_is_not_tried)
{
    struct hvd__autotune_config c = {.places = {1, 5, 1},
                                     .start = {{0, 4, 0}},
                                     .guess = {{0, 4, 0}},
                                     .steps = 1,
                                     .samples = SAMPLES};
    struct model m = {.slope = {30, 30, 30}, .at = {4, 1, 4}};
    struct seen seen = search(&c, &m);

    keeps(&seen, 0, 1, 0);
    c.places[1] = 1;
    c.start.at[1] = c.guess.at[1] = 0;
    seen = search(&c, &m);
    keeps(&seen, 0, 0, 0);
    ck_assert_int_eq(seen.samples[HVD__AUTOTUNE_SEARCH], 1);
    ck_assert_int_eq(seen.samples[HVD__AUTOTUNE_VERIFY], 0);
}
END_TEST

START_TEST(test_guess_is_tried_first)
{
    struct hvd__autotune_config c = usual();
    struct model m = {.slope = {30, 30, 30}, .at = {4, 0, 4}};
    struct seen seen;

    c.guess = (struct hvd__autotune_setting){{4, 0, 3}};
    seen = search(&c, &m);
    ck_assert(hvd__autotune_same(&seen.first[0], &c.start));
    ck_assert(hvd__autotune_same(&seen.first[1], &c.guess));
    keeps(&seen, 4, 0, 4);
    /* A bad guess does no harm. */
    m.at[0] = m.at[1] = m.at[2] = 2;
    seen = search(&c, &m);
    keeps(&seen, 2, 2, 2);
}
END_TEST

/* The limit on samples is kept, whatever could still be found. */
START_TEST(test_limits_of_samples)
{
    struct hvd__autotune_config c = usual();
    struct model m = {.slope = {30, 30, 30}, .at = {4, 4, 4}};

    for (int n = 0; n < 60; n++) {
        struct seen seen;

        c.samples = n;
        c.warmup = n < HVD__AUTOTUNE_SAMPLES_MIN ? 0 : n % 4;
        seen = search(&c, &m);
        if (n < HVD__AUTOTUNE_SAMPLES_MIN)
            keeps(&seen, 2, 2, 2);
        if (n == HVD__AUTOTUNE_SAMPLES_MIN)
            keeps(&seen, 3, 2, 2);
        if (n > 30)
            keeps(&seen, 4, 4, 4);
    }
}
END_TEST

START_TEST(test_extended)
{
    struct hvd__autotune_config c = usual();
    struct hvd__autotune t;
    int largest = 0;

    c.places[0] = 1;
    c.start.at[0] = c.guess.at[0] = 0;
    ck_assert_int_eq(hvd__autotune_init(&t, &c), 0);
    hvd__autotune_extend(&t, 0, 3);
    while (t.phase != HVD__AUTOTUNE_OVER) {
        if (t.next.at[0] > largest)
            largest = t.next.at[0];
        hvd__autotune_step(&t, BYTES, 1000000 - 300000u * t.next.at[0]);
    }
    ck_assert_int_eq(largest, 2);
    ck_assert_int_eq(t.next.at[0], 2);
    ck_assert(t.kept_cost.median > 399 && t.kept_cost.median < 401);
    hvd__autotune_fini(&t);
}
END_TEST

START_TEST(test_stopped)
{
    struct hvd__autotune_config c = usual();
    struct hvd__autotune t;

    c.guess.at[0] = 4;
    c.warmup = 0;
    ck_assert_int_eq(hvd__autotune_init(&t, &c), 0);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_int_eq(hvd__autotune_step(&t, 0, 5), 0);
        ck_assert_int_eq(hvd__autotune_step(&t, 5, 0), 0);
        ck_assert_int_eq(hvd__autotune_step(&t, BYTES, 7000), i == STEPS - 1);
    }
    ck_assert(hvd__autotune_same(&t.next, &c.guess));
    hvd__autotune_stop(&t);
    ck_assert(hvd__autotune_same(&t.next, &c.start));
    ck_assert(t.kept_cost.median == 7);
    ck_assert_int_eq(hvd__autotune_step(&t, BYTES, 1), 0);
    hvd__autotune_fini(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("autotune");
    TCase *t = tcase_create("search");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, test_finds_the_end_of_an_axis, 0,
                        sizeof(ends) / sizeof(ends[0]));
    tcase_add_test(t, test_finds_two_axes);
    tcase_add_loop_test(t, test_flat_keeps_the_start, 0, 6);
    tcase_add_test(t, test_never_worse);
    tcase_add_test(t, test_pinned_is_not_tried);
    tcase_add_test(t, test_guess_is_tried_first);
    tcase_add_test(t, test_limits_of_samples);
    tcase_add_test(t, test_extended);
    tcase_add_test(t, test_stopped);
    suite_add_tcase(s, t);
    return unit_run(s);
}
