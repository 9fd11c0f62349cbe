/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/frame.h: splitting a stream into frames, and skipping noise. */
#include "lib/protocol/frame.h"
#include "tests/unit/unit.h"

#include <string.h>

START_TEST(test_layout)
{
    struct hb_buf b = HB_BUF_INIT;
    unsigned char header[FRAME_HEADER_BYTES];

    ck_assert_int_eq(frame_encode(&b, 7, "abc", 3), 0);
    ck_assert_uint_eq(hb_buf_len(&b), FRAME_HEADER_BYTES + 3);
    ck_assert_mem_eq(hb_buf_data(&b),
                     "hvD1\x01\x07\0\0\0\0\0\x03"
                     "abc",
                     15);
    frame_header(header, 200, 0x123456);
    ck_assert_mem_eq(header, "hvD1\x01\xc8\0\0\0\x12\x34\x56", 12);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_round_trip_byte_by_byte)
{
    struct hb_buf out = HB_BUF_INIT, in = HB_BUF_INIT;
    struct frame f;
    size_t i;
    int frames = 0;

    frame_encode(&out, 1, "first", 5);
    frame_encode(&out, 2, NULL, 0);
    frame_begin(&out, 3, 4);
    hb_buf_put_u32(&out, 99);
    for (i = 0; i < hb_buf_len(&out); i++) {
        hb_buf_putc(&in, hb_buf_data(&out)[i]);
        if (frame_decode(&in, 100, &f, NULL) == 0)
            continue;
        frames++;
        ck_assert_int_eq(f.type, frames);
        ck_assert_uint_eq(f.len, frames == 1 ? 5 : frames == 2 ? 0 : 4);
        if (frames == 1)
            ck_assert_mem_eq(f.payload, "first", 5);
        frame_done(&in, &f);
        ck_assert_uint_eq(hb_buf_len(&in), 0);
    }
    ck_assert_int_eq(frames, 3);
    hb_buf_free(&in);
    hb_buf_free(&out);
}
END_TEST

START_TEST(test_payload_limits)
{
    struct hb_buf b = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;

    frame_encode(&b, 9, "12345", 5);
    ck_assert_int_eq(frame_decode(&b, 5, &f, NULL), 1);
    ck_assert_int_eq(frame_decode(&b, 4, &f, &err), -HVD_EPROTO);
    ck_assert_str_eq(err.text, "a frame of type 9 announces 5 bytes, more "
                               "than the 4 accepted here");
    hb_buf_clear(&b);
    ck_assert_int_eq(frame_begin(&b, 1, (size_t)FRAME_PAYLOAD_MAX + 1),
                     -HVD_EINVAL);
    ck_assert_int_eq(frame_encode(&b, 1, "", (size_t)FRAME_PAYLOAD_MAX + 1),
                     -HVD_EINVAL);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    /* An absurd length is refused after the header alone. */
    hb_buf_append(&b, "hvD1\x01\x01\0\0\xff\xff\xff\xff", 12);
    ck_assert_int_eq(frame_decode(&b, FRAME_PAYLOAD_MAX, &f, NULL),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_damaged_headers)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } cases[] = {
        {"HTTP/1.1 400", 12,
         "the peer does not speak hvdrun's protocol (it sent \"HTTP\"); is "
         "something else printing on the connection?"},
        {"h\033", 2,
         "the peer does not speak hvdrun's protocol (it sent \"h.\"); is "
         "something else printing on the connection?"},
        {"hvD1\x02\x01\0\0\0\0\0\0", 12,
         "the peer speaks protocol version 2, this build version 1; use one "
         "build everywhere"},
        {"hvD1\x01\x01\0\1\0\0\0\0", 12,
         "a frame's reserved bytes are not 0; the stream is damaged"},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_buf b = HB_BUF_INIT;
        struct hb_error err = HB_ERROR_INIT;
        struct frame f = {42, NULL, 0};

        hb_buf_append(&b, cases[i].bytes, cases[i].len);
        ck_assert_int_eq(frame_decode(&b, 100, &f, &err), -HVD_EPROTO);
        ck_assert_str_eq(err.text, cases[i].text);
        ck_assert_int_eq(f.type, 42);
        hb_buf_free(&b);
    }
}
END_TEST

START_TEST(test_half_a_header_is_not_an_error)
{
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(frame_decode(&b, 100, &f, NULL), 0);
    hb_buf_puts(&b, "hv");
    ck_assert_int_eq(frame_decode(&b, 100, &f, NULL), 0);
    hb_buf_append(&b, "D1\x01\x01\0\0\0\0\0", 9);
    ck_assert_int_eq(frame_decode(&b, 100, &f, NULL), 0);
    hb_buf_free(&b);
}
END_TEST

