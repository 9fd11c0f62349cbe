/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hvd-agent answers.  One agent runs a job with a mark of its own; another
 * is asked about it, as by `hvdrun ps` and `kill`.  Every process that is ended
 * here was started here.
 */
#include "tests/unit/agent_util.h"

#include "lib/agent/rank/tree.h"
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/query.h"
#include "tests/unit/unit.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static struct peer asker;
static char id[33];

/* ---- Asking ---- */

static void send_question(struct peer *p, json_t *question)
{
    struct hb_buf frame = HB_BUF_INIT;

    ck_assert_int_eq(query_encode(&frame, CONTROL_QUERY, question), 0);
    json_decref(question);
    peer_send(p, &frame);
    hb_buf_free(&frame);
}

/* Returns the next ANSWER; NULL at end of file. */
static json_t *take_answer(struct peer *p)
{
    char chunk[65536];
    json_t *answer = NULL;
    struct frame f;

    while (frame_decode(&p->in, FRAME_PAYLOAD_MAX, &f, NULL) == 0) {
        struct pollfd ready = {p->fd, POLLIN, 0};
        ssize_t n;

        ck_assert_int_eq(poll(&ready, 1, PEER_WAIT_MS), 1);
        n = read(p->fd, chunk, sizeof(chunk));
        if (n <= 0)
            return NULL;
        hb_buf_append(&p->in, chunk, (size_t)n);
    }
    ck_assert_int_eq(f.type, CONTROL_ANSWER);
    ck_assert_int_eq(query_decode(f.payload, f.len, f.type, &answer, NULL), 0);
    frame_done(&p->in, &f);
    return answer;
}

static json_t *ask(json_t *question)
{
    json_t *answer;

    send_question(&asker, question);
    answer = take_answer(&asker);
    ck_assert_ptr_nonnull(answer);
    return answer;
}

/* Returns this job's entry in an answer to ps, borrowed, or NULL. */
static json_t *job_in(const json_t *answer, const char *which)
{
    json_t *job;
    size_t i;

    json_array_foreach(json_object_get(answer, "jobs"), i,
                       job) if (strcmp(query_string(job, "id"), which) ==
                                0) return job;
    return NULL;
}

static json_t *ps(void)
{
    return ask(json_pack("{s:s}", "what", "ps"));
}

static json_t *end(const char *which, int grace_ms)
{
    json_t *answer = ask(json_pack("{s:s, s:[s], s:i}", "what", "kill", "jobs",
                                   which, "grace_ms", grace_ms));
    json_t *one =
        json_incref(json_array_get(json_object_get(answer, "ended"), 0));

    json_decref(answer);
    ck_assert_str_eq(query_string(one, "id"), which);
    return one;
}

/* ---- Jobs ---- */

static void make_id(char out[33])
{
    unsigned char random[16];

    ck_assert_int_eq(getrandom(random, sizeof(random), 0), sizeof(random));
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(out + 2 * i, 3, "%02x", random[i]);
}

static void run_job(struct peer *p, const char *which, const char *script,
                    int ranks)
{
    struct control_launch m;

    peer_launch_init(&m, script, ranks);
    m.spec.grace_ms = 1000;
    hb_strv_addf(&m.env, "HVD_JOB_ID=%s", which);
    peer_launch(p, &m);
    peer_until(p, CONTROL_STARTED);
}

/* Starts a shell with the job's mark that no agent watches. */
static pid_t run_orphan(const char *which, const char *script)
{
    char mark[64], rank[] = "HVD_RANK=3";
    char *envp[] = {mark, rank, NULL};
    int ready[2];
    pid_t pid;
    char byte;

    snprintf(mark, sizeof(mark), "HVD_JOB_ID=%s", which);
    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(ready[1], 1);
        close(ready[0]);
        close(ready[1]);
        execle("/bin/sh", "sh", "-c", script, (char *)NULL, envp);
        _exit(127);
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void reap(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WIFSIGNALED(status), 1);
}

