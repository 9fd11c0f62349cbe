/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/record: the record of a job, and the three files that are made of
 * it, also of texts that try to break out of them.
 */
#include "lib/job/record/html_parts.h"
#include "lib/job/record/record_file.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS 1000000LL

static const char traceback[] = "Traceback (most recent call last):\n"
                                "  File \"train.py\", line 3, in <module>\n"
                                "    step(1)\n"
                                "ValueError: a < b && c > 'd'\n";

static const char hostile[] =
    "</title></style></pre></td></svg><script>alert(1)</script>"
    "<img src=x onerror=alert(2)>\" ' ]]> --> &amp; &#x3c; <!-- \\ "
    "\033[31mred\033[0m \033]0;title\a \001\002\b\177 \xff\xfe \xc0\xaf "
    "\xed\xa0\x80 \xef\xbf\xbf \xe2\x80\xae\t\v\f\r\nnext\xc3";

static struct record rec;
static struct stats_sum stats;
static struct hb_buf text;

/* ---- Records ---- */

static void begin(int ranks)
{
    record_init(&rec, ranks);
    memcpy(rec.job_id, "0123456789abcdef0123456789abcdef", 33);
    rec.wall_ns = 1700000000123456789;
    rec.cwd = hb_xstrdup("/home/me");
    hb_must(hb_strv_add(&rec.argv, "./train"));
    hb_must(hb_strv_add(&rec.argv, "two words"));
}

/* Makes a job of two hosts with two ranks each, all of which run. */
static void begin_job(const char *first_host)
{
    begin(4);
    for (int host = 0; host < 2; host++) {
        record_host(&rec, host ? "n2" : first_host);
        rec.hosts[host].slots = 2;
        rec.hosts[host].asked_ns = MS;
        rec.hosts[host].reached_ns = (host + 2) * MS;
        rec.hosts[host].version = hb_xstrdup("0.1.0");
        rec.hosts[host].machine = hb_xstrdup("x86_64");
    }
    record_reach(&rec, RECORD_CONNECTED, 3 * MS);
    record_reach(&rec, RECORD_ROUTED, 4 * MS);
    for (int rank = 0; rank < 4; rank++) {
        record_place(&rec, rank, rank / 2, rank % 2);
        rec.ranks[rank].is_planned = 1;
        record_run_started(&rec, rank, 100 + rank, 5 * MS);
    }
    record_reach(&rec, RECORD_STARTED, 6 * MS);
}

static void exits(int rank, int64_t when_ns, int exit_code, const char *tail)
{
    struct record_run *run = record_running(&rec, rank);
    char how[32];

    ck_assert_ptr_nonnull(run);
    run->exit_code = exit_code;
    snprintf(how, sizeof(how), "exit code %d", exit_code);
    record_run_ended(&rec, run, when_ns, RECORD_ITSELF, how, tail);
}

static void is_ended(int rank, int64_t when_ns)
{
    struct record_run *run = record_running(&rec, rank);

    ck_assert_ptr_nonnull(run);
    run->exit_code = 143;
    run->signal = SIGTERM;
    record_run_ended(&rec, run, when_ns, RECORD_BY_HVDRUN,
                     "killed by signal 15 (SIGTERM)", NULL);
}

static void end(int exit_code)
{
    record_reach(&rec, RECORD_ENDING, 990 * MS);
    record_reach(&rec, RECORD_ENDED, 1000 * MS);
    rec.exit_code = exit_code;
}

static void begin_good_job(void)
{
    struct worker_stats m = {.operations = 10, .negotiations = 1};

    begin_job("n1");
    m.rows[WORKER_STATS_ALLREDUCE][1] =
        (struct worker_stats_row){10, 5120, 40 * MS, 30 * MS};
    stats.ranks = 4;
    stats.waited_ns = hb_xcalloc(4, sizeof(*stats.waited_ns));
    stats.waited_ns[2] = 90 * MS;
    stats.waited_ns[0] = 5 * MS;
    rec.stats = &stats;
    for (int rank = 0; rank < 4; rank++) {
        record_stats(&rec, rank, &m);
        worker_stats_add(&stats.all, &m);
        exits(rank, (900 + rank) * MS, 0, "nobody needs this\n");
    }
    end(0);
}

