/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches the kernels that pack, unpack, scale and cast; see fuse.h.
 *
 * The parts are passed in the kernel's parameters, so nothing has to be copied
 * to the device or kept until the kernel has run.  An operation with more
 * parts than fit takes several launches.
 */
#include "runtime/plugins/nccl/fuse.h"

#include <inttypes.h>

extern const char hvd__kernels_image[]; /* kernels_image.S */

/* A launch being assembled; launched when full. */
struct batch {
    const struct hvd__kernels *k;
    int id;
    CUstream stream;
    struct hb_error *err;
    struct hvd__kernel_args args;
};

/* A range of an operation's elements, and the buffer that holds them. */
struct range {
    char *buffer;
    size_t first, count;
};

int hvd__kernels_open(struct hvd__kernels *k, struct hb_error *err)
{
    static const char *const names[] = {
#define NAME(name, in, out) HVD__KERNEL_SYMBOL(name),
        HVD__KERNELS(NAME)
#undef NAME
    };
    int rc;

    *k = (struct hvd__kernels){0};
    rc = HVD__CU(err, ModuleLoadData, &k->module, hvd__kernels_image);
    for (int i = 0; rc == 0 && i < HVD__NKERNELS; i++)
        rc = HVD__CU(err, ModuleGetFunction, &k->functions[i], k->module,
                     names[i]);
    if (rc < 0)
        hvd__kernels_close(k);
    return rc;
}

void hvd__kernels_close(struct hvd__kernels *k)
{
    if (k->module)
        hvd__cuda.ModuleUnload(k->module);
    *k = (struct hvd__kernels){0};
}

/* Returns the kernel that scales a dtype; -1: it has no arithmetic here. */
static int scale_kernel(enum hvd_dtype dtype)
{
    static const int ids[] = {
        [HVD_UINT8] = HVD__K_scale_u8,     [HVD_INT8] = HVD__K_scale_i8,
        [HVD_UINT16] = HVD__K_scale_u16,   [HVD_INT16] = HVD__K_scale_i16,
        [HVD_INT32] = HVD__K_scale_i32,    [HVD_INT64] = HVD__K_scale_i64,
        [HVD_FLOAT16] = HVD__K_scale_f16,  [HVD_FLOAT32] = HVD__K_scale_f32,
        [HVD_FLOAT64] = HVD__K_scale_f64,  [HVD_BOOL] = HVD__K_copy,
        [HVD_BFLOAT16] = HVD__K_scale_bf16};
    unsigned i = (unsigned)dtype;

    return i < sizeof(ids) / sizeof(ids[0]) ? ids[i] : -1;
}

/* Returns the kernel of a cast; -1 unless one dtype is wide, the other
 * narrow. */
static int cast_kernel(enum hvd_dtype to, enum hvd_dtype from)
{
    static const struct {
        enum hvd_dtype to, from;
        int id;
    } casts[] = {
        {HVD_FLOAT16, HVD_FLOAT32, HVD__K_f32_to_f16},
        {HVD_BFLOAT16, HVD_FLOAT32, HVD__K_f32_to_bf16},
        {HVD_FLOAT16, HVD_FLOAT64, HVD__K_f64_to_f16},
        {HVD_BFLOAT16, HVD_FLOAT64, HVD__K_f64_to_bf16},
        {HVD_FLOAT32, HVD_FLOAT16, HVD__K_f16_to_f32},
        {HVD_FLOAT32, HVD_BFLOAT16, HVD__K_bf16_to_f32},
        {HVD_FLOAT64, HVD_FLOAT16, HVD__K_f16_to_f64},
        {HVD_FLOAT64, HVD_BFLOAT16, HVD__K_bf16_to_f64},
    };

    for (size_t i = 0; i < sizeof(casts) / sizeof(casts[0]); i++)
        if (casts[i].to == to && casts[i].from == from)
            return casts[i].id;
    return -1;
}

static int is_scaled(const struct hvd__reduce_args *args)
{
    return args->pre != 1.0 || args->post != 1.0 || args->divisor != 1;
}

