/* SPDX-License-Identifier: Apache-2.0 */
/* Asking programs and libraries for their versions. */
#include "cmd/hvdrun/mpi/mpi_find.h"
#include "cmd/hvdrun/probe.h"
#include "cmd/hvdrun/run_job.h"
#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct hb_buf out;
static struct hb_error err;

static void setup(void)
{
    hb_error_clear(&err);
}

static void teardown(void)
{
    hb_buf_free(&out);
}

static int shell(const char *script)
{
    char name[] = "sh", flag[] = "-c", text[256];
    char *argv[] = {name, flag, text, NULL};

    snprintf(text, sizeof(text), "%s", script);
    return probe_program("/bin/sh", argv, &out, &err);
}

START_TEST(both_streams_are_read)
{
    ck_assert_int_eq(shell("echo one; echo two >&2; exit 3"), 0);
    ck_assert_str_eq(hb_buf_data(&out), "one\ntwo\n");
}
END_TEST

START_TEST(it_has_no_input)
{
    ck_assert_int_eq(shell("cat; echo end"), 0);
    ck_assert_str_eq(hb_buf_data(&out), "end\n");
}
END_TEST

/* Read to its end, so that the program is not stopped; only part is kept. */
START_TEST(much_output)
{
    ck_assert_int_eq(shell("head -c 1000000 /dev/zero | tr '\\0' x"), 0);
    ck_assert_uint_ge(hb_buf_len(&out), 64 << 10);
    ck_assert_uint_le(hb_buf_len(&out), 80 << 10);
}
END_TEST

START_TEST(not_a_program)
{
    char name[] = "nosuch";
    char *argv[] = {name, NULL};

    ck_assert_int_eq(probe_program("/nosuch/nosuch", argv, &out, &err),
                     -HVD_ESYSTEM);
    ck_assert_str_eq(err.text, "it cannot be run");
}
END_TEST

START_TEST(not_a_library)
{
    ck_assert_int_eq(probe_library("/nosuch/lib.so", "x", NULL, &out, &err),
                     -HVD_ESYSTEM);
    ck_assert_ptr_nonnull(strstr(err.text, "/nosuch/lib.so"));
    ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

START_TEST(not_the_library)
{
    ck_assert_int_eq(probe_library("libc.so.6", "hvd_nosuch", NULL, &out, &err),
                     -HVD_ESYSTEM);
    ck_assert_ptr_nonnull(strstr(err.text, "hvd_nosuch"));
    hb_buf_clear(&out);
    ck_assert_int_eq(probe_library("libc.so.6", "printf", NULL, &out, &err), 0);
    ck_assert_int_eq(hb_buf_data(&out)[0], '\n');
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&out), "/libc.so.6"));
}
END_TEST

/* stand_in.so is linked to search the folder `beside`. */
START_TEST(a_library_that_only_another_finds)
{
    char *own = run_program_dir();
    char *by = hb_xasprintf("%s/stand_in.so", own);
    char *text = hb_xasprintf("2.99.3\n%s/beside/beside.so", own);

    ck_assert_int_eq(
        probe_library("beside.so", "ncclGetVersion", NULL, &out, &err),
        -HVD_ESYSTEM);
    hb_buf_clear(&out);
    ck_assert_int_eq(
        probe_library("beside.so", "ncclGetVersion", by, &out, NULL), 0);
    ck_assert_str_eq(hb_buf_data(&out), text);
    hb_buf_clear(&out);
    ck_assert_int_eq(probe_library("nosuch.so", "x", by, &out, NULL),
                     -HVD_ESYSTEM);
    hb_free(text);
    hb_free(by);
    hb_free(own);
}
END_TEST

START_TEST(programs_are_found_as_a_shell_does)
{
    char *path = mpi_program_path("sh");

    ck_assert_ptr_nonnull(path);
    ck_assert_int_eq(path[0], '/');
    hb_free(path);
    path = mpi_program_path("/bin/sh");
    ck_assert_str_eq(path, "/bin/sh");
    hb_free(path);
    ck_assert_ptr_null(mpi_program_path("hvd-nosuch-program"));
    ck_assert_ptr_null(mpi_program_path("/bin"));
    ck_assert_ptr_null(mpi_program_path("/etc/passwd"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("probe");
    TCase *t = tcase_create("probe");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, both_streams_are_read);
    tcase_add_test(t, it_has_no_input);
    tcase_add_test(t, much_output);
    tcase_add_test(t, not_a_program);
    tcase_add_test(t, not_a_library);
    tcase_add_test(t, not_the_library);
    tcase_add_test(t, a_library_that_only_another_finds);
    tcase_add_test(t, programs_are_found_as_a_shell_does);
    suite_add_tcase(s, t);
    return unit_run(s);
}
