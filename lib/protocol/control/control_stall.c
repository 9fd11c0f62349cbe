/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control messages about waiting ranks; see control_stall.h.  After
 * frame_begin has reserved a frame, appending cannot fail.
 */
#include "lib/protocol/control/control_stall.h"

#include "lib/base/alloc.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/wire.h"

#include <limits.h>
#include <string.h>

enum {
    OP_BYTES = 8 + 8 + 1 + 1 + 1 + 1, /* plus the name */
    /* Plus the waits, and 8 bytes for each set's number that is not 0. */
    SETS_BYTES = 8 * STATUS_SETS_WORDS,
    RANK_BYTES = 4 + 4 + 1 + 1 + 2 + 8 + OP_BYTES + 4 + 1 + 3 * SETS_BYTES,
    CPU_UNKNOWN = UINT16_MAX,
    FLAG_KNOWN = 1u << 0,
    FLAG_FRESH = 1u << 1,
    FLAG_INSIDE = 1u << 2,
    FLAG_IN_INIT = 1u << 3,
    FLAG_ALL = FLAG_KNOWN | FLAG_FRESH | FLAG_INSIDE | FLAG_IN_INIT,
};

/* ---- Tables ---- */

static const struct wire_field no_answer_fields[] = {
    WIRE_NUMBER(control_no_answer, rank, 4, 0, CONTROL_RANKS_MAX - 1),
    WIRE_NUMBER(control_no_answer, peer, 4, 0, CONTROL_RANKS_MAX - 1),
    WIRE_END,
};

static const struct wire_field late_fields[] = {
    WIRE_NUMBER(control_late, rank, 4, 0, CONTROL_RANKS_MAX - 1),
    WIRE_NUMBER(control_late, waited_ms, 4, 0, CONTROL_STALL_MAX_MS),
    WIRE_END,
};

static const struct wire_field stalled_fields[] = {
    WIRE_NUMBER(control_stalled, rank, 4, 0, CONTROL_RANKS_MAX - 1),
    WIRE_U32(control_stalled, waited_ms),
    WIRE_U32(control_stalled, warning_ms),
    WIRE_U32(control_stalled, shutdown_ms),
    WIRE_END,
};

/* STALL_RANKS; the ranks follow. */
static const struct wire_field ranks_fields[] = {
    WIRE_NUMBER(control_stall_ranks, id, 4, 0, INT_MAX),
    WIRE_NUMBER(control_stall_ranks, count, 4, 1, CONTROL_LOCAL_MAX),
    WIRE_END,
};

/* STALL_STACK; the text follows, up to its end. */
static const struct wire_field stack_fields[] = {
    WIRE_NUMBER(control_stall_stack, id, 4, 0, INT_MAX),
    WIRE_NUMBER(control_stall_stack, rank, 4, 0, CONTROL_RANKS_MAX - 1),
    WIRE_NUMBER(control_stall_stack, found, 1, 0, 1),
    WIRE_END,
};

static const struct wire_field op_fields[] = {
    WIRE_NUMBER(control_stall_op, age_ms, 8, 0, CONTROL_STALL_MAX_MS),
    WIRE_U64(control_stall_op, key),
    WIRE_NUMBER(control_stall_op, kind, 1, 0, STATUS_KINDS - 1),
    WIRE_NUMBER(control_stall_op, set, 1, 0, STATUS_SETS_MAX - 1),
    WIRE_NUMBER(control_stall_op, where, 1, 0, STATUS_WHERES - 1),
    WIRE_TEXT(control_stall_op, name, 1),
    WIRE_END,
};

/* A rank.  Between both are its flags, its use of a core, its calls, its last
 * operation and its sets; after them its waits and its numbers of each set. */
static const struct wire_field rank_head[] = {
    WIRE_NUMBER(control_stall_rank, rank, 4, 0, CONTROL_RANKS_MAX - 1),
    WIRE_NUMBER(control_stall_rank, pid, 4, 0, INT_MAX),
    WIRE_NUMBER(control_stall_rank, state, 1, 0, 'z'),
    WIRE_END,
};

static const struct wire_field rank_tail[] = {
    WIRE_NUMBER(control_stall_rank, total, 4, 0, INT_MAX),
    WIRE_NUMBER(control_stall_rank, count, 1, 0, STATUS_WAITS_MAX),
    WIRE_END,
};

static int refuse(struct hb_error *err, const char *what, const char *why)
{
    return hb_error_set(err, HVD_EPROTO, "%s: %s", what, why);
}

/* ---- STALLED, LATE, NO_ANSWER ---- */

int control_encode_late(struct hb_buf *out, const struct control_late *m)
{
    return wire_encode(out, CONTROL_LATE, late_fields, m);
}

int control_decode_late(const void *p, size_t len, struct control_late *m,
                        struct hb_error *err)
{
    return wire_decode("late", p, len, late_fields, m, err);
}

int control_encode_no_answer(struct hb_buf *out,
                             const struct control_no_answer *m)
{
    return wire_encode(out, CONTROL_NO_ANSWER, no_answer_fields, m);
}

