/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's ssh configuration for one host: read from the output of `ssh -G`,
 * or OpenSSH's defaults if there is no ssh program.
 *
 * `ssh -G` prints file names as they were written, so this reader replaces "~"
 * ($HOME here) and the % tokens of ssh_config(5).  It trusts nothing: unknown
 * words are skipped; a malformed line is an error if it matters.
 */
#ifndef HVD_TRANSPORT_SSH_CONFIG_H
#define HVD_TRANSPORT_SSH_CONFIG_H

#include "lib/base/error.h"
#include "lib/base/strv.h"
#include "lib/ssh/openssh.h"

#include <stddef.h>

enum { SSH_CONFIG_DEFAULT_PORT = 22, SSH_CONFIG_DEFAULT_RSA_BITS = 1024 };

enum ssh_strict {
    SSH_STRICT_OFF,        /* "no": any key, a changed one included */
    SSH_STRICT_ACCEPT_NEW, /* unknown keys are stored */
    SSH_STRICT_YES,        /* also "ask": hvdrun does not ask */
};

/* The user who runs hvdrun. */
struct ssh_user {
    char *name, *home;
    char *agent; /* $SSH_AUTH_SOCK, or NULL */
};

struct ssh_config {
    char *name;     /* the name that was given */
    char *hostname; /* the name to connect to */
    char *home;     /* of the user, for messages */
    char *login;    /* for messages: a command that asks about the host's key */
    char *copy_id;  /* for messages: a command that installs a key there */
    int never_asks; /* ssh itself would not ask: BatchMode, or a strict check */
    int port;
    char *user;
    int family;           /* AF_UNSPEC, AF_INET or AF_INET6 */
    char *proxy_command;  /* NULL: none; % tokens are replaced */
    char *proxy_jump;     /* NULL: none; "[user@]host[:port],..." */
    char *host_key_alias; /* NULL: none */
    enum ssh_strict strict;
    struct hb_strv user_known_hosts, global_known_hosts;
    int hash_known_hosts;
    int rsa_bits;              /* shorter RSA keys are refused */
    struct hb_strv identities; /* file names, most of which may not exist */
    int identities_only;
    char *agent;            /* socket of the ssh-agent, or NULL */
    int gssapi;             /* the user allows it */
    int connect_timeout_ms; /* 0: not set */
    int alive_interval_s;   /* 0: not set */
    /* Allowed algorithms, best first, as ssh names them. */
    char *kex, *ciphers, *macs, *host_key_algorithms, *key_algorithms;
    char *control_path; /* NULL: none */
    char *unsupported;  /* a setting that only ssh supports, or NULL */
};

/* Reads the environment and the password file.  0 or -HVD_ENOMEM. */
int ssh_user_init(struct ssh_user *u);
void ssh_user_fini(struct ssh_user *u);

/*
 * Reads the output of `ssh -G` with the same options `o`; text NULL gives the
 * defaults.  0, -HVD_EPROTO with err set for malformed output, or -HVD_ENOMEM;
 * *out must be freed in any case.
 */
int ssh_config_read(const char *text, size_t len,
                    const struct openssh_options *o, const struct ssh_user *u,
                    struct ssh_config *out, struct hb_error *err);
int ssh_config_copy(const struct ssh_config *from, struct ssh_config *to);
void ssh_config_fini(struct ssh_config *c); /* leaves it empty */

/* Checks whether libssh2 supports this configuration: 0, or -HVD_EUNSUPPORTED
 * with err set.  Looks whether there is a socket at control_path. */
int ssh_config_check(const struct ssh_config *c, struct hb_error *err);

#endif
