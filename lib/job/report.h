/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hvdrun says about a job that failed.  Pure: facts in, lines out.
 *
 *     hvdrun: rank 1 on host a (pid 4711) failed: killed by signal 11
 *     (SIGSEGV), core dumped
 *     hvdrun: last lines of rank 1's stderr:
 *       ...
 *     hvdrun: ranks 2-3 failed too: exit code 1
 *     hvdrun: ended the other 3 ranks; exit code 139
 */
#ifndef HVD_JOB_REPORT_H
#define HVD_JOB_REPORT_H

#include "lib/base/buf.h"
#include "lib/hosts/plan.h"
#include "lib/protocol/control.h"

enum { REPORT_TAIL_LINES = 10, REPORT_GROUPS_MAX = 4 };

struct report {
    const struct plan *plan;
    /* Ranks that failed by themselves, in order; the first is the cause of
     * the job's end unless `cause` is set. */
    const struct control_exited *failed;
    size_t failed_count;
    const char *cause; /* a line when no rank was the cause; or NULL */
    int ended;         /* ranks that hvdrun ended */
    int exit_code;
};

/* Appends lines to out; nothing for exit code 0 without failures. */
void report_format(struct hb_buf *out, const struct report *r);

/* "exit code 7", "killed by signal 9 (SIGKILL): out of memory: ..." */
void report_phrase(struct hb_buf *out, const struct control_exited *e);

/* "SIGTERM"; "signal 40" style names for those without one. */
void report_signal_name(struct hb_buf *out, int signo);

/* " from pid 812 (slurmstepd)"; nothing for NULL. */
void report_sender(struct hb_buf *out, const char *sender);

#endif
