/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct output: writes the ranks' output as tagged whole lines (lines.h) to
 * hvdrun's stdout and stderr without blocking the loop (stdio.h) and, with
 * output_dir, as raw bytes to files (outdir.h).
 *
 * Backpressure: every byte fed is acknowledged through on_ack once it was
 * written (or rests in an unfinished line, which lines.h bounds), so the window
 * of the control protocol bounds what is kept here.  A stream that cannot be
 * written any more drops its input and keeps acknowledging: a job does not stop
 * because its terminal went away.
 */
#ifndef HVD_JOB_OUTPUT_H
#define HVD_JOB_OUTPUT_H

#include "lib/base/error.h"
#include "lib/job/output/lines.h"

#include <sys/resource.h>
#include <uv.h>

struct output;

struct output_config {
    uv_loop_t *loop;
    int fds[2]; /* for stdout and stderr; they stay open */
    int ranks, hosts;
    int np;        /* ranks at the start; others may come */
    size_t window; /* bytes in flight per host; 0: CONTROL_OUTPUT_WINDOW */
    int tag, timestamp;
    unsigned color;  /* coloured tags: 1 on stdout, 2 on stderr */
    const char *dir; /* NULL: terminal only */
    /* len bytes of that host's output are acknowledged */
    void (*on_ack)(void *arg, int host, size_t len);
    /* the reader of stdout or stderr has closed it (EPIPE); once a stream */
    void (*on_reader_gone)(void *arg);
    /* output is being lost: once per stream, and once for the files; terminal:
     * it is not only the copy in files */
    void (*on_error)(void *arg, const struct hb_error *err, int terminal);
    /* all output is written, after output_flush left some */
    void (*on_drained)(void *arg);
    void *arg;
};

/* Opens the output.  0, or negative with err set if the directory cannot be
 * used. */
int output_open(const struct output_config *config, struct output **out,
                struct hb_error *err);

/* Takes output of a rank; stream is 1 or 2.  Written by output_flush. */
void output_feed(struct output *o, int host, int rank, int stream,
                 const void *bytes, size_t len);
void output_end(struct output *o, int rank, int stream);
/* Acknowledges nothing of what the host has sent until now: its connection is
 * over, and another has begun. */
void output_forget_host(struct output *o, int host);
/* Writes what a batch of the calls above has left, as far as possible. */
void output_flush(struct output *o);

/* Writes whole lines of hvdrun's own to stderr. */
void output_message(struct output *o, const char *text, size_t len);

/* Shows a temporary line on a terminal's stderr, until the next one or any
 * other output replaces it; "" removes it. */
void output_status(struct output *o, const char *text);

int output_idle(const struct output *o); /* nothing is left to write */
/* Gives up on streams that are waiting for a reader: drops their present and
 * future output. */
void output_discard(struct output *o);

/* Returns RLIMIT_NOFILE as it was before it was raised for many files; NULL if
 * it was not raised. */
const struct rlimit *output_old_limit(const struct output *o);

/* Closes and frees o; unfinished lines must have been ended.  on_closed runs
 * from a later loop iteration. */
void output_close(struct output *o, void (*on_closed)(void *arg));

#endif
