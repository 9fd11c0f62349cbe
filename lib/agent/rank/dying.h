/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that are dying: they will never run their programs again, but their
 * parent cannot reap them yet, because the kernel writes their core or frees
 * their memory, which takes long if there is much of it.
 *
 * /proc/PID/stat tells, of each thread, whether a fatal signal has been
 * delivered to it or it exits (field 9, the kernel's PF_SIGNALED and
 * PF_EXITING), and of the process with what status it ends (field 52).  A
 * kernel that does not tell the status by then makes no process count as dying.
 */
#ifndef HVD_AGENT_DYING_H
#define HVD_AGENT_DYING_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

/* What /proc/PID/stat says of a process, or of one thread. */
struct dying_stat {
    int is_leaving;  /* the thread runs no code of the program any more */
    int wait_status; /* as waitpid(2) will return it; 0: unknown, or exit 0 */
    int64_t ticks;   /* CPU time of all threads, in ticks of the clock */
};

/* Parses the content of /proc/PID/stat, which it changes.  Returns 1, or 0 if
 * it is malformed. */
int dying_parse(char *text, struct dying_stat *s);

/* Returns 1 if the child `pid`, which must not have been reaped, is dying of a
 * signal or with an exit code other than 0, else 0; also if that cannot be
 * found out.  Then fills *info as waitid(2) will, and *cpu_ms with the CPU time
 * used.  CLD_DUMPED stands for a core that is being written. */
int dying_check(pid_t pid, siginfo_t *info, int64_t *cpu_ms);

#endif
