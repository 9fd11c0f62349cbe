/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a shell's stdin and stdout to an agent's.  Pure: bytes in, bytes to
 * be sent out, no I/O.
 *
 * hvdrun sends a script for any POSIX shell.  The host answers in lines
 * "hvd:MARKER WORD DETAIL", the marker being random so that nothing else a
 * shell prints is taken for one:
 *
 *     run              the agent is there and becomes this shell; its bytes
 *                      follow
 *     want             send the agent; may come again when what was sent
 *                      could not be kept where it was put
 *     fail WORD TEXT   it cannot be started
 *
 * Nothing is sent between script and answer: a shell may read ahead.  Of
 * what comes before the agent's first byte, the shell's noise and its
 * stderr, the last lines are told when the start fails.
 *
 *     bootstrap_init(&b, &image, marker);
 *     bootstrap_script(&b, NULL, &text);             send it
 *     bootstrap_read(&b, bytes, len, &err);          as they come, until
 *         b.state == BOOTSTRAP_SENDING: send what bootstrap_next gives
 *         b.state == BOOTSTRAP_RUNNING: b.in holds the agent's first bytes
 */
#ifndef HVD_TRANSPORT_BOOTSTRAP_H
#define HVD_TRANSPORT_BOOTSTRAP_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/transport/agent_image.h"

enum {
    BOOTSTRAP_MARKER_BYTES = 33, /* with the final 0 */
    BOOTSTRAP_NOISE_MAX = 64 << 10,
    BOOTSTRAP_STDERR_MAX = 1 << 20, /* of which the end is kept */
    BOOTSTRAP_LINE_MAX = 4 << 10,
    BOOTSTRAP_PUSH_MAX = 16, /* times one host may ask for the agent */
};

enum bootstrap_state {
    BOOTSTRAP_ASKING,   /* the script was sent */
    BOOTSTRAP_SENDING,  /* the host wants the agent */
    BOOTSTRAP_STARTING, /* the agent's first byte is awaited */
    BOOTSTRAP_RUNNING,
    BOOTSTRAP_FAILED,
    BOOTSTRAP_STATES
};

enum bootstrap_event {
    BOOTSTRAP_WANT,
    BOOTSTRAP_RUN,
    BOOTSTRAP_FAIL,
    BOOTSTRAP_MAGIC, /* a frame begins */
    BOOTSTRAP_EVENTS
};

struct bootstrap {
    enum bootstrap_state state;
    const struct agent_image *image; /* NULL: nothing to send */
    const char *marker;              /* hex digits; borrowed */
    struct hb_buf in;                /* not yet understood */
    struct hb_buf noise, errs;       /* at most BOOTSTRAP_NOISE_MAX each */
    size_t errs_total;
    size_t searched; /* of `in`: holds no marker */
    size_t sent;     /* of the image */
    int pushes;
};

void bootstrap_init(struct bootstrap *b, const struct agent_image *image,
                    const char *marker);
void bootstrap_fini(struct bootstrap *b);

/* The text for the host's shell.  agent: the path of one that is installed
 * there ("~/" is the home directory), instead of the image. */
int bootstrap_script(const struct bootstrap *b, const char *agent,
                     struct hb_buf *out);

/* 0, or negative with err set: the start has failed. */
int bootstrap_read(struct bootstrap *b, const char *bytes, size_t len,
                   struct hb_error *err);
int bootstrap_stderr(struct bootstrap *b, const char *bytes, size_t len,
                     struct hb_error *err);

/* While sending: the next bytes of the image, at most max; 0 at its end. */
size_t bootstrap_next(struct bootstrap *b, size_t max, const char **bytes);

/* The stream ended before the agent ran: sets what is known.  `why` is how
 * it ended, or NULL. */
int bootstrap_ended(const struct bootstrap *b, const char *why,
                    struct hb_error *err);

/* The last lines that the host said, stderr first, as one; "" if none. */
void bootstrap_last_words(const struct bootstrap *b, char *out, size_t size);

/* Exposed for tests: 0 and *to, or -HVD_EPROTO where an event makes no
 * sense. */
int bootstrap_step(enum bootstrap_state from, enum bootstrap_event event,
                   enum bootstrap_state *to);

#endif
