/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's survivor; see guardian.h. */
#include "lib/agent/guardian.h"

#include "lib/agent/tree.h"

#include "lib/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

/* A stopped agent is silent; whoever asks why should be told. */
static void tell_stop(pid_t agent)
{
    siginfo_t info = {0};
    const char *name;

    if (waitid(P_PID, (id_t)agent, &info,
               WSTOPPED | WCONTINUED | WNOHANG) < 0 ||
        info.si_pid == 0)
        return;
    name = sigabbrev_np(info.si_status);
    if (info.si_code == CLD_STOPPED)
        dprintf(2, "hvd-agent: the agent (pid %d) was stopped by SIG%s\n",
                (int)agent, name ? name : "?");
    else if (info.si_code == CLD_CONTINUED)
        dprintf(2, "hvd-agent: the agent (pid %d) goes on\n", (int)agent);
}

static int open_chld(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void drain_chld(int fd)
{
    struct signalfd_siginfo info;

    while (read(fd, &info, sizeof(info)) == sizeof(info))
        ;
}

/* Until the agent is dead, by itself or by our hand. */
static void watch(pid_t agent, int pidfd, int fd,
                  const struct guardian_shared *shared)
{
    struct pollfd fds[3] = {{pidfd, POLLIN, 0},
                            {fd, POLLRDHUP, 0},
                            {open_chld(), POLLIN, 0}};
    uint64_t deadline_ns = 0;

    for (;;) {
        int n = poll(fds, 3, ms_until(deadline_ns));

        if (n < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            break;
        if (n > 0 && fds[2].revents) {
            drain_chld(fds[2].fd);
            tell_stop(agent);
        }
        if (n == 0) {
            syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0u);
            deadline_ns = 0;
        } else if (n > 0 && fds[1].revents) {
            fds[1].fd = -1;
            deadline_ns = hb_now_ns() + (atomic_load(&shared->grace_ms) +
                                         (uint64_t)GUARDIAN_MARGIN_MS) *
                                            1000000;
        }
    }
    close(fds[2].fd);
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

/* SIGCHLD is blocked, so it waits in the queue and none is missed. */
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

int guardian_run(pid_t agent, int fd, const struct guardian_shared *shared,
                 struct cgroup *cgroup)
{
    int pidfd = (int)syscall(SYS_pidfd_open, agent, 0u);
    int status;

    if (pidfd >= 0) {
        watch(agent, pidfd, fd, shared);
        close(pidfd);
    }
    status = collect(agent);
    close(fd);
    kill_rest(cgroup);
    cgroup_close(cgroup);
    return status;
}
