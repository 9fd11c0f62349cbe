/* SPDX-License-Identifier: Apache-2.0 */
/* See generations.h. */
#include "lib/job/elastic/generations.h"

#include "lib/base/alloc.h"

#include <string.h>

/* ---- Counting ---- */

/* Adds a rank to the counts, or takes it out of them (`by` -1). */
static void count(struct generations *g, const struct generations_rank *r,
                  int by)
{
    g->lives[r->life] += by;
    g->untold += r->untold ? by : 0;
    if (r->life != GENERATIONS_LIVES)
        return;
    g->phases[r->phase] += by;
    g->were_members[r->phase] += r->was_member ? by : 0;
    g->members[r->phase] += r->member ? by : 0;
    g->leaving[r->phase] += r->leaves ? by : 0;
    g->due[r->phase] += r->due ? by : 0;
}

/* Gives a rank another state. */
static void set(struct generations *g, int rank, struct generations_rank next)
{
    count(g, &g->ranks[rank], -1);
    g->ranks[rank] = next;
    count(g, &g->ranks[rank], 1);
}

/* Adds up one count of living ranks over all phases. */
static int sum(const int phases[GENERATIONS_PHASES_COUNT])
{
    int all = 0;

    for (int i = 0; i < GENERATIONS_PHASES_COUNT; i++)
        all += phases[i];
    return all;
}

void generations_init(struct generations *g,
                      const struct generations_config *config)
{
    *g = (struct generations){
        .config = *config,
        .ranks = hb_xcalloc((size_t)config->size, sizeof(*g->ranks)),
    };
    for (int i = 0; i < config->size; i++) {
        g->ranks[i].life =
            i < config->np ? GENERATIONS_LIVES : GENERATIONS_ABSENT;
        count(g, &g->ranks[i], 1);
    }
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

    for (int i = 0; i < g->config.size; i++)
        if (g->ranks[i].member)
            ranks[count++] = i;
    return count;
}

/* Returns whether no rank joins any more, because one has exited with 0. */
static int is_closed(const struct generations *g)
{
    return g->lives[GENERATIONS_FINISHED] > 0 && g->number > 0;
}

/* Returns whether the rank may be in a generation made now. */
static int is_ready(const struct generations *g, int rank)
{
    const struct generations_rank *r = &g->ranks[rank];

    return lives(g, rank) && r->phase == GENERATIONS_READY &&
           (r->was_member || !is_closed(g));
}

/* Counts the ranks for which is_ready() holds. */
static int count_ready(const struct generations *g)
{
    return is_closed(g) ? g->were_members[GENERATIONS_READY]
                        : g->phases[GENERATIONS_READY];
}

/* Counts the ready ranks that are not members. */
static int count_outsiders(const struct generations *g)
{
    return count_ready(g) - g->members[GENERATIONS_READY];
}

/* Counts the ranks that are, or may come to be, in a generation. */
static int count_usable(const struct generations *g)
{
    return is_closed(g)
               ? sum(g->were_members)
               : g->lives[GENERATIONS_LIVES] + g->lives[GENERATIONS_PENDING];
}

/* Returns whether count_usable() counts the rank. */
static int is_usable(const struct generations *g, int rank)
{
    if (is_closed(g))
        return lives(g, rank) && g->ranks[rank].was_member;
    return lives(g, rank) || g->ranks[rank].life == GENERATIONS_PENDING;
}

/* Returns how many of `count` ranks make up whole multiples; what remains when
 * ranks have exited with 0 may be any number. */
static int whole(const struct generations *g, int count)
{
    return g->config.multiple > 0 && g->lives[GENERATIONS_FINISHED] == 0
               ? count - count % g->config.multiple
               : count;
}

/* Returns how many of `count` ranks a generation may have. */
static int fit(const struct generations *g, int count)
{
    int most = g->config.most;

    return whole(g, most > 0 && count > most ? most : count);
}

/* Returns whether `count` ranks are enough for a generation.  While the job
 * stops, any number is. */
static int is_enough(const struct generations *g, int count)
{
    return count > 0 &&
           (g->stopping ||
            count + g->lives[GENERATIONS_FINISHED] >= g->config.min_np);
}

/* Returns whether enough ranks stay if `leaving` of the usable ranks leave. */
static int enough_stay(const struct generations *g, int leaving)
{
    return is_enough(g, fit(g, count_usable(g) - leaving));
}

/* Returns, by phase, the number of ranks that may be removed at the next
 * commit: all that are to leave or, once the members were told to meet, only
 * those announced then. */
static const int *to_leave(const struct generations *g)
{
    return g->changing ? g->due : g->leaving;
}

