/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says of an MPI launcher, before MPI is asked; and a roll
 * call of the ranks of this host that have come to hvd_init, for the message
 * that some have not.
 */
#ifndef HVD_CORE_LAUNCHER_H
#define HVD_CORE_LAUNCHER_H

#include "lib/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct hvd__launcher {
    const char *variable; /* that says it started this process, NULL: none */
    int64_t value;        /* of it */
    int64_t size;         /* processes it started, 0: it does not say */
    int64_t rank;         /* -1: it does not say */
    int64_t local_size;   /* on this host, 0: it does not say */
};

/* 1 if a launcher started this process as one of several, or may have; 0; or
 * -HVD_EINVAL with err set: srun started several, without MPI. */
int hvd__launcher_read(struct hvd__launcher *l, struct hb_error *err);

/* Whether it said that there are others. */
int hvd__launcher_several(const struct hvd__launcher *l);

struct hvd__roll {
    int fd;              /* -1: closed */
    unsigned char *came; /* [size of the launcher] */
    const struct hvd__launcher *launcher;
};

/* Tells the ranks of this host that this one has come; what cannot be told or
 * known is left out.  The launcher must last until close. */
void hvd__roll_open(struct hvd__roll *r, const struct hvd__launcher *l);
/* "2 of 3 ranks have come to hvd_init, missing: 1", or as much as is known. */
void hvd__roll_text(struct hvd__roll *r, char *text, size_t size);
void hvd__roll_close(struct hvd__roll *r); /* idempotent */

#endif
