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

/* All descendants of root, zombies included.  0 or -HVD_ESYSTEM when /proc
 * cannot be read or is that of another pid namespace. */
int tree_read(pid_t root, struct tree *t);
/* Every process but pid 1, of all users. */
int tree_read_all(struct tree *t);
int tree_can_read(void);        /* whether that would not fail */
void tree_free(struct tree *t); /* leaves it empty and usable */

/* Signals each process of t that is not a zombie and not a member of one
 * of the process groups given.  Returns how many were signalled. */
size_t tree_signal(const struct tree *t, int signo, const pid_t *skip_groups,
                   size_t group_count);

/*
 * One round of killing all descendants of the caller: they are stopped
 * and the walk is repeated until it finds nobody new, so that a program
 * that forks without end cannot run away; then all get SIGKILL.  Returns
 * how many live ones there were.  The caller reaps and repeats until
 * tree_has_children says no.
 */
size_t tree_kill_round(void);

/* Kills those descendants of the caller whose environment holds `entry`
 * (NAME=VALUE), and all below them, until there is none. */
void tree_kill_marked(const char *entry);

/* Whether the caller has any child, dead or alive. */
int tree_has_children(void);

/* 1 and *p for a process that exists. */
int tree_stat(pid_t pid, struct tree_proc *p);

#endif
