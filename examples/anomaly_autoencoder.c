/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds tumours that do not look benign, having seen only benign ones:
 *
 *     hvdrun -np 2 build/examples/anomaly_autoencoder
 *
 * An autoencoder learns to reproduce benign rows through a narrow middle
 * layer; what it reproduces badly is unusual.  One benign row in five is
 * held out.  Held-out benign and all malignant rows are scored by their
 * reconstruction error.  Each collective has its use:
 *
 *   hvd_broadcast   the data and the initial parameters, from rank 0
 *   hvd_allreduce   mean and deviation of each feature; gradients; loss
 *   hvd_allgather   the errors of all ranks, as many as each rank has
 */
#include "common.h"

#include <hvd.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FEATURES = 30,
    MALIGNANT = 0, /* the labels in the file */
    BENIGN = 1,
    LAYERS = 4,
    HIDDEN = 16,
    MIDDLE = 6,
    HOLD_OUT_EVERY = 5,
};

struct settings {
    int epochs;
    int batch;       /* rows per step, all ranks together */
    double rate;     /* learning rate */
    double quantile; /* of the training errors: the alarm's threshold */
    const char *data;
};

struct detector {
    struct settings set;
    struct table table;
    struct mlp net;
    int *train, trains;   /* benign rows, the same list on every rank */
    int *scored, scoreds; /* held-out benign and malignant rows */
    double mean[FEATURES], scale[FEATURES];
    float *x; /* one slice of rows, standardised */
};

static const char usage[] =
    "usage: hvdrun -np N anomaly_autoencoder [options]\n"
    "  --epochs N    passes over the training rows (default 200)\n"
    "  --batch N     rows per step, all ranks together (default 32)\n"
    "  --lr X        learning rate (default 0.001)\n"
    "  --quantile Q  share of the training rows below the threshold\n"
    "                (default 0.95)\n"
    "  --data FILE   breast_cancer.csv, if not in data/ beside the program\n";

static struct settings read_settings(int argc, char **argv)
{
    struct settings s = {200, 32, 0.001, 0.95, NULL};
    const struct flag flags[] = {{"epochs", 100000, &s.epochs, NULL, NULL},
                                 {"batch", 1 << 16, &s.batch, NULL, NULL},
                                 {"lr", 100, NULL, &s.rate, NULL},
                                 {"quantile", 1, NULL, &s.quantile, NULL},
                                 {"data", 0, NULL, NULL, &s.data}};

    parse_flags(argc, argv, usage, flags, 5);
    return s;
}

/* Sets [*first, *end) to this rank's part of a list of `count` rows. */
static void my_part(int count, int *first, int *end)
{
    *first = (int)((long)count * hvd_rank() / hvd_size());
    *end = (int)((long)count * (hvd_rank() + 1) / hvd_size());
}

/* Splits the rows into benign ones for training, shuffled alike on all ranks,
 * and the rest, to be scored. */
static void split_rows(struct detector *d)
{
    int rows = d->table.rows, benign = 0;
    d->train = must_alloc((size_t)rows, sizeof *d->train);
    d->scored = must_alloc((size_t)rows, sizeof *d->scored);
    for (int row = 0; row < rows; row++) {
        int label = table_label(&d->table, row);
        if (label != MALIGNANT && label != BENIGN)
            refuse("row %d: label %d is neither 0 nor 1", row + 1, label);
        if (label == BENIGN && benign++ % HOLD_OUT_EVERY != 0)
            d->train[d->trains++] = row;
        else
            d->scored[d->scoreds++] = row;
    }
    if (d->trains == 0 || benign == rows)
        refuse("the data has no %s rows",
               d->trains == 0 ? "benign" : "malignant");
}

/*
 * Computes mean and deviation of each feature over the training rows.  Every
 * rank sums its own rows; two allreduces make the sums of all.
 */
