/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exit causes: why a rank ended, as far as this host can tell, from its exit
 * status, the signals that hvdrun itself sent, the out-of-memory killer's
 * counters and full file systems.
 *
 * cause_init notes the counters when the job starts (two or three small reads);
 * everything else is looked up only when a rank has failed.
 */
#ifndef HVD_AGENT_CAUSE_H
#define HVD_AGENT_CAUSE_H

#include "lib/protocol/control/control.h"

#include <signal.h>
#include <sys/resource.h>

struct cause {
    char *root;            /* "" or a fixture's directory */
    char *dir;             /* memory cgroup, "" when there is none */
    int version;           /* of that cgroup: 1 or 2 */
    uint64_t cgroup_kills; /* oom kills already attributed to a death */
    uint64_t host_kills;
    int kmsg_fd; /* at the end of the kernel's log, or -1 */
};

struct cause_facts {
    pid_t pid;
    const siginfo_t *info; /* from waitid */
    uint64_t sent;         /* bit n: hvdrun sent signal n */
    int ending;            /* TERM or KILL by hvdrun had begun */
    struct rlimit cpu;     /* RLIMIT_CPU when it died */
    int64_t cpu_ms;        /* CPU time that it had used */
    const char *cwd, *tmpdir, *tail;
};

/* Notes the counters.  `root` is prefixed to /proc, /sys and /dev: "" or a
 * fixture. */
void cause_init(struct cause *c, const char *root);
void cause_fini(struct cause *c);

/* Finds the exit cause: sets exit_code, signal, core_dumped, cause and detail
 * (a heap string) of *out. */
void cause_explain(struct cause *c, const struct cause_facts *f,
                   struct control_exited *out);

#endif
