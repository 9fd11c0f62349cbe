/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over the ring, and broadcast along a chain, in a TCP group.  A
 * stream of bytes comes in from the member before and one goes out to the
 * member after; what goes out is what came in earlier.
 *
 * Ring.  The vector has one part per member.  In step s member m sends part
 * m + base - s and receives the one before that (mod n): what it sends in a
 * step, from the second on, is what it received in the step before.
 *
 *   reduce-scatter  base n - 1, n - 1 steps: what is received is reduced
 *                   with the member's own, so after them part m is whole
 *   allgather       base 0, n - 1 steps: it is stored
 *   allreduce       base 0, n - 1 steps of the former, after which part
 *                   m + 1 is whole, n - 1 of the latter
 *
 * A part is reduced along one path only and then copied, so all get the
 * same bits.  The first part may go out at once and the rest as far as the
 * stream has come in and is reduced: a member that is ahead waits for
 * nothing but bytes.
 *
 * Chain.  One part, from root to the member before root.
 */
#include <string.h>
#include <sys/epoll.h>

#include "runtime/plane/tcp/tcp_impl.h"

static int before(const struct hvd__tcp *t)
{
    return (t->me + t->n - 1) % t->n;
}

static int after(const struct hvd__tcp *t)
{
    return (t->me + 1) % t->n;
}

/* ---- Geometry -------------------------------------------------------- */

struct piece {
    unsigned char *p;
    size_t bytes;
};

static int is_chain(const struct hvd__tcp *t)
{
    return t->stream.root >= 0;
}

/* Returns the part of a step; `shift` is 0 for sending and 1 for receiving. */
static struct piece piece_at(const struct hvd__tcp *t, int step, int shift)
{
    const struct tcp_stream *s = &t->stream;
    unsigned char *buf = t->vector.buf;
    struct piece piece = {buf, t->vector.count};
    int part;

    if (is_chain(t))
        return piece;
    part = (2 * t->n + t->me + s->base - step - shift) % t->n;
    piece.p = buf + s->first[part] * s->unit_bytes;
    piece.bytes = (s->first[part + 1] - s->first[part]) * s->unit_bytes;
    return piece;
}

static int receives(const struct hvd__tcp *t)
{
    return !is_chain(t) || t->me != t->stream.root;
}

static int sends(const struct hvd__tcp *t)
{
    return !is_chain(t) || after(t) != t->stream.root;
}

/* Moves the cursor over parts that are done or empty; returns 0 at the end. */
static int at_piece(const struct hvd__tcp *t, struct tcp_cursor *c, int shift)
{
    while (c->step < t->stream.steps &&
           c->offset == piece_at(t, c->step, shift).bytes) {
        c->step++;
        c->offset = 0;
    }
    return c->step < t->stream.steps;
}

static void move(struct tcp_cursor *c, size_t bytes)
{
    c->offset += bytes;
    c->total += bytes;
}

/* Returns the bytes that can be sent: own data, and what came in and is not
 * yet sent. */
static size_t sendable(const struct hvd__tcp *t)
{
    size_t own = 0;

    if (!is_chain(t) || t->me == t->stream.root)
        own = piece_at(t, 0, 0).bytes;
    return own + t->stream.in.total - t->stream.out.total;
}

/* ---- Moving ---------------------------------------------------------- */

static void send_stream(struct hvd__tcp *t)
{
    struct tcp_cursor *out = &t->stream.out;

    while (at_piece(t, out, 0)) {
        struct piece piece = piece_at(t, out->step, 0);
        size_t bytes = piece.bytes - out->offset, there = sendable(t);
        const unsigned char *p = piece.p + out->offset;
        ssize_t n;

        if (there == 0)
            return;
        if (out->step == 0)
            p = tcp_own(t, p);
        n = tcp_send(t, after(t), p, bytes < there ? bytes : there);
        if (n < 0)
            tcp_set_lost(t, after(t), (int)-n);
        if (n <= 0)
            return;
        move(out, (size_t)n);
    }
}

