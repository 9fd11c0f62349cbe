/* SPDX-License-Identifier: Apache-2.0 */
/* See tty_text.h; sequences as defined by ECMA-48. */
#include "lib/job/output/tty_text.h"

#include "lib/job/output/xbuf.h"

enum tty_text_state {
    TTY_TEXT,
    TTY_C2,     /* after 0xc2, which begins U+0080 to U+00BF */
    TTY_ESCAPE, /* after ESC */
    TTY_CSI,    /* after ESC [ */
    TTY_STRING, /* OSC and the like, until BEL or ESC \ */
    TTY_STRING_ESCAPE,
};

/* Returns how many bytes follow the first byte of a UTF-8 character. */
static unsigned char bytes_after(unsigned char c)
{
    return c >= 0xf5 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc2 ? 1 : 0;
}

/* Returns 0 if `lead` and c begin an overlong form, a surrogate or a character
 * beyond U+10FFFF: some terminals accept overlong forms of controls. */
static int may_follow(unsigned char lead, unsigned char c)
{
    return !((lead == 0xe0 && c < 0xa0) || (lead == 0xed && c > 0x9f) ||
             (lead == 0xf0 && c < 0x90) || (lead == 0xf4 && c > 0x8f));
}

static void take_text(struct tty_text *t, unsigned char c, struct hb_buf *out)
{
    int continues = t->rest > 0 && (c & 0xc0) == 0x80 && may_follow(t->lead, c);

    t->rest = continues ? (unsigned char)(t->rest - 1) : bytes_after(c);
    t->lead = continues ? 0 : c;
    if (c == 0x1b)
        t->state = TTY_ESCAPE;
    else if (c == 0xc2)
        t->state = TTY_C2;
    else if (c >= 0x80 ? continues || c > 0x9f
                       : (c >= 0x20 && c != 0x7f) || c == '\t')
        hb_must(hb_buf_putc(out, (char)c));
}

static void take_c2(struct tty_text *t, unsigned char c, struct hb_buf *out)
{
    t->state = TTY_TEXT;
    if (c >= 0x80 && c <= 0x9f) {
        t->rest = 0;
        return;
    }
    hb_must(hb_buf_putc(out, '\xc2'));
    take_text(t, c, out);
}

static void take_escape(struct tty_text *t, unsigned char c)
{
    t->sgr_len = 0;
    if (c == '[')
        t->state = TTY_CSI;
    else if (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_')
        t->state = TTY_STRING;
    /* 0x20 to 0x2f are intermediate bytes */
    else if (c != 0x1b && (c < 0x20 || c > 0x2f))
        t->state = TTY_TEXT;
}

/* Passes colours only: digits, ; and : ending with m. */
static void take_csi(struct tty_text *t, unsigned char c, struct hb_buf *out)
{
    if (c == 0x1b) {
        t->state = TTY_ESCAPE;
        return;
    }
    if (c < 0x40 || c > 0x7e) {
        if (c < '0' || c > ';' || t->sgr_len == sizeof(t->sgr))
            t->sgr_len = sizeof(t->sgr) + 1;
        else if (t->sgr_len < sizeof(t->sgr))
            t->sgr[t->sgr_len++] = (char)c;
        return;
    }
    if (c == 'm' && t->sgr_len <= sizeof(t->sgr)) {
        xbuf_puts(out, "\033[");
        xbuf_append(out, t->sgr, t->sgr_len);
        xbuf_puts(out, "m");
    }
    t->state = TTY_TEXT;
}

static void take(struct tty_text *t, unsigned char c, struct hb_buf *out)
{
    switch ((enum tty_text_state)t->state) {
    case TTY_TEXT:
        take_text(t, c, out);
        break;
    case TTY_C2:
        take_c2(t, c, out);
        break;
    case TTY_ESCAPE:
        take_escape(t, c);
        break;
    case TTY_CSI:
        take_csi(t, c, out);
        break;
    case TTY_STRING:
        if (c == 0x1b)
            t->state = TTY_STRING_ESCAPE;
        else if (c == 7)
            t->state = TTY_TEXT;
        break;
    case TTY_STRING_ESCAPE:
        t->state = TTY_ESCAPE;
        take_escape(t, c);
        break;
    }
}

void tty_text_filter(struct tty_text *t, const char *bytes, size_t len,
                     struct hb_buf *out)
{
    for (size_t i = 0; i < len; i++) {
        /* No sequence extends beyond the end of a line. */
        if (bytes[i] == '\n' || bytes[i] == '\r') {
            t->state = TTY_TEXT;
            t->rest = 0;
            hb_must(hb_buf_putc(out, bytes[i]));
            continue;
        }
        take(t, (unsigned char)bytes[i], out);
    }
}
