/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver for test programs; see nccl_driver.h. */
#include "tests/system/prog/nccl_driver.h"

#include "lib/base/env.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gpu gpu;
static CUdevice opened;

void gpu_must(CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    gpu.GetErrorName(result, &name);
    fprintf(stderr, "%s: %s (%d)\n", what, name ? name : "?", (int)result);
    exit(1);
}

static void find(void *library, const char *symbol, void *to)
{
    void *p = dlsym(library, symbol);

    if (!p) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(to, &p, sizeof(p));
}

#define SYMBOL_TEXT(symbol) #symbol
#define SYMBOL(symbol) SYMBOL_TEXT(symbol)

static void find_all(void)
{
    const char *path = hb_variable("HVD_CUDA_LIBRARY");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    void *live;

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define GPU_FIND(name) find(library, SYMBOL(cu##name), &gpu.name);
    GPU_FUNCTIONS(GPU_FIND)
#undef GPU_FIND
    live = dlsym(library, "fake_cuda_live");
    memcpy(&gpu.live, &live, sizeof(live));
}

void gpu_open(int device)
{
    CUcontext ctx;

    if (!gpu.Init)
        find_all();
    GPU(Init, 0);
    GPU(DeviceGet, &opened, device);
    GPU(DevicePrimaryCtxRetain, &ctx, opened);
    GPU(CtxSetCurrent, ctx);
}

void gpu_close(void)
{
    GPU(CtxSetCurrent, NULL);
    GPU(DevicePrimaryCtxRelease, opened);
}

void *gpu_alloc(size_t bytes)
{
    CUdeviceptr p = 0;

    if (bytes)
        GPU(MemAlloc, &p, bytes);
    return (void *)p;
}

void gpu_free(void *p)
{
    if (p)
        GPU(MemFree, (CUdeviceptr)p);
}

void gpu_write(void *to, const void *from, size_t bytes)
{
    if (bytes)
        GPU(MemcpyHtoD, (CUdeviceptr)to, from, bytes);
}

void gpu_read(void *to, const void *from, size_t bytes)
{
    if (bytes)
        GPU(MemcpyDtoH, to, (CUdeviceptr)from, bytes);
}

CUstream gpu_stream(void)
{
    CUstream stream;

    GPU(StreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

static void sleep_ms(void *arg)
{
    unsigned ms = (unsigned)(uintptr_t)arg;
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&t, NULL);
}

void gpu_delay(CUstream stream, unsigned ms)
{
    GPU(LaunchHostFunc, stream, sleep_ms, (void *)(uintptr_t)ms);
}
