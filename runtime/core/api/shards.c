/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of shards that a rank holds; see shards.h. */
#include "runtime/core/api/shards.h"

#include "lib/base/alloc.h"
#include "runtime/core/api/state.h"

#include <string.h>

/* ---- Layouts ------------------------------------------------------------- */

struct hvd__shard_layout *hvd__shard_layout_new(int n, size_t blocks)
{
    struct hvd__shard_layout *l = hb_calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->refs = 1;
    l->n = n;
    l->blocks = blocks;
    l->keeper = hb_calloc((size_t)n, sizeof(*l->keeper));
    l->bytes = hb_calloc((size_t)n * blocks, sizeof(*l->bytes));
    if (l->keeper && l->bytes)
        return l;
    hvd__shard_layout_unref(l);
    return NULL;
}

struct hvd__shard_layout *hvd__shard_layout_ref(struct hvd__shard_layout *l)
{
    l->refs++;
    return l;
}

void hvd__shard_layout_unref(struct hvd__shard_layout *l)
{
    if (!l || --l->refs > 0)
        return;
    hb_free(l->keeper);
    hb_free(l->bytes);
    hb_free(l);
}

int hvd__shard_layout_is_sane(const struct hvd__shard_layout *l)
{
    uint64_t total;

    for (int r = 0; r < l->n; r++)
        if (l->keeper[r] < 0 || l->keeper[r] >= l->n)
            return 0;
    return hvd__shard_total(l->bytes, (size_t)l->n * l->blocks, 1, &total);
}

uint64_t hvd__shard_at(const struct hvd__shard_layout *l, int rank,
                       size_t block)
{
    uint64_t at = 0;

    for (size_t b = 0; b < block; b++)
        at += l->bytes[(size_t)rank * l->blocks + b];
    return at;
}

uint64_t hvd__shard_bytes(const struct hvd__shard_layout *l, int rank)
{
    return hvd__shard_at(l, rank, l->blocks);
}

uint64_t hvd__shard_kept_at(const struct hvd__shard_layout *l, int keeper,
                            int rank)
{
    uint64_t at = 0;

    for (int r = 0; r < rank; r++)
        if (r != keeper && l->keeper[r] == keeper)
            at += hvd__shard_bytes(l, r);
    return at;
}

/* ---- Slots --------------------------------------------------------------- */

void hvd__shards_init(struct hvd__shards *shards)
{
    memset(shards, 0, sizeof(*shards));
    shards->confirmed = -1;
}

void hvd__shards_fini(struct hvd__shards *shards)
{
    for (int i = 0; i < HVD__SHARD_SLOTS; i++) {
        hvd__shard_layout_unref(shards->slot[i].layout);
        hb_free(shards->slot[i].own.p);
        hb_free(shards->slot[i].kept.p);
    }
    hvd__shard_layout_unref(shards->known);
}

/* Gives memory this many bytes, and not many more than these; its contents are
 * lost.  Returns 0 or -HVD_ENOMEM. */
static int make_room(struct hvd__shard_memory *m, uint64_t bytes)
{
    size_t cap = bytes ? bytes : 1;

    m->bytes = 0;
    if (!m->p || m->cap < cap || m->cap / 2 > cap) {
        hb_free(m->p);
        m->cap = 0;
        m->p = hb_malloc(cap);
        if (!m->p)
            return -HVD_ENOMEM;
        m->cap = cap;
    }
    m->bytes = bytes;
    return 0;
}

int hvd__shard_slot_open(struct hvd__shard_slot *slot,
                         struct hvd__shard_layout *l, int me)
{
    int rc;

    slot->seq = 0;
    slot->me = me;
    hvd__shard_layout_ref(l);
    hvd__shard_layout_unref(slot->layout);
    slot->layout = l;
    rc = make_room(&slot->own, hvd__shard_bytes(l, me));
    if (rc == 0)
        rc = make_room(&slot->kept, hvd__shard_kept_at(l, me, l->n));
    return rc;
}

const unsigned char *hvd__shard_find(const struct hvd__shard_slot *slot,
                                     int rank, size_t block)
{
    const struct hvd__shard_layout *l = slot->layout;
    const unsigned char *shard = slot->own.p;

    if (rank != slot->me)
        shard = slot->kept.p + hvd__shard_kept_at(l, slot->me, rank);
    return shard + hvd__shard_at(l, rank, block);
}

void hvd__shards_pack(const struct hvd_state *s, struct hvd__shard_slot *slot)
{
    unsigned char *to = slot->own.p;

    for (size_t i = 0; i < s->count; i++) {
        const struct hvd__state_block *b = &s->blocks[i];

        if (!(b->flags & HVD_STATE_SHARDED) || b->bytes == 0)
            continue;
        memcpy(to, b->p, b->bytes);
        to += b->bytes;
    }
}

void hvd__shards_unpack(const struct hvd_state *s)
{
    const struct hvd__shard_slot *slot = &s->shards.slot[s->shards.confirmed];
    const uint64_t *bytes =
        slot->layout->bytes + (size_t)slot->me * slot->layout->blocks;
    const unsigned char *from = slot->own.p;

    for (size_t i = 0; i < s->count; i++) {
        const struct hvd__state_block *b = &s->blocks[i];

        if (!(b->flags & HVD_STATE_SHARDED))
            continue;
        if (b->bytes == *bytes && b->bytes > 0)
            memcpy(b->p, from, b->bytes);
        from += *bytes++;
    }
}
