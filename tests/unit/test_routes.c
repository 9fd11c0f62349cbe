/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/route/routes.h without sockets: its orders to agents, its conclusions
 * from their answers, and agents that break the protocol.  test_routes_net.c
 * tests it over real networks.
 */
#include "lib/job/route/routes.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { HOSTS_MAX = 40 };

static struct routes *routes;
static int host_count;
/* The last order to each host, and the number of orders. */
static struct control_route_listen listens[HOSTS_MAX];
static struct control_route_probe probes[HOSTS_MAX];
static int listen_count[HOSTS_MAX], probe_count[HOSTS_MAX];

static void keep_order(void *arg, int host, const struct hb_buf *frame)
{
    struct frame f;

    (void)arg;
    ck_assert_int_eq(frame_decode(frame, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    if (f.type == CONTROL_ROUTE_LISTEN) {
        listen_count[host]++;
        ck_assert_int_eq(
            control_decode_route_listen(f.payload, f.len, &listens[host], NULL),
            0);
        return;
    }
    ck_assert_int_eq(f.type, CONTROL_ROUTE_PROBE);
    control_route_probe_fini(&probes[host]);
    probe_count[host]++;
    ck_assert_int_eq(
        control_decode_route_probe(f.payload, f.len, &probes[host], NULL), 0);
}

static void open_routes(int count, const char *networks, int measure)
{
    static char names[HOSTS_MAX][8];
    const char *pointers[HOSTS_MAX];
    struct routes_config config = {
        .host_count = count,
        .names = pointers,
        .network_interfaces = networks,
        .measure = measure,
        .reserve_port = 1,
        .send = keep_order,
    };
    struct hb_error err = HB_ERROR_INIT;

    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i + 1);
        pointers[i] = names[i];
    }
    host_count = count;
    ck_assert_msg(routes_new(&config, &routes, &err) == 0, "%s", err.text);
}

static void close_routes(void)
{
    for (int i = 0; i < HOSTS_MAX; i++)
        control_route_probe_fini(&probes[i]);
    routes_free(routes);
    routes_free(NULL);
}

/* Says hello for a host with eth0, 10.0.0.(address + 1), on `machine`. */
static int hello_from(int host, int address, const char *machine)
{
    struct control_interface items[2] = {
        {(char *)"lo",
         1,
         {4, {127, 0, 0, 1}},
         8,
         0,
         CONTROL_INTERFACE_UP | CONTROL_INTERFACE_LOOPBACK},
        {(char *)"eth0",
         2,
         {4, {10, 0, 0, (unsigned char)(address + 1)}},
         24,
         1000,
         CONTROL_INTERFACE_UP}};
    char own[16];
    struct control_hello m = {.interfaces = {items, 2}};

    snprintf(own, sizeof(own), "m%d", host);
    m.machine = machine ? (char *)(uintptr_t)machine : own;
    return routes_hello(routes, host, &m, NULL);
}

static int hello(int host, const char *machine)
{
    return hello_from(host, host, machine);
}

static void hello_all(void)
{
    for (int i = 0; i < host_count; i++)
        ck_assert_int_eq(hello(i, NULL), 0);
}

