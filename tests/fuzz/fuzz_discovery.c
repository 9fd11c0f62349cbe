/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery: the input is a sequence of answers, separated by form feeds.  A
 * second, simple parser knows what answers of simple lines (a name in small
 * letters and digits, and perhaps slots) mean; they must be taken, and which
 * hosts count then must follow from this and the last such answer.  An answer
 * that is refused changes nothing.
 */
#include "lib/job/discovery/discovery.h"
#include "tests/fuzz/fuzz.h"

enum { HOSTS = 64, NAME = 24, DEFAULT_SLOTS = 3 };

struct list {
    char names[HOSTS][NAME];
    int slots[HOSTS];
    int count;
};

static int find(const struct list *l, const char *name)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->names[i], name) == 0)
            return i;
    return -1;
}

/* Adds a line; returns whether it is a simple one.  has_slots[i]: host i got a
 * number in a line before. */
static int take_line(struct list *l, const char *line, unsigned char *has_slots)
{
    char name[NAME] = "", end = 0;
    int slots = 0, at, fields;

    if (line[0] == '\0' || line[0] == '#')
        return 1;
    if (strspn(line, "abcdefghijklmnopqrstuvwxyz") == 0)
        return 0;
    at = (int)strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789");
    if (at >= NAME || (line[at] != '\0' && line[at] != ':'))
        return 0;
    memcpy(name, line, (size_t)at);
    if (line[at] == ':') {
        if (line[at + 1] < '1' || line[at + 1] > '9' || strlen(line + at) > 4)
            return 0;
        fields = sscanf(line + at, ":%d%c", &slots, &end);
        if (fields != 1)
            return 0;
    }
    at = find(l, name);
    if (at < 0) {
        if (l->count == HOSTS)
            return 0;
        at = l->count++;
        memcpy(l->names[at], name, NAME);
        l->slots[at] = slots;
        has_slots[at] = slots > 0;
        return 1;
    }
    /* Repeated: an entry without slots counts 1. */
    l->slots[at] = (has_slots[at] ? l->slots[at] : 1) + (slots ? slots : 1);
    has_slots[at] = 1;
    return 1;
}

/* Returns whether all lines are simple. */
static int understand(struct list *l, const char *text, size_t len)
{
    unsigned char has_slots[HOSTS] = {0};
    char line[128];

    memset(l, 0, sizeof(*l));
    for (size_t at = 0; at < len;) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t n = newline ? (size_t)(newline - text) - at : len - at;

        if (n >= sizeof(line) || memchr(text + at, '\0', n))
            return 0;
        memcpy(line, text + at, n);
        line[n] = '\0';
        for (size_t i = 0; i < n; i++)
            if (line[i] < ' ' || line[i] > '~')
                return 0;
        if (!take_line(l, line, has_slots))
            return 0;
        at += n + 1;
    }
    for (int i = 0; i < l->count; i++)
        if (!has_slots[i])
            l->slots[i] = DEFAULT_SLOTS;
    return 1;
}

static void read_back(const struct discovery *d, struct list *l)
{
    memset(l, 0, sizeof(*l));
    for (size_t i = 0; i < d->hosts.count && l->count < HOSTS; i++) {
        snprintf(l->names[l->count], NAME, "%s", d->hosts.entries[i].name);
        l->slots[l->count++] = d->hosts.entries[i].slots;
    }
}

/* Checks that d has the hosts of `now`, then those of `before` that it lacks
 * and that were not missing already. */
static void check_known(const struct discovery *d, const struct list *now,
                        const struct list *before)
{
    size_t at = 0;

    for (int i = 0; i < now->count; i++, at++) {
        FUZZ_CHECK(at < d->hosts.count);
        FUZZ_CHECK(strcmp(d->hosts.entries[at].name, now->names[i]) == 0);
        FUZZ_CHECK(d->hosts.entries[at].slots == now->slots[i]);
    }
    for (int i = 0; i < before->count; i++) {
        if (find(now, before->names[i]) >= 0)
            continue;
        FUZZ_CHECK(at < d->hosts.count);
        FUZZ_CHECK(strcmp(d->hosts.entries[at].name, before->names[i]) == 0);
        at++;
    }
    FUZZ_CHECK(at == d->hosts.count);
}

static void check_always(const struct discovery *d)
{
    for (size_t i = 0; i < d->hosts.count; i++) {
        FUZZ_CHECK(d->hosts.entries[i].slots > 0);
        fuzz_check_text(d->hosts.entries[i].name);
    }
    FUZZ_CHECK(discovery_slots(d) >= (int)d->hosts.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct list now, last = {.count = 0}, was;
    struct discovery d;
    int knows = 1; /* the last good answer was simple, or there was none */

    discovery_init(&d, DEFAULT_SLOTS);
    for (size_t at = 0; at <= size;) {
        const uint8_t *end = memchr(data + at, '\f', size - at);
        size_t len = (end ? (size_t)(end - data) : size) - at;
        char *text = fuzz_copy(data + at, len);
        int is_simple = understand(&now, text, len), rc;
        struct hb_error err = HB_ERROR_INIT;
        size_t count = d.hosts.count;

        read_back(&d, &was);
        rc = discovery_take(&d, "its output", text, len, &err);
        free(text);
        fuzz_check_error(rc < 0 ? rc : 0, &err);
        FUZZ_CHECK(!is_simple || rc >= 0);
        check_always(&d);
        if (rc < 0) {
            FUZZ_CHECK(d.hosts.count == count);
            read_back(&d, &now);
            FUZZ_CHECK(memcmp(&now, &was, sizeof(now)) == 0);
        } else {
            if (is_simple && knows)
                check_known(&d, &now, &last);
            knows = is_simple;
            last = now;
        }
        at += len + 1;
    }
    discovery_fini(&d);
    return 0;
}
