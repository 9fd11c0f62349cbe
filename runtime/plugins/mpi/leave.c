/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaving, and peers that leave.
 *
 * A leaving rank tells every other how many operations it has carried out,
 * including one whose data it is moving.  Later operations can no longer be
 * agreed on, or are given up.
 *
 * A rank that must give up an operation it has begun does not know whether its
 * peers, which have its header, already move data.  So it says that it is
 * leaving and stays for a while.  Peers that have not agreed yet wait for its
 * last word.  If a peer has agreed, then all ranks have begun the operation
 * and their headers are on the way: this rank will receive them in that time,
 * say so, and take part.  If it does not receive them in time, peers that went
 * on learn that it is gone and give up too; but peers in a blocking call
 * cannot.  This rank must then not wait for those in MPI_Finalize: see
 * mp_settle_at_exit.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"

#include <sched.h>
#include <time.h>

/* Must exceed the time that a busy machine keeps a peer from running: a peer
 * that goes on alone would wait for ever. */
#define STAY_NS UINT64_C(2000000000)

enum {
    LOCK_NS = 200 * 1000 * 1000, /* while exiting: another thread may hold it */
    PUSH_NS = 1000 * 1000 * 1000,
};

/* ---- Peers that leave -------------------------------------------------- */

static int post(struct mp_plane *p, struct hb_error *err)
{
    int rc = MPI_Irecv(&p->gone_in, (int)sizeof(p->gone_in), MPI_BYTE,
                       MPI_ANY_SOURCE, MP_TAG_GONE, p->comm, &p->gone_req);

    return rc == MPI_SUCCESS ? 0 : mp_error(err, -1, rc, "MPI_Irecv");
}

int mp_leave_init(struct mp_plane *p)
{
    p->first_gone = -1;
    p->gone = hb_calloc((size_t)p->n, sizeof(*p->gone));
    p->gone_reqs = hb_calloc(2 * (size_t)p->n, sizeof(MPI_Request));
    if (!p->gone || !p->gone_reqs)
        return -HVD_ENOMEM;
    p->gone_req = MPI_REQUEST_NULL;
    for (int i = 0; i < 2 * p->n; i++)
        p->gone_reqs[i] = MPI_REQUEST_NULL;
    return 0;
}

int mp_leave_open(struct mp_plane *p, struct hb_error *err)
{
    return post(p, err);
}

int mp_leave_close(struct mp_plane *p)
{
    if (mp_withdraw(&p->gone_req) < 0)
        return -HVD_ESYSTEM;
    for (int i = 0; i < 2 * p->n; i++)
        MPI_Wait(&p->gone_reqs[i], MPI_STATUS_IGNORE);
    return 0;
}

int mp_farewells(struct mp_plane *p, struct hb_error *err)
{
    for (;;) {
        MPI_Status status;
        int flag, rc = MPI_Test(&p->gone_req, &flag, &status);

        if (rc != MPI_SUCCESS)
            return mp_error(err, -1, rc, "MPI_Test");
        if (!flag)
            return 0;
        p->gone[status.MPI_SOURCE] = p->gone_in.words;
        if (p->first_gone < 0) {
            p->first_gone = (int)(p->gone_in.words.because % (uint64_t)p->n);
            p->why = p->gone_in.why;
        }
        rc = post(p, err);
        if (rc < 0)
            return rc;
    }
}

static int has_left(struct mp_plane *p, struct hb_error *err)
{
    int rank = p->ranks[p->first_gone];

    if (p->why.status)
        return mp_peer_failed(err, rank, &p->why);
    mp_name_rank(err, rank);
    return hb_error_set(err, HVD_ESHUTDOWN, "rank %d on host %s has shut down",
                        rank, mp_host(rank));
}

int mp_prospect(struct mp_plane *p, uint64_t seq, struct hb_error *err)
{
    int sure = 1;

    if (p->first_gone < 0)
        return 1;
    for (int r = 0; r < p->n; r++) {
        if (p->gone[r].how == MP_GONE && p->gone[r].over < seq)
            return has_left(p, err);
        if (p->gone[r].how == MP_LEAVING && p->gone[r].over < seq)
            sure = 0;
    }
    return sure;
}

