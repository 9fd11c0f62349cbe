/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/agent_link.h over a transport of this file: which messages reach the
 * owner's handlers, how a connection is lost, and what is known about one that
 * is not there yet.
 */
#include "lib/job/agent_link.h"

#include "lib/remote/remote.h"
#include "lib/transport/transport_impl.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* ---- The transport ---- */

static struct transport far;
static struct transport_config far_config;
static int closes, cancels, open_status;
static struct hb_buf far_got;

static int far_write(struct transport *t, const void *bytes, size_t len)
{
    (void)t;
    return hb_buf_append(&far_got, bytes, len);
}

static size_t far_write_queued(const struct transport *t)
{
    (void)t;
    return hb_buf_len(&far_got);
}

static void far_close(struct transport *t)
{
    (void)t;
    closes++;
}

static void far_cancel(struct transport *t)
{
    (void)t;
    cancels++;
}

static const struct transport_ops far_ops = {.write = far_write,
                                             .write_queued = far_write_queued,
                                             .close = far_close,
                                             .cancel = far_cancel};

/* Replaces lib/transport/local.c. */
int transport_open_local(const struct transport_config *config,
                         struct transport **out, struct hb_error *err)
{
    if (open_status)
        return hb_error_set(err, (enum hvd_status)open_status, "not today");
    far_config = *config;
    far.ops = &far_ops;
    *out = &far;
    return 0;
}

static int remotes; /* connections to hosts that are not local */

/* Replaces lib/remote/remote_host.c. */
int transport_open_remote(struct remote *remote, const struct host_entry *host,
                          const struct transport_config *config,
                          struct transport **out, struct hb_error *err)
{
    ck_assert_ptr_eq(remote, &far);
    ck_assert_str_eq(host->name, config->host);
    remotes++;
    return transport_open_local(config, out, err);
}

/* ---- The owner ---- */

static struct host_entry entry = {.name = (char *)"n1"};
static struct hb_log hush;
static struct agent_link link_;
static char last_line[256]; /* of the log */
static struct hb_error lost_why;
static enum agent_loss lost_how;
static int hellos, handled, losses, closed, heard, heard_all;
static int refuse_hello, refuse_message, close_in_handler;

static void keep_line(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(last_line, sizeof(last_line), "%s", line);
}

static int on_hello(void *arg, struct hb_error *err)
{
    ck_assert_ptr_eq(arg, &link_);
    ck_assert_str_eq(link_.hello.host, "h");
    ck_assert_int_eq((int)link_.phase, AGENT_GREETED);
    hellos++;
    return refuse_hello ? hb_error_set(err, HVD_EPROTO, "not this host") : 0;
}

static int on_message(void *arg, const struct frame *f, struct hb_error *err)
{
    ck_assert_ptr_eq(arg, &link_);
    ck_assert_uint_eq(f->len, 3);
    handled++;
    if (close_in_handler)
        agent_link_close(&link_);
    return refuse_message ? hb_error_set(err, HVD_EPROTO, "nonsense") : 0;
}

static void on_lost(void *arg, enum agent_loss how, const struct hb_error *why)
{
    ck_assert_ptr_eq(arg, &link_);
    losses++;
    lost_how = how;
    lost_why = *why;
    agent_link_close(&link_);
}

static void on_closed(void *arg)
{
    ck_assert_ptr_eq(arg, &link_);
    closed++;
}

static void on_heard(void *arg)
{
    ck_assert_ptr_eq(arg, &link_);
    heard++;
}

static void on_handled(void *arg)
{
    ck_assert_ptr_eq(arg, &link_);
    ck_assert_int_eq(++heard_all, heard);
}

static const struct agent_message messages[AGENT_MESSAGES] = {
    [CONTROL_FAILED] = {AGENT_CONNECTING, on_message},
    [CONTROL_PONG] = {AGENT_GREETED, on_message},
    [CONTROL_OUTPUT] = {AGENT_LAUNCHED, on_message},
};
static const struct agent_events events = {.messages = messages,
                                           .on_hello = on_hello,
                                           .on_lost = on_lost,
                                           .on_closed = on_closed,
                                           .on_heard = on_heard,
                                           .on_handled = on_handled};
static const struct agent_link_config config = {.transport = {.log = &hush},
                                                .is_local = 1,
                                                .entry = &entry,
                                                .events = &events,
                                                .arg = &link_};

static void setup(void)
{
    hush = (struct hb_log){.level = HB_LOG_FATAL};
    ck_assert_int_eq(agent_link_open(&link_, &config, NULL), 0);
    ck_assert_str_eq(far_config.host, "n1");
}

