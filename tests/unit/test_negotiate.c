/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks conclude from their tables: agreement, order, errors, joined
 * ranks, and invalid tables.
 */
#include "lib/base/alloc.h"
#include "runtime/core/sched/negotiate.h"
#include "runtime/plane/site.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, PENDING_MAX = 8, BYTES_MAX = 1 << 16 };

static struct hvd_request requests[RANKS][PENDING_MAX];
static int pending[RANKS];
static const int ranks[RANKS] = {4, 7, 9};
static unsigned char bytes[BYTES_MAX];
static uint64_t lens[RANKS];
static struct hvd__agreement agreed;
static struct hb_error err;

static void setup(void)
{
    memset(requests, 0, sizeof(requests));
    memset(pending, 0, sizeof(pending));
    memset(&agreed, 0, sizeof(agreed));
    hb_error_clear(&err);
}

static void teardown(void)
{
    hvd__agreement_fini(&agreed);
    hvd__agreement_fini(&agreed);
}

static struct hvd_request *add(int rank, const char *name, size_t count)
{
    struct hvd_request *req = &requests[rank][pending[rank]++];

    req->op.kind = HVD__ALLREDUCE;
    req->op.dtype = req->op.part_dtype = HVD_FLOAT32;
    req->op.op = HVD_SUM;
    req->op.name = name;
    req->op.hashes.name = name[0] ? hvd__name_hash(name) : 0;
    req->op.count = count;
    req->op.prescale = req->op.postscale = 1.0;
    req->signature = hvd__op_signature(&req->op);
    if (pending[rank] > 1)
        requests[rank][pending[rank] - 2].next = req;
    return req;
}

static void add_all(const char *name, size_t count)
{
    for (int r = 0; r < RANKS; r++)
        add(r, name, count);
}

static void join(int rank)
{
    add(rank, "", 0)->op.kind = HVD__JOIN;
}

static size_t write_tables(uint64_t unnamed_done)
{
    struct hb_buf b = HB_BUF_INIT;
    size_t at = 0;

    for (int r = 0; r < RANKS; r++) {
        struct hvd_request *head = pending[r] ? &requests[r][0] : NULL;

        ck_assert_int_eq(hvd__table_write(&b, head, unnamed_done, PENDING_MAX),
                         0);
        lens[r] = hb_buf_len(&b);
        memcpy(bytes + at, hb_buf_data(&b), hb_buf_len(&b));
        at += hb_buf_len(&b);
    }
    hb_buf_free(&b);
    return at;
}

static int agree(void)
{
    const struct hvd__tables t = {
        .bytes = bytes, .lens = lens, .n = RANKS, .ranks = ranks};

    return hvd__agree(&t, &agreed, &err);
}

