/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers whose callers are asked for memory; see gather_alloc_cases.h. */
#include "tests/system/prog/gather_alloc_cases.h"

#include "runtime/hvd.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define must(cond)                                                           \
    do {                                                                     \
        if (!(cond)) {                                                       \
            fprintf(stderr, "rank %d: %s:%d: not so: %s (%s)\n", hvd_rank(), \
                    __FILE__, __LINE__, #cond, hvd_error_message());         \
            return 1;                                                        \
        }                                                                    \
    } while (0)

/* ThreadSanitizer looks at every byte. */
#ifdef __SANITIZE_THREAD__
#define LARGE(n) ((n) / 8)
#else
#define LARGE(n) (n)
#endif

enum { MEMBERS = 3, RANKS_MAX = 64, ELEMS_MAX = LARGE(300000) };

/* What alloc was asked for, and what it answered. */
struct asked {
    unsigned calls;
    size_t member[MEMBERS], count[MEMBERS];
    int32_t *given[MEMBERS];
    size_t counts[RANKS_MAX]; /* the recvcounts of the last call */
    unsigned refuse;          /* bits: calls to which it answers NULL */
    size_t shift;             /* bytes by which its memory is not aligned */
    int size;                 /* entries of recvcounts */
};

static void *give(void *arg, size_t member, size_t count,
                  const size_t *recvcounts)
{
    struct asked *a = arg;
    unsigned k = a->calls++;
    size_t bytes = count * sizeof(int32_t);

    if (k >= MEMBERS)
        abort();
    a->member[k] = member;
    a->count[k] = count;
    memcpy(a->counts, recvcounts, (size_t)a->size * sizeof(*recvcounts));
    if (count == 0 || a->refuse & 1u << k)
        return NULL;
    a->given[k] = malloc(bytes + a->shift);
    if (!a->given[k])
        abort();
    return (char *)a->given[k] + a->shift;
}

static struct asked asks(struct hvd_options *o, struct asked *a)
{
    o->alloc = give;
    o->alloc_arg = a;
    return (struct asked){.size = hvd_process_set_size(o->process_set)};
}

static void drop(struct asked *a)
{
    for (int i = 0; i < MEMBERS; i++)
        free(a->given[i]);
}

/* Returns the elements that a rank has in a trial: none, few, or many. */
static size_t elems(int trial, int rank)
{
    static const size_t of[][4] = {
        {0, 0, 0, 0},
        {2, 2, 2, 2},
        {3, 0, 7, 1},
        {0, 4000, 0, 1},
        {LARGE(40000), LARGE(40000), 1, 0},
        {LARGE(100000), 1, LARGE(50000), LARGE(70001)},
        {ELEMS_MAX, 0, 0, 0},
    };

    return of[trial][rank % 4];
}
enum { TRIALS = 7 };

static int32_t mark(int rank, size_t i)
{
    return (int32_t)((size_t)rank * 1000003 + i * 7);
}

static int32_t *input(void)
{
    int32_t *x = malloc(ELEMS_MAX * sizeof(*x));

    for (size_t i = 0; x && i < ELEMS_MAX; i++)
        x[i] = mark(hvd_rank(), i);
    return x;
}

static size_t total(int trial)
{
    size_t sum = 0;

    for (int r = 0; r < hvd_size(); r++)
        sum += elems(trial, r);
    return sum;
}

/* Checks call k of alloc, and the gathered data if it gave memory. */
static int check(const struct asked *a, int trial, unsigned k)
{
    size_t at = 0;

    must(a->member[k] == k && a->count[k] == total(trial));
    for (int r = 0; r < hvd_size(); r++) {
        must(a->counts[r] == elems(trial, r));
        for (size_t i = 0; a->given[k] && i < elems(trial, r); i++)
            must(a->given[k][at++] == mark(r, i));
    }
    return 0;
}

/* ---- Cases ----------------------------------------------------------------
 */

static int gather(const int32_t *x, int trial, unsigned refuse, int async)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    size_t counts[RANKS_MAX], n = elems(trial, hvd_rank());
    struct asked a = asks(&o, &a);
    hvd_request *req;
    int rc;

    a.refuse = refuse;
    if (async) {
        must(hvd_allgather_async("g", x, n, NULL, 0, counts, HVD_INT32, &o,
                                 &req) == 0);
        rc = hvd_wait(req);
    } else {
        rc = hvd_allgather(x, n, NULL, 0, NULL, HVD_INT32, &o);
        memcpy(counts, a.counts, sizeof(counts));
    }
    must(rc == (refuse && total(trial) ? -HVD_ENOMEM : 0));
    must(rc == 0 || strstr(hvd_error_message(), "options.alloc returned no"));
    must(a.calls == 1 && check(&a, trial, 0) == 0);
    must(!memcmp(counts, a.counts, (size_t)a.size * sizeof(*counts)));
    drop(&a);
    return 0;
}

