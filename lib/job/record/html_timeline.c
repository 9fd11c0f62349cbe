/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts and ranks on one time line, as SVG: a row for each host, with the time
 * in which it was reached, and below it one for each of its ranks, with a bar
 * for each of its processes.
 */
#include "lib/job/record/html_parts.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

enum {
    WIDTH = 1080, /* of the picture, in its own units */
    LEFT = 130,   /* where time 0 is */
    RIGHT = 1065, /* where the end is */
    TOP = 26,     /* below the axis's labels */
    HOST_HEIGHT = 26,
    ROW_HEIGHT = 18,
    LOW_HEIGHT = 12, /* of a row, if there are many */
    MANY = 64,
    NAME_MAX_CHARS = 18,
    TICKS = 8,
};

/* What is shown: 1 << enum html_run, and these. */
enum { LOOK_HOST = 1u << 8, LOOK_NEVER = 1u << 9, LOOK_BAND = 1u << 10 };

struct picture {
    const struct record *r;
    struct hb_buf *out;
    double end_ns; /* of the axis */
    int *order;    /* indexes of runs, by rank */
    int *first;    /* [ranks + 1]: where in `order` the rank's runs are */
    int *ranks;    /* [hosts]: how many the host has */
    int row_height;
    int rows_left, bars_left, hosts_left; /* that still have room */
    int ranks_out, bars_out, hosts_out;   /* that had none */
    int y;
    unsigned shown;
};

static double x_of(const struct picture *p, int64_t when_ns)
{
    double at = (double)when_ns / p->end_ns;

    at = at < 0 ? 0 : at > 1 ? 1 : at;
    return LEFT + at * (RIGHT - LEFT);
}

/* ---- What there is ---- */

/* Finds the last time that the picture must show. */
static double find_end(const struct record *r)
{
    int64_t end = record_duration_ns(r);

    for (int i = 0; i < r->run_count; i++)
        if (r->runs[i].end_ns > end)
            end = r->runs[i].end_ns;
    return end > 1000 ? (double)end : 1000;
}

static void count_ranks(struct picture *p)
{
    const struct record *r = p->r;

    p->ranks = hb_xcalloc((size_t)r->host_count + 1, sizeof(*p->ranks));
    for (int i = 0; i < r->rank_count; i++)
        if (r->ranks[i].host >= 0 && record_has_rank(r, i))
            p->ranks[r->ranks[i].host]++;
}

/* ---- Axis ---- */

/* Returns the distance of the axis's marks: 1, 2 or 5 times a power of ten. */
static double find_step(double end_ns)
{
    double step = 1;

    while (step * TICKS < end_ns) {
        if (step * 2 * TICKS >= end_ns)
            return step * 2;
        if (step * 5 * TICKS >= end_ns)
            return step * 5;
        step *= 10;
    }
    return step;
}

static void put_axis(struct picture *p, int height)
{
    double step = find_step(p->end_ns);

    for (int i = 0; i * step <= p->end_ns; i++) {
        double x = x_of(p, (int64_t)(i * step));

        xprintf(p->out,
                "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d'/>"
                "<text x='%.1f' y='14' text-anchor='%s'>",
                x, x, TOP - 6, height, x, x > RIGHT - 30 ? "end" : "middle");
        if (i == 0)
            xbuf_puts(p->out, "0");
        else
            html_span(p->out, i * step);
        xbuf_puts(p->out, "</text>\n");
    }
}

static void put_band(struct picture *p, int64_t from_ns, int64_t to_ns,
                     int height)
{
    double x = x_of(p, from_ns), width = x_of(p, to_ns) - x;

    if (from_ns < 0 || to_ns < 0 || width <= 0)
        return;
    xprintf(p->out,
            "<rect class='r-band' x='%.1f' y='%d' width='%.1f' "
            "height='%d'/>\n",
            x, TOP - 6, width, height - TOP + 6);
    p->shown |= LOOK_BAND;
}

/* ---- Rows ---- */

static void put_bar(struct picture *p, const char *class, int64_t from_ns,
                    int64_t to_ns, int height)
{
    double x = x_of(p, from_ns), width = x_of(p, to_ns) - x;

    xprintf(p->out,
            "<rect class='r-%s' x='%.1f' y='%.1f' width='%.1f' height='%d' "
            "rx='2'>",
            class, width < 2 && x > RIGHT - 2 ? x - 2 : x, p->y - height / 2.0,
            width < 2 ? 2 : width, height);
}

static void put_run(struct picture *p, const struct record_run *run)
{
    int64_t end = run->end_ns < 0 ? (int64_t)p->end_ns : run->end_ns;

    if (p->bars_left == 0) {
        p->bars_out++;
        return;
    }
    p->bars_left--;
    p->shown |= 1u << html_run(p->r, run);
    put_bar(p, html_run_class(html_run(p->r, run)), run->start_ns, end,
            p->row_height - 5);
    xprintf(p->out, "<title>rank %d on host ", run->rank);
    record_escape(p->out, p->r->hosts[run->host].name);
    xprintf(p->out, ", pid %d: ", (int)run->pid);
    record_escape(p->out, html_how(p->r, run));
    xbuf_puts(p->out, "; from ");
    html_span(p->out, (double)run->start_ns);
    xbuf_puts(p->out, " to ");
    html_span(p->out, (double)end);
    xbuf_puts(p->out, "</title></rect>\n");
}