static void standardise(struct detector *d)
{
    double square[FEATURES] = {0};
    int first, end;

    my_part(d->trains, &first, &end);
    for (int i = first; i < end; i++)
        for (int f = 0; f < FEATURES; f++)
            d->mean[f] += table_row(&d->table, d->train[i])[f];
    struct hvd_options mean = HVD_OPTIONS_INIT;
    mean.postscale = 1.0 / d->trains;
    must(hvd_allreduce(d->mean, d->mean, FEATURES, HVD_FLOAT64, HVD_SUM, &mean),
         "hvd_allreduce of the means");

    for (int i = first; i < end; i++)
        for (int f = 0; f < FEATURES; f++) {
            double x = table_row(&d->table, d->train[i])[f] - d->mean[f];
            square[f] += x * x;
        }
    must(hvd_allreduce(square, square, FEATURES, HVD_FLOAT64, HVD_SUM, &mean),
         "hvd_allreduce of the variances");
    for (int f = 0; f < FEATURES; f++)
        d->scale[f] = square[f] > 0 ? 1 / sqrt(square[f]) : 1;
}

static void detector_init(struct detector *d, struct settings set)
{
    *d = (struct detector){.set = set};
    table_load(&d->table, set.data, "breast_cancer.csv", 1, FEATURES + 1);
    split_rows(d);
    standardise(d);

    int slice_max = set.batch / hvd_size() + 1;
    d->x = must_alloc((size_t)slice_max * FEATURES, sizeof *d->x);
    int widths[LAYERS + 1] = {FEATURES, HIDDEN, MIDDLE, HIDDEN, FEATURES};
    mlp_init(&d->net, widths, LAYERS, slice_max, (uint64_t)hvd_rank() + 1);
    must(hvd_broadcast(d->net.param, d->net.param, d->net.count, HVD_FLOAT32, 0,
                       NULL),
         "hvd_broadcast of the parameters");
}

static void detector_free(struct detector *d)
{
    mlp_free(&d->net);
    table_free(&d->table);
    free(d->train);
    free(d->scored);
    free(d->x);
}

static void load_rows(struct detector *d, const int *rows, int count)
{
    for (int r = 0; r < count; r++) {
        const float *row = table_row(&d->table, rows[r]);
        for (int f = 0; f < FEATURES; f++)
            d->x[r * FEATURES + f] =
                (float)((row[f] - d->mean[f]) * d->scale[f]);
    }
}

/* Returns the mean squared error of row r; fills its delta. */
static float row_error(struct detector *d, const float *out, int r)
{
    float *delta = mlp_delta(&d->net) + r * FEATURES;
    float sum = 0;
    for (int f = 0; f < FEATURES; f++) {
        delta[f] = out[r * FEATURES + f] - d->x[r * FEATURES + f];
        sum += delta[f] * delta[f];
    }
    return sum / FEATURES;
}

/* Takes one step on rows[0..count); returns this rank's summed error. */
static double train_batch(struct detector *d, const int *rows, int count)
{
    double error = 0;
    int first, end;

    my_part(count, &first, &end);
    load_rows(d, rows + first, end - first);
    const float *out = mlp_forward(&d->net, d->x, end - first);
    for (int r = 0; r < end - first; r++)
        error += row_error(d, out, r);
    for (int l = LAYERS - 1; l >= 0; l--)
        mlp_backward(&d->net, l, d->x, end - first);

    /* The network is small: one allreduce of all its gradients. */
    struct hvd_options mean = HVD_OPTIONS_INIT;
    mean.postscale = 1.0 / count;
    must(hvd_allreduce(d->net.grad, d->net.grad, d->net.count, HVD_FLOAT32,
                       HVD_SUM, &mean),
         "hvd_allreduce of the gradients");
    for (int l = 0; l < LAYERS; l++)
        layer_step(&d->net.layer[l], (float)d->set.rate, 0.9f);
    return error;
}

