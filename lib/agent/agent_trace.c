/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's part of --timeline and --stats.
 *
 * Ranks write their timelines into a private directory of this host, so that no
 * rank waits for a network.  Once a second a part of the new lines is sent to
 * hvdrun, because hvdrun may be killed at any time.  When no process of the job
 * lives any more, the rest is sent as fast as hvdrun reads; it confirms when it
 * has everything, and the files are removed.  If it could not write them, or
 * does not want to wait, they stay and a line tells where.  If hvdrun has gone,
 * nobody could be told, and they are removed; the guardian does that if the
 * agent was killed.
 *
 * The ranks' statistics are kept here, by rank, until the end.
 */
#include "lib/agent/agent_impl.h"

#include "lib/agent/guardian.h"
#include "lib/agent/query/account.h"
#include "lib/agent/trace_dir.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TRACE_CHUNK_BYTES = 32 << 10,
    TRACE_TURN_MS = 1000, /* as documented in hvdrun(1) */
    TRACE_TURN_BYTES = 256 << 10,
};

static char *file_of(const struct agent *a, int slot)
{
    return hb_xasprintf("%s/trace.%d.json", a->trace.dir,
                        a->job.ranks[slot].rank);
}

static void on_turn(uv_timer_t *timer);

/* ---- Before the ranks ---------------------------------------------------- */

int agent_trace_open(struct agent *a, struct hb_error *err)
{
    /* Not the job's TMPDIR: `hvdrun clean` could not know it. */
    const char *tmpdir = account_env("TMPDIR");
    char *dir;

    a->trace.fd = -1;
    a->trace.lock = -1;
    if (!a->job.trace)
        return 0;
    if (!tmpdir || tmpdir[0] != '/')
        tmpdir = "/tmp";
    dir = hb_xasprintf("%s/hvd-timeline-%.*s-%d", tmpdir, TRACE_DIR_ID_DIGITS,
                       a->job.job_id, a->job.host_index);
    if (mkdir(dir, 0700) < 0) {
        int rc = hb_error_sys(err, errno, "timeline: make directory %s", dir);

        hb_free(dir);
        return rc;
    }
    a->trace.dir = dir;
    a->trace.lock = trace_dir_hold(dir);
    a->trace.sent =
        hb_xcalloc((size_t)a->job.rank_count, sizeof(*a->trace.sent));
    if (a->config.trace_dir)
        snprintf(a->config.trace_dir, GUARDIAN_PATH_MAX, "%s", dir);
    uv_timer_start(&a->trace.timer, on_turn, TRACE_TURN_MS, TRACE_TURN_MS);
    return 0;
}

void agent_trace_init(struct agent *a)
{
    uv_timer_init(a->config.loop, &a->trace.timer);
    a->trace.timer.data = a;
}

void agent_trace_close(struct agent *a)
{
    uv_close((uv_handle_t *)&a->trace.timer, NULL);
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

/* ---- The files ----------------------------------------------------------- */

/* Opens the timeline of a rank: only a regular file, because the rank may have
 * put anything there. */
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

static ssize_t read_chunk(int fd, char *chunk, off_t at)
{
    ssize_t n;

    do
        n = pread(fd, chunk, TRACE_CHUNK_BYTES, at);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Returns the length of the complete lines, which do not change any more: the
 * last line holds the closing bracket, which moves. */
static size_t whole_lines(const char *chunk, ssize_t n)
{
    const char *end = n > 0 ? memrchr(chunk, '\n', (size_t)n) : NULL;

    return end ? (size_t)(end - chunk) + 1 : 0;
}

/* Sends up to `most` bytes of a running rank's timeline; returns how many. */
static size_t send_some(struct agent *a, int slot, char *chunk, size_t most)
{
    off_t *sent = &a->trace.sent[slot];
    int fd = open_file(a, slot);
    size_t all = 0, n = 1;

    while (fd >= 0 && n > 0 && all < most && !link_full(&a->link)) {
        n = whole_lines(chunk, read_chunk(fd, chunk, *sent));
        if (n > 0)
            hb_must(control_encode_bytes(&a->link.out, CONTROL_TRACE,
                                         a->job.ranks[slot].rank, chunk, n));
        *sent += (off_t)n;
        all += n;
    }
    if (fd >= 0)
        close(fd);
    return all;
}

/* Sends a bounded part, beginning with another rank each time: timelines must
 * not delay the ranks' output. */
static void on_turn(uv_timer_t *timer)
{
    struct agent *a = timer->data;
    struct agent_trace *t = &a->trace;
    int count = a->job.rank_count;
    size_t sent = 0;
    char *chunk;

    if (a->gone || t->send_started || !t->dir) {
        uv_timer_stop(timer);
        return;
    }
    chunk = hb_xmalloc(TRACE_CHUNK_BYTES);
    for (int i = 0; i < count && sent < TRACE_TURN_BYTES; i++)
        sent +=
            send_some(a, (t->turn + i) % count, chunk, TRACE_TURN_BYTES - sent);
    t->turn = (t->turn + 1) % count;
    hb_free(chunk);
    link_flush(&a->link);
}

/* ---- At the end ---------------------------------------------------------- */

/* Sends one chunk of the current file; an empty one ends the file. */
static void send_chunk(struct agent *a)
{
    struct agent_trace *t = &a->trace;
    char *chunk = hb_xmalloc(TRACE_CHUNK_BYTES);
    ssize_t n = t->fd >= 0 ? read_chunk(t->fd, chunk, t->sent[t->slot]) : 0;

    hb_must(control_encode_bytes(&a->link.out, CONTROL_TRACE,
                                 a->job.ranks[t->slot].rank, chunk,
                                 n > 0 ? (size_t)n : 0));
    hb_free(chunk);
    if (n > 0) {
        t->sent[t->slot] += n;
        return;
    }
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    if (++t->slot < a->job.rank_count)
        t->fd = open_file(a, t->slot);
}

int agent_trace_send(struct agent *a)
{
    struct agent_trace *t = &a->trace;

    if (!t->send_started) {
        t->send_started = 1;
        send_stats(a);
        t->fd = t->dir ? open_file(a, 0) : -1;
    }
    if (!t->dir)
        return 1;
    while (t->slot < a->job.rank_count && !link_full(&a->link))
        send_chunk(a);
    return 0;
}

/* Removes only the ranks' timelines; if the directory holds anything else, it
 * stays. */
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
    if (a->trace.lock >= 0)
        close(a->trace.lock);
    a->trace.lock = -1;
    hb_free(a->trace.dir);
    a->trace.dir = NULL;
    if (a->config.trace_dir)
        a->config.trace_dir[0] = '\0';
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
    hb_free(a->trace.sent);
    a->trace.sent = NULL;
    free_stats(a);
}
