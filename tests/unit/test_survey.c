/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib/job/survey.h with agents that are this program, run as hvd-agent; one
 * word in the environment says what all of them do.
 */
#include "lib/job/survey.h"

#include "lib/base/alloc.h"
#include "lib/protocol/query.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS = 3, LONG_MS = 60000 };

/* ---- The agent ---- */

static void say(struct hb_buf *frame)
{
    if (write(1, hb_buf_data(frame), hb_buf_len(frame)) < 0)
        _exit(3);
    hb_buf_free(frame);
}

static void put_hello(struct hb_buf *frame, const char *version)
{
    struct control_hello m = {.version = (char *)version,
                              .host = (char *)"h",
                              .cpu = (char *)"x86_64",
                              .machine = (char *)"",
                              .pid = getpid(),
                              .cpus = 2};

    control_encode_hello(frame, &m);
}

/* Answers every question with the question. */
static void echo(void)
{
    struct hb_buf in = HB_BUF_INIT, out = HB_BUF_INIT;
    char chunk[4096];
    struct frame f;
    ssize_t n;

    while ((n = read(0, chunk, sizeof(chunk))) > 0) {
        hb_buf_append(&in, chunk, (size_t)n);
        while (frame_decode(&in, FRAME_PAYLOAD_MAX, &f, NULL) > 0) {
            frame_encode(&out, CONTROL_ANSWER, f.payload, f.len);
            say(&out);
            frame_done(&in, &f);
        }
    }
    hb_buf_free(&in);
}

static void wait_for_end(void)
{
    char chunk[4096];

    while (read(0, chunk, sizeof(chunk)) > 0)
        ;
}

static void wait_for_question(void)
{
    char first;

    if (read(0, &first, 1) < 0)
        _exit(3);
}

/* Writes lines to stderr, then LOG messages, until hvdrun hangs up. */
static void flood(void)
{
    struct hb_buf frame = HB_BUF_INIT;

    for (int i = 0; i < 2000; i++)
        dprintf(2, "spam\n");
    for (;;) {
        control_encode_log(&frame, HB_LOG_WARNING, "spam");
        say(&frame);
    }
}

static void tell_why(const char *how)
{
    struct control_failed m = {1, (char *)"no memory\a"};
    struct hb_buf frame = HB_BUF_INIT;

    if (strcmp(how, "failed") == 0)
        control_encode_failed(&frame, &m);
    else
        frame_encode(&frame, CONTROL_QUITTING, "it got SIGTERM\a", 15);
    say(&frame);
}

static int agent(const char *how)
{
    struct hb_buf frame = HB_BUF_INIT;

    if (strcmp(how, "silent") == 0) {
        wait_for_end();
        return 0;
    }
    if (strcmp(how, "dies") == 0)
        return 9;
    put_hello(&frame, strcmp(how, "old") == 0 ? "0.0.0" : HVD_VERSION);
    /* In one write, so that the answer precedes any question. */
    if (strcmp(how, "unasked") == 0)
        frame_encode(&frame, CONTROL_ANSWER, "{}", 2);
    say(&frame);
    if (strcmp(how, "mute") == 0 || strcmp(how, "old") == 0 ||
        strcmp(how, "unasked") == 0) {
        wait_for_end();
    } else if (strcmp(how, "garbage") == 0) {
        wait_for_question();
        dprintf(1, "this is not the protocol, not at all");
        wait_for_end();
    } else if (strcmp(how, "array") == 0) {
        wait_for_question();
        frame_encode(&frame, CONTROL_ANSWER, "[]", 2);
        say(&frame);
        wait_for_end();
    } else if (strcmp(how, "flood") == 0) {
        wait_for_question();
        flood();
    } else if (strcmp(how, "quits") == 0) {
        wait_for_question();
    } else if (strcmp(how, "told") == 0 || strcmp(how, "failed") == 0) {
        wait_for_question();
        tell_why(how);
        wait_for_end();
    } else {
        echo();
    }
    return 0;
}

