/* SPDX-License-Identifier: Apache-2.0 */
/* Deals shards out; see shard_deal.h. */
#include "runtime/core/api/shard_deal.h"

#include "lib/base/alloc.h"
#include "runtime/core/world/message.h"

#include <inttypes.h>
#include <string.h>

static int no_memory(void)
{
    return hvd__fail(HVD_ENOMEM, "hvd_sync: no memory for shards");
}

/* ---- What the commit was like -------------------------------------------- */

/* Takes the layout that a peer has sent: keepers, then sizes. */
static int take_layout(struct hvd__shard_layout *l, const uint64_t *words)
{
    for (int r = 0; r < l->n; r++)
        l->keeper[r] = words[r] < (uint64_t)l->n ? (int)words[r] : -1;
    memcpy(l->bytes, words + l->n,
           (size_t)l->n * l->blocks * sizeof(*l->bytes));
    if (!hvd__shard_layout_is_sane(l))
        return hvd__fail(HVD_EPROTO,
                         "hvd_sync: a rank has sent sizes of shards that "
                         "cannot be");
    return 0;
}

/* Copies the layout of this rank's slot into words. */
static void give_layout(const struct hvd__shard_layout *l, uint64_t *words)
{
    for (int r = 0; r < l->n; r++)
        words[r] = (uint64_t)l->keeper[r];
    memcpy(words + l->n, l->bytes,
           (size_t)l->n * l->blocks * sizeof(*l->bytes));
}

/* Gets the commit's layout, of old_n ranks, from rank `source`, on the ranks
 * that have no slot of it. */
static int spread_layout(struct hvd__shard_deal *d, int source, int old_n,
                         size_t blocks)
{
    size_t count = (size_t)old_n * (blocks + 1);
    uint64_t *words = hb_calloc(count, sizeof(*words));
    int rc;

    d->old = d->slot ? hvd__shard_layout_ref(d->slot->layout)
                     : hvd__shard_layout_new(old_n, blocks);
    if (words && d->slot)
        give_layout(d->slot->layout, words);
    rc = words && d->old ? hvd_broadcast(words, words, count * sizeof(*words),
                                         HVD_UINT8, source, NULL)
                         : no_memory();
    if (rc == 0 && !d->slot)
        rc = take_layout(d->old, words);
    hb_free(words);
    return rc;
}

/* Returns the number of shards of the commit, as a rank's card gives it; 0 if
 * the rank has no slot of the commit. */
static uint32_t size_of(const struct hvd__shard_deal *d, int rank)
{
    int slot = hvd__shard_slot_of(&d->cards[rank], d->seq);

    return slot < 0 ? 0 : d->cards[rank].size[slot];
}

/* Checks that the slots of all ranks are of old_n shards.  Returns whether all
 * ranks have one, or -HVD_EPROTO. */
static int check_sizes(const struct hvd__shard_deal *d, int source,
                       uint32_t old_n)
{
    int all_have = 1;

    for (int i = 0; i < d->n; i++) {
        if (hvd__shard_slot_of(&d->cards[i], d->seq) < 0)
            all_have = 0;
        else if (size_of(d, i) != old_n)
            return hvd__fail(HVD_EPROTO,
                             "hvd_sync: rank %d tells of %" PRIu32
                             " shards, and rank %d of %" PRIu32,
                             source, old_n, i, size_of(d, i));
    }
    if (d->slot && (uint32_t)d->slot->layout->n != old_n)
        return hvd__fail(HVD_EPROTO,
                         "hvd_sync: rank %d tells of %" PRIu32
                         " shards, and there are %d",
                         source, old_n, d->slot->layout->n);
    return all_have;
}

