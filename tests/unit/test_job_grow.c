/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that a job gets while it runs, and loses again (lib/job/elastic):
 * host a has the ranks 0 and 1, others come.  The agents follow scripts
 * (fake_agent.h); rank 0 says "up" when it is time to offer hosts.
 */
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/job_impl.h"
#include "tests/unit/job_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of ranks; each host that comes gets MOST of them. */
enum { NUMBERS = 32, HOSTS = 8, MOST = 4 };

#define BEGIN "hello;launch;started;ready 0;ready 1;generation 1 2 0,1;"

static struct plan grown;
static struct hostlist first;
static struct hb_strv env_of[NUMBERS];
static unsigned char is_elsewhere[HOSTS];

static int nowhere(void *arg, const struct host_entry *entry)
{
    (void)arg;
    (void)entry;
    return 0;
}

/* Makes a job of two ranks on host a, which gets up to `most`. */
static void prepare(int most)
{
    struct plan_options options = {.num_proc = 2};

    ck_assert_int_eq(hostlist_parse("a:2", &first, NULL), 0);
    ck_assert_int_eq(plan_make(&first, &options, &grown, NULL), 0);
    plan_reserve(&grown, NUMBERS, HOSTS);
    use_rsh();
    config.plan = &grown;
    config.rank_env = env_of;
    config.host_is_local = is_elsewhere;
    config.is_local = nowhere;
    config.names_differ = 1;
    config.spec.elastic = config.spec.restart = 1;
    config.min_np = 1;
    config.most = most;
    config.reset_limit = -1;
    config.elastic_timeout_ms = 600000;
    config.cooldown_least_ms = config.cooldown_most_ms = 100;
}

static void offer(const char *text)
{
    struct hostlist l = HOSTLIST_INIT;

    ck_assert_int_eq(hostlist_parse(text, &l, NULL), 0);
    job_offer_hosts(job, &l);
    hostlist_free(&l);
}

static void go(const char *a)
{
    script_of("a", a);
    start("");
    offer("a:2");
    wait_for_output("up");
}

/* A host that has its LAUNCH, and has not started its ranks, learns how to
 * reach one that comes meanwhile. */
START_TEST(listcome_together)
{
    prepare(MOST);
    make_barrier();
    script_of("b", "hello;launch;barrier 2;hosts 3;started 4;restart 2;"
                   "barrier 5;barrier 7;kill 60000;ours 2 143;done;eof");
    script_of("c", "barrier 2;hello;launch;barrier 5;started 4;restart 6;"
                   "barrier 7;kill 60000;ours 6 143;done;eof");
    go(BEGIN "out 0 1 up;hosts 2;hosts 3;barrier 7;exit 0 0;exit 1 0;done;eof");
    offer("a:2,b:1,c:1");
    finish(0, "[0]<stdout>:up\n",
           "hvdrun: host b: starts 1 rank, to join at the next commit\n"
           "hvdrun: host c: starts 1 rank, to join at the next commit\n");
}
END_TEST

/* The job ends while a host is still starting its agent, or its ranks. */
START_TEST(a_host_comes_at_the_end)
{
    static const char *const b[] = {
        "barrier 2;eof",
        "hello;launch;barrier 2;eof",
        "hello;launch;barrier 2;pause 100;started 4;kill 60000;done;eof",
    };

    prepare(MOST);
    make_barrier();
    script_of("b", b[_i]);
    go(_i == 2 ? BEGIN "out 0 1 up;hosts 2;barrier 2;exit 0 0;pause 300;exit 1 "
                       "0;done;eof"
       : _i == 1 ? BEGIN "out 0 1 up;hosts 2;barrier 2;exit 0 0;exit 1 0;done;"
                         "eof"
                 : BEGIN "out 0 1 up;barrier 2;exit 0 0;exit 1 0;done;eof");
    offer("a:2,b:1");
    finish(0, "[0]<stdout>:up\n", "");
}
END_TEST

