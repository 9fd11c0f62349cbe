/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks end: noticed in the order in which they died, passed on to their
 * peers at once, then explained to hvdrun.
 *
 * The ready list of an epoll is in the order of wake-ups, so an epoll that
 * holds nothing but the ranks' pidfds yields the deaths in their order, however
 * late the agent reads it.
 */
#include "lib/agent/agent_impl.h"

#include "lib/agent/rank/dying.h"
#include "lib/agent/rank/tree.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DEATHS_PER_ROUND = 64,
    EXIT_CANNOT_RUN = 126,
    /* How often to look for dying ranks: as many ms as ranks, but at least so
     * many.  A look takes about 10 us for each rank. */
    DYING_MS = 20
};

void agent_signal_ranks(struct agent *a, int signo)
{
    for (int i = 0; i < a->job.rank_count; i++) {
        struct agent_rank *r = &a->ranks[i];

        /* Not reaped, so its pid and process group cannot have been reused. */
        if (r->pidfd < 0)
            continue;
        r->sent |= (uint64_t)1 << signo;
        kill(-r->pid, signo);
    }
}

static int has_failed(const struct agent_rank *r)
{
    return r->fault.text || r->info.si_code != CLD_EXITED ||
           r->info.si_status != 0;
}

/* Tells the other ranks.  Looks nothing up, because they are waiting. */
static void tell_peers(struct agent *a, int slot)
{
    struct agent_rank *r = &a->ranks[slot];
    struct control_exited m = {0};
    struct hb_buf line = HB_BUF_INIT;

    if (r->fault.text) {
        m.exit_code = r->fault.exit_code;
        m.detail = r->fault.text;
    } else if (r->info.si_code == CLD_EXITED) {
        m.exit_code = r->info.si_status;
    } else {
        m.signal = r->info.si_status;
        m.core_dumped = r->info.si_code == CLD_DUMPED;
        m.detail = r->evicted;
    }
    hb_must(hb_buf_printf(&line, "rank %d (pid %d) on host %.100s: ",
                          a->job.ranks[slot].rank, (int)r->pid, a->job.host));
    hb_must(control_exited_phrase(&line, &m));
    endpoint_rank_ended(&a->endpoint, slot, m.signal || m.exit_code,
                        hb_buf_data(&line));
    hb_buf_free(&line);
}

/* Replaces what the process's end says by the rank's own fault.  The process
 * may end later than others that follow from the fault. */
static void explain_fault(const struct agent_rank *r, struct control_exited *m)
{
    if (!r->fault.text)
        return;
    m->exit_code = r->fault.exit_code;
    m->signal = m->core_dumped = 0;
    m->cause = CONTROL_CAUSE_EXIT;
    if (!m->blames)
        m->blames = r->fault.blames;
    hb_free(m->detail);
    m->detail = hb_xstrdup(r->fault.text);
}

/* Says why hvdrun had the rank killed, while the job goes on. */
static void explain_eviction(const struct agent_rank *r,
                             struct control_exited *m)
{
    if (!r->evicted || m->signal != SIGKILL)
        return;
    m->cause = CONTROL_CAUSE_SIGNAL;
    hb_free(m->detail);
    m->detail = hb_xstrdup(r->evicted);
}

static void report(struct agent *a, int slot)
{
    struct agent_rank *r = &a->ranks[slot];
    struct control_exited m = {
        .rank = a->job.ranks[slot].rank,
        .pid = r->pid,
        .when_ns = r->when_ns,
        .blames = a->endpoint.slots[slot].blames,
    };
    struct cause_facts facts = {
        .pid = r->pid,
        .info = &r->info,
        .sent = r->sent,
        .cpu = r->cpu,
        .cpu_ms = r->cpu_ms,
        .ending = a->state != AGENT_RUNNING,
        .cwd = a->job.cwd,
        .tmpdir = a->tmpdir,
    };

    if (has_failed(r)) {
        a->failed++;
        m.stderr_tail = pump_tail(&a->pump, slot);
    }
    facts.tail = m.stderr_tail;
    cause_explain(&a->cause, &facts, &m);
    explain_eviction(r, &m);
    explain_fault(r, &m);
    if (!a->gone)
        control_encode_exited(&a->link.out, &m);
    hb_free(m.detail);
    hb_free(m.stderr_tail);
}

