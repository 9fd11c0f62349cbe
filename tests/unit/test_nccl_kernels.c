/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the NCCL plug-in, run on the CPU and compared bit for bit with
 * libhvd's work in host memory: hvd__op_pack, hvd__op_unpack and the reductions
 * of one input.  The plug-in's code launches them; this file stands in for the
 * driver's functions.
 */
#include "runtime/plane/op.h"
#include "runtime/plugins/nccl/fuse.h"
#include "runtime/plugins/nccl/kernels_body.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HALVES = 1 << 16,
    MAX_PARTS = 700,
    GUARD = 64, /* guard bytes on each side, never to be written */
};

/* ---- The driver -------------------------------------------------------- */

static struct {
    int launches, fail_at;
    CUresult result;
} driver;

static CUresult module_load(CUmodule *module, const void *image)
{
    /* FATBINC_MAGIC, as nvcc writes it. */
    ck_assert_uint_eq(*(const uint32_t *)image, 0xba55ed50);
    *module = (CUmodule)(void *)&driver;
    return driver.result;
}

static CUresult module_unload(CUmodule module)
{
    ck_assert_ptr_eq(module, &driver);
    return CUDA_SUCCESS;
}

static CUresult module_get(CUfunction *f, CUmodule module, const char *name)
{
    static const char *const names[] = {
#define NAME(name, in, out) "hvd_" #name,
        HVD__KERNELS(NAME)};
    static char handles[HVD__NKERNELS];

    ck_assert_ptr_eq(module, &driver);
    for (int i = 0; i < HVD__NKERNELS; i++)
        if (strcmp(names[i], name) == 0) {
            *f = (CUfunction)(void *)&handles[i];
            handles[i] = (char)i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

/* Runs tiles and lanes in an arbitrary order: they must be independent. */
static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                       unsigned bx, unsigned by, unsigned bz, unsigned shared,
                       CUstream stream, void **params, void **extra)
{
    int id = *(const char *)(void *)f;
    const struct hvd__kernel_args *args = params[0];
    unsigned warps = gx * bx / HVD__KERNEL_LANES;

    if (++driver.launches == driver.fail_at)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ck_assert(gy == 1 && gz == 1 && by == 1 && bz == 1 && !extra);
    ck_assert_uint_eq(bx, HVD__KERNEL_WARPS * HVD__KERNEL_LANES);
    ck_assert_uint_eq(shared, 0);
    ck_assert_ptr_eq(stream, (void *)&driver);
    ck_assert_uint_ge(warps, args->tiles);
    ck_assert_uint_lt(warps - args->tiles, HVD__KERNEL_WARPS);
    for (unsigned t = args->tiles; t-- > 0;)
        for (unsigned lane = HVD__KERNEL_LANES; lane-- > 0;)
            hvd__kernel_lane(id, args, t, lane);
    return CUDA_SUCCESS;
}

static CUresult error_name(CUresult result, const char **name)
{
    *name =
        result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_string(CUresult result, const char **text)
{
    *text = "out of memory";
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
}

static struct hvd__kernels kernels;
static const CUstream a_stream = (CUstream)(void *)&driver;

static void setup(void)
{
    struct hb_error err = HB_ERROR_INIT;

    hvd__cuda.ModuleLoadData = module_load;
    hvd__cuda.ModuleUnload = module_unload;
    hvd__cuda.ModuleGetFunction = module_get;
    hvd__cuda.LaunchKernel = launch;
    hvd__cuda.GetErrorName = error_name;
    hvd__cuda.GetErrorString = error_string;
    ck_assert_int_eq(hvd__kernels_open(&kernels, &err), 0);
}

static void teardown(void)
{
    hvd__kernels_close(&kernels);
}

/* ---- One input, every value -------------------------------------------- */

/* Reduces one input on the CPU, where possible with another tier than the one
 * that the kernels' arithmetic follows. */
static void reduce(enum hvd_dtype dtype, void *dst, const void *src,
                   size_t count, const struct hvd__reduce_args *args)
{
    hvd__reduce_get(dtype, HVD_SUM)(dst, &src, 1, count, args);
}

/* Returns edge-case bits: zeros, ends of ranges, denormals, NaN. */
static uint64_t special(size_t bytes)
{
    static const uint64_t bits[] = {0,
                                    1,
                                    2,
                                    3,
                                    0x7f,
                                    0x80,
                                    0xff,
                                    0x7fff,
                                    0x8000,
                                    0x8001,
                                    0x7c00,
                                    0x7bff,
                                    0x7f80,
                                    0x7f7f,
                                    0x7e01,
                                    0xfe00,
                                    0x7fffffff,
                                    0x80000000,
                                    0x80000001,
                                    0x7f800000,
                                    0xff800000,
                                    0x7f7fffff,
                                    0x7fc00001,
                                    0xffc00000,
                                    0x7f800001,
                                    0x00800000,
                                    0x007fffff,
                                    0x00000001,
                                    0x33000000,
                                    0x33000001,
                                    0x477fefff,
                                    0x477ff000,
                                    0x7ff0000000000000,
                                    0xfff0000000000000,
                                    0x7ff8000000000001,
                                    0x7fefffffffffffff,
                                    0x8000000000000000,
                                    0x8000000000000001,
                                    0x7fffffffffffffff,
                                    0x0010000000000000,
                                    0x000fffffffffffff,
                                    0x40effdffffffffff,
                                    0x40effe0000000000,
                                    0x3e60000000000000,
                                    0x3e60000000000001,
                                    0x47efffffefffffff,
                                    0x47effffff0000000};

    return bits[unit_random() % (sizeof(bits) / sizeof(bits[0]))] &
           UINT64_MAX >> (64 - 8 * bytes);
}

/* Fills `buf` with random bits, numbers near one and special values. */
static void fill(enum hvd_dtype dtype, void *buf, size_t count)
{
    size_t bytes = hvd_dtype_size(dtype);
    unsigned char *p = buf;

    for (size_t i = 0; i < count; i++, p += bytes) {
        uint64_t v = unit_random() % 4 ? unit_random() : special(bytes);
        double near = (double)(int64_t)unit_random() / (double)INT64_MAX * 3;
        float near32 = (float)near;

        if (dtype == HVD_FLOAT32 && i % 2)
            memcpy(&v, &near32, sizeof(near32));
        else if (dtype == HVD_FLOAT64 && i % 2)
            memcpy(&v, &near, sizeof(near));
        memcpy(p, &v, bytes); /* little endian */
    }
}

static const double factors[] = {
    1.0,   0.5,     1.0 / 3, -7.25, 1e-8,   3e-39,       1e30,
    1e300, 65504.0, 0.0,     -0.0,  1e-310, (double)NAN, (double)INFINITY};
static const int divisors[] = {1,  2,    3,       7,        8,
                               96, 1000, 1 << 20, 16777217, INT32_MAX};
enum {
    NFACTORS = sizeof(factors) / sizeof(factors[0]),
    NDIVISORS = sizeof(divisors) / sizeof(divisors[0]),
};

static const char *scale_differs(enum hvd_dtype dtype, const void *src,
                                 size_t count,
                                 const struct hvd__reduce_args *args)
{
    static char text[200];
    static uint64_t want[HALVES], got[HALVES];
    size_t bytes = hvd_dtype_size(dtype);
    struct hvd__fuse_scale scale = {got, src, count, dtype, args};
    struct hb_error err = HB_ERROR_INIT;

    memset(got, 0x55, sizeof(got));
    reduce(dtype, want, src, count, args);
    if (hvd__fuse_scale(&kernels, &scale, a_stream, &err) < 0)
        return "failed";
    for (size_t i = 0; i < count; i++) {
        const char *w = (const char *)want + i * bytes;
        const char *g = (const char *)got + i * bytes;
        uint64_t in = 0, a = 0, b = 0;

        memcpy(&in, (const char *)src + i * bytes, bytes);
        memcpy(&a, w, bytes);
        memcpy(&b, g, bytes);
        if (a == b)
            continue;
        snprintf(text, sizeof(text),
                 "%s 0x%llx pre %g post %g divisor %d: 0x%llx, not 0x%llx",
                 hvd_dtype_name(dtype), (unsigned long long)in, args->pre,
                 args->post, args->divisor, (unsigned long long)b,
                 (unsigned long long)a);
        return text;
    }
    return NULL;
}

/* Scaling equals the reductions for dtype _i: 16-bit types in every value. */
START_TEST(scales_as_reductions_do)
{
    static uint64_t src[HALVES];
    enum hvd_dtype dtype = (enum hvd_dtype)_i;
    size_t count = hvd_dtype_size(dtype) == 2 ? HALVES : 3001;

    if (dtype == HVD_BOOL)
        return;
    fill(dtype, src, count);
    for (unsigned i = 0; count == HALVES && i < HALVES; i++)
        ((uint16_t *)src)[i] = (uint16_t)i;
    for (int f = 0; f < NFACTORS * NFACTORS; f++) {
        struct hvd__reduce_args args = {factors[f % NFACTORS],
                                        factors[f / NFACTORS],
                                        divisors[unit_random() % NDIVISORS], 0};
        const char *wrong;

        if (count == HALVES && f % NFACTORS && f / NFACTORS && f % 5)
            continue;
        if (args.pre == 1 && args.post == 1)
            args.divisor = 2; /* otherwise there is nothing to do */
        wrong = scale_differs(dtype, src, count, &args);
        ck_assert_msg(!wrong, "%s", wrong);
    }
    for (int d = 1; d < NDIVISORS; d++) {
        struct hvd__reduce_args args = {1, 1, divisors[d], 0};
        const char *wrong = scale_differs(dtype, src, count, &args);

        ck_assert_msg(!wrong, "%s", wrong);
    }
}
END_TEST

START_TEST(scales_in_place)
{
    float v[1003], want[1003];
    struct hvd__reduce_args args = {0.75, 1, 3, 0};
    struct hvd__fuse_scale scale = {v, v, 1003, HVD_FLOAT32, &args};
    struct hb_error err = HB_ERROR_INIT;

    fill(HVD_FLOAT32, v, 1003);
    reduce(HVD_FLOAT32, want, v, 1003, &args);
    ck_assert_int_eq(hvd__fuse_scale(&kernels, &scale, a_stream, &err), 0);
    ck_assert_mem_eq(v, want, sizeof(v));
    args = (struct hvd__reduce_args){1, 1, 1, 0};
    driver.launches = 0;
    ck_assert_int_eq(hvd__fuse_scale(&kernels, &scale, a_stream, &err), 0);
    ck_assert_int_eq(driver.launches, 0);
}
END_TEST

/* ---- Parts ------------------------------------------------------------- */

/* An operation with its memory.  Every part has a piece of its own between
 * guards, twice: for the kernels and for the CPU. */
struct layout {
    struct hvd__op op, cpu_op;
    struct hvd__part parts[MAX_PARTS], cpu_parts[MAX_PARTS];
    unsigned char *mem, *cpu_mem;
    size_t mem_bytes;
};

/* Returns the elements of part i: none, less than a tile, or several tiles. */
static size_t part_count(size_t i, size_t typical)
{
    switch (unit_random() % 8) {
    case 0:
        return i % 3 ? 0 : 1;
    case 1:
        return unit_random() % 8;
    case 2:
        return typical * 4 + unit_random() % 100;
    default:
        return unit_random() % (typical + 1);
    }
}

static void layout_open(struct layout *l, enum hvd_dtype dtype,
                        enum hvd_dtype part_dtype, size_t nparts,
                        size_t typical)
{
    size_t bytes = hvd_dtype_size(part_dtype), at = GUARD, first = 0;
    size_t room = nparts * (typical * 4 + 200) * bytes + nparts * 2 * GUARD;

    memset(l, 0, sizeof(*l));
    l->mem_bytes = (room + GUARD) / 8 * 8; /* aligned for any dtype */
    l->mem = malloc(l->mem_bytes);
    l->cpu_mem = malloc(l->mem_bytes);
    ck_assert(l->mem && l->cpu_mem);
    for (size_t i = 0; i < nparts; i++) {
        size_t count = nparts == 1 ? typical * 4 + 1 : part_count(i, typical);

        at += (unit_random() % 17) * bytes;
        l->parts[i] =
            (struct hvd__part){l->mem + at, l->mem + at, first, count, NULL};
        l->cpu_parts[i] = (struct hvd__part){l->cpu_mem + at, l->cpu_mem + at,
                                             first, count, NULL};
        at += count * bytes;
        first += count;
    }
    fill(part_dtype, l->mem, l->mem_bytes / bytes);
    memcpy(l->cpu_mem, l->mem, l->mem_bytes);
    ck_assert_uint_le(at + GUARD, l->mem_bytes);
    l->op = (struct hvd__op){.kind = HVD__ALLREDUCE,
                             .dtype = dtype,
                             .part_dtype = part_dtype,
                             .elem_bytes = hvd_dtype_size(dtype),
                             .prescale = part_dtype == dtype ? 5 : 0.3,
                             .postscale = 1,
                             .count = first,
                             .parts = l->parts,
                             .nparts = nparts,
                             .args = {1, 1, 1, 0}};
    l->cpu_op = l->op;
    l->cpu_op.parts = l->cpu_parts;
}

static void layout_close(struct layout *l)
{
    free(l->mem);
    free(l->cpu_mem);
}

/* Returns the offset of the first difference, or size. */
static size_t first_difference(const unsigned char *a, const unsigned char *b,
                               size_t size)
{
    size_t i = 0;

    if (memcmp(a, b, size) == 0)
        return size;
    while (a[i] == b[i])
        i++;
    return i;
}

/* Packs and unpacks a range of an operation; its buffer may be misaligned. */
static void check_pack(const struct layout *l, size_t first, size_t count,
                       size_t shift, double pre)
{
    size_t bytes = l->op.elem_bytes, size = (count + shift) * bytes;
    unsigned char *got = malloc(size + 2 * GUARD);
    unsigned char *want = malloc(size + 2 * GUARD);
    size_t at = GUARD + shift * bytes, wrong;
    struct hvd__fuse_pack pack = {&l->op, got + at, first, count, pre};
    struct hvd__reduce_args args = {pre, 1, 1, 0};
    struct hb_error err = HB_ERROR_INIT;

    memset(got, 0xa5, size + 2 * GUARD);
    memset(want, 0xa5, size + 2 * GUARD);
    hvd__op_pack(&l->cpu_op, want + at, first, count);
    if (pre != 1.0 && count > 0)
        reduce(l->op.dtype, want + at, want + at, count, &args);
    ck_assert_int_eq(hvd__fuse_pack(&kernels, &pack, a_stream, &err), 0);
    wrong = first_difference(got, want, size + 2 * GUARD);
    ck_assert_msg(wrong == size + 2 * GUARD,
                  "%s as %s, %zu from %zu at %zu, pre %g: byte %zu of %zu",
                  hvd_dtype_name(l->op.part_dtype), hvd_dtype_name(l->op.dtype),
                  count, first, shift, pre, wrong, at);
    ck_assert_mem_eq(l->mem, l->cpu_mem, l->mem_bytes);
    free(got);
    free(want);
}

static void check_unpack(const struct layout *l, size_t first, size_t count,
                         size_t shift, const struct hvd__reduce_args *args)
{
    size_t bytes = l->op.elem_bytes, at = shift * bytes, wrong;
    unsigned char *buf = malloc((count + shift) * bytes + 1);
    struct hvd__fuse_unpack unpack = {&l->op, buf + at, first, count, args};
    struct hb_error err = HB_ERROR_INIT;

    fill(l->op.dtype, buf, count + shift);
    ck_assert_int_eq(hvd__fuse_unpack(&kernels, &unpack, a_stream, &err), 0);
    if (args && count > 0)
        reduce(l->op.dtype, buf + at, buf + at, count, args);
    hvd__op_unpack(&l->cpu_op, buf + at, first, count, 0);
    wrong = first_difference(l->mem, l->cpu_mem, l->mem_bytes);
    ck_assert_msg(wrong == l->mem_bytes,
                  "%s from %s, %zu from %zu at %zu: byte %zu",
                  hvd_dtype_name(l->op.part_dtype), hvd_dtype_name(l->op.dtype),
                  count, first, shift, wrong);
    free(buf);
}

/* Checks the whole operation and some ranges of it. */
static void check_layout(const struct layout *l)
{
    const struct hvd__reduce_args args = {1, 0.7, 3, 0};
    int cast = l->op.dtype != l->op.part_dtype;
    int plain = l->op.dtype == HVD_BOOL || l->op.dtype > HVD_BFLOAT16;

    for (int i = 0; i < 6; i++) {
        size_t first = i == 0 ? 0 : unit_random() % (l->op.count + 1);
        size_t count =
            i == 0 ? l->op.count : unit_random() % (l->op.count - first + 1);

        check_pack(l, first, count, unit_random() % 17, 1.0);
        if (!cast && !plain)
            check_pack(l, first, count, unit_random() % 17, -0.3);
        check_unpack(l, first, count, unit_random() % 17, NULL);
        if (!plain)
            check_unpack(l, first, count, unit_random() % 17, &args);
    }
}

static const struct {
    enum hvd_dtype dtype, part_dtype;
} pairs[] = {
    {HVD_UINT8, HVD_UINT8},
    {HVD_INT8, HVD_INT8},
    {HVD_UINT16, HVD_UINT16},
    {HVD_INT16, HVD_INT16},
    {HVD_INT32, HVD_INT32},
    {HVD_INT64, HVD_INT64},
    {HVD_FLOAT16, HVD_FLOAT16},
    {HVD_FLOAT32, HVD_FLOAT32},
    {HVD_FLOAT64, HVD_FLOAT64},
    {HVD_BOOL, HVD_BOOL},
    {HVD_BFLOAT16, HVD_BFLOAT16},
    {HVD_FLOAT8_E4M3, HVD_FLOAT8_E4M3},
    {HVD_FLOAT8_E5M2, HVD_FLOAT8_E5M2},
    {HVD_FLOAT16, HVD_FLOAT32},
    {HVD_BFLOAT16, HVD_FLOAT32},
    {HVD_FLOAT16, HVD_FLOAT64},
    {HVD_BFLOAT16, HVD_FLOAT64},
};
enum { NPAIRS = sizeof(pairs) / sizeof(pairs[0]) };

START_TEST(packs_and_unpacks_parts)
{
    static const size_t nparts[] = {1, 2, 37, 199, 200, 201, MAX_PARTS};
    static struct layout l;

    for (size_t i = 0; i < sizeof(nparts) / sizeof(nparts[0]); i++) {
        layout_open(&l, pairs[_i].dtype, pairs[_i].part_dtype, nparts[i],
                    nparts[i] == 1 ? 40000 : 20000 / nparts[i]);
        check_layout(&l);
        layout_close(&l);
    }
}
END_TEST

/* 161 tensors fit into one launch; more take several. */
START_TEST(few_launches)
{
    static struct layout l;

    for (size_t n = 161; n <= 401; n += 240) {
        layout_open(&l, HVD_FLOAT32, HVD_FLOAT32, n, 10);
        driver.launches = 0;
        check_pack(&l, 0, l.op.count, 0, 1.0);
        if (n == 161)
            ck_assert_int_eq(driver.launches, 1);
        else
            ck_assert_int_le(driver.launches, 3);
        layout_close(&l);
    }
    driver.launches = 0;
    layout_open(&l, HVD_FLOAT32, HVD_FLOAT32, 5, 10);
    check_pack(&l, 3, 0, 0, 1.0);
    ck_assert_int_eq(driver.launches, 0);
    layout_close(&l);
}
END_TEST

START_TEST(direct_operations)
{
    float in[5000], out[5000], buf[5000], want[5000];
    struct hvd__op op = {.dtype = HVD_FLOAT32,
                         .part_dtype = HVD_FLOAT32,
                         .elem_bytes = 4,
                         .count = 5000,
                         .sendbuf = in,
                         .recvbuf = out,
                         .prescale = 2};
    struct hvd__fuse_pack pack = {&op, buf, 1, 4999, 2.0};
    struct hvd__fuse_unpack unpack = {&op, buf, 1, 4999, NULL};
    struct hvd__reduce_args args = {2, 1, 1, 0};
    struct hb_error err = HB_ERROR_INIT;

    fill(HVD_FLOAT32, in, 5000);
    memset(out, 0, sizeof(out));
    reduce(HVD_FLOAT32, want, in + 1, 4999, &args);
    ck_assert_int_eq(hvd__fuse_pack(&kernels, &pack, a_stream, &err), 0);
    ck_assert_mem_eq(buf, want, 4999 * sizeof(float));
    ck_assert_int_eq(hvd__fuse_unpack(&kernels, &unpack, a_stream, &err), 0);
    ck_assert_mem_eq(out + 1, want, 4999 * sizeof(float));
    ck_assert(out[0] == 0);
}
END_TEST

/* Narrows fp32 values next to every fp16 and bf16 value, and next to the
 * midpoint of neighbours. */
START_TEST(narrows_at_every_edge)
{
    static uint32_t src[HALVES * 6];
    static uint16_t got[HALVES * 6], want[HALVES * 6];
    enum hvd_dtype dtype = _i ? HVD_BFLOAT16 : HVD_FLOAT16;
    struct hvd__part part = {src, src, 0, HALVES * 6, NULL};
    struct hvd__op op = {.dtype = dtype,
                         .part_dtype = HVD_FLOAT32,
                         .elem_bytes = 2,
                         .prescale = 1,
                         .count = HALVES * 6,
                         .parts = &part,
                         .nparts = 1};
    struct hvd__fuse_pack pack = {&op, got, 0, HALVES * 6, 1.0};
    struct hb_error err = HB_ERROR_INIT;

    for (uint32_t h = 0; h < HALVES; h++) {
        float v = hvd__f16_to_f32(h);
        uint32_t bits, half = _i ? 0x8000 : 0x1000;

        memcpy(&bits, &v, sizeof(bits));
        if (_i)
            bits = h << 16;
        for (uint32_t k = 0; k < 3; k++) {
            src[6 * h + k] = bits + k - 1;
            src[6 * h + 3 + k] = bits + half + k - 1;
        }
    }
    hvd__op_pack(&op, want, 0, op.count);
    ck_assert_int_eq(hvd__fuse_pack(&kernels, &pack, a_stream, &err), 0);
    ck_assert_mem_eq(got, want, sizeof(got));
}
END_TEST

/* ---- What is refused --------------------------------------------------- */

START_TEST(what_cannot_be_scaled)
{
    char v[100] = {0};
    struct hvd__reduce_args args = {0.5, 1, 1, 0};
    struct hvd__fuse_scale scale = {v, v, 100, HVD_FLOAT8_E4M3, &args};
    struct hb_error err = HB_ERROR_INIT;
    double wide = 0, narrow = 0;
    struct hvd__part part = {&wide, &wide, 0, 1, NULL};
    struct hvd__op op = {.dtype = HVD_INT8,
                         .part_dtype = HVD_FLOAT64,
                         .elem_bytes = 1,
                         .count = 1,
                         .parts = &part,
                         .nparts = 1};
    struct hvd__fuse_pack pack = {&op, &narrow, 0, 1, 1.0};

    driver.launches = 0;
    ck_assert_int_eq(hvd__fuse_scale(&kernels, &scale, a_stream, &err),
                     -HVD_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "scaled"));
    hb_error_clear(&err);
    ck_assert_int_eq(hvd__fuse_pack(&kernels, &pack, a_stream, &err),
                     -HVD_EINVAL);
    ck_assert_int_eq(driver.launches, 0);
}
END_TEST

START_TEST(misaligned_elements)
{
    double mem[20] = {0}, out[20];
    struct hvd__reduce_args args = {0.5, 1, 1, 0};
    struct hvd__fuse_scale scale = {out, (char *)mem + 4, 10, HVD_FLOAT64,
                                    &args};
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hvd__fuse_scale(&kernels, &scale, a_stream, &err),
                     -HVD_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "not aligned"));
    hb_error_clear(&err);
    scale.src = mem;
    scale.dst = (char *)out + 2;
    ck_assert_int_eq(hvd__fuse_scale(&kernels, &scale, a_stream, &err),
                     -HVD_EINVAL);
}
END_TEST

