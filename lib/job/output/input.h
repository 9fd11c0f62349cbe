/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct input: forwards hvdrun's stdin to one rank or to all.
 *
 * Nothing is read before input_open, so a job without --stdin leaves its
 * caller's input alone.  At most CONTROL_STDIN_WINDOW bytes per rank are in
 * flight (input_ack gives them back); with several ranks the slowest sets the
 * pace.  A rank that has exited is left out; when all have, reading stops.  End
 * of file goes to every rank, once.
 */
#ifndef HVD_JOB_INPUT_H
#define HVD_JOB_INPUT_H

#include "lib/base/error.h"

#include <stddef.h>
#include <uv.h>

struct input;

struct input_config {
    uv_loop_t *loop;
    int fd;
    int first_rank, count; /* the ranks that get stdin */
    /* len 0: end of file */
    void (*on_data)(void *arg, int rank, const void *bytes, size_t len);
    /* reading failed; the ranks have already been sent end of file */
    void (*on_error)(void *arg, const struct hb_error *err);
    void *arg;
};

/* Starts reading, on the loop: on_data does not run inside this call. */
void input_open(const struct input_config *config, struct input **out);
void input_ack(struct input *in, int rank, size_t len);
void input_rank_gone(struct input *in, int rank);

/* Frees `in`; on_closed runs from a later loop iteration. */
void input_close(struct input *in, void (*on_closed)(void *arg));

#endif
