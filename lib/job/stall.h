/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stall inspector: ranks tell that they wait too long, and one report
 * says for what, who keeps them waiting, and where those are.
 *
 *     a rank waits for the warning time     all agents are asked where their
 *                                           ranks are (STALL_ASK)
 *     all have answered, or RANKS_MS later  who is missing is known: their
 *                                           stacks are asked for
 *     these are there, or STACKS_MS later   the report
 *     nobody waits any more                 one line, if there was a report
 *
 * While it goes on there is another report after twice the warning time, and
 * so on, doubled.  After the shutdown time the report is the last thing:
 * `end` is called, once.  Times come from the ranks, with what they tell:
 * their environment counts.  What many ranks tell makes one report.
 *
 * Pure: messages and the clock come in by calls, what is to be said goes out
 * by the functions of the config; none of these is called but from one of
 * the calls below.  What agents say is their ranks' word and not trusted.
 */
#ifndef HVD_JOB_STALL_H
#define HVD_JOB_STALL_H

#include "lib/hosts/plan.h"
#include "lib/protocol/control.h"

enum {
    STALL_RANKS_MS = 1000,
    STALL_STACKS_MS = 15000,
    STALL_STACKS_LAST_MS = 3000, /* when the job ends with the report */
};

struct stall;

struct stall_config {
    const struct plan *plan;
    /* Asks a host's agent; nothing comes back from one that is gone. */
    void (*ask)(void *arg, int host, const struct control_stall_ask *m);
    /* Lines for the user, each with its newline. */
    void (*say)(void *arg, const char *lines);
    /* Before the report is said: who keeps the others waiting, as `end`.  When
     * no rank waits any more after it: "", which takes that back. */
    void (*blame)(void *arg, int rank, const char *why);
    /* The job is over; `why` names the rank that kept the others waiting
     * (-1: it is not known which, and why says so), `verdict` is for the end of
     * the job's own report. */
    void (*end)(void *arg, int rank, const char *why, const char *verdict);
    void *arg;
};

struct stall *stall_new(const struct stall_config *config);
void stall_free(struct stall *s); /* NULL is allowed */

/* Messages of a host; the ranks are its own.  stall_ranks takes what it
 * needs out of m. */
void stall_told(struct stall *s, const struct control_stalled *m,
                uint64_t now_ns);
void stall_ranks(struct stall *s, int host, struct control_stall_ranks *m,
                 uint64_t now_ns);
void stall_stack(struct stall *s, struct control_stall_stack *m,
                 uint64_t now_ns);
/* A rank has ended: it does not wait any more. */
void stall_rank_gone(struct stall *s, int rank, uint64_t now_ns);
/* The ranks were stopped for a while, which is nobody's fault. */
void stall_resumed(struct stall *s, uint64_t now_ns);

/* When stall_tick is to be called; 0: not until something is told. */
uint64_t stall_next_ns(const struct stall *s);
void stall_tick(struct stall *s, uint64_t now_ns);

#endif
