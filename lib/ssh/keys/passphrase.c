/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See passphrase.h.  The terminal stays in line mode, so that the user can edit
 * the line and Ctrl-C is still a signal.
 */
#include "lib/ssh/keys/passphrase.h"

#include "lib/base/hvd_status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { WAIT_SLICE_MS = 1000 };

static void say(int fd, const char *text)
{
    ssize_t n = write(fd, text, strlen(text));

    (void)n; /* if the prompt fails, so will the answer */
}

/* Waits for input: 1; 0 if cancelled or failed. */
static int wait_input(int fd, int cancel_fd)
{
    struct pollfd p[2] = {{fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};

    for (;;) {
        int n = poll(p, 2, WAIT_SLICE_MS);

        if (n < 0 && errno != EINTR)
            return 0;
        if (n > 0 && p[1].revents)
            return 0;
        if (n > 0 && p[0].revents)
            return (p[0].revents & POLLIN) != 0;
    }
}

static int read_line(int fd, int cancel_fd, char *out, size_t size)
{
    size_t len = 0;

    while (wait_input(fd, cancel_fd)) {
        ssize_t n = read(fd, out + len, size - len);
        char *eol;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return -HVD_ENOENT;
        eol = memchr(out + len, '\n', (size_t)n);
        len += (size_t)n;
        if (eol) {
            *eol = '\0';
            return 0;
        }
        if (len == size)
            return -HVD_EINVAL;
    }
    return -HVD_ECLOSED;
}

int passphrase_ask(const char *prompt, int cancel_fd, char *out, size_t size)
{
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct termios before, quiet;
    int rc = -HVD_ENOENT;

    if (fd < 0)
        return rc;
    if (tcgetpgrp(fd) == getpgrp() && tcgetattr(fd, &before) == 0) {
        quiet = before;
        quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
        tcsetattr(fd, TCSAFLUSH, &quiet);
        say(fd, prompt);
        rc = read_line(fd, cancel_fd, out, size);
        tcsetattr(fd, TCSAFLUSH, &before);
        say(fd, "\n");
    }
    close(fd);
    if (rc < 0)
        sodium_memzero(out, size);
    return rc;
}
