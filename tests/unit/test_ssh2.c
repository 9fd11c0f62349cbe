/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/ssh2.h with a real sshd: streams, ends, many at a time. */
#include "tests/unit/ssh_server.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 200, BULK = 20 << 20 };

static struct ssh_server server;
static struct ssh_client c;

static void setup(void)
{
    server_start(&server, SERVER_SSHD, NULL);
    ssh_client_init(&c, &server);
}

static void teardown(void)
{
    ssh_client_fini(&c);
    server_stop(&server);
}

/* ---- Sessions ---- */

/* Stages may be missing if the next came before the loop looked. */
static void check_stages(char *stages)
{
    static const char all[] =
        "resolving its name\nconnecting\nwaiting for its sshd\n"
        "waiting for its turn\nexchanging keys\nauthenticating\n"
        "starting a shell\n";
    const char *at = all;

    for (char *line = strtok(stages, "\n"); line; line = strtok(NULL, "\n")) {
        at = strstr(at, line);
        ck_assert_msg(at != NULL, "%s", line);
    }
}

START_TEST(a_shell)
{
    ssh_client_open(&c);
    ck_assert_ptr_nonnull(c.t);
    ck_assert_int_eq(c.ends + c.closes, 0);
    ssh_client_write(&c, "echo $((6 * 7)); echo oops >&2; echo ready\n");
    ck_assert_uint_gt(transport_write_queued(c.t), 0);
    ssh_client_run(&c, until_ready);
    ck_assert_str_eq(hb_buf_data(&c.out), "42\nready\n");
    ck_assert_uint_eq(transport_write_queued(c.t), 0);
    ck_assert_int_eq(c.drains, 1);
    ssh_client_close(&c);
    ck_assert_str_eq(hb_buf_data(&c.err), "oops\n");
    ck_assert_int_eq(c.ends, 0);
    check_stages(hb_buf_data(&c.stages));
}
END_TEST

START_TEST(no_callback_is_needed_for_stages_and_drains)
{
    c.events.on_stage = NULL;
    c.events.on_drain = NULL;
    expect_works(&c);
}
END_TEST

/* The socket of a proxy. */
START_TEST(over_a_given_socket)
{
    struct ssh_server other = server;

    ssh_client_open_fd(&c, server_socket(&other));
    ssh_client_greet(&c);
    ssh_client_reset(&c);
    server_stop(&other);
}
END_TEST

START_TEST(how_the_shell_ends)
{
    ssh_client_open(&c);
    ssh_client_write(&c, "echo last; echo words >&2; exit 0\n");
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, 0);
    ck_assert_str_eq(hb_buf_data(&c.out), "last\n");
    ck_assert_str_eq(hb_buf_data(&c.err), "words\n");
    ck_assert_int_eq(transport_write(c.t, "x", 1), -HVD_ECLOSED);
    ssh_client_reset(&c);

    ssh_client_open(&c);
    ssh_client_write(&c, "exit 7\n");
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_EPEER);
    ck_assert_str_eq(c.why.text, "it exited with code 7");
    ssh_client_reset(&c);

    ssh_client_open(&c);
    ssh_client_write(&c, "kill -9 $$\n");
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_EPEER);
    ck_assert_str_eq(c.why.text, "it was killed by signal SIGKILL");
}
END_TEST

/* The stream ends though a program still runs: the connection ends, too. */
START_TEST(a_stream_that_ends_before_the_program)
{
    ssh_client_open(&c);
    ssh_client_write(&c, "exec cat >/dev/null 2>&1\n");
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, 0);
    ssh_client_close(&c); /* the program reads end-of-file */
}
END_TEST

static int until_deaf(const struct ssh_client *client)
{
    return transport_write(client->t, "", 0) == -HVD_ECLOSED;
}

/* The same, but the connection is closed before its end is reported. */
START_TEST(closed_before_the_end_is_told)
{
    ssh_client_open(&c);
    ssh_client_write(&c, "exec cat >/dev/null 2>&1\n");
    ssh_client_run(&c, until_deaf);
    ssh_client_close(&c);
    ck_assert_int_eq(c.ends, 0);
    ck_assert_ptr_null(strstr(hb_buf_data(&c.logged), "did not end"));
}
END_TEST

