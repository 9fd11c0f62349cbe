/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How hvdrun reaches an agent: one table of functions per way.
 *
 * A transport gives a byte stream to an agent's stdin and stdout, plus
 * what the agent writes to stderr, on the loop it was opened on.  `local`
 * starts hvd-agent as a child over a socketpair; other ways fill the same
 * struct transport_ops (transport_impl.h) and carry the same bytes.
 *
 * Loop rules (STYLE.md): open never calls back from inside itself; after
 * an error return there is no callback; close is asynchronous and
 * idempotent, and on_close is the last callback.  After transport_close
 * only on_stderr and on_close are called.  Writes are queued;
 * transport_write_queued tells how many bytes wait, so that the caller can
 * bound them.  What the caller must not be flooded with is bounded by the
 * protocol (windows in lib/protocol/control.h), not by pausing the stream.
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
    /* the stream ended: NULL err after an orderly end, else why, as a
     * phrase ("it was killed by signal 9 (SIGKILL)"); no more on_read */
    void (*on_end)(void *arg, const struct hb_error *err);
    /* resources are gone, the agent has ended, the transport was freed */
    void (*on_close)(void *arg);
    /* what is being done to reach the agent, a phrase ("authenticating");
     * may be NULL, and is not called after the first on_read */
    void (*on_stage)(void *arg, const char *stage);
    /* what transport_write queued has all been sent; may be NULL, and is not
     * called for what transport_write sent at once */
    void (*on_drain)(void *arg);
};

struct transport_config {
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *host;       /* name in the plan, for messages; borrowed */
    const char *agent_path; /* hvd-agent */
    struct transport_events events;
    void *arg;
    /* How long after transport_close the agent may take to end before it
     * is killed. */
    int exit_wait_ms;
    /* RLIMIT_NOFILE for the agent and its workers; NULL: this process's. */
    const struct rlimit *nofile;
};

/*
 * A child process as the other end: argv[0] is looked up in PATH unless it
 * has a slash.  What it reads and writes on 0 and 1 is the stream.  0, or
 * negative with err set and nothing left behind.
 */
int transport_open_command(const struct transport_config *config,
                           char *const argv[], struct transport **out,
                           struct hb_error *err);

/* Starts an agent on this machine; as transport_open_command. */
int transport_open_local(const struct transport_config *config,
                         struct transport **out, struct hb_error *err);

/* Queues a copy of the bytes: 0, -HVD_ECLOSED after the end. */
int transport_write(struct transport *t, const void *bytes, size_t len);
size_t transport_write_queued(const struct transport *t);
/* Flushes what is queued, then half-closes: the agent sees end-of-file.
 * on_close follows when the agent has ended. */
void transport_close(struct transport *t);
/* The same, without waiting for what is at the other end: it does not answer.
 * May follow transport_close. */
void transport_cancel(struct transport *t);

#endif
