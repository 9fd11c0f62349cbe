/* SPDX-License-Identifier: Apache-2.0 */
/* Finding jobs by HVD_JOB_ID in /proc; see jobscan.h. */
#include "lib/agent/query/jobscan.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    RANK_MAX = 65535,
    ANCESTORS_MAX = 4096,
    KTHREADD = 2, /* the parent of all kernel threads */
    EMPTY_LOOKS = 5,
};

/* What the scan knows of one process. */
struct mark {
    char id[JOBSCAN_ID_DIGITS + 1]; /* own HVD_JOB_ID; "": none */
    int rank;
    int elastic;
    int mine;   /* of this user */
    int job;    /* index into jobs, own or inherited; -1: none */
    int origin; /* index of the process that job and rank are taken from */
};

struct scan {
    struct tree all;
    struct mark *marks; /* by index into all.procs */
    struct jobscan *out;
};

/* ---- Reading /proc ---- */

static FILE *open_file(pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

/* Compares the effective uid: the owner of /proc/PID is root for processes that
 * are not dumpable. */
static int is_mine(pid_t pid)
{
    FILE *f = open_file(pid, "status");
    char line[256];
    unsigned real, effective;
    int mine = 0;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Uid: %u %u", &real, &effective) == 2) {
            mine = effective == geteuid();
            break;
        }
    if (f)
        fclose(f);
    return mine;
}

static int is_id(const char *s)
{
    return strlen(s) == JOBSCAN_ID_DIGITS &&
           strspn(s, "0123456789abcdef") == JOBSCAN_ID_DIGITS;
}

/* Reads HVD_JOB_ID, HVD_RANK and HVD_ELASTIC; 0 if the environment is empty. */
static int read_environ(pid_t pid, struct mark *m)
{
    FILE *f = open_file(pid, "environ");
    char *item = NULL;
    size_t size = 0;
    int64_t rank;
    int some = 0;

    while (f && getdelim(&item, &size, '\0', f) > 0) {
        some = 1;
        if (strncmp(item, "HVD_JOB_ID=", 11) == 0 && is_id(item + 11))
            memcpy(m->id, item + 11, sizeof(m->id));
        else if (strncmp(item, "HVD_ELASTIC=", 12) == 0)
            m->elastic = item[12] != '\0' && item[12] != '0';
        else if (strncmp(item, "HVD_RANK=", 9) == 0 &&
                 hb_parse_i64(item + 9, 0, RANK_MAX, &rank, NULL) == 0)
            m->rank = (int)rank;
    }
    free(item);
    if (f)
        fclose(f);
    return some;
}

static int has_environ(const struct tree_proc *p)
{
    return p->state != 'Z' && p->pid != KTHREADD && p->ppid != KTHREADD;
}

/* Reads the process's mark from its environment.  Tries again while that is
 * empty, as in the middle of an exec. */
static void read_mark(const struct tree_proc *p, struct mark *m)
{
    const struct timespec pause = {0, 1000000};

    m->rank = -1;
    for (int i = 0; i < EMPTY_LOOKS; i++) {
        if (read_environ(p->pid, m) || !has_environ(p) || !is_mine(p->pid))
            break;
        nanosleep(&pause, NULL);
    }
    m->mine = m->id[0] && is_mine(p->pid);
    if (!m->mine)
        m->id[0] = '\0';
}

/* Recognizes an agent by the name that it gives itself, whatever its file is
 * called. */
static int is_agent(const struct tree_proc *p)
{
    return strncmp(p->name, "hvd-agent", 9) == 0;
}

