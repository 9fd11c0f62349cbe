/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control messages about waiting ranks; see control_stall.h.  After
 * frame_begin has reserved a frame, appending cannot fail.
 */
#include "lib/protocol/control/control_stall.h"

#include "lib/base/alloc.h"
#include "lib/protocol/control/control.h"

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

static int refuse(struct hb_error *err, const char *what, const char *why)
{
    return hb_error_set(err, HVD_EPROTO, "%s: %s", what, why);
}

/* ---- STALLED ---- */

int control_encode_late(struct hb_buf *out, const struct control_late *m)
{
    int rc = frame_begin(out, CONTROL_LATE, 8);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)m->rank);
    return hb_buf_put_u32(out, m->waited_ms);
}

int control_decode_late(const void *p, size_t len, struct control_late *m,
                        struct hb_error *err)
{
    struct hb_reader r;
    uint32_t rank, ms;

    hb_reader_init(&r, p, len);
    rank = hb_read_u32(&r);
    ms = hb_read_u32(&r);
    if (r.bad || r.left)
        return refuse(err, "late", "wrong length");
    if (rank >= CONTROL_RANKS_MAX || ms > CONTROL_STALL_MAX_MS)
        return refuse(err, "late", "a number is out of range");
    *m = (struct control_late){(int)rank, ms};
    return 0;
}

int control_encode_stalled(struct hb_buf *out, const struct control_stalled *m)
{
    int rc = frame_begin(out, CONTROL_STALLED, 16);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)m->rank);
    hb_buf_put_u32(out, m->waited_ms);
    hb_buf_put_u32(out, m->warning_ms);
    return hb_buf_put_u32(out, m->shutdown_ms);
}

int control_decode_stalled(const void *p, size_t len, struct control_stalled *m,
                           struct hb_error *err)
{
    struct control_stalled got;
    struct hb_reader r;
    uint32_t rank;

    hb_reader_init(&r, p, len);
    rank = hb_read_u32(&r);
    got.waited_ms = hb_read_u32(&r);
    got.warning_ms = hb_read_u32(&r);
    got.shutdown_ms = hb_read_u32(&r);
    if (r.bad || r.left)
        return refuse(err, "stalled", "wrong length");
    if (rank >= CONTROL_RANKS_MAX)
        return refuse(err, "stalled", "field 'rank' is out of range");
    got.rank = (int)rank;
    *m = got;
    return 0;
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

static size_t op_bytes(const struct control_stall_op *op)
{
    return OP_BYTES + strnlen(op->name, STATUS_NAME_BYTES - 1);
}

static size_t rank_bytes(const struct control_stall_rank *r)
{
    size_t bytes = RANK_BYTES - OP_BYTES + op_bytes(&r->last);

    for (int i = 0; i < r->count; i++)
        bytes += op_bytes(&r->waits[i]);
    for (int i = 0; i < STATUS_SETS_MAX; i++)
        bytes += (r->launched[i] ? 8u : 0) + (r->carried_out[i] ? 8u : 0);
    return bytes;
}

static void put_op(struct hb_buf *out, const struct control_stall_op *op)
{
    size_t len = strnlen(op->name, STATUS_NAME_BYTES - 1);

    hb_buf_put_u64(out, (uint64_t)op->age_ms);
    hb_buf_put_u64(out, op->key);
    hb_buf_put_u8(out, (uint8_t)op->kind);
    hb_buf_put_u8(out, (uint8_t)op->set);
    hb_buf_put_u8(out, (uint8_t)op->where);
    hb_buf_put_u8(out, (uint8_t)len);
    hb_buf_append(out, op->name, len);
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
    hb_buf_put_u32(out, (uint32_t)r->rank);
    hb_buf_put_u32(out, (uint32_t)r->pid);
    hb_buf_put_u8(out, (uint8_t)r->state);
    hb_buf_put_u8(out, (uint8_t)flags);
    hb_buf_put_u16(out, (uint16_t)cpu);
    hb_buf_put_u64(out, (uint64_t)r->calls);
    put_op(out, &r->last);
    put_words(out, r->sets);
    hb_buf_put_u32(out, (uint32_t)r->total);
    hb_buf_put_u8(out, (uint8_t)r->count);
    for (int i = 0; i < r->count; i++)
        put_op(out, &r->waits[i]);
    put_of_sets(out, r->launched);
    put_of_sets(out, r->carried_out);
}

int control_encode_stall_ranks(struct hb_buf *out,
                               const struct control_stall_ranks *m)
{
    size_t bytes = 8;
    int rc;

    for (int i = 0; i < m->count; i++)
        bytes += rank_bytes(&m->ranks[i]);
    rc = frame_begin(out, CONTROL_STALL_RANKS, bytes);
    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)m->id);
    hb_buf_put_u32(out, (uint32_t)m->count);
    for (int i = 0; i < m->count; i++)
        put_rank(out, &m->ranks[i]);
    return 0;
}