static void expect(const char *const *names, size_t n)
{
    write_tables(0);
    ck_assert_int_eq(agree(), 0);
    ck_assert_uint_eq(agreed.count, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_str_eq(agreed.records[i].d.name, names[i]);
}

START_TEST(what_all_wait_for_in_the_lowest_ones_order)
{
    static const char *const names[] = {"b", "a"};

    add(0, "b", 1);
    add(0, "a", 2);
    add(0, "only here", 3);
    add(1, "a", 2);
    add(1, "b", 1);
    add(2, "not there", 1);
    add(2, "b", 1);
    add(2, "a", 2);
    expect(names, 2);
    ck_assert_uint_eq(agreed.records[1].d.count, 2);
    ck_assert_uint_eq(agreed.records[1].signature, requests[0][1].signature);
    ck_assert_int_eq(agreed.joined, 0);
}
END_TEST

START_TEST(nothing_in_common)
{
    add(0, "a", 1);
    add(1, "b", 1);
    add(2, "a", 1);
    expect(NULL, 0);
}
END_TEST

START_TEST(by_priority_then_by_order)
{
    static const char *const names[] = {"c", "a", "b"};

    add_all("a", 1);
    add_all("b", 1);
    add_all("c", 1);
    requests[0][2].priority = 5;
    requests[1][0].priority = 9; /* the lowest rank's counts */
    expect(names, 3);
}
END_TEST

START_TEST(without_names_by_number)
{
    add_all("", 10);
    add_all("", 20);
    add(0, "", 30);
    write_tables(1000);
    ck_assert_int_eq(agree(), 0);
    ck_assert_uint_eq(agreed.count, 2);
    ck_assert_uint_eq(agreed.records[0].index, 1000);
    ck_assert_uint_eq(agreed.records[1].index, 1001);
    ck_assert_uint_eq(agreed.records[1].d.count, 20);
}
END_TEST

/* Sets a call site as HVD_CHECK=1 does. */
static void call_from(struct hvd_request *req, const char *place)
{
    req->caller = place;
    req->op.hashes.site = hvd__site_hash(place);
    req->signature = hvd__op_signature(&req->op);
}

static const char code[2];

START_TEST(places_that_differ)
{
    static const char text[] =
        "allreduce: rank 4 has call site test_negotiate+0x";

    for (int r = 0; r < RANKS; r++) {
        call_from(add(r, "", 1), code + 1);
        call_from(add(r, "", 1), r == 2 ? code + 2 : code + 1);
        add(r, "named", 1);
    }
    ck_assert_uint_eq(requests[0][0].signature, requests[1][1].signature);
    ck_assert_uint_ne(requests[0][1].signature, requests[2][1].signature);
    write_tables(0);
    ck_assert_int_eq(agree(), 0);
    ck_assert_uint_eq(agreed.count, 3);
    ck_assert_int_eq(agreed.records[0].err.status, 0);
    ck_assert_int_eq(agreed.records[1].err.status, -HVD_EMISMATCH);
    ck_assert_str_eq(agreed.records[2].d.name, "named");
    ck_assert_int_eq(agreed.records[2].err.status, 0);
    ck_assert_msg(
        strncmp(agreed.records[1].err.text, text, strlen(text)) == 0 &&
            strstr(agreed.records[1].err.text, ", rank 9 has call site "),
        "%s", agreed.records[1].err.text);
}
END_TEST

/* Only one rank sets HVD_CHECK. */
START_TEST(places_that_are_not_told)
{
    add_all("", 1);
    call_from(&requests[1][0], code + 1);
    write_tables(0);
    ck_assert_int_eq(agree(), 0);
    ck_assert_int_eq(agreed.records[0].err.status, -HVD_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(agreed.records[0].err.text,
                                 "rank 4 has call site none (HVD_CHECK"));
}
END_TEST

/* The length of a call site's text comes from a rank and may be wrong. */
START_TEST(places_that_make_no_sense)
{
    char text[HVD__SITE_BYTES];
    size_t at;

    add_all("", 1);
    for (int r = 0; r < RANKS; r++)
        call_from(&requests[r][0], code + 1);
    write_tables(0);
    hvd__site_text(code + 1, text);
    at = (size_t)lens[0] - strlen(text) - 1; /* of its last byte */
    ck_assert_uint_eq(bytes[at], strlen(text));
    for (int v = 0; v < 256; v++) {
        if (v == (int)strlen(text))
            continue;
        bytes[at] = (unsigned char)v;
        hb_error_clear(&err);
        ck_assert_int_eq(agree(), -HVD_EPROTO);
        ck_assert_ptr_nonnull(strstr(err.text, "rank 4"));
    }
}
END_TEST

START_TEST(a_name_that_means_two_things)
{
    add_all("a", 1);
    add_all("b", 1);
    requests[2][0].op.op = HVD_MAX;
    write_tables(0);
    ck_assert_int_eq(agree(), 0);
    ck_assert_uint_eq(agreed.count, 2);
    ck_assert_int_eq(agreed.records[0].err.status, -HVD_EMISMATCH);
    ck_assert_str_eq(agreed.records[0].err.text,
                     "allreduce \"a\": rank 4 has op sum, rank 9 has op max");
    ck_assert_int_eq(agreed.records[1].err.status, 0);
}
END_TEST

/* Checks who waits for the oldest request of `me`: one digit for each rank; and
 * what the first rank that does not waits for (NULL: nothing). */
static void expect_found(int me, const char *has, const char *other)
{
    const struct hvd__tables t = {
        .bytes = bytes, .lens = lens, .n = RANKS, .ranks = ranks};
    struct hvd__descriptor d;
    unsigned char found[RANKS];

    ck_assert_int_eq(hvd__tables_find(&t, me, found, &d), 0);
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(found[r], has[r] - '0');
    if (other)
        ck_assert_str_eq(d.name, other);
    else
        ck_assert_int_eq(d.kind, HVD__JOIN);
}

START_TEST(who_waits_for_the_same)
{
    const struct hvd__tables t = {
        .bytes = bytes, .lens = lens, .n = RANKS, .ranks = ranks};
    struct hvd__descriptor d;
    unsigned char found[RANKS];

    add(0, "a", 1);
    add(0, "b", 1);
    add(1, "b", 1);
    add(1, "a", 1);
    add(2, "c", 1);
    write_tables(0);
    expect_found(0, "110", "c");
    expect_found(1, "110", "c");
    expect_found(2, "001", "a");
    setup();
    add(0, "a", 1);
    join(1);
    add(2, "a", 1);
    write_tables(0);
    expect_found(0, "121", NULL);
    ck_assert_int_lt(hvd__tables_find(&t, 1, found, &d), 0);
    setup();
    add(0, "a", 1);
    write_tables(0);
    expect_found(0, "100", NULL);
    lens[0]--;
    ck_assert_int_lt(hvd__tables_find(&t, 0, found, &d), 0);
}
END_TEST

START_TEST(joined_ranks_wait_for_nothing)
{
    static const char *const names[] = {"a"};

    join(0);
    add(1, "a", 1);
    add(2, "a", 1);
    expect(names, 1);
    ck_assert_int_eq(agreed.joined, 1);
    ck_assert(agreed.is_joined[0] && !agreed.is_joined[1]);
}
END_TEST

START_TEST(all_have_joined)
{
    for (int r = 0; r < RANKS; r++)
        join(r);
    expect(NULL, 0);
    ck_assert_int_eq(agreed.joined, RANKS);
}
END_TEST

START_TEST(a_joined_root)
{
    join(1);
    for (int r = 0; r < RANKS; r += 2) {
        struct hvd_request *req = add(r, "a", 1);

        req->op.kind = HVD__BROADCAST;
        req->op.root = 1;
    }
    write_tables(0);
    ck_assert_int_eq(agree(), 0);
    ck_assert_str_eq(agreed.records[0].err.text,
                     "broadcast: root 7 has joined");
}
END_TEST

/* Tables cut anywhere, or with any byte changed, are refused or agreed on, and
 * never read beyond their end. */
START_TEST(what_makes_no_sense)
{
    size_t len;

    add_all("name", 1);
    add_all("", 2);
    len = write_tables(0);
    for (size_t cut = 0; cut < lens[2]; cut++) {
        unsigned char *copy = malloc(len - lens[2] + cut + 1);
        const uint64_t shorter[RANKS] = {lens[0], lens[1], cut};
        const struct hvd__tables t = {
            .bytes = copy, .lens = shorter, .n = RANKS, .ranks = ranks};

        ck_assert_ptr_nonnull(copy);
        memcpy(copy, bytes, len - lens[2] + cut);
        ck_assert_int_eq(hvd__agree(&t, &agreed, &err), -HVD_EPROTO);
        ck_assert_ptr_nonnull(strstr(err.text, "what rank 9 says"));
        hb_error_clear(&err);
        free(copy);
    }
    for (size_t i = 0; i < len; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char)(1u << bit);
            agree();
            hvd__agreement_fini(&agreed);
            hb_error_clear(&err);
            bytes[i] ^= (unsigned char)(1u << bit);
        }
}
END_TEST

