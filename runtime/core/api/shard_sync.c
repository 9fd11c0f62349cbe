/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps shards in the memory of other ranks; see shard_sync.h. */
#include "runtime/core/api/shard_sync.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/protocol/segment.h"
#include "runtime/core/api/shard_deal.h"
#include "runtime/core/set/words.h"
#include "runtime/core/set/world_set.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

/* What the ranks tell each other in words before the sizes of their blocks. */
enum { WORD_HOST, WORD_LEAVES, WORDS_BEFORE_SIZES };

static int no_memory(const char *what)
{
    return hvd__fail(HVD_ENOMEM, "no memory for %s of shards", what);
}

int hvd__shards_allowed(void)
{
    int64_t multiple = 1;

    if (!atomic_load(&hvd__context.generation) ||
        hb_knob_i64("NP_MULTIPLE", 1, INT32_MAX, &multiple, NULL) < 0 ||
        multiple == 1)
        return 0;
    return hvd__fail(
        HVD_EINVAL,
        "hvd_sync: memory with HVD_STATE_SHARDED would be lost with "
        "ranks that --np-multiple %d leaves out; run without "
        "--np-multiple",
        (int)multiple);
}

/* ---- The layout of the world --------------------------------------------- */

/* Returns the lowest rank of this host. */
static uint64_t lowest_rank(void)
{
    const struct worker_welcome *w = hvd__world_welcome();
    uint32_t lowest = (uint32_t)hvd__context.topology.rank;

    for (uint32_t i = 0; i < w->local_size; i++)
        if (w->local_ranks[i] < lowest)
            lowest = w->local_ranks[i];
    return lowest;
}

/* Returns whether this rank is asked to leave. */
static int is_leaving(void)
{
    const struct segment_head *head = hvd__world_head();
    int local_rank = hvd__context.topology.local_rank;

    /* Acquire: see hvd__shards_commit_begin. */
    return head && atomic_load_explicit(&head->wake[local_rank].notice_ns,
                                        memory_order_acquire) != 0;
}

/* Writes this rank's words. */
static void fill_words(const struct hvd_state *s, uint64_t *words)
{
    words[WORD_HOST] = lowest_rank();
    words[WORD_LEAVES] = (uint64_t)is_leaving();
    words += WORDS_BEFORE_SIZES;
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i].flags & HVD_STATE_SHARDED)
            *words++ = s->blocks[i].bytes;
}

/* Chooses the keepers of a layout by the words of all ranks.  Returns 1, or 0
 * without memory. */
static int choose_keepers(struct hvd__shard_layout *l, const uint64_t *words)
{
    size_t n = (size_t)l->n, row = WORDS_BEFORE_SIZES + l->blocks;
    int *host = hb_calloc(3 * n, sizeof(*host));
    unsigned char *leaves = hb_calloc(n, 1);

    for (size_t r = 0; r < n && host && leaves; r++) {
        host[r] = (int)(words[r * row + WORD_HOST] % n);
        leaves[r] = words[r * row + WORD_LEAVES] != 0;
        l->keeper[r] = (int)r;
    }
    /* Where the world never changes nobody needs copies. */
    if (host && leaves && atomic_load(&hvd__context.generation))
        hvd__shard_keepers(host, leaves, l->n, l->keeper, host + n);
    hb_free(leaves);
    hb_free(host);
    return host && leaves;
}

/* Finds out the sizes of all ranks' shards, and chooses their keepers. */
static int agree_layout(const struct hvd_state *s,
                        struct hvd__shard_layout **layout)
{
    size_t n = (size_t)hvd__context.topology.size, blocks = s->shards.blocks;
    size_t row = WORDS_BEFORE_SIZES + blocks, bytes = row * sizeof(uint64_t);
    struct hvd__shard_layout *l = hvd__shard_layout_new((int)n, blocks);
    uint64_t *own = hb_calloc(row, sizeof(*own));
    uint64_t *all = hb_calloc(n * row, sizeof(*all));
    struct hb_error err = HB_ERROR_INIT;
    int rc = l && own && all ? 0 : no_memory("the sizes");

    if (rc == 0) {
        fill_words(s, own);
        hvd__words_allgather(own, bytes, all, n * bytes, &err);
        rc = hvd__tell(&err);
    }
    for (size_t r = 0; r < n && rc == 0; r++)
        for (size_t b = 0; b < blocks; b++)
            l->bytes[r * blocks + b] = all[r * row + WORDS_BEFORE_SIZES + b];
    if (rc == 0 && !choose_keepers(l, all))
        rc = no_memory("the keepers");
    if (rc == 0 && !hvd__shard_layout_is_sane(l))
        rc = hvd__fail(HVD_EINVAL, "the ranks' shards are too large in all");
    hb_free(all);
    hb_free(own);
    if (rc < 0) {
        hvd__shard_layout_unref(l);
        return rc;
    }
    l->epoch = hvd__world_epoch();
    *layout = l;
    return 0;
}

