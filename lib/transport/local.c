/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent of this machine: a child whose stdin and stdout are one end of
 * a socketpair and whose stderr is a pipe.
 *
 * The child is started with posix_spawn, which shares the parent's memory
 * until the exec and so costs the same however large the parent is, and
 * which reports a failed exec to the caller.  Its end is learned from a
 * pidfd: no SIGCHLD handler, and a pid that cannot be confused with
 * another.  A transport has four handles on the loop; on_close runs when
 * all are closed, and they are closed when the child has been reaped.
 */
#include "lib/transport/transport_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOCAL_READ_BYTES = 128 << 10,
    LOCAL_STDERR_BYTES = 4 << 10,
    /* How long an ended stream waits for the exit that explains it. */
    LOCAL_STATUS_WAIT_MS = 2000,
};

struct local {
    struct transport base;
    uv_loop_t *loop;
    const struct hb_log *log;
    const char *host;
    struct transport_events events;
    void *arg;
    int exit_wait_ms;

    pid_t pid;
    int fd, err_fd, pidfd;
    uv_poll_t io, err_io, exit_io;
    uv_timer_t kill_timer;
    int handles; /* not yet closed */
    struct hb_buf out;
    int closing;  /* transport_close was called */
    int shut;     /* our direction is shut down */
    int ended;    /* the agent's direction has ended */
    int told;     /* and that was told */
    int wstatus;  /* of the child, once pid is -1 */
    int released; /* handles are being closed */
    char *read_buf;
};

static struct local *local_of(struct transport *t)
{
    return (struct local *)t;
}

/* ---- Closing ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void local_free(struct local *l)
{
    close_fd(&l->fd);
    close_fd(&l->err_fd);
    close_fd(&l->pidfd);
    hb_buf_free(&l->out);
    hb_free(l->read_buf);
    hb_free(l);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct local *l = handle->data;
    struct transport_events events = l->events;
    void *arg = l->arg;

    if (--l->handles > 0)
        return;
    local_free(l);
    events.on_close(arg);
}

static void local_release(struct local *l)
{
    if (l->released)
        return;
    l->released = 1;
    uv_close((uv_handle_t *)&l->io, on_handle_closed);
    uv_close((uv_handle_t *)&l->err_io, on_handle_closed);
    uv_close((uv_handle_t *)&l->exit_io, on_handle_closed);
    uv_close((uv_handle_t *)&l->kill_timer, on_handle_closed);
}

/* ---- The stream ---- */

static void on_io(uv_poll_t *io, int status, int events);

static void local_poll(struct local *l)
{
    int events = 0;

    if (!l->ended)
        events |= UV_READABLE;
    if (hb_buf_len(&l->out) > 0)
        events |= UV_WRITABLE;
    if (l->released)
        return;
    if (events)
        uv_poll_start(&l->io, events, on_io);
    else
        uv_poll_stop(&l->io);
}

static void local_shut(struct local *l)
{
    if (!l->closing || l->shut || hb_buf_len(&l->out) > 0)
        return;
    l->shut = 1;
    shutdown(l->fd, SHUT_WR);
}

/* Bytes sent at once; a broken connection counts as sent, because its end
 * is reported by the reading side. */
static size_t local_send(struct local *l, const char *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n =
            send(l->fd, bytes + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            return len;
    }
    return done;
}

static void local_tell_end(struct local *l, const struct hb_error *err)
{
    if (l->told || l->closing)
        return;
    l->told = 1;
    l->events.on_end(l->arg, err);
}

/* The stream has ended, and the child may have, too: its guardian passes a
 * signal of the agent on as 128 + n. */
static void local_explain_end(struct local *l)
{
    struct hb_error err = HB_ERROR_INIT;
    int code =
        l->pid < 0 && WIFEXITED(l->wstatus) ? WEXITSTATUS(l->wstatus) : 0;
    int signo = code > 128 ? code - 128 : 0;
    const char *name;

    if (l->pid < 0 && WIFSIGNALED(l->wstatus))
        signo = WTERMSIG(l->wstatus);
    name = signo ? sigabbrev_np(signo) : NULL;
    if (name)
        hb_error_set(&err, HVD_ECLOSED, "it was killed by signal %d (SIG%s)",
                     signo, name);
    else if (code)
        hb_error_set(&err, HVD_ECLOSED, "it exited with code %d", code);
    local_tell_end(l, err.status ? &err : NULL);
}

static void on_status_timer(uv_timer_t *timer)
{
    local_explain_end(timer->data);
}

