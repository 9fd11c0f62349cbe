/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/elastic/members.c, and generations in lib/agent/epoch.c: who is
 * welcomed as what, and what ends a generation. */
#include "tests/unit/unit.h"
#include "tests/unit/worker_client.h"

#include "lib/base/alloc.h"

#include <string.h>
#include <sys/mman.h>

enum { MEMBERS = 5 };

static int ready[RANKS]; /* by local rank, what on_ready has told last */
static struct rdv_request asked;
static unsigned char asked_members[4 * 32];
static int asked_count; /* of fences */

static void on_ready(void *arg, int local_rank, int is_ready)
{
    (void)arg;
    ready[local_rank] = is_ready;
}

static void on_ask(void *arg, const struct rdv_request *m)
{
    (void)arg;
    if (m->op != RDV_FENCE)
        return;
    asked = *m;
    ck_assert_uint_le(m->member_count, 32);
    memcpy(asked_members, m->members, 4 * (size_t)m->member_count);
    asked.members = asked_members;
    asked_count++;
}

static void setup(void)
{
    clients_setup_elastic();
    memset(ready, 0, sizeof(ready));
    asked_count = 0;
    endpoint.on_ready = on_ready;
    endpoint_set_rendezvous(&endpoint, on_ask, NULL);
}

/* Begins a generation; returns 0 or negative. */
static int begin(uint32_t number, const int *ranks, int count,
                 struct hb_error *err)
{
    struct control_generation m = {.number = number,
                                   .joined = number == 1 ? (uint32_t)count : 0,
                                   .count = count,
                                   .why = "rank 3 has died"};
    int rc;

    m.ranks = hb_xcalloc((size_t)count, sizeof(*m.ranks));
    memcpy(m.ranks, ranks, (size_t)count * sizeof(*ranks));
    rc = endpoint_generation(&endpoint, &m, err);
    control_generation_fini(&m);
    return rc;
}

static void say_hello(struct client *c, uint32_t rank)
{
    client_open(c);
    send_hello(c, rank, WORKER_ABI);
    for (int i = 0; i < 1000 && !ready[rank - 10]; i++)
        run_turns(1);
    ck_assert_int_eq(ready[rank - 10], 1);
}

/* Lets the three ranks of this host become members of generation 1, with one
 * rank of each other host, and join it. */
