/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks libhvd on device memory, as a user's program calls it: what depends on
 * streams and events, which only a GPU proves.  tests/system/prog/nccl_verbs.c
 * has values of all kinds, refusals and failures.
 *
 *     hvdrun -np N checks [--real] [NAME...]
 *
 * Rank 0 prints a line "ok NAME" for each check, with a figure where there is
 * one. --real: the device works while the host goes on, which the test double
 * (tests/nccl) does not promise.  Without NAME, runs all checks.
 *
 * Each stream is kept busy for a while before the input of a collective arrives
 * on it: a collective that did not wait for the stream would read the old data.
 */
#include "lib/base/sys/clock.h"
#include "runtime/hvd.h"
#include "tests/gpu/gpu_util.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNT = 100003, /* elements; odd, so that nothing is aligned */
    TENSORS = 20,
    PATIENCE_S = 30
};

struct checks {
    struct gpu gpu;
    int real, rank, size;
    unsigned salt; /* differs between checks, so no result equals an earlier
                    * one */
    float *host;   /* [COUNT], pinned */
    float *in, *out;
    char *scratch[2]; /* copied to keep a stream busy */
    size_t scratch_bytes;
    const char *name; /* of the check */
    char figure[64];
};

static int value(const struct checks *c, int rank, size_t i)
{
    return (int)((i * 7 + (size_t)rank * 13 + c->salt * 31) % 61);
}

static int sum(const struct checks *c, size_t i)
{
    int v = 0;

    for (int r = 0; r < c->size; r++)
        v += value(c, r, i);
    return v;
}

static void must(const struct checks *c, int rc, const char *call)
{
    if (rc < 0)
        gpu_fail("%s: %s: %s", c->name, call, hvd_error_message());
}

/* Fills pinned memory with this rank's numbers. */
static void fill(struct checks *c)
{
    for (size_t i = 0; i < COUNT; i++)
        c->host[i] = (float)value(c, c->rank, i);
}

/* Fails unless `host` holds the sums over all ranks, times factor. */
static void compare(const struct checks *c, double factor)
{
    for (size_t i = 0; i < COUNT; i++)
        if (c->host[i] != (float)(sum(c, i) * factor))
            gpu_fail("%s: element %zu is %g, not %g", c->name, i,
                     (double)c->host[i], sum(c, i) * factor);
}

/* Queues some ten milliseconds of work on a large GPU, which is more than the
 * delay between ranks that share it. */
static void keep_busy(struct checks *c, CUstream s)
{
    int n = c->real ? 300 : 4;

    for (int i = 0; i < n; i++)
        gpu_copy(s, c->scratch[i & 1], c->scratch[~i & 1], c->scratch_bytes);
}

/* Queues work on the stream, and behind it the copy of the numbers to `in`. */
static void late_input(struct checks *c, CUstream s)
{
    gpu_set(&c->gpu, c->in, 0xff, COUNT * sizeof(float));
    gpu_set(&c->gpu, c->out, 0xff, COUNT * sizeof(float));
    fill(c);
    keep_busy(c, s);
    gpu_copy(s, c->in, c->host, COUNT * sizeof(float));
}

static struct hvd_options on(CUstream s)
{
    struct hvd_options o = HVD_OPTIONS_INIT;

    o.stream = s;
    return o;
}

/* ---- Streams ----------------------------------------------------------- */

/* Checks a blocking call on one stream: its input arrives late, and is
 * overwritten after the call. */
static void stream(struct checks *c)
{
    CUstream s = c->gpu.a;
    struct hvd_options o = on(s);

    late_input(c, s);
    must(c, hvd_allreduce(c->in, c->out, COUNT, HVD_FLOAT32, HVD_SUM, &o),
         "hvd_allreduce");
    CU(MemsetD8Async, gpu_ptr(c->in), 0xee, COUNT * sizeof(float), s);
    gpu_copy(s, c->host, c->out, COUNT * sizeof(float));
    CU(StreamSynchronize, s);
    compare(c, 1);
}

