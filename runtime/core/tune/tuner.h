/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Autotuning (HVD_AUTOTUNE, hvd-env(7)) of how the world fuses and, between
 * hosts, of the sizes at which its TCP algorithms take over from each other.
 *
 * All ranks carry out the same operations in the same order, so they count
 * alike, without messages.  The first allreduce carried out is the marker; a
 * step lasts from one marker to the next (HVD__TUNER_UNNAMED of them, if the
 * marker has no name).  After the steps of a sample comes an operation of the
 * tuner's own: an allgather in which rank 0's message tells which settings to
 * use from here on, and for how many steps.  So settings change at the same
 * operation on all ranks.  One step passes before rank 0 starts its clock
 * again.
 *
 * The first such operation comes before all others.  If HVD_AUTOTUNE is not set
 * on all ranks, they differ in it and negotiate; then nothing is tuned.  If the
 * marker does not come again, the defaults are kept.
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
 * Called by the driver, except open and close.
 */
#ifndef HVD_CORE_TUNER_H
#define HVD_CORE_TUNER_H

#include "lib/base/log.h"
#include "runtime/core/tune/autotune.h"
#include "runtime/plane/tcp/tcp.h"

enum {
    HVD__TUNER_BYTES = 32,     /* length of a message */
    HVD__TUNER_UNNAMED = 64,   /* allreduces without a name in a step */
    HVD__TUNER_LOST = 1 << 16, /* allreduces after which the marker is lost */
};

/* What is tuned. */
struct hvd__tuning {
    uint64_t fusion_bytes, fusion_part_bytes;
    uint32_t tcp_percent; /* percent of the measured alpha */
};

struct hvd__entry; /* of the plan (sched/plan.h); identifies a tensor */

struct hvd__tuner_config {
    int n, me; /* size of the world; this rank */
    struct hvd__tuning defaults;
    int fusion_pinned;    /* the user has set fusion_bytes */
    struct hvd__tcp *tcp; /* NULL: none; borrowed until close */
    const struct hb_log *log;
};

struct hvd__tuner {
    struct hvd__tuner_config config;
    struct hvd__tuning now;
    int due, finished;
    uint32_t steps;                  /* length of the current sample */
    const struct hvd__entry *marker; /* NULL: none yet */
    uint32_t marks;   /* markers with the current settings, the first too */
    uint32_t unnamed; /* unnamed markers in this step */
    uint32_t since;   /* allreduces in this step */
    uint64_t bytes;   /* bytes that they moved */
    unsigned char offer[HVD__TUNER_BYTES];
    unsigned char *all; /* [n * HVD__TUNER_BYTES] */

    /* rank 0's */
    struct hvd__autotune search;
    uint64_t values[HVD__AUTOTUNE_AXES][HVD__AUTOTUNE_PLACES];
    uint64_t mark_ns;
    int laid_out;     /* the axis of fusion_bytes has its values */
    int log_fd;       /* -1: none */
    int rows;         /* rows written */
    int best_written; /* the last row was written */
    int log_errno;    /* why rows are missing; 0: none are */
    double alpha_us;  /* on every rank: of tcp, as measured */
};

/* Reads HVD_AUTOTUNE: 1, 0, or -HVD_EINVAL with err set. */
int hvd__tuner_wanted(struct hb_error *err);

/* Opens *t and, on rank 0, the search and its log.  Returns 0, or with err set
 * and nothing to close: -HVD_EINVAL for a knob, -HVD_ENOMEM, or the failure to
 * open the log. */
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

/* Counts a request that was carried out.  op: the request's own, not the fused
 * one; e: its entry in the plan; is_named: that is not the one that operations
 * without a name share. */
static inline void hvd__tuner_count(struct hvd__tuner *t,
                                    const struct hvd__entry *e, int is_named,
                                    const struct hvd__op *op)
{
    if (t && !t->finished && op->kind == HVD__ALLREDUCE)
        hvd__tuner_allreduced(t, e, is_named, op->count * op->elem_bytes);
}

#endif
