/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver for test programs: opened from what HVD_CUDA_LIBRARY names,
 * else libcuda.so.1, so that they run on GPUs as on the double.  What fails
 * ends the program with a line.
 */
#ifndef TESTS_PROG_NCCL_CUDA_H
#define TESTS_PROG_NCCL_CUDA_H

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
    /* The double's: what is not released; NULL with a real driver. */
    int (*live)(void);
};
extern struct gpu gpu;

/* Opens it and makes a device's primary context the thread's. */
void gpu_open(int device);
void gpu_close(void);
void gpu_must(CUresult result, const char *what);
#define GPU(name, ...) gpu_must(gpu.name(__VA_ARGS__), "cu" #name)

/* Device memory that ends where it does, and a copy to and from it on the
 * default stream.  0 bytes: NULL. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *p);
void gpu_write(void *to, const void *from, size_t bytes);
void gpu_read(void *to, const void *from, size_t bytes);

/* A stream that the default one does not wait for. */
CUstream gpu_stream(void);
/* Holds the stream up for so long. */
void gpu_delay(CUstream stream, unsigned ms);

#endif
