/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/ssh2.h against servers that fail or attack, and closing at any
 * time. */
#include "tests/unit/ssh_server.h"
#include "tests/unit/unit.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ssh_server server;
static struct ssh_client c;

static void start(enum server_mode mode, const char *extra)
{
    server_start(&server, mode, extra, NULL);
    ssh_client_init(&c, &server);
}

static void stop(void)
{
    ssh_client_fini(&c);
    server_stop(&server);
}

static void set_hostname(const char *name)
{
    hb_free(c.config.hostname);
    c.config.hostname = hb_xstrdup(name);
}

/* ---- No connection ---- */

START_TEST(nobody_listens)
{
    start(SERVER_NONE, NULL);
    expect_fails(&c, HVD_ESYSTEM, "Connection refused; is sshd running there?");
    stop();
}
END_TEST

START_TEST(names_that_are_none)
{
    start(SERVER_NONE, NULL);
    set_hostname("no such name");
    expect_fails(&c, HVD_EINVAL, "cannot resolve no such name: ");
    set_hostname("");
    ssh_client_open(&c); /* "" means this machine */
    ssh_client_run(&c, until_end);
    ck_assert_int_ne(c.why.status, 0);
    stop();
}
END_TEST

/* With IPv6 only, an IPv4 address cannot be resolved. */
START_TEST(families)
{
    start(SERVER_SSHD, NULL);
    c.config.family = AF_INET6;
    expect_fails(&c, HVD_EINVAL, "cannot resolve 127.0.0.1");
    c.config.family = AF_INET;
    expect_works(&c);
    stop();
}
END_TEST

START_TEST(every_address_is_tried)
{
    start(SERVER_SSHD, NULL);
    set_hostname("localhost"); /* ::1 comes first where IPv6 is set up */
    c.config.host_key_alias = hb_xstrdup("alias");
    ssh_shell("printf 'alias %%s' \"$(cat host_ed25519.pub)\" >known");
    expect_works(&c);
    stop();
}
END_TEST

START_TEST(a_socket_that_is_given_and_dead)
{
    int pair[2];

    start(SERVER_NONE, NULL);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);
    ssh_client_open_fd(&c, pair[0]);
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_ECLOSED);
    stop();
}
END_TEST

/* ---- No ssh server ---- */

START_TEST(a_server_that_says_nothing)
{
    start(SERVER_SILENT, NULL);
    c.config.connect_timeout_ms = 100;
    expect_fails(&c, HVD_ETIMEOUT,
                 "ssh: no answer in time (waiting for its sshd)");
    stop();
}
END_TEST

/* sshd closes at once when it has reached MaxStartups. */
START_TEST(a_server_that_closes_at_once)
{
    start(SERVER_CLOSES, NULL);
    expect_fails(&c, HVD_ECLOSED, "MaxStartups");
    stop();
}
END_TEST

START_TEST(what_is_no_banner)
{
    static const struct {
        const char *text;
        enum hvd_status status;
        const char *why;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", HVD_EPROTO,
         "says \"HTTP/1.1 400 Bad Request\""},
        {"220 \x1b[2Jmail\r\n\r\n", HVD_EPROTO, "says \"220 ?[2Jmail\""},
        {"SSH-1.5-old\r\n", HVD_EPROTO, "says \"SSH-1.5-old\""},
        {"SSH-2.0-ok\r\nthen rubbish that is no packet at all......\r\n",
         HVD_EPROTO, "the key exchange failed"},
        {"a line\r\nSSH-2.0-ok\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
         HVD_EPROTO, "the key exchange failed"},
        {"half a li", HVD_ETIMEOUT, "no answer in time"},
        {"SSH-2.0-then nothing\r\n", HVD_ETIMEOUT, "no answer in time"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i == 6) /* would wait a minute for keys */
            continue;
        start(SERVER_GARBAGE, cases[i].text);
        if (cases[i].status == HVD_ETIMEOUT)
            c.config.connect_timeout_ms = 100;
        expect_fails(&c, cases[i].status, cases[i].why);
        stop();
    }
}
END_TEST

