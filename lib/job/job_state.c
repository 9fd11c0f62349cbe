/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's state machine; see state.h.  An event without an entry does nothing
 * in that state.
 */
#include "lib/job/job_state.h"

#include <assert.h>

struct entry {
    unsigned char used, next, action;
};

/* clang-format off */
#define GO(state, act) { 1, JOB_##state, JOB_ACT_##act }

static const struct entry table[JOB_STATE_COUNT][JOB_EVENT_COUNT] = {
    /* Nothing is launched: closing the connections ends the agents. */
    [JOB_CONNECTING] = {
        [JOB_EV_CONNECTED]    = GO(ROUTING, ROUTE),
        [JOB_EV_SAME_HOST]    = GO(DRAINING, DRAIN),
        [JOB_EV_FAILED]       = GO(SETTLING, SETTLE),
        [JOB_EV_AGENT_LOST]   = GO(SETTLING, SETTLE),
        [JOB_EV_TIMEOUT]      = GO(DRAINING, DRAIN),
        [JOB_EV_SIGNAL]       = GO(DRAINING, DRAIN),
        [JOB_EV_SIGNAL_AGAIN] = GO(DRAINING, DRAIN),
        [JOB_EV_READER_GONE]  = GO(DRAINING, DRAIN),
        [JOB_EV_GONE]         = GO(DRAINING, DRAIN),
    },
    [JOB_SETTLING] = {
        [JOB_EV_SETTLED]      = GO(DRAINING, DRAIN),
        [JOB_EV_TIMEOUT]      = GO(DRAINING, DRAIN),
        [JOB_EV_SIGNAL]       = GO(DRAINING, DRAIN),
        [JOB_EV_SIGNAL_AGAIN] = GO(DRAINING, DRAIN),
        [JOB_EV_READER_GONE]  = GO(DRAINING, DRAIN),
        [JOB_EV_GONE]         = GO(DRAINING, DRAIN),
    },
    [JOB_ROUTING] = {
        [JOB_EV_ROUTED]       = GO(LAUNCHING, LAUNCH),
        [JOB_EV_FAILED]       = GO(DRAINING, DRAIN),
        [JOB_EV_AGENT_LOST]   = GO(DRAINING, DRAIN),
        [JOB_EV_TIMEOUT]      = GO(DRAINING, DRAIN),
        [JOB_EV_SIGNAL]       = GO(DRAINING, DRAIN),
        [JOB_EV_SIGNAL_AGAIN] = GO(DRAINING, DRAIN),
        [JOB_EV_READER_GONE]  = GO(DRAINING, DRAIN),
        [JOB_EV_GONE]         = GO(DRAINING, DRAIN),
    },
    [JOB_LAUNCHING] = {
        [JOB_EV_STARTED]      = GO(RUNNING, RUN),
        [JOB_EV_FAILED]       = GO(ENDING, END),
        [JOB_EV_AGENT_LOST]   = GO(ENDING, END),
        [JOB_EV_TIMEOUT]      = GO(ENDING, END),
        [JOB_EV_SIGNAL]       = GO(ENDING, END),
        [JOB_EV_SIGNAL_AGAIN] = GO(ENDING, KILL),
        [JOB_EV_READER_GONE]  = GO(ENDING, END),
        [JOB_EV_GONE]         = GO(DRAINING, DRAIN),
    },
    [JOB_RUNNING] = {
        [JOB_EV_FAILED]       = GO(ENDING, END),
        [JOB_EV_AGENT_LOST]   = GO(ENDING, END),
        [JOB_EV_TIMEOUT]      = GO(ENDING, END),
        [JOB_EV_SIGNAL]       = GO(ENDING, END),
        [JOB_EV_SIGNAL_AGAIN] = GO(ENDING, KILL),
        [JOB_EV_READER_GONE]  = GO(ENDING, END),
        [JOB_EV_GONE]         = GO(DRAINING, DRAIN),
    },
    [JOB_ENDING] = {
        [JOB_EV_SIGNAL_AGAIN] = GO(ENDING, KILL),
        [JOB_EV_OVERDUE]      = GO(DRAINING, DRAIN),
        [JOB_EV_GONE]         = GO(DRAINING, DRAIN),
    },
    /* Only a stuck terminal can keep a job here for long. */
    [JOB_DRAINING] = {
        [JOB_EV_TIMEOUT]      = GO(DRAINING, DISCARD),
        [JOB_EV_SIGNAL]       = GO(DRAINING, DISCARD),
        [JOB_EV_SIGNAL_AGAIN] = GO(DRAINING, DISCARD),
        [JOB_EV_DRAINED]      = GO(DONE, FINISH),
    },
};

static const char *const state_names[JOB_STATE_COUNT] = {
    [JOB_CONNECTING] = "connecting", [JOB_SETTLING] = "settling",
    [JOB_ROUTING] = "routing",       [JOB_LAUNCHING] = "launching",
    [JOB_RUNNING] = "running",       [JOB_ENDING] = "ending",
    [JOB_DRAINING] = "draining",     [JOB_DONE] = "done",
};

static const char *const event_names[JOB_EVENT_COUNT] = {
    [JOB_EV_CONNECTED] = "all agents connected",
    [JOB_EV_SAME_HOST] = "two names are of one host",
    [JOB_EV_SETTLED] = "every host is reached or is not",
    [JOB_EV_ROUTED] = "all hosts reach each other",
    [JOB_EV_STARTED] = "all ranks started",
    [JOB_EV_FAILED] = "a rank or its start failed",
    [JOB_EV_AGENT_LOST] = "an agent was lost",
    [JOB_EV_TIMEOUT] = "a time limit passed",
    [JOB_EV_SIGNAL] = "a signal",
    [JOB_EV_SIGNAL_AGAIN] = "a further signal",
    [JOB_EV_READER_GONE] = "the output's reader closed it",
    [JOB_EV_OVERDUE] = "a host did not end in time",
    [JOB_EV_GONE] = "nothing is left on the hosts",
    [JOB_EV_DRAINED] = "output written and connections closed",
};
/* clang-format on */

struct job_transition job_step(enum job_state state, enum job_event event)
{
    const struct entry *e;

    assert(state < JOB_STATE_COUNT && event < JOB_EVENT_COUNT);
    e = &table[state][event];
    if (!e->used)
        return (struct job_transition){state, JOB_ACT_NONE};
    return (struct job_transition){(enum job_state)e->next,
                                   (enum job_action)e->action};
}

const char *job_state_name(enum job_state state)
{
    return state < JOB_STATE_COUNT ? state_names[state] : "unknown";
}

const char *job_event_name(enum job_event event)
{
    return event < JOB_EVENT_COUNT ? event_names[event] : "unknown";
}
