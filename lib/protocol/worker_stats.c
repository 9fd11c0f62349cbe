/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's statistics as a message; see worker_stats.h.  Linked into libhvd:
 * libc only. */
#include "lib/protocol/worker_stats.h"

#include "lib/protocol/worker.h"

#include <string.h>

enum {
    COUNTERS = 9,
    ROW_BYTES = 2 + 4 * 8,
    BLAMED_BYTES = 4 + 8,
};

_Static_assert(2 + WORKER_STATS_KINDS * WORKER_STATS_CLASSES * ROW_BYTES +
                       COUNTERS * 8 + 2 + WORKER_STATS_BLAMED * BLAMED_BYTES <=
                   WORKER_STATS_MAX,
               "the largest message has room");

/* ---- Adding --------------------------------------------------------- */

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Returns the index of the rank, or else the one that it may take. */
static uint32_t place_of(struct worker_stats *m, uint32_t rank)
{
    uint32_t least = 0;

    for (uint32_t i = 0; i < m->blamed_count; i++) {
        if (m->blamed[i].rank == rank)
            return i;
        if (m->blamed[i].waited_ns < m->blamed[least].waited_ns)
            least = i;
    }
    return m->blamed_count < WORKER_STATS_BLAMED ? m->blamed_count : least;
}

void worker_stats_blame(struct worker_stats *m, uint32_t rank,
                        uint64_t waited_ns)
{
    uint32_t i = place_of(m, rank);

    if (waited_ns == 0)
        return;
    if (i < m->blamed_count && m->blamed[i].rank == rank) {
        m->blamed[i].waited_ns = plus(m->blamed[i].waited_ns, waited_ns);
        return;
    }
    if (i == m->blamed_count)
        m->blamed_count++;
    else if (m->blamed[i].waited_ns >= waited_ns)
        return;
    m->blamed[i].rank = rank;
    m->blamed[i].waited_ns = waited_ns;
}

/* Lists the counters in the order of the message. */
static void list_counters(struct worker_stats *m, uint64_t *list[COUNTERS])
{
    list[0] = &m->operations;
    list[1] = &m->fused;
    list[2] = &m->learned;
    list[3] = &m->guessed;
    list[4] = &m->cuts;
    list[5] = &m->negotiations;
    list[6] = &m->errors;
    list[7] = &m->device_timed;
    list[8] = &m->device_ns;
}

void worker_stats_add(struct worker_stats *sum, const struct worker_stats *m)
{
    struct worker_stats more = *m;
    uint64_t *to[COUNTERS], *from[COUNTERS];

    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++) {
            struct worker_stats_row *t = &sum->rows[k][c];
            const struct worker_stats_row *f = &m->rows[k][c];

            t->count = plus(t->count, f->count);
            t->bytes = plus(t->bytes, f->bytes);
            t->time_ns = plus(t->time_ns, f->time_ns);
            t->wait_ns = plus(t->wait_ns, f->wait_ns);
        }
    list_counters(sum, to);
    list_counters(&more, from);
    for (int i = 0; i < COUNTERS; i++)
        *to[i] = plus(*to[i], *from[i]);
    for (uint32_t i = 0; i < m->blamed_count; i++)
        worker_stats_blame(sum, m->blamed[i].rank, m->blamed[i].waited_ns);
}

/* ---- Writing -------------------------------------------------------- */

static uint16_t count_rows(const struct worker_stats *m)
{
    uint16_t n = 0;

    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++)
            n = (uint16_t)(n + (m->rows[k][c].count > 0));
    return n;
}

static void put_rows(struct hb_buf *out, const struct worker_stats *m)
{
    for (int k = 0; k < WORKER_STATS_KINDS; k++)
        for (int c = 0; c < WORKER_STATS_CLASSES; c++) {
            const struct worker_stats_row *row = &m->rows[k][c];

            if (row->count == 0)
                continue;
            hb_buf_put_u8(out, (uint8_t)k);
            hb_buf_put_u8(out, (uint8_t)c);
            hb_buf_put_u64(out, row->count);
            hb_buf_put_u64(out, row->bytes);
            hb_buf_put_u64(out, row->time_ns);
            hb_buf_put_u64(out, row->wait_ns);
        }
}

