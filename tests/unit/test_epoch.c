/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/epoch.c: segments, and which ranks are told of whose death. */
#include "tests/unit/unit.h"
#include "tests/unit/worker_client.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

START_TEST(test_segment)
{
    struct segment_head *heads[RANKS];
    struct client c[RANKS];
    int seals;

    join_all(c, heads);
    seals = fcntl(c[0].passed_fd, F_GET_SEALS);
    ck_assert_int_eq(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    ck_assert_int_eq(ftruncate(c[0].passed_fd, 4096), -1);
    ck_assert_int_eq(ftruncate(c[0].passed_fd, 2 * SEGMENT_BYTES), -1);
    ck_assert_int_eq(errno, EPERM);
    /* Both ranks map the same memory. */
    heads[0]->abort_text[7] = 'x';
    ck_assert_int_eq(heads[2]->abort_text[7], 'x');
    for (int i = 0; i < RANKS; i++)
        munmap(heads[i], SEGMENT_BYTES);
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_next_epoch_after_leaving)
{
    struct segment_head *heads[RANKS], *next;
    struct client c[RANKS];

    join_all(c, heads);
    for (int i = 0; i < RANKS; i++) {
        send_leave(&c[i], 1);
        close(c[i].passed_fd);
        c[i].passed_fd = -1;
        send_join(&c[i], 2, SEGMENT_BYTES);
    }
    for (int i = 0; i < RANKS; i++) {
        next = expect_segment(&c[i], 2);
        ck_assert_uint_eq(atomic_load(&next->abort_word), 0);
        munmap(next, SEGMENT_BYTES);
        munmap(heads[i], SEGMENT_BYTES);
    }
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_join_out_of_order)
{
    struct client c;

    greet(&c, 10);
    send_join(&c, 1, SEGMENT_BYTES);
    send_join(&c, 2, SEGMENT_BYTES);
    expect_text(&c, WORKER_REFUSED, "out of order");
    expect_end(&c);
    client_close(&c);
}
END_TEST

START_TEST(test_different_sizes)
{
    struct client a, b;

    greet(&a, 10);
    greet(&b, 11);
    send_join(&a, 1, SEGMENT_BYTES);
    run_turns(4);
    send_join(&b, 1, 2 * SEGMENT_BYTES);
    expect_text(&a, WORKER_ABORT,
                "rank 11 joins epoch 1 with a segment of "
                "2097152 bytes, rank 10 epoch 1 with "
                "1048576 bytes");
    expect_text(&b, WORKER_ABORT, "rank 11");
    client_close(&a);
    client_close(&b);
}
END_TEST

START_TEST(test_impossible_sizes)
{
    static const uint64_t sizes[] = {0, 1, UINT64_C(1) << 44, UINT64_MAX};

    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        struct client c[RANKS];

        for (uint32_t i = 0; i < RANKS; i++) {
            greet(&c[i], 10 + i);
            send_join(&c[i], 1, sizes[n]);
        }
        for (int i = 0; i < RANKS; i++)
            expect_text(&c[i], WORKER_ABORT, "shared segment of");
        close_all(c, RANKS);
        run_turns(8);
    }
}
END_TEST

START_TEST(test_death_in_an_epoch)
{
    struct segment_head *heads[RANKS];
    struct client c[RANKS];

    join_all(c, heads);
    client_close(&c[1]);
    endpoint_rank_ended(&endpoint, 1, 1, "rank 11 on host here: killed");
    /* The segment shows it before the loop runs again. */
    ck_assert_uint_eq(atomic_load(&heads[0]->abort_word),
                      (uint64_t)HVD_EPEER << 32 | 12);
    ck_assert_str_eq(heads[0]->abort_text, "rank 11 on host here: killed");
    expect_text(&c[0], WORKER_ABORT, "rank 11 on host here: killed");
    expect_text(&c[2], WORKER_ABORT, "rank 11 on host here: killed");
    for (int i = 0; i < RANKS; i++)
        munmap(heads[i], SEGMENT_BYTES);
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_death_after_leaving_is_nobodys_business)
{
    struct segment_head *heads[RANKS];
    struct client c[RANKS];

    join_all(c, heads);
    send_leave(&c[1], 1);
    client_close(&c[1]);
    run_turns(8);
    endpoint_rank_ended(&endpoint, 1, 0, "rank 11: exited with code 0");
    run_turns(8);
    ck_assert_uint_eq(atomic_load(&heads[0]->abort_word), 0);
    ck_assert_int_eq(client_receive(&c[0]), -1);
    /* Ranks need not wait for it any more. */
    send_leave(&c[0], 1);
    send_join(&c[0], 2, SEGMENT_BYTES);
    expect_text(&c[0], WORKER_ABORT, "rank 11: exited with code 0");
    for (int i = 0; i < RANKS; i++)
        munmap(heads[i], SEGMENT_BYTES);
    close_all(c, RANKS);
}
END_TEST

