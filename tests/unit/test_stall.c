/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/stall/stall_inspector: when it asks, what it says, and when it ends
 * the job. */
#include "tests/unit/stall_util.h"

/* ---- Reports ------------------------------------------------------------ */

START_TEST(quiet_at_first)
{
    ck_assert_uint_eq(stall_next_ns(s), 0);
    stall_tick(s, start_ns);
    ck_assert_int_eq(asks, 0);
}
END_TEST

/* Ranks 0 and 2 wait for rank 1 (stopped) and rank 3 (spins). */
static void make_usual(void)
{
    make_answers();
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "grad.7", 1000);
    add_wait(of(2), STATUS_ALLREDUCE, KEY, "grad.7", 1200);
    of(1)->state = 'T';
    of(3)->state = 'R';
    of(3)->cpu_percent = 99;
    of(3)->calls = 0;
}

START_TEST(report_of_missing_ranks)
{
    told(0, 1000, 0);
    ck_assert_int_eq(asks, HOSTS);
    told(2, 1200, 10); /* the same report */
    ck_assert_int_eq(asks, HOSTS);
    ck_assert_int_eq(asked[1].count, 0);
    make_usual();
    send_answer(0, 150);
    ck_assert_int_eq(asked[0].count, 0);
    send_answer(1, 160);
    ck_assert_int_eq(asked[0].count, 1);
    ck_assert_int_eq(asked[0].ranks[0], 1);
    ck_assert_int_eq(asked[1].ranks[0], 3);
    send_stack(1, 1, "thread 1\n#0 read\n#1 main", 300);
    ck_assert_uint_eq(hb_buf_len(&said), 0);
    send_stack(3, 0, "neither eu-stack nor gdb is on that host", 310);
    ck_assert_str_eq(
        hb_buf_data(&said),
        "hvdrun: stall: 2 of 4 ranks wait for others, for up to 1.4 s\n"
        "  allreduce \"grad.7\": ranks 0, 2 wait for 1.2 s; missing: ranks 1, "
        "3\n"
        "  rank 1 on host n0 (pid 101) is stopped by a signal; its last "
        "operation: barrier, 2.5 s ago\n"
        "    thread 1\n    #0 read\n    #1 main\n"
        "  rank 3 on host n1 (pid 103) runs, at 99 % of a core; it has issued "
        "no operation yet\n"
        "    no stack: neither eu-stack nor gdb is on that host\n");
    ck_assert_int_eq(ends, 0);
}
END_TEST

static void first_report(void)
{
    told(0, 1000, 0);
    make_usual();
    send_answer(0, 100);
    send_answer(1, 100);
    send_stack(1, 1, "#0 a", 100);
    send_stack(3, 1, "#0 b", 100);
    expect_said("stall: 1 of 4 ranks waits");
    hb_buf_clear(&said);
}

START_TEST(over)
{
    first_report();
    told(0, 0, 400);
    ck_assert_str_eq(hb_buf_data(&said),
                     "hvdrun: stall: over, no rank waits any more\n");
    ck_assert_uint_eq(stall_next_ns(s), 0);
}
END_TEST

START_TEST(over_when_the_rank_ends)
{
    first_report();
    stall_rank_gone(s, 3, start_ns + 300 * ms); /* it did not wait */
    ck_assert_uint_eq(hb_buf_len(&said), 0);
    stall_rank_gone(s, 0, start_ns + 400 * ms);
    expect_said("over");
}
END_TEST

START_TEST(nothing_said_when_it_was_short)
{
    told(0, 1000, 0);
    told(0, 0, 50);
    make_usual();
    send_answer(0, 100);
    send_answer(1, 100);
    send_stack(1, 1, "#0 a", 100);
    send_stack(3, 1, "#0 b", 100);
    ck_assert_uint_eq(hb_buf_len(&said), 0);
    ck_assert_uint_eq(stall_next_ns(s), 0);
}
END_TEST

/* A report after 1.1 s is repeated after 2.2 s; then the end at 3 s is
 * first. */
