/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decrypts a private key file by the program ssh-add.
 *
 * ssh-add decrypts a file and sends the key to an ssh-agent.  Here the agent is
 * this process, for one message: it makes a socket, and starts ssh-add with
 * that socket and with the passphrase on its standard input.  So OpenSSH does
 * what is secret about its format, and the key comes to this process as if the
 * file had not been encrypted.
 *
 * No other user's process can find the socket or read what passes through it
 * and the pipe; such a process sees only that ssh-add runs, and the path of the
 * file.  The socket listens to the started process alone, not to others of the
 * same user.  These and root could read a key anyway, by tracing ssh-add until
 * it forbids that.
 */
#ifndef HVD_TRANSPORT_SSH_ADD_H
#define HVD_TRANSPORT_SSH_ADD_H

#include "lib/base/buf.h"

enum { SSH_ADD_WHY_MAX = 128 };

/* Returns the path of ssh-add (hb_free), or NULL if no absolute folder in PATH
 * has such a program. */
char *ssh_add_find(void);

/*
 * Decrypts the file `path` with `program`, as ssh_add_find returned it. Blocks;
 * returns early when cancel_fd becomes readable.  ssh-add ends when this
 * process is killed; when it returns, what ssh-add may have started has ended,
 * too.
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
