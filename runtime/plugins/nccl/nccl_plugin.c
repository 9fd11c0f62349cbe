/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plug-in: its table, this process's device, the place of memory, and
 * events on callers' streams.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <string.h>

struct nc_world nc_world = {
    .nccl = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .device = -1,
};

enum { LIMIT_S = 600, LIMIT_MAX_S = 365 * 24 * 3600 };

/* ---- Settings ---------------------------------------------------------- */

static int read_limit(struct nc_world *w, struct hb_error *err)
{
    const char *shutdown = hb_knob("STALL_SHUTDOWN_TIME_SECONDS");
    double s = 0;
    int off = 0, rc = hb_knob_bool("STALL_CHECK_DISABLE", &off, err);

    if (rc == 0 && shutdown && !off) {
        rc = hb_parse_double(shutdown, 0, LIMIT_MAX_S, &s, err);
        if (rc < 0)
            hb_error_context(err, "HVD_STALL_SHUTDOWN_TIME_SECONDS");
    }
    w->limit_s = s > 1 ? (int64_t)s : s > 0 ? 1 : LIMIT_S;
    w->ends_job = s > 0 && !hb_knob("NCCL_TIMEOUT");
    if (rc == 0)
        rc = hb_knob_i64("NCCL_TIMEOUT", 1, LIMIT_MAX_S, &w->limit_s, err);
    return rc;
}

static int read_settings(struct nc_world *w, struct hb_error *err)
{
    int hierarchical = 0, torus = 0, rc = read_limit(w, err);
    int64_t streams = 1;

    w->gpu = -1;
    if (rc == 0)
        rc = hb_knob_i64("GPU", 0, INT32_MAX, &w->gpu, err);
    if (rc == 0)
        rc = hb_knob_bool("HIERARCHICAL_ALLREDUCE", &hierarchical, err);
    if (rc == 0)
        rc = hb_knob_bool("TORUS_ALLREDUCE", &torus, err);
    if (rc == 0)
        rc = hb_knob_i64("NUM_NCCL_STREAMS", 1, INT32_MAX, &streams, err);
    w->streams = streams < NC_STREAMS ? (int)streams : NC_STREAMS;
    w->layers = torus ? NC_TORUS : hierarchical ? NC_HIERARCHICAL : NC_FLAT;
    return rc;
}

/* Refuses NCCL_COMM_BLOCKING: blocking calls of NCCL could not be aborted. */
static int check_blocking(struct hb_error *err)
{
    const char *blocking = hb_variable("NCCL_COMM_BLOCKING");

    if (!blocking || strcmp(blocking, "1") != 0)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "NCCL_COMM_BLOCKING is 1, which leaves hangs of NCCL "
                        "without a remedy; unset it");
}

/* ---- The device -------------------------------------------------------- */

/* Swaps the thread's capture mode with *mode.  While one thread captures a
 * stream into a graph, CUDA refuses calls of other threads that might be part
 * of it by mistake, such as cuEventQuery, and breaks the capture, except in
 * threads in RELAXED mode.  That is safe, as nothing here touches a stream
 * that is being captured. */
static void exchange_capture(CUstreamCaptureMode *mode)
{
    hvd__cuda.ThreadExchangeStreamCaptureMode(mode);
}

static int retain(struct nc_world *w, CUdevice d, struct hb_error *err)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int rc;

    exchange_capture(&mode);
    rc = HVD__CU(err, DevicePrimaryCtxRetain, &w->ctx, d);
    exchange_capture(&mode);
    return rc;
}

static int has_pools(CUdevice d)
{
    int value = 0;

    return hvd__cuda.MemAllocAsync && hvd__cuda.MemFreeAsync &&
           hvd__cuda.DeviceGetAttribute(
               &value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, d) ==
               CUDA_SUCCESS &&
           value;
}

/* Makes `device` this process's device; the caller holds the lock. */
static int use_device(struct nc_world *w, int device, struct hb_error *err)
{
    CUdevice d = 0;
    int rc;

    if (w->device == device)
        return 0;
    if (w->device >= 0)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "memory of CUDA device %d, and this rank uses "
                            "device %d; a rank uses one",
                            device, w->device);
    rc = HVD__CU(err, DeviceGet, &d, device);
    if (rc == 0)
        rc = retain(w, d, err);
    if (rc < 0) {
        w->ctx = NULL;
        return hb_error_context(err, "CUDA device %d", device);
    }
    w->cu_device = d;
    w->has_pools = has_pools(d);
    w->device = device;
    return 0;
}