/* err NULL: orderly, or so it seems. */
static void local_end(struct local *l, const struct hb_error *err)
{
    l->ended = 1;
    hb_buf_clear(&l->out);
    local_poll(l);
    if (err)
        local_tell_end(l, err);
    else if (l->pid < 0)
        local_explain_end(l);
    else if (!l->closing)
        uv_timer_start(&l->kill_timer, on_status_timer, LOCAL_STATUS_WAIT_MS,
                       0);
}

static void local_read(struct local *l)
{
    struct hb_error err = HB_ERROR_INIT;
    ssize_t n = recv(l->fd, l->read_buf, LOCAL_READ_BYTES, MSG_DONTWAIT);

    if (n > 0) {
        if (!l->closing)
            l->events.on_read(l->arg, l->read_buf, (size_t)n);
    } else if (n == 0 || errno == ECONNRESET) {
        /* reset: the agent left something unread, which is no news */
        local_end(l, NULL);
    } else if (errno != EAGAIN && errno != EINTR) {
        hb_error_sys(&err, errno, "host %s: reading from the agent", l->host);
        local_end(l, &err);
    }
}

static void on_io(uv_poll_t *io, int status, int events)
{
    struct local *l = io->data;

    if (status < 0)
        events = UV_READABLE; /* the read tells what is wrong */
    if (events & UV_WRITABLE) {
        size_t n = local_send(l, hb_buf_data(&l->out), hb_buf_len(&l->out));
        hb_buf_consume(&l->out, n);
        local_shut(l);
        if (hb_buf_len(&l->out) == 0)
            local_poll(l);
    }
    if ((events & UV_READABLE) && !l->ended)
        local_read(l);
    /* libuv stops a poll on error, but what the agent said before it
     * reset the connection is still to be read. */
    if (status < 0 && !l->ended)
        local_poll(l);
}

static int local_write(struct transport *t, const void *bytes, size_t len)
{
    struct local *l = local_of(t);
    size_t done = 0;

    if (l->closing || l->ended)
        return -HVD_ECLOSED;
    if (hb_buf_len(&l->out) == 0)
        done = local_send(l, bytes, len);
    if (done == len)
        return 0;
    if (hb_buf_append(&l->out, (const char *)bytes + done, len - done) < 0)
        return -HVD_ENOMEM;
    local_poll(l);
    return 0;
}

static size_t local_write_queued(const struct transport *t)
{
    return hb_buf_len(&((const struct local *)t)->out);
}

/* ---- The child ---- */

static void local_read_stderr(struct local *l)
{
    char chunk[LOCAL_STDERR_BYTES];
    ssize_t n;

    while ((n = read(l->err_fd, chunk, sizeof(chunk))) > 0)
        l->events.on_stderr(l->arg, chunk, (size_t)n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        uv_poll_stop(&l->err_io);
}

static void on_err_io(uv_poll_t *io, int status, int events)
{
    struct local *l = io->data;

    (void)events;
    if (status < 0)
        uv_poll_stop(io);
    else
        local_read_stderr(l);
}

/* The child has ended; what it wrote before may still be unread, so the
 * stream is released only when its end was seen and the caller closed. */
static void on_exit_io(uv_poll_t *io, int status, int events)
{
    struct local *l = io->data;
    int wstatus = 0;

    (void)status;
    (void)events;
    if (waitpid(l->pid, &wstatus, WNOHANG) == 0)
        return;
    l->wstatus = wstatus;
    uv_poll_stop(io);
    local_read_stderr(l);
    if (WIFSIGNALED(wstatus))
        hb_log(l->log, HB_LOG_DEBUG,
               "host %s: agent pid %d was killed by signal %d", l->host,
               (int)l->pid, WTERMSIG(wstatus));
    else
        hb_log(l->log, HB_LOG_DEBUG, "host %s: agent pid %d exited %d", l->host,
               (int)l->pid, WEXITSTATUS(wstatus));
    l->pid = -1;
    if (l->closing)
        local_release(l);
    else if (l->ended)
        local_explain_end(l);
}

static void on_kill_timer(uv_timer_t *timer)
{
    struct local *l = timer->data;

    hb_log(l->log, HB_LOG_WARNING,
           "host %s: the agent (pid %d) did not end; killing it", l->host,
           (int)l->pid);
    kill(l->pid, SIGKILL);
}

static void local_close(struct transport *t)
{
    struct local *l = local_of(t);

    if (l->closing)
        return;
    l->closing = 1;
    local_shut(l);
    if (l->pid < 0) {
        local_release(l);
        return;
    }
    kill(l->pid, SIGCONT); /* a stopped one could not end */
    uv_timer_start(&l->kill_timer, on_kill_timer, (uint64_t)l->exit_wait_ms, 0);
}

/* ---- Opening ---- */

static const struct transport_ops local_ops = {
    .write = local_write,
    .write_queued = local_write_queued,
    .close = local_close,
};

/* Runs posix_spawn with the descriptor limit that the agent shall have. */
static int spawn_limited(pid_t *pid, const struct transport_config *config,
                         const posix_spawn_file_actions_t *files,
                         const posix_spawnattr_t *attr)
{
    char name[] = "hvd-agent";
    char *argv[] = {name, NULL};
    struct rlimit ours;
    int rc;

    if (config->nofile) {
        getrlimit(RLIMIT_NOFILE, &ours);
        setrlimit(RLIMIT_NOFILE, config->nofile);
    }
    rc = posix_spawn(pid, config->agent_path, files, attr, argv, environ);
    if (config->nofile)
        setrlimit(RLIMIT_NOFILE, &ours);
    return rc;
}

/* SIGPIPE and SIGXFSZ are ignored in this process, and some signals are
 * blocked: the workers must not inherit that. */
static int spawn_agent(const struct transport_config *config, int fd,
                       int err_fd, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t reset, none;
    int rc;

    sigemptyset(&none);
    sigemptyset(&reset);
    sigaddset(&reset, SIGPIPE);
    sigaddset(&reset, SIGXFSZ);
    rc = posix_spawn_file_actions_init(&files);
    if (rc)
        return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc)
        goto out;
    rc = posix_spawnattr_setsigdefault(&attr, &reset);
    if (!rc)
        rc = posix_spawnattr_setsigmask(&attr, &none);
    if (!rc)
        rc = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF |
                                                 POSIX_SPAWN_SETSIGMASK);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&files, fd, 0);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&files, fd, 1);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&files, err_fd, 2);
    if (!rc)
        rc = spawn_limited(pid, config, &files, &attr);
    posix_spawnattr_destroy(&attr);
