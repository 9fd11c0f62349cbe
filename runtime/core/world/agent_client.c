/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side of the protocol with its agent; see agent_client.h.
 */
#include "runtime/core/world/agent_client.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 4096 };

/* Long enough for hvdrun to ask all agents where their ranks are, and for
 * stacks. */
#define LATE_ANSWER_NS UINT64_C(6000000000)

/* ---- Address and connection ---------------------------------------- */

static int parse_address(const char *address, struct sockaddr_un *sa,
                         socklen_t *len, struct hb_error *err)
{
    static const char scheme[] = "unix:";
    const char *name = address + sizeof(scheme) - 1;
    size_t n;

    memset(sa, 0, sizeof(*sa));
    sa->sun_family = AF_UNIX;
    if (strncmp(address, scheme, sizeof(scheme) - 1) != 0 ||
        (name[0] != '@' && name[0] != '/'))
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_RENDEZVOUS is %s; unix:@NAME or "
                            "unix:/path is expected",
                            address);
    n = strlen(name);
    if (n < 2 || n >= sizeof(sa->sun_path))
        return hb_error_set(err, HVD_EINVAL,
                            "HVD_RENDEZVOUS: a name of %zu bytes is not "
                            "a socket's",
                            n);
    memcpy(sa->sun_path, name, n);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    if (name[0] == '@') {
        sa->sun_path[0] = '\0'; /* the abstract namespace */
        *len -= 1;
    }
    return 0;
}

static int wait_ready(int fd, short events, uint64_t deadline_ns,
                      struct hb_error *err)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        uint64_t now_ns = hb_now_ns();
        uint64_t left_ms = 0;
        int rc;

        if (now_ns < deadline_ns)
            left_ms = (deadline_ns - now_ns) / 1000000 + 1;
        rc = poll(&p, 1, left_ms > 1 << 30 ? 1 << 30 : (int)left_ms);
        if (rc > 0)
            return 0;
        if (rc < 0 && errno != EINTR)
            return hb_error_sys(err, errno, "poll the agent's socket");
        if (rc == 0 && left_ms == 0)
            return hb_error_set(err, HVD_ETIMEOUT,
                                "no answer from the agent in time; are all "
                                "ranks alive and in hvd_init? "
                                "(HVD_START_TIMEOUT sets the limit)");
    }
}

static int check_peer(int fd, struct hb_error *err)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return hb_error_sys(err, errno, "ask who serves the agent's socket");
    if (peer.uid != geteuid())
        return hb_error_set(err, HVD_EPERM,
                            "the agent's socket belongs to uid %u, not %u",
                            (unsigned)peer.uid, (unsigned)geteuid());
    return 0;
}

/* Connects to the agent.  connect() on a Unix socket succeeds at once, unless
 * the backlog is full. */
static int connect_agent(struct hvd__agent *a, const char *address,
                         uint64_t deadline_ns, struct hb_error *err)
{
    struct sockaddr_un sa;
    socklen_t len = 0;
    int rc = parse_address(address, &sa, &len, err);

    if (rc < 0)
        return rc;
    a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0)
        return hb_error_sys(err, errno, "make a socket");
    while (connect(a->fd, (struct sockaddr *)&sa, len) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return hb_error_sys(err, errno, "connect to the agent at %s",
                                address);
        if (hb_now_ns() >= deadline_ns)
            return hb_error_set(err, HVD_ETIMEOUT,
                                "the agent at %s takes no connection", address);
        poll(NULL, 0, 1);
    }
    return check_peer(a->fd, err);
}

/* ---- Bytes --------------------------------------------------------- */

int hvd__agent_send(struct hvd__agent *a, struct hb_buf *out,
                    uint64_t deadline_ns, struct hb_error *err)
{
    while (hb_buf_len(out)) {
        ssize_t n =
            send(a->fd, hb_buf_data(out), hb_buf_len(out), MSG_NOSIGNAL);

        if (n >= 0) {
            hb_buf_consume(out, (size_t)n);
        } else if (errno == EAGAIN) {
            int rc = wait_ready(a->fd, POLLOUT, deadline_ns, err);
            if (rc < 0)
                return rc;
        } else if (errno != EINTR) {
            return hb_error_set(err, HVD_ECLOSED,
                                "the agent closed the connection: %s",
                                strerror(errno));
        }
    }
    return 0;
}

/* Keeps a descriptor that came with the bytes, in place of an earlier one. */
static void keep_descriptor(struct hvd__agent *a, struct msghdr *msg)
{
    struct cmsghdr *c;

    for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t bytes = c->cmsg_len - CMSG_LEN(0);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
            if (a->memfd >= 0)
                close(a->memfd);
            a->memfd = fd;
        }
    }
}

