/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training with shards, for ranks of a test world.
 *
 * Together the shards are an array of integers: element i is i + step *
 * SHARDS_GROWTH after each step, so that a byte of another step or another rank
 * shows.  A second array is that of the last rank alone.
 */
#ifndef TESTS_UNIT_SHARDS_TRAINING_H
#define TESTS_UNIT_SHARDS_TRAINING_H

#include "runtime/core/api/shard_sync.h"
#include "tests/unit/world.h"

enum { SHARDS_GROWTH = 1000003, SHARDS_STEPS = 8, NEVER = -1 };

/* When a victim dies in its step: */
enum instant {
    AT_WORK,      /* before hvd_commit */
    BEFORE_COPY,  /* once the ranks have agreed what to copy */
    BEFORE_ALL,   /* its copy is made, but it knows of no others */
    AFTER_COMMIT, /* it knows of all */
    INSTANTS
};

struct shards_scene {
    const char *place; /* as in struct world */
    int size;
    unsigned victims; /* 1 << rank */
    int at;           /* in which step they die */
    enum instant when;
    int elems; /* of the array */
    int late;
    int is_lost; /* a shard is */
    int in_sync; /* another rank dies in the hvd_sync after that */
};

/* Of this rank; the scene is that of shards_play. */
extern const struct shards_scene *shards_scene;
extern int64_t shards_step, *shards_own, *shards_extra;
extern int64_t shards_check;
extern int shards_resizes;

/* Returns how many elements a rank has, which differ much. */
int64_t shards_elems(int rank, int size);
/* Gives the shards the sizes that they have in a world: 0 or negative. */
int shards_resize(hvd_state *s, int rank, int size);
/* Returns whether all values are those of this step. */
int shards_are_right(void);
/* Makes the state for the world of hvd_init, with shards_resize as function of
 * hvd_on_resize; NULL: failed. */
hvd_state *shards_make(void);
void shards_free(hvd_state *s);

/* Kills this process. */
void shards_die(void);
/* Changes all values as a step does. */
void shards_grow(void);
/* Does a step: 0, a status, or 1 if a value is wrong.  dies: the instant of
 * this step's commit at which this rank dies, or NEVER. */
int shards_do_step(hvd_state *s, int dies);
/* Calls hvd_sync; returns as shards_do_step. */
int shards_sync(hvd_state *s);
/* Trains to the end, or until the world has a size; return as
 * shards_do_step. */
int shards_train(hvd_state *s, int is_victim);
int shards_train_until(hvd_state *s, int size);
/* Runs a scene as an elastic job; returns how many ranks failed. */
int shards_play(struct shards_scene *scene, world_fn *body);

#endif
