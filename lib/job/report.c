/* SPDX-License-Identifier: Apache-2.0 */
/* The failure report; see report.h. */
#include "lib/job/report.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/xbuf.h"

#include <signal.h>
#include <string.h>

#define xprintf(out, ...) hb_must(hb_buf_printf(out, __VA_ARGS__))

void report_signal_name(struct hb_buf *out, int signo)
{
    const char *abbrev = sigabbrev_np(signo);

    if (abbrev)
        xprintf(out, "SIG%s", abbrev);
    else if (signo >= SIGRTMIN && signo <= SIGRTMAX)
        xprintf(out, "SIGRTMIN+%d", signo - SIGRTMIN);
    else
        xprintf(out, "signal %d", signo);
}

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

void report_phrase(struct hb_buf *out, const struct control_exited *e)
{
    int detail = e->detail && e->detail[0];

    if (e->cause == CONTROL_CAUSE_EXEC && detail) {
        put_text(out, e->detail);
        return;
    }
    if (e->signal) {
        xprintf(out, "killed by signal %d (", e->signal);
        report_signal_name(out, e->signal);
        xbuf_puts(out, e->core_dumped ? "), core dumped" : ")");
    } else {
        xprintf(out, "exit code %d", e->exit_code);
    }
    if (!detail)
        return;
    xbuf_puts(out, ": ");
    put_text(out, e->detail);
}

static const char *host_of(const struct report *r, int rank)
{
    int host = r->plan->ranks[rank].host;

    return r->plan->hosts[host].entry->name;
}

static void put_culprit(struct hb_buf *out, const struct report *r,
                        const struct control_exited *e)
{
    xprintf(out, "hvdrun: rank %d on host %s ", e->rank, host_of(r, e->rank));
    if (e->pid > 0 && e->cause != CONTROL_CAUSE_EXEC)
        xprintf(out, "(pid %d) ", (int)e->pid);
    xbuf_puts(out, e->cause == CONTROL_CAUSE_EXEC ? "could not be started: "
                                                  : "failed: ");
    report_phrase(out, e);
    xbuf_puts(out, "\n");
}

/* Where the last `lines` lines of text begin. */
static const char *last_lines(const char *text, size_t len, int lines)
{
    const char *p = text + len;

    while (p > text) {
        if (p[-1] == '\n' && p < text + len && lines-- == 1)
            break;
        p--;
    }
    return p;
}

static void put_tail(struct hb_buf *out, const struct control_exited *e)
{
    const char *text = e->stderr_tail ? e->stderr_tail : "";
    size_t len = strlen(text);
    const char *p, *end;

    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    if (len == 0)
        return;
    xprintf(out, "hvdrun: last lines of rank %d's stderr:\n", e->rank);
    for (p = last_lines(text, len, REPORT_TAIL_LINES); p < text + len;
         p = end + 1) {
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

/* ---- The other ranks that failed, in one line ---- */

struct group {
    char *phrase;
    unsigned char *member; /* [plan->size] */
    int count;
};

static void put_ranks(struct hb_buf *out, const struct group *g, int size)
{
    const char *comma = "";

    for (int first = 0; first < size; first++) {
        int last = first;

        if (!g->member[first])
            continue;
        while (last + 1 < size && g->member[last + 1])
            last++;
        xprintf(out, "%s%d", comma, first);
        if (last > first)
            xprintf(out, "%s%d", last > first + 1 ? "-" : ", ", last);
        comma = ", ";
        first = last;
    }
}

static void group_add(struct group *groups, size_t *count, int size,
                      const struct control_exited *e)
{
    struct hb_buf phrase = HB_BUF_INIT;
    struct group *g = groups;

    report_phrase(&phrase, e);
    while (g < groups + *count && strcmp(g->phrase, hb_buf_data(&phrase)) != 0)
        g++;
    if (g == groups + *count && *count == REPORT_GROUPS_MAX) {
        g--;
        hb_free(g->phrase);
        g->phrase = hb_xstrdup("other reasons");
    } else if (g == groups + *count) {
        g->phrase = hb_xstrdup(hb_buf_data(&phrase));
        g->member = hb_xcalloc((size_t)size, 1);
        ++*count;
    }
    hb_buf_free(&phrase);
    g->count += !g->member[e->rank];
    g->member[e->rank] = 1;
}

static void put_others(struct hb_buf *out, const struct report *r,
                       const struct control_exited *failed, size_t n)
{
    struct group groups[REPORT_GROUPS_MAX] = {{NULL, NULL, 0}};
    size_t count = 0;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        group_add(groups, &count, r->plan->size, &failed[i]);
    xbuf_puts(out, "hvdrun: ");
    for (size_t i = 0; i < count; i++) {
        xprintf(out, "%s%s ", i > 0 ? "; " : "",
                groups[i].count > 1 ? "ranks" : "rank");
        put_ranks(out, &groups[i], r->plan->size);
        xprintf(out, " failed too: %s", groups[i].phrase);
        hb_free(groups[i].phrase);
        hb_free(groups[i].member);
    }
    xbuf_puts(out, "\n");
}

/* ---- The whole ---- */

static void put_end(struct hb_buf *out, const struct report *r)
{
    const char *plural = r->ended > 1 ? "s" : "";

    if (r->ended <= 0)
        return;
    if (r->ended == r->plan->size)
        xprintf(out, "hvdrun: ended %d rank%s", r->ended, plural);
    else if (r->ended < r->plan->size - 1)
        xprintf(out, "hvdrun: ended %d other rank%s", r->ended, plural);
    else if (r->ended > 1)
        xprintf(out, "hvdrun: ended the other %d ranks", r->ended);
    else
        xbuf_puts(out, "hvdrun: ended the other rank");
    xprintf(out, "; exit code %d\n", r->exit_code);
}

void report_format(struct hb_buf *out, const struct report *r)
{
    const struct control_exited *others = r->failed;
    size_t count = r->failed_count;

    if (r->exit_code == 0 && count == 0 && !r->cause)
        return;
    if (r->cause) {
        xprintf(out, "hvdrun: %s\n", r->cause);
    } else if (count > 0) {
        put_culprit(out, r, others);
        put_tail(out, others);
        others++;
        count--;
    }
    put_others(out, r, others, count);
    put_end(out, r);
}
