/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kind pmi1: a pair of sockets for each rank, whose other end the rank
 * inherits, and the exchange between hosts.  The protocol is in pmi1_server.h.
 *
 * A client waits for the reply to each request, so replies always fit into the
 * socket; a rank that does not read them is ended.
 */
#include "lib/agent/wireup/pmi1/pmi1.h"

#include "lib/agent/rank/spawn.h"
#include "lib/agent/wireup/pmi1/pmi1_server.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 4096,
    READS_MAX = 64, /* of a rank that has ended */
    LOST_MS = 1000, /* from the end of a connection to that of the process */
};

struct pmi1;

struct pmi1_conn {
    struct pmi1 *owner;
    int slot;
    int fd;      /* -1: closed */
    int rank_fd; /* the rank's end until it runs, or -1 */
    int lost;    /* ended before finalize; the process lives */
    int gone;    /* the process has ended before finalize */
    uv_poll_t poll;
};

struct pmi1 {
    struct wireup *wireup;
    struct pmi1_server server;
    struct pmi1_conn *conns; /* by slot */
    uv_timer_t lost_timer;
    uint32_t fence, fence_count;
    int closed;
};

static int rank_of(const struct pmi1 *p, int slot)
{
    return p->wireup->config.job->ranks[slot].rank;
}

static void __attribute__((format(printf, 4, 5)))
end_rank(struct pmi1 *p, int slot, int exit_code, const char *fmt, ...)
{
    struct wireup_abort m = {.slot = slot, .exit_code = exit_code};
    va_list ap;
    char text[512];

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    m.text = text;
    wireup_abort(p->wireup, &m);
}

/* ---- Connections ---- */

static void conn_close(struct pmi1_conn *c)
{
    if (c->rank_fd >= 0)
        close(c->rank_fd);
    c->rank_fd = -1;
    if (c->fd < 0)
        return;
    uv_poll_stop(&c->poll);
    close(c->fd);
    c->fd = -1;
    uv_close((uv_handle_t *)&c->poll, NULL);
}

/* Ends the ranks that have closed their connection before MPI_Finalize, but
 * have not ended. */
static void on_lost(uv_timer_t *timer)
{
    struct pmi1 *p = timer->data;

    for (int i = 0; i < p->server.rank_count; i++)
        if (p->conns[i].lost)
            end_rank(p, i, 1,
                     "closed its connection to PMI without MPI_Finalize");
}

static void conn_ended(struct pmi1_conn *c)
{
    struct pmi1 *p = c->owner;
    const struct wireup_slot *s = &p->wireup->slots[c->slot];

    conn_close(c);
    if (!s->connected || s->finished || s->gone)
        return;
    c->lost = 1;
    if (!uv_is_active((uv_handle_t *)&p->lost_timer))
        uv_timer_start(&p->lost_timer, on_lost, LOST_MS, 0);
}

/* Reads once; returns 0 if there was nothing to read. */
static int conn_read(struct pmi1_conn *c)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        conn_ended(c);
    else
        pmi1_server_input(&c->owner->server, c->slot, bytes, (size_t)n);
    return 1;
}

