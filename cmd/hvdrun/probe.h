/* SPDX-License-Identifier: Apache-2.0 */
/* Asking programs and libraries what they are, each in a process of its
 * own with a time limit, so that none of them can harm or stop hvdrun. */
#ifndef HVDRUN_PROBE_H
#define HVDRUN_PROBE_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

/* Runs path with argv and appends what it writes to 1 and 2, up to 64 KiB.
 * 0 whatever its exit code is, or -HVD_ESYSTEM, -HVD_ETIMEOUT with err. */
int probe_program(const char *path, char *const *argv, struct hb_buf *out,
                  struct hb_error *err);

/* Loads a shared object that shall define `symbol`: a path, or a name, which
 * is looked for as by a dlopen in `by`, another shared object, if that is not
 * NULL.  Appends two lines:
 * what it, or the MPI or libssh2 that came with it, says of its version, maybe
 * nothing; and the file that it was.  0, or -HVD_ESYSTEM with the loader's
 * text, -HVD_ETIMEOUT, or -HVD_EUNSUPPORTED: this program loads none. */
int probe_library(const char *path, const char *symbol, const char *by,
                  struct hb_buf *out, struct hb_error *err);

#endif
