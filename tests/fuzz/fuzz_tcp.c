/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP: a peer of a group of two sends anything, in pieces as the second byte
 * says, and hangs up.  Exchanges and looks for what it has begun go on until
 * one fails; until then each has given exactly what the bytes say.
 */
#include "runtime/plane/tcp_impl.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"

#include <sys/socket.h>
#include <unistd.h>

enum { ROOM_BYTES = 100, STREAM_MAX = 16 << 10, EXCHANGES_MAX = 100 };

static struct hvd__tcp *make(int fd)
{
    struct hvd__tcp *t = hb_calloc(1, sizeof(*t));

    FUZZ_CHECK(t);
    t->n = 2;
    t->epoll_fd = t->begins_fd = t->event_fd = t->agent_fd = t->lost = -1;
    t->conns = hb_calloc(2, sizeof(*t->conns));
    FUZZ_CHECK(t->conns);
    t->conns[0].fd = -1;
    t->conns[1].fd = fd;
    t->conns[1].rank = 1;
    strcpy(t->conns[1].host, "h1");
    return t;
}

struct stream {
    const uint8_t *data;
    size_t left, piece;
    int fd; /* -1: hung up */
};

/* Sends the next piece, or hangs up after the last one. */
static void feed(struct stream *s)
{
    size_t bytes = s->piece < s->left ? s->piece : s->left;

    if (s->fd < 0)
        return;
    if (bytes == 0) {
        close(s->fd);
        s->fd = -1;
        return;
    }
    FUZZ_CHECK(send(s->fd, s->data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    s->data += bytes;
    s->left -= bytes;
}

static void check_failure(int rc, const struct hb_error *err)
{
    fuzz_check_error(rc, err);
    FUZZ_CHECK(rc == -HVD_EPROTO || rc == -HVD_ESHUTDOWN || rc == -HVD_EPEER);
}

/* 1 when the exchange came to its end. */
static int exchange(struct hvd__tcp *t, struct stream *s, int known,
                    const uint8_t **expected)
{
    struct hb_error err = HB_ERROR_INIT;
    unsigned char *in = malloc(ROOM_BYTES), out[3] = {1, 2, 3};
    struct hvd__tcp_block send[2] = {{NULL, 0}, {out, sizeof(out)}};
    struct hvd__tcp_block recv[2] = {{NULL, 0}, {in, ROOM_BYTES}};
    int rc, began;

    FUZZ_CHECK(in);
    while ((began = hvd__tcp_began(t, &err)) == 0)
        feed(s);
    if (began < 0)
        check_failure(began, &err);
    hb_error_clear(&err);
    hvd__tcp_alltoallv(t, send, recv, known);
    while ((rc = hvd__tcp_progress(t, &err)) == 0)
        feed(s);
    FUZZ_CHECK(began == 1 || rc < 0);
    if (rc < 0)
        check_failure(rc, &err);
    else
        FUZZ_CHECK(recv[1].len <= ROOM_BYTES &&
                   memcmp(in, *expected + TCP_HEAD_BYTES, recv[1].len) == 0);
    *expected += TCP_HEAD_BYTES + recv[1].len;
    free(in);
    return rc;
}

static void check_head(const uint8_t *data, size_t size)
{
    unsigned char again[TCP_HEAD_BYTES];
    struct tcp_head head;

    if (size < TCP_HEAD_BYTES || tcp_head_decode(data, &head) < 0)
        return;
    tcp_head_encode(&head, again);
    FUZZ_CHECK(memcmp(again, data, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream s = {.fd = -1};
    const uint8_t *expected;
    struct hvd__tcp *t;
    int fds[2];

    if (size < 2 || size > STREAM_MAX)
        return 0;
    check_head(data + 2, size - 2);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    s = (struct stream){data + 2, size - 2, 1u + data[1], fds[1]};
    expected = s.data;
    t = make(fds[0]);
    for (int i = 0; i < EXCHANGES_MAX; i++)
        if (exchange(t, &s, data[0] & 1, &expected) != 1)
            break;
    hvd__tcp_free(t);
    if (s.fd >= 0)
        close(s.fd);
    return 0;
}
