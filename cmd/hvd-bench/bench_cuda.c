/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver API, opened at run time.  Uses equivalents of the types of
 * CUDA's cuda.h, so that this builds without it: handles are pointers, a
 * CUdevice and a CUresult are int, a CUdeviceptr is 64 bits.
 */
#include "cmd/hvd-bench/bench_cuda.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

enum {
    CUDA_OUT_OF_MEMORY = 2, /* CUDA_ERROR_OUT_OF_MEMORY */
    STREAM_NON_BLOCKING = 1 /* CU_STREAM_NON_BLOCKING */
};

typedef unsigned long long device_ptr;

struct driver {
    int (*init)(unsigned flags);
    int (*error_name)(int result, const char **name);
    int (*error_string)(int result, const char **text);
    int (*count)(int *n);
    int (*device_get)(int *device, int ordinal);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*alloc)(device_ptr *p, size_t bytes);
    int (*free)(device_ptr p);
    int (*set)(device_ptr p, unsigned char byte, size_t bytes, void *stream);
    int (*write)(device_ptr to, const void *from, size_t bytes);
    int (*read)(void *to, device_ptr from, size_t bytes);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_wait)(void *stream);
    int (*stream_destroy)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event);
    int (*event_elapsed)(float *ms, void *begin, void *end);
    int (*event_destroy)(void *event);
};

#define AT(field) offsetof(struct driver, field)
static const struct bench_symbol symbols[] = {
    {"cuInit", AT(init), NULL},
    {"cuGetErrorName", AT(error_name), NULL},
    {"cuGetErrorString", AT(error_string), NULL},
    {"cuDeviceGetCount", AT(count), NULL},
    {"cuDeviceGet", AT(device_get), NULL},
    {"cuDevicePrimaryCtxRetain", AT(context_retain), NULL},
    {"cuDevicePrimaryCtxRelease_v2", AT(context_release), NULL},
    {"cuCtxSetCurrent", AT(context_set), NULL},
    {"cuMemAlloc_v2", AT(alloc), NULL},
    {"cuMemFree_v2", AT(free), NULL},
    {"cuMemsetD8Async", AT(set), NULL},
    {"cuMemcpyHtoD_v2", AT(write), NULL},
    {"cuMemcpyDtoH_v2", AT(read), NULL},
    {"cuStreamCreate", AT(stream_create), NULL},
    {"cuStreamSynchronize", AT(stream_wait), NULL},
    {"cuStreamDestroy_v2", AT(stream_destroy), NULL},
    {"cuEventCreate", AT(event_create), NULL},
    {"cuEventRecord", AT(event_record), NULL},
    {"cuEventSynchronize", AT(event_wait), NULL},
    {"cuEventElapsedTime_v2", AT(event_elapsed), "cuEventElapsedTime"},
    {"cuEventDestroy_v2", AT(event_destroy), NULL},
    {NULL, 0, NULL},
};

struct bench_cuda {
    struct driver fn;
    int device;
    void *context; /* the device's primary context; NULL: not retained */
    void *stream;  /* NULL: not made */
    void *start_event, *end_event; /* or NULL */
};

void *bench_open_library(const char *knob, const char *file,
                         const struct bench_symbol *symbol, void *fns,
                         struct hb_error *err)
{
    const char *given = hb_knob(knob);
    void *library = dlopen(given ? given : file, RTLD_NOW), *p;

    if (!library) {
        hb_error_set(err, HVD_EUNSUPPORTED, "%s; HVD_%s can name the file",
                     dlerror(), knob);
        return NULL;
    }
    for (; symbol->name; symbol++) {
        p = dlsym(library, symbol->name);
        if (!p && symbol->older)
            p = dlsym(library, symbol->older);
        if (!p) {
            hb_error_set(err, HVD_EUNSUPPORTED, "%s has no %s",
                         given ? given : file, symbol->name);
            return NULL;
        }
        memcpy((char *)fns + symbol->at, &p, sizeof(p)); /* the way POSIX
                                                            shows */
    }
    return library;
}

static int check(const struct bench_cuda *c, int result, const char *call,
                 struct hb_error *err)
{
    const char *name = NULL, *text = NULL;

    if (result == 0)
        return 0;
    c->fn.error_name(result, &name);
    c->fn.error_string(result, &text);
    return hb_error_set(err,
                        result == CUDA_OUT_OF_MEMORY ? HVD_ENOMEM : HVD_ESYSTEM,
                        "%s: %s (%s)", call, text ? text : "unknown error",
                        name ? name : "no name");
}

static device_ptr address(const void *p)
{
    return (device_ptr)(uintptr_t)p;
}

/* ---- Opening ----------------------------------------------------------- */

