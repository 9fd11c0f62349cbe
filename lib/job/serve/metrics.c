/* SPDX-License-Identifier: Apache-2.0 */
/* A job's numbers for Prometheus; see metrics.h. */
#include "lib/job/serve/metrics.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

/* Begins a metric: what it means, and its type. */
static void begin(struct hb_buf *out, const char *name, const char *type,
                  const char *help)
{
    xprintf(out, "# HELP hvdrun_%s %s\n# TYPE hvdrun_%s %s\n", name, help, name,
            type);
}

static void put_one(struct hb_buf *out, const char *name, const char *type,
                    const char *help, double value)
{
    begin(out, name, type, help);
    xprintf(out, "hvdrun_%s %.17g\n", name, value);
}

/* Appends a label's value, escaped. */
static void put_label(struct hb_buf *out, const char *text)
{
    char *clean = record_clean(text);

    for (const char *p = clean; *p; p++)
        if (*p == '\n')
            xbuf_puts(out, "\\n");
        else
            xprintf(out, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    hb_free(clean);
}

/* ---- Ranks and hosts ---- */

enum state {
    WAITS,    /* not started */
    RUNS,     /* */
    FINISHED, /* exit code 0 */
    FAILED,
    LOST,  /* with its host */
    ENDED, /* by hvdrun */
    STATES
};

static enum state state_of(const struct record *r, int rank)
{
    const struct record_run *run = record_last_run(r, rank);

    if (!run)
        return WAITS;
    switch (run->ended) {
    case RECORD_ITSELF:
        return run->exit_code ? FAILED : FINISHED;
    case RECORD_BY_HVDRUN:
        return ENDED;
    case RECORD_WITH_HOST:
        return LOST;
    case RECORD_UNKNOWN:
        break;
    }
    return r->is_running ? RUNS : ENDED;
}

static void put_ranks(struct hb_buf *out, const struct record *r)
{
    static const char *const names[STATES] = {
        "waiting", "running", "finished", "failed", "lost", "ended",
    };
    int counts[STATES] = {0};

    for (int i = 0; i < r->rank_count; i++)
        if (record_has_rank(r, i))
            counts[state_of(r, i)]++;
    begin(out, "ranks", "gauge", "Ranks of the job, by state.");
    for (int i = 0; i < STATES; i++)
        xprintf(out, "hvdrun_ranks{state=\"%s\"} %d\n", names[i], counts[i]);
}

static void put_hosts(struct hb_buf *out, const struct record *r)
{
    int reached = 0, failed = 0;

    for (int i = 0; i < r->host_count; i++)
        if (r->hosts[i].is_reached)
            reached++;
        else if (r->hosts[i].trouble)
            failed++;
    begin(out, "hosts", "gauge", "Hosts of the job, by state.");
    xprintf(out,
            "hvdrun_hosts{state=\"waiting\"} %d\n"
            "hvdrun_hosts{state=\"reached\"} %d\n"
            "hvdrun_hosts{state=\"failed\"} %d\n",
            r->host_count - reached - failed, reached, failed);
}

static void put_deaths(struct hb_buf *out, const struct record *r)
{
    int deaths = 0, started = 0;

    for (int i = 0; i < r->run_count; i++)
        deaths += record_failed(&r->runs[i]);
    for (int i = 0; i < r->rank_count; i++)
        started += r->ranks[i].last_run >= 0;
    put_one(out, "deaths_total", "counter",
            "Processes of ranks that failed, or were lost with their host.",
            deaths);
    put_one(out, "restarts_total", "counter",
            "Processes of ranks that were started in place of another.",
            r->run_count + r->runs_left_out - started);
}

/* ---- Collectives ---- */

enum number { CALLS, BYTES, WAITED, NUMBERS };

static double number_of(const struct status_counts *k, enum number which)
{
    switch (which) {
    case CALLS:
        return (double)k->calls;
    case BYTES:
        return (double)k->bytes;
    default:
        return (double)k->waited_ns / 1e9;
    }
}

/* Appends one counter of each rank whose counts are known. */
static void put_each(struct hb_buf *out, const struct record *r,
                     enum number which)
{
    static const struct {
        const char *name, *help;
    } numbers[NUMBERS] = {
        {"operations_total", "Collective operations of the rank."},
        {"bytes_total", "Bytes in collective operations of the rank."},
        {"waiting_seconds_total",
         "Time for which the rank waited for others in collectives."},
    };
    struct status_counts sum;
    int shown = 0;

    begin(out, numbers[which].name, "counter", numbers[which].help);
    for (int i = 0; i < r->rank_count && shown < METRICS_RANKS_MAX; i++)
        if (record_counted(r, i, &sum)) {
            xprintf(out, "hvdrun_%s{rank=\"%d\"} %.17g\n", numbers[which].name,
                    i, number_of(&sum, which));
            shown++;
        }
}

void metrics_text(struct hb_buf *out, const struct record *r, int generation)
{
    begin(out, "info", "gauge", "The job, and the version of hvdrun.");
    xbuf_puts(out, "hvdrun_info{job_id=\"");
    put_label(out, r->job_id);
    xbuf_puts(out, "\",version=\"");
    put_label(out, HVD_VERSION);
    xbuf_puts(out, "\"} 1\n");
    put_one(out, "start_time_seconds", "gauge",
            "When the job began, since 1970.", (double)r->wall_ns / 1e9);
    put_ranks(out, r);
    put_hosts(out, r);
    put_deaths(out, r);
    if (generation >= 0)
        put_one(out, "generation", "gauge", "Generation of the elastic job.",
                generation);
    for (int i = 0; i < NUMBERS; i++)
        put_each(out, r, (enum number)i);
    put_one(out, "errors_total", "counter",
            "Operations that returned an error, of all ranks.",
            r->stats ? (double)r->stats->all.errors : 0);
}
