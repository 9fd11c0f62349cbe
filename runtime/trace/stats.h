/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of one process set, which hvd_stats() returns.
 *
 * Only the driver counts, with relaxed stores and no read-modify-write.  Any
 * thread may read meanwhile, and sees each counter whole.
 *
 * Reading the clock takes a tenth of the time of a small operation.  So of the
 * small blocking ones only one in STATS_SAMPLE, chosen at random, is timed, and
 * the times of a row are scaled up from those.
 *
 * Who calls what:
 *
 *   a request is issued           if it is asynchronous, or
 *                                 hvd__stats_timing(s, bytes, now_ns):
 *                                 req->issued_ns = hb_now_ns()
 *   before plane->start, if a     hvd__op_time(op): asks the plane to set
 *   request of it is timed        op->trace.agreed_ns and op->trace.late_rank
 *   a request is done             hvd__stats_request(s, &sample)
 *   elsewhere                     hvd__stats_count(&s->cuts, 1) and so on
 *   hvd_stats                     hvd__stats_sum(s, &sum) for each set
 *   set removed                   hvd__stats_move(&hvd__context.removed, s), no
 *                                 driver
 *   hvd_init                      hvd__stats_open(size) if HVD_STATS is set
 *   hvd_shutdown, and at exit     if hvd__stats_wanted(): the sum of all sets
 *                                 to hvd__stats_report, and that to
 *                                 hvd__agent_say; hvd__stats_close()
 */
#ifndef HVD_TRACE_STATS_H
#define HVD_TRACE_STATS_H

#include "lib/protocol/status.h"
#include "lib/protocol/worker_stats.h"
#include "runtime/plane/op.h"

#include <stdatomic.h>

enum {
    STATS_SAMPLE = 16,
    STATS_SMALL_BYTES = 16 << 10, /* below: sampled */
    /* If a set has timed no operation for this long, it times the next one. */
    STATS_RARE_NS = 20000000,
};

/* Whether an operation is timed.  HVD__TIMED: because it is large or rare; it
 * counts once.  HVD__SAMPLED: by chance; it also represents operations that
 * were not timed. */
enum hvd__timing { HVD__UNTIMED, HVD__TIMED, HVD__SAMPLED };

struct hvd__stats_times {
    _Atomic uint64_t count, time_ns, wait_ns;
};

struct hvd__stats_row {
    _Atomic uint64_t count, bytes;
    struct hvd__stats_times timed, sampled;
    uint64_t represented; /* operations for which the samples stand; the
                             driver's */
};

struct hvd__stats {
    struct hvd__stats_row rows[HVD_STATS_KINDS][HVD_STATS_CLASSES];
    _Atomic uint64_t operations, fused, learned, guessed, cuts, negotiations,
        errors;
    const int *ranks; /* borrowed: [n]: world ranks of the members */
    int n;
    uint32_t dice;
    uint64_t timed_ns; /* when an operation was last timed */
};

/* Sets all counters to 0.  ranks: borrowed. */
void hvd__stats_init(struct hvd__stats *s, const int *ranks, int n);

static inline void hvd__stats_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* There is one driver at a time, and the next one has synchronised with the
     * last. */
    status_add(counter, more);
}

/* Decides whether a blocking operation of that size is timed.  now_ns: the time
 * of the call, always by the same clock, which may be coarse.  The set's driver
 * calls this. */
static inline enum hvd__timing
hvd__stats_timing(struct hvd__stats *s, uint64_t bytes, uint64_t now_ns)
{
    if (bytes >= STATS_SMALL_BYTES || now_ns - s->timed_ns > STATS_RARE_NS) {
        s->timed_ns = now_ns;
        return HVD__TIMED;
    }
    /* A linear congruential generator; its upper bits are random enough. */
    s->dice = s->dice * 1664525u + 1013904223u;
    return s->dice >> 24 < 256 / STATS_SAMPLE ? HVD__SAMPLED : HVD__UNTIMED;
}

struct hvd__stats_sample {
    enum hvd__kind kind;
    uint64_t bytes;
    uint64_t issued_ns; /* 0: not timed, and all below is unset */
    uint64_t agreed_ns; /* less than issued_ns: unknown */
    uint64_t done_ns;
    int late_rank; /* the last member to come; -1: unknown */
    enum hvd__timing timing;
};

/* Counts a completed request, unless it is a join.  Returns how long this rank
 * has waited for others: in this request and, as only some requests are timed,
 * in the untimed ones that it represents. */
uint64_t hvd__stats_request(struct hvd__stats *s,
                            const struct hvd__stats_sample *sample);

/* Returns the size class: 0 below 2^6 bytes, then one for each factor of
 * 2^4. */
static inline int hvd__stats_class(uint64_t bytes)
{
    int class = bytes < 64 ? 0 : (63 - __builtin_clzll(bytes) - 6) / 4 + 1;

    return class < HVD_STATS_CLASSES ? class : HVD_STATS_CLASSES - 1;
}

/* Counts as hvd__stats_request, for a request that was not timed and is no
 * join. */
static inline void hvd__stats_untimed(struct hvd__stats *s, enum hvd__kind kind,
                                      uint64_t bytes)
{
    struct hvd__stats_row *row = &s->rows[kind][hvd__stats_class(bytes)];

    hvd__stats_count(&row->count, 1);
    hvd__stats_count(&row->bytes, bytes);
}

/* Adds the counters to *sum, which the caller zeroes first.  Any thread. */
void hvd__stats_sum(const struct hvd__stats *s, struct hvd_stats *sum);

/* Moves all counters of `from` to `to`; neither may have a driver. */
void hvd__stats_move(struct hvd__stats *to, struct hvd__stats *from);

/* ---- For hvdrun --stats ------------------------------------------------ */

/* Starts counting, in addition, how long each of the world's n ranks was waited
 * for.  Returns 0 or -HVD_ENOMEM. */
int hvd__stats_open(int n);
void hvd__stats_close(void); /* no driver; idempotent */
int hvd__stats_wanted(void);

/* Fills in the report that the agent gets. */
void hvd__stats_report(const struct hvd_stats *sum, struct worker_stats *out);

#endif
