/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a TCP group when it is opened: PINGS rounds in which every member
 * sends a few bytes to the next one, then BURSTS rounds of BURST_BYTES.  The
 * best round counts, as others met a cold connection or another process.  Of
 * the members the slowest counts, as in every collective.
 *
 * HVD_TCP_ALPHA_US and HVD_TCP_BETA_GBPS replace what this member measured,
 * not what the others report.
 */
#include "runtime/plane/tcp/tcp_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"

#include <string.h>

enum { PINGS = 8, PING_BYTES = 8, BURSTS = 3, BURST_BYTES = 256 << 10 };

/* What members tell each other: integers, so that all compute the same
 * model. */
struct link_costs {
    uint64_t alpha_ns, bytes_per_ms;
};
enum { COSTS_BYTES = 16 };

struct measure {
    struct hvd__tcp *t;
    uint64_t deadline_ns;
    struct hvd__tcp_block *send, *recv;  /* [n] */
    unsigned char *out, *in;             /* BURST_BYTES each */
    unsigned char (*costs)[COSTS_BYTES]; /* [n] */
};

static int missing_member(const struct hvd__tcp *t)
{
    for (int i = 0; i < t->n; i++)
        if (i != t->me && t->conns[i].got < t->conns[i].to_get)
            return i;
    return (t->me + 1) % t->n;
}

static int finish(struct measure *m, struct hb_error *err)
{
    int rc;

    while ((rc = hvd__tcp_progress(m->t, err)) == 0) {
        if (hb_now_ns() >= m->deadline_ns)
            return tcp_blame(m->t, missing_member(m->t), HVD_ETIMEOUT,
                             "connected, but says nothing", err);
        hvd__tcp_pause(m->t, 0);
    }
    return rc < 0 ? rc : 0;
}

/* Sets *best_ns to the time of the fastest round. */
static int time_rounds(struct measure *m, int rounds, size_t bytes,
                       uint64_t *best_ns, struct hb_error *err)
{
    int n = m->t->n, me = m->t->me;

    *best_ns = UINT64_MAX;
    for (int r = 0; r < rounds; r++) {
        uint64_t began_ns = hb_now_ns(), took_ns;
        int rc;

        memset(m->send, 0, (size_t)n * sizeof(*m->send));
        memset(m->recv, 0, (size_t)n * sizeof(*m->recv));
        m->send[(me + 1) % n] = (struct hvd__tcp_block){m->out, bytes};
        m->recv[(me + n - 1) % n] = (struct hvd__tcp_block){m->in, bytes};
        hvd__tcp_alltoallv(m->t, m->send, NULL, m->recv, 1);
        rc = finish(m, err);
        if (rc < 0)
            return rc;
        took_ns = hb_now_ns() - began_ns;
        if (took_ns < *best_ns)
            *best_ns = took_ns;
    }
    return 0;
}

static int knob(const char *name, double min, double max, double *out,
                struct hb_error *err)
{
    const char *text = hb_knob(name);

    if (!text || hb_parse_double(text, min, max, out, err) == 0)
        return 0;
    return hb_error_context(err, "HVD_%s", name);
}

static int measure_own(struct measure *m, struct link_costs *own,
                       struct hb_error *err)
{
    uint64_t ping_ns, burst_ns;
    double alpha_us, gbps;
    int rc = time_rounds(m, PINGS, PING_BYTES, &ping_ns, err);

    if (rc == 0)
        rc = time_rounds(m, BURSTS, BURST_BYTES, &burst_ns, err);
    if (rc < 0)
        return rc;
    /* A burst includes the cost of a ping, unless noise hides it. */
    burst_ns = burst_ns > 2 * ping_ns ? burst_ns - ping_ns : burst_ns;
    alpha_us = (double)ping_ns / 1e3;
    gbps = BURST_BYTES / (double)(burst_ns + 1);
    rc = knob("TCP_ALPHA_US", 0, 1e6, &alpha_us, err);
    if (rc == 0)
        rc = knob("TCP_BETA_GBPS", 1e-6, 1e6, &gbps, err);
    own->alpha_ns = (uint64_t)(alpha_us * 1e3);
    own->bytes_per_ms = (uint64_t)(gbps * 1e6);
    return rc;
}

static void put_costs(unsigned char out[COSTS_BYTES],
                      const struct link_costs *v)
{
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(v->alpha_ns >> (56 - 8 * i));
        out[8 + i] = (unsigned char)(v->bytes_per_ms >> (56 - 8 * i));
    }
}

static void take_worst(struct link_costs *worst,
                       const unsigned char in[COSTS_BYTES])
{
    struct hb_reader r;
    uint64_t v;

    hb_reader_init(&r, in, COSTS_BYTES);
    v = hb_read_u64(&r);
    if (v > worst->alpha_ns)
        worst->alpha_ns = v;
    v = hb_read_u64(&r);
    if (v < worst->bytes_per_ms)
        worst->bytes_per_ms = v;
}

static int agree(struct measure *m, struct link_costs *own,
                 struct hb_error *err)
{
    struct hvd__tcp *t = m->t;
    int rc;

    put_costs(m->out, own);
    for (int i = 0; i < t->n; i++)
        m->recv[i] = (struct hvd__tcp_block){m->costs[i], COSTS_BYTES};
    hvd__tcp_exchange(t, m->out, COSTS_BYTES, COSTS_BYTES, m->recv);
    rc = finish(m, err);
    for (int i = 0; rc == 0 && i < t->n; i++) {
        if (i != t->me && m->recv[i].len != COSTS_BYTES)
            return tcp_blame(t, i, HVD_EPROTO,
                             "its measurements have a wrong length", err);
        if (i != t->me)
            take_worst(own, m->costs[i]);
    }
    return rc;
}

int tcp_measure(struct hvd__tcp *t, uint64_t deadline_ns, struct hb_error *err)
{
    size_t n = (size_t)t->n;
    struct measure m = {.t = t,
                        .deadline_ns = deadline_ns,
                        .send = hb_calloc(n, sizeof(*m.send)),
                        .recv = hb_calloc(n, sizeof(*m.recv)),
                        .out = hb_calloc(1, BURST_BYTES),
                        .in = hb_calloc(1, BURST_BYTES),
                        .costs = hb_calloc(n, sizeof(*m.costs))};
    struct link_costs own = {1000, 1000000};
    int rc = 0;

    if (!m.send || !m.recv || !m.out || !m.in || !m.costs)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for connections");
    if (rc == 0 && n > 1)
        rc = measure_own(&m, &own, err);
    if (rc == 0 && n > 1)
        rc = agree(&m, &own, err);
    t->model.members = t->n;
    t->model.alpha_us = (double)own.alpha_ns / 1e3;
    t->model.bytes_per_us =
        own.bytes_per_ms ? (double)own.bytes_per_ms / 1e3 : 1e-3;
    hb_free(m.send);
    hb_free(m.recv);
    hb_free(m.out);
    hb_free(m.in);
    hb_free(m.costs);
    return rc;
}
