/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/record/job_record.c: what a job with agents that follow scripts
 * leaves in its report.
 */
#include "lib/base/alloc.h"
#include "lib/job/job_impl.h"
#include "tests/unit/job_util.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[32], path[64];
static struct hb_strv paths;
static json_t *all;

static void set_up_report(void)
{
    /* The report's temporary file is named after the job, which has the same
     * name in each run of this test, so each run needs a folder of its own. */
    strcpy(folder, "/tmp/hvd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/a.json", folder);
    hb_must(hb_strv_add(&paths, path));
    config.reports = &paths;
}

static void tear_down_report(void)
{
    json_decref(all);
    all = NULL;
    hb_strv_free(&paths);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void start_job(const char *a, const char *b)
{
    use_hosts(2);
    script_of("a", a);
    script_of("b", b);
    start("hello;launch");
}

/* Waits until the job ends with `code`, and reads its report. */
static void end(int code)
{
    json_error_t e;

    finish_saying(code, "");
    all = json_load_file(path, 0, &e);
    ck_assert_msg(all != NULL, "%s", e.text);
    ck_assert_int_eq((int)json_integer_value(json_object_get(all, "exit_code")),
                     code);
}

static void run(int code, const char *a, const char *b)
{
    start_job(a, b);
    end(code);
}

static json_t *process(int rank, size_t i)
{
    json_t *r = json_array_get(json_object_get(all, "ranks"), (size_t)rank);
    json_t *found = json_array_get(json_object_get(r, "runs"), i);

    ck_assert_msg(found != NULL, "rank %d has no process %zu", rank, i);
    return found;
}

static void is(json_t *object, const char *key, const char *text)
{
    const char *found = json_string_value(json_object_get(object, key));

    ck_assert_msg(found != NULL, "%s is no text", key);
    ck_assert_str_eq(found, text);
}

static void is_int(json_t *object, const char *key, int value)
{
    json_t *found = json_object_get(object, key);

    ck_assert_msg(json_is_integer(found), "%s is no integer", key);
    ck_assert_int_eq((int)json_integer_value(found), value);
}

static double number(json_t *object, const char *key)
{
    json_t *found = json_object_get(object, key);

    ck_assert_msg(json_is_number(found), "%s is no number", key);
    return json_number_value(found);
}

START_TEST(good)
{
    run(0, "started;exit 0 0;exit 1 0;done;eof",
        "started;exit 2 0;exit 3 0;done;eof");
    for (int rank = 0; rank < 4; rank++) {
        is(process(rank, 0), "host", rank < 2 ? "a" : "b");
        is(process(rank, 0), "ended_by", "itself");
        is_int(process(rank, 0), "pid", 100 + rank);
        is_int(process(rank, 0), "exit_code", 0);
    }
    ck_assert(json_is_null(json_object_get(all, "cause")));
    ck_assert_uint_eq(json_array_size(json_object_get(all, "events")), 0);
}
END_TEST

/* The earliest failure by the common clock is the culprit, though the other is
 * heard of first. */
START_TEST(earliest)
{
    run(9, "started;exit 0 1;kill 60000;exit 1 0;done;eof",
        "started;abort 0;ago 1000;exit 3 9;kill 60000;ours 2 143;done;eof");
    is_int(json_object_get(all, "culprit"), "rank", 3);
    is_int(json_object_get(all, "culprit"), "exit_code", 9);
    is(all, "cause", "rank 3 on host b (pid 103) failed: exit code 9");
    is(process(2, 0), "ended_by", "hvdrun");
    is(process(0, 0), "ended_by", "itself");
    ck_assert_double_le(number(process(3, 0), "end"),
                        number(process(0, 0), "end"));
    ck_assert_double_le(number(process(3, 0), "start"),
                        number(process(3, 0), "end"));
}
END_TEST

START_TEST(last_words)
{
    json_t *lines;

    run(137, "started;kill 60000;ours 0 143;ours 1 143;done;eof",
        "started;dies 3 the end;kill 60000;ours 2 143;done;eof");
    is_int(json_object_get(all, "culprit"), "signal", SIGKILL);
    lines = json_object_get(json_object_get(all, "culprit"), "last_lines");
    ck_assert_str_eq(json_string_value(json_array_get(lines, 0)), "the end");
}
END_TEST

START_TEST(lost_host)
{
    run(125, "started;kill 60000;ours 0 143;ours 1 143;done;eof", "started");
    is(process(2, 0), "ended_by", "host lost");
    is(process(3, 0), "how", "lost with host b");
    is(process(0, 0), "ended_by", "hvdrun");
    is(json_array_get(json_object_get(all, "hosts"), 1), "trouble",
       "lost the agent: its connection ended");
    ck_assert(json_is_null(json_object_get(all, "culprit")));
}
END_TEST

/* An agent that ends ranks without saying how. */
START_TEST(unknown_end)
{
    run(125, "started;kill 60000;ours 0 143;ours 1 143;done;eof",
        "started;exit 2 0;done;eof");
    ck_assert(json_is_null(json_object_get(process(3, 0), "end")));
    ck_assert(json_is_null(json_object_get(process(3, 0), "ended_by")));
}
END_TEST

START_TEST(not_started)
{
    run(127, "failed 127 ./train: not found;eof", "kill 60000;done;eof");
    is(json_array_get(json_object_get(all, "hosts"), 0), "trouble",
       "./train: not found");
    ck_assert_uint_eq(json_array_size(json_object_get(all, "ranks")), 4);
    ck_assert(json_is_null(
        json_object_get(json_object_get(all, "phases"), "started")));
}
END_TEST

/* A job that goes on after a death, and starts the rank again. */
START_TEST(restarted)
{
    config.spec.elastic = config.spec.restart = 1;
    config.restart_failed = 1;
    config.min_np = 2;
    config.reset_limit = -1;
    make_barrier();
    start_job("started;barrier 2;dies 1 oh;restart 1;barrier 4;exit 1 0;"
              "exit 0 0;kill 60000;done;eof",
              "started;out 2 1 up;barrier 4;exit 2 0;exit 3 0;kill 60000;done;"
              "eof");
    wait_for_output("up");
    pass_barrier();
    end(0);
    is_int(process(1, 0), "exit_code", 137);
    is_int(process(1, 1), "exit_code", 0);
    ck_assert_double_le(number(process(1, 0), "end"),
                        number(process(1, 1), "start"));
    ck_assert(json_is_null(json_object_get(all, "culprit")));
    ck_assert_uint_ge(json_array_size(json_object_get(all, "events")), 2);
}
END_TEST

/* Nothing is started if the report cannot be written. */
START_TEST(no_folder)
{
    struct hb_error e = HB_ERROR_INIT;

    hb_free(paths.items[0]);
    paths.items[0] = hb_xstrdup("/nowhere/a.json");
    ck_assert_int_lt(job_start(&config, NULL, NULL, &job, &e), 0);
    ck_assert_str_eq(e.text, "--report /nowhere/a.json: cannot write in folder "
                             "/nowhere/: No such file or directory");
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_checked_fixture(tc, set_up_report, tear_down_report);
    tcase_add_test(tc, good);
    tcase_add_test(tc, earliest);
    tcase_add_test(tc, last_words);
    tcase_add_test(tc, lost_host);
    tcase_add_test(tc, unknown_end);
    tcase_add_test(tc, not_started);
    tcase_add_test(tc, restarted);
    tcase_add_test(tc, no_folder);
}

int main(int argc, char *argv[])
{
    return job_util_main("job_record", add_tests, argc, argv);
}
