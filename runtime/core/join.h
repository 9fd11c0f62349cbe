/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank that has joined does in the operations of the others: an
 * operation made of another rank's record (negotiate.h), whose inputs
 * change nothing and whose results are thrown away.
 */
#ifndef HVD_CORE_JOIN_H
#define HVD_CORE_JOIN_H

#include "runtime/core/negotiate.h"

struct hvd__entry;

struct hvd__stand_in {
    struct hvd__op op;
    struct hvd__op *members; /* of a group that is no allreduce */
    size_t member_count;
    uint64_t signature;
    struct hvd__entry *entry; /* the caller's */
    struct hvd__part *parts;
    size_t *zeros; /* [ranks] */
    void *memory;  /* inputs and results */
    size_t memory_bytes;
};

/* Makes *s if it is NULL, and in it the operation for a set of n ranks.  0,
 * -HVD_ENOMEM, or -HVD_EPROTO for a record that makes no sense. */
int hvd__stand_in_make(struct hvd__stand_in **s, const struct hvd__record *rec,
                       int n, struct hb_error *err);
void hvd__stand_in_free(struct hvd__stand_in *s); /* NULL is fine */

#endif
