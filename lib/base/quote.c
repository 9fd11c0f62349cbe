/* SPDX-License-Identifier: Apache-2.0 */
/* Words in the form that a shell needs; see quote.h. */
#include "lib/base/quote.h"

#include <string.h>

static int is_plain(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_@%+=:,./-")];
}

int hb_quote_word(const char *s, struct hb_buf *out)
{
    int rc;

    if (is_plain(s))
        return hb_buf_puts(out, s);
    rc = hb_buf_putc(out, '\'');
    for (; !rc && *s; s++)
        rc = *s == '\'' ? hb_buf_puts(out, "'\\''") : hb_buf_putc(out, *s);
    return rc < 0 ? rc : hb_buf_putc(out, '\'');
}
