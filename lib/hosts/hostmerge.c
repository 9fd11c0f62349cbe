/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list under construction: expands ranges, and finds repeated names through
 * an open-addressing hash table, so that time is linear in the length of the
 * file.
 */
#include "lib/hosts/hostparse.h"

#include "lib/base/alloc.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DIGITS_MAX = 9, INDEX_FIRST_SIZE = 64 };

/* Hashes the name in lower case (FNV-1a). */
static uint32_t hash_name(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint32_t)tolower((unsigned char)*name)) * 16777619u;
    return h;
}

/* Finds the table slot of `name`, or the free one where it belongs. */
static uint32_t *lookup(const struct host_parser *ps, const char *name)
{
    size_t mask = ps->index.size - 1;
    size_t i = hash_name(name) & mask;

    while (ps->index.table[i] != 0 &&
           strcasecmp(ps->list.entries[ps->index.table[i] - 1].name, name) != 0)
        i = (i + 1) & mask;
    return &ps->index.table[i];
}

/* Makes room for one more host: at most half of the table is used. */
static int grow(struct host_parser *ps)
{
    size_t size = ps->index.size ? ps->index.size * 2 : INDEX_FIRST_SIZE;
    struct host_entry *entries;
    uint32_t *table;
    size_t i;

    if (ps->list.count < ps->list.cap)
        return 0;
    entries = hb_realloc_array(ps->list.entries, size / 2, sizeof(*entries));
    if (!entries)
        return host_no_memory(ps);
    ps->list.entries = entries;
    table = hb_calloc(size, sizeof(*table));
    if (!table)
        return host_no_memory(ps);
    ps->list.cap = size / 2;
    hb_free(ps->index.table);
    ps->index.table = table;
    ps->index.size = size;
    for (i = 0; i < ps->list.count; i++)
        *lookup(ps, entries[i].name) = (uint32_t)(i + 1);
    return 0;
}

static int set_user(struct host_parser *ps, struct host_entry *e,
                    const struct host_spec *spec)
{
    if (spec->user_len == 0)
        return 0;
    if (e->user && (strlen(e->user) != spec->user_len ||
                    strncmp(e->user, spec->user, spec->user_len) != 0))
        return host_fail(ps, spec->user,
                         "host %s was given with user %s before; keep one",
                         e->name, e->user);
    if (!e->user)
        e->user = hb_strndup(spec->user, spec->user_len);
    return e->user ? 0 : host_no_memory(ps);
}

static int check_limit(struct host_parser *ps, const struct host_entry *e,
                       const struct host_spec *spec)
{
    if (e->slots > HOSTS_SLOTS_MAX)
        return host_fail(ps, spec->name,
                         "host %s: its slots add up to %d; at most %d are "
                         "possible",
                         e->name, e->slots, HOSTS_SLOTS_MAX);
    if (e->max_slots && e->slots > e->max_slots)
        return host_fail(ps, spec->name,
                         "host %s: %d slots are more than max_slots=%d; "
                         "lower slots or raise max_slots",
                         e->name, e->slots, e->max_slots);
    return 0;
}

static int merge(struct host_parser *ps, struct host_entry *e,
                 const struct host_spec *spec)
{
    int rc = set_user(ps, e, spec);

    if (rc < 0)
        return rc;
    if (e->port && spec->port && e->port != spec->port)
        return host_fail(ps, spec->name,
                         "host %s was given with port %d before; keep one",
                         e->name, e->port);
    if (spec->port)
        e->port = spec->port;
    e->slots = (e->slots ? e->slots : 1) + (spec->slots ? spec->slots : 1);
    if (spec->max_slots > e->max_slots)
        e->max_slots = spec->max_slots;
    return check_limit(ps, e, spec);
}

int hostlist_merge(struct hostlist *l, size_t into, size_t from,
                   struct hb_error *err)
{
    struct host_entry *e = &l->entries[into], *other = &l->entries[from];
    int slots = (e->slots ? e->slots : 1) + (other->slots ? other->slots : 1);
    int max_slots =
        e->max_slots > other->max_slots ? e->max_slots : other->max_slots;
    int limit = max_slots ? max_slots : HOSTS_SLOTS_MAX;

    if (slots > limit)
        return hb_error_set(err, HVD_EINVAL,
                            "%s and %s are one host: its slots add up to %d; "
                            "at most %d are possible",
                            e->name, other->name, slots, limit);
    e->slots = slots;
    e->max_slots = max_slots;
    hb_free(other->name);
    hb_free(other->user);
    l->count--;
    memmove(other, other + 1, (l->count - from) * sizeof(*other));
    return 0;
}

static int add_new(struct host_parser *ps, const char *name,
                   const struct host_spec *spec)
{
    struct host_entry *e = &ps->list.entries[ps->list.count];

    memset(e, 0, sizeof(*e));
    e->name = hb_strdup(name);
    if (!e->name)
        return host_no_memory(ps);
    ps->list.count++;
    e->port = spec->port;
    e->slots = spec->slots;
    e->max_slots = spec->max_slots;
    if (set_user(ps, e, spec) < 0)
        return -HVD_ENOMEM;
    return check_limit(ps, e, spec);
}

