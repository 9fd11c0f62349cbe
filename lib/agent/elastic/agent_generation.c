/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's part in elastic jobs (control_generation.h): passes messages
 * between hvdrun and the endpoint, and starts ranks again. */
#include "lib/agent/agent_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* Tells hvdrun once that the generation has committed a state. */
static void tell_progress(struct agent *a)
{
    const struct endpoint *e = &a->endpoint;

    if (!e->head || a->told_progress == e->head_epoch ||
        !atomic_load_explicit(&e->head->committed, memory_order_relaxed))
        return;
    a->told_progress = e->head_epoch;
    hb_must(control_encode_u32(&a->link.out, CONTROL_PROGRESS, e->head_epoch));
}

void agent_on_ready(void *arg, int slot, int ready)
{
    struct agent *a = arg;

    if (a->gone)
        return;
    tell_progress(a);
    hb_must(control_encode_ready(&a->link.out, a->job.ranks[slot].rank, ready));
    link_flush(&a->link);
}

int agent_on_generation(struct agent *a, const struct frame *f,
                        struct hb_error *err)
{
    struct control_generation m;
    int rc = control_decode_generation(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (a->endpoint_open)
        rc = endpoint_generation(&a->endpoint, &m, err);
    control_generation_fini(&m);
    return rc;
}

int agent_on_change(struct agent *a, const struct frame *f,
                    struct hb_error *err)
{
    uint32_t generation;
    int rc = control_decode_u32(f->payload, f->len, &generation, err);

    if (rc == 0 && a->endpoint_open)
        endpoint_change(&a->endpoint, generation);
    return rc;
}

int agent_on_hosts(struct agent *a, const struct frame *f, struct hb_error *err)
{
    if (!a->job.spec.elastic)
        return hb_error_set(err, HVD_EPROTO, "the job's hosts cannot change");
    route_close(a->route);
    return control_decode_hosts(f->payload, f->len, &a->job, err);
}

int agent_on_notice(struct agent *a, const struct frame *f,
                    struct hb_error *err)
{
    uint32_t left_ms;
    int rank;
    int rc = control_decode_notice(f->payload, f->len, &rank, &left_ms, err);

    if (rc == 0 && a->endpoint_open)
        endpoint_notice(&a->endpoint, (uint32_t)rank,
                        left_ms == CONTROL_LEFT_ANY
                            ? UINT64_MAX
                            : hb_now_ns() + left_ms * UINT64_C(1000000));
    return rc;
}

void agent_forget_end(struct agent_rank *r)
{
    hb_free(r->fault.text);
    hb_free(r->evicted);
    memset(&r->fault, 0, sizeof(r->fault));
    r->evicted = NULL;
}

/* Returns the slot of a rank of the plan, or -1. */
static int find_slot(const struct agent *a, uint32_t rank)
{
    for (int i = 0; i < a->job.rank_count; i++)
        if ((uint32_t)a->job.ranks[i].rank == rank)
            return i;
    return -1;
}

void agent_end_group(struct agent *a, int slot)
{
    struct agent_rank *r = &a->ranks[slot];
    siginfo_t info = {0};

    /* Until the rank is reaped, nothing else can have its process group. */
    if (a->job.spec.elastic && a->state == AGENT_RUNNING &&
        waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == r->pid &&
        (info.si_code != CLD_EXITED || info.si_status != 0))
        kill(-r->pid, SIGKILL);
}

/* Tells hvdrun that the rank has not come to life again. */
static void report_unstarted(struct agent *a, int slot,
                             const struct control_failed *failed)
{
    struct control_exited m = {
        .rank = a->job.ranks[slot].rank,
        .exit_code = failed->exit_code,
        .detail = failed->text,
        .when_ns = hb_now_ns(),
    };

    if (!a->gone)
        control_encode_exited(&a->link.out, &m);
    link_flush(&a->link);
}

int agent_on_removed(struct agent *a, const struct frame *f,
                     struct hb_error *err)
{
    char why[WORKER_TEXT_MAX];
    struct control_failed none = {0, why};
    int rank, slot;
    int rc =
        control_decode_abort(f->payload, f->len, &rank, why, sizeof(why), err);

    if (rc < 0 || !a->endpoint_open)
        return rc;
    endpoint_removed(&a->endpoint, (uint32_t)rank, why);
    slot = find_slot(a, (uint32_t)rank);
    if (slot >= 0 && a->ranks[slot].is_awaited) {
        a->ranks[slot].is_awaited = 0;
        report_unstarted(a, slot, &none);
    }
    return 0;
}

int agent_on_evict(struct agent *a, const struct frame *f, struct hb_error *err)
{
    char why[WORKER_TEXT_MAX];
    struct control_failed failed = {128 + SIGKILL, why};
    struct agent_rank *r;
    int rank, slot;
    int rc =
        control_decode_abort(f->payload, f->len, &rank, why, sizeof(why), err);

    if (rc < 0 || !a->endpoint_open)
        return rc;
    slot = find_slot(a, (uint32_t)rank);
    if (slot < 0 || a->ranks[slot].pidfd < 0 || a->state != AGENT_RUNNING)
        return 0;
    r = &a->ranks[slot];
    if (!r->is_reported) {
        hb_free(r->evicted);
        r->evicted = hb_xstrdup(why);
        kill(-r->pid, SIGKILL);
    } else if (r->is_awaited) {
        r->is_awaited = 0;
        report_unstarted(a, slot, &failed);
    }
    return 0;
}

/* Returns the slot of a rank that has ended or was idle, and may be started, or
 * -1. */
static int find_ended(const struct agent *a, uint32_t rank)
{
    int slot = find_slot(a, rank);

    return slot >= 0 && a->endpoint.slots[slot].gone &&
                   (a->ranks[slot].pidfd < 0 || a->ranks[slot].is_reported)
               ? slot
               : -1;
}

void agent_start_again(struct agent *a, int slot)
{
    struct control_failed failed;
    char ending[] = "its host was ending its ranks";

    if (a->state != AGENT_RUNNING) {
        failed = (struct control_failed){128 + SIGTERM, ending};
        report_unstarted(a, slot, &failed);
        return;
    }
    pump_reset(&a->pump, slot);
    a->job.ranks[slot].stdin_open = 0; /* hvdrun has no more input for it */
    a->job.ranks[slot].is_idle = 0;
    a->ranks[slot].sent = 0;
    agent_forget_end(&a->ranks[slot]);
    endpoint_rank_restarted(&a->endpoint, slot);
    if (agent_launch_again(a, slot, &failed) == 0)
        return;
    endpoint_rank_ended(&a->endpoint, slot, 1, failed.text);
    report_unstarted(a, slot, &failed);
    control_failed_fini(&failed);
}

int agent_on_restart(struct agent *a, const struct frame *f,
                     struct hb_error *err)
{
    uint32_t rank;
    int rc = control_decode_u32(f->payload, f->len, &rank, err), slot;

    if (rc < 0)
        return rc;
    slot = a->launch ? find_ended(a, rank) : -1;
    if (slot < 0)
        return hb_error_set(err, HVD_EPROTO, "rank %u cannot be restarted",
                            rank);
    if (!a->ranks[slot].is_reported) {
        agent_start_again(a, slot);
        return 0;
    }
    /* The last process still has memory, and perhaps GPUs. */
    a->ranks[slot].is_awaited = 1;
    hb_log(&a->log, HB_LOG_INFO, "rank %u starts again when pid %d has ended",
           rank, (int)a->ranks[slot].pid);
    return 0;
}
