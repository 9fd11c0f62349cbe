/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/buf.h: the growing buffer and the bounds-checked reader. */
#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"
#include "tests/unit/unit.h"

#include <stdint.h>
#include <string.h>

START_TEST(test_empty)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_str_eq(hb_buf_data(&b), "");
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    ck_assert_int_eq(hb_buf_append(&b, NULL, 0), 0);
    hb_buf_consume(&b, 0);
    hb_buf_clear(&b);
    ck_assert_str_eq(hb_buf_data(&b), "");
    hb_buf_free(&b);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_append_keeps_bytes_and_final_zero)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(hb_buf_puts(&b, "ab"), 0);
    ck_assert_int_eq(hb_buf_append(&b, "c\0d", 3), 0);
    ck_assert_int_eq(hb_buf_putc(&b, 'e'), 0);
    ck_assert_uint_eq(hb_buf_len(&b), 6);
    ck_assert_mem_eq(hb_buf_data(&b), "abc\0de", 7);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_printf_short_and_long)
{
    struct hb_buf b = HB_BUF_INIT;
    int i;

    ck_assert_int_eq(hb_buf_printf(&b, "[%d]", 7), 0);
    ck_assert_str_eq(hb_buf_data(&b), "[7]");
    ck_assert_int_eq(hb_buf_printf(&b, "%0*d", 5000, 1), 0);
    ck_assert_uint_eq(hb_buf_len(&b), 5003);
    ck_assert_int_eq(hb_buf_data(&b)[5002], '1');
    ck_assert_int_eq(hb_buf_data(&b)[5003], '\0');
    /* every fill level around the end of the memory */
    for (i = 0; i < 300; i++)
        ck_assert_int_eq(hb_buf_printf(&b, "%s", "xyz"), 0);
    ck_assert_uint_eq(hb_buf_len(&b), 5903);
    ck_assert_str_eq(hb_buf_data(&b) + 5900, "xyz");
    ck_assert_int_eq(hb_buf_printf(&b, "%s", ""), 0);
    ck_assert_uint_eq(hb_buf_len(&b), 5903);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_consume_and_grow)
{
    struct hb_buf b = HB_BUF_INIT;
    unsigned next_in = 0, next_out = 0;
    int round, i;

    /* A short queue through which many bytes pass. */
    for (round = 0; round < 2000; round++) {
        for (i = 0; i < 7; i++)
            hb_buf_put_u32(&b, next_in++);
        for (i = 0; i < 6 && hb_buf_len(&b); i++) {
            struct hb_reader r;

            hb_reader_init(&r, hb_buf_data(&b), hb_buf_len(&b));
            ck_assert_uint_eq(hb_read_u32(&r), next_out++);
            hb_buf_consume(&b, 4);
        }
    }
    ck_assert_uint_eq(hb_buf_len(&b), 4u * (next_in - next_out));
    ck_assert_uint_lt(b.cap, 64u << 10);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_emptying_reclaims_space)
{
    struct hb_buf b = HB_BUF_INIT;
    size_t cap;
    int i;

    hb_buf_puts(&b, "0123456789");
    cap = b.cap;
    for (i = 0; i < 1000; i++) {
        hb_buf_consume(&b, 10);
        ck_assert_str_eq(hb_buf_data(&b), "");
        hb_buf_puts(&b, "0123456789");
    }
    ck_assert_uint_eq(b.cap, cap);
    hb_buf_clear(&b);
    ck_assert_uint_eq(b.cap, cap);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_detach)
{
    struct hb_buf b = HB_BUF_INIT;
    char *text;

    text = hb_buf_detach(&b);
    ck_assert_str_eq(text, "");
    hb_free(text);
    hb_buf_puts(&b, "skip:keep");
    hb_buf_consume(&b, 5);
    text = hb_buf_detach(&b);
    ck_assert_str_eq(text, "keep");
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    ck_assert_ptr_null(b.data);
    hb_free(text);
}
END_TEST

START_TEST(test_absurd_sizes)
{
    struct hb_buf b = HB_BUF_INIT;
    volatile size_t huge = SIZE_MAX;

    hb_buf_puts(&b, "kept");
    ck_assert_int_eq(hb_buf_reserve(&b, huge), -HVD_ENOMEM);
    ck_assert_int_eq(hb_buf_reserve(&b, huge - 4), -HVD_ENOMEM);
    ck_assert_int_eq(hb_buf_reserve(&b, PTRDIFF_MAX), -HVD_ENOMEM);
    ck_assert_str_eq(hb_buf_data(&b), "kept");
    hb_buf_free(&b);
}
END_TEST

static int build(void *arg)
{
    static const char filler[200];
    struct hb_buf *b = arg;
    size_t before = hb_buf_len(b);
    int rc;

    rc = hb_buf_puts(b, "start");
    if (rc == 0)
        rc = hb_buf_printf(b, "%0300d", 5);
    if (rc == 0)
        rc = hb_buf_append(b, filler, sizeof(filler));
    if (rc == 0)
        rc = hb_buf_put_u64(b, 1);
    ck_assert_uint_ge(hb_buf_len(b), before);
    if (b->data)
        ck_assert_int_eq(b->data[b->off + b->len], 0);
    hb_buf_free(b);
    return rc;
}

START_TEST(test_allocation_failures)
{
    struct hb_buf b = HB_BUF_INIT;

    unit_fail_each(build, &b);
    hb_alloc_fail_after(0);
    ck_assert_ptr_null(hb_buf_detach(&b));
    hb_alloc_fail_after(-1);
}
END_TEST

