/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads tables of pending requests, and draws the conclusion from
 * them; see negotiate.h. */
#include "runtime/core/sched/negotiate.h"

#include "lib/base/alloc.h"
#include "lib/protocol/wire.h"
#include "runtime/core/sched/shapes.h"
#include "runtime/plane/site.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A table begins with u32 flags, u32 count.  TABLE_SITES: each record is
 * followed by a call site. */
enum { TABLE_JOINED = 1u << 0, TABLE_CUT = 1u << 1, TABLE_SITES = 1u << 2 };
enum {
    HEAD_BYTES = 2 * 4,
    RECORD_BYTES = 6 * 4 + 8 * 8 + 2 * 4,
    SITE_BYTES = 8 + 4, /* u64 hash, u32 length of the text */
};

/* The begin of a record; known_values checks the values. */
static const struct wire_field descriptor_fields[] = {
    WIRE_U32(hvd__descriptor, kind),
    WIRE_U32(hvd__descriptor, dtype),
    WIRE_U32(hvd__descriptor, op),
    WIRE_U32(hvd__descriptor, wire),
    WIRE_U32(hvd__descriptor, flags),
    WIRE_U32(hvd__descriptor, root),
    WIRE_U64(hvd__descriptor, count),
    WIRE_U64(hvd__descriptor, row_elems),
    WIRE_U64(hvd__descriptor, parts),
    WIRE_U64(hvd__descriptor, parts_hash),
    WIRE_U64(hvd__descriptor, prescale),
    WIRE_U64(hvd__descriptor, postscale),
    WIRE_END,
};

/* ---- Writing ---------------------------------------------------------- */

static void put_record(struct hb_buf *b, const struct hvd_request *req,
                       uint64_t index)
{
    const struct hvd__op *op = &req->op;
    size_t name = strlen(op->name);
    struct hvd__descriptor d;

    hvd__op_describe(op, &d);
    wire_put(b, descriptor_fields, &d);
    hb_buf_put_u64(b, index);
    hb_buf_put_u64(b, req->signature);
    /* Requests without a name keep their order. */
    hb_buf_put_u32(b, op->name[0] ? (uint32_t)req->priority : 0);
    hb_buf_put_u32(b, (uint32_t)name);
    hb_buf_append(b, op->name, name);
    for (uint64_t i = 0; i < d.parts; i++) {
        hb_buf_put_u64(b,
                       op->parts ? op->parts[i].count : req->members[i].count);
        hb_buf_put_u64(b, op->parts ? 0 : req->members[i].row_elems);
    }
    if (req->shapes)
        hvd__shapes_put(b, req->shapes, hvd__shapes_count(op));
}

static void put_site(struct hb_buf *b, const struct hvd_request *req)
{
    char text[HVD__SITE_BYTES];

    hvd__site_text(req->caller, text);
    hb_buf_put_u64(b, req->op.hashes.site);
    hb_buf_put_u32(b, (uint32_t)strlen(text));
    hb_buf_append(b, text, strlen(text));
}

static size_t record_bytes(const struct hvd_request *req)
{
    size_t parts = req->op.flags & HVD__OP_GROUP ? req->op.nparts : 0;
    size_t shaped = req->shapes ? hvd__shapes_count(&req->op) : 0;

    return RECORD_BYTES + strlen(req->op.name) + parts * 2 * sizeof(uint64_t) +
           hvd__shapes_put_bytes(req->shapes, shaped);
}

int hvd__table_write(struct hb_buf *out, struct hvd_request *queue,
                     uint64_t unnamed_done, uint32_t records_max)
{
    uint32_t count = 0, flags = 0;
    size_t bytes = HEAD_BYTES;

    for (const struct hvd_request *r = queue; r; r = r->next) {
        if (r->op.kind == HVD__JOIN) {
            flags |= TABLE_JOINED;
        } else if (count == records_max) {
            flags |= TABLE_CUT;
        } else {
            bytes +=
                record_bytes(r) + (r->op.hashes.site ? HVD__SITE_BYTES : 0);
            flags |= r->op.hashes.site ? TABLE_SITES : 0;
            count++;
        }
    }
    if (flags & TABLE_SITES)
        bytes += (size_t)count * SITE_BYTES;
    hb_buf_clear(out);
    if (bytes > HVD__TABLE_BYTES_MAX)
        return -HVD_EINVAL;
    if (hb_buf_reserve(out, bytes) < 0)
        return -HVD_ENOMEM;
    hb_buf_put_u32(out, flags);
    hb_buf_put_u32(out, count);
    for (const struct hvd_request *r = queue; r && count; r = r->next) {
        if (r->op.kind == HVD__JOIN)
            continue;
        put_record(out, r, r->op.name[0] ? 0 : unnamed_done++);
        if (flags & TABLE_SITES)
            put_site(out, r);
        count--;
    }
    return 0;
}

