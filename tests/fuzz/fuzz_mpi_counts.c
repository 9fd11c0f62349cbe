/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that ranks send each other over MPI: headers; and the sizes of an
 * allgather or alltoall, from which this rank computes where data goes and how
 * it is cut into rounds.  What must be accepted, and where each element of each
 * round then is, is computed here a second time, in 128 bits.
 *
 * Input, big-endian: a byte for the kind; one for the number of ranks and one
 * for the size of an element; u32, the most elements of a call; u32, the bytes
 * of scratch memory; then u64 words: the headers, cards or splits.
 */
#include "runtime/plugins/mpi/peer_counts.h"
#include "tests/fuzz/fuzz.h"

#include <limits.h>

enum { RANKS_MAX = 7, WORDS_MAX = 2 * RANKS_MAX, ROUNDS_MAX = 200 };

typedef unsigned __int128 wide;

static uint64_t take(struct fuzz_input *in, int bytes)
{
    uint64_t v = 0;

    while (bytes-- > 0)
        v = v << 8 | fuzz_take(in);
    return v;
}

/* ---- Headers ------------------------------------------------------------- */

static void check_header(struct fuzz_input *in, int peers)
{
    uint64_t own[MP_WORDS], head[MP_WORDS], from[MP_WORDS];
    uint64_t all = 0, least;

    for (int i = 0; i < MP_WORDS; i++)
        head[i] = own[i] = take(in, 8);
    least = own[MP_LEAST];
    all = own[MP_FLAGS];
    for (int r = 0; r < peers; r++) {
        for (int i = 0; i < MP_WORDS; i++)
            from[i] = take(in, 8);
        mp_merge_header(head, from);
        least = from[MP_LEAST] < least ? from[MP_LEAST] : least;
        if (from[MP_SIGNATURE] != own[MP_SIGNATURE])
            all &= ~UINT64_C(1);
        if (from[MP_FIRST] != own[MP_FIRST])
            all &= ~UINT64_C(2);
        all &= from[MP_FLAGS];
    }
    FUZZ_CHECK(head[MP_SIGNATURE] == own[MP_SIGNATURE]);
    FUZZ_CHECK(head[MP_FIRST] == own[MP_FIRST]);
    FUZZ_CHECK(head[MP_LEAST] == least);
    FUZZ_CHECK(head[MP_FLAGS] == all);
}

/* ---- Sizes --------------------------------------------------------------- */

/* What ranks announce: `step` words each, of which the first is counted. */
struct sizes {
    struct mp_limits limits;
    uint64_t *words;
    int step;
};

static uint64_t size_of(const struct sizes *s, int r)
{
    return s->words[s->step * r];
}

static wide sum_of(const struct sizes *s, int ranks)
{
    wide sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += size_of(s, r);
    return sum;
}

static uint64_t longest_of(const struct sizes *s)
{
    uint64_t most = 0;

    for (int r = 0; r < s->limits.n; r++)
        most = size_of(s, r) > most ? size_of(s, r) : most;
    return most;
}

/* Returns whether memory could hold `elems`. */
static int is_possible(const struct sizes *s, wide elems)
{
    return elems * s->limits.elem_bytes <= PTRDIFF_MAX;
}

/* Returns how many elements fit into a round, at least one of each rank. */
static wide window_of(const struct mp_limits *l)
{
    wide most = l->scratch_bytes / l->elem_bytes;

    most = most < l->max_elems ? most : l->max_elems;
    return most < (wide)l->n ? (wide)l->n : most;
}

static void check_round(const struct sizes *s, const struct mp_plan *plan,
                        size_t at)
{
    int counts[2 * RANKS_MAX], n = s->limits.n;
    wide first = (wide)at * plan->piece, displ = 0;

    mp_cut_round(&s->limits, plan, at, s->words, s->step, counts);
    for (int r = 0; r < n; r++) {
        wide size = size_of(s, r), left = size > first ? size - first : 0;

        left = left < plan->piece ? left : plan->piece;
        FUZZ_CHECK(counts[r] >= 0 && (wide)counts[r] == left);
        FUZZ_CHECK(counts[n + r] >= 0 && (wide)counts[n + r] == displ);
        displ += left;
    }
    FUZZ_CHECK(displ <= INT_MAX);
    FUZZ_CHECK(!plan->windowed || displ <= window_of(&s->limits));
}

