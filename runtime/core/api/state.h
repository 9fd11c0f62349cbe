/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state: the memory that makes up where a training stands, for hvd_sync
 * (elastic.c).  This module does not communicate.
 */
#ifndef HVD_CORE_STATE_H
#define HVD_CORE_STATE_H

#include "runtime/core/api/shards.h"
#include "runtime/hvd.h"

struct hvd__state_block {
    char name[HVD_STATE_NAME_MAX];
    unsigned char *p;
    size_t bytes;
    unsigned flags;
    /* [bytes], with HVD_STATE_SNAPSHOT, and in a state with sharded memory; but
     * NULL with HVD_STATE_SHARDED, and else. */
    unsigned char *copy;
};

/* Whether a state may be given to other ranks, worst first. */
enum hvd__state_whole {
    HVD__STATE_IN_PART, /* a rank died while it gave out its own */
    HVD__STATE_NEW,     /* the program's start values */
    HVD__STATE_SYNCED,  /* its contents are those of the job */
};

struct hvd_state {
    struct hvd__state_block *blocks;
    size_t count, cap;
    enum hvd__state_whole whole;
    int is_restored;  /* they are those of `version` again */
    uint64_t version; /* commits so far */
    /* The world in which it was last the same on all ranks, and how many
     * operations that had carried out by then. */
    uint32_t epoch;
    uint64_t done;
    struct hvd__shards shards;
};

/* What ranks compare: how far a state has got.  A later one is greater, by the
 * members in this order. */
struct hvd__state_age {
    uint64_t layout; /* equal for equal names, sizes and flags; not ordered */
    uint64_t whole, version;
    uint64_t progress; /* operations since the version */
};

/* Computes the age of a state; s NULL: that of a rank without one.  `epoch` and
 * `done` are those of the world now. */
struct hvd__state_age hvd__state_age(const struct hvd_state *s, uint32_t epoch,
                                     uint64_t done);
/* Compares two ages: negative, 0 or positive. */
int hvd__state_compare(const struct hvd__state_age *a,
                       const struct hvd__state_age *b);
/* Copies all memory that is not sharded into its copies, or back, if it has
 * any. */
void hvd__state_keep(struct hvd_state *s);
void hvd__state_rewind(struct hvd_state *s);
/* Resets the state to one for which hvd_sync was never called; the memory keeps
 * its contents. */
void hvd__state_forget(struct hvd_state *s);
/* Notes that the state is the same on all ranks, and keeps it. */
void hvd__state_settle(struct hvd_state *s, uint64_t version, uint32_t epoch,
                       uint64_t done);

#endif
