/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages about generations, in elastic jobs only.
 *
 * A generation is the world between two changes of its members.  hvdrun alone
 * makes generations, numbered from 1.  Its members are ranks of the plan: a
 * process keeps that number from its start to its end.  libhvd numbers the
 * members of a generation anew, in the order of their ranks in the plan.
 *
 *     agent  -> READY       a rank waits in hvd_init or hvd_sync; with ready 0:
 *                           it has called hvd_shutdown
 *     hvdrun -> GENERATION  to each host with a member: all ranks that have to
 *                           be there are ready
 *     hvdrun -> CHANGE      ranks that are no members of the generation are
 *                           ready, too
 *
 * The death of a member is told by EXITED and ABORT as in other jobs.  It ends
 * the generation: each of the other members gets an error from its next
 * operation, and is then READY for the next generation.
 */
#ifndef HVD_PROTOCOL_CONTROL_GENERATION_H
#define HVD_PROTOCOL_CONTROL_GENERATION_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { CONTROL_WHY_MAX = 256 }; /* bytes of a text, with its final 0 */

struct control_generation {
    uint32_t number; /* from 1; each is greater than the one before */
    uint32_t joined; /* members that were in no generation before */
    int *ranks;      /* of the plan, ascending */
    int count;       /* at least 1 */
    /* Why the generation before ended, or "": one line. */
    char why[CONTROL_WHY_MAX];
};

/* Encodes and decodes as control.h says. */
int control_encode_ready(struct hb_buf *out, int rank, int ready);
int control_decode_ready(const void *p, size_t len, int *rank, int *ready,
                         struct hb_error *err);
int control_encode_generation(struct hb_buf *out,
                              const struct control_generation *m);
int control_decode_generation(const void *p, size_t len,
                              struct control_generation *m,
                              struct hb_error *err);
void control_generation_fini(struct control_generation *m);

#endif
