/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent does when the wire-up opens, closes or ends the job; see
 * lib/agent/wireup/wireup.h. */
#include "lib/agent/agent_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <string.h>

static void on_open(void *arg, const struct hb_error *err)
{
    struct agent *a = arg;
    int rc;

    if (a->state != AGENT_PREPARING)
        return;
    rc = err ? agent_launch_failed(a, err) : agent_launch_ranks(a);
    agent_post(a, rc < 0 ? AGENT_LAUNCH_FAILED : AGENT_LAUNCHED);
}

static void on_settled(void *arg, int slot, enum wireup_end how)
{
    agent_rank_settled(arg, slot, how);
}

static void on_closed(void *arg)
{
    agent_check_empty(arg);
}

void agent_fault(struct agent *a, int slot, const struct wireup_abort *m)
{
    struct agent_rank *r = &a->ranks[slot];

    if (r->fault.text)
        return;
    r->fault.text = hb_xstrdup(m->text);
    r->fault.exit_code = m->exit_code;
    r->fault.blames = m->blames;
}

/* Ends the job because the wire-up itself has failed, as signals.c does. */
static void quit(struct agent *a, const char *why)
{
    if (!a->gone)
        frame_encode(&a->link.out, CONTROL_QUITTING, why, strlen(why));
    agent_post(a, AGENT_KILL);
}

/* Kills the ranks with a fault that have not ended by themselves. */
static void on_fault_time(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    for (int i = 0; i < a->job.rank_count; i++) {
        struct agent_rank *r = &a->ranks[i];

        if (!r->fault.text || r->pidfd < 0)
            continue;
        r->sent |= (uint64_t)1 << SIGKILL;
        kill(-r->pid, SIGKILL);
    }
}

/* Returns 1 + the rank whose fault came before this one's, or 0. */
static int first_fault(const struct agent *a, int slot)
{
    for (int i = 0; i < a->job.rank_count; i++)
        if (i != slot && a->ranks[i].fault.text && !a->ranks[i].fault.blames)
            return 1 + a->job.ranks[i].rank;
    return 0;
}

/* Notes the rank's fault: its end, which follows, ends the job.  A later fault
 * blames the first, whose process may end last: that of MPICH 5 waits to be
 * killed, and others see that it has left. */
static void on_abort(void *arg, const struct wireup_abort *m)
{
    struct wireup_abort fault = *m;
    struct agent *a = arg;

    if (a->state != AGENT_RUNNING)
        return; /* the job ends already */
    if (m->slot < 0) {
        quit(a, m->text);
        return;
    }
    if (!fault.blames)
        fault.blames = first_fault(a, m->slot);
    agent_fault(a, m->slot, &fault);
    if (!uv_is_active((uv_handle_t *)&a->fault_timer))
        uv_timer_start(&a->fault_timer, on_fault_time, AGENT_FAULT_MS, 0);
}

const struct wireup_events agent_wireup_events = {
    .on_open = on_open,
    .on_settled = on_settled,
    .on_abort = on_abort,
    .on_closed = on_closed,
};

void agent_report_unstarted(struct agent *a)
{
    char detail[] = "ended before it was started";
    struct control_exited m = {
        .exit_code = 128 + SIGTERM,
        .signal = SIGTERM,
        .cause = CONTROL_CAUSE_HVDRUN,
        .detail = detail,
        .when_ns = hb_now_ns(),
    };

    if (!a->launch || a->failure.text || a->gone)
        return;
    for (int i = 0; i < a->job.rank_count; i++) {
        m.rank = a->job.ranks[i].rank;
        if ((a->ranks[i].pid == 0 && !a->job.ranks[i].is_idle) ||
            a->ranks[i].is_awaited)
            control_encode_exited(&a->link.out, &m);
    }
}
