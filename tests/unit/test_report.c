/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/report: the report on a failed job. */
#include "lib/job/output/tail_view.h"
#include "lib/job/report.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct host_entry entries[2] = {{.name = (char *)"a"},
                                       {.name = (char *)"b"}};
static int ranks_of[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static struct plan_host hosts[2] = {{&entries[0], 0, &ranks_of[0], 4},
                                    {&entries[1], 1, &ranks_of[4], 4}};
static struct plan_rank ranks[8] = {
    {.rank = 0, .host = 0}, {.rank = 1, .host = 0}, {.rank = 2, .host = 0},
    {.rank = 3, .host = 0}, {.rank = 4, .host = 1}, {.rank = 5, .host = 1},
    {.rank = 6, .host = 1}, {.rank = 7, .host = 1}};
static const struct plan plan = {ranks, 8, hosts, 2, 8, 2};

static struct control_exited failure(int rank, int code)
{
    return (struct control_exited){.rank = rank,
                                   .pid = 4711,
                                   .exit_code = code,
                                   .detail = (char *)"",
                                   .stderr_tail = (char *)""};
}

static struct control_exited killed(int rank, int signo)
{
    struct control_exited e = failure(rank, 128 + signo);

    e.signal = signo;
    e.cause = CONTROL_CAUSE_SIGNAL;
    return e;
}

static void expect(struct report r, const char *want)
{
    struct hb_buf out = HB_BUF_INIT;

    r.plan = &plan;
    report_format(&out, &r);
    ck_assert_str_eq(hb_buf_data(&out), want);
    hb_buf_free(&out);
}

static void expect_one(struct control_exited e, int ended, const char *want)
{
    expect((struct report){.failed = &e,
                           .failed_count = 1,
                           .ended = ended,
                           .exit_code = e.exit_code},
           want);
}

START_TEST(success_is_silent)
{
    expect((struct report){.exit_code = 0}, "");
}
END_TEST

START_TEST(exit_code)
{
    expect_one(failure(5, 7), 7,
               "hvdrun: rank 5 on host b (pid 4711) failed: exit code 7\n"
               "hvdrun: ended the other 7 ranks; exit code 7\n");
    expect_one(failure(1, 7), 2,
               "hvdrun: rank 1 on host a (pid 4711) failed: exit code 7\n"
               "hvdrun: ended 2 other ranks; exit code 7\n");
    expect_one(failure(1, 7), 1,
               "hvdrun: rank 1 on host a (pid 4711) failed: exit code 7\n"
               "hvdrun: ended 1 other rank; exit code 7\n");
    expect_one(failure(1, 7), 0,
               "hvdrun: rank 1 on host a (pid 4711) failed: exit code 7\n");
}
END_TEST

START_TEST(signals)
{
    struct control_exited e = killed(1, 11);

    e.core_dumped = 1;
    expect_one(e, 0,
               "hvdrun: rank 1 on host a (pid 4711) failed: killed by "
               "signal 11 (SIGSEGV), core dumped\n");
    e = killed(0, 9);
    e.cause = CONTROL_CAUSE_OOM;
    e.detail = (char *)"out of memory: cgroup limit 2 GiB";
    expect_one(e, 0,
               "hvdrun: rank 0 on host a (pid 4711) failed: killed by "
               "signal 9 (SIGKILL): out of memory: cgroup limit 2 GiB\n");
}
END_TEST

START_TEST(shows_tail)
{
    struct control_exited e = failure(3, 1);

    e.stderr_tail = (char *)"Traceback\r\n\n  x\x1b[2J = 1\n";
    expect_one(e, 0,
               "hvdrun: rank 3 on host a (pid 4711) failed: exit code 1\n"
               "hvdrun: last lines of rank 3's stderr:\n"
               "  Traceback\n"
               "  \n"
               "    x?[2J = 1\n");
    e.stderr_tail = (char *)"\n\n";
    expect_one(e, 0,
               "hvdrun: rank 3 on host a (pid 4711) failed: exit code 1\n");
}
END_TEST

START_TEST(tail_is_short)
{
    struct control_exited e = failure(0, 1);
    struct hb_buf tail = HB_BUF_INIT, out = HB_BUF_INIT;
    struct report r = {.plan = &plan, .failed = &e, .failed_count = 1};
    const char *p;
    int lines = 0;

    for (int i = 1; i <= 50; i++)
        hb_buf_printf(&tail, "line %d\n", i);
    e.stderr_tail = hb_buf_data(&tail);
    report_format(&out, &r);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&out), "\n  line 41\n"));
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&out), "\n  line 50\n"));
    for (p = hb_buf_data(&out); (p = strstr(p, "\n  line")); p++)
        lines++;
    ck_assert_int_eq(lines, TAIL_LINES_MAX);
    hb_buf_free(&tail);
    hb_buf_free(&out);
}
END_TEST

