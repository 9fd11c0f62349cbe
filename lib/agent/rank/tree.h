/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes below this one: finding and ending them.
 *
 * The caller is a child subreaper (PR_SET_CHILD_SUBREAPER), so whatever a
 * worker does (fork twice, setsid, ignore signals) its processes stay
 * descendants of the caller until they are dead, and "no children left"
 * means that nothing is left.
 *
 * A process is signalled only when, at that moment, its pid still belongs
 * to the process that the walk found: a pidfd is opened, the start time is
 * compared, and the signal goes through the pidfd.  Never pid 1, never the
 * caller, never its ancestors.
 *
 * A walk reads all of /proc: use these when a job ends badly, not before.
 */
#ifndef HVD_AGENT_TREE_H
#define HVD_AGENT_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tree_proc {
    pid_t pid, ppid, pgrp;
    uint64_t start; /* clock ticks since boot */
    char state;     /* R S D T Z ... */
    char name[16];
};

struct tree {
    struct tree_proc *procs; /* in order of pid */
    size_t count;
};

/* clang-format off */
#define TREE_INIT { NULL, 0 }
/* clang-format on */

/* Lists all descendants of root, zombies included.  0, or -HVD_ESYSTEM if /proc
 * cannot be read or is that of another pid namespace. */
int tree_read(pid_t root, struct tree *t);
/* Lists every process except pid 1, of all users; statuses as above. */
int tree_read_all(struct tree *t);
int tree_can_read(void);        /* 1 if tree_read would succeed */
void tree_free(struct tree *t); /* leaves it empty and usable */

/* Signals each process of t that is not a zombie and not a member of one
 * of the process groups given; SIGCONT, only those that are stopped.  Returns
 * how many were signalled. */
size_t tree_signal(const struct tree *t, int signo, const pid_t *skip_groups,
                   size_t group_count);

/* Sends a process a signal with a value (sigqueue(3)); 1, or 0 if it is gone or
 * may not be signalled. */
int tree_signal_value(const struct tree_proc *p, int signo, int value);

/* Kills all descendants of the caller, one round: stops them, repeating the
 * walk until it finds no new ones, so that a program that forks without end
 * cannot escape; then sends SIGKILL to all.  Returns how many live ones there
 * were.  The caller reaps and repeats while tree_has_children. */
size_t tree_kill_round(void);

/* Kills the caller's descendants whose environment holds `entry` (NAME=VALUE),
 * and all below them, until none is left. */
void tree_kill_marked(const char *entry);

/* Returns whether the caller has any child, dead or alive. */
int tree_has_children(void);

/* Returns 1 if pid is root or a descendant of it.  Follows pid's parents, so
 * the cost is the length of that chain.  tree_can_read must hold. */
int tree_holds(pid_t root, pid_t pid);

/* Reads the state of a process into *p: 1, or 0 if it does not exist. */
int tree_stat(pid_t pid, struct tree_proc *p);

/* Returns whether /proc does not show the process `pid`, because it is hidden
 * (hidepid) or does not exist; 0 if it cannot be found out. */
int tree_hides(pid_t pid);

#endif
