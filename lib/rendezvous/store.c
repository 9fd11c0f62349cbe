/* SPDX-License-Identifier: Apache-2.0 */
/* Values, and requests that wait for them; see store.h. */
#include "lib/rendezvous/store_impl.h"

#include "lib/base/alloc.h"

#include <sodium/crypto_shorthash.h>
#include <sodium/randombytes.h>
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

static struct bucket *bucket_of(struct rdv_store *s, const char *scope,
                                const char *key)
{
    unsigned char names[2 * RDV_NAME_BYTES], hash[crypto_shorthash_BYTES];
    size_t scope_bytes = strlen(scope) + 1, key_bytes = strlen(key) + 1;
    uint64_t h;

    memcpy(names, scope, scope_bytes);
    memcpy(names + scope_bytes, key, key_bytes);
    crypto_shorthash(hash, names, scope_bytes + key_bytes, s->seed);
    memcpy(&h, hash, sizeof(h));
    return &s->buckets[h % s->bucket_count];
}

/* Returns the bytes that malloc uses for a block. */
static size_t block(size_t len)
{
    return (len + 23) & ~(size_t)15;
}

static size_t names_bytes(const char *scope, const char *key)
{
    return strlen(scope) + strlen(key) + 2;
}

static void copy_names(char *names, char **scope_copy, char **key_copy,
                       const char *scope, const char *key)
{
    size_t len = strlen(scope) + 1;

    *scope_copy = memcpy(names, scope, len);
    *key_copy = memcpy(names + len, key, strlen(key) + 1);
}

static void move_bucket(struct rdv_store *s, struct bucket *from)
{
    struct wait *w, *last_first = NULL;
    struct entry *e;

    while ((e = from->entries)) {
        struct bucket *to = bucket_of(s, e->scope, e->key);

        from->entries = e->next;
        e->next = to->entries;
        to->entries = e;
    }
    while ((w = from->waits)) {
        from->waits = w->next;
        w->next = last_first;
        last_first = w;
    }
    while ((w = last_first)) {
        struct bucket *to = bucket_of(s, w->scope, w->key);

        last_first = w->next;
        w->next = to->waits;
        to->waits = w;
    }
}

/* Doubles the table if needed, so that chains stay short. */
static void make_room(struct rdv_store *s)
{
    struct bucket *old = s->buckets;
    size_t count = s->bucket_count;

    if (s->entry_count + s->waits < 2 * count)
        return;
    s->bucket_count = 2 * count;
    s->buckets = hb_xcalloc(s->bucket_count, sizeof(*s->buckets));
    for (size_t i = 0; i < count; i++)
        move_bucket(s, &old[i]);
    hb_free(old);
}

static struct entry **find(struct bucket *b, const char *scope, const char *key)
{
    struct entry **e = &b->entries;

    while (*e &&
           (strcmp((*e)->key, key) != 0 || strcmp((*e)->scope, scope) != 0))
        e = &(*e)->next;
    return e;
}

/* Returns the bytes of an entry, with its share of the table. */
static size_t entry_size(const char *scope, const char *key, size_t len)
{
    return block(sizeof(struct entry) + names_bytes(scope, key)) +
           block(len + 1) + sizeof(struct bucket);
}

static void drop_entry(struct rdv_store *s, struct entry **at)
{
    struct entry *e = *at;

    *at = e->next;
    s->entry_count--;
    s->bytes -= entry_size(e->scope, e->key, e->len);
    hb_free(e->value);
    hb_free(e);
}

static size_t wait_size(const char *scope, const char *key)
{
    return block(sizeof(struct wait) + names_bytes(scope, key)) +
           sizeof(struct bucket);
}

