/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/elastic/generations: a model of whole jobs.
 *
 * The model has ranks, the messages that are under way between their hosts and
 * hvdrun, and the module itself.  All interleavings are explored, of jobs in
 * which ranks die, exit, leave, come back, join and are asked to leave, and
 * hosts are lost.  From
 * each state that can be reached, each order of the steps that do happen
 * (messages arrive, ranks notice that others are gone) must lead to a
 * generation in which all ranks work but spares, and nobody is kept who is to
 * leave and can be spared, or to the end of the job.
 */
#include "tests/unit/generations_model.h"

#include <stdio.h>
#include <string.h>

static struct world *states;
static unsigned *table; /* 1 + index in states */
static unsigned char *visited;
static size_t state_count;

/* ---- All of it ---- */

static size_t find(const struct world *w)
{
    uint64_t words[sizeof(*w) / 8 + 1] = {0}, hash = 1469598103934665603u;
    size_t at;

    memcpy(words, w, sizeof(*w));
    for (size_t i = 0; i < sizeof(words) / 8; i++) {
        hash = (hash ^ words[i]) * 1099511628211u;
        hash ^= hash >> 32;
    }
    for (at = hash % STATES; table[at]; at = (at + 1) % STATES)
        if (memcmp(&states[table[at] - 1], w, sizeof(*w)) == 0)
            break;
    return at;
}

static void add(const struct world *w)
{
    size_t at = find(w);

    if (table[at])
        return;
    ck_assert_uint_lt(state_count, STATES / 2);
    states[state_count++] = *w;
    table[at] = (unsigned)state_count;
}

/* Returns whether the rank waits because there is no room for it. */
static int is_spare(const struct world *w, int rank)
{
    int members = 0, others = 0;

    if (has_finished(w) && w->number > 0 && !w->known[rank].was_member)
        return 1;
    for (int i = 0; i < size; i++) {
        members += w->place[i] != DEAD && w->known[i].member;
        others += w->place[i] == WAITS && !w->known[i].member;
    }
    return !w->known[rank].member && members > 0 &&
           fit(w, members + others) <= members;
}

/* Returns whether the ranks have to wait for hosts, or for those that have left
 * and still live. */
static int waits_for_others(const struct world *w)
{
    int count = 0, left = 0;

    for (int i = 0; i < size; i++) {
        count += w->known[i].life == GENERATIONS_LIVES ||
                 w->known[i].life == GENERATIONS_PENDING;
        left += w->place[i] == LEFT && w->known[i].member;
    }
    count = fit(w, count) + count_lives(w, GENERATIONS_FINISHED);
    return left > 0 || (grows && !w->stopping && count < min_np);
}

/* Checks that nobody waits in a state in which nothing is left to happen. */
static void check_rest(const struct world *w)
{
    int number = 0;

    for (int i = 0; i < size && !w->ended; i++) {
        /* Spares wait for good, and all if the job waits for hosts. */
        ck_assert(w->place[i] != START && w->place[i] != OUT);
        ck_assert(w->place[i] != WAITS || is_spare(w, i) ||
                  waits_for_others(w));
        if (w->place[i] != WORKS)
            continue;
        ck_assert(!w->stopping && w->known[i].life != GENERATIONS_REMOVED);
        ck_assert(!w->known[i].leaves || !can_do_without(w));
        ck_assert(number == 0 || number == w->last[i]);
        number = w->last[i];
    }
}

/* Follows all orders of the sure steps: they end, and end well. */
static void follow(size_t state)
{
    int rests = 1;

    if (visited[state] == 2)
        return;
    ck_assert_int_eq(visited[state], 0); /* else the steps go in a circle */
    visited[state] = 1;
    for (int step = 0; step < SURE; step++) {
        struct world w = states[state];

        if (!step_of(&w, step))
            continue;
        rests = 0;
        follow(table[find(&w)] - 1);
    }
    if (rests)
        check_rest(&states[state]);
    visited[state] = 2;
}

static void explore(const char *what, int ranks, const int hosts[RANKS],
                    int need, struct world start)
{
    memcpy(host_of, hosts, sizeof(host_of));
    size = ranks;
    min_np = need;
    for (int i = np > 0 ? np : size; i < size; i++) {
        start.known[i].life = GENERATIONS_ABSENT;
        start.place[i] = DEAD;
    }
    states = hb_xcalloc(STATES / 2, sizeof(*states));
    table = hb_xcalloc(STATES, sizeof(*table));
    visited = hb_xcalloc(STATES / 2, 1);
    state_count = 0;
    add(&start);
    for (size_t i = 0; i < state_count; i++)
        for (int step = 0; step < STEPS; step++) {
            struct world w = states[i];

            if (step_of(&w, step))
                add(&w);
        }
    for (size_t i = 0; i < state_count; i++)
        follow(i);
    printf("%s: %zu states\n", what, state_count);
    hb_free(states);
    hb_free(table);
    hb_free(visited);
}

