/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/discovery/discoverer: scripts that answer, fail, hang and flood, and
 * files that change. */
#include "lib/base/alloc.h"
#include "lib/job/discovery/discoverer.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uv_loop_t loop;
static const struct hb_log no_log = {.level = HB_LOG_ERROR};
static struct discoverer *discoverer;
static char seen[512]; /* what the callbacks said, in order */
static int events, wanted;

static void note(const char *what)
{
    size_t used = strlen(seen);

    snprintf(seen + used, sizeof(seen) - used, "%s%s", used ? "; " : "", what);
    if (++events == wanted)
        discoverer_close(discoverer);
}

static void on_hosts(void *arg, const struct hostlist *hosts, int slots)
{
    char text[128] = "";

    (void)arg;
    for (size_t i = 0; i < hosts->count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ",
                 hosts->entries[i].name);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "= %d", slots);
    note(text);
}

static void on_trouble(void *arg, const char *why)
{
    (void)arg;
    note(why);
}

static const struct hostlist *before;
static int limit_ms = 20000; /* of the script */

/* Runs until `count` callbacks have come; they must have said `want`. */
static void expect(const char *script, const char *file, int count,
                   const char *want)
{
    const struct discoverer_config config = {.loop = &loop,
                                             .before = before,
                                             .log = &no_log,
                                             .script = script,
                                             .hostfile = file,
                                             .pause_ms = 10,
                                             .limit_ms = limit_ms,
                                             .on_hosts = on_hosts,
                                             .on_trouble = on_trouble};

    seen[0] = '\0';
    events = 0;
    wanted = count;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    discoverer = discoverer_open(&config);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_str_eq(seen, want);
}

START_TEST(answers)
{
    expect("echo a:2; echo b", NULL, 1, "a b = 3");
    expect("cat; echo a", NULL, 1, "a = 1"); /* stdin has ended */
    expect("true", NULL, 1, "= 0");
    expect("sleep 1000 & echo a", NULL, 1, "a = 1"); /* nobody waits for it */
}
END_TEST

START_TEST(failures)
{
    expect("exit 4", NULL, 1, "exit code 4");
    expect("printf 'first\\nlast words' >&2; exit 4", NULL, 1,
           "exit code 4: last words");
    expect("kill -9 $$", NULL, 1, "killed by signal 9 (SIGKILL)");
    expect("yes n1", NULL, 1, "it printed more than 1 MiB");
    expect("printf 'a\\033[31m:b' >&2; exit 1", NULL, 1,
           "exit code 1: a?[31m:b");
}
END_TEST

/* It is killed with what it has started, also if that alone holds its
 * output. */
START_TEST(hangs)
{
    limit_ms = 300;
    expect("sleep 1000", NULL, 1, "it did not end within 0.3 s and was killed");
    expect("trap '' TERM; sleep 1000 & wait", NULL, 1,
           "it did not end within 0.3 s and was killed");
}
END_TEST

/* One trouble until the next good answer; one call per change. */
START_TEST(changes)
{
    char dir[] = "/tmp/discoverer.XXXXXX", *script;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    script = hb_xasprintf("n=$(cat %s/n 2>/dev/null || echo 0)\n"
                          "echo $((n + 1)) >%s/n\n"
                          "case $n in 0|1) echo a;; 2|3) exit 1;; 4) echo a;;"
                          " 5) exit 2;; *) echo b; echo a;; esac",
                          dir, dir);
    expect(script, NULL, 4, "a = 1; exit code 1; exit code 2; b a = 2");
    hb_free(script);
    script = hb_xasprintf("%s/n", dir);
    unlink(script);
    rmdir(dir);
    hb_free(script);
}
END_TEST

/* A host of the answer before the first is left out only if the second does
 * not name it either. */
START_TEST(an_answer_before)
{
    struct hostlist l = HOSTLIST_INIT;

    ck_assert_int_eq(hostlist_parse("a,b:2", &l, NULL), 0);
    before = &l;
    expect("echo b:2", NULL, 2, "b a = 3; b = 2");
    before = NULL;
    hostlist_free(&l);
}
END_TEST

START_TEST(files)
{
    char path[] = "/tmp/discoverer.XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    dprintf(fd, "a slots=4\nb\n");
    expect(NULL, path, 1, "a b = 5");
    close(fd);
    unlink(path);
    expect(NULL, path, 1, "No such file or directory");
    expect(NULL, "/dev/zero", 1, "File too large");
}
END_TEST

/* It is closed while the script runs. */
START_TEST(closed_early)
{
    const struct discoverer_config config = {.loop = &loop,
                                             .log = &no_log,
                                             .script = "sleep 1000",
                                             .pause_ms = 10,
                                             .limit_ms = 100000,
                                             .on_hosts = on_hosts,
                                             .on_trouble = on_trouble};

    ck_assert_int_eq(uv_loop_init(&loop), 0);
    discoverer = discoverer_open(&config);
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    discoverer_close(discoverer);
    discoverer_close(NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(events, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("discoverer");
    TCase *t = tcase_create("discoverer");

    tcase_set_timeout(t, 30);
    tcase_add_test(t, answers);
    tcase_add_test(t, failures);
    tcase_add_test(t, hangs);
    tcase_add_test(t, changes);
    tcase_add_test(t, an_answer_before);
    tcase_add_test(t, files);
    tcase_add_test(t, closed_early);
    suite_add_tcase(suite, t);
    return unit_run(suite);
}
