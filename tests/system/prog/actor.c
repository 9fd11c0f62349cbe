/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that misbehaves to order: `actor VERB ARGS...`.  It does what a
 * shell cannot do well: report bytes exactly, write in odd pieces, build
 * process trees that resist signals, fill memory.  A file named PREFIX becomes
 * PREFIX.RANK.
 */
#include "lib/base/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void die(const char *what)
{
    fprintf(stderr, "actor: %s: %s\n", what, strerror(errno));
    exit(99);
}

static long number(const char *s)
{
    int64_t v;
    struct hb_error err = HB_ERROR_INIT;

    if (hb_parse_i64(s, 0, INT32_MAX, &v, &err) < 0) {
        fprintf(stderr, "actor: '%s': %s\n", s, err.text);
        exit(99);
    }
    return (long)v;
}

static const char *rank_text(void)
{
    const char *s = hb_knob("RANK");

    return s ? s : "none";
}

static void write_all(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die("write");
        p += n;
        len -= (size_t)n;
    }
}

/* Opens the temporary file of the report PREFIX.RANK.  close_report renames it,
 * so that the report appears whole and its existence is an event. */
static FILE *open_report(const char *prefix, char *tmp, char *final)
{
    FILE *f;

    snprintf(final, PATH_MAX, "%s.%s", prefix, rank_text());
    snprintf(tmp, PATH_MAX, "%s.%s.tmp", prefix, rank_text());
    f = fopen(tmp, "w");
    if (!f)
        die(tmp);
    return f;
}

static void close_report(FILE *f, const char *tmp, const char *final)
{
    if (fclose(f) || rename(tmp, final))
        die(final);
}

static void report_strings(const char *prefix, char *const *items)
{
    char tmp[PATH_MAX], final[PATH_MAX];
    FILE *f = open_report(prefix, tmp, final);

    for (; *items; items++)
        fwrite(*items, 1, strlen(*items) + 1, f);
    close_report(f, tmp, final);
}

/* exec CMD...: resets every signal to its default and unblocks all, as a shell
 * starts background commands with SIGINT ignored; then runs CMD. */
static int verb_exec(char **args)
{
    sigset_t none;

    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(args[0], args);
    die(args[0]);
    return 99;
}

static int verb_environ(char **args)
{
    report_strings(args[0], environ);
    return 0;
}

static int verb_argv(char **args)
{
    report_strings(args[0], args + 1);
    return 0;
}

/* state PREFIX: reports the open descriptors, and each signal that is blocked
 * or not at its default, but for those that libc keeps to itself. */
static int verb_state(char **args)
{
    char tmp[PATH_MAX], final[PATH_MAX], fds[4096] = "fds";
    struct sigaction sa;
    sigset_t blocked;
    FILE *f;

    for (int fd = 0; fd < 512; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            sprintf(fds + strlen(fds), " %d", fd);
    f = open_report(args[0], tmp, final);
    fprintf(f, "%s\n", fds);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int sig = 1; sig < NSIG; sig++) {
        if (sigismember(&blocked, sig) == 1)
            fprintf(f, "signal %d is blocked\n", sig);
        if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
            fprintf(f, "signal %d is not at its default\n", sig);
    }
    close_report(f, tmp, final);
    return 0;
}

/* lines N LEN: prints N lines of LEN bytes, "RANK LINE abc...", in odd
 * pieces. */
static int verb_lines(char **args)
{
    long count = number(args[0]), len = number(args[1]);
    size_t total = 0, sent = 0, piece = 1;
    char *text = malloc((size_t)count * ((size_t)len + 64) + 1);

    if (!text)
        die("malloc");
    for (long i = 0; i < count; i++) {
        char *line = text + total;
        int n = sprintf(line, "%s %ld ", rank_text(), i);

        for (; n < len - 1; n++)
            line[n] = (char)('a' + (i + n) % 26);
        line[n++] = '\n';
        total += (size_t)n;
    }
    while (sent < total) {
        piece = piece * 31 % 8191 + 1;
        if (piece > total - sent)
            piece = total - sent;
        write_all(STDOUT_FILENO, text + sent, piece);
        sent += piece;
    }
    free(text);
    return 0;
}

/* bytes HEX: prints the bytes, each in a write of its own. */
static int verb_bytes(char **args)
{
    for (const char *p = args[0]; p[0] && p[1]; p += 2) {
        unsigned v;
        char c;

        if (sscanf(p, "%2x", &v) != 1)
            die("hex");
        c = (char)v;
        write_all(STDOUT_FILENO, &c, 1);
    }
    return 0;
}