/* A death may be noticed before the LEAVE that the rank sent first. */
START_TEST(test_leave_that_is_still_unread)
{
    struct segment_head *heads[RANKS];
    struct client c[RANKS];

    join_all(c, heads);
    send_leave(&c[1], 1);
    client_close(&c[1]);
    endpoint_rank_ended(&endpoint, 1, 0, "rank 11: exited with code 0");
    run_turns(8);
    ck_assert_uint_eq(atomic_load(&heads[0]->abort_word), 0);
    for (int i = 0; i < RANKS; i++)
        munmap(heads[i], SEGMENT_BYTES);
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_death_of_one_that_others_wait_for)
{
    struct client a, b;

    greet(&a, 10);
    send_join(&a, 1, SEGMENT_BYTES);
    run_turns(4);
    endpoint_rank_ended(&endpoint, 2, 0, "rank 12: exited with code 0");
    expect_text(&a, WORKER_ABORT, "rank 12: exited with code 0");
    greet(&b, 11);
    send_join(&b, 1, SEGMENT_BYTES);
    expect_text(&b, WORKER_ABORT, "rank 12");
    client_close(&a);
    client_close(&b);
}
END_TEST

/* A rank that comes later is told of the first failure, not of its
 * consequences, whatever the ranks' numbers are. */
START_TEST(test_the_first_failure_is_told)
{
    struct client b;

    endpoint_rank_ended(&endpoint, 2, 1, "rank 12: killed by signal 9");
    endpoint_rank_ended(&endpoint, 0, 1, "rank 10: exit code 1");
    endpoint_abort(&endpoint, 3, HVD_EPEER, "rank 3 on host there: killed");
    greet(&b, 11);
    send_join(&b, 1, SEGMENT_BYTES);
    expect_text(&b, WORKER_ABORT, "rank 12: killed by signal 9");
    client_close(&b);
}
END_TEST

static void send_blames(struct client *c, uint32_t rank)
{
    unsigned char bytes[WORKER_BLAMES_BYTES];
    struct hb_buf b = HB_BUF_INIT;

    worker_write_blames(bytes, rank);
    hb_buf_append(&b, bytes, sizeof(bytes));
    client_send(c, &b);
}

/* A rank fails because of another, whose process has not ended yet: the other
 * is named, and later also how it ended. */
START_TEST(test_a_consequence_is_not_told)
{
    struct client c[RANKS], late;

    join_all(c, NULL);
    send_leave(&c[2], 1);
    send_blames(&c[0], 12);
    send_leave(&c[0], 1);
    client_close(&c[0]);
    endpoint_rank_ended(&endpoint, 0, 1, "rank 10: exit code 1");
    ck_assert_int_eq(endpoint.slots[0].blames, 13);
    send_leave(&c[1], 1);
    client_close(&c[1]);
    greet(&late, 11);
    send_join(&late, 1, SEGMENT_BYTES);
    expect_text(&late, WORKER_ABORT, "on host here: has left");
    endpoint_rank_ended(&endpoint, 2, 1, "rank 12: exit code 3");
    send_join(&late, 2, SEGMENT_BYTES);
    expect_text(&late, WORKER_ABORT,
                "rank 12 of this world has died; a static job cannot start "
                "again: rank 12: exit code 3");
    client_close(&late);
    client_close(&c[2]);
}
END_TEST

START_TEST(test_a_consequence_of_another_host_is_not_told)
{
    struct client a, b;

    greet(&a, 10);
    send_blames(&a, 3);
    run_turns(4);
    endpoint_rank_ended(&endpoint, 0, 1, "rank 10: exit code 1");
    greet(&b, 11);
    send_join(&b, 1, SEGMENT_BYTES);
    expect_text(&b, WORKER_ABORT, "rank 3 on another host: has died or left");
    endpoint_abort(&endpoint, 3, HVD_EPEER, "rank 3 on host there: killed");
    send_join(&b, 1, SEGMENT_BYTES);
    expect_text(&b, WORKER_ABORT, "rank 3 on host there: killed");
    client_close(&a);
    client_close(&b);
}
END_TEST

/* A blame of rank 20, which does not exist, is refused. */
START_TEST(test_blame_of_no_rank)
{
    struct client c;

    greet(&c, 10);
    send_blames(&c, 20);
    expect_text(&c, WORKER_REFUSED, "not libhvd's protocol");
    client_close(&c);
}
END_TEST

/* Peers of a dead rank join the next epoch at once, even before the agent has
 * read that they left: they are told of the death. */
START_TEST(test_again_after_a_death)
{
    struct client c[RANKS], again;
    struct worker_welcome m;

    join_all(c, NULL);
    endpoint_rank_ended(&endpoint, 1, 1, "rank 11: killed by signal 9");
    send_leave(&c[0], 1);
    client_close(&c[0]);
    client_open(&again);
    send_hello(&again, 10, WORKER_ABI);
    send_join(&again, 2, SEGMENT_BYTES);
    run_turns(8);
    expect_welcome(&again, &m);
    expect_text(&again, WORKER_ABORT,
                "rank 11 of this world has died; a static job cannot start "
                "again: rank 11: killed by signal 9");
    client_close(&again);
    close_all(c + 1, 2);
}
END_TEST

