/* SPDX-License-Identifier: Apache-2.0 */
/* The plane: its life, and an operation's; see mpi_impl.h. */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"

#include <sched.h>
#include <string.h>

/* ---- Operations ---------------------------------------------------------- */

static int barrier_advance(struct mp_plane *p, struct hvd__op *op)
{
    (void)p;
    op->trace.algorithm = "mpi.header";
    return 1;
}

static int (*const collectives[])(struct mp_plane *, struct hvd__op *) = {
    [HVD__ALLREDUCE] = mp_allreduce_advance,
    [HVD__BROADCAST] = mp_broadcast_advance,
    [HVD__ALLGATHER] = mp_gather_advance,
    [HVD__BARRIER] = barrier_advance,
    [HVD__ALLTOALL] = mp_alltoall_advance,
    [HVD__REDUCESCATTER] = mp_scatter_advance,
    [HVD__JOIN] = barrier_advance,
};

static int supports(const struct hvd__plane *plane, const struct hvd__op *op)
{
    (void)plane;
    return (size_t)op->kind < sizeof(collectives) / sizeof(collectives[0]) &&
           collectives[op->kind];
}

static int is_broken(const struct mp_plane *p, struct hb_error *err)
{
    const struct hb_error *broken =
        p->broken.status ? &p->broken : &mp_world.broken;

    if (broken->status)
        *err = *broken;
    return broken->status;
}

void mp_operation_over(struct mp_plane *p, const struct hvd__op *op, int rc)
{
    int alone = hvd__op_alone(op, rc);

    p->op = NULL;
    p->stage = MP_IDLE;
    p->solo_seq = 0;
    mp_wait_reset(p);
    /* After a mismatch, or a failure of this rank alone, the ranks are still in
     * step. */
    if (rc > 0 || rc == -HVD_EMISMATCH || alone)
        p->carried_out = p->seq;
}

/* Ends an operation.  If it has failed, tells the others, who may be in the
 * middle of it. */
static void end(struct mp_plane *p, const struct hvd__op *op, int rc)
{
    mp_operation_over(p, op, rc);
    if (p->carried_out == p->seq)
        return;
    if (!p->broken.status)
        p->broken = *op->err;
    if (p->left != MP_GONE)
        mp_farewell_send(p, MP_GONE);
}

static int start(struct hvd__plane *plane, struct hvd__op *op)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    int rc;

    mp_lock();
    rc = is_broken(p, op->err);
    if (rc == 0 && p->closed)
        rc = hb_error_set(op->err, HVD_ESHUTDOWN, "this rank has left");
    if (rc == 0) {
        p->seq++;
        p->op = op;
        p->stage = MP_AGREE;
        p->solo_seq =
            mp_world.may_block && mp_world.planes == 1 && p == mp_world.all
                ? p->seq
                : 0;
        mp_wait_reset(p);
        rc = mp_header_send(p, op);
        if (rc < 0)
            end(p, op, rc);
    } else if (p->left != MP_GONE) {
        mp_farewell_send(p, MP_GONE);
    }
    mp_unlock();
    return rc;
}

/* Returns HVD__CUT or -HVD_EMISMATCH, because signatures differ; the same on
 * all ranks, as all have the same merged header. */
static int disagree(const struct mp_plane *p, struct hvd__op *op)
{
    if (!(p->head[MP_FLAGS] & MP_SAME_FIRST))
        return hb_error_set(op->err, HVD_EMISMATCH,
                            "ranks have begun different operations");
    op->agreed_entries = (uint32_t)p->head[MP_LEAST];
    return HVD__CUT;
}

/* Returns 1 if all ranks agree and the data may move; else returns like
 * progress. */
static int agree(struct mp_plane *p, struct hvd__op *op)
{
    int rc = p->stage == MP_HELD ? 1 : mp_header_agree(p, op), prospect;

    if (rc < 0)
        return rc;
    if (rc == 1 && p->stage == MP_AGREE) {
        p->stage = MP_HELD;
        hvd__op_agreed(op);
    }
    if (rc == 1 && !(p->head[MP_FLAGS] & MP_SAME))
        return disagree(p, op);
    prospect = mp_farewells_read(p, op->err);
    if (prospect == 0)
        prospect = mp_can_agree(p, p->seq, op->err);
    if (prospect < 0)
        return prospect;
    return rc == 1 && (prospect == 1 || p->left != MP_STAYS);
}

