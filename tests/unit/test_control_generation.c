/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/control/control_generation.h: READY and GENERATION encoded and
 * decoded, and refused. */
#include "lib/protocol/control/control.h"
#include "tests/unit/unit_frame.h"

#include <string.h>

START_TEST(ready)
{
    static const struct {
        int rank, ready;
    } some[] = {{0, 0}, {0, 1}, {7, 1}, {CONTROL_RANKS_MAX - 1, 0}};
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    int rank, is_ready;

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        hb_buf_clear(&b);
        ck_assert_int_eq(control_encode_ready(&b, some[i].rank, some[i].ready),
                         0);
        f = only_frame(&b, CONTROL_READY);
        ck_assert_int_eq(
            control_decode_ready(f.payload, f.len, &rank, &is_ready, NULL), 0);
        ck_assert_int_eq(rank, some[i].rank);
        ck_assert_int_eq(is_ready, some[i].ready);
    }
    hb_buf_free(&b);
}
END_TEST

START_TEST(ready_refusals)
{
    struct hb_error err = HB_ERROR_INIT;
    int rank = 5, is_ready = 5;

    for (size_t len = 0; len < 10; len++) {
        if (len == 8)
            continue;
        err = (struct hb_error)HB_ERROR_INIT;
        ck_assert_int_eq(control_decode_ready("\0\0\0\1\0\0\0\1\0", len, &rank,
                                              &is_ready, &err),
                         -HVD_EPROTO);
        ck_assert_str_eq(err.text, "ready: wrong length");
    }
    ck_assert_int_eq(
        control_decode_ready("\0\1\0\0\0\0\0\1", 8, &rank, &is_ready, NULL),
        -HVD_EPROTO);
    ck_assert_int_eq(
        control_decode_ready("\0\0\0\1\0\0\0\2", 8, &rank, &is_ready, NULL),
        -HVD_EPROTO);
    ck_assert_int_eq(rank, 5);
    ck_assert_int_eq(is_ready, 5);
}
END_TEST