START_TEST(again_after_twice_the_time)
{
    first_report();
    expect_next(100 + 1100);
    stall_tick(s, start_ns + 1199 * ms);
    ck_assert_int_eq(asks, 2 * HOSTS);
    stall_tick(s, start_ns + 1200 * ms);
    ck_assert_int_eq(asks, 3 * HOSTS);
    expect_next(1200 + STALL_RANKS_MS);
}
END_TEST

/* ---- The end ------------------------------------------------------------ */

START_TEST(shutdown_time)
{
    first_report();
    stall_tick(s, start_ns + 2000 * ms);
    make_usual();
    send_answer(0, 2100);
    send_answer(1, 2100);
    expect_next(2000 + STALL_STACKS_LAST_MS);
    send_stack(1, 1, "#0 a", 2200);
    stall_tick(s, stall_next_ns(s));
    expect_said("rank 3 on host n1");
    expect_said("no stack: none came in time");
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 1);
    ck_assert_str_eq(end_why,
                     "rank 1 (pid 101) on host n0: kept the others waiting for "
                     "6.0 s, it has not issued allreduce \"grad.7\"; it is "
                     "stopped by a signal");
    ck_assert_ptr_nonnull(
        strstr(end_verdict, "HVD_STALL_SHUTDOWN_TIME_SECONDS"));
    ck_assert_uint_eq(stall_next_ns(s), 0);
    told(0, 0, 9000); /* all waits are over */
    told(2, 5000, 9000);
    stall_tick(s, start_ns + 10000 * ms);
    ck_assert_int_eq(ends, 1);
    ck_assert_ptr_null(strstr(hb_buf_data(&said), "over"));
}
END_TEST

/* A slow debugger does not delay the end of the job. */
START_TEST(shutdown_during_a_report)
{
    told(0, 1000, 0);
    make_usual();
    send_answer(0, 100);
    send_answer(1, 100);
    expect_next(2000 + STALL_STACKS_LAST_MS);
    stall_tick(s, stall_next_ns(s));
    ck_assert_int_eq(ends, 1);
}
END_TEST

/* Makes an inspector of an elastic job. */
static void make_evicting(void)
{
    const struct stall_config config = {.plan = &plan,
                                        .ask = on_ask,
                                        .say = on_say,
                                        .blame = on_blame,
                                        .evict = on_evict,
                                        .end = on_end};

    stall_free(s);
    s = stall_new(&config);
}

/* In an elastic job the ranks that hang are killed when the time is over, and
 * the time of those that wait begins anew. */
START_TEST(hanging_ranks_are_evicted)
{
    make_evicting();
    told(0, 2500, 0);
    make_usual();
    send_answer(0, 400);
    send_answer(1, 470);
    ck_assert_uint_eq(evicted, 1u << 1 | 1u << 3);
    expect_said("no stack: it is killed at once");
    ck_assert_int_eq(ends, 0);
    expect_next(470 + 3000 - STALL_EVICT_LEAD_MS); /* their time again */
    stall_rank_gone(s, 1, start_ns + 480 * ms);
    stall_rank_gone(s, 3, start_ns + 480 * ms);
    told(0, 0, 490);
    expect_said("over");
    ck_assert_uint_eq(stall_next_ns(s), 0);
}
END_TEST

/* The questions begin a little before the time is over. */
START_TEST(eviction_is_prepared)
{
    make_evicting();
    first_report();
    stall_tick(s, start_ns + 1200 * ms);
    make_usual();
    send_answer(0, 1300);
    send_answer(1, 1300); /* a report; stacks are awaited */
    ck_assert_uint_eq(evicted, 0);
    expect_next(2000);
    stall_tick(s, start_ns + 2000 * ms);
    ck_assert_uint_eq(evicted, 1u << 1 | 1u << 3);
    ck_assert_int_eq(ends, 0);
}
END_TEST

/* Nobody is evicted where that does not help: too few would be left; all
 * wait, in a mismatch; an agent does not answer. */
