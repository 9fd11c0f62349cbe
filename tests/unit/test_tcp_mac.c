/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Authentication codes of messages: they are SipHash's, and every message but
 * the next one in its place and direction is refused.
 */
#include "lib/base/hvd_status.h"
#include "runtime/plane/tcp/tcp_mac.h"
#include "tests/unit/unit.h"

#include <sodium/crypto_shorthash_siphash24.h>
#include <string.h>

enum { BODY_BYTES = 61, WORDS_BYTES = 45 };

static uint64_t sodium_code(const unsigned char *p, size_t bytes,
                            const unsigned char key[SIPHASH_KEY_BYTES])
{
    unsigned char out[crypto_shorthash_siphash24_BYTES];

    crypto_shorthash_siphash24(out, p, bytes, key);
    return siphash_load(out);
}

/* The vectors of SipHash's authors: key and message are 0, 1, 2, ... */
START_TEST(test_siphash_vectors)
{
    static const uint64_t codes[] = {
        UINT64_C(0x726fdb47dd0e0e31), UINT64_C(0x74f839c593dc67fd),
        UINT64_C(0x0d6c8009d9a94f5a), UINT64_C(0x85676696d7fb7e2d)};
    unsigned char key[SIPHASH_KEY_BYTES], message[16];
    struct siphash s;

    for (unsigned char i = 0; i < 16; i++)
        key[i] = message[i] = i;
    for (size_t n = 0; n < 4; n++) {
        siphash_init(&s, key);
        ck_assert_uint_eq(siphash_code(s, message, n), codes[n]);
    }
    siphash_init(&s, key);
    ck_assert_uint_eq(siphash_code(s, message, 15),
                      UINT64_C(0xa129ca6149be45e5));
}
END_TEST

/* Equal to libsodium's, for lengths around a word, and however the message is
 * split. */
START_TEST(test_siphash_is_sodiums)
{
    unsigned char key[SIPHASH_KEY_BYTES], message[300];
    struct siphash s;

    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (unsigned char)(i * 37 + 5);
    for (size_t i = 0; i < sizeof(message); i++)
        message[i] = (unsigned char)(i * 101 + i / 7);
    for (size_t bytes = 0; bytes <= sizeof(message); bytes++)
        for (size_t cut = 0; cut <= bytes; cut += 8) {
            siphash_init(&s, key);
            siphash_take(&s, message, cut);
            ck_assert_uint_eq(siphash_code(s, message + cut, bytes - cut),
                              sodium_code(message, bytes, key));
        }
}
END_TEST

/* ---- Messages -------------------------------------------------------- */

struct message {
    unsigned char head[TCP_HEAD_BYTES], body[BODY_BYTES];
};

/* Two ranks: what each sends and receives. */
struct ends {
    struct tcp_mac a_out, b_in, b_out, a_in;
};

static struct ends new_ends(void)
{
    struct ends e;

    memset(&e, 0, sizeof(e));
    e.a_out.on = 1;
    memset(e.a_out.key, 0x31, sizeof(e.a_out.key));
    e.b_in = e.b_out = e.a_in = e.a_out;
    memset(e.b_out.key, 0x32, sizeof(e.b_out.key));
    memset(e.a_in.key, 0x32, sizeof(e.a_in.key));
    return e;
}

static struct message make(struct tcp_mac *out, uint32_t seq,
                           unsigned char fill)
{
    struct tcp_head head = {TCP_HEAD_DATA, seq, WORDS_BYTES, BODY_BYTES};
    struct message m;

    memset(m.body, fill, sizeof(m.body));
    tcp_mac_seal(out, &head, m.body, m.head);
    return m;
}

/* Checks a message as its receiver does. */
static int check(struct tcp_mac *in, const struct message *m)
{
    struct tcp_head head;

    if (tcp_mac_check_head(in, m->head) < 0)
        return -1;
    ck_assert_int_eq(tcp_head_decode(m->head, &head), 0);
    if (tcp_mac_check_words(in, m->head, m->body, head.words) < 0)
        return -2;
    tcp_mac_next(in);
    return 0;
}

