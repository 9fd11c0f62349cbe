/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of remote.h: remote.c has what hosts share, remote_host.c one
 * host's way to its agent, remote_config.c what ssh is told about it,
 * remote_open.c and remote_proxy.c how the stream to its shell is opened,
 * remote_stream.c what happens on it.
 *
 * A host passes through (remote_step):
 *
 *     NEW -> QUEUED_CONFIG -> CONFIG -> QUEUED -> STARTING -> RUNNING
 *
 * CONFIG runs `ssh -G`; STARTING has a stream to a shell, which may still
 * be connecting, with the bootstrap on it.  A stream that was dropped leads
 * to PAUSING and back to QUEUED.  After ENDED, when on_end was called, and
 * CLOSING, after transport_close, only things that close are waited for.
 */
#ifndef HVD_TRANSPORT_REMOTE_IMPL_H
#define HVD_TRANSPORT_REMOTE_IMPL_H

#include "lib/base/strv.h"
#include "lib/transport/bootstrap.h"
#include "lib/transport/child.h"
#include "lib/transport/openssh.h"
#include "lib/transport/remote.h"
#include "lib/transport/ssh2.h"
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
    REMOTE_NEEDS_CONFIG, /* ssh's configuration is to be asked */
    REMOTE_CONFIGURED,   /* or need not be */
    REMOTE_TURN,         /* the queue has reached it */
    REMOTE_DROPPED,      /* the stream ended; it may be tried again */
    REMOTE_RESUMED,      /* the pause is over, or another launcher is next */
    REMOTE_RAN,          /* the agent has said something */
    REMOTE_FAILED,
    REMOTE_CLOSED, /* transport_close */
    REMOTE_EVENTS
};

/* Hosts behind one server, or one jump host. */
struct remote_group {
    char *key;
    int starting; /* of its hosts */
};

struct remote {
    uv_loop_t *loop;
    const struct hb_log *log;
    struct remote_options options;
    struct hb_strv rsh;               /* the template's words */
    const struct ssh2_plugin *plugin; /* NULL: not loaded */
    struct ssh2_shared *shared;
    struct ssh_user user; /* name NULL: not yet asked */
    int plugin_tried, plugin_told;
    struct hb_error plugin_error;
    struct agent_image image;          /* read when first needed */
    struct remote_host *first, **last; /* the queue */
    struct remote_group **groups;
    size_t group_count;
    int configs;          /* `ssh -G` that run */
    int starting;         /* hosts that hold a place */
    uint64_t deadline_ms; /* of uv_now */
    int pumping, pump_again;
};

struct remote_host {
    struct transport base;
    struct remote *remote;
    struct transport_config config;
    char *name, *user; /* user may be NULL */
    int port;
    enum remote_launcher launcher; /* not REMOTE_AUTO */
    enum remote_state state;
    uint64_t state_since_ms;
    struct remote_host *next; /* in the queue */
    int queued;
    struct remote_group *group;
    int has_place; /* counted in remote and group as starting */

    struct transport *ask; /* `ssh -G` */
    struct hb_buf answer;
    struct transport *raw; /* the stream to the shell */
    int raw_is_command;
    struct child *proxy; /* which the stream goes through, or NULL */
    int proxy_exited, proxy_status;
    struct hb_error ended; /* how the stream did, while that is waited for */
    struct ssh_config ssh; /* of the host; not for rsh */
    char marker[BOOTSTRAP_MARKER_BYTES];
    struct bootstrap boot;
    int percent;         /* of the push, as last told */
    struct hb_buf early; /* written before the agent ran */
    int tries;
    struct hb_error last; /* why it was dropped */
    char stage[128];
    uv_timer_t timer, deadline;
    int handles; /* of these, not yet closed */
    int paused;  /* the pause is over, what was dropped is not yet closed */
};

/* Exposed for tests: 0 and *to, or -HVD_EINVAL. */
int remote_step(enum remote_state from, enum remote_event event,
                enum remote_state *to);

/* ---- remote.c ---- */

/* The queue is in order of arrival; a host waits in state QUEUED_CONFIG or
 * QUEUED. */
void remote_enqueue(struct remote_host *h);
void remote_dequeue(struct remote_host *h); /* if it is in it */
/* Lets hosts go whose turn it is. */
void remote_pump(struct remote *r);
void remote_leave(struct remote_host *h); /* gives the place back; pump */
/* Hosts of one key start eight at a time. */
void remote_set_group(struct remote_host *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* NULL and err set where it cannot be read. */
const struct agent_image *remote_image(struct remote *r, struct hb_error *err);

/* Not REMOTE_AUTO: what is tried first. */
enum remote_launcher remote_launcher(const struct remote *r);

/* ---- remote_host.c ---- */

/* 0 when the event means nothing now. */
int remote_host_step(struct remote_host *h, enum remote_event event,
                     const char *cause);
/* Tells the caller, who may close. */
void remote_host_stage(struct remote_host *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void remote_host_turn(struct remote_host *h);
/* After a pause, and what was dropped has closed. */
void remote_host_retry(struct remote_host *h, const struct hb_error *err);
void remote_host_resume(struct remote_host *h);
void remote_host_configured(struct remote_host *h);
void remote_host_fail(struct remote_host *h, const struct hb_error *err);
/* Something of it has closed: goes on, or frees it. */
void remote_host_check_closed(struct remote_host *h);

/* ---- remote_stream.c ---- */

/* Opens the stream and sends the script. */
int remote_start(struct remote_host *h, struct hb_error *err);
/* 1 when another launcher is tried instead. */
int remote_host_falls_back(struct remote_host *h, const struct hb_error *err);
void remote_host_proxy_exited(struct remote_host *h);

/* ---- remote_config.c ---- */

/* Loads the plug-in, once. */
int remote_plugin(struct remote *r, struct hb_error *err);

/* Starts `ssh -G`: 0, and remote_host_configured or _fail follow; 1 where
 * there is no ssh, whose defaults are then taken; negative. */
int remote_ask(struct remote_host *h, struct hb_error *err);
void remote_close_ask(struct remote_host *h); /* if it runs */
/* ---- remote_proxy.c ---- */

/* Where the configuration has ProxyCommand or ProxyJump: starts it, and *fd
 * is a connection through it. */
int remote_open_proxy(struct remote_host *h, int *fd, struct hb_error *err);

/* ---- remote_open.c ---- */

/* What is given for the host goes before what is given for all. */
struct openssh_options remote_ssh_options(const struct remote_host *h);
/* Opens h->ask: `ssh -G`. */
int remote_open_ssh_config(struct remote_host *h,
                           const struct openssh_options *o,
                           const struct transport_events *e,
                           struct hb_error *err);
/* Opens h->raw with these events. */
int remote_open_raw(struct remote_host *h, const struct transport_events *e,
                    struct hb_error *err);
/* Closes h->raw, at once where no agent is at its end. */
void remote_close_raw(struct remote_host *h);
/* Why the stream ended before the agent ran, err as on_end had it. */
void remote_explain(struct remote_host *h, const struct hb_error *ended,
                    struct hb_error *err);
/* The same for one that ended later; err stays clear if that was orderly. */
void remote_explain_lost(struct remote_host *h, const struct hb_error *ended,
                         struct hb_error *err);

#endif
