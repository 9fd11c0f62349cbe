/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of the job's secret: which messages are accepted, and that no
 * others are.
 */
#include "lib/base/hvd_status.h"
#include "runtime/plane/tcp/tcp_auth.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

enum { CALLER = 3, CALLEE = 5 };

/* One exchange between two sides. */
struct talk {
    struct tcp_auth a, b;
    struct tcp_auth_talk ta, tb;
    unsigned char call[TCP_AUTH_CALL_BYTES];
    unsigned char answer[TCP_AUTH_ANSWER_BYTES];
    unsigned char finish[TCP_AUTH_FINISH_BYTES];
    uint32_t caller;
};

static struct talk new_talk(void)
{
    struct talk t;

    memset(&t, 0, sizeof(t));
    memset(t.a.secret, 0x5a, sizeof(t.a.secret));
    strcpy(t.a.job_id, "0123456789abcdef");
    t.a.epoch = 9;
    t.b = t.a;
    ck_assert_int_eq(tcp_auth_call(&t.a, &t.ta, CALLER, CALLEE, t.call), 0);
    return t;
}

static int answer(struct talk *t)
{
    return tcp_auth_answer(&t->b, &t->tb, t->call, CALLEE, &t->caller,
                           t->answer);
}

static int finish(struct talk *t)
{
    return tcp_auth_finish(&t->a, &t->ta, t->answer, t->finish);
}

static int check(struct talk *t)
{
    return tcp_auth_check(&t->b, &t->tb, t->finish);
}

START_TEST(test_good)
{
    struct talk t = new_talk();

    ck_assert_int_eq(answer(&t), 0);
    ck_assert_uint_eq(t.caller, CALLER);
    ck_assert_int_eq(finish(&t), 0);
    ck_assert_int_eq(check(&t), 0);
}
END_TEST

/* A change of any byte is noticed by the side that reads it. */
START_TEST(test_every_byte_counts)
{
    struct talk t = new_talk();

    for (size_t i = 0; i < sizeof(t.call); i++) {
        t.call[i] ^= 0x40;
        ck_assert_int_eq(answer(&t), -HVD_EPERM);
        t.call[i] ^= 0x40;
    }
    ck_assert_int_eq(answer(&t), 0);
    for (size_t i = 0; i < sizeof(t.answer); i++) {
        t.answer[i] ^= 1;
        ck_assert_int_eq(finish(&t), -HVD_EPERM);
        t.answer[i] ^= 1;
    }
    ck_assert_int_eq(finish(&t), 0);
    for (size_t i = 0; i < sizeof(t.finish); i++) {
        t.finish[i] ^= 0x80;
        ck_assert_int_eq(check(&t), -HVD_EPERM);
        t.finish[i] ^= 0x80;
    }
    ck_assert_int_eq(check(&t), 0);
}
END_TEST

START_TEST(test_other_job_epoch_group_secret_callee)
{
    struct talk t = new_talk();

    t.b.epoch++;
    ck_assert_int_eq(answer(&t), -HVD_EPERM);
    t = new_talk();
    t.b.group++;
    ck_assert_int_eq(answer(&t), -HVD_EPERM);
    t = new_talk();
    t.b.job_id[0] = 'x';
    ck_assert_int_eq(answer(&t), -HVD_EPERM);
    t = new_talk();
    t.b.job_id[15] = '\0';
    ck_assert_int_eq(answer(&t), -HVD_EPERM);
    t = new_talk();
    t.b.secret[31] ^= 1;
    ck_assert_int_eq(answer(&t), -HVD_EPERM);
    t = new_talk();
    ck_assert_int_eq(
        tcp_auth_answer(&t.b, &t.tb, t.call, CALLEE + 1, &t.caller, t.answer),
        -HVD_EPERM);
    ck_assert_uint_eq(t.caller, 0);
}
END_TEST

/* A callee that does not know the secret replays another exchange's answer. */
START_TEST(test_replayed_answer)
{
    struct talk t = new_talk(), u = new_talk();

    ck_assert_int_eq(answer(&t), 0);
    memcpy(u.answer, t.answer, sizeof(u.answer));
    ck_assert_int_eq(finish(&u), -HVD_EPERM);
}
END_TEST