/* Counts the members that have not left by themselves. */
static int count_present(const struct generations *g)
{
    return g->members[GENERATIONS_AWAY] + g->members[GENERATIONS_READY];
}

/* Counts the members that have not left and were not asked to. */
static int count_staying(const struct generations *g)
{
    const int *leave = to_leave(g);

    return count_present(g) - leave[GENERATIONS_AWAY] -
           leave[GENERATIONS_READY];
}

/* Returns whether ranks that are to leave may do so now: all have stopped at a
 * commit, enough stay, without those that have left by themselves, and one of
 * these has the state. */
static int may_leave(const struct generations *g)
{
    const int *left = is_closed(g) ? g->were_members : g->phases;
    const int *leave = to_leave(g);
    int leaving = sum(leave) - leave[GENERATIONS_LEFT] + left[GENERATIONS_LEFT];

    return !g->broken &&
           (g->stopping || (count_staying(g) > 0 && enough_stay(g, leaving)));
}

/* Returns how many ranks the next generation has if the members, which are all
 * to leave, hand the state over to ranks that wait to join; 0 if they do not.
 * It has all the members besides as many others as may stay. */
static int handover_size(const struct generations *g)
{
    int members = count_present(g);
    int outsiders = fit(g, count_outsiders(g));
    int count = whole(g, members + outsiders);

    if (g->broken || g->stopping || members == 0 || count <= members ||
        count_staying(g) > 0)
        return 0;
    return is_enough(g, count) ? count : 0;
}

/* Returns how many of the ready ranks become members if no state is handed
 * over.  After a handover there may be more members than the job asks for; then
 * all of them stay. */
static int size_now(const struct generations *g)
{
    int count = fit(g, count_ready(g));
    int members = whole(g, g->members[GENERATIONS_READY]);

    return count > members ? count : members;
}

int generations_can_lose(const struct generations *g, int count)
{
    int alive = g->lives[GENERATIONS_LIVES] + g->lives[GENERATIONS_PENDING];
    int may_wait = g->config.grows && g->lives[GENERATIONS_LIVES] > count &&
                   g->lives[GENERATIONS_FINISHED] == 0 &&
                   (!g->stopping || whole(g, alive - count) > 0);

    return may_wait ||
           whole(g, alive - count) + g->lives[GENERATIONS_FINISHED] >=
               g->config.min_np;
}

/* Counts the ranks that were asked to leave, and those of `ranks`. */
static int count_leaving(const struct generations *g, const int *ranks,
                         int count)
{
    int leaving = sum(g->leaving);

    for (int i = 0; i < count; i++)
        leaving += is_usable(g, ranks[i]) && !g->ranks[ranks[i]].leaves;
    return leaving;
}

int generations_can_spare(const struct generations *g, const int *ranks,
                          int count)
{
    return enough_stay(g, count_leaving(g, ranks, count));
}

int generations_can_remove(const struct generations *g, const int *ranks,
                           int count)
{
    int leaving = count_leaving(g, ranks, count);

    return enough_stay(g, leaving) ||
           (g->config.grows && g->lives[GENERATIONS_FINISHED] == 0 &&
            g->lives[GENERATIONS_LIVES] > leaving);
}

/* Returns whether the ranks that are ready suffice for a generation, or to end
 * the job as asked.  While a member lives, no generation is made of ranks
 * without the state: that member may come back. */
static int suffices(const struct generations *g)
{
    int may = may_leave(g);
    int count = count_ready(g);

    if (g->stopping && may)
        return 1;
    if (handover_size(g) > 0)
        return 1;
    if (g->members[GENERATIONS_READY] == 0 && sum(g->members) > 0)
        return 0;
    if (may)
        count -= to_leave(g)[GENERATIONS_READY];
    return is_enough(g, fit(g, count));
}

int generations_left_count(const struct generations *g)
{
    return g->lives[GENERATIONS_LIVES] + g->lives[GENERATIONS_FINISHED] +
           g->lives[GENERATIONS_PENDING];
}

int generations_settles(const struct generations *g)
{
    return !g->ended && suffices(g) && g->phases[GENERATIONS_AWAY] == 0 &&
           g->phases[GENERATIONS_LEFT] > 0;
}

int generations_waits(const struct generations *g)
{
    return !g->ended && g->number > 0 && g->members[GENERATIONS_READY] > 0;
}

int generations_is_missing(const struct generations *g, int rank)
{
    return g->ranks[rank].life == GENERATIONS_PENDING ||
           (lives(g, rank) && g->ranks[rank].phase != GENERATIONS_READY);
}

/* ---- Events ---- */

static void move(struct generations *g, int rank, enum generations_phase phase)
{
    struct generations_rank next = g->ranks[rank];

    next.phase = (unsigned char)phase;
    set(g, rank, next);
}