/* Queued bytes are sent, then the peer reads end-of-file. */
START_TEST(half_close)
{
    char *got_text;

    ssh_client_open(&c);
    ssh_client_write(&c, "exec sh -c 'echo ready; cat >");
    ssh_client_write(&c, ssh_file("got"));
    ssh_client_write(&c, "; echo bye >&2'\n");
    ssh_client_run(&c, until_ready); /* a shell may read ahead */
    ssh_client_write(&c, "0123456789");
    ssh_client_close(&c);
    ck_assert_str_eq(hb_buf_data(&c.err), "bye\n");
    ck_assert_int_eq(c.ends, 0);
    got_text = ssh_read("got");
    ck_assert_str_eq(got_text, "0123456789");
    free(got_text);
}
END_TEST

static int until_grown(const struct ssh_client *client)
{
    return hb_buf_len(&client->out) > 0;
}

/* After exit_wait_ms a program that does not end is left alone. */
START_TEST(a_program_that_does_not_end)
{
    ssh_client_open(&c);
    ssh_client_write(&c, "trap '' HUP TERM; echo $$; while :; do sleep 1000; "
                         "done\n");
    ssh_client_run(&c, until_grown);
    ssh_client_close(&c);
    ssh_shell("kill -9 -%s", hb_buf_data(&c.out));
}
END_TEST

/* ---- Much ---- */

static unsigned char bulk_byte(size_t i)
{
    return (unsigned char)(i * 2654435761u >> 13);
}

static size_t got;

static void on_bulk(void *arg, const char *bytes, size_t len)
{
    (void)arg;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)bytes[i] != bulk_byte(got + i))
            ck_abort_msg("byte %zu", got + i);
    got += len;
}

static int until_bulk(const struct ssh_client *client)
{
    (void)client;
    return got == BULK;
}

/* Large data both ways: a read must enlarge its window while a write waits. */
static void echo_bulk(void)
{
    unsigned char *bytes = malloc(BULK);

    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < BULK; i++)
        bytes[i] = bulk_byte(i);
    ssh_client_open(&c);
    ssh_client_write(&c, "echo ready; exec cat\n");
    ssh_client_run(&c, until_ready);
    c.drains = 0;
    got = 0;
    ck_assert_int_eq(transport_write(c.t, bytes, BULK), 0);
    ck_assert_uint_ge(transport_write_queued(c.t), BULK);
    free(bytes);
    ssh_client_run(&c, until_bulk);
    ck_assert_int_eq(c.drains, 1);
    ssh_client_reset(&c);
}

static void on_first_then_bulk(void *arg, const char *bytes, size_t len)
{
    if (!until_ready(&c))
        hb_buf_append(&c.out, bytes, len);
    else
        on_bulk(arg, bytes, len);
}

START_TEST(twenty_megabytes_both_ways)
{
    c.events.on_read = on_first_then_bulk;
    echo_bulk();
}
END_TEST

START_TEST(twenty_megabytes_with_new_keys_in_between)
{
    struct ssh_server rekeys;

    server_start(&rekeys, SERVER_SSHD, "RekeyLimit 1M", NULL);
    ssh_client_fini(&c);
    ssh_client_init(&c, &rekeys);
    c.events.on_read = on_first_then_bulk;
    echo_bulk();
    server_stop(&rekeys);
}
END_TEST

static size_t errs;

static void count_stderr(void *arg, const char *bytes, size_t len)
{
    (void)arg;
    (void)bytes;
    errs += len;
}

static void count_read(void *arg, const char *bytes, size_t len)
{
    (void)arg;
    (void)bytes;
    got += len;
}

