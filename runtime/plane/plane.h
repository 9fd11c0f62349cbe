/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plane moves the data of operations between ranks: one table of
 * functions per plane.  The engine chooses a plane, and one thread at a
 * time (the driver, see core/engine.h) calls it, one operation after the
 * other.  Nothing here blocks but pause.
 */
#ifndef HVD_PLANE_PLANE_H
#define HVD_PLANE_PLANE_H

#include "runtime/plane/op.h"

struct hvd__plane;

/* What progress returns beside 1, 0 and negative statuses: see op.h. */
enum { HVD__CUT = 2 };

struct hvd__plane_ops {
    const char *name;
    /* Whether this plane can carry out the operation. */
    int (*supports)(const struct hvd__plane *p, const struct hvd__op *op);
    /* Begins an operation: 0, or a negative status with op->err set. */
    int (*start)(struct hvd__plane *p, struct hvd__op *op);
    /* Goes on with it as far as the peers allow: 1 done, 0 call again,
     * HVD__CUT, or negative when it failed, with op->err set.  -HVD_EMISMATCH
     * and HVD__CUT come on all ranks or on none, before any buffer was
     * touched, and the next operation then begins in step. */
    int (*progress)(struct hvd__plane *p, struct hvd__op *op);
    /* One step of waiting after progress returned 0: spins, yields, and
     * after a while sleeps until a peer or interrupt wakes it.  progress
     * must be called between two pauses. */
    void (*pause)(struct hvd__plane *p);
    /* Between operations: 1 when a peer has begun the next one, 0, or a
     * negative status with err set when the job is over.  pause may be called
     * after a 0, as after progress. */
    int (*began)(struct hvd__plane *p, struct hb_error *err);
    /* Any thread: makes a pause that sleeps, or is about to, return. */
    void (*interrupt)(struct hvd__plane *p);
    /* The operation in progress, if any, will not be gone on with, and its
     * buffers go back to the caller when this returns.  NULL: nothing uses
     * them but progress. */
    void (*abandon)(struct hvd__plane *p);
    /* Tells the peers that this rank leaves.  Idempotent; also called
     * while the process exits. */
    void (*leave)(struct hvd__plane *p);
    void (*free)(struct hvd__plane *p);
};

struct hvd__plane {
    const struct hvd__plane_ops *ops;
};

/* The plane of a world of one. */
struct hvd__plane *hvd__self_plane(void);

#endif
