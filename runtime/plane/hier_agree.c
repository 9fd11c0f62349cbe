/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of all hosts agree on an operation, and small operations,
 * whose data travels with that; see hier.h.
 *
 * If they do not agree, the lowest rank that differs from rank 0 is named:
 * each leader tells what its lowest rank was called with, and the lowest
 * of its ranks that differs from that one.  Every leader draws the same
 * conclusion and makes the same line of it.
 */
#include <endian.h>
#include <string.h>

#include "runtime/plane/hier_impl.h"

#include "lib/base/buf.h"

/* ---- Local ----------------------------------------------------------- */

static unsigned char *own_data(const struct hvd__hier *h)
{
    return hier_block(h, h->host) + HIER_HEAD_BYTES;
}

static int root_host(const struct hvd__hier *h, const struct hvd__op *op)
{
    return (int)h->map->host_of[op->root];
}

/* Bytes that a host has to say beyond the head, when all agree. */
static size_t data_bytes(const struct hvd__hier *h, const struct hvd__op *op,
                         int host)
{
    if (op->kind == HVD__ALLGATHER)
        return (size_t)hvd__map_local_size(h->map, host) * sizeof(uint64_t);
    if (op->kind == HVD__BARRIER || !hier_small(h, op) ||
        (op->kind == HVD__BROADCAST && root_host(h, op) != host))
        return 0;
    return hier_bytes(op);
}

int hier_local_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *sub;
    int rc;

    if (op->kind == HVD__ALLGATHER) {
        sub = hier_sub(h, HVD__ALLGATHER);
        h->own_bytes = htobe64(hier_bytes(op));
        sub->sendbuf = &h->own_bytes;
        sub->count = sizeof(h->own_bytes);
        sub->recvcap = (size_t)h->local_size * sizeof(h->own_bytes);
    } else if (op->kind != HVD__BARRIER && hier_small(h, op)) {
        sub = hier_sub(h, op->kind);
        sub->root = op->root;
        sub->sendbuf = op->sendbuf;
        sub->count = op->count;
        sub->elem_bytes = op->elem_bytes;
        sub->reduce = op->reduce;
        sub->args = op->args;
        sub->args.post = 1.0;
        sub->args.divisor = 1;
    } else {
        sub = hier_sub(h, HVD__BARRIER);
    }
    sub->recvbuf = own_data(h);
    rc = hvd__shm_start_as(h->shm, sub, op);
    return rc < 0 ? rc : 1;
}

int hier_local_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    h->differs = rc < 0;
    h->agreed = 1;
    h->signature = op->signature;
    hb_error_clear(&h->sub_err);
    return 0;
}

/* ---- Between leaders ------------------------------------------------- */

static int exchange(struct hvd__hier *h, size_t len)
{
    for (int i = 0; i < h->map->hosts; i++)
        h->blocks[i] = (struct hvd__tcp_block){hier_block(h, i), h->stride};
    hvd__tcp_exchange(h->tcp, hier_block(h, h->host), len, h->blocks);
    h->blocks[h->host].len = len;
    return 1;
}

static void put_u64(unsigned char *at, uint64_t v)
{
    v = htobe64(v);
    memcpy(at, &v, sizeof(v));
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return be64toh(v);
}

int hier_tell_begin(struct hvd__hier *h, struct hvd__op *op)
{
    unsigned char *block = hier_block(h, h->host);

    if (!hier_leads(h))
        return 0;
    put_u64(block, h->signature);
    put_u64(block + 8, (uint64_t)h->differs);
    return exchange(h, HIER_HEAD_BYTES +
                           (h->differs ? 0 : data_bytes(h, op, h->host)));
}

static int out_of_step(struct hvd__hier *h, int host)
{
    return hb_error_set(&h->sub_err, HVD_EPROTO,
                        "rank %u on host %s: its message is not of this "
                        "operation",
                        hvd__map_rank(h->map, host, 0), h->map->names[host]);
}

