/* SPDX-License-Identifier: Apache-2.0 */
/* Asks programs and libraries for their versions, each in a process of its own
 * with a time limit, so that none of them can harm or stop hvdrun. */
#ifndef HVDRUN_PROBE_H
#define HVDRUN_PROBE_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

/* Runs path with argv and appends its stdout and stderr, up to 64 KiB.  0,
 * whatever its exit code, or with err set -HVD_ESYSTEM or -HVD_ETIMEOUT. */
int probe_program(const char *path, char *const *argv, struct hb_buf *out,
                  struct hb_error *err);

/* Loads a shared object that must define `symbol`: a path, or a name, which is
 * looked up as by a dlopen in `by`, another shared object, if that is not
 * NULL.  Appends two lines: the version that it, or the MPI or libssh2 that it
 * loads, reports, perhaps empty; and its file.  0, or with err set
 *
 * - -HVD_ESYSTEM: it cannot be loaded (the loader's text)
 * - -HVD_ETIMEOUT
 * - -HVD_EUNSUPPORTED: this hvdrun is static and loads nothing */
int probe_library(const char *path, const char *symbol, const char *by,
                  struct hb_buf *out, struct hb_error *err);

#endif
