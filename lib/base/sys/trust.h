/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether code found near a program may be run.
 *
 * A program that was copied into a folder that others can write to must not
 * load what somebody else has put beside it.
 */
#ifndef HB_TRUST_H
#define HB_TRUST_H

#include "lib/base/error.h"

#include <limits.h>

/*
 * Checks the file at path, and the folders that lead to it after all symbolic
 * links.  Each must belong to root, this user, or the owner of the file `near`
 * (the program; may be NULL), and only they may write to it, with these
 * exceptions:
 * - A group may write if it is root's, or may write to `near` or its folder:
 *   its members can replace the program anyway.
 * - Folders above the file's own that are above `near`, too, are not checked,
 *   for the same reason.
 * - Folders above the file's own with the sticky bit may be open to all.
 *
 * 0, with the path to use in `real`, where nobody else can replace anything; or
 * -HVD_EPERM or -HVD_ENOENT with err set.
 */
int hb_check_trust(const char *path, const char *near, char real[PATH_MAX],
                   struct hb_error *err);

#endif