static void read_words(struct hb_reader *r, uint64_t words[STATUS_SETS_WORDS])
{
    for (int w = 0; w < STATUS_SETS_WORDS; w++)
        words[w] = hb_read_u64(r);
}

/* Any u8 is the number of a set. */
_Static_assert(STATUS_SETS_MAX == UINT8_MAX + 1, "a set's number is a u8");

static void read_op(struct hb_reader *r, struct control_stall_op *op)
{
    uint64_t age = hb_read_u64(r);
    unsigned kind, set, where;

    op->key = hb_read_u64(r);
    kind = hb_read_u8(r);
    set = hb_read_u8(r);
    where = hb_read_u8(r);
    hb_read_text(r, hb_read_u8(r), op->name, sizeof(op->name));
    if (age > CONTROL_STALL_MAX_MS || kind >= STATUS_KINDS ||
        where >= STATUS_WHERES) {
        r->bad = 1;
        return;
    }
    op->age_ms = (int64_t)age;
    op->kind = (enum status_kind)kind;
    op->set = (int)set;
    op->where = (enum status_where)where;
}

static void read_numbers(struct hb_reader *r, struct control_stall_rank *m)
{
    uint32_t rank = hb_read_u32(r), pid = hb_read_u32(r), cpu, total;
    uint8_t flags;
    uint64_t calls;

    m->state = hb_read_u8(r);
    flags = hb_read_u8(r);
    cpu = hb_read_u16(r);
    calls = hb_read_u64(r);
    read_op(r, &m->last);
    read_words(r, m->sets);
    total = hb_read_u32(r);
    m->count = hb_read_u8(r);
    if (rank >= CONTROL_RANKS_MAX || pid > INT_MAX || flags & ~FLAG_ALL ||
        calls > INT64_MAX || total > INT_MAX || m->count > STATUS_WAITS_MAX ||
        m->count > (int)total || m->state > 'z') {
        r->bad = 1;
        m->count = 0;
        return;
    }
    m->rank = (int)rank;
    m->pid = (pid_t)pid;
    m->known = (flags & FLAG_KNOWN) != 0;
    m->fresh = (flags & FLAG_FRESH) != 0;
    m->inside = (flags & FLAG_INSIDE) != 0;
    m->in_init = (flags & FLAG_IN_INIT) != 0;
    m->cpu_percent = cpu == CPU_UNKNOWN ? -1 : (int)cpu;
    m->calls = (int64_t)calls;
    m->total = (int)total;
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

    read_numbers(r, m);
    count = m->count;
    m->count = 0;
    if (count)
        m->waits = hb_calloc((size_t)count, sizeof(*m->waits));
    if (count && !m->waits)
        return -HVD_ENOMEM;
    for (; m->count < count; m->count++)
        read_op(r, &m->waits[m->count]);
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
                      uint32_t count)
{
    for (uint32_t i = 0; i < count && !r->bad; i++) {
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
    uint32_t id, count;
    int rc;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    id = hb_read_u32(&r);
    count = hb_read_u32(&r);
    if (r.bad || id > INT_MAX || count < 1 || count > CONTROL_LOCAL_MAX ||
        r.left / RANK_BYTES < count)
        return refuse(err, "stall_ranks", "wrong length or number");
    m->id = (int)id;
    m->ranks = hb_calloc(count, sizeof(*m->ranks));
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
    int rc = frame_begin(out, CONTROL_STALL_STACK, 9 + len);

    if (rc < 0)
        return rc;
    hb_buf_put_u32(out, (uint32_t)m->id);
    hb_buf_put_u32(out, (uint32_t)m->rank);
    hb_buf_put_u8(out, m->found != 0);
    return hb_buf_append(out, m->text, len);
}

int control_decode_stall_stack(const void *p, size_t len,
                               struct control_stall_stack *m,
                               struct hb_error *err)
{
    struct hb_reader r;
    uint32_t id, rank;
    uint8_t found;

    memset(m, 0, sizeof(*m));
    hb_reader_init(&r, p, len);
    id = hb_read_u32(&r);
    rank = hb_read_u32(&r);
    found = hb_read_u8(&r);
    if (r.bad || r.left > CONTROL_STACK_BYTES ||
        (r.left && memchr(r.p, '\0', r.left)))
        return refuse(err, "stall_stack", "wrong length, or not a text");
    if (id > INT_MAX || rank >= CONTROL_RANKS_MAX || found > 1)
        return refuse(err, "stall_stack", "a field is out of range");
    m->text = hb_strndup((const char *)r.p, r.left);
    if (!m->text)
        return hb_error_set(err, HVD_ENOMEM, "stall_stack: out of memory");
    m->id = (int)id;
    m->rank = (int)rank;
    m->found = found;
    return 0;
}

void control_stall_stack_fini(struct control_stall_stack *m)
{
    hb_free(m->text);
    memset(m, 0, sizeof(*m));
}
