/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "cmd/hvdrun/tools/table.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"

#include <stdlib.h>
#include <string.h>

void table_add(struct table *t, const char *cell)
{
    hb_must(hb_strv_add(&t->cells, cell));
    hb_text_sanitize(t->cells.items[t->cells.count - 1]);
}

void table_row(struct table *t, const char *const *words)
{
    for (; *words; words++)
        table_add(t, *words);
}

/* Returns columns on the terminal; UTF-8 continuation bytes take none. */
static size_t width(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void pad(struct hb_buf *out, size_t count)
{
    while (count-- > 0)
        xbuf_puts(out, " ");
}

static void put_cell(const struct table *t, size_t i, size_t column_width,
                     struct hb_buf *out)
{
    const char *cell = t->cells.items[i];
    size_t column = i % t->columns, fill = column_width - width(cell);

    if (t->right & (1u << column))
        pad(out, fill);
    xbuf_puts(out, cell);
    if (column + 1 == t->columns) {
        xbuf_puts(out, "\n");
        return;
    }
    if (!(t->right & (1u << column)))
        pad(out, fill);
    pad(out, 2);
}

void table_format(const struct table *t, struct hb_buf *out)
{
    size_t *widths = hb_xcalloc(t->columns, sizeof(*widths));

    for (size_t i = 0; i < t->cells.count; i++) {
        size_t w = width(t->cells.items[i]);

        if (w > widths[i % t->columns])
            widths[i % t->columns] = w;
    }
    for (size_t i = 0; i < t->cells.count; i++)
        put_cell(t, i, widths[i % t->columns], out);
    hb_free(widths);
}

void table_free(struct table *t)
{
    hb_strv_free(&t->cells);
}

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

char *table_numbers(int *numbers, size_t count)
{
    struct hb_buf out = HB_BUF_INIT;
    size_t first = 0;
    char *text;

    qsort(numbers, count, sizeof(*numbers), by_value);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && numbers[i + 1] - numbers[i] <= 1)
            continue;
        hb_must(hb_buf_printf(&out, "%s%d", hb_buf_len(&out) ? "," : "",
                              numbers[first]));
        if (numbers[i] != numbers[first])
            hb_must(hb_buf_printf(&out, "-%d", numbers[i]));
        first = i + 1;
    }
    text = hb_xstrdup(count ? hb_buf_data(&out) : "-");
    hb_buf_free(&out);
    return text;
}

char *table_bytes(int64_t bytes)
{
    static const char units[] = "KMGTP";
    double v = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 0)
        return hb_xstrdup("-");
    if (bytes < 1024)
        return hb_xasprintf("%d", (int)bytes);
    while (v >= 999.5 && units[unit + 1]) {
        v /= 1024;
        unit++;
    }
    return hb_xasprintf(v < 9.95 ? "%.1f%c" : "%.0f%c", v, units[unit]);
}

char *table_elapsed(int64_t ms)
{
    int64_t s = ms < 0 ? 0 : ms / 1000;
    int days = (int)(s / 86400), hours = (int)(s / 3600 % 24);
    int minutes = (int)(s / 60 % 60), seconds = (int)(s % 60);

    if (days)
        return hb_xasprintf("%d-%02d:%02d:%02d", days, hours, minutes, seconds);
    if (hours)
        return hb_xasprintf("%d:%02d:%02d", hours, minutes, seconds);
    return hb_xasprintf("%02d:%02d", minutes, seconds);
}
