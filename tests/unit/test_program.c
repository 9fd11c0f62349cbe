/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/program.h: which file is run, or why none. */
#include "lib/agent/rank/program.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static struct fixture fixture;
static const char *const dir = fixture.root;
static char closed[128]; /* a directory in it that only root may search */

static void make_file(const char *name, const char *text, mode_t mode)
{
    char *path = hb_xasprintf("%s/%s", dir, name);

    fixture_file(&fixture, name, text);
    ck_assert_int_eq(chmod(path, mode), 0);
    hb_free(path);
}

static void setup(void)
{
    fixtures_setup();
    fixture_open(&fixture);
    make_file("tool", "#!/nowhere/sh\n", 0755);
    make_file("data", "#!/bin/sh\n", 0644);
    make_file("train.py", "import sys\n", 0644);
    make_file("closed/below/tool", "#!/bin/sh\n", 0755);
    snprintf(closed, sizeof(closed), "%s/closed", dir);
    /* Other users must be able to search it. */
    ck_assert_int_eq(chmod(dir, 0755), 0);
    *strrchr(closed, '/') = '\0';
    *strrchr(closed, '/') = '\0';
    ck_assert_int_eq(chmod(closed, 0755), 0);
    snprintf(closed, sizeof(closed), "%s/closed", dir);
}

static void teardown(void)
{
    chmod(closed, 0700);
    fixtures_teardown();
}

/* Resolves `name`; the result must be dir/expected, or an exit code and a
 * text. */
static void found(const char *name, const char *path, const char *cwd,
                  const char *expected)
{
    struct hb_error err = HB_ERROR_INIT;
    char *want = hb_xasprintf("%s/%s", dir, expected), *got = NULL;
    int exit_code = -1;

    ck_assert_msg(program_resolve(name, path, cwd, &got, &exit_code, &err) == 0,
                  "%s", err.text);
    ck_assert_str_eq(got, want);
    ck_assert_int_eq(exit_code, -1);
    hb_free(want);
    hb_free(got);
}

static void refused(const char *name, const char *path, int code,
                    const char *text)
{
    struct hb_error err = HB_ERROR_INIT;
    char *got = NULL;
    int exit_code = -1;

    ck_assert_int_lt(program_resolve(name, path, dir, &got, &exit_code, &err),
                     0);
    ck_assert_int_eq(exit_code, code);
    ck_assert_ptr_null(got);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(test_resolve)
{
    found("tool", dir, "/", "tool");
    found("./tool", "/bin", dir, "./tool");
    found("tool", "/nowhere:", dir, "tool"); /* empty entry: cwd */
    found("tool", ":/nowhere", dir, "tool");
    found("tool", "./.", dir, "././tool"); /* relative entry: to cwd */
    found("tool", "./data:.", dir, "./tool");
    refused("tool", "/nowhere:/bin", 127, "tool: command not found");
    refused("./nope", "/bin", 127, "No such file");
    refused("", "/bin", 127, "not found");
    refused("data", dir, 126, "not executable");
    refused("./data", "/bin", 126, "not executable");
    refused("train.py", "/bin", 127, "try python train.py");
    refused("./train.py", "/bin", 126, "try python before its name");
    refused("/tmp", "/bin", 126, "is a directory");
    refused("./data/x", "/bin", 127, "Not a directory");
}
END_TEST

/* Root may search any directory; the tests that run as a user may not. */
START_TEST(test_directory_that_may_not_be_searched)
{
    char path[160], text[160];

    if (geteuid() == 0)
        ck_assert_int_eq(seteuid(NOBODY), 0);
    else
        ck_assert_int_eq(chmod(closed, 0600), 0);
    snprintf(path, sizeof(path), "%s/below/tool", closed);
    snprintf(text, sizeof(text), "directory %s may not be searched", closed);
    refused(path, "/bin", 126, text);
    refused("closed/below/tool", "/bin", 126, text);
    /* On PATH such a directory is skipped. */
    found("tool", "closed/below:.", dir, "./tool");
    refused("data", "closed/below:/bin", 127, "command not found");
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

START_TEST(test_default_path)
{
    struct hb_error err = HB_ERROR_INIT;
    char *got = NULL;
    int code;

    ck_assert_int_eq(program_resolve("true", NULL, "/", &got, &code, &err), 0);
    ck_assert_ptr_nonnull(strstr(got, "/bin/true"));
    hb_free(got);
}
END_TEST

START_TEST(test_exec_errors_are_explained)
{
    struct hb_error err = HB_ERROR_INIT;
    char *path = hb_xasprintf("%s/tool", dir);
    int code = 0;

    program_exec_error(path, ENOENT, &code, &err);
    ck_assert_int_eq(code, 126);
    ck_assert_ptr_nonnull(
        strstr(err.text, "bad interpreter: /nowhere/sh does not exist"));
    hb_error_clear(&err);
    program_exec_error(path, ENOEXEC, &code, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "exec format error"));
    hb_error_clear(&err);
    program_exec_error("/bin/true", ENOENT, &code, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "loader"));
    hb_error_clear(&err);
    program_exec_error(path, E2BIG, &code, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "longer than"));
    hb_free(path);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("program");
    TCase *t = tcase_create("program");

    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, test_resolve);
    tcase_add_test(t, test_directory_that_may_not_be_searched);
    tcase_add_test(t, test_default_path);
    tcase_add_test(t, test_exec_errors_are_explained);
    suite_add_tcase(s, t);
    return unit_run(s);
}
