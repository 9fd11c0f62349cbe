/* SPDX-License-Identifier: Apache-2.0 */
/* lib/rendezvous/store.h: values, waits, fences, bounds. */
#include "lib/rendezvous/store_impl.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

static struct rdv_store *store;
static char said[4096]; /* "origin/id=value " of each reply; "!status" if
                         * refused */
static uint64_t last_version;

static void on_reply(void *arg, int origin, const struct rdv_reply *m)
{
    size_t used = strlen(said);

    ck_assert_ptr_eq(arg, said);
    last_version = m->version;
    if (m->status)
        snprintf(said + used, sizeof(said) - used, "%d/%u!%d ", origin, m->id,
                 m->status);
    else
        snprintf(said + used, sizeof(said) - used, "%d/%u=%.*s ", origin, m->id,
                 (int)m->len, m->len ? (const char *)m->value : "");
}

static void setup_with(size_t bytes_max, size_t waits_max)
{
    struct rdv_store_config config = {.ranks = 4,
                                      .bytes_max = bytes_max,
                                      .waits_max = waits_max,
                                      .reply = on_reply,
                                      .arg = said};

    rdv_store_free(store);
    said[0] = '\0';
    store = rdv_store_new(&config);
}

static void setup(void)
{
    store = NULL;
    setup_with(1 << 20, 100);
}

static void teardown(void)
{
    rdv_store_free(store);
}

/* Sends a request to the store; returns the replies that it caused. */
static const char *ask(int origin, uint32_t id, enum rdv_op op,
                       const char *scope, const char *key, const char *value)
{
    struct rdv_request m = {
        .id = id, .op = op, .value = value, .len = value ? strlen(value) : 0};

    snprintf(m.scope, sizeof(m.scope), "%s", scope);
    snprintf(m.key, sizeof(m.key), "%s", key);
    said[0] = '\0';
    rdv_store_request(store, origin, &m);
    return said;
}

static const char *wait_for(int origin, uint32_t id, const char *key,
                            uint64_t after)
{
    struct rdv_request m = {.id = id, .op = RDV_GET, .wait = 1, .after = after};

    strcpy(m.scope, "s");
    snprintf(m.key, sizeof(m.key), "%s", key);
    said[0] = '\0';
    rdv_store_request(store, origin, &m);
    return said;
}

START_TEST(put_and_get)
{
    ck_assert_str_eq(ask(0, 1, RDV_GET, "s", "k", NULL), "0/1!14 ");
    ck_assert_str_eq(ask(0, 2, RDV_PUT, "s", "k", "v"), "0/2= ");
    ck_assert_str_eq(ask(1, 3, RDV_GET, "s", "k", NULL), "1/3=v ");
    ck_assert_str_eq(ask(1, 4, RDV_GET, "t", "k", NULL), "1/4!14 ");
    ck_assert_str_eq(ask(1, 5, RDV_PUT, "s", "k", "longer"), "1/5= ");
    ck_assert_str_eq(ask(0, 6, RDV_GET, "s", "k", NULL), "0/6=longer ");
    ck_assert_uint_eq(last_version, 2);
    ck_assert_str_eq(ask(0, 7, RDV_PUT, "s", "", ""), "0/7= ");
    ck_assert_str_eq(ask(0, 8, RDV_GET, "s", "", NULL), "0/8= ");
}
END_TEST

static const char *numbered(size_t i)
{
    static char key[32];

    snprintf(key, sizeof(key), "key%zu", i);
    return key;
}

