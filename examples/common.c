/* SPDX-License-Identifier: Apache-2.0 */
/* See common.h. */
#include "common.h"

#include <errno.h>
#include <getopt.h>
#include <hvd.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *program = "example";

/* ---- Giving up ------------------------------------------------------ */

void must(int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: %s: %s\n", program, what, hvd_error_message());
    exit(1);
}

/* Ends all ranks together, after rank 0 has written its line: hvdrun ends a job
 * at its first failure. */
static _Noreturn void leave_together(void)
{
    must(hvd_barrier(NULL), "hvd_barrier");
    must(hvd_shutdown(), "hvd_shutdown");
    exit(2);
}

void refuse(const char *fmt, ...)
{
    if (hvd_rank() == 0) {
        va_list ap;
        va_start(ap, fmt);
        fprintf(stderr, "%s: ", program);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
        va_end(ap);
    }
    leave_together();
}

void *must_alloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) {
        fprintf(stderr, "%s: out of memory\n", program);
        exit(1);
    }
    return p;
}

/* ---- Options -------------------------------------------------------- */

static int parse_count(const char *option, const char *text, long max)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > max)
        refuse("--%s: \"%s\" is not a number from 1 to %ld", option, text, max);
    return (int)value;
}

static double parse_rate(const char *option, const char *text, double max)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || !(value > 0 && value <= max))
        refuse("--%s: \"%s\" is not a number above 0 and up to %g", option,
               text, max);
    return value;
}

static void take(const struct flag *f, const char *text)
{
    if (f->count)
        *f->count = parse_count(f->name, text, (long)f->max);
    else if (f->rate)
        *f->rate = parse_rate(f->name, text, f->max);
    else
        *f->text = text;
}

void parse_flags(int argc, char **argv, const char *usage,
                 const struct flag *flags, int n)
{
    struct option *options = must_alloc((size_t)n + 2, sizeof *options);
    int c;

    for (int i = 0; i < n; i++)
        options[i] = (struct option){flags[i].name, required_argument, NULL, i};
    options[n] = (struct option){"help", no_argument, NULL, n};
    opterr = 0;
    while ((c = getopt_long_only(argc, argv, "", options, NULL)) != -1) {
        if (c == n) {
            if (hvd_rank() == 0)
                fputs(usage, stdout);
            must(hvd_shutdown(), "hvd_shutdown");
            exit(0);
        }
        if (c > n)
            refuse("%s: unknown option or no value; see --help",
                   argv[optind - 1]);
        take(&flags[c], optarg);
    }
    if (optind < argc)
        refuse("%s: unexpected argument; see --help", argv[optind]);
    free(options);
}

/* ---- Tables --------------------------------------------------------- */

/* Parses one line of `cols` comma-separated numbers; 0 if it is not that. */
static int parse_row(const char *line, float *row, int cols)
{
    for (int c = 0; c < cols; c++) {
        char *end;
        row[c] = strtof(line, &end);
        if (end == line)
            return 0;
        line = end;
        if (c + 1 < cols && *line++ != ',')
            return 0;
    }
    return line[strspn(line, " \r\n")] == '\0';
}

/* Reads the file, on rank 0 only.  0, with a line on stderr, if it is no
 * good. */
static int table_read(struct table *t, const char *path, int header_lines)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "%s: %s: %s; give the file with --data\n", program,
                path, strerror(errno));
        return 0;
    }
    char line[8192];
    int number = 0, good = 1;
    while (good && fgets(line, sizeof line, f)) {
        if (++number <= header_lines)
            continue;
        size_t cols = (size_t)t->cols;
        size_t used = (size_t)t->rows * cols;
        float *cells = realloc(t->cells, (used + cols) * sizeof *cells);
        if (!cells)
            break;
        t->cells = cells;
        good = parse_row(line, cells + used, t->cols);
        t->rows += good;
    }
    if (!good)
        fprintf(stderr, "%s: %s:%d: not %d comma-separated numbers\n", program,
                path, number, t->cols);
    else if (!feof(f))
        fprintf(stderr, "%s: %s: cannot be read\n", program, path);
    else if (t->rows == 0)
        fprintf(stderr, "%s: %s: no rows\n", program, path);
    good = good && feof(f) && t->rows > 0;
    fclose(f);
    return good;
}

