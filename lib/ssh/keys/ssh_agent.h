/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of ssh-agent (draft-miller-ssh-agent): lists keys, signs.
 *
 * libssh2's own client blocks without limit and cannot be interrupted, and an
 * agent may ask its user before it signs.  These calls block as well, but
 * return when cancel_fd becomes readable or the time is over.
 */
#ifndef HVD_TRANSPORT_SSH_AGENT_H
#define HVD_TRANSPORT_SSH_AGENT_H

#include "lib/base/buf.h"

enum { SSH_AGENT_REPLY_MAX = 256 << 10, SSH_AGENT_KEYS_MAX = 256 };

/* Flags for signing with an RSA key. */
enum { SSH_AGENT_RSA_SHA2_256 = 2, SSH_AGENT_RSA_SHA2_512 = 4 };

struct ssh_agent {
    int fd, cancel_fd;
};

struct ssh_agent_key {
    unsigned char *blob;
    size_t len;
};

struct ssh_agent_keys {
    struct ssh_agent_key *items;
    size_t count;
};

/* Connects to the agent's socket.  0; -HVD_ENOENT if nothing answers there;
 * -HVD_ESHUTDOWN if cancelled. */
int ssh_agent_open(const char *path, int cancel_fd, struct ssh_agent *out);
void ssh_agent_close(struct ssh_agent *a);

/* Lists the keys, or signs with one.  0, -HVD_ETIMEOUT, -HVD_ECLOSED,
 * -HVD_EPROTO, -HVD_EPERM (the agent refuses), -HVD_ENOMEM or -HVD_ESHUTDOWN;
 * after any error but -HVD_EPERM close the agent. */
int ssh_agent_list(struct ssh_agent *a, int timeout_ms,
                   struct ssh_agent_keys *out);
void ssh_agent_keys_free(struct ssh_agent_keys *keys);
/* Appends the signature in the agent's form: string kind, string bytes. */
int ssh_agent_sign(struct ssh_agent *a, int timeout_ms,
                   const struct ssh_agent_key *key, const void *data,
                   size_t len, unsigned flags, struct hb_buf *signature);

/* Parses the body of an answer with keys; for tests. */
int ssh_agent_parse_keys(const void *body, size_t len,
                         struct ssh_agent_keys *out);

#endif
