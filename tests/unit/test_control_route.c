/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/control/control_route.h: messages coded, decoded, refused. */
#include "lib/protocol/control/control.h"
#include "tests/unit/unit_frame.h"

#include <string.h>

static struct hb_netaddr address(const char *s)
{
    struct hb_netaddr a;

    ck_assert_int_eq(hb_netaddr_parse(s, &a), 0);
    return a;
}

/* ---- HELLO's interfaces ---- */

static struct control_hello make_hello(struct control_interface *items,
                                       int count)
{
    return (struct control_hello){.version = (char *)"0.1.0",
                                  .host = (char *)"n1",
                                  .cpu = (char *)"x86_64",
                                  .pid = 7,
                                  .cpus = 4,
                                  .machine = (char *)"boot/1",
                                  .namespaces = (char *)"",
                                  .interfaces = {items, count}};
}

START_TEST(test_interfaces)
{
    struct control_interface items[3] = {
        {(char *)"lo", 1, address("127.0.0.1"), 8, 0,
         CONTROL_INTERFACE_UP | CONTROL_INTERFACE_LOOPBACK},
        {(char *)"en\xff:1", 7, address("10.0.0.1"), 31, 25000,
         CONTROL_INTERFACE_UP},
        {(char *)"docker0", 9, address("fd00::1"), 128, 1,
         CONTROL_INTERFACE_VIRTUAL},
    };
    struct control_hello m = make_hello(items, 3), got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(control_encode_hello(&b, &m), 0);
    f = only_frame(&b, CONTROL_HELLO);
    ck_assert_int_eq(control_decode_hello(f.payload, f.len, &got, NULL), 0);
    ck_assert_int_eq(got.interfaces.count, 3);
    for (int i = 0; i < 3; i++) {
        const struct control_interface *g = &got.interfaces.items[i];

        ck_assert_str_eq(g->name, items[i].name);
        ck_assert_int_eq(g->index, items[i].index);
        ck_assert(hb_netaddr_equal(&g->address, &items[i].address));
        ck_assert_int_eq(g->prefix, items[i].prefix);
        ck_assert_int_eq(g->speed_mbps, items[i].speed_mbps);
        ck_assert_uint_eq(g->flags, items[i].flags);
    }
    control_hello_fini(&got);
    hb_buf_free(&b);
}
END_TEST

#define ROUTE_HELLO(list)                                      \
    "{\"version\":\"v\",\"host\":\"\",\"cpu\":\"\",\"pid\":1," \
    "\"cpus\":1,\"machine\":\"\",\"namespaces\":\"\",\"interfaces\":" list "}"
#define ROUTE_INTERFACE(name, prefix, more)                        \
    "{\"name\":\"" name "\",\"index\":1,\"address\":\"10.0.0.1\"," \
    "\"prefix\":" prefix ",\"speed\":0,\"up\":true,"               \
    "\"loopback\":false,\"virtual\":false" more "}"

static int refuse_hello(const void *p, size_t len, struct hb_error *err)
{
    struct control_hello m;

    return control_decode_hello(p, len, &m, err);
}

static int refuse_listen(const void *p, size_t len, struct hb_error *err)
{
    struct control_route_listen m;

    return control_decode_route_listen(p, len, &m, err);
}

static int refuse_port(const void *p, size_t len, struct hb_error *err)
{
    struct control_route_port m;

    return control_decode_route_port(p, len, &m, err);
}

static int refuse_probe(const void *p, size_t len, struct hb_error *err)
{
    struct control_route_probe m;

    return control_decode_route_probe(p, len, &m, err);
}

static int refuse_result(const void *p, size_t len, struct hb_error *err)
{
    struct control_route_result m;

    return control_decode_route_result(p, len, &m, err);
}

#define PROBE(target) \
    "{\"what\":\"reach\",\"timeout_ms\":1,\"targets\":[" target "]}"
#define ANSWER(host, address, rtt, rate)                                       \
    "{\"answers\":[{\"host\":" host ",\"address\":" address ",\"rtt_us\":" rtt \
    ",\"bytes_per_s\":" rate "}]}"