static void wait_until_closed(int host)
{
    while (!job_host_finished(&job->hosts[host]) ||
           job->hosts[host].link.transport)
        uv_run(&loop, UV_RUN_ONCE);
}

#define B_STARTS "hvdrun: host b: starts 1 rank, to join at the next commit\n"

/* A host whose agent got a signal is used again after a while only, whether
 * ranks run there when it comes or not; as is one that others say goes. */
START_TEST(a_host_goes)
{
    static const char *const b[] = {
        ("hello;launch;started 4;restart 2;going 100 a signal;notice 2 80;"
         "removed 2 host b goes in 0.1 s (a signal);exit 2 0;kill 60000;done;"
         "eof"),
        ("hello;launch;started 4;restart 2;dies 2 ;going 100 a signal;"
         "kill 60000;done;eof"),
        "hello;launch;eof",
        "pause 60000",
    };

    prepare(MOST);
    config.cooldown_least_ms = config.cooldown_most_ms = 1;
    make_barrier();
    script_of("b", b[_i]);
    go(_i == 3 ? BEGIN "out 0 1 up;hosts 2;barrier 2;exit 0 0;exit 1 0;done;eof"
               : BEGIN "out 0 1 up;hosts 2;hosts 2;barrier 2;exit 0 0;exit 1 0;"
                       "done;eof");
    offer("a:2,b:1");
    if (_i >= 2) {
        while (job->hosts[1].state !=
               (_i == 2 ? HOST_LAUNCHED : HOST_CONNECTING))
            uv_run(&loop, UV_RUN_ONCE);
        job_host_goes(job, 1, -1, "a test");
    }
    wait_until_closed(1);
    offer("a:2,b:1");
    job_grow(job);
    ck_assert(job_host_finished(&job->hosts[1]));
    ck_assert(uv_is_active((uv_handle_t *)&job->grow_timer));
    ck_assert_uint_gt(job->hosts[1].goes_until_ns, hb_now_ns());

    read_messages();
    hb_buf_clear(&err);
    script_of("b",
              "hello;launch;started 4;restart 2;kill 60000;ours 2 143;done;"
              "eof");
    job->hosts[1].goes_until_ns = hb_now_ns();
    job_grow(job);
    wait_for_message(B_STARTS);
    pass_barrier();
    finish(0, "[0]<stdout>:up\n", B_STARTS);
}
END_TEST

/* Any number of hosts may come and go. */
START_TEST(many_hosts)
{
    prepare(MOST);
    config.cooldown_least_ms = config.cooldown_most_ms = 60000;
    make_barrier();
    go(BEGIN "out 0 1 up;barrier 2;exit 0 0;exit 1 0;done;eof");
    for (int i = 0; i < 3 * HOSTS; i++) {
        char name[16], list[32], want[64];

        snprintf(name, sizeof(name), "x%d", i);
        snprintf(list, sizeof(list), "a:2,%s:1", name);
        snprintf(want, sizeof(want), "host %s cannot be added", name);
        script_of(name, "say no room");
        offer(list);
        while (job->open_transports > 1)
            uv_run(&loop, UV_RUN_ONCE);
        read_messages();
        ck_assert_msg(strstr(hb_buf_data(&err), want) != NULL, "%s",
                      hb_buf_data(&err));
    }
    ck_assert_int_eq(grown.host_count, HOSTS);
    pass_barrier();
    finish_saying(0, "");
}
END_TEST

/* An answer that comes after its round has failed is none to the next one. */
START_TEST(a_late_answer)
{
    prepare(MOST);
    config.network_interfaces = "lo";
    config.cooldown_least_ms = config.cooldown_most_ms = 60000;
    make_barrier();
    script_of("b", "greet eth0;eof");
    script_of("c",
              "barrier 3;hello;pause 300;launch;started 4;restart 6;barrier 6;"
              "kill 60000;ours 6 143;done;eof");
    go(BEGIN "out 0 1 up;barrier 4;hosts 2;barrier 6;exit 0 0;exit 1 0;done;"
             "eof");
    offer("a:2,b:1,c:1");
    wait_for_message("host b cannot be added: host b: --network-interfaces lo "
                     "matches nothing there");
    pass_barrier();
    while (job->hosts[2].state != HOST_CONNECTED)
        uv_run(&loop, UV_RUN_ONCE);
    pass_barrier();
    finish_saying(0, "host c: starts 1 rank");
}
END_TEST