static void drop_wait(struct rdv_store *s, struct wait **at)
{
    struct wait *w = *at;

    *at = w->next;
    s->waits--;
    s->bytes -= wait_size(w->scope, w->key);
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

static struct entry *add_entry(struct rdv_store *s, const char *scope,
                               const char *key)
{
    struct entry *e = hb_xcalloc(1, sizeof(*e) + names_bytes(scope, key));
    struct bucket *b;

    copy_names(e->names, &e->scope, &e->key, scope, key);
    make_room(s);
    s->entry_count++;
    b = bucket_of(s, scope, key);
    e->next = b->entries;
    b->entries = e;
    return e;
}

static void put(struct rdv_store *s, int origin, const struct rdv_request *m)
{
    struct entry *e = *find(bucket_of(s, m->scope, m->key), m->scope, m->key);
    size_t more = entry_size(m->scope, m->key, m->len);
    size_t old = e ? entry_size(m->scope, m->key, e->len) : 0;

    if (s->bytes - old + more > s->config.bytes_max) {
        store_refuse(s, origin, m->id, HVD_ENOMEM,
                     "put %.100s/%.100s: the job's store is full (%zu bytes)",
                     m->scope, m->key, s->config.bytes_max);
        return;
    }
    if (!e)
        e = add_entry(s, m->scope, m->key);
    hb_free(e->value);
    e->value = hb_xmalloc(m->len + 1);
    if (m->len)
        memcpy(e->value, m->value, m->len);
    e->len = m->len;
    e->version = ++s->version;
    s->bytes = s->bytes - old + more;
    store_reply(s, origin, m->id, e->version, NULL, 0);
    wake(s, bucket_of(s, m->scope, m->key), e);
}

static void add_wait(struct rdv_store *s, int origin,
                     const struct rdv_request *m)
{
    struct wait **at, *w;

    if (s->waits >= s->config.waits_max ||
        s->bytes + wait_size(m->scope, m->key) > s->config.bytes_max) {
        store_refuse(s, origin, m->id, HVD_ENOMEM,
                     "get %.100s/%.100s: too many requests wait (%zu)",
                     m->scope, m->key, s->waits);
        return;
    }
    make_room(s);
    at = &bucket_of(s, m->scope, m->key)->waits;
    while (*at)
        at = &(*at)->next;
    w = *at = hb_xcalloc(1, sizeof(*w) + names_bytes(m->scope, m->key));
    copy_names(w->names, &w->scope, &w->key, m->scope, m->key);
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

/* Deletes a value, and tells the requests that saw it and wait for a change. */
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
    for (size_t i = 0; i < s->bucket_count; i++) {
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

/* Deletes the scope if it has the key, so that the first of many such requests
 * deletes it, and the others leave alone what has come since. */
static void end_round(struct rdv_store *s, int origin,
                      const struct rdv_request *m)
{
    if (*find(bucket_of(s, m->scope, m->key), m->scope, m->key))
        delete_scope(s, m->scope);
    store_reply(s, origin, m->id, ++s->version, NULL, 0);
}

/* Drops the waits of an origin or, with id, only that request. */
static void cancel(struct rdv_store *s, int origin, const uint32_t *id)
{
    for (size_t i = 0; i < s->bucket_count && s->waits > 0; i++) {
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
    randombytes_buf(s->seed, sizeof(s->seed));
    s->bucket_count = STORE_BUCKETS_FIRST;
    s->buckets = hb_xcalloc(s->bucket_count, sizeof(*s->buckets));
    s->absences = hb_xcalloc((size_t)config->ranks + 1, sizeof(*s->absences));
    return s;
}

void rdv_store_free(struct rdv_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->bucket_count; i++) {
        while (s->buckets[i].entries)
            drop_entry(s, &s->buckets[i].entries);
        while (s->buckets[i].waits)
            drop_wait(s, &s->buckets[i].waits);
    }
    fence_free_all(s);
    for (int i = 0; i < s->config.ranks; i++)
        hb_free(s->absences[i].why);
    hb_free(s->absences);
    hb_free(s->buckets);
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
    case RDV_END_ROUND:
        end_round(s, origin, m);
        break;
    case RDV_LEFT: /* handled by the caller, which knows each host's ranks */
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
    const struct absence *a = &s->absences[rank];

    if (a->epoch != RDV_ALL_EPOCHS)
        rdv_store_rank_restarted(s, rank);
}

void rdv_store_rank_restarted(struct rdv_store *s, int rank)
{
    struct absence *a = &s->absences[rank];

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