/* Reserves room before a read, so that no bytes that were read get lost. */
static int make_room(struct hvd__agent *a)
{
    return hb_buf_reserve(&a->in, READ_BYTES);
}

/* Reads what has arrived, into the room made for it: 1, 0 when there is
 * nothing, or negative. */
static int read_some(struct hvd__agent *a, struct hb_error *err)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    char bytes[READ_BYTES];
    ssize_t n;

    iov.iov_base = bytes;
    iov.iov_len = sizeof(bytes);
    do
        n = recvmsg(a->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return hb_error_set(err, HVD_ECLOSED,
                            "the agent on this host is gone%s%s",
                            n < 0 ? ": " : "", n < 0 ? strerror(errno) : "");
    keep_descriptor(a, &msg);
    hb_buf_append(&a->in, bytes, (size_t)n);
    explicit_bzero(bytes, (size_t)n); /* the secret comes this way */
    return 1;
}

/* ---- Messages ------------------------------------------------------ */

/* Turns the agent's ABORT or TIMEOUT message into err. */
static int tell_abort(const struct frame *f, struct hb_error *err)
{
    struct worker_abort m;

    if (worker_decode_abort(f->payload, f->len, &m) < 0)
        return hb_error_set(err, HVD_EPROTO, "agent: malformed ABORT");
    if (err)
        err->rank = (int)m.rank;
    return hb_error_set(err,
                        f->type == WORKER_TIMEOUT ? HVD_ETIMEOUT : HVD_EPEER,
                        "%s", m.text);
}

static int tell_refused(const struct frame *f, struct hb_error *err)
{
    char text[256];

    if (worker_decode_refused(f->payload, f->len, text, sizeof(text)) < 0)
        return hb_error_set(err, HVD_EPROTO, "agent: malformed REFUSED");
    return hb_error_set(err, HVD_EPERM, "the agent refused this rank: %s",
                        text);
}

static int tell_removed(const struct frame *f, struct hb_error *err)
{
    char text[WORKER_TEXT_MAX];

    if (worker_decode_removed(f->payload, f->len, text, sizeof(text)) < 0)
        return hb_error_set(err, HVD_EPROTO, "agent: malformed REMOVED");
    return hb_error_set(err, HVD_EREMOVED,
                        "this rank was asked to leave the job: %s", text);
}

/* Returns the limit on the message of that type, and on those that may come in
 * its place: the store's answers hold the values of all ranks. */
static size_t payload_max(enum worker_type type)
{
    return type == WORKER_RDV_FENCED || type == WORKER_RDV_REPLY
               ? WORKER_FENCED_MAX
               : WORKER_PAYLOAD_MAX;
}

/* Waits for a message of that type, which the caller ends with frame_done.
 * Fails on any other message. */
static int expect(struct hvd__agent *a, enum worker_type type,
                  uint64_t deadline_ns, struct frame *f, struct hb_error *err)
{
    int rc;

    for (;;) {
        rc = frame_decode(&a->in, payload_max(type), f, err);
        if (rc != 0)
            break;
        if (make_room(a) < 0)
            return hb_error_set(err, HVD_ENOMEM, "no memory for a message");
        rc = read_some(a, err);
        if (rc == 0)
            rc = wait_ready(a->fd, POLLIN, deadline_ns, err);
        if (rc < 0)
            return rc;
    }
    if (rc < 0)
        return rc;
    if (f->type == type)
        return 0;
    if (f->type == WORKER_ABORT || f->type == WORKER_TIMEOUT)
        return tell_abort(f, err);
    if (f->type == WORKER_REFUSED)
        return tell_refused(f, err);
    if (f->type == WORKER_REMOVED)
        return tell_removed(f, err);
    return hb_error_set(err, HVD_EPROTO,
                        "agent: message of type %u where %u was expected",
                        f->type, (unsigned)type);
}

/* Sends `out` (empty if there was no memory for it), frees it, and waits for
 * the answer, which the caller ends with frame_done. */
static int exchange(struct hvd__agent *a, struct hb_buf *out,
                    enum worker_type answer, uint64_t deadline_ns,
                    struct frame *f, struct hb_error *err)
{
    int rc;

    if (hb_buf_len(out) == 0)
        return hb_error_set(err, HVD_ENOMEM, "no memory for a message");
    rc = hvd__agent_send(a, out, deadline_ns, err);
    hb_buf_free(out);
    return rc < 0 ? rc : expect(a, answer, deadline_ns, f, err);
}

static int say_hello(struct hvd__agent *a, uint32_t rank, uint64_t deadline_ns,
                     struct worker_welcome *w, struct hb_error *err)
{
    struct worker_hello hello = {WORKER_ABI, rank, (uint32_t)getpid()};
    struct hb_buf out = HB_BUF_INIT;
    struct frame f;
    int rc;

