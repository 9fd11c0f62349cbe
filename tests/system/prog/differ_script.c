/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a burst issue, and which operations match; see differ.h. */
#include "tests/system/prog/differ.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEMPLATES = 5, COMMON_MAX = 10, VALUES = 8, EXTRA_NAME = 99 };

struct dice {
    uint64_t seed, stream, at;
};

static uint64_t roll(struct dice *d, uint64_t n)
{
    return mix(d->seed, d->stream, d->at++) % n;
}

static int member_of(const struct burst *b, int team, int rank)
{
    return place_in(&b->team[team], rank) >= 0;
}

/* ---- Operations ------------------------------------------------------------
 */

static const enum hvd_dtype dtypes[] = {HVD_INT32, HVD_FLOAT32, HVD_UINT8,
                                        HVD_FLOAT64};
static const enum hvd_op ops[] = {HVD_SUM, HVD_MAX, HVD_MIN};

static int is_reduction(enum kind kind)
{
    return kind == ALLREDUCE || kind == REDUCESCATTER;
}

/* Returns a count, mostly small so that operations are fused. */
static size_t roll_count(struct dice *d)
{
    switch (roll(d, 24)) {
    case 0:
        return 0;
    case 1:
        return roll(d, 90000);
    case 2:
        return roll(d, 5000);
    default:
        return 1 + roll(d, 40);
    }
}

/* Returns an operation with an id of its own.  Fields that its kind does not
 * use are 0. */
static struct entry roll_entry(struct dice *d, const struct burst *b, int team)
{
    struct entry e = {.team = team, .postscale = 1, .name = -1};

    e.id = mix(d->seed, d->stream, d->at++);
    e.kind = roll(d, 4) ? ALLREDUCE : (enum kind)roll(d, KINDS);
    e.dtype = dtypes[roll(d, 4) ? 0 : roll(d, 4)];
    e.op = ops[roll(d, 5) ? 0 : roll(d, 3)];
    e.count = roll_count(d);
    e.root = (int)roll(d, (uint64_t)b->team[team].n);
    if ((e.kind == ALLREDUCE || e.kind == ALLGATHER) && roll(d, 8) == 0)
        e.members = 1 + (int)roll(d, GROUP_MAX);
    if (e.kind != BARRIER && roll(d, 3) == 0)
        e.shape = (enum shape)roll(d, SHAPES);
    if (!is_reduction(e.kind))
        e.op = (enum hvd_op)0;
    if (e.kind != BROADCAST)
        e.root = 0;
    return e;
}

/* Returns a random team: of those that share a process set, the first. */
static int roll_team(struct dice *d, const struct burst *b)
{
    int team = (int)roll(d, TEAMS), first = 0;

    while (b->team[first].id != b->team[team].id)
        first++;
    return first;
}

/* Makes the operations that all ranks have in common: some named or not, of
 * several teams or of one. */
static void roll_common(struct burst *b, struct dice *d, struct list *all)
{
    int one_team = roll(d, 2) ? roll_team(d, b) : -1;
    int named = (int)roll(d, 3); /* none, all, some */

    b->can_block = one_team >= 0 && named == 0;
    all->n = 2 + (int)roll(d, COMMON_MAX - 1);
    for (int k = 0; k < all->n; k++) {
        int team = one_team >= 0 ? one_team : roll_team(d, b);
        struct entry *e = &all->entry[k];

        *e = roll_entry(d, b, team);
        if (named == 1 || (named == 2 && roll(d, 2)))
            e->name = k;
    }
}

static void insert(struct list *l, int at, const struct entry *e)
{
    memmove(&l->entry[at + 1], &l->entry[at], (size_t)(l->n - at) * sizeof(*e));
    l->entry[at] = *e;
    l->n++;
}

static void remove_at(struct list *l, int at)
{
    l->n--;
    memmove(&l->entry[at], &l->entry[at + 1],
            (size_t)(l->n - at) * sizeof(l->entry[0]));
}

static void append_late(struct list *l, const struct entry *e)
{
    insert(l, l->n, e);
    l->entry[l->n - 1].late = 1;
}

/* Returns the last operation without a name of the at-th's team; the at-th has
 * no name. */
static struct entry last_unnamed(const struct list *l, int at)
{
    int last = at;

    for (int k = at + 1; k < l->n; k++)
        if (l->entry[k].team == l->entry[at].team && l->entry[k].name < 0)
            last = k;
    return l->entry[last];
}

/* ---- The odd one ----------------------------------------------------------
 */

