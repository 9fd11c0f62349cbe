/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs: which local ranks have joined, who gets the segment when, and
 * who has to be told what when one of them ends.  The sockets are in
 * endpoint.c.
 */
#include "lib/agent/endpoint_impl.h"

#include "lib/protocol/segment_fd.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"

#include <stdio.h>
#include <unistd.h>

enum { READS_MAX = 64 };

static void send_abort(struct endpoint_conn *c, uint32_t rank,
                       enum hvd_status status, const char *why)
{
    struct worker_abort m = {.rank = rank};
    struct hb_buf out = HB_BUF_INIT;
    int rc;

    snprintf(m.text, sizeof(m.text), "%s", why);
    rc = status == HVD_ETIMEOUT ? worker_encode_timeout(&out, &m)
                                : worker_encode_abort(&out, &m);
    if (rc == 0)
        conn_send(c, &out, -1);
    hb_buf_free(&out);
}

/* Everybody who waits for the others, or shares a segment with them. */
static void end_epoch(struct endpoint *e, uint32_t rank, enum hvd_status status,
                      const char *why)
{
    if (e->head)
        segment_abort(e->head, (uint32_t)e->job->rank_count, rank, (int)status,
                      why);
    for (int i = 0; i < e->job->rank_count; i++) {
        struct endpoint_slot *s = &e->slots[i];

        if (s->epoch == 0)
            continue;
        if (s->waiting)
            s->epoch = 0;
        s->waiting = 0;
        if (s->conn)
            send_abort(s->conn, rank, status, why);
    }
}

static void abort_epoch(struct endpoint *e, uint32_t rank, const char *why)
{
    end_epoch(e, rank, HVD_EPEER, why);
}

static int anybody_waits(const struct endpoint *e)
{
    int waiting = 0;

    for (int i = 0; i < e->job->rank_count; i++)
        waiting |= e->slots[i].waiting;
    return waiting;
}

void endpoint_rank_ended(struct endpoint *e, int local_rank, const char *why)
{
    struct endpoint_slot *s = &e->slots[local_rank];
    uint32_t rank = (uint32_t)e->job->ranks[local_rank].rank;
    int owed;

    /* It may have said LEAVE just before.  Bounded, because a child of the
     * rank may hold the connection and go on writing. */
    for (int i = 0; i < READS_MAX && s->conn && conn_read(s->conn); i++)
        ;
    owed = s->epoch != 0;
    s->epoch = 0;
    s->waiting = s->lost = 0;
    if (!s->gone)
        s->gone = hb_xstrdup(why);
    /* First, so that who waits in a fence is told whose death it is. */
    if (owed || anybody_waits(e))
        abort_epoch(e, rank, why);
    relay_rank_gone(&e->relay, local_rank, RELAY_ALL_EPOCHS, why);
}

void endpoint_abort(struct endpoint *e, uint32_t rank, enum hvd_status status,
                    const char *why)
{
    if (e->aborted)
        return;
    e->aborted = hb_xstrdup(why);
    e->abort_rank = rank;
    e->abort_status = status;
    end_epoch(e, rank, status, why);
}

void endpoint_blame(struct endpoint *e, uint32_t rank, const char *why)
{
    if (e->head)
        segment_blame(e->head, rank, why, *why ? hb_now_ns() : 0);
}

/* A rank that can never join, which makes waiting for it pointless. */
static int doomed(const struct endpoint *e, uint32_t *rank, const char **why)
{
    if (e->aborted) {
        *rank = e->abort_rank;
        *why = e->aborted;
        return 1;
    }
    for (int i = 0; i < e->job->rank_count; i++)
        if (e->slots[i].gone) {
            *rank = (uint32_t)e->job->ranks[i].rank;
            *why = e->slots[i].gone;
            return 1;
        }
    return 0;
}

/* Those who wait must want the same.  1 when `slot` differs from one. */
static int differs(const struct endpoint *e, int slot, char *text, size_t size)
{
    const struct endpoint_slot *s = &e->slots[slot];

    for (int i = 0; i < e->job->rank_count; i++) {
        const struct endpoint_slot *o = &e->slots[i];

        if (!o->waiting || (o->epoch == s->epoch && o->bytes == s->bytes))
            continue;
        snprintf(text, size,
                 "rank %d joins epoch %u with a segment of %llu bytes, rank "
                 "%d epoch %u with %llu bytes; HVD_ settings must be the "
                 "same on every rank",
                 e->job->ranks[slot].rank, s->epoch,
                 (unsigned long long)s->bytes, e->job->ranks[i].rank, o->epoch,
                 (unsigned long long)o->bytes);
        return 1;
    }
    return 0;
}

