/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/bootstrap.h: a host's answers, and when they may come. */
#include "lib/remote/bootstrap.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static const char marker[] = "0123456789abcdef0123456789abcdef";
#define SIGN "hvd:0123456789abcdef0123456789abcdef "
#define MAGIC "hvD1"

static char bytes[] = "the agent's bytes";
static const struct agent_image image = {bytes, sizeof(bytes) - 1, "beef",
                                         "x86_64|amd64"};
static struct bootstrap b;
static struct hb_error err;

static void setup(void)
{
    bootstrap_init(&b, &image, marker);
    hb_error_clear(&err);
}

static void teardown(void)
{
    bootstrap_fini(&b);
}

static int says(const char *s)
{
    return bootstrap_read(&b, s, strlen(s), &err);
}

static void send_all(void)
{
    const char *p;

    while (bootstrap_next(&b, 5, &p) > 0)
        continue;
    ck_assert_uint_eq(b.sent, image.len);
}

/* ---- The script ---- */

static const char *script(const char *agent)
{
    static char text[16384];
    struct hb_buf out = HB_BUF_INIT;

    ck_assert_int_eq(bootstrap_script(&b, agent, &out), 0);
    ck_assert_uint_lt(hb_buf_len(&out), sizeof(text));
    strcpy(text, hb_buf_data(&out));
    hb_buf_free(&out);
    return text;
}

/* A shell that echoes the script does not answer by that. */
START_TEST(script_is_small_and_silent)
{
    const char *text = script(NULL);

    ck_assert_uint_lt(strlen(text), 4096);
    ck_assert(strncmp(text, "{\nm=", 4) == 0);
    ck_assert_ptr_nonnull(strstr(text, "n=17 h=beef a=hvd-agent-beef\n"));
    ck_assert_ptr_nonnull(strstr(text, "in x86_64|amd64) ;;"));
    ck_assert_ptr_nonnull(strstr(text, "\np=''\n"));
    ck_assert_ptr_null(strstr(text, "\n#"));
    ck_assert_str_eq(text + strlen(text) - 3, "\n}\n");
    ck_assert_int_eq(says(text), 0);
    ck_assert_int_eq(b.state, BOOTSTRAP_ASKING);
}
END_TEST

START_TEST(agent_path_is_quoted)
{
    b.image = NULL;
    ck_assert_ptr_nonnull(
        strstr(script("/a 'b' $c"), "\np='/a '\\''b'\\'' $c'\n"));
    ck_assert_ptr_nonnull(strstr(script("x"), "n=0 h= a=hvd-agent-\n"));
}
END_TEST

/* ---- Answers ---- */

START_TEST(runs_at_once)
{
    ck_assert_int_eq(says("\n" SIGN "run\n" MAGIC "rest"), 0);
    ck_assert_int_eq(b.state, BOOTSTRAP_RUNNING);
    ck_assert_str_eq(hb_buf_data(&b.in), MAGIC "rest");
}
END_TEST

START_TEST(wants_then_runs)
{
    const char *p;

    ck_assert_uint_eq(bootstrap_next(&b, 100, &p), 0);
    ck_assert_int_eq(says("\n" SIGN "want\r\n"), 0);
    ck_assert_int_eq(b.state, BOOTSTRAP_SENDING);
    ck_assert_uint_eq(bootstrap_next(&b, 5, &p), 5);
    ck_assert_int_eq(memcmp(p, "the a", 5), 0);
    ck_assert_uint_eq(bootstrap_next(&b, 100, &p), 12);
    ck_assert_uint_eq(bootstrap_next(&b, 100, &p), 0);
    ck_assert_int_eq(says("\n" SIGN "want\n"), 0);
    ck_assert_uint_eq(b.sent, 0);
    send_all();
    ck_assert_int_eq(says("\n" SIGN "run\n"), 0);
    ck_assert_int_eq(b.state, BOOTSTRAP_STARTING);
    ck_assert_uint_eq(bootstrap_next(&b, 100, &p), 0);
    ck_assert_int_eq(says(MAGIC), 0);
    ck_assert_int_eq(b.state, BOOTSTRAP_RUNNING);
}
END_TEST

/* However the bytes are cut, also with noise around them. */
START_TEST(any_pieces)
{
    static const char all[] =
        "Welcome\nhvd:0123 run\nhvd:" SIGN "run\nnoise hvD0 hvhvD1rest";

    for (size_t step = 1; step < sizeof(all); step++) {
        for (size_t at = 0; at < sizeof(all) - 1; at += step) {
            size_t left = sizeof(all) - 1 - at;
            ck_assert_int_eq(
                bootstrap_read(&b, all + at, left < step ? left : step, &err),
                0);
        }
        ck_assert_int_eq(b.state, BOOTSTRAP_RUNNING);
        ck_assert_str_eq(hb_buf_data(&b.in), "hvD1rest");
        ck_assert_str_eq(hb_buf_data(&b.noise),
                         "Welcome\nhvd:0123 run\nhvd:noise hvD0 hv");
        teardown();
        setup();
    }
}
END_TEST

