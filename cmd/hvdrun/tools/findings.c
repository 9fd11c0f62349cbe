/* SPDX-License-Identifier: Apache-2.0 */
/* See findings.h. */
#include "cmd/hvdrun/tools/findings.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/hosts/hostfold.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/query.h"

#include <stdarg.h>
#include <string.h>

static struct finding *find(struct findings *f, enum finding_kind kind,
                            const char *section, const char *text)
{
    struct finding *item;

    for (size_t i = 0; i < f->count; i++)
        if (f->items[i].kind == kind &&
            strcmp(f->items[i].section, section) == 0 &&
            strcmp(f->items[i].text, text) == 0)
            return &f->items[i];
    if (f->count == f->cap) {
        f->cap = f->cap ? f->cap * 2 : 16;
        f->items = hb_xrealloc_array(f->items, f->cap, sizeof(*f->items));
    }
    item = &f->items[f->count++];
    *item = (struct finding){.kind = kind, .section = section};
    item->text = hb_xstrdup(text);
    return item;
}

void findings_add(struct findings *f, enum finding_kind kind,
                  const char *section, const char *host, const char *fix,
                  const char *fmt, ...)
{
    struct hb_buf text = HB_BUF_INIT;
    struct finding *item;
    va_list ap;

    va_start(ap, fmt);
    hb_must(hb_buf_vprintf(&text, fmt, ap));
    va_end(ap);
    hb_must(hb_buf_putc(&text, '\0'));
    hb_text_sanitize(hb_buf_data(&text));
    item = find(f, kind, section, hb_buf_data(&text));
    if (!item->fix)
        item->fix = hb_xstrdup(fix);
    if (host)
        hb_must(hb_strv_add(&item->hosts, host));
    hb_buf_free(&text);
}

size_t findings_wrong(const struct findings *f, const char *section)
{
    size_t count = 0;

    for (size_t i = 0; i < f->count; i++)
        count += f->items[i].kind == FINDING_WRONG &&
                 (!section || strcmp(f->items[i].section, section) == 0);
    return count;
}

/* ---- Output ---- */

static void format_one(const struct finding *item, struct hb_buf *out)
{
    static const char *const words[] = {[FINDING_OK] = "ok",
                                        [FINDING_NOTE] = "note",
                                        [FINDING_WRONG] = "WRONG"};
    char *hosts =
        hostfold((const char *const *)item->hosts.items, item->hosts.count);

    hb_must(hb_buf_printf(out, "%-5s %-9s %s%s%s\n", words[item->kind],
                          item->section, hosts, *hosts ? ": " : "",
                          item->text));
    if (*item->fix)
        hb_must(hb_buf_printf(out, "%-5s %-9s fix: %s\n", "", "", item->fix));
    hb_free(hosts);
}

void findings_format(const struct findings *f, const char *const *sections,
                     struct hb_buf *out)
{
    for (; *sections; sections++)
        for (int kind = FINDING_OK; kind <= FINDING_WRONG; kind++)
            for (size_t i = 0; i < f->count; i++)
                if ((int)f->items[i].kind == kind &&
                    strcmp(f->items[i].section, *sections) == 0)
                    format_one(&f->items[i], out);
}

json_t *findings_json(const struct findings *f)
{
    json_t *list = json_array();

    for (size_t i = 0; i < f->count; i++) {
        const struct finding *item = &f->items[i];
        json_t *hosts = json_array();

        if (item->kind == FINDING_OK) {
            json_decref(hosts);
            continue;
        }
        for (size_t k = 0; k < item->hosts.count; k++)
            json_array_append_new(hosts, query_text(item->hosts.items[k]));
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o, s:o, s:o}", "kind",
                      item->kind == FINDING_NOTE ? "note" : "wrong", "section",
                      item->section, "hosts", hosts, "text",
                      query_text(item->text), "fix", query_text(item->fix)));
    }
    return list;
}

void findings_free(struct findings *f)
{
    for (size_t i = 0; i < f->count; i++) {
        hb_free(f->items[i].text);
        hb_free(f->items[i].fix);
        hb_strv_free(&f->items[i].hosts);
    }
    hb_free(f->items);
    *f = (struct findings)FINDINGS_INIT;
}

/* ---- Comparing ---- */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compares runs of digits as numbers of any length, the rest as bytes. */
int findings_version_compare(const char *a, const char *b)
{
    while (*a || *b) {
        size_t na, nb;
        int d;

        if (!is_digit(*a) || !is_digit(*b)) {
            if (*a != *b)
                return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++;
            b++;
            continue;
        }
        a += strspn(a, "0");
        b += strspn(b, "0");
        na = strspn(a, "0123456789");
        nb = strspn(b, "0123456789");
        d = na != nb ? (na > nb) - (na < nb) : strncmp(a, b, na);
        if (d)
            return d < 0 ? -1 : 1;
        a += na;
        b += nb;
    }
    return 0;
}

static int same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static size_t how_many(const char *const *values, size_t count, const char *v)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += (size_t)same(values[i], v);
    return n;
}

/* Returns the commonest value that is present; NULL, absent, only if no host
 * has any. */
static const char *norm_of(const char *const *values, size_t count)
{
    const char *best = NULL;
    size_t best_n = 0;

    for (size_t i = 0; i < count; i++) {
        size_t n = values[i] ? how_many(values, count, values[i]) : 0;

        if (n > best_n || (n > 0 && n == best_n &&
                           findings_version_compare(values[i], best) > 0)) {
            best = values[i];
            best_n = n;
        }
    }
    return best;
}

static char *hosts_with(const char *const *hosts, const char *const *values,
                        size_t count, const char *v)
{
    const char **with = hb_xcalloc(count + 1, sizeof(*with));
    size_t n = 0;
    char *text;

    for (size_t i = 0; i < count; i++)
        if (same(values[i], v))
            with[n++] = hosts[i];
    text = hostfold(with, n);
    hb_free(with);
    return text;
}

int findings_compare(struct findings *f, enum finding_kind kind,
                     const char *section, const char *what, const char *fix,
                     const char *const *hosts, const char *const *values,
                     size_t count)
{
    const char *norm = norm_of(values, count);
    char *others;
    int agree = 1;

    if (!norm)
        return 1;
    others = hosts_with(hosts, values, count, norm);
    for (size_t i = 0; i < count; i++) {
        if (same(values[i], norm))
            continue;
        agree = 0;
        if (values[i])
            findings_add(f, kind, section, hosts[i], fix,
                         "%s is %s; on %s it is %s", what, values[i], others,
                         norm);
        else
            findings_add(f, kind, section, hosts[i], fix,
                         "%s is not there; on %s it is %s", what, others, norm);
    }
    hb_free(others);
    return agree;
}
