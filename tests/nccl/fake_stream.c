/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of the CUDA driver API: streams and events; see fake_cuda.h.
 *
 * A stream numbers its jobs.  An event holds the stream and job number of its
 * last recording; waiting for it is a job that waits until that stream has
 * completed that number.  Streams and recordings are never freed, so that a
 * stale handle is noticed.  Each has its own lock, so that ThreadSanitizer sees
 * no order that the caller did not ask for.
 */
#include "tests/nccl/fake_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STREAM = 0x57ea3, EVENT = 0xe4e27, GONE = 0xdead };

struct CUevent_st {
    unsigned magic;
    CUevent next; /* list of all, for LeakSanitizer */
    CUcontext ctx;
    int timed;
    pthread_mutex_t lock; /* protects what follows */
    CUstream stream;      /* NULL: never recorded */
    uint64_t number;
    uint64_t at_ns;
};

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static CUevent events;

/* ---- Threads ----------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void delay(CUstream s)
{
    long most = fake_setting("FAKE_CUDA_DELAY_US", 200);

    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    if (most > 0 && s->random % 4 == 0)
        usleep((useconds_t)(s->random / 4 % (uint64_t)most));
}

static void *stream_thread(void *arg)
{
    CUstream s = arg;
    struct fake_job *job;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->closing)
            pthread_cond_wait(&s->changed, &s->lock);
        job = s->first;
        if (!job)
            break;
        s->first = job->next;
        if (!s->first)
            s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        delay(s);
        job->run(job->arg);
        free(job);
        pthread_mutex_lock(&s->lock);
        s->completed++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static CUstream make_stream(CUcontext ctx, unsigned flags)
{
    static unsigned made;
    CUstream s = fake_memory(sizeof(*s));

    s->magic = STREAM;
    s->ctx = ctx;
    s->flags = flags;
    s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->random = (uint64_t)fake_setting("FAKE_CUDA_SEED", 1) * 1000003u +
                (uint64_t)fake_rank() * 131u +
                __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED) * 7919u + 1u;
    s->random *= 0x9e3779b97f4a7c15u;
    if (pthread_create(&s->thread, NULL, stream_thread, s))
        fake_misuse("no thread for a stream");
    pthread_detach(s->thread);
    return s;
}

/* Adds a stream to its context; the caller holds ctx->lock. */
static CUstream add_stream(CUcontext ctx, unsigned flags)
{
    CUstream s = make_stream(ctx, flags);

    s->next = ctx->streams;
    ctx->streams = s;
    return s;
}

static uint64_t push(CUstream s, fake_job_fn *run, void *arg)
{
    struct fake_job *job = fake_memory(sizeof(*job));
    uint64_t number;

    job->run = run;
    job->arg = arg;
    pthread_mutex_lock(&s->lock);
    *s->last = job;
    s->last = &job->next;
    number = ++s->submitted;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return number;
}

