/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations, the same on all ranks; see prop.h. */
#include "tests/system/prog/prop.h"

struct dice {
    uint64_t seed, stream, at;
};

static uint64_t roll(struct dice *d, uint64_t n)
{
    return mix(d->seed, d->stream, d->at++) % n;
}

/* Returns 1 with a probability of one in n. */
static int rarely(struct dice *d, uint64_t n)
{
    return roll(d, n) == 0;
}

void script_team(uint64_t seed, int t, int n, struct team *team)
{
    struct dice d = {seed, 0x7ea5 + (uint64_t)t, 0};

    team->id = 0;
    team->n = 0;
    for (int r = 0; r < n; r++)
        if (t == 0 || roll(&d, 2))
            team->rank[team->n++] = r;
    if (team->n == 0)
        team->rank[team->n++] = (int)roll(&d, (uint64_t)n);
}

/* Returns a count: mostly small, or near the sizes at which planes change their
 * algorithm. */
static size_t roll_count(struct dice *d)
{
    static const size_t limits[] = {1,    2,    8,     65,    200,
                                    1025, 9000, 33000, 70000, 300001};

    if (rarely(d, 500)) /* larger than the caches */
        return roll(d, 3000000);
    switch (roll(d, 8)) {
    case 0:
        return 0;
    case 1:
        return 1;
    default:
        return roll(d, limits[roll(d, sizeof(limits) / sizeof(limits[0]))] + 1);
    }
}

static int is_float(enum hvd_dtype t)
{
    return t == HVD_FLOAT16 || t == HVD_BFLOAT16 || t == HVD_FLOAT32 ||
           t == HVD_FLOAT64;
}

static enum hvd_op roll_op(struct dice *d, enum hvd_dtype t, enum kind kind)
{
    static const enum hvd_op of_floats[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN,
                                            HVD_MAX, HVD_PRODUCT, HVD_ADASUM};
    static const enum hvd_op of_ints[] = {
        HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_BAND, HVD_BOR, HVD_AVERAGE};

    if (is_float(t))
        return of_floats[roll(d, kind == ALLREDUCE ? 6 : 5)];
    return of_ints[roll(d, t == HVD_BOOL ? 6 : 7)];
}

/* Returns a power of two, so that exact results stay exact. */
static double roll_scale(struct dice *d)
{
    static const double scales[] = {0.5, 2, -1, 4};

    return rarely(d, 4) ? scales[roll(d, 4)] : 1;
}

static void roll_reduction(struct dice *d, struct step *s, int for_joining)
{
    s->op = roll_op(d, s->dtype, s->kind);
    s->rough = s->op == HVD_ADASUM;
    if (is_float(s->dtype) && (s->op == HVD_SUM || s->op == HVD_AVERAGE))
        s->rough = rarely(d, 3);
    s->opts.prescale = roll_scale(d);
    s->opts.postscale = roll_scale(d);
    /* Without a prescale no product overflows on the way.  Besides, product and
     * band do not have an identity element for every scale. */
    if (s->op == HVD_PRODUCT || s->op == HVD_BAND)
        s->opts.prescale = 1;
    if (s->kind != ALLREDUCE)
        return;
    if (!s->rough && rarely(d, 3))
        s->opts.wire = (int)roll(d, 3);
    if (for_joining)
        s->opts.live_average = (int)roll(d, 2);
}

static void roll_step(struct dice *d, const struct team *teams, int for_joining,
                      struct step *s)
{
    *s = (struct step){.opts = HVD_OPTIONS_INIT};
    s->id = mix(d->seed, d->stream, d->at++);
    s->kind = (enum kind)roll(d, rarely(d, 3) ? KINDS : ALLREDUCE + 1);
    s->dtype = (enum hvd_dtype)roll(d, HVD_BFLOAT16 + 1);
    s->team = for_joining || roll(d, 2) ? 0 : (int)roll(d, SETS_MAX);
    s->opts.process_set = teams[s->team].id;
    s->root = (int)roll(d, (uint64_t)teams[s->team].n);
    s->row = 1 + roll(d, rarely(d, 4) ? 50 : 2);
    if ((s->kind == ALLREDUCE || s->kind == ALLGATHER ||
         s->kind == REDUCESCATTER) &&
        rarely(d, 5))
        s->members = 1 + (int)roll(d, MEMBERS_MAX);
    for (int m = 0; m < MEMBERS_MAX; m++) {
        s->count[m] = roll_count(d);
        if (s->kind != ALLREDUCE && s->kind != BROADCAST)
            s->count[m] /= 4;
    }
    s->in_place = (int)roll(d, 2);
    s->own_memory = rarely(d, 4);
    s->opts.priority = (int)roll(d, 3);
    if (s->kind == ALLREDUCE || s->kind == REDUCESCATTER)
        roll_reduction(d, s, for_joining);
}

void script_batch(uint64_t seed, uint64_t i, const struct team *teams,
                  int for_joining, struct batch *b)
{
    /* one batch of three repeats one of the first four */
    uint64_t again = mix(seed, 3, i) % 3 ? i : i % 4;
    struct dice d = {seed, 2 * again + (uint64_t)for_joining, 0};

    b->mode = (enum mode)roll(&d, MODES);
    b->steps = 1 + (int)roll(&d, BATCH_MAX);
    for (int k = 0; k < b->steps; k++)
        roll_step(&d, teams, for_joining, &b->step[k]);
}
