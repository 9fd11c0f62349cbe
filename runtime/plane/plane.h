/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plane moves the data of operations between ranks: one table of
 * functions per plane.  The engine chooses a plane, and one thread at a
 * time (the driver, see runtime/core/sched/engine.h) calls it, one operation
 * after the other.  Nothing here blocks but pause.
 */
#ifndef HVD_PLANE_PLANE_H
#define HVD_PLANE_PLANE_H

#include "runtime/plane/op.h"

struct hvd__plane;

/* Returned by progress, beside 1, 0 and negative statuses: the ranks fused
 * different numbers of requests, see op.h. */
enum { HVD__CUT = 2 };

/* Of a plane that may only launch an operation: progress then returns 1 with
 * op->device.launch, its number, set, and it ends later, not always in the
 * order of numbers.  The first three are for any threads, at once. */
struct hvd__launch_ops {
    /* Waits until launches `first` to `last` have ended, or until hb_now_ns()
     * has reached until_ns (0: no limit).  Returns as test. */
    int (*wait)(struct hvd__plane *p, uint64_t first, uint64_t last,
                uint64_t until_ns, struct hb_error *err);
    /* Returns 1 if they have ended, 0 if not, or negative with err set. */
    int (*test)(struct hvd__plane *p, uint64_t first, uint64_t last,
                struct hb_error *err);
    /* Makes the later work of a stream wait for them; never blocks. */
    int (*order)(struct hvd__plane *p, uint64_t first, uint64_t last,
                 void *stream, struct hb_error *err);
    /* For a plane that no thread drives any more.  Returns how many operations
     * it has launched. */
    uint64_t (*count)(struct hvd__plane *p);
    /* The same.  Fails what has not ended, as not all members launched it. */
    void (*cancel)(struct hvd__plane *p, const struct hb_error *why);
};

struct hvd__plane_ops {
    const char *name;
    const struct hvd__launch_ops *launches; /* NULL: progress ends operations */
    /* Returns whether this plane can carry out the operation. */
    int (*supports)(const struct hvd__plane *p, const struct hvd__op *op);
    /* Begins an operation: 0, or a negative status with op->err set. */
    int (*start)(struct hvd__plane *p, struct hvd__op *op);
    /* Advances the operation without blocking.  1: done; 0: call again;
     * HVD__CUT; negative: failed, op->err is set.  -HVD_EMISMATCH and HVD__CUT
     * are returned by all ranks or by none, before any buffer is touched, and
     * leave the plane usable. */
    int (*progress)(struct hvd__plane *p, struct hvd__op *op);
    /* One step of waiting after progress returned 0: spins, yields, and after
     * a while sleeps until a peer or interrupt wakes it, or, a millisecond
     * more or less, until hb_now_ns() has reached until_ns (0: no limit).  Call
     * progress between two pauses. */
    void (*pause)(struct hvd__plane *p, uint64_t until_ns);
    /* Between operations.  1: a peer has begun the next one; 0: none has,
     * pause may follow; negative with err set: the job is over. */
    int (*began)(struct hvd__plane *p, struct hb_error *err);
    /* Any thread: makes a pause that sleeps or is about to sleep return. */
    void (*interrupt)(struct hvd__plane *p);
    /* Returns a member that has not begun the operation in progress, or -1 if
     * this rank knows of none.  Sets *number to the number of the operation,
     * and *reports to whether this rank is the one that reports the wait.  This
     * function and the next one serve worlds of MPI, in which the ranks report
     * long waits themselves; NULL in planes that such worlds do not use. */
    int (*missing)(struct hvd__plane *p, uint64_t *number, int *reports);
    /* Fails the operation in progress, unless its data is already moving, and
     * all later operations with *why, which the other members get, too.
     * why->rank is the rank to blame, or -1. */
    void (*give_up)(struct hvd__plane *p, const struct hb_error *why);
    /* Gives up the operation in progress, if any; on return the caller may
     * reuse its buffers.  NULL if only progress touches them. */
    void (*abandon)(struct hvd__plane *p);
    /* Tells the peers that this rank leaves.  Idempotent; may run in another
     * thread, while the process exits. */
    void (*leave)(struct hvd__plane *p);
    void (*free)(struct hvd__plane *p);
};

struct hvd__plane {
    const struct hvd__plane_ops *ops;
};

/* Returns the plane of a world of one. */
struct hvd__plane *hvd__self_plane(void);

#endif
