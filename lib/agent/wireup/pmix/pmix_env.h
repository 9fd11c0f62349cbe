/* SPDX-License-Identifier: Apache-2.0 */
/* The environments of hvd-pmix and of Open MPI's ranks. */
#ifndef HVD_AGENT_WIREUP_PMIX_ENV_H
#define HVD_AGENT_WIREUP_PMIX_ENV_H

#include "lib/protocol/control/control.h"

/* Returns what hvd-pmix needs of the job's environment, to be freed by
 * hb_strv_free. */
struct hb_strv pmix_env_server(const struct hb_strv *job);

/* Adds what Open MPI's rank in `slot` needs beside PMIx's own variables; `dir`
 * is for its files. */
void pmix_env_rank(const struct control_launch *job, int slot, const char *dir,
                   struct hb_strv *out);

#endif
