/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between an agent and hvd-pmix: round trips, lengths, limits. */
#include "lib/base/alloc.h"
#include "lib/protocol/pmix_wire.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static struct frame payload(const struct hb_buf *b, int type)
{
    struct frame f;

    ck_assert_int_eq(frame_decode(b, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, type);
    return f;
}

/* ---- SETUP ------------------------------------------------------------ */

static void fill_setup(struct pmix_setup *m)
{
    memset(m, 0, sizeof(*m));
    strcpy(m->nspace, "hvdrun-1");
    strcpy(m->library, "libpmix.so.2");
    strcpy(m->dir, "/dev/shm/d");
    m->size = 3;
    m->host_index = 1;
    m->uid = 7;
    m->gid = 8;
    hb_must(hb_strv_add(&m->hosts, "a"));
    hb_must(hb_strv_add(&m->hosts, "b"));
    m->host_of = hb_xcalloc(3, sizeof(*m->host_of));
    m->host_of[1] = 1;
}

START_TEST(test_setup_round_trip)
{
    struct hb_buf b = HB_BUF_INIT;
    struct pmix_setup m, got;
    struct frame f;

    fill_setup(&m);
    ck_assert_int_eq(pmix_wire_encode_setup(&b, &m), 0);
    f = payload(&b, PMIX_WIRE_SETUP);
    ck_assert_int_eq(pmix_wire_decode_setup(f.payload, f.len, &got), 0);
    ck_assert_str_eq(got.nspace, m.nspace);
    ck_assert_str_eq(got.library, m.library);
    ck_assert_str_eq(got.dir, m.dir);
    ck_assert_uint_eq(got.uid, 7);
    ck_assert_uint_eq(got.gid, 8);
    ck_assert_uint_eq(got.host_index, 1);
    ck_assert_uint_eq(got.hosts.count, 2);
    ck_assert_str_eq(got.hosts.items[1], "b");
    ck_assert_uint_eq(got.size, 3);
    ck_assert_uint_eq(got.host_of[0], 0);
    ck_assert_uint_eq(got.host_of[1], 1);
    pmix_setup_fini(&got);
    for (size_t len = 0; len < f.len; len++)
        ck_assert_int_eq(pmix_wire_decode_setup(f.payload, len, &got),
                         -HVD_EPROTO);
    for (long n = 0, rc = -1; rc < 0; n++) {
        hb_alloc_fail_after(n);
        rc = pmix_wire_decode_setup(f.payload, f.len, &got);
        ck_assert_int_eq(rc, hb_alloc_fail_after(-1) ? -HVD_ENOMEM : 0);
        pmix_setup_fini(&got);
    }
    pmix_setup_fini(&m);
    hb_buf_free(&b);
}
END_TEST

/* Changes the setup in one way that makes it wrong. */
static void spoil(struct pmix_setup *m, int how)
{
    switch (how) {
    case 0:
        m->size = 0;
        break;
    case 1:
        m->size = PMIX_WIRE_RANKS_MAX + 1;
        break;
    case 2:
        m->host_index = 2;
        break;
    case 3:
        m->host_of[2] = 2;
        break;
    case 4:
        m->nspace[0] = '\0';
        break;
    case 5:
        m->dir[0] = 'd';
        break;
    case 6:
        m->library[0] = '\0';
        break;
    case 7:
        m->hosts.items[0][0] = ',';
        break;
    default:
        m->hosts.items[1][0] = ';';
        break;
    }
}

START_TEST(test_setup_limits)
{
    struct hb_buf b = HB_BUF_INIT;
    struct pmix_setup m;

    fill_setup(&m);
    spoil(&m, _i);
    ck_assert_int_eq(pmix_wire_encode_setup(&b, &m), -HVD_EINVAL);
    ck_assert_uint_eq(hb_buf_len(&b), 0);
    pmix_setup_fini(&m);
}
END_TEST

/* A number of ranks that is not followed by as many hosts takes no memory. */
START_TEST(test_setup_size_is_checked_first)
{
    struct hb_buf b = HB_BUF_INIT;
    struct pmix_setup m, got;
    unsigned char *size;
    struct frame f;

    fill_setup(&m);
    ck_assert_int_eq(pmix_wire_encode_setup(&b, &m), 0);
    f = payload(&b, PMIX_WIRE_SETUP);
    size = (unsigned char *)f.payload + f.len - 3 * 4 - 4;
    ck_assert_uint_eq(size[3], 3);
    size[0] = 0xff;
    ck_assert_int_eq(pmix_wire_decode_setup(f.payload, f.len, &got),
                     -HVD_EPROTO);
    pmix_setup_fini(&m);
    hb_buf_free(&b);
}
END_TEST

/* ---- READY ------------------------------------------------------------ */

START_TEST(test_ready_round_trip)
{
    struct pmix_rank_env ranks[2] = {{.rank = 1}, {.rank = 3}};
    struct pmix_ready m = {ranks, 2}, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    hb_must(hb_strv_add(&ranks[1].env, "PMIX_RANK=3"));
    hb_must(hb_strv_add(&ranks[1].env, "A=b=c"));
    ck_assert_int_eq(pmix_wire_encode_ready(&b, &m), 0);
    f = payload(&b, PMIX_WIRE_READY);
    ck_assert_int_eq(pmix_wire_decode_ready(f.payload, f.len, &got), 0);
    ck_assert_uint_eq(got.count, 2);
    ck_assert_uint_eq(got.ranks[0].rank, 1);
    ck_assert_uint_eq(got.ranks[0].env.count, 0);
    ck_assert_uint_eq(got.ranks[1].rank, 3);
    ck_assert_str_eq(got.ranks[1].env.items[1], "A=b=c");
    pmix_ready_fini(&got);
    for (size_t len = 0; len < f.len; len++)
        ck_assert_int_eq(pmix_wire_decode_ready(f.payload, len, &got),
                         -HVD_EPROTO);
    ck_assert_int_eq(pmix_wire_decode_ready(f.payload, f.len + 1, &got),
                     -HVD_EPROTO);
    hb_strv_free(&ranks[1].env);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_ready_limits)
{
    static const char *const bad[] = {"", "=x", "NAME", "a b=c", "A-B=c"};
    struct pmix_rank_env rank = {.rank = 0};
    struct pmix_ready m = {&rank, 1};
    struct hb_buf b = HB_BUF_INIT;
    char *text;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        hb_must(hb_strv_add(&rank.env, bad[i]));
        ck_assert_int_eq(pmix_wire_encode_ready(&b, &m), -HVD_EINVAL);
        hb_strv_free(&rank.env);
    }
    text = hb_xcalloc(PMIX_WIRE_ENV_BYTES + 1, 1);
    memset(text, 'A', PMIX_WIRE_ENV_BYTES);
    text[1] = '=';
    hb_must(hb_strv_add(&rank.env, text));
    ck_assert_int_eq(pmix_wire_encode_ready(&b, &m), -HVD_EINVAL);
    rank.env.items[0][PMIX_WIRE_ENV_BYTES - 1] = '\0';
    ck_assert_int_eq(pmix_wire_encode_ready(&b, &m), 0);
    hb_strv_free(&rank.env);
    rank.rank = PMIX_WIRE_RANKS_MAX;
    ck_assert_int_eq(pmix_wire_encode_ready(&b, &m), -HVD_EINVAL);
    m.count = PMIX_WIRE_LOCAL_MAX + 1;
    ck_assert_int_eq(pmix_wire_encode_ready(&b, &m), -HVD_EINVAL);
    hb_free(text);
    hb_buf_free(&b);
}
END_TEST

