/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's part of the stall inspector: it passes on that a rank waits too
 * long, and answers where its ranks are.
 *
 * The question first wakes the ranks that sleep in the library, which then
 * write their status anew; those that sleep on connections wake up by
 * themselves within a quarter of a second (runtime/plane/tcp/tcp.c).  The
 * answer is what is there SETTLE_MS later, so that it includes ranks that are
 * stopped or spin.  Meanwhile each rank's CPU use is measured.  Stacks are
 * taken one after the other.
 *
 * None of this runs while no rank waits.
 */
#include "lib/agent/agent_impl.h"

#include "lib/agent/rank/tree.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <string.h>
#include <time.h>

enum { SETTLE_MS = 350 };

/* Sends what could not be sent before.  Only each rank's last STALLED is kept,
 * so that a rank that repeats it does not fill our memory. */
void agent_stall_flush(struct agent *a)
{
    struct agent_stall *s = &a->stall;

    for (int i = 0; s->unsent > 0 && i < a->job.rank_count; i++) {
        const struct agent_stall_report *t = &s->reports[i];
        const struct control_stalled m = {
            .rank = a->job.ranks[i].rank,
            .waited_ms = t->m.waited_ms,
            .warning_ms = t->m.warning_ms,
            .shutdown_ms = t->m.shutdown_ms,
        };

        if (!t->unsent)
            continue;
        if (link_full(&a->link))
            return;
        hb_must(control_encode_stalled(&a->link.out, &m));
        s->reports[i].unsent = 0;
        s->unsent--;
    }
}

void agent_on_stalled(void *arg, int slot, const struct worker_stalled *m)
{
    struct agent *a = arg;
    struct agent_stall *s = &a->stall;

    if (a->gone || a->state != AGENT_RUNNING)
        return;
    if (!s->reports)
        s->reports = hb_xcalloc((size_t)a->job.rank_count, sizeof(*s->reports));
    s->unsent += !s->reports[slot].unsent;
    s->reports[slot].unsent = 1;
    s->reports[slot].m = *m;
    agent_stall_flush(a);
    link_flush(&a->link);
}

/* Passes on a rank's first LATE only: hvdrun ends the job for it. */
void agent_on_late(void *arg, int slot, uint32_t ms)
{
    struct agent *a = arg;
    const struct control_late m = {a->job.ranks[slot].rank, ms};

    if (a->gone || a->state != AGENT_RUNNING || a->endpoint.slots[slot].late)
        return;
    a->endpoint.slots[slot].late = 1;
    hb_must(control_encode_late(&a->link.out, &m));
    link_flush(&a->link);
}

void agent_on_no_answer(void *arg, int slot, int peer)
{
    struct agent *a = arg;
    const struct control_no_answer m = {a->job.ranks[slot].rank, peer};

    if (a->gone || a->state != AGENT_RUNNING)
        return;
    hb_must(control_encode_no_answer(&a->link.out, &m));
    link_flush(&a->link);
}

/* ---- Where the ranks are ------------------------------------------------- */

/* Returns the process that has called hvd_init, which may be a child of the
 * rank's process (a shell); else the rank's own; 0 if the rank has ended. */
static pid_t process_of(const struct agent *a, int slot)
{
    pid_t pid = a->ranks[slot].pid;
    struct tree_proc p;

    if (a->ranks[slot].pidfd < 0)
        return 0;
    if (a->endpoint_open && a->endpoint.slots[slot].conn &&
        tree_stat(a->endpoint.slots[slot].pid, &p) && p.pgrp == pid)
        return p.pid;
    return pid;
}

/* Returns the CPU time of all threads; 0 if the kernel does not tell. */
static uint64_t cpu_used_ns(pid_t pid)
{
    struct timespec ts;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) < 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct segment_status *agent_status_of(struct agent *a, int slot)
{
    struct segment_head *head = a->endpoint_open ? a->endpoint.head : NULL;
    int index = head ? members_place(&a->endpoint.members, slot) : -1;

    /* A rank that has not joined this segment's epoch has no status in it. */
    if (index < 0 || a->endpoint.slots[slot].epoch == 0 ||
        a->endpoint.slots[slot].waiting ||
        (uint32_t)index >= a->endpoint.head_ranks)
        return NULL;
    return segment_status(head, a->endpoint.head_ranks, (uint32_t)index);
}

static void fill_op(struct control_stall_op *out,
                    const struct status_view_op *op, uint64_t now_ns)
{
    uint64_t age_ms =
        op->when_ns < now_ns ? (now_ns - op->when_ns) / 1000000 : 0;

    out->age_ms =
        age_ms < CONTROL_STALL_MAX_MS ? (int64_t)age_ms : CONTROL_STALL_MAX_MS;
    out->key = op->key;
    out->kind = op->kind;
    out->set = op->set;
    out->where = op->where;
    memcpy(out->name, op->name, sizeof(out->name));
}

static void fill_status(struct control_stall_rank *r,
                        const struct segment_status *s, uint64_t now_ns)
{
    struct status_view v;

    status_read(s, &v);
    r->known = 1;
    r->fresh = v.fresh;
    r->inside = v.inside;
    r->calls = v.calls < INT64_MAX ? (int64_t)v.calls : INT64_MAX;
    if (v.calls)
        fill_op(&r->last, &v.call, now_ns);
    memcpy(r->sets, v.sets, sizeof(r->sets));
    r->total = v.total < INT32_MAX ? (int)v.total : INT32_MAX;
    r->count = v.count;
    if (v.count)
        r->waits = hb_xcalloc((size_t)v.count, sizeof(*r->waits));
    for (int i = 0; i < v.count; i++)
        fill_op(&r->waits[i], &v.waits[i], now_ns);
    memcpy(r->launched, v.launched, sizeof(r->launched));
    memcpy(r->carried_out, v.carried_out, sizeof(r->carried_out));
}

