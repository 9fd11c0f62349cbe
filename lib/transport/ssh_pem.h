/* SPDX-License-Identifier: Apache-2.0 */
/* Writing private keys as text.  What these leave in memory besides their
 * result is wiped. */
#ifndef HVD_TRANSPORT_SSH_PEM_H
#define HVD_TRANSPORT_SSH_PEM_H

#include <stddef.h>

/* "-----BEGIN label-----", base64, and so on, on the heap: 0 or
 * -HVD_ENOMEM. */
int ssh_pem_write(const char *label, const void *bytes, size_t len, char **text,
                  size_t *text_len);

/*
 * The private section of an OpenSSH key file, decrypted, as "EC PRIVATE KEY"
 * (RFC 5915): 0; -HVD_EUNSUPPORTED when it is no ECDSA key; -HVD_EPROTO;
 * -HVD_ENOMEM.
 */
int ssh_pem_write_ec(const void *section, size_t len, char **text,
                     size_t *text_len);

#endif