/* The table grows while it holds values and waiting requests. */
START_TEST(many_values)
{
    enum { COUNT = 5000 };
    char want[64];

    setup_with(64 << 20, 100);
    wait_for(1, 1, "late", 0);
    wait_for(2, 2, "late", 0);
    for (size_t i = 0; i < COUNT; i++)
        ask(0, 1, RDV_PUT, i % 2 ? "s" : "t", numbered(i), numbered(i));
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(want, sizeof(want), "0/2=key%zu ", i);
        ck_assert_str_eq(
            ask(0, 2, RDV_GET, i % 2 ? "s" : "t", numbered(i), NULL), want);
        ck_assert_str_eq(
            ask(0, 3, RDV_GET, i % 2 ? "t" : "s", numbered(i), NULL),
            "0/3!14 ");
    }
    ck_assert_str_eq(ask(0, 4, RDV_PUT, "s", "late", "x"), "0/4= 1/1=x 2/2=x ");
    ask(0, 5, RDV_DELETE, "s", "", NULL);
    ask(0, 5, RDV_DELETE, "t", "", NULL);
    ck_assert_uint_eq(rdv_store_bytes(store), 0);
}
END_TEST

/* The table grows with waiting requests and no value. */
START_TEST(many_who_wait)
{
    enum { COUNT = 100000 };
    size_t longest = 0;
    char want[64];

    setup_with(64 << 20, COUNT + 2);
    wait_for(2, 1, "early", 0);
    wait_for(3, 2, "early", 0);
    for (uint32_t i = 0; i < COUNT; i++)
        ck_assert_str_eq(wait_for(0, i, numbered(i), 0), "");
    for (size_t i = 0; i < store->bucket_count; i++) {
        size_t len = 0;

        for (const struct wait *w = store->buckets[i].waits; w; w = w->next)
            len++;
        longest = len > longest ? len : longest;
    }
    ck_assert_uint_le(longest, 32); /* 2 on average */
    for (uint32_t i = 0; i < COUNT; i += 1000) {
        snprintf(want, sizeof(want), "1/1= 0/%u=x ", i);
        ck_assert_str_eq(ask(1, 1, RDV_PUT, "s", numbered(i), "x"), want);
    }
    ck_assert_str_eq(ask(1, 1, RDV_PUT, "s", "early", "x"),
                     "1/1= 2/1=x 3/2=x ");
    rdv_store_origin_gone(store, 0);
    ask(1, 1, RDV_DELETE, "s", "", NULL);
    ck_assert_uint_eq(rdv_store_bytes(store), 0);
}
END_TEST

/* The accounted bytes are close to the allocated memory. */
START_TEST(counts_what_is_taken)
{
    size_t before;

    setup_with(64 << 20, 100);
    before = mallinfo2().uordblks;
    for (size_t i = 0; i < 5000; i++)
        ask(0, 1, RDV_PUT, "s", numbered(i), "");
    before = mallinfo2().uordblks - before;
    if (before == 0)
        return; /* a sanitizer's malloc does not report sizes */
    ck_assert_uint_ge(rdv_store_bytes(store), before * 3 / 4);
    ck_assert_uint_le(rdv_store_bytes(store), before * 4 / 3);
}
END_TEST

START_TEST(delete_one_and_a_scope)
{
    ask(0, 1, RDV_PUT, "s", "a", "1");
    ask(0, 1, RDV_PUT, "s", "b", "2");
    ask(0, 1, RDV_PUT, "t", "a", "3");
    ck_assert_str_eq(ask(0, 2, RDV_DELETE, "s", "a", NULL), "0/2= ");
    ck_assert_str_eq(ask(0, 3, RDV_GET, "s", "a", NULL), "0/3!14 ");
    ck_assert_str_eq(ask(0, 4, RDV_GET, "s", "b", NULL), "0/4=2 ");
    ck_assert_str_eq(ask(0, 5, RDV_DELETE, "s", "", NULL), "0/5= ");
    ck_assert_str_eq(ask(0, 6, RDV_GET, "s", "b", NULL), "0/6!14 ");
    ck_assert_str_eq(ask(0, 7, RDV_GET, "t", "a", NULL), "0/7=3 ");
    ck_assert_str_eq(ask(0, 8, RDV_DELETE, "none", "x", NULL), "0/8= ");
}
END_TEST

/* The first request whose key exists deletes the scope; a late one leaves alone
 * what others have put since. */
