/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssh-add; see ssh_add.h.
 *
 * Messages are those of an ssh-agent: u32 length, a type, a body.  The socket
 * has a name only while it is being made.  ssh-add reaches it by its standard
 * output, which is an O_PATH descriptor of that name.
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
#include <sys/socket.h>
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
};

/* A run of ssh-add. */
struct ssh_add {
    pid_t pid;
    int cancel_fd;
    int sock; /* the listener, then the connection; -1 after its end */
    int connected;
    int name_fd, in_fd, err_fd; /* ssh-add's 1, 0 and 2, until it runs */
    int said_fd;                /* its stderr, to be read */
    char said[SAID_MAX];
    size_t said_len;
    struct hb_buf in;   /* an incomplete message */
    struct hb_buf *key; /* the result */
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

char *ssh_add_find(void)
{
    const char *dirs = hb_variable("PATH");

    for (dirs = dirs ? dirs : "/usr/bin:/bin"; *dirs;) {
        int n = (int)strcspn(dirs, ":");
        char *path = hb_xasprintf("%.*s/ssh-add", n, dirs);

        if (n > 0 && access(path, X_OK) == 0)
            return path;
        hb_free(path);
        dirs += n + (dirs[n] == ':');
    }
    return NULL;
}

/* ---- Starting ---- */

/* Makes the socket.  Only our user can enter the folder, and it is gone before
 * anybody can connect. */
static int open_socket(struct ssh_add *a)
{
    char folder[] = "/tmp/hvd-XXXXXX"; /* a name that `hvdrun clean` knows */
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    a->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->sock < 0 || !mkdtemp(folder))
        return -1;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/agent", folder);
    if (bind(a->sock, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
        a->name_fd = open(addr.sun_path, O_PATH | O_CLOEXEC);
        unlink(addr.sun_path);
    }
    rmdir(folder);
    return a->name_fd < 0 ? -1 : listen(a->sock, 1);
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
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid(); /* it has no terminal */
    if (dup2(a->in_fd, 0) == 0 && dup2(a->name_fd, 1) == 1 &&
        dup2(a->err_fd, 2) == 2)
        execve(argv[0], argv, env);
    _exit(write(a->err_fd, trouble, sizeof(trouble) - 1) > 0 ? 1 : 2);
}

/* Starts ssh-add; -k leaves out a certificate beside the file. */
static int start(struct ssh_add *a, const char *program, const char *path)
{
    char *const argv[] = {(char *)program, "-k", "--", (char *)path, NULL};
    struct hb_strv env = HB_STRV_INIT;
    pid_t parent = getpid();
    int rc = make_env(&env);

    if (rc == 0) {
        a->pid = fork();
        if (a->pid == 0)
            become(a, parent, argv, env.items);
    }
    hb_strv_free(&env);
    close_fd(&a->in_fd);
    close_fd(&a->name_fd);
    close_fd(&a->err_fd);
    return rc < 0 ? rc : a->pid < 0 ? -HVD_ESYSTEM : 0;
}

/* ---- Talking to it ---- */

static void accept_one(struct ssh_add *a)
{
    int fd = accept4(a->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    close(a->sock);
    a->sock = fd;
    a->connected = 1;
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
    if (body[0] == AGENT_ADD_IDENTITY && hb_buf_len(a->key) == 0) {
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

/* Reads what it says; 0 when it has ended. */
static int hear(struct ssh_add *a)
{
    char more[256];
    ssize_t n = read(a->said_fd, more, sizeof(more));

    if (n < 0 && errno == EINTR)
        return 1;
    for (ssize_t i = 0; i < n && a->said_len < SAID_MAX - 1; i++)
        a->said[a->said_len++] = more[i];
    return n > 0;
}

/* Plays the agent until ssh-add ends. */
static int play(struct ssh_add *a)
{
    int rc = 0;

    while (rc == 0) {
        struct pollfd p[] = {{a->cancel_fd, POLLIN, 0},
                             {a->said_fd, POLLIN, 0},
                             {a->sock, POLLIN, 0}};

        if (poll(p, sizeof(p) / sizeof(p[0]), -1) < 0)
            continue;
        if (p[0].revents)
            return -HVD_ESHUTDOWN;
        if (p[2].revents && a->connected)
            rc = receive(a);
        else if (p[2].revents)
            accept_one(a);
        if (p[1].revents && !hear(a))
            break;
    }
    return rc;
}

/* ---- What came of it ---- */

/* Copies the last line that it said, for messages. */
static void last_line(struct ssh_add *a, char why[SSH_ADD_WHY_MAX])
{
    char *line = a->said, *at;

    while (a->said_len > 0 && strchr(" \r\n", a->said[a->said_len - 1]))
        a->said_len--;
    a->said[a->said_len] = '\0';
    at = strrchr(line, '\n');
    if (at)
        line = at + 1;
    hb_text_sanitize(line);
    snprintf(why, SSH_ADD_WHY_MAX, "ssh-add: %.100s",
             *line ? line : "it failed");
}

static int judge(struct ssh_add *a, char why[SSH_ADD_WHY_MAX])
{
    if (hb_buf_len(a->key) > 0)
        return 0;
    if (memmem(a->said, a->said_len, "Bad passphrase", 14))
        return -HVD_EPERM;
    last_line(a, why);
    return -HVD_EPROTO;
}

/* Ends it, if it has not ended by itself, and frees all. */
static void finish(struct ssh_add *a)
{
    if (a->pid > 0) {
        kill(a->pid, SIGKILL);
        while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    close_fd(&a->sock);
    close_fd(&a->name_fd);
    close_fd(&a->in_fd);
    close_fd(&a->err_fd);
    close_fd(&a->said_fd);
    if (a->in.data)
        sodium_memzero(a->in.data, MESSAGE_MAX);
    hb_buf_free(&a->in);
}

int ssh_add_decrypt(const char *program, const char *path,
                    const char *passphrase, int cancel_fd, struct hb_buf *key,
                    char why[SSH_ADD_WHY_MAX])
{
    struct ssh_add a = {.pid = -1,
                        .cancel_fd = cancel_fd,
                        .sock = -1,
                        .name_fd = -1,
                        .in_fd = -1,
                        .err_fd = -1,
                        .said_fd = -1,
                        .key = key};
    int rc;

    if (!*passphrase) /* ssh-add takes it for the wish to stop */
        return -HVD_EPERM;
    rc = hb_buf_reserve(&a.in, MESSAGE_MAX);
    if (rc == 0 && (open_socket(&a) < 0 || open_pipes(&a, passphrase) < 0))
        rc = -HVD_ESYSTEM;
    if (rc == 0)
        rc = start(&a, program, path);
    if (rc == -HVD_ESYSTEM) {
        snprintf(why, SSH_ADD_WHY_MAX, "ssh-add cannot be run: %.80s",
                 strerror(errno));
        rc = -HVD_EPROTO;
    } else if (rc == 0) {
        rc = play(&a);
    }
    if (rc == 0)
        rc = judge(&a, why);
    finish(&a);
    return rc;
}
