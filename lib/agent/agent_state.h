/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a job on one host, as a table.  Pure: agent_next only says
 * what comes next; lib/agent/agent.c does it.
 */
#ifndef HVD_AGENT_STATE_H
#define HVD_AGENT_STATE_H

enum agent_state {
    AGENT_WAITING,     /* for LAUNCH */
    AGENT_PREPARING,   /* the wire-up opens; no rank was started */
    AGENT_RUNNING,     /* ranks live */
    AGENT_LINGERING,   /* all ranks exited 0; others may end by themselves */
    AGENT_TERMINATING, /* SIGTERM sent, grace time running */
    AGENT_KILLING,     /* SIGKILL, in rounds */
    AGENT_DRAINING,    /* nothing lives; output is being delivered */
    AGENT_REPORTING,   /* the last frame is being written */
    AGENT_EXITED,
    AGENT_STATE_COUNT
};

enum agent_event {
    AGENT_PREPARES, /* the ranks will be started later */
    AGENT_LAUNCHED,
    AGENT_LAUNCH_FAILED,
    AGENT_RANKS_OK, /* the last rank exited, all with 0; descendants remain */
    /* the last rank exited, not all with 0; descendants remain */
    AGENT_RANKS_BAD,
    AGENT_EMPTY, /* no descendants */
    AGENT_KILL,  /* end with the grace time: hvdrun's order, or a signal */
    AGENT_KILL_NOW,
    AGENT_HANGUP,  /* hvdrun has gone */
    AGENT_TIMEOUT, /* the timer of the current state expired */
    AGENT_STUCK,   /* a process survives SIGKILL */
    AGENT_DRAINED,
    AGENT_FLUSHED,
    AGENT_EVENT_COUNT
};

enum agent_action {
    AGENT_NOTHING,
    AGENT_DO_LINGER, /* start the linger timer */
    AGENT_DO_TERM,   /* signal, start the grace timer */
    AGENT_DO_KILL,   /* one round, start the timer of the next */
    AGENT_DO_DRAIN,
    AGENT_DO_REPORT, /* DONE or FAILED */
    AGENT_DO_EXIT,
};

/* Returns the state after `event`, and in *action what to do on the way. */
enum agent_state agent_next(enum agent_state state, enum agent_event event,
                            enum agent_action *action);

const char *agent_state_name(enum agent_state state);
const char *agent_event_name(enum agent_event event);

#endif
