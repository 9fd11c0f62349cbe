/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent of this machine: hvd-agent as a child (command.h).
 *
 * If it does not end, only that process is killed: its guardian ends the rest
 * of its tree.
 */
#include "lib/transport/command.h"

#include <errno.h>

int transport_open_local(const struct transport_config *config,
                         struct transport **out, struct hb_error *err)
{
    char name[] = "hvd-agent";
    char *argv[] = {name, NULL};
    struct command_options options = {
        .path = config->agent_path, .argv = argv, .what = "agent"};
    int e = -command_open(config, &options, out);

    if (e == 0)
        return 0;
    if (e == EACCES || e == ENOENT || e == ENOEXEC || e == ENOTDIR)
        return hb_error_sys(err, e, "cannot start the agent %s (see --agent)",
                            config->agent_path);
    return hb_error_sys(err, e, "cannot start the agent%s",
                        e == EMFILE   ? " (see ulimit -n)"
                        : e == EAGAIN ? " (see ulimit -u)"
                                      : "");
}