static void change(struct burst *b, struct dice *d, struct entry *e)
{
    const struct team *team = &b->team[e->team];

    switch (b->oddity) {
    case ODD_COUNT:
        e->count += 1 + roll(d, 3);
        break;
    case ODD_DTYPE:
        e->dtype = e->dtype == HVD_FLOAT32 ? HVD_INT32 : HVD_FLOAT32;
        break;
    case ODD_OP:
        if (is_reduction(e->kind))
            e->op = e->op == HVD_MIN ? HVD_MAX : HVD_MIN;
        break;
    case ODD_ROOT:
        if (e->kind == BROADCAST)
            e->root = (e->root + 1) % team->n;
        break;
    case ODD_SCALE:
        if (is_reduction(e->kind))
            e->postscale = 2;
        break;
    case ODD_SHAPE:
        if (e->kind != BARRIER)
            e->shape =
                (enum shape)((e->shape + 1 + roll(d, SHAPES - 1)) % SHAPES);
        break;
    default:
        break;
    }
}

static void change_kind(struct burst *b, struct dice *d, struct entry *e)
{
    struct entry other = roll_entry(d, b, e->team);

    other.name = e->name;
    *e = other;
}

static void leave_out(struct burst *b, struct list *l, int at)
{
    struct entry e = l->entry[at];

    if (e.name < 0) /* those after it take its place */
        e = last_unnamed(l, at);
    remove_at(l, at);
    append_late(&b->list[b->odd_rank], &e);
}

/* Inserts another operation in the odd rank's list at `at`.  The other ranks
 * get its counterpart later: an operation without a name shifts those after it,
 * so it is the last one that is left without a counterpart. */
static void add_one(struct burst *b, struct dice *d, struct list *l, int at)
{
    struct entry e = roll_entry(d, b, l->entry[at].team), late;

    e.name = l->entry[at].name < 0 ? -1 : EXTRA_NAME;
    insert(l, at, &e);
    late = e.name < 0 ? last_unnamed(l, at) : e;
    for (int r = 0; r < b->team[0].n; r++)
        if (r != b->odd_rank && member_of(b, e.team, r))
            append_late(&b->list[r], &late);
}

static void make_odd(struct burst *b, struct dice *d)
{
    int at, other;
    struct list *l;
    struct entry e;

    b->oddity = (enum oddity)(roll(d, 4) ? 1 + roll(d, ODDITIES - 1) : 0);
    b->odd_rank = (int)roll(d, (uint64_t)b->team[0].n);
    l = &b->list[b->odd_rank];
    if (b->oddity == ODD_NOT || l->n == 0)
        return;
    at = (int)roll(d, (uint64_t)l->n);
    other = (int)roll(d, (uint64_t)l->n);
    if (b->oddity == ODD_KIND) {
        change_kind(b, d, &l->entry[at]);
    } else if (b->oddity == ODD_MISSING) {
        leave_out(b, l, at);
    } else if (b->oddity == ODD_EXTRA) {
        add_one(b, d, l, at);
    } else if (b->oddity == ODD_ORDER) {
        e = l->entry[at];
        l->entry[at] = l->entry[other];
        l->entry[other] = e;
    } else {
        change(b, d, &l->entry[at]);
    }
}

void differ_script(struct burst *b, uint64_t seed, uint64_t number,
                   const struct team *team)
{
    /* Three of four bursts repeat a template, which the ranks have learned. */
    uint64_t again = mix(seed, 5, number) % 4 ? number % TEMPLATES : number;
    struct dice d = {seed, 2 * again, 0}, odd = {seed, 2 * number + 1, 0};
    struct list all;

    memset(b, 0, sizeof(*b));
    b->seed = seed;
    b->number = number;
    memcpy(b->team, team, sizeof(b->team));
    roll_common(b, &d, &all);
    for (int r = 0; r < b->team[0].n; r++)
        for (int k = 0; k < all.n; k++)
            if (member_of(b, all.entry[k].team, r))
                insert(&b->list[r], b->list[r].n, &all.entry[k]);
    make_odd(b, &odd);
}

/* ---- What matches ----------------------------------------------------------
 */

/* Returns how many operations of the at-th's team without a name precede it. */
static int unnamed_before(const struct list *l, int at)
{
    int count = 0;

    for (int k = 0; k < at; k++)
        count += l->entry[k].team == l->entry[at].team && l->entry[k].name < 0;
    return count;
}

static const struct entry *find(const struct list *l, const struct entry *e,
                                int index)
{
    for (int k = 0; k < l->n; k++)
        if (l->entry[k].team == e->team && l->entry[k].name == e->name &&
            (e->name >= 0 || unnamed_before(l, k) == index))
            return &l->entry[k];
    fprintf(stderr, "differ: the script leaves one alone\n");
    abort();
}

