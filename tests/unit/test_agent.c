/* SPDX-License-Identifier: Apache-2.0 */
/* The real hvd-agent, driven as hvdrun drives it. */
#include "lib/agent/rank/tree.h"
#include "lib/base/sys/clock.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Ends ---- */

START_TEST(test_four_true)
{
    peer_run(&peer, "true", 4);
    ck_assert_int_eq(peer.started, 4);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer.exited_count, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(peer.exited[i].exit_code, 0);
        ck_assert_int_eq(peer_exited(i)->pid, peer.pids[i]);
        ck_assert_int_eq(peer.ended[i][0], 1);
        ck_assert_int_eq(peer.ended[i][1], 1);
    }
    ck_assert_int_eq(peer_next(&peer), 0); /* ends by itself */
    peer_finish(0);
}
END_TEST

START_TEST(test_exit_codes_and_signals)
{
    peer_run(&peer,
             "case $HVD_RANK in 1) exit 7 ;; 2) kill -SEGV $$ ;; "
             "3) echo out; echo err >&2; exit 255 ;; esac",
             4);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->exit_code, 0);
    ck_assert_int_eq(peer_exited(1)->exit_code, 7);
    ck_assert_int_eq(peer_exited(1)->cause, CONTROL_CAUSE_EXIT);
    ck_assert_int_eq(peer_exited(2)->exit_code, 139);
    ck_assert_int_eq(peer_exited(2)->signal, SIGSEGV);
    ck_assert_int_eq(peer_exited(2)->cause, CONTROL_CAUSE_SIGNAL);
    ck_assert_int_eq(peer_exited(3)->exit_code, 255);
    ck_assert_str_eq(peer_exited(3)->stderr_tail, "err\n");
    ck_assert_str_eq(hb_buf_data(&peer.output[3][0]), "out\n");
    ck_assert_str_eq(hb_buf_data(&peer.output[3][1]), "err\n");
    peer_finish(0);
}
END_TEST

/* Ranks die one after the other while the agent is stopped: it then reports
 * them in that order. */
START_TEST(test_order_of_death)
{
    static const int order[] = {2, 0, 3, 1};

    peer_run(&peer, "exec sleep 1000", 4);
    kill(peer.agent, SIGSTOP);
    for (int i = 0; i < 4; i++) {
        struct tree_proc p;

        kill(peer.pids[order[i]], SIGKILL);
        while (!tree_stat(peer.pids[order[i]], &p) || p.state != 'Z')
            ;
    }
    kill(peer.agent, SIGCONT);
    peer_until(&peer, CONTROL_DONE);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(peer.exited[i].rank, order[i]);
        ck_assert_int_eq(peer.exited[i].exit_code, 137);
        ck_assert_ptr_nonnull(
            strstr(peer.exited[i].detail, "by an unknown process"));
    }
    peer_finish(0);
}
END_TEST

START_TEST(test_a_grandchild_with_stdout_delays_nothing)
{
    uint64_t start = hb_now_ns();

    peer_run(&peer, "sleep 1000 & [ $HVD_RANK = 0 ] && exit 9; wait", 2);
    peer_until(&peer, CONTROL_EXITED);
    ck_assert_int_eq(peer.exited[0].exit_code, 9);
    ck_assert_uint_lt(hb_now_ns() - start, UINT64_C(20000000000));
    peer_send_u32(&peer, CONTROL_KILL, 10000);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(1)->cause, CONTROL_CAUSE_HVDRUN);
    ck_assert_int_eq(peer_exited(1)->signal, SIGTERM);
    peer_finish(0);
}
END_TEST

/* Processes that outlive successful ranks get a moment, then SIGTERM. */
START_TEST(test_leftovers_end)
{
    peer_run(&peer,
             "setsid sh -c \"trap 'echo bye; exit' TERM; echo up; "
             "while :; do sleep 0.1; done\" & "
             "read x </dev/null; sleep 0.1; exit 0",
             1);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->exit_code, 0);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&peer.output[0][0]), "bye\n"));
    peer_finish(0);
}
END_TEST

/* tee in a process substitution ends by itself, and its output is complete. */
START_TEST(test_late_writer_is_heard)
{
    peer_run(&peer, "(sleep 0.1; echo late) & exit 0", 1);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_str_eq(hb_buf_data(&peer.output[0][0]), "late\n");
    peer_finish(0);
}
END_TEST

/* ---- Killing ---- */

static const char *const stubborn =
    "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; echo up; "
    "while :; do sleep 1000; done' &); echo up; "
    "while :; do sleep 1000; done";

static void run_stubborn(int grace_ms)
{
    struct control_launch m;

    peer_launch_init(&m, stubborn, 2);
    m.spec.grace_ms = grace_ms;
    peer_launch(&peer, &m);
    for (int i = 0; i < 2; i++)
        peer_until_output(&peer, i, "up\nup\n");
}

START_TEST(test_grace_then_kill)
{
    run_stubborn(60000);
    peer_send_u32(&peer, CONTROL_KILL, 100);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->signal, SIGKILL);
    ck_assert_int_eq(peer_exited(0)->cause, CONTROL_CAUSE_HVDRUN);
    peer_finish(0);
}
END_TEST

START_TEST(test_kill_at_once)
{
    run_stubborn(60000);
    peer_send_u32(&peer, CONTROL_KILL, 60000);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(1)->signal, SIGKILL);
    peer_finish(0);
}
END_TEST

