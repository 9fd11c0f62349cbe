/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/rendezvous.h and the agent's relay (lib/agent/rdv_relay.h):
 * what is forwarded, merged, answered and refused. */
#include "lib/agent/rdv_relay.h"

#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* ---- Messages ---- */

static struct hb_buf out;

static const void *payload(size_t *len)
{
    struct frame f;

    ck_assert_int_eq(frame_decode(&out, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    *len = f.len;
    return f.payload;
}

static const unsigned char members[] = {0, 0, 0, 2, 0, 0, 1, 0};

static struct rdv_request sample(void)
{
    return (struct rdv_request){.id = 7,
                                .op = RDV_FENCE,
                                .scope = "world",
                                .key = "k",
                                .members = members,
                                .member_count = 2,
                                .value = "a\0b",
                                .len = 3};
}

START_TEST(requests_survive_the_wire)
{
    struct rdv_request m = sample(), got;
    size_t len;
    const void *p;

    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), 0);
    p = payload(&len);
    ck_assert_int_eq(rdv_decode_request(p, len, RDV_VALUE_MAX, &got), 0);
    ck_assert_uint_eq(got.id, 7);
    ck_assert_int_eq(got.op, RDV_FENCE);
    ck_assert_str_eq(got.scope, "world");
    ck_assert_str_eq(got.key, "k");
    ck_assert_uint_eq(got.member_count, 2);
    ck_assert_uint_eq(rdv_member(&got, 0), 2);
    ck_assert_uint_eq(rdv_member(&got, 1), 256);
    ck_assert_uint_eq(got.len, 3);
    ck_assert_mem_eq(got.value, "a\0b", 3);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert_int_eq(rdv_decode_request(p, cut, RDV_VALUE_MAX, &got),
                         -HVD_EPROTO);
    ck_assert_int_eq(rdv_decode_request(p, len, 2, &got), -HVD_EPROTO);
}
END_TEST

START_TEST(requests_that_make_no_sense)
{
    static const unsigned char falling[] = {0, 0, 0, 2, 0, 0, 0, 2};
    struct rdv_request m = sample();

    m.members = falling;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    m = sample();
    m.op = RDV_PUT;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    m.member_count = 0;
    m.wait = 1;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    m.wait = 0;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), 0);
    m.op = RDV_GET;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    m.op = RDV_LEFT;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    m.op = RDV_END_ROUND;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    m.op = (enum rdv_op)(RDV_END_ROUND + 1);
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
    memset(m.scope, 'x', sizeof(m.scope));
    m.op = RDV_PUT;
    ck_assert_int_eq(rdv_encode_request(&out, 68, &m), -HVD_EINVAL);
}
END_TEST

START_TEST(replies_survive_the_wire)
{
    struct rdv_reply m = {
        .id = 9, .version = 1ull << 40, .value = "v", .len = 1};
    struct rdv_reply got;
    size_t len;
    const void *p;

    ck_assert_int_eq(rdv_encode_reply(&out, 100, &m), 0);
    p = payload(&len);
    ck_assert_int_eq(rdv_decode_reply(p, len, &got), 0);
    ck_assert_uint_eq(got.id, 9);
    ck_assert_uint_eq(got.version, 1ull << 40);
    ck_assert_mem_eq(got.value, "v", 1);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert_int_eq(rdv_decode_reply(p, cut, &got), -HVD_EPROTO);
    m.status = HVD_STATUS_COUNT;
    ck_assert_int_eq(rdv_encode_reply(&out, 100, &m), -HVD_EINVAL);
}
END_TEST

/* ---- The relay: ranks 4 and 6 of a job live here ---- */

static struct control_rank ranks[] = {{.rank = 4}, {.rank = 6}};
static struct control_launch job = {.ranks = ranks, .rank_count = 2};
static struct relay relay;
static char asked[4096], told[4096];
static uint32_t asked_id;