START_TEST(leaving)
{
    static const uint32_t times[] = {0, 5000, CONTROL_LEFT_MAX_MS,
                                     CONTROL_LEFT_ANY};
    struct hb_buf b = HB_BUF_INIT;
    char why[CONTROL_WHY_MAX], longest[CONTROL_WHY_MAX + 9];
    struct frame f;
    uint32_t left_ms = 1;
    int rank = -1;

    for (size_t i = 0; i < 4; i++) {
        hb_buf_clear(&b);
        ck_assert_int_eq(control_encode_notice(&b, 7, times[i]), 0);
        f = only_frame(&b, CONTROL_NOTICE);
        ck_assert_int_eq(
            control_decode_notice(f.payload, f.len, &rank, &left_ms, NULL), 0);
        ck_assert_int_eq(rank, 7);
        ck_assert_uint_eq(left_ms, times[i]);
        hb_buf_clear(&b);
        ck_assert_int_eq(control_encode_going(&b, times[i], "x"), 0);
        f = only_frame(&b, CONTROL_GOING);
        left_ms = 1;
        ck_assert_int_eq(
            control_decode_going(f.payload, f.len, &left_ms, why, NULL), 0);
        ck_assert_uint_eq(left_ms, times[i]);
    }
    memset(longest, 'w', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    hb_buf_clear(&b);
    ck_assert_int_eq(control_encode_going(&b, 60000, longest), 0);
    f = only_frame(&b, CONTROL_GOING);
    ck_assert_int_eq(
        control_decode_going(f.payload, f.len, &left_ms, why, NULL), 0);
    ck_assert_uint_eq(left_ms, 60000);
    ck_assert_uint_eq(strlen(why), CONTROL_WHY_MAX - 1);
    hb_buf_free(&b);
}
END_TEST

START_TEST(leaving_refusals)
{
    char why[CONTROL_WHY_MAX] = "as before", text[4 + CONTROL_WHY_MAX] = {0};
    struct hb_error err = HB_ERROR_INIT;
    uint32_t left_ms = 1;
    int rank = 5;

    ck_assert_int_eq(
        control_decode_notice("\0\0\0\1\0\0\0", 7, &rank, &left_ms, &err),
        -HVD_EPROTO);
    ck_assert_str_eq(err.text, "notice: wrong length");
    ck_assert_int_eq(
        control_decode_notice("\0\1\0\0\0\0\0\1", 8, &rank, &left_ms, NULL),
        -HVD_EPROTO);
    ck_assert_int_eq(
        control_decode_notice("\0\0\0\1\5\x26\x5c\1", 8, &rank, &left_ms, NULL),
        -HVD_EPROTO);
    hb_error_clear(&err);
    ck_assert_int_eq(control_decode_going("\0\0\0", 3, &left_ms, why, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, "going: malformed");
    ck_assert_int_eq(
        control_decode_going("\5\x26\x5c\1", 4, &left_ms, why, NULL),
        -HVD_EPROTO);
    ck_assert_int_eq(
        control_decode_going("\0\0\0\1a\0b", 7, &left_ms, why, NULL),
        -HVD_EPROTO);
    memset(text + 4, 'w', CONTROL_WHY_MAX);
    ck_assert_int_eq(
        control_decode_going(text, sizeof(text), &left_ms, why, NULL),
        -HVD_EPROTO);
    ck_assert_int_eq(rank, 5);
    ck_assert_uint_eq(left_ms, 1);
    ck_assert_str_eq(why, "as before");
}
END_TEST

/* Changed by each test that needs another message. */
static int ranks[3];
static struct control_generation sample;

static void setup(void)
{
    memcpy(ranks, (int[]){0, 2, CONTROL_RANKS_MAX - 1}, sizeof(ranks));
    sample =
        (struct control_generation){.number = INT32_MAX,
                                    .joined = 3,
                                    .removed = CONTROL_RANKS_MAX,
                                    .ranks = ranks,
                                    .count = 3,
                                    .why = "rank 1 on host a: exit code 1"};
}

static void expect_same(const struct hb_buf *b)
{
    struct frame f = only_frame(b, CONTROL_GENERATION);
    struct control_generation got;

    ck_assert_int_eq(control_decode_generation(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_uint_eq(got.number, sample.number);
    ck_assert_uint_eq(got.joined, sample.joined);
    ck_assert_uint_eq(got.removed, sample.removed);
    ck_assert_int_eq(got.count, sample.count);
    ck_assert_mem_eq(got.ranks, sample.ranks,
                     (size_t)sample.count * sizeof(*got.ranks));
    ck_assert_str_eq(got.why, sample.why);
    control_generation_fini(&got);
    control_generation_fini(&got);
}

START_TEST(generation)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_generation(&b, &sample), 0);
    expect_same(&b);
    hb_buf_clear(&b);
    sample.number = 1;
    sample.count = 1;
    sample.joined = 0;
    memset(sample.why, 0, sizeof(sample.why));
    ck_assert_int_eq(control_encode_generation(&b, &sample), 0);
    expect_same(&b);
    hb_buf_clear(&b);
    memset(sample.why, 'w', sizeof(sample.why) - 1);
    ck_assert_int_eq(control_encode_generation(&b, &sample), 0);
    expect_same(&b);
    hb_buf_free(&b);
}
END_TEST

START_TEST(many_members)
{
    struct hb_buf b = HB_BUF_INIT;

    sample.count = CONTROL_RANKS_MAX;
    sample.ranks = hb_xcalloc(CONTROL_RANKS_MAX, sizeof(*sample.ranks));
    for (int i = 0; i < sample.count; i++)
        sample.ranks[i] = i;
    ck_assert_int_eq(control_encode_generation(&b, &sample), 0);
    expect_same(&b);
    hb_free(sample.ranks);
    hb_buf_free(&b);
}
END_TEST

/* What is no generation is not encoded; nor decoded, see below. */
START_TEST(not_encoded)
{
    struct hb_buf b = HB_BUF_INIT;

    switch (_i) {
    case 0:
        sample.number = 0;
        break;
    case 1:
        sample.number = (uint32_t)INT32_MAX + 1;
        break;
    case 2:
        sample.joined = 4;
        break;
    case 3:
        sample.count = 0;
        break;
    case 4:
        ranks[1] = 0;
        break;
    case 5:
        ranks[0] = -1;
        break;
    case 6:
        ranks[2] = CONTROL_RANKS_MAX;
        break;
    case 7:
        sample.removed = CONTROL_RANKS_MAX + 1;
        break;
    default:
        memset(sample.why, 'w', sizeof(sample.why));
        break;
    }
    ck_assert_int_eq(control_encode_generation(&b, &sample), -HVD_EINVAL);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
}
END_TEST

/* Words of the payload, and values that they must not have. */
static const struct {
    size_t word;
    uint32_t value;
} wrong[] = {{0, 0},
             {0, (uint32_t)INT32_MAX + 1},
             {1, 4},
             {2, CONTROL_RANKS_MAX + 1},
             {3, 0},
             {3, CONTROL_RANKS_MAX + 1},
             {3, 11}, /* more than there are */
             {3, UINT32_MAX},
             {4, 2},
             {4, UINT32_MAX},
             {5, 0},
             {6, CONTROL_RANKS_MAX}};

enum { WRONG = sizeof(wrong) / sizeof(wrong[0]) };

START_TEST(not_decoded)
{
    struct hb_buf b = HB_BUF_INIT, word = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct control_generation got;

    ck_assert_int_eq(control_encode_generation(&b, &sample), 0);
    hb_buf_consume(&b, FRAME_HEADER_BYTES);
    hb_buf_put_u32(&word, wrong[_i].value);
    memcpy(hb_buf_data(&b) + 4 * wrong[_i].word, hb_buf_data(&word), 4);
    ck_assert_int_eq(
        control_decode_generation(hb_buf_data(&b), hb_buf_len(&b), &got, &err),
        -HVD_EPROTO);
    ck_assert_str_eq(err.text, "generation: malformed");
    ck_assert_ptr_null(got.ranks);
    hb_buf_free(&word);
    hb_buf_free(&b);
}
END_TEST

/* A payload that ends before the ranks do, or has too long a text. */
START_TEST(lengths)
{
    struct hb_buf b = HB_BUF_INIT;
    struct control_generation got;
    char *text;

    memset(sample.why, 0, sizeof(sample.why));
    memset(sample.why, 'w', sizeof(sample.why) - 1);
    ck_assert_int_eq(control_encode_generation(&b, &sample), 0);
    hb_buf_consume(&b, FRAME_HEADER_BYTES);
    for (size_t len = 0; len < 28; len++)
        ck_assert_int_eq(
            control_decode_generation(hb_buf_data(&b), len, &got, NULL),
            -HVD_EPROTO);
    hb_buf_putc(&b, 'w');
    ck_assert_int_eq(
        control_decode_generation(hb_buf_data(&b), hb_buf_len(&b), &got, NULL),
        -HVD_EPROTO);
    text = hb_buf_data(&b) + 30;
    *text = '\0';
    ck_assert_int_eq(control_decode_generation(hb_buf_data(&b),
                                               hb_buf_len(&b) - 1, &got, NULL),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

static int pass_on(void *arg)
{
    struct hb_buf b = HB_BUF_INIT;
    struct control_generation got = {.ranks = NULL};
    int rc = control_encode_generation(&b, arg);

    if (rc == 0)
        rc = control_decode_generation(hb_buf_data(&b) + FRAME_HEADER_BYTES,
                                       hb_buf_len(&b) - FRAME_HEADER_BYTES,
                                       &got, NULL);
    control_generation_fini(&got);
    hb_buf_free(&b);
    return rc;
}

START_TEST(allocation_failures)
{
    unit_fail_each(pass_on, &sample);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("control_generation");
    TCase *c = tcase_create("control_generation");

    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, ready);
    tcase_add_test(c, ready_refusals);
    tcase_add_test(c, leaving);
    tcase_add_test(c, leaving_refusals);
    tcase_add_test(c, generation);
    tcase_add_test(c, many_members);
    tcase_add_loop_test(c, not_encoded, 0, 9);
    tcase_add_loop_test(c, not_decoded, 0, WRONG);
    tcase_add_test(c, lengths);
    tcase_add_test(c, allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
