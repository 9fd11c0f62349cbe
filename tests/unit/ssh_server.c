/* SPDX-License-Identifier: Apache-2.0 */
/* See ssh_server.h: the server's side. */
#include "tests/unit/ssh_server.h"

#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static const char sshd_path[] = "/usr/sbin/sshd";

/* ---- Files ---- */

const char *ssh_file(const char *fmt, ...)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    va_list ap;
    int n = snprintf(path, sizeof(paths[0]), "%s/", dir);

    va_start(ap, fmt);
    vsnprintf(path + n, sizeof(paths[0]) - (size_t)n, fmt, ap);
    va_end(ap);
    return path;
}

void ssh_write(const char *name, mode_t mode, const char *text)
{
    FILE *f = fopen(ssh_file("%s", name), "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(ssh_file("%s", name), mode), 0);
}

char *ssh_read(const char *name)
{
    FILE *f = fopen(ssh_file("%s", name), "r");
    char *text = calloc(1, 1 << 20);

    ck_assert_ptr_nonnull(text);
    if (f) {
        ck_assert_uint_lt(fread(text, 1, 1 << 20, f), 1 << 20);
        fclose(f);
    }
    return text;
}

void ssh_shell(const char *fmt, ...)
{
    char command[4096];
    va_list ap;
    int n = snprintf(command, sizeof(command), "cd %s && ", dir);

    va_start(ap, fmt);
    vsnprintf(command + n, sizeof(command) - (size_t)n, fmt, ap);
    va_end(ap);
    if (system(command) != 0) /* no assertion: used outside tests, too */
        ck_abort_msg("%s", command);
}

const char *ssh_public(const char *name)
{
    static char line[2048];
    char *text = ssh_read(ssh_file("%s.pub", name) + strlen(dir) + 1);
    char *end = strchr(text, ' ');

    ck_assert_ptr_nonnull(end);
    end[1 + strcspn(end + 1, " \n")] = '\0';
    snprintf(line, sizeof(line), "%s", text);
    free(text);
    return line;
}

/* ---- The fixture ---- */

static void make_keys(void)
{
    ssh_shell("for k in host_ed25519:ed25519: host_ecdsa:ecdsa: "
              "host_rsa:rsa: ed25519:ed25519: ecdsa:ecdsa: rsa:rsa: "
              "stranger:ed25519: 'locked:ed25519:" LOCKED_PHRASE "'; do "
              "IFS=: read -r name type pass <<END\n$k\nEND\n"
              "ssh-keygen -q -t $type -N \"$pass\" -C '' -f $name || exit 1; "
              "done");
    ssh_shell("ssh-keygen -q -t ecdsa -b 521 -m PEM -N '' -f p521 && "
              "ssh-keygen -q -t ecdsa -m PEM -N '" LOCKED_PHRASE
              "' -f locked_pem && cat ed25519.pub ecdsa.pub p521.pub rsa.pub "
              "locked.pub locked_pem.pub >authorized && "
              "rm p521.pub locked_pem.pub");
}

/* Returns "", or why there is no fixture. */
static const char *make_fixture(void)
{
    if (access(sshd_path, X_OK) != 0 ||
        system("command -v ssh-keygen >/dev/null") != 0)
        return "openssh-server is not installed";
    umask(077);
    snprintf(dir, sizeof(dir), "/tmp/hvd-test-ssh2-XXXXXX");
    if (!mkdtemp(dir))
        return "no directory in /tmp";
    make_keys();
    return "";
}

int ssh_fixture_run(const char *name, void (*add_tests)(TCase *t))
{
    const char *missing = make_fixture();
    Suite *s = suite_create(name);
    TCase *t = tcase_create("all");
    int rc;

    if (*missing) {
        printf("skipped: %s\n100%%: Checks: 1, Failures: 0, Errors: 0\n",
               missing);
        return 0;
    }
    suite_add_tcase(s, t);
    tcase_set_timeout(t, 120);
    add_tests(t);
    rc = unit_run(s);
    ssh_shell("rm -rf %s", dir);
    return rc;
}

/* ---- What happens to a connection ---- */

static void send_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

        if (n <= 0)
            _exit(0);
        text += n;
        len -= (size_t)n;
    }
}

/* Waits until the peer has gone. */
static void wait_gone(int fd)
{
    char bytes[4096];

    while (recv(fd, bytes, sizeof(bytes), 0) > 0)
        continue;
    _exit(0);
}

static void flood(int fd)
{
    static char lines[1 << 16];

    for (size_t i = 0; i < sizeof(lines); i++)
        lines[i] = i % 64 == 63 ? '\n' : 'x';
    for (;;)
        send_all(fd, lines, sizeof(lines));
}

static void exec_sshd(int fd, const char *conf)
{
    int log = open(ssh_file("sshd.log"), O_WRONLY | O_CREAT | O_APPEND, 0600);

    dup2(fd, 0);
    dup2(fd, 1);
    dup2(log, 2);
    closefrom(3);
    execl(sshd_path, sshd_path, "-i", "-e", "-f", ssh_file("%s", conf),
          (char *)NULL);
    _exit(127);
}

