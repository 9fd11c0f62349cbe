/* SPDX-License-Identifier: Apache-2.0 */
/* The hash that identifies a build of hvd-agent (BLAKE2b): hvdrun asks hosts
 * for it, and an agent that was sent checks itself against it. */
#ifndef HVD_PROTOCOL_AGENT_HASH_H
#define HVD_PROTOCOL_AGENT_HASH_H

#include <stddef.h>

enum { AGENT_HASH_BYTES = 16, AGENT_HASH_HEX = 2 * AGENT_HASH_BYTES + 1 };

/* Hashes len bytes: hex digits and a final 0. */
void agent_hash(const void *bytes, size_t len, char out[AGENT_HASH_HEX]);

/* Hashes the rest of the file fd: 0, or an errno. */
int agent_hash_fd(int fd, char out[AGENT_HASH_HEX]);

#endif
