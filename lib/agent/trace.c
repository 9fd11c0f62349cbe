/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's part of --timeline and --stats.
 *
 * Ranks write their timelines into a private directory of this host, so that
 * nothing that a rank does waits for a network.  When no process of the job
 * lives any more, the files are sent to hvdrun, as fast as it reads; it
 * answers once it has them all, and they are removed.  Where it could not
 * write them, or does not want to wait, they stay and a line tells where.
 * Nobody is told when hvdrun has gone: then they are removed.
 *
 * What the ranks counted is kept here, by rank, until the end.
 */
#include "lib/agent/agent_impl.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRACE_CHUNK_BYTES = 32 << 10 };

static char *file_of(const struct agent *a, int slot)
{
    return hb_xasprintf("%s/trace.%d.json", a->trace.dir,
                        a->job.ranks[slot].rank);
}

/* ---- Before the ranks ---------------------------------------------------- */

int agent_trace_open(struct agent *a, struct hb_error *err)
{
    const char *tmpdir = hb_env_get(&a->job.env, "TMPDIR");
    char *dir;

    a->trace.fd = -1;
    if (!a->job.trace)
        return 0;
    if (!tmpdir || tmpdir[0] != '/')
        tmpdir = "/tmp";
    dir = hb_xasprintf("%s/hvd-timeline-%.16s-%d", tmpdir, a->job.job_id,
                       a->job.host_index);
    if (mkdir(dir, 0700) < 0) {
        int rc = hb_error_sys(err, errno, "timeline: make directory %s", dir);

        hb_free(dir);
        return rc;
    }
    a->trace.dir = dir;
    return 0;
}

char *agent_trace_variable(const struct agent *a)
{
    return a->trace.dir
               ? hb_xasprintf("HVD_TIMELINE=%s/trace.json", a->trace.dir)
               : NULL;
}

/* ---- Counters ------------------------------------------------------------ */

void agent_on_stats(void *arg, int slot, const struct worker_stats *m)
{
    struct agent *a = arg;
    struct worker_stats **all = a->trace.stats;

    if (!all)
        all = a->trace.stats = hb_xcalloc((size_t)a->job.rank_count,
                                          sizeof(struct worker_stats *));
    if (!all[slot])
        all[slot] = hb_xcalloc(1, sizeof(*m));
    worker_stats_add(all[slot], m);
}

static void send_stats(struct agent *a)
{
    struct hb_buf payload = HB_BUF_INIT;

    for (int i = 0; a->trace.stats && i < a->job.rank_count; i++) {
        if (!a->trace.stats[i])
            continue;
        hb_buf_clear(&payload);
        hb_must(worker_stats_write(&payload, a->trace.stats[i]));
        hb_must(control_encode_bytes(
            &a->link.out, CONTROL_STATS, a->job.ranks[i].rank,
            hb_buf_data(&payload), hb_buf_len(&payload)));
    }
    hb_buf_free(&payload);
}

static void free_stats(struct agent *a)
{
    for (int i = 0; a->trace.stats && i < a->job.rank_count; i++)
        hb_free(a->trace.stats[i]);
    hb_free((void *)a->trace.stats);
    a->trace.stats = NULL;
}

/* ---- The files, at the end ----------------------------------------------- */

/* A rank may have put anything there: only its own plain file counts. */
static int open_file(const struct agent *a, int slot)
{
    char *path = file_of(a, slot);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    hb_free(path);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static ssize_t read_chunk(int fd, char *chunk)
{
    ssize_t n;

    do
        n = read(fd, chunk, TRACE_CHUNK_BYTES);
    while (n < 0 && errno == EINTR);
    return n;
}

/* One chunk of the file under way; the last one is empty. */
static void send_chunk(struct agent *a)
{
    struct agent_trace *t = &a->trace;
    char *chunk = hb_xmalloc(TRACE_CHUNK_BYTES);
    ssize_t n = t->fd >= 0 ? read_chunk(t->fd, chunk) : 0;

    hb_must(control_encode_bytes(&a->link.out, CONTROL_TRACE,
                                 a->job.ranks[t->slot].rank, chunk,
                                 n > 0 ? (size_t)n : 0));
    hb_free(chunk);
    if (n > 0)
        return;
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    if (++t->slot < a->job.rank_count)
        t->fd = open_file(a, t->slot);
}

int agent_trace_send(struct agent *a)
{
    struct agent_trace *t = &a->trace;

    if (!t->begun) {
        t->begun = 1;
        send_stats(a);
        t->fd = t->dir ? open_file(a, 0) : -1;
    }
    if (!t->dir)
        return 1;
    while (t->slot < a->job.rank_count && !link_full(&a->link))
        send_chunk(a);
    return 0;
}

/* What is not the ranks' timelines is not ours: then the directory stays. */
static void remove_all(struct agent *a)
{
    for (int i = 0; i < a->job.rank_count; i++) {
        char *path = file_of(a, i);

        unlink(path);
        hb_free(path);
    }
    rmdir(a->trace.dir);
}

static void forget(struct agent *a)
{
    if (a->trace.fd >= 0)
        close(a->trace.fd);
    a->trace.fd = -1;
    hb_free(a->trace.dir);
    a->trace.dir = NULL;
}

void agent_trace_keep(struct agent *a)
{
    if (!a->trace.dir)
        return;
    hb_log(&a->log, HB_LOG_WARNING, "the ranks' timelines are left in %s",
           a->trace.dir);
    forget(a);
}

int agent_trace_taken(struct agent *a, uint32_t all, struct hb_error *err)
{
    if (!a->trace.dir || a->trace.slot < a->job.rank_count)
        return hb_error_set(err, HVD_EPROTO, "took what was not sent");
    if (!all) {
        agent_trace_keep(a);
        return 0;
    }
    remove_all(a);
    forget(a);
    return 0;
}

void agent_trace_fini(struct agent *a)
{
    if (a->trace.dir) {
        remove_all(a);
        forget(a);
    }
    free_stats(a);
}
