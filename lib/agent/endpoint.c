/* SPDX-License-Identifier: Apache-2.0 */
/* The worker endpoint's sockets; see endpoint.h.  What JOIN and LEAVE mean
 * is in epoch.c. */
#include "lib/agent/endpoint_impl.h"

#include "lib/agent/rank/tree.h"

#include "lib/protocol/segment_fd.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FRAME_MAX_FROM_WORKER = RDV_REQUEST_MAX,
    SPARE_CONNECTIONS = 8,
    STRANGERS_MAX = 4, /* kept connected to be told why they are refused */
    BACKLOG = 1024,
    PAUSE_MS = 5, /* after a refusal */
    READ_BYTES = 16 << 10,
};

/* ---- HELLO ---- */

int endpoint_slot_of(const struct endpoint *e, uint32_t rank)
{
    for (int i = 0; i < e->job->rank_count; i++)
        if ((uint32_t)e->job->ranks[i].rank == rank)
            return i;
    return -1;
}

/* Stores the cache domains of the members on this host, whose numbers must be
 * below the members' count: those of an incomplete host are left out. */
static void put_domains(const struct endpoint *e, struct worker_welcome *m)
{
    const struct members *members = &e->members;

    for (int i = 0; e->domains && i < members->local_count; i++)
        if (e->domains[members->local[i]] >= m->local_size)
            return;
    for (int i = 0; e->domains && i < members->local_count; i++)
        m->local_domains[i] = e->domains[members->local[i]];
}

void conn_welcome(struct endpoint_conn *c)
{
    const struct endpoint *e = c->endpoint;
    struct worker_welcome *m = hb_xcalloc(1, sizeof(*m));
    struct hb_buf out = HB_BUF_INIT;

    members_welcome(&e->members, c->slot, m);
    snprintf(m->host, sizeof(m->host), "%s", e->job->host);
    snprintf(m->job_id, sizeof(m->job_id), "%s", e->job->job_id);
    memcpy(m->secret, e->job->secret, sizeof(m->secret));
    m->cpus = (uint32_t)e->cpus;
    put_domains(e, m);
    if (worker_encode_welcome(&out, m) == 0)
        conn_send(c, &out, -1);
    explicit_bzero(m->secret, sizeof(m->secret));
    hb_buf_free(&out);
    hb_free(m);
}

/* Closes the rank's earlier connection if it has sent LEAVE: its end may be
 * seen only after the HELLO of the one that replaces it. */
static void make_way(struct endpoint *e, int slot)
{
    epoch_read_all(e, slot);
    if (e->slots[slot].conn && e->slots[slot].conn->left)
        conn_close(e->slots[slot].conn);
    epoch_settle_lost(e, slot);
}

static int on_hello(struct endpoint_conn *c, const struct frame *f)
{
    struct endpoint *e = c->endpoint;
    struct worker_hello m;
    char text[WORKER_TEXT_MAX];
    int slot;

    if (worker_decode_hello(f->payload, f->len, &m) < 0)
        return -HVD_EPROTO;
    slot = endpoint_slot_of(e, m.rank);
    if (slot >= 0 && !c->stranger)
        make_way(e, slot);
    if (c->stranger)
        snprintf(text, sizeof(text),
                 "pid %d was not started by a rank of this job; a program "
                 "that a daemon starts, such as a container, cannot be one",
                 (int)c->pid);
    else if (m.abi != WORKER_ABI)
        snprintf(text, sizeof(text),
                 "libhvd speaks version %u, the agent version %d; use the "
                 "same release of both",
                 m.abi, WORKER_ABI);
    else if (slot < 0)
        snprintf(text, sizeof(text), "rank %u does not belong to host %.100s",
                 m.rank, e->job->host);
    else if (e->slots[slot].gone)
        snprintf(text, sizeof(text), "rank %u has ended already", m.rank);
    else if (e->slots[slot].conn)
        snprintf(text, sizeof(text),
                 "rank %u is taken by pid %d; does its program start "
                 "another one that calls hvd_init?",
                 m.rank, (int)e->slots[slot].pid);
    else {
        c->slot = slot;
        e->slots[slot].conn = c;
        e->slots[slot].pid = c->pid;
        if (e->job->spec.elastic)
            epoch_ready(c);
        else
            conn_welcome(c);
        return 0;
    }
    conn_refuse(c, text);
    return 0;
}

