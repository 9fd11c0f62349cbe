/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/agent/route/route.h over loopback: agents that probe each other, and
 * strangers at the listener.
 */
#include "lib/agent/route/route_impl.h"
#include "lib/base/sys/clock.h"
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uv_loop_t loop;
static struct route *a, *b; /* hosts 0 and 1 */
static int port_a, port_b;
static struct control_route_result result;
static int results;
static const unsigned char token[CONTROL_TOKEN_BYTES] = {7, 7, 7};

static void on_result(void *arg, const struct control_route_result *m)
{
    (void)arg;
    results++;
    control_route_result_fini(&result);
    result.count = m->count;
    result.answers = hb_xcalloc((size_t)m->count + 1, sizeof(*result.answers));
    for (int i = 0; i < m->count; i++)
        result.answers[i] = m->answers[i];
}

static struct route *open_host(int host, int *port)
{
    struct control_route_listen m = {.host = host};
    struct route *r = route_new(&loop, on_result, NULL);
    struct hb_error err = HB_ERROR_INIT;

    memcpy(m.token, token, sizeof(token));
    ck_assert_msg(route_listen(r, &m, port, &err) == 0, "%s", err.text);
    ck_assert_int_gt(*port, 0);
    return r;
}

static void setup(void)
{
    uv_loop_init(&loop);
    a = open_host(0, &port_a);
    b = open_host(1, &port_b);
    results = 0;
    memset(&result, 0, sizeof(result));
}

static void teardown(void)
{
    route_close(a);
    route_close(b);
    route_close(b); /* closing again does nothing */
    uv_run(&loop, UV_RUN_DEFAULT);
    route_free(a);
    route_free(b);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    control_route_result_fini(&result);
}

/* ---- Trying ---- */

enum { ADDRESSES_MAX = 8 };

struct
try {
    struct hb_netaddr addresses[ADDRESSES_MAX];
    struct control_route_target target;
    struct control_route_probe probe;
};

/* Makes a list with one target; addresses end with NULL. */
static void make_try(struct try *t, int host, int port,
                     const char *const *addresses)
{
    memset(t, 0, sizeof(*t));
    while (addresses[t->target.count]) {
        ck_assert_int_eq(hb_netaddr_parse(addresses[t->target.count],
                                          &t->addresses[t->target.count]),
                         0);
        t->target.count++;
    }
    t->target.host = host;
    t->target.port = port;
    t->target.addresses = t->addresses;
    t->probe.targets = &t->target;
    t->probe.count = 1;
    t->probe.timeout_ms = 2500;
}

static void do_probe(struct route *r, const struct control_route_probe *m)
{
    int before = results;

    ck_assert_int_eq(route_probe(r, m, NULL), 0);
    ck_assert_int_eq(results, before); /* no callback from inside the call */
    while (results == before)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(results, before + 1);
}

static int answered(int address)
{
    for (int i = 0; i < result.count; i++)
        if (result.answers[i].address == address)
            return 1;
    return 0;
}

START_TEST(test_both_families)
{
    static const char *const addresses[] = {"127.0.0.1", "127.0.0.2", NULL};
    struct try t;

    make_try(&t, 1, port_b, addresses);
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 2);
    ck_assert_int_eq(result.answers[0].host, 1);
    ck_assert(answered(0) && answered(1));
    make_try(&t, 0, port_a, addresses);
    do_probe(b, &t.probe);
    ck_assert_int_eq(result.count, 2);
    ck_assert_int_eq(result.answers[0].host, 0);
}
END_TEST

/* An address that leads to another agent of the job, as docker0's may, does not
 * count. */
START_TEST(test_wrong_host_does_not_count)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct try t;

    make_try(&t, 2, port_b, addresses);
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 0);
    make_try(&t, 1, port_a, addresses); /* host 1 is not at a's port */
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 0);
}
END_TEST

/* A refused connection ends the probe at once. */
START_TEST(test_refused)
{
    static const char *const addresses[] = {"127.0.0.1", "127.0.0.9", NULL};
    uint64_t began = hb_now_ns();
    struct try t;

    route_close(b);
    uv_run(&loop, UV_RUN_NOWAIT);
    make_try(&t, 1, port_b, addresses);
    t.probe.timeout_ms = 30000;
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 0);
    ck_assert(hb_now_ns() - began < UINT64_C(20000000000));
}
END_TEST