START_TEST(test_stopped_ranks_can_be_terminated)
{
    peer_run(&peer,
             "trap 'echo bye; exit 5' TERM; echo up; kill -STOP $$; "
             "while :; do sleep 0.05; done",
             1);
    peer_until_output(&peer, 0, "up\n");
    peer_send_u32(&peer, CONTROL_KILL, 60000);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->exit_code, 5);
    peer_finish(0);
}
END_TEST

START_TEST(test_hang_up_kills_everything)
{
    pid_t pids[2];

    run_stubborn(100);
    memcpy(pids, peer.pids, sizeof(pids));
    peer_finish(1); /* the guardian ends once nothing is left */
    ck_assert_int_eq(process_lives(pids[0]), 0);
    ck_assert_int_eq(process_lives(pids[1]), 0);
}
END_TEST

START_TEST(test_sigkill_of_the_agent_leaves_nothing)
{
    pid_t pids[2];

    run_stubborn(60000);
    memcpy(pids, peer.pids, sizeof(pids));
    kill(peer.agent, SIGKILL);
    while (peer_next(&peer) != 0)
        ;
    peer_finish(137);
    ck_assert_int_eq(process_lives(pids[0]), 0);
    ck_assert_int_eq(process_lives(pids[1]), 0);
}
END_TEST

START_TEST(test_sigkill_of_the_guardian_ends_the_job)
{
    run_stubborn(100);
    kill(peer.guardian, SIGKILL);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_ptr_nonnull(strstr(peer.quitting, "guardian"));
    peer_finish(137);
    wait_gone(peer.agent);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}
END_TEST

/* sshd closes its end of the agent's input when the guardian dies, and goes on
 * reading the output.  Both processes are stopped meanwhile, so that the agent
 * sees the end of its input first, and the guardian does not see it. */
START_TEST(test_sigkill_of_the_guardian_ends_the_input)
{
    siginfo_t info;

    run_stubborn(100);
    kill(peer.agent, SIGSTOP);
    kill(peer.guardian, SIGSTOP);
    ck_assert_int_eq(
        waitid(P_PID, (id_t)peer.guardian, &info, WSTOPPED | WNOWAIT), 0);
    shutdown(peer.fd, SHUT_WR);
    kill(peer.guardian, SIGKILL);
    ck_assert_int_eq(
        waitid(P_PID, (id_t)peer.guardian, &info, WEXITED | WNOWAIT), 0);
    kill(peer.agent, SIGCONT);
    peer_until(&peer, CONTROL_QUITTING);
    ck_assert_ptr_nonnull(strstr(peer.quitting, "guardian"));
    while (peer_next(&peer) != 0)
        ;
    peer_finish(137);
    wait_gone(peer.agent);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}
END_TEST

/* A stopped agent cannot notice that hvdrun has gone; the guardian can. */
START_TEST(test_hang_up_while_the_agent_is_stopped)
{
    run_stubborn(100);
    kill(peer.agent, SIGSTOP);
    peer_finish(137);
    ck_assert_int_eq(process_lives(peer.pids[0]), 0);
}
END_TEST

START_TEST(test_sigterm_of_the_agent_ends_the_job)
{
    peer_run(&peer, "exec sleep 1000", 2);
    kill(peer.guardian, SIGTERM); /* ignored */
    kill(peer.agent, SIGTERM);
    peer_until(&peer, CONTROL_QUITTING);
    ck_assert_int_eq(peer.exited_count, 0);
    ck_assert_ptr_nonnull(strstr(peer.quitting, "the agent got SIGTERM from "
                                                "pid"));
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->cause, CONTROL_CAUSE_HVDRUN);
    peer_finish(0);
}
END_TEST

START_TEST(test_signals_reach_the_groups)
{
    peer_run(&peer,
             "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done", 2);
    for (int i = 0; i < 2; i++)
        peer_until_output(&peer, i, "up\n");
    peer_send_u32(&peer, CONTROL_SIGNAL, SIGUSR1);
    peer_until_output(&peer, 0, "usr1");
    peer_until_output(&peer, 1, "usr1");
    peer_send_u32(&peer, CONTROL_SIGNAL, SIGUSR2);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->signal, SIGUSR2);
    ck_assert_int_eq(peer_exited(0)->cause, CONTROL_CAUSE_HVDRUN);
    peer_finish(0);
}
END_TEST

static void add_ends(Suite *s)
{
    TCase *t = tcase_create("ends");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, peer_setup, peer_teardown);
    tcase_add_test(t, test_four_true);
    tcase_add_test(t, test_exit_codes_and_signals);
    tcase_add_test(t, test_order_of_death);
    tcase_add_test(t, test_a_grandchild_with_stdout_delays_nothing);
    tcase_add_test(t, test_leftovers_end);
    tcase_add_test(t, test_late_writer_is_heard);
    tcase_add_test(t, test_grace_then_kill);
    tcase_add_test(t, test_kill_at_once);
    tcase_add_test(t, test_stopped_ranks_can_be_terminated);
    tcase_add_test(t, test_hang_up_kills_everything);
    tcase_add_test(t, test_sigkill_of_the_agent_leaves_nothing);
    tcase_add_test(t, test_sigkill_of_the_guardian_ends_the_job);
    tcase_add_test(t, test_sigkill_of_the_guardian_ends_the_input);
    tcase_add_test(t, test_hang_up_while_the_agent_is_stopped);
    tcase_add_test(t, test_sigterm_of_the_agent_ends_the_job);
    tcase_add_test(t, test_signals_reach_the_groups);
    suite_add_tcase(s, t);
}

int main(void)
{
    Suite *s = suite_create("agent");

    add_ends(s);
    return unit_run(s);
}
