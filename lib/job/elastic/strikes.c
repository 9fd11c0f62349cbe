/* SPDX-License-Identifier: Apache-2.0 */
/* See strikes.h. */
#include "lib/job/elastic/strikes.h"

#include "lib/base/alloc.h"

#include <string.h>
#include <strings.h>

static const uint64_t FORGIVEN_NS = 600000000000u;
/* Doublings after which every time is the longest. */
enum { DOUBLINGS_MAX = 20 };

void strikes_init(struct strikes *s, int64_t least_ms, int64_t most_ms)
{
    *s = (struct strikes){.least_ns = (uint64_t)least_ms * 1000000,
                          .most_ns = (uint64_t)most_ms * 1000000};
}

void strikes_fini(struct strikes *s)
{
    for (size_t i = 0; i < s->count; i++)
        hb_free(s->hosts[i].name);
    hb_free(s->hosts);
    memset(s, 0, sizeof(*s));
}

static struct strikes_host *find(const struct strikes *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcasecmp(s->hosts[i].name, name) == 0)
            return &s->hosts[i];
    return NULL;
}

/* Returns an empty entry, at the cost of the oldest if there is no room. */
static struct strikes_host *take_entry(struct strikes *s)
{
    struct strikes_host *oldest = s->hosts;

    if (s->count == s->cap && s->cap < STRIKES_HOSTS_MAX) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->hosts = hb_xrealloc_array(s->hosts, s->cap, sizeof(*s->hosts));
    }
    if (s->count < s->cap)
        return &s->hosts[s->count++];
    for (size_t i = 1; i < s->count; i++)
        if (s->hosts[i].last_ns < oldest->last_ns)
            oldest = &s->hosts[i];
    hb_free(oldest->name);
    return oldest;
}

/* Computes the time for strike number `count`. */
static uint64_t cooldown_ns(const struct strikes *s, int count, uint32_t random)
{
    int doublings = count - 1 < DOUBLINGS_MAX ? count - 1 : DOUBLINGS_MAX;
    uint64_t time = s->least_ns << doublings;

    time += s->least_ns / 1024 * (random >> 22);
    return time < s->most_ns ? time : s->most_ns;
}

uint64_t strikes_add(struct strikes *s, const char *name, uint64_t now_ns,
                     uint32_t random)
{
    struct strikes_host *h = find(s, name);
    uint64_t forgiven;

    if (!h) {
        h = take_entry(s);
        *h = (struct strikes_host){.name = hb_xstrdup(name)};
    }
    if (now_ns < h->until_ns)
        return h->until_ns;
    forgiven = h->count > 0 ? (now_ns - h->last_ns) / FORGIVEN_NS : 0;
    h->count = forgiven < (uint64_t)h->count ? h->count - (int)forgiven : 0;
    h->count += h->count < INT32_MAX;
    h->last_ns = now_ns;
    h->until_ns = now_ns + cooldown_ns(s, h->count, random);
    return h->until_ns;
}

uint64_t strikes_until(const struct strikes *s, const char *name,
                       uint64_t now_ns)
{
    const struct strikes_host *h = find(s, name);

    return h && now_ns < h->until_ns ? h->until_ns : 0;
}
