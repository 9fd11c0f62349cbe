/* SPDX-License-Identifier: Apache-2.0 */
/* Walking /proc and signalling what is found; see tree.h. */
#include "lib/agent/rank/tree.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STOP_ROUNDS_MAX = 16,
    CHAIN_MAX = 4096,
    CHAIN_TRIES = 3,
    MARK_ROUNDS_MAX = 64,
    MARK_WAIT_MS = 2
};

/* Parses "123 (any ) name) S 1 123 ...": the name ends at the last ')'.  The
 * start time is field 22, 19 after the state. */
static int parse_stat(char *text, struct tree_proc *p)
{
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    size_t len;
    int ppid, pgrp;

    if (!open || !close || close < open)
        return 0;
    *close = '\0';
    len = strlen(open + 1);
    if (len >= sizeof(p->name))
        len = sizeof(p->name) - 1;
    memcpy(p->name, open + 1, len);
    p->name[len] = '\0';
    if (sscanf(close + 1,
               " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %lu",
               &p->state, &ppid, &pgrp, &p->start) != 4)
        return 0;
    p->ppid = ppid;
    p->pgrp = pgrp;
    return 1;
}

int tree_stat(pid_t pid, struct tree_proc *p)
{
    char path[40], text[512];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p->pid = pid;
    return parse_stat(text, p);
}