static int on_join(struct endpoint_conn *c, const struct frame *f)
{
    struct worker_join m;
    int rc = worker_decode_join(f->payload, f->len, &m);

    if (rc == 0)
        epoch_join(c, &m);
    return rc;
}

static int on_leave(struct endpoint_conn *c, const struct frame *f)
{
    uint32_t epoch;
    int rc = worker_decode_leave(f->payload, f->len, &epoch);

    if (rc == 0)
        epoch_leave(c, epoch);
    return rc;
}

static int on_routes(struct endpoint_conn *c, const struct frame *f)
{
    const struct endpoint *e = c->endpoint;
    char **addresses = hb_xcalloc(e->job->peers.count + 1, sizeof(*addresses));
    size_t count = members_addresses(&e->members, addresses);
    struct hb_buf out = HB_BUF_INIT;

    if (f->len == 0 && worker_encode_routes_are(&out, addresses, count) == 0)
        conn_send(c, &out, -1);
    else if (f->len == 0)
        conn_refuse(c, "the job's addresses are too long");
    hb_buf_free(&out);
    hb_free(addresses);
    if (f->len != 0)
        return -HVD_EPROTO;
    return 0;
}

static int on_stalled(struct endpoint_conn *c, const struct frame *f)
{
    const struct endpoint *e = c->endpoint;
    struct worker_stalled m;
    int rc = worker_decode_stalled(f->payload, f->len, &m);

    if (rc == 0 && e->on_stalled)
        e->on_stalled(e->stalled_arg, c->slot, &m);
    return rc;
}

static int on_blames(struct endpoint_conn *c, const struct frame *f)
{
    const struct endpoint *e = c->endpoint;
    uint32_t world_rank;
    int rank;

    if (worker_decode_blames(f->payload, f->len, &world_rank) < 0)
        return -HVD_EPROTO;
    rank = members_plan_rank(&e->members, world_rank);
    if (rank < 0)
        return -HVD_EPROTO;
    if (rank != e->job->ranks[c->slot].rank)
        e->slots[c->slot].blames = rank + 1;
    return 0;
}

static int on_late(struct endpoint_conn *c, const struct frame *f)
{
    const struct endpoint *e = c->endpoint;
    uint32_t ms;

    if (worker_decode_late(f->payload, f->len, &ms) < 0)
        return -HVD_EPROTO;
    if (e->on_late)
        e->on_late(e->stalled_arg, c->slot, ms);
    return 0;
}

static int on_no_answer(struct endpoint_conn *c, const struct frame *f)
{
    const struct endpoint *e = c->endpoint;
    struct worker_no_answer m;
    int rank;

    if (worker_decode_no_answer(f->payload, f->len, &m) < 0)
        return -HVD_EPROTO;
    /* Of a generation before, whose ranks had other numbers. */
    if (e->job->spec.elastic && m.generation != e->members.now.number)
        return 0;
    rank = members_plan_rank(&e->members, m.rank);
    if (rank < 0)
        return -HVD_EPROTO;
    if (e->on_no_answer)
        e->on_no_answer(e->stalled_arg, c->slot, rank);
    return 0;
}

/* Replaces the numbers of blamed ranks, which are those of the sender's world,
 * by those of the plan.  Drops ranks that the world did not have. */
static void number_blamed(const struct endpoint *e, struct worker_stats *m)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < m->blamed_count; i++) {
        int rank = members_plan_rank(&e->members, m->blamed[i].rank);

        if (rank < 0)
            continue;
        m->blamed[kept] = m->blamed[i];
        m->blamed[kept++].rank = (uint32_t)rank;
    }
    m->blamed_count = kept;
}

static int on_stats(struct endpoint_conn *c, const struct frame *f)
{
    const struct endpoint *e = c->endpoint;
    struct worker_stats m;
    int rc = worker_stats_read(f->payload, f->len, &m);

    if (rc < 0)
        return rc;
    number_blamed(e, &m);
    if (e->on_stats)
        e->on_stats(e->stats_arg, c->slot, &m);
    return 0;
}

