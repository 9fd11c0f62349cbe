/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures and descriptors of operations: see op.h.
 */
#include "runtime/plane/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SHOWN = 100 }; /* bytes, in a message */

static uint64_t double_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

uint64_t hvd__name_hash(const char *name)
{
    uint64_t h = 0;

    for (; *name; name++)
        h = hvd__mix(h, (unsigned char)*name);
    return h;
}

static uint64_t agreed_count(const struct hvd__op *op)
{
    return op->kind == HVD__ALLGATHER || op->kind == HVD__ALLTOALL ? 0
                                                                   : op->count;
}

static uint64_t parts_hash(const struct hvd__op *op)
{
    uint64_t h = op->nparts;

    if (!(op->flags & HVD__OP_GROUP))
        return 0;
    if (!op->parts)
        return hvd__mix(h, op->hashes.members);
    for (size_t i = 0; i < op->nparts; i++)
        h = hvd__mix(h, op->parts[i].count);
    return h;
}

uint64_t hvd__op_signature(const struct hvd__op *op)
{
    uint64_t h =
        hvd__mix(1, (uint64_t)op->kind | (uint64_t)op->part_dtype << 8 |
                        (uint64_t)op->dtype << 16 | (uint64_t)op->op << 24 |
                        (uint64_t)(uint32_t)op->root << 32);

    h = hvd__mix(h, agreed_count(op));
    h = hvd__mix(h, double_bits(op->prescale));
    h = hvd__mix(h, double_bits(op->postscale));
    h = hvd__mix(h, op->row_elems ^ (uint64_t)op->flags << 56);
    h = hvd__mix(h, parts_hash(op));
    return hvd__mix(h, op->hashes.name ^ op->hashes.site ^ op->hashes.shapes);
}

void hvd__op_describe(const struct hvd__op *op, struct hvd__descriptor *d)
{
    memset(d, 0, sizeof(*d));
    d->kind = op->kind;
    d->dtype = op->part_dtype;
    d->wire = op->dtype;
    d->op = op->op;
    d->flags = op->flags;
    d->root = op->root;
    d->count = agreed_count(op);
    d->row_elems = op->row_elems;
    d->parts = op->flags & HVD__OP_GROUP ? op->nparts : 0;
    d->parts_hash = parts_hash(op);
    d->prescale = op->prescale;
    d->postscale = op->postscale;
    d->name_hash = op->hashes.name;
    d->site = op->hashes.site;
    snprintf(d->name, sizeof(d->name), "%s", op->name);
}

int hvd__op_nonsense(const struct hvd__op *op)
{
    return hb_error_set(op->err, HVD_EPROTO,
                        "%s: what a rank says about its data makes no sense",
                        collective_name(op->kind));
}

/* Returns whether memory for `count` elements at p lies apart from sendbuf. */
static int is_apart(const struct hvd__op *op, const void *p, size_t count)
{
    uintptr_t r = (uintptr_t)p, s = (uintptr_t)op->sendbuf;

    return r + count * op->elem_bytes <= s ||
           s + op->count * op->elem_bytes <= r;
}

void hvd__op_ask(struct hvd__op *op, size_t count)
{
    struct hvd__op_alloc *a = &op->alloc;
    void *p = a->fn(a->arg, a->member, count, op->recvcounts);

    if (count == 0)
        return;
    if (!p)
        a->status = -HVD_ENOMEM;
    else if ((uintptr_t)p % op->elem_bytes || !is_apart(op, p, count))
        a->status = -HVD_EINVAL;
    if (a->status)
        return;
    op->recvbuf = p;
    op->recvcap = count;
}

static int refused(const struct hvd__op *op, size_t arrived)
{
    const char *kind = collective_name(op->kind);

    if (op->alloc.status == -HVD_ENOMEM)
        return hb_error_set(op->err, HVD_ENOMEM,
                            "%s: options.alloc returned no memory for the %zu "
                            "elements that arrived",
                            kind, arrived);
    return hb_error_set(op->err, HVD_EINVAL,
                        "%s: options.alloc returned memory that is not aligned "
                        "to its %zu-byte elements, or overlaps sendbuf",
                        kind, op->elem_bytes);
}

int hvd__op_gathered(const struct hvd__op *op, int delivered, size_t arrived)
{
    if (op->alloc.status)
        return refused(op, arrived);
    if (delivered || (!op->recvbuf && op->recvcap == 0))
        return 1;
    return hb_error_set(op->err, HVD_EINVAL,
                        "%s: recvbuf has room for %zu elements and %zu arrived",
                        collective_name(op->kind), op->recvcap, arrived);
}

/* A field that differs: its name and both values as text. */
struct field {
    const char *what;
    char a[HVD__NAME_BYTES + 8], b[HVD__NAME_BYTES + 8];
};

static void field_u64(struct field *f, const char *what, uint64_t a, uint64_t b)
{
    f->what = what;
    snprintf(f->a, sizeof(f->a), "%" PRIu64, a);
    snprintf(f->b, sizeof(f->b), "%" PRIu64, b);
}

