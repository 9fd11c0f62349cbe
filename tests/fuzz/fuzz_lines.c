/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks' output: pieces of any size from three ranks, in any order, with ends
 * and breaks between them.  Every line printed has one tag.  Where that is no
 * terminal, every byte that a rank wrote comes out once, in the rank's order.
 * Output to a terminal cannot move its cursor; lines that could not do so
 * anyway come out unchanged.
 *
 * The input is a byte for the configuration, then steps: one byte for the rank
 * and what it does, and for a piece its length and bytes.
 */
#include "lib/job/output/lines.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 3, PIECE_MAX = 64 };

struct written {
    struct hb_buf sent[RANKS], got[RANKS];
    struct hb_buf raw[RANKS]; /* as sent, with line ends */
};

static const char message[] = "hvdrun: a message\n";
/* Colour reset before hvdrun's lines and tags, where ranks used colours. */
static const char plain[] = "\033[0m";

/* Appends text without line ends: lines.h adds some that ranks did not send. */
static void append_text(struct hb_buf *b, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != '\n' && bytes[i] != '\r')
            FUZZ_CHECK(hb_buf_append(b, bytes + i, 1) == 0);
}

static size_t line_end(const char *p, size_t len)
{
    size_t i = 0;

    while (i < len && p[i] != '\n' && p[i] != '\r')
        i++;
    if (i + 1 < len && p[i] == '\r' && p[i + 1] == '\n')
        return i + 2;
    return i < len ? i + 1 : len;
}

/* Checks that each line has a tag or is hvdrun's own; appends its text to the
 * rank's. */
static void take_apart(const struct lines *l, struct written *w)
{
    const char *p = hb_buf_data(&l->out);
    size_t len = hb_buf_len(&l->out), n;

    for (; len > 0; p += n, len -= n) {
        if (len >= sizeof(plain) - 1 && !memcmp(p, plain, sizeof(plain) - 1)) {
            p += sizeof(plain) - 1;
            len -= sizeof(plain) - 1;
            FUZZ_CHECK(len > 0 && (*p == *message || *p == '['));
        }
        n = line_end(p, len);
        if (len >= sizeof(message) - 1 &&
            memcmp(p, message, sizeof(message) - 1) == 0)
            continue;
        if (n == 1 && *p == '\n')
            continue; /* second half of \r\n */
        FUZZ_CHECK(n > 12 && p[0] == '[' && p[1] >= '0' && p[1] < '0' + RANKS &&
                   memcmp(p + 2, "]<stdout>:", 10) == 0);
        append_text(&w->got[p[1] - '0'], p + 12, n - 12);
    }
}

static void check_terminal(const struct lines *l)
{
    const unsigned char *p = (const unsigned char *)hb_buf_data(&l->out);
    size_t len = hb_buf_len(&l->out);

    for (size_t i = 0; i < len; i++) {
        size_t k = i + 2;

        FUZZ_CHECK(p[i] >= 0x20 || strchr("\t\n\r\033", p[i]));
        FUZZ_CHECK(p[i] != 0 && p[i] != 0x7f);
        if (p[i] != 0x1b)
            continue;
        FUZZ_CHECK(i + 2 < len && p[i + 1] == '[');
        while (k < len && p[k] >= '0' && p[k] <= ';')
            k++;
        FUZZ_CHECK(k < len && p[k] == 'm');
    }
}

/* Returns the length of the character at p if it takes one place on a terminal
 * and has no other effect; else 0. */
