/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting a TCP group: see tcp.h.
 *
 * One poll loop serves this member's own calls, the listener, and the
 * strangers: callers that have not yet proved who they are.  Anybody may reach
 * the listener.  A stranger has STRANGER_MS and may send one CALL and one
 * FINISH; with more than STRANGERS_MAX, the oldest is dropped.  Strangers
 * cannot keep a real peer out: a peer sends its CALL at once, and calls again
 * if it was dropped.
 *
 * A failed call is repeated until the deadline.  If nobody listens at the
 * other end, it is repeated for NOBODY_MS only, time for the agent to report
 * that the rank has died.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/plane/tcp/tcp_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

enum {
    STRANGERS_MAX = 64,
    STRANGER_MS = 5000,
    ACCEPTS_PER_TURN = 64,
    AGAIN_MS = 50, /* between two calls to a peer */
    NOBODY_MS = 2000,
    /* How often the agent is asked: the driver of another process set may have
     * consumed its message. */
    TURN_MS = 250,
    STOPPED_MS = 2000, /* this process was stopped if a turn takes longer */
};

#define MS UINT64_C(1000000)

enum greeting_state {
    CALL_LATER, /* own call: not connected, waits for until_ns */
    CALL_CONNECTING,
    CALL_ANSWER, /* CALL is sent */
    CALL_DONE,
    STRANGER_FREE,
    STRANGER_CALL,   /* accepted, nothing proved yet */
    STRANGER_FINISH, /* ANSWER is sent */
};

struct greeting {
    enum greeting_state state;
    int fd;
    int peer; /* index of the member, or -1 */
    uint64_t until_ns;
    uint64_t nobody_ns;   /* refused since then; 0: not refused */
    uint64_t answered_ns; /* the host accepted or refused; else the begin */
    int failed_errno;
    int is_told; /* config->no_answer was called since then */
    int waits;   /* what it returned */
    struct tcp_auth_talk talk;
    unsigned char in[TCP_AUTH_CALL_BYTES];
    size_t have;
};

struct setup {
    struct hvd__tcp *t;
    const struct hvd__tcp_config *config;
    struct greeting *calls;     /* [n]; those after `me` */
    struct greeting *strangers; /* [STRANGERS_MAX] */
    struct pollfd *polled;      /* [2 + n + STRANGERS_MAX] */
    int other;                  /* member whose auth->codes differs, or -1 */
    int missing_calls, missing_callers;
    uint64_t now_ns;
    uint64_t asked_ns;  /* when the agent was asked last */
    uint64_t looked_ns; /* when silence was looked for last */
};

/* ---- Bytes ----------------------------------------------------------- */

/* Reads until g->in has `want` bytes: 1; 0 if more must arrive first; or a
 * negative errno (-EPIPE: end of file). */
static int read_up_to(struct greeting *g, size_t want)
{
    while (g->have < want) {
        ssize_t n = recv(g->fd, g->in + g->have, want - g->have, MSG_DONTWAIT);

        if (n == 0)
            return -EPIPE;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        g->have += (size_t)n;
    }
    return 1;
}

/* Sends a handshake message, which always fits into a new socket's buffer. */
static int send_whole(int fd, const void *p, size_t len)
{
    return send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len
               ? 0
               : -EPIPE;
}

/* ---- Calling --------------------------------------------------------- */

static int is_nobody(int e)
{
    return e == ECONNREFUSED || e == EHOSTUNREACH || e == ENETUNREACH ||
           e == EADDRNOTAVAIL || e == EACCES || e == EPERM;
}

static int is_unreachable(int e)
{
    return e == EHOSTUNREACH || e == ENETUNREACH;
}

/* Notes that the peer's host has accepted or refused a connection: it is not
 * silent. */
static void host_answered(struct setup *s, struct greeting *g)
{
    g->answered_ns = s->now_ns;
    g->is_told = g->waits = 0;
}

