/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking many hosts at once, without a job: what `hvdrun ps`, `kill`,
 * `clean` and `doctor` are made of.
 *
 * A survey opens a transport to every host and waits for the agents'
 * HELLO.  Then it goes in rounds: the owner asks hosts (survey_ask), the
 * answers come, and when every host has answered or is lost, on_settled
 * asks the owner for what is next.  A host that fails is a finding, with
 * the stage at which it failed and the error; it never ends the survey.
 *
 *     survey_open(&config, &s)      ... on_settled: connected or lost
 *     survey_ask(s, i, question)    ... on_settled: hosts[i].answer
 *     survey_close(s)               ... on_closed; then survey_free
 *
 * Every round has a deadline.  Callbacks come from the loop, never from
 * inside a call.
 */
#ifndef HVD_JOB_SURVEY_H
#define HVD_JOB_SURVEY_H

#include "lib/base/buf.h"
#include "lib/hosts/hostlist.h"
#include "lib/protocol/control.h"
#include "lib/transport/transport.h"

#include <jansson.h>

struct remote;
struct survey;

enum survey_state {
    SURVEY_CONNECTING,
    SURVEY_IDLE, /* its agent listens */
    SURVEY_ASKED,
    SURVEY_LOST,
};

struct survey_host {
    const char *name;
    enum survey_state state;
    char *stage;         /* the last thing done to reach it; "" */
    uint64_t connect_ns; /* from the beginning to HELLO */
    struct control_hello hello;
    json_t *answer; /* to the last question; NULL: none */
    uint64_t asked_wall_ns, answered_wall_ns; /* of that, by our clock */
    struct hb_error error;                    /* status 0: not lost */

    /* the survey's own */
    struct survey *survey;
    struct transport *transport;
    struct hb_buf in, complaint;
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
    /* A frame that is neither HELLO, LOG nor ANSWER: 0, or negative with
     * err set, which loses the host.  NULL: no such frame is expected. */
    int (*on_frame)(void *arg, size_t host, const struct frame *f,
                    struct hb_error *err);
    /* A host is lost after it had connected; may be NULL. */
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
    uv_timer_t deadline, settle;
    int open_parts; /* transports and timers */
    int closing, told;
};

/* The config is copied; what it points to must live until on_closed. */
struct survey *survey_open(const struct survey_config *config);

/* Asks an idle host; the question is borrowed.  For one that is lost, does
 * nothing.  The first call of a round starts its clock: timeout_ms. */
void survey_ask(struct survey *s, size_t host, const json_t *question,
                int64_t timeout_ms);

/* Sends a frame of another protocol to an idle host; -HVD_ECLOSED when it is
 * lost. */
int survey_send(struct survey *s, size_t host, const struct hb_buf *frame);

/* A round without questions, for such protocols: on_settled after
 * timeout_ms, or after survey_settle. */
void survey_wait(struct survey *s, int64_t timeout_ms);
void survey_settle(struct survey *s);

/* Hangs up everywhere.  Idempotent. */
void survey_close(struct survey *s);
void survey_free(struct survey *s); /* after on_closed; takes NULL */

#endif
