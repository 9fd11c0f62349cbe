/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that the agent's host determines, not hvdrun's. */
#ifndef HVD_AGENT_HOST_ENV_H
#define HVD_AGENT_HOST_ENV_H

#include "lib/base/strv.h"

/* Adds to env what `own`, a NULL-terminated environment, has and env has not of
 * HOME, USER, LOGNAME, SHELL and TMPDIR, and of the variables by which a batch
 * system says which GPUs of the host the job may use.  0 or -HVD_ENOMEM. */
int host_env_complete(struct hb_strv *env, char *const *own);

#endif