START_TEST(without_memory)
{
    int rc = -1;

    add_all("a", 1);
    write_tables(0);
    for (long n = 0; rc < 0; n++) {
        ck_assert_int_lt(n, 100);
        hb_alloc_fail_after(n);
        rc = agree();
        hb_alloc_fail_after(-1);
        ck_assert(rc == 0 || rc == -HVD_ENOMEM);
        hb_error_clear(&err);
    }
    ck_assert_uint_eq(agreed.count, 1);
}
END_TEST

/* ---- Lengths and counts of peers ---------------------------------------- */

static int sum_of(uint64_t a, uint64_t b, uint64_t c, size_t *sum)
{
    const uint64_t told[RANKS] = {a, b, c};

    hb_error_clear(&err);
    return hvd__tables_sum(told, RANKS, ranks, sum, &err);
}

START_TEST(lengths_are_bounded)
{
    const uint64_t most = HVD__TABLE_BYTES_MAX, half = (uint64_t)1 << 63;
    size_t sum = 1;

    ck_assert_int_eq(sum_of(8, most, 100, &sum), 0);
    ck_assert_uint_eq(sum, most + 108);
    ck_assert_int_eq(sum_of(8, 100, most + 1, &sum), -HVD_EPROTO);
    ck_assert_str_eq(err.text, "rank 9 announces a table of 268435457 bytes, "
                               "which no table has");
    ck_assert_int_eq(sum_of(7, 100, 100, &sum), -HVD_EPROTO);
    ck_assert_int_eq(sum_of(half + 8, 100, 100, &sum), -HVD_EPROTO);
    ck_assert_int_eq(sum_of(half, half, 100, &sum), -HVD_EPROTO);
    ck_assert_int_eq(sum_of(100, 100, UINT64_MAX, &sum), -HVD_EPROTO);
    ck_assert_uint_eq(sum, most + 108);
}
END_TEST

