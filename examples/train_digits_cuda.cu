/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_digits.c on GPUs: everything that is learnt stays in device memory,
 * and is reduced there.
 *
 *     hvdrun -np 2 build/examples/train_digits_cuda
 *
 * The six steps are those of train_digits.c.  What is different on a GPU:
 *
 *   1. hvd_local_gpu says which GPU is this process's.
 *   2. The parameters are broadcast from device memory to device memory.
 *   3. The slices are cut by a kernel; the table is copied once.
 *   4. The options name a CUDA stream: an allreduce begins, on the device,
 *      when the stream has come to it, and the program goes on at once.
 *   5. hvd_wait_on_stream makes the stream, not the program, wait for it.
 *   6. So the host runs ahead of the device, and waits once an epoch, for
 *      the sums that it prints.
 */
extern "C" {
#include "common.h"
}

#include <cuda_runtime.h>
#include <hvd.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    HIDDEN = 64,
    LAYERS = 2,
    BATCH_PER_RANK = 32,
    WARMUP_EPOCHS = 3,
    THREADS = 256, /* of a block */
};

struct settings {
    int epochs;
    int batch;   /* rows per step, all ranks together */
    double rate; /* learning rate for a batch of BATCH_PER_RANK */
    const char *data;
};

/* struct layer of common.h, in device memory. */
struct gpu_layer {
    int in, out;
    size_t count;
    float *param, *grad, *velocity, *value, *delta;
};

enum { LOSSES, HITS, ROWS, TOTALS };

struct trainer {
    struct settings set;
    struct digits data;

    cudaStream_t stream;      /* all that this program gives the GPU */
    struct hvd_options after; /* options with that stream */

    /* In device memory. */
    float *cells;     /* the table */
    int *rows;        /* row numbers, in the order of use */
    float *param;     /* of all layers, one after another */
    float *x;         /* the inputs of this rank's slice */
    int *label;       /* its labels */
    double *row_loss; /* its losses */
    int *row_hit;     /* whether the best class is right */
    double *totals;   /* [TOTALS], summed up over the batches */
    struct gpu_layer layer[LAYERS];
};

/* Ends this rank with exit code 1 and one line if a CUDA call failed. */
static void must_cuda(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s: %s\n", program, what, cudaGetErrorString(status));
    exit(1);
}

/* Allocates memory that is zero for what the stream does from now on. */
static void *gpu_alloc(const struct trainer *t, size_t count, size_t size)
{
    void *p = NULL;
    must_cuda(cudaMalloc(&p, count * size), "cudaMalloc");
    must_cuda(cudaMemsetAsync(p, 0, count * size, t->stream),
              "cudaMemsetAsync");
    return p;
}

static void copy_to_gpu(const struct trainer *t, void *to, const void *from,
                        size_t bytes)
{
    must_cuda(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, t->stream),
        "cudaMemcpyAsync");
}

/* ---- Kernels: one thread for each number of the result ---------------- */

static int blocks(long threads)
{
    return threads > 0 ? (int)((threads + THREADS - 1) / THREADS) : 1;
}

