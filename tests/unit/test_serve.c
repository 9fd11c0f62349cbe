/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/serve: addresses, tokens, requests and events of --http, the page of
 * a job that runs, and its metrics.
 */
#include "lib/base/alloc.h"
#include "lib/job/serve/metrics.h"
#include "lib/job/serve/serve_address.h"
#include "lib/job/serve/serve_request.h"
#include "lib/job/serve/status_line.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_counts.h"
#include "tests/unit/unit.h"

#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000LL

static struct record rec;
static struct stats_sum stats;
static struct hb_buf text;

static void tear_down(void)
{
    record_fini(&rec);
    stats_sum_fini(&stats);
    stats = (struct stats_sum){0};
    hb_buf_free(&text);
}

static void holds(const char *part)
{
    ck_assert_msg(strstr(hb_buf_data(&text), part), "no \"%s\" in:\n%.2000s",
                  part, hb_buf_data(&text));
}

static void lacks(const char *part)
{
    ck_assert_msg(!strstr(hb_buf_data(&text), part), "\"%s\" is in:\n%.2000s",
                  part, hb_buf_data(&text));
}

/* ---- Addresses ---- */

static void parses(const char *address, const char *url)
{
    struct serve_address a;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(serve_address_parse(address, &a, &err) == 0, "%s: %s",
                  address, err.text);
    hb_buf_clear(&text);
    serve_address_url(&text, &a, NULL);
    ck_assert_str_eq(hb_buf_data(&text), url);
}

START_TEST(addresses)
{
    parses("8080", "http://127.0.0.1:8080/");
    parses("0", "http://127.0.0.1:0/");
    parses("0.0.0.0:65535", "http://0.0.0.0:65535/");
    parses("[::1]:80", "http://[::1]:80/");
}
END_TEST

START_TEST(bad_addresses)
{
    static const char *const bad[] = {
        "",          ":",       ":80",          "80:",     "65536",
        "-1",        "host",    "localhost:80", "1.2.3.4", "1.2.3:80",
        "::1:80",    "[::1]",   "[::1]80",      "[::1:80", "[1.2.3.4]:80",
        "1.2.3.4:x", "[]:80",   "80 ",          "0x50",    "1.2.3.4:80:1",
        "[::1]x:80", "]::1[:80"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct serve_address a = {.port = 7};
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_msg(serve_address_parse(bad[i], &a, &err) == -HVD_EINVAL,
                      "%s is accepted", bad[i]);
        ck_assert_int_eq(a.port, 7);
        ck_assert_int_ne(err.text[0], '\0');
    }
}
END_TEST

