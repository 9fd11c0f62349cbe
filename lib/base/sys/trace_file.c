/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON array in a file, valid at any moment; see trace_file.h. */
#include "lib/base/sys/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Writing ------------------------------------------------------- */

static size_t write_at(struct hb_trace_file *f, const char *p, size_t len,
                       off_t at)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pwrite(f->fd, p + done, len - done, at + (off_t)done);

        if (n == 0)
            errno = EIO;
        if (n <= 0 && errno != EINTR)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    return done;
}

/* Writes len bytes over the bracket.  If that fails halfway, restores the
 * bracket, for which the block exists. */
static int write_at_end(struct hb_trace_file *f, const char *p, size_t len)
{
    size_t done = write_at(f, p, len, f->end);

    if (done == len)
        return 0;
    f->sys_errno = errno;
    if (done > 0 &&
        (write_at(f, "]", 1, f->end) != 1 || ftruncate(f->fd, f->end + 1) < 0))
        f->sys_errno = errno;
    return -1;
}

/* Returns the bytes from the bracket, inclusive, to the end of its page. */
static size_t room(const struct hb_trace_file *f)
{
    return HB_TRACE_PAGE_BYTES - (size_t)(f->end % HB_TRACE_PAGE_BYTES);
}

void hb_trace_file_flush(struct hb_trace_file *f)
{
    if (f->len == 0 || f->sys_errno)
        return;
    f->page[f->len] = ']';
    if (write_at_end(f, f->page, f->len + 1) == 0)
        f->end += (off_t)f->len;
    f->len = 0;
}

static void unmap(struct hb_trace_file *f)
{
    if (f->window)
        munmap(f->window, HB_TRACE_WINDOW_BYTES);
    f->window = NULL;
}

/* Maps the last byte of a page and the first of the next. */
static char *map_border(struct hb_trace_file *f)
{
    off_t at = f->end / HB_TRACE_PAGE_BYTES * HB_TRACE_PAGE_BYTES;
    void *p;

    if (!f->window ||
        f->end + 2 > f->window_at + (off_t)HB_TRACE_WINDOW_BYTES) {
        unmap(f);
        at -= at % sysconf(_SC_PAGESIZE);
        p = mmap(NULL, HB_TRACE_WINDOW_BYTES, PROT_READ | PROT_WRITE,
                 MAP_SHARED, f->fd, at);
        if (p == MAP_FAILED)
            return NULL;
        madvise(p, HB_TRACE_WINDOW_BYTES, MADV_DONTFORK);
        f->window = p;
        f->window_at = at;
    }
    return f->window + (f->end - f->window_at);
}

/* Stores two bytes by one instruction, even across pages: a signal or a page
 * fault comes before or after it. */
static void store_both(char *p)
{
    typedef uint16_t __attribute__((aligned(1), may_alias)) two_bytes;
    uint16_t both;

    memcpy(&both, " ]", sizeof(both));
    *(volatile two_bytes *)p = both;
}

/* Moves the bracket, the last byte of its page, to the next page. */
static void cross_border(struct hb_trace_file *f)
{
    off_t bracket = f->end;
    char *border;
    int rc;

    /* The next page must exist before it is touched. */
    f->end++;
    rc = write_at_end(f, " ", 1);
    f->end = bracket;
    if (rc < 0)
        return;
    border = map_border(f);
    if (border)
        store_both(border);
    else if (write_at_end(f, " ]", 2) < 0)
        return;
    f->end++;
}

/* Moves the bracket to the first byte of the next page. */
static void turn_page(struct hb_trace_file *f)
{
    size_t gap = room(f) - 1;

    if (gap > 0) {
        memset(f->page, ' ', gap);
        f->page[0] = '\n';
        f->len = gap;
        hb_trace_file_flush(f);
    }
    if (!f->sys_errno)
        cross_border(f);
}

void hb_trace_file_put(struct hb_trace_file *f, const char *element, size_t len)
{
    size_t need = len + 2 + 1; /* comma, line end; bracket */

    if (f->sys_errno || len > HB_TRACE_ELEMENT_MAX)
        return;
    if (f->len + need > room(f)) {
        hb_trace_file_flush(f);
        if (need > room(f))
            turn_page(f);
        if (f->sys_errno)
            return;
    }
    if (!f->empty)
        f->page[f->len++] = ',';
    f->page[f->len++] = '\n';
    memcpy(f->page + f->len, element, len);
    f->len += len;
    f->empty = 0;
}

/* ---- Life ---------------------------------------------------------- */

/* Locks the file: two writers would corrupt it, and truncating it would remove
 * a page that the other has mapped.  The lock is the process's, and a forked
 * child, which may live longer, does not have it.  Where files cannot be
 * locked, there is no protection. */
static int claim(int fd, const char *path, struct hb_error *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_SETLK, &lock) == 0 || (errno != EACCES && errno != EAGAIN))
        return 0;
    return hb_error_set(err, HVD_ESYSTEM,
                        "open %s: another process is writing it", path);
}

/* Empties the file, which must be a regular one. */
static int begin(struct hb_trace_file *f, const char *path,
                 struct hb_error *err)
{
    struct stat st;
    int rc = 0;

    if (fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        rc = claim(f->fd, path, err);
        if (rc == 0 && ftruncate(f->fd, 0) < 0)
            rc = hb_error_sys(err, errno, "truncate %s", path);
    }
    if (rc == 0 && write_at_end(f, "[]", 2) < 0)
        rc = hb_error_sys(err, f->sys_errno, "write %s", path);
    f->end = 1;
    return rc;
}

/* Finds the closing bracket of an existing file. */
static int resume(struct hb_trace_file *f, const char *path,
                  struct hb_error *err)
{
    struct stat st;
    char last = 0;
    int rc;

    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 2 ||
        pread(f->fd, &last, 1, st.st_size - 1) != 1 || last != ']')
        return hb_error_set(err, HVD_ESYSTEM, "open %s: it is no timeline",
                            path);
    rc = claim(f->fd, path, err);
    f->end = st.st_size - 1;
    f->empty = f->end == 1;
    return rc;
}

static int open_file(struct hb_trace_file *f, const char *path, int flags,
                     struct hb_error *err)
{
    int rc;

    /* Not blocking, because opening a device may. */
    f->fd =
        open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0666);
    if (f->fd < 0)
        return hb_error_sys(err, errno, "open %s", path);
    f->end = 0;
    f->empty = 1;
    f->len = 0;
    f->sys_errno = 0;
    f->window = NULL;
    rc = flags & O_CREAT ? begin(f, path, err) : resume(f, path, err);
    if (rc == 0)
        return 0;
    close(f->fd);
    f->fd = -1;
    return rc;
}

int hb_trace_file_open(struct hb_trace_file *f, const char *path,
                       struct hb_error *err)
{
    return open_file(f, path, O_CREAT, err);
}

int hb_trace_file_reopen(struct hb_trace_file *f, const char *path,
                         struct hb_error *err)
{
    return open_file(f, path, 0, err);
}

int hb_trace_file_close(struct hb_trace_file *f)
{
    if (f->fd < 0)
        return 0;
    hb_trace_file_flush(f);
    unmap(f);
    if (close(f->fd) < 0 && !f->sys_errno && errno != EINTR)
        f->sys_errno = errno;
    f->fd = -1;
    return f->sys_errno;
}
