/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agents said about jobs, as a table, as JSON, as lines, and as ids;
 * see jobs.h.  Answers come from the hosts and are not trusted: every field
 * may be missing or malformed.
 */
#include "cmd/hvdrun/tools/jobs.h"

#include "cmd/hvdrun/tools/table.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/query.h"

#include <stdarg.h>
#include <string.h>
#include <strings.h>

enum { ID_DIGITS = 32, COLUMNS = 10, RANK_MAX = 65535 };

#define AMOUNT_MAX ((json_int_t)1 << 46) /* bytes, ms */

static int is_id(const char *s)
{
    return strlen(s) == ID_DIGITS && strspn(s, "0123456789abcdef") == ID_DIGITS;
}

/* Returns a field, bounded so that sums cannot overflow; -1 if absent or out
 * of range. */
static json_int_t number(const json_t *proc, const char *name, json_int_t max)
{
    json_int_t v = query_int(proc, name, -1);

    return v < 0 || v > max ? -1 : v;
}

static json_int_t amount(const json_t *proc, const char *name)
{
    json_int_t v = number(proc, name, AMOUNT_MAX);

    return v < 0 ? 0 : v;
}

static json_t *jobs_of(const struct jobs_answer *a)
{
    return json_object_get(a->answer, "jobs");
}

/* ---- One job on one host ---- */

struct summary {
    char *ranks, *pids;
    json_int_t elapsed_ms, cpu_ms, rss_bytes;
    const char *command; /* borrowed from the answer */
    const char *state;
};

/* Takes a topmost process of the job into the summary: a rank's own process
 * has no ancestor in the job.  Leftovers may have no living ancestor at all. */
static void take_top(struct summary *s, const json_t *proc, int *pids,
                     size_t *pid_count, json_int_t *best)
{
    json_int_t rank = number(proc, "rank", RANK_MAX);
    json_int_t elapsed = amount(proc, "elapsed_ms");

    pids[(*pid_count)++] = (int)number(proc, "pid", INT32_MAX);
    if (elapsed > s->elapsed_ms)
        s->elapsed_ms = elapsed;
    if (*best < 0 || (rank >= 0 && rank < *best)) {
        *best = rank;
        s->command = query_string(proc, "command");
    }
}

static void summarize(const json_t *job, struct summary *s)
{
    json_t *procs = json_object_get(job, "procs"), *proc;
    size_t count = json_array_size(procs), i, rank_count = 0, pid_count = 0;
    int *ranks = hb_xcalloc(count + 1, sizeof(*ranks));
    int *pids = hb_xcalloc(count + 1, sizeof(*pids));
    json_int_t best = -1;
    size_t stopped = 0;

    memset(s, 0, sizeof(*s));
    s->command = "";
    json_array_foreach(procs, i, proc)
    {
        json_int_t rank = number(proc, "rank", RANK_MAX);

        s->cpu_ms += amount(proc, "cpu_ms");
        s->rss_bytes += amount(proc, "rss_bytes");
        stopped += strcmp(query_string(proc, "state"), "T") == 0;
        if (rank >= 0)
            ranks[rank_count++] = (int)rank;
        if (query_true(proc, "top"))
            take_top(s, proc, pids, &pid_count, &best);
    }
    s->ranks = table_numbers(ranks, rank_count);
    s->pids = table_numbers(pids, pid_count);
    if (query_int(job, "agent", 0) == 0)
        s->state = "orphaned";
    else
        s->state = count > 0 && stopped == count ? "stopped" : "running";
    hb_free(ranks);
    hb_free(pids);
}

static void summary_fini(struct summary *s)
{
    hb_free(s->ranks);
    hb_free(s->pids);
}

/* ---- The table ---- */