static void teardown(void)
{
    agent_link_close(&link_);
    ck_assert_int_eq(closes, 1);
    far_config.events.on_close(far_config.arg);
    ck_assert_int_eq(closed, 1);
    agent_link_cancel(&link_);
    ck_assert_int_eq(cancels, 0); /* it is closed already */
    agent_link_free(&link_);
    hb_buf_free(&far_got);
}

static void read_bytes(const void *bytes, size_t len)
{
    far_config.events.on_read(far_config.arg, bytes, len);
}

static void put_hello(struct hb_buf *b, const char *version)
{
    struct control_hello m = {.version = (char *)version,
                              .host = (char *)"h",
                              .cpu = (char *)"x",
                              .pid = 7,
                              .cpus = 1,
                              .machine = (char *)"",
                              .namespaces = (char *)""};

    ck_assert_int_eq(control_encode_hello(b, &m), 0);
}

static void put_message(struct hb_buf *b, int type)
{
    ck_assert_int_eq(frame_encode(b, (uint8_t)type, "abc", 3), 0);
}

static void read_buf(struct hb_buf *b)
{
    read_bytes(hb_buf_data(b), hb_buf_len(b));
    hb_buf_free(b);
}

static void say_hello(void)
{
    struct hb_buf b = HB_BUF_INIT;

    put_hello(&b, HVD_VERSION);
    read_buf(&b);
}

static void say(int type)
{
    struct hb_buf b = HB_BUF_INIT;

    put_message(&b, type);
    read_buf(&b);
}

static void expect_lost(enum agent_loss how, const char *why)
{
    ck_assert_int_eq(losses, 1);
    ck_assert_int_eq((int)lost_how, (int)how);
    ck_assert_msg(strstr(lost_why.text, why) != NULL, "%s", lost_why.text);
}

/* ---- Messages ---- */

START_TEST(each_in_its_phase)
{
    say(CONTROL_FAILED);
    say_hello();
    ck_assert_int_eq(hellos, 1);
    say(CONTROL_PONG);
    link_.phase = AGENT_LAUNCHED;
    say(CONTROL_OUTPUT);
    say(CONTROL_PONG);
    ck_assert_int_eq(handled, 4);
    ck_assert_int_eq(losses, 0);
    ck_assert_int_eq(heard, 5);
    ck_assert_int_eq(heard_all, 5);
}
END_TEST

/* Whatever pieces the bytes come in, the messages are the same. */
START_TEST(in_pieces)
{
    struct hb_buf b = HB_BUF_INIT;
    size_t step = (size_t)_i, len;

    put_hello(&b, HVD_VERSION);
    put_message(&b, CONTROL_PONG);
    put_message(&b, CONTROL_PONG);
    len = hb_buf_len(&b);
    for (size_t at = 0; at < len; at += step)
        read_bytes(hb_buf_data(&b) + at, len - at < step ? len - at : step);
    hb_buf_free(&b);
    ck_assert_int_eq(hellos, 1);
    ck_assert_int_eq(handled, 2);
    ck_assert_int_eq(losses, 0);
}
END_TEST

static void two_hellos(void)
{
    say_hello();
    say_hello();
}

static void other_version(void)
{
    struct hb_buf b = HB_BUF_INIT;

    put_hello(&b, "0.0.0");
    read_buf(&b);
}

static void hello_refused(void)
{
    refuse_hello = 1;
    say_hello();
}

static void malformed_hello(void)
{
    say(CONTROL_HELLO);
}

static void before_hello(void)
{
    say(CONTROL_PONG);
}

static void before_launch(void)
{
    say_hello();
    say(CONTROL_OUTPUT);
}

static void not_in_the_table(void)
{
    say_hello();
    say(CONTROL_TRACE);
}

static void beyond_the_table(void)
{
    say_hello();
    say(CONTROL_LAUNCH);
}

static void refused_message(void)
{
    refuse_message = 1;
    say_hello();
    say(CONTROL_PONG);
}

static void malformed_log(void)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(frame_encode(&b, CONTROL_LOG, "\xff", 1), 0);
    read_buf(&b);
}

static void not_the_protocol(void)
{
    read_bytes("Last login: Monday\n", 19);
}

static const struct {
    void (*say)(void);
    const char *why;
} violations[] = {
    {two_hellos, "a second hello"},
    {other_version, "hvd-agent is version 0.0.0"},
    {hello_refused, "not this host"},
    {malformed_hello, "hello: not a JSON object"},
    {before_hello, "message 10 before hello"},
    {before_launch, "message 3 before launch"},
    {not_in_the_table, "message of unknown type 18"},
    {beyond_the_table, "message of unknown type 32"},
    {refused_message, "nonsense"},
    {malformed_log, "log: field 'level' is out of range"},
    {not_the_protocol, ""},
};

