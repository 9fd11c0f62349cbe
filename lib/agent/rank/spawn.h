/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a worker: the only place that forks a program.
 *
 * spawn_process clones with CLONE_VM | CLONE_VFORK | CLONE_PIDFD on a stack
 * of the caller's, as posix_spawn does.  That gives three things at once:
 *
 *  - the kernel stores the pidfd before the child's first instruction, so
 *    a program that ends at once cannot be lost: nobody can reap it before
 *    its pidfd is known here;
 *  - the caller waits until the program runs or has failed to, so an exec
 *    error comes back as a stage and an errno, through memory;
 *  - no page tables are copied.
 *
 * The child calls the kernel only: no allocation, no locks, no libc state.
 * In this order: own process group, parent-death signal SIGKILL (and a
 * check that the parent is still there), stdio and the passed descriptor,
 * working directory, limits, affinity, closing of every other descriptor,
 * signals, execve.
 */
#ifndef HVD_AGENT_SPAWN_H
#define HVD_AGENT_SPAWN_H

#include "lib/base/error.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    SPAWN_STACK_BYTES = 32 << 10,
    SPAWN_PASS_FD = 3, /* what pass_fd becomes in the child */
};

enum spawn_stage {
    SPAWN_STAGE_CLONE,
    SPAWN_STAGE_GROUP,
    SPAWN_STAGE_PARENT, /* the parent died meanwhile */
    SPAWN_STAGE_STDIO,
    SPAWN_STAGE_CWD,
    SPAWN_STAGE_LIMIT,
    SPAWN_STAGE_AFFINITY,
    SPAWN_STAGE_EXEC,
};

struct spawn_limit {
    int resource; /* RLIMIT_* */
    struct rlimit limit;
};

struct spawn_options {
    const char *path; /* program, as program_resolve found it */
    /* Executes the program in this descriptor instead; 0: none.  At least 3,
     * and with pass_fd not SPAWN_PASS_FD. */
    int program_fd;
    char *const *argv;
    char *const *envp;         /* complete: nothing is inherited */
    const char *cwd;           /* NULL: the caller's */
    int stdio[3];              /* become 0, 1, 2; each at least 3 */
    int pass_fd;               /* becomes SPAWN_PASS_FD; 0: none */
    const cpu_set_t *affinity; /* NULL: the caller's */
    size_t affinity_bytes;
    const struct spawn_limit *limits;
    size_t limit_count;
    const sigset_t *reset; /* from spawn_signals_to_reset */
};

struct spawn_child {
    pid_t pid;
    int pidfd; /* close-on-exec; caller closes */
};

/* Sets *set to the signals whose disposition is not the default.  The child
 * gets the default for these; all signals are unblocked in it. */
void spawn_signals_to_reset(sigset_t *set);

/*
 * Starts a program.  0 and *child; or a negative status with the errno and a
 * line in err and in *stage (may be NULL) the step that failed: then no process
 * is left and *child is untouched.
 */
int spawn_process(const struct spawn_options *o, struct spawn_child *child,
                  enum spawn_stage *stage, struct hb_error *err);

#endif
