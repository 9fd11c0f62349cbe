/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs: which local ranks have joined, when they get the segment, and whom to
 * tell when one of them ends.  The sockets are in endpoint.c.
 */
#include "lib/agent/endpoint_impl.h"

#include "lib/protocol/segment_fd.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <stdio.h>
#include <unistd.h>

enum { READS_MAX = 64 };

void epoch_again_text(char *text, size_t size, uint32_t rank, const char *how,
                      const char *why)
{
    snprintf(text, size,
             "rank %u of this world has %s; a static job cannot start again: "
             "%s",
             rank, how, why);
}

/* Returns the number of a rank in libhvd, or SEGMENT_NO_RANK. */
static uint32_t world_rank(const struct endpoint *e, uint32_t rank)
{
    int found =
        rank <= INT32_MAX ? members_world_rank(&e->members, (int)rank) : -1;

    return found < 0 ? SEGMENT_NO_RANK : (uint32_t)found;
}

/* Tells c why its epoch ends or cannot begin.  `starts`: the epoch that the
 * rank is about to begin, or 0. */
static void send_abort(struct endpoint_conn *c, uint32_t rank,
                       enum hvd_status status, const char *why, uint32_t starts)
{
    const struct endpoint *e = c->endpoint;
    struct worker_abort m = {.rank = world_rank(e, rank)};
    struct hb_buf out = HB_BUF_INIT;
    int rc, died = e->failed && e->failed_rank == rank;

    if (!e->job->spec.elastic && starts > 1 && status == HVD_EPEER &&
        rank != SEGMENT_NO_RANK)
        epoch_again_text(m.text, sizeof(m.text), rank, died ? "died" : "ended",
                         why);
    else
        snprintf(m.text, sizeof(m.text), "%s", why);
    rc = status == HVD_ETIMEOUT ? worker_encode_timeout(&out, &m)
                                : worker_encode_abort(&out, &m);
    if (rc == 0)
        conn_send(c, &out, -1);
    hb_buf_free(&out);
}

/* Ends the epoch for all ranks that have joined it, waiting for the segment or
 * sharing it. */
