/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stdio: hvdrun's own stdin, stdout or stderr, used from the loop
 * without ever blocking it.
 *
 * O_NONBLOCK belongs to the open file description, which hvdrun shares with the
 * user's shell and all other writers to the terminal: setting it there breaks
 * them.  So the inherited descriptor is left as it is.
 * - Terminals and pipes are opened again through /proc/self/fd, which gives a
 *   description of our own.  Where that is refused (a terminal of another user,
 *   after su), poll(2) is asked before every transfer, which is then at most
 *   PIPE_BUF bytes.
 * - Sockets are used with MSG_DONTWAIT.
 * - Regular files and devices that cannot be polled never block in the sense of
 *   poll(2) and are used as they are, with the shared file offset.
 *
 * A writer thread would do as well, but costs two context switches for each
 * batch and must be abandoned if it is stuck at exit.
 */
#ifndef HVD_JOB_STDIO_H
#define HVD_JOB_STDIO_H

#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum stdio_kind {
    STDIO_OWN, /* our own description, O_NONBLOCK */
    STDIO_SOCKET,
    STDIO_PLAIN,  /* never waits */
    STDIO_SHARED, /* poll(2) before every transfer */
};

struct stdio {
    enum stdio_kind kind;
    int fd;       /* used for transfers */
    int epoll_fd; /* watches fd: uv_poll would set O_NONBLOCK on fd */
    int writing;
    uv_loop_t *loop;
    uv_poll_t poll;
    int watching; /* the poll handle is open */
    int closed;
    void (*on_ready)(struct stdio *s);
    void *arg;
};

/* Prepares fd (0, 1 or 2), which stays open after stdio_close.  Never fails:
 * with an unusable descriptor the first transfer fails. */
void stdio_init(struct stdio *s, uv_loop_t *loop, int fd, int writing,
                void (*on_ready)(struct stdio *s), void *arg);

/* Reads or writes as read(2) and write(2), but returns -errno on failure;
 * -EAGAIN: would block. */
ssize_t stdio_read(struct stdio *s, void *p, size_t len);
ssize_t stdio_write(struct stdio *s, const void *p, size_t len);

/* Calls on_ready once, from the loop, when a transfer may succeed.  0 or
 * -errno. */
int stdio_wait(struct stdio *s);
void stdio_stop(struct stdio *s);

/* Closes s; may be called again.  `done` (may be NULL) runs when the handle is
 * closed, in a later loop iteration, or at once if there was no stdio_wait. */
void stdio_close(struct stdio *s, void (*done)(struct stdio *s));

#endif
