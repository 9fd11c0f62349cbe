/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion on the device: the elements of an operation, from wherever they lie,
 * into one contiguous buffer and back, with scaling and casts on the way, by
 * one kernel each (kernels.h).  All of it is ordered on the stream given;
 * nothing waits.
 *
 * Every call is made with the device's context current, and a kernels or
 * buffer is used from one thread at a time.
 */
#ifndef HVD_NCCL_FUSE_H
#define HVD_NCCL_FUSE_H

#include "runtime/plane/op.h"
#include "runtime/plugins/nccl/cuda.h"
#include "runtime/plugins/nccl/kernels.h"
#include "runtime/plugins/nccl/nccl.h"

/* The kernels, loaded into the current context. */
struct hvd__kernels {
    CUmodule module; /* NULL: none */
    CUfunction functions[HVD__NKERNELS];
};

/* 0, or negative with err set and nothing held.  A zeroed struct may be
 * closed. */
int hvd__kernels_open(struct hvd__kernels *k, struct hb_error *err);
void hvd__kernels_close(struct hvd__kernels *k);

/* Pack: reads the elements [first, first + count) of an allreduce, direct or
 * not, as they travel, to dst, device memory, which overlaps no part.  As
 * hvd__op_pack: where part_dtype is not dtype they are multiplied by
 * prescale.  Where it is, they are multiplied by pre, as reductions do (1.0:
 * copied). */
struct hvd__fuse_pack {
    const struct hvd__op *op;
    void *dst;
    size_t first, count;
    double pre;
};

/* Unpack: delivers results.  As a reduction of one input with args (NULL: as
 * it is; pre of it is not used) of op's dtype, and then hvd__op_unpack. */
struct hvd__fuse_unpack {
    const struct hvd__op *op;
    const void *src;
    size_t first, count;
    const struct hvd__reduce_args *args;
};

/* Each: 0, or negative with err set.  The host memory given may be reused at
 * once. */
int hvd__fuse_pack(const struct hvd__kernels *k,
                   const struct hvd__fuse_pack *pack, CUstream stream,
                   struct hb_error *err);
int hvd__fuse_unpack(const struct hvd__kernels *k,
                     const struct hvd__fuse_unpack *unpack, CUstream stream,
                     struct hb_error *err);

/* A reduction of one input: pre, post and divisor of args.  dst may be src,
 * else they do not overlap.  -HVD_EINVAL for a dtype that has no arithmetic
 * here (float8) unless args change nothing. */
struct hvd__fuse_scale {
    void *dst;
    const void *src;
    size_t count;
    enum hvd_dtype dtype;
    const struct hvd__reduce_args *args;
};
int hvd__fuse_scale(const struct hvd__kernels *k,
                    const struct hvd__fuse_scale *scale, CUstream stream,
                    struct hb_error *err);

/* A buffer in device memory: ncclMemAlloc's where NCCL has it and can, else
 * cuMemAlloc's. */
struct hvd__fuse_buffer {
    void *ptr; /* NULL: none */
    size_t bytes;
    int by_nccl;
};

/* 0, or negative with err set and nothing held.  A zeroed struct may be
 * closed; nothing may still use the memory then. */
int hvd__fuse_buffer_open(struct hvd__fuse_buffer *b, size_t bytes,
                          struct hb_error *err);
void hvd__fuse_buffer_close(struct hvd__fuse_buffer *b);

/* Registers it with a communicator, by all its ranks alike (ncclCommRegister,
 * which makes nothing wrong when it fails).  NULL: NCCL cannot.  To be
 * deregistered before the communicator is destroyed. */
void *hvd__fuse_register(const struct hvd__fuse_buffer *b, ncclComm_t comm);
void hvd__fuse_deregister(ncclComm_t comm, void *handle);

#endif
