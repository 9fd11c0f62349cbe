/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/trace/job_timeline.h: timelines of several ranks, brought onto one
 * clock, however their bytes are cut and whatever they contain.
 */
#include "lib/base/sys/clock.h"
#include "lib/job/trace/job_timeline.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char dir[64], path[128];
static struct timeline t;
static json_t *events;

static void set_up(void)
{
    struct hb_error err = HB_ERROR_INIT;

    snprintf(dir, sizeof(dir), "/tmp/hvd-merge-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/all.json", dir);
    ck_assert_int_eq(timeline_open(&t, path, &err), 0);
}

static void tear_down(void)
{
    json_decref(events);
    events = NULL;
    unlink(path);
    rmdir(dir);
}

static void load(void)
{
    ck_assert_int_eq(timeline_close(&t), 0);
    events = json_load_file(path, 0, NULL);
    ck_assert(json_is_array(events));
}

/* Makes a rank's file whose timeline began `after_ns` after ours. */
static char *rank_file(int64_t after_ns, int64_t ahead_ns)
{
    static char text[2048];

    snprintf(text, sizeof(text),
             "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{"
             "\"name\":\"rank\",\"start_time_since_epoch_in_micros\":%lld,"
             "\"monotonic_base_ns\":%lld}},\n"
             "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{"
             "\"name\":\"g]\\n,[\"}},\n"
             "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":1,"
             "\"args\":{\"sort_index\":1}},\n"
             "{\"name\":\"ALLREDUCE\",\"ph\":\"X\",\"ts\":12.345,\"dur\":1.5,"
             "\"pid\":1,\"tid\":0,\"args\":{\"bytes\":8}}       ]",
             (long long)((int64_t)t.wall_ns + after_ns + 999) / 1000,
             (long long)((int64_t)t.origin_ns + after_ns + ahead_ns));
    return text;
}

static json_t *event(size_t i)
{
    return json_array_get(events, i);
}

static int64_t pid_of(size_t i)
{
    return json_integer_value(json_object_get(event(i), "pid"));
}

static const char *arg_of(size_t i, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(event(i), "args"), key));
}

static double ts_of(size_t i)
{
    return json_real_value(json_object_get(event(i), "ts"));
}

START_TEST(test_one_rank)
{
    struct timeline_rank r = {.rank = 3};
    const char *text = rank_file(1000000, 0);
    int64_t pid = 3 << TIMELINE_PID_BITS;

    timeline_feed(&t, &r, NULL, text, strlen(text));
    timeline_end(&t, &r, NULL);
    load();
    ck_assert_uint_eq(json_array_size(events), 5);
    ck_assert_uint_eq(r.events, 4);
    ck_assert_uint_eq(r.bad, 0);
    ck_assert_int_eq(pid_of(1), pid);
    ck_assert_str_eq(arg_of(1, "name"), "rank");
    ck_assert_int_eq(pid_of(2), pid + 1);
    ck_assert_str_eq(arg_of(2, "name"), "[3] g]\n,[");
    ck_assert_int_eq(json_integer_value(json_object_get(
                         json_object_get(event(3), "args"), "sort_index")),
                     pid + 1);
    ck_assert_double_eq_tol(ts_of(4), 1012.345, 1e-9);
}
END_TEST

/* A script runs two programs one after the other: each event has the time of
 * its own program's start. */
START_TEST(test_two_programs_of_a_rank)
{
    struct timeline_rank r = {.rank = 3};
    char *text = rank_file(1000000, 0);

    /* The second replaces the first one's closing bracket. */
    text[strlen(text) - 1] = ',';
    timeline_feed(&t, &r, NULL, text, strlen(text));
    text = rank_file(5000000, 0) + 1;
    timeline_feed(&t, &r, NULL, text, strlen(text));
    timeline_end(&t, &r, NULL);
    load();
    ck_assert_uint_eq(json_array_size(events), 9);
    ck_assert_uint_eq(r.bad, 0);
    ck_assert_double_eq_tol(ts_of(4), 1012.345, 1e-9);
    ck_assert_double_eq_tol(ts_of(8), 5012.345, 1e-9);
}
END_TEST

