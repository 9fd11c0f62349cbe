/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for a passphrase on the terminal. */
#ifndef HVD_TRANSPORT_PASSPHRASE_H
#define HVD_TRANSPORT_PASSPHRASE_H

#include <stddef.h>

/*
 * Asks on /dev/tty, without echo, which is restored in any case.  Blocks;
 * returns early when cancel_fd (or -1) becomes readable.  0, or negative if
 * there is no terminal, this process is in its background, or the answer is
 * missing or too long.
 */
int passphrase_ask(const char *prompt, int cancel_fd, char *out, size_t size);

#endif
