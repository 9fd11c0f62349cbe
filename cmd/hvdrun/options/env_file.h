/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --env-file: NAME=VALUE lines.
 *
 *     # a comment; blank lines are skipped
 *     DATA=/data/set one        to the end of the line, blanks trimmed
 *     export LEVEL=3            as a shell would write it
 *     TEXT='single: as it is'
 *     MORE="double: \n \t \" \\ \$ are escapes"   # a comment may follow
 *
 * Nothing is expanded.  Errors read `path:line: ...`.
 */
#ifndef HVDRUN_ENV_FILE_H
#define HVDRUN_ENV_FILE_H

#include "lib/base/error.h"
#include "lib/base/strv.h"

enum { ENV_FILE_BYTES_MAX = 4 << 20 };

/* Appends NAME=VALUE items, in file order. */
int env_file_read(const char *path, struct hb_strv *out, struct hb_error *err);
int env_file_parse(const char *path, const char *text, size_t len,
                   struct hb_strv *out, struct hb_error *err);

/* Returns whether `len` bytes can name a variable: not empty, no `=`, no
 * control byte and no blank.  Dots and dashes are fine. */
int env_name_ok(const char *name, size_t len);

#endif
