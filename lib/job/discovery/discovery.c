/* SPDX-License-Identifier: Apache-2.0 */
/* See discovery.h. */
#include "lib/job/discovery/discovery.h"

#include "lib/base/alloc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void discovery_init(struct discovery *d, int slots)
{
    *d = (struct discovery){.slots = slots > 0 ? slots : 1};
}

void discovery_fini(struct discovery *d)
{
    hostlist_free(&d->hosts);
    hb_free(d->missing);
    memset(d, 0, sizeof(*d));
}

static void append(struct hostlist *l, const struct host_entry *from)
{
    struct host_entry *to;

    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 16;
        l->entries = hb_xrealloc_array(l->entries, l->cap, sizeof(*to));
    }
    to = &l->entries[l->count++];
    *to = *from;
    to->name = hb_xstrdup(from->name);
    to->user = from->user ? hb_xstrdup(from->user) : NULL;
}

void discovery_copy(struct hostlist *to, const struct hostlist *from)
{
    for (size_t i = 0; i < from->count; i++)
        append(to, &from->entries[i]);
}

static int by_name(const void *a, const void *b)
{
    return strcasecmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names in order: heap. */
static char **sort_names(const struct hostlist *l)
{
    char **names = hb_xcalloc(l->count + 1, sizeof(char *));

    for (size_t i = 0; i < l->count; i++)
        names[i] = l->entries[i].name;
    qsort(names, l->count, sizeof(char *), by_name);
    return names;
}

/* Appends the hosts that the last answer had and `next` has not. */
static void append_missing(const struct discovery *d, struct hostlist *next)
{
    char **names = sort_names(next);
    size_t count = next->count;

    for (size_t i = 0; i < d->hosts.count; i++) {
        const struct host_entry *host = &d->hosts.entries[i];

        if (!d->missing[i] &&
            !bsearch(&host->name, names, count, sizeof(char *), by_name))
            append(next, host);
    }
    hb_free(names);
}

static int is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int is_same(const struct hostlist *a, const struct hostlist *b)
{
    if (a->count != b->count)
        return 0;
    for (size_t i = 0; i < a->count; i++) {
        const struct host_entry *x = &a->entries[i], *y = &b->entries[i];

        if (strcmp(x->name, y->name) != 0 || x->slots != y->slots ||
            x->port != y->port || !is_same_text(x->user, y->user))
            return 0;
    }
    return 1;
}

/* Returns whether the text names no host: blanks and comments only. */
static int is_empty(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '#')
            while (i + 1 < len && text[i + 1] != '\n')
                i++;
        else if (!strchr(" \t\r\n", text[i]) || !text[i])
            return 0;
    }
    return 1;
}

int discovery_take(struct discovery *d, const char *source, const char *text,
                   size_t len, struct hb_error *err)
{
    struct hostlist next = HOSTLIST_INIT;
    size_t named;
    int rc = 0;

    if (!is_empty(text, len))
        rc = hostlist_parse_file_text(source, text, len, &next, err);
    if (rc < 0)
        return rc;
    named = next.count;
    for (size_t i = 0; i < named; i++)
        if (next.entries[i].slots == 0)
            next.entries[i].slots = d->slots;
    append_missing(d, &next);
    rc = !is_same(&d->hosts, &next);
    hostlist_free(&d->hosts);
    d->hosts = next;
    d->missing = hb_xrealloc_array(d->missing, next.count + 1, 1);
    for (size_t i = 0; i < next.count; i++)
        d->missing[i] = i >= named;
    return rc;
}

void discovery_begin(struct discovery *d, const struct hostlist *hosts)
{
    discovery_copy(&d->hosts, hosts);
    for (size_t i = 0; i < d->hosts.count; i++)
        if (d->hosts.entries[i].slots == 0)
            d->hosts.entries[i].slots = d->slots;
    d->missing = hb_xcalloc(hosts->count + 1, 1);
}

int discovery_slots(const struct discovery *d)
{
    int slots = 0;

    for (size_t i = 0; i < d->hosts.count; i++) {
        int more = d->hosts.entries[i].slots;

        slots = more > INT_MAX - slots ? INT_MAX : slots + more;
    }
    return slots;
}