static void begin_failed_job(const char *host, const char *tail)
{
    static const char first[] = "hvdrun: rank 1 on host n1 (pid 101) failed: "
                                "exit code 3\nhvdrun: last lines:\n";
    struct hb_buf report = HB_BUF_INIT;

    begin_job(host);
    record_event(&rec, 7 * MS, "hvdrun: one\nhvdrun: two\n", 24);
    record_event(&rec, 8 * MS, tail, strlen(tail));
    exits(1, 500 * MS, 3, tail);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 1)
            is_ended(rank, 600 * MS);
    record_culprit(&rec, 1, tail);
    hb_must(hb_buf_printf(&report, "%s%s", first, tail));
    record_report(&rec, hb_buf_data(&report));
    hb_buf_free(&report);
    record_trouble(&rec, 1, 9 * MS, tail);
    record_trouble(&rec, 1, 10 * MS, "a later trouble");
    end(3);
}

static void tear_down(void)
{
    record_fini(&rec);
    stats_sum_fini(&stats);
    memset(&stats, 0, sizeof(stats));
    hb_buf_free(&text);
}

/* ---- Checks ---- */

static json_t *json(void)
{
    json_error_t e;
    json_t *j;

    hb_buf_clear(&text);
    record_json(&text, &rec);
    j = json_loadb(hb_buf_data(&text), hb_buf_len(&text),
                   JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(j != NULL, "%s", e.text);
    return j;
}

static const char *string(json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

static double number(json_t *j, const char *key)
{
    json_t *n = json_object_get(j, key);

    ck_assert_msg(json_is_number(n), "%s is no number", key);
    return json_number_value(n);
}

static json_t *item(json_t *j, const char *key, size_t i)
{
    json_t *found = json_array_get(json_object_get(j, key), i);

    ck_assert_msg(found != NULL, "no %s[%zu]", key, i);
    return found;
}

/* Skips a tag from its start to behind its end; appends the tag to
 * skeleton. */
static const char *skip_tag(const char *p, struct hb_buf *skeleton)
{
    char quote = '\0';
    const char *start = p;

    for (p++; *p && (quote || *p != '>'); p++) {
        ck_assert_msg(*p != '<', "< in a tag: %.60s", p);
        if (quote ? *p == quote : *p == '"' || *p == '\'')
            quote = quote ? '\0' : *p;
    }
    ck_assert(*p == '>');
    hb_must(hb_buf_append(skeleton, start, (size_t)(p - start) + 1));
    return p + 1;
}

/* Checks that all tags are closed in order, and that no text has a `<` or an
 * `&` of its own, nor a control; appends all tags to skeleton. */
static void check_tags(const char *p, struct hb_buf *skeleton)
{
    const char *open[64];
    size_t len[64], depth = 0;

    while (*p) {
        size_t n = strcspn(p, "<&");

        for (size_t i = 0; i < n; i++)
            ck_assert(p[i] == '\n' || (unsigned char)p[i] >= 0x20);
        p += n;
        if (*p == '&') {
            ck_assert_msg(p[1] == '#' || !strncmp(p, "&lt;", 4), "%.20s", p);
            p++;
        } else if (p[0] == '<' && p[1] == '/') {
            ck_assert_uint_gt(depth--, 0);
            ck_assert_msg(!strncmp(p + 2, open[depth], len[depth]) &&
                              p[2 + len[depth]] == '>',
                          "%.20s closes %.20s", p, open[depth]);
            p = skip_tag(p, skeleton);
        } else if (*p) {
            const char *name = p + 1;

            p = skip_tag(p, skeleton);
            if (p[-2] == '/' || *name == '?' || *name == '!' ||
                !strncmp(name, "meta ", 5))
                continue;
            ck_assert_uint_lt(depth, 64);
            open[depth] = name;
            len[depth++] = strcspn(name, " >");
        }
    }
    ck_assert_uint_eq(depth, 0);
}

static const char *made(void (*write)(struct hb_buf *, const struct record *),
                        struct hb_buf *skeleton)
{
    struct hb_buf own = HB_BUF_INIT;
    json_t *utf8;

    hb_buf_clear(&text);
    write(&text, &rec);
    utf8 = json_stringn(hb_buf_data(&text), hb_buf_len(&text));
    ck_assert_msg(utf8 != NULL, "it is not UTF-8");
    json_decref(utf8);
    ck_assert_uint_eq(strlen(hb_buf_data(&text)), hb_buf_len(&text));
    check_tags(hb_buf_data(&text), skeleton ? skeleton : &own);
    hb_buf_free(&own);
    return hb_buf_data(&text);
}

static void has(const char *all, const char *part)
{
    ck_assert_msg(strstr(all, part) != NULL, "no '%s' in:\n%s", part, all);
}

static void has_not(const char *all, const char *part)
{
    ck_assert_msg(strstr(all, part) == NULL, "'%s' in:\n%s", part, all);
}

/* ---- A good job ---- */

START_TEST(good_json)
{
    json_t *j, *run;

    begin_good_job();
    j = json();
    ck_assert_int_eq((int)number(j, "format"), 1);
    ck_assert_str_eq(string(j, "started"), "2023-11-14T22:13:20Z");
    ck_assert_str_eq(json_string_value(item(j, "command", 1)), "two words");
    ck_assert_double_eq_tol(number(j, "duration"), 1, 1e-9);
    ck_assert_int_eq((int)number(j, "exit_code"), 0);
    ck_assert(json_is_null(json_object_get(j, "culprit")));
    ck_assert(json_is_null(json_object_get(j, "cause")));
    ck_assert_double_eq_tol(number(json_object_get(j, "phases"), "started"),
                            0.006, 1e-9);
    ck_assert_str_eq(string(item(j, "hosts", 0), "name"), "n1");
    ck_assert_double_eq_tol(number(item(j, "hosts", 1), "reached"), 0.003,
                            1e-9);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "ranks")), 4);
    run = item(item(j, "ranks", 3), "runs", 0);
    ck_assert_int_eq((int)number(run, "pid"), 103);
    ck_assert_str_eq(string(run, "ended_by"), "itself");
    ck_assert_double_eq_tol(number(run, "end"), 0.903, 1e-9);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "events")), 0);
    json_decref(j);
}
END_TEST