static const struct {
    const char *before, *says;
    int status;
    const char *text;
} failures[] = {
    {"", SIGN "fail cpu aarch64\n", HVD_ESYSTEM,
     "its CPU type is aarch64, and the agent of this hvdrun is for another; "
     "install hvd-agent there and give --agent PATH"},
    {"", SIGN "fail os FreeBSD amd64\n", HVD_ESYSTEM,
     "it runs FreeBSD amd64; the agent needs Linux"},
    {"", SIGN "fail tty .\n", HVD_EINVAL,
     "the shell's stdin is a terminal; the --rsh command must not make one "
     "(leave out -t)"},
    {"", SIGN "fail noagent /x y\n", HVD_ENOENT,
     "--agent /x y: there is no such file there"},
    {"", SIGN "fail noexec /x\n", HVD_EPERM,
     "--agent /x: may not be executed there"},
    {SIGN "want\n", SIGN "fail place /a: full; /b: \33[1m\n", HVD_ESYSTEM,
     "no directory takes the agent (set XDG_CACHE_HOME there, or install it "
     "and give --agent PATH): /a: full; /b: ?[1m"},
    {"", SIGN "fail\n", HVD_ESYSTEM, "the agent cannot start:  "},
    {"", SIGN "fail new %s%n\n", HVD_ESYSTEM,
     "the agent cannot start: new %s%n"},
    {"", SIGN "fail tty %s%n\n", HVD_EINVAL, NULL},
    /* answers that make no sense */
    {"", SIGN "\n", HVD_EPROTO, NULL},
    {"", SIGN "ruin\n", HVD_EPROTO, NULL},
    {"", SIGN "want\n" SIGN "run\n", HVD_EPROTO, NULL},
    {"", SIGN "want\n" SIGN "want\n", HVD_EPROTO, NULL},
};

START_TEST(failures_are_told)
{
    ck_assert_int_eq(says(failures[_i].before), 0);
    ck_assert_int_eq(says(failures[_i].says), -failures[_i].status);
    ck_assert_int_eq(err.status, -failures[_i].status);
    if (failures[_i].text)
        ck_assert_str_eq(err.text, failures[_i].text);
    ck_assert_int_eq(b.state, BOOTSTRAP_FAILED);
    ck_assert_int_lt(says(MAGIC), 0);
    ck_assert_int_eq(b.state, BOOTSTRAP_FAILED);
}
END_TEST

START_TEST(wants_forever)
{
    for (int i = 0; i < BOOTSTRAP_PUSH_MAX; i++) {
        ck_assert_int_eq(says(SIGN "want\n"), 0);
        send_all();
    }
    ck_assert_int_eq(says(SIGN "want\n"), -HVD_EPROTO);
}
END_TEST

START_TEST(wants_what_there_is_not)
{
    b.image = NULL;
    ck_assert_int_eq(says(SIGN "want\n"), -HVD_EPROTO);
}
END_TEST

/* Feeds `before`, then bytes `c` until the limit on noise refuses them. */
static void flood(const char *before, char c)
{
    static char block[1024];
    size_t total = 0;
    int rc = says(before);

    memset(block, c, sizeof(block));
    for (; rc == 0; total += sizeof(block)) {
        ck_assert_uint_le(total, 2 * BOOTSTRAP_NOISE_MAX);
        rc = bootstrap_read(&b, block, sizeof(block), &err);
    }
    ck_assert_int_eq(rc, -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "its shell printed more than"));
    ck_assert_uint_le(hb_buf_len(&b.noise), BOOTSTRAP_NOISE_MAX);
}

/* The noise may come before the marker or after it. */
START_TEST(noise_that_is_allowed)
{
    static const size_t lengths[] = {33 << 10, 60 << 10};
    static char noise[BOOTSTRAP_NOISE_MAX];

    memset(noise, 'x', sizeof(noise));
    for (size_t i = 0; i < 2; i++)
        for (size_t after = 0; after <= 3 << 10; after += 3 << 10) {
            ck_assert_int_eq(bootstrap_read(&b, noise, lengths[i], &err), 0);
            ck_assert_int_eq(says("\n" SIGN "run\n"), 0);
            ck_assert_int_eq(bootstrap_read(&b, noise, after, &err), 0);
            ck_assert_int_eq(says(MAGIC), 0);
            ck_assert_int_eq(b.state, BOOTSTRAP_RUNNING);
            teardown();
            setup();
        }
}
END_TEST

START_TEST(floods)
{
    static const char *const before[] = {"", SIGN "run\n", SIGN "fail",
                                         "x" SIGN "want\n"};

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        flood(before[i], i % 2 ? 'h' : '\n' + 1);
        teardown();
        setup();
    }
}
END_TEST