static void add_row(struct table *t, const struct jobs_answer *a,
                    const json_t *job)
{
    char id[JOBS_SHOWN_DIGITS + 1] = "";
    char *elapsed, *cpu, *memory;
    struct summary s;

    strncat(id, query_string(job, "id"), JOBS_SHOWN_DIGITS);
    summarize(job, &s);
    elapsed = table_elapsed(s.elapsed_ms);
    cpu = table_elapsed(s.cpu_ms);
    memory = table_bytes(s.rss_bytes);
    table_row(t, (const char *[]){id, a->host, s.ranks, s.pids,
                                  query_string(a->answer, "user"), elapsed, cpu,
                                  memory, s.state, s.command, NULL});
    hb_free(elapsed);
    hb_free(cpu);
    hb_free(memory);
    summary_fini(&s);
}

/* Lists jobs in the order of their first host, all hosts of a job together. */
void jobs_table(const struct jobs_answer *answers, size_t count,
                struct hb_buf *out)
{
    static const char *const head[] = {"JOB",   "HOST",    "RANKS", "PIDS",
                                       "USER",  "ELAPSED", "CPU",   "MEMORY",
                                       "STATE", "COMMAND", NULL};
    struct table t = TABLE_INIT(COLUMNS, 1u << 5 | 1u << 6 | 1u << 7);
    struct hb_strv ids = HB_STRV_INIT;

    jobs_match(answers, count, NULL, &ids, NULL);
    if (ids.count > 0)
        table_row(&t, head);
    for (size_t k = 0; k < ids.count; k++)
        for (size_t i = 0; i < count; i++) {
            json_t *job;
            size_t j;

            json_array_foreach(
                jobs_of(&answers[i]), j,
                job) if (strcmp(query_string(job, "id"), ids.items[k]) == 0)
                add_row(&t, &answers[i], job);
        }
    table_format(&t, out);
    table_free(&t);
    hb_strv_free(&ids);
}

/* ---- JSON ---- */

static json_t *host_json(const struct jobs_answer *a, json_t *job)
{
    struct summary s;
    json_t *v;

    summarize(job, &s);
    v = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:O?}", "host",
                  query_text(a->host), "user",
                  query_text(query_string(a->answer, "user")), "state", s.state,
                  "agent", query_int(job, "agent", 0), "elapsed_ms",
                  s.elapsed_ms, "cpu_ms", s.cpu_ms, "rss_bytes", s.rss_bytes,
                  "procs", json_object_get(job, "procs"));
    summary_fini(&s);
    return v;
}

json_t *jobs_json(const struct jobs_answer *answers, size_t count)
{
    struct hb_strv ids = HB_STRV_INIT;
    json_t *all = json_array();

    jobs_match(answers, count, NULL, &ids, NULL);
    for (size_t k = 0; k < ids.count; k++) {
        json_t *hosts = json_array();

        for (size_t i = 0; i < count; i++) {
            json_t *job;
            size_t j;

            json_array_foreach(
                jobs_of(&answers[i]), j,
                job) if (strcmp(query_string(job, "id"), ids.items[k]) == 0)
                json_array_append_new(hosts, host_json(&answers[i], job));
        }
        json_array_append_new(
            all, json_pack("{s:s, s:o}", "id", ids.items[k], "hosts", hosts));
    }
    hb_strv_free(&ids);
    return all;
}

/* ---- What kill and clean did ---- */

static void add_line(struct hb_buf *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends a line, without control sequences for the terminal. */
static void add_line(struct hb_buf *out, const char *fmt, ...)
{
    struct hb_buf line = HB_BUF_INIT;
    va_list ap;

    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&line, fmt, ap));
    va_end(ap);
    hb_must(hb_buf_putc(&line, '\0'));
    hb_text_sanitize(hb_buf_data(&line));
    xbuf_puts(out, hb_buf_data(&line));
    xbuf_puts(out, "\n");
    hb_buf_free(&line);
}

