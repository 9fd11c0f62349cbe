/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of one process set: what hvd_stats() tells.
 *
 * The driver alone counts, with relaxed stores and no read-modify-write;
 * any thread may read meanwhile, and sees each number whole.
 *
 * Reading the clock is a tenth of a small operation, so of those that are
 * small and blocking only one in STATS_SAMPLE, picked at random, is timed;
 * the times of a row are scaled up from those.
 *
 * What the engine calls:
 *
 *   hvd__engine_run, at first     if (hvd__stats_timed(s, bytes))
 *                                     req->issued_ns = hb_now_ns();
 *   an asynchronous submit        req->issued_ns = hb_now_ns();
 *   before plane->start, if a     hvd__op_time(op): asks the plane to set
 *   request of it is timed        op->agreed_ns and op->late_rank
 *   run_over, of each request     hvd__stats_request(s, &sample)
 *   elsewhere                     hvd__stats_count(&s->cuts, 1) and so on
 *   hvd_stats                     hvd__stats_sum(s, &sum) for each set
 *   set removed                   hvd__stats_move(&hvd__removed_stats, s), no
 *                                 driver
 *   hvd_init                      hvd__stats_open(size) if HVD_STATS is set
 *   hvd_shutdown, and at exit     if hvd__stats_wanted(): the sum of all sets
 *                                 to hvd__stats_report, and that to
 *                                 hvd__agent_stats; hvd__stats_close()
 */
#ifndef HVD_TRACE_STATS_H
#define HVD_TRACE_STATS_H

#include "lib/protocol/worker_stats.h"
#include "runtime/plane/op.h"

#include <stdatomic.h>

enum {
    STATS_SAMPLE = 16,
    STATS_SMALL_BYTES = 16 << 10, /* below: sampled */
};

struct hvd__stats_row {
    _Atomic uint64_t count, bytes;
    _Atomic uint64_t timed; /* of count: those in the times */
    _Atomic uint64_t time_ns, wait_ns;
};

struct hvd__stats {
    struct hvd__stats_row rows[HVD_STATS_KINDS][HVD_STATS_CLASSES];
    _Atomic uint64_t operations, fused, learned, guessed, cuts, negotiations,
        errors;
    const int *ranks; /* borrowed: [n], of the world, by rank of the set */
    int n;
    uint32_t dice;
};

/* Begins at 0. */
void hvd__stats_init(struct hvd__stats *s, const int *ranks, int n);

static inline void hvd__stats_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* Relaxed, and not one instruction: there is one driver, and who becomes
     * the next one has synchronised with the last. */
    atomic_store_explicit(
        counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
        memory_order_relaxed);
}

/* Whether a blocking operation of so many bytes is to be timed.  The
 * driver's. */
static inline int hvd__stats_timed(struct hvd__stats *s, uint64_t bytes)
{
    if (bytes >= STATS_SMALL_BYTES)
        return 1;
    /* A linear congruence; its upper bits are random enough. */
    s->dice = s->dice * 1664525u + 1013904223u;
    return s->dice >> 24 < 256 / STATS_SAMPLE;
}

struct hvd__stats_sample {
    enum hvd__kind kind;
    uint64_t bytes;
    uint64_t issued_ns; /* 0: not timed; the next two mean nothing */
    uint64_t agreed_ns; /* below issued_ns: not known */
    uint64_t done_ns;
    int late_rank; /* of the set: who was waited for; -1: not known */
};

/* A request is done.  Joins are not counted. */
void hvd__stats_request(struct hvd__stats *s,
                        const struct hvd__stats_sample *sample);

/* 0 .. HVD_STATS_CLASSES - 1: below 2^6, and then by 2^4. */
static inline int hvd__stats_class(uint64_t bytes)
{
    int class = bytes < 64 ? 0 : (63 - __builtin_clzll(bytes) - 6) / 4 + 1;

    return class < HVD_STATS_CLASSES ? class : HVD_STATS_CLASSES - 1;
}

/* The same for one that was not timed, and is no join. */
static inline void hvd__stats_untimed(struct hvd__stats *s, enum hvd__kind kind,
                                      uint64_t bytes)
{
    struct hvd__stats_row *row = &s->rows[kind][hvd__stats_class(bytes)];

    hvd__stats_count(&row->count, 1);
    hvd__stats_count(&row->bytes, bytes);
}

/* Adds to *sum, which begins as zeros.  Any thread. */
void hvd__stats_sum(const struct hvd__stats *s, struct hvd_stats *sum);

/* Adds all of a set's to another's, while neither has a driver. */
void hvd__stats_move(struct hvd__stats *to, struct hvd__stats *from);

/* ---- For hvdrun --stats ------------------------------------------------ */

/* From now on counts, too, who was waited for: of a world of n ranks.  0 or
 * -HVD_ENOMEM. */
int hvd__stats_open(int n);
void hvd__stats_close(void); /* no driver; idempotent */
int hvd__stats_wanted(void);

/* What the agent gets. */
void hvd__stats_report(const struct hvd_stats *sum, struct worker_stats *out);

#endif
