/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary messages that tables of fields describe, byte by byte: of workers,
 * and about ranks that wait.  A table changes no byte of a message by chance.
 */
#include "lib/protocol/control/control.h"
#include "lib/protocol/worker.h"
#include "tests/unit/unit_frame.h"

#include <stdio.h>
#include <string.h>

static int put_hello(struct hb_buf *b)
{
    return worker_encode_hello(b, &(struct worker_hello){WORKER_ABI, 3, 4711});
}

static int put_welcome(struct hb_buf *b)
{
    struct worker_welcome m = {.rank = 5,
                               .size = 6,
                               .local_rank = 1,
                               .local_size = 2,
                               .cross_rank = 2,
                               .cross_size = 3,
                               .host = "n\xff",
                               .job_id = "4e",
                               .cpus = 16,
                               .local_count = 2,
                               .local_ranks = {4, 5},
                               .local_domains = {0, 1},
                               .host_index = 2,
                               .host_count = 3,
                               .generation = 7,
                               .joined = 1,
                               .why = "w"};

    for (int i = 0; i < WORKER_SECRET_BYTES; i++)
        m.secret[i] = (unsigned char)(i * 7);
    return worker_encode_welcome(b, &m);
}

static int put_join(struct hb_buf *b)
{
    return worker_encode_join(b, &(struct worker_join){2, 0x123456789ab});
}

static int put_segment(struct hb_buf *b)
{
    return worker_encode_segment(b, &(struct worker_segment){2, 1 << 20});
}

static int put_abort(struct hb_buf *b)
{
    return worker_encode_abort(b, &(struct worker_abort){3, "killed"});
}

static int put_timeout(struct hb_buf *b)
{
    return worker_encode_timeout(b, &(struct worker_abort){UINT32_MAX, ""});
}

static int put_leave(struct hb_buf *b)
{
    return worker_encode_leave(b, 258);
}

static int put_worker_stalled(struct hb_buf *b)
{
    unsigned char out[WORKER_STALLED_BYTES];

    worker_write_stalled(out, &(struct worker_stalled){61000, 60000, 1});
    return hb_buf_append(b, out, sizeof(out));
}

static int put_blames(struct hb_buf *b)
{
    unsigned char out[WORKER_BLAMES_BYTES];

    worker_write_blames(out, 772);
    return hb_buf_append(b, out, sizeof(out));
}

static int put_worker_late(struct hb_buf *b)
{
    unsigned char out[WORKER_LATE_BYTES];

    worker_write_late(out, 65537);
    return hb_buf_append(b, out, sizeof(out));
}

static int put_late(struct hb_buf *b)
{
    return control_encode_late(b, &(struct control_late){1, 61000});
}

static int put_stalled(struct hb_buf *b)
{
    struct control_stalled m = {7, 61000, 60000, 600000};

    return control_encode_stalled(b, &m);
}

static int put_stall_ask(struct hb_buf *b)
{
    struct control_stall_ask m = {9, {1, 300, 65535}, 3};

    return control_encode_stall_ask(b, &m);
}

static int put_stall_ranks(struct hb_buf *b)
{
    struct control_stall_op waits[2] = {
        {99, 0x0102030405060708, STATUS_ALLGATHER, 255, STATUS_ON_DEVICE,
         "g\xff"},
        {1, UINT64_MAX, STATUS_BARRIER, 0, STATUS_NOT_REACHED, ""},
    };
    struct control_stall_rank ranks[2] = {
        {.rank = 2, .pid = 4711, .state = 'S', .cpu_percent = -1},
        {.rank = 3,
         .pid = 2147483647,
         .cpu_percent = 258,
         .in_init = 1,
         .known = 1,
         .fresh = 1,
         .inside = 1,
         .calls = 77,
         .last = {5000, 3, STATUS_ALLREDUCE, 1, STATUS_ON_DEVICE, "grad"},
         .total = 9,
         .waits = waits,
         .count = 2},
    };
    struct control_stall_ranks m = {4, ranks, 2};

    ranks[1].sets[0] = 5;
    ranks[1].launched[1] = 6;
    ranks[1].carried_out[0] = 7;
    ranks[1].carried_out[STATUS_SETS_MAX - 1] = 8;
    return control_encode_stall_ranks(b, &m);
}