/* Prepares launches of kernel `id`; -HVD_EINVAL if it is -1. */
static int batch_init(struct batch *b, int id, enum hvd_dtype dtype,
                      const struct hvd__reduce_args *args)
{
    int divisor = args->divisor;

    if (id < 0)
        return hb_error_set(b->err, HVD_EINVAL,
                            "%s in device memory can be neither scaled nor "
                            "cast",
                            hvd_dtype_name(dtype));
    b->id = id;
    b->args.pre = args->pre;
    b->args.post = args->post;
    b->args.divisor = divisor;
    /* 1 / divisor is exact for powers of two, and so is the product. */
    b->args.inverse = divisor & (divisor - 1) ? 0.0 : 1.0 / divisor;
    b->args.nparts = b->args.tiles = 0;
    b->args.first[0] = 0;
    return 0;
}

static int launch(struct batch *b)
{
    struct hvd__kernel_args *args = &b->args;
    void *params[] = {args};
    unsigned blocks = (args->tiles + HVD__KERNEL_WARPS - 1) / HVD__KERNEL_WARPS;
    uint64_t end = args->first[args->nparts];
    int rc;

    if (args->tiles == 0)
        return 0;
    rc = HVD__CU(b->err, LaunchKernel, b->k->functions[b->id], blocks, 1, 1,
                 HVD__KERNEL_WARPS * HVD__KERNEL_LANES, 1, 1, 0, b->stream,
                 params, NULL);
    args->nparts = args->tiles = 0;
    args->first[0] = end;
    return rc;
}

/* Adds a part: the next count elements of the buffer belong to ptr. */
static int add(struct batch *b, char *ptr, uint64_t count)
{
    struct hvd__kernel_args *args = &b->args;
    uint32_t i = args->nparts;
    uint64_t in = (uint64_t)hvd__kernel_in(b->id);
    uint64_t out = (uint64_t)hvd__kernel_out(b->id);
    uint64_t in_buffer = args->to_parts ? in : out;
    char *at = args->buffer + args->first[i] * in_buffer;

    if (count == 0)
        return 0;
    if ((uintptr_t)ptr % (args->to_parts ? out : in) ||
        (uintptr_t)at % in_buffer)
        return hb_error_set(b->err, HVD_EINVAL,
                            "the device memory at 0x%" PRIxPTR
                            " is not aligned to its elements",
                            (uintptr_t)ptr);
    args->ptr[i] = ptr;
    args->tile[i] = args->tiles;
    args->first[i + 1] = args->first[i] + count;
    /* 32 bits suffice for any device's memory. */
    args->tiles +=
        (uint32_t)hvd__kernel_tiles(b->id, args->to_parts ? ptr : at, count);
    args->nparts++;
    return args->nparts == HVD__KERNEL_PARTS ? launch(b) : 0;
}

/* Launches the kernel on all parts of a range of elements of `bytes` bytes.
 * The copy kernel counts bytes. */
static int add_range(struct batch *b, const struct hvd__op *op,
                     const struct range *range, size_t bytes)
{
    size_t unit = b->id == HVD__K_copy ? bytes : 1;
    size_t first = range->first, end = first + range->count;
    int back = (int)b->args.to_parts, rc = 0;

    b->args.buffer = range->buffer;
    if (hvd__op_direct(op)) {
        char *p = back ? op->recvbuf : (void *)(uintptr_t)op->sendbuf;

        rc = add(b, p + first * bytes, range->count * unit);
        return rc < 0 ? rc : launch(b);
    }
    for (size_t i = 0; rc == 0 && i < op->nparts; i++) {
        const struct hvd__part *part = &op->parts[i];
        char *p = back ? part->recvbuf : (void *)(uintptr_t)part->sendbuf;
        size_t from = part->first > first ? part->first : first;
        size_t to = part->first + part->count;

        if (to > end)
            to = end;
        if (from < to)
            rc = add(b, p + (from - part->first) * bytes, (to - from) * unit);
    }
    return rc < 0 ? rc : launch(b);
}

int hvd__fuse_pack(const struct hvd__kernels *k,
                   const struct hvd__fuse_pack *pack, CUstream stream,
                   struct hb_error *err)
{
    const struct hvd__op *op = pack->op;
    int cast = !hvd__op_direct(op) && op->part_dtype != op->dtype, rc, id;
    struct hvd__reduce_args args = {cast ? op->prescale : pack->pre, 1.0, 1, 0};
    struct batch b = {.k = k, .stream = stream, .err = err};
    struct range range = {pack->dst, pack->first, pack->count};

