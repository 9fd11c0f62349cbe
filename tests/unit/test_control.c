/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/protocol/control/control.h: every message but LAUNCH
 * (test_control_launch.c) there and back, and refused when fields are missing,
 * unknown, of the wrong type or out of range.
 */
#include "lib/base/log.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_json.h"
#include "tests/unit/unit_frame.h"

#include <stdio.h>
#include <string.h>

START_TEST(test_not_an_object)
{
    static const struct {
        const char *payload, *text;
    } cases[] = {
        {"", "hello: not a JSON object"},
        {"[]", "hello: not a JSON object: another value"},
        {"{", "hello: not a JSON object"},
        {"{} x", "hello: not a JSON object"},
        {"{\"pid\":1,\"pid\":2}", "hello: not a JSON object: duplicate"},
        {"{\"a\":\"\\u0000\"}", "hello: not a JSON object"},
        {"{\"a\":\"\xff\"}", "hello: not a JSON object"},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;
        struct control_hello got;

        ck_assert_int_eq(control_decode_hello(cases[i].payload,
                                              strlen(cases[i].payload), &got,
                                              &err),
                         -HVD_EPROTO);
        ck_assert_msg(strncmp(err.text, cases[i].text, strlen(cases[i].text)) ==
                          0,
                      "%s", err.text);
    }
}
END_TEST

/* A message of many small values is refused: each would need about 100
 * bytes. */
START_TEST(test_too_many_values)
{
    static char text[3 << 20] = "{\"a\":[\"\\\"[[[,,,\"";
    struct hb_error err = HB_ERROR_INIT;
    size_t first = strlen(text), len = first;
    struct control_hello got;

    /* a key, its value, and as many more as allowed, after the brackets */
    for (int i = 0; i < CONTROL_VALUES_MAX - 4; i++, len += 2)
        memcpy(text + len, ",1", 3);
    memcpy(text + len, "]}", 3);
    ck_assert_int_eq(control_decode_hello(text, strlen(text), &got, &err),
                     -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "field"));
    hb_error_clear(&err);
    memcpy(text + len, ",1]}", 5);
    ck_assert_int_eq(control_decode_hello(text, strlen(text), &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, "hello: more than 65536 values");
}
END_TEST

/* The maximum length depends on the type in the header. */
START_TEST(test_longest_messages)
{
    static const struct {
        enum control_type type;
        int greeted;
        size_t max;
    } cases[] = {
        {CONTROL_HELLO, 0, CONTROL_MESSAGE_MAX},
        {CONTROL_ANSWER, 0, CONTROL_MESSAGE_MAX},
        {CONTROL_ANSWER, 1, FRAME_PAYLOAD_MAX},
        {CONTROL_TRACE, 1, FRAME_PAYLOAD_MAX},
        {CONTROL_FAILED, 1, CONTROL_MESSAGE_MAX},
        {CONTROL_EXITED, 1, CONTROL_MESSAGE_MAX},
        {CONTROL_LOG, 1, CONTROL_WORDS_MAX},
        {CONTROL_QUITTING, 1, CONTROL_WORDS_MAX},
        {(enum control_type)200, 1, CONTROL_MESSAGE_MAX},
    };
    struct hb_buf in = HB_BUF_INIT;

    ck_assert_uint_eq(control_frame_max(&in, 1), CONTROL_MESSAGE_MAX);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hb_buf_clear(&in);
        ck_assert_int_eq(frame_encode(&in, (uint8_t)cases[i].type, "", 0), 0);
        ck_assert_uint_eq(control_frame_max(&in, cases[i].greeted),
                          cases[i].max);
    }
    hb_buf_free(&in);
}
END_TEST

