/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/output/output and lib/job/output/stdio: writing without blocking,
 * acknowledgements, and readers that do not read.  Streams are pipes and
 * sockets; the test itself reads them, so nothing depends on time.
 */
#include "lib/job/output/output.h"
#include "lib/job/output/stdio.h"
#include "lib/protocol/control/control.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uv_loop_t loop;
static struct output *o;
static int out[2], err[2]; /* [0] to read, [1] to write */
static size_t acked[2];
static int gone, errors, terminal_errors, drained, closed;
static char last_error[HB_ERROR_TEXT_MAX];

static void on_ack(void *arg, int host, size_t len)
{
    (void)arg;
    acked[host] += len;
}

static void on_gone(void *arg)
{
    (void)arg;
    gone++;
}

static void on_error(void *arg, const struct hb_error *e, int terminal)
{
    (void)arg;
    errors++;
    terminal_errors += terminal;
    strcpy(last_error, e->text);
}

static void on_drained(void *arg)
{
    (void)arg;
    drained++;
}

static void on_closed(void *arg)
{
    (void)arg;
    closed++;
}

static void open_output(int out_fd, const char *dir)
{
    struct output_config config = {
        .loop = &loop,
        .fds = {out_fd, err[1]},
        .ranks = 4,
        .np = 4,
        .hosts = 2,
        .tag = 1,
        .dir = dir,
        .on_ack = on_ack,
        .on_reader_gone = on_gone,
        .on_error = on_error,
        .on_drained = on_drained,
    };

    ck_assert_int_eq(output_open(&config, &o, NULL), 0);
}

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    acked[0] = acked[1] = 0;
    gone = errors = terminal_errors = drained = closed = 0;
}

static void teardown(void)
{
    output_close(o, on_closed);
    output_close(o, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(err[i]);
    }
}

static void feed(int host, int rank, const char *text)
{
    output_feed(o, host, rank, 1, text, strlen(text));
}

/* Reads all that is available now. */
static size_t read_some(int fd, struct hb_buf *into)
{
    char chunk[65536];
    size_t total = 0;
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        hb_buf_append(into, chunk, (size_t)n);
        total += (size_t)n;
    }
    return total;
}

static void expect(int fd, const char *want)
{
    struct hb_buf have = HB_BUF_INIT;

    read_some(fd, &have);
    ck_assert_str_eq(hb_buf_data(&have), want);
    hb_buf_free(&have);
}

