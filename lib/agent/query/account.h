/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account that the agent runs under: its directories, and what earlier
 * agents have left in them.
 *
 * It is taken from the environment (sshd sets it), else from
 * /etc/passwd: a static program cannot ask the name services.
 */
#ifndef HVD_AGENT_ACCOUNT_H
#define HVD_AGENT_ACCOUNT_H

#include <jansson.h>

/* Returns a variable of this process, or NULL if it is unset or empty. */
const char *account_env(const char *name);

json_t *account_user(void); /* the name, or "uid 1000" */

/* Describes HOME: {"path", "writable", "error"}. */
json_t *account_home(void);
/* Describes where an agent would be kept: {"path", "usable", "noexec",
 * "error"}. */
json_t *account_cache(void);

/* Removes agents that no start has used for 30 days, unless they are running or
 * the newest of their directory, and private directories of agents and hvdruns
 * that have gone; never another user's.  Returns an array of {"path", "what"};
 * `dry`: only lists them.  `root` is put before /tmp and the like: "" or a
 * fixture. */
json_t *account_clean(const char *root, int dry);

#endif
