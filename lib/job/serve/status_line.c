/* SPDX-License-Identifier: Apache-2.0 */
/* The line of --status; see status_line.h. */
#include "lib/job/serve/status_line.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

/* A rank is late if the others spend at least this share of their time waiting,
 * and the rank itself waits less than half as long. */
enum { LATE_PERCENT = 10 };

#define NS_PER_S INT64_C(1000000000)

/* The progress, in a period, of the ranks whose counts are known. */
struct progress_made {
    int ranks;
    double calls, bytes, waited_ns; /* sums */
    int late; /* the rank that waited least, or -1; and for how long */
    double late_waited_ns;
};

/* Appends a part of the line if it fits; if not, no other does. */
static void put_part(struct hb_buf *out, size_t start, size_t *width,
                     const char *part)
{
    size_t used = hb_buf_len(out) - start;

    if (used + (used ? 2 : 0) + strlen(part) > *width) {
        *width = 0;
        return;
    }
    if (used)
        xbuf_puts(out, ", ");
    xbuf_puts(out, part);
}

/* Returns the difference; 0 if the count was reset. */
static double more(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

static void add_rank(struct progress_made *p, int rank,
                     const struct status_counts *now,
                     const struct status_counts *before)
{
    double waited_ns = more(now->waited_ns, before->waited_ns);

    p->ranks++;
    p->calls += more(now->calls, before->calls);
    p->bytes += more(now->bytes, before->bytes);
    p->waited_ns += waited_ns;
    if (p->late >= 0 && waited_ns >= p->late_waited_ns)
        return;
    p->late = rank;
    p->late_waited_ns = waited_ns;
}

/* Returns the latest moment, or NULL. */
static const struct status_line_moment *latest(const struct status_line *line)
{
    return line->count ? &line->before[(line->count - 1) % STATUS_LINE_S]
                       : NULL;
}

static const struct status_line_moment *oldest(const struct status_line *line)
{
    return &line->before[line->count < STATUS_LINE_S
                             ? 0
                             : line->count % STATUS_LINE_S];
}

/* Notes what the ranks have counted by now. */
static void note(struct status_line *line, const struct record *r,
                 const struct status_counts *now)
{
    const struct status_line_moment *last = latest(line);
    struct status_line_moment *m = &line->before[line->count % STATUS_LINE_S];
    size_t size = (size_t)r->rank_count * sizeof(*now);

    for (int i = 0; i < r->rank_count; i++)
        if (now[i].calls > (last ? last->counts[i].calls : 0))
            line->changed_ns = r->now_ns;
    if (!m->counts)
        m->counts = hb_xcalloc((size_t)r->rank_count + 1, sizeof(*now));
    memcpy(m->counts, now, size);
    m->when_ns = r->now_ns;
    line->count++;
}

/* Adds up what the ranks that run have done since the oldest moment, notes this
 * one, and sets *passed_ns to the time between them. */
static struct progress_made compare(struct status_line *line,
                                    const struct record *r, double *passed_ns)
{
    struct status_counts *now =
        hb_xcalloc((size_t)r->rank_count + 1, sizeof(*now));
    struct progress_made p = {.late = -1};

    *passed_ns = 0;
    for (int rank = 0; rank < r->rank_count; rank++)
        if (record_counted(r, rank, &now[rank]) && line->count &&
            record_running(r, rank))
            add_rank(&p, rank, &now[rank], &oldest(line)->counts[rank]);
    if (line->count)
        *passed_ns = (double)(r->now_ns - oldest(line)->when_ns);
    note(line, r, now);
    hb_free(now);
    return p;
}

static void put_speed(struct hb_buf *part, double per_s, const char *unit)
{
    hb_must(
        hb_buf_printf(part, "%.*f %s/s", per_s < 9.95 ? 1 : 0, per_s, unit));
}

static void put_bytes(struct hb_buf *part, double per_s)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;

    for (; i < 4 && per_s >= 999.5; i++)
        per_s /= 1024;
    put_speed(part, per_s, units[i]);
}

