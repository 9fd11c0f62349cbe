/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct exchange in a TCP group: everybody's block to everybody.
 *
 * A block has a head, which says how long it is and which exchange it
 * belongs to; in its place a peer may say that a rank has shut down.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "runtime/plane/tcp_impl.h"

#include "lib/base/buf.h"

static void put_u32(unsigned char *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(v >> (24 - 8 * i));
}

static void make_head(unsigned char head[TCP_HEAD_BYTES],
                      enum tcp_head_kind kind, uint32_t seq, size_t len)
{
    put_u32(head, TCP_HEAD_MAGIC);
    put_u32(head + 4, kind);
    put_u32(head + 8, seq);
    put_u32(head + 12, (uint32_t)len);
}

void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       struct hvd__tcp_block *blocks)
{
    t->mode = TCP_EXCHANGE;
    t->since_ns = 0;
    t->seq++;
    t->send = send;
    t->send_len = len;
    t->blocks = blocks;
    make_head(t->send_head, TCP_HEAD_DATA, t->seq, len);
    for (int i = 0; i < t->n; i++)
        t->conns[i].sent = t->conns[i].got = 0;
}

/* ---- One connection -------------------------------------------------- */

static int sent_all(const struct hvd__tcp *t, const struct tcp_conn *c)
{
    return c->sent == TCP_HEAD_BYTES + t->send_len;
}

static int got_all(const struct tcp_conn *c)
{
    return c->got >= TCP_HEAD_BYTES && c->got == TCP_HEAD_BYTES + c->expected;
}

/* Head and bytes in one call.  A peer that takes no more may have said why
 * before. */
static void send_block(struct hvd__tcp *t, int i)
{
    struct tcp_conn *c = &t->conns[i];

    while (!sent_all(t, c) && !c->send_errno) {
        size_t head = c->sent < TCP_HEAD_BYTES ? TCP_HEAD_BYTES - c->sent : 0;
        size_t body = head ? 0 : c->sent - TCP_HEAD_BYTES;
        struct iovec iov[2] = {
            {t->send_head + TCP_HEAD_BYTES - head, head},
            {(void *)(uintptr_t)(t->send + body), t->send_len - body}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->send_errno = errno == EAGAIN || errno == ENOBUFS ? 0 : errno;
            return;
        }
        t->moved = 1;
        c->sent += (size_t)n;
    }
}

static int tell_gone(const struct hvd__tcp *t, const struct tcp_conn *c,
                     struct hb_error *err)
{
    struct hb_reader r;
    const char *host;
    uint32_t rank;

    hb_reader_init(&r, c->gone, sizeof(c->gone));
    rank = hb_read_u32(&r);
    host = t->host_of ? t->host_of(t->arg, rank) : "?";
    if (err) {
        err->rank = (int)rank;
        snprintf(err->host, sizeof(err->host), "%s", host);
    }
    return hb_error_set(err, HVD_ESHUTDOWN, "rank %u on host %s has shut down",
                        rank, host);
}

/* 1, or negative for a head that is none of this exchange. */
static int read_head(struct hvd__tcp *t, int i, struct hb_error *err)
{
    struct tcp_conn *c = &t->conns[i];
    uint32_t magic, kind, seq;
    struct hb_reader r;

    hb_reader_init(&r, c->head, sizeof(c->head));
    magic = hb_read_u32(&r);
    kind = hb_read_u32(&r);
    seq = hb_read_u32(&r);
    c->expected = hb_read_u32(&r);
    c->is_gone = magic == TCP_HEAD_MAGIC && kind == TCP_HEAD_GONE &&
                 c->expected == TCP_GONE_BYTES;
    if (c->is_gone)
        return 1;
    if (magic != TCP_HEAD_MAGIC || kind != TCP_HEAD_DATA || seq != t->seq ||
        c->expected > t->blocks[i].len)
        return hb_error_set(err, HVD_EPROTO,
                            "rank %u on host %s: its message is out of step",
                            c->rank, c->host);
    t->blocks[i].len = c->expected;
    return 1;
}

static int recv_block(struct hvd__tcp *t, int i, struct hb_error *err)
{
    struct tcp_conn *c = &t->conns[i];

    while (!got_all(c)) {
        int in_head = c->got < TCP_HEAD_BYTES;
        unsigned char *body = c->is_gone ? c->gone : t->blocks[i].p;
        size_t left = in_head ? TCP_HEAD_BYTES - c->got
                              : TCP_HEAD_BYTES + c->expected - c->got;
        ssize_t n = tcp_recv(
            t, i, in_head ? c->head + c->got : body + c->got - TCP_HEAD_BYTES,
            left);
        int rc;

        if (n <= 0)
            return 0;
        c->got += (size_t)n;
        rc = c->got == TCP_HEAD_BYTES ? read_head(t, i, err) : 1;
        if (rc < 0)
            return rc;
    }
    return c->is_gone ? tell_gone(t, c, err) : 1;
}

/* ---- All of them ----------------------------------------------------- */

int tcp_exchange_advance(struct hvd__tcp *t, struct hb_error *err)
{
    int open = 0;

    for (int i = 0; i < t->n; i++)
        if (i != t->me)
            send_block(t, i);
    for (int i = 0; i < t->n; i++) {
        struct tcp_conn *c = &t->conns[i];
        int rc;

        if (i == t->me)
            continue;
        rc = recv_block(t, i, err);
        if (rc < 0)
            return rc;
        if (rc == 1 && c->send_errno)
            tcp_set_lost(t, i, c->send_errno);
        open += rc == 0 || !sent_all(t, c);
    }
    return open == 0;
}

uint32_t tcp_exchange_events(const struct hvd__tcp *t, int i)
{
    const struct tcp_conn *c = &t->conns[i];
    uint32_t in = got_all(c) ? 0 : EPOLLIN;
    uint32_t out = sent_all(t, c) || c->send_errno ? 0 : EPOLLOUT;

    return in | out;
}

void hvd__tcp_tell_gone(struct hvd__tcp *t, uint32_t rank)
{
    unsigned char bytes[TCP_HEAD_BYTES + TCP_GONE_BYTES];

    make_head(bytes, TCP_HEAD_GONE, t->seq + 1, TCP_GONE_BYTES);
    put_u32(bytes + TCP_HEAD_BYTES, rank);
    /* A peer that does not take it at once hears it from the agent or sees
     * the connection end. */
    for (int i = 0; i < t->n; i++)
        if (i != t->me && t->conns[i].fd >= 0)
            tcp_send(t, i, bytes, sizeof(bytes));
}