static void call_failed(struct setup *s, struct greeting *g, int e)
{
    if (e == ECONNREFUSED || g->state == CALL_ANSWER)
        host_answered(s, g);
    if (g->fd >= 0)
        close(g->fd);
    g->fd = -1;
    g->failed_errno = e;
    g->state = CALL_LATER;
    g->until_ns = s->now_ns + AGAIN_MS * MS;
    if (!is_nobody(e))
        g->nobody_ns = 0;
    else if (!g->nobody_ns)
        g->nobody_ns = s->now_ns;
}

static void call_connected(struct setup *s, struct greeting *g)
{
    const struct hvd__tcp_peer *peers = s->config->peers;
    unsigned char call[TCP_AUTH_CALL_BYTES];
    socklen_t len = sizeof(int);
    int e = 0;

    getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &e, &len);
    if (e == 0)
        host_answered(s, g);
    if (e == 0 && tcp_auth_call(s->config->auth, &g->talk, peers[s->t->me].rank,
                                peers[g->peer].rank, call) < 0)
        e = EIO;
    if (e == 0 && send_whole(g->fd, call, sizeof(call)) < 0)
        e = EPIPE;
    if (e) {
        call_failed(s, g, e);
        return;
    }
    g->state = CALL_ANSWER;
    g->have = 0;
}

static void call_begin(struct setup *s, struct greeting *g)
{
    const struct hvd__tcp_peer *peer = &s->config->peers[g->peer];
    struct sockaddr_storage sa;
    socklen_t len = 0;

    memset(&sa, 0, sizeof(sa));
    if (tcp_to_sockaddr(peer->address, peer->port, &sa, &len) < 0) {
        call_failed(s, g, EADDRNOTAVAIL);
        return;
    }
    g->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (g->fd < 0) {
        call_failed(s, g, errno);
        return;
    }
    tcp_tune(g->fd, s->config->silence_ms);
    g->state = CALL_CONNECTING;
    g->until_ns = s->now_ns + STRANGER_MS * MS;
    if (connect(g->fd, (struct sockaddr *)&sa, len) == 0)
        call_connected(s, g);
    else if (errno != EINPROGRESS)
        call_failed(s, g, errno);
}

/* Takes over a connection after the handshake; calls: this member is the
 * caller. */
static void take_connection(struct setup *s, struct greeting *g, int calls)
{
    struct tcp_conn *c = &s->t->conns[g->peer];
    struct tcp_auth_keys keys;

    c->fd = g->fd;
    g->fd = -1;
    c->mac_out.on = c->mac_in.on = s->config->auth->codes;
    tcp_auth_keys(s->config->auth, &g->talk, &keys);
    memcpy(c->mac_out.key, calls ? keys.caller : keys.callee,
           sizeof(c->mac_out.key));
    memcpy(c->mac_in.key, calls ? keys.callee : keys.caller,
           sizeof(c->mac_in.key));
    explicit_bzero(&keys, sizeof(keys));
}

static void call_answered(struct setup *s, struct greeting *g)
{
    unsigned char finish[TCP_AUTH_FINISH_BYTES];
    int rc = read_up_to(g, TCP_AUTH_ANSWER_BYTES), proof;

    if (rc == 0)
        return;
    if (rc > 0) {
        proof = tcp_auth_finish(s->config->auth, &g->talk, g->in, finish);
        rc = proof < 0 ? -EPROTO : 1;
        if (proof == -HVD_EINVAL)
            s->other = g->peer;
    }
    if (rc > 0)
        rc = send_whole(g->fd, finish, sizeof(finish)) < 0 ? -EPIPE : 1;
    if (rc < 0) {
        call_failed(s, g, -rc);
        return;
    }
    take_connection(s, g, 1);
    g->state = CALL_DONE;
    s->missing_calls--;
}

static void call_step(struct setup *s, struct greeting *g, int ready)
{
    if (g->state == CALL_LATER && s->now_ns >= g->until_ns)
        call_begin(s, g);
    else if (g->state == CALL_CONNECTING && ready)
        call_connected(s, g);
    else if (g->state == CALL_ANSWER && ready)
        call_answered(s, g);
    else if (g->fd >= 0 && s->now_ns >= g->until_ns)
        call_failed(s, g, ETIMEDOUT);
}

