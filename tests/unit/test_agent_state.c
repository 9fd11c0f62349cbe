/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/agent_state.h: every state of the agent with every event. */
#include "lib/agent/agent_state.h"
#include "tests/unit/unit.h"

#include <string.h>

START_TEST(test_every_cell_is_sane)
{
    for (int s = 0; s < AGENT_STATE_COUNT; s++)
        for (int e = 0; e < AGENT_EVENT_COUNT; e++) {
            enum agent_action action = AGENT_DO_EXIT;
            enum agent_state next =
                agent_next((enum agent_state)s, (enum agent_event)e, &action);

            ck_assert_int_ge(next, 0);
            ck_assert_int_lt(next, AGENT_STATE_COUNT);
            /* No event leads back to an earlier state. */
            ck_assert_int_ge(next, s);
            if (next == AGENT_EXITED && s != AGENT_EXITED)
                ck_assert_int_eq(action, AGENT_DO_EXIT);
            if ((int)next == s && s != AGENT_KILLING)
                ck_assert_int_eq(action, AGENT_NOTHING);
        }
}
END_TEST

/* These three events lead to the end, in every state of the job. */
START_TEST(test_ways_out)
{
    for (int s = 0; s < AGENT_EXITED; s++) {
        enum agent_state state = (enum agent_state)s;
        enum agent_action action;

        state = agent_next(state, AGENT_KILL_NOW, &action);
        state = agent_next(state, AGENT_EMPTY, &action);
        state = agent_next(state, AGENT_DRAINED, &action);
        state = agent_next(state, AGENT_FLUSHED, &action);
        ck_assert_int_eq(state, AGENT_EXITED);

        state = agent_next((enum agent_state)s, AGENT_HANGUP, &action);
        state = agent_next(state, AGENT_TIMEOUT, &action);
        state = agent_next(state, AGENT_EMPTY, &action);
        state = agent_next(state, AGENT_HANGUP, &action);
        ck_assert_int_eq(state, AGENT_EXITED);
    }
}
END_TEST

START_TEST(test_good_end)
{
    enum agent_action action;

    ck_assert_int_eq(agent_next(AGENT_WAITING, AGENT_LAUNCHED, &action),
                     AGENT_RUNNING);
    ck_assert_int_eq(agent_next(AGENT_RUNNING, AGENT_EMPTY, &action),
                     AGENT_DRAINING);
    ck_assert_int_eq(action, AGENT_DO_DRAIN);
    ck_assert_int_eq(agent_next(AGENT_DRAINING, AGENT_DRAINED, &action),
                     AGENT_REPORTING);
    ck_assert_int_eq(action, AGENT_DO_REPORT);
}
END_TEST

START_TEST(test_ranks_start_later)
{
    enum agent_action action;

    ck_assert_int_eq(agent_next(AGENT_WAITING, AGENT_PREPARES, &action),
                     AGENT_PREPARING);
    ck_assert_int_eq(action, AGENT_NOTHING);
    ck_assert_int_eq(agent_next(AGENT_PREPARING, AGENT_LAUNCHED, &action),
                     AGENT_RUNNING);
    /* What the wire-up has started must end. */
    for (int e = AGENT_LAUNCH_FAILED; e < AGENT_EVENT_COUNT; e++)
        if (e == AGENT_LAUNCH_FAILED || e == AGENT_KILL ||
            e == AGENT_KILL_NOW || e == AGENT_HANGUP) {
            ck_assert_int_eq(
                agent_next(AGENT_PREPARING, (enum agent_event)e, &action),
                AGENT_KILLING);
            ck_assert_int_eq(action, AGENT_DO_KILL);
        }
}
END_TEST

START_TEST(test_leftovers_get_time_term_kill)
{
    enum agent_action action;

    ck_assert_int_eq(agent_next(AGENT_RUNNING, AGENT_RANKS_OK, &action),
                     AGENT_LINGERING);
    ck_assert_int_eq(action, AGENT_DO_LINGER);
    ck_assert_int_eq(agent_next(AGENT_LINGERING, AGENT_TIMEOUT, &action),
                     AGENT_TERMINATING);
    ck_assert_int_eq(action, AGENT_DO_TERM);
    ck_assert_int_eq(agent_next(AGENT_TERMINATING, AGENT_TIMEOUT, &action),
                     AGENT_KILLING);
    ck_assert_int_eq(action, AGENT_DO_KILL);
    ck_assert_int_eq(agent_next(AGENT_KILLING, AGENT_TIMEOUT, &action),
                     AGENT_KILLING);
    ck_assert_int_eq(action, AGENT_DO_KILL);
}
END_TEST

START_TEST(test_names)
{
    for (int s = 0; s < AGENT_STATE_COUNT; s++)
        ck_assert_uint_gt(strlen(agent_state_name((enum agent_state)s)), 0);
    for (int e = 0; e < AGENT_EVENT_COUNT; e++)
        ck_assert_uint_gt(strlen(agent_event_name((enum agent_event)e)), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("agent_state");
    TCase *t = tcase_create("agent_state");

    tcase_add_test(t, test_every_cell_is_sane);
    tcase_add_test(t, test_ways_out);
    tcase_add_test(t, test_good_end);
    tcase_add_test(t, test_ranks_start_later);
    tcase_add_test(t, test_leftovers_get_time_term_kill);
    tcase_add_test(t, test_names);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