int tree_hides(pid_t pid)
{
    char path[40];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == EPERM;
    close(fd);
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct tree_proc *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct tree_proc *find(const struct tree *t, pid_t pid)
{
    struct tree_proc key = {.pid = pid};

    if (t->count == 0)
        return NULL;
    return bsearch(&key, t->procs, t->count, sizeof(key), by_pid);
}

/* Returns whether /proc is of this pid namespace: the pids in another's would
 * name the wrong processes. */
int tree_can_read(void)
{
    char have[24], want[24];
    ssize_t n = readlink("/proc/self", have, sizeof(have) - 1);

    if (n < 0)
        return 0;
    have[n] = '\0';
    snprintf(want, sizeof(want), "%d", (int)getpid());
    return strcmp(have, want) == 0;
}

int tree_read_all(struct tree *t)
{
    DIR *dir = tree_can_read() ? opendir("/proc") : NULL;
    size_t cap = 0;
    struct dirent *e;

    tree_free(t);
    if (!dir)
        return -HVD_ESYSTEM;
    while ((e = readdir(dir))) {
        struct tree_proc p;
        long pid = 0;

        for (const char *s = e->d_name; *s && pid >= 0; s++)
            pid = *s >= '0' && *s <= '9' ? pid * 10 + *s - '0' : -1;
        if (pid <= 1 || !tree_stat((pid_t)pid, &p))
            continue;
        if (t->count == cap) {
            cap = cap ? cap * 2 : 64;
            t->procs = hb_xrealloc_array(t->procs, cap, sizeof(p));
        }
        t->procs[t->count++] = p;
    }
    closedir(dir);
    if (t->count > 0)
        qsort(t->procs, t->count, sizeof(*t->procs), by_pid);
    return 0;
}

/* Returns whether p descends from `root`.  Takes a bounded number of steps,
 * because reused pids can form a cycle during a long walk. */
static int descends(const struct tree *all, const struct tree_proc *p,
                    pid_t root)
{
    for (size_t steps = 0; p && steps < all->count; steps++) {
        if (p->ppid == root)
            return 1;
        if (p->ppid <= 1)
            return 0;
        p = find(all, p->ppid);
    }
    return 0;
}

int tree_read(pid_t root, struct tree *t)
{
    struct tree all = TREE_INIT;
    int rc = tree_read_all(&all);

    tree_free(t);
    if (rc < 0) {
        tree_free(&all);
        return rc;
    }
    if (all.count > 0)
        t->procs = hb_xcalloc(all.count, sizeof(*t->procs));
    for (size_t i = 0; i < all.count; i++)
        if (descends(&all, &all.procs[i], root))
            t->procs[t->count++] = all.procs[i];
    tree_free(&all);
    return 0;
}

/* Returns 1 if root is at or above pid, else 0; -1 if a process on the way has
 * ended: its child has another parent by now. */
static int climb(pid_t root, pid_t pid)
{
    struct tree_proc p;

    for (int steps = 0; steps < CHAIN_MAX && pid > 1; steps++) {
        if (pid == root)
            return 1;
        if (!tree_stat(pid, &p))
            return steps == 0 ? 0 : -1;
        pid = p.ppid;
    }
    return pid == root;
}

int tree_holds(pid_t root, pid_t pid)
{
    int found = -1;

    for (int i = 0; i < CHAIN_TRIES && found < 0; i++)
        found = climb(root, pid);
    return found > 0;
}

void tree_free(struct tree *t)
{
    hb_free(t->procs);
    t->procs = NULL;
    t->count = 0;
}

/* Signals the process, if its start time is still the same: the pidfd rules out
 * that the pid is reused meanwhile.  Sends SIGCONT only to one that is stopped:
 * it would take away the SIGSTOP with which a debugger or a leak check
 * attaches, and that would wait for ever. */
static int signal_one(const struct tree_proc *p, int signo, siginfo_t *info)
{
    struct tree_proc now;
    int fd, sent = 0;

    if (p->pid <= 1 || p->pid == getpid())
        return 0;
    fd = (int)syscall(SYS_pidfd_open, p->pid, 0u);
    if (fd < 0)
        return 0;
    if (tree_stat(p->pid, &now) && now.start == p->start &&
        (signo != SIGCONT || now.state == 'T'))
        sent = syscall(SYS_pidfd_send_signal, fd, signo, info, 0u) == 0;
    close(fd);
    return sent;
}

int tree_signal_value(const struct tree_proc *p, int signo, int value)
{
    siginfo_t info = {.si_signo = signo, .si_code = SI_QUEUE};

    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = value;
    return signal_one(p, signo, &info);
}

static int member(pid_t group, const pid_t *groups, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (groups[i] == group)
            return 1;
    return 0;
}

size_t tree_signal(const struct tree *t, int signo, const pid_t *skip_groups,
                   size_t group_count)
{
    size_t sent = 0;

    for (size_t i = 0; i < t->count; i++) {
        const struct tree_proc *p = &t->procs[i];

        if (p->state == 'Z' || member(p->pgrp, skip_groups, group_count))
            continue;
        sent += (size_t)signal_one(p, signo, NULL);
    }
    return sent;
}

/* Stops the processes of `now` that are not in `before`; returns how many. */
static size_t stop_new(const struct tree *now, const struct tree *before)
{
    size_t fresh = 0;

    for (size_t i = 0; i < now->count; i++) {
        const struct tree_proc *p = &now->procs[i];
        const struct tree_proc *old = find(before, p->pid);

        if (p->state == 'Z' || (old && old->start == p->start))
            continue;
        fresh++;
        signal_one(p, SIGSTOP, NULL);
    }
    return fresh;
}

size_t tree_kill_round(void)
{
    struct tree before = TREE_INIT, now = TREE_INIT;
    size_t killed;

    for (int round = 0; round < STOP_ROUNDS_MAX; round++) {
        size_t fresh;

        if (tree_read(getpid(), &now) < 0)
            break;
        fresh = stop_new(&now, &before);
        tree_free(&before);
        before = now;
        now = (struct tree)TREE_INIT;
        if (fresh == 0)
            break;
    }
    killed = tree_signal(&before, SIGKILL, NULL, 0);
    tree_free(&before);
    tree_free(&now);
    return killed;
}

/* Returns whether the process's environment has the entry.  Reads item by item,
 * because environments may be longer than any buffer. */
static int has_entry(pid_t pid, const char *entry)
{
    char path[40], *item = NULL;
    size_t size = 0;
    int found = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    f = fopen(path, "re");
    while (f && !found && getdelim(&item, &size, '\0', f) > 0)
        found = strcmp(item, entry) == 0;
    free(item);
    if (f)
        fclose(f);
    return found;
}

/* Returns whether the process or one above it has the entry.  A nested job's
 * processes have entries of their own. */
static int is_marked(const struct tree *t, const struct tree_proc *p,
                     const char *entry)
{
    for (size_t steps = 0; p && steps < t->count; steps++) {
        if (has_entry(p->pid, entry))
            return 1;
        p = find(t, p->ppid);
    }
    return 0;
}

void tree_kill_marked(const char *entry)
{
    const struct timespec wait = {0, MARK_WAIT_MS * 1000000L};
    struct tree t = TREE_INIT;
    unsigned char *marked;
    size_t killed = 1;

    for (int round = 0; killed > 0 && round < MARK_ROUNDS_MAX; round++) {
        if (round > 0)
            nanosleep(&wait, NULL);
        killed = 0;
        if (tree_read(getpid(), &t) < 0)
            break;
        marked = hb_xcalloc(t.count + 1, 1);
        for (size_t i = 0; i < t.count; i++)
            marked[i] =
                t.procs[i].state != 'Z' && is_marked(&t, &t.procs[i], entry);
        for (size_t i = 0; i < t.count; i++)
            if (marked[i])
                killed += (size_t)signal_one(&t.procs[i], SIGKILL, NULL);
        hb_free(marked);
    }
    tree_free(&t);
}

int tree_has_children(void)
{
    siginfo_t info;
    int rc;

    do
        rc = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    while (rc < 0 && errno == EINTR);
    return rc == 0;
}