int mp_advance(struct mp_plane *p, struct hvd__op *op)
{
    int rc;

    if (p->stage != MP_DATA) {
        rc = agree(p, op);
        if (rc != 1)
            return rc;
        p->stage = MP_DATA;
        if (p->left == MP_LEAVING) /* peers that wait for this rank's last
                                      word may go on */
            mp_farewell_send(p, MP_GONE);
        p->solo = (p->head[MP_FLAGS] & MP_SOLO) != 0;
        memset(&p->run, 0, sizeof(p->run));
    }
    return collectives[op->kind](p, op);
}

static int progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    int rc;

    mp_lock();
    rc = is_broken(p, op->err);
    if (rc == 0)
        rc = mp_advance(p, op);
    if (rc != 0)
        end(p, op, rc);
    mp_unlock();
    return rc;
}

/* Returns as `began` does, for a plane that is not broken. */
static int look_for_header(struct mp_plane *p, struct hb_error *err)
{
    int rc;

    if (p->comm == MPI_COMM_NULL) /* this rank has left, and its peers */
        return 0;
    rc = mp_header_arrived(p, err);
    if (rc == 0)
        rc = mp_farewells_read(p, err);
    if (rc == 0 && mp_can_agree(p, p->seq + 1, err) < 0) {
        /* Look again: a header sent before its rank left counts. */
        rc = mp_header_arrived(p, NULL);
        rc = rc ? rc : err->status;
    }
    return rc;
}

static int began(struct hvd__plane *plane, struct hb_error *err)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    int rc;

    mp_lock();
    rc = is_broken(p, err);
    if (rc == 0)
        rc = look_for_header(p, err);
    mp_unlock();
    return rc;
}

/* ---- Long waits ---------------------------------------------------------- */

/* Returns the member before this one, if its header has not come: only its
 * successor knows that. */
static int missing(struct hvd__plane *plane, uint64_t *number, int *reports)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    int from = -1;

    mp_lock();
    if (p->op && p->stage == MP_AGREE && p->round == 0 && p->nrounds > 0 &&
        mp_header_arrived(p, NULL) == 0)
        from = p->rounds[0].from;
    *number = p->seq;
    mp_unlock();
    *reports = 1;
    return from;
}

/* ---- Life -----------------------------------------------------------------
 */

/* All planes, freed ones included.  A communicator is freed only when all
 * peers have said that they are gone: until then their messages may arrive,
 * and MPI might deliver them to a later communicator. */
static struct mp_plane *planes;

static void release(struct mp_plane *p)
{
    hb_free(p->ranks);
    hb_free(p->rounds);
    hb_free(p->peers);
    hb_free(p->recvs);
    hb_free(p->sends);
    hb_free(p->scratch);
    hb_free(p->words);
    hb_free(p->ints);
    hb_free(p->offset);
    hb_free(p->drain);
    hb_free(p);
}

static int count_sends(const struct mp_plane *p)
{
    return 2 * (p->n + p->nrounds);
}

/* Returns whether `p` can be disconnected: no operation in progress, all peers
 * gone, all own sends complete.  The peers' MPI may have to make progress for
 * that. */
static int is_quiet(struct mp_plane *p)
{
    int sent = 0;

    if (p->op || mp_farewells_read(p, NULL) < 0)
        return 0;
    for (int r = 0; r < p->n; r++)
        if (r != p->me && p->peers[r].how != MP_GONE)
            return 0;
    return mp_test_all(p->sends, count_sends(p), &sent) == MPI_SUCCESS && sent;
}

/* Cancels the receives, which no rank will match, and frees the
 * communicator. */
static int disconnect(struct mp_plane *p)
{
    for (int i = 0; i <= p->nrounds; i++)
        if (p->recvs[i] != MPI_REQUEST_NULL &&
            (MPI_Cancel(&p->recvs[i]) != MPI_SUCCESS ||
             MPI_Wait(&p->recvs[i], MPI_STATUS_IGNORE) != MPI_SUCCESS))
            return -HVD_ESYSTEM;
    for (int i = 0; i < count_sends(p); i++)
        MPI_Wait(&p->sends[i], MPI_STATUS_IGNORE);
    return MPI_Comm_free(&p->comm) == MPI_SUCCESS ? 0 : -HVD_ESYSTEM;
}

void mp_leave_all(void)
{
    for (struct mp_plane *p = planes; p; p = p->next) {
        if (p->freed)
            continue;
        mp_leave_locked(p);
        hb_error_clear(&p->broken);
        hb_error_set(&p->broken, HVD_ESHUTDOWN,
                     "MPI was finalised before hvd_shutdown");
    }
}