/* Checks that a stream that waits by hvd_wait_on_stream alone sees the
 * result. */
static void another_stream(struct checks *c)
{
    struct hvd_options o = on(c->gpu.a);
    hvd_request *req;

    late_input(c, c->gpu.a);
    must(c,
         hvd_allreduce_async("another", c->in, c->out, COUNT, HVD_FLOAT32,
                             HVD_SUM, &o, &req),
         "hvd_allreduce_async");
    must(c, hvd_wait_on_stream(req, c->gpu.b), "hvd_wait_on_stream");
    gpu_copy(c->gpu.b, c->host, c->out, COUNT * sizeof(float));
    CU(StreamSynchronize, c->gpu.b);
    compare(c, 1);
}

/* Checks that the call returns while the stream still does earlier work. */
static void host_goes_on(struct checks *c)
{
    CUstream s = c->gpu.a;
    struct hvd_options o = on(s);
    uint64_t begin, end;
    CUresult state;

    late_input(c, s);
    begin = hb_now_ns();
    must(c, hvd_allreduce(c->in, c->out, COUNT, HVD_FLOAT32, HVD_SUM, &o),
         "hvd_allreduce");
    end = hb_now_ns();
    state = hvd__cuda.StreamQuery(s);
    gpu_copy(s, c->host, c->out, COUNT * sizeof(float));
    CU(StreamSynchronize, s);
    if (c->real && state != CUDA_ERROR_NOT_READY)
        gpu_fail("%s: the stream was done when the call returned, after %.0f "
                 "us",
                 c->name, (double)(end - begin) * 1e-3);
    snprintf(c->figure, sizeof(c->figure),
             "back after %.0f us, done after "
             "%.0f us",
             (double)(end - begin) * 1e-3,
             (double)(hb_now_ns() - begin) * 1e-3);
    compare(c, 1);
}

/* Checks that a call without a stream waits for the default stream, and returns
 * when the result is there. */
static void default_stream(struct checks *c)
{
    late_input(c, NULL);
    must(c, hvd_allreduce(c->in, c->out, COUNT, HVD_FLOAT32, HVD_SUM, NULL),
         "hvd_allreduce");
    gpu_get(&c->gpu, c->host, c->out, COUNT * sizeof(float));
    compare(c, 1);
}

/* Checks that hvd_test tells when the result is there, with and without a
 * stream. */
static void tested(struct checks *c, CUstream s)
{
    uint64_t until = hb_now_ns() + PATIENCE_S * UINT64_C(1000000000);
    struct hvd_options o = on(s);
    hvd_request *req;
    int done = 0;

    late_input(c, s);
    must(c,
         hvd_allreduce_async("tested", c->in, c->out, COUNT, HVD_FLOAT32,
                             HVD_SUM, &o, &req),
         "hvd_allreduce_async");
    while (!done) {
        must(c, hvd_test(req, &done), "hvd_test");
        if (hb_now_ns() > until)
            gpu_fail("%s: hvd_test: not done after %d s", c->name, PATIENCE_S);
        sched_yield();
    }
    gpu_get(&c->gpu, c->host, c->out, COUNT * sizeof(float));
    compare(c, 1);
    must(c, hvd_wait(req), "hvd_wait");
}

static void events(struct checks *c)
{
    tested(c, c->gpu.a);
    c->salt++;
    tested(c, NULL);
}

/* ---- Results ----------------------------------------------------------- */