static void read_cpu_limit(struct agent_rank *r)
{
    r->cpu = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    (void)prlimit(r->pid, RLIMIT_CPU, NULL, &r->cpu);
}

/* Reaps the rank: 1 if it had ended, else 0.  Uses the raw system call because
 * libc's waitid does not return the resource usage. */
static int collect(struct agent *a, int slot)
{
    struct agent_rank *r = &a->ranks[slot];
    siginfo_t info = {0};
    struct rusage used;

    if (r->pidfd < 0)
        return 0;
    agent_end_group(a, slot);
    read_cpu_limit(r);
    if (syscall(SYS_waitid, P_PID, r->pid, &info, WEXITED | WNOHANG, &used) <
            0 ||
        info.si_pid == 0)
        return 0;
    close(r->pidfd);
    r->pidfd = -1;
    if (r->is_reported)
        return 1;
    r->info = info;
    r->when_ns = hb_now_ns();
    r->cpu_ms = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    return 1;
}

/* Ends what remains of a rank whose end was reported before. */
static void forget_dying(struct agent *a, int slot)
{
    struct agent_rank *r = &a->ranks[slot];
    int again = r->is_awaited;

    r->is_reported = r->is_awaited = 0;
    a->live--;
    if (again)
        agent_start_again(a, slot);
}

/* Notes how the rank has ended, and tells the other ranks. */
static void conclude(struct agent *a, int slot, enum wireup_end how)
{
    const struct wireup_abort unfinished = {
        .exit_code = 1, .text = "exited with 0, but without MPI_Finalize"};

    if (how == WIREUP_UNFINISHED)
        agent_fault(a, slot, &unfinished);
    tell_peers(a, slot);
}

void agent_rank_settled(struct agent *a, int slot, enum wireup_end how)
{
    a->live--;
    conclude(a, slot, how);
    if (!a->failure.text)
        report(a, slot);
    agent_check_empty(a);
}

/* Tells a rank that failed by itself from others.  Exit codes from
 * EXIT_CANNOT_RUN on are those of shells and the loader for a program that was
 * killed or did not run at all. */
static enum wireup_exit exit_of(const struct agent *a, int slot)
{
    const struct agent_rank *r = &a->ranks[slot];

    if (!has_failed(r))
        return WIREUP_EXIT_0;
    return r->info.si_code == CLD_EXITED &&
                   r->info.si_status < EXIT_CANNOT_RUN &&
                   a->state == AGENT_RUNNING
               ? WIREUP_EXIT_ERROR
               : WIREUP_KILLED;
}

/* Reaps the ranks that have ended, in order; returns how many. */
static int handle_deaths(struct agent *a)
{
    struct epoll_event ready[DEATHS_PER_ROUND];
    int dead[DEATHS_PER_ROUND], count = 0, reaped = 0, n;
    enum wireup_end how;

    n = epoll_wait(a->death_fd, ready, DEATHS_PER_ROUND, 0);
    for (int i = 0; i < n; i++) {
        int slot = ready[i].data.fd;

        if (!collect(a, slot))
            continue;
        reaped++;
        if (a->ranks[slot].is_reported) {
            forget_dying(a, slot);
            continue;
        }
        if (wireup_rank_ended(&a->wireup, slot, exit_of(a, slot), &how) ==
            WIREUP_LATER)
            continue;
        a->live--;
        conclude(a, slot, how);
        dead[count++] = slot;
    }
    for (int i = 0; i < count; i++)
        if (!a->failure.text)
            report(a, dead[i]);
    return reaped;
}