START_TEST(good_statistics)
{
    json_t *j, *row;

    begin_good_job();
    j = json();
    row = item(json_object_get(j, "statistics"), "collectives", 0);
    ck_assert_str_eq(string(row, "kind"), "allreduce");
    ck_assert_int_eq((int)number(row, "calls"), 40);
    ck_assert_double_eq_tol(number(row, "waiting"), 0.12, 1e-9);
    ck_assert_int_eq((int)number(item(j, "late", 0), "rank"), 2);
    ck_assert_int_eq((int)number(item(j, "late", 1), "rank"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "late")), 2);
    ck_assert_double_eq_tol(
        number(json_object_get(item(j, "ranks", 1), "collectives"), "waited"),
        0.03, 1e-9);
    json_decref(j);
}
END_TEST

START_TEST(good_junit)
{
    const char *xml;

    begin_good_job();
    xml = made(record_junit, NULL);
    has(xml, " tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"0\" ");
    has(xml, "<testcase name=\"rank 2\" classname=\"n2\" time=\"0.897000\"/>");
    has(xml, "value=\"./train &#39;two words&#39;\"");
    has_not(xml, "<failure");
    has_not(xml, "\"job\"");
}
END_TEST

START_TEST(good_html)
{
    const char *html;

    begin_good_job();
    html = made(record_html, NULL);
    has(html, "<span class='state'>Succeeded</span>");
    has(html, "content=\"default-src 'none'; style-src 'unsafe-inline'\"");
    has(html, "<svg ");
    has(html, "Waiting, by rank");
    has(html, "until all ranks ran");
    has_not(html, "<script");
    has_not(html, "http://");
    has_not(html, "https://");
    has_not(html, "url(");
}
END_TEST