int control_decode_no_answer(const void *p, size_t len,
                             struct control_no_answer *m, struct hb_error *err)
{
    return wire_decode("no answer", p, len, no_answer_fields, m, err);
}

int control_encode_stalled(struct hb_buf *out, const struct control_stalled *m)
{
    return wire_encode(out, CONTROL_STALLED, stalled_fields, m);
}

int control_decode_stalled(const void *p, size_t len, struct control_stalled *m,
                           struct hb_error *err)
{
    return wire_decode("stalled", p, len, stalled_fields, m, err);
}

/* ---- STALL_ASK ---- */

int control_encode_stall_ask(struct hb_buf *out,
                             const struct control_stall_ask *m)
{
    int rc = frame_begin(out, CONTROL_STALL_ASK, 4 + 4 * (size_t)m->count);

    if (rc < 0)
        return rc;
    rc = hb_buf_put_u32(out, (uint32_t)m->id);
    for (int i = 0; i < m->count; i++)
        rc = hb_buf_put_u32(out, (uint32_t)m->ranks[i]);
    return rc;
}

int control_decode_stall_ask(const void *p, size_t len,
                             struct control_stall_ask *m, struct hb_error *err)
{
    struct control_stall_ask got = {0};
    struct hb_reader r;
    uint32_t id;

    hb_reader_init(&r, p, len);
    id = hb_read_u32(&r);
    if (r.bad || id > INT_MAX)
        return refuse(err, "stall_ask", "field 'id' is out of range");
    got.id = (int)id;
    if (r.left % 4 || r.left / 4 > CONTROL_STACKS_MAX)
        return refuse(err, "stall_ask", "wrong length");
    while (r.left > 0) {
        uint32_t rank = hb_read_u32(&r);

        if (rank >= CONTROL_RANKS_MAX)
            return refuse(err, "stall_ask", "a rank is out of range");
        got.ranks[got.count++] = (int)rank;
    }
    *m = got;
    return 0;
}

/* ---- STALL_RANKS ---- */

static size_t rank_bytes(const struct control_stall_rank *r)
{
    size_t bytes = RANK_BYTES - OP_BYTES + wire_bytes(op_fields, &r->last);

    for (int i = 0; i < r->count; i++)
        bytes += wire_bytes(op_fields, &r->waits[i]);
    for (int i = 0; i < STATUS_SETS_MAX; i++)
        bytes += (r->launched[i] ? 8u : 0) + (r->carried_out[i] ? 8u : 0);
    return bytes;
}

/* Writes a bit per process set. */
static void put_words(struct hb_buf *out,
                      const uint64_t words[STATUS_SETS_WORDS])
{
    for (int w = 0; w < STATUS_SETS_WORDS; w++)
        hb_buf_put_u64(out, words[w]);
}

/* Writes a number per process set: a bit for each that is not 0, then those. */
static void put_of_sets(struct hb_buf *out,
                        const uint64_t numbers[STATUS_SETS_MAX])
{
    uint64_t sets[STATUS_SETS_WORDS] = {0};

    for (int i = 0; i < STATUS_SETS_MAX; i++)
        sets[i / 64] |= (uint64_t)(numbers[i] != 0) << i % 64;
    put_words(out, sets);
    for (int i = 0; i < STATUS_SETS_MAX; i++)
        if (numbers[i])
            hb_buf_put_u64(out, numbers[i]);
}

static void put_rank(struct hb_buf *out, const struct control_stall_rank *r)
{
    unsigned flags =
        (r->known ? FLAG_KNOWN : 0u) | (r->fresh ? FLAG_FRESH : 0u) |
        (r->inside ? FLAG_INSIDE : 0u) | (r->in_init ? FLAG_IN_INIT : 0u);
    int cpu = r->cpu_percent;

    if (cpu < 0 || cpu >= CPU_UNKNOWN)
        cpu = CPU_UNKNOWN;
    wire_put(out, rank_head, r);
    hb_buf_put_u8(out, (uint8_t)flags);
    hb_buf_put_u16(out, (uint16_t)cpu);
    hb_buf_put_u64(out, (uint64_t)r->calls);
    wire_put(out, op_fields, &r->last);
    put_words(out, r->sets);
    wire_put(out, rank_tail, r);
    for (int i = 0; i < r->count; i++)
        wire_put(out, op_fields, &r->waits[i]);
    put_of_sets(out, r->launched);
    put_of_sets(out, r->carried_out);
}

int control_encode_stall_ranks(struct hb_buf *out,
                               const struct control_stall_ranks *m)
{
    size_t bytes = wire_bytes(ranks_fields, m);
    int rc;

    for (int i = 0; i < m->count; i++)
        bytes += rank_bytes(&m->ranks[i]);
    rc = frame_begin(out, CONTROL_STALL_RANKS, bytes);
    if (rc < 0)
        return rc;
    wire_put(out, ranks_fields, m);
    for (int i = 0; i < m->count; i++)
        put_rank(out, &m->ranks[i]);
    return 0;
}

static void read_words(struct hb_reader *r, uint64_t words[STATUS_SETS_WORDS])
{
    for (int w = 0; w < STATUS_SETS_WORDS; w++)
        words[w] = hb_read_u64(r);
}