START_TEST(listens_once)
{
    struct serve_address a, b;
    struct hb_error err = HB_ERROR_INIT;
    int fd;

    ck_assert_int_eq(serve_address_parse("0", &a, NULL), 0);
    fd = serve_address_listen(&a, NULL);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(a.port, 0);
    b = a;
    ck_assert_int_lt(serve_address_listen(&b, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot listen on port"));
    ck_assert_ptr_nonnull(strstr(err.text, "in use"));
    close(fd);
}
END_TEST

/* ---- Tokens and requests ---- */

static const char token[] = "0123456789abcdef";

static int ask(const char *method, const char *path, const char *authorization,
               const char *in_query)
{
    const struct serve_request q = {method, path, authorization, in_query};
    enum serve_page page;

    return serve_request_check(&q, token, &page);
}

START_TEST(token_is_needed)
{
    static const char *const paths[] = {"/",        "/events", "/job.json",
                                        "/metrics", "/none",   "//healthz"};
    static const char *const wrong[] = {"",
                                        "0123456789abcde",
                                        "0123456789abcdefg",
                                        "0123456789abcdeF",
                                        token + 1,
                                        "Bearer 0123456789abcdef"};
    static const char *const headers[] = {"",
                                          "Bearer",
                                          "Bearer ",
                                          "0123456789abcdef",
                                          "Basic 0123456789abcdef",
                                          "Bearer 0123456789abcdef ",
                                          "Bearer0123456789abcdef"};

    for (size_t p = 0; p < sizeof(paths) / sizeof(paths[0]); p++) {
        int there = p < 4 ? 200 : 404;

        ck_assert_int_eq(ask("GET", paths[p], NULL, NULL), 401);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
            ck_assert_int_eq(ask("GET", paths[p], NULL, wrong[i]), 401);
        for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
            ck_assert_int_eq(ask("GET", paths[p], headers[i], NULL), 401);
        ck_assert_int_eq(ask("GET", paths[p], NULL, token), there);
        ck_assert_int_eq(ask("HEAD", paths[p], "Basic x", token), there);
        ck_assert_int_eq(
            ask("GET", paths[p], "Bearer 0123456789abcdef", "wrong"), there);
        ck_assert_int_eq(ask("GET", paths[p], "bearer  0123456789abcdef", NULL),
                         there);
    }
    ck_assert_int_eq(ask("GET", "/healthz", NULL, NULL), 200);
}
END_TEST

START_TEST(only_reading)
{
    static const char *const methods[] = {"POST",  "PUT",     "DELETE",
                                          "PATCH", "OPTIONS", "TRACE",
                                          "get",   "",        "CONNECT"};

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        ck_assert_int_eq(ask(methods[i], "/", NULL, token), 405);
        ck_assert_int_eq(ask(methods[i], "/healthz", NULL, NULL), 405);
    }
}
END_TEST

START_TEST(tokens)
{
    char a[SERVE_TOKEN_RANDOM + 1], b[SERVE_TOKEN_RANDOM + 1], *longest;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(serve_token_make(a, NULL), 0);
    ck_assert_int_eq(serve_token_make(b, NULL), 0);
    ck_assert_uint_eq(strspn(a, "0123456789abcdef"), SERVE_TOKEN_RANDOM);
    ck_assert_str_ne(a, b);
    ck_assert_int_eq(serve_token_check(a, NULL), 0);
    ck_assert_int_eq(serve_token_check("ABCxyz019-_.~...", NULL), 0);
    ck_assert_int_lt(serve_token_check("", NULL), 0);
    ck_assert_int_lt(serve_token_check("0123456789abcde", &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "16 to 256"));
    ck_assert_int_lt(serve_token_check("0123456789abcde&", NULL), 0);
    ck_assert_int_lt(serve_token_check("0123456789 abcdef", NULL), 0);
    longest = hb_xasprintf("%0257d", 0);
    ck_assert_int_lt(serve_token_check(longest, NULL), 0);
    ck_assert_int_eq(serve_token_check(longest + 1, NULL), 0);
    hb_free(longest);
}
END_TEST

START_TEST(events)
{
    serve_event(&text, "page", "a\nb\r\nc\rd\n");
    serve_event(&text, "end", "");
    ck_assert_str_eq(hb_buf_data(&text),
                     "event: page\ndata: a\ndata: b\ndata: c\ndata: d\n"
                     "data: \n\nevent: end\ndata: \n\n");
}
END_TEST

/* ---- A job that runs ---- */

/* Makes a job of five ranks on two hosts, of which one rank has been started
 * again, and one never was. */
static void begin_job(void)
{
    record_init(&rec, 5);
    memcpy(rec.job_id, "0123456789abcdef0123456789abcdef", 33);
    rec.wall_ns = 1700000000500000000;
    hb_must(hb_strv_add(&rec.argv, "./train"));
    record_host(&rec, "n1");
    record_host(&rec, "n2 </main><script>");
    rec.hosts[0].asked_ns = rec.hosts[1].asked_ns = MS;
    rec.hosts[0].reached_ns = 2 * MS;
    rec.hosts[0].is_reached = 1;
    record_reach(&rec, RECORD_CONNECTED, 3 * MS);
    record_reach(&rec, RECORD_STARTED, 4 * MS);
    for (int rank = 0; rank < 5; rank++) {
        record_place(&rec, rank, rank / 3, rank % 3);
        rec.ranks[rank].is_planned = 1;
        if (rank < 4)
            record_run_started(&rec, rank, 100 + rank, 4 * MS);
    }
    rec.is_running = 1;
    rec.now_ns = 5000 * MS;
}

static void end_rank(int rank, enum record_ended ended, int code)
{
    struct record_run *run = record_running(&rec, rank);

    run->exit_code = code;
    record_run_ended(&rec, run, 50 * MS, ended, "exit code", NULL);
}

START_TEST(live_page)
{
    begin_job();
    record_html_live(&text, &rec, "f00f");
    holds("script-src 'nonce-f00f'; connect-src 'self'\">");
    holds("<script nonce='f00f'>");
    holds(">Running</span>");
    holds("<b>5 s</b><span>since the start</span>");
    holds("<rect class='r-alive'");
    holds("<td class='w alive'>runs</td>");
    holds("n2 &#60;/main&#62;&#60;script&#62;");
    lacks("Waiting, by rank");
    record_counts(&rec, 2, &(struct status_counts){12345, 2048, 0});
    hb_buf_clear(&text);
    record_html_live(&text, &rec, "f00f");
    holds("<td>2</td><td>n1</td><td class='n'>12345</td>");
    lacks("exit code");
    lacks("unknown");
    hb_buf_clear(&text);
    rec.phases[RECORD_STARTED] = RECORD_NEVER;
    record_html_main(&text, &rec);
    holds(">Starting</span>");
    lacks("<main>");
    hb_buf_clear(&text);
    rec.phases[RECORD_ENDING] = 6 * MS;
    record_html_main(&text, &rec);
    holds(">Ending</span>");
    hb_buf_clear(&text);
    rec.is_running = 0;
    record_html(&text, &rec);
    lacks("<script");
    lacks("runs</td>");
    holds("default-src 'none'; style-src 'unsafe-inline'\">");
}
END_TEST

START_TEST(live_json)
{
    json_t *j;

    begin_job();
    record_counts(&rec, 1, &(struct status_counts){12345, 2048, 0});
    record_json(&text, &rec);
    j = json_loads(hb_buf_data(&text), 0, NULL);
    ck_assert_ptr_nonnull(j);
    ck_assert(json_is_null(json_object_get(j, "exit_code")));
    ck_assert(
        json_is_null(json_object_get(json_object_get(j, "phases"), "ended")));
    ck_assert(json_real_value(json_object_get(j, "duration")) == 5.0);
    ck_assert_int_eq(
        json_integer_value(json_object_get(
            json_object_get(json_array_get(json_object_get(j, "ranks"), 1),
                            "collectives"),
            "calls")),
        12345);
    json_decref(j);
}
END_TEST

START_TEST(metrics)
{
    begin_job();
    rec.ranks[2].has_stats = 1;
    rec.ranks[2].calls = 7;
    rec.ranks[2].bytes = 9007199254740991;
    rec.ranks[2].wait_ns = 1500000000;
    stats.all.errors = 3;
    rec.stats = &stats;
    end_rank(0, RECORD_ITSELF, 0);
    end_rank(1, RECORD_ITSELF, 3);
    record_run_started(&rec, 1, 200, 60 * MS);
    end_rank(3, RECORD_WITH_HOST, 0);
    record_trouble(&rec, 1, 50 * MS, "lost");
    metrics_text(&text, &rec, 2);
    holds("hvdrun_info{job_id=\"0123456789abcdef0123456789abcdef\","
          "version=\"" HVD_VERSION "\"} 1\n");
    holds("# TYPE hvdrun_start_time_seconds gauge\n"
          "hvdrun_start_time_seconds 1700000000.5\n");
    holds("hvdrun_ranks{state=\"waiting\"} 1\n"
          "hvdrun_ranks{state=\"running\"} 2\n"
          "hvdrun_ranks{state=\"finished\"} 1\n"
          "hvdrun_ranks{state=\"failed\"} 0\n"
          "hvdrun_ranks{state=\"lost\"} 1\n"
          "hvdrun_ranks{state=\"ended\"} 0\n");
    holds("hvdrun_hosts{state=\"waiting\"} 0\n"
          "hvdrun_hosts{state=\"reached\"} 1\n"
          "hvdrun_hosts{state=\"failed\"} 1\n");
    holds("hvdrun_deaths_total 2\n");
    holds("hvdrun_restarts_total 1\n");
    holds("# TYPE hvdrun_generation gauge\nhvdrun_generation 2\n");
    holds("hvdrun_operations_total{rank=\"2\"} 7\n");
    holds("hvdrun_bytes_total{rank=\"2\"} 9007199254740991\n");
    holds("hvdrun_waiting_seconds_total{rank=\"2\"} 1.5\n");
    holds("hvdrun_errors_total 3\n");
    hb_buf_clear(&text);
    metrics_text(&text, &rec, -1);
    lacks("generation");
}
END_TEST

/* What a process has counted so far is kept when the rank is started again, and
 * no number ever falls.  At the end, statistics alone count. */
START_TEST(counts_so_far)
{
    static struct worker_stats told;
    struct status_counts sum;

    begin_job();
    ck_assert_int_eq(record_counted(&rec, 0, &sum), 0);
    record_counts(&rec, 0, &(struct status_counts){2, 20, 200});
    record_counts(&rec, 0, &(struct status_counts){3, 30, 300});
    ck_assert_int_eq(record_counted(&rec, 0, &sum), 1);
    ck_assert_uint_eq(sum.calls, 3);
    metrics_text(&text, &rec, -1);
    holds("hvdrun_bytes_total{rank=\"0\"} 30\n");
    end_rank(0, RECORD_ITSELF, 3);
    record_run_started(&rec, 0, 300, 60 * MS);
    record_counts(&rec, 0, &(struct status_counts){1, 10, 100});
    ck_assert_int_eq(record_counted(&rec, 0, &sum), 1);
    ck_assert_uint_eq(sum.calls, 4);
    ck_assert_uint_eq(sum.waited_ns, 400);
    record_counts(&rec, 0, &(struct status_counts){1, 9, 200});
    record_counted(&rec, 0, &sum);
    ck_assert_uint_eq(sum.bytes, 40);
    ck_assert_uint_eq(sum.waited_ns, 500);
    told.rows[0][0] = (struct worker_stats_row){5, 30, 0, 500};
    record_stats(&rec, 0, &told);
    record_counted(&rec, 0, &sum);
    ck_assert_uint_eq(sum.calls, 5);
    ck_assert_uint_eq(sum.bytes, 40);
    rec.is_running = 0;
    record_counted(&rec, 0, &sum);
    ck_assert_uint_eq(sum.bytes, 30);
    ck_assert_int_eq(record_counted(&rec, 1, &sum), 0);
}
END_TEST

static void shows(struct status_line *line, int generation, size_t width,
                  const char *want)
{
    hb_buf_clear(&text);
    status_line_format(&text, line, &rec, generation, width);
    ck_assert_str_eq(hb_buf_data(&text), want);
    rec.now_ns += 2000 * MS;
}

/* Lets all ranks that run count more. */
static void count(uint64_t turns, const uint64_t waited_ms[4])
{
    for (int rank = 0; rank < 4; rank++) {
        struct status_counts c = rec.ranks[rank].so_far;

        c.calls += turns * 100;
        c.bytes += turns << 20;
        c.waited_ns += turns * waited_ms[rank] * (uint64_t)MS;
        if (record_running(&rec, rank))
            record_counts(&rec, rank, &c);
    }
}

START_TEST(lines)
{
    static const uint64_t even[4] = {900, 900, 900, 900},
                          one_late[4] = {1000, 10, 1000, 1000};
    struct status_line line = {0};

    begin_job();
    shows(&line, -1, 80, "4 of 5 ranks on 1 host, 0:05");
    count(1, even);
    shows(&line, -1, 80,
          "4 of 5 ranks on 1 host, 0:07, 50 operations/s, 512 KiB/s");
    count(1, even);
    shows(&line, 1, 80,
          "4 of 5 ranks on 1 host, 0:09, 50 operations/s, 512 KiB/s");
    count(2, one_late);
    shows(&line, 3, 200,
          "4 of 5 ranks on 1 host, 0:11, generation 3, 67 operations/s, "
          "683 KiB/s, the others wait for rank 1 (63 %)");
    /* The last lines' numbers stay until they are of too long ago. */
    for (int i = 0; i < 8; i++) {
        hb_buf_clear(&text);
        status_line_format(&text, &line, &rec, -1, 200);
        rec.now_ns += 2000 * MS;
    }
    shows(&line, -1, 200,
          "4 of 5 ranks on 1 host, 0:29, 10 operations/s, 102 KiB/s, "
          "the others wait for rank 1 (10 %)");
    shows(&line, -1, 80,
          "4 of 5 ranks on 1 host, 0:31, no operation has ended for 0:20");
    rec.now_ns += 3600000 * MS;
    shows(&line, -1, 40, "4 of 5 ranks on 1 host, 1:00:33");
    shows(&line, -1, 10, "");
    status_line_fini(&line);
}
END_TEST

START_TEST(counts_message)
{
    static const struct control_counts all[2] = {
        {7, {1, 2, 3}}, {CONTROL_RANKS_MAX - 1, {UINT64_MAX, 0, 5}}};
    struct control_counts m;
    struct frame f;

    ck_assert_int_eq(control_encode_counts(&text, all, 2), 0);
    ck_assert_int_eq(frame_decode(&text, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, CONTROL_COUNTS);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(control_decode_counts(f.payload, f.len, i, &m, NULL),
                         1);
        ck_assert_int_eq(m.rank, all[i].rank);
        ck_assert_uint_eq(m.counts.calls, all[i].counts.calls);
        ck_assert_uint_eq(m.counts.bytes, all[i].counts.bytes);
        ck_assert_uint_eq(m.counts.waited_ns, all[i].counts.waited_ns);
    }
    ck_assert_int_eq(control_decode_counts(f.payload, f.len, 2, &m, NULL), 0);
    ck_assert_int_eq(control_decode_counts(f.payload, 0, 0, &m, NULL), 0);
    ck_assert_int_eq(control_decode_counts(f.payload, f.len - 1, 0, &m, NULL),
                     -HVD_EPROTO);
    memset(hb_buf_data(&text) + hb_buf_len(&text) - 56, 0xff, 4);
    ck_assert_int_eq(control_decode_counts(f.payload, f.len, 0, &m, NULL),
                     -HVD_EPROTO);
}
END_TEST

START_TEST(many_ranks)
{
    record_init(&rec, METRICS_RANKS_MAX + 10);
    for (int rank = 0; rank < rec.rank_count; rank++)
        rec.ranks[rank].has_stats = 1;
    rec.is_running = 1;
    metrics_text(&text, &rec, -1);
    holds("_bytes_total{rank=\"8191\"}");
    lacks("_bytes_total{rank=\"8192\"}");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("serve");
    TCase *c = tcase_create("serve");

    tcase_add_checked_fixture(c, NULL, tear_down);
    tcase_add_test(c, addresses);
    tcase_add_test(c, bad_addresses);
    tcase_add_test(c, listens_once);
    tcase_add_test(c, token_is_needed);
    tcase_add_test(c, only_reading);
    tcase_add_test(c, tokens);
    tcase_add_test(c, events);
    tcase_add_test(c, live_page);
    tcase_add_test(c, live_json);
    tcase_add_test(c, metrics);
    tcase_add_test(c, counts_so_far);
    tcase_add_test(c, lines);
    tcase_add_test(c, counts_message);
    tcase_add_test(c, many_ranks);
    suite_add_tcase(s, c);
    return unit_run(s);
}
