/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd-agent as bytes to be sent: its content, its hash, and what machine it
 * runs on.
 *
 * The file is read, not mapped: one that is overwritten while hosts are
 * being served must not end hvdrun with SIGBUS.
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
    const char *cpu; /* a `case` pattern for what `uname -m` prints there */
};

/* clang-format off */
#define AGENT_IMAGE_INIT { NULL, 0, "", NULL }
/* clang-format on */

/* 0, or negative with err set and nothing to be freed. */
int agent_image_read(const char *path, struct agent_image *out,
                     struct hb_error *err);
void agent_image_free(struct agent_image *image);

#endif
