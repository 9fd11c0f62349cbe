/* SPDX-License-Identifier: Apache-2.0 */
/* Writes private keys as text.  All intermediate copies in memory are wiped. */
#ifndef HVD_TRANSPORT_SSH_PEM_H
#define HVD_TRANSPORT_SSH_PEM_H

#include <stddef.h>

/* Writes "-----BEGIN label-----", base64, and so on, into a heap string: 0 or
 * -HVD_ENOMEM. */
int ssh_pem_write(const char *label, const void *bytes, size_t len, char **text,
                  size_t *text_len);

/*
 * Writes the decrypted private section of an OpenSSH key file as "EC PRIVATE
 * KEY" (RFC 5915).  0; -HVD_EUNSUPPORTED if it is not an ECDSA key;
 * -HVD_EPROTO; -HVD_ENOMEM.
 */
int ssh_pem_write_ec(const void *section, size_t len, char **text,
                     size_t *text_len);

#endif
