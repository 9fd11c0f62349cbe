/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the tables of all ranks and agrees on them; see controller_impl.h. */
#include "runtime/core/sched/controller_impl.h"

#include "lib/base/alloc.h"
#include "runtime/core/sched/engine.h"
#include "runtime/core/sched/run.h"

#include <string.h>

/* Signatures of the negotiation's operations. */
static const uint64_t sizes_signature = 0x7ab1e0517e5ull;
static const uint64_t tables_signature = 0x7ab1e07ab1e5ull;

void hvd__controller_gather(struct hvd__controller *c, const void *send,
                            size_t len, uint64_t signature)
{
    struct hvd__op *op = &c->carrier;

    memset(op, 0, sizeof(*op));
    op->kind = HVD__ALLGATHER;
    op->dtype = op->part_dtype = HVD_UINT8;
    op->elem_bytes = 1;
    op->prescale = op->postscale = 1.0;
    op->name = "";
    op->sendbuf = send;
    op->count = len;
    op->flags = HVD__OP_WORDS;
    op->err = &c->err;
    hb_error_clear(&c->err);
    hvd__run_sign(c, op, signature);
}

int hvd__controller_begin_sizes(struct hvd__controller *c)
{
    int rc;

    pthread_mutex_lock(&c->engine->lock);
    c->parked_issued = atomic_load(&c->issued);
    rc = hvd__table_write(&c->table, c->engine->head, c->plan.unnamed_done,
                          c->records_max);
    pthread_mutex_unlock(&c->engine->lock);
    if (rc == -HVD_EINVAL)
        return hb_error_set(&c->err, HVD_EINVAL,
                            "too many operations, or groups with too many "
                            "members, wait to be agreed on; use smaller "
                            "groups");
    if (rc < 0)
        return hb_error_set(&c->err, HVD_ENOMEM,
                            "no memory to agree with other ranks");
    c->table_len = hb_buf_len(&c->table);
    hvd__controller_gather(c, &c->table_len, sizeof(c->table_len),
                           sizes_signature);
    c->carrier.recvbuf = c->lens;
    c->carrier.recvcap = (size_t)c->n * sizeof(*c->lens);
    rc = hvd__run_start(c, &c->carrier, NULL, 0);
    c->state = HVD__STATE_SIZES;
    hvd__stats_count(&c->stats.negotiations, 1);
    return rc;
}

int hvd__controller_begin_tables(struct hvd__controller *c)
{
    size_t sum;
    int rc = hvd__tables_sum(c->lens, c->n, c->ranks, &sum, &c->err);

    if (rc < 0)
        return rc;
    if (sum > c->bytes_cap) {
        hb_free(c->bytes);
        c->bytes = hb_malloc(sum);
        c->bytes_cap = c->bytes ? sum : 0;
    }
    if (!c->bytes)
        return hb_error_set(&c->err, HVD_ENOMEM,
                            "no memory to agree with other ranks");
    hvd__controller_gather(c, hb_buf_data(&c->table), hb_buf_len(&c->table),
                           tables_signature);
    c->carrier.recvbuf = c->bytes;
    c->carrier.recvcap = sum;
    c->carrier.recvcounts = c->got;
    rc = hvd__run_start(c, &c->carrier, NULL, 0);
    c->state = HVD__STATE_TABLES;
    return rc;
}

static struct hvd__tables tables(const struct hvd__controller *c)
{
    return (struct hvd__tables){c->bytes,       c->lens,  c->n,
                                c->records_max, c->ranks, c->host_of,
                                c->host_arg};
}

int hvd__controller_find(const struct hvd__controller *c, unsigned char *has,
                         struct hvd__descriptor *other)
{
    const struct hvd__tables t = tables(c);

    return hvd__tables_find(&t, c->me, has, other);
}

int hvd__controller_conclude(struct hvd__controller *c)
{
    const struct hvd__tables t = tables(c);
    int rc;

    for (int r = 0; r < c->n; r++)
        if (c->got[r] != c->lens[r])
            return hb_error_set(&c->err, HVD_EPROTO,
                                "rank %d announced a table of %llu bytes and "
                                "sent %zu",
                                c->ranks[r], (unsigned long long)c->lens[r],
                                c->got[r]);
    hvd__agreement_fini(&c->agreed);
    c->agreed_at = 0;
    rc = hvd__agree(&t, &c->agreed, &c->err);
    if (rc < 0)
        return rc;
    for (int r = 0; r < c->n; r++)
        c->joined_before[r] = c->agreed.is_joined[r];
    c->state = HVD__STATE_IDLE;
    /* When all have joined, they all propose the join next. */
    if (c->agreed.count || c->agreed.joined == c->n)
        return 0;
    if (c->agreed.is_cut) { /* they may agree on a request that was cut off */
        c->records_max *= 2;
        return hvd__controller_begin_sizes(c);
    }
    atomic_store(&c->parked, 1);
    return 0;
}
