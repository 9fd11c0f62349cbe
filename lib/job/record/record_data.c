/* SPDX-License-Identifier: Apache-2.0 */
/* What has happened in a job; see record_data.h. */
#include "lib/job/record/record_data.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <stdlib.h>
#include <string.h>

void record_init(struct record *r, int ranks)
{
    *r = (struct record){.rank_count = ranks, .culprit = -1};
    for (int i = 0; i < RECORD_PHASES; i++)
        r->phases[i] = RECORD_NEVER;
    r->ranks = hb_xcalloc((size_t)ranks + 1, sizeof(*r->ranks));
    for (int i = 0; i < ranks; i++)
        r->ranks[i] = (struct record_rank){.host = -1, .last_run = -1};
}

void record_fini(struct record *r)
{
    for (int i = 0; i < r->host_count; i++) {
        hb_free(r->hosts[i].name);
        hb_free(r->hosts[i].version);
        hb_free(r->hosts[i].machine);
        hb_free(r->hosts[i].trouble);
    }
    for (int i = 0; i < r->run_count; i++) {
        hb_free(r->runs[i].how);
        hb_free(r->runs[i].tail);
    }
    for (int i = 0; i < r->event_count; i++)
        hb_free(r->events[i].text);
    hb_free(r->hosts);
    hb_free(r->ranks);
    hb_free(r->runs);
    hb_free(r->events);
    hb_free(r->cwd);
    hb_free(r->cause);
    hb_free(r->report);
    hb_strv_free(&r->argv);
    *r = (struct record){.culprit = -1};
}

/* ---- Hosts ---- */

int record_host(struct record *r, const char *name)
{
    for (int i = 0; i < r->host_count; i++)
        if (strcmp(r->hosts[i].name, name) == 0)
            return i;
    if (r->host_count == r->host_cap) {
        r->host_cap = r->host_cap ? 2 * r->host_cap : 8;
        r->hosts =
            hb_xrealloc_array(r->hosts, (size_t)r->host_cap, sizeof(*r->hosts));
    }
    r->hosts[r->host_count] = (struct record_host){
        .name = hb_xstrdup(name),
        .asked_ns = RECORD_NEVER,
        .reached_ns = RECORD_NEVER,
        .trouble_ns = RECORD_NEVER,
    };
    return r->host_count++;
}

void record_trouble(struct record *r, int host, int64_t when_ns,
                    const char *text)
{
    struct record_host *h = &r->hosts[host];

    h->is_reached = 0;
    if (h->trouble)
        return;
    h->trouble = hb_xstrdup(text);
    h->trouble_ns = when_ns;
}

/* ---- Runs ---- */

void record_place(struct record *r, int rank, int host, int local_rank)
{
    r->ranks[rank].host = host;
    r->ranks[rank].local_rank = local_rank;
}

/* Adds the counts of a rank's process that has ended to those of its earlier
 * processes. */
static void keep_counts(struct record_rank *k)
{
    k->kept.calls += k->so_far.calls;
    k->kept.bytes += k->so_far.bytes;
    k->kept.waited_ns += k->so_far.waited_ns;
    k->so_far = (struct status_counts){0};
}

void record_run_started(struct record *r, int rank, pid_t pid, int64_t when_ns)
{
    struct record_rank *k = &r->ranks[rank];

    if (r->run_count == RECORD_RUNS_MAX || k->host < 0) {
        k->last_run = -1;
        r->runs_left_out++;
        return;
    }
    if (r->run_count == r->run_cap) {
        r->run_cap = r->run_cap ? 2 * r->run_cap : 16;
        r->runs =
            hb_xrealloc_array(r->runs, (size_t)r->run_cap, sizeof(*r->runs));
    }
    keep_counts(k);
    k->last_run = r->run_count++;
    r->runs[k->last_run] = (struct record_run){
        .rank = rank,
        .local_rank = k->local_rank,
        .host = k->host,
        .pid = pid,
        .start_ns = when_ns,
        .end_ns = RECORD_NEVER,
    };
}

struct record_run *record_running(const struct record *r, int rank)
{
    int last = r->ranks[rank].last_run;

    return last >= 0 && !r->runs[last].how ? &r->runs[last] : NULL;
}

void record_run_ended(struct record *r, struct record_run *run, int64_t when_ns,
                      enum record_ended ended, const char *how,
                      const char *tail)
{
    run->ended = ended;
    run->how = hb_xstrdup(how);
    run->end_ns = when_ns;
    if (run->start_ns > when_ns) /* it ended before we heard of its start */
        run->start_ns = when_ns;
    if (!tail || !*tail || r->tail_count == RECORD_TAILS_MAX)
        return;
    run->tail = hb_xstrdup(tail);
    r->tail_count++;
}

void record_culprit(struct record *r, int rank, const char *tail)
{
    struct record_run *run;

    r->culprit = r->ranks[rank].last_run;
    if (r->culprit < 0)
        return;
    run = &r->runs[r->culprit];
    if (!run->tail && tail && *tail)
        run->tail = hb_xstrdup(tail);
}

void record_stats(struct record *r, int rank, const struct worker_stats *m)
{
    struct record_rank *k = &r->ranks[rank];

    k->has_stats = 1;
    for (int kind = 0; kind < WORKER_STATS_KINDS; kind++)
        for (int class = 0; class < WORKER_STATS_CLASSES; class ++) {
            const struct worker_stats_row *row = &m->rows[kind][class];

            k->calls += row->count;
            k->bytes += row->bytes;
            k->time_ns += row->time_ns;
            k->wait_ns += row->wait_ns;
        }
}

