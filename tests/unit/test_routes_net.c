/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole round over real sockets: lib/job/route/routes on one side, an
 * agent's lib/agent/route/route for each host on the other, all on one loop.
 * Hosts are network namespaces joined by a bridge (a socket stays in the
 * namespace it was made in).  Where namespaces may not be made, these tests are
 * skipped.
 */
#include "lib/agent/route/interfaces.h"
#include "lib/agent/route/route.h"
#include "lib/base/alloc.h"
#include "lib/job/route/routes.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS_MAX = 4, NAME_LEN = 8 };

struct net_host {
    int ns; /* -1: the original one */
    struct route *route;
    int reserved_port;
};

static uv_loop_t loop;
static struct net_host hosts[HOSTS_MAX];
static int host_count, hub = -1;
static struct routes *routes;
static int round_done, ending;

/* ---- Namespaces ---- */

__attribute__((format(printf, 1, 2))) static void run(const char *fmt, ...)
{
    char command[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static int new_namespace(void)
{
    int fd;

    if (unshare(CLONE_NEWNET) < 0)
        return -1;
    fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    run("ip link set lo up");
    return fd;
}

static void enter(int host)
{
    if (hosts[host].ns >= 0)
        ck_assert_int_eq(setns(hosts[host].ns, CLONE_NEWNET), 0);
}

static int can_make_namespaces(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWNET) < 0 ||
              system("ip link add hvd0 type veth peer name hvd1 "
                     ">/dev/null 2>&1") != 0);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Makes `count` hosts with eth0, 10.9.0.K/24 and fd09::K, on one bridge. */
static void make_hosts(int count)
{
    hub = new_namespace();
    ck_assert_int_ge(hub, 0);
    run("ip link add br0 type bridge && ip link set br0 up");
    for (int i = 0; i < count; i++)
        hosts[i].ns = new_namespace();
    ck_assert_int_eq(setns(hub, CLONE_NEWNET), 0);
    for (int i = 0; i < count; i++)
        run("ip link add v%d type veth peer name eth0 netns /proc/%d/fd/%d && "
            "ip link set v%d master br0 up",
            i, (int)getpid(), hosts[i].ns, i);
    for (int i = 0; i < count; i++) {
        enter(i);
        run("ip addr add 10.9.0.%d/24 dev eth0 && "
            "ip -6 addr add fd09::%d/64 dev eth0 nodad && "
            "ip link set eth0 up",
            i + 1, i + 1);
    }
}

__attribute__((format(printf, 2, 3))) static void on_host(int host,
                                                          const char *fmt, ...)
{
    char command[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    enter(host);
    run("%s", command);
}

/* Waits until the kernel sees all links as up. */
static void wait_for_carriers(void)
{
    if (hub >= 0)
        ck_assert_int_eq(setns(hub, CLONE_NEWNET), 0);
    for (int i = -1; hub >= 0 && i < host_count; i++) {
        if (i >= 0)
            enter(i);
        run("while ip -o link show type veth | grep -v 'state UP' | "
            "grep -q .; do sleep 0.01; done");
    }
}

/* ---- The round ---- */

static struct frame frame_of(struct hb_buf *b)
{
    struct frame f;

    ck_assert_int_eq(frame_decode(b, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    return f;
}

/* Hands an agent's message to the round. */
static void hear(int host, struct hb_buf *b)
{
    struct hb_error err = HB_ERROR_INIT;
    struct frame f = frame_of(b);
    int rc = routes_frame(routes, host, &f, &err);

    ck_assert_msg(rc >= 0, "%s", err.text);
    round_done |= rc;
    hb_buf_free(b);
}

static void on_result(void *arg, const struct control_route_result *m)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_route_result(&b, m), 0);
    hear((int)((struct net_host *)arg - hosts), &b);
}

/* An order, obeyed in the next turn: no answer may come during the send. */
struct order {
    uv_timer_t timer;
    struct hb_buf frame;
    int host;
};

static void on_order_closed(uv_handle_t *handle)
{
    struct order *o = handle->data;

    hb_buf_free(&o->frame);
    hb_free(o);
}

static void obey_listen(int host, const struct frame *f)
{
    struct control_route_listen m;
    struct control_route_port port = {0};
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(control_decode_route_listen(f->payload, f->len, &m, NULL),
                     0);
    ck_assert_int_eq(m.host, host);
    ck_assert_int_eq(route_listen(hosts[host].route, &m, &port.port, NULL), 0);
    ck_assert_int_eq(m.reserve_port, host == 0);
    port.reserved = m.reserve_port ? 29500 : 0;
    ck_assert_int_eq(control_encode_route_port(&b, &port), 0);
    hear(host, &b);
}

static void obey(uv_timer_t *timer)
{
    struct order *o = timer->data;
    struct frame f = frame_of(&o->frame);
    struct control_route_probe m;

    enter(o->host);
    if (ending) {
        /* the agent has ended */
    } else if (f.type == CONTROL_ROUTE_LISTEN) {
        obey_listen(o->host, &f);
    } else {
        ck_assert_int_eq(control_decode_route_probe(f.payload, f.len, &m, NULL),
                         0);
        ck_assert_int_eq(route_probe(hosts[o->host].route, &m, NULL), 0);
        control_route_probe_fini(&m);
    }
    uv_close((uv_handle_t *)timer, on_order_closed);
}

static void send_order(void *arg, int host, const struct hb_buf *frame)
{
    struct order *o = hb_xcalloc(1, sizeof(*o));

    (void)arg;
    o->host = host;
    hb_buf_append(&o->frame, hb_buf_data(frame), hb_buf_len(frame));
    uv_timer_init(&loop, &o->timer);
    o->timer.data = o;
    uv_timer_start(&o->timer, obey, 0, 0);
}

static int say_hello(int host)
{
    struct control_hello m = {0};
    int rc;

    enter(host);
    m.machine = interfaces_machine("");
    interfaces_read("", &m.interfaces);
    rc = routes_hello(routes, host, &m, NULL);
    hb_free(m.machine);
    control_interfaces_fini(&m.interfaces);
    return rc;
}

/* Runs a whole round; returns the status of routes_finish. */
static int do_round(int count, const char *networks, int measure,
                    struct hb_error *err)
{
    static const char *const names[] = {"n1", "n2", "n3", "n4"};
    struct routes_config config = {
        .host_count = count,
        .names = names,
        .network_interfaces = networks,
        .measure = measure,
        .reserve_port = 1,
        .send = send_order,
    };
    int rc;

    host_count = count;
    round_done = 0;
    wait_for_carriers();
    ck_assert_int_eq(routes_new(&config, &routes, err), 0);
    for (int i = 0; i < count; i++) {
        hosts[i].route = route_new(&loop, on_result, &hosts[i]);
        ck_assert_int_eq(say_hello(i), 0);
    }
    rc = routes_begin(routes, err);
    if (rc < 0)
        return rc;
    round_done = rc;
    while (!round_done)
        uv_run(&loop, UV_RUN_ONCE);
    return routes_finish(routes, err);
}

static void end_round(void)
{
    ending = 1;
    for (int i = 0; i < host_count; i++)
        route_close(hosts[i].route);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < host_count; i++)
        route_free(hosts[i].route);
    routes_free(routes);
}

static void setup(void)
{
    uv_loop_init(&loop);
    for (int i = 0; i < HOSTS_MAX; i++)
        hosts[i] = (struct net_host){.ns = -1};
}

static void teardown(void)
{
    end_round();
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < HOSTS_MAX; i++)
        if (hosts[i].ns >= 0)
            close(hosts[i].ns);
    if (hub >= 0)
        close(hub);
}

