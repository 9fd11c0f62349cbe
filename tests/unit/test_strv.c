/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/strv.h: string vectors and environments. */
#include "lib/base/hvd_status.h"
#include "lib/base/strv.h"
#include "tests/unit/unit.h"

#include <string.h>

START_TEST(test_add_keeps_the_final_null)
{
    struct hb_strv v = HB_STRV_INIT;
    char copy[] = "abc";
    int i;

    ck_assert_ptr_null(v.items);
    for (i = 0; i < 100; i++) {
        ck_assert_int_eq(hb_strv_addf(&v, "item %d", i), 0);
        ck_assert_uint_eq(v.count, (size_t)i + 1);
        ck_assert_ptr_null(v.items[v.count]);
    }
    ck_assert_str_eq(v.items[99], "item 99");
    hb_strv_add(&v, copy);
    copy[0] = 'X';
    ck_assert_str_eq(v.items[100], "abc");
    hb_strv_free(&v);
    ck_assert_uint_eq(v.count, 0);
    ck_assert_ptr_null(v.items);
    hb_strv_free(&v);
}
END_TEST

START_TEST(test_add_all)
{
    char *items[] = {(char *)"a", (char *)"", (char *)"c", NULL};
    char *none[] = {NULL};
    struct hb_strv v = HB_STRV_INIT;

    ck_assert_int_eq(hb_strv_add_all(&v, none), 0);
    ck_assert_int_eq(hb_strv_add_all(&v, NULL), 0);
    ck_assert_uint_eq(v.count, 0);
    ck_assert_int_eq(hb_strv_add_all(&v, items), 0);
    ck_assert_int_eq(hb_strv_add_all(&v, items), 0);
    ck_assert_uint_eq(v.count, 6);
    ck_assert_str_eq(v.items[4], "");
    hb_strv_free(&v);
}
END_TEST

START_TEST(test_split)
{
    static const struct {
        const char *s, *seps;
        size_t count;
        const char *first, *last;
    } cases[] = {
        {"a,b,c", ",", 3, "a", "c"},   {"", ",", 1, "", ""},
        {",", ",", 2, "", ""},         {"a,,b;", ",;", 4, "a", ""},
        {"abc", ",", 1, "abc", "abc"},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_strv v = HB_STRV_INIT;

        ck_assert_int_eq(hb_strv_split(&v, cases[i].s, cases[i].seps), 0);
        ck_assert_uint_eq(v.count, cases[i].count);
        ck_assert_str_eq(v.items[0], cases[i].first);
        ck_assert_str_eq(v.items[v.count - 1], cases[i].last);
        hb_strv_free(&v);
    }
}
END_TEST

START_TEST(test_env_get_and_set)
{
    struct hb_strv env = HB_STRV_INIT;

    ck_assert_ptr_null(hb_env_get(&env, "A"));
    ck_assert_int_eq(hb_env_set(&env, "A", "1"), 0);
    ck_assert_int_eq(hb_env_set(&env, "AB", "2=3"), 0);
    ck_assert_int_eq(hb_env_setf(&env, "C", "%d %s", 4, "five"), 0);
    ck_assert_str_eq(hb_env_get(&env, "A"), "1");
    ck_assert_str_eq(hb_env_get(&env, "AB"), "2=3");
    ck_assert_str_eq(hb_env_get(&env, "C"), "4 five");
    ck_assert_ptr_null(hb_env_get(&env, "B"));
    ck_assert_ptr_null(hb_env_get(&env, ""));
    hb_env_set(&env, "A", "");
    ck_assert_str_eq(hb_env_get(&env, "A"), "");
    ck_assert_str_eq(env.items[0], "A=");
    ck_assert_uint_eq(env.count, 3);
    /* the value is the vector's own memory */
    hb_env_set(&env, "AB", hb_env_get(&env, "C"));
    ck_assert_str_eq(hb_env_get(&env, "AB"), "4 five");
    hb_strv_free(&env);
}
END_TEST

