/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks many hosts at once, without a job: the base of `hvdrun ps`, `kill`,
 * `clean` and `doctor`.
 *
 * A survey opens a transport to every host and waits for the agents' HELLO.
 * Then it goes in rounds: the owner asks hosts (survey_ask), the answers come,
 * and when every host has answered or is lost, on_settled lets the owner begin
 * the next round.  A host that fails is a result, with the error and the stage
 * at which it failed; it never ends the survey.
 *
 *     survey_open(&config, &s)      ... on_settled: connected or lost
 *     survey_ask(s, i, question)    ... on_settled: hosts[i].answer
 *     survey_close(s)               ... on_closed; then survey_free
 *
 * Every round has a deadline.  Callbacks come from the loop, never from inside
 * a call.
 */
#ifndef HVD_JOB_SURVEY_H
#define HVD_JOB_SURVEY_H

#include "lib/job/agent_link.h"

#include <jansson.h>

struct survey;

enum survey_state {
    SURVEY_CONNECTING,
    SURVEY_IDLE, /* connected, no question pending */
    SURVEY_ASKED,
    SURVEY_LOST,
};

struct survey_host {
    const char *name;
    enum survey_state state;
    struct agent_link link;
    uint64_t connect_ns; /* from survey_open to HELLO */
    json_t *answer;      /* to the last question; NULL: none */
    uint64_t asked_wall_ns, answered_wall_ns; /* of the last question */
    struct hb_error error;                    /* status 0: not lost */
    struct survey *survey;
};

struct survey_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    struct remote *remote; /* NULL: every host is local */
    const char *agent_path;
    const struct host_entry *entries;
    const unsigned char *is_local; /* [count] */
    size_t count;
    int64_t start_timeout_ms;
    void (*on_settled)(void *arg);
    void (*on_closed)(void *arg);
    /* Handles ROUTE_PORT and ROUTE_RESULT.  0, or negative with err set, which
     * loses the host.  NULL: no such frame is expected. */
    int (*on_frame)(void *arg, size_t host, const struct frame *f,
                    struct hb_error *err);
    /* A host was lost after it had connected; may be NULL. */
    void (*on_lost)(void *arg, size_t host);
    /* Something changed, for a line of progress; may be NULL. */
    void (*on_progress)(void *arg);
    void *arg;
};

struct survey {
    struct survey_config config;
    struct survey_host *hosts; /* [config.count] */
    size_t waiting;            /* hosts that are CONNECTING or ASKED */
    uint64_t began_ns;
    uv_timer_t deadline, settle_timer;
    int open_parts; /* transports and timers */
    int closing, closed_reported;
};

/* Opens the connections.  The config is copied; what it points to must live
 * until on_closed. */
struct survey *survey_open(const struct survey_config *config);

/* Asks a host; does nothing if it is not idle (lost).  The question is
 * borrowed. The first call of a round starts its deadline: timeout_ms. */
void survey_ask(struct survey *s, size_t host, const json_t *question,
                int64_t timeout_ms);

/* Begins, and ends, a round without questions, for messages about routes, which
 * the owner sends by agent_link_send: on_settled comes after timeout_ms or
 * survey_settle. */
void survey_wait(struct survey *s, int64_t timeout_ms);
void survey_settle(struct survey *s);

/* Closes all connections; may be called again. */
void survey_close(struct survey *s);
/* Closes all connections without waiting for the other ends. */
void survey_cancel(struct survey *s);
void survey_free(struct survey *s); /* after on_closed; takes NULL */

#endif
