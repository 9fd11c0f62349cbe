/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which ranks keep others waiting; see stall_report.h. */
#include "lib/job/stall/stall_report.h"

#include "lib/base/alloc.h"

#include <string.h>

/* ---- Tensors ---- */

static int same_op(const struct control_stall_op *a,
                   const struct control_stall_op *b)
{
    return a->key == b->key && a->set == b->set &&
           !a->where == !b->where; /* both on the device, or both not */
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
    uint64_t carried_out = v->ranks[rank].carried_out[op->set];

    t->before[rank] = op->where == STATUS_NOT_REACHED;
    t->has[rank] = !t->before[rank];
    if (t->has[rank] && launched < t->least_launched)
        t->least_launched = launched;
    if (t->has[rank] && carried_out < t->least_carried_out)
        t->least_carried_out = carried_out;
}

static void add_wait(struct stall_view *v, const struct control_stall_op *op,
                     int rank)
{
    struct stall_tensor *t = find_tensor(v, op);
    struct stall_tensor fresh = {.op = *op,
                                 .least_launched = UINT64_MAX,
                                 .least_carried_out = UINT64_MAX};
    size_t size = (size_t)v->plan->size;

    if (op->kind == STATUS_JOIN)
        return; /* a join waits as long as other ranks have data */
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

/* Returns whether the rank is in the operation, but did not list it in time. */
static int is_inside(const struct control_stall_rank *r,
                     const struct control_stall_op *op)
{
    return r->calls > 0 && r->inside && r->last.kind == op->kind &&
           r->last.set == op->set && strcmp(r->last.name, op->name) == 0;
}

int stall_is_member(const struct control_stall_rank *r,
                    const struct stall_tensor *t)
{
    return r->sets[t->op.set / 64] >> t->op.set % 64 & 1;
}

/* Returns whether the agent has sent no report about a rank that has not
 * ended. */
static int is_unheard(const struct stall_view *v, int rank)
{
    return !v->ranks[rank].pid && !v->gone[rank];
}

/* Returns whether the rank has launched the operation, one on devices. */
static int has_launched(const struct control_stall_rank *r,
                        const struct stall_tensor *t)
{
    return r->known && stall_is_member(r, t) &&
           r->launched[t->op.set] >= t->op.key;
}

int stall_is_missing(const struct stall_view *v, const struct stall_tensor *t,
                     int rank)
{
    const struct control_stall_rank *r = &v->ranks[rank];

    if (v->outside[rank])
        return 0;
    if (t->before[rank] || !t->waiting)
        return t->waiting > 0;
    if (is_unheard(v, rank))
        return t->op.set == 0;
    if (!r->known)
        return t->op.set == 0 && r->state != 0;
    if (!stall_is_member(r, t))
        return 0;
    if (t->op.where)
        return t->launched ? !has_launched(r, t) : !t->has[rank];
    return !t->has[rank] && r->launched[t->op.set] <= t->least_launched &&
           r->carried_out[t->op.set] <= t->least_carried_out &&
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
        t->missing += stall_is_missing(v, t, rank);
}

/* ---- Suspects ---- */

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

/* Returns whether the rank waits for others, and could go on if they came.  The
 * waits that a rank reported before it ceased to react may be over. */
static int waits(const struct stall_view *v, int rank)
{
    const struct control_stall_rank *r = &v->ranks[rank];

    if (!r->pid || cannot_run(r) || is_stuck(r))
        return 0;
    for (int i = 0; i < v->tensor_count; i++)
        if (v->tensors[i].has[rank])
            return 1;
    return 0;
}

static void suspect_missing(struct stall_view *v, int that_wait)
{
    for (int i = 0; i < v->tensor_count; i++)
        for (int rank = 0; rank < v->plan->size; rank++)
            if (stall_is_missing(v, &v->tensors[i], rank) &&
                waits(v, rank) == that_wait)
                suspect(v, rank);
}

/* Lists missing ranks that do not wait; ranks that cannot run or have not
 * answered; other missing ranks; else who does not react; else who waits. */
static void find_suspects(struct stall_view *v)
{
    suspect_missing(v, 0);
    for (int rank = 0; rank < v->plan->size; rank++)
        if (!v->outside[rank] &&
            (is_unheard(v, rank) || cannot_run(&v->ranks[rank])))
            suspect(v, rank);
    v->hanging = v->suspect_count;
    v->is_disagreed = v->suspect_count == 0;
    suspect_missing(v, 1);
    v->is_disagreed &= v->suspect_count > 0;
    for (int rank = 0; v->suspect_count == 0 && rank < v->plan->size; rank++)
        if (!v->outside[rank] && is_stuck(&v->ranks[rank]))
            suspect(v, rank);
    if (v->hanging == 0 && !v->is_disagreed)
        v->hanging = v->suspect_count;
    if (v->suspect_count > 0)
        return;
    for (int rank = 0; rank < v->plan->size; rank++)
        if (!v->outside[rank] && v->ranks[rank].total > 0)
            suspect(v, rank);
    v->is_unknown = v->suspect_count != 1;
}

/* Lists the ranks that have not called hvd_init or cannot run there. */
static void find_late(struct stall_view *v)
{
    for (int rank = 0; rank < v->plan->size; rank++) {
        const struct control_stall_rank *r = &v->ranks[rank];

        if (is_unheard(v, rank) || cannot_run(r) || (!r->in_init && r->state))
            suspect(v, rank);
    }
    v->is_unknown = v->suspect_count == 0;
}

int stall_view_is_deserted(const struct stall_view *v)
{
    int stopped = 0;

    for (int rank = 0; rank < v->plan->size; rank++) {
        const struct control_stall_rank *r = &v->ranks[rank];

        if (is_unheard(v, rank) ||
            (r->state && (r->state != 'T' || !r->in_init || r->calls > 0)))
            return 0;
        stopped += r->state == 'T';
    }
    return stopped > 0;
}

void stall_view_find(struct stall_view *v)
{
    if (v->start) {
        find_late(v);
        return;
    }
    for (int rank = 0; rank < v->plan->size; rank++)
        for (int i = 0; !v->outside[rank] && i < v->ranks[rank].count; i++)
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
    v->tensors_left_out = v->suspects_left_out = 0;
    v->is_unknown = v->is_disagreed = v->hanging = 0;
}
