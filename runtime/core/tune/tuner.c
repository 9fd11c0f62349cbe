/* SPDX-License-Identifier: Apache-2.0 */
/* Autotuning; see tuner.h. */
#include "runtime/core/tune/tuner.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { AXIS_FUSION, AXIS_PART, AXIS_TCP };

enum {
    FUSION_MIN_BYTES = 64 << 10,
    FUSION_PLACES = 5,
    /* A tensor of this many times alpha * bandwidth bytes hardly notices
     * alpha. */
    PART_ALPHAS = 16,
    KNOB_MAX = 10000,
};

static const uint64_t parts[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20,
                                 4 << 20};
static const uint64_t percents[] = {25, 50, 100, 200, 400};
enum {
    PARTS = sizeof(parts) / sizeof(parts[0]),
    PERCENTS = sizeof(percents) / sizeof(percents[0])
};

/* ---- The log ------------------------------------------------------------- */

static const char log_head[] =
    "sample,phase,tensor_fusion_threshold,fused_tensor_max,tcp_alpha_percent,"
    "score_q1,score_q3,score\n";

/* Writes each line at once, so that none is missing however the job ends. */
static void write_log(struct hvd__tuner *t, const char *line, size_t len)
{
    if (t->log_fd < 0 || t->log_errno)
        return;
    errno = ENOSPC; /* the cause of a short write */
    if (write(t->log_fd, line, len) != (ssize_t)len)
        t->log_errno = errno;
}

static int open_log(struct hvd__tuner *t, struct hb_error *err)
{
    const char *path = hb_knob("AUTOTUNE_LOG");

    if (!path)
        return 0;
    /* A FIFO without a reader is an error, not a wait. */
    t->log_fd = open(
        path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
        0666);
    if (t->log_fd < 0)
        return hb_error_sys(err, errno, "HVD_AUTOTUNE_LOG: open %s", path);
    write_log(t, log_head, sizeof(log_head) - 1);
    return 0;
}

/* Converts a cost to bytes per us. */
static double score(double ns_per_byte)
{
    return ns_per_byte > 0 ? 1000 / ns_per_byte : 0;
}

static void log_row(struct hvd__tuner *t, const char *phase,
                    const struct hvd__autotune_setting *s,
                    const struct hvd__autotune_cost *cost)
{
    char line[256];
    int n = snprintf(line, sizeof(line),
                     "%d,%s,%llu,%llu,%llu,%.3f,%.3f,%.3f\n", ++t->rows, phase,
                     (unsigned long long)t->values[AXIS_FUSION][s->at[0]],
                     (unsigned long long)t->values[AXIS_PART][s->at[1]],
                     (unsigned long long)t->values[AXIS_TCP][s->at[2]],
                     score(cost->q3), score(cost->q1), score(cost->median));

    write_log(t, line, (size_t)n);
}

static void log_sample(struct hvd__tuner *t)
{
    static const char *const names[] = {"warmup", "search", "verify"};
    const struct hvd__autotune_sample *s = &t->search.last;

    log_row(t, names[s->phase], &s->setting, &s->cost);
}

/* Writes the last row: the setting that is kept. */
static void log_best(struct hvd__tuner *t)
{
    const struct hvd__autotune_setting *s = &t->search.next;

    if (t->best_written)
        return;
    t->best_written = 1;
    log_row(t, "best", s, &t->search.kept_cost);
    hb_log(t->config.log, HB_LOG_INFO,
           "autotune keeps: %llu bytes fused, of tensors up to %llu bytes; "
           "TCP alpha at %llu%%",
           (unsigned long long)t->values[AXIS_FUSION][s->at[0]],
           (unsigned long long)t->values[AXIS_PART][s->at[1]],
           (unsigned long long)t->values[AXIS_TCP][s->at[2]]);
}

/* ---- What can be tried (rank 0) ------------------------------------------ */

static void pin(struct hvd__tuner *t, struct hvd__autotune_config *c, int axis,
                uint64_t value)
{
    t->values[axis][0] = value;
    c->places[axis] = 1;
}

/* Gives an axis n values, ascending; the nearest one not above the default
 * becomes the default, and the start. */
static void open_axis(struct hvd__tuner *t, struct hvd__autotune_config *c,
                      int axis, const uint64_t *values, int n)
{
    const uint64_t defaults[] = {
        [AXIS_FUSION] = t->config.defaults.fusion_bytes,
        [AXIS_PART] = t->config.defaults.fusion_part_bytes,
        [AXIS_TCP] = t->config.defaults.tcp_percent,
    };
    int at = 0;

    memcpy(t->values[axis], values, (size_t)n * sizeof(*values));
    for (int i = 0; i < n; i++)
        if (values[i] <= defaults[axis])
            at = i;
    t->values[axis][at] = defaults[axis];
    c->places[axis] = (unsigned char)n;
    c->start.at[axis] = (unsigned char)at;
}