static int spawn_sshd(const char *conf)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        _exit(126);
    if (fork() == 0)
        exec_sshd(pair[1], conf);
    close(pair[1]);
    return pair[0];
}

/* Passes on what sshd sends, up to `limit` bytes. */
static void cut(int fd, const char *conf, long limit)
{
    int server = spawn_sshd(conf);
    struct pollfd p[2] = {{fd, POLLIN, 0}, {server, POLLIN, 0}};
    char bytes[4096];

    while (limit > 0 && poll(p, 2, -1) > 0) {
        for (int i = 0; i < 2; i++) {
            ssize_t n;

            if (!p[i].revents)
                continue;
            n = recv(p[i].fd, bytes,
                     i == 1 && limit < (long)sizeof(bytes) ? (size_t)limit
                                                           : sizeof(bytes),
                     0);
            if (n <= 0)
                _exit(0);
            send_all(p[!i].fd, bytes, (size_t)n);
            if (i == 1)
                limit -= n;
        }
    }
    _exit(0);
}

static void serve(int fd, enum server_mode mode, const char *extra,
                  const char *conf)
{
    switch (mode) {
    case SERVER_SSHD:
        exec_sshd(fd, conf);
        break;
    case SERVER_GARBAGE:
        send_all(fd, extra, strlen(extra));
        wait_gone(fd);
        break;
    case SERVER_SILENT:
        wait_gone(fd);
        break;
    case SERVER_FLOODS:
        flood(fd);
        break;
    case SERVER_CUTS:
        cut(fd, conf, strtol(extra, NULL, 10));
        break;
    case SERVER_CLOSES:
    case SERVER_NONE:
        break;
    }
    _exit(0);
}

/* ---- Listening ---- */

/* As root, sshd needs /run/sshd: mounts a private /run. */
static void make_run(void)
{
    if (geteuid() != 0 || access("/run/sshd", X_OK) == 0)
        return;
    if (unshare(CLONE_NEWNS) == 0 &&
        mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("run", "/run", "tmpfs", 0, "mode=755") == 0)
        mkdir("/run/sshd", 0755);
}

static void accept_all(int listener, enum server_mode mode, const char *extra,
                       const char *conf)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    signal(SIGCHLD, SIG_IGN);
    make_run();
    for (;;) {
        int fd = accept(listener, NULL, NULL);

        if (fd < 0 && errno != EINTR)
            _exit(0);
        if (fd >= 0 && fork() == 0) {
            signal(SIGCHLD, SIG_DFL);
            serve(fd, mode, extra, conf);
        }
        if (fd >= 0)
            close(fd);
    }
}

static int listen_somewhere(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(fd, 512), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void write_conf(const char *name, va_list lines)
{
    struct hb_buf b = HB_BUF_INIT;
    const char *line;
    int has_key = 0;

    hb_buf_printf(&b,
                  "AuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"
                  "PermitRootLogin yes\nPidFile none\nLogLevel VERBOSE\n",
                  ssh_file("authorized"));
    /* A private home: a version manager in the user's own shell start-up files
     * can wait a minute for a lock that each shell takes. */
    hb_buf_printf(&b, "SetEnv HOME=%s\n", ssh_file("home"));
    while ((line = va_arg(lines, const char *)) != NULL) {
        has_key |= strncmp(line, "HostKey ", 8) == 0;
        if (strncmp(line, "HostKey ", 8) == 0)
            hb_buf_printf(&b, "HostKey %s\n", ssh_file("%s", line + 8));
        else if (line[0] >= 'A' && line[0] <= 'Z')
            hb_buf_printf(&b, "%s\n", line);
    }
    if (!has_key)
        hb_buf_printf(&b, "HostKey %s\n", ssh_file("host_ed25519"));
    ssh_write(name, 0600, hb_buf_data(&b));
    hb_buf_free(&b);
}

void server_start(struct ssh_server *s, enum server_mode mode, ...)
{
    static int count;
    const char *first;
    va_list lines;
    int listener;

    snprintf(s->conf, sizeof(s->conf), "conf.%d.%d", (int)getpid(), count++);
    va_start(lines, mode);
    write_conf(s->conf, lines);
    va_end(lines);
    va_start(lines, mode);
    first = va_arg(lines, const char *);
    va_end(lines);
    listener = listen_somewhere(&s->port);
    s->pid = 0;
    if (mode != SERVER_NONE) {
        s->pid = fork();
        ck_assert_int_ge(s->pid, 0);
        if (s->pid == 0)
            accept_all(listener, mode, first ? first : "", s->conf);
        setpgid(s->pid, s->pid);
    }
    close(listener);
}

void server_stop(struct ssh_server *s)
{
    if (s->pid > 0) {
        kill(-s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    s->pid = 0;
}

int server_socket(struct ssh_server *s)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair),
                     0);
    s->pid = fork();
    ck_assert_int_ge(s->pid, 0);
    if (s->pid == 0) {
        setpgid(0, 0);
        make_run();
        exec_sshd(pair[1], s->conf);
    }
    setpgid(s->pid, s->pid);
    close(pair[1]);
    return pair[0];
}