out:
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

static int start_error(const struct transport_config *config, int e,
                       struct hb_error *err)
{
    if (e == EACCES || e == ENOENT || e == ENOEXEC || e == ENOTDIR)
        return hb_error_sys(err, e,
                            "host %s: cannot start the agent %s "
                            "(see --agent)",
                            config->host, config->agent_path);
    return hb_error_sys(err, e, "host %s: cannot start the agent%s",
                        config->host,
                        e == EMFILE   ? " (see ulimit -n)"
                        : e == EAGAIN ? " (see ulimit -u)"
                                      : "");
}

static void init_poll(struct local *l, uv_poll_t *io, int fd)
{
    int rc = uv_poll_init(l->loop, io, fd);

    assert(rc == 0); /* sockets, pipes and pidfds can all be polled */
    (void)rc;
    io->data = l;
    l->handles++;
}

static void init_handles(struct local *l)
{
    init_poll(l, &l->io, l->fd);
    init_poll(l, &l->err_io, l->err_fd);
    init_poll(l, &l->exit_io, l->pidfd);
    uv_timer_init(l->loop, &l->kill_timer);
    l->kill_timer.data = l;
    l->handles++;
    uv_poll_start(&l->io, UV_READABLE, on_io);
    uv_poll_start(&l->err_io, UV_READABLE, on_err_io);
    uv_poll_start(&l->exit_io, UV_READABLE, on_exit_io);
}

static struct local *local_new(const struct transport_config *config)
{
    struct local *l = hb_xcalloc(1, sizeof(*l));

    l->base.ops = &local_ops;
    l->loop = config->loop;
    l->log = config->log;
    l->host = config->host;
    l->events = config->events;
    l->arg = config->arg;
    l->exit_wait_ms = config->exit_wait_ms;
    l->pid = -1;
    l->fd = l->err_fd = l->pidfd = -1;
    l->read_buf = hb_xmalloc(LOCAL_READ_BYTES);
    return l;
}

int transport_open_local(const struct transport_config *config,
                         struct transport **out, struct hb_error *err)
{
    struct local *l = local_new(config);
    int pair[2] = {-1, -1}, errs[2] = {-1, -1};
    int rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        pipe2(errs, O_CLOEXEC) < 0) {
        rc = start_error(config, errno, err);
        goto out;
    }
    rc = spawn_agent(config, pair[1], errs[1], &l->pid);
    if (rc) {
        rc = start_error(config, rc, err);
        goto out;
    }
    l->pidfd = (int)syscall(SYS_pidfd_open, l->pid, 0);
    if (l->pidfd < 0) {
        rc = start_error(config, errno, err);
        kill(l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
        goto out;
    }
    l->fd = pair[0];
    l->err_fd = errs[0];
    pair[0] = errs[0] = -1;
    init_handles(l);
    *out = &l->base;
    l = NULL;
    rc = 0;
out:
    close_fd(&pair[0]);
    close_fd(&pair[1]);
    close_fd(&errs[0]);
    close_fd(&errs[1]);
    if (l)
        local_free(l);
    return rc;
}