START_TEST(lines_without_end)
{
    start(SERVER_FLOODS, NULL);
    expect_fails(&c, HVD_EPROTO, "that is no ssh server: it says \"xxxx");
    stop();
}
END_TEST

/* ---- Connections that drop ---- */

/* A connection cut anywhere is an error to retry or, once the shell has
 * started, a lost connection; never a hang. */
START_TEST(dropped_anywhere)
{
    static const char *const after[] = {"0",    "1",    "20",   "41",   "300",
                                        "1000", "1200", "1600", "1700", "1800",
                                        "1900", "2000", "2200", "2400"};

    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        start(SERVER_CUTS, after[i]);
        ssh_client_open(&c);
        ssh_client_write(&c, "head -c 1000000 /dev/zero; cat\n");
        ssh_client_run(&c, until_end);
        ck_assert_msg(c.why.status == -HVD_ECLOSED, "after %s: %s: %s",
                      after[i], hb_status_name(c.why.status), c.why.text);
        stop();
    }
}
END_TEST

static int until_some(const struct ssh_client *client)
{
    return hb_buf_len(&client->out) >= 100000;
}

/* Data that came before the connection was lost is read, except for the last
 * packet of at most 32 KiB. */
START_TEST(last_words_of_a_lost_connection)
{
    start(SERVER_CUTS, "100000");
    ssh_client_open(&c);
    ssh_client_write(&c, "head -c 200000 /dev/zero\n");
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_ECLOSED);
    ck_assert_ptr_nonnull(strstr(c.why.text, "connection to it was lost"));
    ck_assert_uint_ge(hb_buf_len(&c.out), 60000);
    ck_assert_uint_lt(hb_buf_len(&c.out), 100000);
    stop();
}
END_TEST

START_TEST(a_server_that_dies)
{
    start(SERVER_SSHD, NULL);
    ssh_client_open(&c);
    ssh_client_write(&c, "head -c 100000 /dev/zero; cat\n");
    ssh_client_run(&c, until_some);
    kill(-server.pid, SIGKILL);
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_ECLOSED);
    ck_assert_uint_eq(hb_buf_len(&c.out), 100000);
    stop();
}
END_TEST

/* Closing does not wait for a server that is stopped. */
START_TEST(a_server_that_is_stopped)
{
    start(SERVER_SSHD, NULL);
    ssh_client_open(&c);
    ssh_client_greet(&c);
    ssh_shell("pkill -STOP -g %d", (int)server.pid);
    for (int i = 0; i < 100; i++)
        ssh_client_write(&c, "a line that nobody reads\n");
    ssh_client_close(&c);
    ck_assert_int_eq(c.closes, 1);
    ck_assert_int_eq(c.ends, 0); /* the server has said nothing */
    ssh_shell("grep -q '^State:[[:blank:]]*T' /proc/%d/status",
              (int)server.pid);
    stop();
}
END_TEST

/* ---- Closing ---- */

START_TEST(closed_at_once)
{
    start(SERVER_SSHD, NULL);
    for (int i = 0; i < 20; i++) {
        ssh_client_open(&c);
        ssh_client_write(&c, "echo ready\n");
        ssh_client_reset(&c);
    }
    ck_assert_int_eq(c.ends, 0);
    stop();
}
END_TEST

static void close_at(enum server_mode mode, const char *stage)
{
    start(mode, NULL);
    c.close_at = stage;
    ssh_client_open(&c);
    ssh_client_run(&c, until_close);
    ck_assert_int_eq(c.ends, 0);
    stop();
}

START_TEST(closed_in_every_step)
{
    static const char *const stages[] = {
        "waiting for its sshd",
        "exchanging keys",
        "authenticating",
        "starting a shell",
    };

    close_at(SERVER_SILENT, stages[0]);
    start(SERVER_GARBAGE, "SSH-2.0-then nothing\r\n");
    c.close_at = stages[1];
    ssh_client_open(&c);
    ssh_client_run(&c, until_close);
    stop();
}
END_TEST

/* The loop does not see every stage, but closes at some moment of each. */
static void on_close_timer(uv_timer_t *timer)
{
    struct ssh_client *client = timer->data;

    if (client->t)
        transport_close(client->t);
}

