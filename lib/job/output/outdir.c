/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' output in files; see outdir.h. */
#include "lib/job/output/outdir.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUTDIR_GATHER_BYTES = 64 << 10, OUTDIR_OTHER_FDS = 256 };

/* Raises RLIMIT_NOFILE: with two descriptors per rank, 512 ranks exceed the
 * usual soft limit. */
static int raise_limit(struct outdir *d, int ranks, struct hb_error *err)
{
    rlim_t need = (rlim_t)ranks * 2 + OUTDIR_OTHER_FDS;
    struct rlimit want;

    if (getrlimit(RLIMIT_NOFILE, &d->old_limit) < 0 ||
        d->old_limit.rlim_cur >= need)
        return 0;
    if (d->old_limit.rlim_max < need)
        return hb_error_set(err, HVD_EINVAL,
                            "%d ranks need %llu open files; the limit is "
                            "%llu (ulimit -Hn)",
                            ranks, (unsigned long long)need,
                            (unsigned long long)d->old_limit.rlim_max);
    want = d->old_limit;
    want.rlim_cur = need;
    if (setrlimit(RLIMIT_NOFILE, &want) < 0)
        return hb_error_sys(err, errno, "raise the limit of open files");
    d->limit_raised = 1;
    return 0;
}

static int make_dir(const char *path, struct hb_error *err)
{
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return hb_error_sys(err, errno, "make directory %s", path);
    return 0;
}

/* Makes the directory and those above it, as mkdir -p; if a part exists and is
 * no directory, making the next fails. */
static int make_dirs(const char *path, struct hb_error *err)
{
    char *copy = hb_xstrdup(path);
    int rc = 0;

    for (char *p = copy + 1; *copy && *p && rc == 0; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        rc = make_dir(copy, err);
        *p = '/';
    }
    hb_free(copy);
    return rc < 0 ? rc : make_dir(path, err);
}

static int open_file(const char *dir, const char *name, int *fd,
                     struct hb_error *err)
{
    char *path = hb_xasprintf("%s/%s", dir, name);
    int rc = 0;

    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    if (*fd < 0)
        rc = hb_error_sys(err, errno, "open %s", path);
    hb_free(path);
    return rc;
}

static int open_rank(struct outdir *d, int rank, struct hb_error *err)
{
    struct outdir_file *files = &d->files[2 * (size_t)rank];
    char *path = hb_xasprintf("%s/rank.%0*d", d->dir, d->width, rank);
    int rc = make_dir(path, err);

    if (rc == 0)
        rc = open_file(path, "stdout", &files[0].fd, err);
    if (rc == 0)
        rc = open_file(path, "stderr", &files[1].fd, err);
    hb_free(path);
    return rc;
}

int outdir_open(struct outdir *d, const char *dir, int ranks, int np,
                struct hb_error *err)
{
    int rc;

    *d = (struct outdir){.count = 2 * ranks,
                         .dir = hb_xstrdup(dir),
                         .width = snprintf(NULL, 0, "%d", ranks - 1)};
    d->files = hb_xcalloc((size_t)d->count, sizeof(*d->files));
    d->dirty = hb_xcalloc((size_t)d->count, sizeof(*d->dirty));
    for (int i = 0; i < d->count; i++)
        d->files[i].fd = -1;
    rc = raise_limit(d, np, err);
    if (rc == 0)
        rc = make_dirs(dir, err);
    for (int rank = 0; rank < np && rc == 0; rank++)
        rc = open_rank(d, rank, err);
    if (rc < 0)
        outdir_close(d);
    return rc;
}

void outdir_close(struct outdir *d)
{
    for (int i = 0; d->files && i < d->count; i++) {
        if (d->files[i].fd >= 0)
            close(d->files[i].fd);
        hb_buf_free(&d->files[i].buf);
    }
    hb_free(d->files);
    hb_free(d->dirty);
    hb_free(d->dir);
    d->dir = NULL;
    d->files = NULL;
    d->dirty = NULL;
    d->count = d->dirty_count = 0;
}

static int fail(struct outdir *d, int index, int e, struct hb_error *err)
{
    d->failed = 1;
    return hb_error_sys(err, e,
                        "output of rank %d cannot be written to its file; "
                        "the files end here, the terminal goes on",
                        index / 2);
}

static int write_all(struct outdir *d, int index, const char *bytes, size_t len,
                     struct hb_error *err)
{
    while (len > 0) {
        ssize_t n = write(d->files[index].fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(d, index, errno, err);
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static int flush_file(struct outdir *d, int index, struct hb_error *err)
{
    struct hb_buf *buf = &d->files[index].buf;
    int rc = write_all(d, index, hb_buf_data(buf), hb_buf_len(buf), err);

    hb_buf_clear(buf);
    return rc;
}

int outdir_write(struct outdir *d, int rank, int stream, const void *bytes,
                 size_t len, struct hb_error *err)
{
    int index = 2 * rank + (stream == 2);
    struct outdir_file *file = &d->files[index];

    if (d->failed || len == 0)
        return 0;
    if (file->fd < 0 && open_rank(d, rank, err) < 0) {
        d->failed = 1;
        return err->status;
    }
    xbuf_append(&file->buf, bytes, len);
    if (hb_buf_len(&file->buf) >= OUTDIR_GATHER_BYTES)
        return flush_file(d, index, err);
    if (!file->dirty)
        d->dirty[d->dirty_count++] = index;
    file->dirty = 1;
    return 0;
}

int outdir_flush(struct outdir *d, struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < d->dirty_count; i++) {
        d->files[d->dirty[i]].dirty = 0;
        if (rc == 0 && !d->failed)
            rc = flush_file(d, d->dirty[i], err);
    }
    d->dirty_count = 0;
    return rc;
}
