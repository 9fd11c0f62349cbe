/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of horovod_rdv.h, shared by its own .c files only. */
#ifndef HVD_AGENT_HOROVOD_IMPL_H
#define HVD_AGENT_HOROVOD_IMPL_H

#include "lib/agent/horovod/horovod_rdv.h"
#include "lib/agent/horovod/http.h"
#include "lib/agent/horovod/peer_uid.h"
#include "lib/base/buf.h"

#include <netinet/in.h>

enum {
    HOROVOD_BUCKETS = 256,
    HOROVOD_KEPT_BYTES_MAX = 64 << 20, /* values kept for the ranks */
    HOROVOD_VALUES_MAX = 1 << 16,      /* kept or asked for */
};

struct horovod_conn {
    struct horovod_rdv *server;
    struct horovod_conn *older, *newer;
    int fd, polled;
    uv_poll_t poll; /* only once the socket did not have or take all bytes */
    struct http_request request;
    struct hb_buf in, out;
    uint64_t deadline_ns;
    uint32_t ask;                /* to the store; 0: none */
    struct horovod_value *value; /* that it waits for, or NULL */
    struct horovod_conn *next_waiting;
};

/* A key that ranks of this host have read, or a key N that they wait for. */
struct horovod_value {
    struct horovod_value *next;
    struct horovod_rdv *server;
    struct horovod_conn *waiting; /* until it is known */
    uint32_t ask;                 /* to the store; 0: it is known */
    size_t len;
    void *bytes;
    char scope[RDV_NAME_BYTES], key[RDV_NAME_BYTES];
};

struct horovod_rdv {
    struct horovod_rdv_config config;
    int fd, closed, paused;
    struct sockaddr_in at;
    uv_poll_t poll;
    uv_timer_t timer; /* runs while there are connections */
    struct horovod_conn *oldest, *newest;
    int conn_count, conn_max;
    struct peer_uid peers;
    uint64_t warned_ns;  /* when a stranger was last reported */
    int warnings;        /* of strangers */
    int warned_of_files; /* that no descriptor was free */
    struct horovod_value *values[HOROVOD_BUCKETS];
    int value_count;
    size_t kept_bytes;
    char scratch[64 << 10];
};

/* ---- horovod_rdv.c ---- */

/* Sends the reply and closes the connection when it is sent. */
void horovod_reply(struct horovod_conn *c, int code, const void *body,
                   size_t len);
/* Closes the connection, which tells Horovod's client to try again. */
void horovod_hang_up(struct horovod_conn *c);

/* ---- horovod_store.c ---- */

/* Answers the request of the connection, which has come whole, now or later. */
void horovod_serve(struct horovod_conn *c);
/* Forgets what the connection waits for. */
void horovod_forget(struct horovod_conn *c);
/* Answers a GET that was held for long by 404: the value is not there yet. */
void horovod_hold_over(struct horovod_conn *c);
/* Frees all values; no connection waits for one. */
void horovod_drop_values(struct horovod_rdv *h);

#endif
