/* SPDX-License-Identifier: Apache-2.0 */
/* The table of state.h.  An event without an entry changes nothing. */
#include "lib/agent/agent_state.h"

struct transition {
    int set;
    enum agent_state next;
    enum agent_action action;
};

/* clang-format off */
#define TO(state, action) {1, AGENT_##state, AGENT_##action}

static const struct transition table[AGENT_STATE_COUNT][AGENT_EVENT_COUNT] = {
    [AGENT_WAITING] = {
        [AGENT_PREPARES]      = TO(PREPARING, NOTHING),
        [AGENT_LAUNCHED]      = TO(RUNNING, NOTHING),
        [AGENT_LAUNCH_FAILED] = TO(KILLING, DO_KILL),
        [AGENT_KILL]          = TO(REPORTING, DO_REPORT),
        [AGENT_KILL_NOW]      = TO(REPORTING, DO_REPORT),
        [AGENT_HANGUP]        = TO(EXITED, DO_EXIT),
    },
    [AGENT_PREPARING] = {
        [AGENT_LAUNCHED]      = TO(RUNNING, NOTHING),
        [AGENT_LAUNCH_FAILED] = TO(KILLING, DO_KILL),
        [AGENT_KILL]          = TO(KILLING, DO_KILL),
        [AGENT_KILL_NOW]      = TO(KILLING, DO_KILL),
        [AGENT_HANGUP]        = TO(KILLING, DO_KILL),
    },
    [AGENT_RUNNING] = {
        [AGENT_RANKS_OK]      = TO(LINGERING, DO_LINGER),
        [AGENT_RANKS_BAD]     = TO(TERMINATING, DO_TERM),
        [AGENT_EMPTY]         = TO(DRAINING, DO_DRAIN),
        [AGENT_KILL]          = TO(TERMINATING, DO_TERM),
        [AGENT_KILL_NOW]      = TO(KILLING, DO_KILL),
        [AGENT_HANGUP]        = TO(TERMINATING, DO_TERM),
    },
    [AGENT_LINGERING] = {
        [AGENT_EMPTY]         = TO(DRAINING, DO_DRAIN),
        [AGENT_KILL]          = TO(TERMINATING, DO_TERM),
        [AGENT_KILL_NOW]      = TO(KILLING, DO_KILL),
        [AGENT_HANGUP]        = TO(TERMINATING, DO_TERM),
        [AGENT_TIMEOUT]       = TO(TERMINATING, DO_TERM),
    },
    [AGENT_TERMINATING] = {
        [AGENT_EMPTY]         = TO(DRAINING, DO_DRAIN),
        [AGENT_KILL_NOW]      = TO(KILLING, DO_KILL),
        [AGENT_TIMEOUT]       = TO(KILLING, DO_KILL),
    },
    [AGENT_KILLING] = {
        [AGENT_EMPTY]         = TO(DRAINING, DO_DRAIN),
        [AGENT_TIMEOUT]       = TO(KILLING, DO_KILL),
        [AGENT_STUCK]         = TO(DRAINING, DO_DRAIN),
    },
    [AGENT_DRAINING] = {
        [AGENT_DRAINED]       = TO(REPORTING, DO_REPORT),
        [AGENT_KILL_NOW]      = TO(REPORTING, DO_REPORT),
        [AGENT_HANGUP]        = TO(EXITED, DO_EXIT),
    },
    [AGENT_REPORTING] = {
        [AGENT_FLUSHED]       = TO(EXITED, DO_EXIT),
        [AGENT_HANGUP]        = TO(EXITED, DO_EXIT),
    },
};
/* clang-format on */

enum agent_state agent_next(enum agent_state state, enum agent_event event,
                            enum agent_action *action)
{
    const struct transition *t = &table[state][event];

    *action = t->set ? t->action : AGENT_NOTHING;
    return t->set ? t->next : state;
}

const char *agent_state_name(enum agent_state state)
{
    static const char *const names[AGENT_STATE_COUNT] = {
        [AGENT_WAITING] = "waiting",         [AGENT_PREPARING] = "preparing",
        [AGENT_RUNNING] = "running",         [AGENT_LINGERING] = "lingering",
        [AGENT_TERMINATING] = "terminating", [AGENT_KILLING] = "killing",
        [AGENT_DRAINING] = "draining",       [AGENT_REPORTING] = "reporting",
        [AGENT_EXITED] = "exited",
    };

    return names[state];
}

const char *agent_event_name(enum agent_event event)
{
    static const char *const names[AGENT_EVENT_COUNT] = {
        [AGENT_PREPARES] = "prepares",
        [AGENT_LAUNCHED] = "launched",
        [AGENT_LAUNCH_FAILED] = "launch failed",
        [AGENT_RANKS_OK] = "ranks ended well",
        [AGENT_RANKS_BAD] = "ranks ended badly",
        [AGENT_EMPTY] = "nothing lives",
        [AGENT_KILL] = "asked to end",
        [AGENT_KILL_NOW] = "asked to end at once",
        [AGENT_HANGUP] = "hvdrun has gone",
        [AGENT_TIMEOUT] = "time is up",
        [AGENT_STUCK] = "something does not die",
        [AGENT_DRAINED] = "output delivered",
        [AGENT_FLUSHED] = "report written",
    };

    return names[event];
}