static void check_same_peers(int a, int b, const struct hb_strv *peers_of_a)
{
    struct hb_strv peers = HB_STRV_INIT;
    int same = 1;

    ck_assert_int_eq(routes_peers(routes, b, &peers), 0);
    for (size_t i = 0; i < peers.count; i++)
        same &= strcmp(peers.items[i], peers_of_a->items[i]) == 0;
    ck_assert_int_eq(routes_same_peers(routes, a, b), same);
    hb_strv_free(&peers);
}

static void check_peers(int host, const char *const *expected)
{
    struct hb_strv peers = HB_STRV_INIT;

    ck_assert_int_eq(routes_peers(routes, host, &peers), 0);
    ck_assert_uint_eq(peers.count, (size_t)host_count);
    for (int i = 0; i < host_count; i++)
        ck_assert_str_eq(peers.items[i], expected[i]);
    for (int i = 0; i < host_count; i++)
        check_same_peers(host, i, &peers);
    hb_strv_free(&peers);
}

static void check_env(int host, const char *master, const char *interface)
{
    struct hb_strv common = HB_STRV_INIT, env = HB_STRV_INIT;

    ck_assert_int_eq(routes_env(routes, host, &common, &env), 0);
    ck_assert_str_eq(hb_env_get(&env, "MASTER_ADDR"), master);
    ck_assert_str_eq(hb_env_get(&env, "MASTER_PORT"), "29500");
    ck_assert_str_eq(hb_env_get(&env, "HOROVOD_GLOO_IFACE"), interface);
    ck_assert_str_eq(hb_env_get(&env, "GLOO_SOCKET_IFNAME"), interface);
    ck_assert_str_eq(hb_env_get(&env, "NCCL_SOCKET_IFNAME") + 1, interface);
    hb_strv_free(&env);
}

/* ---- One machine under several names ---- */

START_TEST(test_one_machine)
{
    static const char *const peers[] = {"127.0.0.1", "127.0.0.1", "127.0.0.1"};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(do_round(3, NULL, 0, &err) == 0, "%s", err.text);
    check_peers(0, peers);
    check_peers(2, peers);
    check_env(1, "127.0.0.1", "lo");
}
END_TEST

/* ---- Several machines ---- */

static const char *const eth0_peers[] = {"10.9.0.1", "10.9.0.2", "10.9.0.3"};

START_TEST(test_plain)
{
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    ck_assert_msg(do_round(3, NULL, 0, &err) == 0, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        check_peers(i, eth0_peers);
        check_env(i, "10.9.0.1", "eth0");
    }
}
END_TEST

