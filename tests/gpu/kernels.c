/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels that pack and unpack on the device.
 *
 *     kernels device   prints what there is: lines "NAME VALUE"
 *     kernels check    compares them bit by bit with the functions for host
 *                      memory, with random bits, parts and alignments
 *     kernels speed    compares their speed with that of the driver's copy:
 *                      lines "speed NAME GB/s RATIO"
 *
 * Bandwidth counts bytes read and written.  The parts of the measurements are
 * the gradients of two ResNet-50s, each where an allocator would put it; "odd"
 * ones are an element shorter, so that in the buffer nothing is aligned to more
 * than an element.
 */
#include "cmd/hvd-bench/resnet50.h"
#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "runtime/plugins/nccl/fuse.h"
#include "tests/gpu/gpu_util.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARTS = 450, /* more than one launch takes */
    PART_MAX = 3000,
    SLACK = 16, /* most elements between parts, for all alignments */
    CASES = 60,
    GUARD = 0x5a
};

/* A piece of memory on the host and its counterpart on the device. */
struct pair {
    char *host, *device;
    size_t bytes;
};

struct test {
    struct gpu gpu;
    struct hvd__kernels kernels;
    uint64_t random;
    struct pair in, out, buffer;
};

/* splitmix64 */
static uint64_t next(struct test *t)
{
    uint64_t z = t->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(struct test *t, size_t n)
{
    return (size_t)(next(t) % n);
}

static void pair_open(struct pair *p, size_t bytes)
{
    p->bytes = bytes;
    p->host = gpu_host(bytes);
    p->device = gpu_alloc(bytes);
}

static void pair_close(struct pair *p)
{
    gpu_host_free(p->host);
    gpu_free(p->device);
}

/* Copies the host's bytes to the device. */
static void pair_put(struct test *t, struct pair *p)
{
    gpu_put(&t->gpu, p->device, p->host, p->bytes);
}

static void must(int rc, const struct hb_error *err)
{
    if (rc < 0)
        gpu_fail("%s", err->text);
}

/* ---- Check ------------------------------------------------------------- */

/* A case: the dtype of the caller's parts and that of the buffer, and the
 * factors. */
struct kind {
    enum hvd_dtype part, travels;
    struct hvd__reduce_args args;
};

struct sides {
    struct hvd__part host[PARTS], device[PARTS];
    struct hvd__op host_op, device_op;
};

static const struct kind kinds[] = {
    {HVD_UINT8, HVD_UINT8, {1, 1, 1, 0}},
    {HVD_FLOAT32, HVD_FLOAT32, {1, 1, 1, 0}},
    {HVD_FLOAT64, HVD_FLOAT64, {1, 1, 1, 0}},
    {HVD_UINT8, HVD_UINT8, {0.3, 2.5, 1, 0}},
    {HVD_INT8, HVD_INT8, {-1.5, 1, 3, 0}},
    {HVD_UINT16, HVD_UINT16, {0.7, 1, 2, 0}},
    {HVD_INT16, HVD_INT16, {1, 3, 7, 0}},
    {HVD_INT32, HVD_INT32, {1e3, 1, 5, 0}},
    {HVD_INT64, HVD_INT64, {0.1, 2, 4, 0}},
    {HVD_FLOAT16, HVD_FLOAT16, {0.125, 3, 3, 0}},
    {HVD_BFLOAT16, HVD_BFLOAT16, {3, 0.7, 6, 0}},
    {HVD_FLOAT32, HVD_FLOAT32, {0.1, 1, 3, 0}},
    {HVD_FLOAT32, HVD_FLOAT32, {1, 0.3, 8, 0}},
    {HVD_FLOAT64, HVD_FLOAT64, {0.1, 0.3, 7, 0}},
    {HVD_FLOAT32, HVD_FLOAT16, {0.25, 1.5, 3, 0}},
    {HVD_FLOAT32, HVD_BFLOAT16, {1.7, 1, 2, 0}},
    {HVD_FLOAT64, HVD_FLOAT16, {1, 1, 1, 0}},
    {HVD_FLOAT64, HVD_BFLOAT16, {0.3, 0.5, 5, 0}},
};
enum { NKINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Lays out parts of random sizes, some of them empty, at random places. */
static void lay_out(struct test *t, const struct kind *k, struct sides *s)
{
    size_t elem = hvd_dtype_size(k->part), at = 0, first = 0;

    for (int i = 0; i < PARTS; i++) {
        size_t count = below(t, 8) ? below(t, PART_MAX) : 0;

        at += below(t, SLACK);
        s->host[i] =
            (struct hvd__part){t->in.host + at * elem, t->out.host + at * elem,
                               first, count, NULL};
        s->device[i] =
            (struct hvd__part){t->in.device + at * elem,
                               t->out.device + at * elem, first, count, NULL};
        at += count;
        first += count;
    }
    hvd__op_init(&s->host_op);
    s->host_op.kind = HVD__ALLREDUCE;
    s->host_op.dtype = k->travels;
    s->host_op.part_dtype = k->part;
    s->host_op.elem_bytes = hvd_dtype_size(k->travels);
    s->host_op.op = HVD_SUM;
    s->host_op.prescale = k->args.pre;
    s->host_op.postscale = k->args.post;
    s->host_op.count = first;
    s->host_op.nparts = PARTS;
    s->device_op = s->host_op;
    s->host_op.parts = s->host;
    s->device_op.parts = s->device;
}

static void differ(struct test *t, const struct pair *p, const char *what,
                   const struct kind *k)
{
    char *got = gpu_host(p->bytes);

    gpu_get(&t->gpu, got, p->device, p->bytes);
    for (size_t i = 0; i < p->bytes; i++)
        if (got[i] != p->host[i])
            gpu_fail("%s of %s as %s: byte %zu is %#x, not %#x", what,
                     hvd_dtype_name(k->part), hvd_dtype_name(k->travels), i,
                     got[i] & 0xff, p->host[i] & 0xff);
    gpu_host_free(got);
}

/* Carries out a reduction of one input on the host. */
static void on_host(const struct kind *k, void *p, size_t count,
                    struct hvd__reduce_args args)
{
    const void *srcs[] = {p};

    hvd__reduce_get(k->travels, HVD_SUM)(p, srcs, 1, count, &args);
}

static void random_bytes(struct test *t, struct pair *p)
{
    for (size_t i = 0; i + 8 <= p->bytes; i += 8) {
        uint64_t v = next(t);

        memcpy(p->host + i, &v, sizeof(v));
    }
}

/* Checks that device and host pack and unpack the range [first, first + count)
 * alike. */
static void check_range(struct test *t, const struct kind *k,
                        const struct sides *s, size_t first, size_t count)
{
    struct hb_error err = HB_ERROR_INIT;
    int cast = k->part != k->travels;
    struct hvd__fuse_pack pack = {&s->device_op, t->buffer.device, first, count,
                                  cast ? 1 : k->args.pre};
    struct hvd__fuse_unpack unpack = {&s->device_op, t->buffer.device, first,
                                      count, &k->args};

    memset(t->buffer.host, GUARD, t->buffer.bytes);
    pair_put(t, &t->buffer);
    must(hvd__fuse_pack(&t->kernels, &pack, t->gpu.a, &err), &err);
    CU(StreamSynchronize, t->gpu.a);
    hvd__op_pack(&s->host_op, t->buffer.host, first, count);
    if (!cast && k->args.pre != 1)
        on_host(k, t->buffer.host, count,
                (struct hvd__reduce_args){k->args.pre, 1, 1, 0});
    differ(t, &t->buffer, "pack", k);

    random_bytes(t, &t->buffer);
    pair_put(t, &t->buffer);
    memset(t->out.host, GUARD, t->out.bytes);
    pair_put(t, &t->out);
    must(hvd__fuse_unpack(&t->kernels, &unpack, t->gpu.a, &err), &err);
    CU(StreamSynchronize, t->gpu.a);
    if (k->args.post != 1 || k->args.divisor != 1)
        on_host(k, t->buffer.host, count,
                (struct hvd__reduce_args){1, k->args.post, k->args.divisor, 0});
    hvd__op_unpack(&s->host_op, t->buffer.host, first, count, 0);
    differ(t, &t->out, "unpack", k);
}

static void check(struct test *t)
{
    size_t bytes = (size_t)PARTS * (PART_MAX + SLACK) * 8;
    struct sides *s = hb_calloc(1, sizeof(*s));

    if (!s)
        gpu_fail("no memory");
    printf("seed %" PRIu64 "\n", t->random);
    pair_open(&t->in, bytes);
    pair_open(&t->out, bytes);
    pair_open(&t->buffer, bytes);
    for (int i = 0; i < CASES; i++) {
        const struct kind *k = &kinds[i % NKINDS];
        size_t first, count;

        lay_out(t, k, s);
        random_bytes(t, &t->in);
        pair_put(t, &t->in);
        first = i < NKINDS ? 0 : below(t, s->host_op.count);
        count = s->host_op.count - first;
        if (i >= NKINDS)
            count = below(t, count) + 1;
        check_range(t, k, s, first, count);
    }
    printf("ok values %d kinds, %d cases\n", (int)NKINDS, (int)CASES);
    pair_close(&t->in);
    pair_close(&t->out);
    pair_close(&t->buffer);
    hb_free(s);
}

/* ---- Speed ------------------------------------------------------------- */

enum {
    TURNS = 15,
    GRADIENTS = 2 * RESNET50_TENSORS, /* 204 MB: past any cache */
    ALIGNED = 128,                    /* elements: 512 bytes */
    ROOM = 2 * RESNET50_ELEMENTS + GRADIENTS * ALIGNED,
    WARM_NS = 500 * 1000 * 1000
};

typedef void job_fn(struct test *t, const struct hvd__op *op);

/* Keeps the device busy for a while, because the clocks of an idle device take
 * time to rise. */
static void warm_up(struct test *t, job_fn *job, const struct hvd__op *op)
{
    uint64_t until = hb_now_ns() + WARM_NS;

    while (hb_now_ns() < until) {
        job(t, op);
        CU(StreamSynchronize, t->gpu.a);
    }
}

/* Returns the median GB/s of a job that moves `bytes` bytes. */
static double speed(struct test *t, job_fn *job, const struct hvd__op *op,
                    double bytes)
{
    CUevent begin, end;
    float ms[TURNS];

    CU(EventCreate, &begin, CU_EVENT_DEFAULT);
    CU(EventCreate, &end, CU_EVENT_DEFAULT);
    job(t, op);
    for (int i = 0; i < TURNS; i++) {
        CU(EventRecord, begin, t->gpu.a);
        job(t, op);
        CU(EventRecord, end, t->gpu.a);
        CU(EventSynchronize, end);
        CU(EventElapsedTime, &ms[i], begin, end);
    }
    CU(EventDestroy, begin);
    CU(EventDestroy, end);
    for (int i = 1; i < TURNS; i++)
        for (int k = i; k > 0 && ms[k] < ms[k - 1]; k--) {
            float kept = ms[k];

            ms[k] = ms[k - 1];
            ms[k - 1] = kept;
        }
    return bytes / ((double)ms[TURNS / 2] * 1e6);
}

static void copy(struct test *t, const struct hvd__op *op)
{
    gpu_copy(t->gpu.a, t->buffer.device, t->in.device,
             op->count * hvd_dtype_size(op->part_dtype));
}

static void pack(struct test *t, const struct hvd__op *op)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__fuse_pack p = {op, t->buffer.device, 0, op->count, 1};

    must(hvd__fuse_pack(&t->kernels, &p, t->gpu.a, &err), &err);
}

static void scaled_pack(struct test *t, const struct hvd__op *op)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__fuse_pack p = {op, t->buffer.device, 0, op->count, 0.5};

    must(hvd__fuse_pack(&t->kernels, &p, t->gpu.a, &err), &err);
}

