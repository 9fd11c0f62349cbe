/* SPDX-License-Identifier: Apache-2.0 */
/* The search of autotuning; see autotune.h. */
#include "runtime/core/tune/autotune.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <stdlib.h>
#include <string.h>

/* A neighbour becomes the best if its median cost is below this part of the
 * best's. */
static const double better_by = 0.99;

/* Verification measures best (1) and start (0) in turn, so that a drift favours
 * neither. */
static const unsigned char turn_of[2 * HVD__AUTOTUNE_PAIRS] = {0, 1, 1,
                                                               0, 0, 1};

int hvd__autotune_same(const struct hvd__autotune_setting *a,
                       const struct hvd__autotune_setting *b)
{
    return memcmp(a->at, b->at, sizeof(a->at)) == 0;
}

/* ---- Costs --------------------------------------------------------------- */

static int by_value(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;

    return (a > b) - (a < b);
}

/* Interpolates between the two nearest of n sorted values. */
static double quantile(const double *sorted, size_t n, double part)
{
    double position = part * (double)(n - 1);
    size_t below = (size_t)position;
    size_t above = below + 1 < n ? below + 1 : below;

    return sorted[below] +
           (position - (double)below) * (sorted[above] - sorted[below]);
}

static struct hvd__autotune_cost cost_of(double *values, size_t n)
{
    struct hvd__autotune_cost c;

    qsort(values, n, sizeof(*values), by_value);
    c.q1 = quantile(values, n, 0.25);
    c.median = quantile(values, n, 0.5);
    c.q3 = quantile(values, n, 0.75);
    return c;
}

/* Returns whether a is below b by their notches; n values each. */
static int is_below(const struct hvd__autotune_cost *a,
                    const struct hvd__autotune_cost *b, size_t n)
{
    double gap = b->median - a->median;
    double width = 1.57 * ((a->q3 - a->q1) + (b->q3 - b->q1));

    return gap > 0 && gap * gap * (double)n > width * width;
}

/* ---- Settings ------------------------------------------------------------ */

/* Marks a setting as seen; 1 if it was not before. */
static int see(struct hvd__autotune *t, const struct hvd__autotune_setting *s)
{
    unsigned char *seen = &t->seen[s->at[0] * HVD__AUTOTUNE_PLACES + s->at[1]];
    unsigned char bit = (unsigned char)(1u << s->at[2]);

    if (*seen & bit)
        return 0;
    *seen |= bit;
    return 1;
}

/* Turns to the other direction of the axis, then to the next axis. */
static void turn(struct hvd__autotune *t)
{
    t->turns++;
    t->down = !t->down;
    if (!t->down)
        t->axis = (t->axis + 1) % HVD__AUTOTUNE_AXES;
}

/* Sets *s to the best one's neighbour in the current direction; 0: none. */
static int neighbour(struct hvd__autotune *t, struct hvd__autotune_setting *s)
{
    int at = t->best.at[t->axis] + (t->down ? -1 : 1);

    if (at < 0 || at >= t->config.places[t->axis])
        return 0;
    *s = t->best;
    s->at[t->axis] = (unsigned char)at;
    return 1;
}

/* Sets `next` to a setting that was not tried; 0: none is left. */
static int find_next(struct hvd__autotune *t)
{
    struct hvd__autotune_setting s = t->config.guess;

    if (see(t, &s)) {
        t->next = s;
        return 1;
    }
    while (t->turns < 2 * HVD__AUTOTUNE_AXES) {
        if (neighbour(t, &s) && see(t, &s)) {
            t->next = s;
            return 1;
        }
        turn(t);
    }
    return 0;
}

/* ---- Phases -------------------------------------------------------------- */

static void enter(struct hvd__autotune *t, enum hvd__autotune_phase phase,
                  const struct hvd__autotune_setting *s)
{
    t->phase = phase;
    t->next = *s;
    t->sample = 0;
}

static void keep(struct hvd__autotune *t, const struct hvd__autotune_setting *s,
                 const struct hvd__autotune_cost *cost)
{
    enter(t, HVD__AUTOTUNE_OVER, s);
    t->kept_cost = *cost;
}

static void begin_search(struct hvd__autotune *t)
{
    enter(t, HVD__AUTOTUNE_SEARCH, &t->config.start);
    see(t, &t->config.start);
}

static void end_search(struct hvd__autotune *t)
{
    if (hvd__autotune_same(&t->best, &t->config.start))
        keep(t, &t->best, &t->best_cost);
    else
        enter(t, HVD__AUTOTUNE_VERIFY, &t->config.start);
}

