/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How NCCL carries out each operation.  Those that only move data move bytes,
 * so every dtype works.  From the agreement each rank knows how much every
 * rank has and has room for; nothing is sent to ranks without room.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include <string.h>

int nc_choose_collective(struct nc_plane *p, struct hb_error *err)
{
    static int (*const by_kind[])(struct nc_plane *, struct hb_error *) = {
        [HVD__ALLREDUCE] = nc_allreduce,
        [HVD__BROADCAST] = nc_broadcast,
        [HVD__ALLGATHER] = nc_allgather,
        [HVD__BARRIER] = NULL,
        [HVD__ALLTOALL] = nc_alltoall,
        [HVD__REDUCESCATTER] = nc_reducescatter,
    };
    struct nc_run *run = &p->run;
    struct hvd__op *op = run->op;

    run->collective = by_kind[op->kind];
    if (op->kind != HVD__ALLREDUCE && op->kind != HVD__REDUCESCATTER)
        return 0;
    if (nc_needs_staging(op)) {
        op->trace.algorithm = "nccl.staged";
        run->collective = NULL;
        return 0;
    }
    return nc_reduce_plan(p, err);
}

/* ---- Moves -----------------------------------------------------------------
 */

static unsigned char *at(void *buf, size_t elems, const struct hvd__op *op)
{
    return buf ? (unsigned char *)buf + elems * op->elem_bytes : NULL;
}

static const unsigned char *from(const struct hvd__op *op, size_t elems)
{
    return op->sendbuf
               ? (const unsigned char *)op->sendbuf + elems * op->elem_bytes
               : NULL;
}

static int copy(const struct nc_plane *p, void *dst, const void *src,
                size_t elems, struct hb_error *err)
{
    if (elems == 0 || dst == src)
        return 0;
    return HVD__CU(err, MemcpyAsync, (CUdeviceptr)dst, (CUdeviceptr)src,
                   elems * p->run.view.elem_bytes, p->on->cuda);
}

static void send(struct nc_plane *p, const void *buf, size_t elems, int to)
{
    NC_CALL(p, NC_ALL, Send, buf, elems * p->run.view.elem_bytes, ncclUint8, to,
            p->on->comm[NC_ALL], p->on->cuda);
}

static void receive(struct nc_plane *p, void *buf, size_t elems, int from_rank)
{
    NC_CALL(p, NC_ALL, Recv, buf, elems * p->run.view.elem_bytes, ncclUint8,
            from_rank, p->on->comm[NC_ALL], p->on->cuda);
}

static void broadcast(struct nc_plane *p, const void *src, void *dst,
                      size_t elems, int root)
{
    NC_CALL(p, NC_ALL, Broadcast, src, dst, elems * p->run.view.elem_bytes,
            ncclUint8, root, p->on->comm[NC_ALL], p->on->cuda);
}

int nc_broadcast(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    const struct hvd__op *op = &run->view;
    const void *src = p->me == op->root ? op->sendbuf : op->recvbuf;
    int rc;

    run->op->trace.algorithm = "nccl.broadcast";
    if (run->step++ > 0 || op->count == 0)
        return 1;
    rc = nc_lock(p, err);
    if (rc < 0)
        return rc;
    broadcast(p, src, op->recvbuf, op->count, op->root);
    nc_unlock();
    return 0;
}

/* ---- Allgather -------------------------------------------------------------
 */

/* Returns the elements that a rank has in an allgather; nc_plane.words also
 * holds those that it has room for. */
static size_t count_of(const struct nc_plane *p, int rank)
{
    return (size_t)p->words[2 * rank];
}

static size_t room_of(const struct nc_plane *p, int rank)
{
    return (size_t)p->words[2 * rank + 1];
}

/* Sets run.deliver, and run.alone if recvbuf is too small. */
static void refuse(struct nc_plane *p)
{
    struct nc_run *run = &p->run;
    struct hvd__op op = *run->op;

    if (op.alloc.fn) /* nc_ask_room decides, when nothing else can fail */
        return;
    run->deliver = hvd__op_room(&op, run->total * op.elem_bytes);
    op.err = &run->alone;
    hvd__op_gathered(&op, run->deliver, run->total);
}

