/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a joined rank in the operations of the others: an operation made
 * from another rank's record (negotiate.h), whose inputs are the identity
 * element of the reduction, or empty, and whose results are thrown away.
 */
#ifndef HVD_CORE_JOIN_H
#define HVD_CORE_JOIN_H

#include "runtime/core/sched/negotiate.h"

struct hvd__entry;

struct hvd__stand_in {
    struct hvd__op op;
    struct hvd__op *members; /* of a group that is no allreduce */
    size_t member_count;
    uint64_t signature;
    struct hvd__entry *entry; /* set and used by the caller */
    struct hvd__part *parts;
    size_t *zeros; /* [ranks] */
    void *memory;  /* inputs and results */
    size_t memory_bytes;
};

/* Makes in *s, which is allocated if NULL, the operation that `rec` describes,
 * for a set of n ranks.  Returns 0, or with err set:
 *   -HVD_ENOMEM  no memory, or more is needed than this host has
 *   -HVD_EPROTO  the record is malformed */
int hvd__stand_in_make(struct hvd__stand_in **s, const struct hvd__record *rec,
                       int n, struct hb_error *err);
void hvd__stand_in_free(struct hvd__stand_in *s); /* NULL is fine */

#endif
