/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clone/exec shim.  See spawn.h for its guarantees.
 *
 * The child shares the parent's memory until execve, so it writes only to its
 * own stack and to struct order's two result fields.  Sanitizers are kept out
 * of the child's functions: their frames are never left, only replaced.
 */
#include "lib/agent/rank/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__clang__)
#define IN_CHILD __attribute__((noinline, no_sanitize("address", "thread")))
#else
#define IN_CHILD \
    __attribute__((noinline, no_sanitize_address, no_sanitize_thread))
#endif

struct order {
    const struct spawn_options *o;
    pid_t parent;
    /* written by the child when it fails */
    enum spawn_stage stage;
    int error;
};

static const char *const stage_text[] = {
    [SPAWN_STAGE_CLONE] = "create a process",
    [SPAWN_STAGE_GROUP] = "make a process group",
    [SPAWN_STAGE_PARENT] = "outlive the agent",
    [SPAWN_STAGE_STDIO] = "connect its input and output",
    [SPAWN_STAGE_CWD] = "enter directory",
    [SPAWN_STAGE_LIMIT] = "set its resource limits",
    [SPAWN_STAGE_AFFINITY] = "bind it to its cores",
    [SPAWN_STAGE_EXEC] = "execute",
};

void spawn_signals_to_reset(sigset_t *set)
{
    sigemptyset(set);
    for (int s = 1; s < NSIG; s++) {
        struct sigaction sa;

        if (s == SIGKILL || s == SIGSTOP || sigaction(s, NULL, &sa) < 0)
            continue;
        if ((sa.sa_flags & SA_SIGINFO) || sa.sa_handler != SIG_DFL)
            sigaddset(set, s);
    }
}

IN_CHILD static int child_signals(const struct spawn_options *o)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int s = 1; o->reset && s < NSIG; s++)
        if (sigismember(o->reset, s) == 1)
            sigaction(s, &dfl, NULL);
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

IN_CHILD static int child_stdio(const struct spawn_options *o)
{
    for (int i = 0; i < 3; i++)
        if (dup2(o->stdio[i], i) < 0)
            return -1;
    if (o->pass_fd == SPAWN_PASS_FD)
        return fcntl(SPAWN_PASS_FD, F_SETFD, 0);
    if (o->pass_fd && dup2(o->pass_fd, SPAWN_PASS_FD) < 0)
        return -1;
    return 0;
}

IN_CHILD static int child_limits(const struct spawn_options *o)
{
    for (size_t i = 0; i < o->limit_count; i++)
        if (setrlimit((__rlimit_resource_t)o->limits[i].resource,
                      &o->limits[i].limit) < 0)
            return -1;
    return 0;
}

/* Asks for SIGKILL when the agent's only thread ends.  If it ended before the
 * prctl, the child has another parent by now. */
IN_CHILD static int child_tie_to_parent(const struct order *order)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -1;
    if (getppid() != order->parent) {
        errno = ESRCH;
        return -1;
    }
    return 0;
}

/* Prepares the child, with raw system calls where the libc wrapper keeps
 * state. */
IN_CHILD static int child_prepare(struct order *order)
{
    const struct spawn_options *o = order->o;

    order->stage = SPAWN_STAGE_GROUP;
    if (setpgid(0, 0) < 0)
        return -1;
    order->stage = SPAWN_STAGE_PARENT;
    if (child_tie_to_parent(order) < 0)
        return -1;
    order->stage = SPAWN_STAGE_STDIO;
    if (child_stdio(o) < 0)
        return -1;
    order->stage = SPAWN_STAGE_CWD;
    if (o->cwd && chdir(o->cwd) < 0)
        return -1;
    order->stage = SPAWN_STAGE_LIMIT;
    if (child_limits(o) < 0)
        return -1;
    order->stage = SPAWN_STAGE_AFFINITY;
    if (o->affinity &&
        syscall(SYS_sched_setaffinity, 0, o->affinity_bytes, o->affinity) < 0)
        return -1;
    return 0;
}

/* Closes the other descriptors.  Linux before 5.9 lacks close_range: there the
 * descriptors' close-on-exec flags do it. */
IN_CHILD static void child_close(const struct spawn_options *o)
{
    unsigned first = o->pass_fd ? SPAWN_PASS_FD + 1u : SPAWN_PASS_FD;
    unsigned kept = (unsigned)o->program_fd;

    if (kept > first)
        syscall(SYS_close_range, first, kept - 1, 0u);
    syscall(SYS_close_range, kept ? kept + 1 : first, ~0u, 0u);
}

IN_CHILD static void child_exec(const struct spawn_options *o)
{
    if (o->program_fd)
        syscall(SYS_execveat, o->program_fd, "", o->argv, o->envp,
                AT_EMPTY_PATH);
    else
        execve(o->path, o->argv, o->envp);
}

IN_CHILD static int child_main(void *arg)
{
    struct order *order = arg;

    if (child_prepare(order) == 0) {
        order->stage = SPAWN_STAGE_EXEC;
        child_close(order->o);
        if (child_signals(order->o) == 0)
            child_exec(order->o);
    }
    order->error = errno;
    _exit(127);
}

static int explain(const struct order *order, struct hb_error *err)
{
    const struct spawn_options *o = order->o;
    const char *object = "";

    if (order->stage == SPAWN_STAGE_CWD)
        object = o->cwd;
    else if (order->stage == SPAWN_STAGE_EXEC)
        object = o->path;
    return hb_error_sys(err, order->error, "cannot %s%s%s",
                        stage_text[order->stage], *object ? " " : "", object);
}

static void reap_failed(int pidfd, pid_t pid)
{
    siginfo_t info;

    while (waitid(P_PID, (id_t)pid, &info, WEXITED) < 0 && errno == EINTR)
        ;
    close(pidfd);
}

int spawn_process(const struct spawn_options *o, struct spawn_child *child,
                  enum spawn_stage *stage, struct hb_error *err)
{
    _Alignas(64) char stack[SPAWN_STACK_BYTES];
    struct order order = {o, getpid(), SPAWN_STAGE_CLONE, 0};
    const int flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
    sigset_t all, old;
    int pidfd = -1;
    pid_t pid;

    for (int i = 0; i < 3; i++)
        if (o->stdio[i] < 3)
            return hb_error_set(err, HVD_EINVAL,
                                "descriptor %d cannot become stdio",
                                o->stdio[i]);
    if (o->pass_fd && o->pass_fd < 3)
        return hb_error_set(err, HVD_EINVAL, "descriptor %d cannot be passed",
                            o->pass_fd);
    /* No handler may run in the child on the shared memory. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    pid = clone(child_main, stack + sizeof(stack), flags, &order, &pidfd);
    if (pid < 0)
        order.error = errno;
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (order.error) {
        if (pid > 0)
            reap_failed(pidfd, pid);
        if (stage)
            *stage = order.stage;
        return explain(&order, err);
    }
    child->pid = pid;
    child->pidfd = pidfd;
    return 0;
}