/* ---- Reading ---------------------------------------------------------- */

static int known_values(const struct hvd__descriptor *d)
{
    return d->kind < HVD__JOIN &&
           hvd_dtype_size((enum hvd_dtype)d->dtype) != 0 &&
           hvd_dtype_size((enum hvd_dtype)d->wire) != 0;
}

static int read_record(struct hb_reader *r, struct hvd__record *rec)
{
    struct hvd__descriptor *d = &rec->d;
    size_t len;

    memset(rec, 0, sizeof(*rec));
    wire_take(r, descriptor_fields, d);
    rec->index = hb_read_u64(r);
    rec->signature = hb_read_u64(r);
    rec->priority = (int32_t)hb_read_u32(r);
    len = hb_read_u32(r);
    if (r->bad || d->parts > r->left / 16 || !known_values(d))
        return -HVD_EPROTO;
    hb_read_text(r, len, d->name, sizeof(d->name));
    d->name_hash = hvd__name_hash(d->name);
    rec->counts = hb_read_bytes(r, (size_t)d->parts * 16);
    if (!rec->counts || !(d->flags & HVD__OP_SHAPED))
        return rec->counts ? 0 : -HVD_EPROTO;
    rec->shapes = hvd__shapes_skip(r, d->parts ? (size_t)d->parts : 1);
    return rec->shapes ? 0 : -HVD_EPROTO;
}

int hvd__tables_sum(const uint64_t *lens, int n, const int *ranks, size_t *sum,
                    struct hb_error *err)
{
    size_t all = 0;

    for (int r = 0; r < n; r++)
        if (lens[r] < HEAD_BYTES || lens[r] > HVD__TABLE_BYTES_MAX ||
            __builtin_add_overflow(all, lens[r], &all))
            return hb_error_set(err, HVD_EPROTO,
                                "rank %d announces a table of %" PRIu64
                                " bytes, which no table has",
                                ranks[r], lens[r]);
    *sum = all;
    return 0;
}

/* Checks that the table was cut only at the limit. */
static int is_counted_right(const struct hvd__table *t, uint32_t records_max)
{
    return !records_max || t->count == records_max ||
           (t->count < records_max && !t->is_cut);
}

static int read_site(struct hb_reader *r, struct hvd__descriptor *d)
{
    d->site = hb_read_u64(r);
    hb_read_text(r, hb_read_u32(r), d->site_text, sizeof(d->site_text));
    return r->bad ? -HVD_EPROTO : 0;
}

/* Reads a table.  The caller frees t->records in any case. */
static int read_table(const void *bytes, size_t len, uint32_t records_max,
                      struct hvd__table *t)
{
    struct hb_reader r;
    uint32_t flags;

    hb_reader_init(&r, bytes, len);
    flags = hb_read_u32(&r);
    t->joined = (flags & TABLE_JOINED) != 0;
    t->is_cut = (flags & TABLE_CUT) != 0;
    t->count = hb_read_u32(&r);
    if (r.bad || t->count > r.left / RECORD_BYTES ||
        !is_counted_right(t, records_max))
        return -HVD_EPROTO;
    t->records = hb_calloc(t->count + 1, sizeof(*t->records));
    if (!t->records)
        return -HVD_ENOMEM;
    for (size_t i = 0; i < t->count; i++)
        if (read_record(&r, &t->records[i]) < 0 ||
            ((flags & TABLE_SITES) && read_site(&r, &t->records[i].d) < 0))
            return -HVD_EPROTO;
    return r.left ? -HVD_EPROTO : 0;
}

/* ---- Agreeing ---------------------------------------------------------- */

static int by_key(const void *pa, const void *pb)
{
    const struct hvd__record *a = *(const struct hvd__record *const *)pa;
    const struct hvd__record *b = *(const struct hvd__record *const *)pb;

    if (a->d.name_hash != b->d.name_hash)
        return a->d.name_hash < b->d.name_hash ? -1 : 1;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return strcmp(a->d.name, b->d.name);
}

/* A table's records, sorted by key. */
struct index {
    struct hvd__record **records;
    size_t count;
};

static int make_index(const struct hvd__table *t, struct index *x)
{
    x->records = hb_calloc(t->count + 1, sizeof(struct hvd__record *));
    if (!x->records)
        return -HVD_ENOMEM;
    x->count = t->count;
    for (size_t i = 0; i < t->count; i++)
        x->records[i] = &t->records[i];
    qsort((void *)x->records, x->count, sizeof(struct hvd__record *), by_key);
    return 0;
}

