/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device kernels as the host sees them: their list and their arguments.
 * Each moves elements between a contiguous buffer and up to HVD__KERNEL_PARTS
 * pieces of memory, its parts, and changes each element on the way: pack,
 * unpack, scale, cast.
 *
 * A part is cut into tiles of HVD__TILE_BYTES, measured on its wider side.
 * Warp t of the launch takes tile t.  All tiles but a part's first begin where
 * the destination is aligned.
 *
 * The bodies (kernels_body.h) are compiled for the device by kernels.cu, and
 * as C where they run on a CPU.
 */
#ifndef HVD_NCCL_KERNELS_H
#define HVD_NCCL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* name, bytes of an element read, of one written */
#define HVD__KERNELS(X)                            \
    X(copy, 1, 1) /* elements are bytes */         \
    /* A reduction of one input. */                \
    X(scale_u8, 1, 1)                              \
    X(scale_i8, 1, 1)                              \
    X(scale_u16, 2, 2)                             \
    X(scale_i16, 2, 2)                             \
    X(scale_i32, 4, 4)                             \
    X(scale_i64, 8, 8)                             \
    X(scale_f16, 2, 2)                             \
    X(scale_bf16, 2, 2)                            \
    X(scale_f32, 4, 4)                             \
    X(scale_f64, 8, 8)                             \
    /* Times pre, rounded once. */                 \
    X(f32_to_f16, 4, 2)                            \
    X(f32_to_bf16, 4, 2)                           \
    X(f64_to_f16, 8, 2)                            \
    X(f64_to_bf16, 8, 2)                           \
    /* Scaled as what it was, and then widened. */ \
    X(f16_to_f32, 2, 4)                            \
    X(bf16_to_f32, 2, 4)                           \
    X(f16_to_f64, 2, 8)                            \
    X(bf16_to_f64, 2, 8)

enum hvd__kernel_id {
#define HVD__KERNEL_ID(name, in, out) HVD__K_##name,
    HVD__KERNELS(HVD__KERNEL_ID)
#undef HVD__KERNEL_ID
        HVD__NKERNELS
};

/* The symbol of a kernel in the module. */
#define HVD__KERNEL_SYMBOL(name) "hvd_" #name

enum {
    HVD__KERNEL_PARTS = 200, /* so that the arguments fit 4 KiB */
    HVD__KERNEL_LANES = 32,
    HVD__KERNEL_WARPS = 8, /* of a block */
    HVD__VECTOR_BYTES = 16,
    HVD__TILE_BYTES = 4096,
};

/* The one parameter of every kernel, passed by value. */
struct hvd__kernel_args {
    char *buffer;
    double pre, post;
    double inverse; /* 1 / divisor if that is exact, else 0 */
    int32_t divisor;
    uint32_t nparts;
    uint32_t tiles;    /* of all parts */
    uint32_t to_parts; /* 1: from the buffer to the parts; 0: to the buffer */
    char *ptr[HVD__KERNEL_PARTS];
    /* Offset of each part in elements of the buffer; part i ends where i + 1
     * begins. */
    uint64_t first[HVD__KERNEL_PARTS + 1];
    uint32_t tile[HVD__KERNEL_PARTS]; /* first tile of each part */
};

#ifdef __CUDACC__
#define HVD__KERNEL_FN static __device__ __host__ __forceinline__
#else
#define HVD__KERNEL_FN static inline __attribute__((always_inline, unused))
#endif

HVD__KERNEL_FN int hvd__kernel_in(int id)
{
#define HVD__KERNEL_IN(name, in, out) \
    case HVD__K_##name:               \
        return in;
    switch (id) {
        HVD__KERNELS(HVD__KERNEL_IN)
    default:
        return 1;
    }
#undef HVD__KERNEL_IN
}

HVD__KERNEL_FN int hvd__kernel_out(int id)
{
#define HVD__KERNEL_OUT(name, in, out) \
    case HVD__K_##name:                \
        return out;
    switch (id) {
        HVD__KERNELS(HVD__KERNEL_OUT)
    default:
        return 1;
    }
#undef HVD__KERNEL_OUT
}

HVD__KERNEL_FN int hvd__kernel_wide(int id)
{
    int in = hvd__kernel_in(id), out = hvd__kernel_out(id);

    return in > out ? in : out;
}

/* Returns by how many elements a part's first tile is shorter, so that the
 * others begin where dst, the destination, is aligned. */
HVD__KERNEL_FN uint32_t hvd__kernel_skew(int id, const void *dst)
{
    int out = hvd__kernel_out(id);
    int vector = HVD__VECTOR_BYTES / hvd__kernel_wide(id) * out;

    return (uint32_t)((uintptr_t)dst & (uintptr_t)(vector - 1)) / (uint32_t)out;
}

HVD__KERNEL_FN uint64_t hvd__kernel_tiles(int id, const void *dst,
                                          uint64_t count)
{
    uint64_t each = (uint64_t)(HVD__TILE_BYTES / hvd__kernel_wide(id));

    return (count + hvd__kernel_skew(id, dst) + each - 1) / each;
}

#endif
