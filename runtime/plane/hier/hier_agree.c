/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of all hosts agree on an operation, and small operations,
 * whose data travels with that; see hier.h.
 *
 * Every leader gets all others' messages and draws the same conclusion: all
 * signatures are equal; or only the first signatures are, and then the
 * operation is cut to the fewest entries of any rank; or even those differ.
 */
#include "runtime/plane/hier/hier_impl.h"

#include "lib/base/sys/clock.h"

/* ---- Local --------------------------------------------------------------- */

static unsigned char *own_data(const struct hvd__hier *h)
{
    return hier_block(h, h->host) + HIER_HEAD_BYTES;
}

static int root_host(const struct hvd__hier *h, const struct hvd__op *op)
{
    return (int)h->map->host_of[op->root];
}

/* Returns the payload bytes after the head in the message of `host`, if all
 * agree.  Not for alltoall (hier_alltoall.c).  For an allgather, the counts
 * must already be in the host's block. */
static size_t data_bytes(const struct hvd__hier *h, const struct hvd__op *op,
                         int host)
{
    const unsigned char *data = hier_block(h, host) + HIER_HEAD_BYTES;
    size_t counts = hier_counts_bytes(h, host);

    if (op->kind == HVD__ALLGATHER)
        return counts + hier_riding_bytes(h, data);
    if (!hier_data_rides(h, op) ||
        (op->kind == HVD__BROADCAST && root_host(h, op) != host))
        return 0;
    return hier_bytes(op);
}

/* Returns the least payload of `host`: what is known before its counts are. */
static size_t least_bytes(const struct hvd__hier *h, const struct hvd__op *op,
                          int host)
{
    return op->kind == HVD__ALLGATHER ? hier_counts_bytes(h, host) : 0;
}

static void sub_gathering(struct hvd__hier *h, void *out, const void *own,
                          size_t bytes)
{
    struct hvd__op *local = hier_local_op(h, HVD__ALLGATHER);

    local->sendbuf = own;
    local->count = bytes;
    local->recvbuf = out;
    local->recvcap = (size_t)h->local_size * bytes;
}

static void sub_small_data(struct hvd__hier *h, const struct hvd__op *op)
{
    struct hvd__op *local;

    if (op->kind == HVD__BROADCAST) {
        local = hier_local_op(h, root_host(h, op) == h->host ? HVD__BROADCAST
                                                             : HVD__BARRIER);
        local->root = op->root;
        local->count = hier_bytes(op);
        local->sendbuf = op->sendbuf;
    } else {
        local = hier_local_reduction(h, HVD__ALLREDUCE, op);
        local->count = op->count;
        local->sendbuf = op->sendbuf;
        if (!hvd__op_direct(op)) {
            hvd__op_pack(op, h->work, 0, op->count);
            local->sendbuf = h->work;
        }
    }
    local->recvbuf = own_data(h);
}

static int is_timed(const struct hvd__op *op)
{
    return op->trace.agreed_ns == HVD__OP_TIMED;
}

int hier_local_begin(struct hvd__hier *h, struct hvd__op *op)
{
    int rc;

    if (op->kind == HVD__ALLGATHER) {
        hier_put_u64((unsigned char *)&h->own_bytes, hier_bytes(op));
        sub_gathering(h, own_data(h), &h->own_bytes, sizeof(h->own_bytes));
    } else if (op->kind == HVD__ALLTOALL) {
        hier_alltoall_wants(h, op);
        sub_gathering(h, h->wants, h->work,
                      (size_t)h->map->size * sizeof(uint64_t));
    } else if (hier_data_rides(h, op)) {
        sub_small_data(h, op);
    } else {
        hier_local_op(h, HVD__BARRIER);
    }
    if (is_timed(op))
        hvd__op_time(&h->local_op);
    rc = hier_alone(h) ? h->shm->ops->start(h->shm, &h->local_op)
                       : hvd__shm_start_as(h->shm, &h->local_op, op);
    return rc < 0 ? rc : 1;
}

static enum hier_outcome outcome_of(int rc)
{
    return rc == HVD__CUT ? HIER_CUT : rc < 0 ? HIER_DIFFERS : HIER_SAME;
}

