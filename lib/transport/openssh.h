/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ssh program: its command lines, and what its complaints mean.  Pure.
 *
 * It is run with BatchMode, so it asks nothing, and never told to skip the
 * host key check.  The command for the host is the constant
 * `exec /bin/sh`, which every login shell reads alike.
 */
#ifndef HVD_TRANSPORT_OPENSSH_H
#define HVD_TRANSPORT_OPENSSH_H

#include "lib/base/error.h"
#include "lib/base/strv.h"

struct openssh_options {
    const char *host;
    const char *user;                            /* NULL: as configured */
    int port;                                    /* 0: likewise */
    const char *identity, *config, *known_hosts; /* NULL: likewise */
    int connect_timeout_s;                       /* 0: likewise */
};

/* These append to argv; -HVD_ENOMEM, or -HVD_EINVAL with err set for a name
 * that ssh would take for an option. */

/* Runs /bin/sh on the host. */
int openssh_argv(const struct openssh_options *o, struct hb_strv *argv,
                 struct hb_error *err);
/* Prints the configuration for the host. */
int openssh_config_argv(const struct openssh_options *o, struct hb_strv *argv,
                        struct hb_error *err);
/* Connects stdin and stdout to target_host:target_port through `jump`, as
 * ProxyJump has it: "[user@]host[:port]", several separated by commas.  Of
 * the options only config is used. */
int openssh_jump_argv(const struct openssh_options *o, const char *jump,
                      const char *target_host, int target_port,
                      struct hb_strv *argv, struct hb_error *err);

/*
 * What ssh said on stderr before it ended: 1 and err set when a cause is
 * known, with a status as transport errors have it (HVD_ETIMEOUT and
 * HVD_ECLOSED may be tried again, the others are final); else 0.
 */
int openssh_explain(const char *said, const char *host, struct hb_error *err);

#endif
