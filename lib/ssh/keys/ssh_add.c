/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssh-add; see ssh_add.h.
 *
 * Messages are those of an ssh-agent: u32 length, a type, a body.  The socket
 * has a name only while it is being made.  ssh-add reaches it by its standard
 * output, which is an O_PATH descriptor of that name.  Other processes of the
 * user could reach it through that descriptor in /proc, so the connection must
 * come from the process that was started.
 *
 * ssh-add asks on a terminal, or else by a program of SSH_ASKPASS if there is a
 * display; without both it reads its standard input.
 */
#include "lib/ssh/keys/ssh_add.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/hvd_status.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    AGENT_FAILURE = 5,
    AGENT_SUCCESS = 6,
    AGENT_ADD_IDENTITY = 17,
    HEAD_BYTES = 4,
    MESSAGE_MAX = 64 << 10,
    SAID_MAX = 4 << 10,
    LINE_SHOWN = 100,
};

/* A run of ssh-add. */
struct ssh_add {
    pid_t pid;
    int pid_fd; /* readable at its end; -1 if the kernel cannot tell */
    int cancel_fd;
    int sock; /* the listener, then the connection; -1 after its end */
    int connected;
    int name_fd, in_fd, err_fd; /* ssh-add's 1, 0 and 2, until it runs */
    int said_fd;                /* its stderr, to be read */
    char said[SAID_MAX];
    size_t said_len;
    struct hb_buf in;   /* an incomplete message */
    struct hb_buf *key; /* the result */
    char *why;          /* or this, of SSH_ADD_WHY_MAX bytes */
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Notes that `what` has failed by errno. */
static int fail(struct ssh_add *a, const char *what)
{
    snprintf(a->why, SSH_ADD_WHY_MAX, "%s: %.80s", what, strerror(errno));
    return -HVD_EPROTO;
}

static int is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           access(path, X_OK) == 0;
}

char *ssh_add_find(void)
{
    const char *dirs = hb_variable("PATH");

    for (dirs = dirs ? dirs : "/usr/bin:/bin"; *dirs;) {
        int n = (int)strcspn(dirs, ":");
        char *path = hb_xasprintf("%.*s/ssh-add", n, dirs);

        if (dirs[0] == '/' && is_program(path))
            return path;
        hb_free(path);
        dirs += n + (dirs[n] == ':');
    }
    return NULL;
}

/* ---- Starting ---- */

/* Closes *fd unless it is of our user, of that type and, if mode is not 0, has
 * that mode. */
static void check_own(int *fd, mode_t type, mode_t mode)
{
    struct stat st;

    if (*fd < 0)
        return;
    if (fstat(*fd, &st) == 0 && (st.st_mode & S_IFMT) == type &&
        st.st_uid == geteuid() && (!mode || (st.st_mode & 0777) == mode))
        return;
    close_fd(fd);
    errno = EPERM;
}

/* Binds the socket to a name in the folder, opens the name and removes it.
 * Reaches the folder by its descriptor: whoever may write to the folder above
 * could exchange it, and its path may be longer than a socket's address. */