/* ---- The survey ---- */

static char self[4096];
static uv_loop_t loop;
static struct host_entry entries[HOSTS] = {
    {.name = (char *)"a"}, {.name = (char *)"b"}, {.name = (char *)"c"}};
static const unsigned char local[HOSTS] = {1, 1, 1};
static struct hb_log hush;
static struct survey_config config;
static struct survey *survey;
static int settled, closed, lost, log_lines;
static void (*on_round)(int round);

static void drop(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
    log_lines++;
}

static void on_settled(void *arg)
{
    (void)arg;
    ck_assert_uint_eq(survey->waiting, 0);
    on_round(settled++);
}

static void on_closed(void *arg)
{
    (void)arg;
    closed++;
}

static void on_lost(void *arg, size_t host)
{
    (void)arg;
    ck_assert_int_eq(survey->hosts[host].state, SURVEY_LOST);
    lost++;
}

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    hush = (struct hb_log){.level = HB_LOG_TRACE, .sink = drop};
    config = (struct survey_config){
        .loop = &loop,
        .log = &hush,
        .agent_path = self,
        .entries = entries,
        .is_local = local,
        .count = HOSTS,
        .start_timeout_ms = LONG_MS,
        .on_settled = on_settled,
        .on_closed = on_closed,
        .on_lost = on_lost,
    };
}

