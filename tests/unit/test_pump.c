/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/pump.h: streams, window, hold, tail, stdin; no processes. */
#include "lib/agent/rank/pump.h"
#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 2 };

static uv_loop_t loop;
static struct pump pump;
static struct hb_buf got[SLOTS][2];
static int ended[SLOTS][2], all_ended;
static uint32_t taken;
static int fds[SLOTS][3];

static void on_output(void *arg, int slot, int stream, const void *bytes,
                      size_t len)
{
    ck_assert_ptr_eq(arg, &loop);
    ck_assert_uint_le(len, CONTROL_OUTPUT_CHUNK);
    if (len == 0)
        ended[slot][stream - 1]++;
    hb_buf_append(&got[slot][stream - 1], bytes, len);
}

static void on_stdin_taken(void *arg, int slot, uint32_t bytes)
{
    (void)arg;
    ck_assert_int_eq(slot, 0);
    taken += bytes;
}

static void on_all_ended(void *arg)
{
    (void)arg;
    all_ended++;
}

static void setup(void)
{
    static const struct pump_events events = {on_output, on_stdin_taken,
                                              on_all_ended};

    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(pump_init(&pump, &loop, SLOTS, &events, &loop, NULL), 0);
    for (int i = 0; i < SLOTS; i++)
        ck_assert_int_eq(pump_open(&pump, i, i == 0, fds[i], NULL), 0);
}

static void teardown(void)
{
    for (int i = 0; i < SLOTS; i++)
        pump_close_child(&pump, fds[i]);
    pump_close(&pump);
    while (uv_run(&loop, UV_RUN_NOWAIT))
        ;
    pump_free_memory(&pump);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < SLOTS; i++) {
        hb_buf_free(&got[i][0]);
        hb_buf_free(&got[i][1]);
    }
}

