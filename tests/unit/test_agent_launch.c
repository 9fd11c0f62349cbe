/* SPDX-License-Identifier: Apache-2.0 */
/* The real hvd-agent: launch errors, the environment, the streams. */
#include "lib/agent/rank/tree.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Launch errors ---- */

static void expect_failed(struct control_launch *m, int code, const char *text)
{
    peer_launch(&peer, m);
    peer_until(&peer, CONTROL_FAILED);
    ck_assert_int_eq(peer.failed.exit_code, code);
    ck_assert_msg(strstr(peer.failed.text, text) != NULL, "%s",
                  peer.failed.text);
    ck_assert_int_eq(peer.started, 0);
    ck_assert_int_eq(peer_next(&peer), 0);
    peer_finish(0);
}

static void set_program(struct control_launch *m, const char *program)
{
    hb_free(m->argv.items[0]);
    m->argv.items[0] = hb_xstrdup(program);
}

START_TEST(test_program_not_found)
{
    struct control_launch m;

    peer_launch_init(&m, "true", 2);
    set_program(&m, "no-such-program");
    expect_failed(&m, 127, "no-such-program: command not found");
}
END_TEST

START_TEST(test_program_not_executable)
{
    struct control_launch m;

    peer_launch_init(&m, "true", 2);
    set_program(&m, "/etc/passwd");
    expect_failed(&m, 126, "not executable");
}
END_TEST

START_TEST(test_bad_interpreter)
{
    struct control_launch m;
    struct fixture f;
    char path[128];

    fixture_open(&f);
    fixture_file(&f, "script", "#!/nowhere/python\n");
    snprintf(path, sizeof(path), "chmod 755 %s/script", f.root);
    ck_assert_int_eq(system(path), 0);
    snprintf(path, sizeof(path), "%s/script", f.root);
    peer_launch_init(&m, "true", 2);
    set_program(&m, path);
    expect_failed(&m, 126, "bad interpreter: /nowhere/python");
    fixture_close(&f);
}
END_TEST

START_TEST(test_interpreter_with_dos_line_end)
{
    struct control_launch m;
    struct fixture f;
    char path[128];

    fixture_open(&f);
    fixture_file(&f, "script", "#!/bin/sh\r\nexit 0\r\n");
    snprintf(path, sizeof(path), "%s/script", f.root);
    ck_assert_int_eq(chmod(path, 0755), 0);
    peer_launch_init(&m, "true", 2);
    set_program(&m, path);
    expect_failed(&m, 126, "carriage return");
    fixture_close(&f);
}
END_TEST

START_TEST(test_bad_directory)
{
    struct control_launch m;

    peer_launch_init(&m, "true", 2);
    hb_free(m.cwd);
    m.cwd = hb_xstrdup("/nowhere");
    expect_failed(&m, 125, "cannot enter directory /nowhere");
}
END_TEST

/* The third rank's program is missing: the first two never run. */
START_TEST(test_all_or_none)
{
    struct control_launch m;

    peer_launch_init(&m, "sleep 1000", 3);
    hb_strv_add(&m.ranks[2].env, "PATH=/nowhere");
    expect_failed(&m, 127, "sh: command not found");
}
END_TEST

/* Launching fails half way: ranks already running are killed. */
START_TEST(test_too_few_descriptors)
{
    struct rlimit few = {24, 24};
    struct control_launch m;

    peer_finish(0);
    setrlimit(RLIMIT_NOFILE, &few);
    peer_open(&peer);
    peer_launch_init(&m, "sleep 1000", 16);
    expect_failed(&m, 125, "ulimit -n");
}
END_TEST

START_TEST(test_garbage_ends_the_agent)
{
    struct hb_buf b = HB_BUF_INIT;

    peer_run(&peer, "sleep 1000", 1);
    hb_buf_puts(&b, "GET / HTTP/1.1\r\n\r\n");
    peer_send(&peer, &b);
    while (peer_next(&peer) != 0)
        ;
    hb_buf_free(&b);
    peer_finish(1);
}
END_TEST

/* ---- Environment ---- */

START_TEST(test_environment_is_what_was_sent)
{
    struct control_launch m;
    const char *out;

    setenv("HVD_TEST_LEAK", "1", 1);
    peer_launch_init(&m, "env | sort", 2);
    hb_strv_add(&m.env, "A=common");
    hb_strv_add(&m.env, "B=x y\nz");
    hb_strv_add(&m.env, "HVD_RENDEZVOUS=forged");
    hb_strv_add(&m.ranks[1].env, "A=mine");
    peer_launch(&peer, &m);
    peer_until(&peer, CONTROL_DONE);
    out = hb_buf_data(&peer.output[0][0]);
    ck_assert_ptr_nonnull(strstr(out, "A=common\n"));
    ck_assert_ptr_nonnull(strstr(out, "B=x y\n"));
    ck_assert_ptr_nonnull(strstr(out, "HVD_RANK=0\n"));
    ck_assert_ptr_nonnull(strstr(out, "HVD_RENDEZVOUS=unix:@hvd-"));
    ck_assert_ptr_nonnull(strstr(out, "MASTER_PORT="));
    ck_assert_ptr_null(strstr(out, "forged"));
    ck_assert_ptr_null(strstr(out, "HVD_TEST_LEAK"));
    out = hb_buf_data(&peer.output[1][0]);
    ck_assert_ptr_nonnull(strstr(out, "A=mine\n"));
    ck_assert_ptr_null(strstr(out, "A=common\n"));
    peer_finish(0);
}
END_TEST