/* Checks a plan for ranks of which the longest has `longest` elements. */
static void check_plan(const struct sizes *s, const struct mp_plan *plan,
                       uint64_t longest, int has_room)
{
    wide moved = (wide)plan->rounds * plan->piece;

    FUZZ_CHECK((plan->rounds == 0) == (!has_room || longest == 0));
    if (plan->rounds == 0)
        return;
    FUZZ_CHECK(plan->piece > 0 && moved >= longest);
    FUZZ_CHECK(moved - plan->piece < longest);
    FUZZ_CHECK(plan->windowed || plan->rounds == 1);
    FUZZ_CHECK(!plan->windowed ||
               (wide)plan->piece * (wide)s->limits.n <= window_of(&s->limits));
    for (size_t at = 0; at < plan->rounds && at < ROUNDS_MAX; at++)
        check_round(s, plan, at);
    check_round(s, plan, plan->rounds / 2);
    check_round(s, plan, plan->rounds - 1);
}

static void check_offsets(const struct sizes *s, const size_t *offset)
{
    for (int r = 0; r <= s->limits.n; r++)
        FUZZ_CHECK(offset[r] == sum_of(s, r));
}

static void check_gather(const struct sizes *s)
{
    size_t offset[RANKS_MAX + 1];
    int n = s->limits.n, with_room = 0;
    struct mp_plan plan;
    wide total = sum_of(s, n);
    int rc = mp_plan_gather(&s->limits, s->words, offset, &plan);

    FUZZ_CHECK(rc == (is_possible(s, total) ? 0 : -HVD_EPROTO));
    if (rc < 0)
        return;
    for (int r = 0; r < n; r++)
        with_room += s->words[2 * r + 1] >= total;
    check_offsets(s, offset);
    FUZZ_CHECK(plan.windowed == (with_room < n || total > s->limits.max_elems));
    check_plan(s, &plan, longest_of(s), with_room > 0);
}

/* Checks an alltoall.  Its incoming splits come from the input, and so does the
 * card, which a peer can only raise. */
static void check_splits(const struct sizes *s, struct fuzz_input *in)
{
    uint64_t card[MP_SPLITS_WORDS], told;
    size_t offset[RANKS_MAX + 1], longest;
    struct mp_plan plan;
    wide total = sum_of(s, s->limits.n);
    int rc = mp_find_places(&s->limits, s->words, 1, offset, &longest);

    FUZZ_CHECK(rc == (is_possible(s, total) ? 0 : -HVD_EPROTO));
    if (rc < 0)
        return;
    check_offsets(s, offset);
    FUZZ_CHECK(longest == longest_of(s));
    for (int i = 0; i < MP_SPLITS_WORDS; i++)
        card[i] = take(in, 8);
    told = card[MP_LONGEST];
    card[MP_LONGEST] = told > longest ? told : longest;
    if (total > s->limits.max_elems)
        card[MP_NEEDS_PIECES] |= 1;
    rc = mp_plan_splits(&s->limits, card, &plan);
    FUZZ_CHECK(rc == (is_possible(s, card[MP_LONGEST]) ? 0 : -HVD_EPROTO));
    if (rc < 0)
        return;
    FUZZ_CHECK(plan.windowed == (card[MP_NEEDS_PIECES] != 0));
    check_plan(s, &plan, card[MP_LONGEST], card[MP_HAS_ROOM] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t elem_bytes[] = {1, 2, 4, 8};
    struct fuzz_input in = {data, data + size};
    unsigned kind = fuzz_take(&in) % 3;
    struct sizes s = {.step = kind == 1 ? MP_GATHER_WORDS : 1};

    s.limits.n = 1 + (int)(fuzz_take(&in) % RANKS_MAX);
    s.limits.elem_bytes = elem_bytes[fuzz_take(&in) % 4];
    s.limits.max_elems = 1 + take(&in, 4) % INT_MAX;
    s.limits.scratch_bytes = take(&in, 4);
    if (kind == 0) {
        check_header(&in, s.limits.n);
        return 0;
    }
    /* exactly as many, so that a read past them is noticed */
    s.words = calloc((size_t)(s.limits.n * s.step), sizeof(*s.words));
    FUZZ_CHECK(s.words);
    for (int i = 0; i < s.limits.n * s.step; i++)
        s.words[i] = take(&in, 8);
    if (kind == 1)
        check_gather(&s);
    else
        check_splits(&s, &in);
    free(s.words);
    return 0;
}
