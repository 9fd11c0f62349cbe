/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a job as JSON, for programs; docs/ci.md describes it.  Times
 * are seconds since the start; null stands for what is not known or has not
 * happened.
 */
#include "lib/job/record/record_data.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <jansson.h>
#include <string.h>

enum { JSON_LINES_MAX = 1000 };

/* Adds a value, which it takes over; hvdrun ends if there is no memory. */
static void put(json_t *object, const char *key, json_t *value)
{
    if (!value || json_object_set_new(object, key, value) < 0)
        hb_die_oom();
}

static void add(json_t *array, json_t *value)
{
    if (!value || json_array_append_new(array, value) < 0)
        hb_die_oom();
}

static json_t *text_or_null(const char *text)
{
    char *clean;
    json_t *j;

    if (!text)
        return json_null();
    clean = record_clean(text);
    j = json_string(clean);
    hb_free(clean);
    return j;
}

/* Returns seconds, rounded to microseconds: more would be noise. */
static json_t *seconds(double ns)
{
    return json_real((double)(int64_t)(ns / 1e3 + 0.5) / 1e6);
}

static json_t *time_or_null(int64_t when_ns)
{
    return when_ns == RECORD_NEVER ? json_null() : seconds((double)when_ns);
}

/* Returns an array of the text's lines; none for NULL. */
static json_t *lines(const char *text)
{
    char *clean = record_clean(text), *next = clean, *line;
    json_t *array = json_array();

    if (!array)
        hb_die_oom();
    for (int i = 0; next && *next && i < JSON_LINES_MAX; i++) {
        line = strsep(&next, "\n");
        add(array, json_string(line));
    }
    hb_free(clean);
    return array;
}

static json_t *object(void)
{
    json_t *j = json_object();

    if (!j)
        hb_die_oom();
    return j;
}

static json_t *array(void)
{
    json_t *j = json_array();

    if (!j)
        hb_die_oom();
    return j;
}

/* ---- Parts ---- */

static json_t *phases(const struct record *r)
{
    static const char *const names[RECORD_PHASES] = {
        [RECORD_CONNECTED] = "connected", [RECORD_ROUTED] = "routed",
        [RECORD_STARTED] = "started",     [RECORD_ENDING] = "ending",
        [RECORD_ENDED] = "ended",
    };
    json_t *j = object();

    for (int i = 0; i < RECORD_PHASES; i++)
        put(j, names[i], time_or_null(r->phases[i]));
    return j;
}

static json_t *hosts(const struct record *r)
{
    json_t *all = array();

    for (int i = 0; i < r->host_count; i++) {
        const struct record_host *h = &r->hosts[i];
        json_t *j = object();

        put(j, "name", text_or_null(h->name));
        put(j, "local", json_boolean(h->is_local));
        put(j, "slots", h->slots ? json_integer(h->slots) : json_null());
        put(j, "asked", time_or_null(h->asked_ns));
        put(j, "reached", time_or_null(h->reached_ns));
        put(j, "agent", text_or_null(h->version));
        put(j, "machine", text_or_null(h->machine));
        put(j, "trouble", text_or_null(h->trouble));
        put(j, "trouble_at", time_or_null(h->trouble_ns));
        add(all, j);
    }
    return all;
}

static json_t *run(const struct record *r, const struct record_run *run)
{
    static const char *const ended[] = {
        [RECORD_ITSELF] = "itself",
        [RECORD_BY_HVDRUN] = "hvdrun",
        [RECORD_WITH_HOST] = "host lost",
    };
    int is_known =
        run->ended == RECORD_ITSELF || run->ended == RECORD_BY_HVDRUN;
    json_t *j = object();

    put(j, "host", text_or_null(r->hosts[run->host].name));
    put(j, "pid", run->pid ? json_integer(run->pid) : json_null());
    put(j, "start", time_or_null(run->start_ns));
    put(j, "end", time_or_null(run->end_ns));
    put(j, "exit_code", is_known ? json_integer(run->exit_code) : json_null());
    put(j, "signal", run->signal ? json_integer(run->signal) : json_null());
    put(j, "ended_by", text_or_null(ended[run->ended]));
    put(j, "how", text_or_null(run->how));
    put(j, "last_lines", lines(run->tail));
    return j;
}

static json_t *rank_stats(const struct record *r, int rank)
{
    struct status_counts counted;
    json_t *j;

    if (!record_counted(r, rank, &counted))
        return json_null();
    j = object();
    put(j, "calls", json_integer((json_int_t)counted.calls));
    put(j, "bytes", json_integer((json_int_t)counted.bytes));
    put(j, "time",
        r->is_running ? json_null() : seconds((double)r->ranks[rank].time_ns));
    put(j, "waited", seconds((double)counted.waited_ns));
    return j;
}

