/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job on several hosts: failures to connect, the order of failures on
 * different hosts, heartbeats, lost hosts.
 */
#include "lib/base/alloc.h"
#include "lib/job/job_impl.h"
#include "lib/job/stall/stall_inspector.h"
#include "lib/job/survey.h"
#include "tests/unit/job_util.h"

#include <signal.h>
#include <string.h>

START_TEST(two_hosts)
{
    use_hosts(2);
    script_of("a", "started;out 0 1 hi;exit 0 0;exit 1 0;done;eof");
    script_of("b", "started;out 3 1 ho;exit 2 0;exit 3 0;done;eof");
    start("hello;launch");
    wait_for_output("[0]<stdout>:hi\n");
    wait_for_output("[3]<stdout>:ho\n");
    finish(0, hb_buf_data(&out), "");
}
END_TEST

START_TEST(ranks_in_turn)
{
    map_by_node(2);
    script_of("a", "started;out 2 1 hi;exit 0 0;exit 2 4;kill 60000;done;eof");
    script_of("b", "started;abort 2;kill 60000;ours 1 143;ours 3 143;done;eof");
    start("hello;launch");
    wait_for_output("[2]<stdout>:hi\n");
    finish(4, hb_buf_data(&out),
           "hvdrun: rank 2 on host a (pid 102) failed: exit code 4\n"
           "hvdrun: ended 2 other ranks; exit code 4\n");
}
END_TEST

START_TEST(ranks_in_turn_of_a_lost_host)
{
    map_by_node(2);
    script_of("a", "started;kill 60000;ours 0 143;ours 2 143;done;eof");
    script_of("b", "started");
    start("hello;launch");
    finish(125, "",
           "hvdrun: host b: lost the agent: its connection ended; ranks 1, 3 "
           "end with it\n"
           "hvdrun: ended 2 other ranks; exit code 125\n");
}
END_TEST

/* The other host hears of the culprit, then of the end. */
START_TEST(failure_reaches_other_hosts)
{
    use_hosts(2);
    /* Later than the clocks of two hosts may differ on a busy machine. */
    script_of("a", "started;abort 3;kill 60000;pause 200;exit 0 1;ours 1 143;"
                   "done;eof");
    script_of("b", "started;exit 3 9;kill 60000;ours 2 143;done;eof");
    start("hello;launch");
    finish(9, "",
           "hvdrun: rank 3 on host b (pid 103) failed: exit code 9\n"
           "hvdrun: rank 0 failed too: exit code 1\n"
           "hvdrun: ended 2 other ranks; exit code 9\n");
}
END_TEST

/* The culprit is on another host than the rank that blames it.  The ranks there
 * hear of the culprit, not of the rank that ended first. */
START_TEST(culprit_on_another_host)
{
    use_hosts(2);
    script_of("a", "started;blames 3;exit 0 1;abort 3;kill 60000;ours 1 143;"
                   "done;eof");
    script_of("b", "started;pause 200;exit 3 9;kill 60000;ours 2 143;done;eof");
    start("hello;launch");
    finish(9, "",
           "hvdrun: rank 3 on host b (pid 103) failed: exit code 9\n"
           "hvdrun: rank 0 failed too: exit code 1\n"
           "hvdrun: ended 2 other ranks; exit code 9\n");
}
END_TEST

/* hvdrun does not wait for a culprit on a lost host. */
START_TEST(culprit_on_a_lost_host)
{
    use_hosts(2);
    script_of("a", "started;pause 100;blames 3;exit 0 1;kill 60000;ours 1 143;"
                   "done;eof");
    script_of("b", "started");
    start("hello;launch");
    finish_saying(125, "lost the agent");
}
END_TEST

