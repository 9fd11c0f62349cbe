/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup of its own for the job, where a cgroup v2 subtree is delegated
 * to us: then cgroup.kill ends everything in one stroke, whatever it does.
 *
 * Delegated means that our own cgroup carries user.delegate or
 * trusted.delegate (systemd's Delegate=yes) or, when we are not root, that
 * it belongs to us.  Anywhere else nothing is touched and the walk over
 * the descendants (tree.h) has to do.
 *
 * The agent is born in the cgroup: moving a process that lives takes a
 * lock that costs some 20 ms.
 */
#ifndef HVD_AGENT_CGROUP_H
#define HVD_AGENT_CGROUP_H

#include <sys/types.h>

struct cgroup {
    char *path; /* NULL: none */
    int fd;
};

/* `root` is prefixed to /proc and /sys: "" or a fixture. */
void cgroup_open(struct cgroup *c, const char *root);
/* fork(), with the child in the cgroup if there is one.  The caller has
 * one thread. */
pid_t cgroup_fork(struct cgroup *c);
void cgroup_kill(const struct cgroup *c);
/* Removes it, with what is below it; it must hold no live process. */
void cgroup_close(struct cgroup *c);

#endif