/* A rank may leave out requests only if its table is full. */
START_TEST(counts_are_bounded)
{
    struct hvd__tables t = {
        .bytes = bytes, .lens = lens, .n = RANKS, .ranks = ranks};

    for (int i = 0; i < 3; i++)
        add_all("", 1);
    write_tables(0);
    t.records_max = 3;
    ck_assert_int_eq(hvd__agree(&t, &agreed, &err), 0);
    ck_assert_uint_eq(agreed.count, 3);
    hvd__agreement_fini(&agreed);
    t.records_max = 2;
    ck_assert_int_eq(hvd__agree(&t, &agreed, &err), -HVD_EPROTO);
    t.records_max = 4;
    bytes[3] |= 2; /* rank 4 has more than it sent */
    hb_error_clear(&err);
    ck_assert_int_eq(hvd__agree(&t, &agreed, &err), -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "rank 4"));
    t.records_max = 3;
    hb_error_clear(&err);
    ck_assert_int_eq(hvd__agree(&t, &agreed, &err), 0);
    ck_assert_int_eq(agreed.is_cut, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("negotiate");
    TCase *t = tcase_create("all");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_all_wait_for_in_the_lowest_ones_order);
    tcase_add_test(t, nothing_in_common);
    tcase_add_test(t, by_priority_then_by_order);
    tcase_add_test(t, without_names_by_number);
    tcase_add_test(t, places_that_differ);
    tcase_add_test(t, places_that_are_not_told);
    tcase_add_test(t, places_that_make_no_sense);
    tcase_add_test(t, a_name_that_means_two_things);
    tcase_add_test(t, who_waits_for_the_same);
    tcase_add_test(t, joined_ranks_wait_for_nothing);
    tcase_add_test(t, all_have_joined);
    tcase_add_test(t, a_joined_root);
    tcase_add_test(t, what_makes_no_sense);
    tcase_add_test(t, without_memory);
    tcase_add_test(t, lengths_are_bounded);
    tcase_add_test(t, counts_are_bounded);
    suite_add_tcase(s, t);
    return unit_run(s);
}
