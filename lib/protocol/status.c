/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what a rank wrote about itself; see status.h.  The rank may write
 * anything, at any time: each field is loaded once and then checked.
 */
#include "lib/protocol/status.h"

#include "lib/base/text.h"

enum { READ_TRIES = 100 };

static uint64_t get(const _Atomic uint64_t *word)
{
    /* Acquire: pairs with the release of status_put. */
    return atomic_load_explicit(word, memory_order_acquire);
}

static uint32_t get32(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void read_op(const struct status_op *op, struct status_view_op *v)
{
    uint64_t words[STATUS_NAME_WORDS] = {0};
    uint32_t kind = get32(&op->kind), set = get32(&op->set);
    uint32_t where = get32(&op->where);

    v->when_ns = get(&op->when_ns);
    v->key = get(&op->key);
    v->kind = kind < STATUS_KINDS ? (enum status_kind)kind : STATUS_ALLREDUCE;
    v->set = set < STATUS_SETS_MAX ? (int)set : 0;
    v->where =
        where < STATUS_WHERES ? (enum status_where)where : STATUS_IN_QUEUE;
    for (int i = 0; i < STATUS_NAME_WORDS; i++)
        words[i] = get(&op->name[i]);
    memcpy(v->name, words, sizeof(v->name)); /* up to the first 0 */
    v->name[STATUS_NAME_BYTES - 1] = '\0';
    hb_text_trim_cut(v->name);
    hb_text_sanitize(v->name);
}

static void read_call(const struct segment_status *s, struct status_view *v)
{
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t done = get(&s->done);

        v->calls = done;
        read_op(&s->call, &v->call);
        v->inside = get(&s->returned) < done;
        /* If it was written meanwhile, read again. */
        if (get(&s->call_begun) == done)
            return;
    }
    v->torn = 1;
}

static void read_waits(const struct segment_status *s, struct status_view *v)
{
    int torn = 1;

    for (int i = 0; i < READ_TRIES && torn; i++) {
        uint64_t done = get(&s->waits_done);
        uint32_t listed = get32(&s->listed);

        for (int w = 0; w < STATUS_SETS_WORDS; w++)
            v->sets[w] = get(&s->sets[w]);
        v->total = get32(&s->total);
        v->fresh = get32(&s->answered) == get32(&s->asked);
        v->count = listed < STATUS_WAITS_MAX ? (int)listed : STATUS_WAITS_MAX;
        for (int w = 0; w < v->count; w++)
            read_op(&s->waits[w], &v->waits[w]);
        torn = get(&s->waits_begun) != done;
    }
    v->torn |= torn;
    if (v->total < (uint32_t)v->count)
        v->total = (uint32_t)v->count;
}

void status_put_counts(struct segment_status *s, const struct status_counts *c)
{
    atomic_store(&s->counts[0].calls, c->calls);
    atomic_store(&s->counts[0].bytes, c->bytes);
    atomic_store(&s->counts[0].waited_ns, c->waited_ns);
    atomic_store(&s->counts[1].calls, 0);
    atomic_store(&s->counts[1].bytes, 0);
    atomic_store(&s->counts[1].waited_ns, 0);
}

void status_read_counts(const struct segment_status *s, struct status_counts *c)
{
    *c = (struct status_counts){0};
    for (int i = 0; i < 2; i++) {
        c->calls += get(&s->counts[i].calls);
        c->bytes += get(&s->counts[i].bytes);
        c->waited_ns += get(&s->counts[i].waited_ns);
    }
}

void status_read(const struct segment_status *s, struct status_view *v)
{
    memset(v, 0, sizeof(*v));
    read_call(s, v);
    read_waits(s, v);
    for (int i = 0; i < STATUS_SETS_MAX; i++) {
        v->launched[i] = get(&s->launched[i]);
        v->carried_out[i] = get(&s->carried_out[i]);
    }
}
