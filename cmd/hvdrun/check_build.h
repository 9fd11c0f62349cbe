/* SPDX-License-Identifier: Apache-2.0 */
/* --check-build: what this build is, what it can do, and why not. */
#ifndef HVDRUN_CHECK_BUILD_H
#define HVDRUN_CHECK_BUILD_H

/* Returns a report as a heap string (hb_free): for people, in horovodrun's
 * brackets, or as one JSON object. libhvd.so, its plug-ins and hvd-agent are
 * looked for beside `program_dir`, hvdrun's directory; plug-ins first in
 * HVD_PLUGIN_DIR.  Runs ssh and mpirun for their versions, and loads the
 * plug-ins, each in a process of its own. */
char *check_build_text(const char *program_dir);
char *check_build_json(const char *program_dir);

#endif