START_TEST(failures_of_the_driver)
{
    float in[10] = {0}, out[10];
    struct hvd__reduce_args args = {0.5, 1, 1, 0};
    struct hvd__fuse_scale scale = {out, in, 10, HVD_FLOAT32, &args};
    struct hvd__kernels none;
    struct hb_error err = HB_ERROR_INIT;

    driver.launches = 0;
    driver.fail_at = 1;
    ck_assert_int_eq(hvd__fuse_scale(&kernels, &scale, a_stream, &err),
                     -HVD_ENOMEM);
    ck_assert_str_eq(err.text, "cuLaunchKernel: out of memory "
                               "(CUDA_ERROR_OUT_OF_MEMORY)");
    driver.fail_at = 0;
    driver.result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    hb_error_clear(&err);
    ck_assert_int_eq(hvd__kernels_open(&none, &err), -HVD_ESYSTEM);
    ck_assert_str_eq(err.text, "cuModuleLoadData: error 209");
    ck_assert_ptr_null(none.module);
    driver.result = CUDA_SUCCESS;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl_kernels");
    TCase *tc = tcase_create("nccl_kernels");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, scales_as_reductions_do, 0, HVD_BFLOAT16 + 1);
    tcase_add_test(tc, scales_in_place);
    tcase_add_loop_test(tc, packs_and_unpacks_parts, 0, NPAIRS);
    tcase_add_test(tc, few_launches);
    tcase_add_test(tc, direct_operations);
    tcase_add_loop_test(tc, narrows_at_every_edge, 0, 2);
    tcase_add_test(tc, what_cannot_be_scaled);
    tcase_add_test(tc, misaligned_elements);
    tcase_add_test(tc, failures_of_the_driver);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
