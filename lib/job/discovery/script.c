/* SPDX-License-Identifier: Apache-2.0 */
/* See script.h. */
#include "lib/job/discovery/script.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/job/worker_env.h"
#include "lib/transport/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WORDS_MAX = 256, /* of a line on stderr */
    CHUNK_BYTES = 64 << 10,
    KIB = 1 << 10,
};

struct script {
    struct script_config config;
    uv_timer_t limit;
    uv_poll_t out;
    int out_fd;  /* -1: no run is in progress */
    int handles; /* not yet closed; the poll handle only during a run */
    struct child *child;
    int wstatus;
    struct hb_buf text;
    char failure[128];     /* "": none but what wstatus says */
    char words[WORDS_MAX]; /* the last line on stderr that is not empty */
    int words_end;         /* a new one begins with the next byte */
    int closing;
};

/* ---- The end of a run ---- */

static void free_when_closed(struct script *s)
{
    if (s->handles > 0 || s->child)
        return;
    s->config.on_close(s->config.arg);
    hb_buf_free(&s->text);
    hb_free(s);
}

/* Returns why the run has failed (heap), or NULL. */
static char *find_failure(const struct script *s)
{
    char signal_name[HB_SIGNAL_NAME_MAX], *why;
    struct hb_buf text = HB_BUF_INIT;

    if (s->failure[0])
        hb_must(hb_buf_puts(&text, s->failure));
    else if (WIFSIGNALED(s->wstatus))
        hb_must(hb_buf_printf(
            &text, "killed by signal %d (%s)", WTERMSIG(s->wstatus),
            hb_signal_name(WTERMSIG(s->wstatus), signal_name)));
    else if (WEXITSTATUS(s->wstatus) != 0)
        hb_must(hb_buf_printf(&text, "exit code %d", WEXITSTATUS(s->wstatus)));
    else
        return NULL;
    if (s->words[0])
        hb_must(hb_buf_printf(&text, ": %s", s->words));
    why = hb_buf_detach(&text);
    hb_text_sanitize(why);
    return why;
}

static void end_run(struct script *s)
{
    char *why = find_failure(s);

    if (why)
        s->config.on_end(s->config.arg, "", 0, why);
    else
        s->config.on_end(s->config.arg, hb_buf_data(&s->text),
                         hb_buf_len(&s->text), NULL);
    hb_free(why);
}

static void on_out_closed(uv_handle_t *handle)
{
    struct script *s = handle->data;

    close(s->out_fd);
    s->out_fd = -1;
    s->handles--;
    if (s->closing)
        free_when_closed(s);
    else
        end_run(s);
}

/* Ends a script that does not do as it should. */
static void stop(struct script *s, const char *why)
{
    if (!s->failure[0])
        snprintf(s->failure, sizeof(s->failure), "%s", why);
    uv_poll_stop(&s->out);
    if (s->child)
        child_close(s->child, 0);
}

static void on_limit(uv_timer_t *timer)
{
    struct script *s = timer->data;
    char why[64];

    snprintf(why, sizeof(why), "it did not end within %g s and was killed",
             (double)s->config.limit_ms / 1e3);
    stop(s, why);
}

/* ---- Its output ---- */

static void stop_too_long(struct script *s)
{
    size_t kib = s->config.bytes_max / KIB;
    char why[64];

    snprintf(why, sizeof(why), "it printed more than %zu %s",
             kib % KIB == 0 ? kib / KIB : kib, kib % KIB == 0 ? "MiB" : "KiB");
    stop(s, why);
}

/* Reads a portion of what the script has printed.  Returns whether there may be
 * more. */
