/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers for text that people read. */
#ifndef HB_TEXT_H
#define HB_TEXT_H

#include <stddef.h>

/* Replaces control bytes, C1 controls in UTF-8 included, by '?', so that
 * the text stays one line and cannot drive a terminal. */
void hb_text_sanitize(char *s);
/* Replaces bytes that are not UTF-8 by '?': what another host said. */
void hb_text_make_utf8(char *s);

/* Removes a UTF-8 sequence that was cut off at the end of s. */
void hb_text_trim_cut(char *s);

/* The name nearest to s (edits of one letter, case ignored), or NULL when
 * none is near enough to be meant: for "did you mean" hints. */
const char *hb_text_nearest(const char *s, const char *const *names,
                            size_t count);

#endif