static void send_segment(struct endpoint *e, const struct worker_segment *m,
                         int fd)
{
    struct hb_buf out = HB_BUF_INIT;

    if (worker_encode_segment(&out, m) < 0)
        return;
    for (int i = 0; i < e->job->rank_count; i++)
        e->slots[i].waiting = 0;
    /* A peer that cannot take it is dropped, and then blamed. */
    for (int i = 0; i < e->job->rank_count; i++)
        if (e->slots[i].conn)
            conn_send(e->slots[i].conn, &out, fd);
    hb_buf_free(&out);
}

/* Hands out the segment when every local rank waits for it. */
static void assemble(struct endpoint *e, int slot)
{
    struct hb_error err = HB_ERROR_INIT;
    struct worker_segment m = {e->slots[slot].epoch, e->slots[slot].bytes};
    uint32_t n = (uint32_t)e->job->rank_count;
    int fd;

    for (uint32_t i = 0; i < n; i++)
        if (!e->slots[i].waiting)
            return;
    segment_fd_unmap(e->head, n);
    e->head = NULL;
    if (segment_fd_make(m.epoch, n, m.segment_bytes, &fd, &e->head, &err) < 0) {
        abort_epoch(e, (uint32_t)e->job->ranks[slot].rank, err.text);
        return;
    }
    send_segment(e, &m, fd);
    close(fd);
}

void epoch_join(struct endpoint_conn *c, const struct worker_join *m)
{
    struct endpoint *e = c->endpoint;
    struct endpoint_slot *s = &e->slots[c->slot];
    char text[WORKER_TEXT_MAX];
    const char *why;
    uint32_t rank;

    if (s->epoch != 0 || m->epoch == 0) {
        conn_refuse(c, "JOIN out of order");
        return;
    }
    if (doomed(e, &rank, &why)) {
        send_abort(c, rank, e->aborted ? e->abort_status : HVD_EPEER, why);
        return;
    }
    c->left = 0;
    relay_rank_back(&e->relay, c->slot);
    s->epoch = m->epoch;
    s->bytes = m->segment_bytes;
    s->waiting = 1;
    if (differs(e, c->slot, text, sizeof(text)))
        abort_epoch(e, (uint32_t)e->job->ranks[c->slot].rank, text);
    else
        assemble(e, c->slot);
}

void epoch_leave(struct endpoint_conn *c, uint32_t epoch)
{
    struct endpoint_slot *s = &c->endpoint->slots[c->slot];

    if (epoch == s->epoch) {
        c->left = 1;
        s->epoch = 0;
        s->waiting = 0;
    }
}

/* The worker's process may be about to be seen dying, with a better
 * reason; if not, this is the reason. */
static void on_lost(uv_timer_t *timer)
{
    struct endpoint *e = timer->data;

    for (int i = 0; i < e->job->rank_count; i++) {
        struct endpoint_slot *s = &e->slots[i];
        char text[WORKER_TEXT_MAX];
        uint32_t epoch;

        if (!s->lost)
            continue;
        epoch = s->epoch;
        s->lost = 0;
        s->epoch = 0;
        snprintf(text, sizeof(text),
                 "rank %d (pid %d) on host %.100s: closed its connection "
                 "to the agent without hvd_shutdown",
                 e->job->ranks[i].rank, (int)s->pid, e->job->host);
        abort_epoch(e, (uint32_t)e->job->ranks[i].rank, text);
        relay_rank_gone(&e->relay, i, epoch, text);
    }
}

void epoch_conn_ended(struct endpoint *e, int slot)
{
    struct endpoint_slot *s = &e->slots[slot];

    s->conn = NULL;
    s->waiting = 0;
    if (s->epoch == 0 || s->gone)
        return;
    s->lost = 1;
    if (!uv_is_active((uv_handle_t *)&e->lost_timer))
        uv_timer_start(&e->lost_timer, on_lost, ENDPOINT_LOST_MS, 0);
}
