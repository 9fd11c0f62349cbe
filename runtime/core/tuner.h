/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Autotuning of the world's fusion and, between hosts, of where its TCP
 * algorithms take over from each other: HVD_AUTOTUNE, hvd-env(7).
 *
 * All ranks carry out the same operations in the same order, so they count
 * alike, without messages.  The first allreduce that is carried out is the
 * marker; from one to the next is a step (of allreduces without a name, so
 * many are one).  After the steps of a sample an operation of the tuner's
 * own comes first, the same on all ranks: an allgather of messages, of which
 * rank 0's counts.  It says what to use from here on, and for how many
 * steps.  So settings change at the same operation on all ranks.  One step
 * passes before the clock, which is rank 0's, starts again.
 *
 * The first such operation comes before all others.  If the knob is not set
 * on all ranks, that is where they differ, and they negotiate; then nothing
 * is tuned.  When the marker is not seen any more, the defaults are kept.
 *
 * What the controller does (NULL: not tuned):
 *   before it begins an operation, and for hvd__controller_free:
 *     hvd__tuner_due      then the allgather of hvd__tuner_offer's
 *                         HVD__TUNER_BYTES into t->all, and as it ends
 *                         hvd__tuner_agreed, or hvd__tuner_denied when ranks
 *                         differ; then `now` holds what to use
 *   for each request that was carried out:
 *     hvd__tuner_count
 *
 * The driver's, but open and close.
 */
#ifndef HVD_CORE_TUNER_H
#define HVD_CORE_TUNER_H

#include "lib/base/log.h"
#include "runtime/core/autotune.h"
#include "runtime/core/plan.h"
#include "runtime/plane/tcp.h"

enum {
    HVD__TUNER_BYTES = 32,     /* of a message */
    HVD__TUNER_UNNAMED = 64,   /* allreduces without a name that are a step */
    HVD__TUNER_LOST = 1 << 16, /* allreduces without a marker */
};

/* What is tuned. */
struct hvd__tuning {
    uint64_t fusion_bytes, fusion_part_bytes;
    uint32_t tcp_percent; /* of the measured alpha */
};

struct hvd__tuner_config {
    int n, me; /* of the world */
    struct hvd__tuning defaults;
    int fusion_pinned;    /* the user said fusion_bytes */
    struct hvd__tcp *tcp; /* NULL: none; borrowed until close */
    const struct hb_log *log;
};

struct hvd__tuner {
    struct hvd__tuner_config config;
    struct hvd__tuning now;
    int due, over;
    uint32_t steps;                  /* of this sample */
    const struct hvd__entry *marker; /* NULL: none yet */
    uint32_t marks;   /* seen with the present setting, the first one too */
    uint32_t unnamed; /* since the last mark */
    uint32_t since;   /* allreduces since then */
    uint64_t bytes;   /* of these */
    unsigned char offer[HVD__TUNER_BYTES];
    unsigned char *all; /* [n * HVD__TUNER_BYTES] */

    /* rank 0's */
    struct hvd__autotune search;
    uint64_t values[HVD__AUTOTUNE_AXES][HVD__AUTOTUNE_PLACES];
    uint64_t mark_ns;
    int laid_out;    /* the values of fusion_bytes */
    int log_fd;      /* -1: none */
    int rows;        /* of it */
    int told;        /* the last one is there */
    int log_errno;   /* why one is missing; 0 */
    double alpha_us; /* every rank's: of tcp, as measured */
};

/* Whether HVD_AUTOTUNE asks for one: 1, 0, or -HVD_EINVAL with err set. */
int hvd__tuner_wanted(struct hb_error *err);

/* 0, or -HVD_EINVAL, -HVD_ENOMEM, or what kept the log from being opened,
 * with err set; then there is nothing to close. */
int hvd__tuner_open(struct hvd__tuner *t, const struct hvd__tuner_config *c,
                    struct hb_error *err);
/* Writes the log's last line.  Idempotent. */
void hvd__tuner_close(struct hvd__tuner *t);

static inline int hvd__tuner_due(const struct hvd__tuner *t)
{
    return t && t->due;
}
const void *hvd__tuner_offer(struct hvd__tuner *t);
void hvd__tuner_agreed(struct hvd__tuner *t);
void hvd__tuner_denied(struct hvd__tuner *t);

void hvd__tuner_allreduced(struct hvd__tuner *t, const struct hvd__entry *e,
                           int is_named, uint64_t bytes);

/* op is the request's, not what carried it; e is of plan. */
static inline void hvd__tuner_count(struct hvd__tuner *t,
                                    const struct hvd__plan *plan,
                                    const struct hvd__entry *e,
                                    const struct hvd__op *op)
{
    if (t && !t->over && op->kind == HVD__ALLREDUCE)
        hvd__tuner_allreduced(t, e, e != &plan->unnamed,
                              op->count * op->elem_bytes);
}

#endif
