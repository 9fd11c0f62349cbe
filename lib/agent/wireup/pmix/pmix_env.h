/* SPDX-License-Identifier: Apache-2.0 */
/* The environments of hvd-pmix and of Open MPI's ranks. */
#ifndef HVD_AGENT_WIREUP_PMIX_ENV_H
#define HVD_AGENT_WIREUP_PMIX_ENV_H

#include "lib/protocol/control/control.h"

/* What need not be looked for on this host. */
struct pmix_absent {
    int fabric; /* devices of fabrics: there are none */
    char *mtl;  /* for OMPI_MCA_mtl; NULL: not set */
};

/* Looks whether the host has no fabric, and which parameters of Open MPI that
 * allows to set; `library` is the file of libmpi, or NULL. */
void pmix_absent_init(const struct control_launch *job, const char *library,
                      struct pmix_absent *out);
void pmix_absent_fini(struct pmix_absent *a);

/* Returns what hvd-pmix needs of the job's environment, to be freed by
 * hb_strv_free. */
struct hb_strv pmix_env_server(const struct hb_strv *job,
                               const struct pmix_absent *absent);

/* Adds what Open MPI's rank in `slot` needs beside PMIx's own variables; `dir`
 * is for its files. */
void pmix_env_rank(const struct control_launch *job, int slot, const char *dir,
                   const struct pmix_absent *absent, struct hb_strv *out);

#endif
