/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/log.h: levels, the form of a line, one write for each line. */
#include "lib/base/hvd_status.h"
#include "lib/base/log.h"
#include "tests/unit/unit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct capture {
    int lines;
    enum hb_log_level level;
    char line[PIPE_BUF];
};

static void capture_line(void *arg, enum hb_log_level level, const char *line)
{
    struct capture *c = arg;

    c->lines++;
    c->level = level;
    snprintf(c->line, sizeof(c->line), "%s", line);
}

START_TEST(test_line_and_threshold)
{
    struct capture c = {0, HB_LOG_TRACE, ""};
    struct hb_log log = {"hvdrun", HB_LOG_WARNING, 0, capture_line, &c};

    hb_log(&log, HB_LOG_INFO, "dropped");
    ck_assert_int_eq(c.lines, 0);
    hb_log(&log, HB_LOG_WARNING, "host %s", "a");
    ck_assert_str_eq(c.line, "hvdrun: warning: host a");
    hb_log(&log, HB_LOG_FATAL, "end");
    ck_assert_str_eq(c.line, "hvdrun: fatal: end");
    ck_assert_int_eq(c.level, HB_LOG_FATAL);
    ck_assert_int_eq(c.lines, 2);
    ck_assert(hb_log_enabled(&log, HB_LOG_ERROR));
    ck_assert(!hb_log_enabled(&log, HB_LOG_DEBUG));
    hb_log(NULL, HB_LOG_FATAL, "nowhere");
}
END_TEST

START_TEST(test_color_only_when_asked)
{
    struct capture c = {0, HB_LOG_TRACE, ""};
    struct hb_log log = {"x", HB_LOG_TRACE, HB_LOG_COLOR, capture_line, &c};

    hb_log(&log, HB_LOG_ERROR, "t");
    ck_assert_str_eq(c.line, "x: \033[31merror\033[0m: t");
    log.flags = 0;
    hb_log(&log, HB_LOG_ERROR, "t");
    ck_assert_ptr_null(strchr(c.line, '\033'));
}
END_TEST

START_TEST(test_timestamp_comes_first)
{
    struct capture c = {0, HB_LOG_TRACE, ""};
    struct hb_log log = {"x", HB_LOG_TRACE, HB_LOG_TIMESTAMP, capture_line, &c};
    int y, mo, d, h, mi, s, ms, end = 0;

    hb_log(&log, HB_LOG_INFO, "t");
    ck_assert_int_eq(sscanf(c.line, "%d-%d-%d %d:%d:%d.%3d x: info: t%n", &y,
                            &mo, &d, &h, &mi, &s, &ms, &end),
                     7);
    ck_assert_uint_eq((size_t)end, strlen(c.line));
    ck_assert_int_ge(y, 2024);
}
END_TEST

START_TEST(test_text_is_made_one_clean_line)
{
    struct capture c = {0, HB_LOG_TRACE, ""};
    struct hb_log log = {"x", HB_LOG_TRACE, 0, capture_line, &c};

    hb_log(&log, HB_LOG_INFO, "a\nx: fatal: forged\033[2J");
    ck_assert_str_eq(c.line, "x: info: a?x: fatal: forged?[2J");
}
END_TEST

/* A SOCK_SEQPACKET socket keeps the boundaries of writes. */
START_TEST(test_one_write_per_line_to_stderr)
{
    struct hb_log log = {"x", HB_LOG_TRACE, 0, NULL, NULL};
    char text[3 * PIPE_BUF], got[2 * PIPE_BUF];
    int fds[2], saved;
    ssize_t n;

    memset(text, 'y', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    saved = dup(STDERR_FILENO);
    dup2(fds[1], STDERR_FILENO);
    hb_log(&log, HB_LOG_INFO, "one");
    hb_log(&log, HB_LOG_DEBUG, "two %d", 2);
    hb_log(&log, HB_LOG_INFO, "%s", text);
    dup2(saved, STDERR_FILENO);
    n = read(fds[0], got, sizeof(got));
    ck_assert_int_eq(n, 13);
    ck_assert_mem_eq(got, "x: info: one\n", 13);
    n = read(fds[0], got, sizeof(got));
    ck_assert_mem_eq(got, "x: debug: two 2\n", 16);
    n = read(fds[0], got, sizeof(got));
    ck_assert_int_gt(n, PIPE_BUF / 2);
    ck_assert_int_le(n, PIPE_BUF);
    ck_assert_int_eq(got[n - 1], '\n');
    close(fds[0]);
    close(fds[1]);
    close(saved);
}
END_TEST

START_TEST(test_closed_stderr_is_survived)
{
    struct hb_log log = {"x", HB_LOG_TRACE, 0, NULL, NULL};
    int saved = dup(STDERR_FILENO), fds[2];
    char got[64] = "";
    ssize_t len;

    ck_assert_int_eq(pipe(fds), 0);
    close(STDERR_FILENO);
    hb_log(&log, HB_LOG_INFO, "lost");
    dup2(fds[1], STDERR_FILENO);
    hb_log(&log, HB_LOG_INFO, "found");
    dup2(saved, STDERR_FILENO);
    len = read(fds[0], got, sizeof(got) - 1);
    ck_assert_int_gt(len, 0);
    ck_assert_str_eq(got, "x: info: found\n");
    close(saved);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(test_level_names)
{
    static const char *const names[] = {"trace",   "debug", "info",
                                        "warning", "error", "fatal"};
    enum hb_log_level level;
    int i;

    for (i = HB_LOG_TRACE; i <= HB_LOG_FATAL; i++) {
        ck_assert_str_eq(hb_log_level_name((enum hb_log_level)i), names[i]);
        ck_assert_int_eq(hb_log_level_parse(names[i], &level), 0);
        ck_assert_int_eq((int)level, i);
    }
    ck_assert_int_eq(hb_log_level_parse("WARNING", &level), 0);
    ck_assert_int_eq((int)level, HB_LOG_WARNING);
    ck_assert_int_eq(hb_log_level_parse("", &level), -HVD_EINVAL);
    ck_assert_int_eq(hb_log_level_parse("warn ", &level), -HVD_EINVAL);
    ck_assert_int_eq((int)level, HB_LOG_WARNING);
    ck_assert_str_eq(hb_log_level_name((enum hb_log_level)99), "unknown");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("log");
    TCase *c = tcase_create("log");

    tcase_add_test(c, test_line_and_threshold);
    tcase_add_test(c, test_color_only_when_asked);
    tcase_add_test(c, test_timestamp_comes_first);
    tcase_add_test(c, test_text_is_made_one_clean_line);
    tcase_add_test(c, test_one_write_per_line_to_stderr);
    tcase_add_test(c, test_closed_stderr_is_survived);
    tcase_add_test(c, test_level_names);
    suite_add_tcase(s, c);
    return unit_run(s);
}