static void put_age(struct hb_buf *part, int64_t age_ns)
{
    long s = (long)(age_ns / NS_PER_S);

    if (s >= 3600)
        hb_must(hb_buf_printf(part, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60,
                              s % 60));
    else
        hb_must(hb_buf_printf(part, "%ld:%02ld", s / 60, s % 60));
}

/* Appends for how long no rank has ended a collective. */
static void put_silence(struct hb_buf *out, size_t start, size_t *width,
                        int64_t ns)
{
    struct hb_buf part = HB_BUF_INIT;

    hb_must(hb_buf_printf(&part, "no operation has ended for "));
    put_age(&part, ns);
    put_part(out, start, width, hb_buf_data(&part));
    hb_buf_free(&part);
}

/* Appends how fast the ranks' collectives go, and who is late. */
static void put_made(struct hb_buf *out, size_t start, size_t *width,
                     const struct progress_made *p, double passed_ns)
{
    struct hb_buf part = HB_BUF_INIT;
    double others, share;

    if (p->ranks == 0 || passed_ns <= 0)
        return;
    put_speed(&part, p->calls / p->ranks / passed_ns * 1e9, "operations");
    put_part(out, start, width, hb_buf_data(&part));
    hb_buf_clear(&part);
    put_bytes(&part, p->bytes / p->ranks / passed_ns * 1e9);
    put_part(out, start, width, hb_buf_data(&part));
    hb_buf_clear(&part);
    if (p->ranks > 1) {
        others = (p->waited_ns - p->late_waited_ns) / (p->ranks - 1);
        share = 100 * others / passed_ns;
        if (share >= LATE_PERCENT && p->late_waited_ns < others / 2) {
            hb_must(hb_buf_printf(&part,
                                  "the others wait for rank %d (%.0f %%)",
                                  p->late, share < 100 ? share : 100));
            put_part(out, start, width, hb_buf_data(&part));
        }
    }
    hb_buf_free(&part);
}

static void put_ranks(struct hb_buf *part, const struct record *r)
{
    int all = 0, running = 0, hosts = 0;

    for (int i = 0; i < r->rank_count; i++) {
        all += record_has_rank(r, i);
        running += record_running(r, i) != NULL;
    }
    for (int i = 0; i < r->host_count; i++)
        hosts += r->hosts[i].is_reached;
    if (running < all)
        hb_must(hb_buf_printf(part, "%d of ", running));
    hb_must(hb_buf_printf(part, "%d rank%s on %d host%s", all,
                          all == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s"));
}

void status_line_format(struct hb_buf *out, struct status_line *line,
                        const struct record *r, int generation, size_t width)
{
    double passed_ns;
    struct progress_made made = compare(line, r, &passed_ns);
    int64_t silent_ns = r->now_ns - line->changed_ns;
    struct hb_buf part = HB_BUF_INIT;
    size_t start = hb_buf_len(out);

    put_ranks(&part, r);
    put_part(out, start, &width, hb_buf_data(&part));
    hb_buf_clear(&part);
    put_age(&part, r->now_ns);
    put_part(out, start, &width, hb_buf_data(&part));
    hb_buf_clear(&part);
    if (generation > 1) {
        hb_must(hb_buf_printf(&part, "generation %d", generation));
        put_part(out, start, &width, hb_buf_data(&part));
    }
    if (made.calls > 0)
        put_made(out, start, &width, &made, passed_ns);
    else if (line->changed_ns && silent_ns >= STATUS_LINE_S * NS_PER_S)
        put_silence(out, start, &width, silent_ns);
    hb_buf_free(&part);
}

void status_line_fini(struct status_line *line)
{
    for (int i = 0; i < STATUS_LINE_S; i++)
        hb_free(line->before[i].counts);
    *line = (struct status_line){0};
}