static void on_ask(void *arg, const struct rdv_request *m)
{
    size_t used = strlen(asked);

    (void)arg;
    asked_id = m->id;
    if (m->op == RDV_CANCEL) {
        snprintf(asked + used, sizeof(asked) - used, "cancel %u;", m->id);
        return;
    }
    used += (size_t)snprintf(asked + used, sizeof(asked) - used, "%d %s/%s",
                             m->op, m->scope, m->key);
    if (m->op == RDV_FENCE) {
        struct rdv_record record;
        struct hb_reader r;

        hb_reader_init(&r, m->value, m->len);
        while (rdv_next_record(&r, &record) > 0)
            used += (size_t)snprintf(asked + used, sizeof(asked) - used,
                                     " %u:%.*s", record.rank, (int)record.len,
                                     (const char *)record.value);
    }
    snprintf(asked + used, sizeof(asked) - used, ";");
}

static void on_reply(void *arg, int slot, const struct rdv_reply *m)
{
    size_t used = strlen(told);

    (void)arg;
    snprintf(told + used, sizeof(told) - used, "%d/%u %d %.*s;", slot, m->id,
             m->status, (int)m->len, m->len ? (const char *)m->value : "");
}

static void setup(void)
{
    struct relay_config config = {
        .job = &job, .ask = on_ask, .reply = on_reply};

    asked[0] = told[0] = '\0';
    relay_init(&relay, &config);
}

static void teardown(void)
{
    relay_fini(&relay);
    hb_buf_free(&out);
}

static int request(int slot, uint32_t id, enum rdv_op op, const char *scope,
                   const char *value)
{
    struct rdv_request m = {
        .id = id, .op = op, .value = value, .len = value ? strlen(value) : 0};

    snprintf(m.scope, sizeof(m.scope), "%s", scope);
    asked[0] = told[0] = '\0';
    return relay_request(&relay, slot, &m);
}

static void answer(uint32_t id, const char *value)
{
    struct rdv_reply m = {.id = id, .value = value, .len = strlen(value)};

    asked[0] = told[0] = '\0';
    relay_answer(&relay, &m);
}

START_TEST(requests_go_up_and_answers_down)
{
    uint32_t first;

    ck_assert_int_eq(request(0, 5, RDV_PUT, "s", "v"), 0);
    ck_assert_str_eq(asked, "1 s/;");
    first = asked_id;
    ck_assert_int_eq(request(1, 5, RDV_GET, "s", NULL), 0);
    answer(asked_id, "v");
    ck_assert_str_eq(told, "1/5 0 v;");
    answer(first, "");
    ck_assert_str_eq(told, "0/5 0 ;");
    answer(first, "again");
    ck_assert_str_eq(told, "");
}
END_TEST

START_TEST(a_fence_goes_up_once)
{
    ck_assert_int_eq(request(1, 9, RDV_FENCE, "w", "six"), 0);
    ck_assert_str_eq(asked, "");
    ck_assert_int_eq(request(0, 3, RDV_FENCE, "w", "four"), 0);
    ck_assert_str_eq(asked, "4 w/ 4:four 6:six;");
    answer(asked_id, "all");
    ck_assert_str_eq(told, "0/3 0 all;1/9 0 all;");
    ck_assert_int_eq(request(0, 4, RDV_FENCE, "w", "four"), 0);
    ck_assert_str_eq(asked, "");
}
END_TEST

START_TEST(a_fence_of_some_waits_for_local_members_only)
{
    static const unsigned char six[] = {0, 0, 0, 6, 0, 0, 0, 9};
    struct rdv_request m = {.id = 1,
                            .op = RDV_FENCE,
                            .scope = "f",
                            .members = six,
                            .member_count = 2,
                            .value = "v",
                            .len = 1};

    ck_assert_int_eq(relay_request(&relay, 0, &m), 0);
    ck_assert_str_eq(told, "0/1 12 this rank is no member of the fence;");
    ck_assert_int_eq(relay_request(&relay, 1, &m), 0);
    ck_assert_str_eq(asked, "4 f/ 6:v;");
}
END_TEST