/* Listens on 127.0.0.x; returns -1 if the port is taken. */
static int listen_on(int x, int *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    sa.sin_addr.s_addr = htonl(0x7f000000 + (uint32_t)x);
    sa.sin_port = htons((uint16_t)*port);
    if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        return -1;
    }
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    *port = ntohs(sa.sin_port);
    return fd;
}

START_TEST(test_silent_until_timeout)
{
    static const char *const addresses[] = {"127.0.0.3", NULL};
    struct try t;
    int port = 0, fd = listen_on(3, &port);

    make_try(&t, 1, port, addresses);
    t.probe.timeout_ms = 50;
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 0);
    close(fd);
}
END_TEST

/* Answers one call as host 2 while the loop runs. */
static void answer_one(int listener)
{
    unsigned char call[ROUTE_CALL_BYTES], answer[ROUTE_ANSWER_BYTES];
    size_t have = 0;
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    while (have < sizeof(call)) {
        ssize_t n = recv(fd, call + have, sizeof(call) - have, 0);

        have += n > 0 ? (size_t)n : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    route_auth_answer(token, call, 2, answer);
    ck_assert_int_eq(send(fd, answer, sizeof(answer), MSG_NOSIGNAL),
                     sizeof(answer));
    close(fd);
}

/* A silent address delays the answer of another one briefly, not for the whole
 * time-out. */
START_TEST(test_silent_beside_another)
{
    static const char *const orders[][3] = {{"127.0.0.3", "127.0.0.1", NULL},
                                            {"127.0.0.1", "127.0.0.3", NULL}};
    int port = 0, silent = -1, talks = -1;
    uint64_t began = hb_now_ns();
    struct try t;

    while (talks < 0) {
        close(silent);
        port = 0;
        silent = listen_on(3, &port);
        talks = listen_on(1, &port);
    }
    make_try(&t, 2, port, orders[_i]);
    t.probe.timeout_ms = 30000;
    ck_assert_int_eq(route_probe(a, &t.probe, NULL), 0);
    answer_one(talks);
    while (results == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(result.count, 1);
    ck_assert(answered(1 - _i));
    ck_assert(hb_now_ns() - began < UINT64_C(20000000000));
    close(silent);
    close(talks);
}
END_TEST

START_TEST(test_unreachable_family)
{
    static const char *const addresses[] = {"2001:db8::1", "255.255.255.255",
                                            "127.0.0.1", NULL};
    struct try t;

    make_try(&t, 1, port_b, addresses);
    t.probe.timeout_ms = 500;
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 1);
    ck_assert(answered(2));
}
END_TEST

START_TEST(test_no_targets)
{
    struct control_route_probe m = {.timeout_ms = 1000};

    do_probe(a, &m);
    ck_assert_int_eq(result.count, 0);
    m.what = CONTROL_PROBE_MEASURE;
    do_probe(a, &m);
    ck_assert_int_eq(result.count, 0);
}
END_TEST

START_TEST(test_out_of_order)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct control_route_listen again = {.host = 0};
    struct route *c = route_new(&loop, on_result, NULL);
    struct hb_error err = HB_ERROR_INIT;
    struct try t;
    int port;

    make_try(&t, 1, port_b, addresses);
    ck_assert_int_eq(route_probe(c, &t.probe, &err), -HVD_EPROTO);
    ck_assert_int_eq(route_listen(a, &again, &port, NULL), -HVD_EPROTO);
    ck_assert_int_eq(route_probe(a, &t.probe, NULL), 0);
    ck_assert_int_eq(route_probe(a, &t.probe, NULL), -HVD_EPROTO);
    route_close(a); /* in the middle: no callback comes */
    ck_assert_int_eq(route_probe(a, &t.probe, NULL), -HVD_EPROTO);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(results, 0);
    route_free(c);
}
END_TEST

/* ---- Measuring ---- */

START_TEST(test_measure)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct try t;

    make_try(&t, 1, port_b, addresses);
    t.probe.what = CONTROL_PROBE_MEASURE;
    t.probe.timeout_ms = 30000;
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 1);
    ck_assert_int_eq(result.answers[0].host, 1);
    ck_assert_int_ge(result.answers[0].rtt_us, 0);
    ck_assert(result.answers[0].bytes_per_s > 0);
}
END_TEST

START_TEST(test_measure_refused)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct try t;

    route_close(b);
    uv_run(&loop, UV_RUN_NOWAIT);
    make_try(&t, 1, port_b, addresses);
    t.probe.what = CONTROL_PROBE_MEASURE;
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 0);
}
END_TEST