/* Disconnects planes that have left.  One that is not freed keeps its memory,
 * as a thread may still use it.  After an MPI error nothing is freed: MPI may
 * still write to it. */
int mp_reap(int at_once)
{
    struct mp_plane **at = &planes;
    int left = 0;

    while (*at && !mp_world.failed) {
        struct mp_plane *p = *at;

        if (p->left != MP_GONE || (!at_once && !is_quiet(p))) {
            left += p->left == MP_GONE;
            at = &p->next;
            continue;
        }
        mp_world.failed = disconnect(p) < 0;
        if (mp_world.failed)
            break;
        *at = p->next;
        if (p->freed)
            release(p);
    }
    return left;
}

static void plane_free(struct hvd__plane *plane)
{
    struct mp_plane *p = (struct mp_plane *)plane;

    mp_lock();
    if (p->left != MP_GONE)
        mp_farewell_send(p, MP_GONE);
    mp_world.planes--;
    if (mp_world.all == p)
        mp_world.all = NULL;
    p->freed = 1;
    if (p->comm == MPI_COMM_NULL) /* no longer in the list */
        release(p);
    mp_reap(0);
    mp_unlock();
}

static const struct hvd__plane_ops ops = {
    .name = "mpi",
    .supports = supports,
    .start = start,
    .progress = progress,
    .pause = mp_pause,
    .began = began,
    .interrupt = mp_interrupt,
    .missing = missing,
    .give_up = mp_give_up,
    .abandon = mp_abandon,
    .leave = mp_leave,
    .free = plane_free,
};

/* Returns an array of n requests that are null, or NULL. */
static MPI_Request *null_requests(int n)
{
    MPI_Request *reqs = hb_calloc((size_t)n, sizeof(MPI_Request));

    for (int i = 0; reqs && i < n; i++)
        reqs[i] = MPI_REQUEST_NULL;
    return reqs;
}

/* Returns a plane that is not connected, or NULL with err set. */
static struct mp_plane *allocate(const struct hvd__mpi_plane_config *c,
                                 struct hb_error *err)
{
    struct mp_plane *p = hb_calloc(1, sizeof(*p));
    size_t n = (size_t)c->n;

    if (!p)
        goto no_memory;
    p->plane.ops = &ops;
    p->comm = MPI_COMM_NULL;
    hb_error_clear(&p->broken);
    p->n = c->n;
    p->me = c->me;
    p->first = -1;
    while (1 << p->nrounds < p->n)
        p->nrounds++;
    p->ranks = hb_calloc(n, sizeof(*p->ranks));
    p->rounds = hb_calloc((size_t)p->nrounds, sizeof(*p->rounds));
    p->peers = hb_calloc(n, sizeof(*p->peers));
    p->recvs = null_requests(p->nrounds + 1);
    p->sends = null_requests(count_sends(p));
    p->scratch = hb_malloc(MP_SCRATCH_BYTES);
    p->words = hb_calloc(2 * n + 4, sizeof(*p->words));
    p->ints = hb_calloc(4 * n, sizeof(*p->ints));
    p->offset = hb_calloc(n + 1, sizeof(*p->offset));
    if (p->ranks && p->rounds && p->peers && p->recvs && p->sends &&
        p->scratch && p->words && p->ints && p->offset) {
        memcpy(p->ranks, c->ranks, n * sizeof(*p->ranks));
        mp_wait_init(p);
        mp_wait_reset(p);
        return p;
    }
    release(p);
no_memory:
    hb_error_set(err, HVD_ENOMEM, "no memory for a plane on this rank");
    return NULL;
}

/* What members tell each other before they make a plane; the least counts.
 * FAILED: plus the world rank; then come the values of those that are ready. */
enum { MEMBER_NO_MEMORY, MEMBER_FAILED };

/* Sets err for a member that cannot make the plane. */
static int member_failed(uint64_t answer, struct hb_error *err)
{
    if (answer == MEMBER_NO_MEMORY)
        return hb_error_set(err, HVD_ENOMEM,
                            "no memory for a plane on another rank");
    return mp_error_peer(err, (int)(answer - MEMBER_FAILED),
                         "a call of MPI for a plane");
}

/* Waits until this rank is in no blocking collective (the caller holds
 * the lock, which is released in between).  From when the new plane is
 * counted, this rank begins no blocking operation.  One that it began
 * before either ends, or some member already counts the plane and has
 * not begun it, so it will not block either.  If a member cannot make the
 * plane (prepared: its status), all fail. */