/* Sets path to data/<name> in the folder of the running program. */
static void default_path(char *path, size_t size, const char *name)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    snprintf(path, size, "%s/data/%s", exe, name);
}

/* As table_read, but path may be NULL. */
static int table_open(struct table *t, const char *path, const char *name,
                      int header_lines)
{
    char beside[PATH_MAX + 64];

    default_path(beside, sizeof beside, name);
    return table_read(t, path ? path : beside, header_lines);
}

void table_load(struct table *t, const char *path, const char *name,
                int header_lines, int cols)
{
    *t = (struct table){.cols = cols};
    int32_t rows = -1;
    if (hvd_rank() == 0 && table_open(t, path, name, header_lines))
        rows = t->rows;
    must(hvd_broadcast(&rows, &rows, 1, HVD_INT32, 0, NULL),
         "hvd_broadcast of the table's size");
    if (rows < 0)
        leave_together();

    size_t count = (size_t)rows * (size_t)cols;
    if (hvd_rank() != 0)
        t->cells = must_alloc(count, sizeof *t->cells);
    t->rows = rows;
    must(hvd_broadcast(t->cells, t->cells, count, HVD_FLOAT32, 0, NULL),
         "hvd_broadcast of the table");
}

const float *table_row(const struct table *t, int row)
{
    return t->cells + (size_t)row * (size_t)t->cols;
}

int table_label(const struct table *t, int row)
{
    return (int)table_row(t, row)[t->cols - 1];
}

void table_free(struct table *t)
{
    free(t->cells);
    *t = (struct table){0};
}

/* ---- The handwritten digits ------------------------------------------ */

/* Divides the rows of the table into those for training and for testing. */
static void digits_divide(struct digits *d)
{
    int rows = d->table.rows;
    d->train = must_alloc((size_t)rows, sizeof *d->train);
    d->test = must_alloc((size_t)rows, sizeof *d->test);
    for (int row = 0; row < rows; row++) {
        int label = table_label(&d->table, row);
        if (label < 0 || label >= CLASSES)
            refuse("row %d: label %d is not a digit", row + 1, label);
        if (row % 5 == 0)
            d->test[d->tests++] = row;
        else
            d->train[d->trains++] = row;
    }
}

void digits_load(struct digits *d, const char *path)
{
    *d = (struct digits){0};
    table_load(&d->table, path, "digits.csv", 0, PIXELS + 1);
    digits_divide(d);
}

void digits_read(struct digits *d, const char *path)
{
    *d = (struct digits){.table.cols = PIXELS + 1};
    if (!table_open(&d->table, path, "digits.csv", 0))
        exit(1);
    digits_divide(d);
}

void digits_free(struct digits *d)
{
    table_free(&d->table);
    free(d->train);
    free(d->test);
}

double digits_loss(const float *out, int label, float *delta, int *hit)
{
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        best = out[c] > out[best] ? c : best;
    float sum = 0;
    for (int c = 0; c < CLASSES; c++)
        sum += expf(out[c] - out[best]);
    for (int c = 0; c < CLASSES; c++)
        delta[c] = expf(out[c] - out[best]) / sum - (c == label);
    *hit = best == label;
    return logf(sum) - (out[label] - out[best]);
}

/* ---- Random numbers (SplitMix64) ------------------------------------ */

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double random_uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

void random_shuffle(uint64_t *state, int *items, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(random_uniform(state) * (i + 1));
        int kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}

/* ---- A network ------------------------------------------------------ */

