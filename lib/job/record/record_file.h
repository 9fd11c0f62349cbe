/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of `hvdrun --report`.  The ending of a file's name says what it
 * holds: .json, .xml (JUnit) or .html.
 *
 * A file is written beside its place and then renamed, so that whoever reads
 * it sees the old file or the whole new one.
 */
#ifndef HVD_JOB_RECORD_FILE_H
#define HVD_JOB_RECORD_FILE_H

#include "lib/base/error.h"
#include "lib/job/record/record_data.h"

/* Checks the ending of the path: 0, or -HVD_EINVAL. */
int record_file_kind(const char *path, struct hb_error *err);
/* Checks that the job can create or replace the file, and leaves no trace.  0,
 * or negative with err set. */
int record_file_check(const char *path, const char *job_id,
                      struct hb_error *err);
/* Writes the file.  0, or negative with err set: then the old file, if there
 * is one, is unchanged, and no other is left. */
int record_file_write(const char *path, const struct record *r,
                      struct hb_error *err);

#endif