static int hear(int host, struct hb_buf *b, struct hb_error *err)
{
    struct frame f;
    int rc;

    ck_assert_int_eq(frame_decode(b, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    rc = routes_frame(routes, host, &f, err);
    hb_buf_free(b);
    return rc;
}

static int port(int host, struct hb_error *err)
{
    struct control_route_port m = {4000 + host, host == 0 ? 29500 : 0};
    struct hb_buf b = HB_BUF_INIT;

    control_encode_route_port(&b, &m);
    return hear(host, &b, err);
}

static int result(int host, struct control_route_answer *answers, int count,
                  struct hb_error *err)
{
    struct control_route_result m = {answers, count};
    struct hb_buf b = HB_BUF_INIT;

    control_encode_route_result(&b, &m);
    return hear(host, &b, err);
}

/* Answers a host's probe: all targets work but `dead`. */
static int all_but(int host, int dead)
{
    struct control_route_answer answers[HOSTS_MAX];
    int count = 0;

    for (int i = 0; i < probes[host].count; i++)
        if (probes[host].targets[i].host != dead)
            answers[count++] = (struct control_route_answer){
                probes[host].targets[i].host, 0, 50, 0};
    return result(host, answers, count, NULL);
}

static const char *env_value(int host, const char *common_item,
                             const char *name)
{
    static char value[128];
    struct hb_strv common = HB_STRV_INIT, env = HB_STRV_INIT;
    const char *got;

    if (common_item)
        hb_strv_add(&common, common_item);
    hb_strv_add(&env, "MASTER_ADDR=n1"); /* as worker_env.h sets it */
    ck_assert_int_eq(routes_env(routes, host, &common, &env), 0);
    got = hb_env_get(&env, name);
    snprintf(value, sizeof(value), "%s", got ? got : "(none)");
    hb_strv_free(&common);
    hb_strv_free(&env);
    return value;
}

/* ---- A good round ---- */

START_TEST(test_round)
{
    int first;

    open_routes(3, NULL, 0);
    hello_all();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(listen_count[i], 1);
        ck_assert_int_eq(listens[i].host, i);
        ck_assert_int_eq(listens[i].reserve_port, i == 0);
        ck_assert_mem_eq(listens[i].token, listens[0].token,
                         CONTROL_TOKEN_BYTES);
    }
    ck_assert_int_eq(port(1, NULL), 0); /* allowed before the last hello */
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    ck_assert_int_eq(routes_waiting(routes, &first), 2);
    ck_assert_int_eq(first, 0);
    ck_assert_int_eq(port(0, NULL), 0);
    ck_assert_int_eq(probe_count[0], 0);
    ck_assert_int_eq(port(2, NULL), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(probe_count[i], 1);
        ck_assert_int_eq(probes[i].count, 2);
        ck_assert_int_eq(probes[i].targets[0].port,
                         4000 + probes[i].targets[0].host);
        ck_assert_int_eq(probes[i].targets[0].count, 1);
    }
    ck_assert_int_eq(all_but(2, -1), 0);
    ck_assert_int_eq(routes_waiting(routes, &first), 2);
    ck_assert_int_eq(all_but(0, -1), 0);
    ck_assert_int_eq(all_but(1, -1), 1);
    ck_assert_int_eq(routes_waiting(routes, &first), 0);
    ck_assert_int_eq(first, -1);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    ck_assert_str_eq(env_value(1, NULL, "MASTER_ADDR"), "10.0.0.1");
    ck_assert_str_eq(env_value(0, NULL, "MASTER_ADDR"), "10.0.0.1");
    ck_assert_str_eq(env_value(2, NULL, "MASTER_PORT"), "29500");
    ck_assert_str_eq(env_value(2, NULL, "NCCL_SOCKET_IFNAME"), "=eth0");
    ck_assert_str_eq(env_value(2, NULL, "GLOO_SOCKET_IFNAME"), "eth0");
    ck_assert_str_eq(env_value(2, NULL, "HOROVOD_GLOO_IFACE"), "eth0");
}
END_TEST

/* Two jobs have different tokens. */
START_TEST(test_tokens_differ)
{
    struct control_route_listen before;

    open_routes(2, NULL, 0);
    hello_all();
    before = listens[1];
    routes_free(routes);
    open_routes(2, NULL, 0);
    hello_all();
    ck_assert_mem_ne(before.token, listens[1].token, CONTROL_TOKEN_BYTES);
}
END_TEST

START_TEST(test_what_the_user_set_stays)
{
    static const struct {
        const char *item, *name;
    } cases[] = {
        {"MASTER_PORT=1", "MASTER_PORT"},
        {"NCCL_SOCKET_IFNAME=ib", "NCCL_SOCKET_IFNAME"},
        {"GLOO_SOCKET_IFNAME=ib", "GLOO_SOCKET_IFNAME"},
        {"HOROVOD_GLOO_IFACE=ib", "HOROVOD_GLOO_IFACE"},
        {"HVD_GLOO_IFACE=ib", "HOROVOD_GLOO_IFACE"},
    };

    open_routes(2, NULL, 0);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    port(0, NULL);
    port(1, NULL);
    all_but(0, -1);
    ck_assert_int_eq(all_but(1, -1), 1);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_str_eq(env_value(1, cases[i].item, cases[i].name), "(none)");
    ck_assert_str_eq(env_value(1, "MASTER_ADDR=x", "MASTER_ADDR"), "n1");
}
END_TEST

/* On one machine no host is probed. */
START_TEST(test_one_machine)
{
    open_routes(3, NULL, 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(hello_from(i, 0, "same"), 0);
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    port(0, NULL);
    port(1, NULL);
    ck_assert_int_eq(port(2, NULL), 1);
    ck_assert_int_eq(probe_count[0], 0);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    ck_assert_str_eq(env_value(1, NULL, "MASTER_ADDR"), "127.0.0.1");
    ck_assert_str_eq(env_value(1, NULL, "NCCL_SOCKET_IFNAME"), "=lo");
}
END_TEST

/* Hosts that claim to be one machine but have different addresses are
 * probed. */
START_TEST(test_clones_of_one_machine)
{
    open_routes(2, NULL, 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(hello(i, "same"), 0);
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    port(0, NULL);
    ck_assert_int_eq(port(1, NULL), 0);
    ck_assert_int_gt(probe_count[0], 0);
}
END_TEST

START_TEST(test_one_host)
{
    open_routes(1, "10.0.0.0/8", 0);
    hello_all();
    ck_assert_int_eq(listen_count[0], 0);
    ck_assert_int_eq(routes_begin(routes, NULL), 1);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    ck_assert_str_eq(env_value(0, NULL, "NCCL_SOCKET_IFNAME"), "=eth0");
    ck_assert_str_eq(env_value(0, NULL, "MASTER_ADDR"), "n1");
    ck_assert_str_eq(env_value(0, NULL, "MASTER_PORT"), "(none)");
}
END_TEST

START_TEST(test_one_host_without_a_choice)
{
    open_routes(1, NULL, 0);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, NULL), 1);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    ck_assert_str_eq(env_value(0, NULL, "NCCL_SOCKET_IFNAME"), "(none)");
}
END_TEST

/* ---- Trouble ---- */

static void start(int count)
{
    open_routes(count, NULL, 0);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(port(i, NULL), 0);
}

START_TEST(test_one_way)
{
    struct hb_error err = HB_ERROR_INIT;

    start(3);
    all_but(0, 1);
    all_but(1, -1);
    ck_assert_int_eq(all_but(2, -1), 1);
    ck_assert_int_eq(routes_finish(routes, &err), -HVD_ENOENT);
    ck_assert_str_eq(
        err.text, "host n1 cannot connect to host n2 (tried 10.0.0.2), though "
                  "n2 can connect to n1; let TCP pass between them "
                  "(firewall?), or choose a network with "
                  "--network-interfaces");
}
END_TEST

START_TEST(test_cut_off)
{
    struct hb_error err = HB_ERROR_INIT;

    start(3);
    all_but(0, 1);
    result(1, NULL, 0, NULL);
    ck_assert_int_eq(all_but(2, 1), 1);
    ck_assert_int_eq(routes_finish(routes, &err), -HVD_ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "host n1 cannot connect to host "
                                           "n2 (tried 10.0.0.2); nor can 2 "
                                           "other pairs; "));
}
END_TEST

