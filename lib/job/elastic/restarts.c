/* SPDX-License-Identifier: Apache-2.0 */
/* See restarts.h. */
#include "lib/job/elastic/restarts.h"

#include "lib/base/alloc.h"

#include <string.h>

static const uint64_t FIRST_NS = 1000000000u;
static const uint64_t LONGEST_NS = 300000000000u;
/* Doublings after which every delay is the longest. */
enum { DOUBLINGS_MAX = 16 };

void restarts_init(struct restarts *r, int size, int most)
{
    *r = (struct restarts){
        .size = size,
        .most = most,
        .ranks = hb_xcalloc((size_t)size, sizeof(*r->ranks)),
    };
}

void restarts_fini(struct restarts *r)
{
    hb_free(r->ranks);
    memset(r, 0, sizeof(*r));
}

/* Computes the time before a rank's restart number `used` + 1: between half and
 * three halves of the usual. */
static uint64_t delay_ns(int used, uint32_t random)
{
    uint64_t usual = FIRST_NS << (used < DOUBLINGS_MAX ? used : DOUBLINGS_MAX);
    uint64_t delay;

    if (usual > LONGEST_NS)
        usual = LONGEST_NS;
    delay = usual / 2 + usual / 1024 * (random >> 22);
    return delay < LONGEST_NS ? delay : LONGEST_NS;
}

int restarts_plan(struct restarts *r, int rank, uint64_t now_ns,
                  uint32_t random, uint64_t *due_ns)
{
    struct restarts_rank *at = &r->ranks[rank];

    if (at->used >= r->most)
        return 0;
    *due_ns = at->due_ns = now_ns + delay_ns(at->used++, random);
    return 1;
}

/* Returns the rank that is due first, or -1. */
static int first_due(const struct restarts *r)
{
    int first = -1;

    for (int i = 0; i < r->size; i++)
        if (r->ranks[i].due_ns &&
            (first < 0 || r->ranks[i].due_ns < r->ranks[first].due_ns))
            first = i;
    return first;
}

int restarts_take(struct restarts *r, uint64_t now_ns)
{
    int first = first_due(r);

    if (first < 0 || r->ranks[first].due_ns > now_ns)
        return -1;
    r->ranks[first].due_ns = 0;
    return first;
}

int restarts_cancel(struct restarts *r)
{
    return restarts_take(r, UINT64_MAX);
}

uint64_t restarts_next(const struct restarts *r)
{
    int first = first_due(r);

    return first < 0 ? 0 : r->ranks[first].due_ns;
}
