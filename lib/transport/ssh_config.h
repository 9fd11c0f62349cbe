/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's ssh configuration for one host: read from what `ssh -G` prints,
 * or OpenSSH's defaults where there is no ssh.
 *
 * `ssh -G` prints file names as they were written, so "~" ($HOME here) and
 * the % tokens of ssh_config(5) are replaced by this reader.  It trusts
 * nothing: unknown words are skipped, a line that makes no sense where it
 * matters is an error.
 */
#ifndef HVD_TRANSPORT_SSH_CONFIG_H
#define HVD_TRANSPORT_SSH_CONFIG_H

#include "lib/base/error.h"
#include "lib/base/strv.h"
#include "lib/transport/openssh.h"

#include <stddef.h>

enum { SSH_CONFIG_DEFAULT_PORT = 22 };

enum ssh_strict {
    SSH_STRICT_OFF,        /* "no": any key, a changed one included */
    SSH_STRICT_ACCEPT_NEW, /* unknown keys are stored */
    SSH_STRICT_YES,        /* also "ask": hvdrun does not ask */
};

/* Who runs hvdrun. */
struct ssh_user {
    char *name, *home;
    char *agent; /* $SSH_AUTH_SOCK, or NULL */
};

struct ssh_config {
    char *name;     /* what was asked for */
    char *hostname; /* what to connect to */
    char *home;     /* of who runs hvdrun, for messages */
    int port;
    char *user;
    int family;           /* AF_UNSPEC, AF_INET or AF_INET6 */
    char *proxy_command;  /* NULL: none; % tokens are replaced */
    char *proxy_jump;     /* NULL: none; "[user@]host[:port],..." */
    char *host_key_alias; /* NULL: none */
    enum ssh_strict strict;
    struct hb_strv user_known_hosts, global_known_hosts;
    int hash_known_hosts;
    struct hb_strv identities; /* file names, most of which may not exist */
    int identities_only;
    char *agent;            /* socket of the ssh-agent, or NULL */
    int gssapi;             /* the user allows it */
    int connect_timeout_ms; /* 0: not set */
    int alive_interval_s;   /* 0: not set */
    /* Allowed algorithms, best first, as ssh names them. */
    char *kex, *ciphers, *macs, *host_key_algorithms, *key_algorithms;
    char *control_path; /* NULL: none */
    char *unsupported;  /* NULL, or a setting that only ssh can honour */
};

/* From the environment and the password file; -HVD_ENOMEM. */
int ssh_user_init(struct ssh_user *u);
void ssh_user_fini(struct ssh_user *u);

/*
 * text: the output of `ssh -G` with the same options `o`; NULL takes the
 * defaults.  0, -HVD_EPROTO with err set when it is not such output, or
 * -HVD_ENOMEM; *out is to be freed in any case.
 */
int ssh_config_read(const char *text, size_t len,
                    const struct openssh_options *o, const struct ssh_user *u,
                    struct ssh_config *out, struct hb_error *err);
int ssh_config_copy(const struct ssh_config *from, struct ssh_config *to);
void ssh_config_fini(struct ssh_config *c); /* leaves it empty */

/* Why libssh2 cannot serve this: -HVD_EUNSUPPORTED with err set; else 0.
 * Looks whether there is a socket at control_path. */
int ssh_config_check(const struct ssh_config *c, struct hb_error *err);

#endif