START_TEST(test_no_address)
{
    struct hb_error err = HB_ERROR_INIT;

    open_routes(2, "lo", 0);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    port(0, NULL);
    ck_assert_int_eq(port(1, NULL), 1);
    ck_assert_int_eq(routes_finish(routes, &err), -HVD_ENOENT);
    ck_assert_str_eq(err.text,
                     "host n2: it has no address by which host n1 could reach "
                     "it within lo; give it one, or other networks with "
                     "--network-interfaces");
}
END_TEST

START_TEST(test_nothing_matches)
{
    struct hb_error err = HB_ERROR_INIT;

    open_routes(2, "10.0.0.1,ib0", 0);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "host n2: --network-interfaces 10.0.0.1,ib0 matches "
                     "nothing there; it has lo 127.0.0.1, eth0 10.0.0.2");
}
END_TEST

START_TEST(test_bad_list)
{
    struct routes_config config = {.host_count = 1,
                                   .network_interfaces = "10.0.0.0/99"};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(routes_new(&config, &routes, &err), -HVD_EINVAL);
    ck_assert_int_eq(routes_check_networks("10.0.0.0/99", NULL), -HVD_EINVAL);
    ck_assert_int_eq(routes_check_networks("10.0.0.0/9,eth0", NULL), 0);
    ck_assert_int_eq(routes_check_networks(NULL, NULL), 0);
}
END_TEST