    worker_encode_hello(&out, &hello);
    rc = exchange(a, &out, WORKER_WELCOME, deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    if (worker_decode_welcome(f.payload, f.len, w) < 0)
        return hb_error_set(err, HVD_EPROTO, "agent: malformed WELCOME");
    frame_done(&a->in, &f);
    if (hb_buf_len(&a->in) == 0)
        hb_buf_free(&a->in); /* the secret was there */
    return 0;
}

int hvd__agent_open(struct hvd__agent *a, const char *address, uint32_t rank,
                    uint64_t deadline_ns, struct worker_welcome *w,
                    struct hb_error *err)
{
    int rc = connect_agent(a, address, deadline_ns, err);

    if (rc == 0)
        rc = say_hello(a, rank, deadline_ns, w, err);
    if (rc < 0)
        hvd__agent_close(a);
    a->interrupted = 0;
    return rc;
}

int hvd__agent_join(struct hvd__agent *a, uint32_t epoch,
                    uint64_t segment_bytes, uint64_t deadline_ns, int *memfd,
                    struct hb_error *err)
{
    struct worker_join join = {epoch, segment_bytes};
    struct worker_segment segment;
    struct hb_buf out = HB_BUF_INIT;
    struct frame f;
    int rc;

    worker_encode_join(&out, &join);
    rc = exchange(a, &out, WORKER_SEGMENT, deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    if (worker_decode_segment(f.payload, f.len, &segment) < 0 ||
        segment.epoch != epoch || segment.segment_bytes != segment_bytes ||
        a->memfd < 0)
        return hb_error_set(err, HVD_EPROTO, "agent: malformed SEGMENT");
    frame_done(&a->in, &f);
    *memfd = a->memfd;
    a->memfd = -1;
    return 0;
}

int hvd__agent_routes(struct hvd__agent *a, uint64_t deadline_ns,
                      uint32_t host_count,
                      char (*addresses)[WORKER_ADDRESS_MAX],
                      struct hb_error *err)
{
    struct hb_buf out = HB_BUF_INIT;
    struct frame f;
    int rc;

    worker_encode_routes(&out);
    rc = exchange(a, &out, WORKER_ROUTES_ARE, deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    if (worker_decode_routes_are(f.payload, f.len, host_count, addresses) < 0)
        return hb_error_set(err, HVD_EPROTO, "agent: malformed ROUTES_ARE");
    frame_done(&a->in, &f);
    return 0;
}

static int take_fenced(const struct hvd__fence *fence, const struct frame *f,
                       struct hb_error *err)
{
    struct worker_value *values = hb_calloc(fence->size, sizeof(*values));
    int rc;

