/* SPDX-License-Identifier: Apache-2.0 */
/* Charts of the ranks' statistics; see html_parts.h. */
#include "lib/job/record/html_parts.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

static double share(double part, double all)
{
    return all > 0 ? part / all : 0;
}

/* Appends a part of a bar, a share of the cell's width. */
static void put_part(struct hb_buf *out, const char *class, double width)
{
    if (width > 0)
        xprintf(out, "<i class='%s' style='width:%.2f%%'></i>", class,
                100 * width);
}

/* Appends a cell with a bar. */
static void put_bar(struct hb_buf *out, const char *class, double width)
{
    xbuf_puts(out, "<td class='bar'><div class='bars'>");
    put_part(out, class, width);
    xbuf_puts(out, "</div></td>");
}

static void put_span_cell(struct hb_buf *out, double ns)
{
    xbuf_puts(out, "<td class='n'>");
    if (ns > 0)
        html_span(out, ns);
    else
        xbuf_puts(out, "&#8211;");
    xbuf_puts(out, "</td>");
}

/* ---- Waiting, by rank ---- */

static void put_rank(struct hb_buf *out, const struct record *r, int rank,
                     double longest)
{
    const struct record_rank *k = &r->ranks[rank];
    double waited_for = (double)record_waited_for_ns(r, rank);
    struct status_counts counted;

    record_counted(r, rank, &counted);
    xprintf(out, "<tr><td>%d</td><td>", rank);
    if (k->host >= 0)
        record_escape(out, r->hosts[k->host].name);
    xprintf(out, "</td><td class='n'>%llu</td><td class='n'>",
            (unsigned long long)counted.calls);
    html_bytes(out, (double)counted.bytes);
    xbuf_puts(out, "</td>");
    put_span_cell(out, (double)counted.waited_ns);
    put_bar(out, "wait", share((double)counted.waited_ns, longest));
    put_span_cell(out, waited_for);
    put_bar(out, "late", share(waited_for, longest));
    xbuf_puts(out, "</tr>\n");
}

static int is_shown(const struct record *r, int rank)
{
    struct status_counts counted;

    return record_counted(r, rank, &counted) ||
           record_waited_for_ns(r, rank) > 0;
}

/* Finds the longest bar; returns how many ranks have one. */
static int find_longest(const struct record *r, double *longest)
{
    int n = 0;

    *longest = 0;
    for (int i = 0; i < r->rank_count; i++) {
        double waited_for = (double)record_waited_for_ns(r, i);
        struct status_counts counted;
        double waited;

        record_counted(r, i, &counted);
        waited = (double)counted.waited_ns;
        n += is_shown(r, i);
        *longest = waited > *longest ? waited : *longest;
        *longest = waited_for > *longest ? waited_for : *longest;
    }
    return n;
}

/* Appends all ranks in order; or if they are too many, those that others have
 * waited for longest. */
static void put_ranks(struct hb_buf *out, const struct record *r)
{
    double longest;
    int n = find_longest(r, &longest);
    struct record_late *late = record_late(r);

    if (n <= HTML_ROWS_MAX)
        for (int i = 0; i < r->rank_count; i++)
            if (is_shown(r, i))
                put_rank(out, r, i, longest);
    for (int i = 0; n > HTML_ROWS_MAX && i < HTML_ROWS_MAX; i++) {
        if (!late[i].waited_ns)
            break;
        put_rank(out, r, late[i].rank, longest);
    }
    xbuf_puts(out, "</tbody></table></div>\n");
    if (n > HTML_ROWS_MAX)
        xprintf(out,
                "<p class='left'>Of %d ranks, those that others have waited "
                "for longest are shown.</p>\n",
                n);
    hb_free(late);
}

