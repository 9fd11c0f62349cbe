/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' output to the terminal and to files; see output.h.
 *
 * Each stream has a queue of acks: `host` is acknowledged `len` bytes when
 * `upto` bytes of the stream have been written.  Bytes that lines.h holds
 * during another rank's line are counted per host instead, and queued when they
 * are released.
 */
#include "lib/job/output/output.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/output/outdir.h"
#include "lib/job/output/stdio.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/control/control.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    /* How long a silent owner may hold up the others. */
    OUTPUT_HOLD_MS = 250,
    OUTPUT_WRITE_BYTES = 256 << 10,
    /* Most bytes per entry, so that acks continue while much is queued. */
    OUTPUT_ACK_BYTES = 64 << 10,
    OUTPUT_ACKS_FIRST = 32, /* initial size of the queue */
};

struct ack {
    int host;
    size_t len;
    uint64_t upto;
};

struct sink {
    struct output *o;
    struct stdio io;
    struct lines lines;
    uint64_t written;
    int waiting; /* for the stream to be writable */
    int discard;
    struct ack *acks; /* queue: [ack_first, ack_first + ack_count) */
    size_t ack_first, ack_count, ack_cap;
    size_t *held; /* [hosts]: bytes held and not yet queued */
    uv_timer_t hold_timer;
    uint64_t hold_mark; /* position at the start of the timer */
};

struct output {
    struct output_config config;
    struct sink sinks[2];
    struct outdir dir;
    int64_t time_s;
    int status; /* a status line is shown */
    int closing;
    int open_parts; /* handles to close before on_closed */
    void (*on_closed)(void *arg);
};

static uint64_t sink_position(const struct sink *s)
{
    return s->written + hb_buf_len(&s->lines.out);
}

/* ---- Acks ---- */

/* Makes room for one more ack. */
static void ack_reserve(struct sink *s)
{
    if (s->ack_first + s->ack_count < s->ack_cap)
        return;
    if (s->ack_first > 0) {
        memmove(s->acks, s->acks + s->ack_first,
                s->ack_count * sizeof(*s->acks));
        s->ack_first = 0;
        return;
    }
    s->ack_cap *= 2;
    s->acks = hb_xrealloc_array(s->acks, s->ack_cap, sizeof(*s->acks));
}

static void ack_push(struct sink *s, int host, size_t len)
{
    uint64_t upto = sink_position(s);
    struct ack *end = s->acks + s->ack_first + s->ack_count;

    if (s->ack_count > 0 && end[-1].host == host &&
        end[-1].len + len <= OUTPUT_ACK_BYTES) {
        end[-1].len += len;
        end[-1].upto = upto;
        return;
    }
    ack_reserve(s);
    s->acks[s->ack_first + s->ack_count++] = (struct ack){host, len, upto};
}

static void ack_written(struct sink *s)
{
    while (s->ack_count > 0 && s->acks[s->ack_first].upto <= s->written) {
        struct ack a = s->acks[s->ack_first++];
        s->ack_count--;
        if (a.len > 0)
            s->o->config.on_ack(s->o->config.arg, a.host, a.len);
    }
    if (s->ack_count == 0)
        s->ack_first = 0;
}

/* Acknowledges what was pushed for the host to nobody. */
static void ack_drop(struct sink *s, int host)
{
    for (size_t i = s->ack_first; i < s->ack_first + s->ack_count; i++)
        if (s->acks[i].host == host)
            s->acks[i].len = 0;
    s->held[host] = 0;
}

/* ---- Holding ---- */

static void sink_write(struct sink *s);

static void on_hold_timer(uv_timer_t *timer);

/* Starts the timer if output is held, else queues the acks of released bytes;
 * to be called after anything that may change what is held. */
static void sink_update_hold(struct sink *s)
{
    if (lines_held(&s->lines) > 0) {
        if (!uv_is_active((uv_handle_t *)&s->hold_timer)) {
            s->hold_mark = sink_position(s);
            uv_timer_start(&s->hold_timer, on_hold_timer, OUTPUT_HOLD_MS, 0);
        }
        return;
    }
    uv_timer_stop(&s->hold_timer);
    for (int host = 0; host < s->o->config.hosts; host++) {
        if (s->held[host] > 0)
            ack_push(s, host, s->held[host]);
        s->held[host] = 0;
    }
}

