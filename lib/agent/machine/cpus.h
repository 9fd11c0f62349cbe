/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which CPUs this process may use, how they form cores and NUMA nodes, which of
 * them each local rank is bound to, and which ranks share a cache domain.
 *
 * cpus_read reads sysfs below a given root; cpus_plan is pure.
 */
#ifndef HVD_AGENT_CPUS_H
#define HVD_AGENT_CPUS_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/protocol/control/control.h"

#include <sched.h>

enum { CPUS_MAX = 8192 };

struct cpus_cpu {
    int id;
    int core; /* lowest CPU id of its core, the same for all siblings */
    int node; /* NUMA node, 0 when unknown */
};

struct cpus {
    struct cpus_cpu *items; /* allowed CPUs, in order of id */
    int count;
    int cores; /* distinct ones among them */
    int nodes;
};

/* The ids of a rank's CPUs, in ascending order. */
struct cpus_set {
    int *ids;
    int count;
};

/* Reads the caller's affinity mask into *out.  0, or negative with err set. */
int cpus_allowed(struct cpus_set *out, struct hb_error *err);
void cpus_set_fini(struct cpus_set *s);

/* Looks up core and node of each allowed CPU.  `sysfs` is "/sys" or a fixture.
 * Without the files, every CPU is its own core and all are in one node. */
void cpus_read(const char *sysfs, const struct cpus_set *allowed,
               struct cpus *out);
void cpus_fini(struct cpus *c);

/*
 * Assigns CPUs to each of `ranks` local ranks, in sets[0 .. ranks).
 * - core: whole cores (all their siblings), so that consecutive ranks share a
 *   node.  The first ranks get the cores left over; with more ranks than cores,
 *   ranks share cores in turn.
 * - numa: rank r gets node r modulo the number of nodes.
 * - none: empty sets.
 */
void cpus_plan(const struct cpus *c, enum control_bind bind, int ranks,
               struct cpus_set *sets);

/*
 * Assigns each of `ranks` ranks, bound to sets[], to a cache domain, numbered
 * from 0 in order of rank: ranks within one last-level cache or, where sysfs
 * does not tell the caches, one NUMA node.  All 0 (one domain) when
 * - all ranks are in the same one,
 * - there would be more domains than half the ranks,
 * - a rank is not bound, or sysfs does not tell, or
 * - ranks share CPUs: they take turns, and passing data through a leader would
 *   cost more turns.
 */
void cpus_domains(const char *sysfs, const struct cpus *c,
                  const struct cpus_set *sets, int ranks, uint32_t *domains);

/* Sets domains[] from a list such as "0,0,1,1", by rank; further ranks belong
 * to the last one's domain.  0, or -HVD_EINVAL for a malformed list. */
int cpus_domains_parse(const char *text, int ranks, uint32_t *domains);

/* Returns a remark such as "3 ranks on 2 cores: some share one" (heap, hb_free)
 * if `bind` is core and there are fewer cores than ranks; else NULL. */
char *cpus_remark(const struct cpus *c, enum control_bind bind, int ranks);

/* Appends the set to out, as "0-3,8"; "-" for an empty one. */
int cpus_format(const struct cpus_set *s, struct hb_buf *out);

/* Parses a kernel CPU list such as "0-3,8,10-11".  0, or -HVD_EINVAL for a
 * malformed list or an id of CPUS_MAX or more. */
int cpus_parse(const char *text, struct cpus_set *out);

/* Makes a mask for sched_setaffinity: heap (CPU_FREE), its size in *bytes. */
cpu_set_t *cpus_mask(const struct cpus_set *s, size_t *bytes);

#endif