static void train(struct detector *d)
{
    uint64_t random = 1;
    int every = d->set.epochs / 10 > 0 ? d->set.epochs / 10 : 1;
    for (int epoch = 1; epoch <= d->set.epochs; epoch++) {
        double error = 0;
        random_shuffle(&random, d->train, d->trains);
        for (int at = 0; at < d->trains; at += d->set.batch) {
            int left = d->trains - at;
            error += train_batch(d, d->train + at,
                                 left < d->set.batch ? left : d->set.batch);
        }
        if (epoch % every != 0)
            continue;
        must(hvd_allreduce(&error, &error, 1, HVD_FLOAT64, HVD_SUM, NULL),
             "hvd_allreduce of the error");
        if (hvd_rank() == 0)
            printf("epoch %3d  training error %.4f\n", epoch,
                   error / d->trains);
    }
}

/*
 * Returns the errors of the listed rows, which the caller frees.  Each rank
 * scores its part; the parts differ in length, and hvd_allgather puts them
 * together in rank order, which is the order of the list.
 */
static float *score_rows(struct detector *d, const int *rows, int count)
{
    int first, end;
    my_part(count, &first, &end);
    float *mine = must_alloc((size_t)(end - first), sizeof *mine);
    float *all = must_alloc((size_t)count, sizeof *all);
    for (int i = first; i < end; i++) {
        load_rows(d, rows + i, 1);
        mine[i - first] = row_error(d, mlp_forward(&d->net, d->x, 1), 0);
    }
    must(hvd_allgather(mine, (size_t)(end - first), all, (size_t)count, NULL,
                       HVD_FLOAT32, NULL),
         "hvd_allgather of the errors");
    free(mine);
    return all;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the error that the given share of the training rows stay below. */
static float choose_threshold(struct detector *d)
{
    float *errors = score_rows(d, d->train, d->trains);
    qsort(errors, (size_t)d->trains, sizeof *errors, ascending);
    float threshold = errors[(int)(d->set.quantile * (d->trains - 1))];
    free(errors);
    return threshold;
}

/*
 * Returns the area under the ROC curve: the chance that a malignant row has a
 * larger error than a benign one (Hanley and McNeil 1982).
 */
static double roc_auc(const struct detector *d, const float *errors)
{
    double wins = 0, pairs = 0;
    for (int m = 0; m < d->scoreds; m++) {
        if (table_label(&d->table, d->scored[m]) != MALIGNANT)
            continue;
        for (int b = 0; b < d->scoreds; b++) {
            if (table_label(&d->table, d->scored[b]) != BENIGN)
                continue;
            wins += (errors[m] > errors[b]) + 0.5 * (errors[m] == errors[b]);
            pairs++;
        }
    }
    return wins / pairs;
}

static void report(const struct detector *d, const float *errors,
                   float threshold)
{
    int cell[2][2] = {{0, 0}, {0, 0}}; /* [label][alarm] */
    for (int i = 0; i < d->scoreds; i++)
        cell[table_label(&d->table, d->scored[i])][errors[i] > threshold]++;
    printf("threshold %.3f: %g %% of the training errors are below\n",
           (double)threshold, 100 * d->set.quantile);
    printf("             called benign   called malignant\n");
    printf("benign            %5d            %5d\n", cell[BENIGN][0],
           cell[BENIGN][1]);
    printf("malignant         %5d            %5d\n", cell[MALIGNANT][0],
           cell[MALIGNANT][1]);
    printf("ROC-AUC %.3f\n", roc_auc(d, errors));
}

int main(int argc, char **argv)
{
    struct detector d;

    program = "anomaly_autoencoder";
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(hvd_init(), "hvd_init");
    detector_init(&d, read_settings(argc, argv));
    train(&d);

    float threshold = choose_threshold(&d);
    float *errors = score_rows(&d, d.scored, d.scoreds);
    if (hvd_rank() == 0)
        report(&d, errors, threshold);
    free(errors);
    detector_free(&d);
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
