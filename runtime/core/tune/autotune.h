/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of autotuning: chooses the setting to try next, and the one to
 * keep.  Pure: no clock, no I/O; the caller feeds in how long the program's
 * steps took.  See tuner.h for the rest.
 *
 * A setting is a place on each of a few axes; an axis with one place is pinned.
 * The cost of a sample is the median time per byte over its steps.
 *
 * The search begins at the start, which is the defaults, or at the guess if
 * that is better.  It tries the neighbours on one axis after the other, and
 * goes on in a direction as long as that helps.  Then it measures the best
 * setting and the start again, three times each and in turn, because the best
 * of many samples always looks better than it is.  It keeps the best setting if
 * that won every time and its notches (McGill, Tukey and Larsen, Variations of
 * box plots, 1978: median -+ 1.57 (q3 - q1) / sqrt(n), over all steps) do not
 * overlap those of the start; otherwise it keeps the start.
 *
 *     while (t.phase != HVD__AUTOTUNE_OVER) {
 *         use(&t.next);
 *         while (!hvd__autotune_step(&t, bytes, ns))
 *             ;
 *         log(&t.last);
 *     }
 *     use(&t.next);
 */
#ifndef HVD_CORE_AUTOTUNE_H
#define HVD_CORE_AUTOTUNE_H

#include <stddef.h>
#include <stdint.h>

enum {
    HVD__AUTOTUNE_AXES = 3,
    HVD__AUTOTUNE_PLACES = 8, /* most places of an axis */
    HVD__AUTOTUNE_PAIRS = 3,  /* final comparisons of best and start */
    /* With fewer samples nothing can be compared: the start is kept. */
    HVD__AUTOTUNE_SAMPLES_MIN = 2 * HVD__AUTOTUNE_PAIRS + 2,
};

struct hvd__autotune_setting {
    unsigned char at[HVD__AUTOTUNE_AXES];
};

struct hvd__autotune_config {
    unsigned char places[HVD__AUTOTUNE_AXES]; /* 1 .. PLACES */
    struct hvd__autotune_setting start;
    struct hvd__autotune_setting guess; /* tried first; none if equal to
                                           start */
    int warmup;                         /* samples that are dropped, >= 0 */
    int steps;                          /* steps of one sample, >= 1 */
    int samples;                        /* limit of samples not dropped, >= 0 */
};

enum hvd__autotune_phase {
    HVD__AUTOTUNE_WARMUP,
    HVD__AUTOTUNE_SEARCH,
    HVD__AUTOTUNE_VERIFY,
    HVD__AUTOTUNE_OVER,
};

/* ns per byte; all 0: not measured. */
struct hvd__autotune_cost {
    double q1, median, q3;
};

struct hvd__autotune_sample {
    enum hvd__autotune_phase phase;
    struct hvd__autotune_setting setting;
    struct hvd__autotune_cost cost;
};

struct hvd__autotune {
    struct hvd__autotune_config config;
    enum hvd__autotune_phase phase;
    struct hvd__autotune_setting next;   /* to use now; when over, to keep */
    struct hvd__autotune_sample last;    /* the last complete sample */
    struct hvd__autotune_cost kept_cost; /* when over: cost of `next`, if
                                            known */

    int step, sample; /* steps in this sample; samples in this phase */
    int measured;     /* samples that were not dropped */
    struct hvd__autotune_setting best;
    struct hvd__autotune_cost best_cost, start_cost;
    int axis, down;  /* of the neighbour being tried */
    int turns;       /* directions without success since the last one */
    double *costs;   /* [steps]: costs in this sample */
    double *pool[2]; /* [PAIRS * steps]: verified costs: start, best */
    double won[2][HVD__AUTOTUNE_PAIRS]; /* medians of those samples */
    unsigned char seen[HVD__AUTOTUNE_PLACES * HVD__AUTOTUNE_PLACES];
};

/* Initialises *t.  config is copied; the caller ensures its limits.  Returns 0
 * or -HVD_ENOMEM. */
int hvd__autotune_init(struct hvd__autotune *t,
                       const struct hvd__autotune_config *config);
void hvd__autotune_fini(struct hvd__autotune *t); /* idempotent */

/* Sets the number of places of an axis; before its first sample is complete. */
void hvd__autotune_extend(struct hvd__autotune *t, int axis, int places);

/* Adds one step of the program, which moved `bytes` in `ns` with the setting
 * `next`.  Steps of no bytes or no time do not count.  Returns 1 if it was the
 * last step of a sample: `last` is set, and `next` may be another setting. */
int hvd__autotune_step(struct hvd__autotune *t, uint64_t bytes, uint64_t ns);

/* Ends the search, if it is not over, and keeps the start. */
void hvd__autotune_stop(struct hvd__autotune *t);

int hvd__autotune_same(const struct hvd__autotune_setting *a,
                       const struct hvd__autotune_setting *b);

#endif
