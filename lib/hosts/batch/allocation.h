/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hosts that a batch system has given to a job: its allocation.  Pure:
 * reads the environment and the files that it names; what needs a command is
 * asked of the caller.
 *
 *     Slurm       SLURM_JOB_NODELIST node[01-03,07]   SLURM_TASKS_PER_NODE
 *                 2(x3),1; heterogeneous jobs: the same with _HET_GROUP_<n>
 *     PBS, Torque PBS_NODEFILE: a line for each slot
 *     LSF         LSB_MCPU_HOSTS a 2 b 4, or LSB_DJOB_HOSTFILE: a line for
 *                 each slot
 *     SGE         PE_HOSTFILE: host, slots, queue and processors on a line
 *     Flux        the output of `flux resource R` (RFC 20)
 *
 * Slots are tasks, as the job asked for them.  Flux names none: there, GPUs are
 * slots, or cores if the allocation has no GPU.
 */
#ifndef HVD_HOSTS_ALLOCATION_H
#define HVD_HOSTS_ALLOCATION_H

#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/hosts/hostlist.h"

#include <stdint.h>

/* In the order of ALLOCATION_CHOICES. */
enum allocation_system {
    ALLOCATION_AUTO,
    ALLOCATION_NONE,
    ALLOCATION_SLURM,
    ALLOCATION_PBS,
    ALLOCATION_LSF,
    ALLOCATION_SGE,
    ALLOCATION_FLUX,
};

#define ALLOCATION_CHOICES "auto none slurm pbs lsf sge flux"

enum { ALLOCATION_JOB_MAX = 64 };

struct allocation_source {
    const struct hb_strv *env; /* NAME=VALUE */
    /* Runs a program of PATH and appends its output.  0, or negative with err
     * set. */
    int (*run)(void *arg, char *const *argv, struct hb_buf *out,
               struct hb_error *err);
    void *arg;
};

struct allocation {
    const char *system;           /* "Slurm"; NULL: there is none */
    char job[ALLOCATION_JOB_MAX]; /* its number or name; "": not known */
    struct hostlist hosts;        /* each with slots */
    int gpus;                     /* 0: not said */
    int gpus_everywhere;          /* of each host; else of this one */
    int copies;                   /* started like this process; 0: not said */
    int64_t end_s;                /* seconds since 1970; 0: not said */
};

/* Returns whether the environment is that of a job of any batch system. */
int allocation_is_present(const struct hb_strv *env);

/* Reads the allocation of `want`; with ALLOCATION_AUTO, of the batch system
 * that the environment shows, if any.  0, or negative with err set, which names
 * the variable, and `a` empty: malformed, or with another `want` not there. */
int allocation_read(const struct allocation_source *source,
                    enum allocation_system want, struct allocation *a,
                    struct hb_error *err);
void allocation_free(struct allocation *a);

/* Returns "Slurm job 17", and a line that says all about it at the time now_s;
 * heap strings (hb_free). */
char *allocation_name(const struct allocation *a);
char *allocation_describe(const struct allocation *a, int64_t now_s);

#endif
