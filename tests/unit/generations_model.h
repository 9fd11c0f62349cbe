/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of test_generations_model.c: the state of a job, and the steps that
 * may happen in it.
 */
#ifndef TESTS_UNIT_GENERATIONS_MODEL_H
#define TESTS_UNIT_GENERATIONS_MODEL_H

#include "lib/job/elastic/generations.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum {
    RANKS = 4,
    NUMBERS = 10,    /* more generations than any run makes */
    UP = 8,          /* messages under way from a host */
    DOWN = 6,        /* and to it */
    STATES = 1 << 20 /* entries of the table */
};

enum place { START, WAITS, WORKS, LEFT, OUT, DEAD };

/* Messages are a kind and a rank, COMMITTED that the rank is ready after its
 * generation has made a commit; GENERATION and CHANGE a kind and a number. */
enum up { UP_READY, UP_COMMITTED, UP_LEFT, UP_FAILED, UP_FINISHED };
enum down { DOWN_GENERATION, DOWN_CHANGE, DOWN_RESTART, DOWN_REMOVED };

struct message {
    unsigned char kind, what;
};

/* A state of the job; bytes only, so that states can be compared. */
struct world {
    struct generations_rank known[RANKS];
    unsigned char number, changing, broken, stopping, ended;
    unsigned char committed;           /* as far as is known */
    unsigned char has_commit[NUMBERS]; /* each generation, really */
    unsigned char restarts;            /* which may still happen */
    unsigned char members[NUMBERS];    /* of each generation, as bits */
    unsigned char place[RANKS];        /* what the ranks really do */
    unsigned char last[RANKS];         /* the last generation they were in */
    unsigned char told[RANKS];         /* the agent has CHANGE for it */
    unsigned char deaths, exits, leaves, losses; /* which may still happen */
    unsigned char joins, removals, stops, glitches;
    unsigned char asked[RANKS];     /* hvdrun wants it to leave */
    unsigned char knew[RANKS];      /* others knew that when CHANGE was sent */
    unsigned char removed[RANKS];   /* the agent knows that it is removed */
    unsigned char has_state[RANKS]; /* of the job, as of a commit */
    unsigned char lost[RANKS];      /* hosts */
    unsigned char up_count[RANKS], down_count[RANKS];
    struct message up[RANKS][UP], down[RANKS][DOWN];
};

/* What varies between runs: ranks that do not live at first may join. */
static int size, min_np, np, most, multiple, grows;
static int host_of[RANKS];

/* Counts the ranks anew. */
static void recount(struct generations *g)
{
    memset(g->lives, 0, sizeof(g->lives));
    memset(g->phases, 0, sizeof(g->phases));
    memset(g->were_members, 0, sizeof(g->were_members));
    memset(g->members, 0, sizeof(g->members));
    memset(g->leaving, 0, sizeof(g->leaving));
    memset(g->due, 0, sizeof(g->due));
    g->untold = 0;
    for (int i = 0; i < size; i++) {
        const struct generations_rank *r = &g->ranks[i];
        int lives = r->life == GENERATIONS_LIVES;

        g->lives[r->life]++;
        g->untold += r->untold;
        g->phases[r->phase] += lives;
        g->were_members[r->phase] += lives && r->was_member;
        g->members[r->phase] += lives && r->member;
        ck_assert(!r->due || r->leaves);
        ck_assert(!r->leaves || r->member || !lives);
        g->leaving[r->phase] += lives && r->leaves;
        g->due[r->phase] += lives && r->due;
    }
}

static void load(const struct world *w, struct generations *g)
{
    const struct generations_config config = {.size = size,
                                              .np = size,
                                              .min_np = min_np,
                                              .most = most,
                                              .multiple = multiple,
                                              .reset_limit = -1,
                                              .grows = grows};

    generations_init(g, &config);
    memcpy(g->ranks, w->known, (size_t)size * sizeof(*g->ranks));
    g->number = w->number;
    g->changing = w->changing;
    g->committed = w->committed;
    g->broken = w->broken;
    g->stopping = w->stopping;
    g->ended = w->ended;
    recount(g);
}

#define EQUAL(member) (memcmp(&a->member, &b->member, sizeof(a->member)) == 0)

/* Compares what the module has counted. */
static int counts_equal(const struct generations *a,
                        const struct generations *b)
{
    return EQUAL(lives) && EQUAL(untold) && EQUAL(phases) &&
           EQUAL(were_members) && EQUAL(members) && EQUAL(leaving) &&
           EQUAL(due);
}

