/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of the CUDA driver API over host memory, for tests without a GPU:
 * built as libcuda.so.1 and never installed.  This is what its files share
 * with each other and with the double of NCCL.
 *
 * It is stricter than a driver where that finds mistakes.  Device memory is
 * mapped twice: at the addresses that callers see nothing can be read or
 * written, the double works at the others.  Each stream is a thread that takes
 * its jobs in order, after random delays, so what is not ordered soon gives
 * wrong data.  Misuse that a driver would not notice ends the process with a
 * line that says what it was.
 *
 * Environment:
 *   FAKE_CUDA_DEVICES   how many devices there are (4)
 *   FAKE_CUDA_POOLS     0: without cuMemAllocAsync's pools (1)
 *   FAKE_CUDA_DELAY_US  longest delay before a job (200)
 *   FAKE_CUDA_SEED      of the delays
 *   FAKE_CUDA_FAIL      FUNCTION:CODE[:RANK[:K]],...: the K-th call (1) of a
 *                       function, by the names of cuda.h's macros, on a rank
 *                       (all) gives CODE; "kernel": the launch as such works,
 *                       and CODE is what the device comes to
 *
 * For test programs: fake_cuda_live, what is not released yet.
 */
#ifndef TESTS_NCCL_FAKE_CUDA_H
#define TESTS_NCCL_FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Does not return: prints one line and aborts. */
_Noreturn void fake_misuse(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* ---- Calls and contexts (fake_cuda.c) --------------------------------- */

enum { FAKE_NO_CONTEXT = 0, FAKE_CONTEXT = 1 };

struct CUctx_st {
    unsigned magic;
    int device;
    int refs;             /* retained */
    CUresult error;       /* lasting; under fake_lock */
    CUstream legacy;      /* the default stream, made when it is first used */
    CUstream streams;     /* all of them, by next */
    pthread_mutex_t lock; /* of streams, and of the order of submissions */
};

enum { FAKE_DEVICES_MAX = 16 };

/* At the beginning of each call: 0, or what it has to return. */
CUresult fake_enter(const char *function, int needs);
/* Whether the failure that FAKE_CUDA_FAIL asks for comes now; CUDA_SUCCESS:
 * it does not. */
CUresult fake_fault(const char *function);
/* The calling thread's; NULL: none. */
CUcontext fake_context(void);
/* Aborts when it is none. */
void fake_check_context(CUcontext ctx, const char *function);
void fake_context_fails(CUcontext ctx, CUresult error);
/* What it came to: after that nothing runs any more. */
CUresult fake_context_error(CUcontext ctx);
/* A capture of global mode: until its end threads that are not relaxed are
 * refused what it is in danger from, and then fake_capture_ends is 1: it was
 * broken. */
unsigned fake_capture_begins(void);
int fake_capture_ends(unsigned before);
/* HVD_RANK; 0. */
int fake_rank(void);
/* A number out of the environment. */
long fake_setting(const char *name, long otherwise);
/* Counts what is there: +1, -1. */
void fake_count(int change);
int fake_cuda_live(void);

/* ---- Memory (fake_memory.c) ------------------------------------------- */

enum fake_kind {
    FAKE_DEVICE,
    FAKE_POOL, /* of cuMemAllocAsync */
    FAKE_NCCL, /* device memory that ncclMemAlloc made */
    FAKE_MANAGED,
    FAKE_PINNED,
    FAKE_REGISTERED /* host memory of the caller's */
};

CUresult fake_alloc(enum fake_kind kind, int device, size_t bytes,
                    uintptr_t *p);
CUresult fake_release(enum fake_kind kind, uintptr_t p, const char *function);
/* Where the double can reach [p, p + bytes); aborts when that is not inside
 * one piece of memory that a device can reach. */
void *fake_reach(const void *p, size_t bytes, const char *function);
/* The same without a check, for pointers inside kernels; NULL stays. */
void *fake_alias(const void *p);
/* 1 when p is inside memory that is there; *device may be NULL. */
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
    int capturing;          /* 1; 2: an operation has broken the capture */
    int global;             /* it is a capture that all threads have to mind */
    unsigned broken_before; /* fake_capture_begins */
    int closing;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct fake_job *first, **last;
    uint64_t submitted, completed;
    uint64_t random;
};

/* The stream that a handle means, for the calling thread's context; aborts
 * when it is none. */
CUstream fake_stream(CUstream s, const char *function);
/* Puts a job at a stream's end and returns its number, the first is 1;
 * 0 when the stream is being captured. */
uint64_t fake_submit(CUstream s, fake_job_fn *run, void *arg);
void fake_wait(CUstream s, uint64_t number);
/* Until everything that was submitted to the context is done. */
void fake_drain(CUcontext ctx);
/* The context of a stream, and its device, for the double of NCCL. */
int fake_stream_device(CUstream s);
void *fake_memory(size_t bytes); /* zeroed; never NULL */

#endif
