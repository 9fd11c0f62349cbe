/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the user's program on this host, for `hvdrun doctor`: whether it
 * and its shared libraries are found, and a hash of its bytes.  And the
 * versions here of the libraries that training programs use.
 */
#ifndef HVD_AGENT_PROGCHECK_H
#define HVD_AGENT_PROGCHECK_H

#include <jansson.h>

struct progcheck {
    const char *program; /* argv[0] */
    const char *cwd;
    const char *path;         /* the ranks' PATH; NULL: the default one */
    const char *library_path; /* their LD_LIBRARY_PATH; NULL: none */
};

/* Describes the program: {"path", "hash", "bytes", "interpreter", "missing":
 * [...], "libraries": {soname: path}} or {"error"}. */
json_t *progcheck_program(const struct progcheck *c);

/* Describes a file named in the arguments: {"path", "hash", "bytes"}, or null
 * if it is no regular file. */
json_t *progcheck_file(const char *name, const char *cwd);

/* Describes the libraries found below `root` ("" or a fixture): {"cuda" |
 * "nccl" | "mpi" | ...: {"path", "version"}}. */
json_t *progcheck_libraries(const char *root, const char *library_path);

/* Describes a program found along PATH: {"path", "version"}, the latter its
 * first line of --version; or null. */
json_t *progcheck_tool(const char *name, const char *path);

#endif
