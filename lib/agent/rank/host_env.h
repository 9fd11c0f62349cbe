/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that the agent's host determines, not hvdrun's. */
#ifndef HVD_AGENT_HOST_ENV_H
#define HVD_AGENT_HOST_ENV_H

#include "lib/base/strv.h"

/* Adds HOME, USER, LOGNAME, SHELL and TMPDIR from `own`, a NULL-terminated
 * environment, unless env has them.  0 or -HVD_ENOMEM. */
int host_env_complete(struct hb_strv *env, char *const *own);

#endif