/* Reads until the output has nothing left to write. */
static void drain(struct hb_buf *into)
{
    while (!output_idle(o)) {
        read_some(out[0], into);
        read_some(err[0], into);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    read_some(out[0], into);
    read_some(err[0], into);
}

START_TEST(streams)
{
    open_output(out[1], NULL);
    feed(0, 0, "a\nb");
    output_feed(o, 1, 3, 2, "oops\n", 5);
    expect(out[0], "");
    output_flush(o);
    expect(out[0], "[0]<stdout>:a\n");
    expect(err[0], "[3]<stderr>:oops\n");
    ck_assert_uint_eq(acked[0], 3);
    ck_assert_uint_eq(acked[1], 5);
    output_end(o, 0, 1);
    output_message(o, "hvdrun: bye\n", 12);
    output_flush(o);
    expect(out[0], "[0]<stdout>:b\n");
    expect(err[0], "hvdrun: bye\n");
    ck_assert_int_eq(output_idle(o), 1);
}
END_TEST

/* The pipe's flags, shared with other processes, stay unchanged. */
START_TEST(flags_stay)
{
    int before = fcntl(out[1], F_GETFL);

    open_output(out[1], NULL);
    feed(0, 0, "a\n");
    output_flush(o);
    ck_assert_int_eq(fcntl(out[1], F_GETFL), before);
    ck_assert_int_eq(before & O_NONBLOCK, 0);
    expect(out[0], "[0]<stdout>:a\n");
}
END_TEST

static void fill(int host, int rank, size_t lines)
{
    char line[1024];

    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (size_t i = 0; i < lines; i++)
        output_feed(o, host, rank, 1, line, sizeof(line));
    output_flush(o);
}

START_TEST(slow_reader_delays_acks)
{
    struct hb_buf have = HB_BUF_INIT;

    open_output(out[1], NULL);
    fill(0, 0, 400);
    ck_assert_int_eq(output_idle(o), 0);
    ck_assert_uint_lt(acked[0], 400 * 1024);
    drain(&have);
    ck_assert_uint_eq(acked[0], 400 * 1024);
    ck_assert_uint_eq(hb_buf_len(&have), 400 * (1024 + 12));
    ck_assert_int_eq(drained, 1);
    hb_buf_free(&have);
}
END_TEST

START_TEST(socket_as_stdout)
{
    struct hb_buf have = HB_BUF_INIT;
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    open_output(pair[1], NULL);
    fill(0, 0, 800);
    ck_assert_int_eq(output_idle(o), 0);
    ck_assert_int_eq(fcntl(pair[1], F_GETFL) & O_NONBLOCK, 0);
    while (!output_idle(o)) {
        read_some(pair[0], &have);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    read_some(pair[0], &have);
    ck_assert_uint_eq(hb_buf_len(&have), 800 * (1024 + 12));
    close(pair[0]);
    close(pair[1]);
    hb_buf_free(&have);
}
END_TEST

START_TEST(closed_reader)
{
    open_output(out[1], NULL);
    close(out[0]);
    feed(0, 0, "a\n");
    output_flush(o);
    ck_assert_int_eq(gone, 1);
    fill(1, 1, 3);
    ck_assert_int_eq(gone, 1);
    ck_assert_int_eq(errors, 0);
    ck_assert_uint_eq(acked[0], 2);
    ck_assert_uint_eq(acked[1], 3 * 1024);
    ck_assert_int_eq(output_idle(o), 1);
    output_message(o, "x\n", 2);
    expect(err[0], "x\n");
    out[0] = -1;
}
END_TEST

START_TEST(reader_closes_while_we_wait)
{
    open_output(out[1], NULL);
    fill(0, 0, 400);
    close(out[0]);
    out[0] = -1;
    while (!output_idle(o))
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(gone, 1);
    ck_assert_uint_eq(acked[0], 400 * 1024);
}
END_TEST

START_TEST(full_device)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    open_output(full, NULL);
    feed(0, 0, "a\n");
    output_flush(o);
    feed(0, 0, "b\n");
    output_flush(o);
    ck_assert_int_eq(errors, 1);
    ck_assert_int_eq(terminal_errors, 1);
    ck_assert_ptr_nonnull(strstr(last_error, "stdout"));
    ck_assert_uint_eq(acked[0], 4);
    close(full);
}
END_TEST

/* A regular file keeps its offset, which other writers share. */
START_TEST(file_as_stdout)
{
    FILE *f = tmpfile();
    char have[64] = "";

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(write(fileno(f), "before\n", 7), 7);
    open_output(fileno(f), NULL);
    feed(0, 0, "a\n");
    output_flush(o);
    ck_assert_int_eq(write(fileno(f), "after\n", 6), 6);
    ck_assert_int_gt(pread(fileno(f), have, sizeof(have) - 1, 0), 0);
    ck_assert_str_eq(have, "before\n[0]<stdout>:a\nafter\n");
    fclose(f);
}
END_TEST

START_TEST(discard_gives_up_on_a_stuck_stream_only)
{
    open_output(out[1], NULL);
    fill(0, 0, 400);
    output_discard(o);
    ck_assert_int_eq(output_idle(o), 1);
    ck_assert_uint_eq(acked[0], 400 * 1024);
    output_message(o, "still here\n", 11);
    expect(err[0], "still here\n");
}
END_TEST

/* ---- A long line delays the others, but not for ever ---- */

static char *long_line(size_t len)
{
    char *line = malloc(len);

    ck_assert_ptr_nonnull(line);
    memset(line, 'L', len);
    return line;
}

START_TEST(held_bytes_are_acked_when_written)
{
    size_t len = LINES_LINE_MAX;
    char *line = long_line(len);
    struct hb_buf have = HB_BUF_INIT;

    open_output(out[1], NULL);
    output_feed(o, 0, 0, 1, line, len);
    feed(1, 2, "held\n");
    output_flush(o);
    ck_assert_uint_eq(acked[1], 0);
    feed(0, 0, "\n");
    ck_assert_uint_eq(acked[1], 0);
    output_flush(o);
    drain(&have);
    ck_assert_uint_eq(acked[1], 5);
    ck_assert_uint_eq(hb_buf_len(&have), 12 + len + 1 + 12 + 5);
    ck_assert_str_eq(hb_buf_data(&have) + 12 + len + 1, "[2]<stdout>:held\n");
    hb_buf_free(&have);
    free(line);
}
END_TEST

/* Other ranks' output, held back by a long line, must not fill the window: the
 * line is broken. */
/* What a host has sent over its last connection is not acknowledged over the
 * next one: neither what waits for the reader, nor what is held. */
START_TEST(a_host_comes_back)
{
    size_t len = LINES_LINE_MAX, before;
    char *line = long_line(len);
    struct hb_buf have = HB_BUF_INIT;

    open_output(out[1], NULL);
    fill(1, 2, 400);
    output_feed(o, 0, 0, 1, line, len);
    feed(1, 2, "held\n");
    output_flush(o);
    before = acked[1];
    ck_assert_uint_lt(before, 400 * 1024);
    output_forget_host(o, 1);
    feed(1, 2, "new\n");
    feed(0, 0, "\n");
    output_flush(o);
    drain(&have);
    ck_assert_uint_eq(acked[1], before + 4);
    ck_assert_uint_eq(acked[0], len + 1);
    hb_buf_free(&have);
    free(line);
}
END_TEST

START_TEST(too_much_held_breaks_the_line)
{
    size_t len = LINES_LINE_MAX;
    char *line = long_line(len);
    struct hb_buf have = HB_BUF_INIT;

    open_output(out[1], NULL);
    output_feed(o, 0, 0, 1, line, len);
    for (size_t n = 0; n < CONTROL_OUTPUT_WINDOW / 2; n += 4)
        feed(0, 1, "abc\n");
    output_flush(o);
    drain(&have);
    ck_assert_uint_eq(acked[0], len + CONTROL_OUTPUT_WINDOW / 2);
    ck_assert_int_eq(
        strncmp(hb_buf_data(&have) + 12 + len, "\n[1]<stdout>:abc\n", 17), 0);
    hb_buf_free(&have);
    free(line);
}
END_TEST

/* If the line's rank stays silent, a timer breaks the line. */
START_TEST(silent_owner_is_broken)
{
    size_t len = LINES_LINE_MAX;
    char *line = long_line(len);
    struct hb_buf have = HB_BUF_INIT;

    open_output(out[1], NULL);
    output_feed(o, 0, 0, 1, line, len);
    output_flush(o);
    drain(&have);
    feed(1, 2, "held\n");
    output_flush(o);
    while (acked[1] == 0) {
        uv_run(&loop, UV_RUN_ONCE);
        read_some(out[0], &have);
    }
    feed(0, 0, "rest\n");
    output_flush(o);
    drain(&have);
    ck_assert_str_eq(hb_buf_data(&have) + 12 + len,
                     "\n[2]<stdout>:held\n[0]<stdout>:rest\n");
    hb_buf_free(&have);
    free(line);
}
END_TEST

START_TEST(bad_directory)
{
    struct output_config config = {.loop = &loop,
                                   .fds = {out[1], err[1]},
                                   .ranks = 1,
                                   .np = 1,
                                   .hosts = 1,
                                   .dir = "/dev/null/d"};
    struct hb_error e = HB_ERROR_INIT;

    ck_assert_int_lt(output_open(&config, &o, &e), 0);
    ck_assert_msg(strncmp(e.text, "--output-filename: ", 19) == 0, "%s",
                  e.text);
    open_output(out[1], NULL);
}
END_TEST

/* On a file description shared with others: poll first, and write little. */
START_TEST(shared_descriptor)
{
    struct stdio s;
    char bytes[8192] = "";
    ssize_t n;
    size_t total = 0;

    open_output(out[1], NULL);
    stdio_init(&s, &loop, out[1], 1, NULL, NULL);
    ck_assert_int_eq(s.kind, STDIO_OWN);
    close(s.fd);
    s.kind = STDIO_SHARED;
    s.fd = out[1];
    while ((n = stdio_write(&s, bytes, sizeof(bytes))) > 0) {
        ck_assert_int_le(n, 4096);
        total += (size_t)n;
    }
    ck_assert_int_eq(n, -EAGAIN);
    ck_assert_uint_gt(total, 4096);
    stdio_close(&s, NULL);
    ck_assert_int_ge(fcntl(out[1], F_GETFD), 0);
}
END_TEST

/* A status line is replaced by whatever is printed for good. */
START_TEST(status)
{
    open_output(out[1], NULL);
    output_status(o, "");
    expect(err[0], "");
    output_status(o, "1/3");
    output_status(o, "2/3");
    expect(err[0], "1/3\r\033[K2/3");
    output_message(o, "hvdrun: news\n", 13);
    expect(err[0], "\r\033[Khvdrun: news\n");
    output_status(o, "2/3");
    feed(0, 0, "a\n");
    output_flush(o);
    expect(err[0], "2/3\r\033[K");
    expect(out[0], "[0]<stdout>:a\n");
    output_status(o, "3/3");
    output_status(o, "");
    output_status(o, "");
    expect(err[0], "3/3\r\033[K");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("output");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, streams);
    tcase_add_test(tc, status);
    tcase_add_test(tc, flags_stay);
    tcase_add_test(tc, slow_reader_delays_acks);
    tcase_add_test(tc, socket_as_stdout);
    tcase_add_test(tc, closed_reader);
    tcase_add_test(tc, reader_closes_while_we_wait);
    tcase_add_test(tc, full_device);
    tcase_add_test(tc, file_as_stdout);
    tcase_add_test(tc, discard_gives_up_on_a_stuck_stream_only);
    tcase_add_test(tc, a_host_comes_back);
    tcase_add_test(tc, held_bytes_are_acked_when_written);
    tcase_add_test(tc, too_much_held_breaks_the_line);
    tcase_add_test(tc, silent_owner_is_broken);
    tcase_add_test(tc, bad_directory);
    tcase_add_test(tc, shared_descriptor);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