/* flood PREFIX MIB: prints MIB of numbered lines; PREFIX.RANK holds the number
 * of bytes that write(2) has accepted so far. */
static int verb_flood(char **args)
{
    char path[PATH_MAX], line[1024];
    size_t total = 0, limit = (size_t)number(args[1]) << 20;
    int fd;

    snprintf(path, sizeof(path), "%s.%s", args[0], rank_text());
    fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd < 0)
        die(path);
    for (long i = 0; total < limit; i++) {
        char progress[32];
        int n = snprintf(line, sizeof(line), "%s %ld ", rank_text(), i);

        memset(line + n, 'x', sizeof(line) - (size_t)n - 1);
        line[sizeof(line) - 1] = '\n';
        write_all(STDOUT_FILENO, line, sizeof(line));
        total += sizeof(line);
        snprintf(progress, sizeof(progress), "%20zu\n", total);
        if (pwrite(fd, progress, strlen(progress), 0) < 0)
            die(path);
    }
    return 0;
}

static void ignore_signals(void)
{
    const int sigs[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE};

    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
        signal(sigs[i], SIG_IGN);
    /* as a program may do: undoes what the agent set */
    prctl(PR_SET_PDEATHSIG, 0);
}

static void park(int ready)
{
    ignore_signals();
    write_all(ready, "r", 1);
    for (;;)
        pause();
}

/* tree PREFIX: stays for ever, with four relatives, all of which ignore the
 * signals that can be ignored: a child, a child in its own session, a daemon
 * (forked twice, own session, stdio closed), and a child that holds stdout. */
static int verb_tree(char **args)
{
    char tmp[PATH_MAX], final[PATH_MAX], c;
    int ready[2];

    if (pipe(ready))
        die("pipe");
    for (int kind = 0; kind < 4; kind++) {
        pid_t pid = fork();

        if (pid < 0)
            die("fork");
        if (pid)
            continue;
        if (kind == 1 || kind == 2)
            setsid();
        if (kind == 2) {
            for (int fd = 0; fd < 3; fd++)
                close(fd);
            if (fork())
                _exit(0);
        }
        park(ready[1]);
    }
    ignore_signals();
    for (int i = 0; i < 4; i++)
        if (read(ready[0], &c, 1) != 1)
            die("read");
    close_report(open_report(args[0], tmp, final), tmp, final);
    for (;;)
        pause();
}

/* chase PREFIX: stays for ever, beside a process that cannot be caught: it
 * forks a successor in a session of its own, and exits. */
static int verb_chase(char **args)
{
    char tmp[PATH_MAX], final[PATH_MAX];
    struct timespec ms = {.tv_nsec = 1000000};
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid) {
        close_report(open_report(args[0], tmp, final), tmp, final);
        ignore_signals();
        for (;;)
            pause();
    }
    for (;;) {
        ignore_signals();
        setsid();
        nanosleep(&ms, NULL);
        pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid < 0)
            die("fork");
    }
}

/* eat MIB: allocates and touches MIB of memory. */
static int verb_eat(char **args)
{
    size_t len = (size_t)number(args[0]) << 20;
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die("mmap");
    for (size_t i = 0; i < len; i += 4096)
        p[i] = 1;
    return 0;
}

/* bind ADDRESS PORT: listens at ADDRESS and PORT, as any server does. */
static int verb_bind(char **args)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    a.sin_port = htons((uint16_t)number(args[1]));
    if (inet_pton(AF_INET, args[0], &a.sin_addr) != 1)
        a.sin_addr.s_addr = htonl(INADDR_ANY);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 1))
        die("bind");
    return 0;
}

static const struct verb {
    const char *name;
    int args;
    int (*run)(char **args);
} verbs[] = {
    {"exec", 1, verb_exec},   {"environ", 1, verb_environ},
    {"argv", 1, verb_argv},   {"state", 1, verb_state},
    {"lines", 2, verb_lines}, {"bytes", 1, verb_bytes},
    {"flood", 2, verb_flood}, {"tree", 1, verb_tree},
    {"eat", 1, verb_eat},     {"bind", 2, verb_bind},
    {"chase", 1, verb_chase},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (argc > 1 + verbs[i].args && !strcmp(argv[1], verbs[i].name))
            return verbs[i].run(argv + 2);
    fprintf(stderr, "usage: actor VERB ARGS...\n");
    return 99;
}
