/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaving, and peers that leave.
 *
 * A leaving rank tells every other how many operations it has carried out,
 * including one whose data it is moving.  Later operations can no longer be
 * agreed on, or are given up.  It also tells if it leaves because a call of MPI
 * has failed.
 *
 * hvd_shutdown must not wait for other ranks, so a rank may have to give up an
 * operation that it has begun.  It does not know whether its peers, which have
 * its header, already move data.  So it says that it is leaving and stays for a
 * while.  Peers that have not agreed yet wait for its last word.  If a peer has
 * agreed, then all ranks have begun the operation and their headers are on the
 * way: this rank will receive them in that time, say so, and take part.  If it
 * does not receive them in time, peers that went on learn that it is gone and
 * give up too; but peers in a blocking call cannot.  This rank must then not
 * wait for those in MPI_Finalize: see mp_wait_at_exit.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* Must exceed the time that a busy machine keeps a peer from running: a peer
 * that goes on alone would wait for ever. */
#define STAY_NS UINT64_C(2000000000)

enum {
    LOCK_NS = 200 * 1000 * 1000, /* while exiting: another thread may hold it */
    PUSH_NS = 1000 * 1000 * 1000,
};

/* ---- Peers that leave -------------------------------------------------- */

int mp_farewell_post(struct mp_plane *p, struct hb_error *err)
{
    int rc = MPI_Irecv(&p->farewell_in, (int)sizeof(p->farewell_in), MPI_BYTE,
                       MPI_ANY_SOURCE, MP_TAG_FAREWELL, p->comm,
                       &p->recvs[p->nrounds]);

    return rc == MPI_SUCCESS ? 0 : mp_error(err, -1, rc, "MPI_Irecv");
}

int mp_farewells_read(struct mp_plane *p, struct hb_error *err)
{
    for (;;) {
        struct mp_farewell *f = &p->farewell_in;
        MPI_Status status;
        int flag, rc;

        if (p->recvs[p->nrounds] == MPI_REQUEST_NULL) /* disconnected */
            return hb_error_set(err, HVD_ESHUTDOWN, "this rank has left");
        rc = MPI_Test(&p->recvs[p->nrounds], &flag, &status);
        if (rc != MPI_SUCCESS)
            return mp_error(err, -1, rc, "MPI_Test");
        if (!flag)
            return 0;
        p->peers[status.MPI_SOURCE] = (struct mp_peer){f->how, f->carried_out};
        if (p->first < 0) {
            p->first = (int)(f->first % (uint64_t)p->n);
            p->first_farewell = *f;
            p->first_farewell.text[MP_WHY_BYTES - 1] = '\0';
        }
        rc = mp_farewell_post(p, err);
        if (rc < 0)
            return rc;
    }
}

/* Sets err: the rank that left first has shut down or failed, or a rank has
 * waited too long. */
static int has_left(struct mp_plane *p, struct hb_error *err)
{
    const struct mp_farewell *f = &p->first_farewell;
    int rank = p->ranks[p->first];

    if (f->reason == MP_TIMEOUT || f->reason == MP_DISAGREEMENT) {
        mp_world.failed = 1; /* MPI would wait for all ranks */
        if (f->reason == MP_TIMEOUT)
            mp_name_rank(err, rank);
        return hb_error_set(err, HVD_ETIMEOUT, "%s", f->text);
    }
    if (f->reason != MP_SHUTDOWN)
        return mp_error_peer(err, rank, f->text);
    mp_name_rank(err, rank);
    return hb_error_set(err, HVD_ESHUTDOWN, "rank %d on host %s has shut down",
                        rank, mp_host(rank));
}

int mp_can_agree(struct mp_plane *p, uint64_t seq, struct hb_error *err)
{
    int sure = 1;

    for (int r = 0; p->first >= 0 && r < p->n; r++) {
        if (p->peers[r].how == MP_STAYS || p->peers[r].carried_out >= seq)
            continue;
        if (p->peers[r].how == MP_GONE)
            return has_left(p, err);
        sure = 0;
    }
    return sure;
}

int mp_find_deserter(struct mp_plane *p, struct hb_error *err)
{
    int rc = mp_farewells_read(p, err);

    if (rc == 0)
        rc = mp_can_agree(p, p->seq, err);
    return rc < 0 ? rc : 0;
}

/* ---- This rank --------------------------------------------------------- */

/* Tests the sends until they have gone out or PUSH_NS are over: the first
 * message to a peer on another host sets up a connection, in which the peer
 * takes part. */
static void push_out(MPI_Request *reqs, int n)
{
    uint64_t until = hb_now_ns() + PUSH_NS;
    int rc = MPI_SUCCESS, sent = 0;

    while (rc == MPI_SUCCESS && !sent && hb_now_ns() < until) {
        rc = mp_test_all(reqs, n, &sent);
        if (!sent)
            sched_yield();
    }
}

/* Returns the plane rank whose failure `why` tells, or for which this one has
 * waited too long, and sets *text to the reason; else returns this rank. */
static int find_culprit(const struct mp_plane *p, const struct hb_error *why,
                        const char **text)
{
    const char *reason = mp_peer_reason(why);

    if (!reason && why->status == -HVD_ETIMEOUT)
        reason = why->text;
    *text = why->text;
    for (int r = 0; reason && r < p->n; r++)
        if (p->ranks[r] == why->rank) {
            *text = reason;
            return r;
        }
    return p->me;
}