/* Raises each count in s to that in c, if the latter is greater. */
static void raise_to(struct status_counts *s, const struct status_counts *c)
{
    s->calls = c->calls > s->calls ? c->calls : s->calls;
    s->bytes = c->bytes > s->bytes ? c->bytes : s->bytes;
    s->waited_ns = c->waited_ns > s->waited_ns ? c->waited_ns : s->waited_ns;
}

void record_counts(struct record *r, int rank, const struct status_counts *c)
{
    raise_to(&r->ranks[rank].so_far, c);
}

int record_counted(const struct record *r, int rank, struct status_counts *sum)
{
    const struct record_rank *k = &r->ranks[rank];
    struct status_counts live = {
        .calls = k->kept.calls + k->so_far.calls,
        .bytes = k->kept.bytes + k->so_far.bytes,
        .waited_ns = k->kept.waited_ns + k->so_far.waited_ns,
    };

    *sum = (struct status_counts){k->calls, k->bytes, k->wait_ns};
    if (!r->is_running)
        return k->has_stats;
    raise_to(sum, &live);
    return k->has_stats || live.calls > 0;
}

/* ---- What hvdrun says ---- */

/* Returns a copy without the line end at its end, and without "hvdrun: " at the
 * start of its lines. */
static char *copy_said(const char *text, size_t len)
{
    static const char mark[] = "hvdrun: ";
    struct hb_buf out = HB_BUF_INIT;
    const char *end = text + len;
    char *copy;

    while (end > text && end[-1] == '\n')
        end--;
    while (text < end) {
        const char *next = memchr(text, '\n', (size_t)(end - text));

        next = next ? next + 1 : end;
        if ((size_t)(next - text) >= sizeof(mark) - 1 &&
            memcmp(text, mark, sizeof(mark) - 1) == 0)
            text += sizeof(mark) - 1;
        xbuf_append(&out, text, (size_t)(next - text));
        text = next;
    }
    copy = hb_buf_detach(&out);
    if (!copy)
        hb_die_oom();
    return copy;
}

void record_event(struct record *r, int64_t when_ns, const char *text,
                  size_t len)
{
    int half = RECORD_EVENTS_MAX / 2;

    if (len > RECORD_EVENT_BYTES_MAX)
        len = RECORD_EVENT_BYTES_MAX;
    if (!r->events)
        r->events = hb_xcalloc(RECORD_EVENTS_MAX, sizeof(*r->events));
    if (r->event_count == RECORD_EVENTS_MAX) {
        hb_free(r->events[half].text);
        memmove(&r->events[half], &r->events[half + 1],
                (size_t)(RECORD_EVENTS_MAX - half - 1) * sizeof(*r->events));
        r->event_count--;
        r->events_left_out++;
    }
    r->events[r->event_count++] =
        (struct record_event){when_ns, copy_said(text, len)};
}

void record_report(struct record *r, const char *text)
{
    hb_free(r->report);
    r->report = copy_said(text, strlen(text));
    if (!r->cause && *r->report)
        r->cause =
            hb_xasprintf("%.*s", (int)strcspn(r->report, "\n"), r->report);
}

void record_reach(struct record *r, enum record_phase phase, int64_t when_ns)
{
    if (r->phases[phase] == RECORD_NEVER)
        r->phases[phase] = when_ns;
}

/* ---- What the writers ask ---- */

int64_t record_duration_ns(const struct record *r)
{
    int64_t end = r->is_running ? r->now_ns : r->phases[RECORD_ENDED];

    return end > 0 ? end : 0;
}

const char *record_how(const struct record_run *run)
{
    return run->how ? run->how : "how it ended is unknown";
}

int record_is_alive(const struct record *r, const struct record_run *run)
{
    return r->is_running && !run->how;
}

const struct record_run *record_last_run(const struct record *r, int rank)
{
    int last = r->ranks[rank].last_run;

    return last >= 0 ? &r->runs[last] : NULL;
}

int *record_by_rank(const struct record *r, int *first)
{
    int *order = hb_xcalloc((size_t)r->run_count + 1, sizeof(*order));
    int *next = hb_xcalloc((size_t)r->rank_count + 2, sizeof(*next));

    for (int i = 0; i < r->run_count; i++)
        next[r->runs[i].rank + 1]++;
    for (int rank = 0; rank < r->rank_count; rank++)
        next[rank + 1] += next[rank];
    for (int rank = 0; first && rank <= r->rank_count; rank++)
        first[rank] = next[rank];
    for (int i = 0; i < r->run_count; i++)
        order[next[r->runs[i].rank]++] = i;
    hb_free(next);
    return order;
}

int record_has_rank(const struct record *r, int rank)
{
    return r->ranks[rank].is_planned || r->ranks[rank].last_run >= 0;
}

int record_failed(const struct record_run *run)
{
    return run->ended == RECORD_WITH_HOST ||
           (run->ended == RECORD_ITSELF && run->exit_code != 0);
}

uint64_t record_waited_for_ns(const struct record *r, int rank)
{
    return r->stats && r->stats->waited_ns ? r->stats->waited_ns[rank] : 0;
}

static int compare_late(const void *a, const void *b)
{
    const struct record_late *x = a, *y = b;

    if (x->waited_ns != y->waited_ns)
        return x->waited_ns < y->waited_ns ? 1 : -1;
    return x->rank - y->rank;
}

struct record_late *record_late(const struct record *r)
{
    struct record_late *all =
        hb_xcalloc((size_t)r->rank_count + 1, sizeof(*all));
    size_t n = 0;

    for (int rank = 0; rank < r->rank_count; rank++)
        if (record_waited_for_ns(r, rank))
            all[n++] =
                (struct record_late){rank, record_waited_for_ns(r, rank)};
    qsort(all, n, sizeof(*all), compare_late);
    return all;
}