static int encode_one(void *arg)
{
    struct hb_buf b = HB_BUF_INIT;
    int rc = frame_encode(&b, 1, arg, 3);

    ck_assert_uint_eq(hb_buf_len(&b), rc < 0 ? 0 : FRAME_HEADER_BYTES + 3);
    hb_buf_free(&b);
    return rc;
}

START_TEST(test_encode_allocation_failures)
{
    unit_fail_each(encode_one, (void *)(uintptr_t) "abc");
}
END_TEST

START_TEST(test_sync_skips_noise)
{
    static const char noise_text[] = "Welcome!\nhvD hhv\n";
    struct hb_buf in = HB_BUF_INIT, noise = HB_BUF_INIT;
    struct frame f;

    hb_buf_puts(&in, noise_text);
    frame_encode(&in, 5, "x", 1);
    ck_assert_int_eq(frame_sync(&in, &noise, 100), 1);
    ck_assert_str_eq(hb_buf_data(&noise), noise_text);
    ck_assert_int_eq(frame_decode(&in, 10, &f, NULL), 1);
    ck_assert_int_eq(f.type, 5);
    /* nothing to skip */
    ck_assert_int_eq(frame_sync(&in, &noise, 100), 1);
    ck_assert_str_eq(hb_buf_data(&noise), noise_text);
    hb_buf_free(&in);
    hb_buf_free(&noise);
}
END_TEST

/* However the stream is cut, no byte of the magic is counted as noise. */
START_TEST(test_sync_byte_by_byte)
{
    static const char stream[] = "motd hv hvD hvhvD1\x01";
    struct hb_buf in = HB_BUF_INIT, noise = HB_BUF_INIT;
    size_t i, at = 0;

    for (i = 0; i < sizeof(stream) - 1; i++) {
        hb_buf_putc(&in, stream[i]);
        if (frame_sync(&in, &noise, 100) == 1) {
            at = i;
            break;
        }
    }
    ck_assert_uint_eq(at, 17);
    ck_assert_str_eq(hb_buf_data(&noise), "motd hv hvD hv");
    ck_assert_str_eq(hb_buf_data(&in), "hvD1");
    hb_buf_free(&in);
    hb_buf_free(&noise);
}
END_TEST

START_TEST(test_sync_gives_up)
{
    struct hb_buf in = HB_BUF_INIT, noise = HB_BUF_INIT;

    hb_buf_puts(&in, "12345");
    ck_assert_int_eq(frame_sync(&in, &noise, 8), 0);
    hb_buf_puts(&in, "678");
    ck_assert_int_eq(frame_sync(&in, &noise, 8), 0);
    /* noise is full, but this may begin the magic */
    hb_buf_puts(&in, "hvD");
    ck_assert_int_eq(frame_sync(&in, &noise, 8), 0);
    ck_assert_uint_eq(hb_buf_len(&in), 3);
    hb_buf_puts(&in, "9");
    ck_assert_int_eq(frame_sync(&in, &noise, 8), -HVD_EPROTO);
    ck_assert_str_eq(hb_buf_data(&noise), "12345678");
    ck_assert_str_eq(hb_buf_data(&in), "hvD9");
    ck_assert_int_eq(frame_sync(&in, &noise, 4), -HVD_EPROTO);
    hb_buf_clear(&noise);
    hb_buf_puts(&in, "0123456789hvD1");
    ck_assert_int_eq(frame_sync(&in, &noise, 8), -HVD_EPROTO);
    ck_assert_str_eq(hb_buf_data(&noise), "hvD90123");
    hb_buf_free(&in);
    hb_buf_free(&noise);
}
END_TEST

START_TEST(test_sync_without_memory)
{
    struct hb_buf in = HB_BUF_INIT, noise = HB_BUF_INIT;

    hb_buf_puts(&in, "noise");
    hb_alloc_fail_after(0);
    ck_assert_int_eq(frame_sync(&in, &noise, 8), -HVD_ENOMEM);
    hb_alloc_fail_after(-1);
    ck_assert_str_eq(hb_buf_data(&in), "noise");
    hb_buf_free(&in);
    hb_buf_free(&noise);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("frame");
    TCase *c = tcase_create("frame");

    tcase_add_test(c, test_layout);
    tcase_add_test(c, test_round_trip_byte_by_byte);
    tcase_add_test(c, test_payload_limits);
    tcase_add_test(c, test_damaged_headers);
    tcase_add_test(c, test_half_a_header_is_not_an_error);
    tcase_add_test(c, test_encode_allocation_failures);
    tcase_add_test(c, test_sync_skips_noise);
    tcase_add_test(c, test_sync_byte_by_byte);
    tcase_add_test(c, test_sync_gives_up);
    tcase_add_test(c, test_sync_without_memory);
    suite_add_tcase(s, c);
    return unit_run(s);
}
