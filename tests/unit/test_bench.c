/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-bench: its command line, and the data that it checks results with. */
#include "cmd/hvd-bench/data.h"
#include "cmd/hvd-bench/options.h"
#include "runtime/plane/reduce.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Splits a command line at blanks and parses it. */
static int parse(struct bench_options *o, const char *line,
                 struct hb_error *err)
{
    char text[4096], *next = text, *word;
    char *argv[64];
    int n = 0;

    ck_assert_uint_lt(strlen(line), sizeof(text));
    strcpy(text, line);
    while ((word = strsep(&next, " ")) && *word)
        argv[n++] = word;
    argv[n] = NULL;
    hb_error_clear(err);
    return bench_options_parse(o, argv, err);
}

static struct bench_options good(const char *line)
{
    struct hb_error err;
    struct bench_options o;

    ck_assert_msg(parse(&o, line, &err) == 0, "%s: %s", line, err.text);
    return o;
}

static void bad(const char *line, const char *part)
{
    struct hb_error err;
    struct bench_options o;

    ck_assert_msg(parse(&o, line, &err) == -HVD_EINVAL, "%s: accepted", line);
    ck_assert_msg(strstr(err.text, part), "%s: '%s' is not in '%s'", line, part,
                  err.text);
    ck_assert_ptr_null(strchr(err.text, '\n'));
}

START_TEST(test_defaults)
{
    struct bench_options o = good("allreduce");

    ck_assert_int_eq(o.what, BENCH_ALLREDUCE);
    ck_assert_int_eq(o.dtype, HVD_FLOAT32);
    ck_assert_int_eq(o.op, HVD_SUM);
    ck_assert_uint_eq(o.nsizes, 10);
    ck_assert_uint_eq(o.sizes[0], 8);
    ck_assert_uint_eq(o.sizes[9], 64u << 20);
    ck_assert(o.check && !o.in_place && !o.json && !o.pin && !o.async);
    ck_assert(o.iters == 0 && o.warmup == -1);
}
END_TEST

START_TEST(test_every_option)
{
    struct bench_options o = good(
        "--dtype=float64 allreduce --op max --iters 7 --warmup 0 --seconds "
        "1.5 --plane shm --in-place --async 3 --json --no-check --pin "
        "--sizes 64");

    ck_assert(o.dtype == HVD_FLOAT64 && o.op == HVD_MAX);
    ck_assert(o.iters == 7 && o.warmup == 0 && o.measure_ms == 1500);
    ck_assert(o.in_place && o.async == 3 && o.json && !o.check && o.pin);
    ck_assert_int_eq(o.plane, BENCH_PLANE_SHM);
    ck_assert_int_eq(good("barrier --plane tcp").plane, BENCH_PLANE_TCP);
    ck_assert_int_eq(good("barrier").plane, BENCH_PLANE_AUTO);
    ck_assert(o.nsizes == 1 && o.sizes[0] == 64);
    ck_assert_int_eq(good("broadcast --in-place").what, BENCH_BROADCAST);
    ck_assert_int_eq(good("allgather").what, BENCH_ALLGATHER);
    ck_assert_int_eq(good("barrier").what, BENCH_BARRIER);
    ck_assert_int_eq(good("idle 250ms").idle_ms, 250);
    ck_assert(good("--help").help && good("--version").version);
}
END_TEST

START_TEST(test_sizes)
{
    struct bench_options o = good("allreduce --sizes 8,1K:5K:x2,3M");

    ck_assert_uint_eq(o.nsizes, 5);
    ck_assert_uint_eq(o.sizes[0], 8);
    ck_assert_uint_eq(o.sizes[1], 1024);
    ck_assert_uint_eq(o.sizes[3], 4096);
    ck_assert_uint_eq(o.sizes[4], 3u << 20);
    ck_assert_uint_eq(good("barrier --sizes 8:64M:x2").nsizes, 24);
    ck_assert_uint_eq(good("barrier --sizes 64:64").nsizes, 1);
    ck_assert_uint_eq(good("barrier --sizes 1T").sizes[0], UINT64_C(1) << 40);
}
END_TEST

START_TEST(test_bad_sizes)
{
    bad("allreduce --sizes x", "--sizes: 'x' is not a size");
    bad("allreduce --sizes 8,,9", "--sizes: ''");
    bad("allreduce --sizes 8:4", "ends before");
    bad("allreduce --sizes 8:64:2", "'2' is no factor");
    bad("allreduce --sizes 8:64:x1", "--sizes:");
    bad("allreduce --sizes 8:64:x2:9", "--sizes:");
    bad("allreduce --sizes 0", "out of range");
    bad("allreduce --sizes 2T", "out of range");
    bad("allreduce --sizes 99999999999999999999", "out of range");
    bad("allreduce --sizes 2 --dtype float32", "less than one float32");
    bad("allreduce --sizes 8:1T:x2,8:1T:x2,8:1T:x2,8:1T:x2", "more than 128");
}
END_TEST

