/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes as transports: the base of transport_open_command
 * (transport.h) and transport_open_local. */
#ifndef HVD_TRANSPORT_COMMAND_H
#define HVD_TRANSPORT_COMMAND_H

#include "lib/transport/transport.h"

struct command_options {
    const char *path; /* NULL: argv[0], looked up in PATH */
    char *const *argv;
    const char *what; /* for the log; a constant */
    int group;        /* as in child.h */
};

/* Starts a child.  0, or a negative errno with nothing left behind. */
int command_open(const struct transport_config *config,
                 const struct command_options *options, struct transport **out);

/* Returns the child's wait status, or -1 while it runs; usually known when
 * on_end comes. */
int command_status(const struct transport *t);

#endif
