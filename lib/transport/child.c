/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes; see child.h.
 *
 * They are started with posix_spawn, which shares the parent's memory until the
 * exec, so its cost does not depend on the parent's size, and which reports a
 * failed exec to the caller.
 */
#include "lib/transport/child.h"

#include "lib/base/alloc.h"
#include "lib/base/strv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHILD_STDERR_BYTES = 4 << 10,
    CHILD_STDERR_CHUNKS = 16,
    CHILD_TERM_MS = 500, /* from SIGTERM to SIGKILL */
    CHILD_REAP_MS = 5,   /* between looks at a group that is being killed */
    CHILD_REAPS_MAX = 200,
    /* Where a tied child has its end of the socket: see tie().  Shells use
     * other numbers while it is open: bash takes 62 instead for <(command). */
    CHILD_LIFE_FD = 63,
};

struct child {
    struct child_config config;
    pid_t pid;  /* -1: reaped */
    pid_t pgrp; /* of a tied child that is reaped; 0: nothing is left of it */
    int reaps;  /* looks at it */
    int err_fd, pidfd;
    int life_fd; /* -1, or a socket that ends with this process: see tie() */
    uv_poll_t err_io, exit_io;
    uv_timer_t kill_timer;
    int handles; /* not yet closed */
    int closing; /* child_close was called */
    int termed;  /* SIGTERM was sent */
};

/* ---- Closing ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void child_free(struct child *c)
{
    close_fd(&c->err_fd);
    close_fd(&c->pidfd);
    close_fd(&c->life_fd);
    hb_free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct child *c = handle->data;
    void (*on_close)(void *arg) = c->config.on_close;
    void *arg = c->config.arg;

    if (--c->handles > 0)
        return;
    child_free(c);
    on_close(arg);
}

static void on_reap_timer(uv_timer_t *timer);

/* Reaps the members of the killed group that have become children of this
 * process, a subreaper.  As long as there are any, nothing else can have the
 * group's number.  Returns whether it has to look again. */
static int child_reap_group(struct child *c)
{
    pid_t pid = 1;

    while (c->pgrp && pid > 0)
        pid = waitpid(-c->pgrp, NULL, WNOHANG);
    return c->pgrp && pid == 0 && c->reaps++ < CHILD_REAPS_MAX;
}

/* Closes all handles once the group is gone; to be called when the child is
 * reaped and child_close was called. */
static void child_release(struct child *c)
{
    if (child_reap_group(c)) {
        uv_timer_start(&c->kill_timer, on_reap_timer, CHILD_REAP_MS, 0);
        return;
    }
    uv_close((uv_handle_t *)&c->err_io, on_handle_closed);
    uv_close((uv_handle_t *)&c->exit_io, on_handle_closed);
    uv_close((uv_handle_t *)&c->kill_timer, on_handle_closed);
}

static void on_reap_timer(uv_timer_t *timer)
{
    child_release(timer->data);
}

static void child_kill(struct child *c, int signo)
{
    kill(c->config.group ? -c->pid : c->pid, signo);
}

/* Continues a stopped child, which could not end otherwise.  Others get no
 * SIGCONT: it would take away the SIGSTOP with which a debugger or a leak check
 * attaches, and that would wait for ever. */
static void child_continue(struct child *c)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)c->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == c->pid)
        child_kill(c, SIGCONT);
}

static void on_kill_timer(uv_timer_t *timer)
{
    struct child *c = timer->data;

    if (c->config.group && !c->termed) {
        c->termed = 1;
        child_kill(c, SIGTERM);
        child_kill(c, SIGCONT);
        uv_timer_start(&c->kill_timer, on_kill_timer, CHILD_TERM_MS, 0);
        return;
    }
    hb_log(c->config.log, c->termed ? HB_LOG_DEBUG : HB_LOG_WARNING,
           "host %s: the %s (pid %d) did not end; killing it", c->config.host,
           c->config.what, (int)c->pid);
    child_kill(c, SIGKILL);
}

void child_close(struct child *c, int wait_ms)
{
    int first = !c->closing;

    c->closing = 1;
    if (c->pid < 0) {
        if (first)
            child_release(c);
        return;
    }
    child_continue(c);
    if (first ||
        (!c->termed && uv_timer_get_due_in(&c->kill_timer) > (uint64_t)wait_ms))
        uv_timer_start(&c->kill_timer, on_kill_timer, (uint64_t)wait_ms, 0);
}

