/* SPDX-License-Identifier: Apache-2.0 */
/* See discoverer.h. */
#include "lib/job/elastic/discoverer.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/text.h"
#include "lib/job/elastic/discovery.h"
#include "lib/transport/child.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 256 }; /* of what the script says on stderr */

struct discoverer {
    struct discoverer_config config;
    struct discovery discovery;
    uv_timer_t timer; /* the pause; while the script runs, its limit */
    struct child *child;
    uv_pipe_t out;
    int out_open; /* out is not closed yet */
    int has_exited, wstatus;
    struct hb_buf text;
    char words[WORDS_MAX]; /* the last line on stderr */
    struct hb_error failure;
    int has_answered, in_trouble, closing;
};

static void ask(uv_timer_t *timer);

/* ---- Answers ---- */

static void take_trouble(struct discoverer *d, const char *why)
{
    char *line;

    if (d->in_trouble || d->closing)
        return;
    d->in_trouble = 1;
    line = hb_xstrdup(why);
    hb_text_sanitize(line);
    d->config.on_trouble(d->config.arg, line);
    hb_free(line);
}

static void take_answer(struct discoverer *d, const char *source)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = discovery_take(&d->discovery, source, hb_buf_data(&d->text),
                            hb_buf_len(&d->text), &err);

    if (rc < 0) {
        take_trouble(d, err.text);
        return;
    }
    d->in_trouble = 0;
    if (rc == 0 && d->has_answered)
        return;
    d->has_answered = 1;
    d->config.on_hosts(d->config.arg, &d->discovery.hosts,
                       discovery_slots(&d->discovery));
}

/* ---- The script ---- */

static void free_when_closed(struct discoverer *d)
{
    if (!d->closing || d->child || d->out_open ||
        !uv_is_closing((uv_handle_t *)&d->timer) || d->timer.data)
        return;
    discovery_fini(&d->discovery);
    hb_buf_free(&d->text);
    hb_free(d);
}

static void take_result(struct discoverer *d)
{
    char why[2 * WORDS_MAX];

    if (d->failure.status) {
        snprintf(why, sizeof(why), "%s", d->failure.text);
    } else if (WIFEXITED(d->wstatus) && WEXITSTATUS(d->wstatus) == 0) {
        take_answer(d, "its output");
        return;
    } else if (WIFEXITED(d->wstatus)) {
        snprintf(why, sizeof(why), "exit code %d%s%s", WEXITSTATUS(d->wstatus),
                 d->words[0] ? ": " : "", d->words);
    } else {
        snprintf(why, sizeof(why), "killed by signal %d", WTERMSIG(d->wstatus));
    }
    take_trouble(d, why);
}

/* Goes on once the script has ended and its output has been read. */
static void check_ended(struct discoverer *d)
{
    if (d->child || d->out_open)
        return;
    if (!d->closing) {
        take_result(d);
        uv_timer_start(&d->timer, ask, (uint64_t)d->config.pause_ms, 0);
    }
    free_when_closed(d);
}

static void on_out_closed(uv_handle_t *handle)
{
    struct discoverer *d = handle->data;

    d->out_open = 0;
    if (d->has_exited && d->child)
        child_close(d->child, 0);
    check_ended(d);
}

static void close_out(struct discoverer *d)
{
    if (d->out_open && !uv_is_closing((uv_handle_t *)&d->out))
        uv_close((uv_handle_t *)&d->out, on_out_closed);
}

/* Ends a script that does not do as it should. */
static void stop_script(struct discoverer *d, const char *why)
{
    if (!d->failure.status)
        hb_error_set(&d->failure, HVD_ETIMEOUT, "%s", why);
    if (d->child)
        child_close(d->child, 0);
    close_out(d);
}

static void on_limit(uv_timer_t *timer)
{
    struct discoverer *d = timer->data;
    char why[64];

    snprintf(why, sizeof(why), "it did not end within %g s and was killed",
             (double)d->config.limit_ms / 1e3);
    stop_script(d, why);
}

static void on_child_exit(void *arg, int wstatus)
{
    struct discoverer *d = arg;

    d->has_exited = 1;
    d->wstatus = wstatus;
    if (!d->out_open)
        child_close(d->child, 0);
}

static void on_child_close(void *arg)
{
    struct discoverer *d = arg;

    d->child = NULL;
    check_ended(d);
}