START_TEST(test_master_port_given_is_kept)
{
    struct control_launch m;

    peer_launch_init(&m, "echo $MASTER_PORT", 1);
    hb_strv_add(&m.env, "MASTER_PORT=29500");
    peer_launch(&peer, &m);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_str_eq(hb_buf_data(&peer.output[0][0]), "29500\n");
    peer_finish(0);
}
END_TEST

START_TEST(test_descriptors_of_a_rank)
{
    peer_run(&peer,
             "for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; "
             "do if [ -e /proc/$$/fd/$n ]; then printf '%s ' $n; fi; done; "
             "readlink /proc/$$/fd/0",
             1);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_str_eq(hb_buf_data(&peer.output[0][0]), "0 1 2 /dev/null\n");
    peer_finish(0);
}
END_TEST

START_TEST(test_bind_to_core)
{
    struct control_launch m;
    const char *a, *b;

    peer_launch_init(&m, "grep Cpus_allowed_list /proc/self/status", 2);
    m.spec.bind = CONTROL_BIND_CORE;
    peer_launch(&peer, &m);
    peer_until(&peer, CONTROL_DONE);
    a = hb_buf_data(&peer.output[0][0]);
    b = hb_buf_data(&peer.output[1][0]);
    ck_assert_ptr_nonnull(strstr(a, "Cpus_allowed_list"));
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        ck_assert_str_ne(a, b);
    peer_finish(0);
}
END_TEST

START_TEST(test_more_ranks_than_cores)
{
    struct control_launch m;
    cpu_set_t mine, one;
    size_t first = 0;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (!CPU_ISSET(first, &mine))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ck_assert_int_eq(sched_setaffinity(peer.agent, sizeof(one), &one), 0);
    peer_launch_init(&m, "true", 2);
    m.spec.bind = CONTROL_BIND_CORE;
    peer_launch(&peer, &m);
    peer_until(&peer, CONTROL_LOG);
    ck_assert_ptr_nonnull(strstr(peer.log, "2 ranks on 1 core"));
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* ---- Streams ---- */

START_TEST(test_output_stops_at_the_window)
{
    peer.auto_ack = 0;
    peer_run(&peer, "head -c 3000000 /dev/zero; echo end >&2", 1);
    while (peer.unacked < CONTROL_OUTPUT_WINDOW)
        ck_assert_int_eq(peer_next(&peer), CONTROL_OUTPUT);
    ck_assert_uint_eq(peer.unacked, CONTROL_OUTPUT_WINDOW);
    /* Control frames pass all the same. */
    kill(peer.pids[0], SIGKILL);
    ck_assert_int_eq(peer_next(&peer), CONTROL_EXITED);
    peer_send_u32(&peer, CONTROL_OUTPUT_ACK, CONTROL_OUTPUT_WINDOW);
    peer.auto_ack = 1;
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

START_TEST(test_large_output_is_complete)
{
    peer_run(&peer,
             "head -c 5000000 /dev/zero | tr '\\0' \"$HVD_RANK\"; exit 3", 2);
    peer_until(&peer, CONTROL_DONE);
    for (int r = 0; r < 2; r++) {
        const char *bytes = hb_buf_data(&peer.output[r][0]);
        size_t i = 0;

        ck_assert_uint_eq(hb_buf_len(&peer.output[r][0]), 5000000);
        while (i < 5000000 && bytes[i] == '0' + r)
            i++;
        ck_assert_uint_eq(i, 5000000);
    }
    peer_finish(0);
}
END_TEST

static void setup_narrow(void)
{
    peer_setup();
    peer_finish(0); /* its connection was closed */
    peer_open_narrow(&peer);
}

/* A rank has ended with its last output still in the pipe, and the agent's
 * output is read slowly: the job's end waits for both.  The agent takes two
 * chunks before it stops reading; the rest fits into the pipe. */
START_TEST(test_late_reader_misses_nothing)
{
    peer_run(&peer,
             "trap 'exec dd if=/dev/zero bs=180000 count=1' USR1; echo up; "
             "while :; do sleep 0.05; done",
             1);
    peer_until_output(&peer, 0, "up\n");
    kill(peer.pids[0], SIGUSR1);
    wait_gone(peer.pids[0]);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_uint_eq(hb_buf_len(&peer.output[0][0]), 3 + 180000);
    peer_finish(0);
}
END_TEST

/* The reported tail is what the rank wrote last, though hvdrun reads no
 * output. */
START_TEST(test_stderr_tail_is_not_held_back)
{
    const char *tail;

    peer.auto_ack = 0;
    peer_run(&peer,
             "head -c 2000000 /dev/zero & "
             "i=0; while [ $i -lt 2999 ]; do i=$((i+1)); echo line $i >&2; "
             "done; exit 4",
             1);
    peer_until(&peer, CONTROL_EXITED);
    tail = peer.exited[0].stderr_tail;
    ck_assert_uint_le(strlen(tail), CONTROL_TAIL_BYTES);
    ck_assert_uint_gt(strlen(tail), CONTROL_TAIL_BYTES - 16);
    ck_assert_int_eq(strncmp(tail, "line ", 5), 0);
    ck_assert_ptr_nonnull(strstr(tail, "line 2999\n"));
    peer_close(&peer); /* whether DONE was sent is not checked */
}
END_TEST

static void send_stdin(int rank, const char *bytes, size_t len)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_stdin(&b, rank, bytes, len), 0);
    peer_send(&peer, &b);
    hb_buf_free(&b);
}

