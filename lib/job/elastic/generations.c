/* SPDX-License-Identifier: Apache-2.0 */
/* See generations.h. */
#include "lib/job/elastic/generations.h"

#include "lib/base/alloc.h"

#include <string.h>

void generations_init(struct generations *g, int size, int min_np,
                      int reset_limit)
{
    *g = (struct generations){
        .size = size,
        .min_np = min_np,
        .reset_limit = reset_limit,
        .ranks = hb_xcalloc((size_t)size, sizeof(*g->ranks)),
        .lives[GENERATIONS_LIVES] = size,
        .places[GENERATIONS_AWAY] = size,
    };
}

void generations_fini(struct generations *g)
{
    hb_free(g->ranks);
    memset(g, 0, sizeof(*g));
}

/* ---- What is asked of it ---- */

static int lives(const struct generations *g, int rank)
{
    return g->ranks[rank].life == GENERATIONS_LIVES;
}

int generations_members(const struct generations *g, int *ranks)
{
    int count = 0;

    for (int i = 0; i < g->size; i++)
        if (g->ranks[i].member)
            ranks[count++] = i;
    return count;
}

/* Returns whether the ranks that are ready suffice for a generation. */
static int suffices(const struct generations *g)
{
    return g->places[GENERATIONS_READY] > 0 &&
           g->places[GENERATIONS_READY] + g->lives[GENERATIONS_FINISHED] >=
               g->min_np;
}

int generations_settles(const struct generations *g)
{
    return !g->ended && suffices(g) && g->places[GENERATIONS_AWAY] == 0 &&
           g->places[GENERATIONS_LEFT] > 0;
}

int generations_waits(const struct generations *g)
{
    int waiting = 0;

    for (int i = 0; i < g->size; i++)
        waiting |= lives(g, i) && g->ranks[i].member &&
                   g->ranks[i].place == GENERATIONS_READY;
    return !g->ended && g->number > 0 && waiting;
}

int generations_is_missing(const struct generations *g, int rank)
{
    return g->ranks[rank].life == GENERATIONS_PENDING ||
           (lives(g, rank) && g->ranks[rank].place != GENERATIONS_READY);
}

/* ---- Events ---- */

static void move(struct generations *g, int rank, enum generations_place place)
{
    g->places[g->ranks[rank].place]--;
    g->places[place]++;
    g->ranks[rank].place = (unsigned char)place;
}

static enum generations_action end(struct generations *g,
                                   enum generations_action why)
{
    g->ended = 1;
    return why;
}

/* Makes a generation of the ranks that are ready. */
static enum generations_action make(struct generations *g)
{
    if (g->number == INT32_MAX || (g->number > 0 && g->reset_limit >= 0 &&
                                   g->number - 1 >= (uint32_t)g->reset_limit))
        return end(g, GENERATIONS_TOO_MANY);
    g->number++;
    g->joined = g->changing = 0;
    for (int i = 0; i < g->size; i++) {
        struct generations_rank *r = &g->ranks[i];

        r->member = lives(g, i) && r->place == GENERATIONS_READY;
        if (!r->member)
            continue;
        move(g, i, GENERATIONS_AWAY);
        g->joined += !r->was_member;
        r->was_member = 1;
    }
    return GENERATIONS_MADE;
}

/* Returns whether a rank is ready that is no member of the generation. */
static int somebody_joins(const struct generations *g)
{
    for (int i = 0; i < g->size; i++)
        if (lives(g, i) && !g->ranks[i].member &&
            g->ranks[i].place == GENERATIONS_READY)
            return 1;
    return 0;
}

static enum generations_action check(struct generations *g)
{
    int ready = g->places[GENERATIONS_READY];

    if (ready == 0)
        return GENERATIONS_NOTHING;
    if (ready + g->places[GENERATIONS_STARTING] == g->lives[GENERATIONS_LIVES])
        return suffices(g) ? make(g) : GENERATIONS_NOTHING;
    if (g->number == 0 || g->changing || g->places[GENERATIONS_AWAY] == 0 ||
        !somebody_joins(g))
        return GENERATIONS_NOTHING;
    g->changing = 1;
    return GENERATIONS_CHANGE;
}

static enum generations_action heard(struct generations *g, int rank,
                                     enum generations_place place)
{
    if (g->ended || !lives(g, rank))
        return GENERATIONS_NOTHING;
    move(g, rank, place);
    return check(g);
}

enum generations_action generations_ready(struct generations *g, int rank)
{
    return heard(g, rank, GENERATIONS_READY);
}

enum generations_action generations_left(struct generations *g, int rank)
{
    return heard(g, rank, GENERATIONS_LEFT);
}

/* Returns GENERATIONS_TOO_FEW if too few ranks are left, else as check(). */
static enum generations_action check_left(struct generations *g)
{
    if (g->size - g->lives[GENERATIONS_FAILED] < g->min_np)
        return end(g, GENERATIONS_TOO_FEW);
    return check(g);
}

enum generations_action generations_ended(struct generations *g,
                                          const int *ranks, int count,
                                          enum generations_life life)
{
    if (g->ended)
        return GENERATIONS_NOTHING;
    for (int i = 0; i < count; i++) {
        struct generations_rank *r = &g->ranks[ranks[i]];

        if (r->life != GENERATIONS_LIVES && r->life != GENERATIONS_PENDING)
            continue;
        g->places[r->place] -= r->life == GENERATIONS_LIVES;
        g->lives[r->life]--;
        g->lives[life]++;
        r->life = (unsigned char)life;
    }
    return check_left(g);
}

void generations_restarted(struct generations *g, int rank)
{
    struct generations_rank *r = &g->ranks[rank];

    if (g->ended || r->life != GENERATIONS_PENDING)
        return;
    *r = (struct generations_rank){.life = GENERATIONS_LIVES,
                                   .place = GENERATIONS_STARTING};
    g->lives[GENERATIONS_PENDING]--;
    g->lives[GENERATIONS_LIVES]++;
    g->places[GENERATIONS_STARTING]++;
}

enum generations_action generations_given_up(struct generations *g, int rank)
{
    if (g->ended || g->ranks[rank].life != GENERATIONS_PENDING)
        return GENERATIONS_NOTHING;
    g->ranks[rank].life = GENERATIONS_FAILED;
    g->lives[GENERATIONS_PENDING]--;
    g->lives[GENERATIONS_FAILED]++;
    return check_left(g);
}

enum generations_action generations_settled(struct generations *g)
{
    return generations_settles(g) ? make(g) : GENERATIONS_NOTHING;
}

enum generations_action generations_overdue(struct generations *g)
{
    return generations_waits(g) ? end(g, GENERATIONS_OVERDUE)
                                : GENERATIONS_NOTHING;
}