int mp_deserted(struct mp_plane *p, struct hb_error *err)
{
    int rc = mp_farewells(p, err);

    for (int r = 0; rc == 0 && r < p->n; r++)
        if (p->gone[r].how == MP_GONE && p->gone[r].over < p->seq)
            rc = has_left(p, err);
    return rc;
}

/* ---- This one --------------------------------------------------------- */

/* Tests the sends until they have gone out: the first message to a peer on
 * another host sets up a connection, in which the peer takes part. */
void mp_push_out(MPI_Request *reqs, int n)
{
    uint64_t until = hb_now_ns() + PUSH_NS;
    int rc = MPI_SUCCESS, sent = 0;

    for (int i = 0; i < n && rc == MPI_SUCCESS; i += sent) {
        rc = MPI_Test(&reqs[i], &sent, MPI_STATUS_IGNORE);
        if (hb_now_ns() > until)
            break;
        if (!sent)
            sched_yield();
    }
}

/* Ignores failures of MPI_Isend: this rank ends anyway. */
void mp_tell(struct mp_plane *p, enum mp_leaving how)
{
    int which = how == MP_GONE;
    struct mp_goodbye *out = &p->gone_out[which];

    p->left = how;
    out->words = (struct mp_farewell){
        .how = (uint64_t)how,
        .over = p->stage == MP_DATA ? p->seq : p->over,
        .because = (uint64_t)(p->first_gone < 0 ? p->me : p->first_gone)};
    if (p->first_gone < 0)
        mp_explain(&out->why, p->broken.status ? &p->broken : &mp_world.broken);
    else
        out->why = p->why;
    for (int i = 1; i < p->n; i++) {
        int r = (p->me + i) % p->n;

        MPI_Isend(out, (int)sizeof(*out), MPI_BYTE, r, MP_TAG_GONE, p->comm,
                  &p->gone_reqs[which * p->n + r]);
    }
    if (mp_world.failed)
        mp_push_out(p->gone_reqs, 2 * p->n);
}

/* Gives other threads the lock for a moment. */
static void give_way(void)
{
    mp_unlock();
    sched_yield();
    mp_lock();
}

/* Stays in the given-up operation until it is over or STAY_NS have passed.
 * Once its data moves it cannot be given up, and need not: all ranks take
 * part. */
static void stay(struct mp_plane *p)
{
    struct hvd__op *op = p->op;
    struct hb_error err = HB_ERROR_INIT, *given = op->err;
    uint64_t until = hb_now_ns() + STAY_NS;
    int rc;

    op->err = &err;
    while ((rc = mp_advance(p, op)) == 0) {
        if (p->stage != MP_DATA && hb_now_ns() > until)
            break;
        give_way();
    }
    if (rc == 1 || rc == -HVD_EMISMATCH || rc == -HVD_EINVAL) /* as in end */
        p->over = p->seq;
    mp_world.unsure |= rc == 0;
    op->err = given;
    p->op = NULL;
    p->stage = MP_IDLE;
    p->solo_seq = 0;
    hb_error_set(&p->broken, HVD_ESHUTDOWN, "an operation was given up");
}

static void abandon(struct mp_plane *p)
{
    int agreed = p->stage == MP_DATA;

    if (!p->op)
        return;
    if (!agreed)
        mp_tell(p, MP_LEAVING);
    stay(p);
    if (p->left == MP_LEAVING)
        mp_tell(p, MP_GONE);
}

void mp_abandon(struct hvd__plane *plane)
{
    mp_lock();
    abandon((struct mp_plane *)plane);
    mp_unlock();
}

void mp_leave_now(struct mp_plane *p)
{
    abandon(p);
    if (p->left != MP_GONE)
        mp_tell(p, MP_GONE);
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

void mp_settle_at_exit(void)
{
    const struct timespec step = {0, 1000 * 1000};
    uint64_t until = hb_now_ns() + mp_world.patience_ns;

    while (mp_world.unsure && !mp_world.failed && mp_reap(MP_REAP_LEFT) > 0) {
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
    mp_leave_now(p);
    mp_unlock();
}