START_TEST(shows_traceback)
{
    struct control_exited e = failure(3, 1);

    e.stderr_tail = (char *)"start\nTraceback (most recent call last):\n"
                            "  File \"a\", line 1\nE: x\n\n1\n2\n3\n4\n5\n";
    expect_one(e, 0,
               "hvdrun: rank 3 on host a (pid 4711) failed: exit code 1\n"
               "hvdrun: the last traceback in rank 3's stderr:\n"
               "  Traceback (most recent call last):\n"
               "    File \"a\", line 1\n"
               "  E: x\n"
               "  [...]\n"
               "  2\n"
               "  3\n"
               "  4\n"
               "  5\n");
    e.stderr_tail = (char *)"terminate called after throwing an instance of "
                            "'E'\n  what():  x\n";
    expect_one(e, 0,
               "hvdrun: rank 3 on host a (pid 4711) failed: exit code 1\n"
               "hvdrun: the exception in rank 3's stderr:\n"
               "  terminate called after throwing an instance of 'E'\n"
               "    what():  x\n");
}
END_TEST

START_TEST(others_fold)
{
    struct control_exited e[6] = {killed(1, 11), failure(5, 1), failure(0, 1),
                                  failure(4, 1), failure(6, 1), killed(7, 6)};

    expect(
        (struct report){
            .failed = e, .failed_count = 6, .ended = 2, .exit_code = 139},
        "hvdrun: rank 1 on host a (pid 4711) failed: killed by signal 11 "
        "(SIGSEGV)\n"
        "hvdrun: ranks 0, 4-6 failed too: exit code 1; rank 7 failed "
        "too: killed by signal 6 (SIGABRT)\n"
        "hvdrun: ended 2 other ranks; exit code 139\n");
}
END_TEST

START_TEST(many_reasons_fold_too)
{
    struct control_exited e[8];

    for (int i = 0; i < 8; i++)
        e[i] = failure(i, i + 1);
    expect((struct report){.failed = e, .failed_count = 8, .exit_code = 1},
           "hvdrun: rank 0 on host a (pid 4711) failed: exit code 1\n"
           "hvdrun: rank 1 failed too: exit code 2; rank 2 failed too: exit "
           "code 3; rank 3 failed too: exit code 4; ranks 4-7 failed too: "
           "other reasons\n");
}
END_TEST

START_TEST(four_reasons_are_named)
{
    struct control_exited e[5];

    for (int i = 0; i < 5; i++)
        e[i] = failure(i, i + 1);
    expect((struct report){.failed = e, .failed_count = 5, .exit_code = 1},
           "hvdrun: rank 0 on host a (pid 4711) failed: exit code 1\n"
           "hvdrun: rank 1 failed too: exit code 2; rank 2 failed too: exit "
           "code 3; rank 3 failed too: exit code 4; rank 4 failed too: exit "
           "code 5\n");
}
END_TEST

