/* SPDX-License-Identifier: Apache-2.0 */
/* The plane: its life, and an operation's; see mpi_impl.h. */
#include "runtime/plugins/mpi/mpi_impl.h"

#include "lib/base/alloc.h"

#include <sched.h>
#include <string.h>

/* ---- Operations ---------------------------------------------------------- */

static int supports(const struct hvd__plane *plane, const struct hvd__op *op)
{
    (void)plane;
    return op->kind != HVD__LANE_SCATTER;
}

static int barrier_advance(struct mp_plane *p, struct hvd__op *op)
{
    (void)p;
    op->algorithm = "mpi.header";
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

static int is_broken(const struct mp_plane *p, struct hb_error *err)
{
    const struct hb_error *broken =
        p->broken.status ? &p->broken : &mp_world.broken;

    if (broken->status)
        *err = *broken;
    return broken->status;
}

static void end(struct mp_plane *p, const struct hvd__op *op, int rc)
{
    p->op = NULL;
    p->stage = MP_IDLE;
    p->solo_seq = 0;
    mp_wait_reset(p);
    /* After a mismatch, or if recvbuf was too small, the ranks are still in
     * step. */
    if (rc > 0 || rc == -HVD_EMISMATCH || rc == -HVD_EINVAL) {
        p->over = p->seq;
        return;
    }
    if (!p->broken.status)
        p->broken = *op->err;
    /* The others may be in the middle of the operation. */
    if (p->left != MP_GONE)
        mp_tell(p, MP_GONE);
}

static int start(struct hvd__plane *plane, struct hvd__op *op)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    int rc;

    mp_lock();
    rc = is_broken(p, op->err);
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
        mp_tell(p, MP_GONE);
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
    prospect = mp_farewells(p, op->err);
    if (prospect == 0)
        prospect = mp_prospect(p, p->seq, op->err);
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
            mp_tell(p, MP_GONE);
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

static int began(struct hvd__plane *plane, struct hb_error *err)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    int rc;

    mp_lock();
    rc = is_broken(p, err);
    if (rc == 0)
        rc = mp_header_arrived(p, err);
    if (rc == 0)
        rc = mp_farewells(p, err);
    if (rc == 0 && mp_prospect(p, p->seq + 1, err) < 0) {
        /* Look again: a header sent before its rank left counts. */
        rc = mp_header_arrived(p, NULL);
        rc = rc ? rc : err->status;
    }
    mp_unlock();
    return rc;
}

/* ---- Life -----------------------------------------------------------------
 */

/* All planes, freed ones included.  A communicator is freed only when all
 * peers have said that they are gone: until then their messages may arrive,
 * and MPI might deliver them to a later communicator. */
static struct mp_plane *planes;

static int all_gone(const struct mp_plane *p)
{
    for (int r = 0; r < p->n; r++)
        if (r != p->me && p->gone[r].how != MP_GONE)
            return 0;
    return 1;
}

static int disconnect(struct mp_plane *p)
{
    if (mp_header_close(p) < 0 || mp_leave_close(p) < 0)
        return -HVD_ESYSTEM;
    return MPI_Comm_free(&p->comm) == MPI_SUCCESS ? 0 : -HVD_ESYSTEM;
}

static void release(struct mp_plane *p)
{
    hb_free(p->ranks);
    hb_free(p->rounds);
    hb_free(p->gone);
    hb_free(p->gone_reqs);
    hb_free(p->scratch);
    hb_free(p->words);
    hb_free(p->ints);
    hb_free(p->offset);
    hb_free(p);
}

/* Tests whether all sends have completed.  They may need the peers' MPI to make
 * progress. */
static int all_sent(struct mp_plane *p)
{
    int sent = 1;

    for (int i = 0; i < 2 * p->n && sent; i++)
        MPI_Test(&p->gone_reqs[i], &sent, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * p->nrounds && sent; i++)
        MPI_Test(&p->rounds[i / 2].out_req[i % 2], &sent, MPI_STATUS_IGNORE);
    return sent;
}

static int is_due(struct mp_plane *p, enum mp_reap how)
{
    if (!p->freed && (how == MP_REAP_FREED || p->left != MP_GONE))
        return 0;
    return how == MP_REAP_ALL ||
           (mp_farewells(p, NULL) == 0 && all_gone(p) && all_sent(p));
}

void mp_leave_all(void)
{
    for (struct mp_plane *p = planes; p; p = p->next) {
        if (p->freed)
            continue;
        mp_leave_now(p);
        hb_error_clear(&p->broken);
        hb_error_set(&p->broken, HVD_ESHUTDOWN,
                     "MPI was finalised before hvd_shutdown");
    }
}

/* Disconnects and frees planes that are due.  A plane that is not freed keeps
 * its memory, as a thread may still use it. After an MPI error nothing is
 * freed: MPI may still write to it. */