/* b is named first, although rank 0 failed before its loss was noticed. */
START_TEST(a_lost_host_is_to_blame)
{
    use_hosts(2);
    script_of("a", "started;kill 60000;blames 3;ago 1000;exit 0 1;ours 1 143;"
                   "done;eof");
    script_of("b", "started");
    start("hello;launch");
    finish(125, "",
           "hvdrun: host b: lost the agent: its connection ended; ranks 2, 3 "
           "end with it\n"
           "hvdrun: rank 0 failed too: exit code 1\n"
           "hvdrun: ended 1 other rank; exit code 125\n");
}
END_TEST

/* The host of the culprit is named first, although its loss is noticed last. */
START_TEST(the_lost_host_of_the_culprit_is_named_first)
{
    use_hosts(3);
    script_of("a", "started;kill 60000;blames 5;ago 1000;exit 0 1;ours 1 143;"
                   "done;eof");
    script_of("b", "started");
    script_of("c", "started;kill 60000;quit its guardian was killed");
    start("hello;launch");
    finish(125, "",
           "hvdrun: host c: its guardian was killed; ranks 4, 5 end with it\n"
           "hvdrun: host b: lost the agent: its connection ended; ranks 2, 3 "
           "end with it\n"
           "hvdrun: rank 0 failed too: exit code 1\n"
           "hvdrun: ended 3 other ranks; exit code 125\n");
}
END_TEST

START_TEST(lost_host_ends_the_others)
{
    use_hosts(2);
    script_of("a", "started");
    script_of("b", "started;kill 60000;ours 2 143;ours 3 143;done;eof");
    start("hello;launch");
    finish(125, "",
           "hvdrun: host a: lost the agent: its connection ended; ranks 0, 1 "
           "end with it\n"
           "hvdrun: ended 2 other ranks; exit code 125\n");
}
END_TEST

/* A host that says why it quits and is then lost is reported once. */
START_TEST(a_host_that_quits_and_is_lost)
{
    use_hosts(2);
    script_of("a", "started;quit its guardian was killed;kill 60000");
    script_of("b", "started;kill 60000;ours 2 143;ours 3 143;done;eof");
    start("hello;launch");
    finish(125, "",
           "hvdrun: host a: its guardian was killed; ranks 0, 1 end with it\n"
           "hvdrun: ended 4 ranks; exit code 125\n");
}
END_TEST

/* ---- Order ---- */

/* Rank 0's failure is reported first, but rank 3 failed earlier, on a host
 * whose clock differs. */
static void two_failures(const char *clock_of_b)
{
    char script[160];

    use_hosts(2);
    script_of("a", "started;ago 10;exit 0 1;kill 60000;exit 1 0;done;eof");
    snprintf(script, sizeof(script),
             "started;abort 0;%s;ago 4000;exit 3 9;kill 60000;exit 2 0;done;"
             "eof",
             clock_of_b);
    script_of("b", script);
}

START_TEST(the_earliest_failure_is_the_cause)
{
    two_failures("ahead 0");
    start("hello;launch");
    finish(9, "",
           "hvdrun: rank 3 on host b (pid 103) failed: exit code 9\n"
           "hvdrun: rank 0 failed too: exit code 1\n"
           "hvdrun: ended 2 other ranks; exit code 9\n");
}
END_TEST

START_TEST(clocks_are_compared)
{
    /* By its clock b's failure is 6 s later; in truth it was 4 s ago. */
    use_hosts(2);
    use_rsh();
    script_of("a", "hello;launch;started;ago 5000;exit 0 1;kill 60000;"
                   "exit 1 0;done;eof");
    script_of("b", "ahead 3600000;hello;launch;started;abort 0;ago 4000;"
                   "exit 3 9;kill 60000;exit 2 0;done;eof");
    start("");
    finish(1, "",
           "hvdrun: rank 0 on host a (pid 100) failed: exit code 1\n"
           "hvdrun: rank 3 failed too: exit code 9\n"
           "hvdrun: ended 2 other ranks; exit code 1\n");
}
END_TEST

