/* SPDX-License-Identifier: Apache-2.0 */
/* lib/job/stall: what ranks and agents tell, and what is said about it. */
#include "lib/job/stall.h"
#include "tests/unit/unit.h"

#include "lib/base/buf.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 4, HOSTS = 2, KEY = 77 };

static const uint64_t ms = 1000000, start_ns = 5000 * 1000000ull;

/* Two ranks on each of two hosts. */
static struct host_entry entries[HOSTS] = {{.name = (char *)"n0"},
                                           {.name = (char *)"n1"}};
static int rank_lists[HOSTS][2] = {{0, 1}, {2, 3}};
static struct plan_host hosts[HOSTS] = {{&entries[0], 0, rank_lists[0], 2},
                                        {&entries[1], 1, rank_lists[1], 2}};
static struct plan_rank ranks[RANKS] = {
    {.rank = 0}, {.rank = 1}, {.rank = 2, .host = 1}, {.rank = 3, .host = 1}};
static const struct plan plan = {ranks, RANKS, hosts, HOSTS};

static struct hb_buf said;
static struct control_stall_ask asked[HOSTS];
static int asks, ends, end_rank, blamed;
static char end_why[512], end_verdict[512], blame_why[512];
static struct stall *s;

static void on_ask(void *arg, int host, const struct control_stall_ask *m)
{
    (void)arg;
    asked[host] = *m;
    asks++;
}

static void on_say(void *arg, const char *lines)
{
    (void)arg;
    hb_must(hb_buf_puts(&said, lines));
}

static void on_blame(void *arg, int rank, const char *why)
{
    (void)arg;
    blamed = rank;
    snprintf(blame_why, sizeof(blame_why), "%s", why);
}

static void on_end(void *arg, int rank, const char *why, const char *verdict)
{
    (void)arg;
    ends++;
    end_rank = rank;
    snprintf(end_why, sizeof(end_why), "%s", why);
    snprintf(end_verdict, sizeof(end_verdict), "%s", verdict);
}

static void setup(void)
{
    const struct stall_config config = {.plan = &plan,
                                        .ask = on_ask,
                                        .say = on_say,
                                        .blame = on_blame,
                                        .end = on_end};

    memset(asked, 0, sizeof(asked));
    asks = ends = 0;
    end_rank = -1;
    blamed = RANKS;
    hb_buf_clear(&said);
    s = stall_new(&config);
}

static void teardown(void)
{
    stall_free(s);
    hb_buf_free(&said);
}

/* Rank has waited for so long by `now`; warning 1 s, shutdown 3 s. */
static void told(int rank, uint32_t waited_ms, uint64_t now_ms)
{
    const struct control_stalled m = {rank, waited_ms, 1000, 3000};

    stall_told(s, &m, start_ns + now_ms * ms);
}

static void set_rank(struct control_stall_rank *r, int rank)
{
    *r = (struct control_stall_rank){
        .rank = rank,
        .pid = 100 + rank,
        .state = 'S',
        .known = 1,
        .fresh = 1,
        .calls = 9,
        .sets = 1,
        .last = {.kind = STATUS_BARRIER, .age_ms = 2500}};
}

/* It waits for one more. */
static void add_wait(struct control_stall_rank *r, enum status_kind kind,
                     uint64_t key, const char *name, int64_t age_ms)
{
    if (!r->waits)
        r->waits = hb_xcalloc(STATUS_WAITS_MAX, sizeof(*r->waits));
    r->waits[r->count] =
        (struct control_stall_op){.age_ms = age_ms, .key = key, .kind = kind};
    snprintf(r->waits[r->count].name, STATUS_NAME_BYTES, "%s", name);
    r->count++;
    r->total++;
}

/* What a host's agent answers to the last question. */
static struct control_stall_ranks answer[HOSTS];

