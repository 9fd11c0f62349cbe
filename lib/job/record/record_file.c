/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --report; see record_file.h. */
#include "lib/job/record/record_file.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct kind {
    const char *ending;
    void (*write)(struct hb_buf *out, const struct record *r);
} kinds[] = {
    {".json", record_json},
    {".xml", record_junit},
    {".html", record_html},
};

static const struct kind *find_kind(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t n = strlen(kinds[i].ending);

        if (len > n && path[len - n - 1] != '/' &&
            strcasecmp(path + len - n, kinds[i].ending) == 0)
            return &kinds[i];
    }
    return NULL;
}

int record_file_kind(const char *path, struct hb_error *err)
{
    if (find_kind(path))
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "the name must end in .json, .xml (JUnit) or .html");
}

/* Returns the length of the path's folder with its slash; 0: none is named. */
static int folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (int)(slash - path) + 1 : 0;
}

/* Returns the path of the job's temporary file (heap), which is in the same
 * folder as the report. */
static char *temporary_of(const char *path, const char *job_id)
{
    return hb_xasprintf("%.*s.hvd-report-%s", folder_len(path), path, job_id);
}

static int create(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

int record_file_check(const char *path, const char *job_id,
                      struct hb_error *err)
{
    int len = folder_len(path), fd, rc = record_file_kind(path, err);
    char *temporary;
    struct stat st;

    if (rc < 0)
        return rc;
    if (strlen(path + len) > NAME_MAX)
        return hb_error_set(err, HVD_EINVAL, "the name is too long");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return hb_error_set(err, HVD_EINVAL, "%s is not a regular file", path);
    temporary = temporary_of(path, job_id);
    fd = create(temporary);
    if (fd < 0)
        rc = hb_error_sys(err, errno, "cannot write in folder %.*s",
                          len ? len : 1, len ? path : ".");
    else
        unlink(temporary);
    if (fd >= 0)
        close(fd);
    hb_free(temporary);
    return rc;
}

static int write_all(int fd, const char *p, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* Writes the text to `temporary` and renames that; 0, or negative with err
 * set. */
static int replace(const char *path, const char *temporary,
                   const struct hb_buf *text, struct hb_error *err)
{
    int fd = create(temporary), rc = 0;

    if (fd < 0)
        return hb_error_sys(err, errno, "create %s", temporary);
    if (write_all(fd, hb_buf_data(text), hb_buf_len(text)) < 0)
        rc = hb_error_sys(err, errno, "write");
    if (close(fd) < 0 && rc == 0)
        rc = hb_error_sys(err, errno, "write");
    if (rc == 0 && rename(temporary, path) < 0)
        rc = hb_error_sys(err, errno, "rename %s", temporary);
    if (rc < 0)
        unlink(temporary);
    return rc;
}

int record_file_write(const char *path, const struct record *r,
                      struct hb_error *err)
{
    const struct kind *kind = find_kind(path);
    char *temporary = temporary_of(path, r->job_id);
    struct hb_buf text = HB_BUF_INIT;
    int rc = record_file_kind(path, err);

    if (rc == 0) {
        kind->write(&text, r);
        rc = replace(path, temporary, &text, err);
    }
    hb_buf_free(&text);
    hb_free(temporary);
    return rc;
}
