/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a plane cannot go on: what shows it, and what follows.
 *
 * NCCL often notices that a peer has died before the base does, and cannot
 * say who it was.  So when NCCL fails, the base has a while to name a rank,
 * and only then is it NCCL's own error.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/clock.h"

#include <stdio.h>

#define SECOND_NS UINT64_C(1000000000)
#define CULPRIT_NS SECOND_NS
/* Or as long as it had worked by then. */
#define LEFT_NS (2 * SECOND_NS)

const char *nc_on_host(const struct nc_plane *p, int member, char *out,
                       size_t size)
{
    const char *host = p->config.host_of
                           ? p->config.host_of(p->config.host_arg, member)
                           : NULL;

    snprintf(out, size, "%s%s", host ? " on host " : "", host ? host : "");
    return out;
}

void nc_name(const struct nc_plane *p, int member, struct hb_error *err)
{
    const char *host = p->config.host_of
                           ? p->config.host_of(p->config.host_arg, member)
                           : NULL;

    err->rank = p->ranks[member];
    snprintf(err->host, sizeof(err->host), "%s", host ? host : "");
}

int nc_failed(struct nc_plane *p, struct hb_error *err)
{
    int rc;

    pthread_mutex_lock(&p->lock);
    rc = p->failed.status;
    if (rc < 0 && err)
        *err = p->failed;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Kernels of what is aborted end, and their events come: nobody may take that
 * for success, so is_ending is set before, and failed after it. */
static void end_plane(struct nc_plane *p, const struct hb_error *err)
{
    int is_late;

    pthread_mutex_lock(&p->lock);
    is_late = p->is_late;
    pthread_mutex_unlock(&p->lock);
    nc_comms_abort(p, is_late);
    pthread_mutex_lock(&p->lock);
    p->failed = *err;
    pthread_mutex_unlock(&p->lock);
    nc_wake(&p->wake);
}

int nc_break(struct nc_plane *p, struct hb_error *err)
{
    uint64_t paused_ns = 0;
    int is_first;

    pthread_mutex_lock(&p->lock);
    is_first = !p->is_ending;
    p->is_ending = 1;
    pthread_mutex_unlock(&p->lock);
    if (is_first)
        end_plane(p, err);
    while (nc_failed(p, err) == 0) /* another thread is about to say why */
        nc_pause(&paused_ns, &p->wake);
    return err->status;
}

int nc_is_harmless(const struct nc_run *run, int rc)
{
    if (run->is_alike || run->stage == NC_HOST)
        return 1;
    return (rc == -HVD_EMISMATCH || rc == -HVD_EINVAL) &&
           (run->stage == NC_AGREE || run->stage == NC_FLIGHT);
}

void nc_suspect(struct nc_plane *p, struct hb_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (!p->suspect.status) {
        p->suspect = *err;
        p->suspect_ns = hb_now_ns();
    }
    pthread_mutex_unlock(&p->lock);
    hb_error_clear(err);
}

/* Errors that came while nobody called NCCL. */
static void poll_comms(struct nc_plane *p)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = nc_lock(p, &err);

    if (rc < 0)
        return;
    for (int i = 0; i < NC_COMMS && rc >= 0; i++)
        rc = nc_comm_poll(p, (enum nc_comm_index)i, &err);
    nc_unlock();
    if (rc < 0)
        nc_suspect(p, &err);
}

static int has_passed(uint64_t now_ns, uint64_t since_ns, uint64_t limit_ns)
{
    return now_ns > since_ns && now_ns - since_ns > limit_ns;
}

/* Of two ranks the other one, as far as can be known. */
static const char *who_hangs(const struct nc_plane *p, char *out, size_t size)
{
    char host[80];
    int other = 1 - p->me;

    if (p->n != 2)
        return p->n == 1 ? "this rank" : "another rank";
    snprintf(out, size, "rank %d%s", p->ranks[other],
             nc_on_host(p, other, host, sizeof(host)));
    return out;
}

