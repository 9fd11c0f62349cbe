/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known about ranks that wait, who is missing, and the report about
 * it.  Pure.
 *
 *     hvdrun: stall: 2 of 4 ranks wait for others, for up to 60.2 s
 *       allreduce "grad.7": ranks 0, 2 wait for 60.2 s; missing: ranks 1, 3
 *       rank 1 on host n1 (pid 4711) is stopped by a signal; its last
 *       operation: allreduce "grad.6" 61 s ago, which has returned
 *         #0 ...
 *
 * Of an operation on devices, a rank is missing that has not launched it while
 * another has, or whose device has not come to it.  All of a set's launches
 * are in the same order: who has launched more than a rank that waits keeps
 * nobody waiting.
 */
#ifndef HVD_JOB_STALL_REPORT_H
#define HVD_JOB_STALL_REPORT_H

#include "lib/base/buf.h"
#include "lib/hosts/plan.h"
#include "lib/protocol/control.h"

enum {
    STALL_TENSORS_MAX = 32, /* that are looked at */
    STALL_TENSORS_SHOWN = 8,
    STALL_SUSPECTS_MAX = CONTROL_STACKS_MAX,
};

/* An operation that somebody waits for. */
struct stall_tensor {
    struct control_stall_op op; /* the longest wait */
    unsigned char *has;         /* [size] ranks that wait for it */
    unsigned char *before;      /* [size] ranks whose devices are before it */
    uint64_t least; /* launched, of those that wait; UINT64_MAX: none does */
    int waiting, missing; /* how many ranks */
    int launched;         /* on devices: by how many */
};

struct stall_suspect {
    int rank;
    char *stack; /* or why there is none; NULL: not heard */
    int found;
};

struct stall_view {
    const struct plan *plan;
    /* [size] what the agents told; pid 0: nothing */
    struct control_stall_rank *ranks;
    const unsigned char *answered; /* [hosts] */
    int stalled;                   /* ranks that told they wait too long */
    int64_t waited_ms;             /* the longest */

    /* stall_view_find makes these. */
    struct stall_tensor tensors[STALL_TENSORS_MAX]; /* longest wait first */
    int tensor_count, tensors_left_out;
    struct stall_suspect suspects[STALL_SUSPECTS_MAX];
    int suspect_count, suspects_left_out;
    int is_unknown; /* who it is: the suspects are all that wait */
};

/* Finds out who keeps whom waiting. */
void stall_view_find(struct stall_view *v);
void stall_view_fini(struct stall_view *v); /* what that made */

void stall_view_format(struct hb_buf *out, const struct stall_view *v);
/* "rank 1 (pid 4711) on host n1: kept the others waiting for 3 s: it has not
 * issued allreduce "x"; it is stopped by a signal"; returns the rank, or -1
 * when there is none to be named. */
int stall_view_blame(struct hb_buf *out, const struct stall_view *v);

#endif