START_TEST(nobody_is_evicted)
{
    make_evicting();
    may_evict = _i != 0;
    told(0, 3000, 0);
    make_usual();
    if (_i == 1) {
        add_wait(of(1), STATUS_ALLREDUCE, KEY + 1, "grad.8", 1000);
        add_wait(of(3), STATUS_ALLREDUCE, KEY + 1, "grad.8", 1000);
        of(1)->state = of(3)->state = 'S';
        of(3)->calls = 9;
    }
    send_answer(0, 100);
    if (_i != 2)
        send_answer(1, 100);
    for (int i = 0; i < 4 && stall_next_ns(s); i++)
        stall_tick(s, stall_next_ns(s));
    ck_assert_uint_eq(evicted, 0);
    ck_assert_int_eq(ends, 1);
}
END_TEST

START_TEST(shutdown_without_warning)
{
    const struct control_stalled m = {0, 3000, 0, 3000};

    stall_told(s, &m, start_ns);
    ck_assert_int_eq(asks, HOSTS);
    stall_tick(s, start_ns + STALL_RANKS_MS * ms); /* no agent answers */
    expect_said("the agent there did not answer");
    ck_assert_int_eq(ends, 1);
}
END_TEST

START_TEST(no_shutdown_unless_asked_for)
{
    const struct control_stalled m = {0, 1000, 1000, 0};

    stall_told(s, &m, start_ns);
    stall_tick(s, start_ns + STALL_RANKS_MS * ms);
    expect_said("stall: 1 of 4");
    for (int i = 0; i < 40 && stall_next_ns(s); i++)
        stall_tick(s, stall_next_ns(s));
    ck_assert_int_eq(ends, 0);
}
END_TEST

START_TEST(time_in_which_ranks_were_stopped)
{
    first_report();
    stall_resumed(s, start_ns + 60000 * ms);
    stall_tick(s, start_ns + 60001 * ms);
    told(2, 61000, 60001);
    hb_buf_clear(&said);
    make_usual();
    send_answer(0, 60100);
    send_answer(1, 60100);
    ck_assert_int_eq(ends, 0);
    ck_assert_uint_le(stall_next_ns(s),
                      start_ns + 63000 * ms + STALL_STACKS_MS * ms);
}
END_TEST
/* ---- Blame -------------------------------------------------------------- */

/* The blame is withdrawn when the wait ends: it says nothing about a later
 * one. */
START_TEST(blame_ends_with_the_wait)
{
    told(0, 1000, 0);
    make_usual();
    send_answer(0, 150);
    send_answer(1, 160);
    ck_assert_int_eq(blamed, 1);
    send_stack(1, 1, "#0 read", 300);
    send_stack(3, 1, "#0 main", 310);
    told(0, 0, 500);
    expect_said("stall: over");
    expect_blamed(-1, "");
}
END_TEST

START_TEST(nobody_is_blamed_when_it_is_over)
{
    told(0, 1000, 0);
    make_usual();
    told(0, 0, 100);
    send_answer(0, 150);
    send_answer(1, 160);
    ck_assert_int_eq(blamed, RANKS);
}
END_TEST

/* ---- What agents must not do -------------------------------------------- */

START_TEST(answers_that_nobody_asked_for)
{
    make_usual();
    send_answer(0, 0);
    send_stack(1, 1, "#0 a", 0);
    ck_assert_uint_eq(hb_buf_len(&said), 0);
    control_stall_ranks_fini(&answer[1]);
    told(0, 1000, 0);
    make_usual();
    answer[0].id++;
    send_answer(0, 10); /* answers another question */
    send_answer(1, 10);
    expect_next(STALL_RANKS_MS);
}
END_TEST

/* ---- The wait in hvd_init ---- */

static void late_answers(void)
{
    stall_late(s, 2000, start_ns);
    make_answers();
    for (int i = 0; i < RANKS; i++) {
        of(i)->known = 0;
        of(i)->in_init = 1;
    }
}

