/* SPDX-License-Identifier: Apache-2.0 */
/* Reading regular files; see regular.h. */
#include "lib/agent/wireup/regular.h"

#include "lib/base/alloc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int regular_open(const char *path)
{
    struct stat st;
    int fd;

    /* Looks before it opens: to open a pipe would wake who writes to it. */
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd); /* it was replaced meanwhile */
        fd = -1;
    }
    return fd;
}

char *regular_read(const char *path, size_t max, size_t *len)
{
    int fd = regular_open(path);
    struct stat st;
    char *text;

    *len = 0;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && (size_t)st.st_size < max)
        max = (size_t)st.st_size;
    text = hb_xmalloc(max + 1);
    while (*len < max) {
        ssize_t n = read(fd, text + *len, max - *len);

        if (n <= 0)
            break;
        *len += (size_t)n;
    }
    close(fd);
    text[*len] = '\0';
    return text;
}