static const int two_hosts[RANKS] = {0, 0, 1, 1};
static const int three_hosts[RANKS] = {0, 1, 1, 2};
static const int four_hosts[RANKS] = {0, 1, 2, 3};

START_TEST(two_deaths)
{
    struct world w = {.deaths = 2};

    explore("two deaths, two hosts", 4, two_hosts, 2, w);
    explore("two deaths, four hosts", 4, four_hosts, 2, w);
    explore("two deaths, one is too many", 4, three_hosts, 3, w);
}
END_TEST

START_TEST(death_exit_and_return)
{
    struct world w = {.deaths = 1, .exits = 1, .leaves = 1};

    explore("death, exit and return", 4, two_hosts, 2, w);
    w.deaths = 2;
    explore("two deaths, exit and return", 3, three_hosts, 1, w);
    w = (struct world){.deaths = 1, .leaves = 2};
    explore("death and two returns", 3, three_hosts, 1, w);
}
END_TEST

/* What a lost host has sent before, or sends while it ends its ranks, comes
 * late. */
START_TEST(a_host_and_a_rank)
{
    struct world w = {.deaths = 1, .leaves = 1, .losses = 1};

    explore("a host and a rank", 4, three_hosts, 1, w);
}
END_TEST

/* Ranks are started again, also when none or too few are left meanwhile, and
 * when their host is lost. */
START_TEST(restarts)
{
    struct world w = {.deaths = 2, .restarts = 2};

    explore("two restarts", 3, three_hosts, 1, w);
    explore("two restarts, all are needed", 3, two_hosts, 3, w);
    w = (struct world){.deaths = 2, .restarts = 1, .exits = 1};
    explore("two deaths, a restart and an exit", 3, three_hosts, 2, w);
    w = (struct world){.deaths = 1, .restarts = 1, .losses = 1};
    explore("a restart and a host", 4, three_hosts, 1, w);
}
END_TEST

static void explore_growth(const char *what, int ranks, const int hosts[RANKS],
                           int need, int at_first, int at_most,
                           struct world start)
{
    np = at_first;
    most = at_most;
    grows = 1;
    explore(what, ranks, hosts, need, start);
    np = most = multiple = grows = 0;
}

/* New ranks join, on known and on new hosts, while others die, exit or leave,
 * and hosts are lost. */
START_TEST(growth)
{
    struct world w = {.deaths = 1, .joins = 2};

    explore_growth("growth from 2 to 4", 4, two_hosts, 2, 2, 4, w);
    w = (struct world){.deaths = 1, .joins = 2, .losses = 1};
    explore_growth("growth and a lost host", 3, three_hosts, 1, 2, 3, w);
    w = (struct world){.deaths = 1, .joins = 1, .exits = 1, .leaves = 1};
    explore_growth("growth, exit and return", 3, three_hosts, 1, 2, 3, w);
    w = (struct world){.deaths = 2, .joins = 2};
    explore_growth("below min_np and back", 3, three_hosts, 2, 2, 3, w);
    w = (struct world){.deaths = 2, .joins = 1};
    explore_growth("four hosts, two deaths and a join", 4, four_hosts, 1, 3, 4,
                   w);
}
END_TEST

START_TEST(spares)
{
    struct world w = {.deaths = 1, .joins = 2};

    explore_growth("two of three work", 3, three_hosts, 1, 2, 2, w);
    w = (struct world){.deaths = 1, .joins = 1, .exits = 2};
    explore_growth("a spare and exits", 3, three_hosts, 1, 2, 2, w);
    w = (struct world){.joins = 2, .losses = 1};
    explore_growth("two spares and a host", 4, four_hosts, 1, 2, 2, w);
}
END_TEST

/* Ranks are asked to leave, while others die, leave, join and are started
 * again. */