/* A rank cannot fill the disk: excess events are dropped and counted. */
START_TEST(test_too_much)
{
    struct timeline_rank r = {.rank = 0}, other = {.rank = 1},
                         more = {.rank = 2};
    const char *text = rank_file(0, 0);
    size_t len = strlen(text);

    t.rank_max = len;
    timeline_feed(&t, &r, NULL, text, len);
    ck_assert(!timeline_is_cut(&r));
    for (int i = 0; i < 1000; i++)
        timeline_feed(&t, &r, NULL, text, len);
    ck_assert(timeline_is_cut(&r));
    timeline_end(&t, &r, NULL);
    timeline_feed(&t, &other, NULL, text, len);
    timeline_end(&t, &other, NULL);
    ck_assert(!timeline_is_cut(&other));
    /* Nor can all of them together. */
    t.all_max = t.bytes;
    timeline_feed(&t, &more, NULL, text, len);
    ck_assert(timeline_is_cut(&more));
    timeline_end(&t, &more, NULL);
    ck_assert_uint_eq(more.events, 0);
    load();
    ck_assert_uint_le(json_array_size(events), 9);
    ck_assert_uint_eq(other.events, 4);
}
END_TEST

/* Every way to cut the bytes in two, and byte by byte. */
START_TEST(test_cut_anywhere)
{
    const char *text = rank_file(0, 0);
    size_t len = strlen(text), n = 0;

    for (size_t at = 0; at <= len; at++) {
        struct timeline_rank r = {.rank = 1};

        timeline_feed(&t, &r, NULL, text, at);
        timeline_feed(&t, &r, NULL, text + at, len - at);
        timeline_end(&t, &r, NULL);
        ck_assert_uint_eq(r.events, 4);
        ck_assert_uint_eq(r.bad, 0);
        n += 4;
    }
    load();
    ck_assert_uint_eq(json_array_size(events), n + 1);
}
END_TEST

START_TEST(test_other_clocks)
{
    struct offset clock = {
        .known = 1, .ahead_ns = 5000000000, .error_ns = 40000};
    struct offset unknown = {0};
    struct timeline_rank r = {.rank = 0}, s = {.rank = 1};
    const char *text = rank_file(2000000, clock.ahead_ns);

    timeline_feed(&t, &r, &clock, text, strlen(text));
    timeline_end(&t, &r, &clock);
    /* Without an offset the wall clocks are used. */
    text = rank_file(3000000, 77777);
    timeline_feed(&t, &s, &unknown, text, strlen(text));
    timeline_end(&t, &s, &unknown);
    load();
    ck_assert_double_eq_tol(ts_of(4), 2012.345, 1e-9);
    ck_assert_int_eq(json_integer_value(json_object_get(
                         json_object_get(event(1), "args"), "clock_error_ns")),
                     40000);
    ck_assert_double_eq_tol(ts_of(8), 3012.345, 1.001);
}
END_TEST

/* A host's claims about its clock may be anything. */
START_TEST(test_impossible_clock)
{
    struct offset clock = {.known = 1, .ahead_ns = INT64_MIN + 1};
    struct timeline_rank r = {.rank = 0};
    static const char text[] =
        "[{\"name\":\"process_name\",\"pid\":0,\"args\":{"
        "\"monotonic_base_ns\":9223372036854775807}},\n"
        "{\"name\":\"A\",\"ts\":1}]";

    timeline_feed(&t, &r, &clock, text, strlen(text));
    timeline_end(&t, &r, &clock);
    load();
    ck_assert_uint_eq(r.events, 2);
    ck_assert_double_ge(ts_of(2), 0.0);
}
END_TEST