static struct hvd__record *find(const struct index *x,
                                const struct hvd__record *key)
{
    struct hvd__record **at =
        bsearch((const void *)&key, (const void *)x->records, x->count,
                sizeof(struct hvd__record *), by_key);

    return at ? *at : NULL;
}

/* The working state of hvd__agree. */
struct talks {
    const struct hvd__tables *in;
    struct hvd__table *tables; /* [n] */
    struct index *indexes;     /* [n] */
    int first;                 /* the lowest rank that has not joined */
};

static const char *host_of(const struct hvd__tables *in, int r)
{
    return in->host_of ? in->host_of(in->host_arg, (uint32_t)in->ranks[r])
                       : NULL;
}

/* Names the first member in which two groups differ, if they do not differ in
 * anything else; hvd__descriptor_differ names all other differences. */
static void compare_members(const struct hvd__party *a,
                            const struct hvd__party *b, const void *counts[2],
                            struct hb_error *err)
{
    struct hvd__descriptor rest = *b->d;
    const struct hvd__party p = {.d = &rest, .rank = b->rank, .host = b->host};
    size_t bytes = 16 * (size_t)a->d->parts;
    int named = a->d->name[0] != '\0';
    struct hb_reader x, y;

    rest.parts_hash = a->d->parts_hash;
    if (hvd__descriptor_differ(a, &p, err))
        return;
    hb_reader_init(&x, counts[0], bytes);
    hb_reader_init(&y, counts[1], bytes);
    for (size_t i = 0; x.left; i++) {
        uint64_t u = hb_read_u64(&x), v = hb_read_u64(&y);

        if (u != v && !err->status)
            hb_error_set(err, HVD_EMISMATCH,
                         "%s%s%.100s%s: rank %d%s%s has %s %" PRIu64
                         " of member %zu, rank %d%s%s has %s %" PRIu64,
                         collective_name(a->d->kind), named ? " \"" : "",
                         a->d->name, named ? "\"" : "", a->rank,
                         a->host ? " on host " : "", a->host ? a->host : "",
                         i % 2 ? "row_elems" : "count", u, i / 2, b->rank,
                         b->host ? " on host " : "", b->host ? b->host : "",
                         i % 2 ? "row_elems" : "count", v);
    }
}

static struct hvd__party party(const struct hvd__tables *in,
                               const struct hvd__descriptor *d, int r)
{
    return (struct hvd__party){d, in->ranks[r], host_of(in, r), in->ranks,
                               in->n};
}

/* Sets rec->err if the first rank's record and another rank's differ. */
static void compare(struct hvd__record *rec, const struct hvd__party *first,
                    const struct hvd__record *other, const struct hvd__party *p)
{
    const struct hvd__descriptor *a = &rec->d, *b = &other->d;
    const struct hvd__shapes_party x = {*first, rec->shapes};
    const struct hvd__shapes_party y = {*p, other->shapes};

    /* Shapes say more than the counts that follow from them. */
    if (a->kind == b->kind && a->dtype == b->dtype && a->site == b->site &&
        a->parts == b->parts && hvd__shapes_differ(&x, &y, &rec->err))
        return;
    if (a->parts == b->parts && a->parts_hash != b->parts_hash)
        compare_members(first, p, (const void *[2]){rec->counts, other->counts},
                        &rec->err);
    if (!rec->err.status)
        hvd__descriptor_differ(first, p, &rec->err);
}

/* Returns whether a record of the first rank is pending on all ranks that have
 * not joined.  Sets its err if their descriptors differ. */
static int is_pending_everywhere(const struct talks *t, struct hvd__record *rec)
{
    const struct hvd__party first = party(t->in, &rec->d, t->first);

    for (int r = 0; r < t->in->n; r++)
        if (!t->tables[r].joined && !find(&t->indexes[r], rec))
            return 0;
    for (int r = 0; r < t->in->n && !rec->err.status; r++) {
        const struct hvd__record *other = find(&t->indexes[r], rec);
        const struct hvd__party p = party(t->in, other ? &other->d : NULL, r);

        if (!t->tables[r].joined)
            compare(rec, &first, other, &p);
    }
    if (!rec->err.status && rec->d.kind == HVD__BROADCAST && rec->d.root >= 0 &&
        rec->d.root < t->in->n && t->tables[rec->d.root].joined)
        hb_error_set(&rec->err, HVD_EINVAL, "broadcast: root %d has joined",
                     t->in->ranks[rec->d.root]);
    return 1;
}

