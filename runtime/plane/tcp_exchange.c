/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct exchange in a TCP group: a block from everybody to everybody.
 *
 * A block has a head, which says how long it is and which exchange it
 * belongs to; in its place a peer may say that a rank has shut down.  Where
 * both sides know that there is nothing to send, not even a head is sent.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "runtime/plane/tcp_impl.h"

#include "lib/base/buf.h"

/* ---- Beginning ------------------------------------------------------- */

static void begin(struct hvd__tcp *t, struct hvd__tcp_block *blocks,
                  size_t bytes, int known)
{
    tcp_begin(t, TCP_EXCHANGE, bytes);
    t->known = known;
    t->seq++;
    t->blocks = blocks;
    t->turns = 0;
    t->late = -1;
}

int hvd__tcp_late(const struct hvd__tcp *t)
{
    return t->late;
}

static void send_to(struct hvd__tcp *t, int i, const void *p, size_t len)
{
    struct tcp_conn *c = &t->conns[i];
    struct tcp_head head = {TCP_HEAD_DATA, t->seq, len};

    tcp_head_encode(&head, c->out_head);
    c->out = p;
    c->sent = 0;
    c->to_send = TCP_HEAD_BYTES + len;
    c->got = 0;
    c->to_get = TCP_HEAD_BYTES;
    c->is_gone = 0;
}

void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       struct hvd__tcp_block *blocks)
{
    begin(t, blocks, len, 0);
    for (int i = 0; i < t->n; i++)
        send_to(t, i, send, len);
}

void hvd__tcp_alltoallv(struct hvd__tcp *t, const struct hvd__tcp_block *send,
                        struct hvd__tcp_block *recv, int known)
{
    size_t most = 0;

    for (int i = 0; i < t->n; i++)
        if (i != t->me && send[i].len > most)
            most = send[i].len;
    begin(t, recv, most, known);
    for (int i = 0; i < t->n; i++) {
        struct tcp_conn *c = &t->conns[i];

        send_to(t, i, send[i].p, send[i].len);
        if (known && send[i].len == 0)
            c->to_send = 0;
        if (known && recv[i].len == 0)
            c->to_get = 0;
    }
}

/* ---- One connection -------------------------------------------------- */

static int sent_all(const struct tcp_conn *c)
{
    return c->sent == c->to_send;
}

static int got_all(const struct tcp_conn *c)
{
    return c->got == c->to_get;
}

/* Head and bytes in one call.  A peer that takes no more may have said why
 * before. */
static void send_block(struct hvd__tcp *t, struct tcp_conn *c)
{
    while (!sent_all(c) && !c->send_errno) {
        size_t head = c->sent < TCP_HEAD_BYTES ? TCP_HEAD_BYTES - c->sent : 0;
        size_t body = head ? 0 : c->sent - TCP_HEAD_BYTES;
        struct iovec iov[2] = {{c->out_head + TCP_HEAD_BYTES - head, head},
                               {(void *)(uintptr_t)(c->out + body),
                                c->to_send - TCP_HEAD_BYTES - body}};
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

int tcp_tell_who_left(const struct hvd__tcp *t,
                      const unsigned char gone[TCP_GONE_BYTES],
                      struct hb_error *err)
{
    struct hb_reader r;
    const char *host;
    uint32_t rank;

    hb_reader_init(&r, gone, TCP_GONE_BYTES);
    rank = hb_read_u32(&r);
    host = t->host_of ? t->host_of(t->arg, rank) : "?";
    if (err) {
        err->rank = (int)rank;
        snprintf(err->host, sizeof(err->host), "%s", host);
    }
    return hb_error_set(err, HVD_ESHUTDOWN, "rank %u on host %s has shut down",
                        rank, host);
}

/* 0, or negative for a head that is none of this exchange. */
static int read_head(struct hvd__tcp *t, int i, struct hb_error *err)
{
    struct tcp_conn *c = &t->conns[i];
    size_t room = t->blocks[i].len;
    struct tcp_head head;
    int rc = tcp_head_decode(c->head, &head);

    if (rc == 0 && head.kind == TCP_HEAD_DATA &&
        (head.seq != t->seq || head.len > room ||
         (t->known && head.len < room)))
        rc = -HVD_EPROTO;
    if (rc < 0)
        return tcp_blame(t, i, HVD_EPROTO, "its message is out of step", err);
    c->is_gone = head.kind == TCP_HEAD_GONE;
    c->to_get = TCP_HEAD_BYTES + (size_t)head.len;
    if (!c->is_gone)
        t->blocks[i].len = (size_t)head.len;
    return 0;
}

static int recv_block(struct hvd__tcp *t, int i, struct hb_error *err)
{
    struct tcp_conn *c = &t->conns[i];

    while (!got_all(c)) {
        int in_head = c->got < TCP_HEAD_BYTES;
        unsigned char *body = c->is_gone ? c->gone : t->blocks[i].p;
        unsigned char *at =
            in_head ? c->head + c->got : body + (c->got - TCP_HEAD_BYTES);
        ssize_t n =
            tcp_recv(t, i, at, (in_head ? TCP_HEAD_BYTES : c->to_get) - c->got);

        if (n <= 0)
            return 0;
        c->got += (size_t)n;
        if (c->got == TCP_HEAD_BYTES && read_head(t, i, err) < 0)
            return -HVD_EPROTO;
    }
    return c->is_gone ? tcp_tell_who_left(t, c->gone, err) : 1;
}

/* ---- All of them ----------------------------------------------------- */

int tcp_exchange_advance(struct hvd__tcp *t, struct hb_error *err)
{
    int open = 0;

    t->turns++;
    for (int i = 0; i < t->n; i++)
        if (i != t->me)
            send_block(t, &t->conns[i]);
    for (int i = 0; i < t->n; i++) {
        struct tcp_conn *c = &t->conns[i];
        int rc, was_there = got_all(c);

        if (i == t->me)
            continue;
        rc = recv_block(t, i, err);
        if (rc < 0)
            return rc;
        if (rc == 1 && !was_there && t->turns > 1)
            t->late = i;
        if (rc == 1 && c->send_errno)
            tcp_set_lost(t, i, c->send_errno);
        open += rc == 0 || !sent_all(c);
    }
    return open == 0;
}

uint32_t tcp_exchange_events(const struct hvd__tcp *t, int i)
{
    const struct tcp_conn *c = &t->conns[i];
    uint32_t in = got_all(c) ? 0 : EPOLLIN;
    uint32_t out = sent_all(c) || c->send_errno ? 0 : EPOLLOUT;

    return in | out;
}

void hvd__tcp_tell_gone(struct hvd__tcp *t, uint32_t rank)
{
    unsigned char bytes[TCP_HEAD_BYTES + TCP_GONE_BYTES];
    struct tcp_head head = {TCP_HEAD_GONE, t->seq + 1, TCP_GONE_BYTES};

    tcp_head_encode(&head, bytes);
    for (int i = 0; i < TCP_GONE_BYTES; i++)
        bytes[TCP_HEAD_BYTES + i] = (unsigned char)(rank >> (24 - 8 * i));
    /* A peer that does not take it at once hears it from the agent or sees
     * the connection end. */
    for (int i = 0; i < t->n; i++)
        if (i != t->me && t->conns[i].fd >= 0)
            tcp_send(t, i, bytes, sizeof(bytes));
}