static int put_stall_stack(struct hb_buf *b)
{
    struct control_stall_stack m = {4, 3, 1, (char *)"#0 main\n"};

    return control_encode_stall_stack(b, &m);
}

static int put_stdin_ack(struct hb_buf *b)
{
    return control_encode_stdin_ack(b, 3, 65536);
}

static int put_ping(struct hb_buf *b)
{
    return control_encode_ping(b, 0x0102030405060708, 5000);
}

static int put_pong(struct hb_buf *b)
{
    return control_encode_pong(b, 1, UINT64_MAX);
}

static const struct {
    int (*put)(struct hb_buf *b);
    int type;
    const char *payload; /* digits */
} messages[] = {
    {put_hello, WORKER_HELLO, "0000000a0000000300001267"},
    {put_welcome, WORKER_WELCOME,
     "00000005000000060000000100000002000000020000000300026eff0002346500070e15"
     "1c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d90000001000000002"
     "00000004000000050000000000000001000000020000000300000007000000010000000"
     "0000177"},
    {put_join, WORKER_JOIN, "0000000200000123456789ab"},
    {put_segment, WORKER_SEGMENT, "000000020000000000100000"},
    {put_abort, WORKER_ABORT, "000000036b696c6c6564"},
    {put_timeout, WORKER_TIMEOUT, "ffffffff"},
    {put_leave, WORKER_LEAVE, "00000102"},
    {put_worker_stalled, WORKER_STALLED, "0000ee480000ea6000000001"},
    {put_blames, WORKER_BLAMES, "00000304"},
    {put_worker_late, WORKER_LATE, "00010001"},
    {put_late, CONTROL_LATE, "000000010000ee48"},
    {put_stalled, CONTROL_STALLED, "000000070000ee480000ea60000927c0"},
    {put_stall_ask, CONTROL_STALL_ASK, "00000009000000010000012c0000ffff"},
    {put_stall_ranks, CONTROL_STALL_RANKS,
     "000000040000000200000002000012675300ffff00000000000000000000000000000000"
     "000000000000000000000000000000000000000000000000000000000000000000000000"
     "000000000000000000000000000000000000000000000000000000000000000000000000"
     "000000000000000000000000000000000000000000000000000000000000000000000000"
     "0000000000000000037fffffff000f0102000000000000004d0000000000001388000000"
     "000000000300010104677261640000000000000005000000000000000000000000000000"
     "00000000000000000000000009020000000000000063010203040506070802ff010267ff"
     "0000000000000001ffffffffffffffff0300020000000000000000020000000000000000"
     "000000000000000000000000000000000000000000000006000000000000000100000000"
     "00000000000000000000000080000000000000000000000000000007000000000000000"
     "8"},
    {put_stall_stack, CONTROL_STALL_STACK,
     "0000000400000003012330206d61696e0a"},
    {put_stdin_ack, CONTROL_STDIN_ACK, "0000000300010000"},
    {put_ping, CONTROL_PING, "010203040506070800001388"},
    {put_pong, CONTROL_PONG, "0000000000000001ffffffffffffffff"},
};
enum { MESSAGES = sizeof(messages) / sizeof(messages[0]) };

START_TEST(test_bytes)
{
    const char *payload = messages[_i].payload;
    char digits[2 * 512 + 1] = "";
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(messages[_i].put(&b), 0);
    f = only_frame(&b, messages[_i].type);
    ck_assert_uint_le(f.len, 512);
    for (size_t i = 0; i < f.len; i++)
        snprintf(digits + 2 * i, 3, "%02x",
                 ((const unsigned char *)f.payload)[i]);
    ck_assert_str_eq(digits, payload);
    hb_buf_free(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wire");
    TCase *c = tcase_create("wire");

    tcase_add_loop_test(c, test_bytes, 0, MESSAGES);
    suite_add_tcase(s, c);
    return unit_run(s);
}