START_TEST(clocks_are_compared_the_other_way)
{
    /* Clock offsets no larger than the uptime of the test machine. */
    use_hosts(2);
    use_rsh();
    script_of("a", "ahead -20000;hello;launch;started;ago 4000;exit 0 1;"
                   "kill 60000;exit 1 0;done;eof");
    script_of("b", "hello;launch;started;abort 0;ago 5000;exit 3 9;"
                   "kill 60000;exit 2 0;done;eof");
    start("");
    finish(9, "",
           "hvdrun: rank 3 on host b (pid 103) failed: exit code 9\n"
           "hvdrun: rank 0 failed too: exit code 1\n"
           "hvdrun: ended 2 other ranks; exit code 9\n");
}
END_TEST

/* A failure before a loss is named first, though reported after it. */
START_TEST(a_failure_before_a_loss)
{
    use_hosts(2);
    script_of("a", "started");
    script_of("b", "started;kill 60000;ago 1000;exit 3 9;ours 2 143;done;eof");
    start("hello;launch");
    finish(9, "",
           "hvdrun: rank 3 on host b (pid 103) failed: exit code 9\n"
           "hvdrun: host a: lost the agent: its connection ended; ranks 0, 1 "
           "end with it\n"
           "hvdrun: ended 1 other rank; exit code 9\n");
}
END_TEST

/* ---- Connecting ---- */

/* All fail together, as those that fail later than others are not told. */
START_TEST(all_failures_to_connect_are_told)
{
    make_barrier();
    use_hosts(4);
    use_rsh();
    script_of("a", "hello;barrier 4;eof");
    script_of("b", "barrier 4;failed 125 no room on b");
    script_of("c", "barrier 4;say nothing works here");
    script_of("d", "barrier 4;failed 125 no room on d");
    start("");
    finish_saying(125, "hvdrun: hosts b, d: no room on ");
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&err), "hvdrun: host c: "));
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "host a"));
    ck_assert_ptr_null(strstr(hb_buf_data(&err), "ended"));
}
END_TEST

/* Once a host has failed, hosts that still connect get a moment only. */
START_TEST(others_have_a_moment_only)
{
    use_hosts(3);
    use_rsh();
    config.start_timeout_ms = 600000;
    script_of("a", "eof");
    script_of("b", "failed 125 no room");
    script_of("c", "hello;eof");
    start("");
    finish(125, "", "hvdrun: host b: no room\n");
}
END_TEST

/* c cannot be reached for good.  The other hosts are still retried, at least
 * until their second attempt, when c has failed. */
static const char unreachable[] =
    "if [ $host = c ]; then\n"
    "  while [ ! -e $dir/a2 ] || [ ! -e $dir/b2 ] || [ ! -e $dir/d2 ]; do\n"
    "    sleep 0.02\n"
    "  done\n"
    "  echo 'ssh: Could not resolve hostname c: Name or service not known' "
    ">&2\n"
    "  exit 255\n"
    "fi\n"
    "[ ! -e $dir/$host ] || : >$dir/${host}2\n"
    ": >$dir/$host\n"
    "echo 'kex_exchange_identification: read: Connection reset by peer' >&2\n"
    "exit 255";

START_TEST(all_that_is_known_is_told)
{
    const char *reset, *unknown;

    use_hosts(4);
    use_ssh(unreachable);
    start("");
    finish_saying(125, "hvdrun: hosts a, b, d: ");
    reset = strstr(hb_buf_data(&err), "hosts a, b, d: ");
    unknown = strstr(hb_buf_data(&err), "hvdrun: host c: ");
    ck_assert_ptr_nonnull(unknown);
    ck_assert_msg(strstr(reset, "Connection reset by peer") != NULL, "%s",
                  hb_buf_data(&err));
    ck_assert_ptr_nonnull(strstr(unknown, "Name or service not known"));
    ck_assert_msg(reset < unknown, "%s", hb_buf_data(&err));
}
END_TEST