/* Checks that the module has counted right, and keeps its state. */
static void store(struct world *w, struct generations *g)
{
    struct generations again;

    memcpy(w->known, g->ranks, (size_t)size * sizeof(*g->ranks));
    w->number = (unsigned char)g->number;
    w->changing = (unsigned char)g->changing;
    w->committed = (unsigned char)g->committed;
    w->broken = (unsigned char)g->broken;
    w->stopping = (unsigned char)g->stopping;
    w->ended = (unsigned char)g->ended;
    load(w, &again);
    ck_assert(counts_equal(&again, g));
    generations_fini(&again);
    generations_fini(g);
}

static void send_down(struct world *w, enum down kind)
{
    for (int host = 0; host < size; host++)
        for (int i = 0; i < size; i++) {
            if (host_of[i] != host || !w->known[i].member || w->lost[host] ||
                w->known[i].life != GENERATIONS_LIVES)
                continue;
            ck_assert_int_lt(w->down_count[host], DOWN);
            w->down[host][w->down_count[host]++] =
                (struct message){(unsigned char)kind, w->number};
            break;
        }
}

/* Checks that the members and those that have finished are min_np, unless they
 * only have to stop. */
static void check_enough(const struct world *w)
{
    int count = 0;

    for (int i = 0; i < size; i++)
        count += w->known[i].life == GENERATIONS_FINISHED ||
                 (w->known[i].life == GENERATIONS_LIVES && w->known[i].member);
    ck_assert_int_ge(count, w->stopping ? 1 : min_np);
}

static int has_finished(const struct world *w)
{
    for (int i = 0; i < size; i++)
        if (w->known[i].life == GENERATIONS_FINISHED)
            return 1;
    return 0;
}

/* Returns how many of `count` ranks a generation may have. */
static int fit(const struct world *w, int count)
{
    if (most > 0 && count > most)
        count = most;
    return multiple > 0 && !has_finished(w) ? count - count % multiple : count;
}

static int count_members(const struct world *w)
{
    int count = 0;

    for (int i = 0; i < size; i++)
        count += w->known[i].member;
    return count;
}

/* Checks that no member gave way to a newcomer, and that there are not too many
 * members, but for those that are to leave and hand the state over. */
static void check_room(const struct world *w, const struct world *before)
{
    int newcomers = 0, dropped = 0, leaving = 0, count = count_members(w);

    for (int i = 0; i < size; i++) {
        newcomers += w->known[i].member && !before->known[i].member;
        dropped += !w->known[i].member && before->known[i].member &&
                   w->known[i].life == GENERATIONS_LIVES &&
                   w->known[i].phase == GENERATIONS_READY;
        leaving += w->known[i].member && w->known[i].leaves;
    }
    ck_assert(newcomers == 0 || dropped == 0);
    ck_assert(most == 0 || count - leaving <= most);
    ck_assert(multiple == 0 || has_finished(w) || count % multiple == 0);
}

/* Checks that of the members that live at least one stays a member, and at
 * least one that has the state, if any of them has it and has not left by
 * itself. */
static void check_state_kept(const struct world *w, const struct world *before)
{
    int kept = 0, kept_state = 0, others = 0, others_state = 0;

    for (int i = 0; i < size; i++) {
        const struct generations_rank *was = &before->known[i];
        enum generations_life life = w->known[i].life;
        int works = w->known[i].member;
        int is_other = !works && (life == GENERATIONS_LIVES ||
                                  life == GENERATIONS_REMOVED);

        if (!was->member || was->life != GENERATIONS_LIVES)
            continue;
        kept += works;
        kept_state += works && before->has_state[i];
        others += is_other;
        others_state +=
            is_other && before->has_state[i] && was->phase != GENERATIONS_LEFT;
    }
    ck_assert(kept > 0 || others == 0);
    ck_assert(kept_state > 0 || others_state == 0);
}

/* Checks that a member that is removed has left its part of the state with
 * another: the members knew at the commit that it would go, and one that they
 * expected to stay is a member still. */
static void check_left_behind(const struct world *w, const struct world *before,
                              int rank)
{
    int heirs = 0;

    for (int i = 0; i < size; i++)
        heirs +=
            before->known[i].member && w->known[i].member && !before->knew[i];
    ck_assert(w->stopping || before->knew[rank]);
    ck_assert(w->stopping || heirs > 0);
}

