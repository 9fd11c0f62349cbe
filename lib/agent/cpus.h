/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which CPUs this process may use, how they form cores and NUMA nodes,
 * which of them each local rank is bound to, and which ranks are then near
 * each other.
 *
 * cpus_read looks at sysfs below an injectable root; cpus_plan is pure.
 */
#ifndef HVD_AGENT_CPUS_H
#define HVD_AGENT_CPUS_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/control.h"

#include <sched.h>

enum { CPUS_MAX = 8192 };

struct cpus_cpu {
    int id;
    int core; /* lowest CPU of its core: siblings share it */
    int node; /* NUMA node, 0 when unknown */
};

struct cpus {
    struct cpus_cpu *items; /* allowed ones, in order of id */
    int count;
    int cores; /* distinct ones among them */
    int nodes;
};

/* A rank's CPUs: ids in order. */
struct cpus_set {
    int *ids;
    int count;
};

/* The affinity mask of the caller: ids in order; 0 or negative. */
int cpus_allowed(struct cpus_set *out, struct hb_error *err);
void cpus_set_fini(struct cpus_set *s);

/* Places the allowed CPUs.  `sysfs` is "/sys" or a fixture.  Missing files
 * mean: every CPU its own core, one node. */
void cpus_read(const char *sysfs, const struct cpus_set *allowed,
               struct cpus *out);
void cpus_fini(struct cpus *c);

/*
 * The CPUs of each of `ranks` local ranks, in sets[0 .. ranks).
 * core: whole cores (all their siblings), spread so that ranks that follow
 * each other share a node; cores left over go to the first ranks; with
 * more ranks than cores they wrap around.  numa: node (rank modulo nodes).
 * none: empty sets.
 */
void cpus_plan(const struct cpus *c, enum control_bind bind, int ranks,
               struct cpus_set *sets);

/*
 * The domain of each of `ranks` ranks that are bound to sets[], numbered from
 * 0 as they come: those within one last-level cache have the same, or where
 * caches tell too little, those of one NUMA node.  All 0 when they are all
 * near, when most would be of a domain of their own, when some are bound to
 * nothing narrower or sysfs does not tell, and when ranks share CPUs: they
 * take turns, and news that goes by way of others costs more turns.
 */
void cpus_domains(const char *sysfs, const struct cpus *c,
                  const struct cpus_set *sets, int ranks, uint32_t *domains);

/* The same from a list such as "0,0,1,1", by rank; ranks beyond it are of the
 * last one's domain.  -HVD_EINVAL when it is none. */
int cpus_domains_parse(const char *text, int ranks, uint32_t *domains);

/* "3 ranks on 2 cores: some share one", a heap string (hb_free), when
 * `bind` cannot give each rank a core of its own; else NULL.  Sharing a
 * node is no such case. */
char *cpus_remark(const struct cpus *c, enum control_bind bind, int ranks);

/* "0-3,8": appended to out; "-" for an empty set. */
int cpus_format(const struct cpus_set *s, struct hb_buf *out);

/* A kernel CPU list such as "0-3,8,10-11"; ids of at least CPUS_MAX and
 * rubbish give -HVD_EINVAL. */
int cpus_parse(const char *text, struct cpus_set *out);

/* A mask for sched_setaffinity: heap (CPU_FREE), size in *bytes. */
cpu_set_t *cpus_mask(const struct cpus_set *s, size_t *bytes);

#endif
