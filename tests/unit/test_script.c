/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/discovery/script, with scripts that do as they should and others. */
#include "lib/base/buf.h"
#include "lib/job/discovery/script.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 300, BYTES_MAX = 128 << 10 };

static const struct hb_log no_log = {.level = HB_LOG_ERROR};
static uv_loop_t loop;
static struct script *script;
static struct hb_buf text;
static char why[512];
static int ends, runs_wanted, closed;

static void on_end(void *arg, const char *bytes, size_t len, const char *reason)
{
    (void)arg;
    ends++;
    hb_buf_clear(&text);
    hb_must(hb_buf_append(&text, bytes, len));
    hb_must(hb_buf_append(&text, "", 1));
    snprintf(why, sizeof(why), "%s", reason ? reason : "");
    ck_assert(!reason || len == 0);
    if (ends < runs_wanted)
        ck_assert_int_eq(script_run(script, NULL), 0);
    else
        script_close(script);
}

static void on_close(void *arg)
{
    (void)arg;
    closed++;
}

static void open_script(const char *command, int64_t limit_ms)
{
    const struct script_config config = {.loop = &loop,
                                         .log = &no_log,
                                         .what = "test script",
                                         .command = command,
                                         .bytes_max = BYTES_MAX,
                                         .limit_ms = limit_ms,
                                         .on_end = on_end,
                                         .on_close = on_close};

    ends = closed = 0;
    why[0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    script = script_new(&config);
}

static void finish(void)
{
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(closed, 1);
}

/* Runs the command `count` times; returns how long that took. */
static uint64_t run(const char *command, int64_t limit_ms, int count)
{
    uint64_t from = uv_hrtime();

    runs_wanted = count;
    open_script(command, limit_ms);
    ck_assert_int_eq(script_run(script, NULL), 0);
    finish();
    ck_assert_int_eq(ends, count);
    return (uv_hrtime() - from) / 1000000;
}

static void prints(const char *command, const char *want)
{
    run(command, 30000, 1);
    ck_assert_str_eq(why, "");
    ck_assert_str_eq(hb_buf_data(&text), want);
}

static void fails(const char *command, const char *want)
{
    run(command, 30000, 1);
    ck_assert_str_eq(why, want);
}

static void is_killed(const char *command, const char *want)
{
    run(command, LIMIT_MS, 1);
    ck_assert_str_eq(why, want);
}

#define TOO_LATE "it did not end within 0.3 s and was killed"

START_TEST(good_ones)
{
    prints("echo a; echo b", "a\nb\n");
    prints("true", "");
    prints("cat; readlink /proc/self/fd/0", "/dev/null\n");
    prints("echo no trouble >&2; echo a", "a\n");
    prints("head -c 131072 /dev/zero | tr '\\0' x | wc -c", "131072\n");
    run("head -c 131072 /dev/zero | tr '\\0' x", 30000, 1);
    ck_assert_uint_eq(strlen(hb_buf_data(&text)), BYTES_MAX);
}
END_TEST

START_TEST(bad_ones)
{
    fails("echo a; exit 3", "exit code 3");
    fails("echo a; printf 'first\\nlast\\n\\n' >&2; exit 3",
          "exit code 3: last");
    fails("printf 'a\\033[2Jb' >&2; exit 1", "exit code 1: a?[2Jb");
    fails("echo oops >&2; kill -SEGV $$",
          "killed by signal 11 (SIGSEGV): oops");
    run("no-such-command", 30000, 1);
    ck_assert_ptr_nonnull(strstr(why, "exit code 127: "));
}
END_TEST

START_TEST(without_end)
{
    fails("yes", "it printed more than 128 KiB");
    run("yes >&2", 3000, 1);
    ck_assert_str_eq(why, "it did not end within 3 s and was killed: y");
    is_killed("sleep 1000", TOO_LATE);
    is_killed("exec >&-; sleep 1000", TOO_LATE);
    is_killed("trap '' TERM; while :; do sleep 0.1; done", TOO_LATE);
    is_killed("sleep 1000 & wait", TOO_LATE);
    is_killed("kill -STOP $$", TOO_LATE);
}
END_TEST

/* A process in its group that it leaves behind is killed and reaped, whatever
 * it holds; no run waits for it. */
START_TEST(leavings)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ck_assert_uint_lt(
        run("trap '' TERM; sleep 1000 & (sleep 1000 &) ; echo a", 30000, 3),
        10000);
    ck_assert_str_eq(why, "");
    ck_assert_str_eq(hb_buf_data(&text), "a\n");
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}
END_TEST

/* One that has gone into a session of its own, with the output, is not waited
 * for. */
START_TEST(a_daemon)
{
    pid_t pid;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ck_assert_uint_lt(
        run("setsid sh -c 'echo $$; exec sleep 1000' & sleep 0.2", 30000, 1),
        10000);
    ck_assert_str_eq(why, "");
    pid = atoi(hb_buf_data(&text));
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

START_TEST(environment)
{
    setenv("_HOROVOD_SECRET_KEY", "x", 1);
    setenv("HVD_RENDEZVOUS", "x", 1);
    setenv("HVD_RANK", "3", 1);
    setenv("TEST_OWN", "mine", 1);
    prints("echo $_HOROVOD_SECRET_KEY$HVD_RENDEZVOUS$HVD_RANK$TEST_OWN",
           "mine\n");
}
END_TEST

START_TEST(closed_early)
{
    open_script("sleep 1000", 30000);
    script_close(script);
    finish();
    open_script("trap '' TERM; sleep 1000; sleep 1000", 30000);
    ck_assert_int_eq(script_run(script, NULL), 0);
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    script_close(script);
    script_close(script);
    script_close(NULL);
    finish();
    ck_assert_int_eq(ends, 0);
}
END_TEST

START_TEST(cannot_start)
{
    struct rlimit files, none;
    struct hb_error err = HB_ERROR_INIT;

    open_script("true", 30000);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = (struct rlimit){0, files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    ck_assert_int_lt(script_run(script, &err), 0);
    setrlimit(RLIMIT_NOFILE, &files);
    ck_assert_str_eq(err.text, "it cannot be started: Too many open files");
    script_close(script);
    finish();
    ck_assert_int_eq(ends, 0);
}
END_TEST

/* Its owner is killed as soon as it runs: so is it, with what it has
 * started. */
START_TEST(the_owner_dies)
{
    char command[128], bytes[64] = "";
    int fds[2], status;
    pid_t owner, pid;
    ssize_t n;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ck_assert_int_eq(pipe(fds), 0);
    snprintf(command, sizeof(command),
             "trap '' TERM; sleep 1000 & echo $$ >/proc/%d/fd/%d; wait",
             (int)getpid(), fds[1]);
    owner = fork();
    if (owner == 0) {
        open_script(command, 100000);
        script_run(script, NULL);
        uv_run(&loop, UV_RUN_DEFAULT);
        _exit(1);
    }
    n = read(fds[0], bytes, sizeof(bytes) - 1);
    ck_assert_int_gt(n, 0);
    pid = atoi(bytes);
    ck_assert_int_eq(kill(owner, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert_int_gt(waitpid(-1, &status, 0), 0); /* sleep */
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("script");
    TCase *tc = tcase_create("script");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, good_ones);
    tcase_add_test(tc, bad_ones);
    tcase_add_test(tc, without_end);
    tcase_add_test(tc, leavings);
    tcase_add_test(tc, a_daemon);
    tcase_add_test(tc, environment);
    tcase_add_test(tc, closed_early);
    tcase_add_test(tc, cannot_start);
    tcase_add_test(tc, the_owner_dies);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
