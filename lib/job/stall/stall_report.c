/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the report about ranks that keep others waiting; see
 * stall_report.h. */
#include "lib/job/stall/stall_report.h"

#include "lib/job/output/xbuf.h"

#include <string.h>

enum { GROUPS_MAX = 8, STALL_DISAGREED_SHOWN = 3 };

static void put_seconds(struct hb_buf *out, int64_t ms)
{
    if (ms < 100 * 1000)
        hb_must(hb_buf_printf(out, "%.1f s", (double)ms / 1e3));
    else
        hb_must(hb_buf_printf(out, "%lld s", (long long)(ms / 1000)));
}

static void put_op(struct hb_buf *out, const struct control_stall_op *op)
{
    xbuf_puts(out, collective_name(op->kind));
    if (op->name[0])
        hb_must(hb_buf_printf(out, " \"%s\"", op->name));
    if (op->set)
        hb_must(hb_buf_printf(out, " of process set %d", op->set));
    if (op->where)
        xbuf_puts(out, " on the device");
}

typedef int (*rank_test)(const struct stall_view *v,
                         const struct stall_tensor *t, int rank);

static int is_waiting(const struct stall_view *v, const struct stall_tensor *t,
                      int rank)
{
    (void)v;
    return t->has[rank];
}

/* Appends "ranks 0, 2-5, 9". */
static void put_ranks(struct hb_buf *out, const struct stall_view *v,
                      const struct stall_tensor *t, rank_test test, int count)
{
    int groups = 0, size = v->plan->size;

    xbuf_puts(out, count == 1 ? "rank " : "ranks ");
    for (int rank = 0; rank < size; rank++) {
        int last = rank;

        if (!test(v, t, rank))
            continue;
        if (groups++ == GROUPS_MAX) {
            xbuf_puts(out, ", ...");
            return;
        }
        while (last + 1 < size && test(v, t, last + 1))
            last++;
        hb_must(hb_buf_printf(out, groups > 1 ? ", %d" : "%d", rank));
        if (last > rank)
            hb_must(
                hb_buf_printf(out, last == rank + 1 ? ", %d" : "-%d", last));
        rank = last;
    }
}

static int all_wait(const struct stall_view *v, const struct stall_tensor *t)
{
    for (int rank = 0; rank < v->plan->size; rank++)
        if (!v->outside[rank] && stall_is_member(&v->ranks[rank], t) &&
            !t->has[rank])
            return 0;
    return 1;
}

static void put_tensor(struct hb_buf *out, const struct stall_view *v,
                       const struct stall_tensor *t)
{
    if (!t->waiting)
        return;
    xbuf_puts(out, "  ");
    put_op(out, &t->op);
    xbuf_puts(out, ": ");
    put_ranks(out, v, t, is_waiting, t->waiting);
    hb_must(hb_buf_printf(out, " wait%s for ", t->waiting == 1 ? "s" : ""));
    put_seconds(out, t->op.age_ms);
    if (t->missing) {
        xbuf_puts(out, "; missing: ");
        put_ranks(out, v, t, stall_is_missing, t->missing);
    } else if (t->launched) {
        xbuf_puts(out, "; all ranks have launched it");
    } else {
        xbuf_puts(out, all_wait(v, t)
                           ? "; all ranks wait for it"
                           : "; the other ranks do not keep it waiting");
    }
    xbuf_puts(out, "\n");
}

/* Describes the process state. */
static const char *state_text(int state)
{
    switch (state) {
    case 0:
        return "has ended";
    case 'T':
        return "is stopped by a signal";
    case 't':
        return "is stopped by a debugger";
    case 'Z':
    case 'X':
        return "is dead";
    case 'D':
        return "waits in the kernel, uninterruptibly";
    case 'R':
        return "runs";
    default:
        return "sleeps";
    }
}