START_TEST(stderr_is_bounded)
{
    static char block[BOOTSTRAP_NOISE_MAX + 5];
    size_t n = BOOTSTRAP_STDERR_MAX / sizeof(block);

    memset(block, 'x', sizeof(block));
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(bootstrap_stderr(&b, block, sizeof(block), &err), 0);
        ck_assert_int_eq(bootstrap_stderr(&b, "\nend", 4, &err), 0);
        ck_assert_uint_eq(hb_buf_len(&b.errs), BOOTSTRAP_NOISE_MAX);
    }
    bootstrap_ended(&b, NULL, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "xxx; end"));
    hb_error_clear(&err);
    ck_assert_int_eq(bootstrap_stderr(&b, block, sizeof(block), &err),
                     -HVD_EPROTO);
    ck_assert_int_eq(b.state, BOOTSTRAP_FAILED);
}
END_TEST

/* ---- The end ---- */

static void ended(const char *out, const char *errs, const char *why,
                  const char *text)
{
    ck_assert_int_eq(says(out), 0);
    bootstrap_stderr(&b, errs, strlen(errs), &err);
    ck_assert_int_eq(bootstrap_ended(&b, why, &err), -HVD_ESYSTEM);
    ck_assert_str_eq(err.text, text);
    teardown();
    setup();
}

START_TEST(last_words)
{
    ended("", "", NULL, "its shell ended without an answer");
    ended("", "", "it exited with code 1",
          "its shell ended without an answer (it exited with code 1)");
    ended("noise\n", "a\n\nb \r\n\tc\t\r\n \n", NULL,
          "its shell ended without an answer: b; c");
    ended("a\nb", " \n", NULL, "its shell ended without an answer: a; b");
    ended("a\n" SIGN "want\n", "", NULL,
          "its shell ended while the agent was being sent: a");
    ended(SIGN "run\n", "no\nyes", NULL, "the agent did not start: no; yes");
}
END_TEST

START_TEST(last_words_are_cut)
{
    char text[3 * HB_ERROR_TEXT_MAX];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    text[1000] = '\n';
    bootstrap_stderr(&b, text, strlen(text), &err);
    bootstrap_ended(&b, "why", &err);
    ck_assert_uint_lt(strlen(err.text), sizeof(err.text));
}
END_TEST

START_TEST(states_and_events)
{
    static const int next[BOOTSTRAP_STATES][BOOTSTRAP_EVENTS] = {
        {BOOTSTRAP_SENDING, BOOTSTRAP_STARTING, BOOTSTRAP_FAILED, -1},
        {BOOTSTRAP_SENDING, BOOTSTRAP_STARTING, BOOTSTRAP_FAILED, -1},
        {-1, -1, -1, BOOTSTRAP_RUNNING},
        {-1, -1, -1, -1},
        {-1, -1, -1, -1},
    };

    for (int s = 0; s < BOOTSTRAP_STATES; s++)
        for (int e = 0; e < BOOTSTRAP_EVENTS; e++) {
            enum bootstrap_state to = BOOTSTRAP_STATES;
            int rc = bootstrap_step((enum bootstrap_state)s,
                                    (enum bootstrap_event)e, &to);
            ck_assert_int_eq(rc, next[s][e] < 0 ? -HVD_EPROTO : 0);
            ck_assert_int_eq(to, rc < 0 ? BOOTSTRAP_STATES : next[s][e]);
        }
}
END_TEST

static int attempt(void *arg)
{
    static const char *const answers[] = {"noise\n" SIGN, "want\n",
                                          SIGN "run\nx" MAGIC};
    struct hb_buf out = HB_BUF_INIT;
    int rc;

    (void)arg;
    teardown();
    setup();
    rc = bootstrap_script(&b, "/x", &out);
    hb_buf_free(&out);
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = says(answers[i]);
        if (rc == 0 && i == 1)
            send_all();
    }
    return rc < 0 ? rc : bootstrap_stderr(&b, "x", 1, &err);
}

START_TEST(out_of_memory)
{
    unit_fail_each(attempt, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bootstrap");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, script_is_small_and_silent);
    tcase_add_test(tc, agent_path_is_quoted);
    tcase_add_test(tc, runs_at_once);
    tcase_add_test(tc, wants_then_runs);
    tcase_add_test(tc, any_pieces);
    tcase_add_loop_test(tc, failures_are_told, 0,
                        sizeof(failures) / sizeof(failures[0]));
    tcase_add_test(tc, wants_forever);
    tcase_add_test(tc, wants_what_there_is_not);
    tcase_add_test(tc, noise_that_is_allowed);
    tcase_add_test(tc, floods);
    tcase_add_test(tc, stderr_is_bounded);
    tcase_add_test(tc, last_words);
    tcase_add_test(tc, last_words_are_cut);
    tcase_add_test(tc, states_and_events);
    tcase_add_test(tc, out_of_memory);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
