/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of a TCP group in steps of whole messages: recursive doubling
 * and Rabenseifner's allreduce, and the binomial tree.
 *
 * The allreduces run among `active` members, the largest power of two <= n.
 * Of the first 2 (n - active) members, each even one first sends its vector to
 * the next one, which reduces it with its own, and in the end gets the result
 * from that member.
 *
 *   recursive doubling  in step k both of the members a and a ^ 2^k give
 *                       all they have and reduce it with the other's
 *   Rabenseifner        the same the other way round, but each gives the
 *                       half that the other one will own, until everybody
 *                       owns one part; then owned ranges are exchanged in
 *                       steps that double them
 *   binomial tree       the member v after root gets all from v without
 *                       its lowest bit, and gives it to those above
 *
 * On both sides the operand of the lower member comes first, so both get the
 * same bits.
 *
 * Data is reduced as it arrives, in chunks.  In recursive doubling that may
 * overwrite what is still to be sent, so a chunk waits until its place has
 * been sent.  This cannot deadlock: of two members only the one that has sent
 * less can wait, and the other one reads on.
 *
 * Sources: Thakur, Rabenseifner and Gropp, Optimization of Collective
 * Communication Operations in MPICH, 2005.
 */
#include <string.h>
#include <sys/epoll.h>

#include "runtime/plane/tcp/tcp_impl.h"

/* ---- Who gives what to whom ------------------------------------------ */

/* The place of this member in the allreduces. */
struct role {
    int active; /* members that take part, a power of two */
    int bits;   /* its logarithm */
    int extra;  /* members that do not take part */
    int a;      /* this member's number among the active ones, or -1 */
};

static struct role role_of(const struct hvd__tcp *t)
{
    struct role p = {1, 0, 0, -1};

    while (p.active * 2 <= t->n) {
        p.active *= 2;
        p.bits++;
    }
    p.extra = t->n - p.active;
    if (t->me >= 2 * p.extra)
        p.a = t->me - p.extra;
    else if (t->me % 2)
        p.a = t->me / 2;
    return p;
}

static int member_of(const struct role *p, int a)
{
    return a < p->extra ? 2 * a + 1 : a + p->extra;
}

static const struct tcp_step nothing = {.to = -1, .from = -1};

static struct tcp_step send_all(const struct hvd__tcp *t, int to)
{
    struct tcp_step s = nothing;

    s.to = to;
    s.out.count = t->vector.count;
    return s;
}

static struct tcp_step recv_all(const struct hvd__tcp *t, int from, int reduce)
{
    struct tcp_step s = nothing;

    s.from = from;
    s.in.count = t->vector.count;
    s.reduce = reduce;
    return s;
}

static struct tcp_step exchange_all(const struct hvd__tcp *t,
                                    const struct role *p, int k)
{
    struct tcp_step s = nothing;

    s.to = s.from = member_of(p, p->a ^ (1 << k));
    s.out.count = s.in.count = t->vector.count;
    s.reduce = 1;
    s.last = k == p->bits - 1;
    return s;
}

/* Returns the elements of `many` parts from `part` on; there are as many parts
 * as active members. */
static struct tcp_range parts(const struct hvd__tcp *t, const struct role *p,
                              int part, int many)
{
    size_t all = (size_t)p->active, count = t->vector.count;
    struct tcp_range r = {tcp_part_first(count, all, (size_t)part), 0};

    r.count = tcp_part_first(count, all, (size_t)part + (size_t)many) - r.first;
    return r;
}

static struct tcp_step halve(const struct hvd__tcp *t, const struct role *p,
                             int k)
{
    int d = p->active >> (k + 1), other = p->a ^ d;
    struct tcp_step s = nothing;

    s.to = s.from = member_of(p, other);
    s.out = parts(t, p, other & ~(d - 1), d);
    s.in = parts(t, p, p->a & ~(d - 1), d);
    s.reduce = 1;
    s.last = k == p->bits - 1;
    return s;
}

static struct tcp_step spread(const struct hvd__tcp *t, const struct role *p,
                              int k)
{
    int d = 1 << k, other = p->a ^ d;
    struct tcp_step s = nothing;

    s.to = s.from = member_of(p, other);
    s.out = parts(t, p, p->a & ~(d - 1), d);
    s.in = parts(t, p, other & ~(d - 1), d);
    return s;
}

/* Sets *s to step k; returns 0 if there is none. */
static int allreduce_step(const struct hvd__tcp *t, int k, struct tcp_step *s)
{
    struct role p = role_of(t);
    int folded = t->me < 2 * p.extra;
    int rounds = t->algorithm == HVD__TCP_RD ? p.bits : 2 * p.bits;

    if (p.a < 0) {
        *s = k == 0 ? send_all(t, t->me + 1) : recv_all(t, t->me + 1, 0);
        return k < 2;
    }
    if (folded && k == 0) {
        *s = recv_all(t, t->me - 1, 1);
        return 1;
    }
    k -= folded;
    if (k == rounds && folded) {
        *s = send_all(t, t->me - 1);
        return 1;
    }
    if (k >= rounds)
        return 0;
    if (t->algorithm == HVD__TCP_RD)
        *s = exchange_all(t, &p, k);
    else
        *s = k < p.bits ? halve(t, &p, k) : spread(t, &p, k - p.bits);
    return 1;
}