/* Checks prescale and postscale of one input, and of a batch. */
static void scale(struct checks *c)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    hvd_request *req[TENSORS];
    size_t part = COUNT / TENSORS;
    char name[32];

    o.prescale = 0.5;
    late_input(c, NULL);
    must(c, hvd_allreduce(c->in, c->out, COUNT, HVD_FLOAT32, HVD_SUM, &o),
         "hvd_allreduce");
    gpu_get(&c->gpu, c->host, c->out, COUNT * sizeof(float));
    compare(c, 0.5);

    c->salt++;
    o.postscale = 16;
    late_input(c, NULL);
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof(name), "scale.%zu", i);
        must(c,
             hvd_allreduce_async(name, c->in + i * part, c->out + i * part,
                                 i + 1 < TENSORS ? part : COUNT - i * part,
                                 HVD_FLOAT32, HVD_SUM, &o, &req[i]),
             "hvd_allreduce_async");
    }
    for (size_t i = 0; i < TENSORS; i++)
        must(c, hvd_wait(req[i]), "hvd_wait");
    gpu_get(&c->gpu, c->host, c->out, COUNT * sizeof(float));
    compare(c, 8);
}

/* Checks batches of small allreduces, which repeat the plan that the first
 * made. */
static void fused(struct checks *c)
{
    struct hvd_options o = on(c->gpu.a);
    hvd_request *req[TENSORS];
    size_t part = COUNT / TENSORS;
    char name[32];

    for (int turn = 0; turn < 5; turn++, c->salt++) {
        late_input(c, c->gpu.a);
        for (size_t i = 0; i < TENSORS; i++) {
            snprintf(name, sizeof(name), "fused.%zu", i);
            must(c,
                 hvd_allreduce_async(name, c->in + i * part, c->out + i * part,
                                     i + 1 < TENSORS ? part : COUNT - i * part,
                                     HVD_FLOAT32, HVD_SUM, &o, &req[i]),
                 "hvd_allreduce_async");
        }
        for (size_t i = 0; i < TENSORS; i++)
            must(c, hvd_wait_on_stream(req[i], c->gpu.a), "hvd_wait_on_stream");
        gpu_copy(c->gpu.a, c->host, c->out, COUNT * sizeof(float));
        CU(StreamSynchronize, c->gpu.a);
        compare(c, 1);
    }
}

static const struct {
    const char *name;
    void (*run)(struct checks *c);
} all[] = {
    {"stream", stream},
    {"another-stream", another_stream},
    {"host-goes-on", host_goes_on},
    {"default-stream", default_stream},
    {"events", events},
    {"scale", scale},
    {"fused", fused},
};
enum { NCHECKS = sizeof(all) / sizeof(all[0]) };

static int is_wanted(char *const *names, const char *name)
{
    if (!*names)
        return 1;
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

static void set_up(struct checks *c)
{
    gpu_open(&c->gpu, "checks");
    c->name = "start";
    must(c, hvd_init(), "hvd_init");
    c->rank = hvd_rank();
    c->size = hvd_size();
    c->scratch_bytes = (size_t)(c->real ? 256 : 1) << 20;
    c->host = gpu_host(COUNT * sizeof(float));
    c->in = gpu_alloc(COUNT * sizeof(float));
    c->out = gpu_alloc(COUNT * sizeof(float));
    for (int i = 0; i < 2; i++) {
        c->scratch[i] = gpu_alloc(c->scratch_bytes);
        gpu_set(&c->gpu, c->scratch[i], 0, c->scratch_bytes);
    }
}

static void tear_down(struct checks *c)
{
    must(c, hvd_shutdown(), "hvd_shutdown");
    for (int i = 0; i < 2; i++)
        gpu_free(c->scratch[i]);
    gpu_free(c->in);
    gpu_free(c->out);
    gpu_host_free(c->host);
    gpu_close(&c->gpu);
}

int main(int argc, char **argv)
{
    struct checks c = {.real = argc > 1 && strcmp(argv[1], "--real") == 0};
    char *const *names = argv + 1 + c.real;

    setvbuf(stdout, NULL, _IOLBF, 0);
    set_up(&c);
    for (int i = 0; i < NCHECKS; i++) {
        if (!is_wanted(names, all[i].name))
            continue;
        c.name = all[i].name;
        c.figure[0] = '\0';
        c.salt += 10;
        all[i].run(&c);
        must(&c, hvd_barrier(NULL), "hvd_barrier");
        if (c.rank == 0)
            printf("ok %s %s\n", c.name, c.figure);
    }
    tear_down(&c);
    return 0;
}
