/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/stall/stall_report: who is missing, and who is to blame. */
#include "tests/unit/stall_util.h"

/* ---- Who is missing ----------------------------------------------------- */

START_TEST(joined_ranks_are_not_missing)
{
    told(0, 1000, 0);
    make_answers();
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "x", 1000);
    add_wait(of(1), STATUS_JOIN, 0, "", 900);
    add_wait(of(2), STATUS_ALLREDUCE, KEY, "x", 900);
    ask_and_answer();
    expect_said("missing: rank 3\n");
    ck_assert_ptr_null(strstr(hb_buf_data(&said), "join"));
}
END_TEST

START_TEST(other_process_sets)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < 2; i++)
        of(i)->sets[0] = 1 | 1 << 5;
    add_wait(of(0), STATUS_ALLTOALL, KEY, "", 1000);
    of(0)->waits[0].set = 5;
    add_wait(of(2), STATUS_ALLTOALL, KEY, "", 500); /* set 0: another
                                                     * operation */
    ask_and_answer();
    expect_said("  alltoall of process set 5: rank 0 waits for 1.0 s; missing: "
                "rank 1\n");
    expect_said("  alltoall: rank 2 waits for 0.5 s; missing: ranks 0, 1, 3\n");
}
END_TEST

START_TEST(long_lists_and_unlisted_calls)
{
    told(0, 1000, 0);
    make_answers();
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "x", 1000);
    for (int i = 0; i < STATUS_WAITS_MAX; i++)
        add_wait(of(1), STATUS_ALLREDUCE, 1000 + (uint64_t)i, "y", 100);
    of(1)->total = 100; /* "x" may be among them */
    of(2)->inside = 1;  /* in it, and stopped before it was listed */
    of(2)->last.kind = STATUS_ALLREDUCE;
    snprintf(of(2)->last.name, STATUS_NAME_BYTES, "x");
    ask_and_answer();
    expect_said("  allreduce \"x\": rank 0 waits for 1.0 s; missing: rank 3\n");
    expect_said("more operations");
}
END_TEST

START_TEST(nobody_is_missing)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_wait(of(i), STATUS_BROADCAST, KEY, "x", 1000);
    of(2)->state = 'T';
    of(2)->fresh = 0;
    ask_and_answer();
    expect_said("ranks 0-3 wait for 1.0 s; all ranks wait for it\n");
    expect_said("rank 2 on host n1 (pid 102) is stopped");
    ck_assert_ptr_null(strstr(hb_buf_data(&said), "rank 1 on"));
}
END_TEST

START_TEST(who_does_not_react)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_wait(of(i), STATUS_BROADCAST, KEY, "x", 1000);
    of(3)->fresh = 0;
    ask_and_answer();
    expect_said("rank 3 on host n1");
    ck_assert_ptr_null(strstr(hb_buf_data(&said), "rank 1 on"));
}
END_TEST

START_TEST(all_wait_and_react)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_wait(of(i), STATUS_BROADCAST, KEY, "x", 1000);
    ask_and_answer();
    for (int i = 0; i < RANKS; i++) {
        char part[32];

        snprintf(part, sizeof(part), "rank %d on host", i);
        expect_said(part);
    }
    ck_assert_int_eq(blamed, -1);
    ck_assert_str_eq(blame_why, "broadcast \"x\": ranks 0-3 wait; all react");
}
END_TEST

START_TEST(without_the_library)
{
    told(0, 1000, 0);
    make_answers();
    add_wait(of(0), STATUS_BARRIER, KEY, "", 1000);
    add_wait(of(1), STATUS_BARRIER, KEY, "", 1000);
    of(2)->known = 0;
    of(3)->known = 0;
    of(3)->state = 0;
    ask_and_answer();
    expect_said("missing: rank 2\n");
    expect_said("rank 2 on host n1 (pid 102) sleeps; it has not called "
                "hvd_init, or has called hvd_shutdown\n");
}
END_TEST
/* ---- Devices ------------------------------------------------------------ */

/* The rank has launched `number` operations and waits for the last of them on
 * its device. */
static void add_launch(int rank, uint64_t number, enum status_where where)
{
    struct control_stall_rank *r = of(rank);

    add_wait(r, STATUS_ALLREDUCE, number, "g", 1000);
    r->waits[r->count - 1].where = where;
    r->launched[0] = number;
}

START_TEST(rank_that_has_not_launched)
{
    told(0, 1000, 0);
    make_answers();
    add_launch(0, 5, STATUS_ON_DEVICE);
    add_launch(2, 5, STATUS_ON_DEVICE);
    of(1)->launched[0] = 6; /* its device has finished it */
    of(3)->launched[0] = 4;
    ask_and_answer();
    expect_said("  allreduce \"g\" on the device: ranks 0, 2 wait for 1.0 s; "
                "missing: rank 3\n");
    expect_blamed(3, "rank 3 (pid 103) on host n1: kept the others waiting for "
                     "1.1 s, it has not launched allreduce \"g\" on the "
                     "device; it sleeps");
}
END_TEST