/* Sees to it that no rank waits for ever for one that has ended. */
static void doom_waiting(struct pmi1 *p)
{
    char text[128];

    for (int i = 0; p->server.waiting > 0 && i < p->server.rank_count; i++) {
        if (!p->conns[i].gone)
            continue;
        snprintf(text, sizeof(text),
                 "waits in MPI for rank %d, which has ended without "
                 "MPI_Finalize",
                 rank_of(p, i));
        wireup_doom(p->wireup, rank_of(p, i) + 1, text);
        return;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct pmi1_conn *c = poll->data;

    (void)status; /* the read tells what is wrong */
    (void)events;
    conn_read(c);
    doom_waiting(c->owner);
}

/* ---- Events of the server ---- */

static void on_line(void *arg, int slot, const char *line, size_t len)
{
    struct pmi1 *p = arg;
    struct pmi1_conn *c = &p->conns[slot];
    ssize_t n;

    if (c->fd < 0)
        return;
    do
        n = send(c->fd, line, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    /* A rank that has closed may have sent more, which is still to be read. */
    if (n == (ssize_t)len || (n < 0 && (errno == EPIPE || errno == ECONNRESET)))
        return;
    end_rank(p, slot, 1, "does not read the replies of PMI");
    conn_close(c);
}

static void on_connected(void *arg, int slot)
{
    struct pmi1 *p = arg;

    wireup_connected(p->wireup, slot);
}

static void on_finished(void *arg, int slot)
{
    struct pmi1 *p = arg;

    wireup_finished(p->wireup, slot);
}

/* Ends the job with the code that the rank gave to MPI_Abort, as the rank's
 * own exit would have it. */
static void on_abort(void *arg, int slot, int exit_code)
{
    struct pmi1 *p = arg;
    int code = exit_code & 0xff;

    if (code)
        end_rank(p, slot, code, "it called MPI_Abort");
    else
        end_rank(p, slot, 1, "it called MPI_Abort with code %d", exit_code);
}

static void on_spawn(void *arg, int slot)
{
    struct pmi1 *p = arg;

    wireup_refused_spawn(p->wireup, slot);
}

static void on_broken(void *arg, int slot, const char *why)
{
    end_rank(arg, slot, 1, "%s", why);
}

/* ---- The exchange between hosts ---- */

/* Takes what the other hosts' ranks have put. */
static int take_records(struct pmi1 *p, const struct rdv_reply *m)
{
    struct rdv_record record;
    struct hb_reader r;
    int rc;

    hb_reader_init(&r, m->value, m->len);
    while ((rc = rdv_next_record(&r, &record)) > 0)
        if (record.len > 0 && record.rank != (uint32_t)rank_of(p, 0) &&
            pmi1_kvs_merge(&p->server.kvs, record.value, record.len) < 0)
            return -HVD_EPROTO;
    return rc;
}

static void on_fenced(void *arg, const struct rdv_reply *m)
{
    struct pmi1 *p = arg;
    char text[256];

    p->fence = 0;
    if (m->status == 0 && take_records(p, m) == 0) {
        pmi1_server_release(&p->server);
        return;
    }
    snprintf(text, sizeof(text), "%.*s", m->len > 200 ? 200 : (int)m->len,
             m->status ? (const char *)m->value : "malformed values");
    hb_text_sanitize(text);
    if (m->status == HVD_EPEER)
        wireup_doom(p->wireup,
                    m->version < (uint64_t)p->server.size ? (int)m->version + 1
                                                          : 0,
                    text);
    else
        end_rank(p, -1, 1, "the ranks of MPI could not exchange addresses: %s",
                 text);
}

static void on_barrier(void *arg)
{
    struct pmi1 *p = arg;
    struct hb_buf *news = &p->server.kvs.news;
    char scope[32];

    if (p->server.size == p->server.rank_count) {
        hb_buf_clear(news);
        pmi1_server_release(&p->server);
        return;
    }
    snprintf(scope, sizeof(scope), "pmi1.%u", ++p->fence_count);
    p->fence =
        relay_own_fence(p->wireup->config.relay, scope, hb_buf_data(news),
                        hb_buf_len(news), on_fenced, p);
    hb_buf_clear(news);
    if (!p->fence)
        end_rank(p, -1, 1,
                 "the ranks of this host put more than %d MiB into PMI between "
                 "two barriers",
                 RELAY_OWN_VALUE_MAX >> 20);
}

static const struct pmi1_events server_events = {
    .on_line = on_line,
    .on_connected = on_connected,
    .on_finished = on_finished,
    .on_abort = on_abort,
    .on_spawn = on_spawn,
    .on_broken = on_broken,
    .on_barrier = on_barrier,
};

/* ---- The kind ---- */

static int open_pmi1(struct wireup *w, struct hb_error *err)
{
    const struct control_launch *job = w->config.job;
    struct pmi1 *p = w->state = hb_xcalloc(1, sizeof(*p));

    (void)err;
    p->wireup = w;
    pmi1_server_init(&p->server, job, &server_events, p);
    p->conns = hb_xcalloc((size_t)job->rank_count, sizeof(*p->conns));
    for (int i = 0; i < job->rank_count; i++)
        p->conns[i] =
            (struct pmi1_conn){.owner = p, .slot = i, .fd = -1, .rank_fd = -1};
    uv_timer_init(w->config.loop, &p->lost_timer);
    p->lost_timer.data = p;
    return WIREUP_NOW;
}

static void environment(struct wireup *w, int slot, struct hb_strv *out)
{
    const struct control_launch *job = w->config.job;

    hb_strv_addf(out, "PMI_FD=%d", SPAWN_PASS_FD);
    hb_strv_addf(out, "PMI_RANK=%d", job->ranks[slot].rank);
    hb_strv_addf(out, "PMI_SIZE=%d", job->size);
    hb_strv_addf(out, "MPI_LOCALRANKID=%d", job->ranks[slot].local_rank);
    hb_strv_addf(out, "MPI_LOCALNRANKS=%d", job->rank_count);
}

static int descriptor(struct wireup *w, int slot, int *fd, struct hb_error *err)
{
    struct pmi1 *p = w->state;
    struct pmi1_conn *c = &p->conns[slot];
    int fds[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return hb_error_sys(err, errno,
                            "cannot make rank %d's connection for "
                            "PMI",
                            rank_of(p, slot));
    rc = uv_poll_init(w->config.loop, &c->poll, fds[0]);
    if (rc < 0) {
        close(fds[0]);
        close(fds[1]);
        return hb_error_sys(err, -rc,
                            "cannot watch rank %d's connection for "
                            "PMI",
                            rank_of(p, slot));
    }
    c->fd = fds[0];
    c->rank_fd = *fd = fds[1];
    c->poll.data = c;
    return 0;
}

static void rank_started(struct wireup *w, int slot)
{
    struct pmi1 *p = w->state;
    struct pmi1_conn *c = &p->conns[slot];

    close(c->rank_fd);
    c->rank_fd = -1;
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
}

/* Handles what the rank had sent before it ended.  Bounded, because a child of
 * the rank may hold the connection and keep writing. */
static int rank_ended(struct wireup *w, int slot)
{
    struct pmi1 *p = w->state;
    struct pmi1_conn *c = &p->conns[slot];

    for (int i = 0; i < READS_MAX && c->fd >= 0 && conn_read(c); i++)
        ;
    conn_close(c);
    c->lost = 0;
    c->gone = !w->slots[slot].finished;
    doom_waiting(p);
    return WIREUP_NOW;
}

static int close_pmi1(struct wireup *w)
{
    struct pmi1 *p = w->state;

    if (p->closed)
        return WIREUP_NOW;
    p->closed = 1;
    for (int i = 0; i < p->server.rank_count; i++)
        conn_close(&p->conns[i]);
    if (p->fence)
        relay_own_cancel(w->config.relay, p->fence);
    uv_close((uv_handle_t *)&p->lost_timer, NULL);
    return WIREUP_NOW;
}

static void fini(struct wireup *w)
{
    struct pmi1 *p = w->state;

    if (!p)
        return;
    pmi1_server_fini(&p->server);
    hb_free(p->conns);
    hb_free(p);
}

const struct wireup_kind wireup_pmi1 = {
    .name = "pmi1",
    .what = "MPICH or Intel MPI",
    .doom_ms = WIREUP_DOOM_MS,
    .open = open_pmi1,
    .environment = environment,
    .descriptor = descriptor,
    .rank_started = rank_started,
    .rank_ended = rank_ended,
    .close = close_pmi1,
    .fini = fini,
};