void fake_wait(CUstream s, uint64_t number)
{
    pthread_mutex_lock(&s->lock);
    while (s->completed < number)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static int is_done(CUstream s, uint64_t number)
{
    int done;

    pthread_mutex_lock(&s->lock);
    done = s->completed >= number;
    pthread_mutex_unlock(&s->lock);
    return done;
}

static uint64_t submitted(CUstream s)
{
    uint64_t number;

    pthread_mutex_lock(&s->lock);
    number = s->submitted;
    pthread_mutex_unlock(&s->lock);
    return number;
}

/* ---- Order between streams --------------------------------------------- */

struct wait {
    CUstream stream;
    uint64_t number;
};

static void run_wait(void *arg)
{
    struct wait *w = arg;

    fake_wait(w->stream, w->number);
    free(w);
}

static void push_wait(CUstream s, CUstream other, uint64_t number)
{
    struct wait *w;

    if (s == other || is_done(other, number))
        return;
    w = fake_memory(sizeof(*w));
    w->stream = other;
    w->number = number;
    push(s, run_wait, w);
}

CUstream fake_stream(CUstream s, const char *function)
{
    static _Thread_local CUstream own;
    CUcontext ctx = fake_context();

    if (s && s != CU_STREAM_LEGACY && s != CU_STREAM_PER_THREAD) {
        if (s->magic != STREAM)
            fake_misuse("%s: %p is no stream", function, (void *)s);
        return s;
    }
    if (!ctx)
        fake_misuse("%s: a default stream without a context", function);
    pthread_mutex_lock(&ctx->lock);
    if (s == CU_STREAM_PER_THREAD) {
        if (!own || own->ctx != ctx)
            own = add_stream(ctx, 0);
        s = own;
    } else {
        if (!ctx->legacy)
            ctx->legacy = make_stream(ctx, 0);
        s = ctx->legacy;
    }
    pthread_mutex_unlock(&ctx->lock);
    return s;
}

/* Orders `s` as CUDA does: the default stream and the blocking streams wait for
 * each other.  The caller holds the context's lock. */
static void order_default(CUstream s)
{
    CUcontext ctx = s->ctx;

    if (s == ctx->legacy) {
        for (CUstream t = ctx->streams; t; t = t->next)
            if (t->blocking)
                push_wait(s, t, submitted(t));
    } else if (s->blocking && ctx->legacy) {
        push_wait(s, ctx->legacy, submitted(ctx->legacy));
    }
}

uint64_t fake_submit(CUstream s, fake_job_fn *run, void *arg)
{
    uint64_t number = 0;

    pthread_mutex_lock(&s->ctx->lock);
    if (s->capturing) {
        s->capturing = 2;
    } else {
        order_default(s);
        number = push(s, run, arg);
    }
    pthread_mutex_unlock(&s->ctx->lock);
    return number;
}

void fake_drain(CUcontext ctx)
{
    CUstream first, legacy;

    pthread_mutex_lock(&ctx->lock);
    first = ctx->streams;
    legacy = ctx->legacy;
    pthread_mutex_unlock(&ctx->lock);
    for (CUstream s = first; s; s = s->next)
        fake_wait(s, submitted(s));
    if (legacy)
        fake_wait(legacy, submitted(legacy));
}

int fake_stream_device(CUstream s)
{
    return s->ctx->device;
}

/* ---- Calls: streams ---------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority)
{
    CUresult rc = fake_enter("cuStreamCreateWithPriority", FAKE_CONTEXT);
    CUcontext ctx = fake_context();

    (void)priority;
    if (rc)
        return rc;
    pthread_mutex_lock(&ctx->lock);
    *s = add_stream(ctx, flags);
    pthread_mutex_unlock(&ctx->lock);
    fake_count(1);
    return rc;
}

CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
    CUresult rc = fake_fault("cuStreamCreate");

    return rc ? rc : cuStreamCreateWithPriority(s, flags, 0);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUresult rc = fake_enter("cuCtxGetStreamPriorityRange", FAKE_CONTEXT);

    if (rc == CUDA_SUCCESS) {
        *least = 0;
        *greatest = -5;
    }
    return rc;
}

/* Jobs submitted before still run. */
CUresult cuStreamDestroy(CUstream s)
{
    CUresult rc = fake_enter("cuStreamDestroy", FAKE_CONTEXT);

    if (rc)
        return rc;
    if (s != fake_stream(s, "cuStreamDestroy") || s == s->ctx->legacy)
        fake_misuse("cuStreamDestroy: a default stream");
    pthread_mutex_lock(&s->lock);
    s->magic = GONE;
    s->closing = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    fake_count(-1);
    return rc;
}

CUresult cuStreamGetCtx(CUstream s, CUcontext *ctx)
{
    CUresult rc = fake_enter("cuStreamGetCtx", FAKE_CONTEXT);

    if (rc == CUDA_SUCCESS)
        *ctx = fake_stream(s, "cuStreamGetCtx")->ctx;
    return rc;
}

static CUresult enter_idle(const char *function, CUstream *s)
{
    CUresult rc = fake_enter(function, FAKE_CONTEXT);

    if (rc)
        return rc;
    *s = fake_stream(*s, function);
    pthread_mutex_lock(&(*s)->ctx->lock);
    if ((*s)->capturing) {
        (*s)->capturing = 2;
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&(*s)->ctx->lock);
    return rc;
}

CUresult cuStreamQuery(CUstream s)
{
    CUresult rc = enter_idle("cuStreamQuery", &s);

    if (rc)
        return rc;
    return is_done(s, submitted(s)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream s)
{
    CUresult rc = enter_idle("cuStreamSynchronize", &s);

    if (rc)
        return rc;
    fake_wait(s, submitted(s));
    return fake_enter("cuStreamSynchronize", FAKE_CONTEXT);
}

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    CUresult rc = enter_idle("cuStreamBeginCapture", &s);

    if (rc == CUDA_SUCCESS && s == s->ctx->legacy)
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (rc)
        return rc;
    s->capturing = 1;
    s->global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (s->global)
        s->broken_before = fake_capture_begins();
    return rc;
}

/* Graphs are not modelled: *graph is NULL. */
CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    CUresult rc = fake_enter("cuStreamEndCapture", FAKE_CONTEXT);

    if (rc)
        return rc;
    s = fake_stream(s, "cuStreamEndCapture");
    pthread_mutex_lock(&s->ctx->lock);
    if (s->global && fake_capture_ends(s->broken_before))
        s->capturing = 2;
    if (s->capturing != 1)
        rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    s->capturing = s->global = 0;
    pthread_mutex_unlock(&s->ctx->lock);
    *graph = NULL;
    return rc;
}

/* Returns whether the default stream would have to wait for a stream that is
 * being captured. */
