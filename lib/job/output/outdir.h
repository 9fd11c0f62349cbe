/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct outdir: the ranks' output in files, DIR/rank.N/stdout and stderr,
 * N zero-padded to the width of the highest rank.  Bytes as the ranks wrote
 * them: no tags.  Small writes are gathered until outdir_flush.
 */
#ifndef HVD_JOB_OUTDIR_H
#define HVD_JOB_OUTDIR_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

#include <sys/resource.h>

struct outdir_file {
    int fd;
    int dirty; /* in the list of files to flush */
    struct hb_buf buf;
};

struct outdir {
    struct outdir_file *files; /* [2 * ranks]: stdout, stderr, ... */
    int *dirty;                /* indexes of files with bytes to write */
    int dirty_count;
    int count;
    int failed;
    char *dir;
    int width;               /* of N */
    int limit_raised;        /* RLIMIT_NOFILE was too small for the files */
    struct rlimit old_limit; /* the limit before it was raised */
};

/* Makes the directories and truncates the files of the ranks below `np`; those
 * of the others up to `ranks` follow when they write.  0, or negative with err
 * set (files already made stay). */
int outdir_open(struct outdir *d, const char *dir, int ranks, int np,
                struct hb_error *err);
void outdir_close(struct outdir *d);

/* Writes to the rank's file; stream is 1 or 2.  0, or negative with err set for
 * the first failure of any file: after it nothing more is written, and later
 * calls return 0. */
int outdir_write(struct outdir *d, int rank, int stream, const void *bytes,
                 size_t len, struct hb_error *err);
int outdir_flush(struct outdir *d, struct hb_error *err);

#endif
