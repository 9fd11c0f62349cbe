/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/transport/local with an agent that is this program itself, run as
 * hvd-agent; it does what FAKE_AGENT names.
 */
#include "lib/transport/transport.h"
#include "tests/unit/unit.h"

#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char self[4096];

struct seen {
    struct transport *t;
    struct hb_buf in, errs;
    int ends, closes;
    char why[HB_ERROR_TEXT_MAX]; /* of the end */
    size_t close_after;          /* bytes; 0: never */
    size_t max_queued;
};

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct seen *s = arg;

    ck_assert_int_eq(s->ends, 0);
    hb_buf_append(&s->in, bytes, len);
    if (s->close_after && hb_buf_len(&s->in) >= s->close_after)
        transport_close(s->t);
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
    snprintf(s->why, sizeof(s->why), "%s", err ? err->text : "");
    transport_close(s->t);
    transport_close(s->t);
}

static void on_close(void *arg)
{
    struct seen *s = arg;

    s->closes++;
}

static uv_loop_t loop;
static struct seen seen;
static struct hb_log hush;

static void drop(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static struct transport_config config(const char *part)
{
    setenv("FAKE_AGENT", part, 1);
    return (struct transport_config){
        .loop = &loop,
        .log = &hush,
        .host = "here",
        .agent_path = self,
        .events = {.on_read = on_read,
                   .on_stderr = on_stderr,
                   .on_end = on_end,
                   .on_close = on_close},
        .arg = &seen,
        .exit_wait_ms = 20000,
    };
}

static void open_as(const char *part)
{
    struct transport_config c = config(part);
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(transport_open_local(&c, &seen.t, &err) == 0, "%s", err.text);
    ck_assert_int_eq(seen.ends + seen.closes, 0);
}

static int open_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int fds_before;

static void setup(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    hush = (struct hb_log){.sink = drop};
    memset(&seen, 0, sizeof(seen));
    /* The loop opens its own descriptors when it first runs. */
    uv_run(&loop, UV_RUN_NOWAIT);
    fds_before = open_fds();
}

static void teardown(void)
{
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    hb_buf_free(&seen.in);
    hb_buf_free(&seen.errs);
}

static void run(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(seen.closes, 1);
    ck_assert_int_eq(open_fds(), fds_before);
}

START_TEST(echo)
{
    open_as("cat");
    ck_assert_int_eq(transport_write(seen.t, "hello ", 6), 0);
    ck_assert_int_eq(transport_write(seen.t, "agent", 5), 0);
    seen.close_after = 11;
    run();
    ck_assert_str_eq(hb_buf_data(&seen.in), "hello agent");
    ck_assert_int_eq(seen.ends, 0);
}
END_TEST

/* More than a socket buffer holds: queued, and flushed before the end. */
START_TEST(large_writes_are_queued_and_flushed)
{
    size_t len = 8 << 20;
    char *bytes = calloc(1, len);
    siginfo_t agent;

    open_as("count");
    ck_assert_ptr_nonnull(bytes);
    /* The agent must not read meanwhile. */
    ck_assert_int_eq(waitid(P_ALL, 0, &agent, WSTOPPED | WNOWAIT), 0);
    ck_assert_int_eq(transport_write(seen.t, bytes, len), 0);
    ck_assert_uint_gt(transport_write_queued(seen.t), 0);
    ck_assert_int_eq(transport_write(seen.t, "x", 1), 0);
    ck_assert_int_eq(kill(agent.si_pid, SIGCONT), 0);
    free(bytes);
    /* The agent answers after it has read our end of file. */
    transport_close(seen.t);
    ck_assert_int_eq(transport_write(seen.t, "x", 1), -HVD_ECLOSED);
    run();
    ck_assert_str_eq(hb_buf_data(&seen.errs), "8388609\n");
}
END_TEST

START_TEST(agent_that_exits)
{
    open_as("exit");
    run();
    ck_assert_int_eq(seen.ends, 1);
}
END_TEST

START_TEST(last_words_are_read)
{
    open_as("talk");
    run();
    ck_assert_int_eq(seen.ends, 1);
    ck_assert_str_eq(hb_buf_data(&seen.in), "on stdout");
    ck_assert_str_eq(hb_buf_data(&seen.errs), "on stderr\n");
}
END_TEST

START_TEST(write_to_a_dead_agent)
{
    size_t len = 8 << 20;
    char *bytes = calloc(1, len);

    open_as("exit");
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(transport_write(seen.t, bytes, len), 0);
    free(bytes);
    run();
    ck_assert_int_eq(seen.ends, 1);
}
END_TEST

START_TEST(how_the_agent_ended)
{
    static const struct {
        const char *part, *why;
    } cases[] = {
        {"exit", ""},
        {"trouble", "it exited with code 125"},
        {"passed on", "it was killed by signal 11 (SIGSEGV)"},
        {"killed", "it was killed by signal 9 (SIGKILL)"},
        {"slow", "it exited with code 125"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        seen.ends = seen.closes = 0;
        open_as(cases[i].part);
        run();
        ck_assert_int_eq(seen.ends, 1);
        ck_assert_str_eq(seen.why, cases[i].why);
    }
}
END_TEST

/* A stopped agent is continued, so that it reads the end of the stream. */
START_TEST(stopped_agent_ends)
{
    siginfo_t info;

    open_as("stop");
    ck_assert_int_eq(waitid(P_ALL, 0, &info, WSTOPPED | WNOWAIT), 0);
    transport_close(seen.t);
    run();
    ck_assert_str_eq(hb_buf_data(&seen.errs), "continued\n");
}
END_TEST

/* SIGCONT would take away the SIGSTOP of a leak check that attaches. */
START_TEST(running_agent_gets_no_sigcont)
{
    open_as("tell sigcont");
    seen.close_after = 5;
    run();
    ck_assert_str_eq(hb_buf_data(&seen.in), "ready");
    ck_assert_str_eq(hb_buf_data(&seen.errs), "");
}
END_TEST

START_TEST(agent_that_does_not_end_is_killed)
{
    struct transport_config c = config("stubborn");

    c.exit_wait_ms = 10;
    ck_assert_int_eq(transport_open_local(&c, &seen.t, NULL), 0);
    transport_close(seen.t);
    run();
}
END_TEST

START_TEST(inherits_little)
{
    struct rlimit few = {40, 50};
    struct transport_config c = config("inherited");

    signal(SIGPIPE, SIG_IGN);
    c.nofile = &few;
    ck_assert_int_eq(transport_open_local(&c, &seen.t, NULL), 0);
    run();
    ck_assert_str_eq(hb_buf_data(&seen.in), "sigpipe default, nofile 40");
}
END_TEST

static void fails(const char *path, int status, const char *text)
{
    struct transport_config c = config("exit");
    struct hb_error err = HB_ERROR_INIT;

    c.agent_path = path;
    ck_assert_int_eq(transport_open_local(&c, &seen.t, &err), -status);
    ck_assert_msg(strstr(err.text, text) && strstr(err.text, path), "%s",
                  err.text);
    ck_assert_msg(strncmp(err.text, "cannot start", 12) == 0, "%s", err.text);
    ck_assert_ptr_null(seen.t);
    ck_assert_int_eq(open_fds(), fds_before);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_NOWAIT), 0);
    ck_assert_int_eq(seen.closes, 0);
}

