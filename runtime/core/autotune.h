/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of autotuning: which setting to try next, and which one to
 * keep.  Pure: no clock, no I/O; it is fed with what the steps of the
 * program took.  tuner.h has the rest.
 *
 * A setting is a place on each of a few axes; an axis of one place is
 * pinned.  The cost of a sample is the median of the time per byte over its
 * steps.  From the start, which are the defaults, or from the guess, if that
 * is better, the search goes to the neighbour on one axis after the other,
 * and on in the same direction as long as that helps.  Then the best one and
 * the start are measured again, three times each and in turn, since the
 * best of many samples always looks better than it is.  The best one is kept
 * if it won every time and its notches (McGill, Tukey and Larsen, Variations
 * of box plots, 1978: median -+ 1.57 (q3 - q1) / sqrt(n), over all steps) do
 * not overlap those of the start.  Otherwise the start is.
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
    HVD__AUTOTUNE_PLACES = 8, /* of an axis, at most */
    HVD__AUTOTUNE_PAIRS = 3,  /* of best and start, at the end */
    /* Fewer cannot compare anything: then the start is kept. */
    HVD__AUTOTUNE_SAMPLES_MIN = 2 * HVD__AUTOTUNE_PAIRS + 2,
};

struct hvd__autotune_setting {
    unsigned char at[HVD__AUTOTUNE_AXES];
};

struct hvd__autotune_config {
    unsigned char places[HVD__AUTOTUNE_AXES]; /* 1 .. PLACES */
    struct hvd__autotune_setting start;
    struct hvd__autotune_setting guess; /* tried first; as start: none */
    int warmup;                         /* samples that are dropped, >= 0 */
    int steps;                          /* of one sample, >= 1 */
    int samples; /* that are not dropped, at most, >= 0 */
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
    struct hvd__autotune_setting next;   /* to use; when over, to keep */
    struct hvd__autotune_sample last;    /* the last complete one */
    struct hvd__autotune_cost kept_cost; /* when over: as far as known */

    int step, sample; /* of this sample; of this phase */
    int measured;     /* samples that were not dropped */
    struct hvd__autotune_setting best;
    struct hvd__autotune_cost best_cost, start_cost;
    int axis, down;  /* of the neighbour that is tried */
    int turns;       /* directions that did not help since one did */
    double *costs;   /* [steps]: of this sample */
    double *pool[2]; /* [PAIRS * steps]: when verified, of start and best */
    double won[2][HVD__AUTOTUNE_PAIRS]; /* their samples' medians */
    unsigned char seen[HVD__AUTOTUNE_PLACES * HVD__AUTOTUNE_PLACES];
};

/* 0 or -HVD_ENOMEM.  config is copied; its limits are the caller's. */
int hvd__autotune_init(struct hvd__autotune *t,
                       const struct hvd__autotune_config *config);
void hvd__autotune_fini(struct hvd__autotune *t); /* idempotent */

/* How many places an axis has, before its first sample is complete. */
void hvd__autotune_extend(struct hvd__autotune *t, int axis, int places);

/* One step of the program with the setting `next` moved so many bytes in
 * so long.  1: that was the last one of a sample: `last` is set, and `next`
 * may be another setting.  Steps of no bytes or time do not count. */
int hvd__autotune_step(struct hvd__autotune *t, uint64_t bytes, uint64_t ns);

/* Nothing more can be measured: keeps the start, unless that was decided. */
void hvd__autotune_stop(struct hvd__autotune *t);

int hvd__autotune_same(const struct hvd__autotune_setting *a,
                       const struct hvd__autotune_setting *b);

#endif