static void turn(void)
{
    for (int i = 0; i < 64; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static void say(int slot, int stream, const char *text)
{
    ck_assert_int_eq(write(fds[slot][stream], text, strlen(text)),
                     (ssize_t)strlen(text));
}

/* Writes until the pipe is full; returns the number of bytes. */
static size_t fill(int fd)
{
    char block[4096] = {0};
    size_t total = 0;
    ssize_t n;

    fcntl(fd, F_SETFL, O_NONBLOCK);
    while ((n = write(fd, block, sizeof(block))) > 0)
        total += (size_t)n;
    return total;
}

START_TEST(test_streams_are_kept_apart)
{
    say(0, 1, "out0");
    say(0, 2, "err0");
    say(1, 1, "out1");
    turn();
    ck_assert_str_eq(hb_buf_data(&got[0][0]), "out0");
    ck_assert_str_eq(hb_buf_data(&got[0][1]), "err0");
    ck_assert_str_eq(hb_buf_data(&got[1][0]), "out1");
    ck_assert_int_eq(all_ended, 0);
}
END_TEST

START_TEST(test_child_ends_block_and_ours_do_not)
{
    ck_assert_int_eq(fcntl(fds[0][1], F_GETFL) & O_NONBLOCK, 0);
    ck_assert_int_eq(fcntl(fds[0][0], F_GETFL) & O_NONBLOCK, 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(fcntl(fds[0][i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}
END_TEST

START_TEST(test_ends)
{
    say(1, 1, "last");
    for (int i = 0; i < SLOTS; i++)
        pump_close_child(&pump, fds[i]);
    turn();
    ck_assert_str_eq(hb_buf_data(&got[1][0]), "last");
    for (int i = 0; i < SLOTS; i++) {
        ck_assert_int_eq(ended[i][0], 1);
        ck_assert_int_eq(ended[i][1], 1);
    }
    ck_assert_int_eq(all_ended, 1);
    ck_assert_int_eq(pump.open_outputs, 0);
}
END_TEST

START_TEST(test_window)
{
    size_t total = 0, before;

    do {
        before = hb_buf_len(&got[0][0]);
        total += fill(fds[0][1]);
        turn();
    } while (hb_buf_len(&got[0][0]) > before);
    ck_assert_uint_eq(hb_buf_len(&got[0][0]), CONTROL_OUTPUT_WINDOW);
    ck_assert_uint_gt(total, CONTROL_OUTPUT_WINDOW);
    pump_ack(&pump, 1000);
    turn();
    ck_assert_uint_eq(hb_buf_len(&got[0][0]), CONTROL_OUTPUT_WINDOW + 1000);
    pump_ack(&pump, UINT32_MAX); /* acknowledging too much does no harm */
    turn();
    ck_assert_uint_eq(hb_buf_len(&got[0][0]), total);
}
END_TEST

START_TEST(test_hold)
{
    pump_hold(&pump, 1);
    say(0, 1, "x");
    turn();
    ck_assert_uint_eq(hb_buf_len(&got[0][0]), 0);
    pump_hold(&pump, 0);
    turn();
    ck_assert_uint_eq(hb_buf_len(&got[0][0]), 1);
}
END_TEST

/* A process outside the job may keep a pipe open for ever. */
START_TEST(test_finish_does_not_wait_for_holders)
{
    say(0, 1, "held");
    pump_finish(&pump);
    ck_assert_str_eq(hb_buf_data(&got[0][0]), "held");
    ck_assert_int_eq(all_ended, 1);
}
END_TEST

START_TEST(test_finish_waits_for_the_window)
{
    size_t total = 0;

    while (hb_buf_len(&got[0][0]) < CONTROL_OUTPUT_WINDOW) {
        total += fill(fds[0][1]);
        turn();
    }
    total += fill(fds[0][1]);
    pump_finish(&pump);
    ck_assert_int_eq(all_ended, 0);
    pump_ack(&pump, CONTROL_OUTPUT_WINDOW);
    ck_assert_uint_eq(hb_buf_len(&got[0][0]), total);
    ck_assert_int_eq(all_ended, 1);
}
END_TEST

START_TEST(test_sink_keeps_writers_going)
{
    for (int i = 0; i < 40; i++) {
        if (i == 20)
            pump_sink(&pump);
        fill(fds[0][1]);
        turn();
    }
    ck_assert_uint_gt(fill(fds[0][1]), 0);
    ck_assert_uint_le(hb_buf_len(&got[0][0]), CONTROL_OUTPUT_WINDOW);
}
END_TEST

static void expect_tail(const char *expected)
{
    char *tail = pump_tail(&pump, 0);

    ck_assert_str_eq(tail, expected);
    hb_free(tail);
}

START_TEST(test_tail)
{
    char long_line[CONTROL_TAIL_BYTES + 1], *tail;

    expect_tail("");
    say(0, 2, "one\n");
    expect_tail("one\n"); /* still in the pipe, and stays there */
    turn();
    ck_assert_str_eq(hb_buf_data(&got[0][1]), "one\n");
    ck_assert_int_eq(write(fds[0][2], "t\0wo\n", 5), 5);
    expect_tail("one\nt?wo\n");
    memset(long_line, 'x', sizeof(long_line));
    long_line[sizeof(long_line) - 1] = '\0';
    long_line[10] = '\n';
    say(0, 2, long_line);
    turn();
    /* The line that is cut at the front is left out. */
    tail = pump_tail(&pump, 0);
    ck_assert_uint_eq(strlen(tail), CONTROL_TAIL_BYTES - 11);
    ck_assert_int_eq(tail[0], 'x');
    hb_free(tail);
    pump_close_child(&pump, fds[0]);
    turn();
    tail = pump_tail(&pump, 0);
    ck_assert_uint_eq(strlen(tail), CONTROL_TAIL_BYTES - 11);
    hb_free(tail);
}
END_TEST

START_TEST(test_tail_of_one_endless_line)
{
    char part[1024], *tail;

    memset(part, 'y', sizeof(part));
    for (size_t i = 0; i < CONTROL_TAIL_BYTES / sizeof(part) + 4; i++) {
        ck_assert_int_eq(write(fds[0][2], part, sizeof(part)), 1024);
        turn();
    }
    tail = pump_tail(&pump, 0);
    ck_assert_uint_eq(strlen(tail), CONTROL_TAIL_BYTES);
    hb_free(tail);
}
END_TEST

START_TEST(test_stdin_flow)
{
    char *big = hb_xcalloc(1, CONTROL_STDIN_WINDOW), byte[4096];
    size_t total = 0;
    ssize_t n;

    ck_assert_int_eq(pump_stdin(&pump, 0, big, CONTROL_STDIN_WINDOW), 0);
    ck_assert_uint_gt(taken, 0);
    ck_assert_uint_lt(taken, CONTROL_STDIN_WINDOW);
    ck_assert_int_eq(pump_stdin(&pump, 0, big, CONTROL_STDIN_WINDOW),
                     -HVD_EPROTO);
    ck_assert_int_eq(pump_stdin(&pump, 0, NULL, 0), 0);
    while ((n = read(fds[0][0], byte, sizeof(byte))) > 0) {
        total += (size_t)n;
        turn();
    }
    ck_assert_int_eq(n, 0); /* end of file comes after all bytes */
    ck_assert_uint_eq(total, CONTROL_STDIN_WINDOW);
    ck_assert_uint_eq(taken, CONTROL_STDIN_WINDOW);
    hb_free(big);
}
END_TEST

START_TEST(test_stdin_without_a_reader)
{
    close(fds[0][0]);
    fds[0][0] = -1;
    ck_assert_int_eq(pump_stdin(&pump, 0, "abc", 3), 0);
    ck_assert_uint_eq(taken, 3);
    ck_assert_int_eq(pump_stdin(&pump, 0, "def", 3), 0);
    ck_assert_uint_eq(taken, 6);
    ck_assert_int_eq(pump_stdin(&pump, 0, NULL, 0), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("pump");
    TCase *t = tcase_create("pump");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_streams_are_kept_apart);
    tcase_add_test(t, test_child_ends_block_and_ours_do_not);
    tcase_add_test(t, test_ends);
    tcase_add_test(t, test_window);
    tcase_add_test(t, test_hold);
    tcase_add_test(t, test_finish_does_not_wait_for_holders);
    tcase_add_test(t, test_finish_waits_for_the_window);
    tcase_add_test(t, test_sink_keeps_writers_going);
    tcase_add_test(t, test_tail);
    tcase_add_test(t, test_tail_of_one_endless_line);
    tcase_add_test(t, test_stdin_flow);
    tcase_add_test(t, test_stdin_without_a_reader);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
