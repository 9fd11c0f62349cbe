/* SPDX-License-Identifier: Apache-2.0 */
/* What a joined rank contributes to the others' operations; see join.h. */
#include "runtime/core/sched/join.h"

#include "lib/base/alloc.h"
#include "runtime/plane/neutral.h"

#include <string.h>
#include <unistd.h>

enum { ALIGN_BYTES = 16 };

static int no_memory(struct hb_error *err, uint64_t bytes)
{
    return hb_error_set(err, HVD_ENOMEM,
                        "no memory for the %llu bytes that a joined rank "
                        "contributes",
                        (unsigned long long)bytes);
}

static int nonsense(struct hb_error *err)
{
    return hb_error_set(err, HVD_EPROTO,
                        "a rank waits for an operation that makes no sense");
}

/* Returns the size of the host's memory.  Counts come from other ranks, and
 * malloc would promise more. */
static uint64_t most_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes
                                  : SIZE_MAX / 4;
}

/* Makes s->memory hold at least that many bytes. */
static int make_room(struct hvd__stand_in *s, uint64_t bytes,
                     struct hb_error *err)
{
    if (bytes <= s->memory_bytes)
        return 0;
    if (bytes > most_bytes())
        return no_memory(err, bytes);
    hb_free(s->memory);
    s->memory_bytes = 0;
    s->memory = bytes < SIZE_MAX ? hb_malloc((size_t)bytes) : NULL;
    if (!s->memory)
        return no_memory(err, bytes);
    s->memory_bytes = (size_t)bytes;
    return 0;
}

static void make_op(struct hvd__stand_in *s, const struct hvd__record *rec,
                    int n)
{
    const struct hvd__descriptor *d = &rec->d;
    struct hvd__op *op = &s->op;

    memset(op, 0, sizeof(*op));
    op->kind = (enum hvd__kind)d->kind;
    op->dtype = op->part_dtype = (enum hvd_dtype)d->wire;
    op->op = (enum hvd_op)d->op;
    op->flags = d->flags;
    op->root = d->root;
    op->prescale = d->prescale;
    op->postscale = d->postscale;
    op->name = "";
    op->count = (size_t)d->count;
    op->row_elems = (size_t)d->row_elems;
    op->elem_bytes = hvd_dtype_size(op->dtype);
    op->args.pre = d->wire == d->dtype ? d->prescale : 1.0;
    op->args.post = d->postscale;
    op->args.divisor = op->op == HVD_AVERAGE ? n : 1;
    s->members = NULL;
    s->member_count = 0;
    s->signature = rec->signature;
}

/* Makes op's buffers: inputs at the beginning of the memory, results of a
 * reducescatter in its second half, so that they do not overwrite the inputs of
 * other members of the group, which share the memory. */
static int make_buffers(struct hvd__stand_in *s, struct hvd__op *op, int n,
                        struct hb_error *err)
{
    uint64_t bytes;
    int rc;

    if (__builtin_mul_overflow((uint64_t)op->count, (uint64_t)op->elem_bytes,
                               &bytes) ||
        bytes > SIZE_MAX / 4)
        return nonsense(err);
    rc = make_room(
        s, op->kind == HVD__REDUCESCATTER ? 2 * (bytes + ALIGN_BYTES) : bytes,
        err);
    if (rc < 0)
        return rc;
    op->sendbuf = op->recvbuf = s->memory;
    if (op->kind == HVD__REDUCESCATTER) {
        if (op->row_elems == 0 || op->count % op->row_elems)
            return nonsense(err);
        op->recvbuf = (unsigned char *)s->memory +
                      s->memory_bytes / 2 / ALIGN_BYTES * ALIGN_BYTES;
    }
    if (op->kind == HVD__BROADCAST)
        return op->root < 0 || op->root >= n ? nonsense(err) : 0;
    op->reduce = hvd__reduce_get(op->dtype, op->op);
    if (op->op == HVD_ADASUM && op->kind != HVD__ALLREDUCE)
        return nonsense(err);
    if (op->op != HVD_ADASUM && !op->reduce && !(op->flags & HVD__OP_DEVICE))
        return nonsense(err);
    hvd__neutral_fill(s->memory, op->count, op->dtype, op->op, op->args.pre);
    return 0;
}

/* Makes op send nothing, and have no room to receive. */
static int make_nothing(struct hvd__stand_in *s, struct hvd__op *op, int n,
                        struct hb_error *err)
{
    op->count = 0;
    if (op->kind != HVD__ALLTOALL)
        return 0;
    hb_free(s->zeros);
    s->zeros = hb_calloc((size_t)n, sizeof(*s->zeros));
    op->sendcounts = s->zeros;
    return s->zeros ? 0 : no_memory(err, (uint64_t)n * sizeof(*s->zeros));
}

