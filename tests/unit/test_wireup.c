/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/wireup/wireup.h: what all kinds share, with a kind of the test's
 * own. */
#include "lib/agent/wireup/wireup.h"
#include "lib/base/alloc.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3 };

static uv_loop_t loop;
static struct wireup w;
static struct control_launch job;
static struct control_rank ranks[RANKS];
static struct hb_log test_log;
static char logged[1024];

/* What the kind does, and what it and the owner were told. */
static int open_result, end_result, close_result;
static int opened, closed, settled, closes, ended, helper_ends, aborts;
static struct hb_error open_error;
static enum wireup_end settled_how;
static struct wireup_abort aborted;
static char abort_text[128];

static int kind_open(struct wireup *at, struct hb_error *err)
{
    ck_assert_ptr_eq(at, &w);
    return open_result < 0
               ? hb_error_set(err, HVD_ESYSTEM, "there is no server")
               : open_result;
}

static void kind_environment(struct wireup *at, int slot, struct hb_strv *out)
{
    (void)at;
    hb_strv_addf(out, "TEST_SLOT=%d", slot);
}

static int kind_rank_ended(struct wireup *at, int slot)
{
    (void)at;
    (void)slot;
    ended++;
    return end_result;
}

static void kind_helper_ended(struct wireup *at, const siginfo_t *info)
{
    (void)info;
    helper_ends++;
    wireup_closed(at);
}

static int kind_close(struct wireup *at)
{
    (void)at;
    closes++;
    return close_result;
}

static const struct wireup_kind kind = {
    .name = "test",
    .what = "no MPI",
    .open_ms = 20,
    .settle_ms = 20,
    .close_ms = 20,
    .doom_ms = 20,
    .open = kind_open,
    .environment = kind_environment,
    .rank_ended = kind_rank_ended,
    .helper_ended = kind_helper_ended,
    .close = kind_close,
};

static void on_open(void *arg, const struct hb_error *err)
{
    ck_assert_ptr_eq(arg, &job);
    opened++;
    if (err)
        open_error = *err;
}

static void on_settled(void *arg, int slot, enum wireup_end how)
{
    (void)arg;
    (void)slot;
    settled++;
    settled_how = how;
}

static void on_abort(void *arg, const struct wireup_abort *m)
{
    (void)arg;
    aborts++;
    aborted = *m;
    snprintf(abort_text, sizeof(abort_text), "%s", m->text);
}

static void on_closed(void *arg)
{
    (void)arg;
    closed++;
}

static const struct wireup_events events = {on_open, on_settled, on_abort,
                                            on_closed};

static void keep_log(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    if (level == HB_LOG_WARNING)
        snprintf(logged, sizeof(logged), "%s", line);
}

/* The store in hvdrun: the last request. */
static struct relay relay;
static struct rdv_request asked;
static char asked_value[256];
static int asks, cancelled;

static void on_ask(void *arg, const struct rdv_request *m)
{
    (void)arg;
    if (m->op == RDV_CANCEL) {
        cancelled++;
        return;
    }
    asks++;
    asked = *m;
    snprintf(asked_value, sizeof(asked_value), "%.*s", (int)m->len,
             m->len ? (const char *)m->value : "");
}

static struct wireup_config config(void)
{
    return (struct wireup_config){.loop = &loop,
                                  .job = &job,
                                  .relay = &relay,
                                  .log = &test_log,
                                  .events = &events,
                                  .arg = &job};
}

static int open_test_kind(struct hb_error *err)
{
    const struct wireup_config c = config();

    return wireup_open_kind(&w, &c, &kind, err);
}

static void setup(void)
{
    memset(&job, 0, sizeof(job));
    for (int i = 0; i < RANKS; i++)
        ranks[i].rank = 10 + i;
    job.ranks = ranks;
    job.rank_count = RANKS;
    job.spec.wireup = CONTROL_WIREUP_PMIX;
    test_log = (struct hb_log){.level = HB_LOG_INFO, .sink = keep_log};
    relay_init(&relay, &(struct relay_config){.job = &job, .ask = on_ask});
    memset(&asked, 0, sizeof(asked));
    asks = cancelled = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_result = end_result = close_result = WIREUP_NOW;
    opened = closed = settled = closes = ended = helper_ends = aborts = 0;
    open_error = (struct hb_error)HB_ERROR_INIT;
    logged[0] = '\0';
}