START_TEST(test_env_remove)
{
    struct hb_strv env = HB_STRV_INIT;

    hb_strv_add(&env, "A=1");
    hb_strv_add(&env, "B=2");
    hb_strv_add(&env, "C=3");
    ck_assert_int_eq(hb_env_set(&env, "B", NULL), 0);
    ck_assert_int_eq(hb_env_set(&env, "missing", NULL), 0);
    ck_assert_uint_eq(env.count, 2);
    ck_assert_str_eq(env.items[1], "C=3");
    ck_assert_ptr_null(env.items[2]);
    hb_env_set(&env, "A", NULL);
    hb_env_set(&env, "C", NULL);
    ck_assert_uint_eq(env.count, 0);
    ck_assert_ptr_null(env.items[0]);
    hb_strv_free(&env);
}
END_TEST

START_TEST(test_env_duplicates_and_rubbish)
{
    struct hb_strv env = HB_STRV_INIT;

    hb_strv_add(&env, "A=1");
    hb_strv_add(&env, "not an assignment");
    hb_strv_add(&env, "A=2");
    hb_strv_add(&env, "A");
    hb_strv_add(&env, "A=3");
    ck_assert_str_eq(hb_env_get(&env, "A"), "1");
    hb_env_set(&env, "A", "9");
    ck_assert_uint_eq(env.count, 3);
    ck_assert_str_eq(env.items[0], "A=9");
    ck_assert_str_eq(env.items[1], "not an assignment");
    ck_assert_str_eq(env.items[2], "A");
    hb_strv_free(&env);
}
END_TEST

START_TEST(test_env_bad_names)
{
    struct hb_strv env = HB_STRV_INIT;

    ck_assert_int_eq(hb_env_set(&env, "", "1"), -HVD_EINVAL);
    ck_assert_int_eq(hb_env_set(&env, "A=B", "1"), -HVD_EINVAL);
    ck_assert_int_eq(hb_env_setf(&env, "A=B", "%d", 1), -HVD_EINVAL);
    ck_assert_uint_eq(env.count, 0);
}
END_TEST

static int use_everything(void *arg)
{
    char *items[] = {(char *)"D=1", (char *)"E=2", (char *)"F=3", NULL};
    struct hb_strv v = HB_STRV_INIT;
    int rc;

    (void)arg;
    rc = hb_strv_add(&v, "A=1");
    if (rc == 0)
        rc = hb_strv_addf(&v, "B=%0200d", 7);
    if (rc == 0)
        rc = hb_strv_add_all(&v, items);
    if (rc == 0)
        rc = hb_strv_split(&v, "G=1,H=2,I=3,J=4,K=5", ",");
    if (rc == 0)
        rc = hb_env_set(&v, "A", "changed");
    if (rc == 0)
        rc = hb_env_setf(&v, "new", "%d", 1);
    hb_strv_free(&v);
    return rc;
}

START_TEST(test_allocation_failures)
{
    unit_fail_each(use_everything, NULL);
}
END_TEST

/* After a failure no element that was being added remains. */
START_TEST(test_failure_leaves_the_vector)
{
    char *items[] = {(char *)"1", (char *)"2", (char *)"3", NULL};
    struct hb_strv v = HB_STRV_INIT;
    long n;

    hb_strv_add(&v, "A=kept");
    for (n = 0; n < 3; n++) {
        hb_alloc_fail_after(n);
        ck_assert_int_eq(hb_strv_add_all(&v, items), -HVD_ENOMEM);
        hb_alloc_fail_after(n);
        ck_assert_int_eq(hb_strv_split(&v, "x,y,z", ","), -HVD_ENOMEM);
        hb_alloc_fail_after(0);
        ck_assert_int_eq(hb_env_set(&v, "A", "lost"), -HVD_ENOMEM);
        hb_alloc_fail_after(-1);
        ck_assert_uint_eq(v.count, 1);
        ck_assert_str_eq(v.items[0], "A=kept");
        ck_assert_ptr_null(v.items[1]);
    }
    hb_strv_free(&v);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("strv");
    TCase *c = tcase_create("strv");

    tcase_add_test(c, test_add_keeps_the_final_null);
    tcase_add_test(c, test_add_all);
    tcase_add_test(c, test_split);
    tcase_add_test(c, test_env_get_and_set);
    tcase_add_test(c, test_env_remove);
    tcase_add_test(c, test_env_duplicates_and_rubbish);
    tcase_add_test(c, test_env_bad_names);
    tcase_add_test(c, test_allocation_failures);
    tcase_add_test(c, test_failure_leaves_the_vector);
    suite_add_tcase(s, c);
    return unit_run(s);
}
