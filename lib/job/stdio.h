/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stdio: hvdrun's own stdin, stdout or stderr, used from the loop
 * without ever blocking it.
 *
 * O_NONBLOCK belongs to the open file description, which hvdrun shares
 * with the user's shell and with whatever else writes to the terminal:
 * setting it there breaks them.  So nothing is set on the descriptor that
 * was inherited.  Terminals and pipes are opened once more through
 * /proc/self/fd, which gives a description of our own; sockets are used
 * with MSG_DONTWAIT; regular files and devices that cannot be polled never
 * make a caller wait in the sense of poll(2) and are used as they are (and
 * keep the shared file offset).  Where the second open is refused (a
 * terminal of another user, after su), the descriptor is asked with
 * poll(2) before every transfer, which is then at most PIPE_BUF bytes.
 *
 * A writer thread would do as well, but costs two context switches for
 * each batch and must be abandoned when it is stuck at exit.
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
    STDIO_SHARED, /* ask poll(2) first */
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

/* Takes the use of fd (0, 1, 2; it stays open after stdio_close).  Never
 * fails: a descriptor that cannot be used fails in the first transfer. */
void stdio_init(struct stdio *s, uv_loop_t *loop, int fd, int writing,
                void (*on_ready)(struct stdio *s), void *arg);

/* As read(2) and write(2), but -errno on failure; -EAGAIN: would wait. */
ssize_t stdio_read(struct stdio *s, void *p, size_t len);
ssize_t stdio_write(struct stdio *s, const void *p, size_t len);

/* on_ready runs once, from the loop, when a transfer is worth trying.
 * 0 or -errno. */
int stdio_wait(struct stdio *s);
void stdio_stop(struct stdio *s);

/* Idempotent.  The handle ends in a later loop iteration; `done` (may be
 * NULL) runs then, or at once when nothing was ever waited for. */
void stdio_close(struct stdio *s, void (*done)(struct stdio *s));

#endif
