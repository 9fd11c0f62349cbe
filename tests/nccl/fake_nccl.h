/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of NCCL over host memory, for tests without a GPU: built as
 * libnccl.so.2 upon the double of the CUDA driver (fake_cuda.h), and never
 * installed.  This is what its files share.
 *
 * Ranks are processes, or threads, of one host.  They meet in a piece of
 * shared memory without a name, which the unique id leads to, so that nothing
 * stays behind whoever is killed.  A collective is a job of its stream.  As
 * with NCCL, a rank that never comes holds the others up until they abort.
 *
 * A communicator that does not block is in progress for a while after each
 * call, and what was launched reaches the stream only at the end of that.  A
 * call on a communicator in progress, two at once, a handle that is gone,
 * ranks that do not call the same: each ends the process with a line.
 *
 * Environment:
 *   FAKE_NCCL_VERSION  what ncclGetVersion says (22809)
 *   FAKE_NCCL_SERIAL   1: one communicator's work at a time on a device
 *   FAKE_NCCL  FAULT:RANK[:K[:CODE]],...; RANK of the job, K as below
 *       hang    its K-th launch never does its part
 *       stuck   its K-th launch never returns to the caller
 *       stop    its K-th launch, when the device comes to it, stops the process
 *       error   before its K-th launch the communicator fails with CODE (2)
 *       call    its K-th launch returns CODE (1)
 *       init    its K-th communicator fails with CODE (2)
 *       absent  its K-th communicator never comes about
 *       slow    each of its launches takes K ms longer
 */
#ifndef TESTS_NCCL_FAKE_NCCL_H
#define TESTS_NCCL_FAKE_NCCL_H

#include "tests/nccl/fake_cuda.h"

#include <nccl.h>
#include <stdatomic.h>

/* Which the header declares as C++ does. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum {
    FAKE_RANKS = 16,
    FAKE_CHUNK = 256 * 1024, /* of a rank's contribution */
    FAKE_LETTER = 64 * 1024, /* of what one sends another */
    FAKE_OPS = 64, /* operators, and pieces of memory, of a communicator */
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

/* What ranks have to agree on. */
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
    atomic_uint arrived; /* at barriers of collectives */
    atomic_uint booted;  /* at those of communicators coming about */
};

struct fake_shared {
    uint64_t cookie;
    atomic_uint bell; /* changes whenever something does */
    struct fake_seat seats[FAKE_RANKS];
    unsigned char slots[FAKE_RANKS][FAKE_CHUNK];
    struct fake_letter letters[FAKE_RANKS][FAKE_RANKS]; /* from, to */
};

/* Makes a piece of shared memory: *fd, and the text that leads to it. */
void fake_shared_make(char text[64], int *fd);
/* Maps it; NULL: its maker is gone. */
struct fake_shared *fake_shared_map(const char *text);
void fake_shared_unmap(struct fake_shared *shared);

/* Waiting, and how it ends early: each returns 0, or -1 when *quit is set. */
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

struct fake_registration { /* bytes 0: free */
    const void *p;
    size_t bytes;
};

struct ncclComm {
    unsigned magic;
    ncclComm_t next; /* of all, so that LeakSanitizer knows them */
    int rank, n, device, blocking;
    CUcontext ctx;
    struct fake_shared *shared;
    _Atomic(ncclComm_t) child; /* being split off; never freed */
    atomic_int quit;           /* aborted or revoked */
    atomic_int inside;         /* calls that must be alone */
    atomic_int asking;         /* ncclCommGetAsyncError */
    int finalized;
    unsigned booted, arrived; /* barriers passed */
    struct fake_op ops[FAKE_OPS];
    struct fake_registration registered[FAKE_OPS];
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct fake_task *first, **last;
    int pending; /* tasks */
    int closing;
    ncclResult_t error;
    char text[256];
    uint64_t launched, done; /* jobs */
};

/* Around a call that must be alone on its communicator, and needs one that
 * is not in progress; 0, or the communicator's error. */
ncclResult_t fake_comm_enter(ncclComm_t comm, const char *function);
void fake_comm_leave(ncclComm_t comm);
/* Has the communicator's thread do it.  What the call returns: ncclInProgress
 * when it does not block. */
ncclResult_t fake_comm_task(ncclComm_t comm,
                            ncclResult_t (*run)(ncclComm_t, void *), void *arg);
void fake_comm_fails(ncclComm_t comm, ncclResult_t error, const char *text);
/* Whether this is the K-th of the rank's for that fault; *code: given or 0. */
int fake_nccl_fault(const char *fault, uint64_t k, int *code);
/* K of a fault that has no K-th; 0: not asked for. */
long fake_nccl_amount(const char *fault);

/* ---- Arithmetic (fake_nccl_reduce.c) ----------------------------------- */

struct fake_reduction {
    ncclDataType_t type;
    int op;      /* ncclRedOp_t, of which Avg and those made are resolved */
    int divisor; /* of integers after the sum; 1: none */
    const struct fake_op *scale; /* before it; NULL: none */
};

size_t fake_type_bytes(ncclDataType_t type);
int fake_is_float(ncclDataType_t type);
/* One element of a type of floats; 0 of the others. */
double fake_float(ncclDataType_t type, const void *p);
/* v as a type of floats has it. */
double fake_rounded(ncclDataType_t type, double v);
/* dst = reduction of srcs[0 .. n - 1][i], as NCCL's: rounded at each step. */
void fake_reduce(const struct fake_reduction *r, void *dst,
                 const unsigned char *const *srcs, int n, size_t count);

#endif