static int tree_step(const struct hvd__tcp *t, int k, struct tcp_step *s)
{
    int v = (t->me + t->n - t->root) % t->n, below = 1;

    while (below < t->n && !(v & below))
        below *= 2;
    if (v != 0 && k == 0) {
        *s = recv_all(t, (v - below + t->root) % t->n, 0);
        return 1;
    }
    /* The largest subtree goes first. */
    k -= v != 0;
    for (int d = below / 2; d > 0; d /= 2) {
        if (v + d >= t->n || k-- > 0)
            continue;
        *s = send_all(t, (v + d + t->root) % t->n);
        return 1;
    }
    return 0;
}

static int step_at(const struct hvd__tcp *t, struct tcp_step *s)
{
    return t->algorithm == HVD__TCP_TREE ? tree_step(t, t->step, s)
                                         : allreduce_step(t, t->step, s);
}

/* ---- Moving ---------------------------------------------------------- */

static unsigned char *at(const struct hvd__tcp *t, const struct tcp_range *r,
                         size_t offset)
{
    return (unsigned char *)t->vector.buf + r->first * t->vector.elem_bytes +
           offset;
}

/* Returns this member's data at a place: its input in the first step, later
 * the partial result. */
static const unsigned char *own_at(const struct hvd__tcp *t,
                                   const struct tcp_range *r, size_t offset)
{
    const unsigned char *p = at(t, r, offset);

    return t->step == 0 ? tcp_own(t, p) : p;
}

static size_t bytes_of(const struct hvd__tcp *t, const struct tcp_range *r)
{
    return r->count * t->vector.elem_bytes;
}

static int sent_all(const struct hvd__tcp *t, const struct tcp_step *s)
{
    return s->to < 0 || t->step_sent == bytes_of(t, &s->out);
}

static int got_all(const struct hvd__tcp *t, const struct tcp_step *s)
{
    return s->from < 0 || t->step_got == bytes_of(t, &s->in);
}

/* Returns the size of the full chunk at this point of the step. */
static size_t chunk_of(const struct hvd__tcp *t, const struct tcp_step *s)
{
    size_t left = bytes_of(t, &s->in) - t->step_got;
    size_t room =
        t->vector.chunk_bytes / t->vector.elem_bytes * t->vector.elem_bytes;

    return left < room ? left : room;
}

/* Returns whether the received chunk must wait, because its place in buf is
 * still to be sent. */
static int must_wait(const struct hvd__tcp *t, const struct tcp_step *s)
{
    size_t end = t->step_got + chunk_of(t, s);

    return s->reduce && s->to >= 0 && s->in.first == s->out.first &&
           own_at(t, &s->out, 0) == at(t, &s->out, 0) &&
           t->chunk_got == chunk_of(t, s) && t->step_sent < end;
}

static void send_step(struct hvd__tcp *t, const struct tcp_step *s)
{
    while (!sent_all(t, s)) {
        ssize_t n = tcp_send(t, s->to, own_at(t, &s->out, t->step_sent),
                             bytes_of(t, &s->out) - t->step_sent);

        if (n < 0)
            tcp_set_lost(t, s->to, (int)-n);
        if (n <= 0)
            return;
        t->step_sent += (size_t)n;
    }
}

/* Receives and reduces; returns 1 if there may be more. */
static int recv_reduced(struct hvd__tcp *t, const struct tcp_step *s)
{
    unsigned char *dst = at(t, &s->in, t->step_got);
    const void *own = own_at(t, &s->in, t->step_got);
    int lower_comes = s->from < t->me;
    const void *srcs[2] = {lower_comes ? t->vector.chunk : own,
                           lower_comes ? own : t->vector.chunk};
    size_t had = t->chunk_got, bytes = chunk_of(t, s);

    if (had < bytes)
        bytes = tcp_recv_chunk(t, s->from, bytes_of(t, &s->in) - t->step_got);
    if (bytes == 0 || must_wait(t, s))
        return t->chunk_got > had;
    tcp_reduce(t, dst, srcs, bytes, s->last);
    t->chunk_got = 0;
    t->step_got += bytes;
    return 1;
}

static int recv_step(struct hvd__tcp *t, const struct tcp_step *s)
{
    ssize_t n;

    if (got_all(t, s))
        return 0;
    if (s->reduce)
        return recv_reduced(t, s);
    n = tcp_recv(t, s->from, at(t, &s->in, t->step_got),
                 bytes_of(t, &s->in) - t->step_got);
    if (n <= 0)
        return 0;
    t->step_got += (size_t)n;
    return 1;
}

int tcp_steps_advance(struct hvd__tcp *t)
{
    struct tcp_step s;

    while (step_at(t, &s)) {
        int more = 1;

        while (more && t->lost < 0) {
            send_step(t, &s);
            more = recv_step(t, &s);
        }
        if (t->lost >= 0 || !sent_all(t, &s) || !got_all(t, &s))
            return 0;
        t->step++;
        t->step_sent = t->step_got = 0;
    }
    return 1;
}

uint32_t tcp_steps_events(const struct hvd__tcp *t, int i)
{
    struct tcp_step s;
    uint32_t events = 0;

    if (!step_at(t, &s))
        return 0;
    if (i == s.from && !got_all(t, &s) && !must_wait(t, &s))
        events |= EPOLLIN;
    if (i == s.to && !sent_all(t, &s))
        events |= EPOLLOUT;
    return events;
}

/* ---- Beginning ------------------------------------------------------- */

void tcp_steps(struct hvd__tcp *t, const struct hvd__tcp_reduction *r,
               enum hvd__tcp_algorithm a, int root)
{
    tcp_begin(t, TCP_STEPS, r->count * r->elem_bytes);
    tcp_take_vector(t, r);
    t->algorithm = a;
    t->root = root;
    t->step = 0;
    t->step_sent = t->step_got = 0;
}