/* Named: a rank that has not called hvd_init, and one that is stopped in it. */
START_TEST(late_ranks_are_named)
{
    late_answers();
    of(1)->in_init = 0;
    of(2)->state = 'T';
    send_answer(0, 100);
    send_answer(1, 100);
    send_stack(1, 1, "#0 nanosleep", 100);
    ck_assert_int_eq(ends, 0);
    send_stack(2, 0, "it is stopped", 100);
    expect_said("hvdrun: start: ranks have waited in hvd_init for 2.0 s\n");
    expect_said("  rank 1 on host n0 (pid 101) sleeps; it has not called "
                "hvd_init");
    expect_said("    #0 nanosleep\n");
    expect_said("  rank 2 on host n1 (pid 102) is stopped by a signal; it is "
                "in hvd_init\n");
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 1);
    ck_assert_str_eq(end_why,
                     "rank 1 (pid 101) on host n0 has not called hvd_init; it "
                     "sleeps; rank 2 (pid 102) on host n1 is in hvd_init; it "
                     "is stopped by a signal");
    ck_assert_str_eq(end_verdict,
                     "ranks waited in hvd_init for 2 s, longer than "
                     "--start-timeout (HVD_START_TIMEOUT) allows");
    stall_late(s, 2000, start_ns + 200 * ms);
    ck_assert_int_eq(ends, 1);
}
END_TEST

/* All are there: the host that a rank did not reach meanwhile is the cause.  A
 * report from before that wait is not. */
START_TEST(late_because_of_the_network)
{
    const char *text = "rank 0 on host n0 gets no answer from host n1";

    stall_no_answer(s, text, start_ns - (uint64_t)(_i ? 2001 : 1999) * ms);
    late_answers();
    send_answer(0, 100);
    send_answer(1, 100);
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, -1);
    ck_assert_str_eq(end_why, _i ? "all ranks have called hvd_init, and none "
                                   "is stopped"
                                 : text);
}
END_TEST

/* Not named: ranks that a report about another wait suspects. */
START_TEST(late_ranks_during_a_report)
{
    told(0, 1000, 0);
    make_usual();
    send_answer(0, 50);
    send_answer(1, 50); /* the inspector now asks for stacks */
    asks = 0;
    late_answers();
    ck_assert_int_eq(asks, HOSTS);
    of(0)->in_init = 0;
    send_answer(0, 100);
    send_answer(1, 100);
    send_stack(1, 1, "#0 an old answer", 100);
    send_stack(3, 1, "#0 an old answer", 100);
    ck_assert_int_eq(ends, 0);
    send_stack(0, 1, "#0 main", 100);
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 0);
    expect_not_said("rank 1 on host");
}
END_TEST

/* hvdrun does not wait for an agent that does not answer. */
START_TEST(late_ranks_of_a_mute_host)
{
    late_answers();
    send_answer(0, 100);
    control_stall_ranks_fini(&answer[1]);
    expect_next(STALL_RANKS_MS);
    stall_tick(s, start_ns + STALL_RANKS_MS * ms);
    ck_assert_int_eq(ends, 1);
    ck_assert_str_eq(end_why, "rank 2 on host n1 has not called hvd_init; it "
                              "could not be asked; rank 3 on host n1 has not "
                              "called hvd_init; it could not be asked");
}
END_TEST

START_TEST(nobody_is_late)
{
    late_answers();
    of(3)->in_init = 0; /* has ended */
    of(3)->state = 0;
    send_answer(0, 100);
    send_answer(1, 100);
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, -1);
    ck_assert_str_eq(end_why,
                     "all ranks have called hvd_init, and none is stopped");
}
END_TEST

/* ---- Ranks that are left, stopped in hvd_init ---- */

static void leave_two(void)
{
    stall_free(s);
    make_stall(5000);
    stall_rank_gone(s, 0, start_ns);
    stall_rank_gone(s, 3, start_ns + 1000 * ms);
    expect_next(6000);
    stall_tick(s, start_ns + 6000 * ms);
    make_answers();
    for (int i = 0; i < RANKS; i++) {
        of(i)->state = i == 0 || i == 3 ? 0 : 'T';
        of(i)->in_init = 1;
        of(i)->calls = 0;
    }
}