static void make_answers(void)
{
    for (int h = 0; h < HOSTS; h++) {
        answer[h].id = asked[h].id;
        answer[h].count = 2;
        answer[h].ranks = hb_xcalloc(2, sizeof(*answer[h].ranks));
        for (int i = 0; i < 2; i++)
            set_rank(&answer[h].ranks[i], 2 * h + i);
    }
}

static struct control_stall_rank *of(int rank)
{
    return &answer[rank / 2].ranks[rank % 2];
}

static void send_answer(int host, uint64_t now_ms)
{
    stall_ranks(s, host, &answer[host], start_ns + now_ms * ms);
    control_stall_ranks_fini(&answer[host]);
}

static void send_stack(int rank, int found, const char *text, uint64_t now_ms)
{
    struct control_stall_stack m = {.id = asked[0].id,
                                    .rank = rank,
                                    .found = found,
                                    .text = hb_xstrdup(text)};

    stall_stack(s, &m, start_ns + now_ms * ms);
    control_stall_stack_fini(&m);
}

static void expect_said(const char *part)
{
    ck_assert_msg(strstr(hb_buf_data(&said), part) != NULL, "no \"%s\" in:\n%s",
                  part, hb_buf_data(&said));
}

static void expect_next(uint64_t now_ms)
{
    ck_assert_uint_eq(stall_next_ns(s), start_ns + now_ms * ms);
}

/* ---- Reports ---------------------------------------------------------------
 */

START_TEST(quiet_at_first)
{
    ck_assert_uint_eq(stall_next_ns(s), 0);
    stall_tick(s, start_ns);
    ck_assert_int_eq(asks, 0);
}
END_TEST

/* Ranks 0 and 2 wait for 1 (stopped) and 3 (spins). */
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

/* 1 s, 1.1 s later again (2.2 s), then the end at 3 s is first. */
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

/* ---- The end ----------------------------------------------------------------
 */

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
    told(0, 0, 9000); /* all of that is over */
    told(2, 5000, 9000);
    stall_tick(s, start_ns + 10000 * ms);
    ck_assert_int_eq(ends, 1);
    ck_assert_ptr_null(strstr(hb_buf_data(&said), "over"));
}
END_TEST

/* A debugger that takes its time does not hold it up for longer. */
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

