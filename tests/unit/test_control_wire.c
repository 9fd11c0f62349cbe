/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON control messages byte by byte: hvdrun and an agent of the same
 * version understand each other whatever builds them, so that the bytes of a
 * message change only together with its description.
 */
#include "lib/protocol/control/control.h"
#include "tests/unit/unit_frame.h"

#include <string.h>

static struct hb_netaddr address(const char *s)
{
    struct hb_netaddr a;

    ck_assert_int_eq(hb_netaddr_parse(s, &a), 0);
    return a;
}

static int put_hello(struct hb_buf *b)
{
    struct control_interface items[] = {
        {(char *)"lo", 1, address("127.0.0.1"), 8, 0,
         CONTROL_INTERFACE_UP | CONTROL_INTERFACE_LOOPBACK},
        {(char *)"en\xff:1", 7, address("fd00::1"), 64, 25000,
         CONTROL_INTERFACE_UP | CONTROL_INTERFACE_VIRTUAL},
    };
    struct control_hello m = {.version = (char *)"0.1.0",
                              .host = (char *)"n\"1",
                              .cpu = (char *)"x86_64",
                              .pid = 77,
                              .cpus = 16,
                              .machine = (char *)"boot/1",
                              .namespaces = (char *)"",
                              .interfaces = {items, 2}};

    return control_encode_hello(b, &m);
}

static int put_launch(struct hb_buf *b)
{
    struct control_rank ranks[2] = {
        {.rank = 1, .local_size = 2, .cross_rank = 1, .cross_size = 2},
        {.rank = 3, .local_rank = 1, .local_size = 2, .cross_size = 1},
    };
    struct control_launch m = {
        .job_id = (char *)"0123456789abcdef0123456789abcdef",
        .host = (char *)"n1",
        .host_index = 1,
        .size = 4,
        .cwd = (char *)"/home/u\xff",
        .ranks = ranks,
        .rank_count = 2,
        .spec = {.bind = CONTROL_BIND_CORE,
                 .gpus_per_rank = 2,
                 .bind_gpu = 1,
                 .wireup = CONTROL_WIREUP_PMI1,
                 .grace_ms = 60000,
                 .elastic = 1,
                 .restart = 1},
        .output_window = CONTROL_OUTPUT_WINDOW,
        .trace = 1,
        .limits = {{1, 1024}, {0, 0}, {1, UINT64_MAX}},
    };
    int rc;

    for (int i = 0; i < 32; i++)
        m.secret[i] = (unsigned char)(i * 9);
    hb_strv_add(&m.peers, "10.0.0.1");
    hb_strv_add(&m.peers, "");
    hb_strv_add(&m.argv, "./train");
    hb_strv_add(&m.argv, "a\nb");
    hb_strv_add(&m.env, "A=gr\xc3\xbc\xc3\x9f");
    hb_strv_add(&m.env, "B=\xfe");
    hb_strv_add(&ranks[0].env, "RANK=1");
    ranks[0].stdin_open = 1;
    rc = control_encode_launch(b, &m);
    hb_strv_free(&m.peers);
    hb_strv_free(&m.argv);
    hb_strv_free(&m.env);
    hb_strv_free(&ranks[0].env);
    return rc;
}

static int put_started(struct hb_buf *b)
{
    pid_t pids[] = {4711, 0, 2147483647};

    return control_encode_started(b, &(struct control_started){pids, 3});
}

static int put_exited(struct hb_buf *b)
{
    struct control_exited m = {.rank = 3,
                               .pid = 4711,
                               .exit_code = 139,
                               .signal = 11,
                               .core_dumped = 1,
                               .cause = CONTROL_CAUSE_SIGNAL,
                               .detail = (char *)"not sent by hvdrun",
                               .stderr_tail = (char *)"a\xff\n",
                               .when_ns = 123456789012345,
                               .blames = 1};

    return control_encode_exited(b, &m);
}

static int put_failed(struct hb_buf *b)
{
    struct control_failed m = {127, (char *)"no such program"};

    return control_encode_failed(b, &m);
}

static int put_route_listen(struct hb_buf *b)
{
    struct control_route_listen m = {.host = 12, .reserve_port = 1};

    for (int i = 0; i < CONTROL_TOKEN_BYTES; i++)
        m.token[i] = (unsigned char)(i * 11);
    return control_encode_route_listen(b, &m);
}

static int put_route_port(struct hb_buf *b)
{
    return control_encode_route_port(
        b, &(struct control_route_port){45123, 29500});
}

static int put_route_probe(struct hb_buf *b)
{
    struct hb_netaddr addresses[] = {address("10.0.0.1"), address("fd00::1")};
    struct control_route_target targets[] = {
        {7, 4711, addresses, 2},
        {8, 1, addresses + 1, 1},
    };
    struct control_route_probe m = {CONTROL_PROBE_MEASURE, 2500, targets, 2};

    return control_encode_route_probe(b, &m);
}

static int put_route_result(struct hb_buf *b)
{
    struct control_route_answer answers[] = {
        {1, 0, 85, 0}, {65535, 63, 2147483647, INT64_MAX}};
    struct control_route_result m = {answers, 2};

    return control_encode_route_result(b, &m);
}

