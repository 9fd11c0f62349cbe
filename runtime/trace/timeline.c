/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline: the ring of records, the thread that empties it, and starting
 * and ending both; see timeline.h.
 *
 * When the ring was empty for a whole nap, the thread sleeps without a time
 * limit, and the next record wakes it at the price of a system call.  While
 * records come, it naps to let them collect, so that is rare.
 */
#include "runtime/trace/timeline.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"
#include "runtime/trace/timeline_lanes.h"
#include "runtime/trace/timeline_text.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    RING_RECORDS = 1 << 14, /* a power of two */
    BATCH_RECORDS = 64,
    NAP_NS = 20 * 1000 * 1000, /* time whose records a killed process may
                                  lose */
};

/* Orders open and close. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
/* Protects `ring`, except for what only the thread uses. */
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct timeline_record *records; /* [RING_RECORDS]; NULL: none runs */
    size_t head, tail;               /* only count up; tail is the next to
                                        write */
    uint64_t dropped;
    struct timeline_lanes lanes;
    pthread_cond_t work;
    enum { AWAKE, NAPPING, ASLEEP } sleep;
    int stopping;

    /* used by the thread only */
    struct hb_trace_file file;
    struct timeline_text text;
    struct timeline_record batch[BATCH_RECORDS];
    uint64_t base_ns;
    uint32_t lanes_told;
    uint64_t dropped_told;
    unsigned flags;
} ring;

/* protected by life */
static _Atomic int *is_on; /* of the owner; NULL: no timeline runs */
static pthread_t thread;
static char *kept; /* path of the timeline to continue: its lanes and base are
                      kept */

_Static_assert((int)TIMELINE_TIDS <= (int)HVD__TIMELINE_COPY_ROW,
               "requests and copies have rows of their own");

/* ---- Adding records ------------------------------------------------------ */

static const char *lane_name(const struct hvd__timeline_event *e)
{
    if (e->what == HVD__TIMELINE_OPERATION)
        return e->plane ? e->plane : "plane";
    return e->op->name && e->op->name[0] ? e->op->name : "(no name)";
}

static uint64_t lane_key(const struct hvd__timeline_event *e)
{
    if (e->what == HVD__TIMELINE_OPERATION)
        return hvd__mix(hvd__name_hash(lane_name(e)), 1);
    return e->op->name && e->op->name[0] ? e->op->name_hash : 2;
}

static void fill(struct timeline_record *r, const struct hvd__timeline_event *e)
{
    const struct hvd__op *op = e->op;
    uint64_t from;

    *r = (struct timeline_record){
        .what = e->what,
        .kind = op->kind,
        .dtype = op->parts ? op->part_dtype : op->dtype,
        .op = op->op,
        .set = e->set,
        .status = e->status,
        .fused = e->fused ? e->fused : 1,
        .count = op->count,
        .bytes = (uint64_t)op->count * op->elem_bytes,
        .plane = e->plane,
        .algorithm = op->trace.algorithm,
        .activity = e->activity,
        .issued_ns = e->issued_ns,
        .began_ns = e->began_ns,
        .agreed_ns = e->agreed_ns,
        .done_ns = e->done_ns,
        .busy_ns = e->busy_ns,
    };
    from = r->issued_ns ? r->issued_ns : r->began_ns;
    r->lane = timeline_lane(&ring.lanes, lane_key(e), e->set, lane_name(e));
    if (e->what == HVD__TIMELINE_REQUEST)
        r->tid = timeline_lane_row(&ring.lanes, r->lane, from, r->done_ns);
    else if (e->what == HVD__TIMELINE_ACTIVITY)
        r->tid = e->row;
}

void hvd__timeline_add(const struct hvd__timeline_event *e)
{
    pthread_mutex_lock(&ring_lock);
    if (!ring.records || ring.stopping) {
        pthread_mutex_unlock(&ring_lock);
        return;
    }
    if (ring.head - ring.tail == RING_RECORDS)
        ring.dropped++;
    else
        fill(&ring.records[ring.head++ & (RING_RECORDS - 1)], e);
    if (ring.sleep == ASLEEP ||
        (ring.sleep == NAPPING && ring.head - ring.tail >= RING_RECORDS / 2)) {
        ring.sleep = AWAKE;
        pthread_cond_signal(&ring.work);
    }
    pthread_mutex_unlock(&ring_lock);
}

/* ---- Writing -------------------------------------------------------- */

static void emit(void)
{
    hb_trace_file_put(&ring.file, ring.text.bytes, ring.text.len);
}

static void emit_record(const struct timeline_record *r)
{
    if (r->what == HVD__TIMELINE_OPERATION &&
        (ring.flags & HVD_TIMELINE_CYCLES) && r->began_ns > ring.base_ns) {
        timeline_text_cycle(&ring.text, r->began_ns - ring.base_ns);
        emit();
    }
    for (int s = 0; s < TIMELINE_SPANS; s++)
        if (timeline_text_span(&ring.text, r, (enum timeline_span)s,
                               ring.base_ns))
            emit();
}

