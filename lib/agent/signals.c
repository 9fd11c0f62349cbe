/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals to the agent itself: SIGCHLD, and those that ask it to end or to let
 * its ranks go.  They are blocked and read from a signalfd.
 */
#include "lib/agent/agent_impl.h"

#include "lib/agent/rank/tree.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Describes what asks the agent to end: heap. */
static char *reason(const struct agent *a, const struct signalfd_siginfo *info)
{
    struct tree_proc sender;
    char name[HB_SIGNAL_NAME_MAX];

    if (getppid() != a->parent)
        return hb_xasprintf("the agent's guardian (pid %d) was killed",
                            (int)a->parent);
    if (tree_stat((pid_t)info->ssi_pid, &sender))
        return hb_xasprintf("the agent got %s from pid %u (%s)",
                            hb_signal_name((int)info->ssi_signo, name),
                            info->ssi_pid, sender.name);
    return hb_xasprintf("the agent got %s from pid %u",
                        hb_signal_name((int)info->ssi_signo, name),
                        info->ssi_pid);
}

/* Returns whether hvdrun can let the ranks leave at a commit. */
static int can_leave(const struct agent *a)
{
    return a->job_held && a->job.spec.elastic && !a->gone &&
           a->state == AGENT_RUNNING;
}

/* Tells hvdrun that this host goes in left_ms, and who says so. */
static void tell_going(struct agent *a, uint32_t left_ms, const char *who)
{
    a->going = 1;
    hb_must(control_encode_going(&a->link.out, left_ms, who));
    link_flush(&a->link);
}

/* Lets the ranks of an elastic job leave at a commit within the grace time, by
 * the first SIGTERM: what a host gets that is to go away.  Returns 0 if the
 * ranks are to be ended instead. */
static int let_leave(struct agent *a, const struct signalfd_siginfo *info)
{
    char *who;

    if (info->ssi_signo != SIGTERM || a->warned || !can_leave(a) ||
        getppid() != a->parent || a->job.spec.grace_ms == 0)
        return 0;
    a->warned = 1;
    who = reason(a, info);
    tell_going(a,
               a->job.spec.grace_ms < CONTROL_LEFT_MAX_MS
                   ? (uint32_t)a->job.spec.grace_ms
                   : CONTROL_LEFT_MAX_MS,
               who);
    hb_free(who);
    return 1;
}

/* Lets the ranks leave as `hvdrun drain` wants: SIGUSR1 with the milliseconds
 * that the host has left, or -1.  One without a value is ignored: a batch
 * system may send it to all processes of a job. */
static void drain(struct agent *a, const struct signalfd_siginfo *info)
{
    int left_ms = info->ssi_int;

    if (info->ssi_code == SI_QUEUE && can_leave(a))
        tell_going(a,
                   left_ms >= 0 && left_ms <= CONTROL_LEFT_MAX_MS
                       ? (uint32_t)left_ms
                       : CONTROL_LEFT_ANY,
                   "hvdrun drain");
}

/* Tells hvdrun before the ranks end, so that it does not blame them. */
static void quit(struct agent *a, const struct signalfd_siginfo *info)
{
    char *why;

    if (let_leave(a, info))
        return;
    why = reason(a, info);
    if (!a->gone && a->state < AGENT_TERMINATING)
        frame_encode(&a->link.out, CONTROL_QUITTING, why, strlen(why));
    hb_free(why);
    agent_post(a, AGENT_KILL);
}

void agent_read_signals(struct agent *a)
{
    struct signalfd_siginfo info;
    int ended = 0;

    while (read(a->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            ended = 1;
        else if (info.ssi_signo == SIGUSR1)
            drain(a, &info);
        else
            quit(a, &info);
    }
    if (ended) {
        agent_reap_orphans(a);
        agent_check_empty(a);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    agent_read_signals(poll->data);
}

int agent_watch_signals(struct agent *a, struct hb_error *err)
{
    sigset_t set;
    int rc;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signal_fd < 0)
        return hb_error_sys(err, errno, "signalfd");
    rc = uv_poll_init(a->config.loop, &a->signal_poll, a->signal_fd);
    if (rc < 0) {
        close(a->signal_fd);
        return hb_error_sys(err, -rc, "signalfd");
    }
    a->signal_poll.data = a;
    uv_poll_start(&a->signal_poll, UV_READABLE, on_readable);
    return 0;
}
