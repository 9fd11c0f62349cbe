/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP group: its life, moving bytes, and waiting; see tcp.h.
 *
 * A wait for a small operation first polls the sockets for SPIN_NS, yielding
 * in between.  Then it sleeps in epoll on what the operation needs, the
 * agent's socket, and an eventfd for hvd__tcp_interrupt.  Nothing else is in
 * that epoll set: data of the next operation, or a peer that has left, would
 * wake it in vain.  Between operations it sleeps on a second epoll set, which
 * always holds all connections.  No sleep is longer than SLEEP_MS, so that the
 * stall check, which runs after each sleep (runtime/trace/stall.h), notices a
 * rank that waits in vain.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/plane/tcp/tcp_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

enum {
    SPIN_NS = 50 * 1000,
    /* Larger operations do not spin: that would take the core from the
     * kernel's side of the connection. */
    SPIN_BYTES = 256 << 10,
    /* How long the agent may take to say why a connection broke. */
    WORD_MS = 2000,
    /* Then the agent is asked anyway: the driver of another process set may
     * have consumed its message. */
    SLEEP_MS = 250,
    /* Retransmissions or probes without an acknowledgement after which a
     * connection can be lost. */
    TRIES_MIN = 3,
    EVENTS_MAX = 64,
};

/* epoll data of the two descriptors that are no connections. */
enum { AGENT_EVENT = -1, INTERRUPT_EVENT = -2 };

#define MS UINT64_C(1000000)

/* ---- Bytes ----------------------------------------------------------- */

void tcp_set_lost(struct hvd__tcp *t, int i, int e)
{
    if (t->no_answer &&
        (e == ETIMEDOUT || e == EHOSTUNREACH || e == ENETUNREACH))
        (void)t->no_answer(t->arg, t->conns[i].rank);
    if (t->lost >= 0)
        return;
    t->lost = i;
    t->lost_errno = e;
    t->lost_ns = hb_now_ns();
}