static enum generations_action end(struct generations *g,
                                   enum generations_action why)
{
    g->ended = 1;
    return why;
}

/* Makes up to `room` ranks that are ready members: of those that were members
 * of the last generation, or of the others.  Returns the room left. */
static int take(struct generations *g, int were_members, int room)
{
    for (int i = 0; i < g->config.size; i++) {
        struct generations_rank r = g->ranks[i];

        if (r.member != were_members)
            continue;
        r.member = room > 0 && is_ready(g, i);
        if (r.member) {
            room--;
            r.phase = GENERATIONS_AWAY;
            g->joined += !r.was_member;
            r.was_member = 1;
        } else if (is_ready(g, i)) {
            r.was_member = 0;
        }
        set(g, i, r);
    }
    return room;
}

/* Removes a rank that lives, or would be started again. */
static void take_out(struct generations *g, int rank)
{
    struct generations_rank next = g->ranks[rank];

    next.untold = next.life == GENERATIONS_LIVES;
    next.life = GENERATIONS_REMOVED;
    next.leaves = next.due = 0;
    set(g, rank, next);
}

/* Removes the ranks whose leaving the members were told of before their commit.
 * Returns how many. */
static int take_out_due(struct generations *g)
{
    int taken = sum(g->due);

    for (int i = 0; sum(g->due) > 0 && i < g->config.size; i++)
        if (lives(g, i) && g->ranks[i].due)
            take_out(g, i);
    return taken;
}

/* Sets or clears `due` of all ranks that were asked to leave: the members were
 * told which. */
static void set_due(struct generations *g, int due)
{
    for (int i = 0; sum(due ? g->leaving : g->due) > 0 && i < g->config.size;
         i++) {
        struct generations_rank next = g->ranks[i];

        if (!lives(g, i) || !next.leaves)
            continue;
        next.due = (unsigned char)due;
        set(g, i, next);
    }
}

/* Removes the ranks that are to leave and are no members any more. */
static void take_out_dropped(struct generations *g)
{
    for (int i = 0; sum(g->leaving) > 0 && i < g->config.size; i++)
        if (lives(g, i) && g->ranks[i].leaves && !g->ranks[i].member)
            take_out(g, i);
}

/* Makes members of the ranks that are ready and not to be removed; returns how
 * many were removed. */
static int choose(struct generations *g)
{
    int room = handover_size(g), removed = 0;

    if (room == 0 && may_leave(g))
        removed = take_out_due(g);
    if (room == 0)
        room = size_now(g);
    room = take(g, 1, room);
    take(g, 0, room);
    take_out_dropped(g);
    set_due(g, 0);
    return removed;
}

/* Removes all live ranks. */
static void take_out_all(struct generations *g)
{
    for (int i = 0; i < g->config.size; i++)
        if (lives(g, i))
            take_out(g, i);
}

/* Makes a generation of the ranks that are ready. */
static enum generations_action make(struct generations *g)
{
    int limit = g->config.reset_limit;

    if (g->stopping && may_leave(g)) {
        take_out_all(g);
        return end(g, GENERATIONS_STOPPED);
    }
    if (g->number == INT32_MAX ||
        (g->number > 0 && limit >= 0 && g->number - 1 >= (uint32_t)limit))
        return end(g, GENERATIONS_TOO_MANY);
    g->joined = 0;
    g->removed = choose(g);
    g->changing = g->committed = g->broken = 0;
    g->number++;
    return GENERATIONS_MADE;
}

/* Returns whether the generation would be larger with the ranks that are ready
 * and no members. */
static int somebody_joins(const struct generations *g)
{
    int members = sum(g->members), outsiders = count_outsiders(g);

    return outsiders > 0 && fit(g, members + outsiders) > members;
}

int generations_have_spares(const struct generations *g)
{
    return g->number > 0 && count_outsiders(g) > 0 && !somebody_joins(g);
}

/* Returns whether ranks join or are removed if the members stop. */
static int would_change(const struct generations *g)
{
    return somebody_joins(g) || handover_size(g) > 0 ||
           (sum(g->leaving) > 0 && may_leave(g));
}

static enum generations_action check(struct generations *g)
{
    int ready = g->phases[GENERATIONS_READY];

    if (ready > 0 &&
        ready + g->phases[GENERATIONS_STARTING] == g->lives[GENERATIONS_LIVES])
        return suffices(g) ? make(g) : GENERATIONS_NOTHING;
    if (g->number == 0 || g->changing || g->phases[GENERATIONS_AWAY] == 0 ||
        !would_change(g))
        return GENERATIONS_NOTHING;
    g->changing = 1;
    set_due(g, 1);
    return GENERATIONS_CHANGE;
}