START_TEST(test_bad_lines)
{
    bad("", "no collective");
    bad("--json", "no collective");
    bad("allredoos", "did you mean allreduce?");
    bad("allreduce twice", "one word too many");
    bad("allreduce --itres 3", "did you mean --iters?");
    bad("allreduce --iters", "--iters needs a value");
    bad("allreduce --iters 0", "--iters:");
    bad("allreduce --iters 3x", "--iters:");
    bad("allreduce --json=1", "takes no value");
    bad("allreduce --dtype float31", "did you mean float32?");
    bad("allreduce --op adasum", "no op");
    bad("allreduce --op ?", "no op");
    bad("allreduce --op band", "not defined for float32");
    bad("allreduce --op average --dtype bool", "not defined for bool");
    bad("allreduce --plane mpi", "no plane of this build");
    bad("allreduce --async 0", "--async:");
    bad("allreduce --async 1025", "--async:");
    bad("allreduce --seconds -1", "--seconds:");
    bad("allgather --in-place", "no --in-place");
    bad("idle", "needs SECONDS");
    bad("idle x", "not a duration");
}
END_TEST

START_TEST(test_empty_word)
{
    char *argv[] = {(char *)"allreduce", (char *)"--op", (char *)"", NULL};
    struct hb_error err = HB_ERROR_INIT;
    struct bench_options o;

    ck_assert_int_eq(bench_options_parse(&o, argv, &err), -HVD_EINVAL);
}
END_TEST

/* ---- Data ------------------------------------------------------------ */

enum { COUNT = 3000, MAX_RANKS = 64 };

static const enum hvd_op ops[] = {HVD_AVERAGE, HVD_SUM,  HVD_MIN, HVD_MAX,
                                  HVD_PRODUCT, HVD_BAND, HVD_BOR};

/* What every rank contributes reduces, by the kernels that have tests of
 * their own, to what is compared with. */
static void check_data(enum hvd_dtype dtype, enum hvd_op op, int size)
{
    struct bench_data d = {dtype, op, size, 12345u + (unsigned)size};
    struct hvd__reduce_args args = {1, 1, op == HVD_AVERAGE ? size : 1, 0};
    hvd__reduce_fn *fn = hvd__reduce_get(dtype, op);
    void *bufs[MAX_RANKS], *out = malloc(COUNT * 8);
    const void *srcs[MAX_RANKS];
    uint64_t got, want;

    for (int r = 0; r < size; r++) {
        srcs[r] = bufs[r] = malloc(COUNT * 8);
        ck_assert_ptr_nonnull(bufs[r]);
        bench_data_fill(&d, r, bufs[r], COUNT);
        ck_assert_uint_eq(
            bench_data_compare(&d, r, bufs[r], COUNT, &got, &want), COUNT);
    }
    fn(out, srcs, size, COUNT, &args);
    ck_assert_msg(
        bench_data_compare(&d, BENCH_REDUCED, out, COUNT, &got, &want) == COUNT,
        "dtype %d op %d size %d: %#jx, not %#jx", (int)dtype, (int)op, size,
        (uintmax_t)got, (uintmax_t)want);
    for (int r = 0; r < size; r++)
        free(bufs[r]);
    free(out);
}

START_TEST(test_data_reduces)
{
    static const int sizes[] = {1, 2, 3, 4, 7, 16, 64};
    size_t nops = sizeof(ops) / sizeof(ops[0]);

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t i = 0; i < nops; i++)
            if (hvd__reduce_get((enum hvd_dtype)_i, ops[i]))
                check_data((enum hvd_dtype)_i, ops[i], sizes[s]);
}
END_TEST

/* One wrong element anywhere is found, and said where. */
START_TEST(test_data_tells)
{
    struct bench_data d = {HVD_FLOAT32, HVD_SUM, 2, 7};
    float buf[COUNT];
    uint64_t got, want;

    bench_data_fill(&d, 1, buf, COUNT);
    buf[1234] += 1;
    ck_assert_uint_eq(bench_data_compare(&d, 1, buf, COUNT, &got, &want), 1234);
    ck_assert_uint_ne(got, want);
    ck_assert_uint_lt(
        bench_data_compare(&d, BENCH_REDUCED, buf, COUNT, &got, &want), COUNT);
    ck_assert_uint_lt(bench_data_compare(&d, 0, buf, COUNT, &got, &want),
                      COUNT);
}
END_TEST

static Suite *bench_suite(void)
{
    Suite *s = suite_create("bench");
    TCase *options = tcase_create("options");
    TCase *data = tcase_create("data");

    tcase_add_test(options, test_defaults);
    tcase_add_test(options, test_every_option);
    tcase_add_test(options, test_sizes);
    tcase_add_test(options, test_bad_sizes);
    tcase_add_test(options, test_bad_lines);
    tcase_add_test(options, test_empty_word);
    suite_add_tcase(s, options);
    tcase_add_loop_test(data, test_data_reduces, 0, HVD_BFLOAT16 + 1);
    tcase_add_test(data, test_data_tells);
    suite_add_tcase(s, data);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(bench_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