static int put_no_result(struct hb_buf *b)
{
    return control_encode_route_result(b, &(struct control_route_result){0});
}

static const struct {
    int (*put)(struct hb_buf *b);
    int type;
    const char *payload;
} messages[] = {
    {put_hello, CONTROL_HELLO,
     "{\"version\":\"0.1.0\",\"host\":\"n\\\"1\",\"cpu\":\"x86_64\","
     "\"pid\":77,\"cpus\":16,\"machine\":\"boot/1\",\"namespaces\":\"\","
     "\"interfaces\":[{\"name\":\"lo\",\"index\":1,"
     "\"address\":\"127.0.0.1\",\"prefix\":8,\"speed\":0,\"up\":true,"
     "\"loopback\":true,\"virtual\":false},"
     "{\"name\":{\"hex\":\"656eff3a31\"},\"index\":7,"
     "\"address\":\"fd00::1\",\"prefix\":64,\"speed\":25000,\"up\":true,"
     "\"loopback\":false,\"virtual\":true}]}"},
    {put_launch, CONTROL_LAUNCH,
     "{\"job_id\":\"0123456789abcdef0123456789abcdef\",\"host_index\":1,"
     "\"peers\":[\"10.0.0.1\",\"\"],"
     "\"secret\":"
     "\"0009121b242d363f48515a636c757e879099a2abb4bdc6cfd8e1eaf3fc050e17\","
     "\"host\":\"n1\",\"size\":4,\"cwd\":{\"hex\":\"2f686f6d652f75ff\"},"
     "\"argv\":[\"./train\",\"a\\nb\"],"
     "\"env\":[\"A=gr\xc3\xbc\xc3\x9f\",{\"hex\":\"423dfe\"}],"
     "\"output_window\":524288,\"trace\":true,\"ranks\":[{\"rank\":1,"
     "\"local_rank\":0,\"local_size\":2,\"cross_rank\":1,"
     "\"cross_size\":2,\"env\":[\"RANK=1\"],\"stdin_open\":true,"
     "\"idle\":false},"
     "{\"rank\":3,\"local_rank\":1,\"local_size\":2,\"cross_rank\":0,"
     "\"cross_size\":1,\"env\":[],\"stdin_open\":false,"
     "\"idle\":false}],"
     "\"bind\":\"core\",\"gpus_per_rank\":2,\"bind_gpu\":true,"
     "\"share_gpus\":false,\"wireup\":\"pmi1\",\"grace_ms\":60000,"
     "\"elastic\":true,\"restart\":true,"
     "\"limits\":{\"nofile\":1024,\"core\":-1}}"},
    {put_started, CONTROL_STARTED, "{\"pids\":[4711,0,2147483647]}"},
    {put_exited, CONTROL_EXITED,
     "{\"rank\":3,\"pid\":4711,\"exit_code\":139,\"signal\":11,"
     "\"core_dumped\":true,\"cause\":\"signal\","
     "\"detail\":\"not sent by hvdrun\","
     "\"stderr_tail\":{\"hex\":\"61ff0a\"},\"when_ns\":123456789012345,"
     "\"blames\":1}"},
    {put_failed, CONTROL_FAILED,
     "{\"exit_code\":127,\"text\":\"no such program\"}"},
    {put_route_listen, CONTROL_ROUTE_LISTEN,
     "{\"token\":"
     "\"000b16212c37424d58636e79848f9aa5b0bbc6d1dce7f2fd08131e29343f4a55\","
     "\"host\":12,\"reserve_port\":true}"},
    {put_route_port, CONTROL_ROUTE_PORT, "{\"port\":45123,\"reserved\":29500}"},
    {put_route_probe, CONTROL_ROUTE_PROBE,
     "{\"what\":\"measure\",\"timeout_ms\":2500,"
     "\"targets\":[{\"host\":7,\"port\":4711,"
     "\"addresses\":[\"10.0.0.1\",\"fd00::1\"]},{\"host\":8,\"port\":1,"
     "\"addresses\":[\"fd00::1\"]}]}"},
    {put_route_result, CONTROL_ROUTE_RESULT,
     "{\"answers\":[{\"host\":1,\"address\":0,\"rtt_us\":85,"
     "\"bytes_per_s\":0},{\"host\":65535,\"address\":63,"
     "\"rtt_us\":2147483647,\"bytes_per_s\":9223372036854775807}]}"},
    {put_no_result, CONTROL_ROUTE_RESULT, "{\"answers\":[]}"},
};
enum { MESSAGES = sizeof(messages) / sizeof(messages[0]) };

START_TEST(test_bytes)
{
    const char *payload = messages[_i].payload;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(messages[_i].put(&b), 0);
    f = only_frame(&b, messages[_i].type);
    ck_assert_msg(f.len == strlen(payload) &&
                      memcmp(f.payload, payload, f.len) == 0,
                  "%.*s", (int)f.len, (const char *)f.payload);
    hb_buf_free(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("control_wire");
    TCase *c = tcase_create("control_wire");

    tcase_add_loop_test(c, test_bytes, 0, MESSAGES);
    suite_add_tcase(s, c);
    return unit_run(s);
}
