/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --config-file: horovodrun's sections and keys, and any long option name
 * at top level (`num-proc` or `num_proc`), in YAML or JSON.  JSON is a file
 * named *.json or one whose first byte is `{`.
 *
 * Every error is one line that begins with `path:line: `; an unknown
 * section or key is an error and comes with the nearest known one.
 */
#ifndef HVDRUN_CONFIG_H
#define HVDRUN_CONFIG_H

#include "cmd/hvdrun/options/options_table.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* Appends what the file sets, in file order, to `out`.  Only the file's
 * shape is checked here; settings_apply checks the values. */
int config_read(const char *path, struct settings *out, struct hb_error *err);
int config_parse(const char *path, const char *text, size_t len,
                 struct settings *out, struct hb_error *err);

#endif