/* ---- A failed job ---- */

START_TEST(failed_json)
{
    json_t *j, *culprit;

    begin_failed_job("n1", traceback);
    j = json();
    culprit = json_object_get(j, "culprit");
    ck_assert_int_eq((int)number(j, "exit_code"), 3);
    ck_assert_str_eq(string(j, "cause"),
                     "rank 1 on host n1 (pid 101) failed: exit code 3");
    ck_assert_int_eq((int)number(culprit, "rank"), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(culprit, "last_lines")),
                      4);
    ck_assert_str_eq(json_string_value(item(culprit, "last_lines", 3)),
                     "ValueError: a < b && c > 'd'");
    ck_assert_str_eq(string(item(item(j, "ranks", 0), "runs", 0), "ended_by"),
                     "hvdrun");
    ck_assert_str_eq(string(item(j, "events", 0), "text"), "one\ntwo");
    ck_assert_str_eq(json_string_value(item(j, "report", 1)), "last lines:");
    json_decref(j);
}
END_TEST

START_TEST(failed_junit)
{
    const char *xml;

    begin_failed_job("n1", traceback);
    xml = made(record_junit, NULL);
    has(xml, " tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"3\" ");
    has(xml, "<failure message=\"exit code 3\" type=\"exit\">Traceback");
    has(xml, "ValueError: a &#60; b &#38;&#38; c &#62; &#39;d&#39;");
    has(xml, "<skipped message=\"ended by hvdrun\"/>");
}
END_TEST

START_TEST(failed_html)
{
    const char *html;

    begin_failed_job("n1", traceback);
    html = made(record_html, NULL);
    has(html, "<span class='state bad'>Failed</span>");
    has(html, "ValueError: a &#60; b");
    has(html, "class='r-fail'");
    has(html, "class='r-end'");
}
END_TEST

/* A job that fails without a rank that has failed has an error of its own. */
START_TEST(job_fails_alone)
{
    const char *xml;
    json_t *j;

    begin(2);
    record_place(&rec, 0, record_host(&rec, "n1"), 0);
    rec.ranks[0].is_planned = rec.ranks[1].is_planned = 1;
    record_trouble(&rec, 0, MS, "no route to host");
    record_report(&rec, "hvdrun: host n1: no route to host\n");
    end(125);
    xml = made(record_junit, NULL);
    has(xml, " tests=\"3\" failures=\"0\" errors=\"1\" skipped=\"2\" ");
    has(xml, "<error type=\"exit code 125\" "
             "message=\"host n1: no route to host\">");
    has(xml, "<skipped message=\"was not started\"/>");
    j = json();
    ck_assert_str_eq(string(item(j, "hosts", 0), "trouble"),
                     "no route to host");
    ck_assert(json_is_null(json_object_get(item(j, "hosts", 0), "reached")));
    json_decref(j);
    has(made(record_html, NULL), "no route to host");
}
END_TEST

/* An elastic job goes on without a rank, and starts another again. */
START_TEST(job_goes_on)
{
    const char *xml;
    json_t *j;

    begin_job("n1");
    exits(3, 100 * MS, 7, "oh\n");
    record_run_started(&rec, 3, 0, 200 * MS);
    exits(2, 300 * MS, 9, NULL);
    exits(3, 400 * MS, 0, NULL);
    record_run_ended(&rec, record_running(&rec, 0), 500 * MS, RECORD_WITH_HOST,
                     "lost with host n1", NULL);
    end(0);
    xml = made(record_junit, NULL);
    has(xml, " tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"3\" ");
    has(xml, "<skipped message=\"exit code 9\"/>");
    j = json();
    ck_assert_uint_eq(
        json_array_size(json_object_get(item(j, "ranks", 3), "runs")), 2);
    ck_assert(json_is_null(
        json_object_get(item(item(j, "ranks", 1), "runs", 0), "end")));
    ck_assert_str_eq(string(item(item(j, "ranks", 0), "runs", 0), "ended_by"),
                     "host lost");
    json_decref(j);
    has(made(record_html, NULL), "restart of a rank");
}
END_TEST