    if (cast)
        id = cast_kernel(op->dtype, op->part_dtype);
    else
        id = is_scaled(&args) ? scale_kernel(op->dtype) : HVD__K_copy;
    rc = batch_init(&b, id, op->dtype, &args);
    if (rc < 0)
        return rc;
    return add_range(&b, op, &range,
                     cast ? hvd_dtype_size(op->part_dtype) : op->elem_bytes);
}

int hvd__fuse_unpack(const struct hvd__kernels *k,
                     const struct hvd__fuse_unpack *unpack, CUstream stream,
                     struct hb_error *err)
{
    const struct hvd__op *op = unpack->op;
    int cast = !hvd__op_direct(op) && op->part_dtype != op->dtype, rc, id;
    struct hvd__reduce_args args = {1.0, 1.0, 1, 0};
    struct batch b = {.k = k, .stream = stream, .err = err};
    struct range range = {(void *)(uintptr_t)unpack->src, unpack->first,
                          unpack->count};

    if (unpack->args) {
        args.post = unpack->args->post;
        args.divisor = unpack->args->divisor;
    }
    if (cast)
        id = cast_kernel(op->part_dtype, op->dtype);
    else
        id = is_scaled(&args) ? scale_kernel(op->dtype) : HVD__K_copy;
    rc = batch_init(&b, id, op->dtype, &args);
    if (rc < 0)
        return rc;
    b.args.to_parts = 1;
    return add_range(&b, op, &range,
                     cast ? hvd_dtype_size(op->part_dtype) : op->elem_bytes);
}

int hvd__fuse_scale(const struct hvd__kernels *k,
                    const struct hvd__fuse_scale *scale, CUstream stream,
                    struct hb_error *err)
{
    size_t bytes = hvd_dtype_size(scale->dtype);
    struct batch b = {.k = k, .stream = stream, .err = err};
    int id = is_scaled(scale->args) ? scale_kernel(scale->dtype) : HVD__K_copy;
    int rc = batch_init(&b, id, scale->dtype, scale->args);

    if (rc < 0 || (id == HVD__K_copy && scale->dst == scale->src))
        return rc;
    b.args.buffer = scale->dst;
    rc = add(&b, (void *)(uintptr_t)scale->src,
             scale->count * (id == HVD__K_copy ? bytes : 1));
    return rc < 0 ? rc : launch(&b);
}

int hvd__fuse_buffer_open(struct hvd__fuse_buffer *b, size_t bytes,
                          struct hb_error *err)
{
    CUdeviceptr p = 0;
    int rc;

    *b = (struct hvd__fuse_buffer){.bytes = bytes};
    if (hvd__nccl.MemAlloc && hvd__nccl.MemFree &&
        hvd__nccl.MemAlloc(&b->ptr, bytes) == ncclSuccess && b->ptr) {
        b->by_nccl = 1;
        return 0;
    }
    rc = HVD__CU(err, MemAlloc, &p, bytes);
    if (rc < 0) {
        *b = (struct hvd__fuse_buffer){0};
        return rc;
    }
    b->ptr = (void *)(uintptr_t)p; // NOLINT(performance-no-int-to-ptr)
    return 0;
}

void hvd__fuse_buffer_close(struct hvd__fuse_buffer *b)
{
    if (b->ptr && b->by_nccl)
        hvd__nccl.MemFree(b->ptr);
    else if (b->ptr)
        hvd__cuda.MemFree((CUdeviceptr)(uintptr_t)b->ptr);
    *b = (struct hvd__fuse_buffer){0};
}

void *hvd__fuse_register(const struct hvd__fuse_buffer *b, ncclComm_t comm)
{
    void *handle = NULL;

    if (!b->by_nccl || !hvd__nccl.CommRegister || !hvd__nccl.CommDeregister ||
        hvd__nccl.CommRegister(comm, b->ptr, b->bytes, &handle) != ncclSuccess)
        return NULL;
    return handle;
}

void hvd__fuse_deregister(ncclComm_t comm, void *handle)
{
    if (handle)
        hvd__nccl.CommDeregister(comm, handle);
}
