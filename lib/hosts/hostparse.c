/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammar of one host entry; see hostlist.h.
 *
 * Names are kept strict (letters, digits, `.`, `-`, `_`, no leading dash): they
 * become arguments of ssh and parts of paths, and an impossible name is better
 * refused here, where its place in the text is known.
 */
#include "lib/hosts/hostparse.h"

#include "lib/base/text.h"

#include <arpa/inet.h>
#include <string.h>

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_name_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '.' || c == '-' || c == '_';
}

static int at_end(const struct host_parser *ps, const char *seps)
{
    return ps->p == ps->end || is_blank(*ps->p) ||
           (*ps->p != '\0' && strchr(seps, *ps->p));
}

/* Reports an unexpected byte, and what the user may have meant. */
static int fail_bad_char(struct host_parser *ps)
{
    unsigned char c = (unsigned char)*ps->p;

    if (c == '\0')
        return host_fail(ps, ps->p, "a NUL byte; is this a text file?");
    if (c == ']')
        return host_fail(ps, ps->p, "']' without '['");
    if (c == ',')
        return host_fail(ps, ps->p,
                         "',' in a hostfile; put each host on its own line");
    if (c < 0x20 || c >= 0x7f)
        return host_fail(ps, ps->p, "byte 0x%02x is not allowed in a host name",
                         c);
    return host_fail(ps, ps->p,
                     "'%c' is not allowed in a host name; use letters, "
                     "digits, '.', '-' and '_'",
                     c);
}

int host_parse_number(struct host_parser *ps, const char *seps,
                      const char *what, int max, int *out)
{
    const char *start = ps->p;
    int negative = ps->p < ps->end && *ps->p == '-';
    long v = 0;

    ps->p += negative;
    if (at_end(ps, seps))
        return host_fail(ps, start, "%s: a number is missing", what);
    for (; ps->p < ps->end && is_digit(*ps->p); ps->p++)
        v = v > max ? v : v * 10 + (*ps->p - '0');
    if (!at_end(ps, seps))
        return host_fail(ps, ps->p, "%s: not a whole number", what);
    if (negative || v < 1 || v > max)
        return host_fail(ps, start, "%s: %.*s is out of range; give 1 to %d",
                         what, (int)(ps->p - start < 32 ? ps->p - start : 32),
                         start, max);
    *out = (int)v;
    return 0;
}

static int check_user(struct host_parser *ps, const char *user, size_t len)
{
    size_t i;

    if (len == 0)
        return host_fail(ps, user, "a user name is missing");
    if (len > HOSTS_NAME_MAX)
        return host_fail(ps, user, "a user name of more than %d characters",
                         HOSTS_NAME_MAX);
    if (user[0] == '-')
        return host_fail(ps, user, "a user name cannot begin with '-'");
    for (i = 0; i < len; i++) {
        if (!is_name_char(user[i]))
            return host_fail(ps, user + i,
                             "byte 0x%02x is not allowed in a user name",
                             (unsigned char)user[i]);
    }
    return 0;
}

/* Parses `user@`, if the entry has an `@`. */
static int parse_user(struct host_parser *ps, const char *seps,
                      struct host_spec *spec)
{
    const char *p = ps->p;
    int rc;

    while (p < ps->end && !is_blank(*p) && *p != '@' && *p != '[' &&
           (*p == '\0' || !strchr(seps, *p)))
        p++;
    if (p == ps->end || *p != '@')
        return 0;
    spec->user = ps->p;
    spec->user_len = (size_t)(p - ps->p);
    rc = check_user(ps, spec->user, spec->user_len);
    if (rc == 0)
        ps->p = p + 1;
    return rc;
}

/* Returns whether there is a colon before any of `stops`, a blank or the
 * end. */
static int holds_colon(const struct host_parser *ps, const char *stops)
{
    const char *p = ps->p;

    while (p < ps->end && !is_blank(*p) && *p != ':' &&
           (*p == '\0' || !strchr(stops, *p)))
        p++;
    return p < ps->end && *p == ':';
}

/* Parses `[v6addr]`; a zone (`%eth0`) may follow the address. */
static int parse_address(struct host_parser *ps, struct host_spec *spec)
{
    const char *open = ps->p++, *start = ps->p, *percent;
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    size_t len, i;

    while (ps->p < ps->end && *ps->p != ']')
        ps->p++;
    if (ps->p == ps->end)
        return host_fail(ps, open, "'[' without ']'");
    spec->name = start;
    spec->name_len = (size_t)(ps->p++ - start);
    percent = memchr(start, '%', spec->name_len);
    len = percent ? (size_t)(percent - start) : spec->name_len;
    for (i = len + 1; i < spec->name_len && is_name_char(start[i]); i++)
        continue;
    if (len < sizeof(text)) {
        memcpy(text, start, len);
        text[len] = '\0';
    }
    if (len >= sizeof(text) || strlen(text) != len ||
        inet_pton(AF_INET6, text, &address) != 1 ||
        (percent && (len + 1 == spec->name_len || i != spec->name_len)) ||
        spec->name_len > HOSTS_NAME_MAX)
        return host_fail(ps, open, "not an IPv6 address; write it as [::1]");
    return 0;
}

