/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/output/progress: the status line about hosts still missing. */
#include "lib/job/output/progress.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void expect(struct progress p, const char *want)
{
    struct hb_buf out = HB_BUF_INIT;

    if (!p.stage)
        p.stage = "";
    progress_format(&out, &p);
    ck_assert_str_eq(hb_buf_data(&out), want);
    ck_assert_uint_le(hb_buf_len(&out), p.width > 40 ? p.width : 40);
    hb_buf_free(&out);
}

static const char *const three[] = {"n12", "n13", "n40"};

START_TEST(names)
{
    expect((struct progress){.what = "ssh",
                             .done = 37,
                             .total = 40,
                             .names = three,
                             .count = 3,
                             .stage = "not said",
                             .width = 80},
           "ssh 37/40, waiting for n12 n13 n40");
}
END_TEST

START_TEST(stage_of_a_single_host)
{
    struct progress p = {.what = "ssh",
                         .done = 39,
                         .total = 40,
                         .names = three,
                         .count = 1,
                         .stage = "authenticating",
                         .width = 80};

    expect(p, "ssh 39/40, waiting for n12 (authenticating)");
    p.width = 43;
    expect(p, "ssh 39/40, waiting for n12 (authenticating)");
    p.width = 42;
    expect(p, "ssh 39/40, waiting for n12");
}
END_TEST

/* Names that do not fit are counted; the line never wraps. */
START_TEST(narrow_terminals)
{
    struct progress p = {
        .what = "ssh", .total = 3, .names = three, .count = 3, .width = 33};

    expect(p, "ssh 0/3, waiting for n12 n13 n40");
    p.width = 32;
    p.count = 3;
    expect(p, "ssh 0/3, waiting for n12 n13 n40");
    p.width = 31;
    expect(p, "ssh 0/3, waiting for 3 hosts");
    p.width = 0;
    expect(p, "ssh 0/3, waiting for 3 hosts");
    p.count = 1;
    expect(p, "ssh 0/3, waiting for 1 host");
}
END_TEST

START_TEST(many_hosts)
{
    static char texts[512][8];
    const char *all[512];
    struct progress p = {
        .what = "ssh", .total = 512, .names = all, .count = 512, .width = 79};

    for (int i = 0; i < 512; i++) {
        snprintf(texts[i], sizeof(texts[i]), "n%03d", i);
        all[i] = texts[i];
    }
    expect(p, "ssh 0/512, waiting for n000 n001 n002 n003 n004 n005 n006 n007 "
              "and 504 more");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, names);
    tcase_add_test(tc, stage_of_a_single_host);
    tcase_add_test(tc, narrow_terminals);
    tcase_add_test(tc, many_hosts);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