START_TEST(other_cause)
{
    struct control_exited e = failure(2, 3);

    expect((struct report){.cause = "too late", .ended = 8, .exit_code = 124},
           "hvdrun: too late\nhvdrun: ended 8 ranks; exit code 124\n");
    expect((struct report){.cause = "too late",
                           .failed = &e,
                           .failed_count = 1,
                           .ended = 7,
                           .exit_code = 124},
           "hvdrun: too late\nhvdrun: rank 2 failed too: exit code 3\n"
           "hvdrun: ended the other 7 ranks; exit code 124\n");
}
END_TEST

/* ---- Hosts ---- */

static struct report_trouble trouble(int host, const char *text, int takes)
{
    return (struct report_trouble){.host = host,
                                   .exit_code = 125,
                                   .text = (char *)text,
                                   .takes_ranks = takes};
}

START_TEST(a_lost_host)
{
    struct report_trouble t = trouble(1, "lost", 1);

    expect((struct report){.troubles = &t,
                           .trouble_count = 1,
                           .host_first = 1,
                           .ended = 4,
                           .exit_code = 125},
           "hvdrun: host b: lost; ranks 4-7 end with it\n"
           "hvdrun: ended 4 other ranks; exit code 125\n");
}
END_TEST

START_TEST(hosts_with_one_text_share_a_line)
{
    struct report_trouble t[2] = {
        trouble(1, "cannot log in; try ssh-copy-id b", 0),
        trouble(0, "cannot log in; try ssh-copy-id a", 0)};

    expect((struct report){.troubles = t,
                           .trouble_count = 2,
                           .host_first = 1,
                           .exit_code = 125},
           "hvdrun: hosts a, b: cannot log in; try ssh-copy-id b\n");
    t[1].takes_ranks = 1;
    expect((struct report){.troubles = t,
                           .trouble_count = 2,
                           .host_first = 1,
                           .exit_code = 125},
           "hvdrun: host b: cannot log in; try ssh-copy-id b\n"
           "hvdrun: host a: cannot log in; try ssh-copy-id a; ranks 0-3 end "
           "with it\n");
}
END_TEST

/* A host's name is not replaced inside another word: the texts stay
 * different. */
START_TEST(texts_that_differ)
{
    static const char *const texts[][2] = {
        {"baa", "bab"},    {"a-a", "b-b"},   {"port 1", "port 2"},
        {"to a", "to ab"}, {"a", "b and b"}, {"", "b"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct report_trouble t[2] = {trouble(0, texts[i][0], 0),
                                      trouble(1, texts[i][1], 0)};
        struct hb_buf out = HB_BUF_INIT;

        report_troubles(&out, "", &plan, t, 2);
        ck_assert_msg(strchr(hb_buf_data(&out), '\n') !=
                          strrchr(hb_buf_data(&out), '\n'),
                      "%s", hb_buf_data(&out));
        hb_buf_free(&out);
    }
}
END_TEST

START_TEST(hosts_and_ranks)
{
    struct control_exited e = failure(5, 7);
    struct report_trouble t = trouble(0, "lost\033", 1);
    struct report r = {.failed = &e,
                       .failed_count = 1,
                       .troubles = &t,
                       .trouble_count = 1,
                       .exit_code = 7};

    expect(r, "hvdrun: rank 5 on host b (pid 4711) failed: exit code 7\n"
              "hvdrun: host a: lost?; ranks 0-3 end with it\n");
    r.host_first = 1;
    expect(r, "hvdrun: host a: lost?; ranks 0-3 end with it\n"
              "hvdrun: rank 5 failed too: exit code 7\n");
    r.cause = "too late";
    expect(r, "hvdrun: too late\n"
              "hvdrun: host a: lost?; ranks 0-3 end with it\n"
              "hvdrun: rank 5 failed too: exit code 7\n");
}
END_TEST

START_TEST(names_of_hosts)
{
    static const char *const names[] = {"n1", "n2", "n3", "n4", "n5"};
    struct hb_buf out = HB_BUF_INIT;

    report_hosts(&out, names, 4);
    ck_assert_str_eq(hb_buf_data(&out), "n1, n2, n3, n4");
    hb_buf_clear(&out);
    report_hosts(&out, names, 5);
    ck_assert_str_eq(hb_buf_data(&out), "n[1-5]");
    hb_buf_free(&out);
}
END_TEST

START_TEST(many_different_troubles)
{
    static struct host_entry many_entries[40];
    static struct plan_host many[40];
    static char names[40][8], texts[40][8];
    static int none;
    const struct plan large = {ranks, 8, many, 40, 8, 40};
    struct report_trouble t[40];
    struct hb_buf out = HB_BUF_INIT;
    int lines = 0;

    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        snprintf(texts[i], sizeof(texts[i]), "t%d", i);
        many_entries[i].name = names[i];
        many[i] = (struct plan_host){&many_entries[i], i, &none, 0};
        t[i] = trouble(i, texts[i], 0);
    }
    report_troubles(&out, "", &large, t, 40);
    for (const char *p = hb_buf_data(&out); (p = strchr(p, '\n')); p++)
        lines++;
    ck_assert_int_eq(lines, REPORT_TROUBLES_MAX + 1);
    ck_assert_ptr_nonnull(
        strstr(hb_buf_data(&out), "\n24 more hosts: other reasons\n"));
    hb_buf_free(&out);
}
END_TEST