START_TEST(wrong_use_of_fences_is_refused)
{
    static char big[RDV_FENCE_VALUE_MAX + 2];

    request(0, 1, RDV_FENCE, "w", "v");
    request(0, 2, RDV_FENCE, "w", "v");
    ck_assert_str_eq(told, "0/2 5 this rank is in the fence already;");
    memset(big, 'x', sizeof(big) - 1);
    request(1, 3, RDV_FENCE, "w", big);
    ck_assert_str_eq(told, "1/3 1 a value for a fence is too long;");
    ck_assert_int_eq(request(0, 4, RDV_CANCEL, "", NULL), -HVD_EPROTO);
}
END_TEST

/* Its values stay and its requests are cancelled. */
START_TEST(a_worker_that_goes_away)
{
    char cancel[32];

    request(0, 1, RDV_GET, "s", NULL);
    snprintf(cancel, sizeof(cancel), "cancel %u;", asked_id);
    request(0, 2, RDV_FENCE, "w", "four");
    asked[0] = told[0] = '\0';
    relay_slot_gone(&relay, 0);
    ck_assert_str_eq(asked, cancel);
    request(1, 3, RDV_FENCE, "w", "six");
    ck_assert_str_eq(asked, "4 w/ 4:four 6:six;");
    answer(asked_id, "all");
    ck_assert_str_eq(told, "1/3 0 all;");
}
END_TEST

/* A fence that cannot complete any more is not forwarded. */
START_TEST(a_rank_that_ends_fails_its_fences)
{
    request(0, 1, RDV_FENCE, "w", "four");
    relay_rank_gone(&relay, 1, RELAY_ALL_EPOCHS, "rank 6 died");
    ck_assert_str_eq(told, "0/1 7 rank 6 died;");
    ck_assert_str_eq(asked, "");
    request(0, 2, RDV_FENCE, "x", "four");
    ck_assert_str_eq(told, "0/2 7 rank 6 died;");
}
END_TEST

START_TEST(too_many_requests_end_the_connection)
{
    for (uint32_t i = 0; i < RELAY_PENDING_MAX; i++)
        ck_assert_int_eq(request(0, i, RDV_GET, "s", NULL), 0);
    ck_assert_int_eq(request(0, 1000, RDV_GET, "s", NULL), -HVD_EPROTO);
    ck_assert_int_eq(request(1, 1000, RDV_GET, "s", NULL), 0);
}
END_TEST

START_TEST(so_do_too_many_bytes)
{
    struct rdv_request m = {.op = RDV_PUT, .len = RDV_VALUE_MAX};
    size_t sent = 0;

    m.value = hb_xcalloc(1, m.len);
    for (m.id = 1; relay_request(&relay, 0, &m) == 0; m.id++) {
        sent += m.len;
        ck_assert_uint_le(sent, RELAY_PENDING_BYTES);
    }
    ck_assert_uint_eq(sent, RELAY_PENDING_BYTES);
    answer(asked_id, "");
    ck_assert_int_eq(relay_request(&relay, 0, &m), 0);
    hb_free((void *)m.value);
}
END_TEST

static void on_own(void *arg, const struct rdv_reply *m)
{
    size_t used = strlen(told);

    snprintf(told + used, sizeof(told) - used, "own %s %d %.*s;",
             (const char *)arg, m->status, (int)m->len,
             m->len ? (const char *)m->value : "");
}

static uint32_t own_request(const char *key, char *arg)
{
    struct rdv_request m = {.id = 77, .op = RDV_GET, .wait = 1, .scope = "o"};

    snprintf(m.key, sizeof(m.key), "%s", key);
    asked[0] = told[0] = '\0';
    return relay_own_request(&relay, &m, on_own, arg);
}

