/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers QUERY, for the commands that look at hosts or clean them.
 *
 * A forked child computes the answer, because looking around can block (a dead
 * file server, a process that does not die) and the agent must notice when its
 * hvdrun goes: then it ends, and the child with it.  Only {"what":"clock"} is
 * answered at once.
 *
 *     what     takes                        answers
 *     clock                                 wall_ns
 *     ps                                    user, jobs: id, agent, procs
 *     kill     jobs (ids), grace_ms         ended: id, processes, left, ...
 *     drain    job (what its id begins      drained: id, elastic, told
 *              with), within_ms (-1: any)
 *     clean    dry_run, grace_ms            ended, removed: path, what
 *     doctor   program, cwd, path, names    see query_doctor.c
 */
#ifndef HVD_AGENT_QUERY_H
#define HVD_AGENT_QUERY_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

#include <jansson.h>
#include <uv.h>

/* Receives the answer as a frame of type CONTROL_ANSWER. */
typedef void (*query_on_answer)(void *arg, const struct hb_buf *frame);

struct query {
    query_on_answer on_answer;
    void *arg;
    int open;   /* a child works, or its handle is still closing */
    int closed; /* query_close was called: no answer is wanted */
    int fd;     /* pipe from the child; -1 once it is read */
    uv_poll_t poll;
    struct hb_buf in;
};

/* Takes a question and later calls on_answer (for clock: at once).  0, or
 * negative with err set for a malformed question or one before the last was
 * answered.  `q` must be zeroed before the first call. */
int query_ask(struct query *q, uv_loop_t *loop, const void *payload, size_t len,
              query_on_answer on_answer, void *arg, struct hb_error *err);
/* Closes q's handles; the loop must run once more before query_fini. */
void query_close(struct query *q);
void query_fini(struct query *q);

/* ---- query_jobs.c and query_doctor.c ---- */
json_t *query_ps(void);
json_t *query_kill(const json_t *question);
json_t *query_drain(const json_t *question);
json_t *query_clean(const json_t *question);
json_t *query_doctor(const json_t *question);

#endif
