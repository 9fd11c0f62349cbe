/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ssh program: its command lines, and the meaning of its error messages.
 * Pure.
 *
 * It is run with BatchMode, so it asks nothing, and never told to skip the host
 * key check.  The command for the host is the constant `exec /bin/sh`, which
 * every login shell understands.
 */
#ifndef HVD_TRANSPORT_OPENSSH_H
#define HVD_TRANSPORT_OPENSSH_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/base/strv.h"

struct openssh_options {
    const char *host;
    const char *user;                            /* NULL: as configured */
    int port;                                    /* 0: as configured */
    const char *identity, *config, *known_hosts; /* NULL: as configured */
    int connect_timeout_s;                       /* 0: as configured */
    int never_asks; /* the configuration forbids ssh to ask */
};

/* These append to argv.  0, -HVD_ENOMEM, or -HVD_EINVAL with err set for a name
 * that ssh would take for an option. */

/* Appends a command that runs /bin/sh on the host. */
int openssh_argv(const struct openssh_options *o, struct hb_strv *argv,
                 struct hb_error *err);
/* Appends a command that prints the configuration for the host. */
int openssh_config_argv(const struct openssh_options *o, struct hb_strv *argv,
                        struct hb_error *err);
/* Appends a command that connects stdin and stdout to target_host:target_port
 * through `jump`, in the syntax of ProxyJump: "[user@]host[:port]",
 * comma-separated.  Uses only `config` of the options. */
int openssh_jump_argv(const struct openssh_options *o, const char *jump,
                      const char *target_host, int target_port,
                      struct hb_strv *argv, struct hb_error *err);

/*
 * Appends the start of a command that reaches the same server, for messages:
 * "ssh -p 2222 alice@n1".  The program is ssh or ssh-copy-id.  The command can
 * be pasted into a shell, and asks about an unknown host key even if the
 * configuration forbids that.  0 or -HVD_ENOMEM.
 */
int openssh_words(const char *program, const struct openssh_options *o,
                  struct hb_buf *out);

/*
 * Interprets ssh's stderr after it ended: 1 with err set if the cause is
 * recognized, else 0.  err's status is as for transports: HVD_ETIMEOUT and
 * HVD_ECLOSED may be tried again, the others are final.
 */
int openssh_explain(const char *said, const struct openssh_options *o,
                    struct hb_error *err);

#endif
