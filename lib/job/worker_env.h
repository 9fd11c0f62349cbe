/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers' environment.  Pure: the caller passes hvdrun's own in.
 *
 * Later sources win: hvdrun's environment (without what belongs to another job
 * or to one process only), PYTHONUNBUFFERED=1, the knobs of hvdrun's flags, -x
 * and --env-file, the folder for --horovod, and per rank what hvdrun computes.
 * So a rank variable (worker_env_is_computed) reaches a worker only from its
 * own hvdrun, and hvdrun can run inside hvdrun.  Values are bytes: quotes,
 * newlines and any length are kept.
 *
 * What is bound to this host (its terminal, its sockets, the devices of its
 * GPUs, the user's home there) goes to other hosts only if -x says so; their
 * agents add their own HOME, USER, LOGNAME, SHELL and TMPDIR.
 */
#ifndef HVD_JOB_WORKER_ENV_H
#define HVD_JOB_WORKER_ENV_H

#include "lib/base/error.h"
#include "lib/base/strv.h"
#include "lib/hosts/slot_plan.h"

struct worker_env_config {
    char *const *inherited; /* hvdrun's environ */
    int no_env;             /* keep only PATH, HOME, LANG, ... */
    int remote; /* for other hosts: leave out what is bound to this one */
    const struct hb_strv *knobs;   /* NAME=VALUE, both spellings; or NULL */
    const struct hb_strv *set_env; /* -x, NAME=VALUE, in order; or NULL */
    /* A folder of Python modules, put at the end of the ranks' PYTHONPATH, or
     * with compat_force at its start; or NULL. */
    const char *compat_dir;
    int compat_force;
};

/* Makes the environment that all workers share.  `out` must be empty.  0 or
 * -HVD_ENOMEM. */
int worker_env_common(const struct worker_env_config *config,
                      struct hb_strv *out, struct hb_error *err);

/* Makes the variables that one rank gets on top of `common`, overriding it.
 * `out` must be empty.  0 or -HVD_ENOMEM. */
int worker_env_rank(const struct plan *plan, int rank, const char *job_id,
                    const struct hb_strv *common, struct hb_strv *out,
                    struct hb_error *err);

/* Returns 1 if the rank gets OMP_NUM_THREADS=1, as from torchrun: it shares its
 * host with other ranks, whose threads would disturb each other, and the user
 * did not choose. */
int worker_env_limits_threads(const struct plan *plan, int rank,
                              const struct hb_strv *common);

/* Returns 1 if hvdrun decides this variable and -x cannot: HVD_RANK, RANK,
 * HOROVOD_SIZE, HVD_RENDEZVOUS, ...  The name ends at `=` or NUL. */
int worker_env_is_computed(const char *name);

#endif
