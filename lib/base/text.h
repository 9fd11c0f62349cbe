/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers for text that people read. */
#ifndef HB_TEXT_H
#define HB_TEXT_H

#include <stddef.h>

/* Replaces by '?' every byte of s that is not UTF-8, every control (C0, DEL,
 * C1), every control of writing direction (U+061C, U+200E, U+200F, U+202A to
 * U+202E, U+2066 to U+2069) and the separators U+2028 and U+2029.  What is
 * left is one line of UTF-8 that cannot drive a terminal. */
void hb_text_sanitize(char *s);

/* Removes an incomplete UTF-8 sequence at the end of s. */
void hb_text_trim_cut(char *s);

/* Returns the name nearest to s (by edit distance, ignoring case), or NULL if
 * none is near enough: for "did you mean" hints. */
const char *hb_text_nearest(const char *s, const char *const *names,
                            size_t count);

enum { HB_SIGNAL_NAME_MAX = 24 };

/* Writes "SIGTERM", "SIGRTMIN+6", or "signal 99" for a number without a name,
 * to text, which it returns. */
const char *hb_signal_name(int signo, char text[HB_SIGNAL_NAME_MAX]);

#endif
