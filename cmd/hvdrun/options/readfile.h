/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a small file whole; errors name the path and the cause. */
#ifndef HVDRUN_READFILE_H
#define HVDRUN_READFILE_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

/* Appends the bytes of `path` to `out`.  Fails for a directory, for more than
 * max_bytes, and if it cannot be opened or read. */
int readfile(const char *path, size_t max_bytes, struct hb_buf *out,
             struct hb_error *err);

#endif
