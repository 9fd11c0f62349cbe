/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of remote.h: remote.c has what hosts share, remote_host.c the life
 * of one host, remote_config.c ssh's configuration for it, launchers.c and
 * remote_proxy.c open the stream to its shell, and remote_stream.c handles that
 * stream.
 *
 * A host passes through (remote_step):
 *
 *     NEW -> QUEUED_CONFIG -> CONFIG -> QUEUED -> STARTING -> RUNNING
 *
 * CONFIG runs `ssh -G`; STARTING has a stream to a shell, which may still be
 * connecting, with the bootstrap on it.  A dropped stream leads to PAUSING and
 * back to QUEUED.  In ENDED (on_end was called) and CLOSING (after
 * transport_close) the host only waits for handles to close.
 */
#ifndef HVD_TRANSPORT_REMOTE_IMPL_H
#define HVD_TRANSPORT_REMOTE_IMPL_H

#include "lib/base/strv.h"
#include "lib/remote/bootstrap.h"
#include "lib/remote/remote.h"
#include "lib/ssh/openssh.h"
#include "lib/ssh/ssh2.h"
#include "lib/transport/child.h"
#include "lib/transport/transport_impl.h"

enum remote_state {
    REMOTE_NEW,
    REMOTE_QUEUED_CONFIG,
    REMOTE_CONFIG,
    REMOTE_QUEUED,
    REMOTE_STARTING,
    REMOTE_PAUSING,
    REMOTE_RUNNING,
    REMOTE_ENDED,
    REMOTE_CLOSING,
    REMOTE_STATES
};

enum remote_event {
    REMOTE_NEEDS_CONFIG, /* ssh's configuration must be read */
    REMOTE_CONFIGURED,   /* it was read, or is not needed */
    REMOTE_TURN,         /* it is the host's turn in the queue */
    REMOTE_DROPPED,      /* the stream ended, and may be tried again */
    REMOTE_RESUMED,      /* the pause is over, or the next launcher is tried */
    REMOTE_RAN,          /* the agent's first byte has come */
    REMOTE_FAILED,
    REMOTE_CLOSED, /* transport_close */
    REMOTE_EVENTS
};

/* Hosts behind the same server or jump host. */
struct remote_group {
    char *key;
    int starting; /* how many of them hold a place */
};

struct remote {
    uv_loop_t *loop;
    const struct hb_log *log;
    struct remote_options options;
    struct hb_strv rsh;               /* the template's words */
    const struct ssh2_plugin *plugin; /* NULL: not loaded */
    struct ssh2_shared *shared;
    struct ssh_user user; /* name NULL: not read yet */
    int plugin_tried, plugin_logged;
    struct hb_error plugin_error;
    struct agent_image image;          /* read when first needed */
    struct remote_host *first, **last; /* the queue */
    struct remote_group **groups;
    size_t group_count;
    int configs;          /* running `ssh -G` */
    int starting;         /* hosts that hold a place */
    int unready;          /* hosts that may still need a key, and holds_keys */
    int holds_keys;       /* until remote_release_keys */
    uint64_t deadline_ms; /* by uv_now */
    int pumping, pump_again;
};

struct remote_host {
    struct transport base;
    struct remote *remote;
    struct transport_config config;
    char *name, *user; /* user may be NULL */
    int port;
    const struct launcher *launcher; /* in use now */
    enum remote_state state;
    uint64_t state_since_ms;
    struct remote_host *next; /* in the queue */
    int queued;
    struct remote_group *group;
    int has_place; /* counted in remote and group as starting */

