/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory for the files of PMIx and of an MPI on one host:
 * hvd-wireup-ID-HOST, with the first TRACE_DIR_ID_DIGITS digits of the job's
 * id, in /dev/shm if that is usable, else in the agent's TMPDIR or /tmp.  Only
 * the user may enter it.  It is removed with all that is in it when the ranks
 * have ended: by the agent, by the guardian if the agent was killed, or by
 * `hvdrun clean` (trace_dir.h).
 */
#ifndef HVD_AGENT_WIREUP_WIREUP_DIR_H
#define HVD_AGENT_WIREUP_WIREUP_DIR_H

#include "lib/base/error.h"

/* Makes the directory for the job and host.  0 with its path in *path, a heap
 * string; or negative with err set. */
int wireup_dir_make(const char *job_id, int host_index, char **path,
                    struct hb_error *err);

/* Removes the directory `name` below `at`, which must be this user's and
 * writable by nobody else, and what is in it.  Follows no link.  0, or -1 if
 * something is left. */
int wireup_dir_remove(int at, const char *name);

#endif
