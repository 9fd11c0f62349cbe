/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a small program and keeps what it prints, with a limit on its time: for
 * the questions of `hvdrun doctor`.  Blocks.
 */
#ifndef HVD_AGENT_CAPTURE_H
#define HVD_AGENT_CAPTURE_H

#include "lib/base/buf.h"

struct capture {
    char *const *argv; /* argv[0] with a slash */
    char *const *envp;
    const char *cwd; /* NULL: the caller's */
    int timeout_ms;
    int with_stderr;  /* keep stderr too; else it is discarded */
    size_t max_bytes; /* kept at most; the rest is read and discarded */
};

struct capture_result {
    struct hb_buf out; /* heap: hb_buf_free */
    size_t bytes;      /* printed in all */
    double ms;
    int status; /* as in a shell; 124 if it was killed for its time */
};

/* Runs c and fills *result.  0, or -HVD_ESYSTEM if the program could not be
 * started. */
int capture_run(const struct capture *c, struct capture_result *result);

#endif
