/* SPDX-License-Identifier: Apache-2.0 */
/* The value of PMI_process_mapping; see pmi1_server.h. */
#include "lib/agent/wireup/pmi1/pmi1_server.h"

#include "lib/base/alloc.h"

/* `count` consecutive ranks on one host. */
struct run {
    int host, count;
};

static int make_runs(const int *hosts, int size, struct run *runs)
{
    int n = 0;

    for (int i = 0; i < size; i++) {
        if (n > 0 && runs[n - 1].host == hosts[i])
            runs[n - 1].count++;
        else
            runs[n++] = (struct run){hosts[i], 1};
    }
    return n;
}

static int same_run(const struct run *a, const struct run *b)
{
    return a->host == b->host && a->count == b->count;
}

/* Sets borders[i], for each i, to the length of the longest proper prefix of
 * runs[0 .. i] that is also its suffix (Knuth, Morris, Pratt). */
static void find_borders(const struct run *runs, int n, int *borders)
{
    int border = 0;

    borders[0] = 0;
    for (int i = 1; i < n; i++) {
        while (border > 0 && !same_run(&runs[i], &runs[border]))
            border = borders[border - 1];
        border += same_run(&runs[i], &runs[border]);
        borders[i] = border;
    }
}

/* Returns how many runs there are before they repeat.  The last one may be cut
 * short, so it is compared apart from the others. */
static int period_of(const struct run *runs, int n)
{
    int *borders, border, period = n, head = n - 1;

    if (head == 0)
        return n;
    borders = hb_xcalloc((size_t)head, sizeof(*borders));
    find_borders(runs, head, borders);
    for (border = borders[head - 1]; period == n;
         border = borders[border - 1]) {
        const struct run *want = &runs[head % (head - border)];

        if (runs[head].host == want->host && runs[head].count <= want->count)
            period = head - border;
        if (border == 0)
            break;
    }
    hb_free(borders);
    return period;
}

char *pmi1_mapping(const int *hosts, int size)
{
    struct run *runs = hb_xcalloc((size_t)size + 1, sizeof(*runs));
    int n = make_runs(hosts, size, runs), period = period_of(runs, n);
    struct hb_buf out = HB_BUF_INIT;
    int last;

    hb_must(hb_buf_puts(&out, "(vector"));
    for (int i = 0; i < period && hb_buf_len(&out) < PMI1_VALUE_MAX; i = last) {
        for (last = i + 1; last < period && runs[last].count == runs[i].count &&
                           runs[last].host == runs[i].host + (last - i);
             last++)
            ;
        hb_must(hb_buf_printf(&out, ",(%d,%d,%d)", runs[i].host, last - i,
                              runs[i].count));
    }
    hb_must(hb_buf_puts(&out, ")"));
    hb_free(runs);
    if (hb_buf_len(&out) > PMI1_VALUE_MAX) {
        hb_buf_free(&out);
        return NULL;
    }
    return hb_buf_detach(&out);
}
