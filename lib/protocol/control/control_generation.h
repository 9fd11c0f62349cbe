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
 *     agent  -> GOING       its host will go away: u32 ms until then, text
 *     hvdrun -> NOTICE      a rank is to leave, and is killed after some time:
 *                           hvd_notice tells it
 *     hvdrun -> CHANGE      ranks that are no members of the generation are
 *                           ready, too, or members are to leave it
 *     hvdrun -> REMOVED     a rank is in no generation any more, as was asked:
 *                           it is told when it is ready, and exits
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

enum {
    CONTROL_WHY_MAX = 256, /* bytes of a text, with its final 0 */
    CONTROL_LEFT_MAX_MS = 86400000,
};

/* Time that is not limited, in NOTICE and GOING. */
#define CONTROL_LEFT_ANY UINT32_MAX

struct control_generation {
    uint32_t number; /* from 1; each is greater than the one before */
    uint32_t joined; /* members that were in no generation before */
    /* members of the generation before that were removed from it */
    uint32_t removed;
    int *ranks; /* of the plan, ascending */
    int count;  /* at least 1 */
    /* Why the generation before ended, or "": one line. */
    char why[CONTROL_WHY_MAX];
};

/* Encodes and decodes as control.h says. */
int control_encode_ready(struct hb_buf *out, int rank, int ready);
int control_decode_ready(const void *p, size_t len, int *rank, int *ready,
                         struct hb_error *err);
/* Encodes and decodes a time of at most CONTROL_LEFT_MAX_MS, or
 * CONTROL_LEFT_ANY. */
int control_encode_notice(struct hb_buf *out, int rank, uint32_t left_ms);
int control_decode_notice(const void *p, size_t len, int *rank,
                          uint32_t *left_ms, struct hb_error *err);
int control_encode_going(struct hb_buf *out, uint32_t left_ms, const char *why);
int control_decode_going(const void *p, size_t len, uint32_t *left_ms,
                         char why[CONTROL_WHY_MAX], struct hb_error *err);
int control_encode_generation(struct hb_buf *out,
                              const struct control_generation *m);
int control_decode_generation(const void *p, size_t len,
                              struct control_generation *m,
                              struct hb_error *err);
void control_generation_fini(struct control_generation *m);

#endif