/* The connection is lost once, and nothing is handled after it. */
START_TEST(violation)
{
    int before;

    violations[_i].say();
    expect_lost(AGENT_BROKE, violations[_i].why);
    before = handled;
    say_hello();
    say(CONTROL_FAILED);
    ck_assert_int_eq(losses, 1);
    ck_assert_int_eq(handled, before);
}
END_TEST

START_TEST(closed_by_a_handler)
{
    struct hb_buf b = HB_BUF_INIT;

    close_in_handler = 1;
    put_message(&b, CONTROL_FAILED);
    put_message(&b, CONTROL_FAILED);
    read_buf(&b);
    ck_assert_int_eq(handled, 1);
    ck_assert_int_eq(losses, 0);
}
END_TEST

/* The log tells of an agent whose HELLO is refused, too. */
START_TEST(told_in_the_log)
{
    hush = (struct hb_log){.level = HB_LOG_DEBUG, .sink = keep_line};
    violations[_i].say();
    ck_assert_str_eq(last_line, "host n1: agent pid 7 on h, x, 1 cpus");
}
END_TEST

/* ---- The connection ---- */

START_TEST(ends)
{
    struct hb_error err = HB_ERROR_INIT;

    if (_i)
        hb_error_set(&err, HVD_ESYSTEM, "it was cut");
    far_config.events.on_end(far_config.arg, _i ? &err : NULL);
    expect_lost(_i ? AGENT_FAILED : AGENT_ENDED,
                _i ? "it was cut" : "its connection ended");
}
END_TEST

START_TEST(sending)
{
    struct hb_buf b = HB_BUF_INIT;

    put_message(&b, CONTROL_KILL);
    ck_assert_int_eq(agent_link_send(&link_, &b), 0);
    ck_assert_uint_eq(agent_link_queued(&link_), hb_buf_len(&b));
    agent_link_close(&link_);
    ck_assert_int_eq(agent_link_send(&link_, &b), -HVD_ECLOSED);
    ck_assert_uint_eq(agent_link_queued(&link_), 0);
    hb_buf_free(&b);
}
END_TEST

START_TEST(cancelling_closes)
{
    agent_link_cancel(&link_);
    ck_assert_int_eq(closes, 1);
    ck_assert_int_eq(cancels, 1);
    cancels = 0;
}
END_TEST

static void expect_last(const char *text)
{
    char *last = agent_link_last(&link_);

    ck_assert_str_eq(last, text);
    hb_free(last);
}

START_TEST(how_far_it_came)
{
    struct hb_error why = HB_ERROR_INIT;

    expect_last("");
    far_config.events.on_stage(far_config.arg, "logging in");
    expect_last("; last: logging in");
    hb_error_set(&why, HVD_ESYSTEM, "refused");
    far_config.events.on_setback(far_config.arg, &why);
    expect_last("; last attempt: refused");
    say_hello();
    expect_last("");
}
END_TEST

/* A remote does not make a host remote. */
START_TEST(local_or_not)
{
    struct transport_config first = far_config;
    struct agent_link_config one = config;
    struct agent_link other;

    one.is_local = _i;
    one.remote = (struct remote *)&far;
    ck_assert_int_eq(agent_link_open(&other, &one, NULL), 0);
    ck_assert_int_eq(remotes, !_i);
    far_config.events.on_close(far_config.arg);
    closed = 0;
    agent_link_free(&other);
    far_config = first;
}
END_TEST

START_TEST(cannot_be_opened)
{
    struct agent_link other;
    struct hb_error err = HB_ERROR_INIT;

    open_status = HVD_ENOENT;
    ck_assert_int_eq(agent_link_open(&other, &config, &err), -HVD_ENOENT);
    ck_assert_str_eq(err.text, "not today");
    agent_link_close(&other);
    ck_assert_int_eq(closes, 0);
    agent_link_free(&other);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agent_link");
    TCase *c = tcase_create("agent_link");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, each_in_its_phase);
    tcase_add_loop_test(c, in_pieces, 1, 30);
    tcase_add_loop_test(c, violation, 0,
                        sizeof(violations) / sizeof(violations[0]));
    tcase_add_loop_test(c, told_in_the_log, 1, 3);
    tcase_add_test(c, closed_by_a_handler);
    tcase_add_loop_test(c, ends, 0, 2);
    tcase_add_test(c, sending);
    tcase_add_test(c, cancelling_closes);
    tcase_add_test(c, how_far_it_came);
    tcase_add_loop_test(c, local_or_not, 0, 2);
    tcase_add_test(c, cannot_be_opened);
    suite_add_tcase(s, c);
    return unit_run(s);
}
