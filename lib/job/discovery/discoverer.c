/* SPDX-License-Identifier: Apache-2.0 */
/* See discoverer.h. */
#include "lib/job/discovery/discoverer.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/text.h"
#include "lib/job/discovery/discovery.h"
#include "lib/job/discovery/script.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct discoverer {
    struct discoverer_config config;
    struct discovery discovery;
    uv_timer_t timer; /* the pause */
    struct script *script;
    struct hb_buf text; /* of the hostfile */
    int has_answered, in_trouble, closing, timer_closed;
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

static void take_answer(struct discoverer *d, const char *source,
                        const char *text, size_t len)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = discovery_take(&d->discovery, source, text, len, &err);

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

static void pause_now(struct discoverer *d)
{
    if (!d->closing)
        uv_timer_start(&d->timer, ask, (uint64_t)d->config.pause_ms, 0);
}

/* ---- The script ---- */

static void on_end(void *arg, const char *text, size_t len, const char *why)
{
    struct discoverer *d = arg;

    if (why)
        take_trouble(d, why);
    else
        take_answer(d, "its output", text, len);
    pause_now(d);
}

static void run_script(struct discoverer *d)
{
    struct hb_error err = HB_ERROR_INIT;

    if (script_run(d->script, &err) == 0)
        return;
    take_trouble(d, err.text);
    pause_now(d);
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
    int rc;

    hb_buf_clear(&d->text);
    rc = read_file(d);
    if (rc == 0)
        take_answer(d, d->config.hostfile, hb_buf_data(&d->text),
                    hb_buf_len(&d->text));
    else
        take_trouble(d, strerror(-rc));
    pause_now(d);
}

/* ---- Life ---- */

static void ask(uv_timer_t *timer)
{
    struct discoverer *d = timer->data;

    if (d->script)
        run_script(d);
    else
        look_at_file(d);
}

static void free_when_closed(struct discoverer *d)
{
    if (!d->timer_closed || d->script)
        return;
    discovery_fini(&d->discovery);
    hb_buf_free(&d->text);
    hb_free(d);
}

static void on_script_closed(void *arg)
{
    struct discoverer *d = arg;

    d->script = NULL;
    free_when_closed(d);
}

struct discoverer *discoverer_open(const struct discoverer_config *config)
{
    struct discoverer *d = hb_xcalloc(1, sizeof(*d));
    const struct script_config script = {
        .loop = config->loop,
        .log = config->log,
        .what = "discovery script",
        .command = config->script,
        .bytes_max = DISCOVERER_BYTES_MAX,
        .limit_ms = config->limit_ms,
        .on_end = on_end,
        .on_close = on_script_closed,
        .arg = d,
    };

    d->config = *config;
    discovery_init(&d->discovery, config->slots);
    if (config->before)
        discovery_begin(&d->discovery, config->before);
    if (config->script)
        d->script = script_new(&script);
    uv_timer_init(config->loop, &d->timer);
    d->timer.data = d;
    uv_timer_start(&d->timer, ask, 0, 0);
    return d;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct discoverer *d = handle->data;

    d->timer_closed = 1;
    free_when_closed(d);
}

void discoverer_close(struct discoverer *d)
{
    if (!d || d->closing)
        return;
    d->closing = 1;
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
    script_close(d->script);
}