/* ---- Hostile texts ---- */

/* No text changes the tags of the page, wherever it comes from. */
START_TEST(hostile_html)
{
    struct hb_buf good = HB_BUF_INIT, bad = HB_BUF_INIT;

    begin_failed_job("n1", "one\ntwo");
    made(record_html, &good);
    tear_down();
    begin_failed_job(hostile, hostile);
    hb_free(rec.cwd);
    rec.cwd = hb_xstrdup(hostile);
    hb_must(hb_strv_add(&rec.argv, hostile));
    hb_free(rec.hosts[0].version);
    rec.hosts[0].version = hb_xstrdup(hostile);
    hb_free(rec.runs[0].how);
    rec.runs[0].how = hb_xstrdup(hostile);
    made(record_html, &bad);
    ck_assert_str_eq(hb_buf_data(&good), hb_buf_data(&bad));
    hb_buf_free(&good);
    hb_buf_free(&bad);
}
END_TEST

START_TEST(hostile_junit_and_json)
{
    const char *xml;
    json_t *j;

    begin_failed_job(hostile, hostile);
    hb_must(hb_strv_add(&rec.argv, hostile));
    hb_free(rec.argv.items[0]);
    rec.argv.items[0] = hb_xstrdup(hostile);
    xml = made(record_junit, NULL);
    has_not(xml, "<script");
    has_not(xml, "]]>");
    j = json();
    has(json_string_value(item(j, "command", 0)), "<script>alert(1)");
    has(string(item(j, "hosts", 0), "name"), "red  ???? ?? ?? ??? ???");
    json_decref(j);
}
END_TEST

START_TEST(texts_are_cleaned)
{
    static const struct {
        const char *raw, *clean;
    } cases[] = {
        {NULL, ""},
        {"", ""},
        {"a\nb\n", "a\nb\n"},
        {"a\r\nb\rc", "a\nb\nc"},
        {"\ta", "    a"},
        {"\033[1;31mred\033[0m", "red"},
        {"\033]8;;http://x\033\\link\033]8;;\a", "link"},
        {"\033[", "?["},
        {"\033]0;never ends", "?]0;never ends"},
        {"\033", "?"},
        {"\xc3\xa9 \xc3 \xff", "\xc3\xa9 ? ?"},
        {"\xef\xbf\xbe \xef\xbf\xbd", "??? \xef\xbf\xbd"},
        {"\xe2\x80\xae", "???"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *clean = record_clean(cases[i].raw);

        ck_assert_str_eq(clean, cases[i].clean);
        hb_free(clean);
    }
}
END_TEST

/* ---- Sizes ---- */

START_TEST(empty)
{
    record_init(&rec, 0);
    json_decref(json());
    made(record_junit, NULL);
    made(record_html, NULL);
    tear_down();
    begin(3); /* of which none has a host */
    rec.ranks[1].is_planned = 1;
    json_decref(json());
    made(record_junit, NULL);
    made(record_html, NULL);
}
END_TEST

START_TEST(many_ranks)
{
    char name[16];
    json_t *j;
    const char *html;

    begin(1000);
    for (int rank = 0; rank < 1000; rank++) {
        snprintf(name, sizeof(name), "n%03d", rank / 2);
        record_place(&rec, rank, record_host(&rec, name), rank % 2);
        rec.ranks[rank].is_planned = 1;
        record_run_started(&rec, rank, 1000 + rank, rank);
        exits(rank, 900 * MS, rank == 999, "words\n");
    }
    record_culprit(&rec, 999, "the last words\n");
    end(1);
    j = json();
    ck_assert_uint_eq(json_array_size(json_object_get(j, "ranks")), 1000);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "hosts")), 500);
    json_decref(j);
    has(made(record_junit, NULL), " tests=\"1000\" failures=\"1\" ");
    html = made(record_html, NULL);
    ck_assert_uint_lt(strlen(html), 300000);
    has(html, "744 more ranks are left out.");
    has(html, "372 more hosts are left out.");
    has(html, "700 more processes of ranks are left out.");
    has(html, "<td class='n'>999</td>"); /* the one that failed */
}
END_TEST

