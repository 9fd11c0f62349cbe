/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of a plane: how they are noticed, and what follows.
 *
 * NCCL often notices the death of a peer before the base does, but cannot say
 * which peer.  So when NCCL fails, the base gets a while to name a rank before
 * NCCL's own error is reported.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/sys/clock.h"

#include <stdio.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define CULPRIT_NS SECOND_NS
/* A peer's leaving is tolerated so long, or as long as the oldest launch had
 * run by then, if that is longer. */
#define LEFT_NS (2 * SECOND_NS)
/* Shorter waits are not reported. */
#define TELL_NS (SECOND_NS / 20)
/* hvdrun needs a second to find out which rank keeps the others waiting, and
 * more for a report with stacks before it ends the job. */
#define ANSWER_NS (5 * SECOND_NS)
#define JOB_ENDS_NS (10 * SECOND_NS)
#define ABORT_NS (5 * SECOND_NS)

const char *nc_host_text(const struct nc_plane *p, int member, char *out,
                         size_t size)
{
    const char *host = p->config.host_of
                           ? p->config.host_of(p->config.host_arg, member)
                           : NULL;

    snprintf(out, size, "%s%s", host ? " on host " : "", host ? host : "");
    return out;
}

void nc_name_member(const struct nc_plane *p, int member, struct hb_error *err)
{
    const char *host = p->config.host_of
                           ? p->config.host_of(p->config.host_arg, member)
                           : NULL;

    err->rank = p->ranks[member];
    snprintf(err->host, sizeof(err->host), "%s", host ? host : "");
}

int nc_failure(struct nc_plane *p, struct hb_error *err)
{
    int rc;

    pthread_mutex_lock(&p->lock);
    rc = p->failed.status;
    if (rc < 0 && err)
        *err = p->failed;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Aborts the communicators, waits for what these did on the device, then sets
 * p->failed to err and wakes those that wait.  The events of aborted kernels
 * fire as if these had succeeded; the caller has set is_ending, so that nobody
 * believes them. */
static void end_plane(struct nc_plane *p, const struct hb_error *err)
{
    uint64_t deadline_ns = hb_now_ns() + ABORT_NS;

    nc_comms_abort(p, deadline_ns);
    if (p->is_connected && nc_enter(NULL) == 0) {
        nc_drain_aborted(p, deadline_ns);
        nc_leave();
    }
    /* First, as a thread that sees the failure may look at the report. */
    nc_wait_ended(p);
    pthread_mutex_lock(&p->lock);
    p->failed = *err;
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->is_failed, 1);
    nc_wake(&p->wake);
    p->base->ops->interrupt(p->base);
}

int nc_fail(struct nc_plane *p, struct hb_error *err)
{
    uint64_t paused_ns = 0;
    int is_first;

    pthread_mutex_lock(&p->lock);
    is_first = !p->is_ending;
    p->is_ending = 1;
    pthread_mutex_unlock(&p->lock);
    if (is_first)
        end_plane(p, err);
    while (nc_failure(p, err) == 0) /* another thread is about to set the
                                      reason */
        nc_pause(&paused_ns, &p->wake);
    return err->status;
}

int nc_is_harmless(const struct nc_run *run, int rc)
{
    if (run->fails_alike || run->stage == NC_HOST)
        return 1;
    return (rc == -HVD_EMISMATCH || hvd__op_alone(run->op, rc)) &&
           (run->stage == NC_AGREE || run->stage == NC_FLIGHT);
}

void nc_note_error(struct nc_plane *p, struct hb_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (!p->suspect.status) {
        p->suspect = *err;
        p->suspect_ns = hb_now_ns();
    }
    pthread_mutex_unlock(&p->lock);
    hb_error_clear(err);
}

/* Collects errors that NCCL had between calls. */
static void poll_comms(struct nc_plane *p)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = nc_lock(p, &err);

    if (rc < 0)
        return;
    for (int i = 0; i < p->nstreams * NC_COMMS && rc >= 0; i++)
        rc = nc_comm_poll(p, p->streams[i / NC_COMMS].comm[i % NC_COMMS], &err);
    nc_unlock();
    if (rc < 0)
        nc_note_error(p, &err);
}

static int has_passed(uint64_t now_ns, uint64_t since_ns, uint64_t limit_ns)
{
    return now_ns > since_ns && now_ns - since_ns > limit_ns;
}

/* ---- What lasts ------------------------------------------------------------
 */

/* Returns the event that tells whether the device has reached a launch; NULL:
 * unknown, as its slot is reused, or may be by the next launch. */