static void field_double(struct field *f, const char *what, double a, double b)
{
    f->what = what;
    snprintf(f->a, sizeof(f->a), "%.17g", a);
    snprintf(f->b, sizeof(f->b), "%.17g", b);
}

static void field_text(struct field *f, const char *what, const char *a,
                       const char *b)
{
    f->what = what;
    snprintf(f->a, sizeof(f->a), "%s", a);
    snprintf(f->b, sizeof(f->b), "%s", b);
}

/* Quotes the name; cuts a long one, so that it fits into one message. */
static void name_text(char *out, size_t size, const char *name)
{
    size_t n = strnlen(name, HVD__NAME_BYTES - 1);
    const char *more = "";

    if (n > NAME_SHOWN) {
        more = "...";
        n = NAME_SHOWN;
    }
    snprintf(out, size, " \"%.*s%s\"", (int)n, name, more);
}

/* Returns the root as the caller gave it: a world rank. */
static uint64_t root_of(const struct hvd__party *p)
{
    int root = p->d->root;

    return (uint64_t)(root >= 0 && root < p->n ? p->ranks[root] : root);
}

static const char *memory_of(const struct hvd__descriptor *d)
{
    return d->flags & HVD__OP_DEVICE ? "device memory" : "host memory";
}

static const char *site_of(const struct hvd__descriptor *d)
{
    return d->site ? d->site_text : "none (HVD_CHECK is not set there)";
}

static const char *made_for(const struct hvd__descriptor *d)
{
    return d->flags & HVD__OP_WORDS ? "process sets" : "the program";
}

static const char *has_shapes(const struct hvd__descriptor *d)
{
    return d->flags & HVD__OP_SHAPED ? "in its options" : "NULL";
}

static int find_difference(const struct hvd__party *pa,
                           const struct hvd__party *pb, struct field *f)
{
    const struct hvd__descriptor *a = pa->d, *b = pb->d;

    if (a->site != b->site) {
        field_text(f, "call site", site_of(a), site_of(b));
    } else if (a->kind != b->kind) {
        field_text(f, "kind", collective_name(a->kind),
                   collective_name(b->kind));
    } else if (a->dtype != b->dtype) {
        field_text(f, "dtype", hvd_dtype_name((enum hvd_dtype)a->dtype),
                   hvd_dtype_name((enum hvd_dtype)b->dtype));
    } else if (a->wire != b->wire) {
        field_text(f, "wire dtype", hvd_dtype_name((enum hvd_dtype)a->wire),
                   hvd_dtype_name((enum hvd_dtype)b->wire));
    } else if (a->op != b->op) {
        field_text(f, "op", hvd_op_name((enum hvd_op)a->op),
                   hvd_op_name((enum hvd_op)b->op));
    } else if (a->root != b->root) {
        field_u64(f, "root", root_of(pa), root_of(pb));
    } else if (a->count != b->count) {
        field_u64(f, "count", a->count, b->count);
    } else if (a->row_elems != b->row_elems) {
        field_u64(f, "row_elems", a->row_elems, b->row_elems);
    } else if (a->parts != b->parts) {
        field_u64(f, "members of the group", a->parts, b->parts);
    } else if (a->parts_hash != b->parts_hash) {
        field_text(f, "counts of the group's members", "others", "others");
    } else if ((a->flags ^ b->flags) & HVD__OP_DEVICE) {
        field_text(f, "buffers in", memory_of(a), memory_of(b));
    } else if ((a->flags ^ b->flags) & HVD__OP_WORDS) {
        field_text(f, "made for", made_for(a), made_for(b));
    } else if ((a->flags ^ b->flags) & HVD__OP_SHAPED) {
        field_text(f, "shapes", has_shapes(a), has_shapes(b));
    } else if (a->flags != b->flags) {
        field_u64(f, "live_average", a->flags & HVD__OP_LIVE,
                  b->flags & HVD__OP_LIVE);
    } else if (double_bits(a->prescale) != double_bits(b->prescale)) {
        field_double(f, "prescale", a->prescale, b->prescale);
    } else if (double_bits(a->postscale) != double_bits(b->postscale)) {
        field_double(f, "postscale", a->postscale, b->postscale);
    } else {
        return 0;
    }
    return 1;
}

int hvd__descriptor_differ(const struct hvd__party *a,
                           const struct hvd__party *b, struct hb_error *err)
{
    struct field f;
    char name[HVD__NAME_BYTES + 8] = "";

    if (!find_difference(a, b, &f))
        return 0;
    if (a->d->name[0])
        name_text(name, sizeof(name), a->d->name);
    hb_error_set(err, HVD_EMISMATCH,
                 "%s%s: rank %d%s%s has %s %s, rank %d%s%s has %s %s",
                 collective_name(a->d->kind), name, a->rank,
                 a->host ? " on host " : "", a->host ? a->host : "", f.what,
                 f.a, b->rank, b->host ? " on host " : "",
                 b->host ? b->host : "", f.what, f.b);
    return 1;
}
