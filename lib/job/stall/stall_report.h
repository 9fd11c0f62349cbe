/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds which ranks keep others waiting, and formats the report.  Pure.
 *
 *     hvdrun: stall: 2 of 4 ranks wait for others, for up to 60.2 s
 *       allreduce "grad.7": ranks 0, 2 wait for 60.2 s; missing: ranks 1, 3
 *       rank 1 on host n1 (pid 4711) is stopped by a signal; its last
 *       operation: allreduce "grad.6" 61 s ago, which has returned
 *         #0 ...
 *
 * All ranks of a process set carry out the same operations in the same order: a
 * rank that has carried out more than a waiting rank does not keep it waiting.
 *
 * A rank that itself waits is a suspect, but listed after those that do not.
 * If all suspects wait, none is named as the culprit: the ranks do not agree on
 * what comes next.
 *
 * From an operation on devices, a rank is missing if it has not launched it
 * while another has, or if its device has not come to it.  All launches of a
 * set are in the same order: a rank that has launched more than a waiting rank
 * does not keep it waiting.
 */
#ifndef HVD_JOB_STALL_REPORT_H
#define HVD_JOB_STALL_REPORT_H

#include "lib/base/buf.h"
#include "lib/hosts/slot_plan.h"
#include "lib/protocol/control/control.h"

enum {
    STALL_TENSORS_MAX = 32, /* most that are examined */
    STALL_TENSORS_SHOWN = 8,
    STALL_SUSPECTS_MAX = CONTROL_STACKS_MAX,
};

/* An operation that at least one rank waits for. */
struct stall_tensor {
    struct control_stall_op op; /* with the longest wait */
    unsigned char *has;         /* [size] ranks that wait for it */
    /* [size] ranks whose devices have not come to it */
    unsigned char *before;
    /* The fewest operations that a waiting rank has launched, and has carried
     * out; UINT64_MAX: none waits. */
    uint64_t least_launched, least_carried_out;
    int waiting, missing; /* numbers of ranks */
    int launched;         /* on devices: number of ranks */
};

/* What is wrong with the start (hvd_init). */
enum stall_start {
    STALL_STARTED,  /* nothing: the report is about operations */
    STALL_LATE,     /* ranks have waited there for too long */
    STALL_DESERTED, /* all remaining ranks are stopped there */
};

struct stall_suspect {
    int rank;
    char *stack; /* or why there is none; NULL: not yet received */
    int found;
};

struct stall_view {
    const struct plan *plan;
    /* [size] from the agents; pid 0: no answer */
    struct control_stall_rank *ranks;
    const unsigned char *answered; /* [hosts] */
    const unsigned char *gone;     /* [size] ranks that have ended */
    const unsigned char *outside;  /* [size] ranks that are not in the world */
    int stalled;                   /* number of ranks that wait too long */
    int64_t waited_ms;             /* the longest wait */
    enum stall_start start;        /* what is wrong with the start */
    const char *no_answer; /* which host a rank does not reach; NULL: none */

    /* Set by stall_view_find. */
    struct stall_tensor tensors[STALL_TENSORS_MAX]; /* longest wait first */
    int tensor_count, tensors_left_out;
    struct stall_suspect suspects[STALL_SUSPECTS_MAX];
    int suspect_count, suspects_left_out;
    /* how many of the first suspects hang: they do not wait for others, or
     * cannot run; 0 if the others would not go on without them */
    int hanging;
    /* no rank is to blame: the suspects are all waiting ranks */
    int is_unknown;
    int is_disagreed; /* the suspects wait for different operations */
};

/* Finds tensors and suspects. */
void stall_view_find(struct stall_view *v);
/* Returns 1 if all other ranks have ended, and those left are stopped before
 * their first operation: nothing will happen by itself. */
int stall_view_is_deserted(const struct stall_view *v);
void stall_view_fini(struct stall_view *v); /* frees what that made */
/* Returns whether the rank, or its device, keeps others waiting in that
 * operation. */
int stall_is_missing(const struct stall_view *v, const struct stall_tensor *t,
                     int rank);
/* Returns whether the rank is in the operation's process set. */
int stall_is_member(const struct control_stall_rank *r,
                    const struct stall_tensor *t);

void stall_view_format(struct hb_buf *out, const struct stall_view *v);
/* Appends a line such as "rank 1 (pid 4711) on host n1: kept the others waiting
 * for 3 s: it has not issued allreduce "x"; it is stopped by a signal".
 * Returns that rank, or -1 if no rank can be named. */
int stall_view_blame(struct hb_buf *out, const struct stall_view *v);

#endif
