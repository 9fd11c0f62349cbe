/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user's program is on this host, for `hvdrun doctor`: found,
 * which bytes, and whether its shared libraries are.  And which versions
 * of the libraries that training programs use there are.
 */
#ifndef HVD_AGENT_PROGCHECK_H
#define HVD_AGENT_PROGCHECK_H

#include <jansson.h>

struct progcheck {
    const char *program; /* argv[0] */
    const char *cwd;
    const char *path;         /* the ranks' PATH; NULL: a default one */
    const char *library_path; /* their LD_LIBRARY_PATH; NULL: none */
};

/* {"path", "hash", "bytes", "interpreter", "missing": [...],
 * "libraries": {soname: path}} or {"error"}. */
json_t *progcheck_program(const struct progcheck *c);

/* {"path", "hash", "bytes"} of a file named in the arguments, or null when
 * there is no such regular file. */
json_t *progcheck_file(const char *name, const char *cwd);

/* {"cuda" | "nccl" | "mpi" | ...: {"path", "version"}} for those found,
 * below `root` ("" or a fixture). */
json_t *progcheck_libraries(const char *root, const char *library_path);

/* {"path", "version"} of a program along PATH, its first line of
 * --version; or null. */
json_t *progcheck_tool(const char *name, const char *path);

#endif
