/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that a job gets while it runs, and loses again (lib/job/elastic):
 * host a has the ranks 0 and 1, others come.  The agents follow scripts
 * (fake_agent.h); rank 0 says "up" when it is time to offer hosts.
 */
#include "lib/base/alloc.h"
#include "lib/job/job_impl.h"
#include "tests/unit/job_util.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers of ranks; each host that comes gets MOST of them. */
enum { NUMBERS = 32, HOSTS = 8, MOST = 4 };

#define BEGIN "hello;launch;started;ready 0;ready 1;generation 1 2 0,1;"

static struct plan grown;
static struct hostlist first;
static struct hb_strv env_of[NUMBERS];
static unsigned char is_elsewhere[HOSTS];
static char barrier[] = "/tmp/hvd-test-XXXXXX";

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

static void make_barrier(void)
{
    int fd = mkstemp(barrier);

    ck_assert_int_ge(fd, 0);
    close(fd);
    setenv("FAKE_BARRIER", barrier, 1);
}

/* A host that has its LAUNCH, and has not started its ranks, learns how to
 * reach one that comes meanwhile. */
START_TEST(hosts_come_together)
{
    prepare(MOST);
    make_barrier();
    script_of("b", "hello;launch;barrier 2;hosts 3;started 4;restart 2;"
                   "barrier 4;barrier 7;pause 100;ours 2 143;done;eof");
    script_of("c", "barrier 2;hello;launch;barrier 4;started 4;restart 6;"
                   "barrier 7;pause 100;ours 6 143;done;eof");
    go(BEGIN "out 0 1 up;hosts 2;hosts 3;barrier 7;exit 0 0;exit 1 0;done;eof");
    offer("a:2,b:1,c:1");
    finish(0, "[0]<stdout>:up\n",
           "hvdrun: host b: starts 1 rank, to join at the next commit\n"
           "hvdrun: host c: starts 1 rank, to join at the next commit\n");
    unlink(barrier);
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
    unlink(barrier);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, hosts_come_together);
    tcase_add_loop_test(tc, a_host_comes_at_the_end, 0, 3);
}

int main(int argc, char *argv[])
{
    return job_util_main("job_grow", add_tests, argc, argv);
}