/* Guesses from the model how long tensors may be and still gain from fusion. */
static unsigned char guess_part(const struct hvd__tuner *t)
{
    const struct hvd__tcp_model *m = hvd__tcp_model(t->config.tcp);
    double bytes = PART_ALPHAS * m->alpha_us * m->bytes_per_us;
    unsigned char at = 0;

    while (at + 1 < PARTS && (double)parts[at] < bytes)
        at++;
    return at;
}

static void lay_out(struct hvd__tuner *t, struct hvd__autotune_config *c)
{
    const struct hvd__tuning *d = &t->config.defaults;

    pin(t, c, AXIS_FUSION, d->fusion_bytes);
    if (d->fusion_bytes)
        open_axis(t, c, AXIS_PART, parts, PARTS);
    else
        pin(t, c, AXIS_PART, d->fusion_part_bytes);
    if (t->config.tcp && !hb_knob("TCP_ALPHA_US") && !hb_knob("TCP_BETA_GBPS"))
        open_axis(t, c, AXIS_TCP, percents, PERCENTS);
    else
        pin(t, c, AXIS_TCP, d->tcp_percent);
    c->guess = c->start;
    if (t->config.tcp && d->fusion_bytes)
        c->guess.at[AXIS_PART] = guess_part(t);
}

/* Gives the axis of fusion_bytes its values, once it is known how much a step
 * moves: half of that, a quarter, and so on. */
static void lay_out_fusion(struct hvd__tuner *t)
{
    uint64_t largest = t->config.defaults.fusion_bytes;
    uint64_t bytes = FUSION_MIN_BYTES;
    int places = 1;

    if (t->laid_out || t->config.fusion_pinned)
        return;
    t->laid_out = 1;
    while (bytes <= t->bytes / 4 && bytes < largest / 2)
        bytes *= 2;
    for (; places < FUSION_PLACES && bytes >= FUSION_MIN_BYTES &&
           bytes <= t->bytes / 2 && bytes < largest;
         bytes /= 2)
        t->values[AXIS_FUSION][places++] = bytes;
    hvd__autotune_extend(&t->search, AXIS_FUSION, places);
}

/* ---- Counting ------------------------------------------------------------ */

/* Feeds a step that is over to the search, on rank 0. */
static void measure(struct hvd__tuner *t, uint64_t now_ns)
{
    uint64_t ns = now_ns - t->mark_ns;

    lay_out_fusion(t);
    if (hvd__autotune_step(&t->search, t->bytes, ns ? ns : 1))
        log_sample(t);
}

/* Ends a step, at its marker. */
static void mark(struct hvd__tuner *t)
{
    uint64_t now_ns = t->config.me == 0 ? hb_now_ns() : 0;

    if (t->marks++ > 0 && t->config.me == 0)
        measure(t, now_ns);
    t->mark_ns = now_ns;
    t->bytes = 0;
    t->since = t->unnamed = 0;
    t->due = t->marks > t->steps;
}

/* Ends tuning because the marker has not come again.  All ranks count alike, so
 * the tuner's next operation comes at the same place on all. */
static void lose_marker(struct hvd__tuner *t)
{
    t->due = 1;
    if (t->config.me == 0)
        hvd__autotune_stop(&t->search);
    hb_log(t->config.log, HB_LOG_INFO,
           "autotune: the tensor that marked the steps has not come again");
}

void hvd__tuner_allreduced(struct hvd__tuner *t, const struct hvd__entry *e,
                           int is_named, uint64_t bytes)
{
    if (t->due || bytes == 0)
        return;
    if (!t->marker)
        t->marker = e;
    t->bytes += bytes;
    if (e == t->marker && (is_named || ++t->unnamed == HVD__TUNER_UNNAMED))
        mark(t);
    else if (++t->since >= HVD__TUNER_LOST)
        lose_marker(t);
}

/* ---- Messages ------------------------------------------------------------ */

static unsigned char *put(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *p++ = (unsigned char)(v >> 8 * i);
    return p;
}

static uint64_t get(const unsigned char **p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t) * (*p)++ << 8 * i;
    return v;
}

