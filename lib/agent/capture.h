/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a small program and keeping what it prints, with a limit on its
 * time: for the questions of `hvdrun doctor`.  Blocks.
 */
#ifndef HVD_AGENT_CAPTURE_H
#define HVD_AGENT_CAPTURE_H

#include "lib/base/buf.h"

struct capture {
    char *const *argv; /* argv[0] with a slash */
    char *const *envp;
    const char *cwd; /* NULL: the caller's */
    int timeout_ms;
    int with_stderr;  /* kept too; else discarded */
    size_t max_bytes; /* kept at most; the rest is read and discarded */
};

struct capture_result {
    struct hb_buf out; /* hb_buf_free */
    size_t bytes;      /* printed in all */
    double ms;
    int status; /* as a shell has it; 124 when it was ended for its time */
};

/* 0, or -HVD_ESYSTEM when it could not be started. */
int capture_run(const struct capture *c, struct capture_result *result);

#endif