/* ---- What it says and how it ends ---- */

/* Reads at most what a pipe holds, so that a flood does not block the loop. */
static void child_read_stderr(struct child *c)
{
    char chunk[CHILD_STDERR_BYTES];
    ssize_t n = 1;

    for (int i = 0; i < CHILD_STDERR_CHUNKS && n > 0; i++) {
        n = read(c->err_fd, chunk, sizeof(chunk));
        if (n > 0)
            c->config.on_stderr(c->config.arg, chunk, (size_t)n);
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        uv_poll_stop(&c->err_io);
}

static void on_err_io(uv_poll_t *io, int status, int events)
{
    (void)events;
    if (status < 0)
        uv_poll_stop(io);
    else
        child_read_stderr(io->data);
}

static void log_exit(const struct child *c, int wstatus)
{
    if (WIFSIGNALED(wstatus))
        hb_log(c->config.log, HB_LOG_DEBUG,
               "host %s: %s pid %d was killed by signal %d", c->config.host,
               c->config.what, (int)c->pid, WTERMSIG(wstatus));
    else
        hb_log(c->config.log, HB_LOG_DEBUG, "host %s: %s pid %d exited %d",
               c->config.host, c->config.what, (int)c->pid,
               WEXITSTATUS(wstatus));
}

static void on_exit_io(uv_poll_t *io, int status, int events)
{
    struct child *c = io->data;
    int closing = c->closing, wstatus = 0;

    (void)status;
    (void)events;
    /* Until the child is reaped, its process group id cannot be reused. */
    if (c->termed || c->config.tied)
        child_kill(c, SIGKILL);
    if (waitpid(c->pid, &wstatus, WNOHANG) == 0)
        return;
    uv_poll_stop(io);
    uv_timer_stop(&c->kill_timer);
    child_read_stderr(c);
    log_exit(c, wstatus);
    c->pgrp = c->config.tied ? c->pid : 0;
    c->pid = -1;
    c->config.on_exit(c->config.arg, wstatus);
    if (closing)
        child_release(c);
}

/* ---- Opening ---- */

static int spawn_limited(pid_t *pid, const struct child_config *config,
                         const posix_spawn_file_actions_t *files,
                         const posix_spawnattr_t *attr)
{
    char *const *env = config->env ? config->env : environ;
    struct rlimit ours;
    int rc;

    if (config->nofile) {
        getrlimit(RLIMIT_NOFILE, &ours);
        setrlimit(RLIMIT_NOFILE, config->nofile);
    }
    if (config->path)
        rc = posix_spawn(pid, config->path, files, attr, config->argv, env);
    else
        rc = posix_spawnp(pid, config->argv[0], files, attr, config->argv, env);
    if (config->nofile)
        setrlimit(RLIMIT_NOFILE, &ours);
    return rc;
}

/* Resets SIGPIPE and SIGXFSZ, which this process ignores, and unblocks all
 * signals: children must not inherit that. */
static int set_attributes(posix_spawnattr_t *attr)
{
    sigset_t reset, none;
    int rc;

    sigemptyset(&none);
    sigemptyset(&reset);
    sigaddset(&reset, SIGPIPE);
    sigaddset(&reset, SIGXFSZ);
    rc = posix_spawnattr_setsigdefault(attr, &reset);
    if (!rc)
        rc = posix_spawnattr_setsigmask(attr, &none);
    if (!rc)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF |
                                                POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSID);
    return rc;
}

/* The child's ends of the socket and the pipe that tie it to this process; both
 * are -1 if the child is not tied. */
struct ties {
    int life; /* see tie() */
    int go;   /* where a line says that it is tied */
};

/* Adds the actions that set up the child's file descriptors. */
static int set_files(posix_spawn_file_actions_t *files, int fd, int err_fd,
                     struct ties ties)
{
    int rc =
        posix_spawn_file_actions_adddup2(files, ties.go < 0 ? fd : ties.go, 0);

    if (!rc)
        rc = posix_spawn_file_actions_adddup2(files, fd, 1);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(files, err_fd, 2);
    if (!rc && ties.life >= 0)
        rc = posix_spawn_file_actions_adddup2(files, ties.life, CHILD_LIFE_FD);
    return rc;
}

