/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's state machine: one table, no I/O.
 *
 *     CONNECTING  waiting for every agent's HELLO
 *     SETTLING    a host cannot be reached; the others have a moment to
 *                 connect or to fail, so that all failures are reported
 *     ROUTING     the agents try each other's addresses (routes.h)
 *     LAUNCHING   LAUNCH sent, waiting for every STARTED
 *     RUNNING     all ranks run
 *     ENDING      KILL sent (TERM, grace, KILL on the hosts)
 *     DRAINING    nothing runs; connections close, output is written out
 *     DONE
 *
 * job_step returns the next state and the one action that the caller takes.
 * Why the job ends, and with which exit code, is not in the table: the job
 * keeps the first cause.
 */
#ifndef HVD_JOB_STATE_H
#define HVD_JOB_STATE_H

enum job_state {
    JOB_CONNECTING,
    JOB_SETTLING,
    JOB_ROUTING,
    JOB_LAUNCHING,
    JOB_RUNNING,
    JOB_ENDING,
    JOB_DRAINING,
    JOB_DONE,
    JOB_STATE_COUNT
};

enum job_event {
    JOB_EV_CONNECTED, /* every agent has said HELLO */
    JOB_EV_SAME_HOST, /* likewise, but two names are one host */
    /* no host is still connecting, or the time for that is over */
    JOB_EV_SETTLED,
    JOB_EV_ROUTED,  /* every host can reach every other */
    JOB_EV_STARTED, /* every agent has said STARTED */
    JOB_EV_FAILED,  /* a rank failed, or could not be launched */
    /* a connection ended early, broke the protocol or fell silent */
    JOB_EV_AGENT_LOST,
    JOB_EV_TIMEOUT,      /* --start-timeout or --timeout */
    JOB_EV_SIGNAL,       /* the first signal that asks to end */
    JOB_EV_SIGNAL_AGAIN, /* another one */
    JOB_EV_READER_GONE,  /* hvdrun's output has no reader any more */
    JOB_EV_OVERDUE,      /* the hosts took longer than the grace time */
    JOB_EV_GONE,         /* nothing of the job is left on any host */
    JOB_EV_DRAINED,      /* connections closed, output written */
    JOB_EVENT_COUNT
};

enum job_action {
    JOB_ACT_NONE,
    JOB_ACT_SETTLE,  /* wait a moment for the other hosts */
    JOB_ACT_ROUTE,   /* start trying routes */
    JOB_ACT_LAUNCH,  /* send LAUNCH to every agent */
    JOB_ACT_RUN,     /* ranks run: open stdin, start --timeout */
    JOB_ACT_END,     /* send KILL with the grace time */
    JOB_ACT_KILL,    /* send KILL with grace time 0 */
    JOB_ACT_DRAIN,   /* close the connections */
    JOB_ACT_DISCARD, /* give up output that cannot be written */
    JOB_ACT_FINISH,  /* report to the caller */
};

struct job_transition {
    enum job_state next;
    enum job_action action;
};

struct job_transition job_step(enum job_state state, enum job_event event);

/* Returns a lower-case name for the log; never NULL. */
const char *job_state_name(enum job_state state);
const char *job_event_name(enum job_event event);

#endif