/* ---- Being called ---------------------------------------------------- */

static void hang_up(struct greeting *g)
{
    if (g->fd >= 0)
        close(g->fd);
    g->fd = -1;
    g->state = STRANGER_FREE;
}

/* Returns the member with that rank if it is expected to call, else -1. */
static int expected_caller(const struct setup *s, uint32_t rank)
{
    for (int i = 0; i < s->t->me; i++)
        if (s->config->peers[i].rank == rank)
            return s->t->conns[i].fd < 0 ? i : -1;
    return -1;
}

static void stranger_called(struct setup *s, struct greeting *g)
{
    unsigned char answer[TCP_AUTH_ANSWER_BYTES];
    uint32_t me = s->config->peers[s->t->me].rank, caller = 0;
    int rc = read_up_to(g, TCP_AUTH_CALL_BYTES);

    if (rc == 0)
        return;
    if (rc > 0)
        rc = tcp_auth_answer(s->config->auth, &g->talk, g->in, me, &caller,
                             answer);
    g->peer = rc < 0 && rc != -HVD_EINVAL ? -1 : expected_caller(s, caller);
    if (g->peer < 0 || send_whole(g->fd, answer, sizeof(answer)) < 0) {
        hang_up(g);
        return;
    }
    if (rc < 0) { /* the caller learns of it from the answer */
        s->other = g->peer;
        hang_up(g);
        return;
    }
    g->state = STRANGER_FINISH;
    g->have = 0;
}

static void stranger_finished(struct setup *s, struct greeting *g)
{
    int rc = read_up_to(g, TCP_AUTH_FINISH_BYTES);

    if (rc == 0)
        return;
    if (rc < 0 || tcp_auth_check(s->config->auth, &g->talk, g->in) < 0 ||
        s->t->conns[g->peer].fd >= 0) {
        hang_up(g);
        return;
    }
    take_connection(s, g, 0);
    g->state = STRANGER_FREE;
    s->missing_callers--;
}

static void stranger_step(struct setup *s, struct greeting *g, int ready)
{
    if (ready && g->state == STRANGER_CALL)
        stranger_called(s, g);
    if (ready && g->state == STRANGER_FINISH)
        stranger_finished(s, g);
    if (g->state != STRANGER_FREE && s->now_ns >= g->until_ns)
        hang_up(g);
}

/* Returns a free place, or frees the oldest one, preferring strangers that
 * have proved nothing. */
static struct greeting *stranger_place(struct setup *s)
{
    struct greeting *oldest = NULL;

    for (int i = 0; i < STRANGERS_MAX; i++) {
        struct greeting *g = &s->strangers[i];

        if (g->state == STRANGER_FREE)
            return g;
        if (!oldest || g->state < oldest->state ||
            (g->state == oldest->state && g->until_ns < oldest->until_ns))
            oldest = g;
    }
    hang_up(oldest);
    return oldest;
}

static void accept_some(struct setup *s)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(s->config->listener, NULL, NULL,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct greeting *g;

        if (fd < 0)
            return;
        tcp_tune(fd, s->config->silence_ms);
        g = stranger_place(s);
        memset(g, 0, sizeof(*g));
        g->state = STRANGER_CALL;
        g->fd = fd;
        g->peer = -1;
        g->until_ns = s->now_ns + STRANGER_MS * MS;
        stranger_step(s, g, 1);
    }
}

/* ---- The loop -------------------------------------------------------- */

static int name_missing(const struct setup *s, enum hvd_status status,
                        struct hb_error *err)
{
    const struct greeting *g = NULL;
    int missing = -1;