static CUevent reached_of(const struct nc_plane *p, uint64_t launch)
{
    const struct nc_launch *l = nc_launch_slot(p, launch);
    uint64_t slots = NC_RING * (uint64_t)p->nused;

    return l->number == launch && p->launched + 1 - launch < slots ? l->reached
                                                                   : NULL;
}

/* Finds what the plane waits for: the oldest launch that has not ended, or
 * with since_ns the driver's operation; 0: nothing. */
static int find_wait(struct nc_plane *p, uint64_t since_ns, struct nc_wait *w)
{
    struct nc_launch *l;

    pthread_mutex_lock(&p->lock);
    *w = (struct nc_wait){.since_ns = since_ns};
    w->number = p->is_ending ? 0 : nc_launch_oldest(p);
    w->is_launched = w->number != 0;
    if (w->is_launched) {
        w->since_ns = nc_launch_since(p, w->number);
        w->reached = reached_of(p, w->number);
        l = nc_launch_slot(p, w->number);
        if (l->number == w->number) { /* its slot is not reused */
            w->kind = l->kind;
            memcpy(w->name, l->name, sizeof(w->name));
        }
    } else if (since_ns) {
        w->number = p->launched + 1;
        w->kind = p->run.op->kind;
        snprintf(w->name, sizeof(w->name), "%s", p->run.op->name);
    }
    pthread_mutex_unlock(&p->lock);
    return w->since_ns != 0;
}

/* Reports a wait to config.waits.  Another thread may see it end just then and
 * report the end first; so checks afterwards, and reports the end again. */
static void tell_wait(struct nc_plane *p, const struct nc_wait *w)
{
    const struct hvd__gpu_wait report = {
        .number = w->number,
        .since_ns = w->since_ns,
        .kind = w->kind,
        .name = w->name,
        .is_reached = !w->is_own,
        .limit_ms = nc_world.limit_s < UINT32_MAX / 1000
                        ? (uint32_t)nc_world.limit_s * 1000
                        : UINT32_MAX,
    };
    int is_over;

    if (!p->config.waits)
        return;
    p->config.waits(p->config.stall_arg, &report);
    atomic_store(&p->has_reported_wait, 1);
    pthread_mutex_lock(&p->lock);
    is_over = p->is_ending || nc_launch_is_over(p, w->number);
    pthread_mutex_unlock(&p->lock);
    if (is_over)
        p->config.waits(p->config.stall_arg, NULL);
}

void nc_wait_ended(struct nc_plane *p)
{
    if (atomic_load(&p->has_reported_wait) &&
        atomic_exchange(&p->has_reported_wait, 0))
        p->config.waits(p->config.stall_arg, NULL);
}

/* Returns whether the plane may wait longer, until hvdrun has named the culprit
 * or has ended the job. */
static int may_wait(struct nc_plane *p, const struct nc_wait *w,
                    uint64_t over_ns, struct hb_error *culprit)
{
    int rc = p->config.culprit && !w->is_own
                 ? p->config.culprit(p->config.stall_arg, w->since_ns, culprit)
                 : -1;

    if (rc < 0)
        return 0;
    if (nc_world.ends_job)
        return over_ns < JOB_ENDS_NS;
    return rc == 0 && over_ns < ANSWER_NS;
}

static int is_pending(CUevent event)
{
    return event && hvd__cuda.EventQuery(event) == CUDA_ERROR_NOT_READY;
}

/* Returns the likely culprit: with two ranks, the other one. */
static const char *who_hangs(const struct nc_plane *p, char *out, size_t size)
{
    char host[80];
    int other = 1 - p->me;

    if (p->n != 2)
        return p->n == 1 ? "this rank" : "another rank";
    snprintf(out, size, "rank %d%s", p->ranks[other],
             nc_host_text(p, other, host, sizeof(host)));
    return out;
}

/* Notes which streams the device has not reached, as work of the caller's
 * before them does not end. */
static void note_late(struct nc_plane *p)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->nused; i++) {
        uint64_t launch = nc_launch_next(p, i);
        CUevent reached = launch <= p->launched ? reached_of(p, launch) : NULL;

        p->streams[i].is_late = is_pending(reached);
    }
    pthread_mutex_unlock(&p->lock);
}

