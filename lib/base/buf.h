/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hb_buf: a growing byte buffer that is consumed from the front.
 *
 * Invariants: data[off .. off + len) are the bytes held; data[off + len]
 * is always 0 when data is not NULL, so text can be used as a C string.
 * Growth is amortised; consuming is O(1) and the space is reclaimed when
 * the buffer empties or grows.
 *
 *     struct hb_buf b = HB_BUF_INIT;
 *     hb_buf_printf(&b, "[%d]", rank);
 *     write(fd, hb_buf_data(&b), hb_buf_len(&b));
 *     hb_buf_free(&b);
 *
 * Functions that may allocate return 0 or -HVD_ENOMEM and leave the buffer
 * as it was on failure.
 */
#ifndef HB_BUF_H
#define HB_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct hb_buf {
    char *data;
    size_t off, len, cap;
};

/* clang-format off */
#define HB_BUF_INIT { NULL, 0, 0, 0 }
/* clang-format on */

static inline char *hb_buf_data(const struct hb_buf *b)
{
    return b->data ? b->data + b->off : (char *)"";
}

static inline size_t hb_buf_len(const struct hb_buf *b)
{
    return b->len;
}

void hb_buf_free(struct hb_buf *b);  /* leaves it empty and usable */
void hb_buf_clear(struct hb_buf *b); /* keeps the memory */
int hb_buf_reserve(struct hb_buf *b, size_t more_bytes);
int hb_buf_append(struct hb_buf *b, const void *p, size_t len);
int hb_buf_puts(struct hb_buf *b, const char *s);
int hb_buf_putc(struct hb_buf *b, char c);
int hb_buf_printf(struct hb_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int hb_buf_vprintf(struct hb_buf *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
void hb_buf_consume(struct hb_buf *b, size_t len); /* len <= b->len */
/* Returns the bytes as a heap string (hb_free) and empties the buffer; NULL if
 * out of memory. */
char *hb_buf_detach(struct hb_buf *b);

/* Appends a big-endian integer, for wire formats. */
int hb_buf_put_u8(struct hb_buf *b, uint8_t v);
int hb_buf_put_u16(struct hb_buf *b, uint16_t v);
int hb_buf_put_u32(struct hb_buf *b, uint32_t v);
int hb_buf_put_u64(struct hb_buf *b, uint64_t v);

/*
 * struct hb_reader: a bounds-checked cursor over bytes it does not own.
 * A read past the end sets `bad`, returns 0 (or NULL) and moves nothing;
 * later reads fail too, so a decoder checks `bad` once at the end.
 */
struct hb_reader {
    const unsigned char *p;
    size_t left;
    int bad;
};

void hb_reader_init(struct hb_reader *r, const void *p, size_t len);
uint8_t hb_read_u8(struct hb_reader *r);
uint16_t hb_read_u16(struct hb_reader *r);
uint32_t hb_read_u32(struct hb_reader *r);
uint64_t hb_read_u64(struct hb_reader *r);
/* Returns len bytes in place, or NULL. */
const void *hb_read_bytes(struct hb_reader *r, size_t len);
/* Copies len bytes into out, with a final 0; sets bad if size is too small or a
 * byte is 0. */
void hb_read_text(struct hb_reader *r, size_t len, char *out, size_t size);

#endif
