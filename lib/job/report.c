/* SPDX-License-Identifier: Apache-2.0 */
/* The failure report; see report.h. */
#include "lib/job/report.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/hosts/hostfold.h"
#include "lib/job/output/tail_view.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

static void put_text(struct hb_buf *out, const char *text)
{
    char *copy = hb_xstrdup(text);

    hb_text_sanitize(copy);
    xbuf_puts(out, copy);
    hb_free(copy);
}

void report_sender(struct hb_buf *out, const char *sender)
{
    if (!sender)
        return;
    xbuf_puts(out, " from ");
    put_text(out, sender);
}

static const char *host_of(const struct report *r, int rank)
{
    int host = r->plan->ranks[rank].host;

    return r->plan->hosts[host].entry->name;
}

void report_rank(struct hb_buf *out, const struct plan *plan, int rank,
                 pid_t pid)
{
    xprintf(out, "rank %d on host %s", rank,
            plan->hosts[plan->ranks[rank].host].entry->name);
    if (pid > 0)
        xprintf(out, " (pid %d)", (int)pid);
}

static void put_culprit(struct hb_buf *out, const struct report *r,
                        const struct control_exited *e)
{
    xbuf_puts(out, "hvdrun: ");
    report_rank(out, r->plan, e->rank, e->pid);
    xbuf_puts(out, " failed: ");
    hb_must(control_exited_phrase(out, e));
    xbuf_puts(out, "\n");
}

/* Names the rank whose loss made failed[0] fail.  If its process did not end by
 * itself, the network may be what failed. */
static void put_leaver(struct hb_buf *out, const struct report *r)
{
    if (!r->left)
        return;
    xprintf(out, "hvdrun: rank %d on host %s ", r->left - 1,
            host_of(r, r->left - 1));
    if (r->left_exited)
        xbuf_puts(out, "had left the others before that, without a failure of "
                       "its own\n");
    else
        xprintf(out, "was lost to rank %d first\n", r->failed[0].rank);
}

/* Appends lines, indented, and safe for a terminal. */
static void put_lines(struct hb_buf *out, const char *text, size_t len)
{
    const char *end;

    if (len == 0) /* text may be NULL */
        return;
    for (const char *p = text; p < text + len; p = end + 1) {
        char *line;

        end = memchr(p, '\n', (size_t)(text + len - p));
        if (!end)
            end = text + len;
        line = hb_xasprintf("%.*s", (int)(end - p), p);
        if (end > p && end[-1] == '\r')
            line[end - p - 1] = '\0';
        hb_text_sanitize(line);
        xprintf(out, "  %s\n", line);
        hb_free(line);
    }
}

static void put_tail(struct hb_buf *out, const struct control_exited *e)
{
    static const char *const titles[] = {
        [TAIL_LINES] = "last lines of",
        [TAIL_TRACEBACK] = "the last traceback in",
        [TAIL_EXCEPTION] = "the exception in",
    };
    struct tail_view v = tail_view(e->stderr_tail ? e->stderr_tail : "");

    if (v.kind == TAIL_NOTHING)
        return;
    xprintf(out, "hvdrun: %s rank %d's stderr:\n", titles[v.kind], e->rank);
    put_lines(out, v.text, v.len);
    if (v.gap)
        xbuf_puts(out, "  [...]\n");
    put_lines(out, v.after, v.after_len);
}

void report_death(struct hb_buf *out, const struct plan *plan,
                  const struct control_exited *m, int tail)
{
    xbuf_puts(out, "hvdrun: ");
    report_rank(out, plan, m->rank, m->pid);
    xbuf_puts(out, ": ");
    hb_must(control_exited_phrase(out, m));
    xbuf_puts(out, "\n");
    if (tail)
        put_tail(out, m);
}

/* ---- The other ranks that failed, in one line ---- */

struct group {
    char *phrase;
    unsigned char *member; /* [plan->size] */
    int count;
};

static void put_ranks(struct hb_buf *out, const unsigned char *member, int size)
{
    const char *comma = "";

    for (int first = 0; first < size; first++) {
        int last = first;

        if (!member[first])
            continue;
        while (last + 1 < size && member[last + 1])
            last++;
        xprintf(out, "%s%d", comma, first);
        if (last > first)
            xprintf(out, "%s%d", last > first + 1 ? "-" : ", ", last);
        comma = ", ";
        first = last;
    }
}