/* Skips one `[...]` of a name; its contents are checked when it is expanded. */
static int skip_range(struct host_parser *ps)
{
    const char *open = ps->p++;

    while (ps->p < ps->end && *ps->p != ']') {
        if (*ps->p == '[')
            return host_fail(ps, ps->p, "'[' inside a range");
        if (is_blank(*ps->p))
            return host_fail(ps, ps->p, "a blank inside a range");
        if (!is_digit(*ps->p) && *ps->p != '-' && *ps->p != ',')
            return host_fail(ps, ps->p,
                             "a range holds numbers, '-' and ',' only, "
                             "as in node[01-16,20]");
        ps->p++;
    }
    if (ps->p == ps->end)
        return host_fail(ps, open, "'[' without ']'");
    ps->p++;
    return 0;
}

static int parse_ranged_name(struct host_parser *ps, const char *seps,
                             struct host_spec *spec)
{
    int rc;

    spec->name = ps->p;
    if (ps->p < ps->end && *ps->p == '-')
        return host_fail(ps, ps->p, "a host name cannot begin with '-'");
    while (!at_end(ps, seps) && *ps->p != ':') {
        if (*ps->p == '[') {
            rc = skip_range(ps);
            if (rc < 0)
                return rc;
        } else if (is_name_char(*ps->p)) {
            ps->p++;
        } else {
            return fail_bad_char(ps);
        }
    }
    spec->name_len = (size_t)(ps->p - spec->name);
    if (spec->name_len == 0)
        return host_fail(ps, spec->name, "a host name is missing");
    return 0;
}

int host_parse_name(struct host_parser *ps, const char *seps,
                    struct host_spec *spec)
{
    int rc;

    memset(spec, 0, sizeof(*spec));
    host_skip_blanks(ps);
    rc = parse_user(ps, seps, spec);
    if (rc < 0)
        return rc;
    if (ps->p < ps->end && *ps->p == '[' && holds_colon(ps, "]"))
        rc = parse_address(ps, spec);
    else
        rc = parse_ranged_name(ps, seps, spec);
    if (rc < 0)
        return rc;
    if (at_end(ps, seps))
        return 0;
    if (*ps->p != ':')
        return fail_bad_char(ps);
    ps->p++;
    if (holds_colon(ps, seps))
        return host_fail(ps, spec->name,
                         "an IPv6 address needs brackets, as in [fe80::1]:4");
    return host_parse_number(ps, seps, "slots", HOSTS_SLOTS_MAX, &spec->slots);
}

static const char *const keys[] = {"slots", "max_slots", "max-slots", "port",
                                   "user"};
enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]), KEY_MAX = 32 };

static int fail_unknown_key(struct host_parser *ps, const char *at,
                            const char *key)
{
    const char *near = hb_text_nearest(key, keys, KEY_COUNT);

    if (near)
        return host_fail(ps, at, "unknown key '%s'; did you mean '%s'?", key,
                         near);
    return host_fail(ps, at,
                     "unknown key '%s'; known are slots, max_slots, port "
                     "and user",
                     key);
}

static int fail_twice(struct host_parser *ps, const char *at, const char *what)
{
    return host_fail(ps, at, "%s is given twice for this host", what);
}

/* Parses the value of `key` at the cursor. */
static int parse_value(struct host_parser *ps, const char *at, const char *key,
                       struct host_spec *spec)
{
    if (strcmp(key, "user") == 0) {
        if (spec->user_len)
            return fail_twice(ps, at, "user");
        spec->user = ps->p;
        while (!at_end(ps, ""))
            ps->p++;
        spec->user_len = (size_t)(ps->p - spec->user);
        return check_user(ps, spec->user, spec->user_len);
    }
    if (strcmp(key, "port") == 0)
        return spec->port
                   ? fail_twice(ps, at, "port")
                   : host_parse_number(ps, "", "port", 65535, &spec->port);
    if (strcmp(key, "slots") == 0)
        return spec->slots ? fail_twice(ps, at, "the number of slots")
                           : host_parse_number(ps, "", "slots", HOSTS_SLOTS_MAX,
                                               &spec->slots);
    return spec->max_slots
               ? fail_twice(ps, at, "max_slots")
               : host_parse_number(ps, "", "max_slots", HOSTS_SLOTS_MAX,
                                   &spec->max_slots);
}

/* Parses `key`, `=` with or without blanks around it, and the value. */
static int parse_key(struct host_parser *ps, struct host_spec *spec)
{
    const char *at = ps->p;
    char key[KEY_MAX];
    size_t len, i;

    while (ps->p < ps->end && is_name_char(*ps->p))
        ps->p++;
    len = (size_t)(ps->p - at);
    if (len == 0 && *ps->p != '=')
        return fail_bad_char(ps);
    len = len < sizeof(key) ? len : sizeof(key) - 1;
    memcpy(key, at, len);
    key[len] = '\0';
    host_skip_blanks(ps);
    if (ps->p == ps->end || *ps->p != '=')
        return host_fail(ps, at,
                         "'%s' after the host name; only key=value fields "
                         "may follow, and each host needs its own line",
                         key);
    for (i = 0; i < KEY_COUNT; i++) {
        if (strcmp(key, keys[i]) == 0)
            break;
    }
    if (i == KEY_COUNT)
        return fail_unknown_key(ps, at, key);
    ps->p++;
    host_skip_blanks(ps);
    return parse_value(ps, at, key, spec);
}

int host_parse_keys(struct host_parser *ps, struct host_spec *spec)
{
    int rc;

    for (;;) {
        host_skip_blanks(ps);
        if (ps->p == ps->end)
            return 0;
        rc = parse_key(ps, spec);
        if (rc < 0)
            return rc;
    }
}