START_TEST(stopped_ranks_that_are_left)
{
    leave_two();
    send_answer(0, 6100);
    send_answer(1, 6100);
    send_stack(1, 0, "stopped", 6100);
    send_stack(2, 0, "stopped", 6100);
    expect_said("hvdrun: start: the other ranks have ended for 5.0 s\n");
    expect_said("  rank 1 on host n0 (pid 101) is stopped by a signal");
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 1);
    ck_assert_ptr_nonnull(strstr(end_verdict, "were stopped in hvd_init"));
}
END_TEST

/* Ends all ranks of host 0, whose agent is then done. */
static void end_host_0(void)
{
    stall_free(s);
    make_stall(5000);
    for (int rank = 0; rank < 3; rank++)
        stall_rank_gone(s, rank, start_ns);
    asks = 0;
}

static void answer_of_host_1(int state, int in_init)
{
    ck_assert_int_eq(asks, 1);
    asked[0].id = asked[1].id;
    make_answers();
    of(2)->state = 0;
    of(2)->known = 0;
    of(3)->state = state;
    of(3)->in_init = in_init;
    of(3)->known = 0;
    of(3)->calls = 0;
    control_stall_ranks_fini(&answer[0]);
}

START_TEST(a_stopped_rank_is_left_on_one_host)
{
    end_host_0();
    stall_tick(s, start_ns + 5000 * ms);
    answer_of_host_1('T', 1);
    send_answer(1, 5100);
    send_stack(3, 0, "stopped", 5200);
    expect_said("hvdrun: start: the other ranks have ended for 5.0 s\n");
    expect_said("  rank 3 on host n1 (pid 103) is stopped by a signal");
    expect_not_said("host n0");
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 3);
}
END_TEST

/* A host that has not answered in time, but lives, is asked again. */
START_TEST(a_slow_host_is_asked_again)
{
    end_host_0();
    stall_tick(s, start_ns + 5000 * ms);
    ck_assert_int_eq(asks, 1);
    stall_tick(s, start_ns + 5000 * ms + STALL_RANKS_MS * ms);
    ck_assert_int_eq(ends, 0);
    expect_next(5000 + STALL_RANKS_MS + STALL_AGAIN_MS);
    asks = 0;
    stall_tick(s, stall_next_ns(s));
    answer_of_host_1('T', 1);
    send_answer(1, 20000);
    send_stack(3, 0, "stopped", 20000);
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 3);
}
END_TEST

START_TEST(ended_ranks_are_not_late)
{
    end_host_0();
    stall_late(s, 2000, start_ns);
    answer_of_host_1('S', 0);
    send_answer(1, 100);
    send_stack(3, 1, "#0 nanosleep", 100);
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 3);
    ck_assert_str_eq(end_why, "rank 3 (pid 103) on host n1 has not called "
                              "hvd_init; it sleeps");
}
END_TEST

START_TEST(ended_ranks_are_not_missing)
{
    end_host_0();
    told(3, 1000, 0);
    answer_of_host_1('S', 0);
    of(3)->known = 1;
    of(3)->calls = 1;
    add_wait(of(3), STATUS_ALLREDUCE, KEY, "grad.7", 1000);
    send_answer(1, 100);
    stall_tick(s, stall_next_ns(s)); /* no stacks come */
    expect_said("allreduce \"grad.7\": rank 3 waits for 1.0 s");
    expect_not_said("missing");
    expect_not_said("host n0");
}
END_TEST

static void answer_of_members(void)
{
    make_answers();
    *of(1) = (struct control_stall_rank){.rank = 1};
    *of(3) = (struct control_stall_rank){
        .rank = 3, .pid = 103, .state = 'T', .in_init = 1};
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "grad.7", 1000);
    send_answer(0, 100);
    send_answer(1, 100);
}

/* After the deaths of an elastic job: rank 1 is dead, and
 * rank 3 waits in hvd_init to come back.  Rank 0 waits for rank 2 alone. */
