/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks make up the world, and how libhvd numbers them.
 *
 * hvdrun and its agents number ranks as the plan does: a process keeps its
 * number as long as it lives.  libhvd numbers the members of the current
 * generation (control_generation.h) from 0, in the order of their ranks in the
 * plan.  In a job that is not elastic both numbers are the same, and the
 * members are all ranks of the plan.  Pure.
 */
#ifndef HVD_AGENT_ELASTIC_MEMBERS_H
#define HVD_AGENT_ELASTIC_MEMBERS_H

#include "lib/protocol/control/control.h"
#include "lib/protocol/worker.h"

struct members {
    const struct control_launch *job; /* borrowed */
    struct control_generation now;    /* number 0: none; then all is empty */
    int *hosts; /* [now.count]: index in the plan of each member's host */
    int *local; /* slots of the members on this host, ascending */
    int local_count;
};

/* Prepares for a job: all ranks of a job that is not elastic are members; an
 * elastic job has none until members_set. */
void members_init(struct members *m, const struct control_launch *job);
void members_fini(struct members *m);

/* Makes the ranks of `next` the members; takes over its array.  Returns 0, or
 * -HVD_EPROTO with err set and nothing changed if its number is not greater
 * than the last one, or a rank is none of the job. */
int members_set(struct members *m, struct control_generation *next,
                struct hb_error *err);

/* Returns libhvd's number of a rank of the plan, or -1 if that is no member. */
int members_world_rank(const struct members *m, int rank);
/* Returns the rank of the plan that has that number in libhvd, or -1. */
int members_plan_rank(const struct members *m, uint32_t world_rank);
/* Returns the place of `slot` among the members on this host, or -1. */
int members_place(const struct members *m, int slot);

/* Fills in what WELCOME tells the member in `slot` about ranks and hosts; host
 * names, domains, cpus and the secret are the caller's. */
void members_welcome(const struct members *m, int slot,
                     struct worker_welcome *w);
/* Stores the addresses of the hosts that have members, in the order in which
 * WELCOME numbers these hosts; borrowed from the job.  Returns how many:
 * 0 if the job has one host.  `addresses` has room for all hosts. */
size_t members_addresses(const struct members *m, char **addresses);

#endif
