/* SPDX-License-Identifier: Apache-2.0 */
/* The real hvd-agent between HELLO and LAUNCH: its probe listener. */
#include "lib/agent/route/route_auth.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char token[CONTROL_TOKEN_BYTES] = {3, 1, 4};

static void send_listen(int reserve)
{
    struct control_route_listen m = {.host = 5, .reserve_port = reserve};
    struct hb_buf b = HB_BUF_INIT;

    memcpy(m.token, token, sizeof(token));
    ck_assert_int_eq(control_encode_route_listen(&b, &m), 0);
    peer_send(&peer, &b);
    hb_buf_free(&b);
}

/* Asks the agent, which is host 5, to probe its own listener as host `host`. */
static void send_probe(int host)
{
    struct hb_netaddr address = {4, {127, 0, 0, 1}};
    struct control_route_target t = {.host = host,
                                     .port = peer.route_port.port,
                                     .addresses = &address,
                                     .count = 1};
    struct control_route_probe m = {
        .timeout_ms = 30000, .targets = &t, .count = 1};
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(control_encode_route_probe(&b, &m), 0);
    peer_send(&peer, &b);
    hb_buf_free(&b);
}

/* Connects to the listener; returns -1 if it is closed. */
static int call_it(int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons((uint16_t)port);
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
        return fd;
    ck_assert_int_eq(errno, ECONNREFUSED);
    close(fd);
    return -1;
}

START_TEST(test_round)
{
    send_listen(0);
    peer_until(&peer, CONTROL_ROUTE_PORT);
    ck_assert_int_gt(peer.route_port.port, 0);
    ck_assert_int_eq(peer.route_port.reserved, 0);
    send_probe(5);
    peer_until(&peer, CONTROL_ROUTE_RESULT);
    ck_assert_int_eq(peer.route_answers, 1);
    send_probe(6); /* nothing counts: the listener is not host 6 */
    peer_until(&peer, CONTROL_ROUTE_RESULT);
    ck_assert_int_eq(peer.route_answers, 0);
    peer_run(&peer, "true", 2);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* After LAUNCH nobody can connect, and earlier callers are cut off. */
START_TEST(test_launch_closes_it)
{
    char byte;
    int fd;

    send_listen(0);
    peer_until(&peer, CONTROL_ROUTE_PORT);
    fd = call_it(peer.route_port.port);
    ck_assert_int_ge(fd, 0);
    peer_run(&peer, "exec sleep 1000", 1);
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    ck_assert_int_eq(call_it(peer.route_port.port), -1);
    close(fd);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* Rank 0 can listen on the port that was reserved for it. */
START_TEST(test_reserved_port)
{
    struct control_launch m;
    char port[16];

    send_listen(1);
    peer_until(&peer, CONTROL_ROUTE_PORT);
    ck_assert_int_gt(peer.route_port.reserved, 0);
    ck_assert_int_eq(call_it(peer.route_port.reserved), -1);
    snprintf(port, sizeof(port), "%d", peer.route_port.reserved);
    peer_launch_init(&m, "echo \"port $MASTER_PORT\"", 1);
    hb_strv_addf(&m.ranks[0].env, "MASTER_PORT=%s", port);
    peer_launch(&peer, &m);
    peer_until_output(&peer, 0, port);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}
END_TEST

/* hvdrun hangs up while strangers are connected and a probe runs. */
START_TEST(test_hangup_in_the_middle)
{
    int fd;

    send_listen(1);
    peer_until(&peer, CONTROL_ROUTE_PORT);
    fd = call_it(peer.route_port.port);
    send_probe(5);
    peer_finish(0);
    ck_assert_int_eq(call_it(peer.route_port.port), -1);
    close(fd);
}
END_TEST

START_TEST(test_out_of_order)
{
    switch (_i) {
    case 0:
        send_listen(0);
        send_listen(0);
        break;
    case 1:
        peer.route_port.port = 1;
        send_probe(1);
        break;
    default:
        peer_run(&peer, "exec sleep 1000", 1);
        send_listen(0);
        break;
    }
    while (peer_next(&peer) != 0)
        ;
    peer_finish(1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agent_route");
    TCase *c = tcase_create("agent_route");

    tcase_add_checked_fixture(c, peer_setup, peer_teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_round);
    tcase_add_test(c, test_launch_closes_it);
    tcase_add_test(c, test_reserved_port);
    tcase_add_test(c, test_hangup_in_the_middle);
    tcase_add_loop_test(c, test_out_of_order, 0, 3);
    suite_add_tcase(s, c);
    return unit_run(s);
}