static void unpack(struct test *t, const struct hvd__op *op)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__reduce_args average = {1, 1, 3, 0};
    struct hvd__fuse_unpack u = {op, t->buffer.device, 0, op->count, &average};

    must(hvd__fuse_unpack(&t->kernels, &u, t->gpu.a, &err), &err);
}

struct row {
    const char *name;
    enum hvd_dtype travels;
    job_fn *job;
    int whole, odd; /* all is one part; each part is an element shorter */
};

static void lay_out_row(struct test *t, const struct row *row,
                        struct hvd__part *parts, struct hvd__op *op)
{
    size_t counts[RESNET50_TENSORS], at = 0;

    bench_resnet50(counts);
    op->count = 0;
    op->nparts = row->whole ? 1 : GRADIENTS;
    for (size_t i = 0; i < op->nparts; i++) {
        size_t count = counts[i % RESNET50_TENSORS] - (size_t)row->odd;
        float *p = (float *)(void *)t->in.device + at;

        if (row->whole)
            count = 2 * RESNET50_ELEMENTS;
        parts[i] = (struct hvd__part){p, p, op->count, count, NULL};
        op->count += count;
        at += (count + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    op->dtype = row->travels;
    op->elem_bytes = hvd_dtype_size(row->travels);
}

static void measure(struct test *t)
{
    static const struct row rows[] = {
        {"copy", HVD_FLOAT32, copy, 1, 0},
        {"pack-one", HVD_FLOAT32, pack, 1, 0},
        {"pack", HVD_FLOAT32, pack, 0, 0},
        {"pack-scale", HVD_FLOAT32, scaled_pack, 0, 0},
        {"pack-float16", HVD_FLOAT16, pack, 0, 0},
        {"pack-bfloat16", HVD_BFLOAT16, pack, 0, 0},
        {"unpack-average", HVD_FLOAT32, unpack, 0, 0},
        {"unpack-float16", HVD_FLOAT16, unpack, 0, 0},
        {"unpack-bfloat16", HVD_BFLOAT16, unpack, 0, 0},
        {"odd-pack", HVD_FLOAT32, pack, 0, 1},
        {"odd-unpack-average", HVD_FLOAT32, unpack, 0, 1},
    };
    struct hvd__part parts[PARTS];
    struct hvd__op op;
    double most = 0;

    t->in.device = gpu_alloc(ROOM * sizeof(float));
    t->buffer.device = gpu_alloc(ROOM * sizeof(float));
    gpu_set(&t->gpu, t->in.device, 0, ROOM * sizeof(float));
    gpu_set(&t->gpu, t->buffer.device, 0, ROOM * sizeof(float));
    hvd__op_init(&op);
    op.kind = HVD__ALLREDUCE;
    op.op = HVD_SUM;
    op.part_dtype = HVD_FLOAT32;
    op.prescale = op.postscale = 1;
    op.parts = parts;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double got;

        lay_out_row(t, &rows[i], parts, &op);
        if (i == 0)
            warm_up(t, rows[i].job, &op);
        got = speed(t, rows[i].job, &op,
                    (double)op.count * (double)(sizeof(float) + op.elem_bytes));
        most = i == 0 ? got : most;
        printf("speed %s %.1f %.3f\n", rows[i].name, got, got / most);
    }
    gpu_free(t->in.device);
    gpu_free(t->buffer.device);
}

/* ---- What there is ------------------------------------------------------ */

static void describe(struct test *t)
{
    struct hb_error err = HB_ERROR_INIT;
    char name[128];
    int major = 0, minor = 0;

    CU(DeviceGetName, name, sizeof(name), t->gpu.device);
    CU(DeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
       t->gpu.device);
    CU(DeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
       t->gpu.device);
    must(hvd__nccl_open(&err), &err);
    printf("device %s\ncompute %d.%d\ndriver %d\nnccl %d\n", name, major, minor,
           hvd__cuda.version, hvd__nccl.version);
}

static const struct {
    const char *name;
    void (*run)(struct test *t);
} verbs[] = {{"device", describe}, {"check", check}, {"speed", measure}};

int main(int argc, char **argv)
{
    struct hb_error err = HB_ERROR_INIT;
    struct test t = {.random = hb_now_ns()};
    size_t i = 0, n = sizeof(verbs) / sizeof(verbs[0]);

    while (argc == 2 && i < n && strcmp(argv[1], verbs[i].name) != 0)
        i++;
    if (argc != 2 || i == n) {
        fputs("usage: kernels device|check|speed\n", stderr);
        return 2;
    }
    gpu_open(&t.gpu, "kernels");
    must(hvd__kernels_open(&t.kernels, &err), &err);
    verbs[i].run(&t);
    hvd__kernels_close(&t.kernels);
    gpu_close(&t.gpu);
    return 0;
}
