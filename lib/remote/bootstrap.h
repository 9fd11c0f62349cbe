/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the stdin and stdout of a shell into those of an agent.  Pure: bytes
 * in, bytes to be sent out, no I/O.
 *
 * hvdrun sends a script for any POSIX shell.  The host answers in lines
 * "hvd:MARKER WORD DETAIL"; the marker is random, so that nothing else that a
 * shell prints is mistaken for an answer:
 *
 *     run              the agent replaces this shell; its bytes follow
 *     want             send the agent; may be repeated if it could not be
 *                      stored at the first place
 *     fail WORD TEXT   it cannot be started
 *
 * Nothing is sent between script and answer, because a shell may read ahead.
 * If the start fails, the error includes the last lines of what came before the
 * agent's first byte: the shell's noise and its stderr.
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
#include "lib/remote/agent_image.h"

enum {
    BOOTSTRAP_MARKER_BYTES = 33, /* with the final 0 */
    BOOTSTRAP_NOISE_MAX = 64 << 10,
    BOOTSTRAP_STDERR_MAX = 1 << 20, /* of which the end is kept */
    BOOTSTRAP_LINE_MAX = 4 << 10,
    BOOTSTRAP_PUSH_MAX = 16, /* how often one host may ask for the agent */
};

enum bootstrap_state {
    BOOTSTRAP_ASKING,   /* the script was sent */
    BOOTSTRAP_SENDING,  /* the host wants the agent */
    BOOTSTRAP_STARTING, /* waiting for the agent's first byte */
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
    struct hb_buf in;                /* not yet parsed */
    struct hb_buf noise, errs;       /* at most BOOTSTRAP_NOISE_MAX each */
    size_t errs_total;
    size_t searched; /* prefix of `in` that holds no marker */
    size_t sent;     /* bytes of the image */
    int pushes;
};

void bootstrap_init(struct bootstrap *b, const struct agent_image *image,
                    const char *marker);
void bootstrap_fini(struct bootstrap *b);

/* Appends the script for the host's shell.  `agent`: the path of an agent
 * installed there ("~/" is the home directory) to run instead of the image. 0
 * or -HVD_ENOMEM. */
int bootstrap_script(const struct bootstrap *b, const char *agent,
                     struct hb_buf *out);

/* Takes bytes of the shell's stdout or stderr.  0, or negative with err set:
 * the start has failed. */
int bootstrap_read(struct bootstrap *b, const char *bytes, size_t len,
                   struct hb_error *err);
int bootstrap_stderr(struct bootstrap *b, const char *bytes, size_t len,
                     struct hb_error *err);

/* Returns the next bytes of the image, at most max; 0 at its end, or if none is
 * wanted. */
size_t bootstrap_next(struct bootstrap *b, size_t max, const char **bytes);

/* Explains that the stream ended before the agent ran: sets err and returns its
 * status.  `why` is how the stream ended, or NULL. */
int bootstrap_ended(const struct bootstrap *b, const char *why,
                    struct hb_error *err);

/* Copies the host's last lines, of stderr if there are any, as one line; "" if
 * none. */
void bootstrap_last_words(const struct bootstrap *b, char *out, size_t size);

/* Sets *to and returns 0, or -HVD_EPROTO if the event cannot come; for
 * tests. */
int bootstrap_step(enum bootstrap_state from, enum bootstrap_event event,
                   enum bootstrap_state *to);

#endif
