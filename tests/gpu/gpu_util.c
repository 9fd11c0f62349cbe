/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu_util.h. */
#include "tests/gpu/gpu_util.h"

#include "lib/base/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *program = "gpu";

void gpu_fail(const char *fmt, ...)
{
    const char *rank = hb_knob("RANK");
    va_list ap;

    fprintf(stderr, "%s: rank %s: ", program, rank ? rank : "0");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    fflush(stdout);
    _Exit(1); /* the agent tells the other ranks */
}

void gpu_must(CUresult result, const char *call)
{
    struct hb_error err = HB_ERROR_INIT;

    if (hvd__cuda_check(result, call, &err) < 0)
        gpu_fail("%s", err.text);
}

void gpu_open(struct gpu *g, const char *name)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t number = 0;
    int count = 0;

    program = name;
    if (hvd__cuda_open(&err) < 0 ||
        hb_knob_i64("GPU", 0, INT32_MAX, &number, &err) < 0)
        gpu_fail("%s", err.text);
    CU(DeviceGetCount, &count);
    CU(DeviceGet, &g->device, (int)(number % count));
    CU(DevicePrimaryCtxRetain, &g->ctx, g->device);
    CU(CtxPushCurrent, g->ctx);
    CU(StreamCreate, &g->a, CU_STREAM_NON_BLOCKING);
    CU(StreamCreate, &g->b, CU_STREAM_NON_BLOCKING);
}

void gpu_close(struct gpu *g)
{
    CU(StreamDestroy, g->a);
    CU(StreamDestroy, g->b);
    CU(CtxPopCurrent, &g->ctx);
    CU(DevicePrimaryCtxRelease, g->device);
}

/* ---- Memory ------------------------------------------------------------ */

void *gpu_host(size_t bytes)
{
    void *p = NULL;

    CU(MemHostAlloc, &p, bytes, 0);
    return p;
}

void gpu_host_free(void *p)
{
    CU(MemFreeHost, p);
}

void *gpu_alloc(size_t bytes)
{
    CUdeviceptr p = 0;

    CU(MemAlloc, &p, bytes);
    return (void *)(uintptr_t)p;
}

void gpu_free(void *p)
{
    CU(MemFree, gpu_ptr(p));
}

void gpu_copy(CUstream s, void *to, const void *from, size_t bytes)
{
    CU(MemcpyAsync, gpu_ptr(to), gpu_ptr(from), bytes, s);
}

void gpu_put(struct gpu *g, void *to, const void *from, size_t bytes)
{
    gpu_copy(g->b, to, from, bytes);
    CU(StreamSynchronize, g->b);
}

void gpu_get(struct gpu *g, void *to, const void *from, size_t bytes)
{
    gpu_put(g, to, from, bytes);
}

void gpu_set(struct gpu *g, void *p, int byte, size_t bytes)
{
    CU(MemsetD8Async, gpu_ptr(p), (unsigned char)byte, bytes, g->b);
    CU(StreamSynchronize, g->b);
}
