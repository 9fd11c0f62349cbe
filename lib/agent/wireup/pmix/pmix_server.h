/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of hvd-pmix: starting the process and exchanging messages
 * with it (lib/protocol/pmix_wire.h).  The process ends when its socket does.
 */
#ifndef HVD_AGENT_WIREUP_PMIX_SERVER_H
#define HVD_AGENT_WIREUP_PMIX_SERVER_H

#include "lib/protocol/pmix_wire.h"

#include <sys/types.h>
#include <uv.h>

enum { PMIX_SERVER_QUEUE_MAX = 64 << 20 }; /* bytes not yet written */

struct pmix_server {
    /* Handles a message; negative with err set ends the conversation. */
    int (*on_frame)(void *arg, const struct frame *f, struct hb_error *err);
    /* The conversation was ended by an error.  Not called for the end of the
     * process. */
    void (*on_error)(void *arg, const struct hb_error *err);
    void *arg;
    int fd; /* -1: closed */
    uv_poll_t poll;
    struct hb_buf in, out;
};

/* Starts hvd-pmix with the environment env; the caller has set the callbacks.
 * 0 and its pid, which is its process group, too; or negative with err set. */
int pmix_server_start(struct pmix_server *s, uv_loop_t *loop, char *const *env,
                      pid_t *pid, struct hb_error *err);
/* Returns the buffer to which a frame is to be appended, before a call of
 * pmix_server_flush. */
struct hb_buf *pmix_server_out(struct pmix_server *s);
void pmix_server_flush(struct pmix_server *s);
/* Handles what has arrived by now. */
void pmix_server_read(struct pmix_server *s);
/* Ends the conversation, and so the process; may be repeated. */
void pmix_server_close(struct pmix_server *s);
/* Frees the buffers; the loop has run empty. */
void pmix_server_fini(struct pmix_server *s);

#endif
