/* SPDX-License-Identifier: Apache-2.0 */
/* Routes and fences between a worker and its agent: round trips, lengths,
 * limits. */
#include "lib/base/alloc.h"
#include "lib/protocol/worker.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

/* Returns the payload of the only frame in b. */
static struct frame payload(const struct hb_buf *b, int type)
{
    struct frame f;

    ck_assert_int_eq(frame_decode(b, WORKER_FENCED_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, type);
    return f;
}

/* ---- The fence ------------------------------------------------------- */

START_TEST(test_fence_round_trip)
{
    char scope[WORKER_SCOPE_MAX];
    struct hb_buf b = HB_BUF_INIT;
    struct worker_value v;
    struct frame f;

    ck_assert_int_eq(worker_encode_fence(&b, "hosts.1", "a\0b", 3), 0);
    f = payload(&b, WORKER_RDV_FENCE);
    ck_assert_int_eq(worker_decode_fence(f.payload, f.len, scope, &v), 0);
    ck_assert_str_eq(scope, "hosts.1");
    ck_assert_uint_eq(v.len, 3);
    ck_assert_mem_eq(v.value, "a\0b", 3);
    for (size_t len = 0; len < f.len; len++)
        ck_assert_int_eq(worker_decode_fence(f.payload, len, scope, &v),
                         -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_fence(f.payload, f.len + 1, scope, &v),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_fence_limits)
{
    char scope[WORKER_SCOPE_MAX + 1], got[WORKER_SCOPE_MAX];
    static unsigned char value[WORKER_VALUE_MAX + 1];
    struct hb_buf b = HB_BUF_INIT;
    struct worker_value v;
    struct frame f;

    memset(scope, 's', sizeof(scope));
    scope[WORKER_SCOPE_MAX] = '\0';
    ck_assert_int_eq(worker_encode_fence(&b, scope, value, 0), -HVD_EINVAL);
    ck_assert_int_eq(worker_encode_fence(&b, "", value, 0), -HVD_EINVAL);
    ck_assert_int_eq(worker_encode_fence(&b, "s", value, sizeof(value)),
                     -HVD_EINVAL);
    scope[WORKER_SCOPE_MAX - 1] = '\0';
    ck_assert_int_eq(worker_encode_fence(&b, scope, value, sizeof(value) - 1),
                     0);
    f = payload(&b, WORKER_RDV_FENCE);
    ck_assert_int_eq(worker_decode_fence(f.payload, f.len, got, &v), 0);
    ck_assert_str_eq(got, scope);
    ck_assert_uint_eq(v.len, sizeof(value) - 1);
    hb_buf_free(&b);
}
END_TEST

static void put_fenced(struct hb_buf *b, uint32_t first)
{
    ck_assert_int_eq(worker_begin_fenced(b, "s", 3, 1 + 0 + 2), 0);
    worker_put_fenced(b, first, "x", 1);
    worker_put_fenced(b, 1, NULL, 0);
    worker_put_fenced(b, 2, "yz", 2);
}

START_TEST(test_fenced_round_trip)
{
    struct hb_buf b = HB_BUF_INIT;
    struct worker_value v[4];
    struct frame f;

    put_fenced(&b, 0);
    f = payload(&b, WORKER_RDV_FENCED);
    ck_assert_int_eq(worker_decode_fenced(f.payload, f.len, "s", 3, v), 0);
    ck_assert_uint_eq(v[0].len, 1);
    ck_assert_uint_eq(v[1].len, 0);
    ck_assert_uint_eq(v[2].rank, 2);
    ck_assert_mem_eq(v[2].value, "yz", 2);
    for (size_t len = 0; len < f.len; len++)
        ck_assert_int_eq(worker_decode_fenced(f.payload, len, "s", 3, v),
                         -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_fenced(f.payload, f.len + 1, "s", 3, v),
                     -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_fenced(f.payload, f.len, "t", 3, v),
                     -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_fenced(f.payload, f.len, "s", 4, v),
                     -HVD_EPROTO);
    hb_buf_clear(&b);
    put_fenced(&b, 1);
    f = payload(&b, WORKER_RDV_FENCED);
    ck_assert_int_eq(worker_decode_fenced(f.payload, f.len, "s", 3, v),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_fenced_limits)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(worker_begin_fenced(&b, "s", 1, WORKER_FENCED_MAX),
                     -HVD_EINVAL);
    ck_assert_int_eq(worker_begin_fenced(&b, "", 1, 1), -HVD_EINVAL);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
}
END_TEST

/* ---- Routes ---------------------------------------------------------- */

START_TEST(test_routes)
{
    static char one[] = "10.0.0.1", own[] = "", six[] = "fe80::1%eth0";
    char *addresses[] = {one, own, six};
    char got[4][WORKER_ADDRESS_MAX];
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(worker_encode_routes(&b), 0);
    ck_assert_uint_eq(payload(&b, WORKER_ROUTES).len, 0);
    hb_buf_clear(&b);
    ck_assert_int_eq(worker_encode_routes_are(&b, addresses, 3), 0);
    f = payload(&b, WORKER_ROUTES_ARE);
    ck_assert_int_eq(worker_decode_routes_are(f.payload, f.len, 3, got), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(got[i], addresses[i]);
    for (size_t len = 0; len < f.len; len++)
        ck_assert_int_eq(worker_decode_routes_are(f.payload, len, 3, got),
                         -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_routes_are(f.payload, f.len, 2, got),
                     -HVD_EPROTO);
    ck_assert_int_eq(worker_decode_routes_are(f.payload, f.len, 4, got),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_routes_limits)
{
    static char longest[WORKER_ADDRESS_MAX + 1];
    char *addresses[] = {longest};
    char got[1][WORKER_ADDRESS_MAX];
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    memset(longest, '1', WORKER_ADDRESS_MAX);
    ck_assert_int_eq(worker_encode_routes_are(&b, addresses, 1), -HVD_EINVAL);
    longest[WORKER_ADDRESS_MAX - 1] = '\0';
    ck_assert_int_eq(worker_encode_routes_are(&b, addresses, 1), 0);
    f = payload(&b, WORKER_ROUTES_ARE);
    ck_assert_int_eq(worker_decode_routes_are(f.payload, f.len, 1, got), 0);
    ck_assert_str_eq(got[0], longest);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_no_memory)
{
    struct hb_buf b = HB_BUF_INIT;
    char *none[] = {NULL};

    hb_alloc_fail_after(0);
    ck_assert_int_eq(worker_encode_fence(&b, "s", "v", 1), -HVD_ENOMEM);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(worker_begin_fenced(&b, "s", 1, 1), -HVD_ENOMEM);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(worker_encode_routes(&b), -HVD_ENOMEM);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(worker_encode_routes_are(&b, none, 0), -HVD_ENOMEM);
    hb_alloc_fail_after(-1);
}
END_TEST

static Suite *worker_rdv_suite(void)
{
    Suite *s = suite_create("worker_rdv");
    TCase *c = tcase_create("worker_rdv");

    tcase_add_test(c, test_fence_round_trip);
    tcase_add_test(c, test_fence_limits);
    tcase_add_test(c, test_fenced_round_trip);
    tcase_add_test(c, test_fenced_limits);
    tcase_add_test(c, test_routes);
    tcase_add_test(c, test_routes_limits);
    tcase_add_test(c, test_no_memory);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return unit_run(worker_rdv_suite());
}
