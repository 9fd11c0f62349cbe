/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreeing on what comes next when the ranks of a set proposed different
 * things: every rank tells all others what it waits for, and all draw the
 * same conclusion.  Pure: no plane, no clock, no threads.
 *
 * A table is what one rank tells: its pending requests, oldest first, and
 * whether it has joined.  Tables come from other processes and are checked.
 *
 * Requests match by name, those without one by how many of them were
 * carried out before.  What all ranks that have not joined wait for is
 * agreed, ordered by priority, then by the lowest such rank's order; if its
 * descriptors differ it is an error instead, of all ranks.
 */
#ifndef HVD_CORE_NEGOTIATE_H
#define HVD_CORE_NEGOTIATE_H

#include "lib/base/buf.h"
#include "runtime/core/request.h"

#include <stddef.h>
#include <stdint.h>

/* Of a table, unless ranks have nothing in common in so many. */
enum { HVD__TABLE_RECORDS = 4096 };

struct hvd__record {
    struct hvd__descriptor d;
    uint64_t index; /* of those without a name */
    uint64_t signature;
    int32_t priority;
    /* of the members of a group: d.parts times u64 count, u64 row_elems,
     * big-endian, in the table */
    const void *counts;
    uint64_t place;      /* in the lowest rank's table */
    struct hb_error err; /* set: it fails so on all ranks */
};

struct hvd__table {
    int joined, is_cut; /* is_cut: more is pending */
    size_t count;
    struct hvd__record *records;
};

struct hvd__agreement {
    struct hvd__record *records; /* in the order to carry them out */
    size_t count;
    int joined;               /* ranks that have */
    int is_cut;               /* a rank did not tell everything */
    unsigned char *is_joined; /* [n] */
};

/* Writes this rank's table, of at most records_max requests: 0 or
 * -HVD_ENOMEM.  unnamed_done: how many without a name were carried out, or
 * failed by agreement. */
int hvd__table_write(struct hb_buf *out, struct hvd_request *queue,
                     uint64_t unnamed_done, uint32_t records_max);

struct hvd__tables {
    const unsigned char *bytes; /* all ranks', one after the other */
    const uint64_t *lens;       /* [n] */
    int n;
    const int *ranks; /* [n]: of the world, for messages */
    /* The name of a rank's host, for messages; NULL: all are on one. */
    const char *(*host_of)(void *arg, uint32_t rank);
    void *host_arg;
};

/* What follows of all ranks' tables.  0, -HVD_ENOMEM, -HVD_EPROTO for a
 * malformed table (err names the rank); counts point into the tables. */
int hvd__agree(const struct hvd__tables *t, struct hvd__agreement *out,
               struct hb_error *err);
void hvd__agreement_fini(struct hvd__agreement *a); /* idempotent */

#endif
