/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, opened at run time: hvd__cuda.MemAlloc is cuMemAlloc.  The
 * types come from the CUDA toolkit's header, so the compiler checks each call;
 * the symbols are those that the header's macros expand to (cuMemAlloc_v2).
 */
#ifndef HVD_NCCL_CUDA_H
#define HVD_NCCL_CUDA_H

#include "lib/base/error.h"

#include <cuda.h>

/* Functions that the driver must have. */
#define HVD__CUDA_FUNCTIONS(X)         \
    X(Init)                            \
    X(DriverGetVersion)                \
    X(GetErrorName)                    \
    X(GetErrorString)                  \
    X(DeviceGetCount)                  \
    X(DeviceGet)                       \
    X(DeviceGetName)                   \
    X(DeviceGetAttribute)              \
    X(DeviceGetUuid)                   \
    X(DevicePrimaryCtxRetain)          \
    X(DevicePrimaryCtxRelease)         \
    X(DevicePrimaryCtxGetState)        \
    X(CtxPushCurrent)                  \
    X(CtxPopCurrent)                   \
    X(CtxGetCurrent)                   \
    X(CtxGetDevice)                    \
    X(PointerGetAttribute)             \
    X(PointerGetAttributes)            \
    X(MemAlloc)                        \
    X(MemFree)                         \
    X(MemHostAlloc)                    \
    X(MemFreeHost)                     \
    X(MemcpyAsync)                     \
    X(MemsetD8Async)                   \
    X(StreamCreate)                    \
    X(StreamCreateWithPriority)        \
    X(CtxGetStreamPriorityRange)       \
    X(StreamDestroy)                   \
    X(StreamWaitEvent)                 \
    X(StreamQuery)                     \
    X(StreamSynchronize)               \
    X(StreamIsCapturing)               \
    X(ThreadExchangeStreamCaptureMode) \
    X(StreamGetCtx)                    \
    X(EventCreate)                     \
    X(EventDestroy)                    \
    X(EventRecord)                     \
    X(EventQuery)                      \
    X(EventSynchronize)                \
    X(EventElapsedTime)                \
    X(ModuleLoadData)                  \
    X(ModuleUnload)                    \
    X(ModuleGetFunction)               \
    X(LaunchKernel)

/* Functions that are NULL if the driver is older. */
#define HVD__CUDA_OPTIONAL(X)   \
    X(MemAllocAsync) /* 11.2 */ \
    X(MemFreeAsync)

struct hvd__cuda {
#define HVD__CUDA_FIELD(name) __typeof__(&cu##name) name;
    HVD__CUDA_FUNCTIONS(HVD__CUDA_FIELD)
    HVD__CUDA_OPTIONAL(HVD__CUDA_FIELD)
#undef HVD__CUDA_FIELD
    int version; /* cuDriverGetVersion's: 12040 for 12.4 */
};

/* All zero until opened; constant from then on. */
extern struct hvd__cuda hvd__cuda;

/* Finds the driver: the file that HVD_CUDA_LIBRARY names, else libcuda.so.1,
 * and calls cuInit.  0; -HVD_EUNSUPPORTED with err set (no driver, one that
 * lacks a function, no device); -HVD_ESYSTEM (cuInit fails).  A second call
 * does nothing.  Not thread-safe.  The driver is never closed, as the program
 * may hold objects of it. */
int hvd__cuda_open(struct hb_error *err);

/* Sets err to "what: out of memory (CUDA_ERROR_OUT_OF_MEMORY)" and returns
 * -HVD_ENOMEM; -HVD_ESYSTEM for all other results.  0 for CUDA_SUCCESS. */
int hvd__cuda_check(CUresult result, const char *what, struct hb_error *err);

/* hvd__cuda_check of a call: HVD__CU(err, MemAlloc, &p, bytes). */
#define HVD__CU(err, name, ...) \
    hvd__cuda_check(hvd__cuda.name(__VA_ARGS__), "cu" #name, err)

#endif