static int child_spawn(const struct child_config *config, int fd, int err_fd,
                       struct ties ties, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&files);

    if (rc)
        return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc)
        goto out;
    rc = set_attributes(&attr);
    if (!rc)
        rc = set_files(&files, fd, err_fd, ties);
    if (!rc)
        rc = spawn_limited(pid, config, &files, &attr);
    posix_spawnattr_destroy(&attr);
out:
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

static void init_poll(struct child *c, uv_poll_t *io, int fd, uv_poll_cb cb)
{
    int rc = uv_poll_init(c->config.loop, io, fd);

    assert(rc == 0); /* pipes and pidfds can be polled */
    (void)rc;
    io->data = c;
    c->handles++;
    uv_poll_start(io, UV_READABLE, cb);
}

static void init_handles(struct child *c)
{
    init_poll(c, &c->err_io, c->err_fd, on_err_io);
    init_poll(c, &c->exit_io, c->pidfd, on_exit_io);
    uv_timer_init(c->config.loop, &c->kill_timer);
    c->kill_timer.data = c;
    c->handles++;
}

/* Makes the kernel kill the child's group when this process dies: the child
 * holds the socket `theirs`, whose other end is closed then, and about which
 * the kernel tells the group by SIGKILL instead of SIGIO.  Nothing is ever
 * sent. */
static void tie(const struct child *c, int theirs)
{
    fcntl(theirs, F_SETSIG, SIGKILL);
    fcntl(theirs, F_SETOWN, -c->pid);
    fcntl(theirs, F_SETFL, O_ASYNC);
}

/* Starts a shell that waits for a line on its standard input and then executes
 * argv[0].  The line is written once the child is tied; if this process dies
 * earlier, the shell reads an end of file and exits.  Returns 0 or an errno. */
static int start_waiting(struct child *c, int fd, int err_fd, struct ties ties)
{
    char shell[] = "/bin/sh", option[] = "-c";
    char script[] = "read -r go && exec \"$0\" \"$@\" </dev/null";
    char *const before[] = {shell, option, script, NULL};
    struct child_config waiting = c->config;
    struct hb_strv argv = HB_STRV_INIT;
    int rc;

    hb_must(hb_strv_add_all(&argv, before));
    hb_must(hb_strv_add_all(&argv, c->config.argv));
    waiting.path = shell;
    waiting.argv = argv.items;
    rc = child_spawn(&waiting, fd, err_fd, ties, &c->pid);
    hb_strv_free(&argv);
    return rc;
}

static int start_tied(struct child *c, int fd, int err_fd)
{
    int life[2] = {-1, -1}, go[2] = {-1, -1}, rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life) < 0 ||
        pipe2(go, O_CLOEXEC) < 0)
        rc = errno;
    else
        rc = start_waiting(c, fd, err_fd, (struct ties){life[1], go[0]});
    if (!rc) {
        tie(c, life[1]);
        (void)!write(go[1], "\n", 1); /* a pipe holds that much */
    }
    close_fd(&life[1]);
    close_fd(&go[0]);
    close_fd(&go[1]);
    c->life_fd = life[0];
    return rc;
}

/* Starts the child, as a tied one if the config asks for that.  Returns 0 or an
 * errno. */
static int child_start(struct child *c, int fd, int err_fd)
{
    const struct ties none = {-1, -1};

    return c->config.tied ? start_tied(c, fd, err_fd)
                          : child_spawn(&c->config, fd, err_fd, none, &c->pid);
}

int child_open(const struct child_config *config, int fd, struct child **out)
{
    struct child *c = hb_xcalloc(1, sizeof(*c));
    int errs[2] = {-1, -1};
    int rc;

    c->config = *config;
    c->pid = c->err_fd = c->pidfd = c->life_fd = -1;
    if (pipe2(errs, O_CLOEXEC) < 0) {
        rc = errno;
        goto out;
    }
    rc = child_start(c, fd, errs[1]);
    if (rc)
        goto out;
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->pidfd < 0) {
        rc = errno;
        kill(c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
        goto out;
    }
    c->err_fd = errs[0];
    errs[0] = -1;
    c->config.argv = c->config.env = NULL;
    init_handles(c);
    *out = c;
    c = NULL;
out:
    close_fd(&errs[0]);
    close_fd(&errs[1]);
    if (c)
        child_free(c);
    return -rc;
}