static void teardown(void)
{
    wireup_stop(&w);
    while (uv_run(&loop, UV_RUN_DEFAULT))
        ;
    wireup_fini(&w);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    relay_fini(&relay);
    hb_strv_free(&job.host_names);
}

static void run_until(const int *counter)
{
    while (*counter == 0 && uv_run(&loop, UV_RUN_ONCE))
        ;
    ck_assert_int_eq(*counter, 1);
}

static enum wireup_end end_rank(int slot, enum wireup_exit status)
{
    enum wireup_end how;

    ck_assert_int_eq(wireup_rank_ended(&w, slot, status, &how), WIREUP_NOW);
    return how;
}

/* ---- No kind ---- */

START_TEST(test_none)
{
    const struct wireup_config c = config();
    struct hb_error err = HB_ERROR_INIT;
    struct hb_strv env = HB_STRV_INIT;
    int fd;

    job.spec.wireup = CONTROL_WIREUP_NONE;
    ck_assert_int_eq(wireup_open(&w, &c, "/bin/true", &err), WIREUP_NOW);
    wireup_environment(&w, 0, &env);
    ck_assert_uint_eq(env.count, 0);
    ck_assert_int_eq(wireup_descriptor(&w, 0, &fd, &err), 0);
    ck_assert_int_eq(fd, -1);
    wireup_rank_started(&w, 0);
    ck_assert_int_eq(end_rank(0, WIREUP_EXIT_0), WIREUP_GOOD);
    ck_assert_int_eq(wireup_helper_ended(&w, 1, NULL), 0);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_str_eq(logged, "");
}
END_TEST

/* ---- Opening ---- */

START_TEST(test_open_at_once)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_strv env = HB_STRV_INIT;

    ck_assert_int_eq(open_test_kind(&err), WIREUP_NOW);
    wireup_opened(&w, NULL); /* too late to matter */
    ck_assert_int_eq(opened, 0);
    wireup_environment(&w, 2, &env);
    ck_assert_str_eq(env.items[0], "TEST_SLOT=2");
    hb_strv_free(&env);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(closes, 1);
}
END_TEST

START_TEST(test_open_fails)
{
    struct hb_error err = HB_ERROR_INIT;

    open_result = -HVD_ESYSTEM;
    ck_assert_int_eq(open_test_kind(&err), -HVD_ESYSTEM);
    ck_assert_str_eq(err.text, "--wireup test: there is no server");
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(closes, 0);
}
END_TEST

START_TEST(test_open_later)
{
    open_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_LATER);
    wireup_opened(&w, NULL);
    ck_assert_int_eq(opened, 1);
    ck_assert_int_eq(open_error.status, 0);
    wireup_opened(&w, NULL);
    ck_assert_int_eq(opened, 1);
}
END_TEST

/* With --wireup auto the ranks start without it. */
START_TEST(test_open_fails_later)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_strv env = HB_STRV_INIT;

    open_result = WIREUP_LATER;
    job.spec.wireup = CONTROL_WIREUP_AUTO;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_LATER);
    hb_error_set(&err, HVD_ESYSTEM, "there is no library");
    wireup_opened(&w, &err);
    ck_assert_int_eq(opened, 1);
    ck_assert_int_eq(open_error.status, 0);
    ck_assert_ptr_nonnull(strstr(logged, "there is no library"));
    logged[0] = '\0';
    wireup_environment(&w, 0, &env);
    ck_assert_uint_eq(env.count, 0);
    for (int i = 0; i < RANKS; i++)
        ck_assert_int_eq(end_rank(i, WIREUP_EXIT_0), WIREUP_GOOD);
    ck_assert_str_eq(logged, "");
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
}
END_TEST

START_TEST(test_open_too_late)
{
    open_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_LATER);
    run_until(&opened);
    ck_assert_int_eq(open_error.status, -HVD_ETIMEOUT);
    ck_assert_ptr_nonnull(
        strstr(open_error.text, "was not ready after 0.02 s"));
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(closes, 1);
}
END_TEST

/* With --wireup auto the ranks start without it; that its server dies later
 * does not end the job. */
