/* SPDX-License-Identifier: Apache-2.0 */
/* --check-build: what this build is and what it can do. */
#ifndef HVDRUN_CHECK_BUILD_H
#define HVDRUN_CHECK_BUILD_H

/* `program_dir` is the directory of the hvdrun program: libhvd.so and
 * hvd-agent are looked for beside it.  A heap string (hb_free). */
char *check_build_text(const char *program_dir);

#endif