/* The outcome of a small operation, or the counts of an allgather. */
static void conclude(struct hvd__hier *h, struct hvd__op *op)
{
    unsigned char *out = h->verdict->payload;
    struct hvd__reduce_args args = op->args;

    h->verdict->status = 0;
    for (int i = 0; i < h->map->hosts; i++)
        h->srcs[i] = hier_block(h, i) + HIER_HEAD_BYTES;
    if (op->kind == HVD__ALLREDUCE && op->count && hier_small(h, op)) {
        args.pre = 1.0;
        op->reduce(out, h->srcs, h->map->hosts, op->count, &args);
    } else if (op->kind == HVD__BROADCAST && hier_small(h, op)) {
        memcpy(out, h->srcs[root_host(h, op)], hier_bytes(op));
    } else if (op->kind == HVD__ALLGATHER) {
        for (int i = 0; i < h->map->hosts; i++) {
            memcpy(out, h->srcs[i], data_bytes(h, op, i));
            out += data_bytes(h, op, i);
        }
    }
}

int hier_tell_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    (void)rc;
    for (int i = 0; i < h->map->hosts; i++) {
        const unsigned char *block = hier_block(h, i);

        if (h->blocks[i].len < HIER_HEAD_BYTES)
            return out_of_step(h, i);
        if (get_u64(block) != h->signature || get_u64(block + 8))
            h->agreed = 0;
    }
    for (int i = 0; i < h->map->hosts && h->agreed; i++)
        if (h->blocks[i].len != HIER_HEAD_BYTES + data_bytes(h, op, i))
            return out_of_step(h, i);
    if (h->agreed)
        conclude(h, op);
    return 0;
}

/* ---- Disagreement ---------------------------------------------------- */

/* What a rank was called with. */
struct testimony {
    uint32_t present, rank;
    struct hvd__descriptor d;
};
enum {
    TESTIMONY_BYTES = 6 * 4 + 4 * 8 + HVD__NAME_BYTES,
    EXPLAIN_BYTES = 2 * TESTIMONY_BYTES,
};
_Static_assert(EXPLAIN_BYTES <= 4 << 10, "it fits in a block");

static unsigned char *put_u32(unsigned char *at, uint32_t v)
{
    v = htobe32(v);
    memcpy(at, &v, sizeof(v));
    return at + sizeof(v);
}