START_TEST(shutdown_without_warning)
{
    const struct control_stalled m = {0, 3000, 0, 3000};

    stall_told(s, &m, start_ns);
    ck_assert_int_eq(asks, HOSTS);
    stall_tick(s, start_ns + STALL_RANKS_MS * ms); /* nobody answers */
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

/* ---- Who is missing ---------------------------------------------------------
 */

static void ask_and_answer(void)
{
    send_answer(0, 100);
    send_answer(1, 100);
    stall_tick(s, stall_next_ns(s)); /* no stacks */
}

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
        of(i)->sets = 1 | 1 << 5;
    add_wait(of(0), STATUS_ALLTOALL, KEY, "", 1000);
    of(0)->waits[0].set = 5;
    add_wait(of(2), STATUS_ALLTOALL, KEY, "", 500); /* set 0: another one */
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
    of(1)->total = 100; /* "x" may be one of them */
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
    expect_said("ranks 0-3 wait for 1.0 s; no rank is missing\n");
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

/* ---- Devices
 * ---------------------------------------------------------------------- */

/* It has launched so many, and waits for the last on its device. */
static void add_launch(int rank, uint64_t number, enum status_where where)
{
    struct control_stall_rank *r = of(rank);

    add_wait(r, STATUS_ALLREDUCE, number, "g", 1000);
    r->waits[r->count - 1].where = where;
    r->launched[0] = number;
}

static void expect_blamed(int rank, const char *why)
{
    ck_assert_int_eq(blamed, rank);
    ck_assert_str_eq(blame_why, why);
}

START_TEST(rank_that_has_not_launched)
{
    told(0, 1000, 0);
    make_answers();
    add_launch(0, 5, STATUS_ON_DEVICE);
    add_launch(2, 5, STATUS_ON_DEVICE);
    of(1)->launched[0] = 6; /* its device has ended it */
    of(3)->launched[0] = 4;
    ask_and_answer();
    expect_said("  allreduce \"g\" on the device: ranks 0, 2 wait for 1.0 s; "
                "missing: rank 3\n");
    expect_blamed(3, "rank 3 (pid 103) on host n1: kept the others waiting for "
                     "1.1 s, it has not launched allreduce \"g\" on the "
                     "device; it sleeps");
}
END_TEST

/* While they connect: the one whose call of NCCL does not return has not even
 * said that it waits. */
START_TEST(nobody_has_launched)
{
    told(0, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++) {
        if (i != 2)
            add_launch(i, 1, STATUS_ON_DEVICE);
        of(i)->launched[0] = 0;
    }
    of(1)->state = 'T'; /* he, too */
    ask_and_answer();
    expect_said("missing: rank 2\n");
    ck_assert_int_eq(blamed, 2);
    expect_said("rank 1 on host n0 (pid 101) is stopped");
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

/* All of them are busy: nobody waits for anybody. */
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

/* Those that wait for others are what is said, not those that are busy. */
START_TEST(nobody_is_missing_but_devices_are_busy)
{
    told(2, 1000, 0);
    make_answers();
    for (int i = 0; i < RANKS; i++)
        add_launch(i, 7, STATUS_NOT_REACHED);
    add_wait(of(2), STATUS_BARRIER, KEY, "", 900);
    add_wait(of(3), STATUS_BARRIER, KEY, "", 900);
    of(0)->launched[0] = of(1)->launched[0] = 8; /* ahead */
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

/* All but one are done with it. */
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

/* Who was named is not the one that a later wait is about. */
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

/* Who has launched what another still has in its queue does not keep it
 * waiting. */
START_TEST(ahead_of_those_that_wait)
{
    told(0, 1000, 0);
    make_answers();
    add_wait(of(0), STATUS_ALLREDUCE, KEY, "g", 1000);
    for (int i = 0; i < RANKS; i++)
        of(i)->launched[0] = i ? 8 : 7;
    ask_and_answer();
    expect_said("  allreduce \"g\": rank 0 waits for 1.0 s; no rank is "
                "missing\n");
    ck_assert_int_eq(blamed, 0);
}
END_TEST

/* ---- What agents must not do
 * -------------------------------------------------- */

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
    send_answer(0, 10); /* another question's */
    send_answer(1, 10);
    expect_next(STALL_RANKS_MS);
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
    tcase_add_test(tc, shutdown_without_warning);
    tcase_add_test(tc, no_shutdown_unless_asked_for);
    tcase_add_test(tc, time_in_which_ranks_were_stopped);
    tcase_add_test(tc, joined_ranks_are_not_missing);
    tcase_add_test(tc, other_process_sets);
    tcase_add_test(tc, long_lists_and_unlisted_calls);
    tcase_add_test(tc, nobody_is_missing);
    tcase_add_test(tc, who_does_not_react);
    tcase_add_test(tc, all_wait_and_react);
    tcase_add_test(tc, without_the_library);
    tcase_add_test(tc, rank_that_has_not_launched);
    tcase_add_test(tc, nobody_has_launched);
    tcase_add_test(tc, stopped_after_the_launch);
    tcase_add_test(tc, device_that_has_not_come_to_it);
    tcase_add_test(tc, devices_with_work_of_their_own);
    tcase_add_test(tc, nobody_is_missing_but_devices_are_busy);
    tcase_add_test(tc, all_have_launched_and_react);
    tcase_add_test(tc, blame_ends_with_the_wait);
    tcase_add_test(tc, nobody_is_blamed_when_it_is_over);
    tcase_add_test(tc, ended_on_all_devices_but_one);
    tcase_add_test(tc, ahead_of_those_that_wait);
    tcase_add_test(tc, answers_that_nobody_asked_for);
    tcase_add_test(tc, control_bytes_are_not_printed);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
