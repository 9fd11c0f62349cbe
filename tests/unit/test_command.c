/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/transport/command: shell commands as the other end.  test_transport_local
 * tests what they share with the agent of this machine.
 */
#include "lib/transport/command.h"
#include "tests/unit/unit.h"

#include "lib/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static struct hb_log hush;

static struct seen {
    struct transport *t;
    struct hb_buf in, errs;
    int ends, closes, drains;
    int status; /* of the child, at on_end */
    char why[HB_ERROR_TEXT_MAX];
    const char *cancel_at; /* cancel once `in` has this */
} seen;

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct seen *s = arg;

    hb_buf_append(&s->in, bytes, len);
    if (s->cancel_at && strstr(hb_buf_data(&s->in), s->cancel_at))
        transport_cancel(s->t);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct seen *s = arg;

    ck_assert_int_eq(s->closes, 0);
    hb_buf_append(&s->errs, bytes, len);
}

static void on_end(void *arg, const struct hb_error *err)
{
    struct seen *s = arg;

    s->ends++;
    s->status = command_status(s->t);
    snprintf(s->why, sizeof(s->why), "%s", err ? err->text : "");
    transport_close(s->t);
}

static void on_close(void *arg)
{
    struct seen *s = arg;

    s->closes++;
}

static void on_drain(void *arg)
{
    struct seen *s = arg;

    ck_assert_uint_eq(transport_write_queued(s->t), 0);
    s->drains++;
}

static void drop(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static void setup(void)
{
    /* What a killed shell leaves becomes a child of this process, for run() to
     * wait for. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    hush = (struct hb_log){.sink = drop};
    memset(&seen, 0, sizeof(seen));
}

static void teardown(void)
{
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    hb_buf_free(&seen.in);
    hb_buf_free(&seen.errs);
}

static int open_argv(char *const argv[], struct hb_error *err)
{
    struct transport_config config = {
        .loop = &loop,
        .log = &hush,
        .host = "n1",
        .events = {.on_read = on_read,
                   .on_stderr = on_stderr,
                   .on_end = on_end,
                   .on_close = on_close,
                   .on_drain = on_drain},
        .arg = &seen,
        .exit_wait_ms = 20000,
    };

    return transport_open_command(&config, argv, &seen.t, err);
}

static void open_shell(const char *commands)
{
    char sh[] = "sh", c[] = "-c";
    char *argv[] = {sh, c, (char *)commands, NULL};

    ck_assert_int_eq(open_argv(argv, NULL), 0);
}

/* Runs the loop until the command has ended; waits for all its processes. */
static void run(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(seen.closes, 1);
    while (waitpid(-1, NULL, 0) > 0) /* hangs if one was left */
        continue;
    ck_assert_int_eq(errno, ECHILD);
}

START_TEST(found_in_path)
{
    open_shell("cat; echo done >&2; exit 3");
    ck_assert_int_eq(command_status(seen.t), -1);
    ck_assert_int_eq(transport_write(seen.t, "hello", 5), 0);
    while (hb_buf_len(&seen.in) < 5)
        uv_run(&loop, UV_RUN_ONCE);
    transport_close(seen.t);
    run();
    ck_assert_str_eq(hb_buf_data(&seen.in), "hello");
    ck_assert_str_eq(hb_buf_data(&seen.errs), "done\n");
    ck_assert_int_eq(seen.ends, 0);
}
END_TEST

START_TEST(status_is_known_at_the_end)
{
    open_shell("exit 255");
    run();
    ck_assert_int_eq(seen.ends, 1);
    ck_assert(WIFEXITED(seen.status) && WEXITSTATUS(seen.status) == 255);
}
END_TEST

START_TEST(is_not_there)
{
    char name[] = "/nonexistent/command";
    char *argv[] = {name, NULL};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(open_argv(argv, &err), -HVD_ENOENT);
    ck_assert_str_eq(err.text, "cannot start /nonexistent/command: "
                               "No such file or directory");
    ck_assert_ptr_null(seen.t);
}
END_TEST

/* Ctrl-C at a terminal does not reach the command. */
START_TEST(has_a_session_of_its_own)
{
    char mine[32];

    open_shell("set -- $(cat /proc/$$/stat); echo $6 $$");
    run();
    snprintf(mine, sizeof(mine), "%d ", (int)getsid(0));
    ck_assert(strncmp(hb_buf_data(&seen.in), mine, strlen(mine)) != 0);
}
END_TEST

START_TEST(says_when_all_is_sent)
{
    char file[] = "/tmp/hvd-command-XXXXXX", script[128];
    size_t len = 4 << 20;
    char *bytes = calloc(1, len);
    int fd = mkstemp(file);

    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_ge(fd, 0);
    close(fd);
    /* The command reads nothing before the file is gone. */
    snprintf(script, sizeof(script),
             "while [ -e %s ]; do sleep 0.01; done; wc -c", file);
    open_shell(script);
    ck_assert_int_eq(transport_write(seen.t, bytes, len), 0);
    ck_assert_uint_gt(transport_write_queued(seen.t), 0);
    ck_assert_int_eq(seen.drains, 0);
    ck_assert_int_eq(unlink(file), 0);
    while (seen.drains == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(transport_write(seen.t, "x", 1), 0);
    free(bytes);
    transport_close(seen.t);
    run();
    ck_assert_int_eq(seen.drains, 1);
}
END_TEST

/* Cancelling ends what the command started, also if it ignores signals. */
START_TEST(cancelled_with_its_group)
{
    static const char *const commands[] = {
        "echo up; exec sleep 1000",
        "sleep 1000 & echo up; wait",
        "trap '' TERM HUP; sleep 1000 & echo up; wait; wait",
        "echo up; kill -STOP $$",
        ("trap 'echo told >&2; exit' TERM; echo up; "
         "while :; do sleep 0.01; done"),
    };

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        hb_buf_clear(&seen.in);
        seen.closes = 0;
        seen.cancel_at = "up";
        open_shell(commands[i]);
        run();
        ck_assert_int_eq(seen.ends, 0);
    }
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&seen.errs), "told"));
}
END_TEST

