/* SPDX-License-Identifier: Apache-2.0 */
/* See preempt.h. */
#include "lib/job/elastic/preempt.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/hosts/going.h"
#include "lib/transport/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 256 }; /* of what the script says on stderr */

struct preempt {
    struct preempt_config config;
    uv_timer_t timer; /* the pause; while the script runs, its limit */
    struct child *child;
    int read_fd, write_fd; /* of what it prints */
    int wstatus, is_late;
    char words[WORDS_MAX]; /* what it has last said on stderr */
    int in_trouble, closing, timer_closed;
};

static void look(uv_timer_t *timer);

static void free_when_closed(struct preempt *p)
{
    if (!p->timer_closed || p->child)
        return;
    p->config.on_close(p->config.arg);
    hb_free(p);
}

/* ---- Answers ---- */

static void take_trouble(struct preempt *p, const char *why)
{
    char *line;

    if (p->in_trouble)
        return;
    p->in_trouble = 1;
    line = hb_xstrdup(why);
    hb_text_sanitize(line);
    p->config.on_trouble(p->config.arg, line);
    hb_free(line);
}

static void take_answer(struct preempt *p, const char *text, size_t len)
{
    struct hb_error err = HB_ERROR_INIT;
    struct going *list = NULL;
    size_t count = 0;

    if (going_parse(text, len, &list, &count, &err) < 0) {
        take_trouble(p, err.text);
        return;
    }
    p->in_trouble = 0;
    for (size_t i = 0; i < count && !p->closing; i++)
        p->config.on_going(p->config.arg, list[i].host, list[i].left_ms);
    hb_free(list);
}

/* Takes what can be read from the beginning of a file. */
static void take_file(struct preempt *p, int fd)
{
    static char bytes[GOING_BYTES_MAX + 1];
    size_t len = 0;
    ssize_t n = 1;

    while (n > 0 && len < sizeof(bytes)) {
        n = read(fd, bytes + len, sizeof(bytes) - len);
        if (n > 0)
            len += (size_t)n;
    }
    if (n < 0)
        take_trouble(p, strerror(errno));
    else
        take_answer(p, bytes, len);
}

static void pause_now(struct preempt *p)
{
    if (!p->closing)
        uv_timer_start(&p->timer, look, (uint64_t)p->config.pause_ms, 0);
}

/* ---- The script ---- */

static void close_files(struct preempt *p)
{
    if (p->read_fd >= 0)
        close(p->read_fd);
    if (p->write_fd >= 0)
        close(p->write_fd);
    p->read_fd = p->write_fd = -1;
}

/* Opens memory for what the script prints, which it cannot exceed, and which it
 * cannot read as its stdin.  Returns 0, or a negative errno. */
static int open_files(struct preempt *p)
{
    char path[64];

    p->read_fd =
        memfd_create("hvdrun-preempt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (p->read_fd < 0)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", p->read_fd);
    p->write_fd = open(path, O_WRONLY | O_CLOEXEC);
    if (p->write_fd < 0 || ftruncate(p->read_fd, GOING_BYTES_MAX) < 0 ||
        fcntl(p->read_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)
        return -errno;
    return 0;
}

/* Takes what the script has printed: the position of the descriptor that it has
 * written to tells how much. */
static void take_output(struct preempt *p)
{
    off_t len = lseek(p->write_fd, 0, SEEK_CUR);
    char *bytes;

    if (len < 0 || len >= GOING_BYTES_MAX) {
        take_trouble(p, "it printed too much");
        return;
    }
    bytes = hb_xcalloc((size_t)len + 1, 1);
    if (pread(p->read_fd, bytes, (size_t)len, 0) == len)
        take_answer(p, bytes, (size_t)len);
    hb_free(bytes);
}

static void take_result(struct preempt *p)
{
    char why[2 * WORDS_MAX];

    if (!p->is_late && WIFEXITED(p->wstatus) && WEXITSTATUS(p->wstatus) == 0) {
        take_output(p);
        return;
    }
    if (p->is_late)
        snprintf(why, sizeof(why), "it did not end within %g s and was killed",
                 (double)p->config.limit_ms / 1e3);
    else if (WIFEXITED(p->wstatus))
        snprintf(why, sizeof(why), "exit code %d%s%s", WEXITSTATUS(p->wstatus),
                 p->words[0] ? ": " : "", p->words);
    else
        snprintf(why, sizeof(why), "killed by signal %d", WTERMSIG(p->wstatus));
    take_trouble(p, why);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct preempt *p = arg;

    if (len > 0 && bytes[len - 1] == '\n')
        len--;
    if (len >= WORDS_MAX) {
        bytes += len - (WORDS_MAX - 1);
        len = WORDS_MAX - 1;
    }
    if (len > 0)
        snprintf(p->words, sizeof(p->words), "%.*s", (int)len, bytes);
}

static void on_exit_of(void *arg, int wstatus)
{
    struct preempt *p = arg;

    p->wstatus = wstatus;
    child_close(p->child, 0); /* and what it has left in its group */
}

static void on_child_closed(void *arg)
{
    struct preempt *p = arg;

    p->child = NULL;
    if (!p->closing)
        take_result(p);
    close_files(p);
    pause_now(p);
    free_when_closed(p);
}

static void on_limit(uv_timer_t *timer)
{
    struct preempt *p = timer->data;

    p->is_late = 1;
    child_close(p->child, 0);
}

static void run_script(struct preempt *p)
{
    char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = {shell, option, (char *)p->config.script, NULL};
    const struct child_config config = {
        .loop = p->config.loop,
        .log = p->config.log,
        .host = "localhost",
        .what = "preempt script",
        .path = shell,
        .argv = argv,
        .group = 1,
        .on_stderr = on_stderr,
        .on_exit = on_exit_of,
        .on_close = on_child_closed,
        .arg = p,
    };
    char why[128];
    int rc = open_files(p);

    p->words[0] = '\0';
    p->is_late = p->wstatus = 0;
    if (rc == 0)
        rc = child_open(&config, p->write_fd, &p->child);
    if (rc == 0) {
        uv_timer_start(&p->timer, on_limit, (uint64_t)p->config.limit_ms, 0);
        return;
    }
    close_files(p);
    snprintf(why, sizeof(why), "it cannot be started: %s", strerror(-rc));
    take_trouble(p, why);
    pause_now(p);
}

/* ---- The file ---- */

static void read_file(struct preempt *p)
{
    int fd = open(p->config.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0) {
        take_file(p, fd);
        close(fd);
    } else if (errno == ENOENT) {
        p->in_trouble = 0;
    } else {
        take_trouble(p, strerror(errno));
    }
    pause_now(p);
}

/* ---- Life ---- */

static void look(uv_timer_t *timer)
{
    struct preempt *p = timer->data;

    if (p->config.script)
        run_script(p);
    else
        read_file(p);
}

struct preempt *preempt_open(const struct preempt_config *config)
{
    struct preempt *p = hb_xcalloc(1, sizeof(*p));

    p->config = *config;
    p->read_fd = p->write_fd = -1;
    uv_timer_init(config->loop, &p->timer);
    p->timer.data = p;
    uv_timer_start(&p->timer, look, 0, 0);
    return p;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct preempt *p = handle->data;

    p->timer_closed = 1;
    free_when_closed(p);
}

void preempt_close(struct preempt *p)
{
    if (p->closing)
        return;
    p->closing = 1;
    uv_close((uv_handle_t *)&p->timer, on_timer_closed);
    if (p->child)
        child_close(p->child, 0);
}