static uint64_t ticks_to_ms(uint64_t ticks)
{
    return ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

static uint64_t boot_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Reads fields 14 to 17 (CPU time) and 24 (resident pages). */
static void read_usage(struct jobscan_proc *p)
{
    FILE *f = open_file(p->proc.pid, "stat");
    unsigned long user = 0, system = 0, start_ms;
    long child_user = 0, child_system = 0, pages = 0;
    char text[1024];
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    char *close;

    text[n] = '\0';
    if (f)
        fclose(f);
    close = strrchr(text, ')');
    if (!close ||
        sscanf(close + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu "
               "%lu %ld %ld %*d %*d %*d %*d %*u %*u %ld",
               &user, &system, &child_user, &child_system, &pages) != 5)
        return;
    p->cpu_ms = ticks_to_ms(user + system + (uint64_t)child_user +
                            (uint64_t)child_system);
    p->rss_bytes = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    start_ms = ticks_to_ms(p->proc.start);
    p->elapsed_ms = boot_ms() > start_ms ? boot_ms() - start_ms : 0;
}

/* ---- Who belongs to what ---- */

static int by_pid(const void *key, const void *item)
{
    pid_t pid = *(const pid_t *)key;
    const struct tree_proc *p = item;

    return (pid > p->pid) - (pid < p->pid);
}

/* Returns the index of a process, or -1. */
static int find(const struct tree *t, pid_t pid)
{
    const struct tree_proc *p =
        t->count ? bsearch(&pid, t->procs, t->count, sizeof(*p), by_pid) : NULL;

    return p ? (int)(p - t->procs) : -1;
}

static int job_of(struct jobscan *out, const char *id)
{
    struct jobscan_job *job;

    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->jobs[i].id, id) == 0)
            return (int)i;
    out->jobs =
        hb_xrealloc_array(out->jobs, out->count + 1, sizeof(*out->jobs));
    job = &out->jobs[out->count];
    memset(job, 0, sizeof(*job));
    memcpy(job->id, id, sizeof(job->id));
    return (int)out->count++;
}

/* Returns the nearest marked process from i upwards, or -1.  Bounded, because
 * reused pids can form a cycle. */
static int origin_of(const struct scan *s, int i)
{
    for (int steps = 0; i >= 0 && steps < ANCESTORS_MAX; steps++) {
        if (s->marks[i].id[0])
            return i;
        i = find(&s->all, s->all.procs[i].ppid);
    }
    return -1;
}

static void assign(struct scan *s)
{
    for (size_t i = 0; i < s->all.count; i++) {
        struct mark *m = &s->marks[i];

        m->job = -1;
        m->origin = origin_of(s, (int)i);
        if (m->origin < 0 || s->all.procs[i].state == 'Z')
            continue;
        if (m->mine || is_mine(s->all.procs[i].pid))
            m->job = job_of(s->out, s->marks[m->origin].id);
    }
}

static void take_agent(struct scan *s, struct jobscan_job *job, int parent)
{
    const struct tree_proc *p = &s->all.procs[parent];
    int above;

    if (job->agent.pid || !is_mine(p->pid) || !is_agent(p))
        return;
    job->agent = *p;
    above = find(&s->all, p->ppid);
    if (above >= 0 && is_agent(&s->all.procs[above]))
        job->guardian = s->all.procs[above];
}

static void add_proc(struct scan *s, int i)
{
    struct jobscan_job *job = &s->out->jobs[s->marks[i].job];
    int parent = find(&s->all, s->all.procs[i].ppid);
    struct jobscan_proc *p;

    job->procs =
        hb_xrealloc_array(job->procs, job->count + 1, sizeof(*job->procs));
    p = &job->procs[job->count++];
    *p = (struct jobscan_proc){
        .proc = s->all.procs[i],
        .rank = s->marks[s->marks[i].origin].rank,
        .top = parent < 0 || s->marks[parent].job != s->marks[i].job,
    };
    read_usage(p);
    job->is_elastic |= s->marks[i].id[0] && s->marks[i].elastic;
    if (p->top && parent >= 0)
        take_agent(s, job, parent);
}

int jobscan_read(struct jobscan *out)
{
    struct scan s = {.all = TREE_INIT, .out = out};
    int rc;

    jobscan_free(out);
    rc = tree_read_all(&s.all);
    if (rc < 0)
        return rc;
    s.marks = hb_xcalloc(s.all.count + 1, sizeof(*s.marks));
    for (size_t i = 0; i < s.all.count; i++)
        read_mark(&s.all.procs[i], &s.marks[i]);
    assign(&s);
    for (size_t i = 0; i < s.all.count; i++)
        if (s.marks[i].job >= 0)
            add_proc(&s, (int)i);
    hb_free(s.marks);
    tree_free(&s.all);
    return 0;
}

void jobscan_free(struct jobscan *s)
{
    for (size_t i = 0; i < s->count; i++)
        hb_free(s->jobs[i].procs);
    hb_free(s->jobs);
    s->jobs = NULL;
    s->count = 0;
}

const struct jobscan_job *jobscan_find(const struct jobscan *s, const char *id)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->jobs[i].id, id) == 0)
            return &s->jobs[i];
    return NULL;
}