START_TEST(many_runs_and_events)
{
    char line[32];
    json_t *j;

    begin_job("n1");
    exits(0, 6 * MS, 1, "first words\n");
    for (int i = 0; i < RECORD_RUNS_MAX; i++) {
        record_run_started(&rec, 0, i + 1, 7 * MS);
        if (record_running(&rec, 0))
            exits(0, 8 * MS, 1, "words\n");
    }
    for (int i = 0; i < 2 * RECORD_EVENTS_MAX; i++) {
        int n = snprintf(line, sizeof(line), "hvdrun: event %d\n", i);

        record_event(&rec, i, line, (size_t)n);
    }
    end(0);
    ck_assert_int_eq(rec.run_count, RECORD_RUNS_MAX);
    ck_assert_int_eq(rec.runs_left_out, 4);
    ck_assert_int_eq(rec.tail_count, RECORD_TAILS_MAX);
    j = json();
    ck_assert_int_eq((int)number(j, "events_left_out"), RECORD_EVENTS_MAX);
    ck_assert_str_eq(string(item(j, "events", 499), "text"), "event 499");
    ck_assert_str_eq(string(item(j, "events", 500), "text"), "event 1500");
    ck_assert_str_eq(string(item(j, "events", 999), "text"), "event 1999");
    json_decref(j);
    made(record_html, NULL);
    ck_assert_uint_lt(hb_buf_len(&text), 1000000);
}
END_TEST

/* A line that is too long is cut; what is left is valid. */
START_TEST(long_event)
{
    char *line = hb_xmalloc(100000);
    json_t *j;

    memset(line, 0xc3, 100000);
    begin_job("n1");
    record_event(&rec, 0, line, 100000);
    end(0);
    j = json();
    ck_assert_uint_eq(strlen(string(item(j, "events", 0), "text")),
                      RECORD_EVENT_BYTES_MAX);
    json_decref(j);
    hb_free(line);
}
END_TEST