START_TEST(test_good_messages)
{
    struct ends e = new_ends();

    for (uint32_t i = 0; i < 100; i++) {
        struct message there = make(&e.a_out, i, (unsigned char)i);
        struct message back = make(&e.b_out, i, (unsigned char)i);

        ck_assert_int_eq(check(&e.b_in, &there), 0);
        ck_assert_int_eq(check(&e.a_in, &back), 0);
    }
}
END_TEST

/* A change of any bit of the head or the words is noticed; tensor data is not
 * covered. */
START_TEST(test_every_bit_counts)
{
    struct ends e = new_ends();
    struct message m = make(&e.a_out, 7, 'x');

    for (size_t bit = 0; bit < sizeof(m.head) * 8; bit++) {
        int is_words_code =
            bit / 8 >= TCP_HEAD_WORDS_CODE_AT && bit / 8 < TCP_HEAD_CODE_AT;

        m.head[bit / 8] ^= (unsigned char)(1u << bit % 8);
        ck_assert_int_eq(check(&e.b_in, &m), is_words_code ? -2 : -1);
        m.head[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t bit = 0; bit < WORDS_BYTES * 8; bit++) {
        m.body[bit / 8] ^= (unsigned char)(1u << bit % 8);
        ck_assert_int_eq(check(&e.b_in, &m), -2);
        m.body[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    m.body[WORDS_BYTES] ^= 1;
    ck_assert_int_eq(check(&e.b_in, &m), 0);
}
END_TEST

START_TEST(test_replayed_left_out_reordered)
{
    struct ends e = new_ends();
    struct message first = make(&e.a_out, 1, 'x');
    struct message second = make(&e.a_out, 1, 'x');

    ck_assert_int_eq(check(&e.b_in, &second), -1);
    ck_assert_int_eq(check(&e.b_in, &first), 0);
    ck_assert_int_eq(check(&e.b_in, &first), -1);
    ck_assert_int_eq(check(&e.b_in, &second), 0);
}
END_TEST

/* A message of the other direction is refused, and so are words of another
 * message. */
START_TEST(test_spliced)
{
    struct ends e = new_ends();
    struct message there = make(&e.a_out, 1, 'x');
    struct message back = make(&e.b_out, 1, 'x');
    struct message later = make(&e.a_out, 1, 'y');

    ck_assert_int_eq(check(&e.b_in, &back), -1);
    ck_assert_int_eq(check(&e.a_in, &there), -1);
    ck_assert_int_eq(check(&e.b_in, &there), 0);
    memcpy(later.body, there.body, sizeof(later.body));
    memcpy(later.head + TCP_HEAD_WORDS_CODE_AT,
           there.head + TCP_HEAD_WORDS_CODE_AT, 8);
    ck_assert_int_eq(check(&e.b_in, &later), -2);
}
END_TEST

/* Without codes no message is checked. */
START_TEST(test_off)
{
    struct ends e = new_ends();
    struct message m;

    e.a_out.on = e.b_in.on = 0;
    m = make(&e.a_out, 1, 'x');
    for (size_t i = TCP_HEAD_FIELDS_BYTES; i < sizeof(m.head); i++)
        ck_assert_uint_eq(m.head[i], 0);
    m.body[0] ^= 1;
    ck_assert_int_eq(check(&e.b_in, &m), 0);
}
END_TEST

static Suite *tcp_mac_suite(void)
{
    Suite *s = suite_create("tcp_mac");
    TCase *t = tcase_create("tcp_mac");

    tcase_add_test(t, test_siphash_vectors);
    tcase_add_test(t, test_siphash_is_sodiums);
    tcase_add_test(t, test_good_messages);
    tcase_add_test(t, test_every_bit_counts);
    tcase_add_test(t, test_replayed_left_out_reordered);
    tcase_add_test(t, test_spliced);
    tcase_add_test(t, test_off);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_mac_suite());
}
