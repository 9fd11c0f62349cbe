/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a job as a page for people: one file that needs no other, and
 * no network.
 *
 * It has no script, and its Content-Security-Policy allows none, nor anything
 * else but its own style.  The page of a job that runs has one script, and may
 * ask only the server that it came from.  Every text of ranks, hosts and the
 * command line goes through record_escape.
 */
#include "lib/job/record/html_parts.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

enum { EXIT_STOPPED = 75, EXIT_TIMEOUT = 124 };

/* ---- Shapes of numbers ---- */

/* Appends three digits, or fewer if the value is whole. */
static void put_digits(struct hb_buf *out, double value, const char *unit)
{
    int is_whole = value == (double)(long)value;

    xprintf(out, "%.*f %s",
            is_whole || value >= 99.95 ? 0
            : value >= 9.995           ? 1
                                       : 2,
            value, unit);
}

void html_span(struct hb_buf *out, double ns)
{
    static const char *const units[] = {"ns", "&#181;s", "ms", "s"};
    long s = (long)(ns / 1e9 + 0.5);
    int i = 0;

    if (ns <= 0) {
        xbuf_puts(out, "0 s");
        return;
    }
    if (s >= 3600) {
        xprintf(out, "%ld h %ld min", s / 3600, s % 3600 / 60);
        return;
    }
    if (s >= 100) {
        xprintf(out, "%ld min %ld s", s / 60, s % 60);
        return;
    }
    for (; i < 3 && ns >= 999.5; i++)
        ns /= 1000;
    put_digits(out, ns, units[i]);
}

void html_bytes(struct hb_buf *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;

    for (; i < 4 && bytes >= 999.5; i++)
        bytes /= 1024;
    put_digits(out, bytes, units[i]);
}

void html_left_out(struct hb_buf *out, int count, const char *what)
{
    if (count > 0)
        xprintf(out, "<p class='left'>%d more %s are left out.</p>\n", count,
                what);
}

enum html_run html_run(const struct record *r, const struct record_run *run)
{
    if (record_is_alive(r, run))
        return RUN_ALIVE;
    switch (run->ended) {
    case RECORD_ITSELF:
        return run->exit_code ? RUN_FAIL : RUN_OK;
    case RECORD_WITH_HOST:
        return RUN_LOST;
    case RECORD_BY_HVDRUN:
        return RUN_END;
    case RECORD_UNKNOWN:
        break;
    }
    return RUN_UNKNOWN;
}

const char *html_run_class(enum html_run look)
{
    static const char *const classes[] = {
        [RUN_ALIVE] = "alive", [RUN_OK] = "ok",   [RUN_FAIL] = "fail",
        [RUN_LOST] = "lost",   [RUN_END] = "end", [RUN_UNKNOWN] = "end",
    };

    return classes[look];
}

const char *html_how(const struct record *r, const struct record_run *run)
{
    return record_is_alive(r, run) ? "runs" : record_how(run);
}

/* ---- Head ---- */

/* Returns the job's state in a word or two, and sets *class to its style. */
static const char *state_of(const struct record *r, const char **class)
{
    int signo = r->exit_code - 128;

    *class = "state alive";
    if (r->is_running)
        return r->phases[RECORD_ENDING] != RECORD_NEVER    ? "Ending"
               : r->phases[RECORD_STARTED] != RECORD_NEVER ? "Running"
                                                           : "Starting";
    *class = "state mid";
    if (r->exit_code == EXIT_STOPPED && r->culprit < 0)
        return "Stopped at a commit";
    if (r->culprit < 0 &&
        (signo == SIGINT || signo == SIGTERM || signo == SIGHUP))
        return "Interrupted";
    *class = r->exit_code ? "state bad" : "state";
    if (r->exit_code == EXIT_TIMEOUT && r->culprit < 0)
        return "Timed out";
    return r->exit_code ? "Failed" : "Succeeded";
}

static void put_tile(struct hb_buf *out, const char *name, const char *value)
{
    xprintf(out, "<div><b>%s</b><span>%s</span></div>\n", value, name);
}

