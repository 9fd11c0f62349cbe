/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a rank ended, as far as this host can tell: its exit status, whether
 * hvdrun itself sent the signal, the out-of-memory killer's counters, full
 * file systems.
 *
 * cause_init notes the counters when the job starts (two or three small
 * reads); everything else is looked up only when a rank has failed.
 */
#ifndef HVD_AGENT_CAUSE_H
#define HVD_AGENT_CAUSE_H

#include "lib/protocol/control.h"

#include <signal.h>
#include <sys/resource.h>

struct cause {
    char *root;            /* "" or a fixture's directory */
    char *dir;             /* memory cgroup, "" when there is none */
    int version;           /* of that cgroup: 1 or 2 */
    uint64_t cgroup_kills; /* counters already accounted for */
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

/* `root` is prefixed to /proc, /sys and /dev: "" or a fixture. */
void cause_init(struct cause *c, const char *root);
void cause_fini(struct cause *c);

/* Fills exit_code, signal, core_dumped, cause and detail (a heap string) of
 * *out. */
void cause_explain(struct cause *c, const struct cause_facts *f,
                   struct control_exited *out);

/* "killed by signal 9 (SIGKILL)" or "exited with code 3"; detail, when not
 * empty, follows after a colon. */
char *cause_phrase(const struct control_exited *m);

/* "SIGKILL"; "signal 40" for the others. */
const char *cause_signal_name(int signo, char text[16]);

#endif
