/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvdrun's connection to the agent on one host, for jobs and surveys.
 *
 *     agent_link_open(&link, &config, &err)   ... on_hello, then the handlers
 *     agent_link_send(&link, frame)
 *     agent_link_close(&link)                 ... on_closed; agent_link_free
 *
 * The first message must be HELLO of the same version.  HELLO and LOG are
 * handled here, the others by the owner's table.  What the agent says for the
 * user goes to the log (host_log.h).
 *
 * on_lost is called when the connection has ended or the agent has violated the
 * protocol: its stream cannot be trusted any more, and the owner must close it.
 * After agent_link_close only on_closed is called; before it on_handled once,
 * if a callback has closed the connection while bytes are handled.  No callback
 * runs inside a call.
 */
#ifndef HVD_JOB_AGENT_LINK_H
#define HVD_JOB_AGENT_LINK_H

#include "lib/base/buf.h"
#include "lib/hosts/hostlist.h"
#include "lib/job/output/host_log.h"
#include "lib/protocol/control/control.h"
#include "lib/transport/transport.h"

struct remote;

enum agent_phase {
    AGENT_CONNECTING, /* no HELLO yet */
    AGENT_GREETED,
    AGENT_LAUNCHED, /* set by the owner: LAUNCH was sent */
};

enum agent_loss {
    AGENT_ENDED,  /* its connection ended in an orderly way */
    AGENT_FAILED, /* the transport failed */
    AGENT_BROKE,  /* the agent has violated the protocol */
};

enum { AGENT_MESSAGES = 32 }; /* types of messages to hvdrun are below */

struct agent_message {
    enum agent_phase since; /* the first phase in which it may come */
    /* 0, or negative with err set for a violation of the protocol */
    int (*handle)(void *arg, const struct frame *f, struct hb_error *err);
};

struct agent_events {
    const struct agent_message *messages; /* [AGENT_MESSAGES] by type */
    int (*on_hello)(void *arg, struct hb_error *err); /* see link->hello */
    void (*on_lost)(void *arg, enum agent_loss how, const struct hb_error *why);
    void (*on_closed)(void *arg);
    /* Called before and after received bytes are handled; may be NULL. */
    void (*on_heard)(void *arg);
    void (*on_handled)(void *arg);
};

struct agent_link_config {
    struct transport_config transport; /* without host, events and arg */
    int is_local;          /* the agent is started on this machine */
    struct remote *remote; /* reaches a host that is not local */
    const struct host_entry *entry;
    const struct agent_events *events;
    void *arg; /* of all callbacks */
};

struct agent_link {
    enum agent_phase phase;
    /* Set before on_hello; the owner may free it earlier than the link does. */
    struct control_hello hello;
    /* Empty after HELLO. */
    char stage[96];          /* current step of connecting; "": none yet */
    struct hb_error setback; /* the last attempt's; status 0: none */
    struct host_log words;   /* the agent's lines for the user */
    int closing;             /* nothing is sent or handled any more */

    /* the link's own fields */
    const struct agent_events *events;
    void *arg;
    struct transport *transport; /* NULL after its on_close */
    struct hb_buf in;            /* bytes of an incomplete frame */
};

/* Opens a connection; `link` is the caller's memory.  0, or negative with err
 * set, and no callback follows; agent_link_free is to be called in both
 * cases. */
int agent_link_open(struct agent_link *link,
                    const struct agent_link_config *config,
                    struct hb_error *err);
/* Queues a frame; -HVD_ECLOSED if the connection is closing or closed. */
int agent_link_send(struct agent_link *link, const struct hb_buf *frame);
/* Returns how many bytes are queued; 0 if the connection is not open. */
size_t agent_link_queued(const struct agent_link *link);
/* Closes the connection; may be called again. */
void agent_link_close(struct agent_link *link);
/* Closes the connection without waiting for its other end. */
void agent_link_cancel(struct agent_link *link);
/* Frees the contents; on_closed has been called, or the connection was never
 * open. */
void agent_link_free(struct agent_link *link);

/* Returns how far connecting has come, for the end of a line (heap): "; last
 * attempt: " and why it failed, "; last: " and the current step, or "". */
char *agent_link_last(const struct agent_link *link);

#endif
