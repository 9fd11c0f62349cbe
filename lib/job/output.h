/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct output: where the ranks' output goes: tagged whole lines
 * (lines.h) to hvdrun's stdout and stderr without blocking the loop
 * (stdio.h), and with output_dir raw bytes to files (outdir.h).
 *
 * Backpressure: every byte fed is given back through on_ack once it was
 * written out (or rests as an unfinished line, which lines.h bounds), so
 * the window of the control protocol bounds what is kept here.  A stream
 * that cannot be written any more swallows what comes and keeps acking:
 * a job does not stop because its terminal went away.
 */
#ifndef HVD_JOB_OUTPUT_H
#define HVD_JOB_OUTPUT_H

#include "lib/base/error.h"
#include "lib/job/lines.h"

#include <sys/resource.h>
#include <uv.h>

struct output;

struct output_config {
    uv_loop_t *loop;
    int fds[2]; /* for stdout and stderr; they stay open */
    int ranks, hosts;
    size_t window; /* bytes in flight per host; 0: the most */
    int tag, timestamp;
    unsigned color;  /* of the tags: 1 on stdout, 2 on stderr */
    const char *dir; /* NULL: terminal only */
    /* len bytes of that host's output are done with */
    void (*on_ack)(void *arg, int host, size_t len);
    /* the reader of stdout or stderr has closed it (EPIPE); once a stream */
    void (*on_reader_gone)(void *arg);
    /* output is being lost, once a stream and once for the files;
     * terminal: not only the copy in files */
    void (*on_error)(void *arg, const struct hb_error *err, int terminal);
    /* everything was written after output_flush could not */
    void (*on_drained)(void *arg);
    void *arg;
};

/* 0, or negative with err set: the directory cannot be used. */
int output_open(const struct output_config *config, struct output **out,
                struct hb_error *err);

/* stream 1 or 2.  Nothing is written before output_flush. */
void output_feed(struct output *o, int host, int rank, int stream,
                 const void *bytes, size_t len);
void output_end(struct output *o, int rank, int stream);
/* After a batch of the above. */
void output_flush(struct output *o);

/* Whole lines of hvdrun's own for stderr. */
void output_message(struct output *o, const char *text, size_t len);

/* A line of the moment on a terminal's stderr: the next one, or any other
 * output, takes its place; "" removes it. */
void output_status(struct output *o, const char *text);

int output_idle(const struct output *o); /* nothing waits to be written */
/* Gives up on streams that nobody reads now: what waits for them and what
 * comes is thrown away. */
void output_discard(struct output *o);

/* What RLIMIT_NOFILE was, if many files made it necessary to raise it;
 * else NULL. */
const struct rlimit *output_old_limit(const struct output *o);

/* Unfinished lines must have been ended.  Frees it; on_closed runs from a
 * later loop iteration. */
void output_close(struct output *o, void (*on_closed)(void *arg));

#endif