static void put_span_tile(struct hb_buf *out, const char *name, int64_t ns)
{
    struct hb_buf text = HB_BUF_INIT;

    if (ns == RECORD_NEVER)
        xbuf_puts(&text, "&#8211;");
    else
        html_span(&text, (double)ns);
    put_tile(out, name, hb_buf_data(&text));
    hb_buf_free(&text);
}

static void put_count_tile(struct hb_buf *out, const char *one,
                           const char *many, int n)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", n);
    put_tile(out, n == 1 ? one : many, text);
}

static void put_tiles(struct hb_buf *out, const struct record *r)
{
    int ranks = 0, started = 0;

    for (int i = 0; i < r->rank_count; i++) {
        ranks += record_has_rank(r, i);
        started += r->ranks[i].last_run >= 0;
    }
    xbuf_puts(out, "<div class='tiles'>\n");
    if (!r->is_running)
        put_count_tile(out, "exit code", "exit code", r->exit_code);
    put_span_tile(out, r->is_running ? "since the start" : "from start to end",
                  record_duration_ns(r));
    put_span_tile(out, "until all ranks ran", r->phases[RECORD_STARTED]);
    put_count_tile(out, "rank", "ranks", ranks);
    put_count_tile(out, "host", "hosts", r->host_count);
    if (r->run_count + r->runs_left_out > started)
        put_count_tile(out, "restart of a rank", "restarts of ranks",
                       r->run_count + r->runs_left_out - started);
    xbuf_puts(out, "</div>\n");
}

/* Appends "2026-01-31 12:00:00 UTC". */
static void put_time(struct hb_buf *out, uint64_t wall_ns)
{
    struct hb_buf text = HB_BUF_INIT;
    const char *p;

    record_time(&text, wall_ns);
    p = hb_buf_data(&text);
    xprintf(out, "%.10s %.8s UTC", p, p + 11);
    hb_buf_free(&text);
}

/* Appends all before the element main; `nonce` NULL: no script is allowed. */
static void put_top(struct hb_buf *out, const struct record *r,
                    const char *nonce)
{
    struct hb_buf command = HB_BUF_INIT;
    const char *class;

    record_command(&command, r);
    xbuf_puts(out,
              "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>\n"
              "<meta http-equiv='Content-Security-Policy' "
              "content=\"default-src 'none'; style-src 'unsafe-inline'");
    if (nonce)
        xprintf(out, "; script-src 'nonce-%s'; connect-src 'self'", nonce);
    xprintf(out,
            "\">\n<meta name='viewport' "
            "content='width=device-width, initial-scale=1'>\n<title>%s: ",
            state_of(r, &class));
    record_escape(out, hb_buf_data(&command));
    xprintf(out, "</title>\n<style>\n%s</style></head>\n<body>", html_style);
    hb_buf_free(&command);
}

static void put_header(struct hb_buf *out, const struct record *r)
{
    struct hb_buf command = HB_BUF_INIT;
    const char *class, *state = state_of(r, &class);

    record_command(&command, r);
    xprintf(out, "<header><span class='%s'>%s</span>\n<h1><code>", class,
            state);
    record_escape(out, hb_buf_data(&command));
    xbuf_puts(out, "</code></h1>\n<div class='soft'>started ");
    put_time(out, r->wall_ns);
    if (r->cwd) {
        xbuf_puts(out, " in <code>");
        record_escape(out, r->cwd);
        xbuf_puts(out, "</code>");
    }
    xprintf(out, ", job <code>%.8s</code></div>\n", r->job_id);
    put_tiles(out, r);
    xbuf_puts(out, "</header>\n");
    hb_buf_free(&command);
}

/* ---- Failure ---- */

static void put_failure(struct hb_buf *out, const struct record *r)
{
    const char *rest = r->report ? strchr(r->report, '\n') : NULL;

    if (!r->cause && !r->report)
        return;
    xprintf(out, "<section%s><h2>%s</h2>\n<p class='cause'>",
            r->exit_code ? " class='failure'" : "",
            r->exit_code ? "Why it failed" : "What hvdrun reported");
    record_escape(out, r->cause);
    xbuf_puts(out, "</p>\n");
    if (rest && rest[1]) {
        xbuf_puts(out, "<pre>");
        record_escape(out, rest + 1);
        xbuf_puts(out, "</pre>\n");
    }
    xbuf_puts(out, "</section>\n");
}

