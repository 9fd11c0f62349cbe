/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/worker.h: every message encoded and decoded, and refused. */
#include "lib/protocol/worker.h"
#include "tests/unit/unit_frame.h"

#include <stdio.h>
#include <string.h>

static void make_welcome(struct worker_welcome *m, uint32_t local_size)
{
    uint32_t i;

    memset(m, 0, sizeof(*m));
    m->size = local_size + 10;
    m->local_size = m->local_count = local_size;
    m->local_rank = local_size - 1;
    m->rank = 5 + m->local_rank;
    m->cross_rank = 1;
    m->cross_size = 3;
    m->host_index = 1;
    m->host_count = 3;
    m->cpus = 8;
    m->generation = 7;
    m->joined = 2;
    snprintf(m->why, sizeof(m->why), "rank 3 on host n2: exit code 1");
    snprintf(m->host, sizeof(m->host), "node7.example.org");
    snprintf(m->job_id, sizeof(m->job_id), "0123456789abcdef");
    for (i = 0; i < WORKER_SECRET_BYTES; i++)
        m->secret[i] = (unsigned char)(255 - i);
    for (i = 0; i < local_size; i++) {
        m->local_ranks[i] = 5 + i;
        m->local_domains[i] = i / 2;
    }
}

START_TEST(test_hello)
{
    struct worker_hello m = {WORKER_ABI, 7, 4321}, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(worker_encode_hello(&b, &m), 0);
    f = only_frame(&b, WORKER_HELLO);
    ck_assert_int_eq(worker_decode_hello(f.payload, f.len, &got), 0);
    ck_assert_uint_eq(got.abi, WORKER_ABI);
    ck_assert_uint_eq(got.rank, 7);
    ck_assert_uint_eq(got.pid, 4321);
    ck_assert_int_eq(worker_decode_hello(f.payload, f.len - 1, &got),
                     -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_hello("0123456789abc", 13, &got),
                     -HVD_EPROTO);
    ck_assert_int_eq(
        worker_decode_hello("\0\0\0\1\xff\xff\xff\xff\0\0\0\1", 12, &got),
        -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_hello(NULL, 0, &got), -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_welcome_round_trip)
{
    static const uint32_t sizes[] = {1, 2, 64, WORKER_LOCAL_MAX};
    static struct worker_welcome m, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    size_t i;

    for (i = 0; i < 4; i++) {
        make_welcome(&m, sizes[i]);
        hb_buf_clear(&b);
        ck_assert_int_eq(worker_encode_welcome(&b, &m), 0);
        f = only_frame(&b, WORKER_WELCOME);
        memset(&got, 0xee, sizeof(got));
        ck_assert_int_eq(worker_decode_welcome(f.payload, f.len, &got), 0);
        ck_assert_uint_eq(got.rank, m.rank);
        ck_assert_uint_eq(got.size, m.size);
        ck_assert_uint_eq(got.local_rank, m.local_rank);
        ck_assert_uint_eq(got.local_size, m.local_size);
        ck_assert_uint_eq(got.cross_rank, m.cross_rank);
        ck_assert_uint_eq(got.cross_size, m.cross_size);
        ck_assert_uint_eq(got.cpus, m.cpus);
        ck_assert_uint_eq(got.local_count, m.local_count);
        ck_assert_str_eq(got.host, m.host);
        ck_assert_str_eq(got.job_id, m.job_id);
        ck_assert_uint_eq(got.generation, 7);
        ck_assert_uint_eq(got.joined, 2);
        ck_assert_str_eq(got.why, m.why);
        ck_assert_mem_eq(got.secret, m.secret, sizeof(m.secret));
        ck_assert_mem_eq(got.local_ranks, m.local_ranks, 4 * sizes[i]);
        ck_assert_mem_eq(got.local_domains, m.local_domains, 4 * sizes[i]);
    }
    hb_buf_free(&b);
}
END_TEST

/* Any other payload length is refused. */
START_TEST(test_welcome_lengths)
{
    static struct worker_welcome m, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    size_t len;

    make_welcome(&m, 3);
    worker_encode_welcome(&b, &m);
    hb_buf_putc(&b, 'x');
    frame_decode(&b, WORKER_PAYLOAD_MAX, &f, NULL);
    got.rank = 77;
    for (len = 0; len < f.len; len++)
        ck_assert_int_eq(worker_decode_welcome(f.payload, len, &got),
                         -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_welcome(f.payload, f.len + 1, &got),
                     -HVD_EPROTO);
    ck_assert_uint_eq(got.rank, 77);
    hb_buf_free(&b);
}
END_TEST

enum damage {
    NO_SIZE,
    HUGE_SIZE,
    RANK,
    NO_LOCAL,
    LOCAL_OVER_SIZE,
    LOCAL_RANK,
    CROSS_RANK,
    CROSS_SIZE,
    COUNT,
    FOREIGN_RANK,
    WRONG_OWN_RANK,
    DOMAIN,
    GENERATION,
    JOINED,
    CPUS,
    DAMAGES
};

static void damage(struct worker_welcome *m, enum damage what)
{
    switch (what) {
    case NO_SIZE:
        m->size = 0;
        break;
    case HUGE_SIZE:
        m->size = 0x80000000u;
        break;
    case RANK:
        m->rank = m->size;
        break;
    case NO_LOCAL:
        m->local_size = m->local_count = 0;
        break;
    case LOCAL_OVER_SIZE:
        m->size = m->local_size - 1;
        break;
    case LOCAL_RANK:
        m->local_rank = m->local_size;
        break;
    case CROSS_RANK:
        m->cross_rank = m->cross_size;
        break;
    case CROSS_SIZE:
        m->cross_size = m->size + 1;
        break;
    case COUNT:
        m->local_count--;
        break;
    case FOREIGN_RANK:
        m->local_ranks[0] = m->size;
        break;
    case WRONG_OWN_RANK:
        m->local_ranks[m->local_rank] = 0;
        break;
    case DOMAIN:
        m->local_domains[1] = m->local_size;
        break;
    case GENERATION:
        m->generation = 0x80000000u;
        break;
    case JOINED:
        m->joined = m->size + 1;
        break;
    default:
        m->cpus = 0xffffffffu;
        break;
    }
}

/* Stores a u32 at an offset of a WELCOME payload with make_welcome's
 * strings. */
static void put_be(char *payload, size_t offset, uint32_t v)
{
    payload[offset] = (char)(v >> 24);
    payload[offset + 1] = (char)(v >> 16);
    payload[offset + 2] = (char)(v >> 8);
    payload[offset + 3] = (char)v;
}

static void encode_unchecked(struct hb_buf *b, const struct worker_welcome *m)
{
    static struct worker_welcome good;
    size_t after =
        24 + 2 + strlen(m->host) + 2 + strlen(m->job_id) + WORKER_SECRET_BYTES;
    char *p;
    uint32_t i;

    make_welcome(&good, 4);
    worker_encode_welcome(b, &good);
    hb_buf_consume(b, FRAME_HEADER_BYTES);
    p = hb_buf_data(b);
    put_be(p, 0, m->rank);
    put_be(p, 4, m->size);
    put_be(p, 8, m->local_rank);
    put_be(p, 12, m->local_size);
    put_be(p, 16, m->cross_rank);
    put_be(p, 20, m->cross_size);
    put_be(p, after, m->cpus);
    put_be(p, after + 4, m->local_count);
    for (i = 0; i < 4; i++)
        put_be(p, after + 8 + 4 * i, m->local_ranks[i]);
    for (i = 0; i < 4; i++)
        put_be(p, after + 24 + 4 * i, m->local_domains[i]);
    put_be(p, after + 48, m->generation);
    put_be(p, after + 52, m->joined);
}

/* Numbers that no world can have are neither encoded nor decoded. */
START_TEST(test_welcome_ranges)
{
    static struct worker_welcome m, got;
    struct hb_buf b = HB_BUF_INIT;

    make_welcome(&m, 4);
    encode_unchecked(&b, &m);
    ck_assert_int_eq(
        worker_decode_welcome(hb_buf_data(&b), hb_buf_len(&b), &got), 0);
    hb_buf_clear(&b);
    damage(&m, (enum damage)_i);
    ck_assert_int_eq(worker_encode_welcome(&b, &m), -HVD_EINVAL);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    encode_unchecked(&b, &m);
    ck_assert_int_eq(
        worker_decode_welcome(hb_buf_data(&b), hb_buf_len(&b), &got),
        -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_welcome_strings)
{
    static struct worker_welcome m, got;
    struct hb_buf b = HB_BUF_INIT;
    char *p;

    make_welcome(&m, 1);
    memset(m.host, 'h', sizeof(m.host));
    ck_assert_int_eq(worker_encode_welcome(&b, &m), -HVD_EINVAL);
    m.host[sizeof(m.host) - 1] = '\0';
    ck_assert_int_eq(worker_encode_welcome(&b, &m), 0);
    hb_buf_consume(&b, FRAME_HEADER_BYTES);
    p = hb_buf_data(&b);
    ck_assert_int_eq(worker_decode_welcome(p, hb_buf_len(&b), &got), 0);
    ck_assert_str_eq(got.host, m.host);
    p[26] = '\0'; /* inside the host name */
    ck_assert_int_eq(worker_decode_welcome(p, hb_buf_len(&b), &got),
                     -HVD_EPROTO);
    p[26] = 'h';
    p[24] = 1; /* its length becomes 511 */
    ck_assert_int_eq(worker_decode_welcome(p, hb_buf_len(&b), &got),
                     -HVD_EPROTO);
    hb_buf_clear(&b);
    make_welcome(&m, 1);
    memset(m.why, 'w', sizeof(m.why));
    ck_assert_int_eq(worker_encode_welcome(&b, &m), -HVD_EINVAL);
    m.why[sizeof(m.why) - 1] = '\0';
    ck_assert_int_eq(worker_encode_welcome(&b, &m), 0);
    hb_buf_consume(&b, FRAME_HEADER_BYTES);
    p = hb_buf_data(&b);
    ck_assert_int_eq(worker_decode_welcome(p, hb_buf_len(&b), &got), 0);
    ck_assert_str_eq(got.why, m.why);
    p[hb_buf_len(&b) - 1] = '\0'; /* inside the text */
    ck_assert_int_eq(worker_decode_welcome(p, hb_buf_len(&b), &got),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_refused)
{
    char longest[400], text[WORKER_TEXT_MAX], tiny[4];
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    worker_encode_refused(&b, "wrong uid");
    f = only_frame(&b, WORKER_REFUSED);
    ck_assert_int_eq(worker_decode_refused(f.payload, f.len, text, 256), 0);
    ck_assert_str_eq(text, "wrong uid");
    ck_assert_int_eq(worker_decode_refused(f.payload, f.len, tiny, 4), 0);
    ck_assert_str_eq(tiny, "wro");
    ck_assert_int_eq(worker_decode_refused(f.payload, f.len, tiny, 0),
                     -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_refused("a\0b", 3, text, 256), -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_refused(NULL, 0, text, 256), 0);
    ck_assert_str_eq(text, "");
    memset(longest, 'x', sizeof(longest));
    ck_assert_int_eq(worker_decode_refused(longest, 256, text, 256),
                     -HVD_EPROTO);
    longest[399] = '\0';
    hb_buf_clear(&b);
    worker_encode_refused(&b, longest);
    f = only_frame(&b, WORKER_REFUSED);
    ck_assert_int_eq(worker_decode_refused(f.payload, f.len, text, 256), 0);
    ck_assert_uint_eq(strlen(text), WORKER_TEXT_MAX - 1);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_join_and_segment)
{
    struct worker_join join = {3, UINT64_C(0x123456789abcdef0)}, got_join;
    struct worker_segment seg = {4, 4096}, got_seg;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(worker_encode_join(&b, &join), 0);
    f = only_frame(&b, WORKER_JOIN);
    ck_assert_int_eq(worker_decode_join(f.payload, f.len, &got_join), 0);
    ck_assert_uint_eq(got_join.epoch, 3);
    ck_assert(got_join.segment_bytes == join.segment_bytes);
    ck_assert_int_eq(worker_decode_join(f.payload, f.len - 1, &got_join),
                     -HVD_EPROTO);
    hb_buf_clear(&b);
    ck_assert_int_eq(worker_encode_segment(&b, &seg), 0);
    f = only_frame(&b, WORKER_SEGMENT);
    ck_assert_int_eq(worker_decode_segment(f.payload, f.len, &got_seg), 0);
    ck_assert_uint_eq(got_seg.epoch, 4);
    ck_assert(got_seg.segment_bytes == 4096);
    /* epochs count from 1 */
    ck_assert_int_eq(
        worker_decode_segment("\0\0\0\0\0\0\0\0\0\0\0\1", 12, &got_seg),
        -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_abort)
{
    struct worker_abort m = {3, "rank 3 on host a: killed"}, got;
    struct hb_buf b = HB_BUF_INIT;
    char payload[4 + WORKER_TEXT_MAX] = {0};
    struct frame f;

    ck_assert_int_eq(worker_encode_abort(&b, &m), 0);
    f = only_frame(&b, WORKER_ABORT);
    ck_assert_int_eq(worker_decode_abort(f.payload, f.len, &got), 0);
    ck_assert_uint_eq(got.rank, 3);
    ck_assert_str_eq(got.text, m.text);
    ck_assert_int_eq(worker_decode_abort(f.payload, 3, &got), -HVD_EPROTO);
    memset(payload + 4, 'x', WORKER_TEXT_MAX);
    ck_assert_int_eq(worker_decode_abort(payload, sizeof(payload), &got),
                     -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_abort(payload, sizeof(payload) - 1, &got),
                     0);
    ck_assert_uint_eq(strlen(got.text), WORKER_TEXT_MAX - 1);
    payload[0] = (char)0x80;
    ck_assert_int_eq(worker_decode_abort(payload, 8, &got), -HVD_EPROTO);
    /* a text without its final 0 is not read beyond its end */
    memset(m.text, 'y', sizeof(m.text));
    hb_buf_clear(&b);
    ck_assert_int_eq(worker_encode_abort(&b, &m), 0);
    f = only_frame(&b, WORKER_ABORT);
    ck_assert_uint_eq(f.len, 4 + WORKER_TEXT_MAX - 1);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_leave)
{
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    uint32_t epoch;

    ck_assert_int_eq(worker_encode_leave(&b, 9), 0);
    f = only_frame(&b, WORKER_LEAVE);
    ck_assert_int_eq(worker_decode_leave(f.payload, f.len, &epoch), 0);
    ck_assert_uint_eq(epoch, 9);
    ck_assert_int_eq(worker_decode_leave("\0\0\0\0", 4, &epoch), -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_leave("\0\0\0\1x", 5, &epoch), -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_no_answer)
{
    const struct worker_no_answer m = {7, INT32_MAX};
    unsigned char bytes[WORKER_NO_ANSWER_BYTES];
    struct worker_no_answer got;

    worker_write_no_answer(bytes, &m);
    ck_assert_int_eq(
        worker_decode_no_answer(bytes + FRAME_HEADER_BYTES, 8, &got), 0);
    ck_assert_uint_eq(got.rank, 7);
    ck_assert_uint_eq(got.generation, INT32_MAX);
    ck_assert_int_lt(worker_decode_no_answer("\200\0\0\0\0\0\0\1", 8, &got), 0);
    ck_assert_int_lt(worker_decode_no_answer("\0\0\0\1\200\0\0\0", 8, &got), 0);
    ck_assert_int_lt(worker_decode_no_answer("\0\0\0\1\0\0\0", 7, &got), 0);
}
END_TEST

START_TEST(test_late)
{
    unsigned char bytes[WORKER_LATE_BYTES];
    uint32_t ms = 5;

    worker_write_late(bytes, 30000);
    ck_assert_int_eq(worker_decode_late(bytes + FRAME_HEADER_BYTES, 4, &ms), 0);
    ck_assert_uint_eq(ms, 30000);
    ck_assert_int_lt(worker_decode_late("\200\0\0\0", 4, &ms), 0);
    ck_assert_int_lt(worker_decode_late("\0\0\0", 3, &ms), 0);
}
END_TEST

START_TEST(test_blames)
{
    unsigned char bytes[WORKER_BLAMES_BYTES];
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    uint32_t rank = 5;

    worker_write_blames(bytes, INT32_MAX);
    ck_assert_int_eq(hb_buf_append(&b, bytes, sizeof(bytes)), 0);
    ck_assert_int_eq(frame_decode(&b, WORKER_PAYLOAD_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, WORKER_BLAMES);
    ck_assert_int_lt(worker_decode_blames(f.payload, f.len - 1, &rank), 0);
    ck_assert_int_lt(worker_decode_blames("\200\0\0\0", 4, &rank), 0);
    ck_assert_int_lt(worker_decode_blames("\0\0\0\0\0", 5, &rank), 0);
    ck_assert_uint_eq(rank, 5);
    ck_assert_int_eq(worker_decode_blames(f.payload, f.len, &rank), 0);
    ck_assert_uint_eq(rank, INT32_MAX);
    hb_buf_free(&b);
}
END_TEST

static int encode_all(void *arg)
{
    struct worker_hello hello = {1, 2, 3};
    struct worker_join join = {1, 2};
    struct worker_segment seg = {1, 2};
    struct worker_abort abort_message = {1, "text"};
    struct hb_buf b[7];
    int rc[7], i, worst = 0;

    memset(b, 0, sizeof(b));
    rc[0] = worker_encode_hello(&b[0], &hello);
    rc[1] = worker_encode_welcome(&b[1], arg);
    rc[2] = worker_encode_refused(&b[2], "no");
    rc[3] = worker_encode_join(&b[3], &join);
    rc[4] = worker_encode_segment(&b[4], &seg);
    rc[5] = worker_encode_abort(&b[5], &abort_message);
    rc[6] = worker_encode_leave(&b[6], 1);
    for (i = 0; i < 7; i++) {
        ck_assert_int_eq(rc[i] < 0, hb_buf_len(&b[i]) == 0);
        worst = rc[i] < 0 ? rc[i] : worst;
        hb_buf_free(&b[i]);
    }
    return worst;
}

START_TEST(test_allocation_failures)
{
    static struct worker_welcome m;

    make_welcome(&m, 4);
    unit_fail_each(encode_all, &m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("worker");
    TCase *c = tcase_create("worker");

    tcase_add_test(c, test_hello);
    tcase_add_test(c, test_welcome_round_trip);
    tcase_add_test(c, test_welcome_lengths);
    tcase_add_loop_test(c, test_welcome_ranges, 0, DAMAGES);
    tcase_add_test(c, test_welcome_strings);
    tcase_add_test(c, test_refused);
    tcase_add_test(c, test_join_and_segment);
    tcase_add_test(c, test_abort);
    tcase_add_test(c, test_leave);
    tcase_add_test(c, test_late);
    tcase_add_test(c, test_no_answer);
    tcase_add_test(c, test_blames);
    tcase_add_test(c, test_allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