/* ---- Copies -------------------------------------------------------------- */

/* Sends this rank's shard to its keeper, and receives those that it keeps. */
static int exchange(struct hvd__shard_slot *slot)
{
    const struct hvd__shard_layout *l = slot->layout;
    size_t *counts, bytes = 0;
    int to = l->keeper[slot->me], any = 0, rc;

    for (int r = 0; r < l->n; r++)
        any |= l->keeper[r] != r;
    if (!any)
        return 0;
    counts = hb_calloc((size_t)l->n, sizeof(*counts));
    if (!counts)
        return no_memory("the copies");
    if (to != slot->me)
        bytes = counts[to] = slot->own.bytes;
    rc = hvd_alltoall(slot->own.p, counts, bytes, slot->kept.p,
                      slot->kept.bytes, NULL, HVD_UINT8, NULL);
    hb_free(counts);
    return rc;
}

int hvd__shards_copy(struct hvd_state *s, struct hvd__shard_layout *layout,
                     int target)
{
    struct hvd__shard_slot *slot = &s->shards.slot[target];
    uint64_t seq = ++s->shards.last;
    int rc;

    if (hvd__shard_slot_open(slot, layout, hvd__context.topology.rank) < 0)
        return no_memory("copies");
    hvd__shards_pack(s, slot);
    rc = exchange(slot);
    if (rc == 0)
        slot->seq = seq;
    return rc;
}

int hvd__shards_confirm(struct hvd_state *s, int target)
{
    struct hvd__shards *shards = &s->shards;
    struct hb_error err = HB_ERROR_INIT;
    int32_t word = 1;

    /* Whoever gets the sum knows that all have begun to add it up. */
    if (hvd__words_allreduce(&word, &word, 1, HVD_INT32, HVD_SUM, &err) < 0)
        return hvd__tell(&err);
    shards->confirmed = target;
    shards->is_resized = shards->is_replaced = 0;
    hvd__shard_layout_unref(shards->known);
    shards->known = hvd__shard_layout_ref(shards->slot[target].layout);
    return 0;
}

/* Returns the slot to write while one is kept, or while none is (-1). */
static int other_slot(int kept)
{
    return kept < 0 ? 0 : HVD__SHARD_SLOTS - 1 - kept;
}

/* ---- hvd_commit ---------------------------------------------------------- */

/* Returns whether the confirmed slot is of the world and the memory as they
 * are. */
static int is_current(const struct hvd__shards *shards)
{
    return shards->confirmed >= 0 && !shards->is_resized &&
           shards->slot[shards->confirmed].layout->epoch == hvd__world_epoch();
}

int hvd__shards_commit_begin(struct hvd_state *s, int change,
                             struct hvd__shard_layout **layout)
{
    struct hvd__shards *shards = &s->shards;
    int32_t words[] = {-(change != 0), !is_current(shards)};
    struct hb_error err = HB_ERROR_INIT;
    int rc = 0;

    /* The greatest of the negatives: all hosts must know of the change, because
     * agents that know of it have told their ranks who is to leave. */
    if (hvd__words_allreduce(words, words, 2, HVD_INT32, HVD_MAX, &err) < 0)
        return hvd__tell(&err);
    change = words[0] != 0;
    if (change || words[1])
        rc = agree_layout(s, layout);
    else
        *layout = hvd__shard_layout_ref(shards->slot[shards->confirmed].layout);
    return rc < 0 ? rc : change;
}

int hvd__shards_commit(struct hvd_state *s, int change)
{
    struct hvd__shard_layout *layout = NULL;
    int target = other_slot(s->shards.confirmed);
    int changes = hvd__shards_commit_begin(s, change, &layout);
    int rc = changes < 0 ? changes : hvd__shards_copy(s, layout, target);

    if (rc == 0)
        rc = hvd__shards_confirm(s, target);
    hvd__shard_layout_unref(layout);
    return rc < 0 ? rc : changes;
}

/* ---- hvd_sync ------------------------------------------------------------ */

/* Tells the others of this rank's slots, and gets all ranks' cards [size]. */
static int exchange_cards(const struct hvd_state *s,
                          struct hvd__shard_card *cards)
{
    const struct hvd__shards *shards = &s->shards;
    size_t n = (size_t)hvd__context.topology.size;
    struct hvd__shard_card own = {.last = shards->last,
                                  .is_current = is_current(shards) != 0,
                                  .is_replaced = shards->is_replaced != 0};
    struct hb_error err = HB_ERROR_INIT;