START_TEST(the_agents_own_requests_are_answered_to_it)
{
    char a[] = "a", b[] = "b";
    uint32_t first = own_request("x", a), second;

    ck_assert_str_eq(asked, "2 o/x;");
    ck_assert_uint_eq(first, asked_id);
    second = own_request("y", b);
    ck_assert_uint_ne(first, second);
    answer(second, "two");
    ck_assert_str_eq(told, "own b 0 two;");
    answer(second, "again");
    ck_assert_str_eq(told, "");
    answer(first, "one");
    ck_assert_str_eq(told, "own a 0 one;");
}
END_TEST

START_TEST(an_own_request_can_be_cancelled)
{
    char cancel[32], a[] = "a";
    uint32_t id = own_request("x", a), workers;

    snprintf(cancel, sizeof(cancel), "cancel %u;", id);
    asked[0] = '\0';
    relay_own_cancel(&relay, id);
    ck_assert_str_eq(asked, cancel);
    answer(id, "late");
    ck_assert_str_eq(told, "");
    relay_own_cancel(&relay, id);
    ck_assert_str_eq(asked, "");
    request(0, 1, RDV_GET, "s", NULL);
    workers = asked_id;
    asked[0] = '\0';
    relay_own_cancel(&relay, workers);
    ck_assert_str_eq(asked, "");
    answer(workers, "v");
    ck_assert_str_eq(told, "0/1 0 v;");
}
END_TEST

START_TEST(an_own_fence_gives_for_all_ranks_of_the_host)
{
    char a[] = "a";
    uint32_t id;

    asked[0] = told[0] = '\0';
    id = relay_own_fence(&relay, "f", "blob", 4, on_own, a);
    ck_assert_str_eq(asked, "4 f/ 4:blob 6:;");
    answer(id, "all");
    ck_assert_str_eq(told, "own a 0 all;");
}
END_TEST

START_TEST(own_requests_are_limited)
{
    struct rdv_request m = {.op = RDV_PUT, .scope = "o"};
    char *big = hb_xcalloc(1, RELAY_OWN_VALUE_MAX + 1), a[] = "a";

    m.value = big;
    m.len = RELAY_OWN_VALUE_MAX + 1;
    asked[0] = '\0';
    ck_assert_uint_eq(relay_own_request(&relay, &m, on_own, a), 0);
    ck_assert_uint_eq(relay_own_fence(&relay, "f", big, m.len, on_own, a), 0);
    ck_assert_str_eq(asked, "");
    for (int i = 0; i < RELAY_OWN_MAX; i++)
        ck_assert_uint_ne(own_request("x", a), 0);
    ck_assert_uint_eq(own_request("x", a), 0);
    ck_assert_str_eq(asked, "");
    ck_assert_uint_eq(relay_own_fence(&relay, "f", "v", 1, on_own, a), 0);
    answer(asked_id, "v");
    ck_assert_uint_ne(own_request("x", a), 0);
    hb_free(big);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rendezvous");
    TCase *m = tcase_create("messages"), *r = tcase_create("relay");

    tcase_add_checked_fixture(m, setup, teardown);
    tcase_add_test(m, requests_survive_the_wire);
    tcase_add_test(m, requests_that_make_no_sense);
    tcase_add_test(m, replies_survive_the_wire);
    suite_add_tcase(s, m);
    tcase_add_checked_fixture(r, setup, teardown);
    tcase_add_test(r, requests_go_up_and_answers_down);
    tcase_add_test(r, a_fence_goes_up_once);
    tcase_add_test(r, a_fence_of_some_waits_for_local_members_only);
    tcase_add_test(r, wrong_use_of_fences_is_refused);
    tcase_add_test(r, a_worker_that_goes_away);
    tcase_add_test(r, a_rank_that_ends_fails_its_fences);
    tcase_add_test(r, too_many_requests_end_the_connection);
    tcase_add_test(r, so_do_too_many_bytes);
    tcase_add_test(r, the_agents_own_requests_are_answered_to_it);
    tcase_add_test(r, an_own_request_can_be_cancelled);
    tcase_add_test(r, an_own_fence_gives_for_all_ranks_of_the_host);
    tcase_add_test(r, own_requests_are_limited);
    suite_add_tcase(s, r);
    return unit_run(s);
}
