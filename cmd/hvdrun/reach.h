/* SPDX-License-Identifier: Apache-2.0 */
/* How hvdrun reaches hosts, for jobs and for ps, kill, clean and doctor alike:
 * which agent to send, where the plug-ins are, which hosts are this machine. */
#ifndef HVDRUN_REACH_H
#define HVDRUN_REACH_H

#include "cmd/hvdrun/options/options.h"

/* Returns a heap string (hb_free). reach_agent_path returns NULL with err set
 * if others than hvdrun's owner and this user could have put the agent
 * there. */
char *reach_agent_path(const struct options *o, struct hb_error *err);
char *reach_plugin(const char *file); /* its path, whether it is there or not */
char *reach_plugin_dir(void);

/* Checks that files named for ssh can be read, since ssh itself would only
 * warn and go on without them.  0, or -HVD_EINVAL with err set. */
int reach_check_files(const struct options *o, struct hb_error *err);

/* Returns whether the host is this machine, so that it needs no connection. */
int reach_is_local(const struct host_entry *e, const char *hostname);

/* Fills in the options for remote_new; borrows from all three arguments. */
void reach_options(const struct options *o, const char *agent_path,
                   const char *plugin_dir, struct remote_options *out);

#endif
