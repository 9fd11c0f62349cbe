/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/detach.h: no page of the program comes from its file any more. */
#include "lib/agent/detach.h"
#include "tests/unit/unit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* KiB of the program's mappings: private to this process, and all. */
struct sizes {
    long all, own;
};

static struct sizes sizes(void)
{
    char line[PATH_MAX + 128], exe[PATH_MAX] = "";
    FILE *f = fopen("/proc/self/smaps", "re");
    struct sizes s = {0, 0};
    int ours = 0;
    long n;

    ck_assert_ptr_nonnull(f);
    ck_assert_int_gt(readlink("/proc/self/exe", exe, sizeof(exe) - 1), 0);
    while (fgets(line, sizeof(line), f)) {
        unsigned long begin, end;

        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            ours = strstr(line, exe) != NULL;
        else if (ours && sscanf(line, "Size: %ld", &n) == 1)
            s.all += n;
        else if (ours && sscanf(line, "Anonymous: %ld", &n) == 1)
            s.own += n;
    }
    fclose(f);
    return s;
}

START_TEST(all_pages_are_copied)
{
    struct sizes s = sizes();

    ck_assert_int_lt(s.own, s.all);
    ck_assert_int_eq(detach_from_file(1), 0);
    s = sizes();
    ck_assert_int_gt(s.all, 0);
    ck_assert_int_eq(s.own, s.all);
    ck_assert_int_eq(detach_from_file(1), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("detach");
    TCase *tc = tcase_create("detach");

    tcase_add_test(tc, all_pages_are_copied);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