static int wait_unblocked(const struct hvd__mpi_plane_config *c, int prepared,
                          struct hb_error *err)
{
    const struct hvd__mpi_world *w = &mp_world.view;
    uint64_t ready = MEMBER_FAILED + (uint64_t)w->size, least;
    int rc;

    if (prepared < 0)
        least = prepared == -HVD_ENOMEM ? MEMBER_NO_MEMORY
                                        : MEMBER_FAILED + (uint64_t)w->rank;
    else
        least = ready + (mp_world.all ? mp_world.all->seq : 0);
    rc = mp_members_min(c, &least, err);
    if (prepared < 0)
        return prepared;
    if (rc == 0 && least < ready)
        rc = member_failed(least, err);
    while (rc == 0 && mp_world.all && mp_world.all->solo_seq &&
           mp_world.all->solo_seq < least - ready + 1) {
        mp_unlock();
        sched_yield();
        mp_lock();
    }
    return rc;
}

/* Makes the group of the members, unless they are all ranks. */
static int make_group(const struct hvd__mpi_plane_config *c, MPI_Group *some,
                      struct hb_error *err)
{
    MPI_Group all;
    int rc;

    if (c->n == mp_world.view.size)
        return 0;
    rc = MPI_Comm_group(mp_world.comm, &all);
    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Comm_group");
    rc = MPI_Group_incl(all, c->n, c->ranks, some);
    MPI_Group_free(&all);
    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Group_incl");
}

/* Copies the world's communicator, or makes that of a group.  MPI has the
 * latter only in blocking form: a rank that fails in it leaves the others stuck
 * until its process ends. */
static int make_comm(const struct hvd__mpi_plane_config *c, MPI_Group some,
                     MPI_Comm *comm, struct hb_error *err)
{
    int tag = MP_TAG_MAKE + (int)(c->tag % MP_TAGS), rc;
    MPI_Request req;

    if (some == MPI_GROUP_NULL) {
        rc = MPI_Comm_idup(mp_world.comm, comm, &req);
        return rc == MPI_SUCCESS ? mp_await("MPI_Comm_idup", -1, &req, 1, err)
                                 : mp_error(err, -1, rc, "MPI_Comm_idup");
    }
    rc = MPI_Comm_create_group(mp_world.comm, some, tag, comm);
    return rc == MPI_SUCCESS ? 0
                             : mp_error(err, -1, rc, "MPI_Comm_create_group");
}

static int connect_members(struct mp_plane *p, struct hb_error *err)
{
    int rc = MPI_Comm_set_errhandler(p->comm, MPI_ERRORS_RETURN);

    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Comm_set_errhandler");
    rc = mp_headers_post(p, err);
    return rc < 0 ? rc : mp_farewell_post(p, err);
}

/* Lists a plane.  One that is not complete is freed, unless MPI may still use
 * its memory. */
static void keep(struct mp_plane *p, int complete)
{
    if (!p)
        return;
    if (!complete && !mp_world.failed) {
        release(p);
        return;
    }
    p->freed = !complete;
    p->next = planes;
    planes = p;
    if (complete && p->n == mp_world.view.size && !mp_world.all)
        mp_world.all = p;
}

/* Makes the plane; the caller holds the lock. */
static struct mp_plane *make(const struct hvd__mpi_plane_config *c,
                             struct hb_error *err)
{
    struct mp_plane *p = allocate(c, err);
    MPI_Group some = MPI_GROUP_NULL;
    int connecting, rc = p ? make_group(c, &some, err) : err->status;

    mp_world.planes++;
    mp_world.deadline_ns = c->deadline_ns;
    rc = wait_unblocked(c, rc, err);
    mp_reap(0);
    if (rc == 0)
        rc = make_comm(c, some, &p->comm, err);
    if (some != MPI_GROUP_NULL)
        MPI_Group_free(&some);
    connecting = rc == 0;
    if (connecting)
        rc = connect_members(p, err);
    if (rc < 0)
        mp_world.planes--;
    mp_keep_failure(rc, err);
    if (rc < 0 && connecting) /* the others may have the plane */
        mp_farewell_send(p, MP_GONE);
    keep(p, rc == 0);
    return rc == 0 ? p : NULL;
}

struct hvd__plane *mp_plane_new(const struct hvd__mpi_plane_config *c,
                                struct hb_error *err)
{
    struct mp_plane *p = NULL;

    if (c->n == 1)
        return hvd__self_plane();
    mp_lock();
    if (mp_world.broken.status)
        *err = mp_world.broken;
    else
        p = make(c, err);
    mp_unlock();
    return p ? &p->plane : NULL;
}
