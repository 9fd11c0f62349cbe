/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of tests/gpu share: the driver, memory, and how to give up.
 * They run on a GPU, or on the test double (tests/nccl) if HVD_CUDA_LIBRARY
 * names it.  Any failure ends the program with exit code 1 and one line.
 */
#ifndef TESTS_GPU_GPU_UTIL_H
#define TESTS_GPU_GPU_UTIL_H

#include "runtime/plugins/nccl/nccl_cuda.h"

#include <stddef.h>
#include <stdint.h>

struct gpu {
    CUdevice device;
    CUcontext ctx;
    CUstream a, b; /* not ordered with each other or the default stream */
};

/* Opens this rank's device: number HVD_GPU, else the first.  Its primary
 * context becomes current in the calling thread. */
void gpu_open(struct gpu *g, const char *program);
void gpu_close(struct gpu *g);

_Noreturn void gpu_fail(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Ends the program unless result is CUDA_SUCCESS. */
void gpu_must(CUresult result, const char *call);
#define CU(name, ...) gpu_must(hvd__cuda.name(__VA_ARGS__), "cu" #name)

void *gpu_host(size_t bytes); /* pinned */
void gpu_host_free(void *p);
void *gpu_alloc(size_t bytes);
void gpu_free(void *p);
/* These three return when the device is done. */
void gpu_put(struct gpu *g, void *to, const void *from, size_t bytes);
void gpu_get(struct gpu *g, void *to, const void *from, size_t bytes);
void gpu_set(struct gpu *g, void *p, int byte, size_t bytes);
/* Queues a copy on the stream. */
void gpu_copy(CUstream s, void *to, const void *from, size_t bytes);

static inline CUdeviceptr gpu_ptr(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

#endif