static void check_made(struct world *w, const struct world *before, int settled)
{
    ck_assert_int_eq(w->number, before->number + 1);
    ck_assert_int_lt(w->number, NUMBERS);
    for (int i = 0; i < size; i++) {
        const struct generations_rank *r = &w->known[i];

        if (!r->member) {
            /* It is dead, it has left and did not come back in time, it was
             * started later, or there is no room. */
            ck_assert(r->life != GENERATIONS_LIVES ||
                      r->phase == GENERATIONS_STARTING ||
                      (r->phase == GENERATIONS_LEFT && settled) ||
                      (r->phase == GENERATIONS_READY && !r->was_member &&
                       (fit(w, count_members(w) + 1) <= count_members(w) ||
                        has_finished(w))));
            continue;
        }
        w->members[w->number] |= (unsigned char)(1u << i);
        ck_assert_int_eq(r->life, GENERATIONS_LIVES);
        ck_assert(w->place[i] == WAITS || w->place[i] == DEAD);
    }
    ck_assert_int_ne(w->members[w->number], 0);
    check_room(w, before);
    check_state_kept(w, before);
    memset(w->knew, 0, sizeof(w->knew));
    send_down(w, DOWN_GENERATION);
    check_enough(w);
}

static void check_end(struct world *w)
{
    enum generations_action action = GENERATIONS_NOTHING;
    struct generations g;

    load(w, &g);
    for (int i = 0; i < size; i++) {
        action |= generations_ready(&g, i);
        action |= generations_left(&g, i);
        action |= generations_ended(&g, &i, 1, GENERATIONS_FAILED);
    }
    action |= generations_settled(&g) | generations_overdue(&g);
    action |= generations_begun(&g) | generations_stop(&g);
    ck_assert_int_eq(action, GENERATIONS_NOTHING);
    generations_fini(&g);
}

/* Checks that a rank has finished, and none that lives has done work. */
static void check_done(const struct world *w)
{
    int finished = 0;

    for (int i = 0; i < size; i++) {
        finished += w->known[i].life == GENERATIONS_FINISHED;
        ck_assert(w->known[i].life != GENERATIONS_LIVES ||
                  w->place[i] != WORKS);
    }
    ck_assert_int_gt(finished, 0);
}

/* Sends a message about one rank to its host. */
static void send_one(struct world *w, int rank, enum down kind)
{
    int host = host_of[rank];

    ck_assert_int_lt(w->down_count[host], DOWN);
    w->down[host][w->down_count[host]++] =
        (struct message){(unsigned char)kind, (unsigned char)rank};
}

/* Returns whether members gave way because of the multiple. */
static int some_did_not_fit(const struct world *w, const struct world *before)
{
    int ready = 0;

    for (int i = 0; i < size; i++)
        ready += before->known[i].member &&
                 before->known[i].life == GENERATIONS_LIVES;
    return multiple > 0 && count_members(w) < ready;
}

/* Tells a rank that it is removed.  It must have been asked for, and one that
 * works is let go only if its generation has made a commit and no other has
 * ended without being asked to leave, or if there is no place for it. */
static void remove_rank(struct world *w, const struct world *before, int rank)
{
    int works = before->known[rank].member &&
                before->known[rank].phase != GENERATIONS_LEFT &&
                !some_did_not_fit(w, before);

    ck_assert_int_eq(w->known[rank].life, GENERATIONS_REMOVED);
    ck_assert_int_eq(w->asked[rank], 1);
    ck_assert(!works || w->has_commit[before->number]);
    if (works)
        check_left_behind(w, before, rank);
    for (int i = 0; i < size && works; i++)
        if (w->members[before->number] >> i & 1)
            ck_assert(w->known[i].life == GENERATIONS_REMOVED ||
                      (w->known[i].life == GENERATIONS_LIVES &&
                       w->known[i].phase != GENERATIONS_STARTING));
    if (!w->lost[host_of[rank]])
        send_one(w, rank, DOWN_REMOVED);
}

static int count_lives(const struct world *w, enum generations_life life)
{
    int count = 0;

    for (int i = 0; i < size; i++)
        count += w->known[i].life == life;
    return count;
}

/* Returns whether min_np ranks are left, without those that are to leave, and
 * one of them has the state or can get it. */