static void bind_in(struct ssh_add *a, int folder)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/agent",
             folder);
    if (bind(a->sock, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return;
    a->name_fd = openat(folder, "agent", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    check_own(&a->name_fd, S_IFSOCK, 0);
    unlinkat(folder, "agent", 0);
}

/* Makes the socket in a new folder below `parent`.  Only our user can enter the
 * folder, and it is gone before anybody can connect. */
static int open_socket_in(struct ssh_add *a, const char *parent)
{
    /* a name that `hvdrun clean` knows */
    char *folder = hb_xasprintf("%s/hvd-XXXXXX", parent);
    int dir = -1, e;

    a->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->sock >= 0 && mkdtemp(folder)) {
        dir = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        check_own(&dir, S_IFDIR, 0700);
        if (dir >= 0)
            bind_in(a, dir);
        e = errno;
        close_fd(&dir);
        rmdir(folder);
        errno = e;
    }
    hb_free(folder);
    return a->name_fd < 0 ? -1 : listen(a->sock, 1);
}

/* Makes the socket where the user wants temporary files or, if that fails, in
 * /tmp. */
static int open_socket(struct ssh_add *a)
{
    const char *tmpdir = hb_variable("TMPDIR");

    if (tmpdir && tmpdir[0] == '/' && open_socket_in(a, tmpdir) == 0)
        return 0;
    close_fd(&a->name_fd);
    close_fd(&a->sock);
    return open_socket_in(a, "/tmp");
}

/* Makes the pipes; ssh-add will find the passphrase in its own. */
static int open_pipes(struct ssh_add *a, const char *passphrase)
{
    ssize_t len = (ssize_t)strlen(passphrase);
    int in[2], err[2], ok;

    if (pipe2(in, O_CLOEXEC) < 0)
        return -1;
    a->in_fd = in[0];
    ok = write(in[1], passphrase, (size_t)len) == len &&
         write(in[1], "\n", 1) == 1;
    close(in[1]);
    if (!ok || pipe2(err, O_CLOEXEC) < 0)
        return -1;
    a->said_fd = err[0];
    a->err_fd = err[1];
    return 0;
}

/* Copies our environment without what makes ssh-add ask elsewhere. */
static int make_env(struct hb_strv *env)
{
    static const char *const without[] = {
        "DISPLAY=", "WAYLAND_DISPLAY=", "SSH_ASKPASS_REQUIRE=",
        "SSH_AUTH_SOCK="};
    int rc = hb_strv_add(env, "SSH_AUTH_SOCK=/proc/self/fd/1");

    for (char **p = environ; *p && rc == 0; p++) {
        int drop = 0;

        for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
            drop |= strncmp(*p, without[i], strlen(without[i])) == 0;
        if (!drop)
            rc = hb_strv_add(env, *p);
    }
    return rc;
}

/* Becomes ssh-add.  Runs in a child of a process with threads: it may only use
 * what a signal handler may. */
__attribute__((noreturn)) static void become(const struct ssh_add *a,
                                             pid_t parent, char *const *argv,
                                             char *const *env)
{
    static const char trouble[] = "it cannot be started\n";
    const struct rlimit no_core = {0, 0};
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setsid();                         /* it has no terminal */
    setrlimit(RLIMIT_CORE, &no_core); /* its memory will hold the key */
    for (int i = 1; i < NSIG; i++) /* our handlers would write to our pipes */
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(a->in_fd, 0) == 0 && dup2(a->name_fd, 1) == 1 &&
        dup2(a->err_fd, 2) == 2)
        execve(argv[0], argv, env);
    _exit(write(a->err_fd, trouble, sizeof(trouble) - 1) > 0 ? 1 : 2);
}

/* Starts ssh-add; -k leaves out a certificate beside the file, and "-" would be
 * its standard input. */
static int start(struct ssh_add *a, const char *program, const char *path)
{
    const char *file = strcmp(path, "-") == 0 ? "./-" : path;
    char *const argv[] = {(char *)program, "-k", "--", (char *)file, NULL};
    struct hb_strv env = HB_STRV_INIT;
    pid_t parent = getpid();
    int rc = make_env(&env);

    if (rc == 0) {
        a->pid = fork();
        if (a->pid == 0)
            become(a, parent, argv, env.items);
    }
    hb_strv_free(&env);
    if (a->pid > 0)
        a->pid_fd = (int)syscall(SYS_pidfd_open, a->pid, 0u);
    close_fd(&a->in_fd);
    close_fd(&a->name_fd);
    close_fd(&a->err_fd);
    return rc < 0 ? rc : a->pid < 0 ? -HVD_ESYSTEM : 0;
}

/* ---- Talking to it ---- */

/* Returns whether the process that we started has made the connection. */
static int is_its(const struct ssh_add *a, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           peer.pid == a->pid;
}

