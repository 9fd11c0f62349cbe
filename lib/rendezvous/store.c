/* SPDX-License-Identifier: Apache-2.0 */
/* Values, and requests that wait for them; see store.h. */
#include "lib/rendezvous/store_impl.h"

#include "lib/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Replies ---- */

void store_reply(struct rdv_store *s, int origin, uint32_t id, uint64_t version,
                 const void *value, size_t len)
{
    struct rdv_reply m = {
        .id = id, .version = version, .value = value, .len = len};

    s->config.reply(s->config.arg, origin, &m);
}

void store_refuse(struct rdv_store *s, int origin, uint32_t id, int status,
                  const char *fmt, ...)
{
    struct rdv_reply m = {.id = id, .status = status};
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    m.value = text;
    m.len = strlen(text);
    s->config.reply(s->config.arg, origin, &m);
}

/* ---- Values ---- */

/* FNV-1a over both names. */
static struct bucket *bucket_of(struct rdv_store *s, const char *scope,
                                const char *key)
{
    uint32_t h = 2166136261u;

    for (; *scope; scope++)
        h = (h ^ (unsigned char)*scope) * 16777619u;
    h *= 16777619u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 16777619u;
    return &s->buckets[(h ^ h >> 16) % STORE_BUCKETS];
}

static struct entry **find(struct bucket *b, const char *scope, const char *key)
{
    struct entry **e = &b->entries;

    while (*e &&
           (strcmp((*e)->key, key) != 0 || strcmp((*e)->scope, scope) != 0))
        e = &(*e)->next;
    return e;
}

static size_t size_of(const struct entry *e)
{
    return sizeof(*e) + strlen(e->scope) + strlen(e->key) + e->len;
}

static void drop_entry(struct rdv_store *s, struct entry **at)
{
    struct entry *e = *at;

    *at = e->next;
    s->bytes -= size_of(e);
    hb_free(e->scope);
    hb_free(e->key);
    hb_free(e->value);
    hb_free(e);
}

static size_t wait_size(const char *scope, const char *key)
{
    return sizeof(struct wait) + strlen(scope) + strlen(key) + 2;
}

static void drop_wait(struct rdv_store *s, struct wait **at)
{
    struct wait *w = *at;

    *at = w->next;
    s->waits--;
    s->bytes -= wait_size(w->scope, w->key);
    hb_free(w->scope);
    hb_free(w->key);
    hb_free(w);
}

static void wake(struct rdv_store *s, struct bucket *b, const struct entry *e)
{
    struct wait **at = &b->waits;

    while (*at) {
        struct wait *w = *at;

        if (w->after >= e->version || strcmp(w->key, e->key) != 0 ||
            strcmp(w->scope, e->scope) != 0) {
            at = &w->next;
            continue;
        }
        store_reply(s, w->origin, w->id, e->version, e->value, e->len);
        drop_wait(s, at);
    }
}

static void put(struct rdv_store *s, int origin, const struct rdv_request *m)
{
    struct bucket *b = bucket_of(s, m->scope, m->key);
    struct entry **at = find(b, m->scope, m->key), *e = *at;
    size_t more = m->len, old = e ? e->len : 0;

    if (!e)
        more += sizeof(*e) + strlen(m->scope) + strlen(m->key);
    if (s->bytes - old + more > s->config.bytes_max) {
        store_refuse(s, origin, m->id, HVD_ENOMEM,
                     "put %.100s/%.100s: the job's store is full (%zu bytes)",
                     m->scope, m->key, s->config.bytes_max);
        return;
    }
    if (!e) {
        e = *at = hb_xcalloc(1, sizeof(*e));
        e->scope = hb_xstrdup(m->scope);
        e->key = hb_xstrdup(m->key);
    }
    hb_free(e->value);
    e->value = hb_xmalloc(m->len + 1);
    if (m->len)
        memcpy(e->value, m->value, m->len);
    e->len = m->len;
    e->version = ++s->version;
    s->bytes = s->bytes - old + more;
    store_reply(s, origin, m->id, e->version, NULL, 0);
    wake(s, b, e);
}

static void add_wait(struct rdv_store *s, int origin,
                     const struct rdv_request *m)
{
    struct wait **at = &bucket_of(s, m->scope, m->key)->waits, *w;

    if (s->waits >= s->config.waits_max ||
        s->bytes + wait_size(m->scope, m->key) > s->config.bytes_max) {
        store_refuse(s, origin, m->id, HVD_ENOMEM,
                     "get %.100s/%.100s: too many requests wait (%zu)",
                     m->scope, m->key, s->waits);
        return;
    }
    while (*at)
        at = &(*at)->next;
    w = *at = hb_xcalloc(1, sizeof(*w));
    w->scope = hb_xstrdup(m->scope);
    w->key = hb_xstrdup(m->key);
    w->after = m->after;
    w->origin = origin;
    w->id = m->id;
    s->waits++;
    s->bytes += wait_size(m->scope, m->key);
}