static void sink_break(struct sink *s)
{
    lines_break(&s->lines);
    sink_update_hold(s);
}

static void on_hold_timer(uv_timer_t *timer)
{
    struct sink *s = timer->data;

    /* An owner that keeps writing keeps the stream. */
    if (sink_position(s) == s->hold_mark)
        sink_break(s);
    sink_update_hold(s);
    sink_write(s);
}

/* ---- Writing ---- */

static void sink_failed(struct sink *s, int e)
{
    struct hb_error err = HB_ERROR_INIT;
    struct output_config *config = &s->o->config;

    s->discard = 1;
    if (e == EPIPE) {
        config->on_reader_gone(config->arg);
        return;
    }
    hb_error_sys(&err, e, "write to %s", s->lines.config.stream);
    config->on_error(config->arg, &err, 1);
}

static void sink_swallow(struct sink *s)
{
    s->written += hb_buf_len(&s->lines.out);
    hb_buf_clear(&s->lines.out);
    stdio_stop(&s->io);
    s->waiting = 0;
}

static void sink_write(struct sink *s)
{
    struct hb_buf *out = &s->lines.out;

    while (!s->waiting && !s->discard && hb_buf_len(out) > 0) {
        size_t len = hb_buf_len(out);
        ssize_t n;

        if (len > OUTPUT_WRITE_BYTES)
            len = OUTPUT_WRITE_BYTES;
        n = stdio_write(&s->io, hb_buf_data(out), len);
        if (n == -EAGAIN) {
            n = stdio_wait(&s->io);
            s->waiting = n == 0;
        }
        if (n > 0) {
            s->written += (uint64_t)n;
            hb_buf_consume(out, (size_t)n);
        } else if (n < 0) {
            sink_failed(s, (int)-n);
        }
    }
    if (s->discard)
        sink_swallow(s);
    ack_written(s);
}

static void on_writable(struct stdio *io)
{
    struct sink *s = io->arg;
    struct output *o = s->o;

    s->waiting = 0;
    sink_write(s);
    if (output_idle(o))
        o->config.on_drained(o->config.arg);
}

/* ---- The interface ---- */

static void sink_init(struct output *o, int index)
{
    struct sink *s = &o->sinks[index];
    struct lines_config lines = {
        .stream = index == 0 ? "stdout" : "stderr",
        .ranks = o->config.ranks,
        .tag = o->config.tag,
        .timestamp = o->config.timestamp,
        .color = (o->config.color >> index) & 1u,
        .terminal = (o->config.tag || o->config.timestamp) &&
                    isatty(o->config.fds[index]),
    };

    s->o = o;
    lines_init(&s->lines, &lines);
    stdio_init(&s->io, o->config.loop, o->config.fds[index], 1, on_writable, s);
    s->ack_cap = OUTPUT_ACKS_FIRST;
    s->acks = hb_xcalloc(s->ack_cap, sizeof(*s->acks));
    s->held = hb_xcalloc((size_t)o->config.hosts, sizeof(*s->held));
    uv_timer_init(o->config.loop, &s->hold_timer);
    s->hold_timer.data = s;
}

int output_open(const struct output_config *config, struct output **out,
                struct hb_error *err)
{
    struct output *o = hb_xcalloc(1, sizeof(*o));
    int rc;

    o->config = *config;
    if (!o->config.window)
        o->config.window = CONTROL_OUTPUT_WINDOW;
    o->time_s = -1;
    if (config->dir) {
        rc = outdir_open(&o->dir, config->dir, config->ranks, config->np, err);
        if (rc < 0) {
            hb_free(o);
            return hb_error_context(err, "--output-filename");
        }
    }
    sink_init(o, 0);
    sink_init(o, 1);
    *out = o;
    return 0;
}

