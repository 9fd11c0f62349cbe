/* SPDX-License-Identifier: Apache-2.0 */
/* Where make install may have put libraries, seen from hvdrun's own folder. */
#ifndef HVDRUN_LIBDIRS_H
#define HVDRUN_LIBDIRS_H

/* Relative to the folder of hvdrun, in the order in which they are searched:
 * lib, lib64, and Debian's lib/ARCH.  Ends with NULL. */
extern const char *const libdirs[];

/* Finds `file` below one of these; dir is the folder of hvdrun.  Returns its
 * path, a heap string (hb_free), or NULL if it is not there or cannot be
 * read. */
char *libdirs_find(const char *dir, const char *file);

#endif
