/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See probe.h. hvdrun probes while it has one thread and no event loop: a
 * child may run any code after fork, and waiting blocks nothing else.
 */
#include "cmd/hvdrun/probe.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/sys/linkage.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIMIT_MS = 10000,
    NS_PER_MS = 1000000,
    BYTES_MAX = 64 << 10,
    VERSION_BYTES_MAX = 8192, /* MPI_MAX_LIBRARY_VERSION_STRING of MPICH */
    EXIT_NOT_LOADED = 1,
    EXIT_NOT_RUN = 2,
};

struct child {
    pid_t pid;
    int fd; /* read end of its output */
};

/* Forks.  1 in the child, whose stdout and stderr are the pipe; 0 in hvdrun. */
static int fork_child(struct child *c, struct hb_error *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return hb_error_sys(err, errno, "pipe");
    c->pid = fork();
    if (c->pid < 0) {
        int saved = errno;

        close(fds[0]);
        close(fds[1]);
        return hb_error_sys(err, saved, "fork");
    }
    if (c->pid) {
        close(fds[1]);
        c->fd = fds[0];
        return 0;
    }
    /* A group of its own, so that its children can be killed, too. */
    setpgid(0, 0);
    close(STDIN_FILENO);
    open("/dev/null", O_RDONLY);
    dup2(fds[1], STDOUT_FILENO);
    dup2(fds[1], STDERR_FILENO);
    return 1;
}

/* Reads until the child closes its end: 0, or negative if the child should be
 * killed first. */
static int read_all(const struct child *c, struct hb_buf *out,
                    struct hb_error *err)
{
    uint64_t end = hb_now_ns() / NS_PER_MS + LIMIT_MS;
    char bytes[4096];
    ssize_t n = 1;

    while (n != 0) {
        uint64_t now = hb_now_ns() / NS_PER_MS;
        struct pollfd p = {c->fd, POLLIN, 0};

        if (now >= end || poll(&p, 1, (int)(end - now)) == 0)
            return hb_error_set(err, HVD_ETIMEOUT, "no answer in %d s",
                                LIMIT_MS / 1000);
        n = read(c->fd, bytes, sizeof(bytes));
        if (n < 0 && errno != EINTR)
            return hb_error_sys(err, errno, "read");
        if (n > 0 && hb_buf_len(out) < BYTES_MAX &&
            hb_buf_append(out, bytes, (size_t)n) < 0)
            return hb_error_set(err, HVD_ENOMEM, "out of memory");
    }
    return 0;
}

static int finish(const struct child *c, struct hb_buf *out, int *wstatus,
                  struct hb_error *err)
{
    int rc = read_all(c, out, err);