START_TEST(test_measure_closed_in_the_middle)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct try t;

    make_try(&t, 1, port_b, addresses);
    t.probe.what = CONTROL_PROBE_MEASURE;
    t.probe.timeout_ms = 30000;
    ck_assert_int_eq(route_probe(a, &t.probe, NULL), 0);
    for (int i = 0; i < _i && results == 0; i++)
        uv_run(&loop, UV_RUN_ONCE);
    route_close(_i % 2 ? a : b);
    if (_i % 2)
        uv_run(&loop, UV_RUN_NOWAIT);
    else
        while (results == 0) /* ends although the peer has gone */
            uv_run(&loop, UV_RUN_ONCE);
}
END_TEST

/* ---- Strangers ---- */

static int connect_to(int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons((uint16_t)port);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Runs the loop until the peer closes; returns how many bytes it sent. */
static int heard_until_closed(int fd)
{
    char buf[4096];
    int heard = 0;

    for (;;) {
        struct pollfd readable = {fd, POLLIN, 0};
        ssize_t n;

        uv_run(&loop, UV_RUN_NOWAIT);
        if (poll(&readable, 1, 10) <= 0)
            continue;
        n = recv(fd, buf, sizeof(buf), 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return heard;
        heard += n > 0 ? (int)n : 0;
    }
}

static int failing_reads;    /* of the next connections */
static int failing_nodelays; /* likewise */

int uv_read_start(uv_stream_t *stream, uv_alloc_cb on_alloc, uv_read_cb on_read)
{
    int (*real)(uv_stream_t *, uv_alloc_cb, uv_read_cb);

    if (failing_reads > 0 && failing_reads--)
        return UV_ENOMEM;
    *(void **)&real = dlsym(RTLD_NEXT, "uv_read_start");
    return real ? real(stream, on_alloc, on_read) : UV_ENOSYS;
}

int uv_tcp_nodelay(uv_tcp_t *tcp, int on)
{
    int (*real)(uv_tcp_t *, int);

    if (failing_nodelays > 0 && failing_nodelays--)
        return UV_ENOTSUP;
    *(void **)&real = dlsym(RTLD_NEXT, "uv_tcp_nodelay");
    return real ? real(tcp, on) : UV_ENOSYS;
}

/* A connection that cannot be read is closed at once, and not only when its
 * caller has been silent for too long. */
START_TEST(test_unreadable)
{
    int fd = connect_to(port_a);

    failing_reads = 1;
    while (failing_reads > 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(a->served_count, 0);
    ck_assert(!uv_is_active((const uv_handle_t *)&a->patience));
    ck_assert_int_eq(heard_until_closed(fd), 0);
    close(fd);
}
END_TEST

/* A caller is answered although both ends' sockets may delay what they send. */
START_TEST(test_nodelay_fails)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct try t;

    failing_nodelays = 2;
    make_try(&t, 1, port_b, addresses);
    do_probe(a, &t.probe);
    ck_assert_int_eq(failing_nodelays, 0);
    ck_assert_int_eq(result.count, 1);
}
END_TEST

START_TEST(test_scanner)
{
    static const char says[2][128] = {
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nUser-Agent: x\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on, for more "
        "than the sixty-four bytes of a call, as a TLS hello is"};

    for (int i = 0; i < 2; i++) {
        int fd = connect_to(port_a);

        ck_assert_int_gt(send(fd, says[i], 70, MSG_NOSIGNAL), 0);
        ck_assert_int_eq(heard_until_closed(fd), 0);
        close(fd);
    }
}
END_TEST

/* A stranger that sends nothing, or too little, is cut off. */
START_TEST(test_slow_stranger)
{
    int fd = connect_to(port_a), half = connect_to(port_a);

    ck_assert_int_eq(send(half, "hvP1", 4, MSG_NOSIGNAL), 4);
    ck_assert_int_eq(heard_until_closed(fd), 0);
    ck_assert_int_eq(heard_until_closed(half), 0);
    close(fd);
    close(half);
}
END_TEST

/* Agents get through a flood of strangers. */
START_TEST(test_flood)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    int fds[ROUTE_SERVED_MAX + 50];
    struct try t;

    for (int i = 0; i < ROUTE_SERVED_MAX + 50; i++) {
        fds[i] = connect_to(port_b);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    make_try(&t, 1, port_b, addresses);
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 1);
    for (int i = 0; i < ROUTE_SERVED_MAX + 50; i++)
        close(fds[i]);
}
END_TEST

/* Many callers wait before the loop runs: accepting them does not starve other
 * handles, and none is forgotten. */
START_TEST(test_many_at_once)
{
    enum { MANY = 200, MOST = 64 };
    int fds[MANY], before;

    for (int i = 0; i < MANY; i++)
        fds[i] = connect_to(port_b);
    while (b->served_count < MANY) {
        before = b->served_count;
        uv_run(&loop, UV_RUN_ONCE);
        ck_assert_int_le(b->served_count - before, MOST + 1);
    }
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}
END_TEST

/* The listener is closed while an accepted caller is held back. */
START_TEST(test_closed_while_many_wait)
{
    enum { MANY = 200 };
    int fds[MANY];

    for (int i = 0; i < MANY; i++)
        fds[i] = connect_to(port_b);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_lt(b->served_count, MANY);
    route_close(b);
    uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}
END_TEST

/* Sends a call with the right token that asks for more than there is. */
static int call_as(enum route_mode mode)
{
    const struct route_call call = {mode, 1, 0};
    unsigned char out[ROUTE_CALL_BYTES];
    int fd = connect_to(port_a);

    route_auth_call(token, &call, out);
    ck_assert_int_eq(send(fd, out, sizeof(out), MSG_NOSIGNAL), sizeof(out));
    return fd;
}

START_TEST(test_bounded_for_callers_too)
{
    static char many[4096];
    int fd = call_as(ROUTE_MODE_REACH);

    ck_assert_int_eq(send(fd, many, 1, MSG_NOSIGNAL), 1);
    ck_assert_int_le(heard_until_closed(fd), ROUTE_ANSWER_BYTES);
    close(fd);
    fd = call_as(ROUTE_MODE_ECHO);
    ck_assert_int_eq(send(fd, many, sizeof(many), MSG_NOSIGNAL), sizeof(many));
    ck_assert_int_le(heard_until_closed(fd), ROUTE_ANSWER_BYTES);
    close(fd);
}
END_TEST

START_TEST(test_sink_counts)
{
    unsigned char heard[ROUTE_ANSWER_BYTES + 8];
    int fd = call_as(ROUTE_MODE_SINK);
    size_t have = 0;

    ck_assert_int_eq(send(fd, "12345", 5, MSG_NOSIGNAL), 5);
    shutdown(fd, SHUT_WR);
    while (have < sizeof(heard)) {
        ssize_t n = recv(fd, heard + have, sizeof(heard) - have, 0);

        ck_assert_int_ne(n, 0);
        have += n > 0 ? (size_t)n : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert_int_eq(heard[ROUTE_ANSWER_BYTES + 7], 5);
    close(fd);
}
END_TEST

/* Strangers take all descriptors: the agent works on. */
START_TEST(test_out_of_descriptors)
{
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct rlimit limit;
    struct try t;
    int fds[64], n = 0;

    getrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 64; i++)
        fds[n++] = connect_to(port_b);
    limit.rlim_cur = (rlim_t)fds[63] + 4;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 20; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    for (int i = 0; i < 20; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    make_try(&t, 1, port_b, addresses);
    do_probe(a, &t.probe);
    ck_assert_int_eq(result.count, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("route");
    TCase *c = tcase_create("route");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_both_families);
    tcase_add_test(c, test_wrong_host_does_not_count);
    tcase_add_test(c, test_refused);
    tcase_add_test(c, test_silent_until_timeout);
    tcase_add_loop_test(c, test_silent_beside_another, 0, 2);
    tcase_add_test(c, test_unreachable_family);
    tcase_add_test(c, test_no_targets);
    tcase_add_test(c, test_out_of_order);
    tcase_add_test(c, test_measure);
    tcase_add_test(c, test_measure_refused);
    tcase_add_loop_test(c, test_measure_closed_in_the_middle, 0, 60);
    tcase_add_test(c, test_unreadable);
    tcase_add_test(c, test_nodelay_fails);
    tcase_add_test(c, test_scanner);
    tcase_add_test(c, test_slow_stranger);
    tcase_add_test(c, test_flood);
    tcase_add_test(c, test_many_at_once);
    tcase_add_test(c, test_closed_while_many_wait);
    tcase_add_test(c, test_bounded_for_callers_too);
    tcase_add_test(c, test_sink_counts);
    tcase_add_test(c, test_out_of_descriptors);
    suite_add_tcase(s, c);
    return unit_run(s);
}
