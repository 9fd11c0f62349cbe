/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver for test programs, loaded from HVD_CUDA_LIBRARY or
 * libcuda.so.1, so that they run on GPUs as well as on the test double.  A call
 * that fails ends the program with a line.
 */
#ifndef TESTS_PROG_NCCL_DRIVER_H
#define TESTS_PROG_NCCL_DRIVER_H

#include <cuda.h>
#include <stddef.h>

#define GPU_FUNCTIONS(X)       \
    X(Init)                    \
    X(GetErrorName)            \
    X(DeviceGetCount)          \
    X(DeviceGet)               \
    X(DevicePrimaryCtxRetain)  \
    X(DevicePrimaryCtxRelease) \
    X(CtxSetCurrent)           \
    X(CtxGetCurrent)           \
    X(CtxSynchronize)          \
    X(MemAlloc)                \
    X(MemFree)                 \
    X(MemAllocManaged)         \
    X(MemHostAlloc)            \
    X(MemFreeHost)             \
    X(MemcpyHtoD)              \
    X(MemcpyDtoH)              \
    X(MemcpyAsync)             \
    X(MemsetD8Async)           \
    X(LaunchHostFunc)          \
    X(StreamCreate)            \
    X(StreamDestroy)           \
    X(StreamQuery)             \
    X(StreamSynchronize)       \
    X(StreamBeginCapture)      \
    X(StreamEndCapture)

struct gpu {
#define GPU_FIELD(name) __typeof__(&cu##name) name;
    GPU_FUNCTIONS(GPU_FIELD)
#undef GPU_FIELD
    /* only in the double: counts the objects that are not released; else
     * NULL */
    int (*live)(void);
};
extern struct gpu gpu;

/* Loads the driver and makes the device's primary context current in this
 * thread. */
void gpu_open(int device);
void gpu_close(void);
void gpu_must(CUresult result, const char *what);
#define GPU(name, ...) gpu_must(gpu.name(__VA_ARGS__), "cu" #name)

/* gpu_alloc returns device memory of just that size (the double notices a use
 * beyond it), NULL for 0 bytes.  gpu_write and gpu_read copy to and from it on
 * the default stream. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *p);
void gpu_write(void *to, const void *from, size_t bytes);
void gpu_read(void *to, const void *from, size_t bytes);

/* Makes a stream that the default stream does not wait for. */
CUstream gpu_stream(void);
/* Delays the stream's work. */
void gpu_delay(CUstream stream, unsigned ms);

#endif