static size_t bytes_of(const struct worker_stats *m)
{
    return 2 + (size_t)count_rows(m) * ROW_BYTES + COUNTERS * 8 + 2 +
           (size_t)m->blamed_count * BLAMED_BYTES;
}

/* Appends the whole payload or nothing: it is reserved first. */
int worker_stats_write(struct hb_buf *out, const struct worker_stats *m)
{
    struct worker_stats copy = *m;
    uint64_t *counters[COUNTERS];
    int rc = hb_buf_reserve(out, bytes_of(m));

    if (rc < 0)
        return rc;
    hb_buf_put_u16(out, count_rows(m));
    put_rows(out, m);
    list_counters(&copy, counters);
    for (int i = 0; i < COUNTERS; i++)
        hb_buf_put_u64(out, *counters[i]);
    hb_buf_put_u16(out, (uint16_t)m->blamed_count);
    for (uint32_t i = 0; i < m->blamed_count; i++) {
        hb_buf_put_u32(out, m->blamed[i].rank);
        hb_buf_put_u64(out, m->blamed[i].waited_ns);
    }
    return 0;
}

int worker_encode_stats(struct hb_buf *out, const struct worker_stats *m)
{
    int rc = frame_begin(out, WORKER_STATS, bytes_of(m));

    return rc < 0 ? rc : worker_stats_write(out, m);
}

/* ---- Reading -------------------------------------------------------- */

/* Takes the rows, which must ascend, so that none appears twice. */
static int take_rows(struct hb_reader *r, struct worker_stats *m)
{
    unsigned n = hb_read_u16(r), before = 0;

    for (unsigned i = 0; i < n && !r->bad; i++) {
        unsigned k = hb_read_u8(r), c = hb_read_u8(r);
        unsigned at = k * WORKER_STATS_CLASSES + c + 1;

        if (k >= WORKER_STATS_KINDS || c >= WORKER_STATS_CLASSES ||
            at <= before)
            return -HVD_EPROTO;
        before = at;
        m->rows[k][c].count = hb_read_u64(r);
        m->rows[k][c].bytes = hb_read_u64(r);
        m->rows[k][c].time_ns = hb_read_u64(r);
        m->rows[k][c].wait_ns = hb_read_u64(r);
        if (m->rows[k][c].count == 0)
            return -HVD_EPROTO;
    }
    return 0;
}

static int take_blamed(struct hb_reader *r, struct worker_stats *m)
{
    unsigned n = hb_read_u16(r);

    if (n > WORKER_STATS_BLAMED)
        return -HVD_EPROTO;
    for (unsigned i = 0; i < n; i++) {
        m->blamed[i].rank = hb_read_u32(r);
        m->blamed[i].waited_ns = hb_read_u64(r);
    }
    m->blamed_count = n;
    return 0;
}

int worker_stats_read(const void *p, size_t len, struct worker_stats *m)
{
    struct worker_stats got;
    uint64_t *counters[COUNTERS];
    struct hb_reader r;

    memset(&got, 0, sizeof(got));
    hb_reader_init(&r, p, len);
    if (take_rows(&r, &got) < 0)
        return -HVD_EPROTO;
    list_counters(&got, counters);
    for (int i = 0; i < COUNTERS; i++)
        *counters[i] = hb_read_u64(&r);
    if (take_blamed(&r, &got) < 0 || r.bad || r.left)
        return -HVD_EPROTO;
    *m = got;
    return 0;
}

/* ---- Names ---------------------------------------------------------- */

const char *worker_stats_class(int class)
{
    static const char *const limits[WORKER_STATS_CLASSES] = {
        "64 B", "1 KiB", "16 KiB", "256 KiB", "4 MiB", "64 MiB", "1 GiB", ""};

    return class >= 0 && class < WORKER_STATS_CLASSES ? limits[class] : "?";
}
