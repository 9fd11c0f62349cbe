/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What peers send while ranks agree: first the lengths of their tables, then
 * the tables of pending requests; and what a joined rank makes of them.  Input,
 * all big-endian: three u64, the announced lengths; two u16, by which the rest
 * is divided into three tables; the tables.
 */
#include "runtime/core/sched/join.h"
#include "runtime/core/sched/negotiate.h"
#include "runtime/core/sched/shapes.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 3, HEAD_BYTES = 8 * RANKS + 2 * (RANKS - 1), COUNT_MAX = 4096 };

static const int ranks[RANKS] = {0, 1, 2};

static uint64_t read_number(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

static void check_lengths(const uint8_t *data)
{
    struct hb_error err = HB_ERROR_INIT;
    uint64_t told[RANKS];
    size_t sum = 0;
    int rc, good = 1;

    for (int r = 0; r < RANKS; r++) {
        told[r] = read_number(data + 8 * r, 8);
        good &= told[r] >= 8 && told[r] <= HVD__TABLE_BYTES_MAX;
    }
    rc = hvd__tables_sum(told, RANKS, ranks, &sum, &err);
    FUZZ_CHECK(rc == (good ? 0 : -HVD_EPROTO));
    FUZZ_CHECK(!good || sum == told[0] + told[1] + told[2]);
    if (rc < 0)
        fuzz_check_error(rc, &err);
}

/* Checks that the operation's data lies in the stand-in's memory. */
static void check_op(const struct hvd__stand_in *s, const struct hvd__op *op)
{
    if (op->count == 0 || op->kind == HVD__BARRIER)
        return;
    FUZZ_CHECK(op->count <= s->memory_bytes / op->elem_bytes);
    FUZZ_CHECK(op->kind != HVD__REDUCESCATTER ||
               op->count <= s->memory_bytes / op->elem_bytes / 2);
    for (size_t i = 0; op->parts && i < op->nparts; i++)
        FUZZ_CHECK(op->parts[i].first <= op->count &&
                   op->parts[i].count <= op->count - op->parts[i].first);
}

static void stand_in(struct hvd__stand_in **s, const struct hvd__record *rec)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_reader r;
    int rc;

    /* Correct but too slow to fuzz. */
    if (rec->d.count > COUNT_MAX && rec->d.count < UINT64_MAX >> 20)
        return;
    hb_reader_init(&r, rec->counts, 16 * (size_t)rec->d.parts);
    while (r.left)
        if (hb_read_u64(&r) > COUNT_MAX)
            return;
    rc = hvd__stand_in_make(s, rec, RANKS, &err);
    if (rc < 0) {
        fuzz_check_error(rc, &err);
        return;
    }
    if (!(*s)->member_count)
        check_op(*s, &(*s)->op);
    for (size_t i = 0; i < (*s)->member_count; i++)
        check_op(*s, &(*s)->members[i]);
}

/* Checks that the shapes of a record lie in the tables. */
static void check_shapes(const struct hvd__tables *t,
                         const struct hvd__record *rec)
{
    size_t n = rec->d.parts ? (size_t)rec->d.parts : 1, all = 0;
    const unsigned char *at = rec->shapes;
    struct hb_reader r;

    FUZZ_CHECK(!at == !(rec->d.flags & HVD__OP_SHAPED));
    if (!at)
        return;
    for (int i = 0; i < t->n; i++)
        all += t->lens[i];
    FUZZ_CHECK(at >= t->bytes && at <= t->bytes + all);
    hb_reader_init(&r, at, (size_t)(t->bytes + all - at));
    FUZZ_CHECK(hvd__shapes_skip(&r, n) == at);
}

/* Checks what is found of tables that could be read, and that nothing is of
 * others. */
static void check_found(const struct hvd__tables *t, int is_good)
{
    for (int me = 0; me < RANKS; me++) {
        struct hvd__descriptor other;
        unsigned char has[RANKS] = {9, 9, 9};
        int rc = hvd__tables_find(t, me, has, &other);

        FUZZ_CHECK(rc <= 0 && (is_good || rc < 0));
        if (rc < 0)
            continue;
        FUZZ_CHECK(has[me] == HVD__TABLES_PENDING);
        for (int r = 0; r < RANKS; r++)
            FUZZ_CHECK(has[r] <= HVD__TABLES_JOINED);
        FUZZ_CHECK(memchr(other.name, 0, sizeof(other.name)));
    }
}

/* Checks that two agreements made from the same tables are equal. */
static void check_same(const struct hvd__agreement *a,
                       const struct hvd__agreement *b)
{
    FUZZ_CHECK(a->count == b->count && a->joined == b->joined &&
               a->is_cut == b->is_cut);
    for (size_t i = 0; i < a->count; i++)
        FUZZ_CHECK(a->records[i].index == b->records[i].index &&
                   a->records[i].signature == b->records[i].signature &&
                   a->records[i].err.status == b->records[i].err.status &&
                   strcmp(a->records[i].d.name, b->records[i].d.name) == 0);
}

static void agree(const struct hvd__tables *t)
{
    struct hb_error err = HB_ERROR_INIT, other = HB_ERROR_INIT;
    struct hvd__agreement a, b;
    struct hvd__stand_in *s = NULL;
    int rc = hvd__agree(t, &a, &err);

    FUZZ_CHECK(hvd__agree(t, &b, &other) == rc);
    check_found(t, rc == 0);
    if (rc < 0) {
        fuzz_check_error(rc, &err);
        return;
    }
    check_same(&a, &b);
    for (size_t i = 0; i < a.count; i++)
        check_shapes(t, &a.records[i]);
    for (size_t i = 0; i < a.count; i++)
        if (!a.records[i].err.status)
            stand_in(&s, &a.records[i]);
    hvd__agreement_fini(&a);
    hvd__agreement_fini(&b);
    hvd__stand_in_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t lens[RANKS];
    unsigned char *copy;
    size_t left;

    if (size < HEAD_BYTES)
        return 0;
    check_lengths(data);
    left = size - HEAD_BYTES;
    for (int r = 0; r < RANKS; r++) {
        lens[r] =
            r < RANKS - 1 ? read_number(data + 8 * RANKS + 2 * r, 2) : left;
        lens[r] = lens[r] < left ? lens[r] : left;
        left -= lens[r];
    }
    copy = (unsigned char *)fuzz_copy(data + HEAD_BYTES, size - HEAD_BYTES);
    agree(&(struct hvd__tables){copy, lens, RANKS, size % 2 ? 4 : 0, ranks,
                                NULL, NULL});
    free(copy);
    return 0;
}