START_TEST(table_has_reasons)
{
    use_hosts(4);
    use_rsh();
    config.start_timeout_ms = 2000;
    for (int i = 0; i < 4; i++)
        script_of(hosts[i].entry->name, "eof");
    start("");
    hb_error_set(&job->hosts[1].link.setback, HVD_ECLOSED, "no route to b");
    hb_error_set(&job->hosts[2].link.setback, HVD_ECLOSED, "no route to c");
    finish_saying(125, "  hosts b, c: connecting; last attempt: no route to "
                       "b\n");
}
END_TEST

START_TEST(table_of_those_that_are_late)
{
    use_hosts(4);
    use_rsh();
    config.start_timeout_ms = 2000;
    script_of("a", "hello;eof");
    script_of("b", "eof");
    script_of("c", "eof");
    script_of("d", "hello;eof");
    start("");
    finish(125, "",
           "hvdrun: the job did not start within 2 s (--start-timeout); "
           "2 of 4 hosts are ready\n"
           "  hosts b, c: starting the agent\n");
}
END_TEST

START_TEST(table_of_those_that_do_not_launch)
{
    use_hosts(2);
    config.start_timeout_ms = 2000;
    config.spec.grace_ms = 0;
    script_of("a", "started;kill 0;ours 0 137;ours 1 137;done;eof");
    script_of("b", "kill 0;ours 2 137;ours 3 137;done;eof");
    start("hello;launch");
    finish_saying(125, "(--start-timeout); 1 of 2 hosts are ready\n"
                       "  host b: starting its ranks\n");
}
END_TEST

START_TEST(failed_launches_fold)
{
    use_hosts(3);
    script_of("a", "failed 127 prog: not found;eof");
    script_of("b", "kill 60000;ours 2 143;ours 3 143;done;eof");
    script_of("c", "failed 127 prog: not found;eof");
    start("hello;launch");
    finish(127, "",
           "hvdrun: hosts a, c: prog: not found\n"
           "hvdrun: ended 2 other ranks; exit code 127\n");
}
END_TEST

START_TEST(ctrl_c_while_connecting)
{
    use_hosts(2);
    use_rsh();
    script_of("a", "hello;eof");
    script_of("b", "eof");
    start("");
    job_signal(job, SIGINT, NULL);
    job_signal(job, SIGINT, NULL);
    finish(130, "",
           "hvdrun: SIGINT: ending the job (once more: kill it at once)\n");
}
END_TEST

START_TEST(messages_before_their_time)
{
    use_hosts(2);
    use_rsh();
    script_of("a", "hello;eof");
    script_of("b", "hello;out 2 1 x;eof");
    start("");
    finish_saying(125, "host b: lost the agent: message 3 before launch\n");
}
END_TEST

/* ---- What a lost host may still run ---- */

static void lose_a(const char *answer, const char *script_of_b)
{
    use_hosts(2);
    use_rsh();
    script_of("a", "hello;launch;started;out 0 1 hi");
    script_of("b", script_of_b);
    if (answer)
        setenv("FAKE_ANSWER_a", answer, 1);
    start("");
}

static void finish_after_a(const char *what)
{
    char *want = hb_xasprintf("hvdrun: host a: lost the agent: its connection "
                              "ended; ranks 0, 1 end with it\n"
                              "hvdrun: ended 2 other ranks; exit code 125\n%s",
                              what);

    finish(125, "[0]<stdout>:hi\n", want);
    hb_free(want);
}