START_TEST(a_death_in_an_elastic_job)
{
    struct control_exited e = killed(5, 9);
    struct hb_buf out = HB_BUF_INIT;

    e.stderr_tail = (char *)"one\033\n";
    report_death(&out, &plan, &e, 1);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "hvdrun: rank 5 on host b (pid 4711): killed by signal 9 (SIGKILL)\n"
        "hvdrun: last lines of rank 5's stderr:\n"
        "  one?\n");
    hb_buf_clear(&out);
    e.pid = 0;
    report_death(&out, &plan, &e, 0);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "hvdrun: rank 5 on host b: killed by signal 9 (SIGKILL)\n");
    hb_buf_free(&out);
}
END_TEST

START_TEST(the_end_of_an_elastic_job)
{
    static const struct report_lost lost[] = {
        {2, (char *)"exit code 1"}, {5, (char *)"host b: x"},
        {6, (char *)"host b: x"},   {4, (char *)"host b: x"},
        {1, (char *)"exit code 4"}, {0, (char *)"exit code 5"},
        {3, (char *)"exit code 6"}};
    struct hb_buf out = HB_BUF_INIT;

    report_finish(&out, &plan, 7, 8, lost, 1);
    ck_assert_str_eq(hb_buf_data(&out), "hvdrun: finished with 7 of 8 ranks; "
                                        "lost: rank 2 (exit code 1)\n");
    hb_buf_clear(&out);
    report_finish(&out, &plan, 1, 8, lost, 7);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "hvdrun: finished with 1 of 8 ranks; lost: rank 2 (exit code 1), ranks "
        "4-6 (host b: x), rank 1 (exit code 4), ranks 0, 3 (other reasons)\n");
    hb_buf_free(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("report");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, success_is_silent);
    tcase_add_test(tc, exit_code);
    tcase_add_test(tc, signals);
    tcase_add_test(tc, shows_tail);
    tcase_add_test(tc, tail_is_short);
    tcase_add_test(tc, shows_traceback);
    tcase_add_test(tc, others_fold);
    tcase_add_test(tc, many_reasons_fold_too);
    tcase_add_test(tc, four_reasons_are_named);
    tcase_add_test(tc, other_cause);
    tcase_add_test(tc, a_lost_host);
    tcase_add_test(tc, hosts_with_one_text_share_a_line);
    tcase_add_test(tc, texts_that_differ);
    tcase_add_test(tc, hosts_and_ranks);
    tcase_add_test(tc, names_of_hosts);
    tcase_add_test(tc, many_different_troubles);
    tcase_add_test(tc, a_death_in_an_elastic_job);
    tcase_add_test(tc, the_end_of_an_elastic_job);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
