/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of `hvdrun --http`: a plug-in, as it needs libmicrohttpd, which
 * hvdrun does not need for anything else.
 *
 *     symbol = dlsym(dlopen(path), SERVE_PLUGIN_SYMBOL)
 *     const struct serve_plugin *p = get(SERVE_PLUGIN_ABI);   or NULL
 *     p->open(&config, &serve, &err);
 *     ...
 *     p->close(serve, on_closed, arg);
 *
 * It runs on the loop, without a thread, and wakes up only for its clients.
 * Everything that a client may use is limited: connections, the size of a
 * request, the time without progress, and streams of events.  A client that
 * reads slowly misses events, and delays nobody.
 */
#ifndef HVD_JOB_SERVE_PLUGIN_H
#define HVD_JOB_SERVE_PLUGIN_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/job/serve/serve_request.h"

#include <uv.h>

#define SERVE_PLUGIN_FILE "status-http.so"
#define SERVE_PLUGIN_SYMBOL "serve_plugin"

enum { SERVE_PLUGIN_ABI = 1, SERVE_POLICY_MAX = 256 };

struct serve_reply {
    int status;
    const char *type; /* Content-Type; lives as long as the server */
    char policy[SERVE_POLICY_MAX]; /* Content-Security-Policy */
    struct hb_buf body;            /* freed by the server */
    int is_stream; /* of events, in place of a body: see serve_config.event */
};

struct serve_config {
    uv_loop_t *loop;
    int fd; /* a listening socket, which the server closes; not if open fails */
    /* Fills in *reply, which is zeroed. */
    void (*answer)(void *arg, const struct serve_request *q,
                   struct serve_reply *reply);
    /* Appends the next event of all streams: called every second while there is
     * a stream, and once with is_last when the server closes. */
    void (*event)(void *arg, int is_last, struct hb_buf *out);
    void *arg;
};

struct serve;

struct serve_plugin {
    /* 0, or negative with err set and nothing to close. */
    int (*open)(const struct serve_config *config, struct serve **out,
                struct hb_error *err);
    /* Takes no more requests, lets streams read their last event, for a moment
     * only, then calls `closed` (may be NULL), never from within. */
    void (*close)(struct serve *s, void (*closed)(void *arg), void *arg);
};

/* Returns NULL for another abi. */
typedef const struct serve_plugin *serve_plugin_fn(int abi);
serve_plugin_fn serve_plugin;

#endif