static void group_add(struct group *groups, size_t *count, int size, int rank,
                      const char *phrase)
{
    struct group *g = groups;

    while (g < groups + *count && strcmp(g->phrase, phrase) != 0)
        g++;
    if (g == groups + *count && *count == REPORT_GROUPS_MAX) {
        g--;
        hb_free(g->phrase);
        g->phrase = hb_xstrdup("other reasons");
    } else if (g == groups + *count) {
        g->phrase = hb_xstrdup(phrase);
        g->member = hb_xcalloc((size_t)size, 1);
        ++*count;
    }
    g->count += !g->member[rank];
    g->member[rank] = 1;
}

/* Appends "rank 3" or "ranks 2, 4-6", and frees the group. */
static void put_group(struct hb_buf *out, struct group *g, int size)
{
    xbuf_puts(out, g->count > 1 ? "ranks " : "rank ");
    put_ranks(out, g->member, size);
    hb_free(g->member);
}

static void put_others(struct hb_buf *out, const struct report *r,
                       const struct control_exited *failed, size_t n)
{
    struct group groups[REPORT_GROUPS_MAX] = {{NULL, NULL, 0}};
    size_t count = 0;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        struct hb_buf phrase = HB_BUF_INIT;

        hb_must(control_exited_phrase(&phrase, &failed[i]));
        group_add(groups, &count, r->plan->size, failed[i].rank,
                  hb_buf_data(&phrase));
        hb_buf_free(&phrase);
    }
    xbuf_puts(out, "hvdrun: ");
    for (size_t i = 0; i < count; i++) {
        xbuf_puts(out, i > 0 ? "; " : "");
        put_group(out, &groups[i], r->plan->size);
        xprintf(out, " failed too: %s", groups[i].phrase);
        hb_free(groups[i].phrase);
    }
    xbuf_puts(out, "\n");
}

void report_finish(struct hb_buf *out, const struct plan *plan, int finished,
                   int started, const struct report_lost *lost, size_t n)
{
    struct group groups[REPORT_GROUPS_MAX] = {{NULL, NULL, 0}};
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        group_add(groups, &count, plan->size, lost[i].rank, lost[i].phrase);
    xprintf(out, "hvdrun: finished with %d of %d ranks; lost: ", finished,
            started);
    for (size_t i = 0; i < count; i++) {
        xbuf_puts(out, i > 0 ? ", " : "");
        put_group(out, &groups[i], plan->size);
        xprintf(out, " (%s)", groups[i].phrase);
        hb_free(groups[i].phrase);
    }
    xbuf_puts(out, "\n");
}

/* ---- Hosts ---- */

void report_hosts(struct hb_buf *out, const char *const *names, size_t count)
{
    char *folded;

    for (size_t i = 0; i < count && count <= REPORT_NAMES_MAX; i++)
        xprintf(out, "%s%s", i > 0 ? ", " : "", names[i]);
    if (count <= REPORT_NAMES_MAX)
        return;
    folded = hostfold(names, count);
    xbuf_puts(out, folded);
    hb_free(folded);
}

static int is_name_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

/* Returns the length of the host's own name if it stands at p, else 0. */
static size_t name_here(const char *start, const char *p, const char *name)
{
    size_t len = strlen(name);

    if (strncmp(p, name, len) != 0 || (p > start && is_name_char(p[-1])) ||
        is_name_char(p[len]))
        return 0;
    return len;
}

/* Returns whether two hosts' texts differ only in the hosts' own names. */
static int same_text(const char *a, const char *a_name, const char *b,
                     const char *b_name)
{
    const char *a_start = a, *b_start = b;

    while (*a && *b) {
        size_t a_len = name_here(a_start, a, a_name);
        size_t b_len = name_here(b_start, b, b_name);

        if (a_len && b_len) {
            a += a_len;
            b += b_len;
        } else if (*a++ != *b++) {
            return 0;
        }
    }
    return *a == *b;
}

static const char *trouble_host(const struct plan *plan,
                                const struct report_trouble *t)
{
    return plan->hosts[t->host].entry->name;
}

static int same_trouble(const struct plan *plan, const struct report_trouble *a,
                        const struct report_trouble *b)
{
    return a->takes_ranks == b->takes_ranks &&
           same_text(a->text, trouble_host(plan, a), b->text,
                     trouble_host(plan, b));
}