static void put_rank(struct picture *p, int rank)
{
    if (p->rows_left == 0) {
        p->ranks_out++;
        return;
    }
    p->rows_left--;
    xprintf(p->out, "<text x='%d' y='%d' text-anchor='end'>rank %d</text>\n",
            LEFT - 10, p->y + 4, rank);
    for (int i = p->first[rank]; i < p->first[rank + 1]; i++)
        put_run(p, &p->r->runs[p->order[i]]);
    p->y += p->row_height;
}

/* Appends the host's name, shortened so that it does not reach the bars. */
static void put_name(struct picture *p, const char *name)
{
    char *clean = record_clean(name);
    size_t at = 0, chars = 0;

    for (; clean[at] && chars <= NAME_MAX_CHARS; at++)
        chars += ((unsigned char)clean[at + 1] & 0xc0) != 0x80;
    xprintf(p->out, "<text class='host' x='0' y='%d'>", p->y + 4);
    if (clean[at]) {
        clean[at] = '\0';
        record_escape(p->out, clean);
        xbuf_puts(p->out, "&#8230;");
    } else {
        record_escape(p->out, clean);
    }
    xbuf_puts(p->out, "<title>");
    record_escape(p->out, name);
    xbuf_puts(p->out, "</title></text>\n");
    hb_free(clean);
}

static void put_reach(struct picture *p, const struct record_host *h)
{
    int64_t end = h->reached_ns >= 0 ? h->reached_ns
                  : h->trouble       ? h->trouble_ns
                                     : (int64_t)p->end_ns;

    if (h->asked_ns < 0)
        return;
    p->shown |= h->reached_ns < 0 ? LOOK_NEVER : LOOK_HOST;
    put_bar(p, h->reached_ns < 0 ? "fail" : "host", h->asked_ns, end, 5);
    xbuf_puts(p->out, h->reached_ns < 0 ? "<title>not reached: "
                                        : "<title>reached after ");
    if (h->reached_ns < 0)
        record_escape(p->out, h->trouble);
    else
        html_span(p->out, (double)(h->reached_ns - h->asked_ns));
    xbuf_puts(p->out, "</title></rect>\n");
}

static void put_host(struct picture *p, int host)
{
    const struct record_host *h = &p->r->hosts[host];

    if (p->hosts_left == 0 || (p->rows_left == 0 && p->ranks[host] > 0)) {
        p->hosts_out++;
        p->ranks_out += p->ranks[host];
        return;
    }
    p->hosts_left--;
    p->y += 4;
    put_name(p, h->name);
    put_reach(p, h);
    p->y += HOST_HEIGHT - 6;
    for (int i = 0; i < p->r->rank_count; i++)
        if (p->r->ranks[i].host == host && record_has_rank(p->r, i))
            put_rank(p, i);
    p->y += 2;
}

/* Appends what the colours mean that the picture has. */
static void put_key(struct hb_buf *out, unsigned shown)
{
    static const struct {
        unsigned look;
        const char *class, *text;
    } keys[] = {
        {LOOK_HOST, "host", "connecting to the host"},
        {LOOK_NEVER, "fail", "host not reached"},
        {1u << RUN_ALIVE, "alive", "runs"},
        {1u << RUN_OK, "ok", "exit code 0"},
        {1u << RUN_FAIL, "fail", "failed"},
        {1u << RUN_LOST, "lost", "lost with its host"},
        {1u << RUN_END, "end", "ended by hvdrun"},
        {1u << RUN_UNKNOWN, "end", "end unknown"},
        {LOOK_BAND, "band", "the job starts or ends"},
    };

    xbuf_puts(out, "<p class='key'>");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (shown & keys[i].look)
            xprintf(out, "<span><i class='%s'></i>%s</span>", keys[i].class,
                    keys[i].text);
    xbuf_puts(out, "</p>\n");
}

void html_timeline(struct hb_buf *out, const struct record *r)
{
    struct hb_buf rows = HB_BUF_INIT;
    struct picture p = {
        .r = r,
        .out = &rows,
        .end_ns = find_end(r),
        .row_height = r->rank_count > MANY ? LOW_HEIGHT : ROW_HEIGHT,
        .rows_left = HTML_RANKS_MAX,
        .bars_left = HTML_BARS_MAX,
        .hosts_left = HTML_HOSTS_MAX,
        .y = TOP + 10,
    };
    int height;

    p.first = hb_xcalloc((size_t)r->rank_count + 1, sizeof(*p.first));
    p.order = record_by_rank(r, p.first);
    count_ranks(&p);
    for (int i = 0; i < r->host_count; i++)
        put_host(&p, i);
    height = p.y;
    p.out = out;
    xprintf(out,
            "<div class='scroll'><svg viewBox='0 0 %d %d' role='img' "
            "aria-label='hosts and ranks on a time line'>\n",
            WIDTH, height);
    put_band(&p, 0, r->phases[RECORD_STARTED], height);
    put_band(&p, r->phases[RECORD_ENDING], r->phases[RECORD_ENDED], height);
    put_axis(&p, height);
    xbuf_append(out, hb_buf_data(&rows), hb_buf_len(&rows));
    xbuf_puts(out, "</svg></div>\n");
    put_key(out, p.shown);
    html_left_out(out, p.hosts_out, "hosts");
    html_left_out(out, p.ranks_out, "ranks");
    html_left_out(out, p.bars_out + r->runs_left_out, "processes of ranks");
    hb_free(p.order);
    hb_free(p.first);
    hb_free(p.ranks);
    hb_buf_free(&rows);
}
