/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring allreduce and chain broadcast in a TCP group: a stream of bytes
 * comes in from the member before, one goes out to the member after, and
 * what goes out is what came in earlier.
 *
 * Ring.  The buffer has one part per member.  In step s = 0 .. 2(n-1)-1
 * member m sends part m - s and receives part m - s - 1 (mod n): what it
 * sends in a step, from the second on, is what it received in the step
 * before.  In the first n - 1 steps a received part is reduced with the
 * member's own, so after them part m + 1 is whole; in the others it is
 * stored.  A part is summed along one path only and then copied, so all
 * get the same bits.  The first part may go out at once and the rest as
 * far as the stream has come in and is reduced: a member that is ahead
 * waits for nothing but bytes.
 *
 * Chain.  One part, from root to the member before root.
 */
#include <string.h>
#include <sys/epoll.h>

#include "runtime/plane/tcp_impl.h"

static int before(const struct hvd__tcp *t)
{
    return (t->me + t->n - 1) % t->n;
}

static int after(const struct hvd__tcp *t)
{
    return (t->me + 1) % t->n;
}

/* ---- Geometry -------------------------------------------------------- */

static size_t part_first(const struct hvd__tcp *t, int part)
{
    size_t n = (size_t)t->n, p = (size_t)part;
    size_t each = t->ring.count / n, rest = t->ring.count % n;

    return p * each + (p < rest ? p : rest);
}

struct piece {
    unsigned char *p;
    size_t bytes;
};

static struct piece part_of(const struct hvd__tcp *t, int part)
{
    size_t first = part_first(t, part), next = part_first(t, part + 1);
    struct piece piece = {(unsigned char *)t->ring.buf +
                              first * t->ring.elem_bytes,
                          (next - first) * t->ring.elem_bytes};

    return piece;
}

/* What a cursor's step is about; `shift` is 0 for sending and 1 for
 * receiving. */
static struct piece piece_at(const struct hvd__tcp *t, int step, int shift)
{
    if (t->mode == TCP_CHAIN)
        return (struct piece){t->ring.buf, t->ring.count};
    return part_of(t, (2 * t->n + t->me - step - shift) % t->n);
}

static int steps(const struct hvd__tcp *t)
{
    return t->mode == TCP_CHAIN ? 1 : 2 * (t->n - 1);
}

static int receives(const struct hvd__tcp *t)
{
    return t->mode == TCP_RING || t->me != t->root;
}

static int sends(const struct hvd__tcp *t)
{
    return t->mode == TCP_RING || after(t) != t->root;
}

/* Steps over parts that are done or empty; 0 at the end. */
static int at_piece(const struct hvd__tcp *t, struct tcp_cursor *c, int shift)
{
    while (c->step < steps(t) &&
           c->offset == piece_at(t, c->step, shift).bytes) {
        c->step++;
        c->offset = 0;
    }
    return c->step < steps(t);
}

static void move(struct tcp_cursor *c, size_t bytes)
{
    c->offset += bytes;
    c->total += bytes;
}

/* Bytes of the outgoing stream that are there to be sent. */
static size_t sendable(const struct hvd__tcp *t)
{
    size_t own = 0;

    if (t->mode == TCP_RING)
        own = piece_at(t, 0, 0).bytes;
    else if (t->me == t->root)
        own = t->ring.count;
    return own + t->in.total - t->out.total;
}

/* ---- Moving ---------------------------------------------------------- */

static void send_stream(struct hvd__tcp *t)
{
    while (at_piece(t, &t->out, 0)) {
        struct piece piece = piece_at(t, t->out.step, 0);
        size_t bytes = piece.bytes - t->out.offset, there = sendable(t);
        ssize_t n;

        if (there == 0)
            return;
        n = tcp_send(t, after(t), piece.p + t->out.offset,
                     bytes < there ? bytes : there);
        if (n < 0)
            tcp_set_lost(t, after(t), (int)-n);
        if (n <= 0)
            return;
        move(&t->out, (size_t)n);
    }
}

/* What arrives to be reduced is collected in a chunk first. */
static int recv_reduced(struct hvd__tcp *t, const struct piece *piece)
{
    const struct hvd__tcp_ring *ring = &t->ring;
    size_t chunk = piece->bytes - t->in.offset;
    unsigned char *dst = piece->p + t->in.offset;
    struct hvd__reduce_args args = {1.0, 1.0, 1, 0};
    const void *srcs[2] = {ring->chunk, dst};
    ssize_t n;

    if (chunk > ring->chunk_bytes)
        chunk = ring->chunk_bytes / ring->elem_bytes * ring->elem_bytes;
    n = tcp_recv(t, before(t), (unsigned char *)ring->chunk + t->chunk_got,
                 chunk - t->chunk_got);
    if (n <= 0)
        return 0;
    t->chunk_got += (size_t)n;
    if (t->chunk_got < chunk)
        return 1;
    /* The last one to reduce a part scales it. */
    if (t->in.step == t->n - 2)
        args = ring->args;
    args.pre = 1.0;
    ring->reduce(dst, srcs, 2, chunk / ring->elem_bytes, &args);
    t->chunk_got = 0;
    move(&t->in, chunk);
    return 1;
}

static int recv_stored(struct hvd__tcp *t, const struct piece *piece)
{
    ssize_t n = tcp_recv(t, before(t), piece->p + t->in.offset,
                         piece->bytes - t->in.offset);

    if (n <= 0)
        return 0;
    move(&t->in, (size_t)n);
    return 1;
}

/* Sends between two chunks, so that the link is not idle meanwhile. */
int tcp_stream_advance(struct hvd__tcp *t, struct hb_error *err)
{
    int more = 1;

    (void)err;
    while (more && t->lost < 0) {
        more = 0;
        if (receives(t) && at_piece(t, &t->in, 1)) {
            struct piece piece = piece_at(t, t->in.step, 1);

            more = t->mode == TCP_RING && t->in.step < t->n - 1
                       ? recv_reduced(t, &piece)
                       : recv_stored(t, &piece);
        }
        if (sends(t))
            send_stream(t);
    }
    return (!receives(t) || !at_piece(t, &t->in, 1)) &&
           (!sends(t) || !at_piece(t, &t->out, 0));
}

uint32_t tcp_stream_events(const struct hvd__tcp *t, int i)
{
    struct tcp_cursor in = t->in, out = t->out;
    uint32_t events = 0;

    if (i == before(t) && receives(t) && at_piece(t, &in, 1))
        events |= EPOLLIN;
    if (i == after(t) && sends(t) && at_piece(t, &out, 0) && sendable(t))
        events |= EPOLLOUT;
    return events;
}

/* ---- Beginning ------------------------------------------------------- */

static void begin(struct hvd__tcp *t, enum tcp_mode mode)
{
    t->mode = mode;
    t->since_ns = 0;
    t->chunk_got = 0;
    memset(&t->in, 0, sizeof(t->in));
    memset(&t->out, 0, sizeof(t->out));
}

void hvd__tcp_ring(struct hvd__tcp *t, const struct hvd__tcp_ring *ring)
{
    begin(t, TCP_RING);
    t->ring = *ring;
}

void hvd__tcp_chain(struct hvd__tcp *t, void *buf, size_t bytes, int root)
{
    begin(t, TCP_CHAIN);
    memset(&t->ring, 0, sizeof(t->ring));
    t->ring.buf = buf;
    t->ring.count = bytes;
    t->root = root;
}
