/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real hvd-agent's heartbeat: clocks, a silent hvdrun, a stopped agent; and
 * hvdrun's resource limits in LAUNCH.
 */
#include "lib/base/sys/clock.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void ping(uint32_t silence_ms)
{
    struct hb_buf frame = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_ping(&frame, hb_now_ns(), silence_ms), 0);
    peer_send(&peer, &frame);
    hb_buf_free(&frame);
}

/* ---- Clocks ---- */

START_TEST(test_pong_has_the_clock)
{
    uint64_t before = hb_now_ns();

    ping(0);
    peer_until(&peer, CONTROL_PONG);
    ck_assert_uint_ge(peer.pong_ping_ns, before);
    ck_assert_uint_ge(peer.pong_now_ns, peer.pong_ping_ns);
    ck_assert_uint_le(peer.pong_now_ns, hb_now_ns());
    peer_finish(0);
}
END_TEST

START_TEST(test_pong_while_ranks_run)
{
    peer_run(&peer, "sleep 1000", 2);
    ping(60000);
    peer_until(&peer, CONTROL_PONG);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* ---- A silent hvdrun ---- */

START_TEST(test_silent_hvdrun)
{
    peer_run(&peer, "sleep 1000", 2);
    ping(90);
    peer_until(&peer, CONTROL_QUITTING);
    ck_assert_str_eq(peer.quitting,
                     "its agent heard nothing from hvdrun for 0.09 s");
    while (peer_next(&peer) != 0)
        ;
    ck_assert_int_eq(peer.done, 0);
    ck_assert_int_eq(process_lives(peer.pids[0]), 0);
    peer_finish(1);
}
END_TEST

START_TEST(test_silent_hvdrun_before_the_launch)
{
    ping(90);
    peer_until(&peer, CONTROL_QUITTING);
    ck_assert_int_eq(peer_next(&peer), 0);
    peer_finish(1);
}
END_TEST

/* The last PING counts; here it switches the heartbeat off. */
START_TEST(test_excused_hvdrun)
{
    uint64_t end;

    peer_run(&peer, "sleep 1000", 1);
    ping(90);
    ping(0);
    peer_until(&peer, CONTROL_PONG);
    peer_until(&peer, CONTROL_PONG);
    end = hb_now_ns() + 400000000;
    while (hb_now_ns() < end) {
        struct pollfd word = {peer.fd, POLLIN, 0};

        ck_assert_int_eq(poll(&word, 1, 50), 0);
    }
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* A stopped agent reads what it was sent meanwhile. */
START_TEST(test_stopped_agent_is_not_deaf)
{
    peer_run(&peer, "sleep 1000", 1);
    ping(3000);
    peer_until(&peer, CONTROL_PONG);
    kill(peer.agent, SIGSTOP);
    for (int i = 0; i < 4; i++) {
        poll(NULL, 0, 300);
        ping(3000);
    }
    kill(peer.agent, SIGCONT);
    for (int i = 0; i < 4; i++)
        peer_until(&peer, CONTROL_PONG);
    ck_assert_str_eq(peer.quitting, "");
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* ---- A stopped agent ---- */

static int said[2];

/* Opens an agent whose stderr is a pipe of ours. */
static void setup_listening(void)
{
    int old = dup(2);

    ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
    ck_assert_int_eq(dup2(said[1], 2), 2);
    peer_setup();
    dup2(old, 2);
    close(old);
    close(said[1]);
}

static void wait_said(const char *text)
{
    static char all[4096];
    static size_t len;

    while (!strstr(all, text)) {
        struct pollfd ready = {said[0], POLLIN, 0};
        ssize_t n;

        ck_assert_msg(poll(&ready, 1, PEER_WAIT_MS) == 1, "not said: %s", text);
        n = read(said[0], all + len, sizeof(all) - 1 - len);
        ck_assert_msg(n > 0, "not said: %s", text);
        len += (size_t)n;
        all[len] = '\0';
    }
}

START_TEST(test_stop_is_told)
{
    char text[128];

    peer_run(&peer, "sleep 1000", 1);
    kill(peer.agent, SIGSTOP);
    snprintf(text, sizeof(text),
             "hvd-agent: the agent (pid %d) was stopped by SIGSTOP\n",
             (int)peer.agent);
    wait_said(text);
    kill(peer.agent, SIGCONT);
    snprintf(text, sizeof(text), "hvd-agent: the agent (pid %d) runs again\n",
             (int)peer.agent);
    wait_said(text);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* An agent that was stopped for too long ends its ranks. */
START_TEST(test_stopped_for_too_long)
{
    peer_run(&peer, "sleep 1000", 2);
    ping(300);
    peer_until(&peer, CONTROL_PONG);
    kill(peer.agent, SIGSTOP);
    wait_said("stopped by SIGSTOP for 0.3 s, is ended, and its ranks\n");
    while (peer_next(&peer) != 0)
        ;
    peer_finish(137);
    ck_assert_int_eq(process_lives(peer.pids[0]), 0);
    ck_assert_int_eq(process_lives(peer.pids[1]), 0);
}
END_TEST

/* Without a heartbeat an agent may be stopped for ever. */
START_TEST(test_stopped_without_a_heartbeat)
{
    struct pollfd end = {peer.guardian_pidfd, POLLIN, 0};

    peer_run(&peer, "sleep 1000", 1);
    ping(300);
    ping(0);
    peer_until(&peer, CONTROL_PONG);
    peer_until(&peer, CONTROL_PONG);
    kill(peer.agent, SIGSTOP);
    wait_said("was stopped by SIGSTOP\n");
    ck_assert_int_eq(poll(&end, 1, 600), 0);
    kill(peer.agent, SIGCONT);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* ---- Limits ---- */

static void launch_with_limits(struct control_launch *m)
{
    peer_launch(&peer, m);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->exit_code, 0);
}

START_TEST(test_limits_are_carried)
{
    struct control_launch m;

    peer_launch_init(&m, "ulimit -Sn; ulimit -Sc; ulimit -Hn", 1);
    m.limits[CONTROL_LIMIT_NOFILE] = (struct control_soft_limit){1, 77};
    m.limits[CONTROL_LIMIT_CORE] = (struct control_soft_limit){1, 0};
    launch_with_limits(&m);
    ck_assert_msg(strncmp(hb_buf_data(&peer.output[0][0]), "77\n0\n", 5) == 0,
                  "%s", hb_buf_data(&peer.output[0][0]));
    ck_assert_str_ne(hb_buf_data(&peer.output[0][0]), "77\n0\n77\n");
    peer_finish(0);
}
END_TEST

/* A limit above the host's hard limit, which only root may raise, becomes the
 * hard limit. */
START_TEST(test_limits_that_the_host_does_not_allow)
{
    struct control_launch m;
    struct rlimit files;
    char want[64];

    getrlimit(RLIMIT_NOFILE, &files);
    peer_launch_init(&m, "ulimit -Sn", 1);
    m.limits[CONTROL_LIMIT_NOFILE] =
        (struct control_soft_limit){1, RLIM_INFINITY};
    launch_with_limits(&m);
    snprintf(want, sizeof(want), "%llu\n", (unsigned long long)files.rlim_max);
    ck_assert_str_eq(hb_buf_data(&peer.output[0][0]), want);
    ck_assert_ptr_nonnull(strstr(peer.log, "the limit on open files"));
    peer_finish(0);
}
END_TEST

START_TEST(test_limits_that_are_not_given)
{
    struct control_launch m;
    struct rlimit files;
    char want[64];

    getrlimit(RLIMIT_NOFILE, &files);
    peer_launch_init(&m, "ulimit -Sn", 1);
    launch_with_limits(&m);
    snprintf(want, sizeof(want), "%llu\n", (unsigned long long)files.rlim_cur);
    ck_assert_str_eq(hb_buf_data(&peer.output[0][0]), want);
    peer_finish(0);
}
END_TEST

START_TEST(test_output_window)
{
    struct control_launch m;

    peer.auto_ack = 0;
    peer_launch_init(&m, "head -c 1000000 /dev/zero | tr '\\0' x", 1);
    m.output_window = CONTROL_OUTPUT_WINDOW_MIN;
    peer_launch(&peer, &m);
    while (peer.unacked < CONTROL_OUTPUT_WINDOW_MIN)
        peer_until(&peer, CONTROL_OUTPUT);
    ping(0);
    peer_until(&peer, CONTROL_PONG);
    ck_assert_uint_eq(peer.unacked, CONTROL_OUTPUT_WINDOW_MIN);
    peer.auto_ack = 1;
    peer_send_u32(&peer, CONTROL_OUTPUT_ACK, peer.unacked);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_uint_eq(hb_buf_len(&peer.output[0][0]), 1000000);
    peer_finish(0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agent_beat");
    TCase *t = tcase_create("beat"), *stops = tcase_create("stops");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, peer_setup, peer_teardown);
    tcase_add_test(t, test_pong_has_the_clock);
    tcase_add_test(t, test_pong_while_ranks_run);
    tcase_add_test(t, test_silent_hvdrun);
    tcase_add_test(t, test_silent_hvdrun_before_the_launch);
    tcase_add_test(t, test_excused_hvdrun);
    tcase_add_test(t, test_stopped_agent_is_not_deaf);
    tcase_add_test(t, test_limits_are_carried);
    tcase_add_test(t, test_limits_that_the_host_does_not_allow);
    tcase_add_test(t, test_limits_that_are_not_given);
    tcase_add_test(t, test_output_window);
    suite_add_tcase(s, t);
    tcase_set_timeout(stops, 60);
    tcase_add_checked_fixture(stops, setup_listening, peer_teardown);
    tcase_add_test(stops, test_stop_is_told);
    tcase_add_test(stops, test_stopped_for_too_long);
    tcase_add_test(stops, test_stopped_without_a_heartbeat);
    suite_add_tcase(s, stops);
    return unit_run(s);
}