/* What a hostile agent may send, and the error for it. */
START_TEST(test_protocol)
{
    struct control_route_answer unasked = {2, 0, 1, 0}, self = {0, 0, 1, 0},
                                far = {1, 7, 1, 0};
    struct hb_error err = HB_ERROR_INIT;

    open_routes(2, NULL, 0);
    ck_assert_int_eq(port(0, NULL), -HVD_EPROTO); /* before hello */
    hello_all();
    ck_assert_int_eq(hello(0, NULL), -HVD_EPROTO);
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    ck_assert_int_eq(result(0, NULL, 0, NULL), -HVD_EPROTO);
    port(0, NULL);
    ck_assert_int_eq(port(0, NULL), -HVD_EPROTO);
    port(1, NULL);
    ck_assert_int_eq(result(0, &unasked, 1, &err), -HVD_EPROTO);
    ck_assert_str_eq(err.text, "a route to host 2 that was not tried");
    ck_assert_int_eq(result(0, &self, 1, NULL), -HVD_EPROTO);
    ck_assert_int_eq(result(0, &far, 1, NULL), -HVD_EPROTO);
}
END_TEST

START_TEST(test_no_reserved_port)
{
    struct control_route_port m = {4000, 0};
    struct hb_buf b = HB_BUF_INIT;

    open_routes(2, NULL, 0);
    hello_all();
    control_encode_route_port(&b, &m);
    ck_assert_int_eq(hear(0, &b, NULL), -HVD_EPROTO);
}
END_TEST

/* ---- Many hosts, hosts that go, measuring ---- */

START_TEST(test_many_hosts)
{
    start(HOSTS_MAX);
    for (int i = 0; i < HOSTS_MAX; i++)
        ck_assert_int_le(probes[i].count, 9);
    for (int i = 0; i < HOSTS_MAX; i++)
        ck_assert_int_eq(all_but(i, -1), i == HOSTS_MAX - 1);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    ck_assert_str_eq(env_value(39, NULL, "MASTER_ADDR"), "10.0.0.1");
}
END_TEST

START_TEST(test_absent)
{
    struct routes_pair p;

    open_routes(4, NULL, 1);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(hello(i, NULL), 0);
    ck_assert_int_eq(routes_absent(routes, 3), 0); /* has not said hello */
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    ck_assert_int_eq(port(0, NULL), 0);
    ck_assert_int_eq(port(1, NULL), 0);
    ck_assert_int_eq(routes_absent(routes, 2), 0); /* goes when asked for its
                                                    * port */
    ck_assert_int_eq(probes[0].count, 1);
    all_but(0, -1);
    all_but(1, -1);
    ck_assert_int_eq((int)probes[0].what, CONTROL_PROBE_MEASURE);
    ck_assert_int_eq(routes_absent(routes, 0), 1); /* goes while measuring */
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    routes_pair(routes, 0, 3, &p);
    ck_assert_int_eq(p.reached, -1);
    routes_pair(routes, 0, 1, &p);
    ck_assert_int_eq(p.reached, 1);
    ck_assert_int_eq(p.rtt_us, 50);
}
END_TEST

