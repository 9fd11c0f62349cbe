/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns to read handwritten digits, and goes on when ranks die:
 *
 *     hvdrun -np 4 --min-np 2 build/examples/train_digits_elastic --die 2
 *
 * What makes train_digits.c elastic, marked (1) to (4) below:
 *
 *   1. All that the training has learned is in a state: parameters, momentum
 *      and the number of the step.
 *   2. The batch follows from the step alone, and a rank's slice of it from its
 *      rank and the number of ranks, so each row is used once an epoch.
 *   3. A step changes the state after its last operation, and then commits it.
 *   4. If a rank has died, the step returns that status: hvd_elastic_run then
 *      calls hvd_sync, and the same step again.
 */
#include "common.h"

#include <hvd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HIDDEN = 64, LAYERS = 2, BATCH = 64, EPOCHS = 20, ROWS_MAX = 4096 };

static struct digits data;
static struct mlp net;
static hvd_state *state;
static int64_t step; /* the next one */
static int steps_per_epoch, deaths;

static float x[BATCH * PIXELS]; /* the inputs of this rank's slice */
static int label[BATCH];

/* (2) Stores the rows of this step's batch.  Returns how many. */
static int find_batch(int *rows)
{
    int at = (int)(step % steps_per_epoch) * BATCH, count = data.trains - at;
    uint64_t seed = (uint64_t)(step / steps_per_epoch) + 1;
    static int order[ROWS_MAX];

    memcpy(order, data.train, (size_t)data.trains * sizeof *order);
    random_shuffle(&seed, order, data.trains); /* the same on every rank */
    count = count < BATCH ? count : BATCH;
    memcpy(rows, order + at, (size_t)count * sizeof *rows);
    return count;
}

/* (2) Loads this rank's part of rows[0..count).  Returns how many rows. */
static int load_slice(const int *rows, int count)
{
    int first = (int)((long)count * hvd_rank() / hvd_size());
    int end = (int)((long)count * (hvd_rank() + 1) / hvd_size());

    for (int r = first; r < end; r++) {
        for (int p = 0; p < PIXELS; p++)
            x[(r - first) * PIXELS + p] =
                table_row(&data.table, rows[r])[p] / 16;
        label[r - first] = table_label(&data.table, rows[r]);
    }
    return end - first;
}

/* Returns how many of this rank's rows it reads right. */
static int forward_slice(int rows)
{
    const float *out = mlp_forward(&net, x, rows);
    int hits = 0, hit;

    for (int r = 0; r < rows; r++) {
        digits_loss(out + r * CLASSES, label[r], mlp_delta(&net) + r * CLASSES,
                    &hit);
        hits += hit;
    }
    return hits;
}

/* Kills rank 0 in the middle of the training, as often as --die says. */
static void die_sometimes(void)
{
    if (hvd_rank() == 0 && hvd_generation() > 0 && hvd_generation() <= deaths &&
        step >= (int64_t)EPOCHS * steps_per_epoch / 2)
        kill(getpid(), SIGKILL);
}

static int train_step(void *arg)
{
    struct hvd_options mean = HVD_OPTIONS_INIT;
    int rows[BATCH], count, mine, rc;

    (void)arg;
    if (step == (int64_t)EPOCHS * steps_per_epoch)
        return 1; /* all steps are done */
    die_sometimes();
    count = find_batch(rows);
    mine = load_slice(rows, count);
    forward_slice(mine);
    for (int l = LAYERS - 1; l >= 0; l--)
        mlp_backward(&net, l, x, mine);
    mean.postscale = 1.0 / count; /* from the sum over the batch's rows */
    rc = hvd_allreduce(net.grad, net.grad, net.count, HVD_FLOAT32, HVD_SUM,
                       &mean);
    if (rc < 0)
        return rc;                   /* (4) */
    for (int l = 0; l < LAYERS; l++) /* (3) */
        layer_step(&net.layer[l], 0.1f, 0.9f);
    step++;
    return hvd_commit(state);
}

static int test_accuracy(double *accuracy)
{
    *accuracy = 0;
    for (int at = 0; at < data.tests; at += BATCH) {
        int count = data.tests - at < BATCH ? data.tests - at : BATCH;

        *accuracy += forward_slice(load_slice(data.test + at, count));
    }
    *accuracy /= data.tests;
    return hvd_allreduce(accuracy, accuracy, 1, HVD_FLOAT64, HVD_SUM, NULL);
}

static void add(const char *name, void *p, size_t bytes)
{
    must(hvd_state_add(state, name, p, bytes, 0), name);
}

static int tell_change(void *arg, const struct hvd_change *c)
{
    (void)arg;
    if (c->rank == 0)
        printf("%d of %d ranks go on: %s\n", c->size, c->old_size, c->why);
    return 0;
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: hvdrun -np N --min-np M train_digits_elastic [options]\n"
        "  --die N      how many times rank 0 kills itself (default 0)\n"
        "  --data FILE  digits.csv, if not in data/ beside the program\n";
    static const int widths[LAYERS + 1] = {PIXELS, HIDDEN, CLASSES};
    const char *file = NULL;
    const struct flag flags[] = {{"die", 1000, &deaths, NULL, NULL},
                                 {"data", 0, NULL, NULL, &file}};
    double accuracy = 0;
    int rc;

    program = "train_digits_elastic";
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(hvd_init(), "hvd_init");
    parse_flags(argc, argv, usage, flags, 2);
    digits_read(&data, file); /* no operation before hvd_sync */
    if (data.trains > ROWS_MAX)
        refuse("more than %d rows", ROWS_MAX);
    steps_per_epoch = (data.trains + BATCH - 1) / BATCH;
    mlp_init(&net, widths, LAYERS, BATCH, (uint64_t)hvd_rank() + 1);

    must(hvd_state_new(&state), "hvd_state_new"); /* (1) */
    add("parameters", net.param, net.count * sizeof *net.param);
    add("momentum", net.velocity, net.count * sizeof *net.velocity);
    add("step", &step, sizeof step);
    must(hvd_on_resize(tell_change, NULL), "hvd_on_resize");
    do { /* a rank may also die in the test */
        must(hvd_elastic_run(state, train_step, NULL), "training");
        rc = test_accuracy(&accuracy);
    } while (rc == -HVD_ERESIZED);
    must(rc, "hvd_allreduce of the accuracy");
    if (hvd_rank() == 0)
        printf("%d rank%s at the end\ntest accuracy %.1f %%\n", hvd_size(),
               hvd_size() > 1 ? "s" : "", 100 * accuracy);
    hvd_state_free(state);
    mlp_free(&net);
    digits_free(&data);
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
