/* SPDX-License-Identifier: Apache-2.0 */
/* Who keeps whom waiting, and the text about it; see stall_report.h. */
#include "lib/job/stall_report.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/xbuf.h"

#include <string.h>

enum { GROUPS_MAX = 8 };

/* ---- Tensors ----------------------------------------------------------------
 */

static int same_op(const struct control_stall_op *a,
                   const struct control_stall_op *b)
{
    return a->key == b->key && a->set == b->set &&
           !a->where == !b->where; /* on the device, or not */
}

static struct stall_tensor *find_tensor(struct stall_view *v,
                                        const struct control_stall_op *op)
{
    for (int i = 0; i < v->tensor_count; i++)
        if (same_op(&v->tensors[i].op, op))
            return &v->tensors[i];
    return NULL;
}

static void sort_in(struct stall_view *v, struct stall_tensor t)
{
    int at = v->tensor_count++;

    for (; at > 0 && v->tensors[at - 1].op.age_ms < t.op.age_ms; at--)
        v->tensors[at] = v->tensors[at - 1];
    v->tensors[at] = t;
}

static void mark(const struct stall_view *v, struct stall_tensor *t,
                 const struct control_stall_op *op, int rank)
{
    uint64_t launched = v->ranks[rank].launched[op->set];

    t->before[rank] = op->where == STATUS_NOT_REACHED;
    t->has[rank] = !t->before[rank];
    if (t->has[rank] && launched < t->least)
        t->least = launched;
}

static void add_wait(struct stall_view *v, const struct control_stall_op *op,
                     int rank)
{
    struct stall_tensor *t = find_tensor(v, op);
    struct stall_tensor fresh = {.op = *op, .least = UINT64_MAX};
    size_t size = (size_t)v->plan->size;

    if (op->kind == STATUS_JOIN)
        return; /* it waits for as long as the others have data */
    if (!t && v->tensor_count == STALL_TENSORS_MAX) {
        v->tensors_left_out = 1;
        return;
    }
    if (!t) {
        fresh.has = hb_xcalloc(2, size);
        fresh.before = fresh.has + size;
        mark(v, &fresh, op, rank);
        sort_in(v, fresh);
        return;
    }
    mark(v, t, op, rank);
    if (op->age_ms > t->op.age_ms)
        t->op.age_ms = op->age_ms;
}

static int has_joined(const struct control_stall_rank *r, int set)
{
    for (int i = 0; i < r->count; i++)
        if (r->waits[i].kind == STATUS_JOIN && r->waits[i].set == set)
            return 1;
    return 0;
}

/* It is in it, but was stopped before it could list it. */
static int is_inside(const struct control_stall_rank *r,
                     const struct control_stall_op *op)
{
    return r->calls > 0 && r->inside && r->last.kind == op->kind &&
           r->last.set == op->set && strcmp(r->last.name, op->name) == 0;
}

static int is_member(const struct control_stall_rank *r,
                     const struct stall_tensor *t)
{
    return r->sets >> t->op.set & 1;
}

/* Of one on devices. */
static int has_launched(const struct control_stall_rank *r,
                        const struct stall_tensor *t)
{
    return r->known && is_member(r, t) && r->launched[t->op.set] >= t->op.key;
}

static int is_missing(const struct stall_view *v, const struct stall_tensor *t,
                      int rank)
{
    const struct control_stall_rank *r = &v->ranks[rank];

    if (t->before[rank] || !t->waiting)
        return t->waiting > 0;
    if (!r->pid) /* nothing was heard of it */
        return t->op.set == 0;
    if (!r->known)
        return t->op.set == 0 && r->state != 0;
    if (!is_member(r, t))
        return 0;
    if (t->op.where)
        return t->launched ? !has_launched(r, t) : !t->has[rank];
    return !t->has[rank] && r->launched[t->op.set] <= t->least &&
           !has_joined(r, t->op.set) && r->total == r->count &&
           !is_inside(r, &t->op);
}

static void count_ranks(const struct stall_view *v, struct stall_tensor *t)
{
    for (int rank = 0; rank < v->plan->size; rank++) {
        t->waiting += t->has[rank];
        t->launched += t->op.where && has_launched(&v->ranks[rank], t);
    }
    for (int rank = 0; rank < v->plan->size; rank++)
        t->missing += is_missing(v, t, rank);
}

/* ---- Suspects
 * ------------------------------------------------------------------ */