/* While ranks connect, the one whose NCCL call does not return has not even
 * said that it waits: it is missing all the same. */
START_TEST(nobody_has_launched)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++) {
        if (i != 2)
            add_launch(i, 1, STATUS_ON_DEVICE);
        of(i)->launched[0] = 0;
    }
    of(1)->state = 'T'; /* this rank, too */
    ask_and_answer();
    expect_said("missing: rank 2\n");
    ck_assert_int_eq(blamed, 2);
    expect_said("rank 1 on host n0 (pid 101) is stopped");
}
END_TEST

/* A rank whose NCCL call does not return is to blame.  Its list is older than
 * that call, so it does not count as a disagreement. */
START_TEST(inside_a_launch_with_an_old_list)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        if (i != 2)
            add_launch(i, 5, STATUS_ON_DEVICE);
    add_wait(of(2), STATUS_ALLREDUCE, KEY, "g", 1000);
    of(2)->launched[0] = 4;
    of(2)->fresh = 0;
    of(2)->inside = 1;
    ask_and_answer();
    ck_assert_int_eq(blamed, 2);
    ck_assert_ptr_nonnull(strstr(blame_why, "it has not launched allreduce"));
}
END_TEST

START_TEST(stopped_after_the_launch)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_launch(i, 7, STATUS_ON_DEVICE);
    of(1)->state = 'T';
    ask_and_answer();
    expect_said("ranks 0-3 wait for 1.0 s; all ranks have launched it\n");
    expect_blamed(1, "rank 1 (pid 101) on host n0: kept the others waiting for "
                     "1.1 s in allreduce \"g\" on the device; it is stopped "
                     "by a signal");
}
END_TEST

START_TEST(device_that_has_not_come_to_it)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_launch(i, 7, i == 3 ? STATUS_NOT_REACHED : STATUS_ON_DEVICE);
    ask_and_answer();
    expect_said("ranks 0-2 wait for 1.0 s; missing: rank 3\n");
    expect_said("; its work before this has not ended: allreduce \"g\" on the "
                "device\n");
    expect_blamed(3, "rank 3 (pid 103) on host n1: kept the others waiting for "
                     "1.1 s, its device has not come to allreduce \"g\" on "
                     "the device; it sleeps");
}
END_TEST

/* All devices are busy with the ranks' own work: none is to blame. */
START_TEST(devices_with_work_of_their_own)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < 2; i++)
        add_launch(i, 7, STATUS_NOT_REACHED);
    add_wait(of(2), STATUS_BARRIER, KEY, "", 900);
    ask_and_answer();
    ck_assert_ptr_null(strstr(hb_buf_data(&said), "device: "));
    expect_said("  barrier: rank 2 waits for 0.9 s; missing: rank 3\n");
}
END_TEST

/* Ranks that wait for others are reported before ranks that are busy. */
START_TEST(nobody_is_missing_but_devices_are_busy)
{
    told(2, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_launch(i, 7, STATUS_NOT_REACHED);
    add_wait(of(2), STATUS_BARRIER, KEY, "", 900);
    add_wait(of(3), STATUS_BARRIER, KEY, "", 900);
    of(0)->launched[0] = of(1)->launched[0] = 8; /* ahead of the others */
    ask_and_answer();
    expect_blamed(-1, "barrier: ranks 2, 3 wait; all react");
}
END_TEST

START_TEST(all_have_launched_and_react)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++) {
        add_wait(of(i), STATUS_ALLREDUCE, KEY, "g", 1001);
        add_launch(i, 7, STATUS_ON_DEVICE);
    }
    ask_and_answer();
    expect_blamed(-1, "allreduce \"g\" on the device: all ranks have launched "
                      "it, and ranks 0-3 wait; all react: NCCL, a device or "
                      "the network hangs");
    told(0, 3000, 3000);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_launch(i, 7, STATUS_ON_DEVICE);
    send_answer(0, 3100);
    send_answer(1, 3100);
    stall_tick(s, stall_next_ns(s));
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, -1);
    ck_assert_ptr_nonnull(strstr(end_why, "a device or the network"));
}
END_TEST

/* All devices but one have finished the operation. */
START_TEST(ended_on_all_devices_but_one)
{
    told(2, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        of(i)->launched[0] = 7;
    add_launch(2, 7, STATUS_ON_DEVICE);
    ask_and_answer();
    ck_assert_int_eq(blamed, 2);
}
END_TEST

/* A rank that has launched what others still have queued is not to blame. */
START_TEST(ahead_of_those_that_wait)
{
    told(0, 1000, 0);
    make_answers();
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "g", 1000);
    for (int i = 0; i < RANKS; i++)
        of(i)->launched[0] = i ? 8 : 7;
    ask_and_answer();
    expect_said("  allreduce \"g\": rank 0 waits for 1.0 s; the other ranks do "
                "not keep it waiting\n");
    ck_assert_int_eq(blamed, 0);
}
END_TEST
/* ---- Ranks that wait for different things ------------------------------- */