static void join_first(struct client c[RANKS])
{
    static const int ranks[MEMBERS] = {3, 10, 11, 12, 15};
    struct worker_welcome w;

    for (uint32_t i = 0; i < RANKS; i++)
        say_hello(&c[i], 10 + i);
    ck_assert_int_eq(begin(1, ranks, MEMBERS, NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        expect_welcome(&c[i], &w);
        send_join(&c[i], 1, SEGMENT_BYTES);
    }
    for (int i = 0; i < RANKS; i++)
        munmap(expect_segment(&c[i], 1), SEGMENT_BYTES);
}

/* Leaves generation `epoch` as hvd_sync does, and waits for the next. */
static void again(struct client *c, uint32_t rank, uint32_t epoch)
{
    send_leave(c, epoch);
    client_close(c);
    ready[rank - 10] = 0;
    say_hello(c, rank);
}

START_TEST(test_welcome)
{
    static const int ranks[MEMBERS] = {3, 10, 11, 12, 15};
    struct worker_welcome w;
    struct client c[RANKS];

    for (uint32_t i = 0; i < RANKS; i++)
        say_hello(&c[i], 10 + i);
    ck_assert_int_eq(begin(1, ranks, MEMBERS, NULL), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        expect_welcome(&c[i], &w);
        ck_assert_uint_eq(w.generation, 1);
        ck_assert_uint_eq(w.joined, MEMBERS);
        ck_assert_str_eq(w.why, "rank 3 has died");
        ck_assert_uint_eq(w.rank, 1 + i);
        ck_assert_uint_eq(w.size, MEMBERS);
        ck_assert_uint_eq(w.local_rank, i);
        ck_assert_uint_eq(w.local_size, RANKS);
        ck_assert_uint_eq(w.local_ranks[2], 3);
        ck_assert_uint_eq(w.host_index, 1);
        ck_assert_uint_eq(w.host_count, 3);
        /* Only this host has members with the local ranks 1 and 2. */
        ck_assert_uint_eq(w.cross_rank, i == 0 ? 1 : 0);
        ck_assert_uint_eq(w.cross_size, i == 0 ? 3 : 1);
    }
    close_all(c, RANKS);
}
END_TEST

/* The ranks that remain are numbered anew; hosts without members do not
 * count. */
START_TEST(test_next_generation)
{
    static const int ranks[] = {10, 12, 15};
    struct worker_welcome w;
    struct client c[RANKS];
    struct worker_abort m;
    struct frame f;

    join_first(c);
    endpoint_rank_ended(&endpoint, 1, 1, "rank 11: killed by signal 9");
    for (int i = 0; i < RANKS; i += 2) {
        ck_assert_int_eq(client_next(&c[i], &f), WORKER_ABORT);
        ck_assert_int_eq(worker_decode_abort(f.payload, f.len, &m), 0);
        ck_assert_uint_eq(m.rank, 2); /* 11 was the third member */
        ck_assert_str_eq(m.text, "rank 11: killed by signal 9");
        frame_done(&c[i].in, &f);
        again(&c[i], 10 + (uint32_t)i, 1);
    }
    ck_assert_int_eq(begin(2, ranks, 3, NULL), 0);
    for (int i = 0; i < RANKS; i += 2) {
        expect_welcome(&c[i], &w);
        ck_assert_uint_eq(w.rank, (uint32_t)i / 2);
        ck_assert_uint_eq(w.size, 3);
        ck_assert_uint_eq(w.local_rank, (uint32_t)i / 2);
        ck_assert_uint_eq(w.local_size, 2);
        ck_assert_uint_eq(w.host_index, 0);
        ck_assert_uint_eq(w.host_count, 2);
        send_join(&c[i], 2, SEGMENT_BYTES);
    }
    for (int i = 0; i < RANKS; i += 2)
        munmap(expect_segment_of(&c[i], 2, 2), SEGMENT_BYTES);
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_routes_of_members)
{
    static const int ranks[] = {10, 11, 12, 15};
    char addresses[2][WORKER_ADDRESS_MAX];
    struct hb_buf out = HB_BUF_INIT;
    struct worker_welcome w;
    struct client c[RANKS];
    struct frame f;

    for (uint32_t i = 0; i < RANKS; i++)
        say_hello(&c[i], 10 + i);
    ck_assert_int_eq(begin(1, ranks, 4, NULL), 0);
    expect_welcome(&c[0], &w);
    worker_encode_routes(&out);
    client_send(&c[0], &out);
    ck_assert_int_eq(client_next(&c[0], &f), WORKER_ROUTES_ARE);
    ck_assert_int_eq(worker_decode_routes_are(f.payload, f.len, 2, addresses),
                     0);
    ck_assert_str_eq(addresses[0], "");
    ck_assert_str_eq(addresses[1], "127.0.0.3");
    close_all(c, RANKS);
}
END_TEST

/* A rank that has died between READY and GENERATION, or has closed its
 * connection: the others must not wait for it. */
START_TEST(test_member_is_gone)
{
    static const int ranks[] = {10, 11, 12};
    struct worker_welcome w;
    struct client c[RANKS];

    for (uint32_t i = 0; i < RANKS; i++)
        say_hello(&c[i], 10 + i);
    client_close(&c[1]);
    run_turns(8);
    ck_assert_int_eq(ready[1], 0);
    if (_i)
        endpoint_rank_ended(&endpoint, 1, 1, "rank 11: killed by signal 9");
    ck_assert_int_eq(begin(1, ranks, 3, NULL), 0);
    expect_welcome(&c[0], &w);
    send_join(&c[0], 1, SEGMENT_BYTES);
    expect_text(&c[0], WORKER_ABORT,
                _i ? "rank 11: killed by signal 9"
                   : "closed its connection to the agent");
    close_all(c, RANKS);
}
END_TEST

/* A member that waits for the next generation will not join this one. */
START_TEST(test_member_is_ready_again)
{
    static const int ranks[] = {10, 11, 12};
    struct worker_welcome w;
    struct client c[RANKS];

    for (uint32_t i = 0; i < RANKS; i++)
        say_hello(&c[i], 10 + i);
    ck_assert_int_eq(begin(1, ranks, 3, NULL), 0);
    for (int i = 0; i < RANKS; i++)
        expect_welcome(&c[i], &w);
    send_join(&c[0], 1, SEGMENT_BYTES);
    run_turns(8);
    client_close(&c[2]);
    ready[2] = 0;
    say_hello(&c[2], 12);
    expect_text(&c[0], WORKER_ABORT, "is ready for the next generation");
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_refused_generations)
{
    static const int good[] = {10, 11, 12}, foreign[] = {10, 20};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(begin(4, foreign, 2, &err), -HVD_EPROTO);
    ck_assert_int_eq(begin(4, good, 3, NULL), 0);
    ck_assert_int_eq(begin(4, good, 3, NULL), -HVD_EPROTO);
    ck_assert_int_eq(begin(3, good, 3, NULL), -HVD_EPROTO);
    job.spec.elastic = 0;
    ck_assert_int_eq(begin(5, good, 3, NULL), -HVD_EPROTO);
    job.spec.elastic = 1;
}
END_TEST

/* Only the death of a member ends a generation, and CHANGE only marks it. */
START_TEST(test_deaths_elsewhere)
{
    struct client c[RANKS];

    join_first(c);
    endpoint_change(&endpoint, 2);
    ck_assert_uint_eq(atomic_load(&endpoint.head->change), 0);
    endpoint_change(&endpoint, 1);
    ck_assert_uint_eq(atomic_load(&endpoint.head->change), 1);
    endpoint_abort(&endpoint, 4, HVD_EPEER, "rank 4 has died");
    ck_assert_uint_eq(atomic_load(&endpoint.head->abort_word), 0);
    endpoint_abort(&endpoint, 15, HVD_EPEER, "rank 15 has died");
    /* 15 was the last of five members. */
    ck_assert_uint_eq(atomic_load(&endpoint.head->abort_word),
                      (uint64_t)HVD_EPEER << 32 | 5);
    for (int i = 0; i < RANKS; i++)
        expect_text(&c[i], WORKER_ABORT, "rank 15 has died");
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_join_of_another_generation)
{
    struct client c[RANKS];

    join_first(c);
    endpoint_rank_ended(&endpoint, 1, 1, "rank 11: killed by signal 9");
    expect_text(&c[0], WORKER_ABORT, "killed");
    again(&c[0], 10, 1);
    send_join(&c[0], 2, SEGMENT_BYTES); /* before WELCOME */
    expect_text(&c[0], WORKER_REFUSED, "JOIN out of order");
    expect_end(&c[0]);
    close_all(c, RANKS);
}
END_TEST

/* A fence of all ranks is one of the members, by their ranks in the plan; its
 * records have libhvd's numbers. */
START_TEST(test_fence)
{
    struct worker_value values[MEMBERS];
    struct hb_buf records = HB_BUF_INIT, out = HB_BUF_INIT;
    struct rdv_reply reply = {0};
    struct client c[RANKS];
    struct frame f;

    join_first(c);
    for (int i = 0; i < RANKS; i++) {
        worker_encode_fence(&out, "f", "x", 1);
        client_send(&c[i], &out);
    }
    for (int i = 0; i < 1000 && asked_count == 0; i++)
        run_turns(1);
    ck_assert_int_eq(asked_count, 1);
    ck_assert_uint_eq(asked.after, 1);
    ck_assert_uint_eq(asked.member_count, MEMBERS);
    ck_assert_uint_eq(rdv_member(&asked, 0), 3);
    ck_assert_uint_eq(rdv_member(&asked, 4), 15);
    for (uint32_t i = 0; i < MEMBERS; i++)
        rdv_put_record(&records, rdv_member(&asked, i), "yz", 1 + i % 2);
    reply.id = asked.id;
    reply.value = hb_buf_data(&records);
    reply.len = hb_buf_len(&records);
    endpoint_answer(&endpoint, &reply);
    ck_assert_int_eq(client_next(&c[1], &f), WORKER_RDV_FENCED);
    ck_assert_int_eq(
        worker_decode_fenced(f.payload, f.len, "f", MEMBERS, values), 0);
    for (uint32_t i = 0; i < MEMBERS; i++)
        ck_assert_uint_eq(values[i].len, 1 + i % 2);
    hb_buf_free(&records);
    close_all(c, RANKS);
}
END_TEST

/* A rank that was removed is told when it is ready, and again if it comes back;
 * hvdrun does not hear of it any more. */
START_TEST(test_removed)
{
    static const int ranks[] = {10, 12, 15};
    struct worker_welcome w;
    struct client c[RANKS];

    join_first(c);
    endpoint_removed(&endpoint, 11, "host b goes");
    endpoint_removed(&endpoint, 3, "not here");
    for (int i = 0; i < RANKS; i += 2)
        again(&c[i], 10 + (uint32_t)i, 1);
    send_leave(&c[1], 1);
    client_close(&c[1]);
    for (int i = 0; i < 2; i++) {
        ready[1] = 0;
        client_open(&c[1]);
        send_hello(&c[1], 11, WORKER_ABI);
        expect_text(&c[1], WORKER_REMOVED, "host b goes");
        expect_end(&c[1]);
        client_close(&c[1]);
        ck_assert_int_eq(ready[1], 0);
    }
    ck_assert_int_eq(begin(2, ranks, 3, NULL), 0);
    expect_welcome(&c[0], &w);
    ck_assert_uint_eq(w.removed, 0);
    expect_welcome(&c[2], &w);
    endpoint_rank_ended(&endpoint, 1, 0, "rank 11: exit code 0");
    send_join(&c[0], 2, SEGMENT_BYTES);
    send_join(&c[2], 2, SEGMENT_BYTES);
    munmap(expect_segment_of(&c[0], 2, 2), SEGMENT_BYTES);
    client_close(&c[0]);
    client_close(&c[2]);
}
END_TEST

/* Whom a rank has blamed has nothing to do with how it ends later. */
START_TEST(test_blame_is_over)
{
    unsigned char bytes[WORKER_BLAMES_BYTES];
    struct hb_buf out = HB_BUF_INIT;
    struct client c[RANKS];

    join_first(c);
    worker_write_blames(bytes, 1);
    hb_buf_append(&out, bytes, sizeof(bytes));
    client_send(&c[2], &out);
    for (int i = 0; i < 1000 && !endpoint.slots[2].blames; i++)
        run_turns(1);
    ck_assert_int_eq(endpoint.slots[2].blames, 1 + 10);
    again(&c[2], 12, 1);
    ck_assert_int_eq(endpoint.slots[2].blames, 0);
    close_all(c, RANKS);
}
END_TEST

/* One that waits already is told at once. */
START_TEST(test_removed_while_ready)
{
    struct client c[RANKS];

    for (uint32_t i = 0; i < RANKS; i++)
        say_hello(&c[i], 10 + i);
    endpoint_removed(&endpoint, 12, "host b goes");
    expect_text(&c[2], WORKER_REMOVED, "host b goes");
    expect_end(&c[2]);
    close_all(c, RANKS);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("members");
    TCase *t = tcase_create("members");

    tcase_add_checked_fixture(t, setup, clients_teardown);
    tcase_add_test(t, test_welcome);
    tcase_add_test(t, test_next_generation);
    tcase_add_test(t, test_routes_of_members);
    tcase_add_loop_test(t, test_member_is_gone, 0, 2);
    tcase_add_test(t, test_member_is_ready_again);
    tcase_add_test(t, test_refused_generations);
    tcase_add_test(t, test_deaths_elsewhere);
    tcase_add_test(t, test_join_of_another_generation);
    tcase_add_test(t, test_removed);
    tcase_add_test(t, test_removed_while_ready);
    tcase_add_test(t, test_blame_is_over);
    tcase_add_test(t, test_fence);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