/* Receives and reduces; returns 1 if there may be more. */
static int recv_reduced(struct hvd__tcp *t, const struct piece *piece)
{
    struct tcp_cursor *in = &t->stream.in;
    unsigned char *dst = piece->p + in->offset;
    const void *srcs[2] = {t->vector.chunk, tcp_own(t, dst)};
    size_t had = t->chunk_got;
    size_t bytes = tcp_recv_chunk(t, before(t), piece->bytes - in->offset);

    if (bytes == 0)
        return t->chunk_got > had;
    tcp_reduce(t, dst, srcs, bytes, in->step == t->n - 2);
    t->chunk_got = 0;
    move(in, bytes);
    return 1;
}

static int recv_stored(struct hvd__tcp *t, const struct piece *piece)
{
    struct tcp_cursor *in = &t->stream.in;
    ssize_t n = tcp_recv(t, before(t), piece->p + in->offset,
                         piece->bytes - in->offset);

    if (n <= 0)
        return 0;
    move(in, (size_t)n);
    return 1;
}

/* Sends between two received chunks, so that the link out is not idle
 * meanwhile. */
int tcp_stream_advance(struct hvd__tcp *t)
{
    struct tcp_stream *s = &t->stream;
    int more = 1;

    while (more && t->lost < 0) {
        more = 0;
        if (receives(t) && at_piece(t, &s->in, 1)) {
            struct piece piece = piece_at(t, s->in.step, 1);

            more = s->in.step < s->reduced ? recv_reduced(t, &piece)
                                           : recv_stored(t, &piece);
        }
        if (sends(t))
            send_stream(t);
    }
    return (!receives(t) || !at_piece(t, &s->in, 1)) &&
           (!sends(t) || !at_piece(t, &s->out, 0));
}

uint32_t tcp_stream_events(const struct hvd__tcp *t, int i)
{
    struct tcp_cursor in = t->stream.in, out = t->stream.out;
    uint32_t events = 0;

    if (i == before(t) && receives(t) && at_piece(t, &in, 1))
        events |= EPOLLIN;
    if (i == after(t) && sends(t) && at_piece(t, &out, 0) && sendable(t))
        events |= EPOLLOUT;
    return events;
}

/* ---- Beginning ------------------------------------------------------- */

static void begin(struct hvd__tcp *t, const struct hvd__tcp_reduction *r,
                  const struct tcp_stream *s)
{
    tcp_begin(t, TCP_STREAM, r->count * r->elem_bytes);
    tcp_take_vector(t, r);
    t->stream = *s;
}

void tcp_ring(struct hvd__tcp *t, const struct hvd__tcp_reduction *r)
{
    struct tcp_stream s = {.steps = 2 * (t->n - 1),
                           .reduced = t->n - 1,
                           .root = -1,
                           .first = t->parts,
                           .unit_bytes = r->elem_bytes};

    for (int i = 0; i <= t->n; i++)
        t->parts[i] = tcp_part_first(r->count, (size_t)t->n, (size_t)i);
    begin(t, r, &s);
}

void hvd__tcp_reduce_scatter(struct hvd__tcp *t,
                             const struct hvd__tcp_reduction *r,
                             const size_t *first)
{
    struct tcp_stream s = {.steps = t->n - 1,
                           .reduced = t->n - 1,
                           .base = t->n - 1,
                           .root = -1,
                           .first = first,
                           .unit_bytes = r->elem_bytes};

    begin(t, r, &s);
}

void hvd__tcp_allgather(struct hvd__tcp *t, void *buf, const size_t *first)
{
    struct hvd__tcp_reduction r = {
        .buf = buf, .count = first[t->n], .elem_bytes = 1};
    struct tcp_stream s = {
        .steps = t->n - 1, .root = -1, .first = first, .unit_bytes = 1};

    begin(t, &r, &s);
}

void tcp_chain(struct hvd__tcp *t, void *buf, size_t bytes, int root)
{
    struct hvd__tcp_reduction r = {.buf = buf, .count = bytes, .elem_bytes = 1};
    struct tcp_stream s = {.steps = 1, .root = root};

    begin(t, &r, &s);
}
