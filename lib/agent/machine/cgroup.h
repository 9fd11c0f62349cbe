/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup of its own for the job, where a cgroup v2 subtree is delegated to
 * us: then cgroup.kill ends all its processes at once, whatever they do.
 *
 * Delegated means that our own cgroup carries user.delegate or trusted.delegate
 * (systemd's Delegate=yes) or, when we are not root, that it belongs to us.
 * Otherwise no cgroup is made, and processes are found by walking the
 * descendants (tree.h).
 *
 * The agent is forked into the cgroup, because moving a running process takes a
 * lock that costs some 20 ms.
 */
#ifndef HVD_AGENT_CGROUP_H
#define HVD_AGENT_CGROUP_H

#include <sys/types.h>

struct cgroup {
    char *path; /* NULL: there is no cgroup */
    int fd;
};

/* Makes the cgroup; where that is not possible, c->path is NULL.  `root` is
 * prefixed to /proc and /sys: "" or a fixture. */
void cgroup_open(struct cgroup *c, const char *root);
/* Forks, with the child in the cgroup if there is one.  Returns as fork() does.
 * The caller must be single-threaded. */
pid_t cgroup_fork(struct cgroup *c);
void cgroup_kill(const struct cgroup *c);
/* Removes the cgroup and those below it, which must hold no live process. */
void cgroup_close(struct cgroup *c);

#endif