static size_t glyph(const unsigned char *p, size_t len)
{
    size_t n = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc2 ? 2 : 1;

    if (n == 1)
        return *p == '\t' || (*p >= 0x20 && *p < 0x7f);
    for (size_t i = 1; i < n; i++)
        if (i >= len || p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    /* C1 control, overlong form, surrogate, beyond the last character */
    if ((*p == 0xc2 && p[1] < 0xa0) || (*p == 0xe0 && p[1] < 0xa0) ||
        (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
        (*p == 0xf4 && p[1] > 0x8f) || *p > 0xf4)
        return 0;
    return n;
}

static int is_plain(const unsigned char *p, size_t len)
{
    for (size_t n; len > 0; p += n, len -= n)
        if (!(n = glyph(p, len)))
            return 0;
    return 1;
}

/* Checks the output of one rank to a terminal: it has no C1 control, in either
 * form, and all plain lines. */
static void check_rank(const struct hb_buf *raw, const struct hb_buf *got)
{
    const unsigned char *p = (const unsigned char *)hb_buf_data(got);
    const char *line = hb_buf_data(raw), *rest = hb_buf_data(got);
    size_t len = hb_buf_len(got), left = hb_buf_len(raw), n;
    int after = 0; /* continuation bytes still expected */

    for (size_t i = 0; i < len; i++) {
        FUZZ_CHECK(p[i] < 0x80 || p[i] > 0x9f || after > 0);
        FUZZ_CHECK(p[i] < 0x80 || p[i] > 0x9f || p[i - 1] != 0xc2);
        after = p[i] >= 0xf0   ? 3
                : p[i] >= 0xe0 ? 2
                : p[i] >= 0xc2 ? 1
                               : after - (after > 0);
    }
    for (; left > 0; line += n, left -= n) {
        n = line_end(line, left);
        for (len = n; len > 0 && strchr("\r\n", line[len - 1]); len--)
            continue;
        if (len == 0 || !is_plain((const unsigned char *)line, len))
            continue;
        rest = memmem(rest, (size_t)(hb_buf_data(got) + hb_buf_len(got) - rest),
                      line, len);
        FUZZ_CHECK(rest);
        rest += len;
    }
}

static const uint8_t *step(struct lines *l, struct written *w, const uint8_t *p,
                           const uint8_t *end)
{
    int rank = *p % RANKS, what = *p / RANKS % 8;
    size_t len;
    char *piece;

    p++;
    if (what == 0)
        lines_end(l, rank);
    else if (what == 1)
        lines_break(l);
    else if (what == 2)
        lines_message(l, message, sizeof(message) - 1);
    if (what <= 2 || p == end)
        return p;
    len = *p++ % PIECE_MAX;
    if (len > (size_t)(end - p))
        len = (size_t)(end - p);
    piece = fuzz_copy(p, len);
    lines_feed(l, rank, piece, len);
    append_text(&w->sent[rank], piece, len);
    FUZZ_CHECK(hb_buf_append(&w->raw[rank], piece, len) == 0);
    free(piece);
    return p + len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size;
    struct written w = {0};
    struct lines l;

    if (size < 1)
        return 0;
    lines_init(&l, &(struct lines_config){.stream = "stdout",
                                          .ranks = RANKS,
                                          .tag = 1,
                                          .terminal = *data & 1,
                                          .line_max = 40,
                                          .total_max = 60,
                                          .piece_min = 8});
    for (const uint8_t *p = data + 1; p < end;)
        p = step(&l, &w, p, end);
    lines_break(&l);
    for (int rank = 0; rank < RANKS; rank++)
        lines_end(&l, rank);
    FUZZ_CHECK(lines_held(&l) == 0 && l.pending == 0);
    take_apart(&l, &w);
    if (l.config.terminal)
        check_terminal(&l);
    for (int rank = 0; rank < RANKS; rank++) {
        if (l.config.terminal)
            check_rank(&w.raw[rank], &w.got[rank]);
        else
            FUZZ_CHECK(hb_buf_len(&w.sent[rank]) == hb_buf_len(&w.got[rank]) &&
                       memcmp(hb_buf_data(&w.sent[rank]),
                              hb_buf_data(&w.got[rank]),
                              hb_buf_len(&w.sent[rank])) == 0);
        hb_buf_free(&w.sent[rank]);
        hb_buf_free(&w.got[rank]);
        hb_buf_free(&w.raw[rank]);
    }
    lines_fini(&l);
    return 0;
}
