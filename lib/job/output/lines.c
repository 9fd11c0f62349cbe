/* SPDX-License-Identifier: Apache-2.0 */
/* Merges ranks' bytes into whole tagged lines; see lines.h. */
#include "lib/job/output/lines.h"

#include "lib/job/output/xbuf.h"

#include <string.h>
#include <time.h>

/* Readable on dark and light backgrounds: no black, white or yellow. */
static const char *const tag_colors[] = {"36", "35", "32", "34", "31",
                                         "96", "95", "92", "94", "91"};

void lines_init(struct lines *l, const struct lines_config *config)
{
    *l = (struct lines){.config = *config, .owner = -1, .last = -1};
    if (l->config.line_max == 0)
        l->config.line_max = LINES_LINE_MAX;
    if (l->config.total_max == 0)
        l->config.total_max = LINES_TOTAL_MAX;
    if (l->config.piece_min == 0)
        l->config.piece_min = LINES_PIECE_MIN;
    l->sources = hb_xcalloc((size_t)config->ranks, sizeof(*l->sources));
}

void lines_fini(struct lines *l)
{
    for (int i = 0; l->sources && i < l->config.ranks; i++)
        hb_buf_free(&l->sources[i].buf);
    hb_free(l->sources);
    l->sources = NULL;
    hb_buf_free(&l->clean);
    hb_buf_free(&l->out);
}

/* Formats the time as asctime does, like horovodrun: "Sat Nov 21 00:03:01
 * 2026". */
void lines_set_time(struct lines *l, int64_t now_s)
{
    time_t t = (time_t)now_s;
    struct tm tm;

    if (!localtime_r(&t, &tm) ||
        strftime(l->time, sizeof(l->time), "%a %b %e %H:%M:%S %Y", &tm) == 0)
        l->time[0] = '\0';
}

/* Resets the colours that any rank has set: they may be the background's. */
static void reset_style(struct lines *l)
{
    if (l->styled)
        xbuf_puts(&l->out, "\033[0m");
}

static void put_tag(struct lines *l, int rank)
{
    const size_t colors = sizeof(tag_colors) / sizeof(tag_colors[0]);
    int rc = 0;

    reset_style(l);
    if (l->config.timestamp)
        xbuf_puts(&l->out, l->time);
    if (l->config.timestamp && !l->config.tag)
        xbuf_puts(&l->out, " ");
    if (!l->config.tag)
        return;
    if (l->config.color)
        rc = hb_buf_printf(&l->out, "\033[%sm[%d]<%s>:\033[0m",
                           tag_colors[(size_t)rank % colors], rank,
                           l->config.stream);
    else
        rc = hb_buf_printf(&l->out, "[%d]<%s>:", rank, l->config.stream);
    hb_must(rc);
}

static void drop_pending(struct lines *l, struct lines_source *src)
{
    l->pending -= hb_buf_len(&src->buf);
    hb_buf_free(&src->buf);
}

/* Ends a last line that had no \n, so that nothing is appended to it. */
static void separate(struct lines *l)
{
    if (l->unended)
        xbuf_append(&l->out, "\n", 1);
    l->unended = 0;
}

/* Begins a line with the tag and the pending bytes, or continues the
 * owner's. */
static void put_start(struct lines *l, int rank)
{
    struct lines_source *src = &l->sources[rank];

    if (l->owner != rank) {
        separate(l);
        put_tag(l, rank);
    }
    l->last = rank;
    if (hb_buf_len(&src->buf) == 0)
        return;
    xbuf_append(&l->out, hb_buf_data(&src->buf), hb_buf_len(&src->buf));
    drop_pending(l, src);
}

/* Returns the length of the first line in bytes, with its end; 0: no line
 * end. */
static size_t line_length(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n')
            return i + 1;
        if (bytes[i] == '\r')
            return i + 1 < len && bytes[i + 1] == '\n' ? i + 2 : i + 1;
    }
    return 0;
}