static const struct {
    const char *answer, *told;
} sweeps[] = {
    {"{\"ended\": [{\"found\": true, \"had_agent\": false, "
     "\"processes\": 4, \"left\": 0}]}",
     "hvdrun: host a: ended 4 processes that the job had left there\n"},
    {"{\"ended\": [{\"found\": true, \"had_agent\": true, "
     "\"processes\": 4, \"left\": 0}]}",
     ""},
    {"{\"ended\": [{\"found\": false, \"had_agent\": false, "
     "\"processes\": 0, \"left\": 0}]}",
     ""},
    {"{\"ended\": [{\"found\": true, \"had_agent\": true, "
     "\"processes\": 4, \"left\": 1}]}",
     "hvdrun: host a: 1 process of the job could not be ended\n"
     "hvdrun: when the host can be reached, end what is left with: hvdrun "
     "clean -H 'a'\n"},
    {"{\"error\": \"/proc is not mounted\"}",
     "hvdrun: host a: what the job may have left there could not be ended: "
     "/proc is not mounted\n"
     "hvdrun: when the host can be reached, end what is left with: hvdrun "
     "clean -H 'a'\n"},
    {"{\"ended\": 7}",
     "hvdrun: host a: what the job may have left there could not be ended: its "
     "answer makes no sense\n"
     "hvdrun: when the host can be reached, end what is left with: hvdrun "
     "clean -H 'a'\n"},
    {NULL,
     "hvdrun: host a: what the job may have left there could not be ended: a "
     "second connection failed: it exited with code 1\n"
     "hvdrun: when the host can be reached, end what is left with: hvdrun "
     "clean -H 'a'\n"},
};
enum { SWEEPS = sizeof(sweeps) / sizeof(sweeps[0]) };

START_TEST(a_second_connection)
{
    lose_a(sweeps[_i].answer,
           "hello;launch;started;kill 60000;ours 2 143;ours 3 143;done;eof");
    finish_after_a(sweeps[_i].told);
}
END_TEST

/* The user's second SIGINT ends the wait for a second connection. */
START_TEST(a_second_connection_is_not_waited_for)
{
    lose_a(_i ? "deaf" : "",
           "hello;launch;started;kill 60000;kill 0;ours 2 143;ours 3 143;"
           "done;eof");
    while (job->sweeping == 0)
        uv_run(&loop, UV_RUN_ONCE);
    job_sweep_notice(job);
    wait_for_message("hvdrun: connecting again to host a, where the agent was "
                     "lost, to end what the job may have left there\n");
    job_signal(job, SIGINT, NULL);
    job_signal(job, SIGINT, NULL);
    finish_saying(125, "what the job may have left there could not be ended: "
                       "there was no time for that\n");
}
END_TEST

/* The agent of the second connection says HELLO and nothing more. */
START_TEST(a_second_connection_without_an_answer)
{
    struct survey *sweep;

    lose_a("deaf", "hello;launch;started;kill 60000;ours 2 143;ours 3 143;"
                   "done;eof");
    while (job->sweeping == 0)
        uv_run(&loop, UV_RUN_ONCE);
    sweep = job->hosts[0].sweep;
    while (sweep->hosts[0].state != SURVEY_ASKED)
        uv_run(&loop, UV_RUN_ONCE);
    survey_wait(sweep, 1);
    finish_after_a("hvdrun: host a: what the job may have left there could not "
                   "be ended: on a second connection the agent did not answer\n"
                   "hvdrun: when the host can be reached, end what is left "
                   "with: hvdrun clean -H 'a'\n");
}
END_TEST

/* Ranks of a that end before those of b have started are counted as ended. */
START_TEST(ranks_that_end_early_are_known_to_have_ended)
{
    use_hosts(2);
    script_of("a", "started;exit 0 0;exit 1 0;done;eof");
    script_of("b", "pause 200;started;signal 10;exit 2 0;exit 3 0;done;eof");
    start("hello;launch");
    while (job->exited_count < 2 || job->state != JOB_RUNNING)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_ne(stall_next_ns(job->stall), 0);
    ck_assert_int_ne(uv_is_active((uv_handle_t *)&job->stall_timer), 0);
    job_signal(job, SIGUSR1, NULL);
    finish(0, "", "");
}
END_TEST

/* ---- Heartbeats ---- */

/* Long enough for an agent to answer even if its machine is busy. */
enum { BEAT_MS = 1500 };