static const struct {
    int (*decode)(const void *p, size_t len, struct hb_error *err);
    const char *payload, *text;
} refusals[] = {
    {refuse_hello, ROUTE_HELLO("{}"),
     "hello: field 'interfaces' is not an array of a possible length"},
    {refuse_hello, ROUTE_HELLO("[1]"),
     "hello: field 'interfaces' holds something other than objects"},
    {refuse_hello, ROUTE_HELLO("[{}]"),
     "hello: interfaces[0]: field 'name' is missing"},
    {refuse_hello, ROUTE_HELLO("[" ROUTE_INTERFACE("", "8", "") "]"),
     "hello: interfaces[0]: field 'name' is empty"},
    {refuse_hello, ROUTE_HELLO("[" ROUTE_INTERFACE("e", "33", "") "]"),
     "hello: interfaces[0]: field 'prefix' is 33, not from 0 to 32"},
    {refuse_hello, ROUTE_HELLO("[" ROUTE_INTERFACE("e", "8", ",\"x\":1") "]"),
     "hello: interfaces[0]: unknown field 'x'"},
    {refuse_hello,
     ROUTE_HELLO("[{\"name\":\"e\",\"index\":1,\"address\":\"n1\"}]"),
     "hello: interfaces[0]: field 'address' is not a numeric address"},
    {refuse_listen, "{\"token\":\"00\"}",
     "route_listen: field 'token' is not 64 hex digits"},
    {refuse_listen, "{}", "route_listen: field 'token' is missing"},
    {refuse_port, "{\"port\":0,\"reserved\":0}",
     "route_port: field 'port' is 0, not from 1 to 65535"},
    {refuse_port, "{\"port\":1,\"reserved\":65536}",
     "route_port: field 'reserved' is 65536, not from 0 to 65535"},
    {refuse_probe, "{\"what\":\"ping\"}",
     "route_probe: field 'what' has an unknown value"},
    {refuse_probe, PROBE("[]"),
     "route_probe: field 'targets' holds something other than objects"},
    {refuse_probe, PROBE("{\"host\":0,\"port\":1,\"addresses\":[]}"),
     "route_probe: targets[0]: field 'addresses' is empty"},
    {refuse_probe, PROBE("{\"host\":0,\"port\":1,\"addresses\":{}}"),
     "route_probe: targets[0]: field 'addresses' is not an array of a "
     "possible length"},
    {refuse_probe, PROBE("{\"host\":0,\"port\":1,\"addresses\":[7]}"),
     "route_probe: targets[0]: field 'addresses[0]' is not a numeric address"},
    {refuse_probe,
     PROBE("{\"host\":0,\"port\":1,\"addresses\":[\"10.0.0.1\",\"n1\"]}"),
     "route_probe: targets[0]: field 'addresses[1]' is not a numeric address"},
    {refuse_probe, PROBE("{\"host\":65536,\"port\":1,\"addresses\":[]}"),
     "route_probe: targets[0]: field 'host' is 65536, not from 0 to 65535"},
    {refuse_result, ANSWER("-1", "0", "0", "0"),
     "route_result: answers[0]: field 'host' is -1, not from 0 to 65535"},
    {refuse_result, ANSWER("0", "64", "0", "0"),
     "route_result: answers[0]: field 'address' is 64, not from 0 to 63"},
    {refuse_result, ANSWER("0", "0", "-1", "0"),
     "route_result: answers[0]: field 'rtt_us' is -1, not from 0 to "
     "2147483647"},
    {refuse_result, ANSWER("0", "0", "0", "1.5"),
     "route_result: answers[0]: field 'bytes_per_s' is not an integer"},
    {refuse_result, "{\"answers\":[],\"more\":1}",
     "route_result: unknown field 'more'"},
};

