/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decrypts a private key file by the program ssh-add.
 *
 * ssh-add decrypts a file and sends the key to an ssh-agent.  Here the agent is
 * this process, for one message: it makes a socket that no other process can
 * find, and starts ssh-add with that socket and with the passphrase on its
 * standard input.  So OpenSSH does what is secret about its format, and the
 * key comes to this process as if the file had not been encrypted.
 */
#ifndef HVD_TRANSPORT_SSH_ADD_H
#define HVD_TRANSPORT_SSH_ADD_H

#include "lib/base/buf.h"

enum { SSH_ADD_WHY_MAX = 128 };

/* Returns the path of ssh-add (hb_free), or NULL if PATH has none. */
char *ssh_add_find(void);

/*
 * Decrypts the file `path` with `program`, as ssh_add_find returned it. Blocks;
 * returns early when cancel_fd becomes readable.  No process is left when it
 * returns, or when this process is killed.
 * - 0: `key` holds the body of the agent's SSH_AGENTC_ADD_IDENTITY, as
 *   draft-miller-ssh-agent has it: kind, numbers, comment
 * - -HVD_EPERM: wrong passphrase
 * - -HVD_ESHUTDOWN: cancelled
 * - -HVD_EPROTO: it cannot be decrypted; `why` is a phrase
 * - -HVD_ENOMEM
 * `key` must be empty, and must be wiped and freed in any case.
 */
int ssh_add_decrypt(const char *program, const char *path,
                    const char *passphrase, int cancel_fd, struct hb_buf *key,
                    char why[SSH_ADD_WHY_MAX]);

#endif