/* Events from before our own start are placed at 0. */
START_TEST(test_too_early)
{
    struct timeline_rank r = {.rank = 0};
    const char *text = rank_file(-1000000, 0);

    timeline_feed(&t, &r, NULL, text, strlen(text));
    timeline_end(&t, &r, NULL);
    load();
    ck_assert_double_eq(ts_of(4), 0.0);
}
END_TEST

START_TEST(test_killed_in_the_middle)
{
    struct timeline_rank r = {.rank = 0};
    const char *text = rank_file(0, 0);

    timeline_feed(&t, &r, NULL, text, strlen(text) - 30);
    timeline_end(&t, &r, NULL);
    load();
    ck_assert_uint_eq(r.events, 3);
    ck_assert_uint_eq(r.bad, 1);
    ck_assert_uint_eq(json_array_size(events), 4);
}
END_TEST

START_TEST(test_no_events)
{
    static const char *const lines[] = {
        "{\"name\":\"A\",\"ph\":\"X\",\"ts\":1,\"pid\":0}", /* no start */
        "{\"name\":\"A\",\"ts\":\"1\"}",
        "{\"name\":\"A\",\"ts\":1e300}",
        "{\"name\":\"A\",\"pid\":-1}",
        "{\"name\":\"A\",\"pid\":131072}",
        "{\"name\":1}",
        "{}",
        "17",
        "\"text\"",
        "{\"name\":\"\xff\"}",
        "{\"name\":\"A\"}}",
    };
    struct timeline_rank r = {.rank = 0};
    size_t n = sizeof(lines) / sizeof(lines[0]);
    static char longest[3 * HB_TRACE_ELEMENT_MAX];

    for (size_t i = 0; i < n; i++) {
        timeline_feed(&t, &r, NULL, lines[i], strlen(lines[i]));
        timeline_feed(&t, &r, NULL, ",\n", 2);
        ck_assert_msg(r.bad == i + 1, "%s", lines[i]);
    }
    snprintf(longest, sizeof(longest), "{\"name\":\"%0*d\"}\n",
             (int)sizeof(longest) - 20, 1);
    timeline_feed(&t, &r, NULL, longest, strlen(longest));
    snprintf(longest, sizeof(longest), "{\"name\":\"%0*d\"}\n",
             HB_TRACE_ELEMENT_MAX, 1);
    timeline_feed(&t, &r, NULL, longest, strlen(longest));
    ck_assert_uint_eq(r.bad, n + 2);
    /* Later events are taken again. */
    timeline_feed(&t, &r, NULL, "{\"name\":\"A\"}\n", 13);
    ck_assert_uint_eq(r.events, 1);
    timeline_end(&t, &r, NULL);
    load();
    ck_assert_uint_eq(json_array_size(events), 2);
}
END_TEST

START_TEST(test_cannot_be_opened)
{
    struct hb_error err = HB_ERROR_INIT;
    struct timeline other;

    ck_assert_int_eq(timeline_close(&t), 0);
    ck_assert_int_eq(timeline_open(&other, "/dev/full", &err), -HVD_ESYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOSPC);
    hb_error_clear(&err);
    ck_assert_int_eq(timeline_open(&other, dir, &err), -HVD_ESYSTEM);
    ck_assert_int_eq(err.sys_errno, EISDIR);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("job_timeline");
    TCase *c = tcase_create("job_timeline");

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_one_rank);
    tcase_add_test(c, test_two_programs_of_a_rank);
    tcase_add_test(c, test_too_much);
    tcase_add_test(c, test_cut_anywhere);
    tcase_add_test(c, test_other_clocks);
    tcase_add_test(c, test_impossible_clock);
    tcase_add_test(c, test_too_early);
    tcase_add_test(c, test_killed_in_the_middle);
    tcase_add_test(c, test_no_events);
    tcase_add_test(c, test_cannot_be_opened);
    suite_add_tcase(s, c);
    return unit_run(s);
}