START_TEST(test_stdin)
{
    struct control_launch m;

    peer_launch_init(&m, "cat", 2);
    m.ranks[1].stdin_open = 1;
    peer_launch(&peer, &m);
    send_stdin(1, "hello ", 6);
    send_stdin(0, "nobody reads this", 17);
    send_stdin(1, "world\n", 6);
    send_stdin(1, NULL, 0);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_str_eq(hb_buf_data(&peer.output[1][0]), "hello world\n");
    ck_assert_str_eq(hb_buf_data(&peer.output[0][0]), "");
    ck_assert_uint_eq(peer.stdin_acked, 29);
    peer_finish(0);
}
END_TEST

START_TEST(test_stdin_that_nobody_reads)
{
    struct control_launch m;
    char *bytes = hb_xcalloc(1, CONTROL_STDIN_WINDOW);

    peer_launch_init(&m, "sleep 0.2; exit 0", 1);
    m.ranks[0].stdin_open = 1;
    peer_launch(&peer, &m);
    send_stdin(0, bytes, CONTROL_STDIN_WINDOW);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_int_eq(peer_exited(0)->exit_code, 0);
    hb_free(bytes);
    peer_finish(0);
}
END_TEST

START_TEST(test_resident_memory_with_16_ranks)
{
    char path[64], line[256];
    long kib = 0;
    FILE *f;

    peer_run(&peer, "echo up; exec sleep 1000", 16);
    for (int i = 0; i < 16; i++)
        peer_until_output(&peer, i, "up\n");
    snprintf(path, sizeof(path), "/proc/%d/status", (int)peer.agent);
    f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    fclose(f);
    ck_assert_int_gt(kib, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_le(kib, 4096);
#endif
    peer_finish(1);
}
END_TEST

static void add_launch(Suite *s)
{
    TCase *t = tcase_create("launch");

    tcase_add_unchecked_fixture(t, fixtures_setup, fixtures_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, peer_setup, peer_teardown);
    tcase_add_test(t, test_program_not_found);
    tcase_add_test(t, test_program_not_executable);
    tcase_add_test(t, test_bad_interpreter);
    tcase_add_test(t, test_interpreter_with_dos_line_end);
    tcase_add_test(t, test_bad_directory);
    tcase_add_test(t, test_all_or_none);
    tcase_add_test(t, test_too_few_descriptors);
    tcase_add_test(t, test_garbage_ends_the_agent);
    tcase_add_test(t, test_environment_is_what_was_sent);
    tcase_add_test(t, test_master_port_given_is_kept);
    tcase_add_test(t, test_descriptors_of_a_rank);
    tcase_add_test(t, test_bind_to_core);
    tcase_add_test(t, test_more_ranks_than_cores);
    suite_add_tcase(s, t);
}

static void add_streams(Suite *s)
{
    TCase *t = tcase_create("streams");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, peer_setup, peer_teardown);
    tcase_add_test(t, test_output_stops_at_the_window);
    tcase_add_test(t, test_large_output_is_complete);
    tcase_add_test(t, test_stderr_tail_is_not_held_back);
    tcase_add_test(t, test_stdin);
    tcase_add_test(t, test_stdin_that_nobody_reads);
    tcase_add_test(t, test_resident_memory_with_16_ranks);
    suite_add_tcase(s, t);
}

static void add_narrow(Suite *s)
{
    TCase *t = tcase_create("narrow");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup_narrow, peer_teardown);
    tcase_add_test(t, test_late_reader_misses_nothing);
    suite_add_tcase(s, t);
}

int main(void)
{
    Suite *s = suite_create("agent_launch");

    add_launch(s);
    add_streams(s);
    add_narrow(s);
    return unit_run(s);
}
