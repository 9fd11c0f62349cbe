/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stall inspector: ranks report that they wait too long, and one report
 * says what they wait for, which ranks keep them waiting, and where those are.
 *
 *     a rank waits for the warning time     asks all agents where their ranks
 *                                           are (STALL_ASK)
 *     all have answered, or RANKS_MS later  knows the missing ranks: asks for
 *                                           their stacks
 *     these have come, or STACKS_MS later   prints the report
 *     no rank waits any more                prints a line, after a report
 *
 * While the wait continues, another report follows at twice the time, and so
 * on, doubled.  After the shutdown time `evict` may have the ranks killed that
 * hang, so that the others go on; their times begin anew then, and the report
 * comes without stacks.  Otherwise the report is the last one and `end` is
 * called, once.  The times come with the ranks' messages: the ranks'
 * environment counts, not hvdrun's.  Several ranks make one report.
 *
 * Pure: messages and the clock come in by calls, results go out by the
 * functions of the config, which run only inside the calls below.  Agents
 * repeat what their ranks say, which is not trusted.
 */
#ifndef HVD_JOB_STALL_H
#define HVD_JOB_STALL_H

#include "lib/hosts/slot_plan.h"
#include "lib/protocol/control/control.h"

enum {
    /* when to repeat the question about hvd_init to a host that did not
     * answer */
    STALL_AGAIN_MS = 5000,
    STALL_RANKS_MS = 1000,
    STALL_STACKS_MS = 15000,
    STALL_STACKS_LAST_MS = 3000, /* when the job ends with the report */
    /* Agents take so long to answer, so hanging ranks are looked for that much
     * before their time is over; it need not be over to the last moment. */
    STALL_EVICT_LEAD_MS = 350,
    STALL_EVICT_EARLY_MS = 50,
};

struct stall;

struct stall_config {
    const struct plan *plan;
    /* When no rank has ended for so long, hvdrun checks whether all ranks that
     * are left are stopped in hvd_init; if so, the job ends.  0: never. */
    int64_t start_ms;
    /* Asks a host's agent; an agent that is gone never answers. */
    void (*ask)(void *arg, int host, const struct control_stall_ask *m);
    /* Prints lines for the user, each with its newline. */
    void (*say)(void *arg, const char *lines);
    /* Called before the report is printed: names the rank that keeps others
     * waiting, as `end` does.  With why "" when no rank waits any more. */
    void (*blame)(void *arg, int rank, const char *why);
    /* Kills ranks that have kept others waiting for waited_ms, and returns 1,
     * if the others go on then; else returns 0.  NULL: they never do. */
    int (*evict)(void *arg, const int *ranks, int count, int64_t waited_ms);
    /* Ends the job.  `why` names the rank that kept the others waiting (rank is
     * -1 if unknown, and why says so), `verdict` is for the end of the job's
     * own report. */
    void (*end)(void *arg, int rank, const char *why, const char *verdict);
    void *arg;
};

struct stall *stall_new(const struct stall_config *config);
void stall_free(struct stall *s); /* NULL is allowed */

/* Takes a message of a host about its own ranks.  stall_ranks and stall_stack
 * take over strings of m. */
void stall_told(struct stall *s, const struct control_stalled *m,
                uint64_t now_ns);
void stall_ranks(struct stall *s, int host, struct control_stall_ranks *m,
                 uint64_t now_ns);
void stall_stack(struct stall *s, struct control_stall_stack *m,
                 uint64_t now_ns);
/* Ends the job, because a rank gives up waiting in hvd_init, with a report of
 * the ranks that have not called hvd_init or are stopped. */
void stall_late(struct stall *s, uint32_t waited_ms, uint64_t now_ns);
/* Notes that a rank does not reach another host: `text` is the cause if ranks
 * give up in hvd_init, have waited there since before now_ns, and all are
 * there. */
void stall_no_answer(struct stall *s, const char *text, uint64_t now_ns);
/* Notes that a rank is not started yet. */
void stall_absent(struct stall *s, int rank);
/* Notes that a rank has ended: it does not wait any more, and an agent whose
 * ranks have all ended is not asked. */
void stall_rank_gone(struct stall *s, int rank, uint64_t now_ns);
/* Notes that the world consists of these ranks now: no operation waits for the
 * others.  Before the first call, it consists of all. */
void stall_members(struct stall *s, const int *ranks, int count);
/* Counts waits from now: the ranks were stopped for a while, which is nobody's
 * fault. */
void stall_resumed(struct stall *s, uint64_t now_ns);

/* Returns when to call stall_tick; 0: not before the next message. */
uint64_t stall_next_ns(const struct stall *s);
void stall_tick(struct stall *s, uint64_t now_ns);

#endif