static void suspect(struct stall_view *v, int rank)
{
    for (int i = 0; i < v->suspect_count; i++)
        if (v->suspects[i].rank == rank)
            return;
    if (v->suspect_count == STALL_SUSPECTS_MAX)
        v->suspects_left_out = 1;
    else
        v->suspects[v->suspect_count++].rank = rank;
}

static int cannot_run(const struct control_stall_rank *r)
{
    return r->pid && r->state && strchr("TtDZX", r->state);
}

static int is_stuck(const struct control_stall_rank *r)
{
    return r->pid && r->known && !r->fresh && (r->inside || r->total > 0);
}

/* Who is missing; who cannot go on, or was not heard of; else who does not
 * react; else all that wait. */
static void find_suspects(struct stall_view *v)
{
    for (int i = 0; i < v->tensor_count; i++)
        for (int rank = 0; rank < v->plan->size; rank++)
            if (is_missing(v, &v->tensors[i], rank))
                suspect(v, rank);
    for (int rank = 0; rank < v->plan->size; rank++)
        if (!v->ranks[rank].pid || cannot_run(&v->ranks[rank]))
            suspect(v, rank);
    for (int rank = 0; v->suspect_count == 0 && rank < v->plan->size; rank++)
        if (is_stuck(&v->ranks[rank]))
            suspect(v, rank);
    if (v->suspect_count > 0)
        return;
    for (int rank = 0; rank < v->plan->size; rank++)
        if (v->ranks[rank].total > 0)
            suspect(v, rank);
    v->is_unknown = v->suspect_count != 1;
}

void stall_view_find(struct stall_view *v)
{
    for (int rank = 0; rank < v->plan->size; rank++)
        for (int i = 0; i < v->ranks[rank].count; i++)
            add_wait(v, &v->ranks[rank].waits[i], rank);
    for (int i = 0; i < v->tensor_count; i++)
        count_ranks(v, &v->tensors[i]);
    find_suspects(v);
}

void stall_view_fini(struct stall_view *v)
{
    for (int i = 0; i < v->tensor_count; i++)
        hb_free(v->tensors[i].has);
    for (int i = 0; i < v->suspect_count; i++)
        hb_free(v->suspects[i].stack);
    memset(v->suspects, 0, sizeof(v->suspects));
    v->tensor_count = v->suspect_count = 0;
    v->tensors_left_out = v->suspects_left_out = v->is_unknown = 0;
}

/* ---- Text
 * ---------------------------------------------------------------------- */

static void put_seconds(struct hb_buf *out, int64_t ms)
{
    if (ms < 100 * 1000)
        hb_must(hb_buf_printf(out, "%.1f s", (double)ms / 1e3));
    else
        hb_must(hb_buf_printf(out, "%lld s", (long long)(ms / 1000)));
}

static void put_op(struct hb_buf *out, const struct control_stall_op *op)
{
    xbuf_puts(out, status_kind_name(op->kind));
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

/* "ranks 0, 2-5, 9" */
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
        put_ranks(out, v, t, is_missing, t->missing);
    } else {
        xbuf_puts(out, t->launched ? "; all ranks have launched it"
                                   : "; no rank is missing");
    }
    xbuf_puts(out, "\n");
}

/* What the kernel says. */
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

    /* An agent's words may have several lines too. */
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

void stall_view_format(struct hb_buf *out, const struct stall_view *v)
{
    int shown = v->tensor_count < STALL_TENSORS_SHOWN ? v->tensor_count
                                                      : STALL_TENSORS_SHOWN;

    hb_must(hb_buf_printf(out,
                          "hvdrun: stall: %d of %d ranks wait%s for others, "
                          "for up to ",
                          v->stalled, v->plan->size,
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

/* What a rank keeps the others waiting in, or is in itself; NULL: nothing is
 * known of. */
static const struct stall_tensor *tensor_of(const struct stall_view *v,
                                            int rank)
{
    for (int i = 0; i < v->tensor_count; i++)
        if (is_missing(v, &v->tensors[i], rank))
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

/* All react, and none is missing anywhere: on devices, if it is there. */
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

int stall_view_blame(struct hb_buf *out, const struct stall_view *v)
{
    const struct control_stall_rank *r;
    const struct stall_tensor *t;
    int rank = v->suspect_count ? v->suspects[0].rank : 0;

    if (v->is_unknown) {
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
        xbuf_puts(out, is_missing(v, t, rank) ? missing_text(t, rank) : " in ");
        put_op(out, &t->op);
    }
    hb_must(hb_buf_printf(
        out, "; it %s", r->pid ? state_text(r->state) : "could not be asked"));
    return rank;
}