/* ---- Connections ---- */

static void on_conn_closed(uv_handle_t *handle)
{
    struct endpoint_conn *c = handle->data;

    hb_buf_free(&c->in);
    hb_buf_free(&c->out);
    hb_free(c);
}

void conn_close(struct endpoint_conn *c)
{
    struct endpoint *e = c->endpoint;

    if (c->fd < 0)
        return;
    uv_poll_stop(&c->poll);
    close(c->fd);
    c->fd = -1;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    e->conn_count--;
    e->stranger_count -= c->stranger;
    uv_close((uv_handle_t *)&c->poll, on_conn_closed);
    if (c->slot >= 0) {
        relay_slot_gone(&e->relay, c->slot);
        epoch_conn_ended(e, c->slot);
    }
}

static int peer_closed(int e)
{
    return e == EPIPE || e == ECONNRESET;
}

/* Sends all bytes or drops the peer: a few hundred bytes always fit into the
 * socket of a peer that reads. */
void conn_send(struct endpoint_conn *c, const struct hb_buf *bytes, int pass_fd)
{
    struct iovec iov = {hb_buf_data(bytes), hb_buf_len(bytes)};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (c->fd < 0)
        return;
    if (hb_buf_len(&c->out) > 0) {
        conn_queue(c, bytes);
        return;
    }
    if (pass_fd >= 0) {
        struct cmsghdr *cmsg;

        msg.msg_control = control.space;
        msg.msg_controllen = sizeof(control.space);
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &pass_fd, sizeof(int));
    }
    do
        n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    /* If the peer has closed, what it sent before is still to be read. */
    if (n != (ssize_t)iov.iov_len && !(n < 0 && peer_closed(errno)))
        conn_close(c);
}

static void on_conn_ready(uv_poll_t *poll, int status, int events);

void conn_queue(struct endpoint_conn *c, const struct hb_buf *bytes)
{
    if (c->fd < 0)
        return;
    if (hb_buf_len(&c->out) + hb_buf_len(bytes) > ENDPOINT_QUEUE_MAX ||
        hb_buf_append(&c->out, hb_buf_data(bytes), hb_buf_len(bytes)) < 0) {
        conn_close(c);
        return;
    }
    uv_poll_start(&c->poll, UV_READABLE | UV_WRITABLE, on_conn_ready);
}

static void conn_write(struct endpoint_conn *c)
{
    ssize_t n;

    do
        n = send(c->fd, hb_buf_data(&c->out), hb_buf_len(&c->out),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && !peer_closed(errno)) {
        conn_close(c);
        return;
    }
    if (n < 0 && peer_closed(errno))
        hb_buf_clear(&c->out);
    if (n > 0)
        hb_buf_consume(&c->out, (size_t)n);
    if (hb_buf_len(&c->out) == 0)
        uv_poll_start(&c->poll, UV_READABLE, on_conn_ready);
}

void conn_refuse(struct endpoint_conn *c, const char *text)
{
    struct hb_buf out = HB_BUF_INIT;

    hb_log(c->endpoint->log, HB_LOG_DEBUG,
           "worker connection of pid %d refused: %s", (int)c->pid, text);
    if (worker_encode_refused(&out, text) == 0)
        conn_send(c, &out, -1);
    hb_buf_free(&out);
    conn_close(c);
}

static const struct message {
    int named; /* whether it comes after HELLO, from a rank that is known */
    int (*handle)(struct endpoint_conn *c, const struct frame *f);
} messages[] = {
    [WORKER_HELLO] = {0, on_hello},         [WORKER_JOIN] = {1, on_join},
    [WORKER_LEAVE] = {1, on_leave},         [WORKER_RDV] = {1, rdv_on_request},
    [WORKER_RDV_FENCE] = {1, rdv_on_fence}, [WORKER_ROUTES] = {1, on_routes},
    [WORKER_STALLED] = {1, on_stalled},     [WORKER_STATS] = {1, on_stats},
    [WORKER_BLAMES] = {1, on_blames},       [WORKER_LATE] = {1, on_late},
    [WORKER_NO_ANSWER] = {1, on_no_answer},
};
enum { MESSAGES = sizeof(messages) / sizeof(messages[0]) };