static int add_host(struct host_parser *ps, const char *name,
                    const struct host_spec *spec)
{
    uint32_t *slot;
    int rc;

    if (++ps->named > HOSTS_COUNT_MAX)
        return host_fail(ps, spec->name, "more than %d hosts are named",
                         HOSTS_COUNT_MAX);
    rc = grow(ps);
    if (rc < 0)
        return rc;
    slot = lookup(ps, name);
    if (*slot)
        return merge(ps, &ps->list.entries[*slot - 1], spec);
    *slot = (uint32_t)(ps->list.count + 1);
    return add_new(ps, name, spec);
}

/* A name whose ranges are being replaced by numbers. */
struct expansion {
    const struct host_spec *spec;
    char name[HOSTS_NAME_MAX + 1];
};

/* Reads the digits at *p, and moves *p past them. */
static int read_bound(struct host_parser *ps, const char **p, long *v,
                      int *width)
{
    const char *start = *p;

    *v = 0;
    *width = 0;
    for (; isdigit((unsigned char)**p); (*p)++) {
        if (*p - start >= DIGITS_MAX)
            return host_fail(ps, start,
                             "a range number has more than %d "
                             "digits",
                             DIGITS_MAX);
        *v = *v * 10 + (**p - '0');
    }
    if (*p == start)
        return host_fail(ps, start,
                         "a number is missing in a range, as in "
                         "node[01-16,20]");
    *width = (int)(*p - start);
    return 0;
}

struct range {
    long lo, hi;
    int width; /* of lo as written: leading zeros are kept */
};

/* Reads one element, `lo` or `lo-hi`, at *p, and moves *p past it. */
static int read_element(struct host_parser *ps, const char **p, struct range *r)
{
    const char *start = *p, *hi_start;
    int hi_width, rc;

    rc = read_bound(ps, p, &r->lo, &r->width);
    r->hi = r->lo;
    if (rc < 0 || **p != '-')
        return rc;
    hi_start = ++*p;
    rc = read_bound(ps, p, &r->hi, &hi_width);
    if (rc < 0)
        return rc;
    if (r->hi < r->lo)
        return host_fail(ps, start,
                         "the range %.*s is reversed; write the lower "
                         "number first",
                         (int)(*p - start), start);
    /* [0-15] and [08-101] are clear, and Slurm writes them. */
    if (hi_width != r->width && (*hi_start == '0' || hi_width < r->width))
        return host_fail(ps, start,
                         "both ends of a zero-padded range need as many "
                         "digits, as in [01-16]");
    return 0;
}

static int fail_long_name(struct host_parser *ps, const struct expansion *x)
{
    return host_fail(ps, x->spec->name,
                     "a host name of more than %d characters", HOSTS_NAME_MAX);
}

static int expand(struct host_parser *ps, struct expansion *x, size_t len,
                  const char *p);

/* Continues the name with each number of r, followed by `rest`. */
static int expand_range(struct host_parser *ps, struct expansion *x, size_t len,
                        const struct range *r, const char *rest)
{
    size_t room = sizeof(x->name) - len;
    int rc = 0;
    long v;

    for (v = r->lo; rc == 0 && v <= r->hi; v++) {
        int digits = snprintf(x->name + len, room, "%0*ld", r->width, v);

        if ((size_t)digits >= room)
            return fail_long_name(ps, x);
        rc = expand(ps, x, len + (size_t)digits, rest);
    }
    return rc;
}

/* Appends the text from p on to the first len bytes of the name, once for each
 * number of each range.  Recurses once per range. */
static int expand(struct host_parser *ps, struct expansion *x, size_t len,
                  const char *p)
{
    const char *end = x->spec->name + x->spec->name_len;
    const char *open = memchr(p, '[', (size_t)(end - p));
    size_t plain = (size_t)((open ? open : end) - p);
    const char *close;
    struct range r = {0, 0, 0};
    int rc;

    if (plain > HOSTS_NAME_MAX - len)
        return fail_long_name(ps, x);
    memcpy(x->name + len, p, plain);
    len += plain;
    x->name[len] = '\0';
    if (!open)
        return add_host(ps, x->name, x->spec);
    close = memchr(open, ']', (size_t)(end - open));
    p = open;
    do {
        p++; /* '[' or ',' */
        rc = read_element(ps, &p, &r);
        if (rc == 0)
            rc = expand_range(ps, x, len, &r, close + 1);
    } while (rc == 0 && *p == ',');
    if (rc == 0 && p != close)
        return host_fail(ps, p, "a range element is lo-hi or one number");
    return rc;
}

int host_add_spec(struct host_parser *ps, const struct host_spec *spec)
{
    struct expansion x;

    x.spec = spec;
    return expand(ps, &x, 0, spec->name);
}
