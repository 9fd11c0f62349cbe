/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that will go away, as a file or a script says (--preempt-file,
 * --preempt-script):
 *
 *     # comment
 *     n2 120        host n2 goes in 120 seconds (or 2m, 500ms)
 *     n3            host n3 goes, nobody knows when
 *
 * Pure.
 */
#ifndef HVD_HOSTS_GOING_H
#define HVD_HOSTS_GOING_H

#include "lib/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    GOING_BYTES_MAX = 64 << 10,
    GOING_LINE_MAX = 512, /* bytes of a line, with its end */
};

#define GOING_LEFT_MAX_MS INT64_C(86400000)

struct going {
    char host[GOING_LINE_MAX];
    int64_t left_ms; /* -1: not said */
};

/* Parses `len` bytes into a heap array (hb_free), in order; none is NULL.
 * Returns 0, or -HVD_EINVAL with err set, which names the line: then nothing
 * counts. */
int going_parse(const char *text, size_t len, struct going **list,
                size_t *count, struct hb_error *err);

#endif