/* A channel does not end before its stderr has been read. */
START_TEST(both_streams_are_drained)
{
    c.events.on_stderr = count_stderr;
    c.events.on_read = count_read;
    got = errs = 0;
    ssh_client_open(&c);
    ssh_client_write(&c, "head -c 20971520 /dev/zero >&2 & "
                         "head -c 20971520 /dev/zero; wait; exit 3\n");
    ssh_client_run(&c, until_end);
    ck_assert_str_eq(c.why.text, "it exited with code 3");
    ck_assert_uint_eq(got, BULK);
    ck_assert_uint_eq(errs, BULK);
}
END_TEST

/* A fast host does not keep the loop from running others' callbacks. */
static int turns;

static void on_turn(uv_check_t *check)
{
    (void)check;
    turns++;
}

START_TEST(a_fast_host_leaves_turns_to_others)
{
    static uv_check_t check;

    c.events.on_read = count_read;
    got = 0;
    uv_check_init(c.loop, &check);
    ssh_client_open(&c);
    ssh_client_write(&c, "head -c 20971520 /dev/zero\n");
    uv_check_start(&check, on_turn);
    ssh_client_run(&c, until_bulk);
    ck_assert_int_ge(turns, 40); /* each reads half a megabyte */
    uv_close((uv_handle_t *)&check, NULL);
}
END_TEST

/* ---- Many ---- */

struct one {
    struct transport *t;
    int ready, ended, closed;
};

static int many_ready, many_closed;

static void many_on_read(void *arg, const char *bytes, size_t len)
{
    struct one *o = arg;

    (void)bytes;
    (void)len;
    o->ready++;
    many_ready++;
}

static void many_on_stderr(void *arg, const char *bytes, size_t len)
{
    (void)arg;
    (void)bytes;
    (void)len;
}

static void many_on_end(void *arg, const struct hb_error *err)
{
    (void)arg;
    ck_abort_msg("%s", err ? err->text : "ended");
}

static void many_on_close(void *arg)
{
    struct one *o = arg;

    o->closed = 1;
    many_closed++;
}

static void on_many_limit(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("%d ready, %d closed", many_ready, many_closed);
}

START_TEST(two_hundred_sessions)
{
    static struct one ones[MANY];
    struct transport_config config = {
        .loop = c.loop,
        .log = &c.log,
        .host = "n1",
        .events = {.on_read = many_on_read,
                   .on_stderr = many_on_stderr,
                   .on_end = many_on_end,
                   .on_close = many_on_close},
        .exit_wait_ms = 20000,
    };
    struct ssh2_open open = {.config = &c.config, .fd = -1};
    static uv_timer_t limit;

    c.shared = c.plugin->shared_new(&c.options);
    uv_timer_init(c.loop, &limit);
    uv_timer_start(&limit, on_many_limit, 400000, 0);
    for (int i = 0; i < MANY; i++) {
        config.arg = &ones[i];
        ck_assert_int_eq(
            c.plugin->open(c.shared, &config, &open, &ones[i].t, NULL), 0);
        transport_write(ones[i].t, "echo\n", 5);
    }
    while (many_ready < MANY)
        uv_run(c.loop, UV_RUN_ONCE);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(ones[i].ready, 1);
        transport_close(ones[i].t);
    }
    while (many_closed < MANY)
        uv_run(c.loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&limit, NULL);
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_shell);
    tcase_add_test(t, no_callback_is_needed_for_stages_and_drains);
    tcase_add_test(t, over_a_given_socket);
    tcase_add_test(t, how_the_shell_ends);
    tcase_add_test(t, a_stream_that_ends_before_the_program);
    tcase_add_test(t, closed_before_the_end_is_told);
    tcase_add_test(t, half_close);
    tcase_add_test(t, a_program_that_does_not_end);
    tcase_add_test(t, twenty_megabytes_both_ways);
    tcase_add_test(t, twenty_megabytes_with_new_keys_in_between);
    tcase_add_test(t, both_streams_are_drained);
    tcase_add_test(t, a_fast_host_leaves_turns_to_others);
    tcase_add_test(t, two_hundred_sessions);
}

int main(void)
{
    return ssh_fixture_run("ssh2", add_tests);
}
