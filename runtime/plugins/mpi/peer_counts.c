/* SPDX-License-Identifier: Apache-2.0 */
/* Headers and sizes; see peer_counts.h. */
#include "runtime/plugins/mpi/peer_counts.h"

#include "runtime/plane/op.h"

void mp_merge_header(uint64_t head[MP_WORDS], const uint64_t in[MP_WORDS])
{
    uint64_t flags = in[MP_FLAGS];

    if (in[MP_SIGNATURE] != head[MP_SIGNATURE])
        flags &= ~(uint64_t)MP_SAME;
    if (in[MP_FIRST] != head[MP_FIRST])
        flags &= ~(uint64_t)MP_SAME_FIRST;
    head[MP_FLAGS] &= flags;
    if (in[MP_LEAST] < head[MP_LEAST])
        head[MP_LEAST] = in[MP_LEAST];
}

int mp_find_places(const struct mp_limits *l, const uint64_t *elems, int step,
                   size_t *offset, size_t *longest)
{
    *longest = 0;
    offset[0] = 0;
    for (int r = 0; r < l->n; r++, elems += step) {
        offset[r + 1] = offset[r];
        if (!hvd__op_add(&offset[r + 1], *elems, l->elem_bytes))
            return -HVD_EPROTO;
        if (*elems > *longest)
            *longest = *elems;
    }
    return 0;
}

/* Plans rounds for ranks with at most `longest` elements; none if nobody has
 * room. */
static void plan_rounds(const struct mp_limits *l, size_t longest, int has_room,
                        struct mp_plan *plan)
{
    size_t most = l->scratch_bytes / l->elem_bytes;

    most = (most < l->max_elems ? most : l->max_elems) / (size_t)l->n;
    plan->piece = plan->windowed ? (most ? most : 1) : longest;
    plan->rounds = has_room && longest ? (longest - 1) / plan->piece + 1 : 0;
}

int mp_plan_gather(const struct mp_limits *l, const uint64_t *cards,
                   size_t *offset, struct mp_plan *plan)
{
    size_t longest, total;
    int with_room = 0;
    int rc =
        mp_find_places(l, cards + MP_HAS, MP_GATHER_WORDS, offset, &longest);

    if (rc < 0)
        return rc;
    total = offset[l->n];
    for (int r = 0; r < l->n; r++)
        with_room += cards[MP_GATHER_WORDS * r + MP_ROOM] >= total;
    plan->windowed = with_room < l->n || total > l->max_elems;
    plan_rounds(l, longest, with_room > 0, plan);
    return 0;
}

int mp_plan_splits(const struct mp_limits *l, const uint64_t *card,
                   struct mp_plan *plan)
{
    if (card[MP_LONGEST] > PTRDIFF_MAX / l->elem_bytes)
        return -HVD_EPROTO;
    plan->windowed = card[MP_NEEDS_PIECES] != 0;
    plan_rounds(l, card[MP_LONGEST], card[MP_HAS_ROOM] != 0, plan);
    return 0;
}

void mp_cut_round(const struct mp_limits *l, const struct mp_plan *plan,
                  size_t at, const uint64_t *elems, int step, int *counts)
{
    size_t skip = at * plan->piece, displ = 0;

    for (int r = 0; r < l->n; r++, elems += step) {
        size_t left = *elems > skip ? *elems - skip : 0;

        left = left < plan->piece ? left : plan->piece;
        counts[r] = (int)left;
        counts[l->n + r] = (int)displ;
        displ += left;
    }
}