START_TEST(test_failure_leaves_contents)
{
    struct hb_buf b = HB_BUF_INIT;

    hb_buf_puts(&b, "one two");
    hb_buf_consume(&b, 4);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(hb_buf_printf(&b, "%0900d", 1), -HVD_ENOMEM);
    ck_assert_str_eq(hb_buf_data(&b), "two");
    ck_assert_uint_eq(hb_buf_len(&b), 3);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(hb_buf_reserve(&b, 5000), -HVD_ENOMEM);
    hb_alloc_fail_after(-1);
    ck_assert_str_eq(hb_buf_data(&b), "two");
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_integers_are_big_endian)
{
    struct hb_buf b = HB_BUF_INIT;

    hb_buf_put_u8(&b, 0x01);
    hb_buf_put_u16(&b, 0x0203);
    hb_buf_put_u32(&b, 0x04050607);
    hb_buf_put_u64(&b, 0x08090a0b0c0d0e0f);
    ck_assert_uint_eq(hb_buf_len(&b), 15);
    ck_assert_mem_eq(hb_buf_data(&b),
                     "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c"
                     "\x0d\x0e\x0f",
                     15);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_reader_round_trip)
{
    struct hb_buf b = HB_BUF_INIT;
    struct hb_reader r;

    hb_buf_put_u8(&b, 0xff);
    hb_buf_put_u16(&b, 0xfffe);
    hb_buf_put_u32(&b, 0xfffffffd);
    hb_buf_put_u64(&b, UINT64_MAX - 4);
    hb_buf_puts(&b, "tail");
    hb_reader_init(&r, hb_buf_data(&b), hb_buf_len(&b));
    ck_assert_uint_eq(hb_read_u8(&r), 0xff);
    ck_assert_uint_eq(hb_read_u16(&r), 0xfffe);
    ck_assert_uint_eq(hb_read_u32(&r), 0xfffffffd);
    ck_assert(hb_read_u64(&r) == UINT64_MAX - 4);
    ck_assert_mem_eq(hb_read_bytes(&r, 4), "tail", 4);
    ck_assert_uint_eq(r.left, 0);
    ck_assert_int_eq(r.bad, 0);
    ck_assert_ptr_nonnull(hb_read_bytes(&r, 0));
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_reader_stops_at_the_end)
{
    struct hb_reader r;

    hb_reader_init(&r, "\x01\x02\x03", 3);
    ck_assert_uint_eq(hb_read_u32(&r), 0);
    ck_assert_int_eq(r.bad, 1);
    ck_assert_uint_eq(r.left, 3);
    /* Later reads fail, too, even if their bytes exist. */
    ck_assert_uint_eq(hb_read_u8(&r), 0);
    ck_assert_uint_eq(hb_read_u16(&r), 0);
    ck_assert(hb_read_u64(&r) == 0);
    ck_assert_ptr_null(hb_read_bytes(&r, 0));
    ck_assert_ptr_null(hb_read_bytes(&r, SIZE_MAX));
    ck_assert_uint_eq(r.left, 3);
}
END_TEST

START_TEST(test_reader_text)
{
    char out[4] = "was";
    struct hb_reader r;

    hb_reader_init(&r, "abc\0d", 5);
    hb_read_text(&r, 3, out, 3); /* no room for the final 0 */
    ck_assert(r.bad);
    hb_reader_init(&r, "abc\0d", 5);
    hb_read_text(&r, 4, out, sizeof(out));
    ck_assert(r.bad);
    hb_reader_init(&r, "b\0c", 3);
    hb_read_text(&r, 3, out, sizeof(out));
    ck_assert(r.bad);
    hb_reader_init(&r, "ab", 2);
    hb_read_text(&r, 3, out, sizeof(out));
    ck_assert(r.bad);
    ck_assert_str_eq(out, "was");
    hb_reader_init(&r, "abc\0d", 5);
    hb_read_text(&r, 3, out, sizeof(out));
    ck_assert_str_eq(out, "abc");
    hb_read_text(&r, 0, out, sizeof(out));
    ck_assert_str_eq(out, "");
    ck_assert(!r.bad);
    ck_assert_uint_eq(r.left, 2);
}
END_TEST

START_TEST(test_reader_without_memory)
{
    struct hb_reader r;

    hb_reader_init(&r, NULL, 0);
    ck_assert_ptr_nonnull(hb_read_bytes(&r, 0));
    ck_assert_int_eq(r.bad, 0);
    ck_assert_uint_eq(hb_read_u8(&r), 0);
    ck_assert_int_eq(r.bad, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("buf");
    TCase *c = tcase_create("buf");

    tcase_add_test(c, test_empty);
    tcase_add_test(c, test_append_keeps_bytes_and_final_zero);
    tcase_add_test(c, test_printf_short_and_long);
    tcase_add_test(c, test_consume_and_grow);
    tcase_add_test(c, test_emptying_reclaims_space);
    tcase_add_test(c, test_detach);
    tcase_add_test(c, test_absurd_sizes);
    tcase_add_test(c, test_allocation_failures);
    tcase_add_test(c, test_failure_leaves_contents);
    tcase_add_test(c, test_integers_are_big_endian);
    tcase_add_test(c, test_reader_round_trip);
    tcase_add_test(c, test_reader_stops_at_the_end);
    tcase_add_test(c, test_reader_text);
    tcase_add_test(c, test_reader_without_memory);
    suite_add_tcase(s, c);
    return unit_run(s);
}
