/* SPDX-License-Identifier: Apache-2.0 */
/* The job's cgroup; see cgroup.h. */
#include "lib/agent/machine/cgroup.h"

#include "lib/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { DEPTH_MAX = 16 };

/* Returns the path of our own cgroup: the line "0::/path" below the mount of
 * version 2, which is not /sys/fs/cgroup where both versions are mounted. */
static char *own_cgroup(const char *root)
{
    static const char *const mounts[] = {"/sys/fs/cgroup",
                                         "/sys/fs/cgroup/unified"};
    char name[PATH_MAX], text[8192], *line;
    ssize_t n;
    int fd;

    snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return NULL;
    line += strspn(line, "\n") + 3;
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s%s%s/cgroup.procs", root, mounts[i],
                 strcmp(line, "/") == 0 ? "" : line);
        if (access(name, W_OK) < 0)
            continue;
        *strrchr(name, '/') = '\0';
        return hb_xstrdup(name);
    }
    return NULL;
}

static int is_delegated(const char *path)
{
    static const char *const names[] = {"user.delegate", "trusted.delegate"};
    struct stat st;
    char value;

    for (int i = 0; i < 2; i++)
        if (getxattr(path, names[i], &value, 1) == 1 && value == '1')
            return 1;
    return geteuid() != 0 && stat(path, &st) == 0 && st.st_uid == geteuid();
}

void cgroup_open(struct cgroup *c, const char *root)
{
    char *own = own_cgroup(root);

    c->path = NULL;
    c->fd = -1;
    if (own && is_delegated(own)) {
        c->path = hb_xasprintf("%s/hvd-%d", own, (int)getpid());
        if (mkdir(c->path, 0755) == 0)
            c->fd = open(c->path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        if (c->fd < 0)
            cgroup_close(c);
    }
    hb_free(own);
}

/* Forks into the cgroup with clone3, because libc's fork cannot choose one.
 * The child needs no repair: the process has one thread, and libc asks the
 * kernel for the thread id where it matters. */
pid_t cgroup_fork(struct cgroup *c)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP,
        .exit_signal = SIGCHLD,
        .cgroup = (unsigned)c->fd,
    };
    pid_t pid = -1;

    if (c->path)
        pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid >= 0)
        return pid;
    cgroup_close(c); /* not permitted, or an old kernel */
    return fork();
}

void cgroup_kill(const struct cgroup *c)
{
    int fd = c->path ? openat(c->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    (void)!write(fd, "1", 1);
    close(fd);
}

/* Removes a cgroup and those below it: a nested job may have left its own. */
static void remove_tree(const char *path, int depth)
{
    DIR *dir = rmdir(path) == 0 || depth == 0 ? NULL : opendir(path);
    struct dirent *e;

    if (!dir)
        return;
    while ((e = readdir(dir))) {
        char *below;

        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        below = hb_xasprintf("%s/%s", path, e->d_name);
        remove_tree(below, depth - 1);
        hb_free(below);
    }
    closedir(dir);
    (void)rmdir(path);
}

void cgroup_close(struct cgroup *c)
{
    if (c->path)
        remove_tree(c->path, DEPTH_MAX);
    if (c->fd >= 0)
        close(c->fd);
    hb_free(c->path);
    c->path = NULL;
    c->fd = -1;
}
