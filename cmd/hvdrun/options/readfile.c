/* SPDX-License-Identifier: Apache-2.0 */
/* Also reads pipes, so that `--env-file <(...)` works. */
#include "cmd/hvdrun/options/readfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 16384 };

static int read_all(int fd, const char *path, size_t max_bytes,
                    struct hb_buf *out, struct hb_error *err)
{
    char chunk[CHUNK_BYTES];
    size_t total = 0;

    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return hb_error_sys(err, errno, "%s: cannot read", path);
        if (n == 0)
            return 0;
        total += (size_t)n;
        if (total > max_bytes)
            return hb_error_set(err, HVD_EINVAL, "%s: larger than %zu KiB",
                                path, max_bytes / 1024);
        if (hb_buf_append(out, chunk, (size_t)n) < 0)
            return hb_error_set(err, HVD_ENOMEM, "%s: out of memory", path);
    }
}

int readfile(const char *path, size_t max_bytes, struct hb_buf *out,
             struct hb_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc;

    if (fd < 0)
        return hb_error_sys(err, errno, "%s: cannot open", path);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        rc = hb_error_set(err, HVD_EINVAL, "%s: is a directory", path);
    else
        rc = read_all(fd, path, max_bytes, out, err);
    close(fd);
    return rc;
}
