/* SPDX-License-Identifier: Apache-2.0 */
/* See preempt.h. */
#include "lib/job/elastic/preempt.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/hosts/going.h"
#include "lib/job/discovery/script.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct preempt {
    struct preempt_config config;
    uv_timer_t timer; /* the pause */
    struct script *script;
    int in_trouble, closing, timer_closed;
};

static void look(uv_timer_t *timer);

static void free_when_closed(struct preempt *p)
{
    if (!p->timer_closed || p->script)
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
    p->config.on_going(p->config.arg, list, count);
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

static void on_end(void *arg, const char *text, size_t len, const char *why)
{
    struct preempt *p = arg;

    if (why)
        take_trouble(p, why);
    else
        take_answer(p, text, len);
    pause_now(p);
}

static void run_script(struct preempt *p)
{
    struct hb_error err = HB_ERROR_INIT;

    if (script_run(p->script, &err) == 0)
        return;
    take_trouble(p, err.text);
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

    if (p->script)
        run_script(p);
    else
        read_file(p);
}

static void on_script_closed(void *arg)
{
    struct preempt *p = arg;

    p->script = NULL;
    free_when_closed(p);
}

struct preempt *preempt_open(const struct preempt_config *config)
{
    struct preempt *p = hb_xcalloc(1, sizeof(*p));
    const struct script_config script = {
        .loop = config->loop,
        .log = config->log,
        .what = "preempt script",
        .command = config->script,
        .bytes_max = GOING_BYTES_MAX,
        .limit_ms = config->limit_ms,
        .on_end = on_end,
        .on_close = on_script_closed,
        .arg = p,
    };

    p->config = *config;
    if (config->script)
        p->script = script_new(&script);
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
    script_close(p->script);
}
