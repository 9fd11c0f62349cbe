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
        .due = hb_xcalloc((size_t)size, sizeof(*r->due)),
    };
}

void restarts_fini(struct restarts *r)
{
    hb_free(r->ranks);
    hb_free(r->due);
    memset(r, 0, sizeof(*r));
}

/* ---- The heap ---- */

static int is_before(const struct restarts *r, int a, int b)
{
    const struct restarts_rank *x = &r->ranks[a], *y = &r->ranks[b];

    return x->due_ns < y->due_ns || (x->due_ns == y->due_ns && a < b);
}

static void put(struct restarts *r, int at, int rank)
{
    r->due[at] = rank;
    r->ranks[rank].at = at + 1;
}

/* Moves the rank at `at` up to its place. */
static void sift_up(struct restarts *r, int at)
{
    int rank = r->due[at];

    for (; at > 0 && is_before(r, rank, r->due[(at - 1) / 2]);
         at = (at - 1) / 2)
        put(r, at, r->due[(at - 1) / 2]);
    put(r, at, rank);
}

/* Moves the rank at `at` down to its place. */
static void sift_down(struct restarts *r, int at)
{
    int rank = r->due[at];

    for (int child; (child = 2 * at + 1) < r->due_count; at = child) {
        if (child + 1 < r->due_count &&
            is_before(r, r->due[child + 1], r->due[child]))
            child++;
        if (!is_before(r, r->due[child], rank))
            break;
        put(r, at, r->due[child]);
    }
    put(r, at, rank);
}

/* Removes a rank that is due. */
static void drop(struct restarts *r, int rank)
{
    int at = r->ranks[rank].at - 1, last = r->due[--r->due_count];

    r->ranks[rank].at = 0;
    if (last == rank)
        return;
    put(r, at, last);
    sift_up(r, at);
    sift_down(r, r->ranks[last].at - 1);
}

/* ---- Restarts ---- */

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
    if (at->at > 0)
        drop(r, rank);
    *due_ns = at->due_ns = now_ns + delay_ns(at->used++, random);
    put(r, r->due_count, rank);
    sift_up(r, r->due_count++);
    return 1;
}

void restarts_renew(struct restarts *r, int rank)
{
    r->ranks[rank].used = 0;
}

int restarts_take(struct restarts *r, uint64_t now_ns)
{
    int first;

    if (r->due_count == 0 || restarts_next(r) > now_ns)
        return -1;
    first = r->due[0];
    drop(r, first);
    return first;
}

int restarts_cancel(struct restarts *r)
{
    return restarts_take(r, UINT64_MAX);
}

uint64_t restarts_next(const struct restarts *r)
{
    return r->due_count > 0 ? r->ranks[r->due[0]].due_ns : 0;
}