/* Writes the names of new lanes.  Names are never freed, and lanes never
 * removed, before the end. */
static void emit_lanes(size_t count)
{
    while (ring.lanes_told < count) {
        const char *name;

        pthread_mutex_lock(&ring_lock);
        name = ring.lanes.lanes[ring.lanes_told++].name;
        pthread_mutex_unlock(&ring_lock);
        timeline_text_lane(&ring.text, ring.lanes_told, name);
        emit();
        timeline_text_order(&ring.text, ring.lanes_told);
        emit();
    }
}

/* Takes some records out of the ring and writes them; 0: it was empty. */
static int write_some(void)
{
    size_t n, lanes;
    uint64_t dropped;

    pthread_mutex_lock(&ring_lock);
    for (n = 0; n < BATCH_RECORDS && ring.tail != ring.head; n++)
        ring.batch[n] = ring.records[ring.tail++ & (RING_RECORDS - 1)];
    lanes = ring.lanes.count;
    dropped = ring.dropped;
    pthread_mutex_unlock(&ring_lock);
    emit_lanes(lanes);
    for (size_t i = 0; i < n; i++)
        emit_record(&ring.batch[i]);
    if (n < BATCH_RECORDS && dropped > ring.dropped_told) {
        timeline_text_dropped(&ring.text, hb_now_ns() - ring.base_ns,
                              dropped - ring.dropped_told);
        emit();
        ring.dropped_told = dropped;
    }
    return n > 0;
}

static struct timespec nap_end(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += NAP_NS;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_nsec -= 1000000000;
        ts.tv_sec++;
    }
    return ts;
}

/* Naps while records collect; if none came, sleeps until one does.  Returns 0
 * when the timeline ends. */
static int wait_for_records(void)
{
    struct timespec end = nap_end();
    int rc = 0, go_on;

    pthread_mutex_lock(&ring_lock);
    ring.sleep = NAPPING;
    while (!ring.stopping && ring.sleep == NAPPING && rc == 0)
        rc = pthread_cond_timedwait(&ring.work, &ring_lock, &end);
    if (!ring.stopping && ring.head == ring.tail)
        ring.sleep = ASLEEP;
    while (!ring.stopping && ring.sleep == ASLEEP)
        pthread_cond_wait(&ring.work, &ring_lock);
    ring.sleep = AWAKE;
    go_on = !ring.stopping;
    pthread_mutex_unlock(&ring_lock);
    return go_on;
}

static void *write_all(void *arg)
{
    int go_on;

    do {
        go_on = wait_for_records();
        while (write_some())
            ;
        hb_trace_file_flush(&ring.file);
    } while (go_on);
    return arg;
}

/* ---- Life ----------------------------------------------------------- */

static int make_cond(struct hb_error *err)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc == 0) {
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        rc = pthread_cond_init(&ring.work, &attr);
        pthread_condattr_destroy(&attr);
    }
    return rc ? hb_error_sys(err, rc, "make a condition") : 0;
}

/* Blocks all signals in the thread: they are the program's. */
static int start_thread(struct hb_error *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, write_all, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return hb_error_sys(err, rc, "start the timeline's thread");
    pthread_setname_np(thread, "hvd-timeline");
    return 0;
}

static void begin_file(const struct hvd__timeline_owner *owner)
{
    struct timeline_start start = {
        .owner = *owner,
        .wall_ns = hb_wall_ns(),
        .monotonic_ns = hb_now_ns(),
    };

    ring.base_ns = start.monotonic_ns;
    timeline_text_start(&ring.text, &start);
    emit();
    timeline_text_order(&ring.text, 0);
    emit();
    hb_trace_file_flush(&ring.file);
}

static void forget(void)
{
    timeline_lanes_fini(&ring.lanes);
    hb_free(kept);
    kept = NULL;
}

/* Opens the file.  Returns 1 to continue the timeline in it, 0 to begin one, or
 * negative with err set. */
static int open_file(const char *path, unsigned flags, struct hb_error *err)
{
    if ((flags & HVD__TIMELINE_GO_ON) && kept && strcmp(kept, path) == 0 &&
        hb_trace_file_reopen(&ring.file, path, NULL) == 0)
        return 1;
    forget();
    if ((flags & HVD__TIMELINE_OF_AGENT) &&
        hb_trace_file_reopen(&ring.file, path, NULL) == 0)
        return 0;
    return hb_trace_file_open(&ring.file, path, err);
}

static void set_records(struct timeline_record *records)
{
    pthread_mutex_lock(&ring_lock);
    ring.records = records;
    pthread_mutex_unlock(&ring_lock);
}