START_TEST(spans)
{
    static const struct {
        double ns;
        const char *text;
    } cases[] = {
        {0, "0 s"},           {-5, "0 s"},
        {12, "12 ns"},        {1234, "1.23 &#181;s"},
        {999600, "1.00 ms"},  {12345678, "12.3 ms"},
        {1.5e9, "1.50 s"},    {99.4e9, "99.4 s"},
        {125e9, "2 min 5 s"}, {3600e9, "1 h 0 min"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hb_buf_clear(&text);
        html_span(&text, cases[i].ns);
        ck_assert_str_eq(hb_buf_data(&text), cases[i].text);
    }
}
END_TEST

/* ---- Files ---- */

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[sizeof(dir) + 300];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static int count_files(void)
{
    DIR *d = opendir(dir);
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void set_up_files(void)
{
    snprintf(dir, sizeof(dir), "/tmp/hvd-record-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    begin_failed_job("n1", traceback);
}

static void tear_down_files(void)
{
    const char *names[] = {"a.json", "b.xml", "c.HTML"};

    for (int i = 0; i < 3; i++)
        unlink(in_dir(names[i]));
    ck_assert_int_eq(rmdir(dir), 0);
    tear_down();
}

static void refuses(const char *path, const char *why)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_lt(record_file_check(path, "0a", &err), 0);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
    hb_error_clear(&err);
}

START_TEST(files_are_checked)
{
    struct hb_error err = HB_ERROR_INIT;
    char name[300];

    refuses("report", "must end in .json");
    refuses("report.txt", "must end in .json");
    refuses("", "must end in .json");
    refuses(".html", "must end in .json");
    refuses("folder/.html", "must end in .json");
    refuses("/nowhere/a.json", "folder /nowhere/");
    ck_assert_int_eq(mkdir(in_dir("b.xml"), 0777), 0);
    refuses(in_dir("b.xml"), "not a regular file");
    ck_assert_int_eq(rmdir(in_dir("b.xml")), 0);
    ck_assert_int_eq(record_file_check(in_dir("a.json"), "0a", &err), 0);
    memset(name, 'n', sizeof(name));
    strcpy(name + 251, ".xml"); /* 255 bytes */
    ck_assert_int_eq(record_file_check(in_dir(name), "0a", &err), 0);
    strcpy(name + 252, ".xml");
    refuses(in_dir(name), "too long");
    ck_assert_int_eq(record_file_check("relative.xml", "0a", &err), 0);
    ck_assert_int_eq(count_files(), 0);
}
END_TEST

START_TEST(files_are_written)
{
    struct hb_error err = HB_ERROR_INIT;
    json_t *j;

    ck_assert_int_eq(record_file_write(in_dir("a.json"), &rec, &err), 0);
    ck_assert_int_eq(record_file_write(in_dir("b.xml"), &rec, &err), 0);
    ck_assert_int_eq(record_file_write(in_dir("c.HTML"), &rec, &err), 0);
    ck_assert_int_eq(count_files(), 3);
    rec.exit_code = 9;
    ck_assert_int_eq(record_file_write(in_dir("a.json"), &rec, &err), 0);
    j = json_load_file(in_dir("a.json"), 0, NULL);
    ck_assert_int_eq((int)number(j, "exit_code"), 9);
    json_decref(j);
}
END_TEST

/* A file that cannot be written leaves the old one as it is. */
START_TEST(disk_is_full)
{
    struct rlimit old, small;
    struct hb_error err = HB_ERROR_INIT;
    struct stat before, after;
    int rc;

    ck_assert_int_eq(record_file_write(in_dir("a.json"), &rec, &err), 0);
    ck_assert_int_eq(stat(in_dir("a.json"), &before), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    rc = record_file_write(in_dir("a.json"), &rec, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(rc, -HVD_ESYSTEM);
    ck_assert_int_eq(err.sys_errno, EFBIG);
    ck_assert_int_eq(stat(in_dir("a.json"), &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(count_files(), 1);
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_set_timeout(c, 60);
    tcase_add_test(c, good_json);
    tcase_add_test(c, good_statistics);
    tcase_add_test(c, good_junit);
    tcase_add_test(c, good_html);
    tcase_add_test(c, failed_json);
    tcase_add_test(c, failed_junit);
    tcase_add_test(c, failed_html);
    tcase_add_test(c, job_fails_alone);
    tcase_add_test(c, job_goes_on);
    tcase_add_test(c, hostile_html);
    tcase_add_test(c, hostile_junit_and_json);
    tcase_add_test(c, texts_are_cleaned);
    tcase_add_test(c, empty);
    tcase_add_test(c, many_ranks);
    tcase_add_test(c, many_runs_and_events);
    tcase_add_test(c, long_event);
    tcase_add_test(c, spans);
}

int main(void)
{
    Suite *s = suite_create("record");
    TCase *c = tcase_create("record"), *files = tcase_create("files");

    tcase_add_checked_fixture(c, NULL, tear_down);
    add_tests(c);
    suite_add_tcase(s, c);
    tcase_add_checked_fixture(files, set_up_files, tear_down_files);
    tcase_add_test(files, files_are_checked);
    tcase_add_test(files, files_are_written);
    tcase_add_test(files, disk_is_full);
    suite_add_tcase(s, files);
    return unit_run(s);
}
