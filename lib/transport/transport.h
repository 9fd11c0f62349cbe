/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How hvdrun reaches an agent: each kind of transport has a table of functions.
 *
 * A transport gives a byte stream to an agent's stdin and stdout, and what the
 * agent writes to stderr, on the loop it was opened on.  `local` starts
 * hvd-agent as a child over a socketpair; other kinds implement the same struct
 * transport_ops (transport_impl.h) and carry the same bytes.
 *
 * Loop rules: no callback runs inside transport_open.  If transport_open fails,
 * no callback runs at all.  transport_close is asynchronous and may be called
 * again; on_close is the last callback.  After transport_close only on_stderr
 * and on_close are called.  Writes are queued; transport_write_queued returns
 * how many bytes are, so that the caller can limit them.  Input is limited by
 * the protocol (windows in lib/protocol/control/control.h), not by pausing the
 * stream.
 */
#ifndef HVD_TRANSPORT_H
#define HVD_TRANSPORT_H

#include "lib/base/error.h"
#include "lib/base/log.h"

#include <stddef.h>
#include <sys/resource.h>
#include <uv.h>

struct transport;

struct transport_events {
    /* bytes from the agent; borrowed until the callback returns */
    void (*on_read)(void *arg, const char *bytes, size_t len);
    /* the agent's own stderr (start-up trouble), a chunk */
    void (*on_stderr)(void *arg, const char *bytes, size_t len);
    /* the stream ended: NULL err after an orderly end, else the reason as a
     * phrase ("it was killed by signal 9 (SIGKILL)"), which does not begin with
     * the host's name: the caller adds it; no more on_read */
    void (*on_end)(void *arg, const struct hb_error *err);
    /* the agent has ended, all resources and the transport are freed */
    void (*on_close)(void *arg);
    /* what is being done to reach the agent, a phrase ("authenticating"); may
     * be NULL; not called after the first on_read */
    void (*on_stage)(void *arg, const char *stage);
    /* everything queued by transport_write is sent; may be NULL; not called for
     * bytes that transport_write sent at once */
    void (*on_drain)(void *arg);
    /* an attempt to reach the agent failed, for a reason as on_end's, and will
     * be repeated; may be NULL */
    void (*on_setback)(void *arg, const struct hb_error *why);
};

struct transport_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *host;       /* name in the plan, for messages; borrowed */
    const char *agent_path; /* hvd-agent */
    struct transport_events events;
    void *arg;
    /* After transport_close, the time until the agent is killed. */
    int exit_wait_ms;
    /* RLIMIT_NOFILE for the agent and its workers; NULL: this process's. */
    const struct rlimit *nofile;
};

/*
 * Starts a child process as the other end: its stdin and stdout are the stream.
 * argv[0] is looked up in PATH unless it has a slash.  0, or negative with err
 * set and nothing left behind.
 */
int transport_open_command(const struct transport_config *config,
                           char *const argv[], struct transport **out,
                           struct hb_error *err);

/* Starts an agent on this machine; as transport_open_command. */
int transport_open_local(const struct transport_config *config,
                         struct transport **out, struct hb_error *err);

/* Queues a copy of the bytes: 0, or -HVD_ECLOSED after the end. */
int transport_write(struct transport *t, const void *bytes, size_t len);
size_t transport_write_queued(const struct transport *t);
/* Sends what is queued, then half-closes: the agent sees end-of-file. on_close
 * follows when the agent has ended. */
void transport_close(struct transport *t);
/* Closes as transport_close, without waiting for the other end, which does not
 * answer.  May follow transport_close. */
void transport_cancel(struct transport *t);

#endif
