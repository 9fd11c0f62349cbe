/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/host_log: a host's messages, in lines, and limited. */
#include "lib/job/output/host_log.h"

#include "lib/protocol/control/control.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct host_log h;
static struct hb_log log_to_here;
static struct hb_buf seen;
static int lines;

static void take_line(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    lines++;
    hb_buf_clear(&seen);
    ck_assert_int_eq(hb_buf_puts(&seen, line), 0);
}

static void setup(void)
{
    log_to_here = (struct hb_log){
        .program = "hvdrun", .level = HB_LOG_TRACE, .sink = take_line};
    lines = 0;
    host_log_init(&h, &log_to_here, "n1");
}

static void teardown(void)
{
    host_log_fini(&h);
    hb_buf_free(&seen);
}

static void say(const char *text)
{
    host_log_stderr(&h, text, strlen(text));
}

static int say_log(const void *payload, size_t len, struct hb_error *err)
{
    struct frame f = {CONTROL_LOG, payload, len};

    return host_log_frame(&h, &f, err);
}

START_TEST(whole_lines)
{
    say("a\nhvd-agent: b\nhvd-ag");
    ck_assert_int_eq(lines, 2);
    ck_assert_str_eq(h.last_words, "b");
    ck_assert_str_eq(hb_buf_data(&seen),
                     "hvdrun: warning: host n1: hvd-agent: b");
    say("ent: c\033[2J");
    ck_assert_int_eq(lines, 2);
    host_log_end(&h);
    host_log_end(&h);
    ck_assert_int_eq(lines, 3);
    ck_assert_str_eq(h.last_words, "c\033[2J");
    ck_assert_str_eq(hb_buf_data(&seen),
                     "hvdrun: warning: host n1: hvd-agent: c?[2J");
}
END_TEST

/* An endless line is not kept, in one piece or many. */
START_TEST(endless_line)
{
    static char bytes[1 << 20];

    memset(bytes, 'x', sizeof(bytes));
    for (int i = 0; i < 4; i++) {
        host_log_stderr(&h, bytes, sizeof(bytes));
        ck_assert_uint_le(hb_buf_len(&h.part), HOST_LOG_LINE_MAX);
    }
    for (size_t i = 0; i < 4 * (HOST_LOG_LINE_MAX + 1); i++)
        host_log_stderr(&h, bytes, 1);
    ck_assert_int_eq(lines, 8);
    ck_assert_uint_le(hb_buf_len(&seen), HOST_LOG_LINE_MAX + 100);
}
END_TEST

START_TEST(endless_lines)
{
    for (int i = 0; i < 10 * HOST_LOG_LINES_MAX; i++)
        say("x\n");
    ck_assert_int_eq(lines, HOST_LOG_LINES_MAX);
    ck_assert_str_eq(hb_buf_data(&seen),
                     "hvdrun: warning: host n1: what else it writes to its "
                     "stderr is not shown");
}
END_TEST

START_TEST(log_messages)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(say_log("\3two", 4, &err), 0);
    ck_assert_str_eq(hb_buf_data(&seen), "hvdrun: warning: host n1: two");
    ck_assert_int_eq(say_log("\x63x", 2, NULL), -HVD_EPROTO);
    ck_assert_int_eq(say_log("", 0, NULL), -HVD_EPROTO);
    for (int i = 1; i < HOST_LOG_LINES_MAX; i++)
        ck_assert_int_eq(say_log("\3x", 2, &err), 0);
    ck_assert_int_eq(say_log("\3x", 2, &err), -HVD_EPROTO);
    ck_assert_str_eq(err.text, "a flood of log lines");
    ck_assert_int_eq(lines, HOST_LOG_LINES_MAX);
}
END_TEST

/* ssh -vvv writes more than is shown: the agent's messages are still shown. */
START_TEST(log_messages_after_much_stderr)
{
    struct hb_error err = HB_ERROR_INIT;

    for (int i = 0; i < 2 * HOST_LOG_LINES_MAX; i++)
        say("debug1: x\n");
    ck_assert_int_eq(say_log("\3two", 4, &err), 0);
    ck_assert_str_eq(hb_buf_data(&seen), "hvdrun: warning: host n1: two");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host_log");
    TCase *tc = tcase_create("host_log");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, whole_lines);
    tcase_add_test(tc, endless_line);
    tcase_add_test(tc, endless_lines);
    tcase_add_test(tc, log_messages);
    tcase_add_test(tc, log_messages_after_much_stderr);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