const void *hvd__tuner_offer(struct hvd__tuner *t)
{
    const struct hvd__autotune *a = &t->search;
    unsigned char *p = t->offer;

    if (t->config.me != 0)
        return t->offer;
    p = put(p, t->values[AXIS_FUSION][a->next.at[AXIS_FUSION]], 8);
    p = put(p, t->values[AXIS_PART][a->next.at[AXIS_PART]], 8);
    p = put(p, t->values[AXIS_TCP][a->next.at[AXIS_TCP]], 4);
    p = put(p, (uint64_t)(a->config.steps - a->step), 4);
    put(p, a->phase == HVD__AUTOTUNE_OVER, 4);
    return t->offer;
}

/* Puts settings to use: at the same operation on all ranks, since they decide
 * which messages the ranks exchange. */
static void use(struct hvd__tuner *t, const struct hvd__tuning *now)
{
    t->now = *now;
    if (t->config.tcp)
        hvd__tcp_set_alpha(t->config.tcp,
                           t->alpha_us * (double)now->tcp_percent / 100);
}

static void end(struct hvd__tuner *t)
{
    t->finished = 1;
    if (t->config.me == 0)
        log_best(t);
}

void hvd__tuner_agreed(struct hvd__tuner *t)
{
    const unsigned char *p = t->all;
    struct hvd__tuning now;

    now.fusion_bytes = get(&p, 8);
    now.fusion_part_bytes = get(&p, 8);
    now.tcp_percent = (uint32_t)get(&p, 4);
    use(t, &now);
    t->steps = (uint32_t)get(&p, 4);
    t->due = 0;
    t->bytes = 0;
    t->marks = t->unnamed = t->since = 0;
    if (get(&p, 4))
        end(t);
}

void hvd__tuner_denied(struct hvd__tuner *t)
{
    t->due = 0;
    t->now = t->config.defaults;
    if (t->config.me == 0)
        hvd__autotune_stop(&t->search);
    end(t);
    hb_log(t->config.log, HB_LOG_WARNING,
           "HVD_AUTOTUNE is not the same on all ranks: nothing is tuned");
}

/* ---- Life ---------------------------------------------------------------- */

int hvd__tuner_wanted(struct hb_error *err)
{
    int wanted = 0;
    int rc = hb_knob_bool("AUTOTUNE", &wanted, err);

    return rc < 0 ? rc : wanted;
}

/* Opens what only rank 0 needs. */
static int open_search(struct hvd__tuner *t, struct hb_error *err)
{
    struct hvd__autotune_config c = {.warmup = 3, .steps = 10, .samples = 20};
    const struct {
        const char *name;
        int min;
        int *value;
    } knobs[] = {
        {"AUTOTUNE_WARMUP_SAMPLES", 0, &c.warmup},
        {"AUTOTUNE_STEPS_PER_SAMPLE", 1, &c.steps},
        {"AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 0, &c.samples},
    };

    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
        int64_t v = *knobs[i].value;
        int rc = hb_knob_i64(knobs[i].name, knobs[i].min, KNOB_MAX, &v, err);

        if (rc < 0)
            return rc;
        *knobs[i].value = (int)v;
    }
    lay_out(t, &c);
    if (hvd__autotune_init(&t->search, &c) < 0)
        return hb_error_set(err, HVD_ENOMEM, "no memory for autotuning");
    return open_log(t, err);
}

int hvd__tuner_open(struct hvd__tuner *t, const struct hvd__tuner_config *c,
                    struct hb_error *err)
{
    int rc = 0;

    memset(t, 0, sizeof(*t));
    t->config = *c;
    t->now = c->defaults;
    t->log_fd = -1;
    t->due = 1;
    if (c->tcp)
        t->alpha_us = hvd__tcp_model(c->tcp)->alpha_us;
    t->all = hb_calloc((size_t)c->n, HVD__TUNER_BYTES);
    if (!t->all)
        rc = hb_error_set(err, HVD_ENOMEM, "no memory for autotuning");
    else if (c->me == 0)
        rc = open_search(t, err);
    if (rc < 0) {
        hvd__autotune_fini(&t->search);
        hb_free(t->all);
        memset(t, 0, sizeof(*t));
    }
    return rc;
}

void hvd__tuner_close(struct hvd__tuner *t)
{
    if (!t->all)
        return;
    if (t->config.me == 0) {
        hvd__autotune_stop(&t->search);
        log_best(t);
    }
    if (t->log_errno)
        hb_log(t->config.log, HB_LOG_WARNING,
               "HVD_AUTOTUNE_LOG: lines are missing: %s",
               strerror(t->log_errno));
    if (t->log_fd >= 0)
        close(t->log_fd);
    hvd__autotune_fini(&t->search);
    hb_free(t->all);
    memset(t, 0, sizeof(*t));
}