void differ_match(const struct burst *b, int rank, int at,
                  const struct entry *all[RANKS_MAX])
{
    const struct list *l = &b->list[rank];
    const struct team *team = &b->team[l->entry[at].team];
    int index = unnamed_before(l, at);

    for (int i = 0; i < team->n; i++)
        all[i] = find(&b->list[team->rank[i]], &l->entry[at], index);
}

/* ---- Disputes --------------------------------------------------------------
 */

static const char *const kinds[] = {"allreduce", "broadcast",     "allgather",
                                    "alltoall",  "reducescatter", "barrier"};

static void say(struct dispute *d, const char *what, const char *a,
                const char *b)
{
    snprintf(d->says[0], sizeof(d->says[0]), "has %s %s", what, a);
    snprintf(d->says[1], sizeof(d->says[1]), "has %s %s", what, b);
}

static void say_number(struct dispute *d, const char *what, double a, double b)
{
    char x[24], y[24];

    snprintf(x, sizeof(x), "%.17g", a);
    snprintf(y, sizeof(y), "%.17g", b);
    say(d, what, x, y);
}

static int is_ragged(enum kind kind)
{
    return kind == ALLGATHER || kind == ALLTOALL;
}

static int same_sizes(const struct entry *a, const struct entry *b)
{
    if (is_ragged(a->kind))
        return a->members == b->members;
    return a->count == b->count && a->members == b->members;
}

/* Writes what the error says of the shape of e's first tensor: with the word
 * "shape" if the other rank has none.  Leaves out a count that depends on the
 * rank. */
static void shape_text(char out[40], const struct entry *e, int alone)
{
    const char *word = alone ? "shape " : "";

    if (!e->shape)
        snprintf(out, 40, "no shape");
    else if (is_ragged(e->kind))
        snprintf(out, 40, "%s[", word);
    else
        snprintf(out, 40, "%s[%zu%s]", word, e->count,
                 e->shape == COLUMN ? ", 1" : "");
}

/* Compares the shapes of two operations of the same kind and dtype, before
 * which libhvd compares nothing else. */
static int compare_shapes(const struct entry *a, const struct entry *b,
                          struct dispute *d)
{
    char x[40], y[40];

    if (a->members != b->members ||
        (a->shape == b->shape && (!a->shape || same_sizes(a, b))))
        return 0;
    shape_text(x, a, !b->shape);
    shape_text(y, b, !a->shape);
    snprintf(d->says[0], sizeof(d->says[0]), "has %s", x);
    snprintf(d->says[1], sizeof(d->says[1]), "has %s", y);
    return 1;
}

/* Compares two operations field by field, in the order in which libhvd does,
 * and stores what the error says of the first difference. */
static int compare(const struct team *team, const struct entry *a,
                   const struct entry *b, struct dispute *d)
{
    memset(d->says, 0, sizeof(d->says));
    if (a->kind != b->kind)
        say(d, "kind", kinds[a->kind], kinds[b->kind]);
    else if (a->kind == BARRIER)
        return 0;
    else if (a->dtype != b->dtype)
        say(d, "dtype", hvd_dtype_name(a->dtype), hvd_dtype_name(b->dtype));
    else if (compare_shapes(a, b, d))
        return 1;
    else if (a->op != b->op)
        say(d, "op", hvd_op_name(a->op), hvd_op_name(b->op));
    else if (a->root != b->root)
        say_number(d, "root", team->rank[a->root], team->rank[b->root]);
    else if (!same_sizes(a, b)) {
        if (a->members == 0 && b->members == 0)
            say_number(d, "count", (double)a->count, (double)b->count);
    } else if (a->postscale < b->postscale || a->postscale > b->postscale)
        say_number(d, "postscale", a->postscale, b->postscale);
    else
        return 0;
    return 1;
}

int differ_dispute(const struct team *team, const struct entry *const *all,
                   struct dispute *d)
{
    for (int i = 1; i < team->n; i++)
        if (compare(team, all[0], all[i], d)) {
            d->place[0] = 0;
            d->place[1] = i;
            return 1;
        }
    return 0;
}

/* ---- Data ------------------------------------------------------------------
 */

size_t differ_count(const struct entry *e, int member, int rank)
{
    size_t count = e->count + 2 * (size_t)member;

    if (e->kind == ALLGATHER)
        count += (size_t)mix(e->id, (uint64_t)member, (uint64_t)rank) % 3;
    return e->kind == BARRIER ? 0 : count;
}

size_t differ_split(const struct entry *e, int rank, int to)
{
    return (size_t)mix(e->id, (uint64_t)rank, (uint64_t)to) % 4 + e->count % 50;
}

double differ_value(const struct entry *e, int member, int rank, size_t i)
{
    return (double)(mix(e->id + (uint64_t)member, (uint64_t)rank, i) % VALUES);
}
