/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL, opened at run time: hvd__nccl.AllReduce is ncclAllReduce.  Functions
 * newer than 2.14 are NULL if the library lacks them.
 */
#ifndef HVD_NCCL_NCCL_H
#define HVD_NCCL_NCCL_H

#include "lib/base/error.h"

#include <nccl.h>

/* Declares what is newer than the oldest header that this compiles with; where
 * the header declares it too, the compiler checks that both agree. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                              void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
ncclResult_t ncclMemAlloc(void **ptr, size_t size);
ncclResult_t ncclMemFree(void *ptr);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList,
                            int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);

#define HVD__NCCL_REQUIRED(X) \
    X(GetVersion)             \
    X(GetErrorString)         \
    X(GetLastError)           \
    X(GetUniqueId)            \
    X(CommInitRankConfig)     \
    X(CommFinalize)           \
    X(CommDestroy)            \
    X(CommAbort)              \
    X(CommGetAsyncError)      \
    X(CommCount)              \
    X(CommUserRank)           \
    X(RedOpCreatePreMulSum)   \
    X(RedOpDestroy)           \
    X(AllReduce)              \
    X(Broadcast)              \
    X(Reduce)                 \
    X(AllGather)              \
    X(ReduceScatter)          \
    X(Send)                   \
    X(Recv)                   \
    X(GroupStart)             \
    X(GroupEnd)

#define HVD__NCCL_OPTIONAL(X) \
    X(CommSplit) /* 2.18 */   \
    X(CommRegister)           \
    X(CommDeregister)         \
    X(MemAlloc)               \
    X(MemFree)    /* 2.19 */  \
    X(CommShrink) /* 2.27 */  \
    X(CommRevoke) /* 2.28.7 */

/* ncclDataType_t of 2.24 and later. */
#define HVD__NCCL_FLOAT8E4M3 ((ncclDataType_t)10)
#define HVD__NCCL_FLOAT8E5M2 ((ncclDataType_t)11)

enum {
    HVD__NCCL_OLDEST = 21400, /* 2.14.0: non-blocking communicators */
    HVD__NCCL_FLOAT8 = 22400, /* reduced natively, by devices of 9.0 and up */
};

struct hvd__nccl {
#define HVD__NCCL_FIELD(name) __typeof__(&nccl##name) name;
    HVD__NCCL_REQUIRED(HVD__NCCL_FIELD)
    HVD__NCCL_OPTIONAL(HVD__NCCL_FIELD)
#undef HVD__NCCL_FIELD
    int version; /* the library's: 22809 for 2.28.9; 0: not opened */
};

/* All zero until opened; constant from then on. */
extern struct hvd__nccl hvd__nccl;

/* Finds NCCL: the file that HVD_NCCL_LIBRARY names; else the one already in
 * the process, else libnccl.so.2.  0; -HVD_EUNSUPPORTED with err set (none
 * found, or older than 2.14).  A second call does nothing.  Not thread-safe.
 * NCCL is never closed. */
int hvd__nccl_open(struct hb_error *err);

/* Returns the version of the NCCL that hvd__nccl_open would open, or 0.  Any
 * thread. */
int hvd__nccl_installed(void);

/* Returns a version number of NCCL as text: "2.28.9". */
struct hvd__nccl_version {
    char text[16];
};
struct hvd__nccl_version hvd__nccl_version_text(int version);

/* Sets err to "what: unhandled cuda error", with NCCL's own text on the
 * process's last error, if any, and returns -HVD_ESYSTEM.  0 for ncclSuccess
 * and ncclInProgress. comm may be NULL.  No other thread may use comm
 * meanwhile. */
int hvd__nccl_check(ncclResult_t result, ncclComm_t comm, const char *what,
                    struct hb_error *err);

/* hvd__nccl_check of a call:
 *     HVD__NCCL(err, comm, AllReduce, in, out, n, type, op, comm, stream) */
#define HVD__NCCL(err, comm, name, ...) \
    hvd__nccl_check(hvd__nccl.name(__VA_ARGS__), comm, "nccl" #name, err)

#endif
