/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hierarchical planes for tests: forks the ranks, each with its segment and
 * lane, and runs a body on the plane; without agents and engine.
 */
#ifndef TESTS_UNIT_HIER_WORLD_H
#define TESTS_UNIT_HIER_WORLD_H

#include "runtime/plane/hier/hier.h"
#include "tests/unit/forked.h"

#include <stdatomic.h>

enum { HIER_WORLD_MAX = 16 };

struct hier_world {
    /* One letter per rank for its host, "a" for the first. */
    const char *place;
    /* Runs in each rank; returns 0 if all is well. */
    int (*body)(struct hier_world *w, struct hvd__plane *p, int rank);
    void *arg;
    int size;
    struct hvd__map map;
    _Atomic int *flags; /* HIER_WORLD_MAX shared numbers */
    int listeners[HIER_WORLD_MAX];
    uint16_t ports[HIER_WORLD_MAX];
    struct segment_head *heads[HIER_WORLD_MAX]; /* by host */
    int wait_status[HIER_WORLD_MAX];
};

/* Returns the number of ranks that did not end with 0. */
int hier_world_run(struct hier_world *w);

/* Returns a complete operation with `signature`. */
struct hvd__op hier_world_op(enum hvd__kind kind, enum hvd_dtype dtype,
                             uint64_t signature, struct hb_error *err);

#endif
