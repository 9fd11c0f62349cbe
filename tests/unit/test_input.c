/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/input: stdin to one rank or all, with a window per rank. */
#include "lib/base/buf.h"
#include "lib/job/output/input.h"
#include "lib/protocol/control/control.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3 };

static uv_loop_t loop;
static struct input *in;
static int fds[2];
static struct hb_buf got[RANKS];
static int ends[RANKS], errors, closed;

static void on_data(void *arg, int rank, const void *bytes, size_t len)
{
    (void)arg;
    ck_assert_int_eq(ends[rank], 0);
    if (len == 0)
        ends[rank]++;
    else
        hb_buf_append(&got[rank], bytes, len);
}

static void on_error(void *arg, const struct hb_error *err)
{
    (void)arg;
    ck_assert_ptr_nonnull(strstr(err->text, "stdin"));
    errors++;
}

static void on_closed(void *arg)
{
    (void)arg;
    closed++;
}

static void open_input(int fd, int first_rank, int count)
{
    struct input_config config = {.loop = &loop,
                                  .fd = fd,
                                  .first_rank = first_rank,
                                  .count = count,
                                  .on_data = on_data,
                                  .on_error = on_error};

    input_open(&config, &in);
}

static void setup(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    in = NULL;
    errors = closed = 0;
    memset(ends, 0, sizeof(ends));
    memset(got, 0, sizeof(got));
}

static void teardown(void)
{
    input_close(in, on_closed);
    input_close(in, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    close(fds[0]);
    if (fds[1] >= 0)
        close(fds[1]);
    for (int i = 0; i < RANKS; i++)
        hb_buf_free(&got[i]);
}

static void end_writing(void)
{
    close(fds[1]);
    fds[1] = -1;
}

START_TEST(one_rank)
{
    ck_assert_int_eq(write(fds[1], "hello", 5), 5);
    open_input(fds[0], 1, 1);
    ck_assert_uint_eq(hb_buf_len(&got[1]), 0);
    while (hb_buf_len(&got[1]) < 5)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(write(fds[1], " rank", 5), 5);
    end_writing();
    while (!ends[1])
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_str_eq(hb_buf_data(&got[1]), "hello rank");
    ck_assert_uint_eq(hb_buf_len(&got[0]) + hb_buf_len(&got[2]), 0);
    ck_assert_int_eq(ends[0] + ends[2] + errors, 0);
}
END_TEST

START_TEST(all_ranks)
{
    ck_assert_int_eq(write(fds[1], "hello", 5), 5);
    end_writing();
    open_input(fds[0], 0, RANKS);
    while (!ends[0])
        uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_str_eq(hb_buf_data(&got[i]), "hello");
        ck_assert_int_eq(ends[i], 1);
    }
}
END_TEST

/* Makes a file of four windows. */
static int big_file(void)
{
    static char bytes[CONTROL_STDIN_WINDOW];
    FILE *f = tmpfile();
    int fd;

    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(fwrite(bytes, 1, sizeof(bytes), f), sizeof(bytes));
    ck_assert_int_eq(fflush(f), 0);
    fd = dup(fileno(f));
    fclose(f);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void turn_until_quiet(void)
{
    for (int i = 0; i < 100; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

START_TEST(window_bounds_what_is_under_way)
{
    int fd = big_file();
    size_t acked = 0;

    open_input(fd, 0, 1);
    turn_until_quiet();
    ck_assert_uint_eq(hb_buf_len(&got[0]), CONTROL_STDIN_WINDOW);
    while (!ends[0]) {
        input_ack(in, 0, 1000);
        acked += 1000;
        turn_until_quiet();
        ck_assert_uint_le(hb_buf_len(&got[0]), acked + CONTROL_STDIN_WINDOW);
    }
    ck_assert_uint_eq(hb_buf_len(&got[0]), 4 * CONTROL_STDIN_WINDOW);
    close(fd);
}
END_TEST

START_TEST(slowest_rank_decides)
{
    int fd = big_file();

    open_input(fd, 0, 2);
    turn_until_quiet();
    input_ack(in, 0, CONTROL_STDIN_WINDOW);
    turn_until_quiet();
    ck_assert_uint_eq(hb_buf_len(&got[0]), CONTROL_STDIN_WINDOW);
    /* A dead rank no longer holds up the others. */
    input_rank_gone(in, 1);
    turn_until_quiet();
    ck_assert_uint_eq(hb_buf_len(&got[0]), 2 * CONTROL_STDIN_WINDOW);
    ck_assert_uint_eq(hb_buf_len(&got[1]), CONTROL_STDIN_WINDOW);
    close(fd);
}
END_TEST

START_TEST(nobody_left)
{
    int fd = big_file();

    open_input(fd, 1, 1);
    input_rank_gone(in, 1);
    input_rank_gone(in, 1);
    input_rank_gone(in, 7);
    turn_until_quiet();
    ck_assert_uint_eq(hb_buf_len(&got[1]), 0);
    ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 0);
    input_ack(in, 7, 10);
    input_ack(in, 1, 10);
    turn_until_quiet();
    ck_assert_int_eq(ends[1], 0);
    close(fd);
}
END_TEST

START_TEST(flags_stay)
{
    open_input(fds[0], 0, 1);
    turn_until_quiet();
    ck_assert_int_eq(fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
}
END_TEST

START_TEST(devices_and_sockets)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    open_input(null, 0, 1);
    while (!ends[0])
        uv_run(&loop, UV_RUN_ONCE);
    input_close(in, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    closed = 0;
    open_input(pair[0], 1, 1);
    turn_until_quiet();
    ck_assert_int_eq(write(pair[1], "x", 1), 1);
    close(pair[1]);
    while (!ends[1])
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_str_eq(hb_buf_data(&got[1]), "x");
    close(pair[0]);
    close(null);
}
END_TEST

START_TEST(unreadable)
{
    int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    open_input(dir, 0, 1);
    while (!ends[0])
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(errors, 1);
    close(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("input");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, one_rank);
    tcase_add_test(tc, all_ranks);
    tcase_add_test(tc, window_bounds_what_is_under_way);
    tcase_add_test(tc, slowest_rank_decides);
    tcase_add_test(tc, nobody_left);
    tcase_add_test(tc, flags_stay);
    tcase_add_test(tc, devices_and_sockets);
    tcase_add_test(tc, unreadable);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
