/* SPDX-License-Identifier: Apache-2.0 */
/* How this hvdrun gets to hosts, for the job command and for ps, kill,
 * clean and doctor alike: the agent to send, the plug-ins, which hosts are
 * this machine. */
#ifndef HVDRUN_REACH_H
#define HVDRUN_REACH_H

#include "cmd/hvdrun/options.h"

/* Heap strings (hb_free). */
char *reach_agent_path(const struct options *o);
char *reach_plugin_dir(void);

/* Whether the host is this machine and needs no connection. */
int reach_is_local(const struct host_entry *e, const char *hostname);

/* What remote_new takes; borrows from all three. */
void reach_options(const struct options *o, const char *agent_path,
                   const char *plugin_dir, struct remote_options *out);

#endif
