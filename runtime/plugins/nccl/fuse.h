/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion on the device: kernels (kernels.h) that gather the elements of an
 * operation from its parts into one contiguous buffer, or scatter them back,
 * scaling and casting on the way.  All work is ordered on the given stream; no
 * call waits.
 *
 * Call with the device's context current.  Use a struct hvd__kernels or a
 * buffer from one thread at a time.
 */
#ifndef HVD_NCCL_FUSE_H
#define HVD_NCCL_FUSE_H

#include "runtime/plane/op.h"
#include "runtime/plugins/nccl/kernels.h"
#include "runtime/plugins/nccl/nccl.h"
#include "runtime/plugins/nccl/nccl_cuda.h"

/* The kernels, loaded into the current context. */
struct hvd__kernels {
    CUmodule module; /* NULL: none */
    CUfunction functions[HVD__NKERNELS];
};

/* Loads the kernels.  0, or negative with err set and nothing held.  A zeroed
 * struct may be closed. */
int hvd__kernels_open(struct hvd__kernels *k, struct hb_error *err);
void hvd__kernels_close(struct hvd__kernels *k);

/* Pack: copies the elements [first, first + count) of an allreduce, direct or
 * not, in their wire dtype to dst, device memory that overlaps no part.  If
 * part_dtype is not dtype, they are multiplied by prescale, as in
 * hvd__op_pack; otherwise by pre, as in reductions (1.0: copied). */
struct hvd__fuse_pack {
    const struct hvd__op *op;
    void *dst;
    size_t first, count;
    double pre;
};

/* Unpack: delivers results.  Applies post and divisor of args (NULL: none; pre
 * is ignored) in op's dtype, then delivers like hvd__op_unpack. */
struct hvd__fuse_unpack {
    const struct hvd__op *op;
    const void *src;
    size_t first, count;
    const struct hvd__reduce_args *args;
};

/* Copies or delivers.  Returns 0, or negative with err set.  The structs given
 * may be reused at once. */
int hvd__fuse_pack(const struct hvd__kernels *k,
                   const struct hvd__fuse_pack *pack, CUstream stream,
                   struct hb_error *err);
int hvd__fuse_unpack(const struct hvd__kernels *k,
                     const struct hvd__fuse_unpack *unpack, CUstream stream,
                     struct hb_error *err);

/* Scale: applies pre, post and divisor of args. dst may be src, else they do
 * not overlap.  -HVD_EINVAL for a dtype without arithmetic here (float8),
 * unless args change nothing. */
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

/* A buffer in device memory, from ncclMemAlloc if NCCL has it and it succeeds,
 * else from cuMemAlloc. */
struct hvd__fuse_buffer {
    void *ptr; /* NULL: none */
    size_t bytes;
    int by_nccl;
};

/* Allocates a buffer.  0, or negative with err set and nothing held.  A
 * zeroed struct may be closed.  Close it only when nothing uses the
 * memory any more. */
int hvd__fuse_buffer_open(struct hvd__fuse_buffer *b, size_t bytes,
                          struct hb_error *err);
void hvd__fuse_buffer_close(struct hvd__fuse_buffer *b);

/* Registers a buffer with a communicator (ncclCommRegister); all its ranks
 * must.  NULL: NCCL cannot, which is harmless.  Deregister it before the
 * communicator is destroyed. */
void *hvd__fuse_register(const struct hvd__fuse_buffer *b, ncclComm_t comm);
void hvd__fuse_deregister(ncclComm_t comm, void *handle);

#endif