/* Returns the ranks in order, each with its processes in order. */
static json_t *ranks(const struct record *r)
{
    json_t **runs = hb_xcalloc((size_t)r->rank_count + 1, sizeof(json_t *));
    json_t *all = array();

    for (int i = 0; i < r->rank_count; i++) {
        const struct record_rank *k = &r->ranks[i];
        json_t *j;

        if (!record_has_rank(r, i))
            continue;
        j = object();
        runs[i] = array();
        put(j, "rank", json_integer(i));
        put(j, "host",
            k->host < 0 ? json_null() : text_or_null(r->hosts[k->host].name));
        put(j, "local_rank", json_integer(k->local_rank));
        put(j, "runs", runs[i]);
        put(j, "collectives", rank_stats(r, i));
        put(j, "waited_for", seconds((double)record_waited_for_ns(r, i)));
        add(all, j);
    }
    for (int i = 0; i < r->run_count; i++)
        add(runs[r->runs[i].rank], run(r, &r->runs[i]));
    hb_free(runs);
    return all;
}

static json_t *culprit(const struct record *r)
{
    const struct record_run *first;
    json_t *j;

    if (r->culprit < 0)
        return json_null();
    first = &r->runs[r->culprit];
    j = run(r, first);
    put(j, "rank", json_integer(first->rank));
    return j;
}

/* ---- Statistics ---- */

static json_t *collective(const struct worker_stats_row *row, int kind,
                          int class)
{
    json_t *j = object();

    put(j, "kind", json_string(collective_name((unsigned)kind)));
    put(j, "below",
        worker_stats_class(class)[0] ? json_string(worker_stats_class(class))
                                     : json_null());
    put(j, "calls", json_integer((json_int_t)row->count));
    put(j, "bytes", json_integer((json_int_t)row->bytes));
    put(j, "time", seconds((double)row->time_ns));
    put(j, "waiting", seconds((double)row->wait_ns));
    return j;
}

static json_t *statistics(const struct record *r)
{
    const struct worker_stats *m;
    json_t *j, *rows;

    if (!r->stats || r->stats->ranks == 0)
        return json_null();
    m = &r->stats->all;
    j = object();
    rows = array();
    put(j, "ranks", json_integer(r->stats->ranks));
    put(j, "collectives", rows);
    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++)
            if (m->rows[k][c].count)
                add(rows, collective(&m->rows[k][c], k, c));
    put(j, "operations", json_integer((json_int_t)m->operations));
    put(j, "foreseen", json_integer((json_int_t)m->learned));
    put(j, "negotiated", json_integer((json_int_t)m->negotiations));
    put(j, "errors", json_integer((json_int_t)m->errors));
    return j;
}

/* Returns the ranks that others have waited for, the one waited for longest
 * first. */
static json_t *late(const struct record *r)
{
    struct record_late *all = record_late(r);
    json_t *list = array();

    for (int i = 0; all[i].waited_ns; i++) {
        json_t *j = object();

        put(j, "rank", json_integer(all[i].rank));
        put(j, "waited_for", seconds((double)all[i].waited_ns));
        add(list, j);
    }
    hb_free(all);
    return list;
}

static json_t *events(const struct record *r)
{
    json_t *all = array();

    for (int i = 0; i < r->event_count; i++) {
        json_t *j = object();

        put(j, "time", time_or_null(r->events[i].when_ns));
        put(j, "text", text_or_null(r->events[i].text));
        add(all, j);
    }
    return all;
}

/* ---- The whole ---- */

static void put_head(json_t *j, const struct record *r)
{
    struct hb_buf when = HB_BUF_INIT;
    json_t *argv = array();

    for (size_t i = 0; i < r->argv.count; i++)
        add(argv, text_or_null(r->argv.items[i]));
    record_time(&when, r->wall_ns);
    put(j, "format", json_integer(RECORD_FORMAT));
    put(j, "hvdrun", json_string(HVD_VERSION));
    put(j, "job_id", json_string(r->job_id));
    put(j, "command", argv);
    put(j, "directory", text_or_null(r->cwd));
    put(j, "started", json_string(hb_buf_data(&when)));
    put(j, "started_unix", seconds((double)r->wall_ns));
    put(j, "duration", seconds((double)record_duration_ns(r)));
    hb_buf_free(&when);
}

static int append(const char *bytes, size_t len, void *out)
{
    xbuf_append(out, bytes, len);
    return 0;
}

void record_json(struct hb_buf *out, const struct record *r)
{
    json_t *j = object();

    put_head(j, r);
    put(j, "exit_code",
        r->is_running ? json_null() : json_integer(r->exit_code));
    put(j, "cause", text_or_null(r->cause));
    put(j, "culprit", culprit(r));
    put(j, "report", lines(r->report));
    put(j, "phases", phases(r));
    put(j, "hosts", hosts(r));
    put(j, "ranks", ranks(r));
    put(j, "runs_left_out", json_integer(r->runs_left_out));
    put(j, "statistics", statistics(r));
    put(j, "late", late(r));
    put(j, "events", events(r));
    put(j, "events_left_out", json_integer(r->events_left_out));
    if (json_dump_callback(j, append, out,
                           JSON_INDENT(1) | JSON_REAL_PRECISION(16)) < 0)
        hb_die_oom();
    xbuf_puts(out, "\n");
    json_decref(j);
}
