/* SPDX-License-Identifier: Apache-2.0 */
/* Makes --help and --help-all from the table. */
#include "cmd/hvdrun/options/options_table.h"
#include "lib/base/alloc.h"
#include "lib/base/buf.h"

#include <string.h>

enum { HELP_COLUMN = 32 };

static int is_short(const char *name)
{
    return name[1] != '-' && strlen(name) <= 3;
}

/* Puts "-np, --num-proc N": short names, then the long one. */
static void put_names(struct hb_buf *line, const struct option *o)
{
    hb_buf_puts(line, "  ");
    for (int n = 1; n < OPTION_NAMES_MAX && o->names[n]; n++) {
        if (is_short(o->names[n]))
            hb_buf_printf(line, "%s, ", o->names[n]);
    }
    hb_buf_puts(line, o->names[0]);
    if (o->metavar)
        hb_buf_printf(line, o->arg == ARG_OPTIONAL ? "[=%s]" : " %s",
                      o->metavar);
}

static void put_option(struct hb_buf *out, const struct option *o)
{
    struct hb_buf line = HB_BUF_INIT;
    int pad;

    put_names(&line, o);
    if (hb_buf_len(&line) + 2 > HELP_COLUMN)
        hb_buf_printf(&line, "\n");
    pad = HELP_COLUMN - (int)hb_buf_len(&line);
    if (strchr(hb_buf_data(&line), '\n'))
        pad = HELP_COLUMN;
    hb_buf_printf(out, "%s%*s%s%s\n", hb_buf_data(&line), pad, "", o->help,
                  option_idle_why(o) ? " [no effect]" : "");
    hb_buf_free(&line);
}

static void put_group(struct hb_buf *out, enum option_group group, int all)
{
    int titled = 0;

    for (size_t i = 0; i < options_table_count; i++) {
        const struct option *o = &options_table[i];

        if (o->group != group || (!all && (o->flags & OPTION_HIDDEN)))
            continue;
        if (!titled++)
            hb_buf_printf(out, "\n%s:\n", option_group_title(group));
        put_option(out, o);
    }
}

static char *help_text(int all)
{
    struct hb_buf out = HB_BUF_INIT;
    char *text;

    hb_buf_puts(&out,
                "usage: hvdrun -np N [option ...] command [argument ...]\n"
                "Runs N ranks of a command and ends when they all have.\n");
    for (int g = 0; g < GROUP_COUNT; g++)
        put_group(&out, (enum option_group)g, all);
    if (all)
        hb_buf_puts(&out, "\n[no effect]: accepted for horovodrun's scripts; "
                          "hvdrun(1) says why.\n");
    else
        hb_buf_puts(&out, "\nSee hvdrun(1) for every option, the exit "
                          "status and the config file.\n");
    text = hb_buf_detach(&out);
    return text ? text : hb_xstrdup("");
}

char *options_help(void)
{
    return help_text(0);
}

char *options_help_all(void)
{
    return help_text(1);
}
