/* SPDX-License-Identifier: Apache-2.0 */
/* Starting hvd-pmix and speaking with it; see pmix_server.h. */
#include "lib/agent/wireup/pmix/pmix_server.h"

#include "lib/agent/rank/spawn.h"
#include "lib/agent/wireup/pmix/pmix_image.h"

#include "lib/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, READS_PER_TURN = 64 };

static void on_poll(uv_poll_t *poll, int status, int events);

/* ---- Starting --------------------------------------------------------- */

static int spawn(int program, int peer, char *const *env, pid_t *pid,
                 struct hb_error *err)
{
    char name[] = "hvd-pmix", *argv[] = {name, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int stderr_fd = fcntl(2, F_DUPFD_CLOEXEC, 3);
    struct spawn_options o = {
        .path = name,
        .program_fd = program,
        .argv = argv,
        .envp = env,
        .stdio = {peer, null, stderr_fd},
    };
    struct spawn_child child = {0, -1};
    int rc;

    if (null < 0 || stderr_fd < 0)
        rc = hb_error_sys(err, errno, "cannot start hvd-pmix");
    else
        rc = spawn_process(&o, &child, NULL, err);
    if (rc == 0) {
        close(child.pidfd);
        *pid = child.pid;
    }
    if (null >= 0)
        close(null);
    if (stderr_fd >= 0)
        close(stderr_fd);
    return rc;
}

int pmix_server_start(struct pmix_server *s, uv_loop_t *loop, char *const *env,
                      pid_t *pid, struct hb_error *err)
{
    int pair[2], program, rc;

    s->fd = -1;
    program = pmix_image_open(err);
    if (program < 0)
        return program;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        rc = hb_error_sys(err, errno, "cannot make a pair of sockets");
        close(program);
        return rc;
    }
    rc = spawn(program, pair[1], env, pid, err);
    close(program);
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return rc;
    }
    s->fd = pair[0];
    (void)fcntl(s->fd, F_SETFL, O_NONBLOCK);
    rc = uv_poll_init(loop, &s->poll, s->fd);
    if (rc < 0) { /* hvd-pmix ends when its socket does */
        close(s->fd);
        s->fd = -1;
        return hb_error_sys(err, -rc, "cannot watch hvd-pmix");
    }
    s->poll.data = s;
    uv_poll_start(&s->poll, UV_READABLE, on_poll);
    return 0;
}

/* ---- Ending ----------------------------------------------------------- */

void pmix_server_close(struct pmix_server *s)
{
    if (s->fd < 0)
        return;
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, NULL);
    close(s->fd);
    s->fd = -1;
}

void pmix_server_fini(struct pmix_server *s)
{
    hb_buf_free(&s->in);
    hb_buf_free(&s->out);
}

static void fail(struct pmix_server *s, const struct hb_error *err)
{
    pmix_server_close(s);
    s->on_error(s->arg, err);
}

/* ---- Writing ---------------------------------------------------------- */

struct hb_buf *pmix_server_out(struct pmix_server *s)
{
    return &s->out;
}

void pmix_server_flush(struct pmix_server *s)
{
    struct hb_error err = HB_ERROR_INIT;

    while (s->fd >= 0 && hb_buf_len(&s->out) > 0) {
        ssize_t n = send(s->fd, hb_buf_data(&s->out), hb_buf_len(&s->out),
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* full; or it is dead, which its owner learns as parent */
        hb_buf_consume(&s->out, (size_t)n);
    }
    if (s->fd < 0)
        return;
    if (hb_buf_len(&s->out) > PMIX_SERVER_QUEUE_MAX) {
        hb_error_set(&err, HVD_ESYSTEM, "hvd-pmix does not read");
        fail(s, &err);
        return;
    }
    uv_poll_start(&s->poll,
                  hb_buf_len(&s->out) ? UV_READABLE | UV_WRITABLE : UV_READABLE,
                  on_poll);
}

/* ---- Reading ---------------------------------------------------------- */

/* Handles the whole messages in the buffer.  A handler may close. */
static int handle(struct pmix_server *s, struct hb_error *err)
{
    struct frame f;
    int rc = 0;

    while (s->fd >= 0 &&
           (rc = frame_decode(&s->in, FRAME_PAYLOAD_MAX, &f, err)) > 0) {
        rc = s->on_frame(s->arg, &f, err);
        if (rc < 0)
            break;
        frame_done(&s->in, &f);
    }
    return rc < 0 ? rc : 0;
}

void pmix_server_read(struct pmix_server *s)
{
    struct hb_error err = HB_ERROR_INIT;
    char bytes[READ_BYTES];
    ssize_t n;

    for (int i = 0; i < READS_PER_TURN && s->fd >= 0; i++) {
        n = recv(s->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        if (n == 0) { /* its owner learns its end as its parent */
            uv_poll_stop(&s->poll);
            return;
        }
        hb_must(hb_buf_append(&s->in, bytes, (size_t)n));
        if (handle(s, &err) < 0) {
            fail(s, &err);
            return;
        }
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct pmix_server *s = poll->data;

    (void)status;
    if (events & UV_WRITABLE)
        pmix_server_flush(s);
    if (s->fd >= 0)
        pmix_server_read(s);
}
