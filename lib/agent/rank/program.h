/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a worker's program before any rank is started, as a shell
 * would, but with the worker's own PATH and working directory.
 */
#ifndef HVD_AGENT_PROGRAM_H
#define HVD_AGENT_PROGRAM_H

#include "lib/base/error.h"

enum { PROGRAM_NOT_EXECUTABLE = 126, PROGRAM_NOT_FOUND = 127 };

/*
 * Finds the program `name` (argv[0]): with a slash relative to `cwd`, else
 * along `path` (NULL: a default one; an empty entry means cwd).  0 and a heap
 * string in *out (hb_free), or negative with a line in err and the shell's exit
 * code in *exit_code: 127 not found, 126 a directory or not executable.
 */
int program_resolve(const char *name, const char *path, const char *cwd,
                    char **out, int *exit_code, struct hb_error *err);

/* Explains an execve of `path` that failed with `e` although program_resolve
 * had found it: sets *exit_code and err, returns its status. */
int program_exec_error(const char *path, int e, int *exit_code,
                       struct hb_error *err);

#endif
