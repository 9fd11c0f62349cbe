/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the examples share: giving up, options, tables read from CSV files,
 * random numbers, and a small fully connected network.  Plain C; the last two
 * parts do not know that there are other ranks.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stddef.h>
#include <stdint.h>

/* ---- Giving up ------------------------------------------------------ */

extern const char *program; /* set by main; in front of every message */

/* Ends this rank with exit code 1 and one line if an hvd call failed. */
void must(int status, const char *what);

/* Ends the program for an error that all ranks find, such as a wrong option:
 * rank 0 prints it in one line, then all ranks leave with exit code 2. */
void refuse(const char *fmt, ...)
    __attribute__((noreturn, format(printf, 1, 2)));

void *must_alloc(size_t count, size_t size);

/* ---- Options -------------------------------------------------------- */

/* --name VALUE: a count from 1 to max, a rate above 0 and up to max, or any
 * text.  One of the pointers says where it goes, the others are NULL. */
struct flag {
    const char *name;
    double max;
    int *count;
    double *rate;
    const char **text;
};

/* Reads n flags from the command line; refuse() on rubbish.  --help prints
 * usage and ends the program. */
void parse_flags(int argc, char **argv, const char *usage,
                 const struct flag *flags, int n);

/* ---- Tables --------------------------------------------------------- */

struct table {
    int rows, cols; /* the last column is the label */
    float *cells;   /* row after row */
};

/*
 * Loads the file: rank 0 reads and broadcasts it, so only its host needs one.
 * path NULL means the file `name` in the folder data/ beside the program. The
 * first header_lines lines are skipped.
 */
void table_load(struct table *t, const char *path, const char *name,
                int header_lines, int cols);
const float *table_row(const struct table *t, int row);
int table_label(const struct table *t, int row);
void table_free(struct table *t);

/* ---- The handwritten digits ------------------------------------------ */

enum { PIXELS = 64 /* 8 x 8, values 0..16 */, CLASSES = 10 };

struct digits {
    struct table table;
    int *train, trains; /* row numbers */
    int *test, tests;   /* every fifth */
};

/* Loads the digits; path as of table_load. */
void digits_load(struct digits *d, const char *path);
/* As digits_load, but each rank reads the file by itself. */
void digits_read(struct digits *d, const char *path);
void digits_free(struct digits *d);

/*
 * Computes softmax and cross-entropy of one row of outputs.  Returns the loss
 * and stores d loss / d output; *hit tells whether the best class is right.
 */
double digits_loss(const float *out, int label, float *delta, int *hit);

/* ---- Random numbers ------------------------------------------------- */

uint64_t random_next(uint64_t *state);
double random_uniform(uint64_t *state); /* in [0, 1) */
void random_shuffle(uint64_t *state, int *items, int count);

/* ---- A network ------------------------------------------------------ */

enum { MLP_LAYERS_MAX = 8 };

struct layer {
    int in, out;
    size_t count;         /* parameters: in * out weights, out biases */
    float *param;         /* w[in][out], then b[out] */
    float *grad;          /* the same shape: summed over the rows */
    float *velocity;      /* momentum */
    float *value, *delta; /* [rows][out]: output; d loss / d output */
};

/* Layers of relu(x w + b); the last one without relu. */
struct mlp {
    int layers;
    struct layer layer[MLP_LAYERS_MAX];
    size_t count;                   /* parameters of all layers */
    float *param, *grad, *velocity; /* of all layers, one after another */
};

/* Makes the layers; widths: layers + 1 numbers, from the input's to the
 * output's. */
void mlp_init(struct mlp *m, const int *widths, int layers, int rows_max,
              uint64_t seed);
void mlp_free(struct mlp *m);

/* Returns the last layer's output, [rows][out]. */
float *mlp_forward(struct mlp *m, const float *x, int rows);
/* Returns the last layer's delta, for the caller to fill before going
 * backward. */
float *mlp_delta(struct mlp *m);
/* Computes from layer l's delta its grad, and the delta of the layer below. */
void mlp_backward(struct mlp *m, int l, const float *x, int rows);
/* Takes one step of gradient descent with momentum. */
void layer_step(struct layer *y, float rate, float momentum);

#endif