__device__ static int thread(void)
{
    return (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

/* Takes x and labels from rows of the table. */
__global__ void take_rows(const float *cells, const int *rows, int count,
                          float *x, int *label)
{
    int r = thread() / PIXELS, p = thread() % PIXELS;
    if (r >= count)
        return;
    const float *row = cells + rows[r] * (PIXELS + 1);
    x[r * PIXELS + p] = row[p] / 16;
    if (p == 0)
        label[r] = (int)row[PIXELS];
}

/* Computes x w + b, and its relu if asked to. */
__global__ void forward(struct gpu_layer y, const float *x, int rows, int relu)
{
    int r = thread() / y.out, o = thread() % y.out;
    if (r >= rows)
        return;
    float sum = y.param[y.in * y.out + o];
    for (int i = 0; i < y.in; i++)
        sum += x[r * y.in + i] * y.param[i * y.out + o];
    y.value[r * y.out + o] = relu && sum < 0 ? 0 : sum;
}

/* Computes softmax and cross-entropy: the loss of each row, d loss / d output,
 * and whether the best class is right. */
__global__ void losses(struct gpu_layer y, const int *label, int rows,
                       double *loss, int *hit)
{
    int r = thread();
    if (r >= rows)
        return;
    const float *out = y.value + r * y.out;
    float *delta = y.delta + r * y.out;
    int best = 0;
    for (int c = 1; c < y.out; c++)
        best = out[c] > out[best] ? c : best;
    float sum = 0;
    for (int c = 0; c < y.out; c++)
        sum += expf(out[c] - out[best]);
    for (int c = 0; c < y.out; c++)
        delta[c] = expf(out[c] - out[best]) / sum - (c == label[r]);
    hit[r] = best == label[r];
    loss[r] = logf(sum) - (out[label[r]] - out[best]);
}

/* Adds up the losses and hits, in one thread, so that the sums have one
 * order. */
__global__ void add_up(const double *loss, const int *hit, int rows,
                       double *totals)
{
    for (int r = 0; r < rows; r++) {
        totals[LOSSES] += loss[r];
        totals[HITS] += hit[r];
    }
    totals[ROWS] += rows;
}

/* Computes the gradient of a weight or, below the last row of weights, of a
 * bias. */
__global__ void gradient(struct gpu_layer y, const float *x, int rows)
{
    int i = thread() / y.out, o = thread() % y.out;
    if (i > y.in)
        return;
    float sum = 0;
    for (int r = 0; r < rows; r++)
        sum += (i < y.in ? x[r * y.in + i] : 1) * y.delta[r * y.out + o];
    y.grad[i * y.out + o] = sum;
}

/* Computes the delta of the layer below: through the weights, then through its
 * relu. */
__global__ void delta_below(struct gpu_layer y, struct gpu_layer below,
                            int rows)
{
    int r = thread() / y.in, i = thread() % y.in;
    if (r >= rows)
        return;
    float sum = 0;
    for (int o = 0; o < y.out; o++)
        sum += y.delta[r * y.out + o] * y.param[i * y.out + o];
    below.delta[r * y.in + i] = below.value[r * y.in + i] > 0 ? sum : 0;
}

/* Takes one step of gradient descent with momentum. */
__global__ void step(struct gpu_layer y, float rate, float momentum)
{
    int i = thread();
    if (i >= (int)y.count)
        return;
    y.velocity[i] = momentum * y.velocity[i] - rate * y.grad[i];
    y.param[i] += y.velocity[i];
}

/* ---- The trainer ------------------------------------------------------ */

static const char usage[] =
    "usage: hvdrun -np N train_digits_cuda [options]\n"
    "  --epochs N   passes over the training rows (default 20)\n"
    "  --batch N    rows per step, all ranks together (default 32 a rank)\n"
    "  --lr X       learning rate for a batch of 32; grows with the batch\n"
    "               (default 0.05)\n"
    "  --data FILE  digits.csv, if not in data/ beside the program\n";

static struct settings read_settings(int argc, char **argv)
{
    struct settings s = {20, BATCH_PER_RANK * hvd_size(), 0.05, NULL};
    const struct flag flags[] = {{"epochs", 100000, &s.epochs, NULL, NULL},
                                 {"batch", 1 << 16, &s.batch, NULL, NULL},
                                 {"lr", 100, NULL, &s.rate, NULL},
                                 {"data", 0, NULL, NULL, &s.data}};

    parse_flags(argc, argv, usage, flags, 4);
    return s;
}

/* (1) Chooses the GPU that hvdrun gave this rank; started alone, the first
 * one. */
static void choose_gpu(void)
{
    int gpu = hvd_local_gpu();
    must_cuda(cudaSetDevice(gpu < 0 ? 0 : gpu), "no GPU");
}

/* (2) Makes the layers.  Each rank draws other parameters; rank 0's win. */
static void make_layers(struct trainer *t, size_t slice_max)
{
    int widths[LAYERS + 1] = {PIXELS, HIDDEN, CLASSES};
    struct mlp drawn; /* as the program without a GPU has it */
    mlp_init(&drawn, widths, LAYERS, 1, (uint64_t)hvd_rank() + 1);

    t->param = (float *)gpu_alloc(t, drawn.count, sizeof(float));
    copy_to_gpu(t, t->param, drawn.param, drawn.count * sizeof(float));
    must(hvd_broadcast(t->param, t->param, drawn.count, HVD_FLOAT32, 0,
                       &t->after),
         "hvd_broadcast of the parameters");

    float *param = t->param;
    for (int l = 0; l < LAYERS; l++) {
        struct gpu_layer *y = &t->layer[l];
        size_t values = slice_max * (size_t)widths[l + 1];
        y->in = widths[l];
        y->out = widths[l + 1];
        y->count = drawn.layer[l].count;
        y->param = param;
        y->grad = (float *)gpu_alloc(t, y->count, sizeof(float));
        y->velocity = (float *)gpu_alloc(t, y->count, sizeof(float));
        y->value = (float *)gpu_alloc(t, values, sizeof(float));
        y->delta = (float *)gpu_alloc(t, values, sizeof(float));
        param += y->count;
    }
    mlp_free(&drawn);
}

static void trainer_init(struct trainer *t, struct settings set)
{
    struct hvd_options defaults = HVD_OPTIONS_INIT;
    *t = trainer();
    t->set = set;
    digits_load(&t->data, set.data);

    must_cuda(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
    t->after = defaults;
    t->after.stream = t->stream;

    size_t cells = (size_t)t->data.table.rows * (PIXELS + 1);
    size_t slice_max = (size_t)set.batch / (size_t)hvd_size() + 1;
    t->cells = (float *)gpu_alloc(t, cells, sizeof *t->cells);
    copy_to_gpu(t, t->cells, t->data.table.cells, cells * sizeof *t->cells);
    t->rows = (int *)gpu_alloc(t, (size_t)t->data.table.rows, sizeof *t->rows);
    t->x = (float *)gpu_alloc(t, slice_max * PIXELS, sizeof *t->x);
    t->label = (int *)gpu_alloc(t, slice_max, sizeof *t->label);
    t->row_loss = (double *)gpu_alloc(t, slice_max, sizeof *t->row_loss);
    t->row_hit = (int *)gpu_alloc(t, slice_max, sizeof *t->row_hit);
    t->totals = (double *)gpu_alloc(t, TOTALS, sizeof *t->totals);
    make_layers(t, slice_max);
}

static void trainer_free(struct trainer *t)
{
    for (int l = 0; l < LAYERS; l++) {
        struct gpu_layer *y = &t->layer[l];
        cudaFree(y->grad);
        cudaFree(y->velocity);
        cudaFree(y->value);
        cudaFree(y->delta);
    }
    cudaFree(t->param);
    cudaFree(t->cells);
    cudaFree(t->rows);
    cudaFree(t->x);
    cudaFree(t->label);
    cudaFree(t->row_loss);
    cudaFree(t->row_hit);
    cudaFree(t->totals);
    cudaStreamDestroy(t->stream);
    digits_free(&t->data);
}

/* Copies the order in which rows are used to the GPU, and zeroes the totals. */
static void begin_pass(struct trainer *t, const int *rows, int count)
{
    copy_to_gpu(t, t->rows, rows, (size_t)count * sizeof *rows);
    must_cuda(
        cudaMemsetAsync(t->totals, 0, TOTALS * sizeof *t->totals, t->stream),
        "cudaMemsetAsync");
}

/* (3) Passes this rank's part of the rows [at, at + count) through all layers.
 * Returns how many rows. */
static int forward_slice(struct trainer *t, int at, int count)
{
    int first = (int)((long)count * hvd_rank() / hvd_size());
    int end = (int)((long)count * (hvd_rank() + 1) / hvd_size());
    int rows = end - first;
    const float *x = t->x;

    take_rows<<<blocks((long)rows * PIXELS), THREADS, 0, t->stream>>>(
        t->cells, t->rows + at + first, rows, t->x, t->label);
    for (int l = 0; l < LAYERS; l++) {
        struct gpu_layer y = t->layer[l];
        forward<<<blocks((long)rows * y.out), THREADS, 0, t->stream>>>(
            y, x, rows, l + 1 < LAYERS);
        x = y.value;
    }
    losses<<<blocks(rows), THREADS, 0, t->stream>>>(
        t->layer[LAYERS - 1], t->label, rows, t->row_loss, t->row_hit);
    add_up<<<1, 1, 0, t->stream>>>(t->row_loss, t->row_hit, rows, t->totals);
    must_cuda(cudaGetLastError(), "launch of the forward pass");
    return rows;
}

/* Computes from layer l's delta its gradient, and the delta of the layer
 * below. */
static void backward(struct trainer *t, int l, int rows)
{
    struct gpu_layer y = t->layer[l];
    const float *x = l > 0 ? t->layer[l - 1].value : t->x;

    gradient<<<blocks((long)y.count), THREADS, 0, t->stream>>>(y, x, rows);
    if (l > 0)
        delta_below<<<blocks((long)rows * y.in), THREADS, 0, t->stream>>>(
            y, t->layer[l - 1], rows);
    must_cuda(cudaGetLastError(), "launch of the backward pass");
}

static void train_batch(struct trainer *t, int at, int count, double rate)
{
    static const char *const names[LAYERS] = {"layer 0", "layer 1"};
    hvd_request *request[LAYERS];
    struct hvd_options mean = t->after;
    mean.postscale = 1.0 / count; /* from the sum over the batch's rows */

    int mine = forward_slice(t, at, count);
    for (int l = LAYERS - 1; l >= 0; l--) { /* (4) */
        struct gpu_layer *y = &t->layer[l];
        backward(t, l, mine);
        must(hvd_allreduce_async(names[l], y->grad, y->grad, y->count,
                                 HVD_FLOAT32, HVD_SUM, &mean, &request[l]),
             names[l]);
    }
    for (int l = LAYERS - 1; l >= 0; l--) { /* (5) */
        struct gpu_layer y = t->layer[l];
        must(hvd_wait_on_stream(request[l], t->stream), names[l]);
        step<<<blocks((long)y.count), THREADS, 0, t->stream>>>(y, (float)rate,
                                                               0.9f);
    }
    must_cuda(cudaGetLastError(), "launch of the step");
}

/*
 * Returns the learning rate.  It grows with the batch, and so with the number
 * of ranks (Goyal et al. 2017): a batch of k times the rows, k times the step,
 * reached gradually over the first epochs.
 */
static double scaled_rate(const struct settings *s, double epoch)
{
    double scale = (double)s->batch / BATCH_PER_RANK;
    double warm = epoch < WARMUP_EPOCHS ? epoch / WARMUP_EPOCHS : 1;
    return s->rate * (1 + (scale - 1) * warm);
}

/* (6) Sums the totals of all ranks, for the host. */
static void end_pass(struct trainer *t, double *totals)
{
    must(hvd_allreduce(t->totals, t->totals, TOTALS, HVD_FLOAT64, HVD_SUM,
                       &t->after),
         "hvd_allreduce of the totals");
    must_cuda(cudaMemcpyAsync(totals, t->totals, TOTALS * sizeof *totals,
                              cudaMemcpyDeviceToHost, t->stream),
              "cudaMemcpyAsync of the totals");
    must_cuda(cudaStreamSynchronize(t->stream), "cudaStreamSynchronize");
}

static void train_epoch(struct trainer *t, int epoch, uint64_t *random)
{
    double totals[TOTALS];
    int batch = t->set.batch;

    /* The same order on every rank, as the state is the same. */
    random_shuffle(random, t->data.train, t->data.trains);
    begin_pass(t, t->data.train, t->data.trains);
    for (int at = 0; at < t->data.trains; at += batch) {
        int count = t->data.trains - at < batch ? t->data.trains - at : batch;
        double rate = scaled_rate(&t->set, epoch + (double)at / t->data.trains);
        train_batch(t, at, count, rate);
    }
    end_pass(t, totals);
    if (hvd_rank() == 0)
        printf("epoch %2d  loss %.4f  training accuracy %.1f %%\n", epoch + 1,
               totals[LOSSES] / totals[ROWS],
               100 * totals[HITS] / totals[ROWS]);
}

static double test_accuracy(struct trainer *t)
{
    double totals[TOTALS];
    int batch = t->set.batch;

    begin_pass(t, t->data.test, t->data.tests);
    for (int at = 0; at < t->data.tests; at += batch)
        forward_slice(t, at,
                      t->data.tests - at < batch ? t->data.tests - at : batch);
    end_pass(t, totals);
    return totals[HITS] / totals[ROWS];
}

int main(int argc, char **argv)
{
    struct timespec begin, end;
    struct trainer trainer;
    uint64_t random = 1;

    program = "train_digits_cuda";
    setvbuf(stdout, NULL, _IOLBF, 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    must(hvd_init(), "hvd_init"); /* (1) */
    struct settings settings = read_settings(argc, argv);
    choose_gpu();
    trainer_init(&trainer, settings);
    for (int epoch = 0; epoch < trainer.set.epochs; epoch++)
        train_epoch(&trainer, epoch, &random);

    double accuracy = test_accuracy(&trainer);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (hvd_rank() == 0)
        printf("%d rank%s, batch %d, %.2f s\ntest accuracy %.1f %%\n",
               hvd_size(), hvd_size() > 1 ? "s" : "", trainer.set.batch,
               (double)(end.tv_sec - begin.tv_sec) +
                   (double)(end.tv_nsec - begin.tv_nsec) * 1e-9,
               100 * accuracy);
    trainer_free(&trainer);
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