static void put_waiting(struct hb_buf *out, const struct record *r)
{
    xbuf_puts(out,
              "<section><h2>Waiting, by rank</h2>\n"
              "<p class='soft'>How long each rank has waited in collectives "
              "for others, and how long others have waited for it: a long "
              "bar on the right is a rank that was late.</p>\n"
              "<div class='scroll'><table><thead><tr><th>rank</th>"
              "<th>host</th><th class='n'>calls</th><th class='n'>data</th>"
              "<th class='n'>waited</th><th></th>"
              "<th class='n'>others waited for it</th><th></th></tr></thead>"
              "<tbody>\n");
    put_ranks(out, r);
    xbuf_puts(out, "</section>\n");
}

/* ---- Collectives ---- */

static void put_class(struct hb_buf *out, int kind, int class)
{
    const char *limit = worker_stats_class(class);

    if (kind == WORKER_STATS_BARRIER)
        return;
    if (limit[0])
        xprintf(out, "&lt; %s", limit);
    else
        xprintf(out, "&#8805; %s", worker_stats_class(class - 1));
}

static void put_row(struct hb_buf *out, const struct record *r, int kind,
                    int class, double most)
{
    const struct worker_stats_row *row = &r->stats->all.rows[kind][class];
    double ranks = r->stats->ranks, time = (double)row->time_ns;
    double wait = (double)row->wait_ns;

    wait = wait > time ? time : wait;
    xprintf(out, "<tr><td>%s</td><td class='n'>",
            collective_name((unsigned)kind));
    put_class(out, kind, class);
    xprintf(out, "</td><td class='n'>%.0f</td><td class='n'>",
            (double)row->count / ranks);
    html_bytes(out, (double)row->bytes / ranks);
    xbuf_puts(out, "</td>");
    put_span_cell(out, time / (double)row->count);
    put_span_cell(out, time / ranks);
    xbuf_puts(out, "<td class='bar'><div class='bars'>");
    put_part(out, "work", share(time - wait, most));
    put_part(out, "wait", share(wait, most));
    xbuf_puts(out, "</div></td></tr>\n");
}

static double longest_row(const struct worker_stats *m)
{
    double most = 0;

    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++)
            if ((double)m->rows[k][c].time_ns > most)
                most = (double)m->rows[k][c].time_ns;
    return most;
}

static void put_numbers(struct hb_buf *out, const struct stats_sum *s)
{
    const struct worker_stats *m = &s->all;
    double ranks = s->ranks;

    xprintf(out,
            "<p class='left'>%.0f operations per rank; %.0f %% were foreseen, "
            "%.0f negotiated",
            (double)m->operations / ranks,
            100 * share((double)m->learned, (double)m->operations),
            (double)m->negotiations / ranks);
    if (m->errors)
        xprintf(out, "; %llu requests have failed",
                (unsigned long long)m->errors);
    xbuf_puts(out, ".</p>\n");
}

static void put_collectives(struct hb_buf *out, const struct record *r)
{
    const struct worker_stats *m = &r->stats->all;
    double most = longest_row(m);

    xprintf(out,
            "<section><h2>Collectives</h2>\n<p class='soft'>Per rank, on "
            "average over the %d rank%s that told.</p>\n"
            "<div class='scroll'><table><thead><tr><th>operation</th>"
            "<th class='n'>size</th><th class='n'>calls</th>"
            "<th class='n'>data</th><th class='n'>mean time</th>"
            "<th class='n'>total time</th><th></th></tr></thead><tbody>\n",
            r->stats->ranks, r->stats->ranks == 1 ? "" : "s");
    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++)
            if (m->rows[k][c].count)
                put_row(out, r, k, c, most);
    xbuf_puts(out, "</tbody></table></div>\n<p class='key'><span>"
                   "<i class='work'></i>moving and reducing data</span>"
                   "<span><i class='wait'></i>waiting for other ranks</span>"
                   "</p>\n");
    put_numbers(out, r->stats);
    xbuf_puts(out, "</section>\n");
}

void html_statistics(struct hb_buf *out, const struct record *r)
{
    double longest;

    if (find_longest(r, &longest) > 0)
        put_waiting(out, r);
    if (r->stats && r->stats->ranks > 0)
        put_collectives(out, r);
}
