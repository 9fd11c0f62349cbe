/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that a host's agent knows better than hvdrun elsewhere. */
#ifndef HVD_AGENT_HOST_ENV_H
#define HVD_AGENT_HOST_ENV_H

#include "lib/base/strv.h"

/* Adds HOME, USER, LOGNAME, SHELL and TMPDIR of `own`, a NULL-terminated
 * environment, to env where it has none.  0 or -HVD_ENOMEM. */
int host_env_complete(struct hb_strv *env, char *const *own);

#endif
