/* SPDX-License-Identifier: Apache-2.0 */
/* The hash that names a build of hvd-agent: hvdrun asks a host for it, and
 * the agent that arrived there checks itself against it.  BLAKE2b. */
#ifndef HVD_PROTOCOL_AGENT_HASH_H
#define HVD_PROTOCOL_AGENT_HASH_H

#include <stddef.h>

enum { AGENT_HASH_BYTES = 16, AGENT_HASH_HEX = 2 * AGENT_HASH_BYTES + 1 };

/* Hex digits and a final 0. */
void agent_hash(const void *bytes, size_t len, char out[AGENT_HASH_HEX]);

/* Of what is still to be read from fd: 0, or an errno. */
int agent_hash_fd(int fd, char out[AGENT_HASH_HEX]);

#endif