static int can_do_without(const struct world *w)
{
    int count = 0, finished = count_lives(w, GENERATIONS_FINISHED);

    for (int i = 0; i < size; i++)
        count += w->known[i].life == GENERATIONS_LIVES && !w->known[i].leaves &&
                 w->known[i].phase != GENERATIONS_LEFT &&
                 (finished == 0 || w->known[i].was_member);
    count = fit(
        w, count + (finished == 0 ? count_lives(w, GENERATIONS_PENDING) : 0));
    return count > 0 && count + finished >= min_np;
}

/* Returns how many ranks are left, of those that fit into a generation. */
static int count_left(const struct generations *g)
{
    int count = g->lives[GENERATIONS_LIVES] + g->lives[GENERATIONS_PENDING];

    if (multiple > 0 && g->lives[GENERATIONS_FINISHED] == 0)
        count -= count % multiple;
    return count + g->lives[GENERATIONS_FINISHED];
}

/* Carries out what the module says after an event; takes its state. */
static void took(struct world *w, struct generations *g,
                 enum generations_action action, int settled)
{
    struct world before = *w;
    int ranks[RANKS], count = generations_take_removed(g, ranks);
    int stops = action == GENERATIONS_STOPPED;
    struct generations made;
    int left = count_left(g);
    int may_wait = grows && g->lives[GENERATIONS_LIVES] > 0 &&
                   g->lives[GENERATIONS_FINISHED] == 0;
    int is_done = action == GENERATIONS_DONE;
    int enough = g->lives[GENERATIONS_FINISHED] >= min_np;

    store(w, g);
    if (is_done || (action == GENERATIONS_TOO_FEW && left >= min_np)) {
        check_done(w);
        ck_assert_int_eq(is_done, enough);
    } else if (!stops) {
        ck_assert_int_eq(action == GENERATIONS_TOO_FEW,
                         left < min_np && !may_wait);
    }
    ck_assert_int_eq(w->ended,
                     action == GENERATIONS_TOO_FEW || is_done || stops);
    if (action == GENERATIONS_MADE) {
        check_made(w, &before, settled);
    } else if (action == GENERATIONS_CHANGE) {
        ck_assert_int_eq(before.changing, 0);
        for (int i = 0; i < size; i++)
            w->knew[i] = w->known[i].leaves;
        send_down(w, DOWN_CHANGE);
    } else if (action == GENERATIONS_TOO_FEW || is_done || stops) {
        check_end(w);
    } else {
        ck_assert_int_eq(action, GENERATIONS_NOTHING);
    }
    ck_assert(!stops || count_lives(w, GENERATIONS_LIVES) == 0);
    for (int i = 0; i < count; i++)
        remove_rank(w, &before, ranks[i]);
    if (action != GENERATIONS_MADE)
        return;
    load(w, &made);
    action = generations_begun(&made);
    ck_assert(action == GENERATIONS_NOTHING || action == GENERATIONS_CHANGE);
    took(w, &made, action, 0);
}

static void send_up(struct world *w, int rank, enum up kind)
{
    int host = host_of[rank];

    ck_assert_int_lt(w->up_count[host], UP);
    w->up[host][w->up_count[host]++] =
        (struct message){(unsigned char)kind, (unsigned char)rank};
}

/* ---- What may happen; each returns whether it could ---- */

/* Returns what becomes of a rank that has failed: it is started again if it may
 * be and none has finished, as in job_restart.c. */
static enum generations_life life_after_failure(struct world *w, int rank)
{
    if (w->asked[rank])
        return GENERATIONS_FAILED;
    for (int i = 0; i < size; i++)
        if (w->known[i].life == GENERATIONS_FINISHED)
            return GENERATIONS_FAILED;
    if (w->restarts == 0)
        return GENERATIONS_FAILED;
    w->restarts--;
    return GENERATIONS_PENDING;
}

static int restart_is_due(struct world *w, int rank)
{
    int host = host_of[rank], gives_up;
    struct generations g;

    if (w->known[rank].life != GENERATIONS_PENDING)
        return 0;
    load(w, &g);
    gives_up = w->lost[host] || (g.lives[GENERATIONS_LIVES] == 0 &&
                                 g.lives[GENERATIONS_FINISHED] > 0);
    if (gives_up) {
        took(w, &g, generations_given_up(&g, rank), 0);
        return 1;
    }
    generations_started(&g, rank);
    store(w, &g);
    send_one(w, rank, DOWN_RESTART);
    return 1;
}