START_TEST(test_refusals)
{
    struct hb_error err = HB_ERROR_INIT;
    const char *payload = refusals[_i].payload;

    ck_assert_int_eq(refusals[_i].decode(payload, strlen(payload), &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, refusals[_i].text);
}
END_TEST

START_TEST(test_too_many)
{
    struct control_interface items[CONTROL_INTERFACES_MAX + 1];
    struct control_hello m = make_hello(items, CONTROL_INTERFACES_MAX), got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    for (int i = 0; i <= CONTROL_INTERFACES_MAX; i++)
        items[i] = (struct control_interface){.name = (char *)"e",
                                              .address = address("10.0.0.1")};
    control_encode_hello(&b, &m);
    f = only_frame(&b, CONTROL_HELLO);
    ck_assert_int_eq(control_decode_hello(f.payload, f.len, &got, NULL), 0);
    control_hello_fini(&got);
    hb_buf_clear(&b);
    m.interfaces.count++;
    control_encode_hello(&b, &m);
    f = only_frame(&b, CONTROL_HELLO);
    ck_assert_int_eq(control_decode_hello(f.payload, f.len, &got, NULL),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

/* ---- The messages ---- */

START_TEST(test_listen_and_port)
{
    struct control_route_listen m = {{0}, 12, 1}, got;
    struct control_route_port port = {45123, 29500}, got_port;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    for (int i = 0; i < CONTROL_TOKEN_BYTES; i++)
        m.token[i] = (unsigned char)(i * 11);
    ck_assert_int_eq(control_encode_route_listen(&b, &m), 0);
    f = only_frame(&b, CONTROL_ROUTE_LISTEN);
    ck_assert_int_eq(control_decode_route_listen(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_mem_eq(got.token, m.token, sizeof(m.token));
    ck_assert_int_eq(got.host, 12);
    ck_assert_int_eq(got.reserve_port, 1);
    hb_buf_clear(&b);
    ck_assert_int_eq(control_encode_route_port(&b, &port), 0);
    f = only_frame(&b, CONTROL_ROUTE_PORT);
    ck_assert_int_eq(
        control_decode_route_port(f.payload, f.len, &got_port, NULL), 0);
    ck_assert_int_eq(got_port.port, 45123);
    ck_assert_int_eq(got_port.reserved, 29500);
    hb_buf_free(&b);
}
END_TEST

static void make_probe(struct control_route_probe *m)
{
    m->what = CONTROL_PROBE_MEASURE;
    m->timeout_ms = 2500;
    m->count = 2;
    m->targets = hb_xcalloc(2, sizeof(*m->targets));
    for (int i = 0; i < 2; i++) {
        struct control_route_target *t = &m->targets[i];

        *t = (struct control_route_target){.host = 7 + i, .port = 4711};
        t->count = 2;
        t->addresses = hb_xcalloc(2, sizeof(*t->addresses));
        t->addresses[0] = address("10.0.0.1");
        t->addresses[1] = address("fd00::1");
    }
}

START_TEST(test_probe)
{
    struct control_route_probe m, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    make_probe(&m);
    ck_assert_int_eq(control_encode_route_probe(&b, &m), 0);
    f = only_frame(&b, CONTROL_ROUTE_PROBE);
    ck_assert_int_eq(control_decode_route_probe(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_int_eq((int)got.what, CONTROL_PROBE_MEASURE);
    ck_assert_int_eq(got.timeout_ms, 2500);
    ck_assert_int_eq(got.count, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(got.targets[i].host, 7 + i);
        ck_assert_int_eq(got.targets[i].port, 4711);
        ck_assert_int_eq(got.targets[i].count, 2);
        for (int k = 0; k < 2; k++)
            ck_assert(hb_netaddr_equal(&got.targets[i].addresses[k],
                                       &m.targets[i].addresses[k]));
    }
    control_route_probe_fini(&got);
    control_route_probe_fini(&m);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_result)
{
    struct control_route_answer answers[2] = {
        {1, 0, 85, 0}, {65535, 63, 2147483647, INT64_MAX}};
    struct control_route_result m = {answers, 2}, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(control_encode_route_result(&b, &m), 0);
    f = only_frame(&b, CONTROL_ROUTE_RESULT);
    ck_assert_int_eq(control_decode_route_result(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_int_eq(got.count, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(got.answers[i].host, answers[i].host);
        ck_assert_int_eq(got.answers[i].address, answers[i].address);
        ck_assert_int_eq(got.answers[i].rtt_us, answers[i].rtt_us);
        ck_assert(got.answers[i].bytes_per_s == answers[i].bytes_per_s);
    }
    control_route_result_fini(&got);
    hb_buf_clear(&b);
    m.count = 0;
    ck_assert_int_eq(control_encode_route_result(&b, &m), 0);
    f = only_frame(&b, CONTROL_ROUTE_RESULT);
    ck_assert_int_eq(control_decode_route_result(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_int_eq(got.count, 0);
    hb_buf_free(&b);
}
END_TEST

static int decode_probe(void *arg)
{
    const struct frame *f = arg;
    struct control_route_probe got;
    int rc = control_decode_route_probe(f->payload, f->len, &got, NULL);

    control_route_probe_fini(&got);
    return rc;
}

START_TEST(test_allocation_failures)
{
    struct control_route_probe m;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    make_probe(&m);
    control_encode_route_probe(&b, &m);
    f = only_frame(&b, CONTROL_ROUTE_PROBE);
    unit_fail_each(decode_probe, &f);
    control_route_probe_fini(&m);
    hb_buf_free(&b);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *s = suite_create("control_route");
    TCase *c = tcase_create("control_route");

    tcase_add_test(c, test_interfaces);
    tcase_add_test(c, test_too_many);
    tcase_add_loop_test(c, test_refusals, 0, COUNT(refusals));
    tcase_add_test(c, test_listen_and_port);
    tcase_add_test(c, test_probe);
    tcase_add_test(c, test_result);
    tcase_add_test(c, test_allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
