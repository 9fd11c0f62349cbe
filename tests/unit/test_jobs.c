/* SPDX-License-Identifier: Apache-2.0 */
/* What `hvdrun ps` and `kill` print for the agents' answers, honest or not. */
#include "cmd/hvdrun/tools/jobs.h"
#include "cmd/hvdrun/tools/table.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <string.h>

#define ID_A "aaaaaa00000000000000000000000000"
#define ID_B "aaaaaa11111111111111111111111111"
#define ID_C "cccccc00000000000000000000000000"

static struct jobs_answer answers[2];

static json_t *parse(const char *text)
{
    json_error_t why;
    json_t *v = json_loads(text, 0, &why);

    ck_assert_msg(v != NULL, "%s", why.text);
    return v;
}

static void setup(void)
{
    answers[0] = (struct jobs_answer){
        "n1",
        parse("{\"user\":\"alice\",\"jobs\":[{\"id\":\"" ID_A
              "\",\"agent\":7,\"procs\":["
              "{\"pid\":11,\"rank\":1,\"top\":true,\"state\":\"S\","
              "\"elapsed_ms\":61000,\"cpu_ms\":1000,\"rss_bytes\":1048576,"
              "\"command\":\"./train one\"},"
              "{\"pid\":10,\"rank\":0,\"top\":true,\"state\":\"R\","
              "\"elapsed_ms\":62000,\"cpu_ms\":2000,\"rss_bytes\":1048576,"
              "\"command\":\"./train zero\"},"
              "{\"pid\":20,\"rank\":0,\"top\":false,\"state\":\"S\","
              "\"elapsed_ms\":99000,\"cpu_ms\":500,\"rss_bytes\":0,"
              "\"command\":\"loader\"}]}]}")};
    answers[1] = (struct jobs_answer){
        "n2",
        parse("{\"user\":\"alice\",\"jobs\":[{\"id\":\"" ID_B
              "\",\"agent\":0,\"procs\":[]},{\"id\":\"" ID_A
              "\",\"agent\":8,\"procs\":[{\"pid\":5,\"rank\":2,\"top\":true,"
              "\"state\":\"T\",\"command\":\"x\\ny\"}]},{\"id\":\"" ID_C
              "\",\"agent\":9,\"procs\":[]}]}")};
}

static void teardown(void)
{
    for (int i = 0; i < 2; i++)
        json_decref((json_t *)answers[i].answer);
}

#define EVIL "\\u001b[2J\\n\\u009b31m\\u202e"

START_TEST(what_is_drained)
{
    struct hb_buf out = HB_BUF_INIT;
    struct jobs_answer a = {
        "n1", parse("{\"drained\":[{\"id\":\"" ID_A
                    "\",\"elastic\":true,\"told\":true},{\"id\":\"" ID_B
                    "\",\"elastic\":false,\"told\":false},{\"id\":\"" ID_C
                    "\",\"elastic\":true,\"told\":false},{\"id\":7}]}")};

    ck_assert_uint_eq(jobs_drained(&a, &out), 3);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "host n1: job aaaaaa000000 leaves at its next commit\n"
        "host n1: job aaaaaa111111 stays: it is not elastic (hvdrun --min-np)\n"
        "host n1: job cccccc000000 could not be told: its agent is gone\n"
        "host n1: job  stays: it is not elastic (hvdrun --min-np)\n");
    hb_buf_free(&out);
    json_decref((json_t *)a.answer);
}
END_TEST

/* Lines about what kill and clean did are plain text, whatever the host
 * sent. */
START_TEST(what_was_done)
{
    struct hb_buf out = HB_BUF_INIT;
    struct jobs_answer a = {
        "n1", parse("{\"ended\":[{\"id\":\"" ID_A
                    "\",\"found\":true,\"had_agent\":true,\"processes\":1},"
                    "{\"id\":\"" ID_B "\",\"found\":true,\"processes\":3,"
                    "\"left\":2},{\"id\":\"" EVIL "\"},{\"id\":\"" EVIL
                    "\",\"found\":true,\"processes\":\"x\"}],"
                    "\"removed\":[{\"path\":\"/tmp/hvd-1\",\"what\":\"" EVIL
                    "\"},{\"path\":7}]}")};

    ck_assert_uint_eq(jobs_ended(&a, 0, &out), 1);
    jobs_removed(&a, 0, &out);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "host n1: ended job aaaaaa000000, 1 process\n"
        "host n1: could not end all of what was left of job aaaaaa111111, "
        "3 processes, 2 left\n"
        "host n1: job ?[2J???31m?? has ended meanwhile\n"
        "host n1: ended what was left of job ?[2J???31m??, 0 processes\n"
        "host n1: removed /tmp/hvd-1 (?[2J???31m??"
        "?)\n"
        "host n1: removed  ()\n");
    hb_buf_clear(&out);
    ck_assert_uint_eq(jobs_ended(&(struct jobs_answer){"n2", NULL}, 0, &out),
                      0);
    jobs_removed(&(struct jobs_answer){"n2", NULL}, 1, &out);
    ck_assert_uint_eq(hb_buf_len(&out), 0);
    json_decref((json_t *)a.answer);
    hb_buf_free(&out);
}
END_TEST

START_TEST(table)
{
    struct hb_buf out = HB_BUF_INIT;

    jobs_table(answers, 2, &out);
    ck_assert_str_eq(
        hb_buf_data(&out),
        "JOB           HOST  RANKS  PIDS   USER   ELAPSED    CPU  MEMORY  "
        "STATE     COMMAND\n"
        "aaaaaa000000  n1    0-1    10-11  alice    01:02  00:03    2.0M  "
        "running   ./train zero\n"
        "aaaaaa000000  n2    2      5      alice    00:00  00:00       0  "
        "stopped   x?y\n"
        "aaaaaa111111  n2    -      -      alice    00:00  00:00       0  "
        "orphaned  \n"
        "cccccc000000  n2    -      -      alice    00:00  00:00       0  "
        "running   \n");
    hb_buf_free(&out);
}
END_TEST