    close(c->fd);
    if (rc < 0) {
        kill(-c->pid, SIGKILL);
        kill(c->pid, SIGKILL); /* the child may not lead its group yet */
    }
    while (waitpid(c->pid, wstatus, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

int probe_program(const char *path, char *const *argv, struct hb_buf *out,
                  struct hb_error *err)
{
    struct child c;
    int wstatus = 0;
    int rc = fork_child(&c, err);

    if (rc > 0) {
        execv(path, argv);
        _exit(EXIT_NOT_RUN);
    }
    if (rc == 0)
        rc = finish(&c, out, &wstatus, err);
    if (rc == 0 && WIFEXITED(wstatus) && WEXITSTATUS(wstatus) == EXIT_NOT_RUN &&
        hb_buf_len(out) == 0)
        rc = hb_error_set(err, HVD_ESYSTEM, "it cannot be run");
    return rc;
}

static void say_bytes(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, len);

        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

/* Prints the first line of text. */
static void say(const char *text)
{
    say_bytes(text, strcspn(text, "\n"));
}

/* Prints MPI's version; MPI may be asked for it before MPI_Init. */
static void say_mpi(void *symbol)
{
    static char text[VERSION_BYTES_MAX + 1];
    int (*get)(char *version, int *len);
    int len = 0;

    memcpy(&get, &symbol, sizeof(get)); /* the way POSIX shows */
    if (get(text, &len) == 0)
        say(text);
}

static void say_ssh2(void *symbol)
{
    const char *(*get)(int required);

    memcpy(&get, &symbol, sizeof(get));
    say("libssh2 ");
    say(get(0));
}

static void say_hvd(void *symbol)
{
    const char *(*get)(void);

    memcpy(&get, &symbol, sizeof(get));
    say(get());
}

static void say_number(int major, int minor)
{
    char text[32];

    snprintf(text, sizeof(text), "%d.%d", major, minor);
    say(text);
}

static void say_http(void *symbol)
{
    const char *(*get)(void);

    memcpy(&get, &symbol, sizeof(get));
    printf("libmicrohttpd %s", get());
}

/* Prints CUDA's version: 12.4 for 12040. */
static void say_cuda(void *symbol)
{
    int (*get)(int *version), version = 0;

    memcpy(&get, &symbol, sizeof(get));
    if (get(&version) == 0)
        say_number(version / 1000, version % 1000 / 10);
}

/* Prints NCCL's version: 2.28.9 for 22809; 2.8.3 for 2803. */
static void say_nccl(void *symbol)
{
    int (*get)(int *version), version = 0, unit;
    char patch[16];

    memcpy(&get, &symbol, sizeof(get));
    if (get(&version) != 0)
        return;
    unit = version < 10000 ? 1000 : 10000;
    say_number(version / unit, version % unit / 100);
    snprintf(patch, sizeof(patch), ".%d", version % 100);
    say(patch);
}

/* Prints what the library was built with, a constant string. */
static void say_text(void *symbol)
{
    say(symbol);
}

/* Prints the version that the function `asked` tells, if the library has it;
 * else what another version function tells. */
static void say_version(void *so, const char *asked)
{
    static const struct {
        const char *symbol;
        void (*say)(void *symbol);
    } versions[] = {
        {"MPI_Get_library_version", say_mpi}, {"libssh2_version", say_ssh2},
        {"hvd_nccl_build", say_text},         {"ncclGetVersion", say_nccl},
        {"cuDriverGetVersion", say_cuda},     {"hvd_version", say_hvd},
        {"MHD_get_version", say_http}};

    size_t count = sizeof(versions) / sizeof(versions[0]);
    void *found = NULL;

    for (size_t i = 0; !found && i < 2 * count; i++) {
        const char *name = versions[i % count].symbol;

        if (i >= count || strcmp(name, asked) == 0)
            found = dlsym(so, name);
        if (found)
            versions[i % count].say(found);
    }
}

static void say_file(void *symbol)
{
    Dl_info info;

    say_bytes("\n", 1);
    if (dladdr(symbol, &info) && info.dli_fname)
        say(info.dli_fname);
}

/* Opens a library in the folders that the loader searches on behalf of `by`;
 * NULL: in none. */
static void *open_as(const char *name, const char *by)
{
    void *caller = by ? dlopen(by, RTLD_NOW | RTLD_LOCAL) : NULL, *so = NULL;
    char path[PATH_MAX];
    Dl_serinfo size, *folders;

    if (!caller || strchr(name, '/') ||
        dlinfo(caller, RTLD_DI_SERINFOSIZE, &size) < 0)
        return NULL;
    folders = hb_xcalloc(1, size.dls_size);
    if (dlinfo(caller, RTLD_DI_SERINFOSIZE, folders) == 0 &&
        dlinfo(caller, RTLD_DI_SERINFO, folders) == 0)
        for (unsigned i = 0; !so && i < folders->dls_cnt; i++) {
            snprintf(path, sizeof(path), "%s/%s",
                     folders->dls_serpath[i].dls_name, name);
            so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        }
    hb_free(folders);
    return so;
}

int probe_library(const char *path, const char *symbol, const char *by,
                  struct hb_buf *out, struct hb_error *err)
{
    struct child c;
    int wstatus = 0;
    int rc = hb_may_load(err);

    if (rc == 0)
        rc = fork_child(&c, err);
    if (rc > 0) {
        void *so = open_as(path, by);

        if (!so)
            so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (so && dlsym(so, symbol)) {
            say_version(so, symbol);
            say_file(dlsym(so, symbol));
            _exit(EXIT_SUCCESS);
        }
        say(dlerror());
        _exit(EXIT_NOT_LOADED);
    }
    if (rc == 0)
        rc = finish(&c, out, &wstatus, err);
    if (rc < 0 || (WIFEXITED(wstatus) && WEXITSTATUS(wstatus) == EXIT_SUCCESS))
        return rc;
    return hb_error_set(err, HVD_ESYSTEM, "%s",
                        hb_buf_len(out) ? hb_buf_data(out)
                                        : "it cannot be loaded");
}
