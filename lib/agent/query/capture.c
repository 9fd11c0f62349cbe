/* SPDX-License-Identifier: Apache-2.0 */
/* See capture.h. */
#include "lib/agent/query/capture.h"

#include "lib/agent/rank/spawn.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_TIMEOUT = 124, CHUNK_BYTES = 4096 };

static int ms_left(uint64_t deadline_ns)
{
    uint64_t now = hb_now_ns();

    return now >= deadline_ns ? 0 : (int)((deadline_ns - now) / 1000000) + 1;
}

/* Reads until end of file: 1, or until the deadline: 0.  Processes that the
 * program leaves behind may hold its output open, so its own end also ends the
 * reading. */
static int read_all(int fd, int pidfd, const struct capture *c,
                    uint64_t deadline_ns, struct capture_result *r)
{
    struct pollfd fds[2] = {{fd, POLLIN, 0}, {pidfd, POLLIN, 0}};
    char chunk[CHUNK_BYTES];
    ssize_t n;

    for (;;) {
        if (poll(fds, 2, ms_left(deadline_ns)) == 0)
            return 0;
        n = read(fd, chunk, sizeof(chunk));
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return 1;
        if (n < 0 && fds[1].revents)
            return 1;
        if (n <= 0)
            continue;
        r->bytes += (size_t)n;
        if (hb_buf_len(&r->out) + (size_t)n <= c->max_bytes)
            (void)hb_buf_append(&r->out, chunk, (size_t)n);
    }
}

/* Starts the child with the socket `in` as its stdin, as under sshd: some
 * shells decide by that which start-up files to read. */
static int start(const struct capture *c, int in, int out, int null,
                 struct spawn_child *child)
{
    sigset_t reset;
    struct spawn_options o = {
        .path = c->argv[0],
        .argv = c->argv,
        .envp = c->envp,
        .cwd = c->cwd,
        .stdio = {in, out, c->with_stderr ? out : null},
        .reset = &reset,
    };

    spawn_signals_to_reset(&reset);
    return spawn_process(&o, child, NULL, NULL);
}

static void collect(struct spawn_child *child, int in_time, uint64_t deadline,
                    struct capture_result *r)
{
    struct pollfd end = {child->pidfd, POLLIN, 0};
    int status = 0;

    if (!in_time || poll(&end, 1, ms_left(deadline)) == 0) {
        kill(-child->pid, SIGKILL);
        in_time = 0;
    }
    waitpid(child->pid, &status, 0);
    close(child->pidfd);
    r->status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (!in_time)
        r->status = STATUS_TIMEOUT;
}

int capture_run(const struct capture *c, struct capture_result *r)
{
    uint64_t began = hb_now_ns();
    uint64_t deadline = began + (uint64_t)c->timeout_ms * 1000000;
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct spawn_child child;
    int rc = -HVD_ESYSTEM;

    memset(r, 0, sizeof(*r));
    if (null < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 ||
        pipe2(out, O_CLOEXEC) < 0)
        goto done;
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    rc = start(c, in[1], out[1], null, &child);
    close(in[1]);
    close(out[1]);
    in[1] = out[1] = -1;
    if (rc < 0)
        goto done;
    shutdown(in[0], SHUT_WR);
    collect(&child, read_all(out[0], child.pidfd, c, deadline, r), deadline, r);
    r->ms = (double)(hb_now_ns() - began) / 1e6;
done:
    for (int i = 0; i < 2; i++) {
        if (in[i] >= 0)
            close(in[i]);
        if (out[i] >= 0)
            close(out[i]);
    }
    if (null >= 0)
        close(null);
    return rc;
}