START_TEST(silent_agent)
{
    use_hosts(2);
    config.heartbeat_ms = BEAT_MS;
    config.spec.grace_ms = 0;
    script_of("a", "started;mute;eof");
    script_of("b", "started;kill 0;ours 2 143;ours 3 143;done;eof");
    start("hello;launch");
    finish(125, "",
           "hvdrun: host a: lost the agent: nothing was heard from it for "
           "1.5 s; ranks 0, 1 end with it\n"
           "hvdrun: ended 2 other ranks; exit code 125\n");
}
END_TEST

/* The agent's last words are reported as the likely cause of its silence. */
START_TEST(silent_agent_with_last_words)
{
    config.heartbeat_ms = 90; /* no other agent has to answer */
    config.spec.grace_ms = 0;
    start("hello;launch;started;mute;say hvd-agent: it was stopped;eof");
    finish_saying(125, "nothing was heard from it for 0.09 s (it was "
                       "stopped); ranks 0, 1 end with it\n");
}
END_TEST

/* Any message of an agent, not only the answer, is a sign of life. */
START_TEST(mute_but_busy_agent)
{
    config.heartbeat_ms = BEAT_MS;
    start("hello;launch;started;mute;pings 2;out 0 1 a;pings 2;out 0 1 b;"
          "pings 2;out 0 1 c;exit 0 0;exit 1 0;done;eof");
    finish(0, "[0]<stdout>:a\n[0]<stdout>:b\n[0]<stdout>:c\n", "");
}
END_TEST

/* An agent whose every answer is later than the next question is not lost. */
START_TEST(slow_agent)
{
    config.heartbeat_ms = BEAT_MS;
    start("slow 600;hello;launch;started;pings 6;exit 0 0;exit 1 0;done;eof");
    finish(0, "", "");
}
END_TEST

START_TEST(no_heartbeat)
{
    config.heartbeat_ms = 0;
    start("hello;silence 0;launch;started;exit 0 0;exit 1 0;done;eof");
    finish(0, "", "");
}
END_TEST

static int stops;

static void on_stop(void *arg)
{
    (void)arg;
    stops++;
}

/* hvdrun tells the agents when it stops and when it continues. */
START_TEST(stopped_hvdrun_is_excused)
{
    stops = 0;
    config.heartbeat_ms = 3600000;
    config.on_stop = on_stop;
    start("hello;silence 3600000;launch;started;out 0 1 up;signal 19;"
          "silence 0;silence 3600000;signal 18;exit 0 0;exit 1 0;done;eof");
    wait_for_output("up");
    job_signal(job, SIGTSTP, NULL);
    ck_assert_int_eq(stops, 1);
    finish(0, "[0]<stdout>:up\n", "");
}
END_TEST

/* hvdrun ends without waiting for a host that does not answer, and says so. */
START_TEST(dead_host_at_the_end)
{
    use_hosts(2);
    use_rsh();
    config.spec.grace_ms = 200;
    script_of("a", "hello;launch;started;out 0 1 hi;signal 10;exit 0 7;"
                   "kill 200;ours 1 143;done;eof");
    script_of("b", "hello;launch;mute;started;out 2 1 ho;eof");
    start("");
    wait_for_output("[0]<stdout>:hi\n");
    wait_for_output("[2]<stdout>:ho\n");
    job_signal(job, SIGUSR1, NULL);
    finish(7, hb_buf_data(&out),
           "hvdrun: rank 0 on host a (pid 100) failed: exit code 7\n"
           "hvdrun: host b: lost the agent: it does not answer; ranks 2, 3 "
           "end with it\n"
           "hvdrun: ended the other 3 ranks; exit code 7\n"
           "hvdrun: host b: what the job may have left there could not be "
           "ended: a second connection failed: it exited with code 1\n"
           "hvdrun: when the host can be reached, end what is left with: "
           "hvdrun clean -H 'b'\n");
}
END_TEST