static int would_join(CUcontext ctx)
{
    int joins = 0;

    for (CUstream t = ctx->streams; t; t = t->next)
        joins |= t->blocking && t->capturing;
    return joins;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
    CUresult rc = fake_enter("cuStreamIsCapturing", FAKE_CONTEXT);

    if (rc)
        return rc;
    s = fake_stream(s, "cuStreamIsCapturing");
    pthread_mutex_lock(&s->ctx->lock);
    if (s == s->ctx->legacy && would_join(s->ctx))
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else
        *status = s->capturing == 0   ? CU_STREAM_CAPTURE_STATUS_NONE
                  : s->capturing == 1 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                      : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    pthread_mutex_unlock(&s->ctx->lock);
    return rc;
}

struct host_call {
    CUhostFn fn;
    void *arg;
};

static void run_host_call(void *arg)
{
    struct host_call *call = arg;

    call->fn(call->arg);
    free(call);
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *arg)
{
    CUresult rc = fake_enter("cuLaunchHostFunc", FAKE_CONTEXT);
    struct host_call *call;

    if (rc)
        return rc;
    call = fake_memory(sizeof(*call));
    call->fn = fn;
    call->arg = arg;
    if (fake_submit(fake_stream(s, "cuLaunchHostFunc"), run_host_call, call))
        return rc;
    free(call);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* ---- Calls: events ----------------------------------------------------- */

static void check_event(CUevent e, const char *function)
{
    if (!e || e->magic != EVENT)
        fake_misuse("%s: %p is no event", function, (void *)e);
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CUresult rc = fake_enter("cuEventCreate", FAKE_CONTEXT);
    CUevent e;

    if (rc)
        return rc;
    e = fake_memory(sizeof(*e));
    e->magic = EVENT;
    e->ctx = fake_context();
    e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_lock(&events_lock);
    e->next = events;
    events = e;
    pthread_mutex_unlock(&events_lock);
    fake_count(1);
    *event = e;
    return rc;
}

CUresult cuEventDestroy(CUevent e)
{
    CUresult rc = fake_enter("cuEventDestroy", FAKE_CONTEXT);

    if (rc)
        return rc;
    check_event(e, "cuEventDestroy");
    pthread_mutex_lock(&e->lock);
    e->magic = GONE;
    pthread_mutex_unlock(&e->lock);
    fake_count(-1);
    return rc;
}

static void run_record(void *arg)
{
    CUevent e = arg;

    pthread_mutex_lock(&e->lock);
    e->at_ns = now_ns();
    pthread_mutex_unlock(&e->lock);
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    CUresult rc = fake_enter("cuEventRecord", FAKE_CONTEXT);
    uint64_t number;

    if (rc)
        return rc;
    check_event(e, "cuEventRecord");
    s = fake_stream(s, "cuEventRecord");
    if (e->ctx != s->ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    number = fake_submit(s, run_record, e);
    if (!number)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&e->lock);
    e->stream = s;
    e->number = number;
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* Returns where `e` was last recorded; stream NULL if nowhere. */
static struct wait recorded(CUevent e, const char *function)
{
    struct wait w;

    check_event(e, function);
    pthread_mutex_lock(&e->lock);
    w = (struct wait){e->stream, e->number};
    pthread_mutex_unlock(&e->lock);
    return w;
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    CUresult rc = fake_enter("cuStreamWaitEvent", FAKE_CONTEXT);
    struct wait w, *copy;

    (void)flags;
    if (rc)
        return rc;
    w = recorded(e, "cuStreamWaitEvent");
    s = fake_stream(s, "cuStreamWaitEvent");
    if (!w.stream || w.stream == s)
        return rc;
    copy = fake_memory(sizeof(*copy));
    *copy = w;
    if (fake_submit(s, run_wait, copy))
        return rc;
    free(copy);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuEventQuery(CUevent e)
{
    CUresult rc = fake_enter("cuEventQuery", FAKE_CONTEXT);
    struct wait w;

    if (rc)
        return rc;
    w = recorded(e, "cuEventQuery");
    if (w.stream && !is_done(w.stream, w.number))
        return CUDA_ERROR_NOT_READY;
    return fake_enter("cuEventQuery", FAKE_CONTEXT);
}

CUresult cuEventSynchronize(CUevent e)
{
    CUresult rc = fake_enter("cuEventSynchronize", FAKE_CONTEXT);
    struct wait w;

    if (rc)
        return rc;
    w = recorded(e, "cuEventSynchronize");
    if (w.stream)
        fake_wait(w.stream, w.number);
    return fake_enter("cuEventSynchronize", FAKE_CONTEXT);
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    CUresult rc = fake_enter("cuEventElapsedTime", FAKE_CONTEXT);
    struct wait a, b;

    if (rc)
        return rc;
    a = recorded(from, "cuEventElapsedTime");
    b = recorded(to, "cuEventElapsedTime");
    if (!from->timed || !to->timed || !a.stream || !b.stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(a.stream, a.number) || !is_done(b.stream, b.number))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)to->at_ns - (double)from->at_ns) / 1e6f;
    return rc;
}
