/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report about a job that failed.  Pure: facts in, lines out.  Hosts with
 * the same trouble share a line.
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
#include "lib/hosts/slot_plan.h"
#include "lib/protocol/control/control.h"

enum {
    REPORT_GROUPS_MAX = 4,    /* groups of ranks in one line */
    REPORT_TROUBLES_MAX = 16, /* lines about hosts */
    REPORT_NAMES_MAX = 4,     /* most hosts listed one by one */
};

/* A host that could not be reached, or was lost. */
struct report_trouble {
    int host; /* index in the plan */
    int exit_code;
    uint64_t when_ns; /* our clock */
    char *text;       /* follows "host NAME: " */
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
    int host_first;    /* the cause is troubles[0], not failed[0] */
    const char *cause; /* the line of another cause, or NULL */
    /* 1 + the rank whose leaving or silence made failed[0] fail, and which did
     * not fail itself; 0: none. */
    int left;
    int left_exited; /* its process ended by itself */
    int ended;       /* number of ranks that hvdrun ended */
    int exit_code;
};

/* A rank that the job went on without. */
struct report_lost {
    int rank;
    char *phrase; /* how it was lost */
};

/* Appends "rank 3 on host n2 (pid 4711)"; without the pid if that is 0. */
void report_rank(struct hb_buf *out, const struct plan *plan, int rank,
                 pid_t pid);

/* Appends the report of a death that the job goes on after: one line, and with
 * `tail` the rank's last lines. */
void report_death(struct hb_buf *out, const struct plan *plan,
                  const struct control_exited *m, int tail);

/* Appends the line at the end of a job that went on without ranks:
 * "hvdrun: finished with 6 of 8 ranks; lost: rank 2 (exit code 1), ranks 4, 5
 * (...)".  `finished`: how many exited with 0; `started`: how many there
 * were. */
void report_finish(struct hb_buf *out, const struct plan *plan, int finished,
                   int started, const struct report_lost *lost, size_t count);

/* Appends the report to out; nothing for exit code 0 without failures. */
void report_format(struct hb_buf *out, const struct report *r);

/* Appends "n1, n7" or "n[01-12]". */
void report_hosts(struct hb_buf *out, const char *const *names, size_t count);

/* Appends lines about hosts, each after `prefix`: "host n1: text", or "hosts
 * n1, n7: text" if the texts differ only in the hosts' own names. */
void report_troubles(struct hb_buf *out, const char *prefix,
                     const struct plan *plan,
                     const struct report_trouble *troubles, size_t count);

/* Appends " from pid 812 (slurmstepd)"; nothing if sender is NULL. */
void report_sender(struct hb_buf *out, const char *sender);

#endif