START_TEST(no_job_is_no_line)
{
    struct jobs_answer none[2] = {{"n1", NULL}, {"n2", NULL}};
    struct hb_buf out = HB_BUF_INIT;

    jobs_table(none, 2, &out);
    ck_assert_str_eq(hb_buf_data(&out), "");
    hb_buf_free(&out);
}
END_TEST

START_TEST(as_json)
{
    json_t *all = jobs_json(answers, 2), *hosts;

    ck_assert_uint_eq(json_array_size(all), 3);
    hosts = json_object_get(json_array_get(all, 0), "hosts");
    ck_assert_uint_eq(json_array_size(hosts), 2);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_array_get(hosts, 0), "cpu_ms")),
        3500);
    json_decref(all);
}
END_TEST

static int match(const char *words, char *ids, size_t size)
{
    struct hb_strv w = HB_STRV_INIT, out = HB_STRV_INIT;
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    hb_strv_split(&w, words, " ");
    rc = jobs_match(answers, 2, &w, &out, &err);
    ck_assert_int_eq(rc, err.status);
    ids[0] = '\0';
    for (size_t i = 0; i < out.count; i++)
        strncat(ids, out.items[i], size - strlen(ids) - 1);
    hb_strv_free(&w);
    hb_strv_free(&out);
    return rc;
}

START_TEST(beginnings_of_ids)
{
    char ids[256];

    ck_assert_int_eq(match("cccccc", ids, sizeof(ids)), 0);
    ck_assert_str_eq(ids, ID_C);
    ck_assert_int_eq(match("CCCCCC0000", ids, sizeof(ids)), 0);
    ck_assert_str_eq(ids, ID_C);
    ck_assert_int_eq(match("aaaaaa1 " ID_A " aaaaaa11", ids, sizeof(ids)), 0);
    ck_assert_str_eq(ids, ID_B ID_A);
}
END_TEST

START_TEST(what_is_no_beginning)
{
    char ids[256];

    ck_assert_int_eq(match("aaaaaa", ids, sizeof(ids)), -HVD_EINVAL);
    ck_assert_int_eq(match("ccccc", ids, sizeof(ids)), -HVD_EINVAL);
    ck_assert_int_eq(match("-Hn1", ids, sizeof(ids)), -HVD_EINVAL);
    ck_assert_int_eq(match("", ids, sizeof(ids)), -HVD_EINVAL);
    ck_assert_int_eq(match("cccccx", ids, sizeof(ids)), -HVD_EINVAL);
    ck_assert_int_eq(match(ID_C "0", ids, sizeof(ids)), -HVD_EINVAL);
    ck_assert_int_eq(match("dddddd", ids, sizeof(ids)), -HVD_ENOENT);
    ck_assert_int_eq(match("cccccc dddddd", ids, sizeof(ids)), -HVD_ENOENT);
}
END_TEST

START_TEST(hostile_answers)
{
    static const char *const texts[] = {
        "{}",
        "{\"jobs\":7}",
        "{\"jobs\":[7,null,[],{}]}",
        "{\"jobs\":[{\"id\":\"../../etc\"}]}",
        "{\"jobs\":[{\"id\":7}]}",
        "{\"jobs\":[{\"id\":\"" ID_C "\",\"procs\":7}]}",
        "{\"user\":[],\"jobs\":[{\"id\":\"" ID_C
        "\",\"agent\":\"x\",\"procs\":[7,{},{\"pid\":\"x\",\"rank\":1e99,"
        "\"top\":true,\"elapsed_ms\":-5,\"cpu_ms\":9223372036854775807,"
        "\"rss_bytes\":-1}]}]}",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct jobs_answer a = {"evil", parse(texts[i])};
        struct hb_buf out = HB_BUF_INIT;

        jobs_table(&a, 1, &out);
        json_decref(jobs_json(&a, 1));
        json_decref((json_t *)a.answer);
        hb_buf_free(&out);
    }
}
END_TEST

static void check_string(char *got, const char *want)
{
    ck_assert_str_eq(got, want);
    hb_free(got);
}

START_TEST(shapes_of_numbers)
{
    int many[] = {5, 3, 4, 9, 0, 9};

    check_string(table_numbers(many, 6), "0,3-5,9");
    check_string(table_numbers(many, 0), "-");
    check_string(table_bytes(-1), "-");
    check_string(table_bytes(0), "0");
    check_string(table_bytes(1023), "1023");
    check_string(table_bytes(1024), "1.0K");
    check_string(table_bytes(10 * 1024), "10K");
    check_string(table_bytes(1023 * 1024 + 1000), "1.0M");
    check_string(table_bytes((int64_t)3 << 40), "3.0T");
    check_string(table_bytes(INT64_MAX), "8192P");
    check_string(table_elapsed(-1), "00:00");
    check_string(table_elapsed(59999), "00:59");
    check_string(table_elapsed(3600000), "1:00:00");
    check_string(table_elapsed(INT64_C(90061000)), "1-01:01:01");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jobs");
    TCase *tc = tcase_create("jobs");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, table);
    tcase_add_test(tc, what_was_done);
    tcase_add_test(tc, what_is_drained);
    tcase_add_test(tc, no_job_is_no_line);
    tcase_add_test(tc, as_json);
    tcase_add_test(tc, beginnings_of_ids);
    tcase_add_test(tc, what_is_no_beginning);
    tcase_add_test(tc, hostile_answers);
    tcase_add_test(tc, shapes_of_numbers);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