/* A rank that was lost with its host does not live when the host has come
 * back. */
START_TEST(a_lost_host_comes_back)
{
    prepare(MOST);
    config.cooldown_least_ms = config.cooldown_most_ms = 1;
    make_barrier();
    script_of("b", "hello;launch;started 4;restart 2;restart 3;barrier 2");
    go(BEGIN "out 0 1 up;hosts 2;hosts 2;barrier 4;exit 0 0;exit 1 0;done;eof");
    offer("a:2,b:2");
    wait_for_message("starts 2 ranks");
    ck_assert_int_eq(job_count_alive(job), 4);
    offer("a:2,b:1");
    script_of("b", "hello;launch;started 4;restart 2;kill 60000;ours 2 143;"
                   "done;eof");
    pass_barrier();
    wait_for_message(B_STARTS);
    ck_assert_int_eq(job_count_alive(job), 3);
    pass_barrier();
    finish_saying(0, "its 2 ranks are gone");
}
END_TEST

/* A job that stops at a commit starts no ranks any more, and gives up a host
 * that is being added. */
START_TEST(it_stops)
{
    prepare(MOST);
    make_barrier();
    script_of("b", _i ? "pause 60000" : "say reached");
    go(BEGIN "out 0 1 up;barrier 2;notice 0 60000;notice 1 60000;change 1;"
             "progress 1;ready 0;ready 1;removed 0 it stops;removed 1 it stops;"
             "exit 0 0;exit 1 0;kill 60000;done;eof");
    if (_i)
        offer("a:2,b:1");
    ck_assert_int_eq(job_stop_at_commit(job, 60000, 1, "it stops"), 0);
    offer("a:2,b:1,c:1");
    for (int i = 1; i < grown.host_count; i++)
        ck_assert(job_host_finished(&job->hosts[i]));
    pass_barrier();
    finish(75, "[0]<stdout>:up\n",
           "hvdrun: it stops: all ranks stop at the next commit, or are ended "
           "in 60 s\n"
           "hvdrun: 2 ranks have stopped at a commit: exit code 75\n");
}
END_TEST

#define A_GOES "host a goes (no longer listed)"

/* Another host replaces the only one, though there is no room for more ranks:
 * its rank takes over from those that leave. */
#define B_READY "rank 2 on host b: is ready to join"

START_TEST(the_only_host_is_replaced)
{
    prepare(2);
    script_of("b",
              "hello;launch;started 2;restart 2;ready 2;"
              "generation 2 1 0,1,2 " B_READY ";change 2;progress 2;ready 2;"
              "generation 3 0 2 " A_GOES ";exit 2 0;kill 60000;done;eof");
    go(BEGIN "out 0 1 up;hosts 2;notice 0 -1;notice 1 -1;change 1;progress 1;"
             "ready 0;ready 1;generation 2 1 0,1,2 " B_READY
             ";change 2;progress 2;ready 0;ready 1;removed 0 " A_GOES
             ";removed 1 " A_GOES ";exit 0 0;exit 1 0;kill 60000;done;eof");
    offer("b:1");
    finish(0, "[0]<stdout>:up\n",
           B_STARTS "hvdrun: " A_GOES ": its 2 ranks leave at the next commit\n"
                    "hvdrun: 2 -> 3 ranks (generation 2)\n"
                    "hvdrun: 3 -> 1 ranks (generation 3)\n");
}
END_TEST

/* No host may be left yet, because all other ranks are to leave: it is tried
 * again when others have come. */