static int give_up(struct nc_plane *p, const struct nc_wait *w,
                   const struct hb_error *culprit, struct hb_error *err)
{
    char who[128];
    const char *mark = w->name[0] ? "\"" : "", *space = w->name[0] ? " " : "";

    if (w->is_own) {
        nc_name_member(p, p->me, err);
        note_late(p);
    }
    for (int i = 0; i < p->n && culprit->status; i++)
        if (p->ranks[i] == culprit->rank)
            nc_name_member(p, i, err);
    hb_error_set(err, HVD_ETIMEOUT,
                 "%s%s%s%s%s: CUDA device %d has %s for %lld s, the limit "
                 "(HVD_NCCL_TIMEOUT): %s%s",
                 w->is_launched ? "" : "NCCL, ", collective_name(w->kind),
                 space, mark, w->name, nc_world.device,
                 w->is_own ? "not come to it" : "waited",
                 (long long)nc_world.limit_s,
                 w->is_own         ? "work of this rank before it does not end"
                 : culprit->status ? culprit->text
                                   : who_hangs(p, who, sizeof(who)),
                 w->is_own || culprit->status ? "" : " or a device hangs");
    return nc_fail(p, err);
}

/* Finds out whether the device has reached the operation.  From then on other
 * ranks keep it waiting, so the wait is counted from then. */
static void find_reached(struct nc_plane *p, struct nc_wait *w, uint64_t now_ns)
{
    struct nc_stream *s = nc_launch_stream(p, w->number);

    w->is_own = is_pending(w->reached);
    if (!w->is_launched)
        return;
    pthread_mutex_lock(&p->lock);
    if (w->is_own)
        s->own_ns = now_ns;
    else if (s->own_ns > w->since_ns)
        w->since_ns = s->own_ns;
    pthread_mutex_unlock(&p->lock);
}

/* Reports the wait; negative if it exceeded the limit: the plane has failed. */
static int look_at_wait(struct nc_plane *p, uint64_t since_ns, uint64_t now_ns,
                        struct hb_error *err)
{
    uint64_t limit_ns = (uint64_t)nc_world.limit_s * SECOND_NS;
    struct hb_error culprit = HB_ERROR_INIT;
    struct nc_wait w;

    if (!find_wait(p, since_ns, &w))
        return 0;
    find_reached(p, &w, now_ns);
    if (!has_passed(now_ns, w.since_ns, TELL_NS))
        return 0;
    tell_wait(p, &w);
    if (!has_passed(now_ns, w.since_ns, limit_ns) ||
        may_wait(p, &w, now_ns - w.since_ns - limit_ns, &culprit))
        return 0;
    return give_up(p, &w, &culprit, err);
}

/* ---- Who is gone -----------------------------------------------------------
 */

/* Notes that a peer has left.  It may have completed what is pending here,
 * which then ends, or have failed. */
static void note_left(struct nc_plane *p, uint64_t now_ns,
                      const struct hb_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (!p->left.status) {
        p->left = *err;
        p->left_ns = now_ns;
    }
    pthread_mutex_unlock(&p->lock);
}

/* Decides whether to fail the plane now: 1 with err set.  A peer that left is
 * a better reason than NCCL's own error; each gets a grace period first. */
static int is_guilty(struct nc_plane *p, uint64_t now_ns, struct hb_error *err)
{
    const struct hb_error *why = NULL;
    uint64_t limit_ns = LEFT_NS, oldest, began_ns;

    pthread_mutex_lock(&p->lock);
    oldest = nc_launch_oldest(p);
    began_ns = nc_launch_since(p, oldest);
    if (oldest && has_passed(p->left_ns, began_ns, limit_ns))
        limit_ns = p->left_ns - began_ns;
    if (p->left.status &&
        (p->suspect.status || has_passed(now_ns, p->left_ns, limit_ns)))
        why = &p->left;
    else if (p->suspect.status &&
             (p->n == 1 || has_passed(now_ns, p->suspect_ns, CULPRIT_NS)))
        why = &p->suspect;
    if (why)
        *err = *why;
    pthread_mutex_unlock(&p->lock);
    return why != NULL;
}

int nc_ask_base(struct nc_plane *p, struct hb_error *err)
{
    int rc = p->base->ops->began(p->base, err);

    return rc < 0 ? rc : 0;
}

/* Asks whether the job is over, except during an operation: then the driver
 * asks. */
int nc_ask_job(struct nc_plane *p, struct hb_error *err)
{
    if (!p->config.look || atomic_load(&p->busy))
        return 0;
    return p->config.look(p->config.look_arg, err);
}

int nc_check(struct nc_plane *p, nc_ask_fn *ask, uint64_t since_ns,
             struct hb_error *err)
{
    uint64_t now_ns = hb_now_ns();
    int rc = nc_failure(p, err);

    if (rc < 0)
        return rc;
    rc = ask ? ask(p, err) : 0;
    if (rc < 0 && rc != -HVD_ESHUTDOWN)
        return nc_fail(p, err);
    if (rc < 0) {
        note_left(p, now_ns, err);
        hb_error_clear(err);
    }
    poll_comms(p);
    if (is_guilty(p, now_ns, err))
        return nc_fail(p, err);
    return look_at_wait(p, since_ns, now_ns, err);
}