/* ---- The others ------------------------------------------------------- */

START_TEST(test_item_round_trip)
{
    const struct pmix_wire_item m = {7, PMIX_WIRE_NO_DATA, "a\0b", 3};
    struct hb_buf b = HB_BUF_INIT;
    struct pmix_wire_item got;
    struct frame f;

    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FENCE_DONE, &m), 0);
    f = payload(&b, PMIX_WIRE_FENCE_DONE);
    ck_assert_int_eq(pmix_wire_decode(f.type, f.payload, f.len, &got), 0);
    ck_assert_uint_eq(got.id, 7);
    ck_assert_int_eq(got.status, PMIX_WIRE_NO_DATA);
    ck_assert_uint_eq(got.len, 3);
    ck_assert_mem_eq(got.data, "a\0b", 3);
    for (size_t len = 0; len < 8; len++)
        ck_assert_int_eq(pmix_wire_decode(f.type, f.payload, len, &got),
                         -HVD_EPROTO);
    /* A type that holds no data, one that does not exist, and a text with a
     * byte of 0. */
    ck_assert_int_eq(pmix_wire_decode(PMIX_WIRE_ASK, f.payload, f.len, &got),
                     -HVD_EPROTO);
    ck_assert_int_eq(pmix_wire_decode(0, f.payload, f.len, &got), -HVD_EPROTO);
    ck_assert_int_eq(pmix_wire_decode(255, f.payload, f.len, &got),
                     -HVD_EPROTO);
    ck_assert_int_eq(pmix_wire_decode(PMIX_WIRE_ABORT, f.payload, f.len, &got),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_item_limits)
{
    static char text[PMIX_WIRE_TEXT_MAX];
    struct pmix_wire_item m = {0, -1, NULL, 0};
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_ABORT, &m), 0);
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FENCE, &m), -HVD_EINVAL);
    m.status = PMIX_WIRE_NO_DATA + 1;
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FENCE, &m), -HVD_EINVAL);
    m.status = PMIX_WIRE_PEER_LOST;
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FENCE, &m), 0);
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_WANT, &m), -HVD_EINVAL);
    memset(text, 'x', sizeof(text));
    m = (struct pmix_wire_item){0, 0, text, sizeof(text)};
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FAILED, &m), -HVD_EINVAL);
    m.len--;
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FAILED, &m), 0);
    m.len = PMIX_WIRE_DATA_MAX + 1;
    ck_assert_int_eq(pmix_wire_encode(&b, PMIX_WIRE_FENCE, &m), -HVD_EINVAL);
    hb_buf_free(&b);
}
END_TEST

static Suite *pmix_wire_suite(void)
{
    Suite *s = suite_create("pmix_wire");
    TCase *tc = tcase_create("wire");

    tcase_add_test(tc, test_setup_round_trip);
    tcase_add_loop_test(tc, test_setup_limits, 0, 9);
    tcase_add_test(tc, test_setup_size_is_checked_first);
    tcase_add_test(tc, test_ready_round_trip);
    tcase_add_test(tc, test_ready_limits);
    tcase_add_test(tc, test_item_round_trip);
    tcase_add_test(tc, test_item_limits);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return unit_run(pmix_wire_suite());
}