static void fill_rank(struct agent *a, int slot, struct control_stall_rank *r,
                      uint64_t now_ns)
{
    pid_t pid = process_of(a, slot);
    uint64_t passed_ns = now_ns - a->stall.since_ns, used_ns;
    const struct segment_status *s = agent_status_of(a, slot);
    struct tree_proc p;

    r->rank = a->job.ranks[slot].rank;
    r->pid = pid ? pid : a->ranks[slot].pid;
    r->cpu_percent = -1;
    r->in_init = a->endpoint_open && a->endpoint.slots[slot].epoch != 0;
    if (pid && tree_stat(pid, &p)) {
        used_ns = cpu_used_ns(pid);
        r->state = (unsigned char)p.state;
        if (used_ns >= a->stall.cpu_ns[slot] && used_ns && passed_ns)
            r->cpu_percent =
                (int)((used_ns - a->stall.cpu_ns[slot]) * 100 / passed_ns);
    }
    if (s)
        fill_status(r, s, now_ns);
}

static void on_settled(uv_timer_t *timer)
{
    struct agent *a = timer->data;
    struct control_stall_ranks m = {.id = a->stall.id,
                                    .count = a->job.rank_count};
    uint64_t now_ns = hb_now_ns();

    a->stall.id = 0;
    if (a->gone || !a->ranks)
        return;
    m.ranks = hb_xcalloc((size_t)m.count, sizeof(*m.ranks));
    for (int i = 0; i < m.count; i++)
        fill_rank(a, i, &m.ranks[i], now_ns);
    hb_must(control_encode_stall_ranks(&a->link.out, &m));
    link_flush(&a->link);
    control_stall_ranks_fini(&m);
}

static void ask_ranks(struct agent *a, int id)
{
    struct agent_stall *s = &a->stall;

    s->id = id;
    s->since_ns = hb_now_ns();
    if (!s->cpu_ns)
        s->cpu_ns = hb_xcalloc((size_t)a->job.rank_count, sizeof(*s->cpu_ns));
    for (int i = 0; i < a->job.rank_count; i++) {
        struct segment_status *status = agent_status_of(a, i);

        pid_t pid = process_of(a, i);

        s->cpu_ns[i] = pid ? cpu_used_ns(pid) : 0;
        if (!status)
            continue;
        atomic_fetch_add(&status->asked, 1);
        segment_wake(a->endpoint.head,
                     (uint32_t)members_place(&a->endpoint.members, i));
    }
    uv_timer_start(&s->timer, on_settled, SETTLE_MS, 0);
}

/* ---- Stacks
 * ------------------------------------------------------------------ */

static void next_stack(struct agent *a);

static void send_stack(struct agent *a, int found, const char *text)
{
    const struct control_stall_stack m = {
        .id = a->stall.ask.id,
        .rank = a->stall.ask.ranks[a->stall.at++],
        .found = found,
        .text = (char *)text,
    };

    if (a->gone)
        return;
    hb_must(control_encode_stall_stack(&a->link.out, &m));
    link_flush(&a->link);
}

static void on_stack(void *arg, int found, const char *text)
{
    struct agent *a = arg;

    stack_close(a->stall.stack);
    a->stall.stack = NULL;
    send_stack(a, found, text);
    next_stack(a);
}

static pid_t pid_of(const struct agent *a, int rank)
{
    for (int i = 0; i < a->job.rank_count; i++)
        if (a->job.ranks[i].rank == rank)
            return process_of(a, i);
    return 0;
}

static void next_stack(struct agent *a)
{
    struct agent_stall *s = &a->stall;
    struct stack_config config = {.loop = a->config.loop,
                                  .path = a->stall.path,
                                  .on_done = on_stack,
                                  .arg = a};
    const char *why = "it has ended";

    while (s->at < s->ask.count) {
        config.pid = pid_of(a, s->ask.ranks[s->at]);
        if (a->state == AGENT_RUNNING && config.pid)
            s->stack = stack_open(&config, &why);
        if (s->stack)
            return;
        send_stack(a, 0, why);
    }
}

/* ---- Orders
 * -------------------------------------------------------------------- */

int agent_on_stall_ask(struct agent *a, const struct frame *f,
                       struct hb_error *err)
{
    struct agent_stall *s = &a->stall;
    struct control_stall_ask m;
    int rc = control_decode_stall_ask(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (m.count == 0) {
        ask_ranks(a, m.id);
        return 0;
    }
    /* The stacks of an earlier question are not wanted any more. */
    stack_close(s->stack);
    s->stack = NULL;
    s->ask = m;
    s->at = 0;
    next_stack(a);
    return 0;
}

void agent_stall_init(struct agent *a)
{
    uv_timer_init(a->config.loop, &a->stall.timer);
    a->stall.timer.data = a;
}

void agent_stall_close(struct agent *a)
{
    uv_close((uv_handle_t *)&a->stall.timer, NULL);
    stack_close(a->stall.stack);
    a->stall.stack = NULL;
}

void agent_stall_fini(struct agent *a)
{
    hb_free(a->stall.reports);
    hb_free(a->stall.cpu_ns);
    hb_free(a->stall.path);
}