/* Reaps what an orphan's shell leaves, which becomes this process's child. */
static void reap_all(void)
{
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

static void setup(void)
{
    peer_setup();
    peer_open(&asker);
    make_id(id);
}

static void finish_both(void)
{
    peer_finish(0);
    ck_assert_int_eq(peer_close(&asker), 0);
}

static void finish_asker(int status)
{
    ck_assert_int_eq(peer_close(&asker), status);
    peer_finish(0);
}

/* ---- Tests ---- */

START_TEST(ps_tells_what_runs)
{
    json_t *answer, *job, *procs, *p;
    size_t tops = 0, i;

    run_job(&peer, id, "sleep 1000 & echo x; wait", 2);
    peer_until_output(&peer, 0, "x");
    peer_until_output(&peer, 1, "x");
    answer = ps();
    job = job_in(answer, id);
    ck_assert_ptr_nonnull(job);
    ck_assert_int_eq(query_int(job, "agent", 0), peer.agent);
    ck_assert_int_eq(query_int(job, "guardian", 0), peer.guardian);
    procs = json_object_get(job, "procs");
    ck_assert_uint_eq(json_array_size(procs), 4);
    json_array_foreach(procs, i, p)
    {
        json_int_t rank = query_int(p, "rank", -1);

        ck_assert_int_ge(rank, 0);
        ck_assert_int_lt(rank, 2);
        if (!query_true(p, "top"))
            continue;
        tops++;
        ck_assert_int_eq(query_int(p, "pid", 0), peer.pids[rank]);
        ck_assert_str_eq(query_string(p, "command"),
                         "sh -c sleep 1000 & echo x; wait");
        ck_assert_int_gt(query_int(p, "rss_bytes", 0), 0);
        ck_assert_int_lt(query_int(p, "elapsed_ms", -1), 600000);
    }
    ck_assert_uint_eq(tops, 2);
    json_decref(answer);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    finish_both();
}
END_TEST

START_TEST(kill_asks_the_agent)
{
    json_t *one;

    run_job(&peer, id, "exec sleep 1000", 2);
    one = end(id, 60000);
    ck_assert_int_eq(query_true(one, "found"), 1);
    ck_assert_int_eq(query_true(one, "had_agent"), 1);
    ck_assert_int_eq(query_int(one, "processes", 0), 2);
    ck_assert_int_eq(query_int(one, "left", -1), 0);
    json_decref(one);
    peer_until(&peer, CONTROL_DONE);
    ck_assert_ptr_nonnull(strstr(peer.quitting, "(hvdrun kill)"));
    ck_assert_int_eq(peer.exited_count, 2);
    finish_both();
}
END_TEST

START_TEST(kill_ends_what_ignores_it)
{
    json_t *one;

    run_job(&peer, id, "trap '' TERM; echo x; sleep 1000", 1);
    peer_until_output(&peer, 0, "x");
    kill(peer.agent, SIGSTOP);
    one = end(id, 1);
    ck_assert_int_eq(query_int(one, "left", -1), 0);
    json_decref(one);
    /* The agent may have ended by itself or not: not checked here. */
    while (peer_next(&peer))
        ;
    peer_close(&peer);
    ck_assert_int_eq(peer_close(&asker), 0);
}
END_TEST

START_TEST(kill_leaves_others)
{
    char other[33];
    json_t *one, *answer;

    make_id(other);
    /* echo first: a process that is about to exec has no environment. */
    run_job(&peer, id, "echo x; sleep 1000; :", 1);
    peer_until_output(&peer, 0, "x");
    one = end(other, 1000);
    ck_assert_int_eq(query_true(one, "found"), 0);
    json_decref(one);
    answer = ps();
    ck_assert_ptr_nonnull(job_in(answer, id));
    ck_assert_int_eq(process_lives(peer.pids[0]), 1);
    json_decref(answer);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    finish_both();
}
END_TEST

START_TEST(orphans_are_found_and_ended)
{
    /* The child has no mark of its own. */
    pid_t pid = run_orphan(id, "env -i sleep 1000 & echo x; wait");
    json_t *answer = ps(), *job = job_in(answer, id), *one;

    ck_assert_ptr_nonnull(job);
    ck_assert_int_eq(query_int(job, "agent", -1), 0);
    ck_assert_int_eq(
        query_int(json_array_get(json_object_get(job, "procs"), 0), "rank", -1),
        3);
    json_decref(answer);
    one = end(id, 60000);
    ck_assert_int_eq(query_true(one, "had_agent"), 0);
    ck_assert_int_ge(query_int(one, "processes", 0), 2);
    ck_assert_int_eq(query_int(one, "left", -1), 0);
    json_decref(one);
    reap(pid);
    finish_asker(0);
    reap_all();
}
END_TEST

START_TEST(stubborn_orphans)
{
    pid_t pid = run_orphan(
        id, "trap '' TERM; (trap '' TERM; while :; do sleep 1000; done) & "
            "echo x; while :; do sleep 1000; done");
    json_t *one = end(id, 1);

    ck_assert_int_eq(query_int(one, "left", -1), 0);
    json_decref(one);
    reap(pid);
    finish_asker(0);
    reap_all();
}
END_TEST

/* A dry run: clean itself would end other tests' orphans. */
START_TEST(clean_would_end_orphans_only)
{
    char running[33];
    pid_t pid = run_orphan(id, "echo x; exec sleep 1000");
    json_t *answer, *one;
    size_t i;
    int orphan = 0;

    make_id(running);
    run_job(&peer, running, "sleep 1000", 1);
    answer = ask(json_pack("{s:s, s:b, s:i}", "what", "clean", "dry_run", 1,
                           "grace_ms", 1000));
    json_array_foreach(json_object_get(answer, "ended"), i, one)
    {
        ck_assert_str_ne(query_string(one, "id"), running);
        orphan += strcmp(query_string(one, "id"), id) == 0;
    }
    ck_assert_int_eq(orphan, 1);
    json_decref(answer);
    ck_assert_int_eq(process_lives(pid), 1);
    kill(pid, SIGKILL);
    reap(pid);
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    finish_both();
}
END_TEST

START_TEST(clocks)
{
    uint64_t before = hb_wall_ns();
    json_t *answer = ask(json_pack("{s:s}", "what", "clock"));
    json_int_t there = query_int(answer, "wall_ns", 0);

    ck_assert_int_ge(there, (json_int_t)before);
    ck_assert_int_le(there, (json_int_t)hb_wall_ns());
    json_decref(answer);
    finish_asker(0);
}
END_TEST

START_TEST(doctor)
{
    json_t *answer = ask(json_pack(
        "{s:s, s:[s,s], s:[s], s:s, s:s}", "what", "doctor", "argv", "sh",
        "no-such-file", "names", "localhost", "cwd", "/", "path", "/bin"));

    ck_assert_int_gt(query_int(answer, "cpus", 0), 0);
    ck_assert_int_gt(query_int(answer, "memory_bytes", 0), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(
                          json_object_get(answer, "limits"), "nofile")),
                      2);
    ck_assert_str_ne(query_string(answer, "kernel"), "");
    ck_assert_uint_eq(
        strlen(query_string(json_object_get(answer, "program"), "hash")), 32);
    ck_assert_int_ge((int)json_array_size(json_object_get(
                         json_object_get(answer, "names"), "localhost")),
                     1);
    json_decref(answer);
    finish_asker(0);
}
END_TEST