/* A caller replays a whole exchange: the callee's nonce is new. */
START_TEST(test_replayed_call)
{
    struct talk t = new_talk(), u;
    unsigned char first[TCP_AUTH_ANSWER_BYTES];

    ck_assert_int_eq(answer(&t), 0);
    ck_assert_int_eq(finish(&t), 0);
    memcpy(first, t.answer, sizeof(first));
    u = t;
    ck_assert_int_eq(answer(&u), 0);
    ck_assert_int_ne(memcmp(first, u.answer, sizeof(first)), 0);
    ck_assert_int_eq(check(&u), -HVD_EPERM);
}
END_TEST

/* No message of one kind is accepted as another, nor by the side that made
 * it. */
START_TEST(test_reflection)
{
    struct talk t = new_talk();

    ck_assert_int_eq(answer(&t), 0);
    ck_assert_int_eq(finish(&t), 0);
    memcpy(t.finish, t.answer + TCP_AUTH_NONCE_BYTES, sizeof(t.finish));
    ck_assert_int_eq(check(&t), -HVD_EPERM);
    ck_assert_int_eq(
        tcp_auth_answer(&t.a, &t.ta, t.call, CALLER, &t.caller, t.answer),
        -HVD_EPERM);
}
END_TEST

/* One side uses codes and the other does not: both learn that, and nobody
 * between them can change what they say about it. */
START_TEST(test_codes_must_agree)
{
    for (int codes = 0; codes < 2; codes++) {
        struct talk t;

        memset(&t, 0, sizeof(t));
        t.a.codes = t.b.codes = codes;
        ck_assert_int_eq(tcp_auth_call(&t.a, &t.ta, CALLER, CALLEE, t.call), 0);
        ck_assert_int_eq(answer(&t), 0);
        ck_assert_int_eq(finish(&t), 0);
        t.b.codes = !codes;
        t.caller = 0;
        ck_assert_int_eq(answer(&t), -HVD_EINVAL);
        ck_assert_uint_eq(t.caller, CALLER);
        ck_assert_int_eq(finish(&t), -HVD_EINVAL);
        t.answer[3] ^= 1;
        ck_assert_int_eq(finish(&t), -HVD_EPERM);
        t.call[6 * 4 + 3] ^= 1;
        ck_assert_int_eq(answer(&t), -HVD_EPERM);
    }
}
END_TEST

/* Both sides have the same two keys, different from any other connection's. */
START_TEST(test_keys)
{
    struct tcp_auth_keys a, b, other;
    struct talk t = new_talk(), u = new_talk();

    ck_assert_int_eq(answer(&t), 0);
    ck_assert_int_eq(finish(&t), 0);
    tcp_auth_keys(&t.a, &t.ta, &a);
    tcp_auth_keys(&t.b, &t.tb, &b);
    ck_assert_mem_eq(&a, &b, sizeof(a));
    ck_assert_mem_ne(a.caller, a.callee, sizeof(a.caller));
    ck_assert_int_eq(answer(&u), 0);
    ck_assert_int_eq(finish(&u), 0);
    tcp_auth_keys(&u.a, &u.ta, &other);
    ck_assert_mem_ne(a.caller, other.caller, sizeof(a.caller));
    ck_assert_mem_ne(a.callee, other.callee, sizeof(a.callee));
    t.a.secret[7] ^= 1;
    tcp_auth_keys(&t.a, &t.ta, &other);
    ck_assert_mem_ne(a.caller, other.caller, sizeof(a.caller));
}
END_TEST

static Suite *tcp_auth_suite(void)
{
    Suite *s = suite_create("tcp_auth");
    TCase *t = tcase_create("tcp_auth");

    tcase_add_test(t, test_good);
    tcase_add_test(t, test_every_byte_counts);
    tcase_add_test(t, test_other_job_epoch_group_secret_callee);
    tcase_add_test(t, test_replayed_answer);
    tcase_add_test(t, test_replayed_call);
    tcase_add_test(t, test_reflection);
    tcase_add_test(t, test_codes_must_agree);
    tcase_add_test(t, test_keys);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(tcp_auth_suite());
}