START_TEST(test_hello)
{
    struct control_hello m = {.version = (char *)"0.1.0",
                              .host = (char *)"h\xfe",
                              .cpu = (char *)"x86_64",
                              .pid = 77,
                              .cpus = 16,
                              .machine = (char *)"boot/4026531840",
                              .namespaces = (char *)"4026531836/4026531841"};
    struct control_hello got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;

    ck_assert_int_eq(control_encode_hello(&b, &m), 0);
    f = only_frame(&b, CONTROL_HELLO);
    ck_assert_int_eq(control_decode_hello(f.payload, f.len, &got, NULL), 0);
    ck_assert_str_eq(got.version, "0.1.0");
    ck_assert_str_eq(got.host, "h\xfe");
    ck_assert_str_eq(got.cpu, "x86_64");
    ck_assert_int_eq(got.pid, 77);
    ck_assert_int_eq(got.cpus, 16);
    ck_assert_str_eq(got.machine, "boot/4026531840");
    ck_assert_str_eq(got.namespaces, "4026531836/4026531841");
    ck_assert_int_eq(got.interfaces.count, 0);
    control_hello_fini(&got);
    /* NULL strings are sent as empty ones; a version is required */
    hb_buf_clear(&b);
    m.cpu = NULL;
    control_encode_hello(&b, &m);
    f = only_frame(&b, CONTROL_HELLO);
    ck_assert_int_eq(control_decode_hello(f.payload, f.len, &got, NULL), 0);
    ck_assert_str_eq(got.cpu, "");
    control_hello_fini(&got);
    hb_buf_clear(&b);
    m.version = NULL;
    control_encode_hello(&b, &m);
    f = only_frame(&b, CONTROL_HELLO);
    ck_assert_int_eq(control_decode_hello(f.payload, f.len, &got, NULL),
                     -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_started)
{
    static const char *const bad[] = {
        "{}",           "{\"pids\":[]}",   "{\"pids\":[\"1\"]}",
        "{\"pids\":3}", "{\"pids\":[-1]}", "{\"pids\":[2147483648]}"};
    pid_t pids[3] = {10, 0, 2147483647};
    struct control_started m = {pids, 3}, got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    size_t i;

    ck_assert_int_eq(control_encode_started(&b, &m), 0);
    f = only_frame(&b, CONTROL_STARTED);
    ck_assert_int_eq(control_decode_started(f.payload, f.len, &got, NULL), 0);
    ck_assert_int_eq(got.count, 3);
    ck_assert_mem_eq(got.pids, pids, sizeof(pids));
    control_started_fini(&got);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(
            control_decode_started(bad[i], strlen(bad[i]), &got, NULL),
            -HVD_EPROTO);
    hb_buf_free(&b);
}
END_TEST

/* An error in an element says which one it is. */
START_TEST(test_element_in_error)
{
    static const char bad[] = "{\"pids\":[10,0,-1]}";
    struct hb_error err = HB_ERROR_INIT;
    struct control_started got;

    ck_assert_int_eq(control_decode_started(bad, strlen(bad), &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(
        err.text, "started: field 'pids[2]' is -1, not from 0 to 2147483647");
}
END_TEST

/* A flag that is there replaces its default, and no other flag. */
START_TEST(test_flags)
{
    struct flagged {
        unsigned flags;
    };
    static const struct control_field fields[] = {
        CONTROL_FIELD_FLAG("low", flagged, flags, 1u << 0),
        CONTROL_FIELD_FLAG("high", flagged, flags, 1u << 31),
        CONTROL_FIELDS_END,
    };
    static const struct {
        const char *payload;
        unsigned before, after;
    } cases[] = {
        {"{}", 1u << 31 | 2, 1u << 31 | 2},
        {"{\"low\":true}", 1u << 31 | 2, 1u << 31 | 3},
        {"{\"low\":false}", 1u << 31 | 3, 1u << 31 | 2},
        {"{\"high\":false}", 1u << 31 | 3, 3},
        {"{\"high\":true,\"low\":false}", 3, 1u << 31 | 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct flagged m = {cases[i].before};
        struct control_fields f;

        control_fields_open(&f, "flags", cases[i].payload,
                            strlen(cases[i].payload), 10, NULL);
        control_take_present(&f, fields, &m);
        ck_assert_int_eq(control_fields_close(&f), 0);
        ck_assert_uint_eq(m.flags, cases[i].after);
    }
}
END_TEST

START_TEST(test_exited)
{
    struct control_exited m = {3,
                               4711,
                               137,
                               9,
                               1,
                               CONTROL_CAUSE_OOM,
                               (char *)"out of memory: cgroup limit 2 GiB",
                               NULL,
                               UINT64_C(123456789012345),
                               65536};
    struct control_exited got;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    int cause;

    m.stderr_tail = (char *)(uintptr_t)all_bytes();
    for (cause = CONTROL_CAUSE_EXIT; cause < CONTROL_CAUSE_COUNT; cause++) {
        m.cause = (enum control_cause)cause;
        hb_buf_clear(&b);
        ck_assert_int_eq(control_encode_exited(&b, &m), 0);
        f = only_frame(&b, CONTROL_EXITED);
        ck_assert_int_eq(control_decode_exited(f.payload, f.len, &got, NULL),
                         0);
        ck_assert_int_eq(got.rank, 3);
        ck_assert_int_eq(got.pid, 4711);
        ck_assert_int_eq(got.exit_code, 137);
        ck_assert_int_eq(got.signal, 9);
        ck_assert_int_eq(got.core_dumped, 1);
        ck_assert_int_eq((int)got.cause, cause);
        ck_assert_str_eq(got.detail, m.detail);
        ck_assert_str_eq(got.stderr_tail, all_bytes());
        ck_assert(got.when_ns == m.when_ns);
        ck_assert_int_eq(got.blames, 65536);
        control_exited_fini(&got);
    }
    hb_buf_clear(&b);
    m.when_ns = UINT64_MAX;
    ck_assert_int_eq(control_encode_exited(&b, &m), -HVD_EINVAL);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_exited_refusals)
{
    static const char *const bad[] = {
        "{\"rank\":-1}", "{\"rank\":65536}",
        "{\"rank\":0,\"pid\":0,\"exit_code\":256}",
        "{\"rank\":0,\"pid\":0,\"exit_code\":0,\"signal\":-1}",
        ("{\"rank\":0,\"pid\":0,\"exit_code\":0,\"signal\":0,"
         "\"core_dumped\":true,\"cause\":\"magic\"}")};
    static const char *const fields[] = {"rank", "rank", "exit_code", "signal",
                                         "cause"};
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;
        struct control_exited got;
        char expected[64];

        ck_assert_int_eq(
            control_decode_exited(bad[i], strlen(bad[i]), &got, &err),
            -HVD_EPROTO);
        snprintf(expected, sizeof(expected), "exited: field '%s' ", fields[i]);
        ck_assert_msg(strncmp(err.text, expected, strlen(expected)) == 0, "%s",
                      err.text);
    }
}
END_TEST

START_TEST(test_failed)
{
    struct control_failed m = {127, (char *)"./t\xe9st: no such file"}, got;
    struct hb_buf b = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;

    ck_assert_int_eq(control_encode_failed(&b, &m), 0);
    f = only_frame(&b, CONTROL_FAILED);
    ck_assert_int_eq(control_decode_failed(f.payload, f.len, &got, NULL), 0);
    ck_assert_int_eq(got.exit_code, 127);
    ck_assert_str_eq(got.text, m.text);
    control_failed_fini(&got);
    ck_assert_int_eq(control_decode_failed("{\"exit_code\":0,\"text\":\"x\"}",
                                           26, &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text,
                     "failed: field 'exit_code' is 0, not from 1 to 255");
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_output_and_stdin)
{
    static const char binary[] = "\0\n\xff";
    struct hb_buf b = HB_BUF_INIT;
    struct control_bytes got;
    struct frame f;

    control_encode_output(&b, 5, 2, binary, 3);
    f = only_frame(&b, CONTROL_OUTPUT);
    ck_assert_int_eq(control_decode_output(f.payload, f.len, &got, NULL), 0);
    ck_assert_int_eq(got.rank, 5);
    ck_assert_int_eq(got.stream, 2);
    ck_assert_uint_eq(got.len, 3);
    ck_assert_mem_eq(got.bytes, binary, 3);
    hb_buf_clear(&b);
    control_encode_output(&b, 0, 1, NULL, 0);
    f = only_frame(&b, CONTROL_OUTPUT);
    ck_assert_int_eq(control_decode_output(f.payload, f.len, &got, NULL), 0);
    ck_assert_uint_eq(got.len, 0);
    hb_buf_clear(&b);
    control_encode_stdin(&b, 65535, "in", 2);
    f = only_frame(&b, CONTROL_STDIN);
    ck_assert_int_eq(control_decode_stdin(f.payload, f.len, &got, NULL), 0);
    ck_assert_int_eq(got.rank, 65535);
    ck_assert_mem_eq(got.bytes, "in", 2);
    hb_buf_clear(&b);
    ck_assert_int_eq(control_encode_output(&b, 0, 1, "", FRAME_PAYLOAD_MAX),
                     -HVD_EINVAL);
    ck_assert_int_eq(control_encode_stdin(&b, 0, "", SIZE_MAX), -HVD_EINVAL);
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_binary_refusals)
{
    struct hb_error err = HB_ERROR_INIT;
    struct control_bytes got;
    char text[8];
    uint32_t n;
    uint64_t at;
    int i;

    ck_assert_int_eq(control_decode_output("\0\0\0\0", 4, &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, "output: too short");
    hb_error_clear(&err);
    ck_assert_int_eq(control_decode_output("\0\0\0\0\3", 5, &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, "output: field 'stream' is not 1 or 2");
    ck_assert_int_eq(control_decode_output("\0\1\0\0\1", 5, &got, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_stdin("\xff\xff\xff\xff", 4, &got, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_stdin(NULL, 0, &got, NULL), -HVD_EPROTO);
    ck_assert_int_eq(control_decode_stdin_ack("\0\0\0\0", 4, &i, &n, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(
        control_decode_stdin_ack("\0\1\0\0\0\0\0\0", 8, &i, &n, NULL),
        -HVD_EPROTO);
    ck_assert_int_eq(control_decode_u32("\0\0\0\0\0", 5, &n, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_u32("", 0, &n, NULL), -HVD_EPROTO);
    ck_assert_int_eq(control_decode_log("", 0, &i, text, 8, NULL), -HVD_EPROTO);
    ck_assert_int_eq(control_decode_log("\x06", 1, &i, text, 8, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_ping("123456789ab", 11, &at, &n, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_ping("123456789abcd", 13, &at, &n, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_pong("123456789abcdef", 15, &at, &at, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_abort("\0\0\0", 3, &i, text, 8, NULL),
                     -HVD_EPROTO);
    ck_assert_int_eq(control_decode_abort("\1\0\0\0", 4, &i, text, 8, NULL),
                     -HVD_EPROTO);
}
END_TEST

START_TEST(test_numbers_and_texts)
{
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    char text[8];
    uint32_t n;
    int i;

    control_encode_stdin_ack(&b, 7, 4096);
    f = only_frame(&b, CONTROL_STDIN_ACK);
    ck_assert_int_eq(control_decode_stdin_ack(f.payload, f.len, &i, &n, NULL),
                     0);
    ck_assert_int_eq(i, 7);
    ck_assert_uint_eq(n, 4096);
    hb_buf_clear(&b);
    control_encode_u32(&b, CONTROL_KILL, 0xfffffffeu);
    f = only_frame(&b, CONTROL_KILL);
    ck_assert_int_eq(control_decode_u32(f.payload, f.len, &n, NULL), 0);
    ck_assert_uint_eq(n, 0xfffffffeu);
    hb_buf_clear(&b);
    control_encode_log(&b, HB_LOG_WARNING, "long text");
    f = only_frame(&b, CONTROL_LOG);
    ck_assert_int_eq(control_decode_log(f.payload, f.len, &i, text, 8, NULL),
                     0);
    ck_assert_int_eq(i, HB_LOG_WARNING);
    ck_assert_str_eq(text, "long te");
    hb_buf_clear(&b);
    control_encode_abort(&b, 2, "died");
    f = only_frame(&b, CONTROL_ABORT);
    ck_assert_int_eq(control_decode_abort(f.payload, f.len, &i, text, 8, NULL),
                     0);
    ck_assert_int_eq(i, 2);
    ck_assert_str_eq(text, "died");
    ck_assert_int_eq(control_decode_abort("\0\0\0\1a\0b", 7, &i, text, 8, NULL),
                     0);
    ck_assert_str_eq(text, "a?b");
    hb_buf_free(&b);
}
END_TEST

START_TEST(test_ping_and_pong)
{
    const uint64_t early = 0x0102030405060708u, late = 0xfffffffffffffff0u;
    struct hb_buf b = HB_BUF_INIT;
    struct frame f;
    uint64_t a, c;
    uint32_t n;

    control_encode_ping(&b, early, 15000);
    f = only_frame(&b, CONTROL_PING);
    ck_assert_int_eq(control_decode_ping(f.payload, f.len, &a, &n, NULL), 0);
    ck_assert_uint_eq(a, early);
    ck_assert_uint_eq(n, 15000);
    hb_buf_clear(&b);
    control_encode_pong(&b, early, late);
    f = only_frame(&b, CONTROL_PONG);
    ck_assert_int_eq(control_decode_pong(f.payload, f.len, &a, &c, NULL), 0);
    ck_assert_uint_eq(a, early);
    ck_assert_uint_eq(c, late);
    hb_buf_free(&b);
}
END_TEST

static int send_small(void *arg)
{
    struct hb_buf b[8];
    int rc[8], i, worst = 0;

    (void)arg;
    memset(b, 0, sizeof(b));
    rc[0] = control_encode_output(&b[0], 1, 1, "x", 1);
    rc[1] = control_encode_stdin(&b[1], 1, "x", 1);
    rc[2] = control_encode_stdin_ack(&b[2], 1, 1);
    rc[3] = control_encode_u32(&b[3], CONTROL_KILL, 1);
    rc[4] = control_encode_log(&b[4], 1, "x");
    rc[5] = control_encode_abort(&b[5], 1, "x");
    rc[6] = control_encode_ping(&b[6], 1, 1);
    rc[7] = control_encode_pong(&b[7], 1, 1);
    for (i = 0; i < 8; i++) {
        ck_assert_int_eq(rc[i] < 0, hb_buf_len(&b[i]) == 0);
        worst = rc[i] < 0 ? rc[i] : worst;
        hb_buf_free(&b[i]);
    }
    return worst;
}

START_TEST(test_binary_allocation_failures)
{
    unit_fail_each(send_small, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("control");
    TCase *c = tcase_create("control");

    tcase_add_test(c, test_not_an_object);
    tcase_add_test(c, test_too_many_values);
    tcase_add_test(c, test_longest_messages);
    tcase_add_test(c, test_hello);
    tcase_add_test(c, test_started);
    tcase_add_test(c, test_element_in_error);
    tcase_add_test(c, test_flags);
    tcase_add_test(c, test_exited);
    tcase_add_test(c, test_exited_refusals);
    tcase_add_test(c, test_failed);
    tcase_add_test(c, test_output_and_stdin);
    tcase_add_test(c, test_binary_refusals);
    tcase_add_test(c, test_numbers_and_texts);
    tcase_add_test(c, test_ping_and_pong);
    tcase_add_test(c, test_binary_allocation_failures);
    suite_add_tcase(s, c);
    return unit_run(s);
}
