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
    hvd__shards_init(&made->shards);
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
    hvd__shards_fini(&s->shards);
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

static struct hvd__state_block *find(const struct hvd_state *s,
                                     const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strncmp(s->blocks[i].name, name, HVD_STATE_NAME_MAX) == 0)
            return &s->blocks[i];
    return NULL;
}

static int check(const struct hvd_state *s, const char *name, const void *p,
                 size_t bytes, unsigned flags)
{
    int may_be_empty = (flags & HVD_STATE_SHARDED) != 0;

    if (!s || !name || (!p && bytes) || (bytes == 0 && !may_be_empty) ||
        (!p && !may_be_empty) ||
        (flags & ~(unsigned)(HVD_STATE_SNAPSHOT | HVD_STATE_SHARDED)))
        return hvd__fail(HVD_EINVAL,
                         "hvd_state_add: a pointer is NULL, bytes is 0, or "
                         "flags is none of HVD_STATE_");
    if (!name[0] || strnlen(name, HVD_STATE_NAME_MAX) == HVD_STATE_NAME_MAX)
        return hvd__fail(HVD_EINVAL, "hvd_state_add: a name has 1 to %d bytes",
                         HVD_STATE_NAME_MAX - 1);
    if (find(s, name))
        return hvd__fail(HVD_EINVAL, "hvd_state_add: '%s' was added before",
                         name);
    if (may_be_empty && s->whole == HVD__STATE_SYNCED)
        return hvd__fail(HVD_EINVAL,
                         "hvd_state_add: '%s' is sharded; add it before the "
                         "first hvd_sync",
                         name);
    return 0;
}

/* Makes the copies that blocks lack: a state with shards returns to its last
 * commit as a whole.  Returns 1, or 0 without memory, and then nothing has
 * changed. */
static int copy_all(struct hvd_state *s)
{
    size_t i;

    for (i = 0; i < s->count; i++) {
        struct hvd__state_block *b = &s->blocks[i];

        if (b->copy)
            continue;
        b->copy = hb_malloc(b->bytes);
        if (!b->copy)
            break;
        memcpy(b->copy, b->p, b->bytes);
    }
    if (i == s->count)
        return 1;
    while (i-- > 0)
        if (!(s->blocks[i].flags & HVD_STATE_SNAPSHOT)) {
            hb_free(s->blocks[i].copy);
            s->blocks[i].copy = NULL;
        }
    return 0;
}

/* Prepares for another block: what it needs besides its place.  Returns 1, or 0
 * without memory. */
static int prepare(struct hvd_state *s, struct hvd__state_block *block)
{
    if (!make_room(s))
        return 0;
    if (block->flags & HVD_STATE_SHARDED)
        return s->shards.blocks || copy_all(s);
    if (!(block->flags & HVD_STATE_SNAPSHOT) && !s->shards.blocks)
        return 1;
    block->copy = hb_malloc(block->bytes);
    if (block->copy)
        memcpy(block->copy, block->p, block->bytes);
    return block->copy != NULL;
}

int hvd_state_add(hvd_state *s, const char *name, void *p, size_t bytes,
                  unsigned flags)
{
    struct hvd__state_block block = {.p = p, .bytes = bytes, .flags = flags};
    int rc = check(s, name, p, bytes, flags);

    if (rc < 0)
        return rc;
    if (!prepare(s, &block))
        return hvd__fail(HVD_ENOMEM,
                         "hvd_state_add: no memory for '%s' (%zu bytes)", name,
                         bytes);
    memcpy(block.name, name, strlen(name));
    if (flags & HVD_STATE_SHARDED) {
        block.flags |= HVD_STATE_SNAPSHOT;
        s->shards.blocks++;
    }
    s->blocks[s->count++] = block;
    return 0;
}

/* Finds a sharded block; NULL: the call has failed. */
static struct hvd__state_block *sharded(const struct hvd_state *s,
                                        const char *name, const char *call)
{
    struct hvd__state_block *b = s && name ? find(s, name) : NULL;

    if (b && b->flags & HVD_STATE_SHARDED)
        return b;
    hvd__fail(HVD_EINVAL, "%s: the state has no sharded memory of that name",
              call);
    return NULL;
}

int hvd_state_resize(hvd_state *s, const char *name, void *p, size_t bytes)
{
    struct hvd__state_block *b = sharded(s, name, "hvd_state_resize");

    if (!b)
        return -HVD_EINVAL;
    if (!p && bytes)
        return hvd__fail(HVD_EINVAL, "hvd_state_resize: p is NULL");
    s->shards.is_resized |= b->bytes != bytes;
    s->shards.is_replaced |=
        s->shards.is_taken && (b->p != p || b->bytes != bytes);
    b->p = p;
    b->bytes = bytes;
    return 0;
}

int hvd_state_shards(const hvd_state *s, const char *name, size_t *bytes,
                     int count)
{
    const struct hvd__state_block *b = sharded(s, name, "hvd_state_shards");
    const struct hvd__shard_layout *l = b ? s->shards.known : NULL;
    size_t at = 0;

    if (!b)
        return -HVD_EINVAL;
    if (count < 0 || (count > 0 && !bytes))
        return hvd__fail(HVD_EINVAL, "hvd_state_shards: bytes is NULL, or "
                                     "count is negative");
    for (const struct hvd__state_block *i = s->blocks; i < b; i++)
        at += (i->flags & HVD_STATE_SHARDED) != 0;
    /* Memory may be added after an hvd_sync that has failed. */
    if (!l || at >= l->blocks)
        return hvd__fail(HVD_ENOENT, "hvd_state_shards: no hvd_sync has "
                                     "found or made shards yet");
    for (int r = 0; r < l->n && r < count; r++)
        bytes[r] = (size_t)l->bytes[(size_t)r * l->blocks + at];
    return l->n;
}

int hvd_restore(hvd_state *s)
{
    if (!s || s->whole != HVD__STATE_SYNCED)
        return hvd__fail(HVD_EINVAL,
                         "hvd_restore: the state is NULL, or hvd_sync has not "
                         "returned 0 for it");
    hvd__state_rewind(s);
    if (s->shards.confirmed >= 0)
        hvd__shards_unpack(s);
    s->is_restored = 1;
    for (size_t i = 0; i < s->count; i++)
        s->is_restored &= (s->blocks[i].flags & HVD_STATE_SNAPSHOT) != 0;
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
        int is_sharded = (b->flags & HVD_STATE_SHARDED) != 0;
        const uint64_t numbers[] = {is_sharded ? 0 : b->bytes, b->flags};

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
    if (s->whole == HVD__STATE_SYNCED && !s->is_restored && !s->shards.blocks)
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

void hvd__state_keep(struct hvd_state *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i].copy)
            memcpy(s->blocks[i].copy, s->blocks[i].p, s->blocks[i].bytes);
}

void hvd__state_rewind(struct hvd_state *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i].copy)
            memcpy(s->blocks[i].p, s->blocks[i].copy, s->blocks[i].bytes);
}

void hvd__state_forget(struct hvd_state *s)
{
    s->whole = HVD__STATE_NEW;
    s->is_restored = 0;
    s->version = 0;
    s->shards.confirmed = -1;
    for (int i = 0; i < HVD__SHARD_SLOTS; i++)
        s->shards.slot[i].seq = 0;
}

void hvd__state_settle(struct hvd_state *s, uint64_t version, uint32_t epoch,
                       uint64_t done)
{
    s->whole = HVD__STATE_SYNCED;
    s->is_restored = 0;
    s->version = version;
    s->epoch = epoch;
    s->done = done;
    hvd__state_keep(s);
}