    if (shards->confirmed >= 0)
        own.confirmed = shards->slot[shards->confirmed].seq;
    for (int i = 0; i < HVD__SHARD_SLOTS; i++) {
        const struct hvd__shard_slot *slot = &shards->slot[i];

        own.seq[i] = slot->seq;
        own.rank[i] = (uint32_t)slot->me;
        own.size[i] = slot->layout ? (uint32_t)slot->layout->n : 0;
    }
    hvd__words_allgather(&own, sizeof(own), cards, n * sizeof(own), &err);
    return hvd__tell(&err);
}

/* Returns to the shards of number `newest`, of which this rank has a slot or
 * none (-1).  Sets the layout of the world. */
static int restore(struct hvd_state *s, const struct hvd__shard_card *cards,
                   uint64_t newest, int kept, struct hvd__shard_layout **layout)
{
    struct hvd__shard_deal deal = {.cards = cards,
                                   .seq = newest,
                                   .n = hvd__context.topology.size,
                                   .me = hvd__context.topology.rank};
    int rc;

    if (kept >= 0)
        deal.slot = &s->shards.slot[kept];
    rc = hvd__shard_deal_find(&deal, s->shards.blocks);
    if (rc == 0) {
        hvd__shard_layout_unref(s->shards.known);
        s->shards.known = hvd__shard_layout_ref(deal.old);
        rc = agree_layout(s, &deal.layout);
    }
    if (rc == 0)
        rc = hvd__shard_deal_out(&deal, s);
    if (rc == 0)
        *layout = hvd__shard_layout_ref(deal.layout);
    hvd__shard_deal_fini(&deal);
    return rc;
}

/* Takes the memory's contents for the job's first shards, and sets their
 * layout. */
static int begin(const struct hvd_state *s, const struct hvd__shard_card *cards,
                 struct hvd__shard_layout **layout)
{
    for (int i = 0; i < hvd__context.topology.size; i++)
        if (cards[i].is_replaced)
            return hvd__fail(
                HVD_ENOENT,
                "hvd_sync: a rank ended in the first hvd_sync, and rank %d has "
                "replaced the start values of its shards since; start the job "
                "again",
                i);
    return agree_layout(s, layout);
}

/* Sets the state's version and the confirmed slot together, so that memory with
 * and without shards is always of the same commit, also if a later step of
 * hvd_sync fails.  kept: this rank's slot of the commit, or -1, and then it
 * cannot return to any commit. */
static void hold(struct hvd_state *s, uint64_t version, int kept)
{
    /* Some rank has confirmed the commit, so all ranks' slots are whole. */
    s->shards.confirmed = kept;
    s->whole = HVD__STATE_IN_PART;
    if (kept < 0)
        return;
    s->whole = HVD__STATE_SYNCED;
    s->version = version;
    hvd__state_keep(s);
}

/* Fills the memory from what the cards tell of; as hvd__shards_sync_begin. */
static int go_back(struct hvd_state *s, uint64_t version,
                   const struct hvd__shard_card *cards,
                   struct hvd__shard_layout **layout, int *target)
{
    int n = hvd__context.topology.size, all_current = 1;
    uint64_t newest = hvd__shard_newest(cards, n);
    int kept = hvd__shard_slot_of(&cards[hvd__context.topology.rank], newest);

    for (int i = 0; i < n; i++) {
        all_current &= cards[i].is_current && cards[i].confirmed == newest;
        if (cards[i].last > s->shards.last)
            s->shards.last = cards[i].last;
    }
    *target = other_slot(kept);
    if (newest == 0)
        return begin(s, cards, layout);
    hold(s, version, kept);
    if (!all_current)
        return restore(s, cards, newest, kept, layout);
    hvd__shards_unpack(s);
    return 0;
}

int hvd__shards_sync_begin(struct hvd_state *s, uint64_t version,
                           struct hvd__shard_layout **layout, int *target)
{
    size_t n = (size_t)hvd__context.topology.size;
    struct hvd__shard_card *cards = hb_calloc(n, sizeof(*cards));
    int rc = cards ? exchange_cards(s, cards) : no_memory("the numbers");

    *layout = NULL;
    if (rc == 0)
        rc = go_back(s, version, cards, layout, target);
    hb_free(cards);
    return rc;
}

int hvd__shards_sync(struct hvd_state *s, uint64_t version)
{
    struct hvd__shard_layout *layout = NULL;
    int target, rc = hvd__shards_sync_begin(s, version, &layout, &target);

    if (rc == 0 && layout)
        rc = hvd__shards_copy(s, layout, target);
    if (rc == 0 && layout)
        rc = hvd__shards_confirm(s, target);
    hvd__shard_layout_unref(layout);
    return rc;
}