START_TEST(end_of_a_round)
{
    ask(0, 1, RDV_PUT, "s", "0", "a");
    ask(0, 1, RDV_PUT, "s", "1", "b");
    ask(0, 1, RDV_PUT, "s", "rank_0", "c");
    ask(0, 1, RDV_PUT, "t", "0", "d");
    ck_assert_str_eq(ask(0, 2, RDV_END_ROUND, "s", "0", NULL), "0/2= ");
    ck_assert_str_eq(ask(0, 3, RDV_GET, "s", "rank_0", NULL), "0/3!14 ");
    ck_assert_str_eq(ask(0, 4, RDV_GET, "t", "0", NULL), "0/4=d ");
    ck_assert_str_eq(wait_for(1, 5, "0", 0), "");
    ck_assert_str_eq(ask(0, 6, RDV_PUT, "s", "0", "next"), "0/6= 1/5=next ");
    ck_assert_str_eq(ask(0, 7, RDV_END_ROUND, "s", "1", NULL), "0/7= ");
    ck_assert_str_eq(ask(0, 8, RDV_GET, "s", "0", NULL), "0/8=next ");
    ck_assert_str_eq(ask(0, 9, RDV_END_ROUND, "none", "1", NULL), "0/9= ");
}
END_TEST

/* All waiting requests get the first value, in the order of their arrival. */
START_TEST(waits_end_with_the_value)
{
    ck_assert_str_eq(wait_for(0, 1, "k", 0), "");
    ck_assert_str_eq(wait_for(1, 2, "k", 0), "");
    ck_assert_str_eq(wait_for(1, 3, "other", 0), "");
    ck_assert_uint_eq(rdv_store_waits(store), 3);
    ck_assert_str_eq(ask(2, 9, RDV_PUT, "s", "k", "v"), "2/9= 0/1=v 1/2=v ");
    ck_assert_uint_eq(rdv_store_waits(store), 1);
    ck_assert_str_eq(wait_for(0, 4, "k", 0), "0/4=v ");
}
END_TEST

/* Waiting for a version above the last seen one is a watch. */
START_TEST(watch)
{
    uint64_t seen;

    ask(0, 1, RDV_PUT, "s", "k", "1");
    seen = last_version;
    ck_assert_str_eq(wait_for(1, 2, "k", seen), "");
    ck_assert_str_eq(ask(0, 3, RDV_PUT, "s", "x", "other"), "0/3= ");
    ck_assert_str_eq(ask(0, 4, RDV_PUT, "s", "k", "2"), "0/4= 1/2=2 ");
    ck_assert_uint_gt(last_version, seen);
    ck_assert_str_eq(wait_for(1, 5, "k", seen), "1/5=2 ");
}
END_TEST

START_TEST(cancelled_waits_get_nothing)
{
    wait_for(0, 1, "k", 0);
    wait_for(0, 2, "k", 0);
    wait_for(1, 1, "k", 0);
    ck_assert_str_eq(ask(0, 1, RDV_CANCEL, "", "", NULL), "");
    ck_assert_uint_eq(rdv_store_waits(store), 2);
    rdv_store_origin_gone(store, 1);
    ck_assert_uint_eq(rdv_store_waits(store), 1);
    ck_assert_str_eq(ask(2, 9, RDV_PUT, "s", "k", "v"), "2/9= 0/2=v ");
}
END_TEST

START_TEST(bounds)
{
    char big[401];
    size_t before;

    memset(big, 'x', 400);
    big[400] = '\0';
    setup_with(1200, 2);
    ck_assert_str_eq(ask(0, 1, RDV_PUT, "s", "a", big), "0/1= ");
    before = rdv_store_bytes(store);
    ck_assert_str_eq(ask(0, 2, RDV_PUT, "s", "b", big), "0/2= ");
    ck_assert_str_eq(ask(0, 3, RDV_PUT, "s", "c", big), "0/3!2 ");
    ck_assert_str_eq(ask(0, 4, RDV_GET, "s", "c", NULL), "0/4!14 ");
    /* replacing a value needs no more room */
    ck_assert_str_eq(ask(0, 5, RDV_PUT, "s", "b", big), "0/5= ");
    ask(0, 6, RDV_DELETE, "s", "b", NULL);
    ck_assert_uint_eq(rdv_store_bytes(store), before);
    wait_for(0, 7, "k", 0);
    wait_for(0, 8, "k", 0);
    ck_assert_str_eq(wait_for(0, 9, "k", 0), "0/9!2 ");
}
END_TEST