size_t jobs_ended(const struct jobs_answer *a, int dry, struct hb_buf *out)
{
    json_t *one;
    size_t i, unfinished = 0;

    json_array_foreach(json_object_get(a->answer, "ended"), i, one)
    {
        json_int_t processes = query_int(one, "processes", 0);
        json_int_t left = query_int(one, "left", 0);
        char rest[48] = "";

        /* Another host's agent told its hvdrun, which ended the job first. */
        if (!query_true(one, "found")) {
            add_line(out, "host %s: job %.*s has ended meanwhile", a->host,
                     JOBS_SHOWN_DIGITS, query_string(one, "id"));
            continue;
        }
        if (left > 0)
            snprintf(rest, sizeof(rest), ", %lld left", (long long)left);
        add_line(out, "host %s: %s %s %.*s, %lld process%s%s", a->host,
                 dry        ? "would end"
                 : left > 0 ? "could not end all of"
                            : "ended",
                 query_true(one, "had_agent") ? "job" : "what was left of job",
                 JOBS_SHOWN_DIGITS, query_string(one, "id"),
                 (long long)processes, processes == 1 ? "" : "es", rest);
        unfinished += left > 0;
    }
    return unfinished;
}

size_t jobs_drained(const struct jobs_answer *a, struct hb_buf *out)
{
    json_t *one;
    size_t i, staying = 0;

    json_array_foreach(json_object_get(a->answer, "drained"), i, one)
    {
        int notified = query_true(one, "told");

        add_line(out, "host %s: job %.*s %s", a->host, JOBS_SHOWN_DIGITS,
                 query_string(one, "id"),
                 notified ? "leaves at its next commit"
                 : query_true(one, "elastic")
                     ? "could not be told: its agent is gone"
                     : "stays: it is not elastic (hvdrun --min-np)");
        staying += !notified;
    }
    return staying;
}

void jobs_removed(const struct jobs_answer *a, int dry, struct hb_buf *out)
{
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(a->answer, "removed"), i, one) add_line(
        out, "host %s: %s %s (%s)", a->host, dry ? "would remove" : "removed",
        query_string(one, "path"), query_string(one, "what"));
}

/* ---- Ids ---- */

static int holds(const struct hb_strv *v, const char *s)
{
    for (size_t i = 0; i < v->count; i++)
        if (strcmp(v->items[i], s) == 0)
            return 1;
    return 0;
}

static void all_ids(const struct jobs_answer *answers, size_t count,
                    struct hb_strv *ids)
{
    for (size_t i = 0; i < count; i++) {
        json_t *job;
        size_t j;

        json_array_foreach(jobs_of(&answers[i]), j, job)
        {
            const char *id = query_string(job, "id");

            if (is_id(id) && !holds(ids, id))
                hb_must(hb_strv_add(ids, id));
        }
    }
}

static int match_one(const struct hb_strv *all, const char *word,
                     struct hb_strv *ids, struct hb_error *err)
{
    size_t len = strlen(word), found = 0;
    const char *match = NULL;

    if (word[0] == '-')
        return hb_error_set(err, HVD_EINVAL,
                            "'%s': options go before the job ids", word);
    if (len < JOBS_PREFIX_MIN || len > ID_DIGITS ||
        strspn(word, "0123456789abcdefABCDEF") != len)
        return hb_error_set(err, HVD_EINVAL,
                            "'%s': a job id, or at least its first %d digits, "
                            "as hvdrun ps shows it",
                            word, JOBS_PREFIX_MIN);
    for (size_t i = 0; i < all->count; i++)
        if (strncasecmp(all->items[i], word, len) == 0) {
            match = all->items[i];
            found++;
        }
    if (found == 0)
        return hb_error_set(err, HVD_ENOENT,
                            "no job %s of yours on these hosts (see hvdrun "
                            "ps)",
                            word);
    if (found > 1)
        return hb_error_set(err, HVD_EINVAL,
                            "%s begins the ids of %zu jobs: give more digits",
                            word, found);
    if (!holds(ids, match))
        hb_must(hb_strv_add(ids, match));
    return 0;
}

int jobs_match(const struct jobs_answer *answers, size_t count,
               const struct hb_strv *words, struct hb_strv *ids,
               struct hb_error *err)
{
    struct hb_strv all = HB_STRV_INIT;
    int rc = 0;

    all_ids(answers, count, words ? &all : ids);
    for (size_t i = 0; words && i < words->count && rc == 0; i++)
        rc = match_one(&all, words->items[i], ids, err);
    hb_strv_free(&all);
    return rc;
}