static int open_device(struct bench_cuda *c, int device, struct hb_error *err)
{
    int n = 0, rc = check(c, c->fn.init(0), "cuInit", err);

    if (rc == 0)
        rc = check(c, c->fn.count(&n), "cuDeviceGetCount", err);
    if (rc == 0 && n == 0)
        rc = hb_error_set(err, HVD_EUNSUPPORTED, "there is no GPU");
    if (rc == 0)
        rc = check(c, c->fn.device_get(&c->device, device % n), "cuDeviceGet",
                   err);
    if (rc == 0)
        rc = check(c, c->fn.context_retain(&c->context, c->device),
                   "cuDevicePrimaryCtxRetain", err);
    if (rc == 0)
        rc = check(c, c->fn.context_set(c->context), "cuCtxSetCurrent", err);
    return rc;
}

static int make_stream(struct bench_cuda *c, struct hb_error *err)
{
    int rc = check(c, c->fn.stream_create(&c->stream, STREAM_NON_BLOCKING),
                   "cuStreamCreate", err);

    if (rc == 0)
        rc = check(c, c->fn.event_create(&c->start_event, 0), "cuEventCreate",
                   err);
    if (rc == 0)
        rc = check(c, c->fn.event_create(&c->end_event, 0), "cuEventCreate",
                   err);
    return rc;
}

struct bench_cuda *bench_cuda_open(int device, struct hb_error *err)
{
    struct bench_cuda *c = hb_calloc(1, sizeof(*c));

    if (!c) {
        hb_error_set(err, HVD_ENOMEM, "no memory");
        return NULL;
    }
    if (bench_open_library("CUDA_LIBRARY", "libcuda.so.1", symbols, &c->fn,
                           err) &&
        open_device(c, device, err) == 0 && make_stream(c, err) == 0)
        return c;
    bench_cuda_close(c);
    return NULL;
}

void bench_cuda_close(struct bench_cuda *c)
{
    if (!c)
        return;
    if (c->end_event)
        c->fn.event_destroy(c->end_event);
    if (c->start_event)
        c->fn.event_destroy(c->start_event);
    if (c->stream)
        c->fn.stream_destroy(c->stream);
    if (c->context)
        c->fn.context_release(c->device);
    hb_free(c);
}

void *bench_cuda_stream(const struct bench_cuda *c)
{
    return c->stream;
}

/* ---- Memory ------------------------------------------------------------ */

int bench_cuda_alloc(struct bench_cuda *c, size_t bytes, void **p,
                     struct hb_error *err)
{
    device_ptr at = 0;
    int rc = check(c, c->fn.alloc(&at, bytes), "cuMemAlloc", err);

    *p = (void *)(uintptr_t)at; /* NOLINT: a device's address */
    return rc;
}

void bench_cuda_free(struct bench_cuda *c, void *p)
{
    if (p)
        c->fn.free(address(p));
}

/* Waits for the default stream's work so far. */
static int wait_for_device(struct bench_cuda *c, struct hb_error *err)
{
    return check(c, c->fn.stream_wait(NULL), "cuStreamSynchronize", err);
}

int bench_cuda_set(struct bench_cuda *c, void *p, int byte, size_t bytes,
                   struct hb_error *err)
{
    int rc = 0;

    if (bytes > 0)
        rc = check(c, c->fn.set(address(p), (unsigned char)byte, bytes, NULL),
                   "cuMemsetD8Async", err);
    return rc < 0 ? rc : wait_for_device(c, err);
}

int bench_cuda_write(struct bench_cuda *c, void *to, const void *from,
                     size_t bytes, struct hb_error *err)
{
    int rc = 0;

    if (bytes > 0)
        rc = check(c, c->fn.write(address(to), from, bytes), "cuMemcpyHtoD",
                   err);
    return rc < 0 ? rc : wait_for_device(c, err);
}

int bench_cuda_read(struct bench_cuda *c, void *to, const void *from,
                    size_t bytes, struct hb_error *err)
{
    if (bytes == 0)
        return 0;
    return check(c, c->fn.read(to, address(from), bytes), "cuMemcpyDtoH", err);
}

/* ---- Time -------------------------------------------------------------- */

int bench_cuda_wait(struct bench_cuda *c, struct hb_error *err)
{
    return check(c, c->fn.stream_wait(c->stream), "cuStreamSynchronize", err);
}

int bench_cuda_start(struct bench_cuda *c, struct hb_error *err)
{
    return check(c, c->fn.event_record(c->start_event, c->stream),
                 "cuEventRecord", err);
}

int bench_cuda_stop(struct bench_cuda *c, double *ns, struct hb_error *err)
{
    float ms = 0;
    int rc = check(c, c->fn.event_record(c->end_event, c->stream),
                   "cuEventRecord", err);

    if (rc == 0)
        rc =
            check(c, c->fn.event_wait(c->end_event), "cuEventSynchronize", err);
    if (rc == 0)
        rc = check(c, c->fn.event_elapsed(&ms, c->start_event, c->end_event),
                   "cuEventElapsedTime", err);
    *ns = (double)ms * 1e6;
    return rc;
}