/* Leaves the outcome of the local comparison in the verdict, for the leader. */
int hier_local_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    h->verdict->outcome = outcome_of(rc);
    h->verdict->entries = op->entries ? op->entries : 1;
    if (rc == HVD__CUT)
        h->verdict->entries = h->local_op.agreed_entries;
    h->verdict->late = is_timed(op) ? h->local_op.trace.late_rank : -1;
    return 0;
}

/* ---- Between leaders ----------------------------------------------------- */

static void put_head(const struct hvd__hier *h, const struct hvd__op *op,
                     unsigned char *at)
{
    uint64_t last = (uint64_t)h->verdict->entries << 32 | h->verdict->outcome;

    hier_put_u64(at, op->signature);
    hier_put_u64(at + 8, op->first_signature);
    hier_put_u64(at + 16, last);
    hier_put_u64(at + 24, (uint64_t)h->verdict->late + 1);
}

/* Returns how many of the message's `len` bytes are authenticated: all but
 * tensor data. */
static size_t words_bytes(const struct hvd__hier *h, const struct hvd__op *op,
                          size_t len)
{
    size_t words = HIER_HEAD_BYTES + least_bytes(h, op, h->host);

    return hier_is_words(op) || words > len ? len : words;
}

int hier_tell_begin(struct hvd__hier *h, struct hvd__op *op)
{
    unsigned char *block = hier_block(h, h->host);
    size_t len = HIER_HEAD_BYTES;

    if (!hier_leads(h))
        return 0;
    for (int i = 0; i < h->map->hosts; i++)
        h->blocks[i] = (struct hvd__tcp_block){hier_block(h, i), h->stride};
    put_head(h, op, block);
    if (h->verdict->outcome == HIER_SAME && op->kind == HVD__ALLTOALL) {
        hier_alltoall_tell(h, op);
        return 1;
    }
    if (h->verdict->outcome == HIER_SAME) {
        len += data_bytes(h, op, h->host);
        if (op->kind == HVD__ALLGATHER && op->count &&
            hier_rides(h, hier_bytes(op)))
            memcpy(own_data(h) + hier_counts_bytes(h, h->host), op->sendbuf,
                   hier_bytes(op));
    }
    hvd__tcp_exchange(h->tcp, block, len, words_bytes(h, op, len), h->blocks);
    h->blocks[h->host].len = len;
    return 1;
}

/* Merges another host's head into the verdict; 0 if the head makes no sense. */
static int weigh(struct hvd__hier *h, const struct hvd__op *op,
                 const unsigned char *head)
{
    struct hier_verdict *v = h->verdict;
    uint64_t last = hier_get_u64(head + 16);
    uint32_t entries = (uint32_t)(last >> 32);

    if (entries == 0 || (uint32_t)last > HIER_DIFFERS)
        return 0;
    if (entries < v->entries)
        v->entries = entries;
    if (hier_get_u64(head + 8) != op->first_signature ||
        (uint32_t)last == HIER_DIFFERS)
        v->outcome = HIER_DIFFERS;
    else if (v->outcome == HIER_SAME && (hier_get_u64(head) != op->signature ||
                                         (uint32_t)last != HIER_SAME))
        v->outcome = HIER_CUT;
    return 1;
}

/* Computes the verdict's payload: a small operation's result or an allgather's
 * counts. */
static void conclude(struct hvd__hier *h, struct hvd__op *op)
{
    unsigned char *out = h->verdict->payload;
    struct hvd__reduce_args args = op->args;

    for (int i = 0; i < h->map->hosts; i++)
        h->srcs[i] = hier_block(h, i) + HIER_HEAD_BYTES;
    if (op->kind == HVD__ALLGATHER) {
        for (int i = 0; i < h->map->hosts; i++) {
            memcpy(out, h->srcs[i], hier_counts_bytes(h, i));
            out += hier_counts_bytes(h, i);
        }
    } else if (op->count && hier_data_rides(h, op) && hier_reduces(op)) {
        args.pre = 1.0;
        args.stream = 0;
        op->reduce(out, h->srcs, h->map->hosts, op->count, &args);
    } else if (hier_data_rides(h, op)) {
        memcpy(out, h->srcs[root_host(h, op)], hier_bytes(op));
    }
}