    for (int i = 0; i < s->t->n && missing < 0; i++)
        if (i != s->t->me && s->t->conns[i].fd < 0)
            missing = i;
    for (int i = s->t->me + 1; i < s->t->n; i++)
        if (s->calls[i].state != CALL_DONE && s->calls[i].nobody_ns)
            missing = i;
    if (missing > s->t->me)
        g = &s->calls[missing];
    if (err) {
        err->rank = (int)s->config->peers[missing].rank;
        snprintf(err->host, sizeof(err->host), "%s", s->t->conns[missing].host);
    }
    if (!g)
        return hb_error_set(err, status,
                            "no connection from rank %u on host %s; is it "
                            "alive, and does a firewall let it through?",
                            s->t->conns[missing].rank,
                            s->t->conns[missing].host);
    return hb_error_set(
        err, status,
        "no connection to rank %u on host %s (%s port %u): %s; is it alive, "
        "and does a firewall let it through?",
        s->t->conns[missing].rank, s->t->conns[missing].host,
        s->config->peers[missing].address, s->config->peers[missing].port,
        strerror(g->failed_errno ? g->failed_errno : ETIMEDOUT));
}

static int name_other(const struct setup *s, struct hb_error *err)
{
    int codes = s->config->auth->codes;
    char what[128];

    snprintf(what, sizeof(what),
             "HVD_TCP_MAC is %d there and %d on rank %u; set it alike for all "
             "ranks",
             !codes, codes, s->config->peers[s->t->me].rank);
    return tcp_blame(s->t, s->other, HVD_EINVAL, what, err);
}

/* Returns the time of the next timeout. */
static uint64_t next_time(const struct setup *s)
{
    uint64_t next = s->config->deadline_ns;

    for (int i = s->t->me + 1; i < s->t->n; i++)
        if (s->calls[i].state != CALL_DONE && s->calls[i].until_ns < next)
            next = s->calls[i].until_ns;
    for (int i = 0; i < STRANGERS_MAX; i++)
        if (s->strangers[i].state != STRANGER_FREE &&
            s->strangers[i].until_ns < next)
            next = s->strangers[i].until_ns;
    return next;
}

static void poll_for(struct pollfd *p, int fd, short events)
{
    *p = (struct pollfd){.fd = fd, .events = events};
}

static int wait_some(struct setup *s, struct hb_error *err)
{
    int n = s->t->n, count = 2 + n + STRANGERS_MAX, ms = 0;
    uint64_t next = next_time(s);

    poll_for(&s->polled[0], s->missing_callers ? s->config->listener : -1,
             POLLIN);
    poll_for(&s->polled[1], s->config->agent_fd, POLLIN);
    for (int i = 0; i < n; i++)
        poll_for(&s->polled[2 + i], s->calls[i].fd,
                 s->calls[i].state == CALL_CONNECTING ? POLLOUT : POLLIN);
    for (int i = 0; i < STRANGERS_MAX; i++)
        poll_for(&s->polled[2 + n + i], s->strangers[i].fd, POLLIN);
    if (next > s->now_ns)
        ms = next - s->now_ns > TURN_MS * MS
                 ? TURN_MS
                 : (int)((next - s->now_ns) / MS) + 1;
    if (poll(s->polled, (nfds_t)count, ms) < 0) {
        if (errno != EINTR)
            return hb_error_sys(err, errno, "wait for the other hosts");
        for (int i = 0; i < count; i++)
            s->polled[i].revents = 0;
    }
    s->now_ns = hb_now_ns();
    return 0;
}

static int nobody_there(const struct setup *s)
{
    for (int i = s->t->me + 1; i < s->t->n; i++)
        if (s->calls[i].state != CALL_DONE && s->calls[i].nobody_ns &&
            !s->calls[i].waits &&
            s->now_ns - s->calls[i].nobody_ns > NOBODY_MS * MS)
            return 1;
    return 0;
}

/* Returns whether the peer's host has not answered for too long, or the kernel
 * says that it cannot be reached.  A host that has accepted a connection has
 * answered, whatever its process does. */