/* Accepts ssh-add's connection, and closes any other. */
static int accept_one(struct ssh_add *a)
{
    int fd = accept4(a->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED
                   ? 0
                   : fail(a, "ssh-add's connection cannot be accepted");
    if (!is_its(a, fd)) {
        close(fd);
        return 0;
    }
    close(a->sock);
    a->sock = fd;
    a->connected = 1;
    return 0;
}

/* Handles the message, if it is complete. */
static int handle_message(struct ssh_add *a)
{
    unsigned char answer[] = {0, 0, 0, 1, AGENT_FAILURE};
    const unsigned char *body;
    struct hb_reader r;
    uint32_t len;
    int rc = 0;

    hb_reader_init(&r, hb_buf_data(&a->in), hb_buf_len(&a->in));
    len = hb_read_u32(&r);
    body = hb_read_bytes(&r, len);
    if (!body || len == 0)
        return 0;
    if (body[0] == AGENT_ADD_IDENTITY && len > 1) {
        rc = hb_buf_append(a->key, body + 1, len - 1);
        answer[HEAD_BYTES] = AGENT_SUCCESS;
    }
    sodium_memzero(a->in.data, a->in.len);
    a->in.len = 0;
    if (send(a->sock, answer, sizeof(answer), MSG_NOSIGNAL) < 0)
        close_fd(&a->sock);
    return rc;
}

static int receive(struct ssh_add *a)
{
    ssize_t n =
        recv(a->sock, a->in.data + a->in.len, MESSAGE_MAX - a->in.len, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close_fd(&a->sock);
        return 0;
    }
    a->in.len += (size_t)n;
    return handle_message(a);
}

/* Reads what it says, and keeps the end of that; 0 when it has ended. */
static int hear(struct ssh_add *a)
{
    char more[256];
    ssize_t n = read(a->said_fd, more, sizeof(more));
    size_t spare = SAID_MAX - 1 - a->said_len, drop;

    if (n <= 0)
        return n < 0 && errno == EINTR;
    drop = (size_t)n > spare ? (size_t)n - spare : 0;
    memmove(a->said, a->said + drop, a->said_len - drop);
    a->said_len -= drop;
    memcpy(a->said + a->said_len, more, (size_t)n);
    a->said_len += (size_t)n;
    return 1;
}

/* Plays the agent until it has the key, or ssh-add ends or falls silent for
 * good.  A process that ssh-add has started may hold its stderr open. */
static int play(struct ssh_add *a)
{
    int rc = 0, talks = 1;

    while (rc == 0 && talks && hb_buf_len(a->key) == 0) {
        struct pollfd p[] = {{a->cancel_fd, POLLIN, 0},
                             {a->said_fd, POLLIN, 0},
                             {a->sock, POLLIN, 0},
                             {a->pid_fd, POLLIN, 0}};

        if (poll(p, sizeof(p) / sizeof(p[0]), -1) < 0) {
            if (errno != EINTR)
                rc = fail(a, "ssh-add cannot be waited for");
            continue;
        }
        if (p[0].revents)
            return -HVD_ESHUTDOWN;
        if (p[2].revents)
            rc = a->connected ? receive(a) : accept_one(a);
        if (p[1].revents)
            talks = hear(a);
        else if (p[3].revents && !p[2].revents)
            talks = 0;
    }
    return rc;
}

/* ---- What came of it ---- */

/* Returns the part of a line that fits into a message: the reason, which comes
 * after the last ": ", or the end. */
static const char *shorten(const char *line)
{
    size_t len = strlen(line);
    const char *reason = line;

    if (len <= LINE_SHOWN)
        return line;
    for (const char *p = line; (p = strstr(p, ": "));)
        reason = p += 2;
    if (*reason && strlen(reason) <= LINE_SHOWN)
        return reason;
    line += len - LINE_SHOWN;
    while (((unsigned char)*line >> 6) == 2) /* within a character */
        line++;
    return line;
}

/* Copies the last line that it said, for messages. */
static void last_line(struct ssh_add *a)
{
    char *line = a->said, *at;

    while (a->said_len > 0 && strchr(" \r\n", a->said[a->said_len - 1]))
        a->said_len--;
    a->said[a->said_len] = '\0';
    at = strrchr(line, '\n');
    if (at)
        line = at + 1;
    hb_text_sanitize(line);
    snprintf(a->why, SSH_ADD_WHY_MAX, "ssh-add: %.*s", LINE_SHOWN,
             *line ? shorten(line) : "it failed");
}

static int judge(struct ssh_add *a)
{
    if (hb_buf_len(a->key) > 0)
        return 0;
    if (memmem(a->said, a->said_len, "Bad passphrase", 14))
        return -HVD_EPERM;
    last_line(a);
    return -HVD_EPROTO;
}

/* Ends it, if it has not ended by itself, with what it has started, and frees
 * all. */
static void finish(struct ssh_add *a)
{
    if (a->pid > 0) {
        kill(-a->pid, SIGKILL);
        kill(a->pid, SIGKILL); /* it may not have its group yet */
        while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    close_fd(&a->sock);
    close_fd(&a->name_fd);
    close_fd(&a->in_fd);
    close_fd(&a->err_fd);
    close_fd(&a->said_fd);
    close_fd(&a->pid_fd);
    if (a->in.data)
        sodium_memzero(a->in.data, MESSAGE_MAX);
    hb_buf_free(&a->in);
}

int ssh_add_decrypt(const char *program, const char *path,
                    const char *passphrase, int cancel_fd, struct hb_buf *key,
                    char why[SSH_ADD_WHY_MAX])
{
    struct ssh_add a = {.pid = -1,
                        .pid_fd = -1,
                        .cancel_fd = cancel_fd,
                        .sock = -1,
                        .name_fd = -1,
                        .in_fd = -1,
                        .err_fd = -1,
                        .said_fd = -1,
                        .key = key,
                        .why = why};
    int rc;

    if (!*passphrase) /* ssh-add takes it for the wish to stop */
        return -HVD_EPERM;
    rc = hb_buf_reserve(&a.in, MESSAGE_MAX);
    if (rc == 0 && (open_socket(&a) < 0 || open_pipes(&a, passphrase) < 0))
        rc = -HVD_ESYSTEM;
    if (rc == 0)
        rc = start(&a, program, path);
    if (rc == -HVD_ESYSTEM)
        rc = fail(&a, "ssh-add cannot be run");
    else if (rc == 0)
        rc = play(&a);
    if (rc == 0)
        rc = judge(&a);
    finish(&a);
    return rc;
}