/* Each rank in turn is refused memory, and the next operation works. */
static int gathers(const int32_t *x)
{
    for (int trial = 0; trial < TRIALS; trial++)
        for (int async = 0; async < 2; async++) {
            must(gather(x, trial, 0, async) == 0);
            for (int r = 0; r < hvd_size() && r < 4; r++)
                must(gather(x, trial, hvd_rank() == r, async) == 0);
            must(gather(x, trial, 0, async) == 0);
        }
    return 0;
}

/* Splits of an alltoall: rank r sends elems(trial, r + to) to rank `to`. */
static int exchange(const int32_t *x, int trial, unsigned refuse)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    size_t splits[RANKS_MAX], skip = 0, at = 0, arrived = 0;
    struct asked a = asks(&o, &a);
    int me = hvd_rank(), n = hvd_size(), rc;

    a.refuse = refuse;
    for (int r = 0; r < n; r++) {
        splits[r] = elems(trial, me + r) / (size_t)n;
        skip += splits[r];
        arrived += elems(trial, r + me) / (size_t)n;
    }
    rc = hvd_alltoall(x, splits, skip, NULL, 0, NULL, HVD_INT32, &o);
    must(rc == (refuse && arrived ? -HVD_ENOMEM : 0));
    must(a.calls == 1 && a.member[0] == 0 && a.count[0] == arrived);
    for (int r = 0; r < n; r++) {
        size_t before = 0, len = elems(trial, r + me) / (size_t)n;

        for (int to = 0; to < me; to++)
            before += elems(trial, r + to) / (size_t)n;
        must(a.counts[r] == len);
        for (size_t i = 0; a.given[0] && i < len; i++)
            must(a.given[0][at++] == mark(r, before + i));
    }
    drop(&a);
    return 0;
}

static int exchanges(const int32_t *x)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        must(exchange(x, trial, 0) == 0);
        must(exchange(x, trial, hvd_rank() == hvd_size() - 1) == 0);
        must(exchange(x, trial, 0) == 0);
    }
    return 0;
}

/* The members of a group are asked for in order.  If one gets no memory, the
 * others arrive nevertheless. */
static int group(const int32_t *x, int trial, unsigned refuse)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    size_t n = elems(trial, hvd_rank()), counts[MEMBERS] = {n, n, n};
    const void *send[MEMBERS] = {x, x, x};
    struct asked a = asks(&o, &a);

    a.refuse = refuse;
    must(hvd_grouped_allgather(MEMBERS, send, counts, NULL, NULL, NULL,
                               HVD_INT32, &o) ==
         (refuse && total(trial) ? -HVD_ENOMEM : 0));
    must(a.calls == MEMBERS);
    for (unsigned k = 0; k < MEMBERS; k++) {
        must(check(&a, trial, k) == 0);
        must(!a.given[k] == (total(trial) == 0 || (refuse >> k & 1)));
    }
    drop(&a);
    return 0;
}

/* One rank asks for memory, the others have it, or want the counts only. */
static int mixed(const int32_t *x)
{
    int32_t *all = malloc(total(5) * sizeof(*all));
    size_t counts[RANKS_MAX], n = elems(5, hvd_rank());

    must(all);
    for (int i = 0; i < 3; i++) {
        if (hvd_rank() == 0)
            must(gather(x, 5, i == 1, 0) == 0);
        else
            must(hvd_allgather(x, n, i ? all : NULL, i ? total(5) : 0, counts,
                               HVD_INT32, NULL) == 0);
    }
    free(all);
    return 0;
}

/* The cache of repeated calls does not take a call with alloc for one
 * without. */
static int repeats(const int32_t *x)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    size_t counts[RANKS_MAX];

    for (int i = 0; i < 4; i++) {
        struct asked a = asks(&o, &a);

        for (int k = 0; k < 3; k++)
            must(hvd_allgather(x, 2, NULL, 0, counts, HVD_INT32, NULL) == 0);
        must(hvd_allgather(x, 2, NULL, 0, counts, HVD_INT32, &o) == 0);
        must(a.calls == 1 && check(&a, 1, 0) == 0);
        drop(&a);
    }
    return 0;
}

