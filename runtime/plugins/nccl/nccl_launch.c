/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches on a plane's streams, numbered 1, 2, ... and put on each stream in
 * turn.  Each is followed by an event from its stream's ring.  If a launch's
 * slot is reused, the event of the later launch is waited for instead, which is
 * on the same stream.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/sys/clock.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 50 * 1000,
    YIELD_NS = 300 * 1000,
    SLEEP_NS = 500 * 1000,
};

/* ---- Waiting a little ---------------------------------------------------- */

/* Pauses longer the longer the wait has lasted, as the device wakes no
 * thread. */
void nc_pause(uint64_t *since_ns, _Atomic uint32_t *wake)
{
    uint64_t now_ns = hb_now_ns(), waited_ns;
    struct timespec limit = {0, SLEEP_NS};
    uint32_t word = atomic_load(wake);

    if (!*since_ns)
        *since_ns = now_ns;
    waited_ns = now_ns - *since_ns;
    if (waited_ns < SPIN_NS)
        return;
    if (waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    if (waited_ns / 8 < SLEEP_NS)
        limit.tv_nsec = (long)(waited_ns / 8);
    syscall(SYS_futex, wake, FUTEX_WAIT_PRIVATE, word, &limit, NULL, 0);
}

void nc_wake(_Atomic uint32_t *wake)
{
    atomic_fetch_add(wake, 1);
    syscall(SYS_futex, wake, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* ---- Launches ------------------------------------------------------------ */

static int make_events(struct nc_stream *s, struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < NC_RING && rc == 0; i++) {
        rc = HVD__CU(err, EventCreate, &s->ring[i].event,
                     CU_EVENT_DISABLE_TIMING);
        if (rc == 0)
            rc = HVD__CU(err, EventCreate, &s->ring[i].start_event,
                         CU_EVENT_DISABLE_TIMING);
    }
    return rc;
}

int nc_stream_open(struct nc_stream *s, size_t fusion, struct hb_error *err)
{
    int rc = HVD__CU(err, StreamCreate, &s->cuda, CU_STREAM_NON_BLOCKING);

    if (rc == 0)
        rc = make_events(s, err);
    if (rc == 0)
        rc = HVD__CU(err, MemHostAlloc, &s->pinned, NC_STAGE_BYTES, 0);
    if (rc == 0)
        rc = hvd__fuse_buffer_open(&s->fusion, fusion, err);
    return rc;
}

void nc_stream_close(struct nc_stream *s)
{
    hvd__fuse_buffer_close(&s->fusion);
    if (s->pinned)
        hvd__cuda.MemFreeHost(s->pinned);
    for (int i = 0; i < NC_RING; i++) {
        if (s->ring[i].event)
            hvd__cuda.EventDestroy(s->ring[i].event);
        if (s->ring[i].start_event)
            hvd__cuda.EventDestroy(s->ring[i].start_event);
    }
    if (s->cuda)
        hvd__cuda.StreamDestroy(s->cuda);
}

struct nc_stream *nc_launch_stream(const struct nc_plane *p, uint64_t launch)
{
    return &p->streams[launch % (uint64_t)p->nused];
}

struct nc_launch *nc_launch_slot(const struct nc_plane *p, uint64_t launch)
{
    return &nc_launch_stream(p, launch)
                ->ring[launch / (uint64_t)p->nused % NC_RING];
}

int nc_launch_is_over(const struct nc_plane *p, uint64_t launch)
{
    return launch <= nc_launch_stream(p, launch)->finished;
}

uint64_t nc_launch_next(const struct nc_plane *p, int stream)
{
    uint64_t finished = p->streams[stream].finished;

    /* Launches have numbers from 1 on. */
    return finished || !stream ? finished + (uint64_t)p->nused
                               : (uint64_t)stream;
}

uint64_t nc_launch_oldest(const struct nc_plane *p)
{
    uint64_t oldest = 0;

    for (int i = 0; i < p->nused; i++) {
        uint64_t next = nc_launch_next(p, i);

        if (next <= p->launched && (!oldest || next < oldest))
            oldest = next;
    }
    return oldest;
}

uint64_t nc_launch_since(const struct nc_plane *p, uint64_t oldest)
{
    uint64_t began_ns = nc_launch_stream(p, oldest)->began_ns;

    return began_ns > p->oldest_ns ? began_ns : p->oldest_ns;
}

static CUevent ready_of(const struct hvd__op *op)
{
    const struct nc_ready *r = op->device.ready;

    if (!r && op->parts && op->nparts)
        r = op->parts[0].ready;
    return r ? r->event : NULL;
}

/* Begins a launch.  If it is not ordered, the caller's own event serves, which
 * lasts as long as the caller waits. */
int nc_launch_begin(struct nc_plane *p, const struct hvd__op *op,
                    struct hb_error *err)
{
    struct nc_launch *l = nc_launch_slot(p, p->launched + 1);

    pthread_mutex_lock(&p->lock);
    l->reached = op->device.ordered ? l->start_event : ready_of(op);
    pthread_mutex_unlock(&p->lock);
    return op->device.ordered
               ? HVD__CU(err, EventRecord, l->start_event, p->on->cuda)
               : 0;
}

uint64_t nc_launch_end(struct nc_plane *p, const struct hvd__op *op,
                       struct hb_error *err)
{
    /* Only this thread writes p->launched. */
    uint64_t number = p->launched + 1, now_ns = hb_now_ns();
    struct nc_launch *l = nc_launch_slot(p, number);

    if (nc_timing_end(p, l, err) < 0 ||
        HVD__CU(err, EventRecord, l->event, p->on->cuda) < 0)
        return 0;
    pthread_mutex_lock(&p->lock);
    l->number = number;
    l->kind = op->kind;
    l->dtype = op->part_dtype;
    l->count = op->count;
    l->algorithm = op->trace.algorithm;
    l->is_timed = p->run.is_timed;
    snprintf(l->name, sizeof(l->name), "%s", op->name);
    /* Unless the stream's launch before is still pending: */
    if (p->on->finished + (uint64_t)p->nused >= number)
        p->on->began_ns = now_ns;
    p->launched = number;
    pthread_mutex_unlock(&p->lock);
    /* Relaxed: independent of other data, and read only in a stall. */
    if (p->config.launched)
        atomic_store_explicit(p->config.launched, number, memory_order_relaxed);
    return number;
}

/* Returns 1 if the launch is over; 0: wait for *event, which is of launch
 * *number >= launch; or negative with err set. */
static int find_launch(struct nc_plane *p, uint64_t launch, CUevent *event,
                       uint64_t *number, struct hb_error *err)
{
    const struct nc_launch *l = nc_launch_slot(p, launch);
    int rc = 0;

    pthread_mutex_lock(&p->lock);
    if (nc_launch_is_over(p, launch)) {
        rc = 1;
    } else if (p->failed.status) {
        rc = p->failed.status;
        if (err)
            *err = p->failed;
    }
    *event = l->event;
    *number = l->number;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Marks launch `number` as finished, and those before it on its stream.
 * Returns 1; 0, without marking it, if the plane is being aborted. */
static int finish(struct nc_plane *p, uint64_t number)
{
    struct nc_stream *s = nc_launch_stream(p, number);
    uint64_t oldest;
    int rc, was_oldest = 0;

    pthread_mutex_lock(&p->lock);
    rc = !p->is_ending;
    oldest = nc_launch_oldest(p);
    if (rc && number > s->finished) {
        s->finished = number;
        s->began_ns = hb_now_ns();
        was_oldest = nc_launch_oldest(p) != oldest;
        if (was_oldest)
            p->oldest_ns = s->began_ns;
    }
    pthread_mutex_unlock(&p->lock);
    if (was_oldest)
        nc_wait_ended(p);
    nc_timing_report(p);
    return rc;
}

int nc_launch_test(struct nc_plane *p, uint64_t launch, struct hb_error *err)
{
    uint64_t number;
    CUevent event;
    CUresult r;
    int rc = find_launch(p, launch, &event, &number, err);

    if (rc != 0)
        return rc;
    r = hvd__cuda.EventQuery(event);
    if (r == CUDA_SUCCESS)
        return finish(p, number);
    if (r == CUDA_ERROR_NOT_READY)
        return 0;
    hvd__cuda_check(r, "cuEventQuery", err);
    nc_name_member(p, p->me, err);
    hb_error_context(err, "CUDA device %d", nc_world.device);
    return nc_fail(p, err);
}

uint64_t nc_launch_pending(struct nc_plane *p)
{
    uint64_t number;

    pthread_mutex_lock(&p->lock);
    number = p->is_ending ? 0 : nc_launch_oldest(p);
    pthread_mutex_unlock(&p->lock);
    return number;
}

CUresult nc_streams_query(const struct nc_plane *p)
{
    CUresult first = CUDA_SUCCESS;

    for (int i = 0; i < p->nstreams; i++) {
        CUstream stream = p->streams[i].cuda;
        CUresult r = stream ? hvd__cuda.StreamQuery(stream) : CUDA_SUCCESS;

        if (r == CUDA_ERROR_NOT_READY)
            return r;
        if (first == CUDA_SUCCESS)
            first = r;
    }
    return first;
}

int nc_is_late(struct nc_plane *p, const struct nc_stream *s)
{
    int late;

    pthread_mutex_lock(&p->lock);
    late = s->is_late;
    pthread_mutex_unlock(&p->lock);
    return late;
}

void nc_drain(struct nc_plane *p, nc_ask_fn *ask, uint64_t deadline_ns)
{
    struct hb_error err = HB_ERROR_INIT;
    uint64_t paused_ns = 0;
    int rc = 0;

    while (rc == 0 && nc_streams_query(p) == CUDA_ERROR_NOT_READY &&
           hb_now_ns() < deadline_ns) {
        nc_pause(&paused_ns, &p->wake);
        rc = nc_check(p, ask, 0, &err);
    }
    if (rc < 0)
        nc_drain_aborted(p, deadline_ns);
}

/* Waits for the streams one by one.  After an abort each soon becomes empty,
 * unless the caller's own work, queued earlier, does not end. */
void nc_drain_aborted(struct nc_plane *p, uint64_t deadline_ns)
{
    uint64_t paused_ns = 0;

    for (int i = 0; i < p->nstreams; i++)
        while (!nc_is_late(p, &p->streams[i]) && hb_now_ns() < deadline_ns &&
               hvd__cuda.StreamQuery(p->streams[i].cuda) ==
                   CUDA_ERROR_NOT_READY)
            nc_pause(&paused_ns, &p->wake);
}

/* ---- The table's ---------------------------------------------------------
 */

/* Returns the first launch to look at so that launches first to last are known
 * to be over: on each stream, the last one is. */
static uint64_t first_to_look_at(const struct nc_plane *p, uint64_t first,
                                 uint64_t last)
{
    uint64_t n = (uint64_t)p->nused;

    return last >= first + n ? last - n + 1 : first;
}

/* Returns as nc_launch_test, for launches first to last. */
static int test_all(struct nc_plane *p, uint64_t first, uint64_t last,
                    struct hb_error *err)
{
    int rc = 1;

    for (uint64_t i = first_to_look_at(p, first, last); i <= last && rc == 1;
         i++)
        rc = nc_launch_test(p, i, err);
    return rc;
}

int nc_test(struct hvd__plane *plane, uint64_t first, uint64_t last,
            struct hb_error *err)
{
    struct nc_plane *p = (struct nc_plane *)plane;
    int rc = nc_enter(err);

    if (rc < 0)
        return rc;
    rc = test_all(p, first, last, err);
    nc_leave();
    return rc;
}

int nc_wait(struct hvd__plane *plane, uint64_t first, uint64_t last,
            uint64_t until_ns, struct hb_error *err)
{
    struct nc_plane *p = (struct nc_plane *)plane;
    uint64_t paused_ns = 0;
    int rc = nc_enter(err);

    if (rc < 0)
        return rc;
    for (;;) {
        rc = test_all(p, first, last, err);
        if (rc != 0 || hb_is_over(until_ns))
            break;
        nc_pause(&paused_ns, &p->wake);
    }
    nc_leave();
    return rc;
}

static int order_one(struct nc_plane *p, uint64_t launch, void *stream,
                     struct hb_error *err)
{
    uint64_t number;
    CUevent event;
    CUcontext ctx;
    int rc = find_launch(p, launch, &event, &number, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = nc_enter_stream(stream, &ctx, err);
    if (rc < 0)
        return rc;
    rc = HVD__CU(err, StreamWaitEvent, stream, event, 0);
    nc_leave();
    return rc;
}

int nc_order(struct hvd__plane *plane, uint64_t first, uint64_t last,
             void *stream, struct hb_error *err)
{
    struct nc_plane *p = (struct nc_plane *)plane;
    int rc = 0;

    for (uint64_t i = first_to_look_at(p, first, last); i <= last && rc == 0;
         i++)
        rc = order_one(p, i, stream, err);
    return rc;
}

void nc_launch_await(struct nc_plane *p, uint64_t launch, uint64_t deadline_ns)
{
    struct hb_error err = HB_ERROR_INIT;
    uint64_t paused_ns = 0;

    while (launch && test_all(p, 1, launch, &err) == 0 &&
           hb_now_ns() < deadline_ns)
        nc_pause(&paused_ns, &p->wake);
}

uint64_t nc_launched(struct hvd__plane *plane)
{
    return ((struct nc_plane *)plane)->launched;
}

void nc_cancel(struct hvd__plane *plane, const struct hb_error *why)
{
    struct hb_error err = *why;

    if (nc_enter(NULL) < 0)
        return;
    nc_fail((struct nc_plane *)plane, &err);
    nc_leave();
}
