/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories in which ranks write their timelines:
 * hvd-timeline-ID-HOST in the agent's TMPDIR or /tmp, with the first 16 digits
 * of the job's id.  An agent holds a lock on its directory as long as it
 * lives: it may be sending the files after the last rank has ended.
 *
 * Directories for files of an MPI (wireup/wireup_dir.h) are named alike, and
 * locked and cleaned by the same functions.
 */
#ifndef HVD_AGENT_TRACE_DIR_H
#define HVD_AGENT_TRACE_DIR_H

#include <jansson.h>

enum { TRACE_DIR_ID_DIGITS = 16 };

/* Opens the directory at path and locks it as in use.  Returns the descriptor,
 * which holds the lock until it is closed, or -1 if it cannot be opened.  On a
 * file system without locks there is no lock. */
int trace_dir_hold(const char *path);

/* Removes the timelines in the directory `name` below `at`, which must be this
 * user's and writable by nobody else, and then the directory if that left it
 * empty.  0, or -1. */
int trace_dir_remove(int at, const char *name);

/* Removes the directories that no agent holds and whose jobs have no process
 * here: that of job `id` or, with NULL, all but those made a moment ago.
 * Appends {"path", "what"} to `out`; `dry`: only lists them.  `root` is put
 * before /tmp and the like: "" or a fixture. */
void trace_dir_clean(const char *root, const char *id, int dry, json_t *out);

#endif
