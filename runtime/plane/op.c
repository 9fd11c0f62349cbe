/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures and descriptors of operations: see op.h.
 */
#include "runtime/plane/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SHOWN = 100, NAME_BEFORE = 20 }; /* bytes, in a message */

/* One multiply-and-fold round; any good mixer does, it meets no attacker:
 * ranks of a job trust each other. */
static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

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
        h = mix(h, (unsigned char)*name);
    return h;
}

static uint64_t agreed_count(const struct hvd__op *op)
{
    return op->kind == HVD__ALLGATHER ? 0 : op->count;
}

void hvd__op_sign(struct hvd__op *op)
{
    uint64_t h = mix(1, (uint64_t)op->kind | (uint64_t)op->dtype << 8 |
                            (uint64_t)op->op << 16 | (uint64_t)op->root << 32);

    h = mix(h, agreed_count(op));
    h = mix(h, double_bits(op->prescale));
    h = mix(h, double_bits(op->postscale));
    op->signature = mix(h, op->name_hash);
}

void hvd__op_describe(const struct hvd__op *op, struct hvd__descriptor *d)
{
    d->kind = op->kind;
    d->dtype = op->dtype;
    d->op = op->op;
    d->root = op->root;
    d->count = agreed_count(op);
    d->prescale = op->prescale;
    d->postscale = op->postscale;
    d->name_hash = op->name_hash;
    if (op->name[0])
        snprintf(d->name, sizeof(d->name), "%s", op->name);
    else
        d->name[0] = '\0';
}

const char *hvd__kind_name(uint32_t kind)
{
    static const char *const names[] = {
        [HVD__ALLREDUCE] = "allreduce",          [HVD__BROADCAST] = "broadcast",
        [HVD__ALLGATHER] = "allgather",          [HVD__BARRIER] = "barrier",
        [HVD__REDUCE_SCATTER] = "reducescatter",
    };

    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

/* The values of one field, as text. */
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

/* Names come from shared memory and may lack their 0. */
static size_t name_bytes(const char *name)
{
    return strnlen(name, HVD__NAME_BYTES - 1);
}

/* A long name is cut, so that both fit into one message: to its end from
 * a little before the first difference, or else to its beginning. */
static void name_text(char *out, size_t size, const char *name, size_t same)
{
    size_t from = 0, n = name_bytes(name);
    const char *more = "";

    if (n > NAME_SHOWN && same > NAME_BEFORE)
        from = same - NAME_BEFORE;
    if (n - from > NAME_SHOWN) {
        more = "...";
        n = from + NAME_SHOWN;
    }
    if (n)
        snprintf(out, size, "\"%s%.*s%s\"", from ? "..." : "", (int)(n - from),
                 name + from, more);
    else
        snprintf(out, size, "none");
}

static void field_name(struct field *f, const char *a, const char *b)
{
    size_t same = 0;

    while (same < name_bytes(a) && same < name_bytes(b) && a[same] == b[same])
        same++;
    f->what = "name";
    name_text(f->a, sizeof(f->a), a, same);
    name_text(f->b, sizeof(f->b), b, same);
}

static int find_difference(const struct hvd__descriptor *a,
                           const struct hvd__descriptor *b, struct field *f)
{
    if (a->kind != b->kind) {
        field_text(f, "kind", hvd__kind_name(a->kind), hvd__kind_name(b->kind));
    } else if (a->name_hash != b->name_hash) {
        field_name(f, a->name, b->name);
    } else if (a->dtype != b->dtype) {
        field_text(f, "dtype", hvd_dtype_name((enum hvd_dtype)a->dtype),
                   hvd_dtype_name((enum hvd_dtype)b->dtype));
    } else if (a->op != b->op) {
        field_text(f, "op", hvd_op_name((enum hvd_op)a->op),
                   hvd_op_name((enum hvd_op)b->op));
    } else if (a->root != b->root) {
        field_u64(f, "root", (uint64_t)a->root, (uint64_t)b->root);
    } else if (a->count != b->count) {
        field_u64(f, "count", a->count, b->count);
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

    if (!find_difference(a->d, b->d, &f))
        return 0;
    if (a->d->name[0])
        name_text(name, sizeof(name), a->d->name, 0);
    hb_error_set(err, HVD_EMISMATCH,
                 "%s%s%s: rank %d%s%s has %s %s, rank %d%s%s has %s %s",
                 hvd__kind_name(a->d->kind), a->d->name[0] ? " " : "", name,
                 a->rank, a->host ? " on host " : "", a->host ? a->host : "",
                 f.what, f.a, b->rank, b->host ? " on host " : "",
                 b->host ? b->host : "", f.what, f.b);
    return 1;
}