static void put_last(struct hb_buf *out, const struct control_stall_rank *r)
{
    if (!r->known && r->in_init) {
        xbuf_puts(out, "; it is in hvd_init");
        return;
    }
    if (!r->known) {
        xbuf_puts(out, r->state ? "; it has not called hvd_init, or has "
                                  "called hvd_shutdown"
                                : "");
        return;
    }
    if (r->calls == 0) {
        xbuf_puts(out, "; it has issued no operation yet");
        return;
    }
    xbuf_puts(out, "; its last operation: ");
    put_op(out, &r->last);
    xbuf_puts(out, ", ");
    put_seconds(out, r->last.age_ms);
    xbuf_puts(out, r->inside ? " ago, in which it is" : " ago");
    if (r->total == 0 || !r->waits)
        return;
    xbuf_puts(out, r->waits[0].where == STATUS_NOT_REACHED
                       ? "; its work before this has not ended: "
                       : "; it waits for ");
    put_op(out, &r->waits[0]);
    if (r->total > 1)
        hb_must(hb_buf_printf(out, " and %d more", r->total - 1));
}

static const char *host_of(const struct stall_view *v, int rank)
{
    return v->plan->hosts[v->plan->ranks[rank].host].entry->name;
}

static void put_stack(struct hb_buf *out, const struct stall_suspect *s)
{
    const char *p = s->stack ? s->stack : "none came in time";

    /* The reason for a missing stack may have several lines, too. */
    while (*p) {
        size_t len = strcspn(p, "\n");

        hb_must(hb_buf_printf(out, "    %s%.*s\n",
                              s->found ? "" : "no stack: ", (int)len, p));
        p += len + (p[len] == '\n');
    }
}

static void put_suspect(struct hb_buf *out, const struct stall_view *v,
                        const struct stall_suspect *s)
{
    const struct control_stall_rank *r = &v->ranks[s->rank];

    hb_must(hb_buf_printf(out, "  rank %d on host %s", s->rank,
                          host_of(v, s->rank)));
    if (!r->pid) {
        xbuf_puts(out, ": the agent there did not answer\n");
        return;
    }
    hb_must(
        hb_buf_printf(out, " (pid %d) %s", (int)r->pid, state_text(r->state)));
    if (r->cpu_percent > 0)
        hb_must(hb_buf_printf(out, ", at %d %% of a core", r->cpu_percent));
    put_last(out, r);
    xbuf_puts(out, "\n");
    if (r->state)
        put_stack(out, s);
}

static int count_members(const struct stall_view *v)
{
    int count = 0;

    for (int rank = 0; rank < v->plan->size; rank++)
        count += !v->outside[rank];
    return count;
}

void stall_view_format(struct hb_buf *out, const struct stall_view *v)
{
    int shown = v->tensor_count < STALL_TENSORS_SHOWN ? v->tensor_count
                                                      : STALL_TENSORS_SHOWN;

    if (v->start == STALL_DESERTED)
        xbuf_puts(out, "hvdrun: start: the other ranks have ended for ");
    else if (v->start)
        xbuf_puts(out, "hvdrun: start: ranks have waited in hvd_init for ");
    else
        hb_must(hb_buf_printf(out,
                              "hvdrun: stall: %d of %d ranks wait%s for "
                              "others, for up to ",
                              v->stalled, count_members(v),
                              v->stalled == 1 ? "s" : ""));
    put_seconds(out, v->waited_ms);
    xbuf_puts(out, "\n");
    for (int i = 0; i < shown; i++)
        put_tensor(out, v, &v->tensors[i]);
    if (v->tensors_left_out)
        xbuf_puts(out, "  and many more operations\n");
    else if (v->tensor_count > shown)
        hb_must(hb_buf_printf(out, "  and %d more operations\n",
                              v->tensor_count - shown));
    for (int i = 0; i < v->suspect_count; i++)
        put_suspect(out, v, &v->suspects[i]);
    if (v->suspects_left_out)
        xbuf_puts(out, "  and more ranks\n");
}

/* Returns the operation in which the rank keeps others waiting, or waits, or
 * else the longest wait; NULL: none. */
static const struct stall_tensor *tensor_of(const struct stall_view *v,
                                            int rank)
{
    for (int i = 0; i < v->tensor_count; i++)
        if (stall_is_missing(v, &v->tensors[i], rank))
            return &v->tensors[i];
    for (int i = 0; i < v->tensor_count; i++)
        if (v->tensors[i].has[rank])
            return &v->tensors[i];
    return v->tensor_count ? &v->tensors[0] : NULL;
}

static const char *missing_text(const struct stall_tensor *t, int rank)
{
    if (t->before[rank])
        return ", its device has not come to ";
    return t->op.where ? ", it has not launched " : ", it has not issued ";
}