START_TEST(one_after_the_other)
{
    for (int i = 0; i < 20; i++)
        json_decref(ps());
    finish_asker(0);
}
END_TEST

START_TEST(an_unknown_question)
{
    json_t *answer = ask(json_pack("{s:s}", "what", "weather"));

    ck_assert_str_ne(query_string(answer, "error"), "");
    json_decref(answer);
    answer = ask(json_object());
    ck_assert_str_ne(query_string(answer, "error"), "");
    json_decref(answer);
    finish_asker(0);
}
END_TEST

/* An answer to ps with 20000 processes can be encoded and decoded. */
START_TEST(a_long_answer)
{
    enum { COUNT = 20000 };
    json_t *procs = json_array(), *answer, *got = NULL;
    struct hb_buf frame = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;

    for (int i = 0; i < COUNT; i++)
        json_array_append_new(
            procs, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s}",
                             "pid", i, "ppid", 1, "rank", i, "elapsed_ms", i,
                             "cpu_ms", i, "rss_bytes", i, "state", "S", "name",
                             "sleep", "command", "sleep 1000"));
    answer = json_pack("{s:o}", "procs", procs);
    ck_assert_ptr_nonnull(answer);
    ck_assert_int_eq(query_encode(&frame, CONTROL_ANSWER, answer), 0);
    json_decref(answer);
    ck_assert_int_eq(frame_decode(&frame, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    ck_assert_msg(query_decode(f.payload, f.len, f.type, &got, &err) == 0, "%s",
                  err.text);
    ck_assert_uint_eq(json_array_size(json_object_get(got, "procs")), COUNT);
    json_decref(got);
    got = NULL;
    ck_assert_int_eq(query_decode(f.payload, f.len, CONTROL_QUERY, &got, &err),
                     -HVD_EPROTO);
    ck_assert_str_eq(err.text, "query: more than 65536 values");
    hb_buf_free(&frame);
}
END_TEST

START_TEST(what_is_no_question)
{
    struct hb_buf frame = HB_BUF_INIT;

    frame_encode(&frame, CONTROL_QUERY, "[1", 2);
    peer_send(&asker, &frame);
    hb_buf_free(&frame);
    ck_assert_ptr_null(take_answer(&asker));
    finish_asker(1);
}
END_TEST

/* A second question before the answer ends the conversation. */
START_TEST(two_questions_at_once)
{
    struct hb_buf frames = HB_BUF_INIT;
    json_t *question = json_pack("{s:s}", "what", "ps");

    ck_assert_int_eq(query_encode(&frames, CONTROL_QUERY, question), 0);
    ck_assert_int_eq(query_encode(&frames, CONTROL_QUERY, question), 0);
    json_decref(question);
    peer_send(&asker, &frames);
    hb_buf_free(&frames);
    ck_assert_ptr_null(take_answer(&asker));
    finish_asker(1);
}
END_TEST

START_TEST(no_question_during_a_job)
{
    run_job(&peer, id, "sleep 1000", 1);
    send_question(&peer, json_pack("{s:s}", "what", "ps"));
    while (peer_next(&peer))
        ;
    peer_finish(1);
    ck_assert_int_eq(process_lives(peer.pids[0]), 0);
    ck_assert_int_eq(peer_close(&asker), 0);
}
END_TEST

/* When the asker hangs up, the agent ends and so does its helper, whatever that
 * waits for. */
START_TEST(hanging_up_during_an_answer)
{
    pid_t pid = run_orphan(id, "trap '' TERM; echo x; while :; do sleep 1000; "
                               "done");
    struct tree_proc sleeper;
    json_t *question = json_pack("{s:s, s:[s], s:i}", "what", "kill", "jobs",
                                 id, "grace_ms", 86400000);

    send_question(&asker, question);
    ck_assert_int_eq(peer_close(&asker), 0);
    ck_assert_int_eq(tree_stat(pid, &sleeper), 1);
    kill(pid, SIGKILL);
    reap(pid);
    peer_finish(0);
    /* End the orphan's sleep, if it has been started. */
    tree_kill_round();
    reap_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("query");
    TCase *tc = tcase_create("query");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, peer_teardown);
    tcase_add_test(tc, ps_tells_what_runs);
    tcase_add_test(tc, kill_asks_the_agent);
    tcase_add_test(tc, kill_ends_what_ignores_it);
    tcase_add_test(tc, kill_leaves_others);
    tcase_add_test(tc, orphans_are_found_and_ended);
    tcase_add_test(tc, stubborn_orphans);
    tcase_add_test(tc, clean_would_end_orphans_only);
    tcase_add_test(tc, clocks);
    tcase_add_test(tc, doctor);
    tcase_add_test(tc, one_after_the_other);
    tcase_add_test(tc, an_unknown_question);
    tcase_add_test(tc, what_is_no_question);
    tcase_add_test(tc, two_questions_at_once);
    tcase_add_test(tc, no_question_during_a_job);
    tcase_add_test(tc, hanging_up_during_an_answer);
    suite_add_tcase(s, tc);
    tc = tcase_create("codec");
    tcase_add_test(tc, a_long_answer);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
