/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of NCCL over host memory, for tests without a GPU.  It is built as
 * libnccl.so.2 on top of the double of the CUDA driver (fake_cuda.h), and never
 * installed.  This header declares what its source files share.
 *
 * Ranks are processes or threads of one host.  They meet in anonymous shared
 * memory that the unique id leads to, so nothing is left behind when a rank is
 * killed.  A collective is a job of its stream.  As with NCCL, a rank that
 * never comes blocks the others until they abort.
 *
 * A nonblocking communicator is in progress for a while after each call, and a
 * launch reaches the stream only when that is over.  These mistakes end the
 * process with a line that describes them: a call on a communicator in
 * progress, two calls at once, a handle that was freed, ranks that call
 * different things.
 *
 * Environment (defaults in parentheses):
 *   FAKE_NCCL_VERSION  result of ncclGetVersion (22809)
 *   FAKE_NCCL_SERIAL   1: a device runs one communicator's work at a time
 *   FAKE_NCCL  FAULT:RANK[:K[:CODE]],...; RANK of the job
 *       hang    its K-th launch never does its part
 *       stuck   its K-th launch never returns to the caller
 *       stop    its K-th launch stops the process when the device reaches it
 *       error   before its K-th launch the communicator fails with CODE (2)
 *       call    its K-th launch returns CODE (1)
 *       init    its K-th communicator fails with CODE (2)
 *       absent  its K-th communicator is never ready
 *       slow    each of its launches takes K ms longer
 */
#ifndef TESTS_NCCL_FAKE_NCCL_H
#define TESTS_NCCL_FAKE_NCCL_H

#include "tests/nccl/fake_cuda.h"

#include <nccl.h>
#include <stdatomic.h>

/* nccl.h declares these with (), which is no prototype in C. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum {
    FAKE_RANKS = 16,
    FAKE_CHUNK = 256 * 1024, /* of a rank's contribution */
    FAKE_LETTER = 64 * 1024, /* of a message between two ranks */
    FAKE_OPS = 64,           /* operators, and registrations, per comm */
};

/* ---- Shared between ranks (fake_nccl_shared.c) ------------------------- */

enum fake_call {
    FAKE_ALLREDUCE,
    FAKE_REDUCE,
    FAKE_BROADCAST,
    FAKE_ALLGATHER,
    FAKE_REDUCESCATTER,
    FAKE_SEND,
    FAKE_RECV
};

/* What all ranks must agree on. */
struct fake_head {
    uint64_t count;
    int call, type, op, root;
};

struct fake_letter {
    atomic_uint sent, taken;
    uint64_t total; /* bytes of the whole message */
    uint32_t bytes;
    unsigned char data[FAKE_LETTER];
};

struct fake_seat {
    atomic_int here;
    char device[sizeof(CUuuid) + 64];
    struct fake_head head;
    char note[64];       /* of a split */
    atomic_uint arrived; /* barriers of collectives passed */
    atomic_uint booted;  /* barriers of set-up passed */
};

struct fake_shared {
    uint64_t cookie;
    atomic_uint bell; /* incremented at every change */
    struct fake_seat seats[FAKE_RANKS];
    unsigned char slots[FAKE_RANKS][FAKE_CHUNK];
    struct fake_letter letters[FAKE_RANKS][FAKE_RANKS]; /* [from][to] */
};

/* Makes shared memory.  *fd keeps it alive; `text` leads to it. */
void fake_shared_make(char text[64], int *fd);
/* Maps the memory that `text` leads to; NULL if its maker is gone. */
struct fake_shared *fake_shared_map(const char *text);
void fake_shared_unmap(struct fake_shared *shared);

/* fake_ring wakes all who wait in fake_await, which waits until shared->bell
 * differs from `bell`: 0, or -1 when *quit is set. */
void fake_ring(struct fake_shared *shared);
int fake_await(struct fake_shared *shared, unsigned bell,
               const atomic_int *quit);

/* ---- Communicators (fake_nccl.c) --------------------------------------- */

struct fake_task {
    struct fake_task *next;
    ncclResult_t (*run)(ncclComm_t comm, void *arg);
    void *arg; /* freed by run */
};

struct fake_op {
    int used;
    ncclDataType_t type;
    double factor;
    int64_t whole;
};

struct fake_registration { /* bytes 0: a free entry */
    const void *p;
    size_t bytes;
};

struct ncclComm {
    unsigned magic;
    ncclComm_t next; /* list of all, for LeakSanitizer */
    int rank, n, device, blocking;
    CUcontext ctx;
    struct fake_shared *shared;
    _Atomic(ncclComm_t) child; /* being split off; never freed */
    atomic_int quit;           /* aborted or revoked */
    atomic_int inside;         /* calls that must be alone */
    atomic_int asking;         /* calls of ncclCommGetAsyncError */
    int finalized;
    unsigned booted, arrived; /* barriers passed */
    struct fake_op ops[FAKE_OPS];
    struct fake_registration registered[FAKE_OPS];
    pthread_t thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    struct fake_task *first, **last;
    int pending; /* tasks */
    int closing;
    ncclResult_t error;
    char text[256];
    uint64_t launched, done; /* jobs */
};

/* Begins a call that must be the only one on its communicator, which must not
 * be in progress.  Returns 0, or the communicator's error. */
ncclResult_t fake_comm_enter(ncclComm_t comm, const char *function);
void fake_comm_leave(ncclComm_t comm);
/* Has the communicator's thread run `run`.  Returns what the call must return:
 * ncclInProgress if the communicator is nonblocking. */
ncclResult_t fake_comm_task(ncclComm_t comm,
                            ncclResult_t (*run)(ncclComm_t, void *), void *arg);
void fake_comm_fails(ncclComm_t comm, ncclResult_t error, const char *text);
/* Returns whether FAKE_NCCL asks this rank for `fault` at count k; *code is the
 * given CODE or 0. */
int fake_nccl_fault(const char *fault, uint64_t k, int *code);
/* Returns K of a fault that applies to every launch; 0 if not asked for. */
long fake_nccl_amount(const char *fault);

/* ---- Arithmetic (fake_nccl_reduce.c) ----------------------------------- */

struct fake_reduction {
    ncclDataType_t type;
    int op;      /* ncclRedOp_t; ncclAvg and custom operators are resolved */
    int divisor; /* of the sum of integers; 1: none */
    const struct fake_op *scale; /* applied to the inputs first; NULL: none */
};

size_t fake_type_bytes(ncclDataType_t type);
int fake_is_float(ncclDataType_t type);
/* Returns one element of a floating-point type; 0 for other types. */
double fake_float(ncclDataType_t type, const void *p);
/* Rounds `v` to a floating-point type. */
double fake_rounded(ncclDataType_t type, double v);
/* Sets dst[i] to the reduction of srcs[0 .. n - 1][i], rounding at each step as
 * NCCL does. */
void fake_reduce(const struct fake_reduction *r, void *dst,
                 const unsigned char *const *srcs, int n, size_t count);

#endif