START_TEST(a_watch_sees_the_end)
{
    ask(0, 1, RDV_PUT, "s", "k", "x");
    ck_assert_str_eq(wait_for(1, 2, "k", last_version), "");
    ck_assert_str_eq(wait_for(1, 3, "other", 0), "");
    ck_assert_str_eq(ask(0, 4, RDV_DELETE, "s", "k", NULL), "1/2!14 0/4= ");
    ck_assert_uint_eq(rdv_store_waits(store), 1);
}
END_TEST

/* Waiting requests count as used room. */
START_TEST(waits_take_room)
{
    setup_with(1000, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        wait_for(0, i, "k", 0);
    ck_assert_uint_le(rdv_store_bytes(store), 1000);
    ck_assert_uint_lt(rdv_store_waits(store), 50);
    rdv_store_origin_gone(store, 0);
    ck_assert_uint_eq(rdv_store_bytes(store), 0);
}
END_TEST

/* ---- Fences ---- */

/* Joins a fence with values of `count` ranks from `first` on. */
static const char *fence(int origin, uint32_t id, const char *scope,
                         const unsigned char *members, uint32_t member_count,
                         uint32_t first, uint32_t count)
{
    struct hb_buf records = HB_BUF_INIT;
    struct rdv_request m = {.id = id,
                            .op = RDV_FENCE,
                            .members = members,
                            .member_count = member_count};
    char value[8];

    for (uint32_t i = 0; i < count; i++) {
        snprintf(value, sizeof(value), "<%u>", first + i);
        rdv_put_record(&records, first + i, value, strlen(value));
    }
    snprintf(m.scope, sizeof(m.scope), "%s", scope);
    m.value = hb_buf_data(&records);
    m.len = hb_buf_len(&records);
    said[0] = '\0';
    rdv_store_request(store, origin, &m);
    hb_buf_free(&records);
    return said;
}

static const unsigned char odd[] = {0, 0, 0, 1, 0, 0, 0, 3};

static uint64_t culprit;

static void on_fence(void *arg, int origin, const struct rdv_reply *m)
{
    struct rdv_record record;
    struct hb_reader r;
    size_t used = strlen(said);

    (void)arg;
    culprit = m->version;
    used += (size_t)snprintf(said + used, sizeof(said) - used, "%d/%u%s",
                             origin, m->id, m->status ? "!" : "=");
    hb_reader_init(&r, m->value, m->len);
    while (!m->status && rdv_next_record(&r, &record) > 0)
        used += (size_t)snprintf(said + used, sizeof(said) - used, "%u%.*s",
                                 record.rank, (int)record.len,
                                 (const char *)record.value);
    if (m->status)
        snprintf(said + used, sizeof(said) - used, "%d ", m->status);
    else
        snprintf(said + used, sizeof(said) - used, " ");
}

static void setup_fence(void)
{
    struct rdv_store_config config = {.ranks = 4,
                                      .bytes_max = 1000,
                                      .waits_max = 10,
                                      .reply = on_fence,
                                      .arg = said};

    store = rdv_store_new(&config);
}

START_TEST(fence_gives_all_to_all)
{
    ck_assert_str_eq(fence(0, 1, "f", NULL, 0, 2, 2), "");
    ck_assert_str_eq(fence(1, 7, "f", NULL, 0, 0, 2),
                     "0/1=0<0>1<1>2<2>3<3> 1/7=0<0>1<1>2<2>3<3> ");
    ck_assert_uint_eq(rdv_store_bytes(store), 0);
    /* the name is free again */
    ck_assert_str_eq(fence(0, 2, "f", NULL, 0, 0, 2), "");
}
END_TEST

START_TEST(fence_of_some)
{
    ck_assert_str_eq(fence(0, 1, "f", odd, 2, 1, 1), "");
    ck_assert_str_eq(fence(1, 2, "f", odd, 2, 3, 1),
                     "0/1=1<1>3<3> 1/2=1<1>3<3> ");
}
END_TEST

START_TEST(fences_that_cannot_be)
{
    static const unsigned char beyond[] = {0, 0, 0, 4};
    struct rdv_request empty = {.id = 9, .op = RDV_FENCE, .scope = "e"};

    ck_assert_str_eq(fence(0, 1, "f", beyond, 1, 0, 1), "0/1!1 ");
    ck_assert_str_eq(fence(0, 1, "f", odd, 2, 2, 1), "0/1!12 ");
    fence(0, 1, "f", NULL, 0, 0, 1);
    ck_assert_str_eq(fence(1, 2, "f", odd, 2, 1, 1), "1/2!6 ");
    ck_assert_str_eq(fence(1, 3, "f", NULL, 0, 0, 1), "1/3!5 ");
    said[0] = '\0';
    rdv_store_request(store, 0, &empty);
    ck_assert_str_eq(said, "0/9!11 ");
    /* the fence can still be completed */
    ck_assert_str_eq(fence(1, 4, "f", NULL, 0, 1, 3),
                     "0/1=0<0>1<1>2<2>3<3> 1/4=0<0>1<1>2<2>3<3> ");
}
END_TEST

/* The death of a rank fails its present and later fences, unless it has already
 * contributed. */
START_TEST(a_rank_that_is_gone_fails_its_fences)
{
    fence(0, 1, "f", NULL, 0, 0, 2);
    said[0] = '\0';
    rdv_store_rank_gone(store, 0, RDV_ALL_EPOCHS, "rank 0 died");
    ck_assert_str_eq(said, "");
    rdv_store_rank_gone(store, 3, RDV_ALL_EPOCHS, "rank 3 died");
    ck_assert_str_eq(said, "0/1!7 ");
    ck_assert_str_eq(fence(0, 2, "g", NULL, 0, 0, 2), "0/2!7 ");
    ck_assert_str_eq(fence(0, 3, "h", odd, 2, 1, 1), "0/3!7 ");
    ck_assert_uint_eq(rdv_store_bytes(store), 0);
}
END_TEST

START_TEST(a_cancelled_asker_leaves_its_values)
{
    fence(0, 1, "f", NULL, 0, 0, 2);
    rdv_store_origin_gone(store, 0);
    ck_assert_str_eq(fence(1, 2, "f", NULL, 0, 2, 2), "1/2=0<0>1<1>2<2>3<3> ");
}
END_TEST

/* A fence fails for all participants if there is no room for a value. */
START_TEST(a_fence_without_room_fails_for_all)
{
    char big[900] = "";
    struct hb_buf records = HB_BUF_INIT;
    struct rdv_request m = {.id = 2, .op = RDV_FENCE, .scope = "f"};

    fence(0, 1, "f", NULL, 0, 0, 2);
    rdv_put_record(&records, 2, big, sizeof(big));
    m.value = hb_buf_data(&records);
    m.len = hb_buf_len(&records);
    said[0] = '\0';
    rdv_store_request(store, 1, &m);
    ck_assert_str_eq(said, "");
    ck_assert_str_eq(fence(2, 3, "f", NULL, 0, 3, 1), "0/1!2 1/2!2 2/3!2 ");
    ck_assert_uint_eq(rdv_store_bytes(store), 0);
    hb_buf_free(&records);
}
END_TEST

START_TEST(fences_take_room)
{
    char scope[8];
    int refused = 0;

    for (uint32_t i = 0; i < 100; i++) {
        snprintf(scope, sizeof(scope), "f%u", i);
        refused += fence(0, i, scope, NULL, 0, 0, 1)[0] != '\0';
    }
    ck_assert_uint_le(rdv_store_bytes(store), 1000);
    ck_assert_int_gt(refused, 90);
}
END_TEST

/* A refused request does not remove values that others contributed. */
START_TEST(a_refusal_leaves_what_was_given)
{
    fence(0, 1, "f", NULL, 0, 0, 2);
    rdv_store_origin_gone(store, 0);
    ck_assert_str_eq(fence(1, 2, "f", NULL, 0, 0, 1), "1/2!5 ");
    ck_assert_str_eq(fence(1, 3, "f", NULL, 0, 2, 2), "1/3=0<0>1<1>2<2>3<3> ");
}
END_TEST

/* The rank that went first is named, not one that went because of it. */
START_TEST(who_is_gone_longest_is_the_culprit)
{
    rdv_store_rank_gone(store, 3, RDV_ALL_EPOCHS, "rank 3 died");
    rdv_store_rank_gone(store, 2, RDV_ALL_EPOCHS, "rank 2 gave up");
    ck_assert_str_eq(fence(0, 1, "f", NULL, 0, 0, 2), "0/1!7 ");
    ck_assert_uint_eq(culprit, 3);
}
END_TEST

/* A rank that left an epoch may still take part in fences of later epochs, and
 * in those without one. */
START_TEST(a_rank_that_left_an_epoch)
{
    struct rdv_request m = {.op = RDV_FENCE, .scope = "e"};
    struct hb_buf records = HB_BUF_INIT;

    rdv_put_record(&records, 0, "x", 1);
    m.value = hb_buf_data(&records);
    m.len = hb_buf_len(&records);
    rdv_store_rank_gone(store, 3, 2, "rank 3 has left");
    for (m.after = 0; m.after < 4; m.after++) {
        m.id = (uint32_t)m.after;
        m.scope[1] = (char)('0' + m.after);
        said[0] = '\0';
        rdv_store_request(store, 0, &m);
        if (m.after == 1 || m.after == 2)
            ck_assert_int_eq(said[3], '!');
        else
            ck_assert_str_eq(said, "");
    }
    rdv_store_rank_back(store, 3);
    m.after = 1;
    m.scope[1] = '1';
    said[0] = '\0';
    rdv_store_request(store, 0, &m);
    ck_assert_str_eq(said, "");
    hb_buf_free(&records);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store");
    TCase *c = tcase_create("values"), *f = tcase_create("fences");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, put_and_get);
    tcase_add_test(c, delete_one_and_a_scope);
    tcase_add_test(c, end_of_a_round);
    tcase_add_test(c, many_values);
    tcase_add_test(c, many_who_wait);
    tcase_add_test(c, counts_what_is_taken);
    tcase_add_test(c, waits_end_with_the_value);
    tcase_add_test(c, watch);
    tcase_add_test(c, cancelled_waits_get_nothing);
    tcase_add_test(c, bounds);
    tcase_add_test(c, a_watch_sees_the_end);
    tcase_add_test(c, waits_take_room);
    suite_add_tcase(s, c);
    tcase_add_checked_fixture(f, setup_fence, teardown);
    tcase_add_test(f, fence_gives_all_to_all);
    tcase_add_test(f, fence_of_some);
    tcase_add_test(f, fences_that_cannot_be);
    tcase_add_test(f, a_rank_that_is_gone_fails_its_fences);
    tcase_add_test(f, a_cancelled_asker_leaves_its_values);
    tcase_add_test(f, a_fence_without_room_fails_for_all);
    tcase_add_test(f, fences_take_room);
    tcase_add_test(f, a_refusal_leaves_what_was_given);
    tcase_add_test(f, a_rank_that_left_an_epoch);
    tcase_add_test(f, who_is_gone_longest_is_the_culprit);
    suite_add_tcase(s, f);
    return unit_run(s);
}