/* Returns the target that a host measures now; -1 if none. */
static int measures(int host)
{
    return probes[host].count == 1 && probes[host].what == CONTROL_PROBE_MEASURE
               ? probes[host].targets[0].host
               : -1;
}

START_TEST(test_measure)
{
    int busy[5], done[5] = {0}, left = 20, rc = 0;
    struct routes_pair p;

    open_routes(5, NULL, 1);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    for (int i = 0; i < 5; i++)
        port(i, NULL);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(all_but(i, -1), 0);
    while (left > 0) {
        int next = -1;

        memset(busy, 0, sizeof(busy));
        for (int i = 0; i < 5; i++) {
            if (probe_count[i] == 1 + done[i])
                continue; /* no new order */
            ck_assert_int_ge(measures(i), 0);
            ck_assert_int_eq(busy[i]++, 0);
            ck_assert_int_eq(busy[measures(i)]++, 0);
            next = i;
        }
        ck_assert_int_ge(next, 0);
        done[next]++;
        left--;
        rc = result(next,
                    &(struct control_route_answer){measures(next), 0, 7, 900},
                    1, NULL);
        ck_assert_int_eq(rc, left == 0);
    }
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(done[i], 4);
    routes_pair(routes, 4, 2, &p);
    ck_assert_int_eq(p.reached, 1);
    ck_assert_int_eq(p.rtt_us, 7);
    ck_assert(p.bytes_per_s == 900);
    ck_assert_str_eq(p.name, "eth0");
}
END_TEST

/* A pair without a route is a result; a failed measurement leaves the speed at
 * 0. */
START_TEST(test_measure_failures)
{
    struct routes_pair p;

    open_routes(2, NULL, 1);
    hello_all();
    ck_assert_int_eq(routes_begin(routes, NULL), 0);
    port(0, NULL);
    port(1, NULL);
    all_but(0, 1);
    ck_assert_int_eq(all_but(1, -1), 0);
    ck_assert_int_eq(measures(1), 0);
    ck_assert_int_eq(result(1, NULL, 0, NULL), 1);
    ck_assert_int_eq(routes_finish(routes, NULL), 0);
    routes_pair(routes, 0, 1, &p);
    ck_assert_int_eq(p.reached, 0);
    routes_pair(routes, 1, 0, &p);
    ck_assert_int_eq(p.reached, 1);
    ck_assert_int_eq(p.rtt_us, 50);
    ck_assert(p.bytes_per_s == 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("routes");
    TCase *c = tcase_create("routes");

    tcase_add_checked_fixture(c, NULL, close_routes);
    tcase_add_test(c, test_round);
    tcase_add_test(c, test_tokens_differ);
    tcase_add_test(c, test_what_the_user_set_stays);
    tcase_add_test(c, test_one_machine);
    tcase_add_test(c, test_clones_of_one_machine);
    tcase_add_test(c, test_one_host);
    tcase_add_test(c, test_one_host_without_a_choice);
    tcase_add_test(c, test_one_way);
    tcase_add_test(c, test_cut_off);
    tcase_add_test(c, test_no_address);
    tcase_add_test(c, test_nothing_matches);
    tcase_add_test(c, test_bad_list);
    tcase_add_test(c, test_protocol);
    tcase_add_test(c, test_no_reserved_port);
    tcase_add_test(c, test_many_hosts);
    tcase_add_test(c, test_absent);
    tcase_add_test(c, test_measure);
    tcase_add_test(c, test_measure_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