    if (!values)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %u ranks",
                            fence->size);
    if (worker_decode_fenced(f->payload, f->len, fence->scope, fence->size,
                             values) < 0)
        rc = hb_error_set(err, HVD_EPROTO, "agent: malformed RDV_FENCED");
    else
        rc = fence->take(fence->arg, values, err);
    hb_free(values);
    return rc;
}

int hvd__agent_fence(struct hvd__agent *a, const struct hvd__fence *fence,
                     uint64_t deadline_ns, struct hb_error *err)
{
    struct hb_buf out = HB_BUF_INIT;
    struct frame f;
    int rc;

    worker_encode_fence(&out, fence->scope, fence->value, fence->len);
    rc = exchange(a, &out, WORKER_RDV_FENCED, deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    rc = take_fenced(fence, &f, err);
    frame_done(&a->in, &f);
    return rc;
}

int hvd__agent_ask(struct hvd__agent *a, struct rdv_request *m,
                   int (*take)(void *arg, const struct rdv_reply *m), void *arg,
                   uint64_t deadline_ns, struct hb_error *err)
{
    struct hb_buf out = HB_BUF_INIT;
    struct rdv_reply reply;
    struct frame f;
    int rc;

    m->id = 1; /* one at a time */
    rc = m->len > RDV_VALUE_MAX ? -HVD_EINVAL
                                : rdv_encode_request(&out, WORKER_RDV, m);
    if (rc == -HVD_EINVAL)
        return hb_error_set(err, HVD_EINVAL,
                            "a name or value for the store is too long");
    rc = exchange(a, &out, WORKER_RDV_REPLY, deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    if (rdv_decode_reply(f.payload, f.len, &reply) < 0 || reply.id != m->id)
        rc = hb_error_set(err, HVD_EPROTO, "agent: malformed RDV_REPLY");
    else
        rc = take(arg, &reply);
    frame_done(&a->in, &f);
    return rc;
}

void hvd__agent_wake(const struct hvd__agent_call *c)
{
    const uint64_t one = 1;

    while (write(c->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* Copies the reply to the call that waits for it. */
static void take_reply(struct hvd__agent_call *c, const struct rdv_reply *m)
{
    c->status = m->status;
    c->culprit = (int)m->version;
    if (m->len && hb_buf_append(&c->value, m->value, m->len) < 0)
        c->status = HVD_ENOMEM;
    c->done = 1;
    hvd__agent_wake(c);
}

/* Hands a reply over to the call that waits for it, if that has not given up;
 * under the lock.  Returns 0 if the frame is no reply to a call. */
static int deliver(struct hvd__agent *a, const struct frame *f)
{
    struct rdv_reply reply;

    if (f->type != WORKER_RDV_REPLY ||
        rdv_decode_reply(f->payload, f->len, &reply) < 0)
        return 0;
    for (struct hvd__agent_call *c = a->calls; c; c = c->next)
        if (c->id == reply.id && !c->done)
            take_reply(c, &reply);
    return reply.id <= a->last_id;
}

int hvd__agent_check_locked(struct hvd__agent *a, struct hb_error *err)
{
    struct frame f;
    int rc;

    if (a->fd < 0)
        return hb_error_set(err, HVD_ECLOSED, "the agent on this host is gone");
    /* Without memory the message stays in the socket until the next check. */
    if (make_room(a) < 0)
        return 0;
    rc = read_some(a, err);
    if (rc < 0)
        return rc;
    while ((rc = frame_decode(&a->in, WORKER_FENCED_MAX, &f, err)) > 0 &&
           deliver(a, &f))
        frame_done(&a->in, &f);
    if (rc <= 0)
        return rc;
    /* The frame stays in the buffer, so that every later check reports it
     * again. */
    if (f.type == WORKER_ABORT || f.type == WORKER_TIMEOUT)
        return tell_abort(&f, err);
    return hb_error_set(err, HVD_EPROTO,
                        "agent: message of type %u out of turn", f.type);
}

/* Locks, as the drivers of several process sets may call it. */
int hvd__agent_check(struct hvd__agent *a, struct hb_error *err)
{
    int rc;

    pthread_mutex_lock(&a->lock);
    rc = hvd__agent_check_locked(a, err);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void hvd__agent_say(struct hvd__agent *a, const void *frame, size_t len)
{
    while (a->fd >= 0 &&
           send(a->fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
           errno == EINTR)
        ;
}

/* Waits until the agent tells why the ranks were late, and skips all other
 * messages.  Returns 1 with *why set, 0 if it does not tell in time. */
static int hear_why(struct hvd__agent *a, uint64_t deadline_ns,
                    struct hb_error *why)
{
    struct frame f;
    int rc;

    for (;;) {
        while ((rc = frame_decode(&a->in, WORKER_FENCED_MAX, &f, why)) == 0) {
            rc = make_room(a) < 0 ? -HVD_ENOMEM : read_some(a, why);
            if (rc == 0)
                rc = wait_ready(a->fd, POLLIN, deadline_ns, why);
            if (rc < 0)
                return 0;
        }
        if (rc < 0)
            return 0;
        if (f.type == WORKER_ABORT || f.type == WORKER_TIMEOUT) {
            hb_error_clear(why);
            tell_abort(&f, why);
            return 1;
        }
        frame_done(&a->in, &f);
    }
}

int hvd__agent_late(struct hvd__agent *a, uint64_t begun_ns,
                    struct hb_error *err)
{
    uint64_t ms = (hb_now_ns() - begun_ns) / 1000000;
    unsigned char frame[WORKER_LATE_BYTES];
    struct hb_error why = HB_ERROR_INIT;

    if (a->fd < 0)
        return err->status;
    worker_write_late(frame, ms < INT32_MAX ? (uint32_t)ms : INT32_MAX);
    hvd__agent_say(a, frame, sizeof(frame));
    if (hear_why(a, hb_now_ns() + LATE_ANSWER_NS, &why))
        *err = why;
    return err->status;
}

void hvd__agent_leave(struct hvd__agent *a, uint32_t epoch)
{
    struct hb_buf out = HB_BUF_INIT;

    if (a->fd >= 0 && worker_encode_leave(&out, epoch) == 0)
        while (send(a->fd, hb_buf_data(&out), hb_buf_len(&out),
                    MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
               errno == EINTR)
            ;
    hb_buf_free(&out);
}

void hvd__agent_close(struct hvd__agent *a)
{
    if (a->fd >= 0)
        close(a->fd);
    if (a->memfd >= 0)
        close(a->memfd);
    a->fd = -1;
    a->memfd = -1;
    hb_buf_free(&a->in);
}
