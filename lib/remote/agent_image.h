/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of hvd-agent, to be sent to hosts, with their hash and the machine
 * type that they run on.
 *
 * The file is read, not mapped: if it is overwritten meanwhile, hvdrun must not
 * end with SIGBUS.
 */
#ifndef HVD_TRANSPORT_AGENT_IMAGE_H
#define HVD_TRANSPORT_AGENT_IMAGE_H

#include "lib/base/error.h"
#include "lib/protocol/agent_hash.h"

#include <stddef.h>

enum { AGENT_IMAGE_MAX = 256 << 20 };

struct agent_image {
    char *bytes;
    size_t len;
    char hash[AGENT_HASH_HEX];
    const char *cpu; /* a `case` pattern for the host's `uname -m` */
};

/* clang-format off */
#define AGENT_IMAGE_INIT { NULL, 0, "", NULL }
/* clang-format on */

/* Reads the file.  0, or negative with err set and nothing to be freed. */
int agent_image_read(const char *path, struct agent_image *out,
                     struct hb_error *err);
void agent_image_free(struct agent_image *image);

#endif
