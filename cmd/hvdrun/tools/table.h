/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of text, and formats for the numbers in them. */
#ifndef HVDRUN_TABLE_H
#define HVDRUN_TABLE_H

#include "lib/base/buf.h"
#include "lib/base/strv.h"

#include <stdint.h>

struct table {
    size_t columns;
    unsigned right;       /* bit i: column i is aligned to the right */
    struct hb_strv cells; /* row by row, the head first */
};

/* clang-format off */
#define TABLE_INIT(columns, right) { columns, right, HB_STRV_INIT }
/* clang-format on */

/* Appends cells: NULL-terminated words, or one cell. */
void table_row(struct table *t, const char *const *words);
void table_add(struct table *t, const char *cell);
/* Formats the table.  Control bytes in cells become '?'.  The last column is
 * not padded. */
void table_format(const struct table *t, struct hb_buf *out);
void table_free(struct table *t);

/* Formats a value as a heap string (hb_free). */
char *table_numbers(int *numbers, size_t count); /* sorts them: "0-3,8"; "-"
                                                    if none */
char *table_bytes(int64_t bytes);                /* "1.2G"; "-" below 0 */
char *table_elapsed(int64_t ms);                 /* "12:04", "3-07:00:12" */

#endif
