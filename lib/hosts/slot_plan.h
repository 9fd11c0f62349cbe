/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slot plan: which rank runs on which host.  Pure.
 *
 * Map by slot: ranks are numbered host by host in list order, filling each host
 * before the next.  Map by node: one rank on each host in turn, so a host's
 * ranks are not consecutive.  local_rank counts within the host, cross_rank is
 * the host's index among the hosts that have that local rank, and cross_size
 * the number of these (Horovod's rule; it can differ between local ranks if
 * hosts have unequal counts).
 */
#ifndef HVD_HOSTS_PLAN_H
#define HVD_HOSTS_PLAN_H

#include "lib/hosts/hostlist.h"

enum {
    PLAN_RANKS_MAX = 65536,
    PLAN_LOCAL_MAX = 1024, /* ranks of one host */
};

struct plan_host {
    const struct host_entry *entry; /* borrowed from the hostlist */
    int index;
    int *ranks; /* by local rank, ascending */
    int count;
};

enum plan_map { PLAN_MAP_SLOT, PLAN_MAP_NODE };

struct plan_options {
    int num_proc; /* 0: one rank per slot */
    enum plan_map map;
    int npernode;      /* most ranks per host; 0: its slots */
    int oversubscribe; /* allow more ranks than slots */
};

struct plan_rank {
    int rank, local_rank, local_size, cross_rank, cross_size;
    int host; /* index into hosts */
};

struct plan {
    struct plan_rank *ranks;
    int size;
    struct plan_host *hosts; /* only hosts that have ranks */
    int host_count;
};

void plan_free(struct plan *p);

/* Makes the plan.  A host without a slot count has one slot.  0, or -HVD_EINVAL
 * for a negative num_proc, more ranks than slots (naming both numbers) or more
 * ranks than the limits above.  The hostlist must outlive the plan. */
int plan_make(const struct hostlist *l, const struct plan_options *o,
              struct plan *p, struct hb_error *err);

#endif
