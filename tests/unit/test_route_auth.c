/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/route/route_auth.h */
#include "lib/agent/route/route_auth.h"
#include "tests/unit/unit.h"

#include <string.h>

static const unsigned char token[CONTROL_TOKEN_BYTES] = {1, 2, 3};
static const unsigned char other[CONTROL_TOKEN_BYTES] = {1, 2, 4};
static const struct route_call call = {ROUTE_MODE_SINK, 3, 65535};

START_TEST(test_conversation)
{
    unsigned char out[ROUTE_CALL_BYTES], answer[ROUTE_ANSWER_BYTES];
    struct route_call got;
    int host = -1;

    ck_assert_int_eq(route_auth_call(token, &call, out), 0);
    ck_assert_int_eq(route_auth_read_call(token, out, &got), 0);
    ck_assert_int_eq((int)got.mode, ROUTE_MODE_SINK);
    ck_assert_int_eq(got.from, 3);
    ck_assert_int_eq(got.to, 65535);
    ck_assert_int_eq(route_auth_answer(token, out, 65535, answer), 0);
    ck_assert_int_eq(route_auth_read_answer(token, out, answer, &host), 0);
    ck_assert_int_eq(host, 65535);
}
END_TEST

START_TEST(test_nonces_differ)
{
    unsigned char a[ROUTE_CALL_BYTES], b[ROUTE_CALL_BYTES];

    route_auth_call(token, &call, a);
    route_auth_call(token, &call, b);
    ck_assert_int_ne(memcmp(a, b, sizeof(a)), 0);
}
END_TEST

/* A change of any bit is noticed, in the call and in the answer. */
START_TEST(test_changed)
{
    unsigned char out[ROUTE_CALL_BYTES], answer[ROUTE_ANSWER_BYTES];
    struct route_call got;
    int host;

    route_auth_call(token, &call, out);
    route_auth_answer(token, out, 1, answer);
    for (int bit = 0; bit < 8 * ROUTE_CALL_BYTES; bit++) {
        out[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_int_eq(route_auth_read_call(token, out, &got), -HVD_EPERM);
        if (bit < 8 * 32) /* an answer belongs to its call */
            ck_assert_int_eq(route_auth_read_answer(token, out, answer, &host),
                             -HVD_EPERM);
        out[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (int bit = 0; bit < 8 * ROUTE_ANSWER_BYTES; bit++) {
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_int_eq(route_auth_read_answer(token, out, answer, &host),
                         -HVD_EPERM);
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}
END_TEST

START_TEST(test_other_token)
{
    unsigned char out[ROUTE_CALL_BYTES], answer[ROUTE_ANSWER_BYTES];
    struct route_call got;
    int host;

    route_auth_call(token, &call, out);
    ck_assert_int_eq(route_auth_read_call(other, out, &got), -HVD_EPERM);
    route_auth_answer(other, out, 1, answer);
    ck_assert_int_eq(route_auth_read_answer(token, out, answer, &host),
                     -HVD_EPERM);
}
END_TEST

/* A caller cannot pass for a listener by sending the call's own proof back. */
START_TEST(test_reflected)
{
    unsigned char out[ROUTE_CALL_BYTES], answer[ROUTE_ANSWER_BYTES];
    int host;

    route_auth_call(token, &call, out);
    memcpy(answer, out + ROUTE_CALL_BYTES - ROUTE_ANSWER_BYTES,
           ROUTE_ANSWER_BYTES);
    ck_assert_int_eq(route_auth_read_answer(token, out, answer, &host),
                     -HVD_EPERM);
}
END_TEST

START_TEST(test_unknown_mode)
{
    const struct route_call odd = {ROUTE_MODE_COUNT, 0, 1};
    unsigned char out[ROUTE_CALL_BYTES];
    struct route_call got;

    route_auth_call(token, &odd, out);
    ck_assert_int_eq(route_auth_read_call(token, out, &got), -HVD_EPERM);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("route_auth");
    TCase *c = tcase_create("route_auth");

    tcase_add_test(c, test_conversation);
    tcase_add_test(c, test_nonces_differ);
    tcase_add_test(c, test_changed);
    tcase_add_test(c, test_other_token);
    tcase_add_test(c, test_reflected);
    tcase_add_test(c, test_unknown_mode);
    suite_add_tcase(s, c);
    return unit_run(s);
}