/* Each rank waits for what another has not issued: none is to blame. */
START_TEST(ranks_that_do_not_agree)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_wait(of(i), STATUS_ALLREDUCE, i == 3 ? KEY + 1 : KEY,
                 i == 3 ? "" : "a", 1000 - i);
    ask_and_answer();
    expect_said("  allreduce \"a\": ranks 0-2 wait for 1.0 s; missing: rank "
                "3\n");
    expect_said("  allreduce: rank 3 waits for 1.0 s; missing: ranks 0-2\n");
    expect_blamed(-1, "ranks do not agree on what comes next: ranks 0-2 wait "
                      "for allreduce \"a\"; rank 3 waits for allreduce");
}
END_TEST

START_TEST(many_that_do_not_agree)
{
    char name[STATUS_NAME_BYTES];

    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        add_wait(of(i), STATUS_BARRIER, KEY + (uint64_t)i, name, 1000 - i);
    }
    ask_and_answer();
    expect_blamed(-1, "ranks do not agree on what comes next: rank 0 waits for "
                      "barrier \"t0\"; rank 1 waits for barrier \"t1\"; rank 2 "
                      "waits for barrier \"t2\"; and more");
}
END_TEST

/* Rank 1 has carried out what ranks 0 and 3 wait for, since its part of the
 * data came before rank 2 was stopped.  Rank 1 waits for the next: it is not
 * missing. */
START_TEST(ahead_of_a_rank_that_is_stopped)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        of(i)->carried_out[0] = i == 1 ? 6 : 5;
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "x", 1000);
    add_wait(of(3), STATUS_ALLREDUCE, KEY, "x", 1000);
    add_wait(of(1), STATUS_ALLREDUCE, KEY + 1, "y", 900);
    of(2)->state = 'T';
    ask_and_answer();
    expect_said("  allreduce \"x\": ranks 0, 3 wait for 1.0 s; missing: rank "
                "2\n");
    ck_assert_int_eq(blamed, 2);
}
END_TEST

/* The same if rank 1 computes and has not returned to the library. */
START_TEST(ahead_and_busy)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        of(i)->carried_out[0] = i == 1 ? 6 : 5;
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "x", 1000);
    add_wait(of(3), STATUS_ALLREDUCE, KEY, "x", 1000);
    ask_and_answer();
    expect_said("missing: rank 2\n");
    expect_not_said("rank 1 on");
    ck_assert_int_eq(blamed, 2);
}
END_TEST

/* Rank 1 waits for rank 3 in another set: rank 3 is to blame. */
START_TEST(one_that_waits_is_not_blamed)
{
    told(0, 1000, 0);
    make_answers();
    of(1)->sets[0] = of(3)->sets[0] = 1 | 1 << 5;
    add_wait(of(0), STATUS_BARRIER, KEY, "", 2000);
    add_wait(of(2), STATUS_BARRIER, KEY, "", 2000);
    add_wait(of(1), STATUS_ALLTOALL, KEY, "", 1000);
    of(1)->waits[0].set = 5;
    ask_and_answer();
    expect_said("  barrier: ranks 0, 2 wait for 2.0 s; missing: ranks 1, 3\n");
    expect_said("  alltoall of process set 5: rank 1 waits for 1.0 s; missing: "
                "rank 3\n");
    ck_assert_int_eq(blamed, 3);
}
END_TEST
int main(void)
{
    Suite *suite = suite_create("stall_report");
    TCase *tc = tcase_create("stall_report");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, joined_ranks_are_not_missing);
    tcase_add_test(tc, other_process_sets);
    tcase_add_test(tc, long_lists_and_unlisted_calls);
    tcase_add_test(tc, nobody_is_missing);
    tcase_add_test(tc, who_does_not_react);
    tcase_add_test(tc, all_wait_and_react);
    tcase_add_test(tc, without_the_library);
    tcase_add_test(tc, rank_that_has_not_launched);
    tcase_add_test(tc, nobody_has_launched);
    tcase_add_test(tc, inside_a_launch_with_an_old_list);
    tcase_add_test(tc, stopped_after_the_launch);
    tcase_add_test(tc, device_that_has_not_come_to_it);
    tcase_add_test(tc, devices_with_work_of_their_own);
    tcase_add_test(tc, nobody_is_missing_but_devices_are_busy);
    tcase_add_test(tc, all_have_launched_and_react);
    tcase_add_test(tc, ended_on_all_devices_but_one);
    tcase_add_test(tc, ahead_of_those_that_wait);
    tcase_add_test(tc, ranks_that_do_not_agree);
    tcase_add_test(tc, many_that_do_not_agree);
    tcase_add_test(tc, ahead_of_a_rank_that_is_stopped);
    tcase_add_test(tc, ahead_and_busy);
    tcase_add_test(tc, one_that_waits_is_not_blamed);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