/* Starts a rank that is absent or has failed, as job_grow.c does. */
static int joins(struct world *w, int rank)
{
    struct generations g;

    if (w->joins == 0 || w->number == 0 || w->stopping ||
        w->lost[host_of[rank]] ||
        (w->known[rank].life != GENERATIONS_ABSENT &&
         w->known[rank].life != GENERATIONS_FAILED))
        return 0;
    load(w, &g);
    if (g.lives[GENERATIONS_FINISHED] > 0) {
        generations_fini(&g);
        return 0;
    }
    w->joins--;
    generations_started(&g, rank);
    store(w, &g);
    send_one(w, rank, DOWN_RESTART);
    return 1;
}

static int message_comes_up(struct world *w, int host)
{
    struct message m = w->up[host][0];
    int rank = m.what;
    enum generations_action action;
    struct generations g;

    if (w->up_count[host] == 0)
        return 0;
    memmove(&w->up[host][0], &w->up[host][1], (UP - 1) * sizeof(m));
    memset(&w->up[host][UP - 1], 0, sizeof(m));
    w->up_count[host]--;
    load(w, &g);
    if (m.kind == UP_COMMITTED)
        generations_committed(&g, w->last[rank]);
    if (m.kind == UP_READY || m.kind == UP_COMMITTED)
        action = generations_ready(&g, rank);
    else if (m.kind == UP_LEFT)
        action = generations_left(&g, rank);
    else
        action =
            generations_ended(&g, &rank, 1,
                              m.kind == UP_FAILED ? life_after_failure(w, rank)
                                                  : GENERATIONS_FINISHED);
    took(w, &g, action, 0);
    return 1;
}

static void begin_generation(struct world *w, int rank, int number)
{
    if (!(w->members[number] >> rank & 1) || w->place[rank] == DEAD)
        return;
    ck_assert_int_eq(w->place[rank], WAITS);
    ck_assert_int_gt(number, w->last[rank]);
    w->place[rank] = WORKS;
    w->last[rank] = (unsigned char)number;
    w->told[rank] = 0;
}

static void starts(struct world *w, int rank)
{
    w->place[rank] = START;
    w->has_state[rank] = 0;
}

static int message_comes_down(struct world *w, int host)
{
    struct message m = w->down[host][0];

    if (w->down_count[host] == 0)
        return 0;
    memmove(&w->down[host][0], &w->down[host][1], (DOWN - 1) * sizeof(m));
    memset(&w->down[host][DOWN - 1], 0, sizeof(m));
    w->down_count[host]--;
    for (int i = 0; i < size; i++) {
        if (host_of[i] != host)
            continue;
        if (m.kind == DOWN_GENERATION)
            begin_generation(w, i, m.what);
        else if (m.kind == DOWN_CHANGE)
            w->told[i] |= w->place[i] == WORKS && w->last[i] == m.what;
        else if (m.what != i || w->lost[host])
            continue;
        else if (m.kind == DOWN_RESTART)
            starts(w, i);
        else if (w->place[i] == WAITS)
            w->place[i] = OUT;
        else
            w->removed[i] = w->place[i] != DEAD;
    }
    return 1;
}

/* Returns whether an operation of the rank's generation fails: a member has
 * come out of it, or ended. */
static int is_broken(const struct world *w, int rank)
{
    int number = w->last[rank];

    for (int i = 0; i < size; i++)
        if (w->members[number] >> i & 1 &&
            (w->place[i] == DEAD || w->last[i] > number ||
             (w->last[i] == number && w->place[i] != WORKS)))
            return 1;
    return 0;
}

/* The agent itself answers a rank of which it knows that it is removed. */
static void becomes_ready(struct world *w, int rank)
{
    w->place[rank] = w->removed[rank] ? OUT : WAITS;
    w->removed[rank] = 0;
    if (w->place[rank] == WAITS)
        send_up(w, rank,
                w->has_commit[w->last[rank]] ? UP_COMMITTED : UP_READY);
}

static int calls_sync(struct world *w, int rank)
{
    if (w->place[rank] != START &&
        (w->place[rank] != WORKS || !(w->told[rank] || is_broken(w, rank))))
        return 0;
    /* A commit is made by all, or by none. */
    if (w->place[rank] == WORKS && !is_broken(w, rank)) {
        w->has_commit[w->last[rank]] = 1;
        for (int i = 0; i < size; i++)
            w->has_state[i] |= w->members[w->last[rank]] >> i & 1;
    }
    w->told[rank] = 0;
    becomes_ready(w, rank);
    return 1;
}

