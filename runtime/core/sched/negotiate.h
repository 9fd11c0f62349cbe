/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agrees on what comes next after the ranks of a set proposed different things:
 * every rank sends all others a table of what it waits for, and all draw the
 * same conclusion.  Pure: no plane, no clock, no threads.
 *
 * A table holds one rank's pending requests, oldest first, and whether the rank
 * has joined.  Tables come from other processes, so they are checked.
 *
 * Requests with the same name match; those without a name match by number, the
 * count of such requests carried out before.  A request pending on all ranks
 * that have not joined is agreed on.  Agreed requests are ordered by priority,
 * then as in the table of the lowest such rank.  If the ranks' descriptors of a
 * request differ, the request fails on all ranks.
 */
#ifndef HVD_CORE_NEGOTIATE_H
#define HVD_CORE_NEGOTIATE_H

#include "lib/base/buf.h"
#include "runtime/core/sched/request.h"

#include <stddef.h>
#include <stdint.h>

/* Requests in a table; doubled while the ranks' tables have none in common. */
enum { HVD__TABLE_RECORDS = 4096 };
/* The limit of a table's size, for sending and receiving. */
enum { HVD__TABLE_BYTES_MAX = 256 << 20 };

struct hvd__record {
    struct hvd__descriptor d;
    uint64_t index; /* number, of a request without a name */
    uint64_t signature;
    int32_t priority;
    /* members of a group: d.parts times u64 count, u64 row_elems, big-endian;
     * points into the table */
    const void *counts;
    const void *shapes;  /* shapes.h; in the table, or NULL */
    uint64_t order;      /* order in the lowest rank's table */
    struct hb_error err; /* set: the request fails so on all ranks */
};

struct hvd__table {
    int joined, is_cut; /* is_cut: not all requests are listed */
    size_t count;
    struct hvd__record *records;
};

struct hvd__agreement {
    struct hvd__record *records; /* in the order to carry them out */
    size_t count;
    int joined;               /* number of joined ranks */
    int is_cut;               /* a rank's table was cut */
    unsigned char *is_joined; /* [n] */
};

/* Writes this rank's table of at most records_max requests.  unnamed_done: how
 * many requests without a name were carried out, or failed by agreement.
 * Returns:
 *   0
 *   -HVD_ENOMEM
 *   -HVD_EINVAL  the table would exceed HVD__TABLE_BYTES_MAX */
int hvd__table_write(struct hb_buf *out, struct hvd_request *queue,
                     uint64_t unnamed_done, uint32_t records_max);

/* Adds up the lengths of n ranks' tables, as announced by the ranks.  ranks:
 * their world ranks, for messages.  Returns 0, or -HVD_EPROTO with err naming a
 * rank whose length no table can have. */
int hvd__tables_sum(const uint64_t *lens, int n, const int *ranks, size_t *sum,
                    struct hb_error *err);

struct hvd__tables {
    const unsigned char *bytes; /* all tables, one after the other */
    const uint64_t *lens;       /* [n], as hvd__tables_sum accepts them */
    int n;
    uint32_t records_max; /* limit that ranks kept to; 0: unknown */
    const int *ranks;     /* [n]: world ranks, for messages */
    /* The name of a rank's host, for messages; NULL: all on one host. */
    const char *(*host_of)(void *arg, uint32_t rank);
    void *host_arg;
};

/* Draws the conclusion from all ranks' tables; the records' counts point into
 * the tables.  Returns 0, -HVD_ENOMEM, or -HVD_EPROTO for a malformed table,
 * err naming the rank. */
int hvd__agree(const struct hvd__tables *t, struct hvd__agreement *out,
               struct hb_error *err);
void hvd__agreement_fini(struct hvd__agreement *a); /* idempotent */

enum { HVD__TABLES_PENDING = 1, HVD__TABLES_JOINED = 2 };

/* Finds who waits for the oldest request of member `me`: sets has[r], of n, to
 * one of these if member r has it pending or has joined, else to 0.  *other:
 * the oldest request of the first member that has not; its kind is HVD__JOIN if
 * there is no such member, or it waits for nothing.  Returns 0, or negative if
 * there is no memory, a table is malformed, or `me` waits for nothing. */
int hvd__tables_find(const struct hvd__tables *t, int me, unsigned char *has,
                     struct hvd__descriptor *other);

#endif