static int begin(const char *path, unsigned flags,
                 const struct hvd__timeline_owner *owner, struct hb_error *err)
{
    struct timeline_record *records = hb_calloc(RING_RECORDS, sizeof(*records));
    int goes_on;
    int rc = records
                 ? open_file(path, flags, err)
                 : hb_error_set(err, HVD_ENOMEM, "no memory for a timeline");

    if (rc < 0)
        goto no_file;
    goes_on = rc;
    rc = make_cond(err);
    if (rc < 0)
        goto no_cond;
    ring.head = ring.tail = 0;
    ring.dropped = ring.dropped_told = 0;
    ring.lanes_told = 0;
    ring.stopping = 0;
    ring.sleep = AWAKE;
    ring.flags = flags;
    if (!goes_on)
        begin_file(owner);
    if ((flags & HVD__TIMELINE_GO_ON) && !kept)
        kept = hb_strdup(path);
    set_records(records);
    rc = start_thread(err);
    if (rc == 0)
        return 0;
    set_records(NULL);
    pthread_cond_destroy(&ring.work);
no_cond:
    hb_trace_file_close(&ring.file);
no_file:
    hb_free(records);
    return rc;
}

int hvd__timeline_open(const char *path, unsigned flags,
                       const struct hvd__timeline_owner *owner,
                       struct hb_error *err)
{
    int rc;

    pthread_mutex_lock(&life);
    if (is_on)
        rc = hb_error_set(err, HVD_EINVAL, "a timeline is running already");
    else
        rc = begin(path, flags, owner, err);
    if (rc == 0) {
        is_on = owner->is_on;
        atomic_store(is_on, 1);
    }
    pthread_mutex_unlock(&life);
    return rc < 0 ? hb_error_context(err, "timeline") : 0;
}

static void stop_thread(void)
{
    pthread_mutex_lock(&ring_lock);
    ring.stopping = 1;
    pthread_cond_signal(&ring.work);
    pthread_mutex_unlock(&ring_lock);
    pthread_join(thread, NULL);
}

/* Closes the timeline after the thread has ended; later records find no
 * ring. */
static int end(struct hb_error *err)
{
    int e = hb_trace_file_close(&ring.file);

    pthread_mutex_lock(&ring_lock);
    hb_free(ring.records);
    ring.records = NULL;
    if (!kept)
        timeline_lanes_fini(&ring.lanes);
    pthread_mutex_unlock(&ring_lock);
    pthread_cond_destroy(&ring.work);
    if (e)
        return hb_error_sys(err, e, "the timeline is not complete");
    return 0;
}

int hvd__timeline_close(struct hb_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&life);
    if (is_on) {
        atomic_store(is_on, 0);
        is_on = NULL;
        stop_thread();
        rc = end(err);
    }
    pthread_mutex_unlock(&life);
    return rc;
}

/* ---- Knobs ---------------------------------------------------------- */

char *hvd__timeline_path(const char *path, int rank)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    size_t stem = dot && dot > name ? (size_t)(dot - path) : strlen(path);
    struct hb_buf out = HB_BUF_INIT;

    if (hb_buf_append(&out, path, stem) < 0 ||
        hb_buf_printf(&out, ".%d%s", rank, path + stem) < 0) {
        hb_buf_free(&out);
        return NULL;
    }
    return hb_buf_detach(&out);
}

/* Returns whether the path is in the directory that the agent makes for each
 * traced job; see lib/agent/trace_dir.h. */
static int is_of_agent(const char *path)
{
    const char *id = hb_variable("HVD_JOB_ID");
    char dir[64];

    snprintf(dir, sizeof(dir), "/hvd-timeline-%.16s-", id ? id : "");
    return id && strstr(path, dir) != NULL;
}

int hvd__timeline_knobs_read(struct hvd__timeline_knobs *k, int rank,
                             struct hb_error *err)
{
    const char *path = hb_knob("TIMELINE");
    int is_one_file = hb_knob_is_horovods("TIMELINE"), cycles = 0;
    int rc = hb_knob_bool("TIMELINE_MARK_CYCLES", &cycles, err);

    k->path = NULL;
    k->flags = HVD__TIMELINE_GO_ON;
    if (cycles)
        k->flags |= HVD_TIMELINE_CYCLES;
    if (rc < 0 || !path || strcmp(path, "DYNAMIC") == 0)
        return rc;
    if (is_one_file && rank != 0)
        return 0;
    if (!is_one_file && is_of_agent(path))
        k->flags |= HVD__TIMELINE_OF_AGENT;
    k->path = is_one_file ? hb_strdup(path) : hvd__timeline_path(path, rank);
    return k->path ? 0
                   : hb_error_set(err, HVD_ENOMEM,
                                  "no memory for the path of a timeline");
}

void hvd__timeline_knobs_fini(struct hvd__timeline_knobs *k)
{
    hb_free(k->path);
    k->path = NULL;
}