START_TEST(closed_at_any_time)
{
    static uv_timer_t timer;

    start(SERVER_SSHD, NULL);
    uv_timer_init(c.loop, &timer);
    timer.data = &c;
    for (unsigned ms = 0; ms < 200; ms += 8) {
        ssh_client_open(&c);
        uv_timer_start(&timer, on_close_timer, ms, 0);
        ssh_client_run(&c, until_close);
        ck_assert_int_eq(c.ends, 0);
        ssh_client_reset(&c);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    stop();
}
END_TEST

/* With more hosts than threads and slots, all are closed. */
START_TEST(closed_while_they_wait)
{
    static struct ssh_client many[300];

    start(SERVER_SILENT, NULL);
    c.options.max_startups = 1;
    ssh_client_open(&c);
    for (int i = 0; i < 300; i++) {
        ssh_client_join(&many[i], &c);
        many[i].close_at = i % 3 ? NULL : "waiting for its sshd";
        ssh_client_open(&many[i]);
    }
    for (int i = 299; i >= 0; i--)
        ssh_client_fini(&many[i]);
    stop();
}
END_TEST

/* With one handshake at a time, waiting hosts get their turn one after the
 * other, and a closed one frees its slot. */
START_TEST(one_slot_for_many)
{
    static struct ssh_client many[12];

    start(SERVER_SSHD, NULL);
    c.options.max_startups = 1;
    ssh_client_open(&c);
    for (int i = 0; i < 12; i++) {
        ssh_client_join(&many[i], &c);
        many[i].close_at = i % 2 ? "exchanging keys" : NULL;
        ssh_client_open(&many[i]);
    }
    for (int i = 0; i < 12; i += 2)
        ssh_client_greet(&many[i]);
    for (int i = 0; i < 12; i++)
        ssh_client_fini(&many[i]);
    ssh_client_greet(&c);
    stop();
}
END_TEST

/* Closing does not wait for a passphrase that is never typed. */
static int slow_ask(void *arg, const char *prompt, int cancel_fd,
                    char out[SSH2_PASSPHRASE_MAX])
{
    struct pollfd p = {cancel_fd, POLLIN, 0};

    (void)arg;
    (void)prompt;
    (void)out;
    ck_assert_int_eq(poll(&p, 1, -1), 1);
    return -1;
}

START_TEST(closed_while_a_passphrase_is_asked)
{
    static struct ssh_client other;

    start(SERVER_SSHD, NULL);
    c.options.ask = slow_ask;
    ssh_client_identity(&c, "locked");
    c.close_at = "waiting for a passphrase";
    ssh_client_open(&c);
    ssh_client_join(&other, &c);
    other.close_at = c.close_at;
    ssh_client_open(&other);
    ssh_client_run(&c, until_close);
    if (!other.closes)
        ssh_client_run(&other, until_close);
    ssh_client_fini(&other);
    stop();
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_test(t, nobody_listens);
    tcase_add_test(t, names_that_are_none);
    tcase_add_test(t, families);
    tcase_add_test(t, every_address_is_tried);
    tcase_add_test(t, a_socket_that_is_given_and_dead);
    tcase_add_test(t, a_server_that_says_nothing);
    tcase_add_test(t, a_server_that_closes_at_once);
    tcase_add_test(t, what_is_no_banner);
    tcase_add_test(t, lines_without_end);
    tcase_add_test(t, dropped_anywhere);
    tcase_add_test(t, last_words_of_a_lost_connection);
    tcase_add_test(t, a_server_that_dies);
    tcase_add_test(t, a_server_that_is_stopped);
    tcase_add_test(t, closed_at_once);
    tcase_add_test(t, closed_in_every_step);
    tcase_add_test(t, closed_at_any_time);
    tcase_add_test(t, closed_while_they_wait);
    tcase_add_test(t, one_slot_for_many);
    tcase_add_test(t, closed_while_a_passphrase_is_asked);
}

int main(void)
{
    return ssh_fixture_run("ssh2_faults", add_tests);
}
