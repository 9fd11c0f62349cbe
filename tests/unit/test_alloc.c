/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/alloc.h: overflow checks, the fault counter, ending with a
 * message. */
#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(test_zero_sizes_give_pointers)
{
    void *a = hb_malloc(0), *b = hb_calloc(0, 8);
    void *c = hb_realloc_array(NULL, 0, 8);

    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_nonnull(c);
    c = hb_realloc_array(c, 4, 0);
    ck_assert_ptr_nonnull(c);
    hb_free(a);
    hb_free(b);
    hb_free(c);
    hb_free(NULL);
}
END_TEST

START_TEST(test_overflow_is_refused)
{
    /* volatile: compilers warn about sizes they can see are absurd */
    volatile size_t huge = SIZE_MAX / 2;
    int *kept = hb_malloc(sizeof(*kept));

    ck_assert_ptr_null(hb_calloc(huge, 3));
    ck_assert_ptr_null(hb_realloc_array(NULL, huge, 3));
    ck_assert_ptr_nonnull(kept);
    *kept = 42;
    ck_assert_ptr_null(hb_realloc_array(kept, huge, sizeof(*kept)));
    ck_assert_int_eq(*kept, 42);
    hb_free(kept);
}
END_TEST

START_TEST(test_strndup)
{
    static const struct {
        const char *s;
        size_t len;
        const char *copy;
    } cases[] = {{"abc", 2, "ab"},
                 {"abc", 3, "abc"},
                 {"abc", 9, "abc"},
                 {"abc", 0, ""},
                 {"", 5, ""}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *copy = hb_strndup(cases[i].s, cases[i].len);

        ck_assert_str_eq(copy, cases[i].copy);
        hb_free(copy);
    }
    hb_alloc_fail_after(0);
    ck_assert_ptr_null(hb_strndup("abc", 1));
    hb_alloc_fail_after(-1);
}
END_TEST

START_TEST(test_contents)
{
    unsigned char *zeros = hb_calloc(16, 4);
    char *copy = hb_strdup("text");
    int i;

    for (i = 0; i < 64; i++)
        ck_assert_int_eq(zeros[i], 0);
    ck_assert_str_eq(copy, "text");
    copy = hb_realloc_array(copy, 100, 1);
    ck_assert_str_eq(copy, "text");
    hb_free(zeros);
    hb_free(copy);
}
END_TEST

START_TEST(test_fails_after_n_once)
{
    void *p;

    ck_assert_int_eq(hb_alloc_fail_after(2), 0);
    hb_free(hb_malloc(1));
    hb_free(hb_calloc(1, 1));
    ck_assert_ptr_null(hb_strdup("x"));
    p = hb_realloc_array(NULL, 1, 1);
    ck_assert_ptr_nonnull(p);
    hb_free(p);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 0);
}
END_TEST

START_TEST(test_armed_but_not_reached)
{
    hb_alloc_fail_after(5);
    hb_free(hb_malloc(1));
    ck_assert_int_eq(hb_alloc_fail_after(-1), 0);
    hb_alloc_fail_after(-7);
    hb_free(hb_malloc(1));
    ck_assert_int_eq(hb_alloc_fail_after(-1), 0);
}
END_TEST

static void *allocate_often(void *arg)
{
    intptr_t failures = 0;
    int i;

    (void)arg;
    for (i = 0; i < 1000; i++) {
        void *p = hb_malloc(8);

        failures += !p;
        hb_free(p);
    }
    return (void *)failures;
}

START_TEST(test_one_failure_among_threads)
{
    pthread_t threads[4];
    intptr_t failures = 0;
    void *result;
    int i;

    hb_alloc_fail_after(2000);
    for (i = 0; i < 4; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, allocate_often, NULL), 0);
    for (i = 0; i < 4; i++) {
        pthread_join(threads[i], &result);
        failures += (intptr_t)result;
    }
    ck_assert_int_eq(failures, 1);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
}
END_TEST

START_TEST(test_x_functions)
{
    char *text = hb_xasprintf("%s-%d", "rank", 7);
    char *copy = hb_xstrdup(text);
    char *longer = hb_xasprintf("%0500d", 1);
    int *numbers = hb_xcalloc(3, sizeof(*numbers));

    ck_assert_str_eq(text, "rank-7");
    ck_assert_str_eq(copy, "rank-7");
    ck_assert_uint_eq(strlen(longer), 500);
    ck_assert_int_eq(numbers[2], 0);
    numbers = hb_xrealloc_array(numbers, 30, sizeof(*numbers));
    hb_free(hb_xmalloc(0));
    hb_free(numbers);
    hb_free(longer);
    hb_free(copy);
    hb_free(text);
}
END_TEST

static void die_by(int which)
{
    hb_alloc_fail_after(0);
    if (which == 0)
        hb_free(hb_xmalloc(1));
    else if (which == 1)
        hb_free(hb_xcalloc(1, 1));
    else if (which == 2)
        hb_free(hb_xrealloc_array(NULL, 1, 1));
    else if (which == 3)
        hb_free(hb_xstrdup("x"));
    else
        hb_free(hb_xasprintf("x"));
}

/* Each function ends the process with exit code 125 and one line that names
 * it. */
START_TEST(test_x_functions_die)
{
    char line[128] = "";
    int fds[2], status;
    ssize_t n;
    pid_t pid;

    ck_assert_int_eq(pipe(fds), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        die_by(_i);
        _exit(0);
    }
    close(fds[1]);
    n = read(fds[0], line, sizeof(line) - 1);
    close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 125);
    ck_assert_int_gt(n, 0);
    ck_assert_str_eq(line, "test_alloc: out of memory\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("alloc");
    TCase *c = tcase_create("alloc");

    tcase_add_test(c, test_zero_sizes_give_pointers);
    tcase_add_test(c, test_overflow_is_refused);
    tcase_add_test(c, test_strndup);
    tcase_add_test(c, test_contents);
    tcase_add_test(c, test_fails_after_n_once);
    tcase_add_test(c, test_armed_but_not_reached);
    tcase_add_test(c, test_one_failure_among_threads);
    tcase_add_test(c, test_x_functions);
    tcase_add_loop_test(c, test_x_functions_die, 0, 5);
    suite_add_tcase(s, c);
    return unit_run(s);
}