START_TEST(cancelled_twice_and_after_closing)
{
    open_shell("trap '' TERM; sleep 1000; sleep 1000");
    transport_close(seen.t);
    transport_cancel(seen.t);
    transport_cancel(seen.t);
    transport_close(seen.t);
    run();
}
END_TEST

/* Cancelling does not wait for queued bytes, which it drops. */
START_TEST(cancelled_with_much_to_write)
{
    size_t len = 4 << 20;
    char *bytes = calloc(1, len);

    ck_assert_ptr_nonnull(bytes);
    open_shell("exec sleep 1000");
    ck_assert_int_eq(transport_write(seen.t, bytes, len), 0);
    free(bytes);
    transport_cancel(seen.t);
    run();
    ck_assert_int_eq(seen.drains, 0);
}
END_TEST

/* With a flood on stderr the loop still runs, and the end is seen. */
START_TEST(flood_on_stderr)
{
    open_shell("head -c 3000000 /dev/zero >&2; echo up");
    run();
    ck_assert_str_eq(hb_buf_data(&seen.in), "up\n");
    ck_assert_uint_gt(hb_buf_len(&seen.errs), 1000000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("command");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, found_in_path);
    tcase_add_test(tc, status_is_known_at_the_end);
    tcase_add_test(tc, is_not_there);
    tcase_add_test(tc, has_a_session_of_its_own);
    tcase_add_test(tc, says_when_all_is_sent);
    tcase_add_test(tc, cancelled_with_its_group);
    tcase_add_test(tc, cancelled_twice_and_after_closing);
    tcase_add_test(tc, cancelled_with_much_to_write);
    tcase_add_test(tc, flood_on_stderr);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