START_TEST(test_optional_open_too_late)
{
    const struct wireup_abort m = {.slot = -1, .text = "died"};

    open_result = WIREUP_LATER;
    job.spec.wireup = CONTROL_WIREUP_AUTO;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_LATER);
    run_until(&opened);
    ck_assert_int_eq(open_error.status, 0);
    ck_assert_ptr_nonnull(strstr(logged, "was not ready after 0.02 s"));
    wireup_abort(&w, &m);
    ck_assert_int_eq(aborts, 0);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(closes, 1);
}
END_TEST

/* An order to end the job comes while the wire-up opens. */
START_TEST(test_close_while_opening)
{
    open_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_LATER);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(closes, 1);
    wireup_opened(&w, NULL);
    ck_assert_int_eq(opened, 0);
}
END_TEST

/* ---- The ends of ranks ---- */

START_TEST(test_singletons_are_named)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_connected(&w, 1);
    wireup_finished(&w, 1);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_str_eq(logged, "");
        ck_assert_int_eq(end_rank(i, WIREUP_EXIT_0), WIREUP_GOOD);
    }
    ck_assert_msg(strstr(logged, "ranks 10 and 12 ended without using "
                                 "--wireup test") != NULL,
                  "%s", logged);
    ck_assert_int_eq(ended, RANKS);
}
END_TEST

/* Ranks that failed by themselves may have found a world of one rank. */
START_TEST(test_failed_singletons_are_named)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    end_rank(0, WIREUP_EXIT_ERROR);
    end_rank(1, WIREUP_EXIT_0);
    end_rank(2, WIREUP_KILLED);
    ck_assert_msg(strstr(logged, "ranks 10 and 11 ended without") != NULL, "%s",
                  logged);
}
END_TEST

/* If MPI finds hvdrun, ranks that failed before MPI_Init are nothing special.
 */
START_TEST(test_failed_ranks_are_no_singletons)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    if (_i == 0)
        wireup_connected(&w, 1);
    end_rank(0, _i == 0 ? WIREUP_EXIT_ERROR : WIREUP_KILLED);
    end_rank(1, WIREUP_KILLED);
    end_rank(2, WIREUP_KILLED);
    ck_assert_str_eq(logged, "");
    ck_assert_ptr_null(w.doomed.text);
}
END_TEST

START_TEST(test_unfinished)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_connected(&w, 0);
    wireup_connected(&w, 1);
    ck_assert_int_eq(end_rank(0, WIREUP_EXIT_0), WIREUP_UNFINISHED);
    ck_assert_int_eq(end_rank(1, WIREUP_EXIT_ERROR),
                     WIREUP_GOOD); /* failed anyway */
}
END_TEST

START_TEST(test_end_is_explained_later)
{
    enum wireup_end how;

    end_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_connected(&w, 0);
    ck_assert_int_eq(wireup_rank_ended(&w, 0, WIREUP_EXIT_0, &how),
                     WIREUP_LATER);
    wireup_finished(&w, 0);
    wireup_settled(&w, 0);
    ck_assert_int_eq(settled, 1);
    ck_assert_int_eq(settled_how, WIREUP_GOOD);
    wireup_settled(&w, 0);
    ck_assert_int_eq(settled, 1);
    ck_assert_int_eq(end_rank(1, WIREUP_EXIT_ERROR), WIREUP_GOOD);
}
END_TEST

START_TEST(test_end_is_never_explained)
{
    enum wireup_end how;

    end_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_connected(&w, 0);
    ck_assert_int_eq(wireup_rank_ended(&w, 0, WIREUP_EXIT_0, &how),
                     WIREUP_LATER);
    run_until(&settled);
    ck_assert_int_eq(settled_how, WIREUP_UNFINISHED);
}
END_TEST

/* ---- Failures ---- */

START_TEST(test_abort)
{
    const struct wireup_abort m = {.slot = 1, .exit_code = 7, .text = "abort"};

    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_abort(&w, &m);
    ck_assert_int_eq(aborts, 1);
    ck_assert_int_eq(aborted.exit_code, 7);
    (void)wireup_close(&w);
    wireup_abort(&w, &m);
    ck_assert_int_eq(aborts, 1);
}
END_TEST

START_TEST(test_doom_ends_a_rank_that_waits)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_connected(&w, 1);
    wireup_connected(&w, 2);
    end_rank(1, WIREUP_EXIT_ERROR);
    wireup_doom(&w, 5, "rank 4: has ended already");
    wireup_doom(&w, 6, "another");
    ck_assert_int_eq(aborts, 0);
    run_until(&aborts);
    ck_assert_int_eq(aborted.slot, 2);
    ck_assert_int_eq(aborted.blames, 5);
    ck_assert_int_eq(aborted.exit_code, 1);
    ck_assert_str_eq(abort_text, "rank 4: has ended already");
}
END_TEST

