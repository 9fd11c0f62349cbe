/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a command on a new terminal and drives it by a script:
 *
 *     pty [-s SECONDS] STEP... -- CMD...
 *
 * Steps, in order: `expect:TEXT` waits for TEXT in what the command wrote since
 * the last match; `send:TEXT` types TEXT; `file:PATH` waits until PATH exists;
 * `touch:PATH` creates PATH; `hangup` closes the terminal; `wait` waits for the
 * end of the command.  TEXT may hold \n, \r, \e, \\ and \ooo.  All that the
 * command writes goes to stdout unchanged.  Exits with the command's code,
 * 128+n for a signal, or 99 if a step took too long.
 */
#include "lib/base/buf.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct pty {
    int fd; /* -1 after hangup */
    pid_t pid;
    int status, ended;
    uint64_t step_ns; /* time for one step */
    struct hb_buf seen;
};

static void die(const char *what)
{
    fprintf(stderr, "pty: %s: %s\n", what, strerror(errno));
    exit(99);
}

static size_t unescape(const char *s, char *out)
{
    size_t n = 0;

    while (*s) {
        char c = *s++;

        if (c == '\\' && *s >= '0' && *s <= '7') {
            int v = 0;

            for (int i = 0; i < 3 && *s >= '0' && *s <= '7'; i++)
                v = v * 8 + (*s++ - '0');
            c = (char)v;
        } else if (c == '\\' && *s) {
            c = *s++;
            c = (char)(c == 'n' ? '\n' : c == 'r' ? '\r' : c == 'e' ? 27 : c);
        }
        out[n++] = c;
    }
    return n;
}

/* Reads what the command wrote, after a wait of at most 50 ms. */
static void pump(struct pty *p)
{
    struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
    char bytes[4096];
    ssize_t n;

    if (poll(&pfd, 1, 50) > 0) {
        n = read(p->fd, bytes, sizeof(bytes));
        if (n > 0) {
            if (hb_buf_append(&p->seen, bytes, (size_t)n) < 0)
                die("memory");
            if (write(STDOUT_FILENO, bytes, (size_t)n) != n)
                die("stdout");
        } else if (n < 0 && errno == EIO) {
            usleep(10000); /* no process has the terminal open */
        }
    }
    if (!p->ended && waitpid(p->pid, &p->status, WNOHANG) == p->pid)
        p->ended = 1;
}

/* Returns whether the text was seen, and if so removes all up to its end. */
static int match(struct pty *p, const char *text, size_t len)
{
    char *at = memmem(hb_buf_data(&p->seen), hb_buf_len(&p->seen), text, len);

    if (!at)
        return 0;
    hb_buf_consume(&p->seen, (size_t)(at - hb_buf_data(&p->seen)) + len);
    return 1;
}

static int step_done(struct pty *p, const char *step)
{
    char text[4096];
    size_t len;

    if (!strncmp(step, "expect:", 7)) {
        len = unescape(step + 7, text);
        return match(p, text, len);
    }
    if (!strncmp(step, "send:", 5)) {
        len = unescape(step + 5, text);
        return write(p->fd, text, len) == (ssize_t)len;
    }
    if (!strncmp(step, "file:", 5))
        return access(step + 5, F_OK) == 0;
    if (!strncmp(step, "touch:", 6)) {
        int fd = open(step + 6, O_CREAT | O_WRONLY, 0644);

        if (fd >= 0)
            close(fd);
        return fd >= 0;
    }
    if (!strcmp(step, "hangup")) {
        close(p->fd);
        p->fd = -1;
        return 1;
    }
    return p->ended; /* wait */
}

static void run_step(struct pty *p, const char *step)
{
    uint64_t end = hb_now_ns() + p->step_ns;

    if (strlen(step) > 4000 || !(strchr(step, ':') || !strcmp(step, "hangup") ||
                                 !strcmp(step, "wait"))) {
        fprintf(stderr, "pty: bad step '%s'\n", step);
        exit(99);
    }
    while (!step_done(p, step)) {
        if (hb_now_ns() > end) {
            fprintf(stderr, "pty: in vain: %s\n", step);
            kill(p->pid, SIGKILL);
            exit(99);
        }
        pump(p);
    }
}

int main(int argc, char **argv)
{
    struct pty p = {.fd = -1, .step_ns = 30000000000ull};
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int64_t seconds;
    int i = 1, command = 1;

    if (argc > 2 && !strcmp(argv[1], "-s")) {
        if (hb_parse_i64(argv[2], 1, 3600, &seconds, NULL) < 0)
            return 99;
        p.step_ns = (uint64_t)seconds * 1000000000ull;
        i = command = 3;
    }
    while (command < argc && strcmp(argv[command], "--"))
        command++;
    if (command + 1 >= argc) {
        fprintf(stderr, "usage: pty [-s SECONDS] STEP... -- CMD...\n");
        return 99;
    }
    p.pid = forkpty(&p.fd, NULL, NULL, &size);
    if (p.pid < 0)
        die("forkpty");
    if (p.pid == 0) {
        for (int sig = 1; sig < 32; sig++)
            signal(sig, SIG_DFL);
        execvp(argv[command + 1], argv + command + 1);
        die(argv[command + 1]);
    }
    for (; i < command; i++)
        run_step(&p, argv[i]);
    run_step(&p, "wait");
    for (int quiet = 0; p.fd >= 0 && quiet < 3; quiet++)
        pump(&p);
    hb_buf_free(&p.seen);
    return WIFSIGNALED(p.status) ? 128 + WTERMSIG(p.status)
                                 : WEXITSTATUS(p.status);
}
