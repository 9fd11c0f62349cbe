/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of the CUDA driver API over host memory, for tests without a GPU. It
 * is built as libcuda.so.1 and never installed.  This header declares what its
 * source files share with each other and with the double of NCCL.
 *
 * The double is stricter than a driver where that finds mistakes.  Device
 * memory is mapped twice: the addresses given to callers can be neither read
 * nor written; the double works through the other mapping.  Each stream is a
 * thread that runs its jobs in order, after random delays, so that missing
 * synchronisation soon gives wrong data.  Misuse that a driver would not notice
 * ends the process with a line that describes it.
 *
 * Environment (defaults in parentheses):
 *   FAKE_CUDA_DEVICES   number of devices (4)
 *   FAKE_CUDA_POOLS     0: no memory pools, so no cuMemAllocAsync (1)
 *   FAKE_CUDA_DELAY_US  longest delay before a job (200)
 *   FAKE_CUDA_SEED      seed of the delays
 *   FAKE_CUDA_FAIL      FUNCTION:CODE[:RANK[:K]],...: the K-th call (1) of a
 *                       function, named as by cuda.h's macros, returns CODE on
 *                       RANK (all).  "kernel": the launch itself succeeds, and
 *                       the context fails with CODE when the kernel runs
 *
 * Test programs may call fake_cuda_live, the number of objects not released.
 */
#ifndef TESTS_NCCL_FAKE_CUDA_H
#define TESTS_NCCL_FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Prints one line and aborts. */
_Noreturn void fake_misuse(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* ---- Calls and contexts (fake_cuda.c) --------------------------------- */

enum { FAKE_NO_CONTEXT = 0, FAKE_CONTEXT = 1 };

struct CUctx_st {
    unsigned magic;
    int device;
    int refs;             /* retain count */
    CUresult error;       /* sticky; protected by fake_lock */
    CUstream legacy;      /* default stream, made on first use */
    CUstream streams;     /* list of all streams */
    pthread_mutex_t lock; /* protects streams, orders submissions */
};

enum { FAKE_DEVICES_MAX = 16 };

/* Starts each API call.  Returns 0, or the error that the call must return. */
CUresult fake_enter(const char *function, int needs);
/* Returns the error that FAKE_CUDA_FAIL asks for in this call of `function`, or
 * CUDA_SUCCESS. */
CUresult fake_fault(const char *function);
/* Returns the calling thread's context, or NULL if it has none. */
CUcontext fake_context(void);
/* Aborts if `ctx` is not a context. */
void fake_check_context(CUcontext ctx, const char *function);
void fake_context_fails(CUcontext ctx, CUresult error);
/* Returns the sticky error of `ctx`; once it is set, no job runs. */
CUresult fake_context_error(CUcontext ctx);
/* Mark the start and end of a capture in global mode.  In between, unsafe calls
 * of threads that are not in relaxed mode are refused and break the capture:
 * then fake_capture_ends returns 1.  `before`: what fake_capture_begins
 * returned. */
unsigned fake_capture_begins(void);
int fake_capture_ends(unsigned before);
/* Returns HVD_RANK, or 0 if it is unset. */
int fake_rank(void);
/* Returns the number in a variable of the environment, or `otherwise`. */
long fake_setting(const char *name, long otherwise);
/* Adds `change`, +1 or -1, to the number of live objects. */
void fake_count(int change);
int fake_cuda_live(void);

/* ---- Memory (fake_memory.c) ------------------------------------------- */

enum fake_kind {
    FAKE_DEVICE,
    FAKE_POOL, /* from cuMemAllocAsync */
    FAKE_NCCL, /* device memory from ncclMemAlloc */
    FAKE_MANAGED,
    FAKE_PINNED,
    FAKE_REGISTERED /* host memory of the caller */
};

CUresult fake_alloc(enum fake_kind kind, int device, size_t bytes,
                    uintptr_t *p);
CUresult fake_release(enum fake_kind kind, uintptr_t p, const char *function);
/* Translates [p, p + bytes) to the double's own mapping.  Aborts unless one
 * piece of memory that a device can reach holds all of it. */
void *fake_reach(const void *p, size_t bytes, const char *function);
/* Translates a pointer inside a kernel, without a check; NULL stays NULL. */
void *fake_alias(const void *p);
/* Returns whether `p` is inside allocated memory; *device may be NULL. */
int fake_is_device(const void *p, int *device);

/* ---- Streams (fake_stream.c) ------------------------------------------ */

typedef void fake_job_fn(void *arg);

struct fake_job {
    struct fake_job *next;
    fake_job_fn *run;
    void *arg; /* freed by run */
};

struct CUstream_st {
    unsigned magic;
    CUcontext ctx;
    CUstream next;
    unsigned flags;
    int blocking;           /* ordered with the default stream */
    int capturing;          /* 1; 2: an operation broke the capture */
    int global;             /* the capture is in global mode */
    unsigned broken_before; /* from fake_capture_begins */
    int closing;
    pthread_t thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    struct fake_job *first, **last;
    uint64_t submitted, completed;
    uint64_t random;
};

/* Translates a handle for the calling thread's context; aborts if it is not a
 * stream. */
CUstream fake_stream(CUstream s, const char *function);
/* Appends a job to a stream.  Returns its number, the first is 1, or 0 if the
 * stream is being captured. */
uint64_t fake_submit(CUstream s, fake_job_fn *run, void *arg);
void fake_wait(CUstream s, uint64_t number);
/* Waits until everything submitted to the context is done. */
void fake_drain(CUcontext ctx);
/* Returns the device of a stream's context, for the double of NCCL. */
int fake_stream_device(CUstream s);
void *fake_memory(size_t bytes); /* zeroed; never NULL */

#endif