/* Keeps the last line that has a visible character. */
static void on_words(void *arg, const char *bytes, size_t len)
{
    struct discoverer *d = arg;

    while (len > 0) {
        size_t n = strcspn(bytes, "\n") < len ? strcspn(bytes, "\n") : len;

        if (n > 0)
            snprintf(d->words, sizeof(d->words), "%.*s", (int)n, bytes);
        n += n < len;
        bytes += n;
        len -= n;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)handle;
    *buf = uv_buf_init(hb_xmalloc(suggested), (unsigned)suggested);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct discoverer *d = stream->data;

    if (n > 0 && hb_buf_len(&d->text) + (size_t)n > DISCOVERER_BYTES_MAX)
        stop_script(d, "it printed more than 1 MiB");
    else if (n > 0)
        hb_must(hb_buf_append(&d->text, buf->base, (size_t)n));
    else if (n < 0)
        close_out(d);
    hb_free(buf->base);
}

/* Starts the script with a socket as its stdin, which has ended, and stdout. */
static int start_script(struct discoverer *d)
{
    char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = {shell, option, (char *)d->config.script, NULL};
    const struct child_config config = {
        .loop = d->config.loop,
        .log = d->config.log,
        .host = "localhost",
        .what = "discovery script",
        .path = shell,
        .argv = argv,
        .group = 1,
        .on_stderr = on_words,
        .on_exit = on_child_exit,
        .on_close = on_child_close,
        .arg = d,
    };
    int fds[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    shutdown(fds[0], SHUT_WR);
    rc = child_open(&config, fds[1], &d->child);
    close(fds[1]);
    if (rc < 0) {
        close(fds[0]);
        return rc;
    }
    uv_pipe_init(d->config.loop, &d->out, 0);
    d->out.data = d;
    d->out_open = 1;
    uv_pipe_open(&d->out, fds[0]);
    uv_read_start((uv_stream_t *)&d->out, on_alloc, on_read);
    return 0;
}

static void run_script(struct discoverer *d)
{
    char why[128];
    int rc;

    d->failure = (struct hb_error)HB_ERROR_INIT;
    d->has_exited = d->wstatus = 0;
    d->words[0] = '\0';
    rc = start_script(d);
    if (rc == 0) {
        uv_timer_start(&d->timer, on_limit, (uint64_t)d->config.limit_ms, 0);
        return;
    }
    snprintf(why, sizeof(why), "it cannot be started: %s", strerror(-rc));
    take_trouble(d, why);
    uv_timer_start(&d->timer, ask, (uint64_t)d->config.pause_ms, 0);
}

/* ---- The hostfile ---- */

static int read_file(struct discoverer *d)
{
    int fd = open(d->config.hostfile, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char chunk[4096];
    ssize_t n;

    if (fd < 0)
        return -errno;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0 &&
           hb_buf_len(&d->text) < DISCOVERER_BYTES_MAX)
        hb_must(hb_buf_append(&d->text, chunk, (size_t)n));
    n = n < 0 ? -errno : n > 0 ? -EFBIG : 0;
    close(fd);
    return (int)n;
}

static void look_at_file(struct discoverer *d)
{
    int rc = read_file(d);

    if (rc == 0)
        take_answer(d, d->config.hostfile);
    else
        take_trouble(d, strerror(-rc));
    if (!d->closing)
        uv_timer_start(&d->timer, ask, (uint64_t)d->config.pause_ms, 0);
}

/* ---- Life ---- */

static void ask(uv_timer_t *timer)
{
    struct discoverer *d = timer->data;

    hb_buf_clear(&d->text);
    if (d->config.script)
        run_script(d);
    else
        look_at_file(d);
}

struct discoverer *discoverer_open(const struct discoverer_config *config)
{
    struct discoverer *d = hb_xcalloc(1, sizeof(*d));

    d->config = *config;
    discovery_init(&d->discovery, config->slots);
    uv_timer_init(config->loop, &d->timer);
    d->timer.data = d;
    uv_timer_start(&d->timer, ask, 0, 0);
    return d;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct discoverer *d = handle->data;

    handle->data = NULL;
    free_when_closed(d);
}

void discoverer_close(struct discoverer *d)
{
    if (!d || d->closing)
        return;
    d->closing = 1;
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
    stop_script(d, "");
}