/* Every host has the same docker0 address; one has a second address there. */
START_TEST(test_docker0)
{
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    for (int i = 0; i < 3; i++)
        on_host(i, "ip link add docker0 type bridge && "
                   "ip addr add 172.17.0.1/16 dev docker0 && "
                   "ip link set docker0 up && "
                   "ip link add veth0 type veth peer name veth1 && "
                   "ip link set veth0 master docker0 && "
                   "ip link set veth0 up && ip link set veth1 up");
    on_host(1, "ip addr add 172.17.0.77/16 dev docker0");
    ck_assert_msg(do_round(3, NULL, 0, &err) == 0, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        check_peers(i, eth0_peers);
        check_env(i, "10.9.0.1", "eth0");
    }
}
END_TEST

START_TEST(test_names_differ)
{
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    on_host(1, "ip link set eth0 down && ip link set eth0 name ens3 && "
               "ip link set ens3 up");
    ck_assert_msg(do_round(3, NULL, 0, &err) == 0, "%s", err.text);
    check_peers(0, eth0_peers);
    check_env(0, "10.9.0.1", "eth0");
    check_env(1, "10.9.0.1", "ens3");
}
END_TEST

START_TEST(test_ipv6_only)
{
    static const char *const peers[] = {"fd09::1", "fd09::2", "fd09::3"};
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    for (int i = 0; i < 3; i++)
        on_host(i, "ip -4 addr flush dev eth0");
    ck_assert_msg(do_round(3, NULL, 0, &err) == 0, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        check_peers(i, peers);
        check_env(i, "fd09::1", "eth0");
    }
}
END_TEST

START_TEST(test_chosen_network)
{
    static const char *const peers[] = {"fd09::1", "fd09::2", "fd09::3"};
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    ck_assert_msg(do_round(3, "nosuch0,fd09::/64", 0, &err) == 0, "%s",
                  err.text);
    check_peers(2, peers);
    check_env(2, "fd09::1", "eth0");
}
END_TEST

START_TEST(test_nothing_matches)
{
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(2);
    on_host(0, "ip addr add 10.8.0.1/24 dev eth0");
    ck_assert_int_eq(do_round(2, "10.8.0.0/24", 0, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "host n2: --network-interfaces 10.8.0.0/24 matches "
                     "nothing there; it has lo 127.0.0.1, eth0 10.9.0.2, lo "
                     "::1, eth0 fd09::2");
}
END_TEST

/* A pair has two networks; the first silently drops packets. */
START_TEST(test_filtered_network)
{
    static const char *const peers[] = {"fd09::1", "fd09::2", "10.9.0.3"};
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    on_host(1, "ip route add blackhole 10.9.0.1");
    ck_assert_msg(do_round(3, NULL, 0, &err) == 0, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        check_peers(i, peers);
        check_env(i, "fd09::1", "eth0");
    }
}
END_TEST

START_TEST(test_no_way)
{
    struct hb_error err = HB_ERROR_INIT;

    make_hosts(3);
    on_host(1, "ip route add blackhole 10.9.0.1 && "
               "ip -6 route add blackhole fd09::1");
    ck_assert_int_eq(do_round(3, NULL, 0, &err), -HVD_ENOENT);
    ck_assert_str_eq(
        err.text,
        "host n1 cannot connect to host n2 (tried 10.9.0.2, fd09::2); let TCP "
        "pass between them (firewall?), or choose a network with "
        "--network-interfaces");
}
END_TEST

START_TEST(test_measure)
{
    struct hb_error err = HB_ERROR_INIT;
    struct routes_pair p;

    make_hosts(3);
    on_host(1, "ip route add blackhole 10.9.0.1 && "
               "ip -6 route add blackhole fd09::1");
    ck_assert_int_eq(do_round(3, NULL, 1, &err), 0);
    routes_pair(routes, 1, 2, &p);
    ck_assert_int_eq(p.reached, 1);
    ck_assert_int_eq(p.same_machine, 0);
    ck_assert_str_eq(p.name, "eth0");
    ck_assert_int_gt(p.rtt_us, 0);
    ck_assert(p.bytes_per_s > 1000000);
    routes_pair(routes, 0, 1, &p);
    ck_assert_int_eq(p.reached, 0);
    routes_pair(routes, 1, 1, &p);
    ck_assert_int_eq(p.same_machine, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("routes_net");
    TCase *c = tcase_create("one machine");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, test_one_machine);
    suite_add_tcase(s, c);
    if (!can_make_namespaces()) {
        printf("routes_net: network namespaces need root: skipped\n");
        return unit_run(s);
    }
    c = tcase_create("namespaces");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_plain);
    tcase_add_test(c, test_docker0);
    tcase_add_test(c, test_names_differ);
    tcase_add_test(c, test_ipv6_only);
    tcase_add_test(c, test_chosen_network);
    tcase_add_test(c, test_nothing_matches);
    tcase_add_test(c, test_filtered_network);
    tcase_add_test(c, test_no_way);
    tcase_add_test(c, test_measure);
    suite_add_tcase(s, c);
    return unit_run(s);
}
