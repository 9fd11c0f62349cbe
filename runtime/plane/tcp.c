/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP group: its life, moving bytes, and waiting; see tcp.h.
 *
 * Waiting looks at the sockets again and again for SPIN_NS, giving way to
 * others, and then sleeps in epoll on what the operation needs, the agent's
 * socket and an eventfd for hvd__tcp_interrupt.  What is not needed is not
 * in the epoll set, as data of the next operation, or a peer that has left,
 * would wake it in vain.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/plane/tcp_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"

enum {
    SPIN_NS = 50 * 1000,
    /* How long the agent may take to say why a connection broke. */
    WORD_MS = 2000,
    SLEEP_MS = 1000,
    EVENTS_MAX = 64,
};

/* What epoll gives back for the two that are no connection. */
enum { AGENT_EVENT = -1, INTERRUPT_EVENT = -2 };

#define MS UINT64_C(1000000)

/* ---- Bytes ----------------------------------------------------------- */

void tcp_set_lost(struct hvd__tcp *t, int i, int e)
{
    if (t->lost >= 0)
        return;
    t->lost = i;
    t->lost_errno = e;
    t->lost_ns = hb_now_ns();
}

ssize_t tcp_send(struct hvd__tcp *t, int i, const void *p, size_t len)
{
    ssize_t n;

    do
        n = send(t->conns[i].fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == ENOBUFS ? 0 : -errno;
    t->moved |= n > 0;
    return n;
}

ssize_t tcp_recv(struct hvd__tcp *t, int i, void *p, size_t len)
{
    ssize_t n;

    do
        n = recv(t->conns[i].fd, p, len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
        return 0;
    if (n <= 0) {
        tcp_set_lost(t, i, n < 0 ? errno : 0);
        return -1;
    }
    t->moved = 1;
    return n;
}

/* ---- Progress -------------------------------------------------------- */

static int tell_lost(struct hvd__tcp *t, struct hb_error *err)
{
    const struct tcp_conn *c = &t->conns[t->lost];

    if (hb_now_ns() - t->lost_ns < WORD_MS * MS)
        return 0;
    if (err) {
        err->rank = (int)c->rank;
        memcpy(err->host, c->host, sizeof(err->host));
    }
    return hb_error_set(err, HVD_EPEER,
                        "rank %u on host %s: connection lost%s%s", c->rank,
                        c->host, t->lost_errno ? ": " : "",
                        t->lost_errno ? strerror(t->lost_errno) : "");
}

static int ask_agent(struct hvd__tcp *t, struct hb_error *err)
{
    t->agent_ready = 0;
    return t->agent_lost ? t->agent_lost(t->arg, err) : 0;
}

int hvd__tcp_progress(struct hvd__tcp *t, struct hb_error *err)
{
    int rc = 0;

    t->moved = 0;
    if (t->lost < 0 && t->mode == TCP_EXCHANGE)
        rc = tcp_exchange_advance(t, err);
    else if (t->lost < 0 && t->mode != TCP_IDLE)
        rc = tcp_stream_advance(t, err);
    if (t->mode == TCP_IDLE)
        rc = 1;
    if (rc == 0 && (t->agent_ready || t->lost >= 0))
        rc = ask_agent(t, err);
    if (rc == 0 && t->lost >= 0)
        rc = tell_lost(t, err);
    if (rc != 0)
        t->mode = TCP_IDLE;
    if (rc != 0 || t->moved)
        t->since_ns = 0;
    return rc;
}

/* ---- Waiting --------------------------------------------------------- */

static uint32_t wanted_events(const struct hvd__tcp *t, int i)
{
    if (t->lost >= 0 || t->mode == TCP_IDLE || i == t->me)
        return 0;
    return t->mode == TCP_EXCHANGE ? tcp_exchange_events(t, i)
                                   : tcp_stream_events(t, i);
}

static void watch(struct hvd__tcp *t, int i)
{
    struct tcp_conn *c = &t->conns[i];
    uint32_t wanted = wanted_events(t, i);
    struct epoll_event e = {.events = wanted, .data.u64 = (uint64_t)i};

    if (wanted == c->watched)
        return;
    epoll_ctl(t->epoll_fd,
              !wanted       ? EPOLL_CTL_DEL
              : !c->watched ? EPOLL_CTL_ADD
                            : EPOLL_CTL_MOD,
              c->fd, &e);
    c->watched = wanted;
}

static void sleep_some(struct hvd__tcp *t)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t counter;
    int n;

    for (int i = 0; i < t->n; i++)
        watch(t, i);
    n = epoll_wait(t->epoll_fd, events, EVENTS_MAX,
                   t->lost >= 0 ? WORD_MS / 10 : SLEEP_MS);
    for (int i = 0; i < n; i++) {
        int64_t which = (int64_t)events[i].data.u64;

        t->agent_ready |= which == AGENT_EVENT;
        if (which == INTERRUPT_EVENT &&
            read(t->event_fd, &counter, sizeof(counter)) < 0)
            continue; /* another pause has taken it */
    }
    /* Now and then, whatever woke it. */
    if (n == 0)
        t->agent_ready = 1;
}

void hvd__tcp_pause(struct hvd__tcp *t)
{
    uint64_t now_ns = hb_now_ns();

    if (!t->since_ns)
        t->since_ns = now_ns;
    /* Long transfers do not spin: that would take the core from the
     * kernel's side of the connection. */
    if (t->mode == TCP_EXCHANGE && now_ns - t->since_ns < SPIN_NS)
        sched_yield();
    else
        sleep_some(t);
}

void hvd__tcp_interrupt(struct hvd__tcp *t)
{
    uint64_t one = 1;

    /* Fails only when it is readable already. */
    while (write(t->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* ---- Life ------------------------------------------------------------ */

static int watch_always(struct hvd__tcp *t, int fd, int64_t which)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)which};

    return fd < 0 ? 0 : epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static int make_waiting(struct hvd__tcp *t, struct hb_error *err)
{
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->epoll_fd < 0 || t->event_fd < 0 ||
        watch_always(t, t->agent_fd, AGENT_EVENT) < 0 ||
        watch_always(t, t->event_fd, INTERRUPT_EVENT) < 0)
        return hb_error_sys(err, errno, "wait on connections");
    return 0;
}

static struct hvd__tcp *make(const struct hvd__tcp_config *config)
{
    struct hvd__tcp *t = hb_calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->n = config->count;
    t->me = config->me;
    t->epoll_fd = t->event_fd = -1;
    t->lost = -1;
    t->agent_fd = config->agent_fd;
    t->agent_lost = config->agent_lost;
    t->host_of = config->host_of;
    t->arg = config->arg;
    t->conns = hb_calloc((size_t)t->n, sizeof(*t->conns));
    if (!t->conns) {
        hb_free(t);
        return NULL;
    }
    for (int i = 0; i < t->n; i++) {
        t->conns[i].fd = -1;
        t->conns[i].rank = config->peers[i].rank;
        snprintf(t->conns[i].host, sizeof(t->conns[i].host), "%s",
                 config->peers[i].host);
    }
    return t;
}

int hvd__tcp_open(const struct hvd__tcp_config *config, struct hvd__tcp **out,
                  struct hb_error *err)
{
    struct hvd__tcp *t = make(config);
    int rc = t ? make_waiting(t, err)
               : hb_error_set(err, HVD_ENOMEM, "no memory for connections");

    if (rc == 0)
        rc = tcp_setup(t, config, err);
    close(config->listener);
    if (rc < 0)
        hvd__tcp_free(t);
    else
        *out = t;
    return rc;
}

void hvd__tcp_hang_up(struct hvd__tcp *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->conns[i].fd >= 0)
            shutdown(t->conns[i].fd, SHUT_RDWR);
}

/*
 * Closing a connection with unread bytes resets it, which throws away what
 * is still on its way to the peer.  That does no harm: who sent bytes that
 * this member did not want has begun an operation that this one never
 * joined, and so has all of the one before.
 */
void hvd__tcp_free(struct hvd__tcp *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        if (t->conns[i].fd >= 0)
            close(t->conns[i].fd);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    if (t->event_fd >= 0)
        close(t->event_fd);
    hb_free(t->conns);
    hb_free(t);
}