void mlp_init(struct mlp *m, const int *widths, int layers, int rows_max,
              uint64_t seed)
{
    *m = (struct mlp){.layers = layers};
    for (int l = 0; l < layers; l++) {
        struct layer *y = &m->layer[l];
        y->in = widths[l];
        y->out = widths[l + 1];
        y->count = (size_t)(y->in + 1) * (size_t)y->out;
        m->count += y->count;
    }
    m->param = must_alloc(m->count, sizeof(float));
    m->grad = must_alloc(m->count, sizeof(float));
    m->velocity = must_alloc(m->count, sizeof(float));

    size_t at = 0;
    for (int l = 0; l < layers; l++) {
        struct layer *y = &m->layer[l];
        size_t cells = (size_t)rows_max * (size_t)y->out;
        y->param = m->param + at;
        y->grad = m->grad + at;
        y->velocity = m->velocity + at;
        y->value = must_alloc(cells, sizeof(float));
        y->delta = must_alloc(cells, sizeof(float));
        at += y->count;

        /* He initialisation, uniform; biases stay 0. */
        double bound = sqrt(6.0 / y->in);
        for (int i = 0; i < y->in * y->out; i++)
            y->param[i] = (float)((2 * random_uniform(&seed) - 1) * bound);
    }
}

void mlp_free(struct mlp *m)
{
    for (int l = 0; l < m->layers; l++) {
        free(m->layer[l].value);
        free(m->layer[l].delta);
    }
    free(m->param);
    free(m->grad);
    free(m->velocity);
    *m = (struct mlp){0};
}

static void layer_forward(struct layer *y, const float *x, int rows, int relu)
{
    const float *w = y->param, *b = w + y->in * y->out;
    for (int r = 0; r < rows; r++) {
        float *out = y->value + r * y->out;
        memcpy(out, b, (size_t)y->out * sizeof *out);
        for (int i = 0; i < y->in; i++)
            for (int o = 0; o < y->out; o++)
                out[o] += x[r * y->in + i] * w[i * y->out + o];
        for (int o = 0; relu && o < y->out; o++)
            out[o] = out[o] > 0 ? out[o] : 0;
    }
}

float *mlp_forward(struct mlp *m, const float *x, int rows)
{
    for (int l = 0; l < m->layers; l++) {
        layer_forward(&m->layer[l], x, rows, l + 1 < m->layers);
        x = m->layer[l].value;
    }
    return m->layer[m->layers - 1].value;
}

float *mlp_delta(struct mlp *m)
{
    return m->layer[m->layers - 1].delta;
}

/* Computes row r of the delta of the layer below: through the weights, then
 * through its relu. */
static void delta_below(const struct layer *y, struct layer *below, int r)
{
    const float *delta = y->delta + r * y->out;
    for (int i = 0; i < y->in; i++) {
        const float *w = y->param + i * y->out;
        float sum = 0;
        for (int o = 0; o < y->out; o++)
            sum += delta[o] * w[o];
        int at = r * y->in + i;
        below->delta[at] = below->value[at] > 0 ? sum : 0;
    }
}

void mlp_backward(struct mlp *m, int l, const float *x, int rows)
{
    struct layer *y = &m->layer[l];
    struct layer *below = l > 0 ? &m->layer[l - 1] : NULL;
    const float *in = below ? below->value : x;
    float *gw = y->grad, *gb = gw + y->in * y->out;

    memset(y->grad, 0, y->count * sizeof *y->grad);
    for (int r = 0; r < rows; r++) {
        const float *delta = y->delta + r * y->out;
        for (int i = 0; i < y->in; i++)
            for (int o = 0; o < y->out; o++)
                gw[i * y->out + o] += in[r * y->in + i] * delta[o];
        for (int o = 0; o < y->out; o++)
            gb[o] += delta[o];
        if (below)
            delta_below(y, below, r);
    }
}

void layer_step(struct layer *y, float rate, float momentum)
{
    for (size_t i = 0; i < y->count; i++) {
        y->velocity[i] = momentum * y->velocity[i] - rate * y->grad[i];
        y->param[i] += y->velocity[i];
    }
}
