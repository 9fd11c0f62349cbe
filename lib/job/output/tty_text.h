/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct tty_text: filters what a rank may send to a terminal behind its tag.
 * Text, tabs, line ends and colours (SGR sequences) pass; everything that moves
 * the cursor, erases, or configures the terminal is left out, so that a rank
 * cannot overwrite the tag or another line.  Pure: bytes in, bytes out, in
 * pieces of any size.
 */
#ifndef HVD_JOB_TTY_TEXT_H
#define HVD_JOB_TTY_TEXT_H

#include "lib/base/buf.h"

enum { TTY_TEXT_SGR_MAX = 48 }; /* longer sequences are left out */

/* Zeroed at the beginning of a stream. */
struct tty_text {
    unsigned char state; /* enum tty_text_state, in the .c file */
    unsigned char rest;  /* bytes still to come of a UTF-8 character */
    unsigned char lead;  /* the first byte, until a second has come; else 0 */
    unsigned char sgr_len;
    char sgr[TTY_TEXT_SGR_MAX]; /* an incomplete sequence */
};

/* Appends `bytes` to out, but for what must not reach a terminal. */
void tty_text_filter(struct tty_text *t, const char *bytes, size_t len,
                     struct hb_buf *out);

#endif
