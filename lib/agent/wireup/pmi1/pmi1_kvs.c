/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table with chains; see pmi1_kvs.h. */
#include "lib/agent/wireup/pmi1/pmi1_kvs.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <string.h>

enum { BUCKETS_FIRST = 64 };

struct pmi1_pair {
    struct pmi1_pair *next;
    uint64_t hash;
    char *value;
    char key[PMI1_KEY_MAX];
};

/* Returns the FNV-1a hash of a key. */
static uint64_t hash_of(const char *key)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    return h;
}

void pmi1_kvs_init(struct pmi1_kvs *k)
{
    memset(k, 0, sizeof(*k));
    k->bucket_count = BUCKETS_FIRST;
    k->buckets = hb_xcalloc(k->bucket_count, sizeof(struct pmi1_pair *));
}

void pmi1_kvs_fini(struct pmi1_kvs *k)
{
    struct pmi1_pair *p;

    for (size_t i = 0; i < k->bucket_count; i++)
        while ((p = k->buckets[i])) {
            k->buckets[i] = p->next;
            hb_free(p->value);
            hb_free(p);
        }
    hb_free(k->buckets);
    hb_buf_free(&k->news);
    memset(k, 0, sizeof(*k));
}

static struct pmi1_pair *find(const struct pmi1_kvs *k, const char *key)
{
    uint64_t hash = hash_of(key);
    struct pmi1_pair *p = k->buckets[hash % k->bucket_count];

    while (p && (p->hash != hash || strcmp(p->key, key) != 0))
        p = p->next;
    return p;
}

static void grow(struct pmi1_kvs *k)
{
    size_t count = 2 * k->bucket_count;
    struct pmi1_pair **buckets, *p;

    buckets = hb_xcalloc(count, sizeof(struct pmi1_pair *));
    for (size_t i = 0; i < k->bucket_count; i++)
        while ((p = k->buckets[i])) {
            k->buckets[i] = p->next;
            p->next = buckets[p->hash % count];
            buckets[p->hash % count] = p;
        }
    hb_free(k->buckets);
    k->buckets = buckets;
    k->bucket_count = count;
}

/* Returns whether the protocol can carry the text. */
static int is_word(const char *text, size_t max)
{
    size_t len = strlen(text);

    if (len == 0 || len > max)
        return 0;
    for (const char *p = text; *p; p++)
        if (*p > 0 && *p <= ' ')
            return 0;
    return 1;
}

static enum pmi1_put set(struct pmi1_kvs *k, const char *key, const char *value)
{
    size_t bytes = strlen(key) + strlen(value);
    struct pmi1_pair *p;

    if (!is_word(key, PMI1_KEY_MAX - 1) || strchr(key, '=') ||
        !is_word(value, PMI1_VALUE_MAX))
        return PMI1_PUT_INVALID;
    if (find(k, key))
        return PMI1_PUT_DUPLICATE;
    if (k->count >= PMI1_KEYS_MAX || k->bytes + bytes > PMI1_BYTES_MAX)
        return PMI1_PUT_FULL;
    if (k->count == k->bucket_count)
        grow(k);
    p = hb_xcalloc(1, sizeof(*p));
    memcpy(p->key, key, strlen(key) + 1);
    p->value = hb_xstrdup(value);
    p->hash = hash_of(key);
    p->next = k->buckets[p->hash % k->bucket_count];
    k->buckets[p->hash % k->bucket_count] = p;
    k->count++;
    k->bytes += bytes;
    return PMI1_PUT_OK;
}

enum pmi1_put pmi1_kvs_put(struct pmi1_kvs *k, const char *key,
                           const char *value)
{
    enum pmi1_put how = set(k, key, value);

    if (how != PMI1_PUT_OK)
        return how;
    hb_must(hb_buf_put_u8(&k->news, (uint8_t)strlen(key)));
    hb_must(hb_buf_put_u16(&k->news, (uint16_t)strlen(value)));
    hb_must(hb_buf_puts(&k->news, key));
    hb_must(hb_buf_puts(&k->news, value));
    return PMI1_PUT_OK;
}

const char *pmi1_kvs_get(const struct pmi1_kvs *k, const char *key)
{
    const struct pmi1_pair *p = find(k, key);

    return p ? p->value : NULL;
}

int pmi1_kvs_merge(struct pmi1_kvs *k, const void *records, size_t len)
{
    char key[PMI1_KEY_MAX], value[PMI1_VALUE_MAX + 1];
    struct hb_reader r;
    enum pmi1_put how;

    hb_reader_init(&r, records, len);
    while (r.left > 0) {
        size_t key_len = hb_read_u8(&r), value_len = hb_read_u16(&r);

        hb_read_text(&r, key_len, key, sizeof(key));
        hb_read_text(&r, value_len, value, sizeof(value));
        if (r.bad)
            return -HVD_EPROTO;
        how = set(k, key, value);
        if (how == PMI1_PUT_INVALID || how == PMI1_PUT_FULL)
            return -HVD_EPROTO;
    }
    return 0;
}
