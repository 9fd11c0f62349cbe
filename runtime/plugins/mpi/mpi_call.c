/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One MPI collective at a time, blocking or nonblocking; see mpi_impl.h.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

enum { LOOKS = 64 };

#define GRACE_NS UINT64_C(500000000)

/* Sets err for a failed MPI call: prefers the reason that a failed peer has
 * given. */
static int failed(struct mp_plane *p, struct hb_error *err, int rc)
{
    int peers = mp_find_deserter(p, err);

    mp_world.failed = 1;
    if (peers < 0)
        return peers;
    return p->run.flying ? mp_error_test(err, -1, rc, "MPI_Test", p->run.call)
                         : mp_error(err, -1, rc, p->run.call);
}

/* Returns negative with err set if a peer has left, for GRACE_NS, that the
 * collective needs; looks only every LOOKS calls.  A collective that can
 * complete without the peer should: others may need this rank's part. */
static int is_deserted(struct mp_plane *p, struct hb_error *err)
{
    struct mp_run *run = &p->run;
    struct hb_error why = HB_ERROR_INIT;
    int rc;

    if (++run->looks % LOOKS)
        return 0;
    rc = mp_find_deserter(p, &why);
    if (rc == 0)
        return 0;
    if (!run->deserted_ns)
        run->deserted_ns = hb_now_ns();
    if (hb_now_ns() - run->deserted_ns < GRACE_NS)
        return 0;
    mp_world.failed = 1; /* the request stays in flight */
    if (err)
        *err = why;
    return rc;
}

int mp_collective_done(struct mp_plane *p, struct hvd__op *op)
{
    int rc, flag = 0;

    if (!p->run.flying)
        return 1;
    rc = MPI_Test(&p->run.req, &flag, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS)
        return failed(p, op->err, rc);
    p->run.flying = !flag;
    return flag ? flag : is_deserted(p, op->err);
}

size_t mp_max_elems(void)
{
    return (size_t)mp_world.chunk_elems;
}

static int check_begin(struct mp_plane *p, struct hb_error *err, int rc,
                       const char *call)
{
    p->run.call = call;
    if (rc != MPI_SUCCESS)
        return failed(p, err, rc);
    p->run.flying = !p->solo;
    return 0;
}

/* Calls the collective in its blocking form if p->solo, else in its
 * nonblocking form, with all arguments up to the communicator. */
#define BEGIN(p, err, blocking, nonblocking, ...)                         \
    check_begin(p, err,                                                   \
                (p)->solo                                                 \
                    ? blocking(__VA_ARGS__, (p)->comm)                    \
                    : nonblocking(__VA_ARGS__, (p)->comm, &(p)->run.req), \
                (p)->solo ? #blocking : #nonblocking)

int mp_allreduce(struct mp_plane *p, struct hb_error *err, void *buf,
                 const void *send, size_t count, MPI_Datatype type, MPI_Op op)
{
    const void *from = send == buf ? MPI_IN_PLACE : send;

    return BEGIN(p, err, MPI_Allreduce, MPI_Iallreduce, from, buf, (int)count,
                 type, op);
}

int mp_reduce_scatter(struct mp_plane *p, const struct hvd__op *op,
                      const void *send, void *recv, const int *counts)
{
    return BEGIN(p, op->err, MPI_Reduce_scatter, MPI_Ireduce_scatter, send,
                 recv, counts, mp_type(op->dtype), mp_op(op->dtype, op->op));
}

int mp_bcast(struct mp_plane *p, const struct hvd__op *op, void *buf,
             size_t count)
{
    return BEGIN(p, op->err, MPI_Bcast, MPI_Ibcast, buf, (int)count,
                 mp_plain_type(op->elem_bytes), op->root);
}

int mp_allgather(struct mp_plane *p, struct hb_error *err, void *buf,
                 size_t count, MPI_Datatype type)
{
    return BEGIN(p, err, MPI_Allgather, MPI_Iallgather, MPI_IN_PLACE, 0,
                 MPI_DATATYPE_NULL, buf, (int)count, type);
}

int mp_allgatherv(struct mp_plane *p, const struct hvd__op *op, void *buf,
                  const int *counts, const int *displs)
{
    return BEGIN(p, op->err, MPI_Allgatherv, MPI_Iallgatherv, MPI_IN_PLACE, 0,
                 MPI_DATATYPE_NULL, buf, counts, displs,
                 mp_plain_type(op->elem_bytes));
}

int mp_alltoall(struct mp_plane *p, struct hb_error *err, const uint64_t *send,
                uint64_t *recv)
{
    return BEGIN(p, err, MPI_Alltoall, MPI_Ialltoall, send, 1, MPI_UINT64_T,
                 recv, 1, MPI_UINT64_T);
}

int mp_alltoallv(struct mp_plane *p, const struct hvd__op *op,
                 const struct mp_splits *s)
{
    MPI_Datatype type = mp_plain_type(op->elem_bytes);

    return BEGIN(p, op->err, MPI_Alltoallv, MPI_Ialltoallv, s->send,
                 s->sendcounts, s->sdispls, type, s->recv, s->recvcounts,
                 s->rdispls, type);
}
