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
    /* The allocation that the hosts are, "Slurm job 17"; NULL: none. */
    const char *allocation;
};

struct plan_rank {
    int rank, local_rank, local_size, cross_rank, cross_size;
    int host;     /* index into hosts */
    int is_bound; /* the number belongs to that host; else it did, or to none */
    int is_idle;  /* no rank with that number was started */
};

struct plan {
    struct plan_rank *ranks;
    int size;
    struct plan_host *hosts; /* only hosts that have ranks */
    int host_count;
    int np;       /* ranks to start at first: those below np */
    int host_cap; /* length of hosts */
};

void plan_free(struct plan *p);

/* Makes the plan.  A host without a slot count has one slot.  0, or -HVD_EINVAL
 * for a negative num_proc, more ranks than slots (naming both numbers) or more
 * ranks than the limits above.  The hostlist must outlive the plan. */
int plan_make(const struct hostlist *l, const struct plan_options *o,
              struct plan *p, struct hb_error *err);

/* ---- Plans that grow: of jobs that get ranks and hosts while they run. ----
 *
 * Such a plan has spare numbers of ranks behind those that plan_make has given
 * out.  A host gets numbers once, for all ranks that it may ever have, and
 * keeps them as long as the job has an agent there. */

/* Makes room: the plan has `size` numbers and up to `host_cap` hosts from now
 * on; neither less than before.  Running out of memory ends the program. */
void plan_reserve(struct plan *p, int size, int host_cap);
/* Adds a host without ranks.  Returns its index, or -1 if there is no room. */
int plan_add_host(struct plan *p, const struct host_entry *entry);
/* Gives the host, which has no agent, the lowest free numbers until it has
 * `count`, or none is free.  Returns how many it has now.  local_size of the
 * new ranks is `local_size`. */
int plan_bind(struct plan *p, int host, int count, int local_size);
/* Frees the host's numbers. */
void plan_unbind(struct plan *p, int host);
/* Frees its numbers, and replaces it by another host. */
void plan_replace_host(struct plan *p, int host,
                       const struct host_entry *entry);

#endif