static int read_some(struct script *s)
{
    static char chunk[CHUNK_BYTES];
    ssize_t n = read(s->out_fd, chunk, sizeof(chunk));

    if (n < 0)
        return errno == EINTR;
    if (n > 0 && hb_buf_len(&s->text) + (size_t)n > s->config.bytes_max) {
        stop_too_long(s);
        return 0;
    }
    if (n > 0)
        hb_must(hb_buf_append(&s->text, chunk, (size_t)n));
    else
        uv_poll_stop(&s->out);
    return n > 0;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct script *s = poll->data;

    (void)events;
    if (status < 0)
        uv_poll_stop(poll);
    else
        (void)read_some(s);
}

static void on_words(void *arg, const char *bytes, size_t len)
{
    struct script *s = arg;
    size_t at = strlen(s->words);

    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n' || bytes[i] == '\0') {
            s->words_end = 1;
            continue;
        }
        if (s->words_end)
            at = 0;
        s->words_end = 0;
        if (at + 1 < sizeof(s->words))
            s->words[at++] = bytes[i];
        s->words[at] = '\0';
    }
}

/* ---- The process ---- */

/* Reads what the script has printed, which is all there; what others that hold
 * the pipe may print is not waited for. */
static void on_exit_of(void *arg, int wstatus)
{
    struct script *s = arg;

    s->wstatus = wstatus;
    while (!s->failure[0] && read_some(s))
        ;
    child_close(s->child, 0);
}

static void on_child_close(void *arg)
{
    struct script *s = arg;

    s->child = NULL;
    if (!s->closing)
        uv_timer_stop(&s->limit);
    uv_close((uv_handle_t *)&s->out, on_out_closed);
}

/* Starts the script with fd as its stdout.  0 or a negative errno. */
static int start(struct script *s, int fd, struct hb_strv *env)
{
    char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = {shell, option, (char *)s->config.command, NULL};
    const struct child_config config = {
        .loop = s->config.loop,
        .log = s->config.log,
        .host = "localhost",
        .what = s->config.what,
        .argv = argv,
        .env = env->items,
        .group = 1,
        .tied = 1,
        .on_stderr = on_words,
        .on_exit = on_exit_of,
        .on_close = on_child_close,
        .arg = s,
    };

    return child_open(&config, fd, &s->child);
}

static int open_run(struct script *s, struct hb_strv *env)
{
    int fds[2] = {-1, -1}, rc;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    rc = start(s, fds[1], env);
    close(fds[1]);
    if (rc < 0) {
        close(fds[0]);
        return rc;
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    s->out_fd = fds[0];
    rc = uv_poll_init(s->config.loop, &s->out, s->out_fd);
    assert(rc == 0); /* pipes can be polled */
    s->out.data = s;
    s->handles++;
    uv_poll_start(&s->out, UV_READABLE, on_readable);
    uv_timer_start(&s->limit, on_limit, (uint64_t)s->config.limit_ms, 0);
    return 0;
}

int script_run(struct script *s, struct hb_error *err)
{
    const struct worker_env_config inherited = {.inherited = environ};
    struct hb_strv env = HB_STRV_INIT;
    int rc;

    hb_buf_clear(&s->text);
    s->failure[0] = s->words[0] = '\0';
    s->words_end = s->wstatus = 0;
    rc = worker_env_common(&inherited, &env, err);
    if (rc < 0)
        return rc;
    rc = open_run(s, &env);
    hb_strv_free(&env);
    return rc < 0 ? hb_error_sys(err, -rc, "it cannot be started") : 0;
}

/* ---- Life ---- */

struct script *script_new(const struct script_config *config)
{
    struct script *s = hb_xcalloc(1, sizeof(*s));

    s->config = *config;
    s->out_fd = -1;
    uv_timer_init(config->loop, &s->limit);
    s->limit.data = s;
    s->handles = 1;
    return s;
}

static void on_limit_closed(uv_handle_t *handle)
{
    struct script *s = handle->data;

    s->handles--;
    free_when_closed(s);
}

void script_close(struct script *s)
{
    if (!s || s->closing)
        return;
    s->closing = 1;
    uv_close((uv_handle_t *)&s->limit, on_limit_closed);
    if (s->child)
        stop(s, "");
}
