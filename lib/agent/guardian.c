/* SPDX-License-Identifier: Apache-2.0 */
/* The guardian's loop; see guardian.h. */
#include "lib/agent/guardian.h"

#include "lib/agent/rank/tree.h"
#include "lib/agent/trace_dir.h"
#include "lib/agent/wireup/wireup_dir.h"

#include "lib/base/sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REAP_WAIT_MS = 5 };

struct guardian_shared *guardian_share(void)
{
    struct guardian_shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        return NULL;
    atomic_init(&s->grace_ms, GUARDIAN_GRACE_MS);
    atomic_init(&s->silence_ms, 0);
    return s;
}

static int ms_until(uint64_t deadline_ns)
{
    uint64_t now = hb_now_ns(), ms;

    if (deadline_ns == 0)
        return -1;
    if (now >= deadline_ns)
        return 0;
    ms = (deadline_ns - now) / 1000000 + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* ---- Watching ---- */

struct watch {
    pid_t agent;
    int pidfd;
    const struct guardian_shared *shared;
    /* pidfd of the agent, hvdrun's connection, SIGCHLD */
    struct pollfd fds[3];
    /* when to kill the agent after a hang-up; 0: never */
    uint64_t hangup_kill_ns;
    uint64_t stop_kill_ns;
    uint32_t silence_ms; /* the limit in force when it was stopped */
    const char *stop_name;
};

/* Prints to stderr, unless that would block. */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *fmt, ...)
{
    struct pollfd out = {2, POLLOUT, 0};
    va_list ap;

    if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT))
        return;
    va_start(ap, fmt);
    vdprintf(2, fmt, ap);
    va_end(ap);
}

/* Reports on stderr that the agent was stopped, or runs again: a stopped agent
 * cannot speak for itself. */
static void look_at_stop(struct watch *w)
{
    struct signalfd_siginfo signals;
    siginfo_t info = {0};
    const char *name;

    while (read(w->fds[2].fd, &signals, sizeof(signals)) == sizeof(signals))
        ;
    if (waitid(P_PID, (id_t)w->agent, &info, WSTOPPED | WCONTINUED | WNOHANG) <
            0 ||
        info.si_pid == 0)
        return;
    if (info.si_code == CLD_CONTINUED) {
        w->stop_kill_ns = 0;
        say("hvd-agent: the agent (pid %d) runs again\n", (int)w->agent);
        return;
    }
    name = sigabbrev_np(info.si_status);
    w->stop_name = name ? name : "?";
    say("hvd-agent: the agent (pid %d) was stopped by SIG%s\n", (int)w->agent,
        w->stop_name);
    w->silence_ms = atomic_load(&w->shared->silence_ms);
    if (w->silence_ms > 0)
        w->stop_kill_ns = hb_now_ns() + (uint64_t)w->silence_ms * 1000000;
}

static void look_at_hangup(struct watch *w)
{
    uint32_t grace_ms = atomic_load(&w->shared->grace_ms);

    w->fds[1].fd = -1;
    w->hangup_kill_ns =
        hb_now_ns() + (grace_ms + (uint64_t)GUARDIAN_MARGIN_MS) * 1000000;
}

static int next_wait_ms(const struct watch *w)
{
    int hangup = ms_until(w->hangup_kill_ns), stop = ms_until(w->stop_kill_ns);

    if (hangup < 0 || (stop >= 0 && stop < hangup))
        return stop;
    return hangup;
}

static void kill_when_due(struct watch *w)
{
    if (next_wait_ms(w) != 0)
        return;
    if (ms_until(w->stop_kill_ns) == 0)
        say("hvd-agent: the agent (pid %d), stopped by SIG%s for %g s, is "
            "ended, and its ranks\n",
            (int)w->agent, w->stop_name, w->silence_ms / 1e3);
    syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0u);
    w->hangup_kill_ns = w->stop_kill_ns = 0;
}

static int open_sigchld(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Returns when the agent is dead, by itself or killed here. */
static void watch(struct watch *w)
{
    for (;;) {
        if (poll(w->fds, 3, next_wait_ms(w)) < 0 && errno != EINTR)
            return;
        if (w->fds[0].revents)
            return;
        if (w->fds[1].revents)
            look_at_hangup(w);
        if (w->fds[2].revents)
            look_at_stop(w);
        kill_when_due(w);
    }
}

static int collect(pid_t agent)
{
    siginfo_t info = {0};

    while (waitid(P_PID, (id_t)agent, &info, WEXITED) < 0 && errno == EINTR)
        ;
    if (info.si_code == CLD_EXITED)
        return info.si_status;
    return 128 + info.si_status;
}

/* Waits for a child to end and reaps all that have.  SIGCHLD is blocked, so it
 * stays pending and none is missed. */
static void wait_for_children(void)
{
    struct timespec ts = {0, REAP_WAIT_MS * 1000000L};
    siginfo_t info;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigtimedwait(&set, NULL, &ts);
    do
        info.si_pid = 0;
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0);
}

static void kill_rest(const struct cgroup *cgroup)
{
    uint64_t wait_ms =
        tree_can_read() ? GUARDIAN_GIVE_UP_MS : GUARDIAN_BLIND_MS;
    uint64_t give_up_ns = hb_now_ns() + wait_ms * 1000000;

    while (tree_has_children() && hb_now_ns() < give_up_ns) {
        cgroup_kill(cgroup);
        tree_kill_round();
        wait_for_children();
    }
}

/* Removes a directory; the processes that wrote there are dead. */
static void remove_dir(const char shared[GUARDIAN_PATH_MAX],
                       int (*remove)(int at, const char *name))
{
    char path[GUARDIAN_PATH_MAX];

    memcpy(path, shared, sizeof(path));
    path[sizeof(path) - 1] = '\0';
    if (path[0] == '/')
        (void)remove(AT_FDCWD, path);
}

int guardian_run(pid_t agent, int fd, const struct guardian_shared *shared,
                 struct cgroup *cgroup)
{
    int pidfd = (int)syscall(SYS_pidfd_open, agent, 0u);
    int chld_fd = open_sigchld();
    struct watch w = {
        .agent = agent,
        .pidfd = pidfd,
        .shared = shared,
        .fds = {{pidfd, POLLIN, 0}, {fd, POLLRDHUP, 0}, {chld_fd, POLLIN, 0}},
    };
    int status;

    if (pidfd >= 0) {
        watch(&w);
        close(pidfd);
    }
    if (chld_fd >= 0)
        close(chld_fd);
    status = collect(agent);
    close(fd);
    kill_rest(cgroup);
    remove_dir(shared->trace_dir, trace_dir_remove);
    remove_dir(shared->wireup_dir, wireup_dir_remove);
    cgroup_close(cgroup);
    /* A SIGCONT would take away the SIGSTOP with which a leak check attaches
     * when the process exits, and that would wait for ever. */
    prctl(PR_SET_PDEATHSIG, 0);
    return status;
}