static uint64_t double_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static double double_from(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static unsigned char *put_testimony(unsigned char *at, uint32_t present,
                                    uint32_t rank,
                                    const struct hvd__descriptor *d)
{
    at = put_u32(at, present);
    at = put_u32(at, rank);
    at = put_u32(at, d->kind);
    at = put_u32(at, d->dtype);
    at = put_u32(at, d->op);
    at = put_u32(at, (uint32_t)d->root);
    put_u64(at, d->count);
    put_u64(at + 8, double_bits(d->prescale));
    put_u64(at + 16, double_bits(d->postscale));
    put_u64(at + 24, d->name_hash);
    memcpy(at + 32, d->name, HVD__NAME_BYTES);
    return at + 32 + HVD__NAME_BYTES;
}

static void get_testimony(struct hb_reader *r, struct testimony *t)
{
    t->present = hb_read_u32(r);
    t->rank = hb_read_u32(r);
    t->d.kind = hb_read_u32(r);
    t->d.dtype = hb_read_u32(r);
    t->d.op = hb_read_u32(r);
    t->d.root = (int32_t)hb_read_u32(r);
    t->d.count = hb_read_u64(r);
    t->d.prescale = double_from(hb_read_u64(r));
    t->d.postscale = double_from(hb_read_u64(r));
    t->d.name_hash = hb_read_u64(r);
    memcpy(t->d.name, hb_read_bytes(r, HVD__NAME_BYTES), HVD__NAME_BYTES);
    t->d.name[HVD__NAME_BYTES - 1] = '\0';
}

int hier_explain_begin(struct hvd__hier *h, struct hvd__op *op)
{
    uint64_t lowest, other = 0;
    const struct hvd__descriptor *d = hvd__shm_descriptor(h->shm, 0, &lowest);
    unsigned char *at = hier_block(h, h->host);
    int odd = 1;

    (void)op;
    if (!hier_leads(h) || h->agreed)
        return 0;
    at = put_testimony(at, 1, hvd__map_rank(h->map, h->host, 0), d);
    for (; odd < h->local_size; odd++) {
        d = hvd__shm_descriptor(h->shm, odd, &other);
        if (other != lowest)
            break;
    }
    odd = odd < h->local_size ? odd : 0;
    put_testimony(at, odd != 0, hvd__map_rank(h->map, h->host, odd), d);
    return exchange(h, EXPLAIN_BYTES);
}

static void tell_verdict(struct hvd__hier *h, const struct hb_error *err)
{
    h->verdict->status = err->status;
    memcpy(h->verdict->payload, err->text, sizeof(err->text));
}

static struct hvd__party party(const struct hvd__hier *h,
                               const struct testimony *t)
{
    return (struct hvd__party){&t->d, (int)t->rank,
                               hvd__map_host_name(h->map, t->rank)};
}

/* Whether t differs from what rank 0 was called with, in a line. */
static int differs(const struct hvd__hier *h, const struct testimony *first,
                   const struct testimony *t, struct hb_error *err)
{
    const struct hvd__party a = party(h, first), b = party(h, t);
    struct hb_error e = HB_ERROR_INIT;

    if (!t->present || !hvd__descriptor_differ(&a, &b, &e))
        return 0;
    *err = e;
    return 1;
}

int hier_explain_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    struct hb_error err = HB_ERROR_INIT;
    struct testimony first, t[2];
    uint32_t named = UINT32_MAX;
    struct hb_reader r;

    (void)op;
    (void)rc;
    for (int i = 0; i < h->map->hosts; i++)
        if (h->blocks[i].len != EXPLAIN_BYTES)
            return out_of_step(h, i);
    hb_reader_init(&r, hier_block(h, (int)h->map->host_of[0]), EXPLAIN_BYTES);
    get_testimony(&r, &first);
    for (int i = 0; i < h->map->hosts; i++) {
        hb_reader_init(&r, hier_block(h, i), EXPLAIN_BYTES);
        get_testimony(&r, &t[0]);
        get_testimony(&r, &t[1]);
        for (int k = 0; k < 2; k++)
            if (t[k].rank < named && differs(h, &first, &t[k], &err))
                named = t[k].rank;
    }
    if (!err.status)
        hb_error_set(&err, HVD_EPROTO,
                     "headers differ and their descriptors do not");
    tell_verdict(h, &err);
    return 0;
}

/* ---- To the local ranks ---------------------------------------------- */

static size_t verdict_bytes(const struct hvd__hier *h, const struct hvd__op *op)
{
    if (h->verdict->status)
        return sizeof(*h->verdict) + HB_ERROR_TEXT_MAX;
    if (op->kind == HVD__ALLGATHER)
        return sizeof(*h->verdict) + (size_t)h->map->size * sizeof(uint64_t);
    if (op->kind == HVD__BARRIER || !hier_small(h, op))
        return sizeof(*h->verdict);
    return sizeof(*h->verdict) + hier_bytes(op);
}

int hier_verdict_begin(struct hvd__hier *h, struct hvd__op *op)
{
    struct hvd__op *sub = hier_sub(h, HVD__BROADCAST);

    sub->root = (int)hvd__map_rank(h->map, h->host, 0);
    sub->sendbuf = h->verdict;
    sub->recvbuf = h->verdict;
    sub->count = hier_leads(h) ? verdict_bytes(h, op) : 0;
    return hier_start_sub(h, HIER_VERDICT);
}

int hier_verdict_end(struct hvd__hier *h, struct hvd__op *op, int rc)
{
    const struct hier_verdict *v = h->verdict;

    (void)rc;
    if (v->status)
        return hb_error_set(&h->sub_err, (enum hvd_status) - v->status, "%s",
                            (const char *)v->payload);
    if (op->kind == HVD__ALLGATHER)
        hier_gather_counts(h, op);
    else if (op->kind != HVD__BARRIER && op->count && hier_small(h, op))
        memcpy(op->recvbuf, v->payload, hier_bytes(op));
    return 0;
}