static void get(struct rdv_store *s, int origin, const struct rdv_request *m)
{
    struct bucket *b = bucket_of(s, m->scope, m->key);
    const struct entry *e = *find(b, m->scope, m->key);

    if (e && (!m->wait || e->version > m->after))
        store_reply(s, origin, m->id, e->version, e->value, e->len);
    else if (m->wait)
        add_wait(s, origin, m);
    else
        store_refuse(s, origin, m->id, HVD_ENOENT,
                     "get %.100s/%.100s: there is no such value", m->scope,
                     m->key);
}

/* Takes it away, and tells those who saw it and wait for a change. */
static void end_entry(struct rdv_store *s, struct bucket *b, struct entry **at)
{
    struct wait **w = &b->waits;

    while (*w) {
        if ((*w)->after == 0 || strcmp((*w)->key, (*at)->key) != 0 ||
            strcmp((*w)->scope, (*at)->scope) != 0) {
            w = &(*w)->next;
            continue;
        }
        store_refuse(s, (*w)->origin, (*w)->id, HVD_ENOENT,
                     "get %.100s/%.100s: the value was deleted", (*w)->scope,
                     (*w)->key);
        drop_wait(s, w);
    }
    drop_entry(s, at);
}

static void delete_scope(struct rdv_store *s, const char *scope)
{
    for (size_t i = 0; i < STORE_BUCKETS; i++) {
        struct entry **at = &s->buckets[i].entries;

        while (*at) {
            if (strcmp((*at)->scope, scope) == 0)
                end_entry(s, &s->buckets[i], at);
            else
                at = &(*at)->next;
        }
    }
}

static void delete (struct rdv_store *s, int origin,
                    const struct rdv_request *m)
{
    if (m->key[0]) {
        struct bucket *b = bucket_of(s, m->scope, m->key);
        struct entry **at = find(b, m->scope, m->key);

        if (*at)
            end_entry(s, b, at);
    } else {
        delete_scope(s, m->scope);
    }
    store_reply(s, origin, m->id, ++s->version, NULL, 0);
}

/* Waits of an origin; with id, that one only. */
static void cancel(struct rdv_store *s, int origin, const uint32_t *id)
{
    for (size_t i = 0; i < STORE_BUCKETS && s->waits > 0; i++) {
        struct wait **at = &s->buckets[i].waits;

        while (*at) {
            if ((*at)->origin == origin && (!id || (*at)->id == *id))
                drop_wait(s, at);
            else
                at = &(*at)->next;
        }
    }
    fence_cancel(s, origin, id);
}

/* ---- Public ---- */

struct rdv_store *rdv_store_new(const struct rdv_store_config *config)
{
    struct rdv_store *s = hb_xcalloc(1, sizeof(*s));

    s->config = *config;
    s->absences = hb_xcalloc((size_t)config->ranks + 1, sizeof(*s->absences));
    return s;
}

void rdv_store_free(struct rdv_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < STORE_BUCKETS; i++) {
        while (s->buckets[i].entries)
            drop_entry(s, &s->buckets[i].entries);
        while (s->buckets[i].waits)
            drop_wait(s, &s->buckets[i].waits);
    }
    fence_free_all(s);
    for (int i = 0; i < s->config.ranks; i++)
        hb_free(s->absences[i].why);
    hb_free(s->absences);
    hb_free(s);
}

void rdv_store_request(struct rdv_store *s, int origin,
                       const struct rdv_request *m)
{
    switch (m->op) {
    case RDV_PUT:
        put(s, origin, m);
        break;
    case RDV_GET:
        get(s, origin, m);
        break;
    case RDV_DELETE:
        delete (s, origin, m);
        break;
    case RDV_FENCE:
        fence_request(s, origin, m);
        break;
    case RDV_CANCEL:
        cancel(s, origin, &m->id);
        break;
    case RDV_LEFT: /* the caller's: it knows whose ranks are whose */
        break;
    }
}

void rdv_store_origin_gone(struct rdv_store *s, int origin)
{
    cancel(s, origin, NULL);
}

void rdv_store_rank_gone(struct rdv_store *s, int rank, uint64_t epoch,
                         const char *text)
{
    struct absence *a = &s->absences[rank];

    if (a->why && a->epoch >= epoch)
        return;
    hb_free(a->why);
    a->why = hb_xstrdup(text);
    a->since = ++s->absence_count;
    a->epoch = epoch;
    fence_rank_gone(s, rank);
}

void rdv_store_rank_back(struct rdv_store *s, int rank)
{
    struct absence *a = &s->absences[rank];

    if (a->epoch == RDV_ALL_EPOCHS)
        return;
    hb_free(a->why);
    *a = (struct absence){0, 0, NULL};
}

size_t rdv_store_bytes(const struct rdv_store *s)
{
    return s->bytes;
}

size_t rdv_store_waits(const struct rdv_store *s)
{
    return s->waits;
}