/* MPI_Init waits for all ranks; one that has ended will not come. */
START_TEST(test_absent_rank_dooms_those_that_wait)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    if (_i == 0)
        wireup_connected(&w, 0);
    end_rank(1, WIREUP_EXIT_0);
    if (_i == 1)
        wireup_connected(&w, 0);
    run_until(&aborts);
    ck_assert_int_eq(aborted.slot, 0);
    ck_assert_int_eq(aborted.blames, 1 + ranks[1].rank);
    ck_assert(strstr(abort_text, "ended without calling MPI_Init"));
}
END_TEST

/* The end of a rank is explained after others have connected. */
START_TEST(test_rank_is_not_absent_before_its_end_is_explained)
{
    enum wireup_end how;

    end_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    ck_assert_int_eq(wireup_rank_ended(&w, 1, WIREUP_EXIT_0, &how),
                     WIREUP_LATER);
    wireup_connected(&w, 0);
    wireup_connected(&w, 1);
    wireup_finished(&w, 1);
    wireup_settled(&w, 1);
    ck_assert_int_eq(settled_how, WIREUP_GOOD);
    ck_assert_ptr_null(w.doomed.text);
}
END_TEST

START_TEST(test_second_program_must_finish)
{
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    wireup_connected(&w, 0);
    wireup_finished(&w, 0);
    wireup_connected(&w, 0);
    ck_assert_int_eq(end_rank(0, WIREUP_EXIT_0), WIREUP_UNFINISHED);
}
END_TEST

/* ---- Several hosts ---- */

static void add_hosts(void)
{
    static char own[] = "n1";

    hb_strv_add(&job.host_names, own);
    hb_strv_add(&job.host_names, "n2");
    job.host = own;
    job.spec.wireup = CONTROL_WIREUP_AUTO;
}

/* What found no server tells the other hosts; what was asked for fails. */
START_TEST(test_host_without_tells_the_others)
{
    struct hb_error err = HB_ERROR_INIT;

    add_hosts();
    open_result = -HVD_ESYSTEM;
    ck_assert_int_eq(open_test_kind(&err), WIREUP_NOW);
    ck_assert_int_eq(asked.op, RDV_PUT);
    ck_assert_str_eq(asked.key, "without.test");
    ck_assert_str_eq(asked_value,
                     "host n1 runs its ranks without --wireup test");
    wireup_stop(&w);
    while (uv_run(&loop, UV_RUN_DEFAULT))
        ;
    wireup_fini(&w);
    job.spec.wireup = CONTROL_WIREUP_PMIX;
    ck_assert_int_eq(open_test_kind(&err), -HVD_ESYSTEM);
}
END_TEST

/* A host that finds no MPI tells those that may find one of either kind; what
 * was asked for is the same on all hosts, and a single host tells nobody. */
START_TEST(test_host_without_mpi_tells_the_others)
{
    char program[] = "/bin/true", *argv[] = {program, NULL};
    char cwd[] = "/";
    struct wireup_config c = config();

    job.argv = (struct hb_strv){.items = argv, .count = 1};
    job.cwd = cwd;
    add_hosts();
    if (_i == 1)
        job.spec.wireup = CONTROL_WIREUP_NONE;
    if (_i == 2)
        hb_strv_free(&job.host_names);
    ck_assert_int_eq(wireup_open(&w, &c, "/bin/true", NULL), WIREUP_NOW);
    ck_assert_int_eq(asks, _i == 0 ? 2 : 0);
    if (_i > 0)
        return;
    ck_assert_int_eq(asked.op, RDV_PUT);
    ck_assert_str_eq(asked.key, "without.pmi1");
    ck_assert_str_eq(asked_value,
                     "host n1 found no MPI in the program: install the same "
                     "program there, or say --wireup pmi1");
}
END_TEST