/* Handles a frame.  0, or negative if it is malformed or out of order. */
static int conn_frame(struct endpoint_conn *c, const struct frame *f)
{
    const struct message *m = &messages[f->type < MESSAGES ? f->type : 0];

    if (!m->handle || m->named != (c->slot >= 0))
        return -HVD_EPROTO;
    return m->handle(c, f);
}

int conn_read(struct endpoint_conn *c)
{
    char bytes[READ_BYTES];
    struct frame f;
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    int rc = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0 || hb_buf_append(&c->in, bytes, (size_t)n) < 0) {
        conn_close(c);
        return 1;
    }
    while (c->fd >= 0 &&
           (rc = frame_decode(&c->in, FRAME_MAX_FROM_WORKER, &f, NULL)) > 0) {
        rc = conn_frame(c, &f);
        if (rc < 0)
            break;
        frame_done(&c->in, &f);
    }
    if (rc < 0 && c->fd >= 0)
        conn_refuse(c, "these bytes are not libhvd's protocol");
    return 1;
}

static void on_conn_ready(uv_poll_t *poll, int status, int events)
{
    struct endpoint_conn *c = poll->data;

    if (status < 0)
        events = UV_READABLE; /* the read tells what is wrong */
    if (events & UV_WRITABLE)
        conn_write(c);
    if (c->fd >= 0 && (events & UV_READABLE))
        conn_read(c);
}

/* Returns whether the process, which runs as another user, is in our session
 * but not shown in /proc (hidepid): a program that a rank started through sudo.
 * Only the session's first process and its descendants can be in it.  So it
 * must be this process or the guardian above it: a session that began earlier
 * may hold anything.  The id 0 stands for all sessions of outer pid
 * namespaces. */
static int hidden_in_session(pid_t pid)
{
    pid_t session = getsid(0);

    return session > 0 && (session == getpid() || session == getppid()) &&
           getsid(pid) == session && tree_hides(pid);
}

/* Returns whether the peer runs as our user or root.  Sets *stranger if it is
 * not our descendant: any container that shares this network namespace can
 * connect, and its user may have our uid, so only the process tree tells.  A
 * pid of 0 is invisible in this pid namespace.  Without a /proc of our
 * namespace only the uid can be checked. */
static int peer_allowed(int fd, pid_t *pid, int *stranger)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return 0;
    *pid = cred.pid;
    if (cred.uid != geteuid() && cred.uid != 0)
        return 0;
    *stranger =
        cred.pid == 0 || (tree_can_read() && !tree_holds(getpid(), cred.pid) &&
                          !(cred.uid == 0 && hidden_in_session(cred.pid)));
    return 1;
}

void conn_open(struct endpoint *e, int fd, pid_t pid, int stranger)
{
    struct endpoint_conn *c = hb_xcalloc(1, sizeof(*c));

    if (uv_poll_init(e->loop, &c->poll, fd) < 0) {
        close(fd);
        hb_free(c);
        return;
    }
    c->endpoint = e;
    c->fd = fd;
    c->pid = pid;
    c->slot = -1;
    c->stranger = stranger;
    c->poll.data = c;
    c->next = e->conns;
    c->link = &e->conns;
    if (c->next)
        c->next->link = &c->next;
    e->conns = c;
    e->conn_count++;
    e->stranger_count += stranger;
    uv_poll_start(&c->poll, UV_READABLE, on_conn_ready);
}

/* Adopts the connection fd: 1; or closes it: 0. */
static int admit(struct endpoint *e, int fd)
{
    int most = 2 * e->job->rank_count + SPARE_CONNECTIONS, stranger = 0;
    pid_t pid = 0;

    if (peer_allowed(fd, &pid, &stranger) &&
        e->conn_count - e->stranger_count < most &&
        (!stranger || e->stranger_count < STRANGERS_MAX)) {
        conn_open(e, fd, pid, stranger);
        return 1;
    }
    close(fd);
    return 0;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct endpoint *e = timer->data;

    uv_poll_start(&e->poll, UV_READABLE, on_connection);
}

