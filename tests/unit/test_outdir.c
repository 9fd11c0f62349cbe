/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/outdir: the ranks' output in files. */
#include "lib/base/hvd_status.h"
#include "lib/job/output/outdir.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static struct outdir d;

static void setup(void)
{
    strcpy(dir, "/tmp/test_outdir.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static int remove_one(const char *path, const struct stat *st, int flag,
                      struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void teardown(void)
{
    outdir_close(&d);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void expect_file(const char *name, const char *want)
{
    char have[256] = "";
    FILE *f = fopen(path_of(name), "r");

    ck_assert_msg(f != NULL, "%s is missing", name);
    have[fread(have, 1, sizeof(have) - 1, f)] = '\0';
    fclose(f);
    ck_assert_str_eq(have, want);
}

static void open_ranks(int ranks)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(outdir_open(&d, path_of("x/y"), ranks, ranks, &err) == 0,
                  "%s", err.text);
}

START_TEST(makes_directories_and_files)
{
    open_ranks(2);
    expect_file("x/y/rank.0/stdout", "");
    expect_file("x/y/rank.1/stderr", "");
    ck_assert_int_ne(access(path_of("x/y/rank.2"), F_OK), 0);
}
END_TEST

START_TEST(pads_to_the_highest_rank)
{
    static const struct {
        int ranks;
        const char *first, *last;
    } cases[] = {{1, "x/y/rank.0/stdout", "x/y/rank.0/stderr"},
                 {10, "x/y/rank.0/stdout", "x/y/rank.9/stderr"},
                 {11, "x/y/rank.00/stdout", "x/y/rank.10/stderr"},
                 {101, "x/y/rank.000/stdout", "x/y/rank.100/stderr"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_ranks(cases[i].ranks);
        expect_file(cases[i].first, "");
        expect_file(cases[i].last, "");
        outdir_close(&d);
    }
}
END_TEST

START_TEST(writes_after_flush)
{
    open_ranks(2);
    ck_assert_int_eq(outdir_write(&d, 0, 1, "a\0b", 3, NULL), 0);
    ck_assert_int_eq(outdir_write(&d, 1, 2, "err", 3, NULL), 0);
    ck_assert_int_eq(outdir_write(&d, 1, 2, "or\n", 3, NULL), 0);
    expect_file("x/y/rank.1/stderr", "");
    ck_assert_int_eq(outdir_flush(&d, NULL), 0);
    expect_file("x/y/rank.0/stdout", "a");
    expect_file("x/y/rank.1/stderr", "error\n");
    ck_assert_int_eq(outdir_write(&d, 1, 2, "more", 4, NULL), 0);
    ck_assert_int_eq(outdir_flush(&d, NULL), 0);
    ck_assert_int_eq(outdir_flush(&d, NULL), 0);
    expect_file("x/y/rank.1/stderr", "error\nmore");
}
END_TEST

START_TEST(truncates_what_was_there)
{
    open_ranks(1);
    outdir_write(&d, 0, 1, "old output", 10, NULL);
    outdir_flush(&d, NULL);
    outdir_close(&d);
    open_ranks(1);
    expect_file("x/y/rank.0/stdout", "");
}
END_TEST

START_TEST(large_writes_do_not_wait)
{
    static char bytes[100000];
    struct stat st;

    open_ranks(1);
    ck_assert_int_eq(outdir_write(&d, 0, 1, bytes, sizeof(bytes), NULL), 0);
    ck_assert_int_eq(stat(path_of("x/y/rank.0/stdout"), &st), 0);
    ck_assert_int_eq(st.st_size, sizeof(bytes));
}
END_TEST

START_TEST(not_a_directory)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_lt(outdir_open(&d, "/dev/null/x", 1, 1, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "/dev/null"));
    hb_error_clear(&err);
    ck_assert_int_lt(outdir_open(&d, "", 1, 1, &err), 0);
}
END_TEST

/* A file is in the way of rank 1's directory. */
START_TEST(half_made)
{
    struct hb_error err = HB_ERROR_INIT;

    close(open(path_of("rank.1"), O_CREAT | O_WRONLY, 0600));
    ck_assert_int_lt(outdir_open(&d, dir, 2, 2, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "rank.1"));
    ck_assert_ptr_null(d.files);
}
END_TEST

START_TEST(full_disk_is_told_once)
{
    struct hb_error err = HB_ERROR_INIT;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(full, 0);
    open_ranks(2);
    ck_assert_int_ge(dup2(full, d.files[2].fd), 0);
    close(full);
    ck_assert_int_eq(outdir_write(&d, 1, 1, "x", 1, &err), 0);
    ck_assert_int_lt(outdir_flush(&d, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "rank 1"));
    ck_assert_ptr_nonnull(strstr(err.text, "No space left"));
    ck_assert_int_eq(outdir_write(&d, 0, 1, "y", 1, NULL), 0);
    ck_assert_int_eq(outdir_flush(&d, NULL), 0);
    expect_file("x/y/rank.0/stdout", "");
}
END_TEST

START_TEST(raises_the_limit_of_files)
{
    struct rlimit small = {64, 0}, now;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
    if (now.rlim_max < 1024)
        return;
    small.rlim_max = now.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    open_ranks(100);
    ck_assert_int_eq(d.limit_raised, 1);
    ck_assert_uint_eq(d.old_limit.rlim_cur, 64);
    outdir_close(&d);
    small.rlim_cur = small.rlim_max = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    ck_assert_int_eq(outdir_open(&d, dir, 100, 100, NULL), -HVD_EINVAL);
}
END_TEST

/* Ranks that come later get files when they write. */
START_TEST(test_later_ranks)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(outdir_open(&d, dir, 20, 1, &err), 0);
    ck_assert_int_ne(access(path_of("rank.19"), F_OK), 0);
    ck_assert_int_eq(outdir_write(&d, 19, 2, "late\n", 5, &err), 0);
    ck_assert_int_eq(outdir_flush(&d, &err), 0);
    expect_file("rank.00/stdout", "");
    expect_file("rank.19/stdout", "");
    expect_file("rank.19/stderr", "late\n");
    ck_assert_int_ne(access(path_of("rank.18"), F_OK), 0);
    outdir_close(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outdir");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, makes_directories_and_files);
    tcase_add_test(tc, test_later_ranks);
    tcase_add_test(tc, pads_to_the_highest_rank);
    tcase_add_test(tc, writes_after_flush);
    tcase_add_test(tc, truncates_what_was_there);
    tcase_add_test(tc, large_writes_do_not_wait);
    tcase_add_test(tc, not_a_directory);
    tcase_add_test(tc, half_made);
    tcase_add_test(tc, full_disk_is_told_once);
    tcase_add_test(tc, raises_the_limit_of_files);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
