/* SPDX-License-Identifier: Apache-2.0 */
/* Words in the form that a shell needs. */
#ifndef HB_QUOTE_H
#define HB_QUOTE_H

#include "lib/base/buf.h"

/* Appends s, in quotes if it needs them.  0 or -HVD_ENOMEM. */
int hb_quote_word(const char *s, struct hb_buf *out);

#endif
