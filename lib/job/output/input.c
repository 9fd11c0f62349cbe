/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwarding of stdin; see input.h.  A timer with timeout 0 makes the first
 * read happen on the loop, and the next ones for files, which are always ready.
 * On a terminal the first read also stops a job that was started in the
 * background, as a shell user expects.
 */
#include "lib/job/output/input.h"

#include "lib/base/alloc.h"
#include "lib/job/output/stdio.h"
#include "lib/protocol/control/control.h"

#include <errno.h>

enum { INPUT_READ_BYTES = 64 << 10 };

struct input_rank {
    size_t under_way;
    int gone;
};

struct input {
    struct input_config config;
    struct stdio io;
    uv_timer_t again;
    struct input_rank *ranks;
    int live;    /* ranks not gone */
    int waiting; /* for the stream */
    int ended;
    int closing;
    int open_parts;
    void (*on_closed)(void *arg);
    char buf[INPUT_READ_BYTES];
};

static size_t input_room(const struct input *in)
{
    size_t room = INPUT_READ_BYTES;

    for (int i = 0; i < in->config.count; i++) {
        size_t left = CONTROL_STDIN_WINDOW - in->ranks[i].under_way;
        if (!in->ranks[i].gone && left < room)
            room = left;
    }
    return room;
}

static void input_deliver(struct input *in, size_t len)
{
    for (int i = 0; i < in->config.count; i++) {
        if (in->ranks[i].gone)
            continue;
        in->ranks[i].under_way += len;
        in->config.on_data(in->config.arg, in->config.first_rank + i, in->buf,
                           len);
    }
}

static void input_end(struct input *in)
{
    in->ended = 1;
    input_deliver(in, 0);
}

static void on_again(uv_timer_t *timer);

static void input_read(struct input *in)
{
    struct hb_error err = HB_ERROR_INIT;
    size_t room = input_room(in);
    ssize_t n;

    if (in->ended || in->waiting || in->closing || in->live == 0 || room == 0)
        return;
    n = stdio_read(&in->io, in->buf, room);
    if (n == -EAGAIN) {
        n = stdio_wait(&in->io);
        in->waiting = n == 0;
        if (n == 0)
            return;
    }
    if (n > 0) {
        input_deliver(in, (size_t)n);
        uv_timer_start(&in->again, on_again, 0, 0);
        return;
    }
    input_end(in);
    if (n == 0)
        return;
    hb_error_sys(&err, (int)-n, "read stdin");
    in->config.on_error(in->config.arg, &err);
}

static void on_again(uv_timer_t *timer)
{
    input_read(timer->data);
}

static void on_readable(struct stdio *io)
{
    struct input *in = io->arg;

    in->waiting = 0;
    input_read(in);
}

void input_open(const struct input_config *config, struct input **out)
{
    struct input *in = hb_xmalloc(sizeof(*in));

    in->config = *config;
    in->ranks = hb_xcalloc((size_t)config->count, sizeof(*in->ranks));
    in->live = config->count;
    in->waiting = in->ended = in->closing = 0;
    stdio_init(&in->io, config->loop, config->fd, 0, on_readable, in);
    uv_timer_init(config->loop, &in->again);
    in->again.data = in;
    uv_timer_start(&in->again, on_again, 0, 0);
    *out = in;
}

static struct input_rank *input_rank(struct input *in, int rank)
{
    int index = rank - in->config.first_rank;

    if (index < 0 || index >= in->config.count)
        return NULL;
    return &in->ranks[index];
}

static void input_resume(struct input *in)
{
    if (!in->closing && !uv_is_active((uv_handle_t *)&in->again))
        uv_timer_start(&in->again, on_again, 0, 0);
}

void input_ack(struct input *in, int rank, size_t len)
{
    struct input_rank *r = input_rank(in, rank);

    if (!r)
        return;
    r->under_way -= len < r->under_way ? len : r->under_way;
    input_resume(in);
}

void input_rank_gone(struct input *in, int rank)
{
    struct input_rank *r = input_rank(in, rank);

    if (!r || r->gone)
        return;
    r->gone = 1;
    if (--in->live == 0)
        stdio_stop(&in->io);
    else
        input_resume(in);
}

static void part_closed(struct input *in)
{
    void (*on_closed)(void *) = in->on_closed;
    void *arg = in->config.arg;

    if (--in->open_parts > 0)
        return;
    hb_free(in->ranks);
    hb_free(in);
    on_closed(arg);
}

static void on_timer_closed(uv_handle_t *handle)
{
    part_closed(handle->data);
}

static void on_stdio_closed(struct stdio *io)
{
    part_closed(io->arg);
}

void input_close(struct input *in, void (*on_closed)(void *arg))
{
    if (in->closing)
        return;
    in->closing = 1;
    in->on_closed = on_closed;
    in->open_parts = 2;
    uv_close((uv_handle_t *)&in->again, on_timer_closed);
    stdio_close(&in->io, on_stdio_closed);
}