START_TEST(a_host_cannot_be_left)
{
    prepare(MOST);
    make_barrier();
    script_of("b", "hello;launch;started 4;restart 2;"
                   "kill 60000;ours 2 143;done;eof");
    script_of("c", "pause 60000");
    go(BEGIN "out 0 1 up;hosts 2;notice 0 -1;notice 1 -1;out 0 1 asked;"
             "barrier 2;exit 0 0;exit 1 0;kill 60000;done;eof");
    offer("a:2,b:1");
    wait_for_message(B_STARTS);
    job_host_goes(job, 0, -1, "a test");
    wait_for_output("asked");
    offer("c:1");
    ck_assert(!job->hosts[1].is_withdrawn);
    pass_barrier();
    finish_saying(0, "host a goes (a test): its 2 ranks leave");
}
END_TEST

/* A rank finishes, and too few ranks are left. */
START_TEST(too_few_finish)
{
    prepare(MOST);
    config.min_np = 3;
    go("hello;launch;started;ready 0;ready 1;out 0 1 up;exit 0 0;"
       "kill 60000;ours 1 143;done;eof");
    finish(125, "[0]<stdout>:up\n",
           "hvdrun: 2 ranks are left, fewer than --min-np 3: the job ends\n"
           "hvdrun: rank 0 has ended, and too few are left\n"
           "hvdrun: ended the other rank; exit code 125\n");
}
END_TEST

/* The members have ended, one of them successfully, before others can join. */
START_TEST(too_few_have_finished)
{
    prepare(MOST);
    config.min_np = 2;
    make_barrier();
    script_of("b", "hello;launch;started 4;restart 2;barrier 2;abort 1;"
                   "kill 60000;ours 2 143;done;eof");
    go(BEGIN "out 0 1 up;hosts 2;barrier 2;exit 0 0;dies 1 ;kill 60000;done;"
             "eof");
    offer("a:2,b:1");
    finish(137, "[0]<stdout>:up\n",
           B_STARTS "hvdrun: 1 finished, fewer than --min-np 2: the job ends\n"
                    "hvdrun: rank 1 on host a (pid 101) failed: killed by "
                    "signal 9 (SIGKILL)\n"
                    "hvdrun: ended 1 other rank; exit code 137\n");
}
END_TEST

/* A new rank with the number of one that has used its restarts has its own. */
START_TEST(a_new_rank_is_restarted)
{
    const char *said;

    prepare(MOST);
    config.restart_failed = 1;
    make_barrier();
    script_of("b", "hello;launch;started 4;restart 2;dies 2 ;restart 2;dies 2 "
                   ";restart 2;dies 2 ;restart 2;barrier 2;kill 60000;"
                   "ours 2 143;done;eof");
    go(BEGIN "out 0 1 up;hosts 2;barrier 2;exit 0 0;exit 1 0;done;eof");
    offer("a:2,b:1");
    finish_saying(0, "(1 of 1)");
    said = strstr(hb_buf_data(&err), "(1 of 1)");
    ck_assert_ptr_nonnull(strstr(said + 1, "(1 of 1)"));
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, listcome_together);
    tcase_add_loop_test(tc, a_host_comes_at_the_end, 0, 3);
    tcase_add_loop_test(tc, a_host_goes, 0, 4);
    tcase_add_test(tc, many_hosts);
    tcase_add_test(tc, a_late_answer);
    tcase_add_test(tc, a_lost_host_comes_back);
    tcase_add_loop_test(tc, it_stops, 0, 2);
    tcase_add_test(tc, the_only_host_is_replaced);
    tcase_add_test(tc, a_host_cannot_be_left);
    tcase_add_test(tc, too_few_finish);
    tcase_add_test(tc, too_few_have_finished);
    tcase_add_test(tc, a_new_rank_is_restarted);
}

int main(int argc, char *argv[])
{
    return job_util_main("job_grow", add_tests, argc, argv);
}