/* Appends the line of a stall that no rank is to blame for: the operation with
 * the longest wait, of those on a device if there are any, and who waits. */
static void put_unknown(struct hb_buf *out, const struct stall_view *v)
{
    const struct stall_tensor *t = NULL;

    for (int i = 0; i < v->tensor_count && (!t || !t->op.where); i++)
        if (v->tensors[i].waiting && (!t || v->tensors[i].op.where))
            t = &v->tensors[i];
    if (!t) {
        xbuf_puts(out, "all ranks react");
        return;
    }
    put_op(out, &t->op);
    xbuf_puts(out, ": ");
    if (t->launched)
        xbuf_puts(out, "all ranks have launched it, and ");
    put_ranks(out, v, t, is_waiting, t->waiting);
    xbuf_puts(out, t->waiting == 1 ? " waits" : " wait");
    xbuf_puts(out, t->op.where
                       ? "; all react: NCCL, a device or the network hangs"
                       : "; all react");
}

/* Appends what each suspect waits for. */
static void put_disagreement(struct hb_buf *out, const struct stall_view *v)
{
    int shown = 0;

    xbuf_puts(out, "ranks do not agree on what comes next: ");
    for (int i = 0; i < v->tensor_count; i++) {
        const struct stall_tensor *t = &v->tensors[i];

        if (!t->waiting)
            continue;
        if (shown == STALL_DISAGREED_SHOWN) {
            xbuf_puts(out, "; and more");
            return;
        }
        xbuf_puts(out, shown++ ? "; " : "");
        put_ranks(out, v, t, is_waiting, t->waiting);
        xbuf_puts(out, t->waiting == 1 ? " waits for " : " wait for ");
        put_op(out, &t->op);
    }
}

/* Appends "rank 1 (pid 4711) on host n1 has not called hvd_init; it sleeps" for
 * up to SHOWN ranks; returns the first, or -1. */
static int put_late(struct hb_buf *out, const struct stall_view *v)
{
    enum { SHOWN = 2 };

    if (v->suspect_count == 0) {
        xbuf_puts(out, v->no_answer ? v->no_answer
                                    : "all ranks have called hvd_init, and "
                                      "none is stopped");
        return -1;
    }
    for (int i = 0; i < v->suspect_count && i < SHOWN; i++) {
        int rank = v->suspects[i].rank;
        const struct control_stall_rank *r = &v->ranks[rank];

        hb_must(hb_buf_printf(out, "%srank %d", i ? "; " : "", rank));
        if (r->pid)
            hb_must(hb_buf_printf(out, " (pid %d)", (int)r->pid));
        hb_must(hb_buf_printf(
            out, " on host %s %s; it %s", host_of(v, rank),
            r->in_init ? "is in hvd_init" : "has not called hvd_init",
            r->pid ? state_text(r->state) : "could not be asked"));
    }
    if (v->suspect_count > SHOWN)
        hb_must(hb_buf_printf(out, "; and %d more%s", v->suspect_count - SHOWN,
                              v->suspects_left_out ? " at least" : ""));
    return v->suspects[0].rank;
}

int stall_view_blame(struct hb_buf *out, const struct stall_view *v)
{
    const struct control_stall_rank *r;
    const struct stall_tensor *t;
    int rank = v->suspect_count ? v->suspects[0].rank : 0;

    if (v->start)
        return put_late(out, v);
    if (v->is_unknown || v->is_disagreed) {
        if (v->is_disagreed)
            put_disagreement(out, v);
        else
            put_unknown(out, v);
        return -1;
    }
    r = &v->ranks[rank];
    t = tensor_of(v, rank);
    hb_must(hb_buf_printf(out, "rank %d", rank));
    if (r->pid)
        hb_must(hb_buf_printf(out, " (pid %d)", (int)r->pid));
    hb_must(hb_buf_printf(out, " on host %s: kept the others waiting for ",
                          host_of(v, rank)));
    put_seconds(out, v->waited_ms);
    if (t) {
        xbuf_puts(out, stall_is_missing(v, t, rank) ? missing_text(t, rank)
                                                    : " in ");
        put_op(out, &t->op);
    }
    hb_must(hb_buf_printf(
        out, "; it %s", r->pid ? state_text(r->state) : "could not be asked"));
    return rank;
}