START_TEST(missing_agent)
{
    fails("/nonexistent/hvd-agent", HVD_ENOENT, "No such file");
}
END_TEST

START_TEST(agent_that_cannot_run)
{
    fails("/", HVD_EPERM, "Permission denied");
    fails("/dev/null", HVD_EPERM, "Permission denied");
}
END_TEST

/* ---- The other side ---- */

static void tell_continued(int signo)
{
    (void)signo;
    (void)!write(2, "continued\n", 10);
}

static int play(const char *part)
{
    static char bytes[65536];
    struct rlimit limit;
    size_t total = 0;
    ssize_t n;

    if (strcmp(part, "exit") == 0)
        return 0;
    if (strcmp(part, "trouble") == 0)
        return 125;
    if (strcmp(part, "passed on") == 0)
        return 128 + SIGSEGV;
    if (strcmp(part, "killed") == 0)
        return raise(SIGKILL);
    if (strcmp(part, "slow") == 0) {
        close(0);
        close(1);
        poll(NULL, 0, 50); /* longer than the closing takes to be noticed */
        return 125;
    }
    if (strcmp(part, "stop") == 0) {
        raise(SIGSTOP);
        return write(2, "continued\n", 10) != 10;
    }
    if (strcmp(part, "tell sigcont") == 0) {
        signal(SIGCONT, tell_continued);
        if (write(1, "ready", 5) != 5)
            return 1;
    }
    if (strcmp(part, "talk") == 0)
        return write(1, "on stdout", 9) + write(2, "on stderr\n", 10) != 19;
    if (strcmp(part, "inherited") == 0) {
        getrlimit(RLIMIT_NOFILE, &limit);
        return dprintf(1, "sigpipe %s, nofile %d",
                       signal(SIGPIPE, SIG_DFL) == SIG_DFL ? "default"
                                                           : "ignored",
                       (int)limit.rlim_cur) < 0;
    }
    if (strcmp(part, "count") == 0)
        raise(SIGSTOP);
    while ((n = read(0, bytes, sizeof(bytes))) > 0) {
        total += (size_t)n;
        if (strcmp(part, "cat") == 0 && write(1, bytes, (size_t)n) != n)
            return 1;
    }
    if (strcmp(part, "count") == 0)
        dprintf(2, "%zu\n", total);
    while (strcmp(part, "stubborn") == 0)
        pause();
    return 0;
}

int main(int argc, char *argv[])
{
    Suite *suite;
    TCase *tc;

    if (argc > 0 && strcmp(argv[0], "hvd-agent") == 0)
        return play(getenv("FAKE_AGENT"));
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return EXIT_FAILURE;
    suite = suite_create("transport_local");
    tc = tcase_create("all");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, echo);
    tcase_add_test(tc, large_writes_are_queued_and_flushed);
    tcase_add_test(tc, agent_that_exits);
    tcase_add_test(tc, last_words_are_read);
    tcase_add_test(tc, write_to_a_dead_agent);
    tcase_add_test(tc, how_the_agent_ended);
    tcase_add_test(tc, stopped_agent_ends);
    tcase_add_test(tc, running_agent_gets_no_sigcont);
    tcase_add_test(tc, agent_that_does_not_end_is_killed);
    tcase_add_test(tc, inherits_little);
    tcase_add_test(tc, missing_agent);
    tcase_add_test(tc, agent_that_cannot_run);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