/* Reads what put_rank writes before the waits. */
static void read_head(struct hb_reader *r, struct control_stall_rank *m)
{
    unsigned flags, cpu;

    wire_take(r, rank_head, m);
    flags = hb_read_u8(r);
    cpu = hb_read_u16(r);
    m->calls = (int64_t)hb_read_u64(r);
    wire_take(r, op_fields, &m->last);
    read_words(r, m->sets);
    wire_take(r, rank_tail, m);
    if (flags > FLAG_ALL || m->calls < 0 || m->count > m->total)
        r->bad = 1;
    m->known = (flags & FLAG_KNOWN) != 0;
    m->fresh = (flags & FLAG_FRESH) != 0;
    m->inside = (flags & FLAG_INSIDE) != 0;
    m->in_init = (flags & FLAG_IN_INIT) != 0;
    m->cpu_percent = cpu == CPU_UNKNOWN ? -1 : (int)cpu;
}

/* Reads a number of each set; only those that are not 0 are sent. */
static void read_of_sets(struct hb_reader *r, uint64_t numbers[STATUS_SETS_MAX])
{
    uint64_t sets[STATUS_SETS_WORDS];

    read_words(r, sets);
    for (int i = 0; i < STATUS_SETS_MAX; i++) {
        int is_sent = sets[i / 64] >> i % 64 & 1;

        numbers[i] = is_sent ? hb_read_u64(r) : 0;
        if (is_sent && numbers[i] == 0)
            r->bad = 1;
    }
}

static int read_rank(struct hb_reader *r, struct control_stall_rank *m)
{
    int count;

    read_head(r, m);
    count = r->bad ? 0 : m->count;
    m->count = 0;
    if (count)
        m->waits = hb_calloc((size_t)count, sizeof(*m->waits));
    if (count && !m->waits)
        return -HVD_ENOMEM;
    for (; m->count < count; m->count++)
        wire_take(r, op_fields, &m->waits[m->count]);
    read_of_sets(r, m->launched);
    read_of_sets(r, m->carried_out);
    return 0;
}

void control_stall_ranks_fini(struct control_stall_ranks *m)
{
    for (int i = 0; i < m->count; i++)
        hb_free(m->ranks[i].waits);
    hb_free(m->ranks);
    memset(m, 0, sizeof(*m));
}

/* Reads `count` ranks, for which m->ranks has room. */
static int read_ranks(struct hb_reader *r, struct control_stall_ranks *m,
                      int count)
{
    for (int i = 0; i < count && !r->bad; i++) {
        struct control_stall_rank *rank = &m->ranks[m->count++];

        if (read_rank(r, rank) < 0)
            return -HVD_ENOMEM;
        if (i > 0 && rank->rank <= rank[-1].rank)
            r->bad = 1;
    }
    return r->bad || r->left ? -HVD_EPROTO : 0;
}

int control_decode_stall_ranks(const void *p, size_t len,
                               struct control_stall_ranks *m,
                               struct hb_error *err)
{
    struct hb_reader r;
    int count, rc;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    wire_take(&r, ranks_fields, m);
    count = m->count;
    m->count = 0;
    if (r.bad || r.left / RANK_BYTES < (size_t)count)
        return refuse(err, "stall_ranks", "wrong length or number");
    m->ranks = hb_calloc((size_t)count, sizeof(*m->ranks));
    rc = m->ranks ? read_ranks(&r, m, count) : -HVD_ENOMEM;
    if (rc == 0)
        return 0;
    control_stall_ranks_fini(m);
    return rc == -HVD_ENOMEM
               ? hb_error_set(err, HVD_ENOMEM, "stall_ranks: out of memory")
               : refuse(err, "stall_ranks", "a rank is malformed");
}

/* ---- STALL_STACK ---- */

int control_encode_stall_stack(struct hb_buf *out,
                               const struct control_stall_stack *m)
{
    size_t len = strnlen(m->text, CONTROL_STACK_BYTES);
    int rc = frame_begin(out, CONTROL_STALL_STACK,
                         wire_bytes(stack_fields, m) + len);

    if (rc < 0)
        return rc;
    wire_put(out, stack_fields, m);
    return hb_buf_append(out, m->text, len);
}

int control_decode_stall_stack(const void *p, size_t len,
                               struct control_stall_stack *m,
                               struct hb_error *err)
{
    struct hb_reader r;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    wire_take(&r, stack_fields, m);
    if (r.bad)
        return refuse(err, "stall_stack", "a field is out of range");
    if (r.left > CONTROL_STACK_BYTES || (r.left && memchr(r.p, '\0', r.left)))
        return refuse(err, "stall_stack", "wrong length, or not a text");
    m->text = hb_strndup((const char *)r.p, r.left);
    if (!m->text)
        return hb_error_set(err, HVD_ENOMEM, "stall_stack: out of memory");
    return 0;
}

void control_stall_stack_fini(struct control_stall_stack *m)
{
    hb_free(m->text);
    memset(m, 0, sizeof(*m));
}