static void end_epoch(struct endpoint *e, uint32_t rank, enum hvd_status status,
                      const char *why)
{
    if (e->head)
        segment_abort(e->head, e->head_ranks, world_rank(e, rank), (int)status,
                      why);
    for (int i = 0; i < e->job->rank_count; i++) {
        struct endpoint_slot *s = &e->slots[i];

        uint32_t starts = s->waiting ? s->epoch : 0;

        if (s->epoch == 0)
            continue;
        if (s->waiting)
            s->epoch = 0;
        s->waiting = 0;
        if (s->conn)
            send_abort(s->conn, rank, status, why, starts);
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

static int is_member(const struct endpoint *e, int slot)
{
    return members_place(&e->members, slot) >= 0;
}

static void tell_ready(struct endpoint *e, int slot, int ready)
{
    if (e->on_ready)
        e->on_ready(e->ready_arg, slot, ready);
}

/* Keeps the job's first failure that this host hears of, or a better text for
 * it. */
static void remember(struct endpoint *e, uint32_t rank, enum hvd_status status,
                     const char *why)
{
    char *copy;

    if (e->failed && e->failed_rank != rank)
        return;
    copy = hb_xstrdup(why); /* why may be e->failed */
    hb_free(e->failed);
    e->failed = copy;
    e->failed_rank = rank;
    e->failed_status = status;
}

/* Notes the failure of a local rank.  If the rank has said that it fails
 * because of another rank, that one counts as the first failure. */
static void remember_rank(struct endpoint *e, int local_rank, const char *why)
{
    uint32_t rank = (uint32_t)e->job->ranks[local_rank].rank;
    int blamed = e->slots[local_rank].blames - 1, slot;
    char text[WORKER_TEXT_MAX];

    if (blamed < 0) {
        remember(e, rank, HVD_EPEER, why);
        return;
    }
    if (e->failed)
        return;
    slot = endpoint_slot_of(e, (uint32_t)blamed);
    if (slot < 0)
        snprintf(text, sizeof(text),
                 "rank %d on another host: has died or left", blamed);
    else if (e->slots[slot].gone)
        snprintf(text, sizeof(text), "%s", e->slots[slot].gone);
    else
        snprintf(text, sizeof(text),
                 "rank %d (pid %d) on host %.100s: has left", blamed,
                 (int)e->slots[slot].pid, e->job->host);
    remember(e, (uint32_t)blamed, HVD_EPEER, text);
}

void endpoint_rank_ended(struct endpoint *e, int local_rank, int failed,
                         const char *why)
{
    struct endpoint_slot *s = &e->slots[local_rank];
    uint32_t rank = (uint32_t)e->job->ranks[local_rank].rank;
    int owed;

    /* Its LEAVE may not have been read yet. */
    epoch_read_all(e, local_rank);
    owed = s->epoch != 0;
    s->epoch = 0;
    s->waiting = s->lost = 0;
    if (!s->gone)
        s->gone = hb_xasprintf("%s%s", why,
                               owed && !failed ? " without hvd_shutdown" : "");
    /* A child of the rank may hold it open. */
    if (e->job->spec.elastic && s->conn) {
        s->is_ready = 0;
        conn_close(s->conn);
    }
    if (e->first_gone == 0 && is_member(e, local_rank))
        e->first_gone = local_rank + 1;
    if (failed && is_member(e, local_rank))
        remember_rank(e, local_rank, why);
    /* Before relay_rank_gone, so that ranks waiting in a fence learn whose
     * death was first. */
    if (!is_member(e, local_rank))
        return; /* no rank waits for it; its relay absence is for ever */
    if ((owed || anybody_waits(e)) && e->failed)
        end_epoch(e, e->failed_rank, e->failed_status, e->failed);
    else if (owed || anybody_waits(e))
        abort_epoch(e, rank, s->gone);
    relay_rank_gone(&e->relay, local_rank, RELAY_ALL_EPOCHS, s->gone);
}

void endpoint_abort(struct endpoint *e, uint32_t rank, enum hvd_status status,
                    const char *why)
{
    if (e->aborted || (e->job->spec.elastic && rank != SEGMENT_NO_RANK &&
                       world_rank(e, rank) == SEGMENT_NO_RANK))
        return;
    e->aborted = 1;
    remember(e, rank, status, why);
    end_epoch(e, e->failed_rank, e->failed_status, e->failed);
}

void endpoint_blame(struct endpoint *e, uint32_t rank, const char *why)
{
    if (e->head)
        segment_blame(e->head, world_rank(e, rank), why,
                      *why ? hb_now_ns() : 0);
}

/* Finds a rank that can never join, so that waiting is pointless: 1 with *rank
 * and *why, or 0. */
static int find_lost_rank(const struct endpoint *e, uint32_t *rank,
                          const char **why)
{
    if (e->failed) {
        *rank = e->failed_rank;
        *why = e->failed;
        return 1;
    }
    if (e->first_gone == 0)
        return 0;
    *rank = (uint32_t)e->job->ranks[e->first_gone - 1].rank;
    *why = e->slots[e->first_gone - 1].gone;
    return 1;
}

/* Returns 1 with a text if the rank in `slot` asks for another epoch or segment
 * size than a rank that waits; else 0. */
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

/* Tells the ranks that wait for the segment that there will be none, and why.
 * In an elastic job they are refused: the next generation would be no better.
 */
static void cannot_begin(struct endpoint *e, int slot, const char *why)
{
    if (!e->job->spec.elastic) {
        abort_epoch(e, (uint32_t)e->job->ranks[slot].rank, why);
        return;
    }
    for (int i = 0; i < e->job->rank_count; i++) {
        if (!e->slots[i].waiting)
            continue;
        e->slots[i].waiting = 0;
        e->slots[i].epoch = 0;
        if (e->slots[i].conn)
            conn_refuse(e->slots[i].conn, why);
    }
}

static void send_segment(struct endpoint *e, const struct worker_segment *m,
                         int fd)
{
    struct hb_buf out = HB_BUF_INIT;

    if (worker_encode_segment(&out, m) < 0)
        return;
    for (int i = 0; i < e->members.local_count; i++)
        e->slots[e->members.local[i]].waiting = 0;
    /* A peer that cannot take it is dropped, and then blamed. */
    for (int i = 0; i < e->members.local_count; i++)
        if (e->slots[e->members.local[i]].conn)
            conn_send(e->slots[e->members.local[i]].conn, &out, fd);
    hb_buf_free(&out);
}

/* Writes the notices of the members into the segment. */
static void put_notices(struct endpoint *e)
{
    for (int i = 0; e->head && i < e->members.local_count; i++)
        if ((uint32_t)i < e->head_ranks)
            segment_notice(e->head, (uint32_t)i,
                           e->slots[e->members.local[i]].leave_ns);
}

/* Hands out the segment if every local rank waits for it. */
static void assemble(struct endpoint *e, int slot)
{
    struct hb_error err = HB_ERROR_INIT;
    struct worker_segment m = {e->slots[slot].epoch, e->slots[slot].bytes};
    uint32_t n = (uint32_t)e->members.local_count;
    int fd;

    for (uint32_t i = 0; i < n; i++)
        if (!e->slots[e->members.local[i]].waiting)
            return;
    segment_fd_unmap(e->head, e->head_ranks);
    e->head = NULL;
    e->head_ranks = n;
    if (segment_fd_make(m.epoch, n, m.segment_bytes, &fd, &e->head, &err) < 0) {
        cannot_begin(e, slot, err.text);
        return;
    }
    e->head_epoch = m.epoch;
    if (e->changed == m.epoch)
        segment_change(e->head);
    put_notices(e);
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

    if (s->epoch != 0 || m->epoch == 0 || s->is_ready ||
        (e->job->spec.elastic && m->epoch != e->members.now.number)) {
        conn_refuse(c, "JOIN out of order");
        return;
    }
    if (find_lost_rank(e, &rank, &why)) {
        send_abort(c, rank, e->failed ? e->failed_status : HVD_EPEER, why,
                   m->epoch);
        return;
    }
    c->left = 0;
    relay_rank_back(&e->relay, c->slot);
    s->epoch = m->epoch;
    s->bytes = m->segment_bytes;
    s->waiting = 1;
    s->blames = 0;
    if (differs(e, c->slot, text, sizeof(text)))
        cannot_begin(e, c->slot, text);
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
    if (c->endpoint->job->spec.elastic)
        tell_ready(c->endpoint, c->slot, 0);
}

/* ---- Generations --------------------------------------------------------- */

/* Ends the generation before for ranks that still wait for this one to join it
 * or to come to a fence: it will not. */
static void give_up_generation(struct endpoint *e, int slot)
{
    uint32_t rank = (uint32_t)e->job->ranks[slot].rank;
    char text[WORKER_TEXT_MAX];

    if (!is_member(e, slot) || e->members.now.number == 0)
        return;
    snprintf(text, sizeof(text),
             "rank %u (pid %d) on host %.100s: is ready for the next "
             "generation",
             rank, (int)e->slots[slot].pid, e->job->host);
    if (anybody_waits(e))
        abort_epoch(e, rank, text);
    relay_rank_gone(&e->relay, slot, e->members.now.number, text);
}

/* Tells a rank that waits for a generation that there is none for it. */
static void tell_removed(struct endpoint *e, int slot)
{
    struct endpoint_slot *s = &e->slots[slot];
    struct hb_buf out = HB_BUF_INIT;

    s->is_ready = 0;
    if (worker_encode_removed(&out, s->removed) == 0)
        conn_send(s->conn, &out, -1);
    hb_buf_free(&out);
    if (s->conn)
        conn_close(s->conn);
}

void endpoint_notice(struct endpoint *e, uint32_t rank, uint64_t until_ns)
{
    int slot = endpoint_slot_of(e, rank);

    if (slot < 0)
        return;
    e->slots[slot].leave_ns = until_ns;
    if (e->head_epoch == e->members.now.number)
        put_notices(e);
}

void endpoint_removed(struct endpoint *e, uint32_t rank, const char *why)
{
    int slot = endpoint_slot_of(e, rank);

    if (slot < 0)
        return;
    hb_free(e->slots[slot].removed);
    e->slots[slot].removed = hb_xstrdup(why);
    if (e->slots[slot].conn && e->slots[slot].is_ready)
        tell_removed(e, slot);
}

void epoch_ready(struct endpoint_conn *c)
{
    struct endpoint *e = c->endpoint;

    if (e->slots[c->slot].removed) {
        tell_removed(e, c->slot);
        return;
    }
    /* Whom it blamed is of the generation before. */
    e->slots[c->slot].blames = 0;
    e->slots[c->slot].is_ready = 1;
    give_up_generation(e, c->slot);
    tell_ready(e, c->slot, 1);
}

/* Welcomes the member in `slot`.  If it has gone meanwhile, the generation
 * cannot begin. */
static void welcome(struct endpoint *e, int slot)
{
    struct endpoint_slot *s = &e->slots[slot];
    uint32_t rank = (uint32_t)e->job->ranks[slot].rank;
    char text[WORKER_TEXT_MAX];

    /* The end of a rank may be known before that of its connection. */
    if (s->conn && s->is_ready && !s->gone) {
        s->is_ready = 0;
        conn_welcome(s->conn);
        return;
    }
    if (s->gone)
        snprintf(text, sizeof(text), "%s", s->gone);
    else
        snprintf(text, sizeof(text),
                 "rank %u (pid %d) on host %.100s: closed its connection to "
                 "the agent",
                 rank, (int)s->pid, e->job->host);
    if (e->first_gone == 0)
        e->first_gone = slot + 1;
    remember(e, rank, HVD_EPEER, text);
    if (!s->gone)
        relay_rank_gone(&e->relay, slot, e->members.now.number, text);
}

int endpoint_generation(struct endpoint *e, struct control_generation *m,
                        struct hb_error *err)
{
    int rc = members_set(&e->members, m, err);

    if (rc < 0)
        return rc;
    hb_free(e->failed);
    e->failed = NULL;
    e->aborted = e->first_gone = 0;
    for (int i = 0; i < e->members.local_count; i++)
        welcome(e, e->members.local[i]);
    return 0;
}

void endpoint_rank_idle(struct endpoint *e, int local_rank)
{
    e->slots[local_rank].gone = hb_xstrdup("has not been started");
}

void endpoint_rank_restarted(struct endpoint *e, int local_rank)
{
    struct endpoint_slot *s = &e->slots[local_rank];

    hb_free(s->gone);
    hb_free(s->removed);
    s->gone = s->removed = NULL;
    s->leave_ns = 0;
    s->blames = s->late = 0;
    /* If the generation ended by that death, e->failed says so. */
    if (e->first_gone == local_rank + 1)
        e->first_gone = 0;
    relay_rank_restarted(&e->relay, local_rank);
}

void endpoint_change(struct endpoint *e, uint32_t generation)
{
    e->changed = generation;
    if (e->head && generation == e->head_epoch)
        segment_change(e->head);
}

void epoch_settle_lost(struct endpoint *e, int slot)
{
    struct endpoint_slot *s = &e->slots[slot];
    uint32_t rank = (uint32_t)e->job->ranks[slot].rank, epoch = s->epoch;
    char text[WORKER_TEXT_MAX];

    if (!s->lost)
        return;
    s->lost = 0;
    s->epoch = 0;
    snprintf(text, sizeof(text),
             "rank %u (pid %d) on host %.100s: closed its connection "
             "to the agent without hvd_shutdown",
             rank, (int)s->pid, e->job->host);
    abort_epoch(e, rank, text);
    relay_rank_gone(&e->relay, slot, epoch, text);
}

/* Blames the lost connections: the processes have not been seen to end in time,
 * which would have explained more. */
static void on_lost(uv_timer_t *timer)
{
    struct endpoint *e = timer->data;

    for (int i = 0; i < e->job->rank_count; i++)
        epoch_settle_lost(e, i);
}

void epoch_read_all(struct endpoint *e, int slot)
{
    /* Bounded, because a child of the rank may hold the connection and keep
     * writing. */
    for (int i = 0;
         i < READS_MAX && e->slots[slot].conn && conn_read(e->slots[slot].conn);
         i++)
        ;
}

void epoch_conn_ended(struct endpoint *e, int slot)
{
    struct endpoint_slot *s = &e->slots[slot];

    s->conn = NULL;
    s->waiting = 0;
    if (s->is_ready)
        tell_ready(e, slot, 0);
    s->is_ready = 0;
    if (s->epoch == 0 || s->gone)
        return;
    s->lost = 1;
    if (!uv_is_active((uv_handle_t *)&e->lost_timer))
        uv_timer_start(&e->lost_timer, on_lost, ENDPOINT_LOST_MS, 0);
}