static void put_taken_ranks(struct hb_buf *out, const struct plan *plan,
                            const unsigned char *taken)
{
    unsigned char *member = hb_xcalloc((size_t)plan->size, 1);
    int count = 0;

    for (int i = 0; i < plan->host_count; i++)
        for (int k = 0; taken[i] && k < plan->hosts[i].count; k++) {
            int rank = plan->hosts[i].ranks[k];

            member[rank] = !plan->ranks[rank].is_idle;
            count += member[rank];
        }
    xbuf_puts(out, count == 1 ? "; rank " : "; ranks ");
    put_ranks(out, member, plan->size);
    xbuf_puts(out, count == 1 ? " ends with it" : " end with it");
    hb_free(member);
}

/* Appends one line for the first trouble and all that equal it; returns how
 * many these are. */
static size_t put_trouble(struct hb_buf *out, const char *prefix,
                          const struct plan *plan,
                          const struct report_trouble *troubles, size_t count,
                          unsigned char *reported)
{
    unsigned char *taken = hb_xcalloc((size_t)plan->host_count, 1);
    const char **names = hb_xcalloc(count, sizeof(*names));
    size_t reported_now = 0, n = 0;

    for (size_t i = 0; i < count; i++) {
        if (reported[i] || !same_trouble(plan, &troubles[0], &troubles[i]))
            continue;
        reported[i] = 1;
        reported_now++;
        taken[troubles[i].host] = 1;
    }
    for (int i = 0; i < plan->host_count; i++)
        if (taken[i])
            names[n++] = plan->hosts[i].entry->name;
    xprintf(out, "%shost%s ", prefix, n > 1 ? "s" : "");
    report_hosts(out, names, n);
    xbuf_puts(out, ": ");
    put_text(out, troubles[0].text);
    if (troubles[0].takes_ranks)
        put_taken_ranks(out, plan, taken);
    xbuf_puts(out, "\n");
    hb_free(names);
    hb_free(taken);
    return reported_now;
}

void report_troubles(struct hb_buf *out, const char *prefix,
                     const struct plan *plan,
                     const struct report_trouble *troubles, size_t count)
{
    unsigned char *reported = hb_xcalloc(count + 1, 1);
    size_t left = count;
    int lines = 0;

    for (size_t i = 0; i < count && lines < REPORT_TROUBLES_MAX; i++) {
        if (reported[i])
            continue;
        left -= put_trouble(out, prefix, plan, troubles + i, count - i,
                            reported + i);
        lines++;
    }
    if (left > 0)
        xprintf(out, "%s%zu more hosts: other reasons\n", prefix, left);
    hb_free(reported);
}

/* ---- The whole ---- */

static void put_end(struct hb_buf *out, const struct report *r)
{
    const char *plural = r->ended > 1 ? "s" : "";
    int all = 0;

    for (int i = 0; i < r->plan->size; i++)
        all += !r->plan->ranks[i].is_idle;
    if (r->ended <= 0)
        return;
    if (r->ended == all)
        xprintf(out, "hvdrun: ended %d rank%s", r->ended, plural);
    else if (r->ended < all - 1)
        xprintf(out, "hvdrun: ended %d other rank%s", r->ended, plural);
    else if (r->ended > 1)
        xprintf(out, "hvdrun: ended the other %d ranks", r->ended);
    else
        xbuf_puts(out, "hvdrun: ended the other rank");
    xprintf(out, "; exit code %d\n", r->exit_code);
}

static void put_troubles(struct hb_buf *out, const struct report *r)
{
    report_troubles(out, "hvdrun: ", r->plan, r->troubles, r->trouble_count);
}

void report_format(struct hb_buf *out, const struct report *r)
{
    const struct control_exited *others = r->failed;
    size_t count = r->failed_count;

    if (r->exit_code == 0 && count == 0 && r->trouble_count == 0 && !r->cause)
        return;
    if (r->cause) {
        xprintf(out, "hvdrun: %s\n", r->cause);
    } else if (count > 0 && !r->host_first) {
        put_culprit(out, r, others);
        put_leaver(out, r);
        put_tail(out, others);
        others++;
        count--;
    }
    put_troubles(out, r);
    put_others(out, r, others, count);
    put_end(out, r);
}
