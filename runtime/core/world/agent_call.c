/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the job's store while the world runs; see agent_call.h.
 *
 * Whoever reads the agent's socket, also the driver of an engine in
 * hvd__agent_check, hands replies over to the calls that wait for them.
 */
#include "runtime/core/world/agent_call.h"

#include "lib/base/sys/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void hvd__agent_interrupt(struct hvd__agent *a)
{
    pthread_mutex_lock(&a->lock);
    a->interrupted = 1;
    for (struct hvd__agent_call *c = a->calls; c; c = c->next)
        hvd__agent_wake(c);
    pthread_mutex_unlock(&a->lock);
}

static void unlink_locked(struct hvd__agent *a, struct hvd__agent_call *c)
{
    struct hvd__agent_call **at = &a->calls;

    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
}

/* Waits until the agent has said something, or the call was woken. */
static int wait_some(const struct hvd__agent *a,
                     const struct hvd__agent_call *c, uint64_t deadline_ns,
                     struct hb_error *err)
{
    struct pollfd p[2] = {{.fd = a->fd, .events = POLLIN},
                          {.fd = c->event_fd, .events = POLLIN}};
    uint64_t now_ns = hb_now_ns(), ms;

    if (now_ns >= deadline_ns)
        return hb_error_set(err, HVD_ETIMEOUT,
                            "no answer in time (HVD_START_TIMEOUT sets the "
                            "limit)");
    ms = (deadline_ns - now_ns) / 1000000 + 1;
    if (poll(p, 2, ms > 1 << 30 ? 1 << 30 : (int)ms) < 0 && errno != EINTR)
        return hb_error_sys(err, errno, "poll the agent's socket");
    return 0;
}

/* Waits for the reply to a call that was sent; the lock is held before and
 * after. */
static int await_reply(struct hvd__agent *a, struct hvd__agent_call *c,
                       uint64_t deadline_ns, struct hb_error *err)
{
    int rc = hvd__agent_check_locked(a, err);

    while (rc == 0 && !c->done) {
        if (a->interrupted)
            return hb_error_set(err, HVD_ESHUTDOWN,
                                "hvd_shutdown was called before it completed");
        pthread_mutex_unlock(&a->lock);
        rc = wait_some(a, c, deadline_ns, err);
        pthread_mutex_lock(&a->lock);
        if (rc == 0)
            rc = hvd__agent_check_locked(a, err);
    }
    return c->done ? 0 : rc;
}

static int call_locked(struct hvd__agent *a, struct hvd__agent_call *c,
                       struct rdv_request *m, uint64_t deadline_ns,
                       struct hb_error *err)
{
    struct hb_buf out = HB_BUF_INIT;
    struct hb_error why = HB_ERROR_INIT;
    int rc;

    if (a->interrupted || a->fd < 0)
        return hb_error_set(err, HVD_ESHUTDOWN, "hvd_shutdown was called");
    m->id = c->id = ++a->last_id;
    rc = rdv_encode_request(&out, WORKER_RDV, m);
    if (rc < 0)
        rc = hb_error_set(err, (enum hvd_status) - rc,
                          "a request to the job's store");
    if (rc == 0)
        rc = hvd__agent_send(a, &out, deadline_ns, err);
    hb_buf_free(&out);
    if (rc < 0)
        return rc;
    c->next = a->calls;
    a->calls = c;
    /* A reply counts even if the job fails after it. */
    rc = await_reply(a, c, deadline_ns, &why);
    if (rc < 0 && err && !err->status)
        *err = why;
    unlink_locked(a, c);
    return rc;
}

/* Turns a refusal of the store's into err. */
static int refused(const struct hvd__agent_call *c, struct hb_error *err)
{
    if (c->status == HVD_EPEER && err)
        err->rank = c->culprit;
    return hb_error_set(err, hb_status_told(-c->status), "%.*s",
                        (int)hb_buf_len(&c->value),
                        (const char *)hb_buf_data(&c->value));
}

int hvd__agent_call(struct hvd__agent *a, struct rdv_request *m,
                    struct hb_buf *value, uint64_t deadline_ns,
                    struct hb_error *err)
{
    struct hvd__agent_call c = {.value = HB_BUF_INIT};
    int rc = 0;

    c.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c.event_fd < 0)
        return hb_error_sys(err, errno, "make an eventfd");
    pthread_mutex_lock(&a->lock);
    rc = call_locked(a, &c, m, deadline_ns, err);
    pthread_mutex_unlock(&a->lock);
    close(c.event_fd);
    if (rc == 0 && c.status)
        rc = refused(&c, err);
    if (rc == 0)
        *value = c.value;
    else
        hb_buf_free(&c.value);
    return rc;
}
