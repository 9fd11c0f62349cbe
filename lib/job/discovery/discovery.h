/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which hosts a discovery script or a watched hostfile offers; see discoverer.h
 * for how it is asked.
 *
 * An answer has the syntax of a hostfile: a host in each line, as `host`,
 * `host:slots` or `host slots=n`, and `#` before a comment.  One malformed line
 * refuses the whole answer, and the last good one stays.  A host counts at
 * once, and counts no more when two good answers in a row do not have it.
 * Pure.
 */
#ifndef HVD_JOB_DISCOVERY_H
#define HVD_JOB_DISCOVERY_H

#include "lib/hosts/hostlist.h"

#include <stddef.h>

struct discovery {
    int slots;              /* of a host without a number of slots */
    struct hostlist hosts;  /* in the order of the last good answer */
    unsigned char *missing; /* [hosts.count]: not in the last answer */
};

void discovery_init(struct discovery *d, int slots);
void discovery_fini(struct discovery *d);

/* Sets the hosts to which the next answer is compared. */
void discovery_begin(struct discovery *d, const struct hostlist *hosts);

/* Takes an answer; `source` names it in errors.  Returns 1 if d->hosts has
 * changed, 0 if not, or negative with err set if the answer is refused. */
int discovery_take(struct discovery *d, const char *source, const char *text,
                   size_t len, struct hb_error *err);

/* Returns the number of slots of all hosts, at most INT_MAX. */
int discovery_slots(const struct discovery *d);

/* Makes *to, which is empty, a copy of the list. */
void discovery_copy(struct hostlist *to, const struct hostlist *from);

#endif
