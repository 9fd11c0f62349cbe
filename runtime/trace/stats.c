/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a process set; see stats.h. */
#include "runtime/trace/stats.h"

#include "lib/base/alloc.h"

#include <string.h>

_Static_assert(HVD_STATS_KINDS == (int)WORKER_STATS_KINDS &&
                   HVD_STATS_CLASSES == (int)WORKER_STATS_CLASSES,
               "hvdrun prints what hvd_stats tells");

/* How long this process waited for each world rank, in all sets. */
static struct {
    _Atomic uint64_t *ns; /* NULL: not counted */
    int n;
} waited;

/* ---- Counting ------------------------------------------------------- */

void hvd__stats_init(struct hvd__stats *s, const int *ranks, int n)
{
    memset(s, 0, sizeof(*s));
    s->ranks = ranks;
    s->n = n;
}

static void add_waited(int rank, uint64_t ns)
{
    /* Atomic, as the drivers of several sets may do this; relaxed, as nothing
     * else depends on the number. */
    if (rank < waited.n)
        atomic_fetch_add_explicit(&waited.ns[rank], ns, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns how many operations of a row its samples represent: all but those
 * that were timed in any case. */
static uint64_t sampled_from(const struct hvd__stats_row *row)
{
    uint64_t count = get(&row->count), timed = get(&row->timed.count);

    return count > timed ? count - timed : 0; /* read by another thread */
}

uint64_t hvd__stats_request(struct hvd__stats *s,
                            const struct hvd__stats_sample *sample)
{
    struct hvd__stats_times *times;
    struct hvd__stats_row *row;
    uint64_t wait = 0, others;

    if ((unsigned)sample->kind >= HVD_STATS_KINDS)
        return 0;
    row = &s->rows[sample->kind][hvd__stats_class(sample->bytes)];
    hvd__stats_count(&row->count, 1);
    hvd__stats_count(&row->bytes, sample->bytes);
    if (!sample->issued_ns || sample->done_ns < sample->issued_ns)
        return 0;
    if (sample->agreed_ns > sample->issued_ns)
        wait = (sample->agreed_ns < sample->done_ns ? sample->agreed_ns
                                                    : sample->done_ns) -
               sample->issued_ns;
    times = sample->timing == HVD__SAMPLED ? &row->sampled : &row->timed;
    hvd__stats_count(&times->count, 1);
    hvd__stats_count(&times->time_ns, sample->done_ns - sample->issued_ns);
    hvd__stats_count(&times->wait_ns, wait);
    if (wait > 0 && sample->late_rank >= 0 && sample->late_rank < s->n)
        add_waited(s->ranks[sample->late_rank], wait);
    if (times == &row->timed)
        return wait;
    others = sampled_from(row) - row->represented;
    row->represented += others;
    return wait * others;
}

/* ---- Telling -------------------------------------------------------- */

/* Scales the time of the samples up to all operations that they represent. */
static uint64_t scale(uint64_t ns, uint64_t all, uint64_t samples)
{
    if (samples == 0 || samples >= all)
        return ns;
    return (uint64_t)((double)ns * ((double)all / (double)samples));
}

static void sum_row(const struct hvd__stats_row *row, struct hvd_stats_row *to)
{
    uint64_t all = sampled_from(row), samples = get(&row->sampled.count);

    to->count += get(&row->count);
    to->bytes += get(&row->bytes);
    to->time_ns += get(&row->timed.time_ns) +
                   scale(get(&row->sampled.time_ns), all, samples);
    to->wait_ns += get(&row->timed.wait_ns) +
                   scale(get(&row->sampled.wait_ns), all, samples);
}

void hvd__stats_sum(const struct hvd__stats *s, struct hvd_stats *sum)
{
    for (int k = 0; k < HVD_STATS_KINDS; k++)
        for (int c = 0; c < HVD_STATS_CLASSES; c++)
            sum_row(&s->rows[k][c], &sum->rows[k][c]);
    sum->operations += get(&s->operations);
    sum->fused += get(&s->fused);
    sum->learned += get(&s->learned);
    sum->guessed += get(&s->guessed);
    sum->cuts += get(&s->cuts);
    sum->negotiations += get(&s->negotiations);
    sum->errors += get(&s->errors);
}

static void move(_Atomic uint64_t *to, _Atomic uint64_t *from)
{
    hvd__stats_count(to, get(from));
    atomic_store_explicit(from, 0, memory_order_relaxed);
}

static void move_times(struct hvd__stats_times *to,
                       struct hvd__stats_times *from)
{
    move(&to->count, &from->count);
    move(&to->time_ns, &from->time_ns);
    move(&to->wait_ns, &from->wait_ns);
}

void hvd__stats_move(struct hvd__stats *to, struct hvd__stats *from)
{
    for (int k = 0; k < HVD_STATS_KINDS; k++)
        for (int c = 0; c < HVD_STATS_CLASSES; c++) {
            struct hvd__stats_row *t = &to->rows[k][c], *f = &from->rows[k][c];

            move(&t->count, &f->count);
            move(&t->bytes, &f->bytes);
            move_times(&t->timed, &f->timed);
            move_times(&t->sampled, &f->sampled);
        }
    move(&to->operations, &from->operations);
    move(&to->fused, &from->fused);
    move(&to->learned, &from->learned);
    move(&to->guessed, &from->guessed);
    move(&to->cuts, &from->cuts);
    move(&to->negotiations, &from->negotiations);
    move(&to->errors, &from->errors);
}

/* ---- For hvdrun ----------------------------------------------------- */

int hvd__stats_open(int n)
{
    hvd__stats_close();
    waited.ns = hb_calloc((size_t)n, sizeof(*waited.ns));
    if (!waited.ns)
        return -HVD_ENOMEM;
    waited.n = n;
    return 0;
}

void hvd__stats_close(void)
{
    hb_free((void *)waited.ns);
    waited.ns = NULL;
    waited.n = 0;
}

int hvd__stats_wanted(void)
{
    return waited.ns != NULL;
}

void hvd__stats_report(const struct hvd_stats *sum, struct worker_stats *out)
{
    memset(out, 0, sizeof(*out));
    for (int k = 0; k < HVD_STATS_KINDS; k++)
        for (int c = 0; c < HVD_STATS_CLASSES; c++) {
            const struct hvd_stats_row *row = &sum->rows[k][c];

            out->rows[k][c] = (struct worker_stats_row){
                row->count, row->bytes, row->time_ns, row->wait_ns};
        }
    out->operations = sum->operations;
    out->fused = sum->fused;
    out->learned = sum->learned;
    out->guessed = sum->guessed;
    out->cuts = sum->cuts;
    out->negotiations = sum->negotiations;
    out->errors = sum->errors;
    out->device_timed = sum->device_timed;
    out->device_ns = sum->device_ns;
    for (int r = 0; r < waited.n; r++)
        worker_stats_blame(out, (uint32_t)r, get(&waited.ns[r]));
}