/* Sets verdict->late if another host was last: to the rank that its message
 * names, or to its leader. */
static void find_late(struct hvd__hier *h)
{
    int host = hvd__tcp_late(h->tcp);
    uint64_t named;

    if (host < 0)
        return;
    named = hier_get_u64(hier_block(h, host) + 24);
    if (named > 0 && named <= (uint64_t)h->map->size)
        h->verdict->late = (int32_t)named - 1;
    else
        h->verdict->late = (int32_t)hvd__map_rank(h->map, host, 0);
}

int hier_tell_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    for (int i = 0; i < h->map->hosts; i++) {
        if (i == h->host)
            continue;
        if (h->blocks[i].len < HIER_HEAD_BYTES)
            return hier_out_of_step(h, i);
        if (!weigh(h, op, hier_block(h, i)))
            return hier_out_of_step(h, i);
    }
    find_late(h);
    if (h->verdict->outcome != HIER_SAME)
        return 0;
    if (op->kind == HVD__ALLTOALL)
        return hier_alltoall_heard(h, op);
    for (int i = 0; i < h->map->hosts; i++)
        if (h->blocks[i].len < HIER_HEAD_BYTES + least_bytes(h, op, i) ||
            h->blocks[i].len != HIER_HEAD_BYTES + data_bytes(h, op, i))
            return hier_out_of_step(h, i);
    conclude(h, op);
    return 0;
}

/* ---- To the local ranks -------------------------------------------------- */

static size_t verdict_bytes(const struct hvd__hier *h, const struct hvd__op *op)
{
    size_t size = (size_t)h->map->size, head = sizeof(*h->verdict);

    if (h->verdict->outcome != HIER_SAME)
        return head;
    if (op->kind == HVD__ALLGATHER)
        return head + size * sizeof(uint64_t);
    if (op->kind == HVD__ALLTOALL)
        return head + (1 + size * (size_t)h->local_size) * sizeof(uint64_t);
    return head + (hier_data_rides(h, op) ? hier_bytes(op) : 0);
}

int hier_verdict_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *local = hier_local_op(h, HVD__BROADCAST);

    local->root = (int)hvd__map_rank(h->map, h->host, 0);
    local->sendbuf = h->verdict;
    local->recvbuf = h->verdict;
    local->recvcap = h->verdict_bytes;
    local->count = hier_leads(h) ? verdict_bytes(h, op) : 0;
    return hier_start_local(h, HIER_VERDICT);
}

/* Copies the result of a small operation, which came with the verdict, to
 * recvbuf. */
static void deliver(struct hvd__hier *h, struct hvd__op *op)
{
    const unsigned char *data = h->verdict->payload;
    struct hvd__share s;

    if (!hier_data_rides(h, op))
        return;
    op->trace.algorithm = hier_algorithm(h, "tcp.exchange");
    if (op->kind == HVD__REDUCESCATTER) {
        s = hvd__op_share(op, h->rank, h->map->size);
        if (s.count)
            memcpy(op->recvbuf, data + s.first * op->elem_bytes,
                   s.count * op->elem_bytes);
    } else if (op->count) {
        hvd__op_unpack(op, data, 0, op->count, 0);
    }
}

int hier_verdict_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    const struct hier_verdict *v = h->verdict;

    rc = 0;
    if (v->outcome == HIER_DIFFERS)
        return -HVD_EMISMATCH;
    if (v->outcome == HIER_CUT) {
        op->agreed_entries = v->entries;
        return HVD__CUT;
    }
    if (is_timed(op)) {
        op->trace.agreed_ns = hb_now_ns();
        op->trace.late_rank = v->late == h->rank ? -1 : v->late;
    }
    op->trace.algorithm = hier_algorithm(h, "tcp");
    deliver(h, op);
    if (h->prepare)
        rc = h->prepare(h, op);
    if (rc < 0)
        h->step_err = *op->err;
    return rc;
}