static void fill_farewell(const struct mp_plane *p, struct mp_farewell *f)
{
    const struct hb_error *why =
        p->broken.status ? &p->broken : &mp_world.broken;
    const char *text;

    if (p->first >= 0)
        *f = p->first_farewell;
    f->how = (uint64_t)p->left;
    f->carried_out = p->stage == MP_DATA ? p->seq : p->carried_out;
    if (p->first >= 0)
        return;
    f->first = (uint64_t)find_culprit(p, why, &text);
    f->reason = why->status == 0 || why->status == -HVD_ESHUTDOWN ? MP_SHUTDOWN
                : why->status != -HVD_ETIMEOUT                    ? MP_ERROR
                : why->rank >= 0                                  ? MP_TIMEOUT
                                 : MP_DISAGREEMENT;
    snprintf(f->text, sizeof(f->text), "%.*s", MP_WHY_BYTES - 1, text);
}

/* Ignores failures of MPI_Isend: this rank ends anyway. */
void mp_farewell_send(struct mp_plane *p, enum mp_leaving how)
{
    int last = how == MP_GONE;
    MPI_Request *reqs = p->sends + last * p->n;

    p->left = how;
    fill_farewell(p, &p->farewell_out[last]);
    for (int i = 1; i < p->n; i++) {
        int r = (p->me + i) % p->n;

        MPI_Isend(&p->farewell_out[last], (int)sizeof(struct mp_farewell),
                  MPI_BYTE, r, MP_TAG_FAREWELL, p->comm, &reqs[r]);
    }
    if (mp_world.failed) /* MPI may not be called again */
        push_out(p->sends, 2 * p->n);
}

/* Gives other threads the lock for a moment. */
static void yield_lock(void)
{
    mp_unlock();
    sched_yield();
    mp_lock();
}

/* Advances the operation in progress, but keeps its error from the caller. */
static int advance_quietly(struct mp_plane *p)
{
    struct hvd__op *op = p->op;
    struct hb_error err = HB_ERROR_INIT, *given = op->err;
    int rc;

    op->err = &err;
    rc = mp_advance(p, op);
    op->err = given;
    return rc;
}

/* Stays in the given-up operation until it is over or STAY_NS have passed.
 * Once its data moves it cannot be given up, and need not: all ranks take
 * part.  Another thread may end the operation meanwhile. */
static void stay(struct mp_plane *p)
{
    uint64_t until = hb_now_ns() + STAY_NS;
    int rc = 0;

    while (p->op && rc == 0) {
        rc = advance_quietly(p);
        if (rc == 0 && p->stage != MP_DATA && hb_now_ns() > until)
            break;
        if (rc == 0)
            yield_lock();
    }
    if (p->op) {
        mp_world.unsure |= rc == 0;
        mp_operation_over(p, p->op, rc);
    }
    hb_error_set(&p->broken, HVD_ESHUTDOWN, "an operation was given up");
}

static void abandon(struct mp_plane *p)
{
    if (!p->op)
        return;
    p->closed = 1;
    if (p->stage != MP_DATA)
        mp_farewell_send(p, MP_LEAVING);
    stay(p);
    if (p->left == MP_LEAVING)
        mp_farewell_send(p, MP_GONE);
}

void mp_abandon(struct hvd__plane *plane)
{
    mp_lock();
    abandon((struct mp_plane *)plane);
    mp_unlock();
}

/* Gives up an operation as hvd_shutdown does, since peers may be about to begin
 * it.  While this rank stays, it may still be carried out. */
void mp_give_up(struct hvd__plane *plane, const struct hb_error *why)
{
    struct mp_plane *p = (struct mp_plane *)plane;

    mp_lock();
    if (!p->broken.status && p->left == MP_STAYS &&
        (!p->op || p->stage != MP_DATA)) {
        p->broken = *why;
        mp_leave_locked(p);
        push_out(p->sends, 2 * p->n);
        mp_world.failed = 1; /* MPI would wait for all ranks */
    }
    mp_unlock();
}

void mp_leave_locked(struct mp_plane *p)
{
    abandon(p);
    if (p->left != MP_GONE)
        mp_farewell_send(p, MP_GONE);
    p->closed = 1;
}

int mp_lock_at_exit(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOCK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return pthread_mutex_clocklock(&mp_world.lock, CLOCK_MONOTONIC, &until);
}

void mp_wait_at_exit(void)
{
    const struct timespec step = {0, 1000 * 1000};
    uint64_t until = hb_now_ns() + mp_world.patience_ns;

    while (mp_world.unsure && !mp_world.failed && mp_reap(0) > 0) {
        mp_world.failed |= hb_now_ns() > until;
        mp_unlock();
        nanosleep(&step, NULL);
        mp_lock();
    }
}

void mp_leave(struct hvd__plane *plane)
{
    struct mp_plane *p = (struct mp_plane *)plane;

    if (mp_lock_at_exit() != 0) {
        mp_world.failed = 1;
        return;
    }
    mp_leave_locked(p);
    mp_unlock();
}