static int has_no_answer(const struct setup *s, const struct greeting *g)
{
    if (g->state != CALL_LATER && g->state != CALL_CONNECTING)
        return 0;
    if (g->nobody_ns && is_unreachable(g->failed_errno) &&
        s->now_ns - g->nobody_ns > NOBODY_MS * MS)
        return 1;
    return s->config->silence_ms &&
           s->now_ns - g->answered_ns >= s->config->silence_ms * MS;
}

/* Tells which members' hosts have not answered for too long. */
static void look_for_silence(struct setup *s)
{
    const struct hvd__tcp_config *c = s->config;
    int was_stopped = s->now_ns - s->looked_ns > STOPPED_MS * MS;

    s->looked_ns = s->now_ns;
    for (int i = s->t->me + 1; i < s->t->n && c->no_answer; i++) {
        struct greeting *g = &s->calls[i];

        if (was_stopped)
            g->answered_ns = s->now_ns; /* nobody has looked meanwhile */
        if (g->is_told || !has_no_answer(s, g))
            continue;
        g->is_told = 1;
        g->waits = c->no_answer(c->arg, c->peers[i].rank);
    }
}

static int ask_agent(struct setup *s, struct hb_error *err)
{
    if (!s->polled[1].revents && s->now_ns - s->asked_ns < TURN_MS * MS)
        return 0;
    s->asked_ns = s->now_ns;
    return s->config->agent_lost ? s->config->agent_lost(s->config->arg, err)
                                 : 0;
}

static int connect_all(struct setup *s, struct hb_error *err)
{
    while (s->missing_calls || s->missing_callers) {
        int rc = wait_some(s, err);

        if (rc == 0)
            rc = ask_agent(s, err);
        if (rc < 0)
            return rc;
        for (int i = s->t->me + 1; i < s->t->n; i++)
            call_step(s, &s->calls[i], s->polled[2 + i].revents);
        for (int i = 0; i < STRANGERS_MAX; i++)
            stranger_step(s, &s->strangers[i],
                          s->polled[2 + s->t->n + i].revents);
        if (s->polled[0].revents)
            accept_some(s);
        look_for_silence(s);
        if (s->other >= 0)
            return name_other(s, err);
        if (nobody_there(s))
            return name_missing(s, HVD_ESYSTEM, err);
        if (s->now_ns >= s->config->deadline_ns &&
            (s->missing_calls || s->missing_callers))
            return name_missing(s, HVD_ETIMEOUT, err);
    }
    return 0;
}

int tcp_setup(struct hvd__tcp *t, const struct hvd__tcp_config *config,
              struct hb_error *err)
{
    struct setup s = {
        .t = t, .config = config, .now_ns = hb_now_ns(), .other = -1};
    int rc;

    s.asked_ns = s.looked_ns = s.now_ns;
    s.missing_callers = t->me;
    s.missing_calls = t->n - 1 - t->me;
    s.calls = hb_calloc((size_t)t->n, sizeof(*s.calls));
    s.strangers = hb_calloc(STRANGERS_MAX, sizeof(*s.strangers));
    s.polled = hb_calloc((size_t)t->n + 2 + STRANGERS_MAX, sizeof(*s.polled));
    if (!s.calls || !s.strangers || !s.polled) {
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for connections");
        goto out;
    }
    for (int i = 0; i < t->n; i++) {
        s.calls[i] =
            (struct greeting){.state = i > t->me ? CALL_LATER : CALL_DONE,
                              .fd = -1,
                              .peer = i,
                              .answered_ns = s.now_ns};
    }
    for (int i = 0; i < STRANGERS_MAX; i++)
        s.strangers[i] =
            (struct greeting){.state = STRANGER_FREE, .fd = -1, .peer = -1};
    rc = connect_all(&s, err);
    for (int i = 0; i < t->n; i++)
        if (s.calls[i].fd >= 0)
            close(s.calls[i].fd);
    for (int i = 0; i < STRANGERS_MAX; i++)
        hang_up(&s.strangers[i]);
out:
    hb_free(s.calls);
    hb_free(s.strangers);
    hb_free(s.polled);
    return rc;
}
