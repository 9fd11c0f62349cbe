/* SPDX-License-Identifier: Apache-2.0 */
/* Words as a shell would have to be given them. */
#ifndef HVDRUN_QUOTE_H
#define HVDRUN_QUOTE_H

#include "lib/base/buf.h"

/* Appends s, in quotes if it needs them.  0 or -HVD_ENOMEM. */
int quote_word(const char *s, struct hb_buf *out);

#endif