static void on_deaths(uv_poll_t *poll, int status, int events)
{
    struct agent *a = poll->data;

    (void)status;
    (void)events;
    if (handle_deaths(a) > 0)
        agent_check_empty(a);
}

/* Reports the end of ranks that are dying: the others need not wait until the
 * kernel has freed their memory, or written their core. */
static void on_dying_timer(uv_timer_t *timer)
{
    struct agent *a = timer->data;
    enum wireup_end how;
    int reaped = 0;

    /* Those that have ended come first, in their order. */
    while (handle_deaths(a) > 0)
        reaped = 1;
    if (reaped)
        agent_check_empty(a);
    for (int i = 0; i < a->job.rank_count && a->state == AGENT_RUNNING; i++) {
        struct agent_rank *r = &a->ranks[i];

        if (r->pidfd < 0 || r->is_reported ||
            !dying_check(r->pid, &r->info, &r->cpu_ms))
            continue;
        read_cpu_limit(r);
        r->when_ns = hb_now_ns();
        r->is_reported = 1;
        hb_log(&a->log, HB_LOG_INFO,
               "rank %d: pid %d is dying, and cannot be reaped yet",
               a->job.ranks[i].rank, (int)r->pid);
        /* WIREUP_LATER is for ranks that exit with 0; a dying one has not. */
        if (wireup_rank_ended(&a->wireup, i, exit_of(a, i), &how) ==
            WIREUP_LATER)
            continue;
        conclude(a, i, how);
        report(a, i);
        link_flush(&a->link);
    }
}

void agent_watch_dying(struct agent *a)
{
    uint64_t ms = (uint64_t)a->job.rank_count;

    if (ms < DYING_MS)
        ms = DYING_MS;
    if (a->job.spec.elastic && tree_can_read())
        uv_timer_start(&a->dying_timer, on_dying_timer, ms, ms);
}

static int is_rank(const struct agent *a, pid_t pid)
{
    for (int i = 0; i < a->job.rank_count && a->ranks; i++)
        if (a->ranks[i].pid == pid && a->ranks[i].pidfd >= 0)
            return 1;
    return 0;
}

/* Reaps descendants whose parents have ended: they are children of the agent,
 * the subreaper.  Ranks are handled first and by their pidfds, never here. */
void agent_reap_orphans(struct agent *a)
{
    siginfo_t info;
    pid_t pid;

    for (;;) {
        while (handle_deaths(a) > 0)
            ;
        memset(&info, 0, sizeof(info));
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            info.si_pid == 0)
            return;
        if (is_rank(a, info.si_pid))
            continue;
        pid = info.si_pid;
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 &&
            info.si_pid == pid)
            wireup_helper_ended(&a->wireup, pid, &info);
    }
}

int agent_watch_rank(struct agent *a, int slot, struct hb_error *err)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = slot};
    struct agent_rank *r = &a->ranks[slot];
    int e;

    if (epoll_ctl(a->death_fd, EPOLL_CTL_ADD, r->pidfd, &ev) == 0) {
        a->live++;
        return 0;
    }
    /* A rank that cannot be watched must not run: it is killed, and then reaped
     * as an orphan. */
    e = errno;
    kill(-r->pid, SIGKILL);
    close(r->pidfd);
    r->pidfd = -1;
    return hb_error_sys(err, e, "cannot watch a process");
}

int agent_watch_deaths(struct agent *a, struct hb_error *err)
{
    int rc;

    a->death_fd = epoll_create1(EPOLL_CLOEXEC);
    if (a->death_fd < 0)
        return hb_error_sys(err, errno, "epoll");
    rc = uv_poll_init(a->config.loop, &a->death_poll, a->death_fd);
    if (rc < 0) {
        close(a->death_fd);
        return hb_error_sys(err, -rc, "epoll");
    }
    a->death_poll.data = a;
    uv_poll_start(&a->death_poll, UV_READABLE, on_deaths);
    return 0;
}