/* hvdrun waits for a host that answers, although its ranks end slowly. */
START_TEST(slow_host_at_the_end)
{
    use_hosts(2);
    use_rsh();
    config.spec.grace_ms = 10;
    script_of("a", "hello;launch;started;exit 0 7;kill 10;ours 1 143;done;eof");
    script_of("b", "hello;launch;started;abort 0;kill 10;pings 1;pause 1200;"
                   "ours 2 143;ours 3 143;done;eof");
    start("");
    finish(7, "",
           "hvdrun: rank 0 on host a (pid 100) failed: exit code 7\n"
           "hvdrun: ended the other 3 ranks; exit code 7\n");
}
END_TEST

/* ---- Bounds ---- */

START_TEST(windows)
{
    ck_assert_int_eq(job_window(1), CONTROL_OUTPUT_WINDOW);
    ck_assert_int_eq(job_window(64), CONTROL_OUTPUT_WINDOW);
    ck_assert_int_eq(job_window(65), (32 << 20) / 65);
    ck_assert_int_eq(job_window(512), 64 << 10);
    ck_assert_int_eq(job_window(2048), CONTROL_OUTPUT_WINDOW_MIN);
    ck_assert_int_eq(job_window(65536), CONTROL_OUTPUT_WINDOW_MIN);
}
END_TEST

START_TEST(flood)
{
    start("hello;launch;started;flood 0;eof");
    wait_for_message("more output than the window");
    drain_output();
    finish_saying(125, "host a: lost the agent: more output than the window; "
                       "ranks 0, 1 end with it\n");
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, two_hosts);
    tcase_add_test(tc, ranks_in_turn);
    tcase_add_test(tc, ranks_in_turn_of_a_lost_host);
    tcase_add_test(tc, failure_reaches_other_hosts);
    tcase_add_test(tc, culprit_on_another_host);
    tcase_add_test(tc, culprit_on_a_lost_host);
    tcase_add_test(tc, a_lost_host_is_to_blame);
    tcase_add_test(tc, the_lost_host_of_the_culprit_is_named_first);
    tcase_add_test(tc, lost_host_ends_the_others);
    tcase_add_test(tc, a_host_that_quits_and_is_lost);
    tcase_add_test(tc, the_earliest_failure_is_the_cause);
    tcase_add_test(tc, clocks_are_compared);
    tcase_add_test(tc, clocks_are_compared_the_other_way);
    tcase_add_test(tc, a_failure_before_a_loss);
    tcase_add_test(tc, all_failures_to_connect_are_told);
    tcase_add_test(tc, others_have_a_moment_only);
    tcase_add_test(tc, table_of_those_that_are_late);
    tcase_add_test(tc, table_has_reasons);
    tcase_add_test(tc, all_that_is_known_is_told);
    tcase_add_test(tc, table_of_those_that_do_not_launch);
    tcase_add_test(tc, failed_launches_fold);
    tcase_add_test(tc, ctrl_c_while_connecting);
    tcase_add_test(tc, messages_before_their_time);
    tcase_add_loop_test(tc, a_second_connection, 0, SWEEPS);
    tcase_add_test(tc, a_second_connection_without_an_answer);
    tcase_add_loop_test(tc, a_second_connection_is_not_waited_for, 0, 2);
    tcase_add_test(tc, ranks_that_end_early_are_known_to_have_ended);
    tcase_add_test(tc, silent_agent);
    tcase_add_test(tc, silent_agent_with_last_words);
    tcase_add_test(tc, mute_but_busy_agent);
    tcase_add_test(tc, slow_agent);
    tcase_add_test(tc, no_heartbeat);
    tcase_add_test(tc, stopped_hvdrun_is_excused);
    tcase_add_test(tc, dead_host_at_the_end);
    tcase_add_test(tc, slow_host_at_the_end);
    tcase_add_test(tc, windows);
    tcase_add_test(tc, flood);
}

int main(int argc, char *argv[])
{
    return job_util_main("job_hosts", add_tests, argc, argv);
}