static int get_layout(struct hvd__shard_deal *d, size_t blocks)
{
    int source = hvd__shard_source(d->cards, d->n, d->seq), all_have;
    uint32_t old_n;

    if (source < 0)
        return hvd__fail(HVD_EPROTO,
                         "hvd_sync: no rank has shards %" PRIu64
                         ", but one tells of them",
                         d->seq);
    old_n = size_of(d, source);
    if (old_n == 0 || old_n > HVD__SHARD_RANKS_MAX)
        return hvd__fail(HVD_EPROTO,
                         "hvd_sync: rank %d tells of %" PRIu32 " shards",
                         source, old_n);
    all_have = check_sizes(d, source, old_n);
    if (all_have < 0)
        return all_have;
    if (!all_have)
        return spread_layout(d, source, (int)old_n, blocks);
    d->old = hvd__shard_layout_ref(d->slot->layout);
    return 0;
}

/* Returns the first shard with contents that nobody has, or -1. */
static int find_lost(const struct hvd__shard_deal *d)
{
    for (int r = 0; r < d->old->n; r++)
        if (d->holder[r] < 0 && hvd__shard_bytes(d->old, r) > 0)
            return r;
    return -1;
}

int hvd__shard_deal_find(struct hvd__shard_deal *d, size_t blocks)
{
    int rc = get_layout(d, blocks), lost;
    size_t old_n = rc == 0 ? (size_t)d->old->n : 1;

    d->holder = hb_calloc(old_n, sizeof(*d->holder));
    d->at = hb_calloc(old_n, sizeof(*d->at));
    if (rc == 0 && (!d->holder || !d->at))
        rc = no_memory();
    if (rc < 0)
        return rc;
    hvd__shard_holders(d->cards, d->n, d->seq, d->old->keeper, d->old->n,
                       d->holder, d->at);
    lost = find_lost(d);
    if (lost < 0)
        return 0;
    if (d->old->keeper[lost] == lost)
        return hvd__fail(HVD_ENOENT,
                         "hvd_sync: the shard of what was rank %d is lost: no "
                         "other rank was there to keep a copy",
                         lost);
    return hvd__fail(HVD_ENOENT,
                     "hvd_sync: the shard of what was rank %d is lost: both it "
                     "and rank %d, which kept a copy, have ended; start the "
                     "job again from its last checkpoint",
                     lost, d->old->keeper[lost]);
}

/* ---- Dealing out --------------------------------------------------------- */

/* One block while it is dealt out. */
struct block {
    const struct hvd__shard_deal *d;
    size_t index;     /* among the sharded ones */
    unsigned char *p; /* the state's memory */
    struct hvd__shard_piece *pieces;
    size_t count;
    size_t *sends, *receives; /* bytes [n] */
};

static int holder_of(const struct block *b, const struct hvd__shard_piece *i)
{
    return b->d->holder[i->from];
}

/* Returns where this rank has a piece, of which it is the holder. */
static const unsigned char *find_piece(const struct block *b,
                                       const struct hvd__shard_piece *i)
{
    return hvd__shard_find(b->d->slot, i->from, b->index) + i->from_at;
}

/* Counts the bytes that this rank sends to, and receives from, each other
 * rank.  Returns whether any rank sends something. */
static int count_bytes(const struct block *b, size_t *sent, size_t *received)
{
    int moves = 0;

    *sent = *received = 0;
    for (size_t k = 0; k < b->count; k++) {
        const struct hvd__shard_piece *i = &b->pieces[k];
        int holder = holder_of(b, i);

        if (holder == i->to)
            continue;
        moves = 1;
        if (holder == b->d->me) {
            b->sends[i->to] += i->bytes;
            *sent += i->bytes;
        } else if (i->to == b->d->me) {
            b->receives[holder] += i->bytes;
            *received += i->bytes;
        }
    }
    return moves;
}

/* Copies the pieces that this rank sends to `out`, in the order of b->pieces,
 * and those that stay here to its new block. */
static void take_own(const struct block *b, unsigned char *out)
{
    for (size_t k = 0; k < b->count; k++) {
        const struct hvd__shard_piece *i = &b->pieces[k];

        if (holder_of(b, i) != b->d->me)
            continue;
        if (i->to == b->d->me) {
            memcpy(b->p + i->to_at, find_piece(b, i), i->bytes);
            continue;
        }
        memcpy(out, find_piece(b, i), i->bytes);
        out += i->bytes;
    }
}