/* Refuses memory of alloc that NCCL cannot write to. */
static int is_usable(const struct nc_plane *p, struct hb_error *err)
{
    const struct hvd__op *op = p->run.op;

    if (p->run.total == 0 || nc_is_own(op->recvbuf))
        return 1;
    hb_error_set(err, HVD_EINVAL,
                 "%s: options.alloc returned memory that is not on CUDA device "
                 "%d, where the operation takes place",
                 collective_name(op->kind), nc_world.device);
    return 0;
}

void nc_ask_room(struct nc_plane *p)
{
    struct nc_run *run = &p->run;
    struct hvd__op *op = run->op;
    struct hb_error *err = op->err;

    if (!op->alloc.fn)
        return;
    op->err = &run->alone;
    run->deliver = hvd__op_room(op, run->total * op->elem_bytes);
    if (hvd__op_gathered(op, run->deliver, run->total) == 1 &&
        !is_usable(p, op->err)) {
        op->alloc.status = -HVD_EINVAL;
        op->recvbuf = NULL;
        op->recvcap = 0;
    }
    op->err = err;
}

/* Receives in scratch memory: the others send to this rank, which has told them
 * that it has room. */
int nc_drain_refused(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;

    if (!run->op->alloc.status)
        return 0;
    run->view.recvbuf =
        nc_scratch_get(p, run->total * run->view.elem_bytes, err);
    run->deliver = 1;
    return run->view.recvbuf ? 0 : err->status;
}

int nc_plan_gather(struct nc_plane *p)
{
    const struct hvd__op *op = p->run.op;

    p->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        p->offset[r + 1] = p->offset[r];
        if (!hvd__op_add(&p->offset[r + 1], count_of(p, r), op->elem_bytes))
            return hvd__op_nonsense(op);
        if (op->recvcounts)
            op->recvcounts[r] = count_of(p, r);
    }
    p->run.total = p->offset[p->n];
    refuse(p);
    return 0;
}

/* Copies sendbuf aside if it overlaps recvbuf elsewhere than at its own place,
 * where others' parts would overwrite it. */
static int move_apart(struct nc_plane *p, struct hb_error *err)
{
    struct hvd__op *op = &p->run.view;
    uintptr_t send_at = (uintptr_t)op->sendbuf;
    uintptr_t recv_at = (uintptr_t)op->recvbuf;
    size_t own = op->count * op->elem_bytes;
    void *apart;
    int rc;

    if (!p->run.deliver || own == 0 ||
        send_at == recv_at + p->offset[p->me] * op->elem_bytes ||
        send_at >= recv_at + p->run.total * op->elem_bytes ||
        recv_at >= send_at + own)
        return 0;
    apart = nc_scratch_get(p, own, err);
    if (!apart)
        return err->status;
    rc = copy(p, apart, op->sendbuf, op->count, err);
    op->sendbuf = apart;
    return rc;
}

/* Sends to each rank that has room, and receives from each. */
static void gather_by_pairs(struct nc_plane *p)
{
    const struct hvd__op *op = &p->run.view;

    for (int r = 0; r < p->n; r++) {
        if (r == p->me)
            continue;
        if (op->count && room_of(p, r) >= p->run.total)
            send(p, op->sendbuf, op->count, r);
        if (p->run.deliver && count_of(p, r))
            receive(p, at(op->recvbuf, p->offset[r], op), count_of(p, r), r);
    }
}

static void gather_by_roots(struct nc_plane *p)
{
    const struct hvd__op *op = &p->run.view;

    for (int r = 0; r < p->n; r++) {
        void *dst = at(op->recvbuf, p->offset[r], op);

        if (count_of(p, r))
            broadcast(p, r == p->me ? op->sendbuf : dst, dst, count_of(p, r),
                      r);
    }
}

enum gather_how { ALL_EQUAL, ALL_HAVE_ROOM, SOME_HAVE_ROOM };

static enum gather_how gather_how(const struct nc_plane *p)
{
    enum gather_how how = ALL_EQUAL;

