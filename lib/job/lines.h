/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lines: merges what the ranks write to one stream (stdout or
 * stderr) into whole tagged lines.  Pure: bytes in, bytes out in `out`.
 *
 * A line ends at \n, \r or \r\n and is passed on as it is behind the tag
 * `[rank]<stdout>:`.  A last line without an end gets \n: at once when
 * lines are tagged, else only when something follows, so that the bytes of
 * one untagged rank pass unchanged.  A line is kept until it ends, but not
 * for ever: when one rank's reaches line_max, or all ranks' together
 * total_max (and this one at least piece_min), what is there is passed on,
 * and that rank owns the stream until its line ends, so that nothing comes
 * between.  Other ranks' bytes are held meanwhile.
 * A holder of the stream that stays silent could hold up ranks that it
 * waits for itself, so the caller bounds that time and the bytes held
 * (lines_held) and then calls lines_break: the line is ended there, and
 * the rest of it begins with a tag again.
 */
#ifndef HVD_JOB_LINES_H
#define HVD_JOB_LINES_H

#include "lib/base/buf.h"

enum {
    LINES_LINE_MAX = (1 << 20) + (64 << 10),
    LINES_TOTAL_MAX = 16 << 20,
    LINES_PIECE_MIN = 64 << 10,
};

struct lines_config {
    const char *stream; /* "stdout", "stderr" */
    int ranks;
    int tag;
    int timestamp;
    unsigned color;
    size_t line_max, total_max, piece_min; /* 0: the limits above */
};

struct lines_source {
    struct hb_buf buf; /* an unfinished line, or bytes held */
    int after_cr;      /* its last line ended with \r */
    int ended;         /* while held */
};

struct lines {
    struct lines_config config;
    struct lines_source *sources;
    int owner;      /* rank whose unfinished line is in `out`, or -1 */
    int last;       /* rank whose bytes are last in `out`, or -1 */
    int unended;    /* an ended rank's last line, still without \n */
    size_t held;    /* bytes held because of the owner */
    size_t pending; /* bytes in all sources */
    char time[32];  /* what a timestamp says now */
    struct hb_buf out;
};

void lines_init(struct lines *l, const struct lines_config *config);
void lines_fini(struct lines *l);

/* The time for the following lines' stamps, seconds since 1970. */
void lines_set_time(struct lines *l, int64_t now_s);

void lines_feed(struct lines *l, int rank, const void *bytes, size_t len);
/* The rank's stream has ended. */
void lines_end(struct lines *l, int rank);

static inline size_t lines_held(const struct lines *l)
{
    return l->held;
}

void lines_break(struct lines *l);

/* Whole lines of hvdrun's own, between the ranks'. */
void lines_message(struct lines *l, const char *text, size_t len);

#endif
