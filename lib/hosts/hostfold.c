/* SPDX-License-Identifier: Apache-2.0 */
/* See hostfold.h: names are split around their number and sorted by the rest,
 * then by number; consecutive numbers become ranges. */
#include "lib/hosts/hostfold.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

struct piece {
    const char *name;
    size_t prefix_len, digits; /* digits 0: no number */
    const char *suffix;
    int width; /* digits if there is a leading zero, else 0 */
    unsigned long number;
};

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct piece cut(const char *name)
{
    struct piece p = {.name = name};
    size_t end = strcspn(name, "."), start;

    if (strspn(name, "0123456789.") == strlen(name))
        end = strlen(name);
    if (strchr(name, ':')) /* IPv6: its digits are not decimal */
        end = 0;
    while (end > 0 && !is_digit(name[end - 1]))
        end--;
    for (start = end; start > 0 && is_digit(name[start - 1]); start--)
        ;
    if (end == start || end - start > DIGITS_MAX)
        start = end = strlen(name);
    p.prefix_len = start;
    p.digits = end - start;
    p.suffix = name + end;
    for (size_t i = start; i < end; i++)
        p.number = p.number * 10 + (unsigned long)(name[i] - '0');
    p.width = p.digits > 1 && name[start] == '0' ? (int)p.digits : 0;
    return p;
}

/* Compares the text around the numbers; 0 if a and b may fold together. */
static int compare_around(const struct piece *a, const struct piece *b)
{
    size_t len = a->prefix_len < b->prefix_len ? a->prefix_len : b->prefix_len;
    int d = memcmp(a->name, b->name, len);

    if (d == 0)
        d = (a->prefix_len > b->prefix_len) - (a->prefix_len < b->prefix_len);
    if (d == 0)
        d = strcmp(a->suffix, b->suffix);
    if (d == 0)
        d = (a->digits == 0) - (b->digits == 0);
    return d;
}

static int compare(const void *va, const void *vb)
{
    const struct piece *a = va, *b = vb;
    int d = compare_around(a, b);

    if (d == 0)
        d = (a->number > b->number) - (a->number < b->number);
    if (d == 0)
        d = a->width - b->width;
    return d;
}

/* Returns whether b follows a.  09 is followed by 10: a number without leading
 * zeros joins those of its width. */
static int follows(const struct piece *a, const struct piece *b)
{
    int width = b->width ? b->width : (int)b->digits;

    if (b->number != a->number + 1)
        return 0;
    if (a->width)
        return width == a->width;
    return !b->width;
}

static size_t same_group(const struct piece *p, size_t count)
{
    size_t n = 1;

    while (n < count && compare_around(&p[0], &p[n]) == 0)
        n++;
    return n;
}

static void put_number(struct hb_buf *out, const struct piece *p)
{
    hb_buf_append(out, p->name + p->prefix_len, p->digits);
}

static void put_ranges(struct hb_buf *out, const struct piece *p, size_t count)
{
    size_t first = 0;

    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && follows(&p[i], &p[i + 1]))
            continue;
        if (first > 0)
            hb_buf_putc(out, ',');
        put_number(out, &p[first]);
        if (i > first) {
            hb_buf_putc(out, '-');
            put_number(out, &p[i]);
        }
        first = i + 1;
    }
}

static void put_group(struct hb_buf *out, const struct piece *p, size_t count)
{
    if (hb_buf_len(out) > 0)
        hb_buf_putc(out, ',');
    if (count == 1) {
        hb_buf_puts(out, p->name);
        return;
    }
    hb_buf_append(out, p->name, p->prefix_len);
    hb_buf_putc(out, '[');
    put_ranges(out, p, count);
    hb_buf_putc(out, ']');
    hb_buf_puts(out, p->suffix);
}

char *hostfold(const char *const *names, size_t count)
{
    struct piece *p = hb_xcalloc(count + 1, sizeof(*p));
    struct hb_buf out = HB_BUF_INIT;
    size_t kept = 0;
    char *text;

    for (size_t i = 0; i < count; i++)
        p[i] = cut(names[i]);
    qsort(p, count, sizeof(*p), compare);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || strcmp(p[kept - 1].name, p[i].name) != 0)
            p[kept++] = p[i];
    for (size_t i = 0; i < kept;) {
        size_t n = same_group(p + i, kept - i);

        put_group(&out, p + i, n);
        i += n;
    }
    hb_free(p);
    text = hb_xstrdup(hb_buf_data(&out));
    hb_buf_free(&out);
    return text;
}