void tcp_check_memory(int e)
{
    struct sigaction action;
    sigset_t segv;

    if (e != EFAULT)
        return;
    if (sigaction(SIGSEGV, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
        signal(SIGSEGV, SIG_DFL);
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &segv, NULL); /* the engine thread blocks it */
    raise(SIGSEGV);
    abort(); /* a handler has returned */
}

ssize_t tcp_send(struct hvd__tcp *t, int i, const void *p, size_t len)
{
    ssize_t n;

    do
        n = send(t->conns[i].fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        tcp_check_memory(errno);
        return errno == EAGAIN || errno == ENOBUFS ? 0 : -errno;
    }
    t->moved |= n > 0;
    return n;
}

/* Receives as tcp_recv, but from the socket only. */
static ssize_t recv_some(struct hvd__tcp *t, int i, void *p, size_t len)
{
    ssize_t n;

    do
        n = recv(t->conns[i].fd, p, len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
        return 0;
    if (n <= 0) {
        tcp_check_memory(n < 0 ? errno : 0);
        tcp_set_lost(t, i, n < 0 ? errno : 0);
        return -1;
    }
    t->moved = 1;
    return n;
}

/* Receives up to len bytes; reads ahead if that is at most a head's size, so
 * that a small message costs one system call. */
ssize_t tcp_recv(struct hvd__tcp *t, int i, void *p, size_t len)
{
    struct tcp_conn *c = &t->conns[i];
    size_t there = c->ahead_end - c->ahead_at;
    ssize_t n;

    if (there == 0 && len > TCP_HEAD_BYTES)
        return recv_some(t, i, p, len);
    if (there == 0) {
        n = recv_some(t, i, c->ahead, sizeof(c->ahead));
        if (n <= 0)
            return n;
        c->ahead_at = 0;
        c->ahead_end = there = (size_t)n;
    }
    if (len > there)
        len = there;
    memcpy(p, c->ahead + c->ahead_at, len);
    c->ahead_at += len;
    t->moved = 1;
    return (ssize_t)len;
}

/* ---- Vectors --------------------------------------------------------- */

void tcp_reduce(const struct hvd__tcp *t, void *dst, const void *const srcs[2],
                size_t bytes, int last)
{
    const struct hvd__tcp_reduction *v = &t->vector;
    struct hvd__reduce_args args = {1.0, 1.0, 1, 0};

    if (last)
        args = v->args;
    args.pre = 1.0;
    v->reduce(dst, srcs, srcs[1] ? 2 : 1, bytes / v->elem_bytes, &args);
}

void tcp_take_vector(struct hvd__tcp *t, const struct hvd__tcp_reduction *r)
{
    const void *srcs[2] = {NULL, NULL};

    t->vector = *r;
    if (!r->src)
        t->vector.src = r->buf;
    srcs[0] = t->vector.src;
    if (t->n == 1 && r->reduce)
        tcp_reduce(t, r->buf, srcs, r->count * r->elem_bytes, 1);
}

size_t tcp_recv_chunk(struct hvd__tcp *t, int from, size_t left)
{
    const struct hvd__tcp_reduction *v = &t->vector;
    size_t chunk = v->chunk_bytes / v->elem_bytes * v->elem_bytes;
    ssize_t n;

    if (chunk > left)
        chunk = left;
    n = tcp_recv(t, from, (unsigned char *)v->chunk + t->chunk_got,
                 chunk - t->chunk_got);
    if (n > 0)
        t->chunk_got += (size_t)n;
    return t->chunk_got == chunk ? chunk : 0;
}

/* ---- Beginning ------------------------------------------------------- */

void tcp_begin(struct hvd__tcp *t, enum tcp_mode mode, size_t bytes)
{
    t->mode = mode;
    t->spins = bytes <= SPIN_BYTES;
    t->since_ns = 0;
    t->chunk_got = 0;
}

enum hvd__tcp_algorithm hvd__tcp_allreduce(struct hvd__tcp *t,
                                           const struct hvd__tcp_reduction *r,
                                           enum hvd__tcp_algorithm a)
{
    if (a == HVD__TCP_AUTO)
        a = hvd__tcp_choose_allreduce(&t->model, r->count * r->elem_bytes);
    if (a == HVD__TCP_RING)
        tcp_ring(t, r);
    else
        tcp_steps(t, r, a, 0);
    return a;
}

enum hvd__tcp_algorithm hvd__tcp_broadcast(struct hvd__tcp *t, void *buf,
                                           size_t bytes, int root,
                                           enum hvd__tcp_algorithm a)
{
    struct hvd__tcp_reduction r = {.buf = buf, .count = bytes, .elem_bytes = 1};

    if (a == HVD__TCP_AUTO)
        a = hvd__tcp_choose_broadcast(&t->model, bytes);
    if (a == HVD__TCP_CHAIN)
        tcp_chain(t, buf, bytes, root);
    else
        tcp_steps(t, &r, a, root);
    return a;
}

const struct hvd__tcp_model *hvd__tcp_model(const struct hvd__tcp *t)
{
    return &t->model;
}

void hvd__tcp_set_alpha(struct hvd__tcp *t, double alpha_us)
{
    t->model.alpha_us = alpha_us;
}

/* ---- Progress -------------------------------------------------------- */

int tcp_blame(const struct hvd__tcp *t, int i, enum hvd_status status,
              const char *what, struct hb_error *err)
{
    const struct tcp_conn *c = &t->conns[i];

    if (err) {
        err->rank = (int)c->rank;
        memcpy(err->host, c->host, sizeof(err->host));
    }
    return hb_error_set(err, status, "rank %u on host %s: %s", c->rank, c->host,
                        what);
}

int tcp_blame_changed(const struct hvd__tcp *t, int i, struct hb_error *err)
{
    return tcp_blame(t, i, HVD_EPROTO,
                     "a message was changed on its way (wrong authentication "
                     "code)",
                     err);
}

static int tell_lost(struct hvd__tcp *t, struct hb_error *err)
{
    char what[160] = "connection lost";

    if (t->agent_lost && hb_now_ns() - t->lost_ns < WORD_MS * MS)
        return 0;
    if (t->lost_errno)
        snprintf(what, sizeof(what), "connection lost: %s",
                 strerror(t->lost_errno));
    return tcp_blame(t, t->lost, HVD_EPEER, what, err);
}

static int ask_agent(struct hvd__tcp *t, struct hb_error *err)
{
    t->agent_ready = 0;
    return t->agent_lost ? t->agent_lost(t->arg, err) : 0;
}

/* Returns negative with err set if the agent or a broken connection tells that
 * the job is over. */
static int hear_end(struct hvd__tcp *t, struct hb_error *err)
{
    int rc = 0;

    if (t->agent_ready || t->lost >= 0)
        rc = ask_agent(t, err);
    if (rc == 0 && t->lost >= 0)
        rc = tell_lost(t, err);
    return rc;
}

static int advance(struct hvd__tcp *t, struct hb_error *err)
{
    switch (t->mode) {
    case TCP_EXCHANGE:
        return tcp_exchange_advance(t, err);
    case TCP_STREAM:
        return tcp_stream_advance(t);
    case TCP_STEPS:
        return tcp_steps_advance(t);
    case TCP_IDLE:
        break;
    }
    return 1;
}

int hvd__tcp_progress(struct hvd__tcp *t, struct hb_error *err)
{
    int rc;

    t->moved = 0;
    rc = t->lost < 0 ? advance(t, err) : 0;
    if (rc == 0)
        rc = hear_end(t, err);
    if (rc != 0)
        t->mode = TCP_IDLE;
    if (rc != 0 || t->moved)
        t->since_ns = 0;
    return rc;
}

/* ---- Between operations ---------------------------------------------- */

/* Checks for a complete GONE message in bytes that the connection has
 * received: returns its error, else 1: a peer has begun an exchange, which
 * will read them. */
static int told_end(struct hvd__tcp *t, int i, const unsigned char *bytes,
                    size_t n, struct hb_error *err)
{
    struct tcp_mac *mac = &t->conns[i].mac_in;
    struct tcp_head head;

    if (n < TCP_HEAD_BYTES + TCP_GONE_BYTES ||
        tcp_head_decode(bytes, &head) < 0 || head.kind != TCP_HEAD_GONE)
        return 1;
    if (tcp_mac_check_head(mac, bytes) < 0 ||
        tcp_mac_check_words(mac, bytes, bytes + TCP_HEAD_BYTES,
                            TCP_GONE_BYTES) < 0)
        return tcp_blame_changed(t, i, err);
    return tcp_tell_who_left(t, bytes + TCP_HEAD_BYTES, err);
}

/* Returns as hvd__tcp_began, for one member's connection. */
static int peek(struct hvd__tcp *t, int i, struct hb_error *err)
{
    const struct tcp_conn *c = &t->conns[i];
    unsigned char bytes[TCP_HEAD_BYTES + TCP_GONE_BYTES];
    ssize_t n;

    if (c->ahead_end > c->ahead_at)
        return told_end(t, i, c->ahead + c->ahead_at,
                        c->ahead_end - c->ahead_at, err);
    do
        n = recv(c->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
        return 0;
    if (n <= 0) {
        tcp_set_lost(t, i, n < 0 ? errno : 0);
        return 0;
    }
    return told_end(t, i, bytes, (size_t)n, err);
}

static int peek_ready(struct hvd__tcp *t, struct hb_error *err)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(t->begins_fd, events, EVENTS_MAX, 0), began = 0;

    for (int k = 0; k < n; k++) {
        int64_t which = (int64_t)events[k].data.u64;
        int rc = which >= 0 ? peek(t, (int)which, err) : 0;

        if (rc < 0)
            return rc;
        began |= rc;
        t->agent_ready |= which == AGENT_EVENT;
    }
    for (int i = 0; i < t->n; i++)
        if (t->conns[i].ahead_end > t->conns[i].ahead_at) {
            int rc = peek(t, i, err);

            if (rc < 0)
                return rc;
            began = 1;
        }
    return began;
}

int hvd__tcp_began(struct hvd__tcp *t, struct hb_error *err)
{
    int rc = 0;

    if (t->lost < 0)
        rc = t->n == 2 ? peek(t, !t->me, err) : peek_ready(t, err);
    return rc != 0 ? rc : hear_end(t, err);
}

/* ---- Waiting --------------------------------------------------------- */

static uint32_t wanted_events(const struct hvd__tcp *t, int i)
{
    if (t->lost >= 0 || i == t->me)
        return 0;
    switch (t->mode) {
    case TCP_EXCHANGE:
        return tcp_exchange_events(t, i);
    case TCP_STREAM:
        return tcp_stream_events(t, i);
    case TCP_STEPS:
        return tcp_steps_events(t, i);
    case TCP_IDLE:
        break;
    }
    return 0;
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

/* Returns whether the peer's kernel has ceased to answer.  TCP_USER_TIMEOUT
 * would not do: it also ends the connection to a process that is stopped and
 * reads nothing, although its kernel answers. */
static int is_silent(int fd, uint32_t silence_ms)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           (info.tcpi_retransmits >= TRIES_MIN ||
            info.tcpi_probes >= TRIES_MIN) &&
           info.tcpi_last_ack_recv >= silence_ms;
}

static void look_for_silence(struct hvd__tcp *t)
{
    for (int i = 0; i < t->n && t->silence_ms; i++)
        if (t->conns[i].watched && is_silent(t->conns[i].fd, t->silence_ms))
            tcp_set_lost(t, i, ETIMEDOUT);
}

static void sleep_some(struct hvd__tcp *t, uint64_t now_ns, uint64_t until_ns)
{
    int idle = t->mode == TCP_IDLE && t->lost < 0;
    uint64_t max_ms = t->lost >= 0 ? WORD_MS / 10 : SLEEP_MS;
    uint64_t ns = hb_sleep_ns(max_ms * 1000000, now_ns, until_ns);
    struct epoll_event events[EVENTS_MAX];
    uint64_t counter;
    int n;

    for (int i = 0; !idle && i < t->n; i++)
        watch(t, i);
    n = epoll_wait(idle ? t->begins_fd : t->epoll_fd, events, EVENTS_MAX,
                   (int)((ns + 999999) / 1000000));
    for (int i = 0; i < n; i++) {
        int64_t which = (int64_t)events[i].data.u64;

        /* Ask after interrupts, too: they may be so frequent that no sleep
         * times out. */
        t->agent_ready |= which == AGENT_EVENT || which == INTERRUPT_EVENT;
        if (which == INTERRUPT_EVENT &&
            read(t->event_fd, &counter, sizeof(counter)) < 0)
            continue; /* another pause has reset it */
    }
    if (n != 0)
        return;
    t->agent_ready = 1;
    look_for_silence(t);
}

void hvd__tcp_pause(struct hvd__tcp *t, uint64_t until_ns)
{
    uint64_t now_ns = hb_now_ns();

    if (!t->since_ns)
        t->since_ns = now_ns;
    if ((t->spins || t->mode == TCP_IDLE) && now_ns - t->since_ns < SPIN_NS)
        sched_yield();
    else
        sleep_some(t, now_ns, until_ns);
}

void hvd__tcp_interrupt(struct hvd__tcp *t)
{
    uint64_t one = 1;

    /* Other failures mean that it is readable already. */
    while (write(t->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* ---- Life ------------------------------------------------------------ */

static int watch_always(int epoll_fd, int fd, int64_t which)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)which};

    return fd < 0 ? 0 : epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static int make_waiting(struct hvd__tcp *t, struct hb_error *err)
{
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->begins_fd = epoll_create1(EPOLL_CLOEXEC);
    t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->epoll_fd < 0 || t->begins_fd < 0 || t->event_fd < 0 ||
        watch_always(t->epoll_fd, t->agent_fd, AGENT_EVENT) < 0 ||
        watch_always(t->epoll_fd, t->event_fd, INTERRUPT_EVENT) < 0 ||
        watch_always(t->begins_fd, t->agent_fd, AGENT_EVENT) < 0 ||
        watch_always(t->begins_fd, t->event_fd, INTERRUPT_EVENT) < 0)
        return hb_error_sys(err, errno, "wait on connections");
    return 0;
}

static int watch_begins(struct hvd__tcp *t, struct hb_error *err)
{
    for (int i = 0; i < t->n; i++)
        if (watch_always(t->begins_fd, t->conns[i].fd, i) < 0)
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
    t->epoll_fd = t->begins_fd = t->event_fd = -1;
    t->lost = -1;
    t->agent_fd = config->agent_fd;
    t->agent_lost = config->agent_lost;
    t->host_of = config->host_of;
    t->silence_ms = config->silence_ms;
    t->no_answer = config->no_answer;
    t->arg = config->arg;
    t->conns = hb_calloc((size_t)t->n, sizeof(*t->conns));
    t->parts = hb_calloc((size_t)t->n + 1, sizeof(*t->parts));
    if (!t->conns || !t->parts) {
        hb_free(t->conns);
        hb_free(t->parts);
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
    if (rc == 0)
        rc = watch_begins(t, err);
    if (rc == 0)
        rc = tcp_measure(t, config->deadline_ns, err);
    if (rc < 0)
        hvd__tcp_free(t);
    else
        *out = t;
    return rc;
}

int hvd__tcp_fd(const struct hvd__tcp *t, int member)
{
    return t->conns[member].fd;
}

void hvd__tcp_hang_up(struct hvd__tcp *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->conns[i].fd >= 0)
            shutdown(t->conns[i].fd, SHUT_RDWR);
}

/* Frees t.  Closing a connection with unread bytes resets it, which discards
 * what is still on its way to the peer.  That does no harm: a peer that sent
 * bytes which this member did not read has begun an operation that this member
 * never joined, so it has received everything of the operation before. */
void hvd__tcp_free(struct hvd__tcp *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        if (t->conns[i].fd >= 0)
            close(t->conns[i].fd);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    if (t->begins_fd >= 0)
        close(t->begins_fd);
    if (t->event_fd >= 0)
        close(t->event_fd);
    explicit_bzero(t->conns, (size_t)t->n * sizeof(*t->conns)); /* keys */
    hb_free(t->parts);
    hb_free(t->conns);
    hb_free(t);
}