START_TEST(removals)
{
    struct world w = {.removals = 2};

    explore("two removals", 4, two_hosts, 2, w);
    w = (struct world){.removals = 1, .deaths = 1};
    explore("a removal and a death", 4, three_hosts, 2, w);
    explore("a removal and a death, one is too many", 3, three_hosts, 2, w);
    w = (struct world){.removals = 1, .leaves = 1, .exits = 1};
    explore("a removal, a return and an exit", 3, three_hosts, 1, w);
    w = (struct world){.removals = 1, .deaths = 1, .restarts = 1};
    explore("a removal and a restart", 3, three_hosts, 1, w);
    w = (struct world){.removals = 1, .losses = 1};
    explore("a removal and a host", 4, three_hosts, 1, w);
    w = (struct world){.removals = 1, .deaths = 1, .joins = 1};
    explore_growth("a removal and growth", 3, three_hosts, 1, 2, 3, w);
    w = (struct world){.removals = 1, .joins = 1};
    explore_growth("a removal of one who is needed", 3, three_hosts, 2, 2, 2,
                   w);
}
END_TEST

/* Those that are to leave hand the state over to newcomers. */
START_TEST(handovers)
{
    struct world w = {.removals = 2, .joins = 2};

    explore_growth("two for two", 4, two_hosts, 1, 2, 4, w);
    explore_growth("two for two, both are needed", 4, two_hosts, 2, 2, 2, w);
    explore_growth("one after the other", 3, three_hosts, 1, 1, 1, w);
    w = (struct world){.removals = 1, .joins = 2, .deaths = 1};
    explore_growth("one for two, and a death", 3, three_hosts, 1, 1, 2, w);
    explore_growth("one for one, and a death", 3, three_hosts, 1, 1, 1, w);
    w = (struct world){.removals = 2, .joins = 1, .exits = 1};
    explore_growth("a spare and an exit", 3, three_hosts, 1, 2, 2, w);
    explore_growth("a newcomer and an exit", 3, three_hosts, 2, 2, 3, w);
    w = (struct world){.removals = 2, .joins = 1, .leaves = 1};
    explore_growth("a newcomer and a return", 3, three_hosts, 1, 2, 3, w);
    w = (struct world){.joins = 1, .leaves = 2};
    explore_growth("all return, and growth", 3, three_hosts, 1, 2, 3, w);
    w = (struct world){.joins = 1, .leaves = 1, .exits = 2};
    explore_growth("all exit, and growth", 3, three_hosts, 1, 2, 3, w);
}
END_TEST

/* Only an even number of ranks works at once. */
START_TEST(pairs)
{
    struct world w = {.deaths = 1, .joins = 2};

    multiple = 2;
    explore_growth("pairs and growth", 4, two_hosts, 2, 2, 4, w);
    multiple = 2;
    w = (struct world){.removals = 2, .joins = 2};
    explore_growth("pairs and removals", 4, four_hosts, 2, 2, 4, w);
    multiple = 2;
    w = (struct world){.deaths = 1, .exits = 2};
    explore("pairs and exits", 4, two_hosts, 1, w);
    w = (struct world){.deaths = 2, .removals = 1};
    explore("pairs, deaths and a removal", 4, three_hosts, 1, w);
    multiple = 0;
}
END_TEST

/* Operations fail, so that ranks are ready without a commit. */
START_TEST(glitches)
{
    struct world w = {.removals = 1, .glitches = 2};

    explore("glitches and a removal", 3, three_hosts, 1, w);
    w = (struct world){.removals = 2, .joins = 1, .glitches = 1};
    explore_growth("a glitch and a handover", 3, three_hosts, 1, 2, 3, w);
    w = (struct world){.removals = 1, .joins = 1, .glitches = 2};
    explore_growth("glitches and a handover", 2, three_hosts, 1, 1, 1, w);
    w = (struct world){.stops = 1, .glitches = 2};
    explore("glitches and a stop", 3, two_hosts, 1, w);
}
END_TEST

START_TEST(stops)
{
    struct world w = {.stops = 1, .deaths = 1};

    explore("a stop and a death", 4, two_hosts, 2, w);
    w = (struct world){.stops = 1, .leaves = 1, .exits = 1};
    explore("a stop, a return and an exit", 3, three_hosts, 1, w);
    w = (struct world){.stops = 1, .deaths = 1, .restarts = 1, .removals = 1};
    explore("a stop, a restart and a removal", 3, two_hosts, 1, w);
    w = (struct world){.stops = 1, .deaths = 1, .joins = 1};
    explore_growth("a stop below min_np", 3, three_hosts, 2, 2, 3, w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generations_model");
    TCase *tc = tcase_create("model");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, two_deaths);
    tcase_add_test(tc, death_exit_and_return);
    tcase_add_test(tc, a_host_and_a_rank);
    tcase_add_test(tc, restarts);
    tcase_add_test(tc, growth);
    tcase_add_test(tc, spares);
    tcase_add_test(tc, removals);
    tcase_add_test(tc, handovers);
    tcase_add_test(tc, pairs);
    tcase_add_test(tc, glitches);
    tcase_add_test(tc, stops);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