    for (int r = 0; r < p->n; r++) {
        if (room_of(p, r) < p->run.total)
            return SOME_HAVE_ROOM;
        if (count_of(p, r) != count_of(p, 0))
            how = ALL_HAVE_ROOM;
    }
    return how;
}

static void gather_equal(struct nc_plane *p)
{
    const struct hvd__op *op = &p->run.view;

    NC_CALL(p, NC_ALL, AllGather, op->sendbuf, op->recvbuf,
            op->count * op->elem_bytes, ncclUint8, p->on->comm[NC_ALL],
            p->on->cuda);
}

static void gather_ragged(struct nc_plane *p, enum gather_how how)
{
    NC_CALL(p, NC_ALL, GroupStart);
    if (how == ALL_HAVE_ROOM)
        gather_by_roots(p);
    else
        gather_by_pairs(p);
    NC_CALL(p, NC_ALL, GroupEnd);
}

int nc_allgather(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    struct hvd__op *op = &run->view;
    enum gather_how how = gather_how(p);
    int rc;

    run->op->trace.algorithm =
        how == ALL_EQUAL ? "nccl.allgather" : "nccl.allgather.ragged";
    if (run->step++ > 0 || run->total == 0)
        return 1;
    rc = move_apart(p, err);
    if (rc == 0 && how == SOME_HAVE_ROOM && run->deliver)
        rc = copy(p, at(op->recvbuf, p->offset[p->me], op), op->sendbuf,
                  op->count, err);
    if (rc == 0)
        rc = nc_lock(p, err);
    if (rc < 0)
        return rc;
    if (how == ALL_EQUAL)
        gather_equal(p);
    else
        gather_ragged(p, how);
    nc_unlock();
    return 0;
}

/* ---- Alltoall --------------------------------------------------------------
 */

/* Returns from nc_plane.words of an alltoall the elements that `rank` sends to
 * `to`; at to == n, its room. */
static size_t split_of(const struct nc_plane *p, int rank, int to)
{
    return (size_t)p->words[(size_t)rank * ((size_t)p->n + 1) + (size_t)to];
}

static size_t incoming(const struct nc_plane *p, int to)
{
    size_t sum = 0;

    for (int r = 0; r < p->n; r++)
        sum += split_of(p, r, to);
    return sum;
}

int nc_plan_alltoall(struct nc_plane *p)
{
    const struct hvd__op *op = p->run.op;

    p->offset[0] = 0;
    for (int r = 0; r < p->n; r++) {
        p->offset[r + 1] = p->offset[r];
        if (!hvd__op_add(&p->offset[r + 1], split_of(p, r, p->me),
                         op->elem_bytes))
            return hvd__op_nonsense(op);
        if (op->recvcounts)
            op->recvcounts[r] = split_of(p, r, p->me);
    }
    p->run.total = p->offset[p->n];
    refuse(p);
    return 0;
}

/* Exchanges splits with other ranks; this rank's own is copied elsewhere. */
static void exchange(struct nc_plane *p)
{
    const struct hvd__op *op = &p->run.view;
    size_t sent = 0;

    NC_CALL(p, NC_ALL, GroupStart);
    for (int r = 0; r < p->n; sent += split_of(p, p->me, r++)) {
        size_t out = split_of(p, p->me, r), in = split_of(p, r, p->me);

        if (r == p->me)
            continue;
        if (out && split_of(p, r, p->n) >= incoming(p, r))
            send(p, from(op, sent), out, r);
        if (in && p->run.deliver)
            receive(p, at(op->recvbuf, p->offset[r], op), in, r);
    }
    NC_CALL(p, NC_ALL, GroupEnd);
}

int nc_alltoall(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    const struct hvd__op *op = &run->view;
    size_t before = 0;
    int rc = 0;

    run->op->trace.algorithm = "nccl.alltoall";
    if (run->step++ > 0)
        return 1;
    for (int r = 0; r < p->me; r++)
        before += split_of(p, p->me, r);
    if (run->deliver)
        rc = copy(p, at(op->recvbuf, p->offset[p->me], op), from(op, before),
                  split_of(p, p->me, p->me), err);
    if (rc == 0)
        rc = nc_lock(p, err);
    if (rc < 0)
        return rc;
    exchange(p);
    nc_unlock();
    return 0;
}