START_TEST(only_members_are_missing)
{
    static const int members[] = {0, 2};

    stall_rank_gone(s, 1, start_ns);
    stall_members(s, members, 2);
    told(0, 1000, 0);
    answer_of_members();
    ck_assert_int_eq(blamed, 2);
    ck_assert_int_eq(asked[1].count, 1);
    ck_assert_int_eq(asked[1].ranks[0], 2);
    stall_tick(s, stall_next_ns(s)); /* no stacks come */
    expect_said("stall: 1 of 2 ranks waits");
    expect_not_said("rank 1");
    expect_not_said("rank 3");
    stall_tick(s, start_ns + 2000 * ms);
    answer_of_members();
    stall_tick(s, stall_next_ns(s));
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(end_rank, 2);
}
END_TEST

/* A rank that runs, or has got past hvd_init, may do so for ever. */
START_TEST(ranks_that_are_left_and_work)
{
    leave_two();
    if (_i == 0)
        of(2)->state = 'S';
    else if (_i == 1)
        of(2)->calls = 1;
    else
        of(2)->in_init = 0;
    send_answer(0, 6100);
    send_answer(1, 6100);
    ck_assert_int_eq(ends, 0);
    ck_assert_uint_eq(stall_next_ns(s), 0);
    ck_assert_uint_eq(hb_buf_len(&said), 0);
}
END_TEST

START_TEST(control_bytes_are_not_printed)
{
    told(0, 1000, 0);
    make_usual();
    snprintf(of(0)->waits[0].name, STATUS_NAME_BYTES, "\033[2J");
    send_answer(0, 100);
    send_answer(1, 100);
    send_stack(1, 1, "#0 \033]0;x\a\n#1 b", 100);
    send_stack(3, 0, "\001", 100);
    ck_assert_ptr_null(strpbrk(hb_buf_data(&said), "\033\a\001"));
    expect_said("    #1 b\n");
}
END_TEST
int main(void)
{
    Suite *suite = suite_create("stall");
    TCase *tc = tcase_create("stall");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, quiet_at_first);
    tcase_add_test(tc, report_of_missing_ranks);
    tcase_add_test(tc, over);
    tcase_add_test(tc, over_when_the_rank_ends);
    tcase_add_test(tc, nothing_said_when_it_was_short);
    tcase_add_test(tc, again_after_twice_the_time);
    tcase_add_test(tc, shutdown_time);
    tcase_add_test(tc, shutdown_during_a_report);
    tcase_add_test(tc, hanging_ranks_are_evicted);
    tcase_add_test(tc, eviction_is_prepared);
    tcase_add_loop_test(tc, nobody_is_evicted, 0, 3);
    tcase_add_test(tc, shutdown_without_warning);
    tcase_add_test(tc, no_shutdown_unless_asked_for);
    tcase_add_test(tc, time_in_which_ranks_were_stopped);
    tcase_add_test(tc, blame_ends_with_the_wait);
    tcase_add_test(tc, nobody_is_blamed_when_it_is_over);
    tcase_add_test(tc, answers_that_nobody_asked_for);
    tcase_add_test(tc, late_ranks_are_named);
    tcase_add_loop_test(tc, late_because_of_the_network, 0, 2);
    tcase_add_test(tc, late_ranks_during_a_report);
    tcase_add_test(tc, late_ranks_of_a_mute_host);
    tcase_add_test(tc, a_slow_host_is_asked_again);
    tcase_add_test(tc, nobody_is_late);
    tcase_add_test(tc, stopped_ranks_that_are_left);
    tcase_add_test(tc, a_stopped_rank_is_left_on_one_host);
    tcase_add_test(tc, ended_ranks_are_not_late);
    tcase_add_test(tc, ended_ranks_are_not_missing);
    tcase_add_test(tc, only_members_are_missing);
    tcase_add_loop_test(tc, ranks_that_are_left_and_work, 0, 3);
    tcase_add_test(tc, control_bytes_are_not_printed);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
