/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the device worked, for timelines and statistics: a timed operation
 * has an event before and one after it on its stream.
 *
 * Events only measure the time between each other, so one of them, the clock,
 * is recorded when the host reads its own clock.  Differences are floats of
 * milliseconds, so the clock is set anew now and then, while no launch is
 * pending.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/sys/clock.h"

#include <stdio.h>

#define CLOCK_NS UINT64_C(1000000000) /* most age of the clock */

/* Records the event p->clock and notes in p->clock_ns when the device reached
 * it.  Uses a new stream, on which nothing delays the event. */
static int set_clock(struct nc_plane *p, struct hb_error *err)
{
    CUstream stream = NULL;
    int rc = 0;

    if (!p->clock)
        rc = HVD__CU(err, EventCreate, &p->clock, CU_EVENT_DEFAULT);
    if (rc == 0)
        rc = HVD__CU(err, StreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (rc == 0)
        rc = HVD__CU(err, EventRecord, p->clock, stream);
    if (rc == 0)
        rc = HVD__CU(err, StreamSynchronize, stream);
    if (rc == 0)
        p->clock_ns = hb_now_ns();
    if (stream)
        hvd__cuda.StreamDestroy(stream);
    return rc;
}

static int make_events(struct nc_launch *l, struct hb_error *err)
{
    int rc = 0;

    if (!l->from)
        rc = HVD__CU(err, EventCreate, &l->from, CU_EVENT_DEFAULT);
    if (rc == 0 && !l->to)
        rc = HVD__CU(err, EventCreate, &l->to, CU_EVENT_DEFAULT);
    return rc;
}

/* Returns whether no launch is pending that would use the present clock. */
static int is_quiet(struct nc_plane *p)
{
    int quiet;

    pthread_mutex_lock(&p->lock);
    quiet = p->reported == p->launched;
    pthread_mutex_unlock(&p->lock);
    return quiet;
}

int nc_timing_begin(struct nc_plane *p, struct hb_error *err)
{
    struct nc_launch *l = nc_launch_slot(p, p->launched + 1);
    int rc = 0;

    if (!p->run.is_timed)
        return 0;
    if (!p->clock_ns || (hb_now_ns() - p->clock_ns > CLOCK_NS && is_quiet(p)))
        rc = set_clock(p, err);
    pthread_mutex_lock(&p->lock);
    l->is_timed = 0; /* left from the slot's earlier launch */
    pthread_mutex_unlock(&p->lock);
    if (rc == 0)
        rc = make_events(l, err);
    return rc < 0 ? rc : HVD__CU(err, EventRecord, l->from, p->on->cuda);
}

int nc_timing_end(struct nc_plane *p, struct nc_launch *l, struct hb_error *err)
{
    return p->run.is_timed ? HVD__CU(err, EventRecord, l->to, p->on->cuda) : 0;
}

static uint64_t since_clock(const struct nc_plane *p, CUevent event)
{
    float ms = 0;

    if (hvd__cuda.EventElapsedTime(&ms, p->clock, event) != CUDA_SUCCESS)
        return 0;
    return p->clock_ns + (uint64_t)(int64_t)((double)ms * 1e6);
}

/* Finds the next timed launch that is over: 1, or 0. */
static int next_span(struct nc_plane *p, struct hvd__gpu_span *span,
                     char name[NC_NAME_BYTES])
{
    int found = 0;

    pthread_mutex_lock(&p->lock);
    while (!found && p->reported < p->launched &&
           nc_launch_is_over(p, p->reported + 1)) {
        const struct nc_launch *l = nc_launch_slot(p, ++p->reported);

        /* Skip launches whose slot was reused. */
        if (l->number != p->reported || !l->is_timed)
            continue;
        snprintf(name, NC_NAME_BYTES, "%s", l->name);
        *span = (struct hvd__gpu_span){.kind = l->kind,
                                       .dtype = l->dtype,
                                       .count = l->count,
                                       .name = name,
                                       .algorithm = l->algorithm,
                                       .began_ns = since_clock(p, l->from),
                                       .done_ns = since_clock(p, l->to)};
        found = span->began_ns && span->done_ns >= span->began_ns;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

void nc_timing_report(struct nc_plane *p)
{
    struct hvd__gpu_span span;
    char name[NC_NAME_BYTES];

    while (p->config.ran && next_span(p, &span, name))
        p->config.ran(p->config.ran_arg, &span);
}

void nc_timing_fini(struct nc_plane *p)
{
    for (int i = 0; i < p->nstreams * NC_RING; i++) {
        struct nc_launch *l = &p->streams[i / NC_RING].ring[i % NC_RING];

        if (l->from)
            hvd__cuda.EventDestroy(l->from);
        if (l->to)
            hvd__cuda.EventDestroy(l->to);
    }
    if (p->clock)
        hvd__cuda.EventDestroy(p->clock);
}
