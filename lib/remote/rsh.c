/* SPDX-License-Identifier: Apache-2.0 */
/* The --rsh template; see rsh.h. */
#include "lib/remote/rsh.h"

#include "lib/base/buf.h"

#include <stdio.h>
#include <string.h>

/* ---- Splitting ---- */

static const char blanks[] = " \t\r\n";

/* Returns whether a backslash escapes c inside "...". */
static int escapes_quoted(char c)
{
    return c == '"' || c == '\\' || c == '$' || c == '`';
}

/* Reads one word at *s into word, which is empty; moves *s past it. */
static int take_word(const char **s, struct hb_buf *word, struct hb_error *err)
{
    const char *p = *s;
    char quote = '\0';
    int rc = 0;

    for (; rc == 0 && *p && (quote || !strchr(blanks, *p)); p++) {
        if (*p == quote)
            quote = '\0';
        else if (!quote && (*p == '\'' || *p == '"'))
            quote = *p;
        else if (*p == '\\' && quote != '\'' && p[1] &&
                 (!quote || escapes_quoted(p[1])))
            rc = hb_buf_putc(word, *++p);
        else
            rc = hb_buf_putc(word, *p);
    }
    *s = p;
    if (rc == 0 && quote)
        return hb_error_set(err, HVD_EINVAL, "a %c is not closed", quote);
    return rc;
}

int rsh_split(const char *text, struct hb_strv *words, struct hb_error *err)
{
    struct hb_buf word = HB_BUF_INIT;
    int rc = 0;

    for (text += strspn(text, blanks); rc == 0 && *text;
         text += strspn(text, blanks)) {
        hb_buf_clear(&word);
        rc = take_word(&text, &word, err);
        if (rc == 0)
            rc = hb_strv_add(words, hb_buf_data(&word));
    }
    hb_buf_free(&word);
    return rc;
}

int rsh_parse(const char *template, struct hb_strv *words, struct hb_error *err)
{
    struct hb_strv v = HB_STRV_INIT;
    int rc = rsh_split(template, &v, err);

    if (rc == -HVD_EINVAL)
        hb_error_context(err, "--rsh");
    if (rc == 0 && (v.count == 0 || !v.items[0][0]))
        rc = hb_error_set(err, HVD_EINVAL, "--rsh: names no command");
    if (rc < 0) {
        hb_strv_free(&v);
        return rc;
    }
    *words = v;
    return 0;
}

/* ---- Replacing ---- */

struct field {
    const char *name, *value;
};

/* Appends s with {host}, {user} and {port} replaced. */
static int fill_word(const char *s, const struct field *fields, size_t count,
                     struct hb_buf *out)
{
    int rc = 0;

    while (rc == 0 && *s) {
        size_t i = 0;
        while (i < count &&
               strncmp(s, fields[i].name, strlen(fields[i].name)) != 0)
            i++;
        if (i == count) {
            rc = hb_buf_putc(out, *s++);
            continue;
        }
        rc = hb_buf_puts(out, fields[i].value);
        s += strlen(fields[i].name);
    }
    return rc;
}

static int check_name(const char *what, const char *name, struct hb_error *err)
{
    if (*name && *name != '-')
        return 0;
    return hb_error_set(err, HVD_EINVAL, "--rsh: %s '%s' is not valid", what,
                        name);
}

int rsh_argv(const struct hb_strv *words, const char *host, const char *user,
             int port, struct hb_strv *argv, struct hb_error *err)
{
    char number[16];
    const struct field fields[] = {
        {"{host}", host}, {"{user}", user}, {"{port}", number}};
    struct hb_buf word = HB_BUF_INIT;
    int has_host = 0, rc = check_name("the host", host, err);

    if (rc == 0)
        rc = check_name("the user", user, err);
    snprintf(number, sizeof(number), "%d", port);
    for (size_t i = 0; rc == 0 && i < words->count; i++) {
        has_host |= strstr(words->items[i], "{host}") != NULL;
        hb_buf_clear(&word);
        rc = fill_word(words->items[i], fields,
                       sizeof(fields) / sizeof(fields[0]), &word);
        if (rc == 0)
            rc = hb_strv_add(argv, hb_buf_data(&word));
    }
    hb_buf_free(&word);
    if (rc == 0 && !has_host)
        rc = hb_strv_add(argv, host);
    if (rc == 0)
        rc = hb_strv_add(argv, "/bin/sh");
    return rc;
}
