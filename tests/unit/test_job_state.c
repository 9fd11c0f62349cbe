/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/job_state: walks every state with every event. */
#include "lib/job/job_state.h"
#include "tests/unit/unit.h"

#include <string.h>

#define STATES(i)                      \
    enum job_state i = JOB_CONNECTING; \
    i < JOB_STATE_COUNT;               \
    i++
#define EVENTS(i)                        \
    enum job_event i = JOB_EV_CONNECTED; \
    i < JOB_EVENT_COUNT;                 \
    i++

START_TEST(never_goes_back)
{
    for (STATES(s))
        for (EVENTS(e)) {
            struct job_transition t = job_step(s, e);
            ck_assert_int_ge(t.next, s);
            ck_assert_int_lt(t.next, JOB_STATE_COUNT);
        }
}
END_TEST

START_TEST(done_is_final)
{
    for (EVENTS(e)) {
        struct job_transition t = job_step(JOB_DONE, e);
        ck_assert_int_eq(t.next, JOB_DONE);
        ck_assert_int_eq(t.action, JOB_ACT_NONE);
    }
}
END_TEST

/* Every change of state comes with the action that goes with the new state. */
START_TEST(entering_acts)
{
    for (STATES(s))
        for (EVENTS(e)) {
            struct job_transition t = job_step(s, e);
            if (t.next == s)
                continue;
            ck_assert_int_ne(t.action, JOB_ACT_NONE);
            ck_assert_int_eq(t.next == JOB_SETTLING,
                             t.action == JOB_ACT_SETTLE);
            ck_assert_int_eq(t.next == JOB_ROUTING, t.action == JOB_ACT_ROUTE);
            ck_assert_int_eq(t.next == JOB_LAUNCHING,
                             t.action == JOB_ACT_LAUNCH);
            ck_assert_int_eq(t.next == JOB_RUNNING, t.action == JOB_ACT_RUN);
            ck_assert_int_eq(t.next == JOB_DRAINING, t.action == JOB_ACT_DRAIN);
            ck_assert_int_eq(t.next == JOB_DONE, t.action == JOB_ACT_FINISH);
            if (t.next == JOB_ENDING)
                ck_assert(t.action == JOB_ACT_END || t.action == JOB_ACT_KILL);
        }
}
END_TEST

START_TEST(good_path)
{
    static const enum job_event events[] = {JOB_EV_CONNECTED, JOB_EV_ROUTED,
                                            JOB_EV_STARTED, JOB_EV_GONE,
                                            JOB_EV_DRAINED};
    static const enum job_state states[] = {
        JOB_ROUTING, JOB_LAUNCHING, JOB_RUNNING, JOB_DRAINING, JOB_DONE};
    enum job_state s = JOB_CONNECTING;

    for (int i = 0; i < 5; i++) {
        s = job_step(s, events[i]).next;
        ck_assert_int_eq(s, states[i]);
    }
}
END_TEST

/* Any failure while ranks may run ends them. */
START_TEST(trouble_ends_the_ranks)
{
    static const enum job_event trouble[] = {
        JOB_EV_FAILED, JOB_EV_AGENT_LOST,  JOB_EV_TIMEOUT,
        JOB_EV_SIGNAL, JOB_EV_READER_GONE, JOB_EV_SIGNAL_AGAIN};

    for (size_t i = 0; i < sizeof(trouble) / sizeof(trouble[0]); i++) {
        ck_assert_int_eq(job_step(JOB_ROUTING, trouble[i]).next, JOB_DRAINING);
        ck_assert_int_eq(job_step(JOB_LAUNCHING, trouble[i]).next, JOB_ENDING);
        ck_assert_int_eq(job_step(JOB_RUNNING, trouble[i]).next, JOB_ENDING);
    }
}
END_TEST

/* While nothing runs, a failure waits a moment for those of other hosts. */
START_TEST(failures_to_connect_settle)
{
    ck_assert_int_eq(job_step(JOB_CONNECTING, JOB_EV_AGENT_LOST).next,
                     JOB_SETTLING);
    ck_assert_int_eq(job_step(JOB_CONNECTING, JOB_EV_FAILED).next,
                     JOB_SETTLING);
    ck_assert_int_eq(job_step(JOB_SETTLING, JOB_EV_AGENT_LOST).next,
                     JOB_SETTLING);
    ck_assert_int_eq(job_step(JOB_SETTLING, JOB_EV_CONNECTED).next,
                     JOB_SETTLING);
    ck_assert_int_eq(job_step(JOB_SETTLING, JOB_EV_SETTLED).next, JOB_DRAINING);
}
END_TEST

/* Ctrl-C and the time limits have effect in every state that waits. */
START_TEST(always_impatient)
{
    for (enum job_state s = JOB_CONNECTING; s < JOB_DONE; s++) {
        struct job_transition t = job_step(s, JOB_EV_SIGNAL_AGAIN);

        ck_assert_int_ne(t.action, JOB_ACT_NONE);
        ck_assert_int_ge(t.next, JOB_ENDING);
        if (s == JOB_ENDING)
            continue; /* the grace time ends this state */
        ck_assert_int_ne(job_step(s, JOB_EV_TIMEOUT).action, JOB_ACT_NONE);
        ck_assert_int_ne(job_step(s, JOB_EV_SIGNAL).action, JOB_ACT_NONE);
    }
}
END_TEST

/* When the last host goes, in any state, the job ends. */
START_TEST(no_hosts_no_job)
{
    for (enum job_state s = JOB_CONNECTING; s < JOB_DRAINING; s++)
        ck_assert_int_eq(job_step(s, JOB_EV_GONE).next, JOB_DRAINING);
}
END_TEST

START_TEST(second_signal_kills)
{
    ck_assert_int_eq(job_step(JOB_RUNNING, JOB_EV_SIGNAL).action, JOB_ACT_END);
    ck_assert_int_eq(job_step(JOB_ENDING, JOB_EV_SIGNAL).action, JOB_ACT_NONE);
    ck_assert_int_eq(job_step(JOB_ENDING, JOB_EV_SIGNAL_AGAIN).action,
                     JOB_ACT_KILL);
    ck_assert_int_eq(job_step(JOB_DRAINING, JOB_EV_SIGNAL).action,
                     JOB_ACT_DISCARD);
}
END_TEST

START_TEST(names)
{
    for (STATES(s))
        ck_assert_uint_gt(strlen(job_state_name(s)), 0);
    for (EVENTS(e))
        ck_assert_uint_gt(strlen(job_event_name(e)), 0);
    ck_assert_str_eq(job_state_name(JOB_STATE_COUNT), "unknown");
    ck_assert_str_eq(job_event_name(JOB_EVENT_COUNT), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job_state");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, never_goes_back);
    tcase_add_test(tc, done_is_final);
    tcase_add_test(tc, entering_acts);
    tcase_add_test(tc, good_path);
    tcase_add_test(tc, trouble_ends_the_ranks);
    tcase_add_test(tc, failures_to_connect_settle);
    tcase_add_test(tc, always_impatient);
    tcase_add_test(tc, no_hosts_no_job);
    tcase_add_test(tc, second_signal_kills);
    tcase_add_test(tc, names);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