/* ---- Phases ---- */

static void put_phase(struct hb_buf *out, const char *name, int64_t from_ns,
                      int64_t to_ns, double longest)
{
    double ns = (double)(to_ns - from_ns);

    if (from_ns == RECORD_NEVER || to_ns == RECORD_NEVER)
        return;
    xprintf(out, "<tr><td>%s</td><td class='n'>", name);
    html_span(out, ns);
    xbuf_puts(out, "</td><td class='bar'>");
    if (longest > 0)
        xprintf(out, "<div class='bars'><i style='width:%.2f%%'></i></div>",
                100 * ns / longest);
    xbuf_puts(out, "</td></tr>\n");
}

/* Appends the phases; one that the end of the job has cut short ends there. */
static void put_phases(struct hb_buf *out, const struct record *r)
{
    const int64_t *t = r->phases;
    int64_t routed = t[RECORD_ROUTED];
    int64_t end = t[RECORD_ENDING] == RECORD_NEVER && r->is_running
                      ? r->now_ns
                      : t[RECORD_ENDING];
    int64_t started = t[RECORD_STARTED];
    double start;

    if (t[RECORD_CONNECTED] == RECORD_NEVER)
        return;
    routed = routed == RECORD_NEVER ? end : routed;
    started = started == RECORD_NEVER ? end : started;
    start = (double)started;
    xbuf_puts(out, "<section><h2>Phases</h2>\n<div class='scroll'><table>"
                   "<tbody>\n");
    put_phase(out, "reaching the hosts", 0, t[RECORD_CONNECTED], start);
    if (r->host_count > 1)
        put_phase(out, "trying the networks between them", t[RECORD_CONNECTED],
                  routed, start);
    if (t[RECORD_ROUTED] != RECORD_NEVER)
        put_phase(out, "starting the ranks", routed, started, start);
    put_phase(out, "all ranks run", t[RECORD_STARTED], end, 0);
    put_phase(out, "ending", t[RECORD_ENDING],
              r->is_running ? r->now_ns : t[RECORD_ENDED], 0);
    xbuf_puts(out, "</tbody></table></div>\n</section>\n");
}

/* ---- Tables ---- */

static void put_host(struct hb_buf *out, const struct record *r, int host)
{
    const struct record_host *h = &r->hosts[host];
    int ranks = 0;

    for (int i = 0; i < r->rank_count; i++)
        ranks += r->ranks[i].host == host && record_has_rank(r, i);
    xbuf_puts(out, "<tr><td>");
    record_escape(out, h->name);
    xprintf(out, "</td><td class='n'>%d</td><td class='n'>", ranks);
    if (h->reached_ns < 0 || h->asked_ns < 0)
        xbuf_puts(out, "never");
    else
        html_span(out, (double)(h->reached_ns - h->asked_ns));
    xbuf_puts(out, "</td><td>");
    if (h->version)
        record_escape(out, h->version);
    if (h->machine) {
        xbuf_puts(out, ", ");
        record_escape(out, h->machine);
    }
    xbuf_puts(out, "</td><td class='w fail'>");
    record_escape(out, h->trouble);
    xbuf_puts(out, "</td></tr>\n");
}

static void put_hosts(struct hb_buf *out, const struct record *r)
{
    int shown = r->host_count < HTML_HOSTS_MAX ? r->host_count : HTML_HOSTS_MAX;

    xbuf_puts(out, "<section><h2>Hosts</h2>\n<div class='scroll'>"
                   "<table class='fit'>"
                   "<thead><tr><th>host</th><th class='n'>ranks</th>"
                   "<th class='n'>reached in</th><th>agent</th>"
                   "<th></th></tr></thead><tbody>\n");
    for (int i = 0; i < shown; i++)
        put_host(out, r, i);
    xbuf_puts(out, "</tbody></table></div>\n");
    html_left_out(out, r->host_count - shown, "hosts");
    xbuf_puts(out, "</section>\n");
}