static int by_priority(const void *pa, const void *pb)
{
    const struct hvd__record *a = pa, *b = pb;

    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* Collects the records that all ranks agree on, in the order to carry them
 * out. */
static int conclude(const struct talks *t, struct hvd__agreement *out)
{
    struct hvd__table *lead = &t->tables[t->first];

    out->records = hb_calloc(lead->count + 1, sizeof(*out->records));
    if (!out->records)
        return -HVD_ENOMEM;
    for (size_t i = 0; i < lead->count; i++) {
        struct hvd__record *rec = &out->records[out->count];

        if (!is_pending_everywhere(t, &lead->records[i]))
            continue;
        *rec = lead->records[i];
        rec->order = out->count++;
    }
    qsort(out->records, out->count, sizeof(*out->records), by_priority);
    return 0;
}

static int read_all(struct talks *t, struct hb_error *err)
{
    const unsigned char *at = t->in->bytes;
    int rc = 0;

    t->first = -1;
    for (int r = 0; r < t->in->n && rc == 0; r++) {
        rc = read_table(at, t->in->lens[r], t->in->records_max, &t->tables[r]);
        if (rc == -HVD_EPROTO)
            return hb_error_set(err, HVD_EPROTO,
                                "what rank %d says it waits for is malformed",
                                t->in->ranks[r]);
        if (rc == 0)
            rc = make_index(&t->tables[r], &t->indexes[r]);
        if (t->first < 0 && !t->tables[r].joined)
            t->first = r;
        at += t->in->lens[r];
    }
    return rc;
}

static int note_joined(const struct talks *t, struct hvd__agreement *out)
{
    out->is_joined = hb_calloc((size_t)t->in->n, 1);
    if (!out->is_joined)
        return -HVD_ENOMEM;
    for (int r = 0; r < t->in->n; r++) {
        out->is_joined[r] = (unsigned char)t->tables[r].joined;
        out->joined += t->tables[r].joined;
        out->is_cut |= t->tables[r].is_cut;
    }
    return 0;
}

/* Reads the tables; close_talks must follow in any case. */
static int open_talks(struct talks *t, const struct hvd__tables *in,
                      struct hb_error *err)
{
    *t = (struct talks){.in = in};
    t->tables = hb_calloc((size_t)in->n, sizeof(*t->tables));
    t->indexes = hb_calloc((size_t)in->n, sizeof(*t->indexes));
    return t->tables && t->indexes ? read_all(t, err) : -HVD_ENOMEM;
}

static void close_talks(struct talks *t)
{
    for (int r = 0; r < t->in->n; r++) {
        if (t->tables)
            hb_free(t->tables[r].records);
        if (t->indexes)
            hb_free((void *)t->indexes[r].records);
    }
    hb_free(t->tables);
    hb_free(t->indexes);
}

int hvd__agree(const struct hvd__tables *in, struct hvd__agreement *out,
               struct hb_error *err)
{
    struct talks t;
    int rc;

    memset(out, 0, sizeof(*out));
    rc = open_talks(&t, in, err);
    if (rc == 0)
        rc = note_joined(&t, out);
    if (rc == 0 && t.first >= 0)
        rc = conclude(&t, out);
    close_talks(&t);
    if (rc < 0)
        hvd__agreement_fini(out);
    if (rc == -HVD_ENOMEM)
        hb_error_set(err, HVD_ENOMEM, "no memory to agree with other ranks");
    return rc;
}

int hvd__tables_find(const struct hvd__tables *in, int me, unsigned char *has,
                     struct hvd__descriptor *other)
{
    struct talks t;
    int rc = open_talks(&t, in, NULL), absent = -1;

    *other = (struct hvd__descriptor){.kind = HVD__JOIN};
    if (rc == 0 && t.tables[me].count == 0)
        rc = -HVD_EINVAL;
    for (int r = 0; rc == 0 && r < in->n; r++) {
        has[r] = t.tables[r].joined ? HVD__TABLES_JOINED : 0;
        if (find(&t.indexes[r], &t.tables[me].records[0]))
            has[r] = HVD__TABLES_PENDING;
        if (!has[r] && absent < 0)
            absent = r;
    }
    if (absent >= 0 && t.tables[absent].count)
        *other = t.tables[absent].records[0].d;
    close_talks(&t);
    return rc;
}

void hvd__agreement_fini(struct hvd__agreement *a)
{
    hb_free(a->records);
    hb_free(a->is_joined);
    memset(a, 0, sizeof(*a));
}