/* Even ranks wait before a barrier, odd ones after it. */
static int waits_and_barriers(const int32_t *x)
{
    for (int i = 0; i < 20; i++) {
        struct hvd_options o = HVD_OPTIONS_INIT;
        struct asked a = asks(&o, &a);
        hvd_request *req;

        must(hvd_allgather_async(NULL, x, elems(5, hvd_rank()), NULL, 0, NULL,
                                 HVD_INT32, &o, &req) == 0);
        if (hvd_rank() % 2 == 0)
            must(hvd_wait(req) == 0);
        must(hvd_barrier(NULL) == 0);
        if (hvd_rank() % 2)
            must(hvd_wait(req) == 0);
        must(a.calls == 1 && check(&a, 5, 0) == 0);
        drop(&a);
    }
    return 0;
}

/* What is refused before anything is queued, so that alloc is not called; and
 * memory that is not aligned. */
static int mistakes(const int32_t *x)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    struct asked a = asks(&o, &a);
    int32_t y[2] = {1, 2};
    size_t cap = 0, one = 1;
    const void *send = x;
    void *recv = y;

    must(hvd_allgather(x, 1, y, 2, NULL, HVD_INT32, &o) == -HVD_EINVAL);
    must(strstr(hvd_error_message(), "alloc"));
    must(hvd_alltoall(x, NULL, (size_t)hvd_size(), y, 0, NULL, HVD_INT32, &o) ==
         -HVD_EINVAL);
    must(hvd_grouped_allgather(1, &send, &one, &recv, &cap, NULL, HVD_INT32,
                               &o) == -HVD_EINVAL);
    must(hvd_allreduce(y, y, 1, HVD_INT32, HVD_SUM, &o) == -HVD_EINVAL);
    must(hvd_barrier(&o) == -HVD_EINVAL);
    must(a.calls == 0);
    a.shift = 1;
    must(hvd_allgather(x, 2, NULL, 0, NULL, HVD_INT32, &o) == -HVD_EINVAL);
    must(a.calls == 1 && strstr(hvd_error_message(), "not aligned"));
    drop(&a);
    return 0;
}

/* A rank that has joined sends nothing and is not asked. */
static int joined(const int32_t *x)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    int last = hvd_size() - 1;
    struct asked a = asks(&o, &a);

    if (hvd_rank() < last) {
        must(hvd_allgather(x, 2, NULL, 0, NULL, HVD_INT32, &o) == 0);
        must(a.calls == 1 && a.count[0] == 2 * (size_t)last);
        must(a.counts[0] == 2 && a.counts[last] == 0);
        must(a.given[0][1] == mark(0, 1));
    }
    drop(&a);
    must(hvd_join(NULL, NULL) == 0);
    return 0;
}

/* In a process set, counts are those of its members. */
static int in_set(const int32_t *x)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    int members[2] = {hvd_size() - 2, hvd_size() - 1};
    struct asked a;

    if (hvd_size() < 3)
        return 0;
    must(hvd_process_set_add(members, 2, &o.process_set) == 0);
    if (hvd_rank() >= members[0]) {
        a = asks(&o, &a);
        must(hvd_allgather(x, (size_t)hvd_rank(), NULL, 0, NULL, HVD_INT32,
                           &o) == 0);
        must(a.size == 2 && a.calls == 1);
        must(a.count[0] == (size_t)members[0] + (size_t)members[1]);
        must(a.counts[1] == (size_t)members[1]);
        must(a.given[0][members[0]] == mark(members[1], 0));
        drop(&a);
    }
    must(hvd_process_set_remove(o.process_set) == 0);
    return 0;
}

int gather_alloc_cases(int times)
{
    int32_t *x = input();

    must(x && mistakes(x) == 0 && gathers(x) == 0 && exchanges(x) == 0);
    for (int trial = 0; trial < TRIALS; trial++) {
        must(group(x, trial, 0) == 0);
        must(group(x, trial, hvd_rank() ? 0 : 2) == 0);
    }
    must(mixed(x) == 0 && repeats(x) == 0 && waits_and_barriers(x) == 0);
    must(in_set(x) == 0 && joined(x) == 0);
    for (int i = 0; i < times; i++)
        must(gather(x, 2, 0, i % 2) == 0);
    free(x);
    return 0;
}
