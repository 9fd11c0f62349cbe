/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the CUDA driver and NCCL: the errors if they are missing, or not what
 * they should be.
 */
#include "runtime/plugins/nccl/nccl.h"
#include "runtime/plugins/nccl/nccl_cuda.h"
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

START_TEST(no_driver)
{
    struct hb_error err = HB_ERROR_INIT;

    setenv("HVD_CUDA_LIBRARY", "/nonexistent/libcuda.so.1", 1);
    ck_assert_int_eq(hvd__cuda_open(&err), -HVD_EUNSUPPORTED);
    ck_assert_ptr_eq(strstr(err.text, "no CUDA driver: "), err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/libcuda.so.1"));
    ck_assert_int_eq(hvd__cuda.version, 0);
    ck_assert(!hvd__cuda.MemAlloc);
}
END_TEST

START_TEST(driver_without_functions)
{
    struct hb_error err = HB_ERROR_INIT;

    setenv("HVD_CUDA_LIBRARY", "libm.so.6", 1);
    ck_assert_int_eq(hvd__cuda_open(&err), -HVD_EUNSUPPORTED);
    ck_assert_str_eq(err.text, "the CUDA driver libm.so.6 is too old: it has "
                               "no cuInit");
    ck_assert(!hvd__cuda.Init && !hvd__cuda.GetErrorName);
}
END_TEST

START_TEST(no_nccl)
{
    struct hb_error err = HB_ERROR_INIT;

    setenv("HVD_NCCL_LIBRARY", "/nonexistent/libnccl.so.2", 1);
    ck_assert_int_eq(hvd__nccl_open(&err), -HVD_EUNSUPPORTED);
    ck_assert_ptr_eq(strstr(err.text, "no NCCL: "), err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "HVD_NCCL_LIBRARY"));
    ck_assert_int_eq(hvd__nccl.version, 0);
    hb_error_clear(&err);
    setenv("HVD_NCCL_LIBRARY", "libm.so.6", 1);
    ck_assert_int_eq(hvd__nccl_open(&err), -HVD_EUNSUPPORTED);
    ck_assert_str_eq(err.text, "libm.so.6 is no NCCL: it tells no version");
    ck_assert(!hvd__nccl.AllReduce);
}
END_TEST

/* With the real NCCL, where installed; it needs no driver for this. */
START_TEST(real_nccl)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__nccl_version v;
    char what[] = "ncclCommCount";

    unsetenv("HVD_NCCL_LIBRARY");
    if (!dlopen("libnccl.so.2", RTLD_NOW))
        return;
    ck_assert_int_eq(hvd__nccl_open(&err), 0);
    ck_assert_int_ge(hvd__nccl.version, HVD__NCCL_OLDEST);
    ck_assert(hvd__nccl.AllReduce && hvd__nccl.CommInitRankConfig);
    ck_assert(hvd__nccl.version < 21800 || hvd__nccl.CommSplit);
    ck_assert_int_eq(hvd__nccl_open(&err), 0);
    v = hvd__nccl_version_text(hvd__nccl.version);
    ck_assert_ptr_eq(strstr(v.text, "2."), v.text);
    ck_assert_int_eq(hvd__nccl_check(ncclSuccess, NULL, what, &err), 0);
    ck_assert_int_eq(hvd__nccl_check(ncclInProgress, NULL, what, &err), 0);
    ck_assert_int_eq(hvd__nccl_check(ncclInvalidArgument, NULL, what, &err),
                     -HVD_ESYSTEM);
    ck_assert_ptr_eq(strstr(err.text, "ncclCommCount: invalid argument"),
                     err.text);
}
END_TEST

START_TEST(versions)
{
    ck_assert_str_eq(hvd__nccl_version_text(22809).text, "2.28.9");
    ck_assert_str_eq(hvd__nccl_version_text(21400).text, "2.14.0");
    ck_assert_str_eq(hvd__nccl_version_text(2804).text, "2.8.4");
}
END_TEST

START_TEST(built_with)
{
    extern const char hvd_nccl_build[];

    ck_assert_ptr_eq(strstr(hvd_nccl_build, "CUDA "), hvd_nccl_build);
    ck_assert_ptr_nonnull(strstr(hvd_nccl_build, ", NCCL 2."));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl_open");
    TCase *tc = tcase_create("nccl_open");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, no_driver);
    tcase_add_test(tc, driver_without_functions);
    tcase_add_test(tc, no_nccl);
    tcase_add_test(tc, real_nccl);
    tcase_add_test(tc, versions);
    tcase_add_test(tc, built_with);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
