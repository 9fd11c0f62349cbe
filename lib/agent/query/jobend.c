/* SPDX-License-Identifier: Apache-2.0 */
/* See jobend.h.  Waits on pidfds, then reads /proc again, because the processes
 * may have had children. */
#include "lib/agent/query/jobend.h"

#include "lib/agent/query/jobscan.h"
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    AGENT_MARGIN_MS = 1500, /* for the agent's own rounds of SIGKILL */
    KILL_WAIT_MS = 1000,
    KILL_ROUNDS_MAX = 5,
};

static size_t signal_procs(const struct jobscan_job *job, int signo)
{
    struct tree t = TREE_INIT;
    size_t sent;

    t.procs = hb_xcalloc(job->count + 1, sizeof(*t.procs));
    for (size_t i = 0; i < job->count; i++)
        t.procs[t.count++] = job->procs[i].proc;
    sent = tree_signal(&t, signo, NULL, 0);
    tree_free(&t);
    return sent;
}

static void signal_one(const struct tree_proc *p, int signo)
{
    struct tree_proc copy = *p;
    struct tree t = {&copy, 1};

    if (p->pid > 0)
        tree_signal(&t, signo, NULL, 0);
}

/* Asks the job to end; by SIGTERM, an agent would first let the ranks of an
 * elastic job leave.  Sends SIGCONT, too, because stopped processes cannot
 * act on SIGTERM. */
static void ask(const struct jobscan_job *job)
{
    if (job->agent.pid) {
        signal_one(&job->agent, SIGINT);
        signal_one(&job->agent, SIGCONT);
        signal_one(&job->guardian, SIGCONT);
        return;
    }
    signal_procs(job, SIGTERM);
    signal_procs(job, SIGCONT);
}

/* Stops all processes before killing any, so that none forks meanwhile. */
static void force(const struct jobscan_job *job)
{
    signal_procs(job, SIGSTOP);
    signal_one(&job->agent, SIGKILL);
    signal_procs(job, SIGKILL);
}

/* Waits until the process has ended or its pid is another's. */
static void wait_one(const struct tree_proc *p, uint64_t deadline_ns)
{
    struct pollfd end = {.events = POLLIN};
    struct tree_proc now;
    uint64_t now_ns;

    if (p->pid <= 0 || p->pid == getpid())
        return;
    end.fd = (int)syscall(SYS_pidfd_open, p->pid, 0u);
    if (end.fd < 0)
        return;
    now_ns = hb_now_ns();
    if (now_ns < deadline_ns && tree_stat(p->pid, &now) &&
        now.start == p->start)
        (void)poll(&end, 1, (int)((deadline_ns - now_ns) / 1000000) + 1);
    close(end.fd);
}

static void wait_job(const struct jobscan_job *job, uint64_t deadline_ns)
{
    for (size_t i = 0; i < job->count; i++)
        wait_one(&job->procs[i].proc, deadline_ns);
    wait_one(&job->agent, deadline_ns);
    wait_one(&job->guardian, deadline_ns);
}

/* Returns how many processes the job still has after up to wait_ms, not
 * counting this one: `hvdrun kill` may itself run inside the job. */
static size_t wait_empty(const char *id, uint64_t wait_ms, struct jobscan *s)
{
    uint64_t deadline_ns = hb_now_ns() + wait_ms * 1000000;
    const struct jobscan_job *job;
    size_t left;

    for (;;) {
        if (jobscan_read(s) < 0)
            return 0;
        job = jobscan_find(s, id);
        left = job ? job->count : 0;
        for (size_t i = 0; i < (job ? job->count : 0); i++)
            left -= job->procs[i].proc.pid == getpid();
        if (left == 0 || hb_now_ns() >= deadline_ns)
            return left;
        wait_job(job, deadline_ns);
    }
}

void jobend(const char *id, int grace_ms, struct jobend_result *result)
{
    struct jobscan s = JOBSCAN_INIT;
    const struct jobscan_job *job;
    uint64_t wait_ms = (uint64_t)(grace_ms > 0 ? grace_ms : 0);

    memset(result, 0, sizeof(*result));
    /* The agent tells its hvdrun who sent the signal, by pid and name. */
    prctl(PR_SET_NAME, "hvdrun kill");
    job = jobscan_read(&s) == 0 ? jobscan_find(&s, id) : NULL;
    if (job) {
        result->found = 1;
        result->had_agent = job->agent.pid != 0;
        result->processes = result->left = job->count;
        ask(job);
        if (result->had_agent)
            wait_ms += AGENT_MARGIN_MS;
        wait_job(job, hb_now_ns() + wait_ms * 1000000);
        result->left = wait_empty(id, 0, &s);
    }
    for (int i = 0; result->left > 0 && i < KILL_ROUNDS_MAX; i++) {
        job = jobscan_find(&s, id);
        if (job)
            force(job);
        result->left = wait_empty(id, KILL_WAIT_MS, &s);
    }
    jobscan_free(&s);
}