static void run(const char *how, void (*round)(int))
{
    setenv("SURVEY_AGENT", how, 1);
    on_round = round;
    survey = survey_open(&config);
    ck_assert_int_eq(settled, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
}

static void teardown(void)
{
    survey_free(survey);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

static void ask_all(const char *what, int timeout_ms)
{
    json_t *question = json_pack("{s:s}", "what", what);

    for (size_t i = 0; i < config.count; i++)
        survey_ask(survey, i, question, timeout_ms);
    json_decref(question);
}

static void three_rounds(int round)
{
    static const char *const words[] = {"one", "two"};

    for (size_t i = 0; i < config.count; i++) {
        ck_assert_msg(survey->hosts[i].state == SURVEY_IDLE, "%s",
                      survey->hosts[i].error.text);
        if (round > 0)
            ck_assert_str_eq(query_string(survey->hosts[i].answer, "what"),
                             words[round - 1]);
    }
    if (round < 2)
        ask_all(words[round], LONG_MS);
    else
        survey_close(survey);
}

START_TEST(rounds)
{
    run("echo", three_rounds);
    ck_assert_int_eq(settled, 3);
    ck_assert_int_eq(lost, 0);
}
END_TEST

static void one_of_them(int round)
{
    json_t *question = json_pack("{s:s}", "what", "x");

    if (round == 0) {
        survey_ask(survey, 1, question, LONG_MS);
    } else {
        ck_assert_ptr_null(survey->hosts[0].answer);
        ck_assert_ptr_nonnull(survey->hosts[1].answer);
        survey_close(survey);
    }
    json_decref(question);
}

START_TEST(asking_one)
{
    run("echo", one_of_them);
    ck_assert_int_eq(settled, 2);
}
END_TEST

static void ask_then_expect_lost(int round)
{
    if (round == 0) {
        ask_all("x", LONG_MS);
        return;
    }
    for (size_t i = 0; i < config.count; i++) {
        ck_assert_int_eq(survey->hosts[i].state, SURVEY_LOST);
        ck_assert_int_lt(survey->hosts[i].error.status, 0);
        ck_assert_ptr_null(survey->hosts[i].answer);
    }
    survey_close(survey);
}

static const char *const breakers[] = {"garbage", "unasked", "array", "quits",
                                       "flood"};

START_TEST(who_breaks_the_protocol_is_lost)
{
    run(breakers[_i], ask_then_expect_lost);
    ck_assert_int_eq(lost, HOSTS);
    /* on stderr and as messages, plus some about their ends */
    ck_assert_int_le(log_lines, HOSTS * 2 * (HOST_LOG_LINES_MAX + 10));
    if (strcmp(breakers[_i], "flood") == 0)
        ck_assert_int_gt(log_lines, HOSTS);
}
END_TEST

/* What an agent says before it ends is why it is lost. */
START_TEST(an_agent_that_says_why_it_ends)
{
    run(_i ? "failed" : "told", ask_then_expect_lost);
    ck_assert_int_eq(lost, HOSTS);
    ck_assert_str_eq(survey->hosts[0].error.text,
                     _i ? "no memory?" : "it got SIGTERM?");
}
END_TEST

static void all_lost_at_once(int round)
{
    ck_assert_int_eq(round, 0);
    for (size_t i = 0; i < config.count; i++)
        ck_assert_int_eq(survey->hosts[i].state, SURVEY_LOST);
    survey_close(survey);
}

START_TEST(an_agent_that_dies_and_one_of_another_build)
{
    run(_i ? "old" : "dies", all_lost_at_once);
    ck_assert_int_eq(lost, 0);
    if (_i)
        ck_assert_ptr_nonnull(strstr(survey->hosts[0].error.text, "0.0.0"));
}
END_TEST

START_TEST(an_agent_that_cannot_be_started)
{
    config.agent_path = "/nonexistent/hvd-agent";
    run("echo", all_lost_at_once);
    ck_assert_ptr_nonnull(strstr(survey->hosts[0].error.text, "--agent"));
}
END_TEST

START_TEST(silence_before_hello)
{
    config.start_timeout_ms = 1;
    run("silent", all_lost_at_once);
    ck_assert_int_eq(survey->hosts[0].error.status, -HVD_ETIMEOUT);
}
END_TEST

static void short_question(int round)
{
    if (round == 0) {
        ask_all("x", 1);
        return;
    }
    for (size_t i = 0; i < config.count; i++)
        ck_assert_int_eq(survey->hosts[i].error.status, -HVD_ETIMEOUT);
    survey_close(survey);
}

START_TEST(silence_after_a_question)
{
    run("mute", short_question);
    ck_assert_int_eq(settled, 2);
}
END_TEST

static void wait_a_little(int round)
{
    if (round == 0)
        survey_wait(survey, 1);
    else if (round == 1) {
        survey_wait(survey, LONG_MS);
        survey_settle(survey);
    } else {
        survey_close(survey);
        survey_close(survey);
    }
}

START_TEST(rounds_without_questions)
{
    run("mute", wait_a_little);
    ck_assert_int_eq(settled, 3);
}
END_TEST

START_TEST(closing_while_connecting)
{
    setenv("SURVEY_AGENT", "silent", 1);
    survey = survey_open(&config);
    survey_close(survey);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(settled, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("survey");
    TCase *tc = tcase_create("survey");

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, rounds);
    tcase_add_test(tc, asking_one);
    tcase_add_loop_test(tc, who_breaks_the_protocol_is_lost, 0,
                        sizeof(breakers) / sizeof(breakers[0]));
    tcase_add_loop_test(tc, an_agent_that_says_why_it_ends, 0, 2);
    tcase_add_loop_test(tc, an_agent_that_dies_and_one_of_another_build, 0, 2);
    tcase_add_test(tc, an_agent_that_cannot_be_started);
    tcase_add_test(tc, silence_before_hello);
    tcase_add_test(tc, silence_after_a_question);
    tcase_add_test(tc, rounds_without_questions);
    tcase_add_test(tc, closing_while_connecting);
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char *argv[])
{
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    (void)argc;
    self[n > 0 ? n : 0] = '\0';
    if (strcmp(argv[0], "hvd-agent") == 0)
        return agent(getenv("SURVEY_AGENT"));
    return unit_run(suite());
}
