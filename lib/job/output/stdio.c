/* SPDX-License-Identifier: Apache-2.0 */
/* Standard streams used without blocking or disturbing others; see stdio.h. */
#include "lib/job/output/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int reopen(int fd, int writing)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, (writing ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_CLOEXEC |
                          O_NOCTTY);
}

void stdio_init(struct stdio *s, uv_loop_t *loop, int fd, int writing,
                void (*on_ready)(struct stdio *s), void *arg)
{
    struct stat st;
    int own;

    *s = (struct stdio){
        .kind = STDIO_PLAIN,
        .fd = fd,
        .epoll_fd = -1,
        .writing = writing,
        .loop = loop,
        .on_ready = on_ready,
        .arg = arg,
    };
    if (fstat(fd, &st) < 0)
        return;
    if (S_ISSOCK(st.st_mode)) {
        s->kind = STDIO_SOCKET;
    } else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
        own = reopen(fd, writing);
        s->kind = own < 0 ? STDIO_SHARED : STDIO_OWN;
        s->fd = own < 0 ? fd : own;
    }
}

/* Returns 1 if a transfer would not block.  A hang-up counts as ready, so that
 * the transfer reports it. */
static int shared_ready(const struct stdio *s)
{
    struct pollfd p = {s->fd, s->writing ? POLLOUT : POLLIN, 0};

    return poll(&p, 1, 0) != 0;
}

static ssize_t stdio_result(ssize_t n)
{
    return n < 0 ? -errno : n;
}

ssize_t stdio_read(struct stdio *s, void *p, size_t len)
{
    ssize_t n;

    do {
        if (s->kind == STDIO_SHARED && !shared_ready(s))
            return -EAGAIN;
        if (s->kind == STDIO_SOCKET)
            n = recv(s->fd, p, len, MSG_DONTWAIT);
        else
            n = read(s->fd, p, len);
    } while (n < 0 && errno == EINTR);
    return stdio_result(n);
}

ssize_t stdio_write(struct stdio *s, const void *p, size_t len)
{
    ssize_t n;

    if (s->kind == STDIO_SHARED && len > PIPE_BUF)
        len = PIPE_BUF;
    do {
        if (s->kind == STDIO_SHARED && !shared_ready(s))
            return -EAGAIN;
        if (s->kind == STDIO_SOCKET)
            n = send(s->fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        else
            n = write(s->fd, p, len);
    } while (n < 0 && errno == EINTR);
    return stdio_result(n);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct stdio *s = poll->data;

    (void)status;
    (void)events;
    uv_poll_stop(poll);
    s->on_ready(s);
}

static int start_watching(struct stdio *s)
{
    struct epoll_event ev = {.events = s->writing ? EPOLLOUT : EPOLLIN};
    int rc;

    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd < 0)
        return -errno;
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
        rc = -errno;
    else
        rc = uv_poll_init(s->loop, &s->poll, s->epoll_fd);
    if (rc < 0) {
        close(s->epoll_fd);
        s->epoll_fd = -1;
        return rc;
    }
    s->poll.data = s;
    s->watching = 1;
    return 0;
}

int stdio_wait(struct stdio *s)
{
    int rc;

    if (!s->watching) {
        rc = start_watching(s);
        if (rc < 0)
            return rc;
    }
    return uv_poll_start(&s->poll, UV_READABLE, on_poll);
}

void stdio_stop(struct stdio *s)
{
    if (s->watching)
        uv_poll_stop(&s->poll);
}

static void stdio_release(struct stdio *s)
{
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->kind == STDIO_OWN && s->fd >= 0)
        close(s->fd);
    s->epoll_fd = s->fd = -1;
}

static void on_closed(uv_handle_t *handle)
{
    struct stdio *s = handle->data;
    void (*done)(struct stdio *) = s->on_ready;

    stdio_release(s);
    if (done)
        done(s);
}

void stdio_close(struct stdio *s, void (*done)(struct stdio *s))
{
    if (s->closed)
        return;
    s->closed = 1;
    if (s->watching) {
        s->watching = 0;
        s->on_ready = done;
        uv_close((uv_handle_t *)&s->poll, on_closed);
        return;
    }
    stdio_release(s);
    if (done)
        done(s);
}
