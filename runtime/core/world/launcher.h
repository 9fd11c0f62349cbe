/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment tells about an MPI launcher, before MPI is asked; and a
 * roll call of this host's ranks, which lets the message about a start that
 * timed out name the missing ones.
 */
#ifndef HVD_CORE_LAUNCHER_H
#define HVD_CORE_LAUNCHER_H

#include "lib/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct hvd__launcher {
    const char *variable; /* by which it is recognised; NULL: no launcher */
    int64_t value;        /* of that variable */
    int64_t size;         /* processes it started; 0: unknown */
    int64_t rank;         /* -1: unknown */
    int64_t local_size;   /* on this host; 0: unknown */
};

/* Reads the environment into *l.  Returns 1 if a launcher started this process
 * as one of several, or may have; 2 if only MPI knows, if there is one; 0 if
 * not; -HVD_EINVAL with err set if srun started several without MPI. */
int hvd__launcher_read(struct hvd__launcher *l, struct hb_error *err);

/* Returns whether the launcher says that it started other processes too. */
int hvd__launcher_several(const struct hvd__launcher *l);

struct hvd__roll {
    int fd;              /* -1: closed */
    unsigned char *came; /* [size of the launcher] */
    const struct hvd__launcher *launcher;
};

/* Starts the roll call: tells the ranks of this host that this one has come.
 * Best effort: failures are ignored.  *l must last until close. */
void hvd__roll_open(struct hvd__roll *r, const struct hvd__launcher *l);
/* Writes "2 of 3 ranks have come to hvd_init, missing: 1", or as much of that
 * as is known. */
void hvd__roll_text(struct hvd__roll *r, char *text, size_t size);
void hvd__roll_close(struct hvd__roll *r); /* idempotent */

#endif