static void put_run(struct hb_buf *out, const struct record *r,
                    const struct record_run *run)
{
    xprintf(out, "<tr><td class='n'>%d</td><td>", run->rank);
    record_escape(out, r->hosts[run->host].name);
    xprintf(out,
            "</td><td class='n'>%d</td><td class='n'>%d</td>"
            "<td class='n'>",
            run->local_rank, (int)run->pid);
    html_span(out, (double)run->start_ns);
    xbuf_puts(out, "</td><td class='n'>");
    if (run->end_ns != RECORD_NEVER)
        html_span(out, (double)run->end_ns);
    xprintf(out, "</td><td class='w %s'>", html_run_class(html_run(r, run)));
    record_escape(out, html_how(r, run));
    xbuf_puts(out, run->ended == RECORD_BY_HVDRUN ? " (ended by hvdrun)" : "");
    xbuf_puts(out, "</td></tr>\n");
}

/* Appends all processes in order of ranks; or if they are too many, first those
 * that have failed. */
static void put_runs(struct hb_buf *out, const struct record *r)
{
    int shown = 0, passes = r->run_count > HTML_ROWS_MAX ? 2 : 1;
    int *order;

    if (r->run_count == 0)
        return;
    order = record_by_rank(r, NULL);
    xbuf_puts(out, "<section><details open><summary>Ranks</summary>\n"
                   "<div class='scroll'><table class='fit'><thead><tr>"
                   "<th class='n'>rank</th><th>host</th>"
                   "<th class='n'>local rank</th><th class='n'>pid</th>"
                   "<th class='n'>start</th><th class='n'>end</th>"
                   "<th>how it ended</th></tr></thead><tbody>\n");
    for (int pass = 0; pass < passes; pass++)
        for (int i = 0; i < r->run_count && shown < HTML_ROWS_MAX; i++) {
            const struct record_run *run = &r->runs[order[i]];

            if (passes == 2 && record_failed(run) != (pass == 0))
                continue;
            put_run(out, r, run);
            shown++;
        }
    hb_free(order);
    xbuf_puts(out, "</tbody></table></div>\n");
    html_left_out(out, r->run_count - shown + r->runs_left_out,
                  "processes of ranks");
    xbuf_puts(out, "</details></section>\n");
}

static void put_events(struct hb_buf *out, const struct record *r)
{
    int first =
        r->event_count > HTML_EVENTS_MAX ? r->event_count - HTML_EVENTS_MAX : 0;

    if (r->event_count == 0)
        return;
    xbuf_puts(out,
              "<section><details open><summary>What hvdrun said"
              "</summary>\n<div class='scroll'><table class='fit'><tbody>\n");
    for (int i = first; i < r->event_count; i++) {
        xbuf_puts(out, "<tr><td class='n'>");
        html_span(out, (double)r->events[i].when_ns);
        xbuf_puts(out, "</td><td class='w'>");
        record_escape(out, r->events[i].text);
        xbuf_puts(out, "</td></tr>\n");
    }
    xbuf_puts(out, "</tbody></table></div>\n");
    html_left_out(out, first + r->events_left_out, "lines");
    xbuf_puts(out, "</details></section>\n");
}

void record_html_main(struct hb_buf *out, const struct record *r)
{
    put_header(out, r);
    put_failure(out, r);
    xbuf_puts(out, "<section><h2>Time line</h2>\n");
    html_timeline(out, r);
    xbuf_puts(out, "</section>\n");
    put_phases(out, r);
    html_statistics(out, r);
    put_hosts(out, r);
    put_runs(out, r);
    put_events(out, r);
    xbuf_puts(out, "<footer>Written by hvdrun " HVD_VERSION
                   ".  Times count from the start of the job.</footer>\n");
}

void record_html(struct hb_buf *out, const struct record *r)
{
    put_top(out, r, NULL);
    xbuf_puts(out, "<main>\n");
    record_html_main(out, r);
    xbuf_puts(out, "</main></body></html>\n");
}

void record_html_live(struct hb_buf *out, const struct record *r,
                      const char *nonce)
{
    put_top(out, r, nonce);
    xbuf_puts(out, "<main>\n");
    record_html_main(out, r);
    xprintf(out,
            "</main><p id='note' role='status'></p>\n"
            "<script nonce='%s'>\n%s</script></body></html>\n",
            nonce, html_script);
}
