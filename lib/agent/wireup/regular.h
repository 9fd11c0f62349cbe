/* SPDX-License-Identifier: Apache-2.0 */
/* Reading regular files that a user's command names.  Anything else, such as
 * the pipe that is to be a program's input, is left alone. */
#ifndef HVD_AGENT_REGULAR_H
#define HVD_AGENT_REGULAR_H

#include <stddef.h>

/* Opens a regular file; the descriptor, or -1. */
int regular_open(const char *path);
/* Returns the first `max` bytes of a regular file, with an added 0 (heap), or
 * NULL. */
char *regular_read(const char *path, size_t max, size_t *len);

#endif