int mp_reap(enum mp_reap how)
{
    struct mp_plane **at = &planes;
    int left = 0;

    while (*at && !mp_world.failed) {
        struct mp_plane *p = *at;

        if (!is_due(p, how)) {
            left += p->freed || p->left == MP_GONE;
            at = &p->next;
            continue;
        }
        if (disconnect(p) < 0) {
            mp_world.failed = 1;
            break;
        }
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
        mp_tell(p, MP_GONE);
    mp_world.planes--;
    if (mp_world.all == p)
        mp_world.all = NULL;
    p->freed = 1;
    if (p->comm == MPI_COMM_NULL) /* no longer in the list */
        release(p);
    mp_reap(MP_REAP_FREED);
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
    .abandon = mp_abandon,
    .leave = mp_leave,
    .free = plane_free,
};

static struct mp_plane *allocate(const struct hvd__mpi_plane_config *c)
{
    struct mp_plane *p = hb_calloc(1, sizeof(*p));
    size_t n = (size_t)c->n;

    if (!p)
        return NULL;
    p->plane.ops = &ops;
    p->comm = MPI_COMM_NULL;
    p->group = MPI_GROUP_NULL;
    p->n = c->n;
    p->me = c->me;
    p->ranks = hb_calloc(n, sizeof(*p->ranks));
    p->scratch = hb_malloc(MP_SCRATCH_BYTES);
    p->words = hb_calloc(2 * n + 4, sizeof(*p->words));
    p->ints = hb_calloc(4 * n, sizeof(*p->ints));
    p->offset = hb_calloc(n + 1, sizeof(*p->offset));
    if (!p->ranks || !p->scratch || !p->words || !p->ints || !p->offset ||
        mp_header_init(p) < 0 || mp_leave_init(p) < 0) {
        release(p);
        return NULL;
    }
    memcpy(p->ranks, c->ranks, n * sizeof(*p->ranks));
    return p;
}

static int make_group(struct mp_plane *p, const struct hvd__mpi_plane_config *c,
                      struct hb_error *err)
{
    MPI_Group all;
    int rc = MPI_Comm_group(mp_world.comm, &all);

    if (rc != MPI_SUCCESS)
        return mp_error_own(err, rc, "MPI_Comm_group");
    rc = MPI_Group_incl(all, c->n, c->ranks, &p->group);
    MPI_Group_free(&all);
    return rc == MPI_SUCCESS ? 0 : mp_error_own(err, rc, "MPI_Group_incl");
}

/* Waits until this rank is in no blocking collective (the caller holds
 * the lock, which is released in between).  From when the new plane is
 * counted, this rank begins no blocking operation.  One that it began
 * before either ends, or some member already counts the plane and has
 * not begun it, so it will not block either.  A member without memory
 * contributes 0, and all fail. */
static int settle(const struct hvd__mpi_plane_config *c, int has_memory,
                  struct hb_error *err)
{
    uint64_t least;
    int rc, busy = 1;

    least = has_memory ? 1 + (mp_world.all ? mp_world.all->seq : 0) : 0;
    rc = mp_least(c, &least, err);
    if (rc == 0 && least == 0)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for a plane on %s rank",
                          has_memory ? "another" : "this");
    while (rc == 0 && busy) {
        busy = mp_world.all && mp_world.all->solo_seq &&
               mp_world.all->solo_seq < least;
        if (!busy)
            break;
        mp_unlock();
        sched_yield();
        mp_lock();
    }
    return rc;
}

/* Copies the world's communicator with a nonblocking call: a rank that fails
 * does not leave the others stuck. */
static int copy_world(struct mp_plane *p, const struct hvd__mpi_plane_config *c,
                      struct hb_error *err)
{
    const struct mp_await a = {"MPI_Comm_idup", -1, c->deadline_ns};
    MPI_Request req;
    int rc = MPI_Comm_idup(mp_world.comm, &p->comm, &req);

    if (rc != MPI_SUCCESS)
        return mp_error(err, -1, rc, "MPI_Comm_idup");
    return mp_await(&a, &req, 1, err);
}

/* Makes the communicator.  MPI has this call only in blocking form: a rank that
 * fails in it leaves the others stuck until its process ends. */
static int create_comm(struct mp_plane *p,
                       const struct hvd__mpi_plane_config *c,
                       struct hb_error *err)
{
    int tag = MP_TAG_MAKE + (int)(c->tag % MP_TAGS);
    int rc = MPI_Comm_create_group(mp_world.comm, p->group, tag, &p->comm);

    return rc == MPI_SUCCESS ? 0
                             : mp_error(err, -1, rc, "MPI_Comm_create_group");
}

static int connect_members(struct mp_plane *p,
                           const struct hvd__mpi_plane_config *c,
                           struct hb_error *err)
{
    int rc = c->n == mp_world.view.size ? copy_world(p, c, err)
                                        : create_comm(p, c, err);

    if (rc < 0)
        return rc;
    rc = MPI_Comm_set_errhandler(p->comm, MPI_ERRORS_RETURN);
    return rc == MPI_SUCCESS ? 0
                             : mp_error_own(err, rc, "MPI_Comm_set_errhandler");
}

static void keep(struct mp_plane *p, int freed)
{
    if (!p)
        return;
    p->freed = freed;
    p->next = planes;
    planes = p;
}

struct hvd__plane *mp_plane_new(const struct hvd__mpi_plane_config *c,
                                struct hb_error *err)
{
    struct mp_plane *p;
    int rc;

    if (c->n == 1)
        return hvd__self_plane();
    p = allocate(c);
    mp_lock();
    if (mp_world.broken.status) {
        mp_unlock();
        if (p)
            release(p);
        *err = mp_world.broken;
        return NULL;
    }
    mp_world.planes++;
    if (p && make_group(p, c, err) < 0)
        rc = err->status;
    else
        rc = settle(c, p != NULL, err);
    mp_reap(MP_REAP_FREED);
    if (rc == 0)
        rc = connect_members(p, c, err);
    if (p && p->group != MPI_GROUP_NULL)
        MPI_Group_free(&p->group);
    if (rc == 0)
        rc = mp_header_open(p, err);
    if (rc == 0)
        rc = mp_leave_open(p, err);
    if (rc == 0) {
        mp_wait_init(p);
        mp_wait_reset(p);
        if (c->n == mp_world.view.size && !mp_world.all)
            mp_world.all = p;
    } else {
        mp_world.planes--;
    }
    mp_over(rc, err);
    if (rc == 0 || mp_world.failed) /* MPI may still use its memory */
        keep(p, rc < 0);
    else if (p)
        release(p);
    mp_unlock();
    return rc == 0 ? &p->plane : NULL;
}
