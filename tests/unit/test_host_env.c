/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/rank/host_env.h: which variables a host adds, and which it keeps.
 */
#include "lib/agent/rank/host_env.h"
#include "lib/base/env.h"
#include "tests/unit/unit.h"

static char *const own[] = {"PATH=/own",
                            "HOME=/home/there",
                            "USER=there",
                            "TMPDIR=/scratch",
                            "SHELLY=no",
                            "CUDA_VISIBLE_DEVICES=2,3",
                            "ROCR_VISIBLE_DEVICES=1",
                            NULL};

START_TEST(adds_what_is_missing)
{
    struct hb_strv env = HB_STRV_INIT;

    hb_strv_add(&env, "PATH=/given");
    hb_strv_add(&env, "USER=given");
    hb_strv_add(&env, "ROCR_VISIBLE_DEVICES=0");
    ck_assert_int_eq(host_env_complete(&env, own), 0);
    ck_assert_str_eq(hb_env_get(&env, "PATH"), "/given");
    ck_assert_str_eq(hb_env_get(&env, "USER"), "given");
    ck_assert_str_eq(hb_env_get(&env, "HOME"), "/home/there");
    ck_assert_str_eq(hb_env_get(&env, "TMPDIR"), "/scratch");
    ck_assert_ptr_null(hb_env_get(&env, "SHELL"));
    ck_assert_str_eq(hb_env_get(&env, "CUDA_VISIBLE_DEVICES"), "2,3");
    ck_assert_str_eq(hb_env_get(&env, "ROCR_VISIBLE_DEVICES"), "0");
    ck_assert_uint_eq(env.count, 6);
    hb_strv_free(&env);
}
END_TEST

START_TEST(an_empty_environment_adds_nothing)
{
    char *const none[] = {NULL};
    struct hb_strv env = HB_STRV_INIT;

    ck_assert_int_eq(host_env_complete(&env, none), 0);
    ck_assert_int_eq(host_env_complete(&env, NULL), 0);
    ck_assert_uint_eq(env.count, 0);
    hb_strv_free(&env);
}
END_TEST

static int complete(void *arg)
{
    struct hb_strv env = HB_STRV_INIT;
    int rc = host_env_complete(&env, arg);

    hb_strv_free(&env);
    return rc;
}

START_TEST(allocation_failures)
{
    unit_fail_each(complete, (void *)own);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host_env");
    TCase *c = tcase_create("host_env");

    tcase_add_test(c, adds_what_is_missing);
    tcase_add_test(c, an_empty_environment_adds_nothing);
    tcase_add_test(c, allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
