/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hvdrun says about a job that failed.  Pure: facts in, lines out.
 * Hosts with the same trouble share a line.
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

enum {
    REPORT_TAIL_LINES = 10,
    REPORT_GROUPS_MAX = 4,    /* of ranks, in one line */
    REPORT_TROUBLES_MAX = 16, /* lines about hosts */
    REPORT_NAMES_MAX = 4,     /* hosts listed one by one; else folded */
};

/* A host that could not be reached, or was lost. */
struct report_trouble {
    int host; /* index in the plan */
    int exit_code;
    uint64_t when_ns; /* our clock */
    char *text;       /* after "host NAME: " */
    int takes_ranks;  /* its ranks end with it */
};

struct report {
    const struct plan *plan;
    /* Ranks that failed by themselves, in order; the first is the cause of
     * the job's end unless `cause` is set. */
    const struct control_exited *failed;
    size_t failed_count;
    const struct report_trouble *troubles; /* in order */
    size_t trouble_count;
    int host_first;    /* the first trouble came before the first failure */
    const char *cause; /* a line when none of these was it; or NULL */
    int ended;         /* ranks that hvdrun ended */
    int exit_code;
};

/* Appends lines to out; nothing for exit code 0 without failures. */
void report_format(struct hb_buf *out, const struct report *r);

/* "n1, n7", "n[01-12]" */
void report_hosts(struct hb_buf *out, const char *const *names, size_t count);

/* Lines about hosts, each after `prefix`: "host n1: text", or "hosts n1, n7:
 * text" for those whose texts differ in nothing but their own names. */
void report_troubles(struct hb_buf *out, const char *prefix,
                     const struct plan *plan,
                     const struct report_trouble *troubles, size_t count);

/* "exit code 7", "killed by signal 9 (SIGKILL): out of memory: ..." */
void report_phrase(struct hb_buf *out, const struct control_exited *e);

/* "SIGTERM"; "signal 40" style names for those without one. */
void report_signal_name(struct hb_buf *out, int signo);

/* " from pid 812 (slurmstepd)"; nothing for NULL. */
void report_sender(struct hb_buf *out, const char *sender);

#endif
