/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a state; see state.h. */
#include "runtime/core/api/state.h"

#include "lib/base/alloc.h"
#include "runtime/core/world/message.h"

#include <string.h>

enum { BLOCKS_MIN = 8 };

int hvd_state_new(hvd_state **s)
{
    struct hvd_state *made;

    if (!s)
        return hvd__fail(HVD_EINVAL, "hvd_state_new: s is NULL");
    made = hb_calloc(1, sizeof(*made));
    if (!made)
        return hvd__fail(HVD_ENOMEM, "hvd_state_new: no memory");
    made->whole = HVD__STATE_NEW;
    *s = made;
    return 0;
}

void hvd_state_free(hvd_state *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        hb_free(s->blocks[i].copy);
    hb_free(s->blocks);
    hb_free(s);
}

static int make_room(struct hvd_state *s)
{
    size_t cap = s->cap ? 2 * s->cap : BLOCKS_MIN;
    struct hvd__state_block *blocks;

    if (s->count < s->cap)
        return 1;
    blocks = hb_realloc_array(s->blocks, cap, sizeof(*blocks));
    if (!blocks)
        return 0;
    s->blocks = blocks;
    s->cap = cap;
    return 1;
}

static int check(const struct hvd_state *s, const char *name, const void *p,
                 size_t bytes, unsigned flags)
{
    if (!s || !name || !p || bytes == 0 || (flags & ~1u))
        return hvd__fail(HVD_EINVAL,
                         "hvd_state_add: a pointer is NULL, bytes is 0, or "
                         "flags is none of HVD_STATE_");
    if (!name[0] || strnlen(name, HVD_STATE_NAME_MAX) == HVD_STATE_NAME_MAX)
        return hvd__fail(HVD_EINVAL, "hvd_state_add: a name has 1 to %d bytes",
                         HVD_STATE_NAME_MAX - 1);
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->blocks[i].name, name) == 0)
            return hvd__fail(HVD_EINVAL, "hvd_state_add: '%s' was added before",
                             name);
    return 0;
}

int hvd_state_add(hvd_state *s, const char *name, void *p, size_t bytes,
                  unsigned flags)
{
    struct hvd__state_block block = {.p = p, .bytes = bytes, .flags = flags};
    int rc = check(s, name, p, bytes, flags);

    if (rc < 0)
        return rc;
    if (flags & HVD_STATE_SNAPSHOT)
        block.copy = hb_malloc(bytes);
    if ((flags & HVD_STATE_SNAPSHOT && !block.copy) || !make_room(s)) {
        hb_free(block.copy);
        return hvd__fail(HVD_ENOMEM,
                         "hvd_state_add: no memory for '%s' (%zu bytes)", name,
                         bytes);
    }
    memcpy(block.name, name, strlen(name));
    if (block.copy)
        memcpy(block.copy, p, bytes);
    s->blocks[s->count++] = block;
    return 0;
}

int hvd_restore(hvd_state *s)
{
    if (!s || s->whole != HVD__STATE_SYNCED)
        return hvd__fail(HVD_EINVAL,
                         "hvd_restore: the state is NULL, or hvd_sync has not "
                         "returned 0 for it");
    s->is_restored = 1;
    for (size_t i = 0; i < s->count; i++) {
        const struct hvd__state_block *b = &s->blocks[i];

        if (b->copy)
            memcpy(b->p, b->copy, b->bytes);
        s->is_restored &= b->copy != NULL;
    }
    return 0;
}

/* ---- For hvd_sync -------------------------------------------------------- */

/* Mixes bytes into a hash (FNV-1a). */
static uint64_t mix(uint64_t hash, const void *p, size_t bytes)
{
    const unsigned char *at = p;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t layout_of(const struct hvd_state *s)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < s->count; i++) {
        const struct hvd__state_block *b = &s->blocks[i];
        const uint64_t numbers[] = {b->bytes, b->flags};

        hash = mix(hash, b->name, sizeof(b->name));
        hash = mix(hash, numbers, sizeof(numbers));
    }
    return hash;
}

struct hvd__state_age hvd__state_age(const struct hvd_state *s, uint32_t epoch,
                                     uint64_t done)
{
    struct hvd__state_age age = {.whole = HVD__STATE_NEW};

    if (!s)
        return age;
    age.layout = layout_of(s);
    age.whole = s->whole;
    age.version = s->version;
    if (s->whole == HVD__STATE_SYNCED && !s->is_restored)
        age.progress = done - (s->epoch == epoch ? s->done : 0);
    return age;
}

int hvd__state_compare(const struct hvd__state_age *a,
                       const struct hvd__state_age *b)
{
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    if (a->version != b->version)
        return a->version < b->version ? -1 : 1;
    if (a->progress != b->progress)
        return a->progress < b->progress ? -1 : 1;
    return 0;
}

void hvd__state_settle(struct hvd_state *s, uint64_t version, uint32_t epoch,
                       uint64_t done)
{
    s->whole = HVD__STATE_SYNCED;
    s->is_restored = 0;
    s->version = version;
    s->epoch = epoch;
    s->done = done;
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i].copy)
            memcpy(s->blocks[i].copy, s->blocks[i].p, s->blocks[i].bytes);
}
