/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of a TCP group of two whose bytes have no heads: the peer sends
 * anything, in pieces, and hangs up.  If it sent enough, the result follows
 * from those bytes and this member's vector; else the peer is reported as lost.
 *
 * The input begins with the collective, this member's place, the elements, the
 * bytes in a piece and the bytes in a chunk.
 */
#include "runtime/plane/tcp/tcp_impl.h"
#include "tests/fuzz/fuzz.h"

#include "lib/base/alloc.h"

#include <sys/socket.h>
#include <unistd.h>

enum { SETTINGS = 5, CHUNK_MAX = 64 };
enum which {
    RD,
    RABENSEIFNER,
    RING,
    SCATTER,
    GATHER,
    TREE,
    CHAIN,
    WHICH_COUNT
};

struct job {
    enum which which;
    int me;
    size_t count, piece, chunk;
    const uint8_t *data;
    size_t left;
    int fd; /* -1: closed */
};

static unsigned char own_value(const struct job *j, size_t i)
{
    return (unsigned char)(i * 7 + (size_t)j->me + 1);
}

/* ---- The expected result ------------------------------------------------- */

/* Takes the peer's bytes for a part into `want`; returns 0 if there are too
 * few. */
static int expect(const struct job *j, size_t *at, int part, int reduced,
                  unsigned char *want)
{
    size_t first = tcp_part_first(j->count, 2, (size_t)part);
    size_t end = tcp_part_first(j->count, 2, (size_t)part + 1);

    if (part < 0) {
        first = 0;
        end = j->count;
    }
    if (end - first > j->left - *at)
        return 0;
    for (size_t i = first; i < end; i++) {
        want[i] = j->data[(*at)++];
        if (reduced)
            want[i] = (unsigned char)(want[i] + own_value(j, i));
    }
    return 1;
}

static int expect_all(const struct job *j, unsigned char *want)
{
    size_t at = 0;

    switch (j->which) {
    case RD:
        return expect(j, &at, -1, 1, want);
    case RABENSEIFNER:
        return expect(j, &at, j->me, 1, want) &&
               expect(j, &at, !j->me, 0, want);
    case RING:
        return expect(j, &at, !j->me, 1, want) &&
               expect(j, &at, j->me, 0, want);
    case SCATTER:
        return expect(j, &at, j->me, 1, want);
    case GATHER:
        return expect(j, &at, !j->me, 0, want);
    case TREE:
    case CHAIN:
        return j->me == 0 || expect(j, &at, -1, 0, want);
    case WHICH_COUNT:
        break;
    }
    return 0;
}

/* ---- The group ------------------------------------------------------- */

static struct hvd__tcp *make(const struct job *j, int fd)
{
    struct hvd__tcp *t = hb_calloc(1, sizeof(*t));

    FUZZ_CHECK(t);
    t->n = 2;
    t->me = j->me;
    t->epoll_fd = t->begins_fd = t->event_fd = t->agent_fd = t->lost = -1;
    t->conns = hb_calloc(2, sizeof(*t->conns));
    t->parts = hb_calloc(3, sizeof(*t->parts));
    FUZZ_CHECK(t->conns && t->parts);
    t->conns[j->me].fd = -1;
    t->conns[!j->me].fd = fd;
    strcpy(t->conns[!j->me].host, "peer");
    return t;
}

static void begin(struct hvd__tcp *t, const struct job *j,
                  const struct hvd__tcp_reduction *r, const size_t *first)
{
    switch (j->which) {
    case RD:
        hvd__tcp_allreduce(t, r, HVD__TCP_RD);
        break;
    case RABENSEIFNER:
        hvd__tcp_allreduce(t, r, HVD__TCP_RABENSEIFNER);
        break;
    case RING:
        hvd__tcp_allreduce(t, r, HVD__TCP_RING);
        break;
    case SCATTER:
        hvd__tcp_reduce_scatter(t, r, first);
        break;
    case GATHER:
        hvd__tcp_allgather(t, r->buf, first);
        break;
    case TREE:
        hvd__tcp_broadcast(t, r->buf, r->count, 0, HVD__TCP_TREE);
        break;
    case CHAIN:
        hvd__tcp_broadcast(t, r->buf, r->count, 0, HVD__TCP_CHAIN);
        break;
    case WHICH_COUNT:
        break;
    }
}

/* Sends the next piece, or hangs up after the last one. */
static void feed(struct job *j)
{
    size_t bytes = j->piece < j->left ? j->piece : j->left;

    if (j->fd >= 0 && bytes == 0) {
        close(j->fd);
        j->fd = -1;
    }
    if (j->fd < 0)
        return;
    FUZZ_CHECK(send(j->fd, j->data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    j->data += bytes;
    j->left -= bytes;
}

static void check_result(const struct job *j, const unsigned char *buf,
                         const unsigned char *want)
{
    size_t half = tcp_part_first(j->count, 2, 1);
    size_t first = j->which == SCATTER && j->me ? half : 0;
    size_t end = j->which == SCATTER && !j->me ? half : j->count;

    FUZZ_CHECK(memcmp(buf + first, want + first, end - first) == 0);
}

static void run(struct job *j, struct hvd__tcp *t, unsigned char *buf,
                const struct hvd__tcp_reduction *r)
{
    size_t first[3] = {0, tcp_part_first(j->count, 2, 1), j->count};
    struct hb_error err = HB_ERROR_INIT;
    unsigned char want[UINT8_MAX];
    int rc, enough;

    memcpy(want, buf, j->count);
    enough = expect_all(j, want);
    begin(t, j, r, first);
    while ((rc = hvd__tcp_progress(t, &err)) == 0)
        feed(j);
    FUZZ_CHECK(rc == (enough ? 1 : -HVD_EPEER));
    fuzz_check_error(rc, &err);
    if (enough)
        check_result(j, buf, want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char chunk[CHUNK_MAX], *buf;
    struct hvd__tcp_reduction r = {.elem_bytes = 1, .args = {1.0, 1.0, 1, 0}};
    struct hvd__tcp *t;
    struct job j;
    int fds[2];

    if (size < SETTINGS)
        return 0;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    j = (struct job){(enum which)(data[0] % WHICH_COUNT),
                     data[1] & 1,
                     data[2],
                     1u + data[3],
                     1u + data[4] % CHUNK_MAX,
                     data + SETTINGS,
                     size - SETTINGS,
                     fds[1]};
    buf = malloc(j.count + 1);
    FUZZ_CHECK(buf);
    for (size_t i = 0; i < j.count; i++)
        buf[i] = own_value(&j, i);
    r.buf = buf;
    r.count = j.count;
    r.reduce = hvd__reduce_get(HVD_UINT8, HVD_SUM);
    r.chunk = chunk;
    r.chunk_bytes = j.chunk;
    t = make(&j, fds[0]);
    run(&j, t, buf, &r);
    hvd__tcp_free(t);
    if (j.fd >= 0)
        close(j.fd);
    free(buf);
    return 0;
}
