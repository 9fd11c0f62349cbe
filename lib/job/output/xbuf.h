/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer and vector calls that cannot fail in hvdrun: without memory it
 * ends with one line, as hb_xmalloc does. */
#ifndef HVD_JOB_XBUF_H
#define HVD_JOB_XBUF_H

#include "lib/base/alloc.h"
#include "lib/base/buf.h"

static inline void xbuf_append(struct hb_buf *b, const void *p, size_t len)
{
    hb_must(hb_buf_append(b, p, len));
}

static inline void xbuf_puts(struct hb_buf *b, const char *s)
{
    hb_must(hb_buf_puts(b, s));
}

#endif