/* Accepts a bounded number of connections; the poll reports the rest again.  A
 * refusal delays the next accepts.  Any local user can connect, without end,
 * and meanwhile the agent must read what hvdrun and its ranks send. */
static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct endpoint *e = poll->data;
    int refused = 0, fd;

    (void)status;
    (void)events;
    for (int i = 0; i < ENDPOINT_ACCEPTS_PER_TURN; i++) {
        fd = accept4(e->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            break;
        refused += !admit(e, fd);
    }
    if (refused > 0) {
        uv_poll_stop(&e->poll);
        uv_timer_start(&e->pause, on_pause_over, PAUSE_MS, 0);
    }
}

/* ---- Opening and closing ---- */

static int listen_on(const char *name, struct hb_error *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    int fd, e;

    memcpy(addr.sun_path + 1, name, len);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hb_error_sys(err, errno, "worker socket");
    if (bind(fd, (struct sockaddr *)&addr,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) <
            0 ||
        listen(fd, BACKLOG) < 0) {
        e = errno;
        close(fd);
        return hb_error_sys(err, e, "worker socket");
    }
    return fd;
}

static int random_name(char *name, size_t size, struct hb_error *err)
{
    unsigned char bytes[16];
    size_t used;

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return hb_error_sys(err, errno, "random name");
    used = (size_t)snprintf(name, size, "unix:@hvd-");
    for (size_t i = 0; i < sizeof(bytes); i++)
        used += (size_t)snprintf(name + used, size - used, "%02x", bytes[i]);
    return 0;
}

int endpoint_init(struct endpoint *e, uv_loop_t *loop,
                  const struct control_launch *job, int cpus,
                  const struct hb_log *log, struct hb_error *err)
{
    int rc;

    memset(e, 0, sizeof(*e));
    e->loop = loop;
    e->log = log;
    e->job = job;
    e->cpus = cpus;
    rc = random_name(e->name, sizeof(e->name), err);
    if (rc < 0)
        return rc;
    e->fd = listen_on(e->name + strlen("unix:@"), err);
    if (e->fd < 0)
        return e->fd;
    rc = uv_poll_init(loop, &e->poll, e->fd);
    if (rc < 0) {
        close(e->fd);
        return hb_error_sys(err, -rc, "worker socket");
    }
    uv_timer_init(loop, &e->lost_timer);
    uv_timer_init(loop, &e->pause);
    e->poll.data = e->lost_timer.data = e->pause.data = e;
    e->slots = hb_xcalloc((size_t)job->rank_count, sizeof(*e->slots));
    members_init(&e->members, job);
    rdv_init(e);
    uv_poll_start(&e->poll, UV_READABLE, on_connection);
    return 0;
}

void endpoint_set_domains(struct endpoint *e, uint32_t *domains)
{
    hb_free(e->domains);
    e->domains = domains;
}

void endpoint_close(struct endpoint *e)
{
    if (!e->slots || e->fd < 0)
        return;
    while (e->conns)
        conn_close(e->conns);
    uv_poll_stop(&e->poll);
    close(e->fd);
    e->fd = -1;
    uv_close((uv_handle_t *)&e->poll, NULL);
    uv_close((uv_handle_t *)&e->lost_timer, NULL);
    uv_close((uv_handle_t *)&e->pause, NULL);
}

void endpoint_fini(struct endpoint *e)
{
    for (int i = 0; e->slots && i < e->job->rank_count; i++) {
        hb_free(e->slots[i].gone);
        hb_free(e->slots[i].removed);
    }
    if (e->slots)
        relay_fini(&e->relay);
    hb_free(e->slots);
    hb_free(e->failed);
    hb_free(e->domains);
    e->domains = NULL;
    if (e->slots) {
        segment_fd_unmap(e->head, e->head_ranks);
        members_fini(&e->members);
    }
    e->slots = NULL;
    e->head = NULL;
}
