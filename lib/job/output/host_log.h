/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct host_log: what a host's agent says for the user to read, on its stderr
 * and in LOG messages.  A host could send these without end: at most
 * HOST_LOG_LINES_MAX lines of its stderr are shown, each cut at
 * HOST_LOG_LINE_MAX bytes, and more LOG messages than that are an error.  The
 * two are counted apart, because an ssh client may fill stderr before the agent
 * has said anything.
 */
#ifndef HVD_JOB_HOST_LOG_H
#define HVD_JOB_HOST_LOG_H

#include "lib/base/buf.h"
#include "lib/base/log.h"
#include "lib/protocol/frame.h"

enum { HOST_LOG_LINES_MAX = 1000, HOST_LOG_LINE_MAX = 4 << 10 };

struct host_log {
    const struct hb_log *log;
    const char *name;   /* the host's */
    struct hb_buf part; /* an unfinished line of stderr */
    char *last_words;   /* the agent's last line, or NULL */
    int lines;          /* lines of stderr so far */
    int messages;       /* LOG messages so far */
};

/* Borrows the log and the name. */
void host_log_init(struct host_log *h, const struct hb_log *log,
                   const char *name);
void host_log_fini(struct host_log *h);

/* Takes bytes of the host's stderr, or notes its end. */
void host_log_stderr(struct host_log *h, const char *bytes, size_t len);
void host_log_end(struct host_log *h);

/* Takes a LOG message.  0, or -HVD_EPROTO if it is malformed or one too
 * many. */
int host_log_frame(struct host_log *h, const struct frame *f,
                   struct hb_error *err);

#endif