/* Copies what has come, by rank, into this rank's memory. */
static void take_received(const struct block *b, const unsigned char *in)
{
    size_t at = 0;

    for (int r = 0; r < b->d->n; r++) {
        size_t bytes = b->receives[r];

        b->receives[r] = at;
        at += bytes;
    }
    for (size_t k = 0; k < b->count; k++) {
        const struct hvd__shard_piece *i = &b->pieces[k];
        int holder = holder_of(b, i);

        if (i->to != b->d->me || holder == b->d->me)
            continue;
        memcpy(b->p + i->to_at, in + b->receives[holder], i->bytes);
        b->receives[holder] += i->bytes;
    }
}

static int move_pieces(const struct block *b)
{
    size_t sent, received;
    int moves = count_bytes(b, &sent, &received), rc = 0;
    unsigned char *out = NULL, *in = NULL;

    if (moves) {
        out = hb_malloc(sent + 1);
        in = hb_malloc(received + 1);
        rc = out && in ? 0 : no_memory();
    }
    if (rc == 0)
        take_own(b, out);
    if (rc == 0 && moves)
        rc = hvd_alltoall(out, b->sends, sent, in, received, NULL, HVD_UINT8,
                          NULL);
    if (rc == 0 && moves)
        take_received(b, in);
    hb_free(in);
    hb_free(out);
    return rc;
}

/* Deals one block out: the index-th of those that are sharded. */
static int deal_block(const struct hvd__shard_deal *d, size_t index, void *p)
{
    const struct hvd__shard_layout *old = d->old, *new = d->layout;
    size_t n = (size_t)d->n, most = (size_t)old->n + n;
    struct block b = {.d = d, .index = index, .p = p};
    int rc;

    b.pieces = hb_calloc(most, sizeof(*b.pieces));
    b.sends = hb_calloc(n, sizeof(*b.sends));
    b.receives = hb_calloc(n, sizeof(*b.receives));
    if (b.pieces && b.sends && b.receives) {
        b.count =
            hvd__shard_deal(old->bytes + index, old->n, new->bytes + index,
                            new->n, new->blocks, b.pieces);
        rc = move_pieces(&b);
    } else {
        rc = no_memory();
    }
    hb_free(b.receives);
    hb_free(b.sends);
    hb_free(b.pieces);
    return rc;
}

/* Checks that the world has memory for all of a block, and no more. */
static int check_total(const struct hvd__shard_deal *d, size_t index,
                       const char *name)
{
    const struct hvd__shard_layout *old = d->old, *new = d->layout;
    uint64_t had = 0, has = 0;

    /* Both are sane, so their sums can be. */
    hvd__shard_total(old->bytes + index, (size_t)old->n, old->blocks, &had);
    hvd__shard_total(new->bytes + index, (size_t) new->n, new->blocks, &has);
    if (had == has)
        return 0;
    return hvd__fail(HVD_EMISMATCH,
                     "hvd_sync: the %d shards of '%s' have %" PRIu64
                     " bytes in all, and the memory of the %d ranks %" PRIu64
                     "; call hvd_state_resize in the function of hvd_on_resize",
                     old->n, name, had, new->n, has);
}

int hvd__shard_deal_out(struct hvd__shard_deal *d, struct hvd_state *s)
{
    size_t index = 0;
    int rc = 0;

    for (size_t i = 0; i < s->count && rc == 0; i++)
        if (s->blocks[i].flags & HVD_STATE_SHARDED)
            rc = check_total(d, index++, s->blocks[i].name);
    index = 0;
    for (size_t i = 0; i < s->count && rc == 0; i++)
        if (s->blocks[i].flags & HVD_STATE_SHARDED)
            rc = deal_block(d, index++, s->blocks[i].p);
    return rc;
}

void hvd__shard_deal_fini(struct hvd__shard_deal *d)
{
    hb_free(d->holder);
    hb_free(d->at);
    hvd__shard_layout_unref(d->old);
    hvd__shard_layout_unref(d->layout);
}
