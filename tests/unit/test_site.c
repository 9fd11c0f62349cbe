/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/plane/site: with HVD_CHECK=1 unnamed operations that come from
 * different call sites of the program do not match.
 */
#include "runtime/hvd.h"
#include "runtime/plane/site.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3 };

/* ---- Places ---------------------------------------------------------- */

static const void *here;

static __attribute__((noinline)) uint64_t site_of_call(void)
{
    here = __builtin_return_address(0);
    return hvd__site_hash(here);
}

/* Not inlined: one call site however often it is called. */
static __attribute__((noinline)) uint64_t one_place(int *times)
{
    uint64_t site = site_of_call();

    ++*times;
    return site;
}

START_TEST(places)
{
    char text[HVD__SITE_BYTES], code[16] = {0};
    uint64_t one = site_of_call(), other;
    int times = 0;

    hvd__site_text(here, text);
    ck_assert_msg(strstr(text, "test_site+0x") != NULL, "%s", text);
    other = site_of_call();
    ck_assert_uint_ne(one, 0);
    ck_assert_uint_ne(one, other);
    ck_assert_uint_eq(one_place(&times), one_place(&times));
    ck_assert_int_eq(times, 2);
    ck_assert_uint_ne(hvd__site_hash(code + 1), 0);
    hvd__site_text(code + 1, text);
    ck_assert_str_eq(text, "code of no module");
    hvd__site_text(NULL, text);
    ck_assert_str_eq(text, "");
}
END_TEST

static char **arguments; /* argv of this program */

/* Ranks may start one program under different names. */
START_TEST(other_name_of_the_program)
{
    static char other[] = "/elsewhere/other";
    uint64_t site = site_of_call();
    char text[HVD__SITE_BYTES], *own = arguments[0];

    arguments[0] = other;
    hvd__site_text(here, text);
    ck_assert_uint_eq(hvd__site_hash(here), site);
    ck_assert_msg(strstr(text, "other+0x") != NULL, "%s", text);
    arguments[0] = own;
}
END_TEST

/* The text of a call site names the exported function. */
START_TEST(exported_functions)
{
    char text[HVD__SITE_BYTES];

    hvd__site_text((const char *)(uintptr_t)&gnu_get_libc_version + 1, text);
    ck_assert_msg(strstr(text, "gnu_get_libc_version+0x0 (libc") != NULL, "%s",
                  text);
}
END_TEST

/* ---- Worlds ---------------------------------------------------------- */

/* Runs a body on one host, on one host over TCP, or on two hosts. */
static int run_in(int which, world_fn *body)
{
    struct world w = {.size = N, .body = body, .place = which == 2 ? "aab" : 0};

    setenv("HVD_CHECK", "1", 1);
    if (which == 1)
        setenv("HVD_FORCE_TCP", "1", 1);
    return world_run_with(&w);
}

enum { WORLDS = 3 };

static float x[64];
static size_t counts[N];

/* Gathers rank + more elements from each rank.  Inlined, so that each caller is
 * a call site. */
static inline __attribute__((always_inline)) int gather(int more)
{
    return hvd_allgather(x, (size_t)(hvd_rank() + more), x + 32, 32, counts,
                         HVD_FLOAT32, NULL);
}

static __attribute__((noinline)) int first(void)
{
    int rc = gather(1);

    return rc;
}

static __attribute__((noinline)) int second(void)
{
    int rc = gather(2);

    return rc;
}

/* Checks that the error names both ranks and their call sites. */
static int names_both(const char *kind)
{
    const char *text = hvd_error_message(), *one, *two;

    want(strncmp(text, kind, strlen(kind)) == 0);
    one = strstr(text, "has call site test_site+0x");
    want(one && strstr(text, ": rank 0 "));
    two = strstr(one + 1, "has call site test_site+0x");
    want(two && strstr(text, ", rank 1 "));
    want(strncmp(one, two, 40) != 0);
    return 0;
}

/* Rank 1 skips the first of two gathers: the error shows it, and later gathers
 * work. */
static int skip_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < 3; i++)
        want(gather(i) == 0);
    if (rank == 1)
        want(second() == -HVD_EMISMATCH);
    else
        want(first() == -HVD_EMISMATCH);
    want(names_both("allgather") == 0);
    want(gather(1) == 0);
    for (int r = 0; r < N; r++)
        want(counts[r] == (size_t)r + 1);
    return hvd_shutdown();
}

START_TEST(skipped_gather)
{
    ck_assert_int_eq(run_in(_i, skip_body), 0);
}
END_TEST

/* Without HVD_CHECK the same mistake is not noticed. */
static int unchecked_body(int rank, void *arg)
{
    (void)arg;
    unsetenv("HVD_CHECK");
    want(hvd_init() == 0);
    want((rank == 1 ? second() : first()) == 0);
    want(counts[1] == 3);
    return hvd_shutdown();
}

START_TEST(unchecked)
{
    ck_assert_int_eq(run_in(_i, unchecked_body), 0);
}
END_TEST

/* Two call sites of the same call: compilers must neither inline the functions,
 * nor find them equal and merge them. */
static volatile int site_number;