/* Ranks would wait in MPI_Init for those of a host that goes without. */
START_TEST(test_host_without_dooms_ranks_that_wait)
{
    struct rdv_reply reply = {.value = "host n2 runs alone", .len = 18};

    add_hosts();
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    ck_assert_int_eq(asked.op, RDV_GET);
    ck_assert_int_eq(asked.wait, 1);
    reply.id = asked.id;
    if (_i == 0)
        wireup_connected(&w, 1);
    relay_answer(&relay, &reply);
    ck_assert_int_eq(w.doomed.text != NULL, _i == 0);
    if (_i == 1)
        wireup_connected(&w, 1);
    run_until(&aborts);
    ck_assert_int_eq(aborted.slot, 1);
    ck_assert_int_eq(aborted.blames, 0);
    ck_assert_str_eq(abort_text, "host n2 runs alone");
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(cancelled, 0);
}
END_TEST

START_TEST(test_watch_of_hosts_ends)
{
    add_hosts();
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
    ck_assert_int_eq(cancelled, 1);
}
END_TEST

/* ---- Closing ---- */

START_TEST(test_close_later)
{
    close_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    ck_assert_int_eq(wireup_close(&w), WIREUP_LATER);
    ck_assert_int_eq(wireup_close(&w), WIREUP_LATER);
    ck_assert_int_eq(closes, 1);
    wireup_closed(&w);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(wireup_close(&w), WIREUP_NOW);
}
END_TEST

START_TEST(test_close_too_late_without_helper)
{
    close_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    ck_assert_int_eq(wireup_close(&w), WIREUP_LATER);
    run_until(&closed);
}
END_TEST

static void on_child(uv_process_t *p, int64_t status, int signo)
{
    siginfo_t info = {.si_pid = p->pid};

    (void)status;
    ck_assert_int_eq(signo, SIGKILL);
    ck_assert_int_eq(wireup_helper_ended(&w, p->pid, &info), 1);
    uv_close((uv_handle_t *)p, NULL);
}

START_TEST(test_close_too_late_kills_helper)
{
    char sleep[] = "sleep", time[] = "60", *argv[] = {sleep, time, NULL};
    uv_process_options_t o = {.file = sleep,
                              .args = argv,
                              .exit_cb = on_child,
                              .flags = UV_PROCESS_DETACHED};
    uv_process_t child;

    close_result = WIREUP_LATER;
    ck_assert_int_eq(open_test_kind(NULL), WIREUP_NOW);
    ck_assert_int_eq(uv_spawn(&loop, &child, &o), 0);
    w.helper = child.pid;
    ck_assert_int_eq(wireup_helper_ended(&w, child.pid + 1, NULL), 0);
    ck_assert_int_eq(wireup_close(&w), WIREUP_LATER);
    run_until(&closed);
    ck_assert_int_eq(helper_ends, 1);
    ck_assert_int_eq(w.helper, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("wireup");
    TCase *t = tcase_create("wireup");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_none);
    tcase_add_test(t, test_open_at_once);
    tcase_add_test(t, test_open_fails);
    tcase_add_test(t, test_open_later);
    tcase_add_test(t, test_open_fails_later);
    tcase_add_test(t, test_open_too_late);
    tcase_add_test(t, test_optional_open_too_late);
    tcase_add_test(t, test_close_while_opening);
    tcase_add_test(t, test_singletons_are_named);
    tcase_add_test(t, test_failed_singletons_are_named);
    tcase_add_loop_test(t, test_failed_ranks_are_no_singletons, 0, 2);
    tcase_add_test(t, test_unfinished);
    tcase_add_test(t, test_end_is_explained_later);
    tcase_add_test(t, test_end_is_never_explained);
    tcase_add_test(t, test_abort);
    tcase_add_test(t, test_doom_ends_a_rank_that_waits);
    tcase_add_loop_test(t, test_absent_rank_dooms_those_that_wait, 0, 2);
    tcase_add_test(t, test_rank_is_not_absent_before_its_end_is_explained);
    tcase_add_test(t, test_second_program_must_finish);
    tcase_add_test(t, test_host_without_tells_the_others);
    tcase_add_loop_test(t, test_host_without_mpi_tells_the_others, 0, 3);
    tcase_add_loop_test(t, test_host_without_dooms_ranks_that_wait, 0, 2);
    tcase_add_test(t, test_watch_of_hosts_ends);
    tcase_add_test(t, test_close_later);
    tcase_add_test(t, test_close_too_late_without_helper);
    tcase_add_test(t, test_close_too_late_kills_helper);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