static void keep_rest(struct lines *l, int rank, const char *bytes, size_t len)
{
    struct lines_source *src = &l->sources[rank];
    size_t have;

    if (len == 0)
        return;
    if (l->owner == rank) {
        xbuf_append(&l->out, bytes, len);
        return;
    }
    xbuf_append(&src->buf, bytes, len);
    l->pending += len;
    have = hb_buf_len(&src->buf);
    if (have < l->config.line_max &&
        (l->pending < l->config.total_max || have < l->config.piece_min))
        return;
    put_start(l, rank);
    l->owner = rank;
}

/* Takes bytes of a rank that may write: the owner or, if there is none, any. */
static void take(struct lines *l, int rank, const char *bytes, size_t len)
{
    struct lines_source *src = &l->sources[rank];
    size_t n;

    if (len == 0)
        return;
    /* The \n of a \r\n whose \r was passed on already. */
    if (src->after_cr && bytes[0] == '\n' && l->last == rank) {
        xbuf_append(&l->out, "\n", 1);
        bytes++;
        len--;
    }
    src->after_cr = 0;
    while ((n = line_length(bytes, len)) > 0) {
        put_start(l, rank);
        xbuf_append(&l->out, bytes, n);
        l->owner = -1;
        src->after_cr = n == len && bytes[n - 1] == '\r';
        bytes += n;
        len -= n;
    }
    keep_rest(l, rank, bytes, len);
}

static void end_source(struct lines *l, int rank)
{
    struct lines_source *src = &l->sources[rank];

    if (l->owner == rank || hb_buf_len(&src->buf) > 0) {
        put_start(l, rank);
        l->unended = 1;
        if (l->config.tag || l->config.timestamp)
            separate(l);
        l->owner = -1;
    }
    src->ended = 0;
    src->after_cr = 0;
}

/* Takes the bytes held during the owner's line, until a rank owns the stream
 * again. */
static void take_held(struct lines *l)
{
    int rank;

    if (l->owner >= 0 || l->held == 0)
        return;
    for (rank = 0; rank < l->config.ranks && l->owner < 0; rank++) {
        struct lines_source *src = &l->sources[rank];
        struct hb_buf held = src->buf;

        src->buf = (struct hb_buf)HB_BUF_INIT;
        l->pending -= hb_buf_len(&held);
        take(l, rank, hb_buf_data(&held), hb_buf_len(&held));
        hb_buf_free(&held);
        if (src->ended)
            end_source(l, rank);
    }
    l->held = 0;
    for (; rank < l->config.ranks; rank++)
        l->held += hb_buf_len(&l->sources[rank].buf);
}

void lines_feed(struct lines *l, int rank, const void *bytes, size_t len)
{
    if (l->config.terminal) {
        hb_buf_clear(&l->clean);
        tty_text_filter(&l->sources[rank].tty, bytes, len, &l->clean);
        bytes = hb_buf_data(&l->clean);
        len = hb_buf_len(&l->clean);
        l->styled |= memchr(bytes, '\033', len) != NULL;
    }
    if (l->owner >= 0 && l->owner != rank) {
        xbuf_append(&l->sources[rank].buf, bytes, len);
        l->pending += len;
        l->held += len;
        return;
    }
    take(l, rank, bytes, len);
    take_held(l);
}

void lines_end(struct lines *l, int rank)
{
    struct lines_source *src = &l->sources[rank];

    if (l->owner >= 0 && l->owner != rank) {
        src->ended = hb_buf_len(&src->buf) > 0;
        l->held += (size_t)src->ended;
        return;
    }
    end_source(l, rank);
    take_held(l);
}

void lines_break(struct lines *l)
{
    if (l->owner < 0)
        return;
    xbuf_append(&l->out, "\n", 1);
    l->owner = -1;
    l->last = -1;
    take_held(l);
}

void lines_message(struct lines *l, const char *text, size_t len)
{
    /* Held bytes may contain a long line, which then owns the stream. */
    while (l->owner >= 0)
        lines_break(l);
    separate(l);
    reset_style(l);
    xbuf_append(&l->out, text, len);
    l->last = -1;
}
