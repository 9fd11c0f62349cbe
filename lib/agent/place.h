/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the agent is: whose account, which directories, and what agents
 * have left in them.
 *
 * The account is what the environment says (sshd sets it), else what
 * /etc/passwd does: a static program cannot ask the name services.
 */
#ifndef HVD_AGENT_PLACE_H
#define HVD_AGENT_PLACE_H

#include <jansson.h>

/* The value of a variable of this process, or NULL; "" counts as NULL. */
const char *place_env(const char *name);

json_t *place_user(void); /* a string: the name, or "uid 1000" */

/* {"path", "writable", "error"} */
json_t *place_home(void);
/* {"path", "usable", "noexec", "error"}: where an agent would be kept. */
json_t *place_cache(void);

/* Removes agents that are neither the newest of their directory nor
 * running, and the private directories of agents that have gone; never what
 * is another user's.  `root` is put before /tmp and the like: "" or a
 * fixture.  An array of {"path", "what"}; `dry`: only says. */
json_t *place_clean(const char *root, int dry);

#endif