static int make_data(struct hvd__stand_in *s, struct hvd__op *op, int n,
                     struct hb_error *err)
{
    if (op->kind == HVD__ALLGATHER || op->kind == HVD__ALLTOALL)
        return make_nothing(s, op, n, err);
    return op->kind == HVD__BARRIER ? 0 : make_buffers(s, op, n, err);
}

/* Divides a group's allreduce into its parts, since Adasum looks at each. */
static int make_parts(struct hvd__stand_in *s, const struct hvd__record *rec,
                      struct hb_error *err)
{
    size_t n = (size_t)rec->d.parts, first = 0;
    struct hb_reader r;

    hb_free(s->parts);
    s->parts = hb_calloc(n, sizeof(*s->parts));
    if (!s->parts)
        return no_memory(err, n * sizeof(*s->parts));
    hb_reader_init(&r, rec->counts, 16 * n);
    for (size_t i = 0; i < n; i++) {
        struct hvd__part *p = &s->parts[i];
        unsigned char *at = s->memory; /* NULL when all parts are empty */

        if (first)
            at += first * s->op.elem_bytes;
        p->count = (size_t)hb_read_u64(&r);
        hb_read_u64(&r);
        if (p->count > s->op.count - first)
            return nonsense(err);
        p->sendbuf = p->recvbuf = at;
        p->first = first;
        first += p->count;
    }
    s->op.parts = s->parts;
    s->op.nparts = n;
    s->op.sendbuf = s->op.recvbuf = NULL;
    return first == s->op.count ? 0 : nonsense(err);
}

/* Makes op consist of one part.  An operation with a narrower wire dtype does
 * so on the other ranks, and planes want an operation to be direct on all ranks
 * or on none. */
static int make_part(struct hvd__stand_in *s, struct hb_error *err)
{
    hb_free(s->parts);
    s->parts = hb_calloc(1, sizeof(*s->parts));
    if (!s->parts)
        return no_memory(err, sizeof(*s->parts));
    s->parts[0] =
        (struct hvd__part){s->memory, s->memory, 0, s->op.count, NULL};
    s->op.parts = s->parts;
    s->op.nparts = 1;
    s->op.sendbuf = s->op.recvbuf = NULL;
    return 0;
}

/* Creates in s one stand-in operation for each member of a group.  The members
 * run one after the other and share one buffer, which the first pass makes
 * large enough for the largest member. */
static int make_members(struct hvd__stand_in *s, const struct hvd__record *rec,
                        int n, struct hb_error *err)
{
    size_t count = (size_t)rec->d.parts;
    int rc = 0;

    hb_free(s->members);
    s->members = hb_calloc(count, sizeof(*s->members));
    if (!s->members)
        return no_memory(err, count * sizeof(*s->members));
    s->member_count = count;
    for (int pass = 0; pass < 2; pass++) {
        struct hb_reader r;

        hb_reader_init(&r, rec->counts, 16 * count);
        for (size_t i = 0; i < count && rc == 0; i++) {
            struct hvd__op *m = &s->members[i];

            *m = s->op;
            m->count = (size_t)hb_read_u64(&r);
            m->row_elems = (size_t)hb_read_u64(&r);
            rc = make_data(s, m, n, err);
        }
    }
    return rc;
}

int hvd__stand_in_make(struct hvd__stand_in **out,
                       const struct hvd__record *rec, int n,
                       struct hb_error *err)
{
    struct hvd__stand_in *s = *out;
    int rc;

    if (!s)
        s = *out = hb_calloc(1, sizeof(*s));
    if (!s)
        return no_memory(err, sizeof(*s));
    hb_free(s->members);
    make_op(s, rec, n);
    if (rec->d.parts && s->op.kind != HVD__ALLREDUCE)
        return make_members(s, rec, n, err);
    rc = make_data(s, &s->op, n, err);
    if (rc == 0 && rec->d.parts)
        return make_parts(s, rec, err);
    return rc == 0 && rec->d.wire != rec->d.dtype ? make_part(s, err) : rc;
}

void hvd__stand_in_free(struct hvd__stand_in *s)
{
    if (!s)
        return;
    hb_free(s->members);
    hb_free(s->parts);
    hb_free(s->zeros);
    hb_free(s->memory);
    hb_free(s);
}