/* The agent cannot send to a rank that has left: it reads the LEAVE before it
 * counts the connection as lost. */
START_TEST(test_leave_before_a_message_that_cannot_be_sent)
{
    struct client c[RANKS];

    join_all(c, NULL);
    send_leave(&c[0], 1);
    client_close(&c[0]);
    endpoint_rank_ended(&endpoint, 1, 1, "rank 11: killed by signal 9");
    run_turns(4);
    ck_assert_int_eq(endpoint.slots[0].lost, 0);
    ck_assert_uint_eq(endpoint.slots[0].epoch, 0);
    close_all(c + 1, 2);
}
END_TEST

/* A program ends without hvd_shutdown and the rank's next program connects: it
 * is accepted in its place. */
START_TEST(test_successor_of_a_lost_connection)
{
    struct client c[RANKS], next;

    join_all(c, NULL);
    client_close(&c[0]);
    greet(&next, 10);
    expect_text(&c[1], WORKER_ABORT, "without hvd_shutdown");
    client_close(&next);
    close_all(c + 1, 2);
}
END_TEST

/* Of ranks that ended with success, too, the first is named. */
START_TEST(test_the_first_to_end_is_told)
{
    struct client b;

    endpoint_rank_ended(&endpoint, 2, 0, "rank 12: exited with code 0");
    endpoint_rank_ended(&endpoint, 0, 0, "rank 10: exited with code 0");
    greet(&b, 11);
    send_join(&b, 2, SEGMENT_BYTES);
    expect_text(&b, WORKER_ABORT,
                "rank 12 of this world has ended; a static job cannot start "
                "again: rank 12: exited with code 0");
    client_close(&b);
}
END_TEST

/* A connection ends without LEAVE while its process lives. */
START_TEST(test_lost_connection)
{
    struct client c[RANKS];

    join_all(c, NULL);
    client_close(&c[2]);
    expect_text(&c[0], WORKER_ABORT, "rank 12 (pid ");
    expect_text(&c[1], WORKER_ABORT, "without hvd_shutdown");
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_lost_connection_then_death)
{
    struct client c[RANKS];

    join_all(c, NULL);
    client_close(&c[2]);
    run_turns(4);
    endpoint_rank_ended(&endpoint, 2, 1, "rank 12: killed by signal 9");
    expect_text(&c[0], WORKER_ABORT, "rank 12: killed by signal 9");
    close_all(c, RANKS);
}
END_TEST

START_TEST(test_death_on_another_host)
{
    struct segment_head *heads[RANKS];
    struct client c[RANKS];

    join_all(c, heads);
    endpoint_abort(&endpoint, 3, HVD_EPEER, "rank 3 on host there: killed");
    endpoint_abort(&endpoint, 4, HVD_EPEER, "rank 4 on host there: killed");
    ck_assert_uint_eq(atomic_load(&heads[1]->abort_word),
                      (uint64_t)HVD_EPEER << 32 | 4);
    for (int i = 0; i < RANKS; i++) {
        expect_text(&c[i], WORKER_ABORT, "rank 3 on host there");
        munmap(heads[i], SEGMENT_BYTES);
    }
    send_leave(&c[0], 1);
    send_join(&c[0], 2, SEGMENT_BYTES);
    expect_text(&c[0], WORKER_ABORT, "rank 3 on host there");
    close_all(c, RANKS);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("epoch");
    TCase *t = tcase_create("epoch");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, clients_setup, clients_teardown);
    tcase_add_test(t, test_segment);
    tcase_add_test(t, test_next_epoch_after_leaving);
    tcase_add_test(t, test_join_out_of_order);
    tcase_add_test(t, test_different_sizes);
    tcase_add_test(t, test_impossible_sizes);
    tcase_add_test(t, test_death_in_an_epoch);
    tcase_add_test(t, test_death_after_leaving_is_nobodys_business);
    tcase_add_test(t, test_leave_that_is_still_unread);
    tcase_add_test(t, test_death_of_one_that_others_wait_for);
    tcase_add_test(t, test_the_first_failure_is_told);
    tcase_add_test(t, test_the_first_to_end_is_told);
    tcase_add_test(t, test_a_consequence_is_not_told);
    tcase_add_test(t, test_a_consequence_of_another_host_is_not_told);
    tcase_add_test(t, test_blame_of_no_rank);
    tcase_add_test(t, test_again_after_a_death);
    tcase_add_test(t, test_leave_before_a_message_that_cannot_be_sent);
    tcase_add_test(t, test_successor_of_a_lost_connection);
    tcase_add_test(t, test_lost_connection);
    tcase_add_test(t, test_lost_connection_then_death);
    tcase_add_test(t, test_death_on_another_host);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
