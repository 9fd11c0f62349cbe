/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct exchange in a TCP group: a block from every member to every other.
 *
 * A block has a head, which holds its length and the number of its exchange.
 * A peer may send a GONE message instead: a rank has shut down.  If both sides
 * know that there is nothing to send, not even a head is sent.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "runtime/plane/tcp/tcp_impl.h"

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

/* Prepares the block for member i; to_send 0: send nothing. */
static void send_to(struct hvd__tcp *t, int i, const void *p, size_t len,
                    size_t words)
{
    struct tcp_conn *c = &t->conns[i];
    struct tcp_head head = {TCP_HEAD_DATA, t->seq, (uint32_t)words, len};

    c->got = c->sent = 0;
    c->to_get = TCP_HEAD_BYTES;
    c->is_gone = 0;
    c->to_send = t->known && len == 0 ? 0 : TCP_HEAD_BYTES + len;
    c->out = p;
    if (i != t->me && c->to_send)
        tcp_mac_seal(&c->mac_out, &head, p, c->out_head);
}

void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       size_t words, struct hvd__tcp_block *blocks)
{
    begin(t, blocks, len, 0);
    for (int i = 0; i < t->n; i++)
        send_to(t, i, send, len, words);
}

void hvd__tcp_alltoallv(struct hvd__tcp *t, const struct hvd__tcp_block *send,
                        const size_t *words, struct hvd__tcp_block *recv,
                        int known)
{
    size_t most = 0;

    for (int i = 0; i < t->n; i++)
        if (i != t->me && send[i].len > most)
            most = send[i].len;
    begin(t, recv, most, known);
    for (int i = 0; i < t->n; i++) {
        send_to(t, i, send[i].p, send[i].len, words ? words[i] : 0);
        if (known && recv[i].len == 0)
            t->conns[i].to_get = 0;
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

/* Sends head and bytes in one call.  On failure only notes the errno: the peer
 * may have sent the reason before it closed. */
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
            tcp_check_memory(errno);
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
    if (rank > INT32_MAX)
        return hb_error_set(err, HVD_EPROTO, "a rank tells that rank %u left",
                            rank);
    host = t->host_of ? t->host_of(t->arg, rank) : "?";
    if (err) {
        err->rank = (int)rank;
        snprintf(err->host, sizeof(err->host), "%s", host);
    }
    return hb_error_set(err, HVD_ESHUTDOWN, "rank %u on host %s has shut down",
                        rank, host);
}

/* Checks the head from member i: 0, or negative if it is not of this
 * exchange. */
static int read_head(struct hvd__tcp *t, int i, struct hb_error *err)
{
    struct tcp_conn *c = &t->conns[i];
    size_t room = t->blocks[i].len;
    struct tcp_head head;
    int rc;

    if (tcp_mac_check_head(&c->mac_in, c->head) < 0)
        return tcp_blame_changed(t, i, err);
    rc = tcp_head_decode(c->head, &head);
    if (rc == 0 && head.kind == TCP_HEAD_DATA &&
        (head.seq != t->seq || head.len > room ||
         (t->known && head.len < room)))
        rc = -HVD_EPROTO;
    if (rc < 0)
        return tcp_blame(t, i, HVD_EPROTO, "its message is out of step", err);
    c->is_gone = head.kind == TCP_HEAD_GONE;
    c->words = head.words;
    c->to_get = TCP_HEAD_BYTES + (size_t)head.len;
    if (!c->is_gone)
        t->blocks[i].len = (size_t)head.len;
    return 0;
}

/* Checks the words of a complete message: 0, or negative if they were
 * changed. */
static int end_block(struct hvd__tcp *t, int i, struct hb_error *err)
{
    struct tcp_conn *c = &t->conns[i];
    const unsigned char *body = c->is_gone ? c->gone : t->blocks[i].p;

    if (tcp_mac_check_words(&c->mac_in, c->head, body, c->words) < 0)
        return tcp_blame_changed(t, i, err);
    tcp_mac_next(&c->mac_in);
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
        if (got_all(c) && end_block(t, i, err) < 0)
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
    struct tcp_head head = {TCP_HEAD_GONE, t->seq + 1, TCP_GONE_BYTES,
                            TCP_GONE_BYTES};

    for (int i = 0; i < TCP_GONE_BYTES; i++)
        bytes[TCP_HEAD_BYTES + i] = (unsigned char)(rank >> (24 - 8 * i));
    /* No retry: a peer that cannot take it at once learns it from the agent or
     * from the end of the connection. */
    for (int i = 0; i < t->n; i++)
        if (i != t->me && t->conns[i].fd >= 0) {
            tcp_mac_seal(&t->conns[i].mac_out, &head, bytes + TCP_HEAD_BYTES,
                         bytes);
            tcp_send(t, i, bytes, sizeof(bytes));
        }
}