/* own: the device has not even come to it. */
static int overdue(struct nc_plane *p, const char *what, int own,
                   struct hb_error *err)
{
    char who[128];

    if (own) {
        nc_name(p, p->me, err);
        pthread_mutex_lock(&p->lock);
        p->is_late = 1;
        pthread_mutex_unlock(&p->lock);
    }
    hb_error_set(err, HVD_ETIMEOUT,
                 own ? "%s: CUDA device %d has not come to it for %lld s, the "
                       "limit (HVD_NCCL_TIMEOUT): work of this rank before it "
                       "does not end"
                     : "%s: CUDA device %d has waited for %lld s, the limit "
                       "(HVD_NCCL_TIMEOUT): %s or a device hangs",
                 what, nc_world.device, (long long)nc_world.limit_s,
                 who_hangs(p, who, sizeof(who)));
    return nc_break(p, err);
}

/* How long what is launched has been under way: 1 when that is too long. */
static int is_overdue(struct nc_plane *p, uint64_t now_ns,
                      struct nc_launch *oldest)
{
    int rc;

    pthread_mutex_lock(&p->lock);
    rc =
        p->launched > p->finished &&
        has_passed(now_ns, p->began_ns, (uint64_t)nc_world.limit_s * SECOND_NS);
    *oldest = p->ring[(p->finished + 1) % NC_RING];
    if (oldest->number != p->finished + 1) /* the ring has gone past it */
        oldest->reached = NULL;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static int launch_overdue(struct nc_plane *p, const struct nc_launch *l,
                          struct hb_error *err)
{
    char what[sizeof(l->name) + 32];
    int own =
        l->reached && hvd__cuda.EventQuery(l->reached) == CUDA_ERROR_NOT_READY;

    snprintf(what, sizeof(what), "%s%s%s%s", hvd__kind_name(l->kind),
             l->name[0] ? " \"" : "", l->name, l->name[0] ? "\"" : "");
    return overdue(p, what, own, err);
}

/* A peer has left.  It may have been done with what is under way here, which
 * then goes on, or have failed. */
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

/* 1: it is time to conclude, from what peers and NCCL have done: err.  Who is
 * gone is a better reason than what NCCL says. */
static int is_guilty(struct nc_plane *p, uint64_t now_ns, struct hb_error *err)
{
    const struct hb_error *why = NULL;
    uint64_t limit_ns = LEFT_NS;

    pthread_mutex_lock(&p->lock);
    if (p->launched > p->finished &&
        has_passed(p->left_ns, p->began_ns, limit_ns))
        limit_ns = p->left_ns - p->began_ns;
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

/* In an operation the driver asks. */
int nc_ask_job(struct nc_plane *p, struct hb_error *err)
{
    if (!p->config.look || atomic_load(&p->busy))
        return 0;
    return p->config.look(p->config.look_arg, err);
}

int nc_look(struct nc_plane *p, nc_ask_fn *ask, uint64_t since_ns,
            struct hb_error *err)
{
    uint64_t now_ns = hb_now_ns();
    struct nc_launch oldest;
    int rc = nc_failed(p, err);

    if (rc < 0)
        return rc;
    rc = ask ? ask(p, err) : 0;
    if (rc < 0 && rc != -HVD_ESHUTDOWN)
        return nc_break(p, err);
    if (rc < 0) {
        note_left(p, now_ns, err);
        hb_error_clear(err);
    }
    poll_comms(p);
    if (is_guilty(p, now_ns, err))
        return nc_break(p, err);
    if (is_overdue(p, now_ns, &oldest))
        return launch_overdue(p, &oldest, err);
    if (since_ns &&
        has_passed(now_ns, since_ns, (uint64_t)nc_world.limit_s * SECOND_NS))
        return overdue(p, "NCCL", 0, err);
    return 0;
}
