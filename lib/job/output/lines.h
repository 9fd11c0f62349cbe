/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lines: merges what the ranks write to one stream (stdout or stderr)
 * into whole tagged lines.  Pure: bytes in, bytes out in `out`.
 *
 * A line ends at \n, \r or \r\n and is passed on unchanged behind the tag
 * `[rank]<stdout>:`.  A last line without an end gets \n: at once when lines
 * are tagged, else only when something follows, so that the bytes of one
 * untagged rank pass unchanged.
 *
 * A line is kept until it ends, within limits: when one rank's line reaches
 * line_max, or all ranks' lines together total_max (and this one at least
 * piece_min), its bytes are passed on, and that rank owns the stream until its
 * line ends, so that nothing comes between.  Other ranks' bytes are held
 * meanwhile.
 *
 * The ranks that are held up may be the ones that a silent owner waits for.  So
 * the caller bounds the time and the bytes held (lines_held) and then calls
 * lines_break: the line is ended there, and its rest begins with a tag again.
 */
#ifndef HVD_JOB_LINES_H
#define HVD_JOB_LINES_H

#include "lib/base/buf.h"
#include "lib/job/output/tty_text.h"

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
    int terminal;                          /* filter with tty_text.h */
    size_t line_max, total_max, piece_min; /* 0: the limits above */
};

struct lines_source {
    struct hb_buf buf; /* an unfinished line, or bytes held */
    int after_cr;      /* its last byte passed on was \r */
    int ended;         /* the stream ended while bytes were held */
    struct tty_text tty;
};

struct lines {
    struct lines_config config;
    struct lines_source *sources;
    int owner;      /* rank whose unfinished line is in `out`, or -1 */
    int last;       /* rank whose bytes are last in `out`, or -1 */
    int unended;    /* the last line of an ended rank lacks its \n */
    size_t held;    /* bytes held because of the owner */
    size_t pending; /* bytes in all sources */
    char time[32];  /* current timestamp */
    int styled;     /* a rank has written colours */
    struct hb_buf clean;
    struct hb_buf out;
};

void lines_init(struct lines *l, const struct lines_config *config);
void lines_fini(struct lines *l);

/* Sets the time for the stamps of following lines: seconds since 1970. */
void lines_set_time(struct lines *l, int64_t now_s);

void lines_feed(struct lines *l, int rank, const void *bytes, size_t len);
/* Ends the rank's stream. */
void lines_end(struct lines *l, int rank);

static inline size_t lines_held(const struct lines *l)
{
    return l->held;
}

void lines_break(struct lines *l);

/* Inserts whole lines of hvdrun's own between the ranks' lines. */
void lines_message(struct lines *l, const char *text, size_t len);

#endif