/* Ends a sample of the search and chooses what to try next. */
static void searched(struct hvd__autotune *t)
{
    const struct hvd__autotune_cost *cost = &t->last.cost;
    int is_first = t->measured == 1;
    int is_guess = !is_first && t->measured == 2 &&
                   hvd__autotune_same(&t->next, &t->config.guess);

    if (is_first)
        t->start_cost = *cost;
    if (is_first || cost->median < better_by * t->best_cost.median) {
        t->best = t->next;
        t->best_cost = *cost;
        t->turns = 0;
    } else if (!is_guess) {
        turn(t);
    }
    if (t->config.samples - t->measured <= 2 * HVD__AUTOTUNE_PAIRS ||
        !find_next(t))
        end_search(t);
}

/* Returns whether the best setting has won against the start. */
static int is_won(const struct hvd__autotune *t,
                  const struct hvd__autotune_cost *start,
                  const struct hvd__autotune_cost *best, size_t n)
{
    for (int i = 0; i < HVD__AUTOTUNE_PAIRS; i++)
        if (t->won[1][i] >= t->won[0][i])
            return 0;
    return is_below(best, start, n);
}

/* Ends a sample of the verification, and after the last one decides. */
static void verified(struct hvd__autotune *t)
{
    size_t n = HVD__AUTOTUNE_PAIRS * (size_t)t->config.steps;
    struct hvd__autotune_cost best;
    int who = turn_of[t->sample], pair = t->sample / 2;

    memcpy(t->pool[who] + (size_t)pair * (size_t)t->config.steps, t->costs,
           (size_t)t->config.steps * sizeof(*t->costs));
    t->won[who][pair] = t->last.cost.median;
    if (++t->sample < 2 * HVD__AUTOTUNE_PAIRS) {
        t->next = turn_of[t->sample] ? t->best : t->config.start;
        return;
    }
    t->start_cost = cost_of(t->pool[0], n);
    best = cost_of(t->pool[1], n);
    if (is_won(t, &t->start_cost, &best, n))
        keep(t, &t->best, &best);
    else
        keep(t, &t->config.start, &t->start_cost);
}

static void sample_over(struct hvd__autotune *t)
{
    t->last = (struct hvd__autotune_sample){
        t->phase, t->next, cost_of(t->costs, (size_t)t->config.steps)};
    t->step = 0;
    if (t->phase == HVD__AUTOTUNE_WARMUP) {
        if (++t->sample == t->config.warmup)
            begin_search(t);
        return;
    }
    t->measured++;
    if (t->phase == HVD__AUTOTUNE_SEARCH)
        searched(t);
    else
        verified(t);
}

int hvd__autotune_step(struct hvd__autotune *t, uint64_t bytes, uint64_t ns)
{
    if (t->phase == HVD__AUTOTUNE_OVER || bytes == 0 || ns == 0)
        return 0;
    t->costs[t->step++] = (double)ns / (double)bytes;
    if (t->step < t->config.steps)
        return 0;
    sample_over(t);
    return 1;
}

void hvd__autotune_stop(struct hvd__autotune *t)
{
    if (t->phase != HVD__AUTOTUNE_OVER)
        keep(t, &t->config.start, &t->start_cost);
}

/* ---- Life ---------------------------------------------------------------- */

int hvd__autotune_init(struct hvd__autotune *t,
                       const struct hvd__autotune_config *config)
{
    size_t steps = (size_t)config->steps;
    size_t pool = HVD__AUTOTUNE_PAIRS * steps;

    memset(t, 0, sizeof(*t));
    t->config = *config;
    t->costs = hb_calloc(steps + 2 * pool, sizeof(*t->costs));
    if (!t->costs)
        return -HVD_ENOMEM;
    t->pool[0] = t->costs + steps;
    t->pool[1] = t->pool[0] + pool;
    t->next = config->start;
    if (config->samples < HVD__AUTOTUNE_SAMPLES_MIN)
        hvd__autotune_stop(t);
    else if (config->warmup == 0)
        begin_search(t);
    return 0;
}

void hvd__autotune_fini(struct hvd__autotune *t)
{
    hb_free(t->costs);
    memset(t, 0, sizeof(*t));
    t->phase = HVD__AUTOTUNE_OVER;
}

void hvd__autotune_extend(struct hvd__autotune *t, int axis, int places)
{
    t->config.places[axis] = (unsigned char)places;
}