    struct transport *ask; /* `ssh -G` */
    struct hb_buf answer;
    struct transport *raw; /* the stream to the shell */
    struct child *proxy;   /* the stream's proxy, or NULL */
    int proxy_exited, proxy_status;
    /* how the stream ended, while the proxy may still explain it */
    struct hb_error ended;
    struct ssh_config ssh; /* of the host; not for rsh */
    char marker[BOOTSTRAP_MARKER_BYTES];
    struct bootstrap boot;
    int percent;         /* of the push, as last reported */
    struct hb_buf early; /* written before the agent ran */
    int tries;
    struct hb_error last; /* why the last attempt failed */
    char stage[128];
    uv_timer_t timer, deadline;
    int handles; /* how many of these two are open */
    int paused;  /* the pause is over, but the old stream is not yet closed */
};

/* Sets *to and returns 0, or -HVD_EINVAL if there is no such step; for
 * tests. */
int remote_step(enum remote_state from, enum remote_event event,
                enum remote_state *to);

/* ---- remote.c ---- */

/* Appends h, in state QUEUED_CONFIG or QUEUED, to the queue. */
void remote_enqueue(struct remote_host *h);
void remote_dequeue(struct remote_host *h); /* if it is queued */
/* Starts hosts whose turn it is. */
void remote_pump(struct remote *r);
void remote_leave(struct remote_host *h); /* gives the place back; then pump */
/* Puts h into the group with this key, of which eight start at a time. */
void remote_set_group(struct remote_host *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Notes that a host needs no key any more.  After the last one, the keys are
 * wiped: they are not needed for the hours that the job may take. */
void remote_ready(struct remote *r);
/* Reads the agent's image if needed.  NULL with err set if that fails. */
const struct agent_image *remote_image(struct remote *r, struct hb_error *err);

/* ---- remote_host.c ---- */

/* Runs the state machine; 0 if the event does nothing in this state. */
int remote_host_step(struct remote_host *h, enum remote_event event,
                     const char *cause);
/* Reports a stage to the caller, who may close the transport. */
void remote_host_stage(struct remote_host *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void remote_host_turn(struct remote_host *h);
/* Closes the stream and queues the host again after a pause. */
void remote_host_retry(struct remote_host *h, const struct hb_error *err);
void remote_host_resume(struct remote_host *h);
void remote_host_configured(struct remote_host *h);
void remote_host_fail(struct remote_host *h, const struct hb_error *err);
/* Continues, or frees h; to be called when a part of h has closed. */
void remote_host_check_closed(struct remote_host *h);

/* ---- remote_stream.c ---- */

/* Opens the stream and sends the script. */
int remote_start(struct remote_host *h, struct hb_error *err);
void remote_host_proxy_exited(struct remote_host *h);

/* ---- remote_config.c ---- */

/* Loads the plug-in, once. */
int remote_plugin(struct remote *r, struct hb_error *err);

/* Starts `ssh -G`.  0: remote_host_configured or _fail follow.  1: there is no
 * ssh program, and its defaults are used.  Negative with err set. */
int remote_ask(struct remote_host *h, struct hb_error *err);
void remote_close_ask(struct remote_host *h); /* if it is running */
/* ---- remote_proxy.c ---- */

/* Starts the ProxyCommand or ProxyJump, if one is configured; *fd is then a
 * connection through it. */
int remote_open_proxy(struct remote_host *h, int *fd, struct hb_error *err);

/* ---- launchers.c ---- */

/* Returns the host's options for ssh, which override those for all hosts. */
struct openssh_options remote_ssh_options(const struct remote_host *h);
/* Opens h->ask: `ssh -G`. */
int remote_open_ssh_config(struct remote_host *h,
                           const struct openssh_options *o,
                           const struct transport_events *e,
                           struct hb_error *err);
/* Closes h->raw, at once unless an agent is at the other end. */
void remote_close_raw(struct remote_host *h);
/* Explains why the stream ended before the agent ran; `ended` is on_end's
 * err. */
void remote_explain(struct remote_host *h, const struct hb_error *ended,
                    struct hb_error *err);
/* Explains why a stream ended after the agent ran; err stays clear if it ended
 * orderly. */
void remote_explain_lost(struct remote_host *h, const struct hb_error *ended,
                         struct hb_error *err);

#endif
