/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of the ranks' statistics, as a table; see stats_text.h. */
#include "lib/job/trace/stats_text.h"

#include "lib/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>

void stats_sum_add(struct stats_sum *s, const struct plan *plan,
                   const struct worker_stats *m)
{
    if (!s->waited_ns)
        s->waited_ns = hb_xcalloc((size_t)plan->size, sizeof(*s->waited_ns));
    s->ranks++;
    worker_stats_add(&s->all, m);
    for (uint32_t i = 0; i < m->blamed_count; i++)
        if (m->blamed[i].rank < (uint32_t)plan->size)
            s->waited_ns[m->blamed[i].rank] += m->blamed[i].waited_ns;
}

void stats_sum_fini(struct stats_sum *s)
{
    hb_free(s->waited_ns);
    s->waited_ns = NULL;
}

/* ---- Shapes of numbers ---------------------------------------------- */

struct cell {
    char text[24];
};

static struct cell show(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

static struct cell show(const char *fmt, ...)
{
    struct cell c;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c.text, sizeof(c.text), fmt, ap);
    va_end(ap);
    return c;
}

/* Formats three digits, in the largest unit that leaves at least one before the
 * point. */
static struct cell show_in(double value, const char *const *units,
                           const double *steps)
{
    while (steps[0] > 0 && value >= steps[0] * 0.9995) {
        value /= steps[0];
        steps++;
        units++;
    }
    return show("%.*f %s",
                value >= 99.95   ? 0
                : value >= 9.995 ? 1
                                 : 2,
                value, *units);
}

static struct cell show_ns(double ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    static const double steps[] = {1000, 1000, 1000, 0};

    return show_in(ns, units, steps);
}

static struct cell show_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const double steps[] = {1024, 1024, 1024, 1024, 0};

    if (bytes < 1023.5)
        return show("%.0f B", bytes);
    return show_in(bytes, units, steps);
}

static double share(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 0;
}

/* ---- The table ------------------------------------------------------ */

static struct cell show_class(int class)
{
    const char *limit = worker_stats_class(class);

    if (limit[0])
        return show("< %s", limit);
    return show(">= %s", worker_stats_class(class - 1));
}

static void put_row(struct hb_buf *out, const struct stats_sum *s, int kind,
                    int class)
{
    const struct worker_stats_row *row = &s->all.rows[kind][class];
    double ranks = s->ranks;

    hb_must(hb_buf_printf(
        out, "  %-13s  %9s  %9.0f  %10s", collective_name((unsigned)kind),
        kind == WORKER_STATS_BARRIER ? "" : show_class(class).text,
        (double)row->count / ranks,
        show_bytes((double)row->bytes / ranks).text));
    if (row->time_ns == 0) { /* too few and too small to be timed */
        hb_must(hb_buf_printf(out, "  %9s  %8s\n", "-", "-"));
        return;
    }
    hb_must(hb_buf_printf(out, "  %9s  %6.0f %%\n",
                          show_ns(share(row->time_ns, row->count)).text,
                          100 * share(row->wait_ns, row->time_ns)));
}

static void put_operations(struct hb_buf *out, const struct stats_sum *s,
                           uint64_t requests)
{
    const struct worker_stats *m = &s->all;
    double ranks = s->ranks;

    hb_must(hb_buf_printf(
        out,
        "  operations: %.0f per rank, of %.2f requests each; %.0f %% foreseen, "
        "%.0f cut, %.0f negotiated\n",
        (double)m->operations / ranks, share(requests, m->operations),
        100 * share(m->learned, m->operations), (double)m->cuts / ranks,
        (double)m->negotiations / ranks));
    if (m->device_timed)
        hb_must(
            hb_buf_printf(out, "  on the device: %.0f per rank, of %s each\n",
                          (double)m->device_timed / ranks,
                          show_ns(share(m->device_ns, m->device_timed)).text));
    if (m->errors)
        hb_must(hb_buf_printf(out, "  requests that failed: %llu\n",
                              (unsigned long long)m->errors));
}

static void put_straggler(struct hb_buf *out, const struct stats_sum *s,
                          const struct plan *plan)
{
    uint64_t all = 0;
    int worst = 0;

    for (int r = 0; r < plan->size; r++) {
        all += s->waited_ns[r];
        if (s->waited_ns[r] > s->waited_ns[worst])
            worst = r;
    }
    if (all == 0)
        return;
    hb_must(hb_buf_printf(
        out, "  most waited for: rank %d on host %s, %s (%.0f %% of all)\n",
        worst, plan->hosts[plan->ranks[worst].host].entry->name,
        show_ns((double)s->waited_ns[worst]).text,
        100 * share(s->waited_ns[worst], all)));
}

void stats_text(struct hb_buf *out, const struct stats_sum *s,
                const struct plan *plan)
{
    uint64_t requests = 0;

    if (s->ranks == 0) {
        hb_must(hb_buf_printf(out, "hvdrun: no rank told its statistics\n"));
        return;
    }
    hb_must(hb_buf_printf(out,
                          "hvdrun: statistics of %d rank%s, calls and bytes "
                          "per rank\n  %-13s  %9s  %9s  %10s  %9s  %8s\n",
                          s->ranks, s->ranks == 1 ? "" : "s", "", "size",
                          "calls", "bytes", "mean time", "waiting"));
    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++)
            if (s->all.rows[k][c].count) {
                put_row(out, s, k, c);
                requests += s->all.rows[k][c].count;
            }
    put_operations(out, s, requests);
    put_straggler(out, s, plan);
}