static enum generations_action heard(struct generations *g, int rank,
                                     enum generations_phase phase)
{
    if (g->ended || !lives(g, rank))
        return GENERATIONS_NOTHING;
    g->broken |= g->ranks[rank].member && !(g->changing && g->committed);
    move(g, rank, phase);
    return check(g);
}

void generations_committed(struct generations *g, uint32_t number)
{
    g->committed |= number == g->number && number > 0;
}

enum generations_action generations_ready(struct generations *g, int rank)
{
    return heard(g, rank, GENERATIONS_READY);
}

enum generations_action generations_left(struct generations *g, int rank)
{
    return heard(g, rank, GENERATIONS_LEFT);
}

/* Returns whether only ranks live that others do not need any more. */
static int is_done(const struct generations *g)
{
    return g->number > 0 && g->lives[GENERATIONS_FINISHED] > 0 &&
           g->lives[GENERATIONS_LIVES] > 0 && sum(g->were_members) == 0;
}

/* Returns GENERATIONS_TOO_FEW if too few ranks are left, else as check(). */
static enum generations_action check_left(struct generations *g)
{
    if (is_done(g))
        return end(g, g->lives[GENERATIONS_FINISHED] < g->config.min_np
                          ? GENERATIONS_TOO_FEW
                          : GENERATIONS_DONE);
    if (!generations_can_lose(g, 0))
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
        struct generations_rank next = g->ranks[ranks[i]];

        if (next.life != GENERATIONS_LIVES && next.life != GENERATIONS_PENDING)
            continue;
        g->broken |= next.member && next.life == GENERATIONS_LIVES;
        next.life = (unsigned char)life;
        next.leaves = next.due = 0;
        set(g, ranks[i], next);
    }
    return check_left(g);
}

void generations_started(struct generations *g, int rank)
{
    static const struct generations_rank starting = {
        .life = GENERATIONS_LIVES, .phase = GENERATIONS_STARTING};
    enum generations_life life = g->ranks[rank].life;

    if (!g->ended && life != GENERATIONS_LIVES && life != GENERATIONS_FINISHED)
        set(g, rank, starting);
}

enum generations_action generations_given_up(struct generations *g, int rank)
{
    struct generations_rank next = g->ranks[rank];

    if (g->ended || next.life != GENERATIONS_PENDING)
        return GENERATIONS_NOTHING;
    next.life = GENERATIONS_FAILED;
    set(g, rank, next);
    return check_left(g);
}

/* ---- Leaving as asked ---- */

void generations_ask(struct generations *g, const int *ranks, int count)
{
    if (g->ended)
        return;
    for (int i = 0; i < count; i++) {
        struct generations_rank next = g->ranks[ranks[i]];

        next.leaves = 1;
        if (lives(g, ranks[i]) && next.member)
            set(g, ranks[i], next);
        else if (lives(g, ranks[i]) || next.life == GENERATIONS_PENDING)
            take_out(g, ranks[i]);
    }
}

enum generations_action generations_remove(struct generations *g,
                                           const int *ranks, int count)
{
    generations_ask(g, ranks, count);
    return generations_begun(g);
}

enum generations_action generations_stop(struct generations *g)
{
    int *all = hb_xcalloc((size_t)g->config.size, sizeof(*all));
    enum generations_action action;

    for (int i = 0; i < g->config.size; i++)
        all[i] = i;
    g->stopping = 1;
    action = generations_remove(g, all, g->config.size);
    hb_free(all);
    if (g->ended || g->lives[GENERATIONS_LIVES] > 0)
        return action;
    return end(g, GENERATIONS_STOPPED);
}

int generations_take_removed(struct generations *g, int *ranks)
{
    int taken = 0;

    for (int i = 0; g->untold > 0 && i < g->config.size; i++) {
        struct generations_rank next = g->ranks[i];

        if (!next.untold)
            continue;
        ranks[taken++] = i;
        next.untold = 0;
        set(g, i, next);
    }
    return taken;
}

enum generations_action generations_begun(struct generations *g)
{
    return g->ended ? GENERATIONS_NOTHING : check(g);
}

enum generations_action generations_settled(struct generations *g)
{
    if (!generations_settles(g))
        return GENERATIONS_NOTHING;
    /* What the others did failed because these have left. */
    g->broken |= g->members[GENERATIONS_LEFT] > 0;
    return suffices(g) ? make(g) : GENERATIONS_NOTHING;
}

enum generations_action generations_overdue(struct generations *g)
{
    return generations_waits(g) ? end(g, GENERATIONS_OVERDUE)
                                : GENERATIONS_NOTHING;
}
