/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns to read handwritten digits on several ranks at once:
 *
 *     hvdrun -np 2 build/examples/train_digits
 *
 * Data-parallel training in six steps, marked (1) to (6) below:
 *
 *   1. hvd_init tells the process its rank and the number of ranks.
 *   2. All ranks start from rank 0's parameters: hvd_broadcast.
 *   3. Every batch is cut into one slice per rank.
 *   4. The ranks add up their gradients, one hvd_allreduce_async per
 *      layer, each on its way while the layer below is still computed.
 *   5. hvd_wait, then every rank takes the same step: the parameters stay
 *      equal, bit for bit.
 *   6. Losses and accuracies are sums over all ranks; rank 0 prints.
 */
#include "common.h"

#include <hvd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HIDDEN = 64,
    LAYERS = 2,
    BATCH_PER_RANK = 32,
    WARMUP_EPOCHS = 3,
};

struct settings {
    int epochs;
    int batch;   /* rows per step, all ranks together */
    double rate; /* learning rate for a batch of BATCH_PER_RANK */
    const char *data;
};

struct trainer {
    struct settings set;
    struct digits data;
    struct mlp net;
    float *x; /* the inputs of this rank's slice */
    int *label;
};

static const char usage[] =
    "usage: hvdrun -np N train_digits [options]\n"
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

static void trainer_init(struct trainer *t, struct settings set)
{
    *t = (struct trainer){.set = set};
    digits_load(&t->data, set.data);

    int slice_max = set.batch / hvd_size() + 1;
    t->x = must_alloc((size_t)slice_max * PIXELS, sizeof *t->x);
    t->label = must_alloc((size_t)slice_max, sizeof *t->label);

    /* (2) Each rank draws other parameters; rank 0's win. */
    int widths[LAYERS + 1] = {PIXELS, HIDDEN, CLASSES};
    mlp_init(&t->net, widths, LAYERS, slice_max, (uint64_t)hvd_rank() + 1);
    must(hvd_broadcast(t->net.param, t->net.param, t->net.count, HVD_FLOAT32, 0,
                       NULL),
         "hvd_broadcast of the parameters");
}

static void trainer_free(struct trainer *t)
{
    mlp_free(&t->net);
    digits_free(&t->data);
    free(t->x);
    free(t->label);
}

/* (3) Loads this rank's part of rows[0..count).  Returns how many rows. */
static int load_slice(struct trainer *t, const int *rows, int count)
{
    int first = (int)((long)count * hvd_rank() / hvd_size());
    int end = (int)((long)count * (hvd_rank() + 1) / hvd_size());
    for (int r = first; r < end; r++) {
        const float *row = table_row(&t->data.table, rows[r]);
        for (int p = 0; p < PIXELS; p++)
            t->x[(r - first) * PIXELS + p] = row[p] / 16;
        t->label[r - first] = table_label(&t->data.table, rows[r]);
    }
    return end - first;
}

/* Sums over this rank's rows: totals[0] losses, [1] hits, [2] rows. */
static void forward_slice(struct trainer *t, int rows, double *totals)
{
    const float *out = mlp_forward(&t->net, t->x, rows);
    float *delta = mlp_delta(&t->net);
    for (int r = 0; r < rows; r++) {
        int hit;
        totals[0] += digits_loss(out + r * CLASSES, t->label[r],
                                 delta + r * CLASSES, &hit);
        totals[1] += hit;
    }
    totals[2] += rows;
}

static void train_batch(struct trainer *t, const int *rows, int count,
                        double rate, double *totals)
{
    static const char *const names[LAYERS] = {"layer 0", "layer 1"};
    hvd_request *request[LAYERS];
    struct hvd_options mean = HVD_OPTIONS_INIT;
    mean.postscale = 1.0 / count; /* from the sum over the batch's rows */

    int mine = load_slice(t, rows, count);
    forward_slice(t, mine, totals);
    for (int l = LAYERS - 1; l >= 0; l--) { /* (4) */
        struct layer *y = &t->net.layer[l];
        mlp_backward(&t->net, l, t->x, mine);
        must(hvd_allreduce_async(names[l], y->grad, y->grad, y->count,
                                 HVD_FLOAT32, HVD_SUM, &mean, &request[l]),
             names[l]);
    }
    for (int l = LAYERS - 1; l >= 0; l--) { /* (5) */
        must(hvd_wait(request[l]), names[l]);
        layer_step(&t->net.layer[l], (float)rate, 0.9f);
    }
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

/* (6) Sums the totals of all ranks. */
static void sum_over_ranks(double *totals)
{
    must(hvd_allreduce(totals, totals, 3, HVD_FLOAT64, HVD_SUM, NULL),
         "hvd_allreduce of the totals");
}

static void train_epoch(struct trainer *t, int epoch, uint64_t *random)
{
    double totals[3] = {0, 0, 0};
    int batch = t->set.batch;

    /* The same order on every rank, as the state is the same. */
    random_shuffle(random, t->data.train, t->data.trains);
    for (int at = 0; at < t->data.trains; at += batch) {
        int count = t->data.trains - at < batch ? t->data.trains - at : batch;
        double rate = scaled_rate(&t->set, epoch + (double)at / t->data.trains);
        train_batch(t, t->data.train + at, count, rate, totals);
    }
    sum_over_ranks(totals);
    if (hvd_rank() == 0)
        printf("epoch %2d  loss %.4f  training accuracy %.1f %%\n", epoch + 1,
               totals[0] / totals[2], 100 * totals[1] / totals[2]);
}

static double test_accuracy(struct trainer *t)
{
    double totals[3] = {0, 0, 0};
    int batch = t->set.batch;
    for (int at = 0; at < t->data.tests; at += batch) {
        int count = t->data.tests - at < batch ? t->data.tests - at : batch;
        forward_slice(t, load_slice(t, t->data.test + at, count), totals);
    }
    sum_over_ranks(totals);
    return totals[1] / totals[2];
}

int main(int argc, char **argv)
{
    struct timespec begin, end;
    struct trainer trainer;
    uint64_t random = 1;

    program = "train_digits";
    setvbuf(stdout, NULL, _IOLBF, 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    must(hvd_init(), "hvd_init"); /* (1) */
    trainer_init(&trainer, read_settings(argc, argv));
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