/* Returns the device of the calling thread's context, else the one that hvdrun
 * assigned (HVD_GPU), else 0. */
static int likely_device(const struct nc_world *w)
{
    CUcontext current = NULL;
    CUdevice d = 0;
    int count = 0;

    if (hvd__cuda.CtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        hvd__cuda.CtxGetDevice(&d) == CUDA_SUCCESS)
        return (int)d;
    hvd__cuda.DeviceGetCount(&count);
    return w->gpu >= 0 && w->gpu < count ? (int)w->gpu : 0;
}

int nc_device_any(struct hb_error *err)
{
    struct nc_world *w = &nc_world;
    int rc = 0;

    pthread_mutex_lock(&w->lock);
    if (w->device < 0)
        rc = use_device(w, likely_device(w), err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int nc_kernels(struct hb_error *err)
{
    struct nc_world *w = &nc_world;
    int rc = 0;

    pthread_mutex_lock(&w->lock);
    if (!w->kernels.module)
        rc = hvd__kernels_open(&w->kernels, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* Nesting of nc_enter in the calling thread, and its capture mode before. */
static _Thread_local struct {
    int depth;
    CUstreamCaptureMode mode;
} inside;

int nc_enter_context(CUcontext ctx, struct hb_error *err)
{
    int rc = HVD__CU(err, CtxPushCurrent, ctx);

    if (rc < 0 || inside.depth++ > 0)
        return rc;
    inside.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange_capture(&inside.mode);
    return 0;
}

int nc_enter(struct hb_error *err)
{
    return nc_enter_context(nc_world.ctx, err);
}

void nc_leave(void)
{
    CUcontext ctx;

    if (--inside.depth == 0)
        exchange_capture(&inside.mode);
    hvd__cuda.CtxPopCurrent(&ctx);
}

/* ---- Where memory lies --------------------------------------------------- */

/* Returns the device that p belongs to; -1: host memory. */
static int device_of(const void *p)
{
    CUmemorytype type = 0;
    unsigned managed = 0;
    int device = -1;
    void *out[] = {&type, &managed, &device};
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};

    if (hvd__cuda.PointerGetAttributes(3, what, out, (CUdeviceptr)p) !=
        CUDA_SUCCESS)
        return -1;
    return type == CU_MEMORYTYPE_DEVICE || managed ? device : -1;
}

enum hvd__place nc_place(const void *p)
{
    /* Works without NCCL; without CUDA there is no device memory. */
    return hvd__cuda.version && device_of(p) >= 0 ? HVD__DEVICE : HVD__HOST;
}

int nc_is_own(const void *p)
{
    int device;

    pthread_mutex_lock(&nc_world.lock);
    device = nc_world.device;
    pthread_mutex_unlock(&nc_world.lock);
    return device >= 0 && device_of(p) == device;
}

/* ---- What callers' streams have to have done -------------------------------
 */

static int check_capture(CUstream stream, struct hb_error *err)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = hvd__cuda.StreamIsCapturing(stream, &status);

    if (r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
        (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "the stream is being captured into a CUDA graph, "
                            "and ranks agree on each operation when it runs; "
                            "call it outside of the capture");
    return hvd__cuda_check(r, "cuStreamIsCapturing", err);
}

/* Returns an event of ctx, the current context; NULL with err set. */
static struct nc_ready *take_event(CUcontext ctx, struct hb_error *err)
{
    struct nc_ready **at = &nc_world.spare, *r;

    pthread_mutex_lock(&nc_world.lock);
    while (*at && (*at)->ctx != ctx)
        at = &(*at)->next;
    r = *at;
    if (r)
        *at = r->next;
    pthread_mutex_unlock(&nc_world.lock);
    if (r)
        return r;
    r = hb_calloc(1, sizeof(*r));
    if (!r) {
        hb_error_set(err, HVD_ENOMEM, "no memory for an event");
        return NULL;
    }
    r->ctx = ctx;
    if (HVD__CU(err, EventCreate, &r->event, CU_EVENT_DISABLE_TIMING) == 0)
        return r;
    hb_free(r);
    return NULL;
}

static void nc_done(void *ready)
{
    struct nc_ready *r = ready;

    pthread_mutex_lock(&nc_world.lock);
    r->next = nc_world.spare;
    nc_world.spare = r;
    pthread_mutex_unlock(&nc_world.lock);
}

static int record(CUcontext ctx, CUstream stream, void **ready,
                  struct hb_error *err)
{
    struct nc_ready *r = take_event(ctx, err);
    int rc;

    if (!r)
        return err->status;
    rc = HVD__CU(err, EventRecord, r->event, stream);
    if (rc == 0)
        *ready = r;
    else
        nc_done(r);
    return rc;
}

/* Sets *ctx to the stream's context; for default streams, the calling
 * thread's, if it has one. */
static int context_of(CUstream stream, CUcontext *ctx, struct hb_error *err)
{
    CUcontext current = NULL;
    int rc = HVD__CU(err, CtxGetCurrent, &current);

    *ctx = current ? current : nc_world.ctx;
    if (rc == 0 && stream && stream != CU_STREAM_LEGACY &&
        stream != CU_STREAM_PER_THREAD)
        rc = HVD__CU(err, StreamGetCtx, stream, ctx);
    return rc;
}

int nc_enter_stream(CUstream stream, CUcontext *ctx, struct hb_error *err)
{
    int rc = context_of(stream, ctx, err);

    if (rc == 0)
        rc = nc_enter_context(*ctx, err);
    if (rc < 0)
        return rc;
    rc = check_capture(stream, err);
    if (rc < 0)
        nc_leave();
    return rc;
}

static int nc_issue(void *stream, const void *buf, void **ready,
                    struct hb_error *err)
{
    struct nc_world *w = &nc_world;
    int device = buf ? device_of(buf) : -1, rc;
    CUcontext ctx;

    if (device < 0) {
        rc = nc_device_any(err);
    } else {
        pthread_mutex_lock(&w->lock);
        rc = use_device(w, device, err);
        pthread_mutex_unlock(&w->lock);
    }
    if (rc == 0)
        rc = nc_enter_stream(stream, &ctx, err);
    if (rc < 0)
        return rc;
    rc = record(ctx, stream, ready, err);
    nc_leave();
    return rc;
}

/* ---- Life ------------------------------------------------------------------
 */

static int nc_open(struct hb_error *err)
{
    int rc = read_settings(&nc_world, err);

    if (rc == 0)
        rc = check_blocking(err);
    if (rc == 0)
        rc = hvd__cuda_open(err);
    if (rc == 0)
        rc = hvd__nccl_open(err);
    return rc;
}

static void free_spare(struct nc_world *w)
{
    while (w->spare) {
        struct nc_ready *r = w->spare;

        w->spare = r->next;
        if (nc_enter_context(r->ctx, NULL) == 0) {
            hvd__cuda.EventDestroy(r->event);
            nc_leave();
        }
        hb_free(r);
    }
}

static void nc_close(void)
{
    struct nc_world *w = &nc_world;

    nc_watch_stop();
    free_spare(w);
    if (w->kernels.module && !w->stranded && nc_enter(NULL) == 0) {
        hvd__kernels_close(&w->kernels);
        nc_leave();
    }
    memset(&w->kernels, 0, sizeof(w->kernels));
    if (w->ctx && !w->stranded)
        hvd__cuda.DevicePrimaryCtxRelease(w->cu_device);
    w->ctx = NULL;
    w->device = -1;
}

/* ---- The table ------------------------------------------------------------
 */

HVD_API hvd__plugin_fn hvd_plugin;

const void *hvd_plugin(const char *abi, struct hb_error *err)
{
    static const struct hvd__gpu table = {
        .name = "nccl",
        .version = hvd__nccl_installed,
        .open = nc_open,
        .close = nc_close,
        .memory_of = nc_place,
        .issue = nc_issue,
        .done = nc_done,
        .plane = nc_plane_new,
    };

    return hvd__plugin_table(&table, "libhvd-nccl.so", abi, err);
}