static void output_stamp(struct output *o)
{
    int64_t now_s = (int64_t)(hb_wall_ns() / 1000000000u);

    if (!o->config.timestamp || now_s == o->time_s)
        return;
    o->time_s = now_s;
    lines_set_time(&o->sinks[0].lines, now_s);
    lines_set_time(&o->sinks[1].lines, now_s);
}

static void files_result(struct output *o, int rc, const struct hb_error *err)
{
    if (rc < 0)
        o->config.on_error(o->config.arg, err, 0);
}

void output_status(struct output *o, const char *text)
{
    struct sink *s = &o->sinks[1];

    if (!o->status && !text[0])
        return;
    if (o->status)
        xbuf_puts(&s->lines.out, "\r\033[K");
    xbuf_puts(&s->lines.out, text);
    o->status = text[0] != '\0';
    sink_write(s);
}

void output_feed(struct output *o, int host, int rank, int stream,
                 const void *bytes, size_t len)
{
    struct hb_error err = HB_ERROR_INIT;
    struct sink *s = &o->sinks[stream == 2];

    output_status(o, "");
    if (o->config.dir)
        files_result(o, outdir_write(&o->dir, rank, stream, bytes, len, &err),
                     &err);
    output_stamp(o);
    lines_feed(&s->lines, rank, bytes, len);
    if (lines_held(&s->lines) > 0 && s->lines.owner != rank)
        s->held[host] += len;
    else
        ack_push(s, host, len);
    if (s->held[host] >= o->config.window / 2)
        sink_break(s);
    else
        sink_update_hold(s);
}

void output_forget_host(struct output *o, int host)
{
    for (int i = 0; i < 2; i++)
        ack_drop(&o->sinks[i], host);
}

void output_end(struct output *o, int rank, int stream)
{
    struct sink *s = &o->sinks[stream == 2];

    lines_end(&s->lines, rank);
    sink_update_hold(s);
}

void output_flush(struct output *o)
{
    struct hb_error err = HB_ERROR_INIT;

    if (o->config.dir)
        files_result(o, outdir_flush(&o->dir, &err), &err);
    sink_write(&o->sinks[0]);
    sink_write(&o->sinks[1]);
}

void output_message(struct output *o, const char *text, size_t len)
{
    struct sink *s = &o->sinks[1];

    output_status(o, "");
    lines_message(&s->lines, text, len);
    sink_update_hold(s);
    sink_write(s);
}

int output_idle(const struct output *o)
{
    return hb_buf_len(&o->sinks[0].lines.out) == 0 &&
           hb_buf_len(&o->sinks[1].lines.out) == 0;
}

void output_discard(struct output *o)
{
    for (int i = 0; i < 2; i++)
        if (o->sinks[i].waiting)
            o->sinks[i].discard = 1;
    output_flush(o);
}

const struct rlimit *output_old_limit(const struct output *o)
{
    return o->dir.limit_raised ? &o->dir.old_limit : NULL;
}

static void part_closed(struct output *o)
{
    void (*on_closed)(void *) = o->on_closed;
    void *arg = o->config.arg;

    if (--o->open_parts > 0)
        return;
    for (int i = 0; i < 2; i++) {
        lines_fini(&o->sinks[i].lines);
        hb_free(o->sinks[i].acks);
        hb_free(o->sinks[i].held);
    }
    outdir_close(&o->dir);
    hb_free(o);
    on_closed(arg);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct sink *s = handle->data;

    part_closed(s->o);
}

static void on_stdio_closed(struct stdio *io)
{
    struct sink *s = io->arg;

    part_closed(s->o);
}

void output_close(struct output *o, void (*on_closed)(void *arg))
{
    if (o->closing)
        return;
    o->closing = 1;
    o->on_closed = on_closed;
    o->open_parts = 4;
    for (int i = 0; i < 2; i++) {
        uv_close((uv_handle_t *)&o->sinks[i].hold_timer, on_timer_closed);
        stdio_close(&o->sinks[i].io, on_stdio_closed);
    }
}