static __attribute__((noinline)) int allreduce_here(void)
{
    int rc = hvd_allreduce(x, x, 8, HVD_FLOAT32, HVD_SUM, NULL);

    site_number = 1;
    return rc;
}

static __attribute__((noinline)) int allreduce_there(void)
{
    int rc = hvd_allreduce(x, x, 8, HVD_FLOAT32, HVD_SUM, NULL);

    site_number = 2;
    return rc;
}

static __attribute__((noinline)) int submit(const char *name, float *at,
                                            hvd_request **req)
{
    int rc =
        hvd_allreduce_async(name, at, at, 8, HVD_FLOAT32, HVD_SUM, NULL, req);

    site_number = 3;
    return rc;
}

static __attribute__((noinline)) int submit_there(const char *name, float *at,
                                                  hvd_request **req)
{
    int rc =
        hvd_allreduce_async(name, at, at, 8, HVD_FLOAT32, HVD_SUM, NULL, req);

    site_number = 4;
    return rc;
}

/* Equal arguments at another call site do not match. */
static int again_body(int rank, void *arg)
{
    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < 6; i++)
        want(hvd_allreduce(x, x, 8, HVD_FLOAT32, HVD_SUM, NULL) == 0);
    want((rank == 1 ? allreduce_there() : allreduce_here()) == -HVD_EMISMATCH);
    want(names_both("allreduce") == 0);
    want(hvd_barrier(NULL) == 0);
    return hvd_shutdown();
}

START_TEST(same_call_elsewhere)
{
    ck_assert_int_eq(run_in(_i, again_body), 0);
}
END_TEST

/* In a fused burst of three, the second operation differs. */
static int burst_body(int rank, void *arg)
{
    hvd_request *reqs[3];

    (void)arg;
    want(hvd_init() == 0);
    want(submit(NULL, x, &reqs[0]) == 0);
    want((rank == 1 ? submit_there(NULL, x + 8, &reqs[1])
                    : submit(NULL, x + 8, &reqs[1])) == 0);
    want(submit(NULL, x + 16, &reqs[2]) == 0);
    want(hvd_wait(reqs[0]) == 0);
    want(hvd_wait(reqs[1]) == -HVD_EMISMATCH);
    want(names_both("allreduce") == 0);
    want(hvd_wait(reqs[2]) == 0);
    return hvd_shutdown();
}

START_TEST(burst)
{
    ck_assert_int_eq(run_in(_i, burst_body), 0);
}
END_TEST

/* Named operations and joins may come from any call site; a joined rank takes
 * part in the others' operations. */
static int allowed_body(int rank, void *arg)
{
    hvd_request *req;
    int last = -1;

    (void)arg;
    want(hvd_init() == 0);
    want((rank == 1 ? submit_there("a", x, &req) : submit("a", x, &req)) == 0);
    want(hvd_wait(req) == 0);
    if (rank == 1)
        want(hvd_join(&last, NULL) == 0);
    for (int i = 0; rank != 1 && i < 3; i++)
        want(hvd_allreduce(x, x, 8, HVD_FLOAT32, HVD_SUM, NULL) == 0);
    if (rank != 1)
        want(hvd_join(&last, NULL) == 0);
    want(last >= 0 && last != 1);
    want(hvd_barrier(NULL) == 0);
    return hvd_shutdown();
}

START_TEST(names_and_joins)
{
    ck_assert_int_eq(run_in(_i, allowed_body), 0);
}
END_TEST

static int one_body(int rank, void *arg)
{
    (void)arg;
    setenv("HVD_CHECK", rank == 1 ? "0" : "1", 1);
    want(hvd_init() == 0);
    want(hvd_barrier(NULL) == -HVD_EMISMATCH);
    want(strstr(hvd_error_message(), "rank 1"));
    want(strstr(hvd_error_message(), "none (HVD_CHECK is not set there)"));
    return hvd_shutdown();
}

START_TEST(not_set_on_one_rank)
{
    ck_assert_int_eq(run_in(0, one_body), 0);
}
END_TEST

static int wrong_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    setenv("HVD_CHECK", "maybe", 1);
    want(hvd_init() == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "HVD_CHECK"));
    return 0;
}

START_TEST(not_a_switch)
{
    ck_assert_int_eq(run_in(0, wrong_body), 0);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("site");
    TCase *tc = tcase_create("site"), *bursts = tcase_create("bursts");

    (void)argc;
    arguments = argv;
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, places);
    tcase_add_test(tc, other_name_of_the_program);
    tcase_add_test(tc, exported_functions);
    tcase_add_loop_test(tc, skipped_gather, 0, WORLDS);
    tcase_add_loop_test(tc, unchecked, 0, WORLDS);
    tcase_add_loop_test(tc, same_call_elsewhere, 0, WORLDS);
    tcase_add_loop_test(tc, names_and_joins, 0, WORLDS);
    tcase_add_test(tc, not_set_on_one_rank);
    tcase_add_test(tc, not_a_switch);
    suite_add_tcase(suite, tc);
    tcase_set_timeout(bursts, 60);
    tcase_add_loop_test(bursts, burst, 0, WORLDS);
    suite_add_tcase(suite, bursts);
    return unit_run(suite);
}