/* An operation of a rank fails, although all members live. */
static int fails(struct world *w, int rank)
{
    if (w->place[rank] != WORKS || w->glitches == 0)
        return 0;
    w->glitches--;
    w->told[rank] = 0;
    becomes_ready(w, rank);
    return 1;
}

/* A rank that was removed exits. */
static int goes(struct world *w, int rank)
{
    if (w->place[rank] != OUT)
        return 0;
    w->place[rank] = DEAD;
    send_up(w, rank, UP_FINISHED);
    return 1;
}

static int moment_passes(struct world *w)
{
    struct generations g;
    enum generations_action action;

    load(w, &g);
    if (!generations_settles(&g)) {
        generations_fini(&g);
        return 0;
    }
    action = generations_settled(&g);
    ck_assert_int_ne(action, GENERATIONS_NOTHING);
    took(w, &g, action, 1);
    return 1;
}

static int ends(struct world *w, int rank, unsigned char *budget, enum up how)
{
    if (w->place[rank] == DEAD || *budget == 0)
        return 0;
    --*budget;
    w->place[rank] = DEAD;
    w->told[rank] = w->removed[rank] = 0;
    send_up(w, rank, how);
    return 1;
}

static int leaves(struct world *w, int rank)
{
    if (w->place[rank] != WORKS || w->leaves == 0)
        return 0;
    w->leaves--;
    w->place[rank] = LEFT;
    w->told[rank] = 0;
    send_up(w, rank, UP_LEFT);
    return 1;
}

static int comes_back(struct world *w, int rank)
{
    if (w->place[rank] != LEFT)
        return 0;
    becomes_ready(w, rank);
    return 1;
}

static int host_is_lost(struct world *w, int host)
{
    int ranks[RANKS], count = 0;
    struct generations g;

    for (int i = 0; i < size; i++)
        if (host_of[i] == host)
            ranks[count++] = i;
    if (w->losses == 0 || count == 0 || w->lost[host])
        return 0;
    w->losses--;
    w->lost[host] = 1;
    for (int i = 0; i < count; i++) {
        w->place[ranks[i]] = DEAD;
        w->told[ranks[i]] = w->removed[ranks[i]] = 0;
    }
    load(w, &g);
    took(w, &g, generations_ended(&g, ranks, count, GENERATIONS_FAILED), 0);
    return 1;
}

static int is_asked_to_leave(struct world *w, int rank)
{
    struct generations g;
    int can;

    load(w, &g);
    can = w->removals > 0 && !w->asked[rank] &&
          generations_can_remove(&g, &rank, 1);
    if (!can) {
        generations_fini(&g);
        return 0;
    }
    w->removals--;
    w->asked[rank] = 1;
    took(w, &g, generations_remove(&g, &rank, 1), 0);
    return 1;
}

static int all_are_to_stop(struct world *w)
{
    struct generations g;

    if (w->stops == 0)
        return 0;
    w->stops--;
    memset(w->asked, 1, sizeof(w->asked));
    load(w, &g);
    took(w, &g, generations_stop(&g), 0);
    return 1;
}

enum { SURE = 1 + 5 * RANKS, STEPS = SURE + 9 * RANKS };

/* Does step number `step`; those below SURE happen for certain, some time. */
static int step_of(struct world *w, int step)
{
    int who = step ? (step - 1) % RANKS : 0;

    if (w->ended || who >= size)
        return 0;
    if (step == 0)
        return moment_passes(w);
    switch ((step - 1) / RANKS) {
    case 0:
        return message_comes_up(w, who);
    case 1:
        return message_comes_down(w, who);
    case 2:
        return calls_sync(w, who);
    case 3:
        return restart_is_due(w, who);
    case 4:
        return goes(w, who);
    case 5:
        return ends(w, who, &w->deaths, UP_FAILED);
    case 6:
        return ends(w, who, &w->exits, UP_FINISHED);
    case 7:
        return leaves(w, who);
    case 8:
        return comes_back(w, who);
    case 9:
        return joins(w, who);
    case 10:
        return is_asked_to_leave(w, who);
    case 11:
        return who == 0 && all_are_to_stop(w);
    case 12:
        return fails(w, who);
    default:
        return host_is_lost(w, who);
    }
}

#endif
