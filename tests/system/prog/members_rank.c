/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets that their members make alone: `members_rank VERB`.  The exit
 * code is 0 when the verb's own checks hold, 1 when they do not, 99 on misuse.
 */
#include "runtime/hvd.h"
#include "tests/system/prog/rank_checks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 300000, CYCLES = 45 };

/* Sums rank + 1 over the set, in operations of several sizes. */
static void sum_in(int set, const int *ranks, size_t n)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    static const size_t counts[] = {1, 700, LARGE};
    int32_t *x = malloc(LARGE * sizeof(*x)), want = 0;

    check(x != NULL, "memory");
    o.process_set = set;
    for (size_t i = 0; i < n; i++)
        want += ranks[i] + 1;
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (size_t i = 0; i < counts[k]; i++)
            x[i] = hvd_rank() + 1;
        check(hvd_allreduce(x, x, counts[k], HVD_INT32, HVD_SUM, &o) == 0,
              "allreduce");
        for (size_t i = 0; i < counts[k]; i++)
            check(x[i] == want, "the sum");
    }
    free(x);
}

/* Makes a set of the ranks that are `part` modulo `parts`, in descending
 * order. */
static size_t every(int parts, int part, int *ranks)
{
    size_t n = 0;

    for (int r = hvd_size() - 1; r >= 0; r--)
        if (r % parts == part)
            ranks[n++] = r;
    return n;
}

static int make(const int *ranks, size_t n, const char *tag)
{
    int set = -1;

    check(hvd_process_set_add_members(ranks, n, tag, &set) == 0, "make");
    check(set > 0 && hvd_process_set_size(set) == (int)n, "its size");
    return set;
}

/* cycles: sets of even and of odd ranks, made and removed again and again with
 * the same tag, more often than there are numbers; rank 0 alone in another set
 * meanwhile, and sets of all ranks in between. */
static int verb_cycles(void)
{
    int ranks[64], all, mine = hvd_rank() % 2, own = 0, zero = 0;
    size_t n = every(2, mine, ranks);

    if (hvd_rank() == 0)
        own = make(&zero, 1, "alone");
    for (int i = 0; i < CYCLES; i++) {
        int set = make(ranks, n, "half"), twin = 0;

        sum_in(set, ranks, n);
        if (i % 5 == 0) {
            twin = make(ranks, n, "half");
            sum_in(twin, ranks, n);
            sum_in(set, ranks, n);
        }
        if (i % 9 == 0 && hvd_size() > 2) {
            int first[2] = {0, hvd_size() - 1};

            check(hvd_process_set_add(first, 2, &all) == 0, "add");
            if (hvd_process_set_rank(all) >= 0)
                sum_in(all, first, 2);
            check(hvd_process_set_remove(all) == 0, "remove of all");
        }
        if (twin)
            check(hvd_process_set_remove(twin) == 0, "remove the twin");
        check(hvd_process_set_remove(set) == 0, "remove");
        check(hvd_process_set_size(set) == -HVD_ENOSET, "it is gone");
    }
    if (own)
        sum_in(own, &zero, 1);
    check(hvd_barrier(NULL) == 0, "barrier");
    return 0;
}

struct task {
    pthread_t thread;
    int ranks[64];
    size_t n;
    char tag[16];
};

static void *make_and_sum(void *arg)
{
    struct task *t = arg;
    int set = make(t->ranks, t->n, t->tag);

    sum_in(set, t->ranks, t->n);
    check(hvd_process_set_remove(set) == 0, "remove");
    return NULL;
}

/* threads: each rank makes a set of all ranks, one of its parity, and one with
 * its neighbour, in threads at the same time and in an order of its own. */
static int verb_threads(void)
{
    int size = hvd_size();
    struct task t[3];

    for (int i = 0; i < 3; i++)
        snprintf(t[i].tag, sizeof(t[i].tag), "%s",
                 i == 0   ? "all"
                 : i == 1 ? "parity"
                          : "pair");
    t[0].n = every(1, 0, t[0].ranks);
    t[1].n = every(2, hvd_rank() % 2, t[1].ranks);
    t[2].n = 2;
    t[2].ranks[0] = hvd_rank() / 2 * 2;
    t[2].ranks[1] = t[2].ranks[0] + 1;
    if (t[2].ranks[1] == size)
        t[2].n = 1;
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < 3; i++)
            check(pthread_create(&t[(i + hvd_rank()) % 3].thread, NULL,
                                 make_and_sum, &t[(i + hvd_rank()) % 3]) == 0,
                  "thread");
        for (int i = 0; i < 3; i++)
            pthread_join(t[i].thread, NULL);
    }
    return 0;
}

static void *with_all(void *arg)
{
    int ranks[64], set;

    check(hvd_process_set_add(ranks, every(1, 0, ranks) - 1, &set) == 0, "add");
    check(hvd_process_set_remove(set) == 0, "remove of all");
    return arg;
}

/* mixed: ranks make sets in both ways.  Even ranks do so at the same time in
 * two threads, odd ranks one after the other.  Neither way waits for the other.
 */
static int verb_mixed(void)
{
    struct task t = {.tag = "mixed"};

    t.n = every(1, 0, t.ranks);
    for (int k = 0; k < 20; k++) {
        if (hvd_rank() % 2 == 0)
            check(pthread_create(&t.thread, NULL, with_all, NULL) == 0,
                  "thread");
        make_and_sum(&t);
        if (hvd_rank() % 2)
            with_all(NULL);
        else
            pthread_join(t.thread, NULL);
    }
    return 0;
}

/* fill: makes sets until there is no room for more, then one in the place of
 * the first. */
static int verb_fill(void)
{
    int ranks[64], first = 0, set, count = 0, rc;
    size_t n = every(1, 0, ranks);
    char tag[16];

    for (;; count++) {
        snprintf(tag, sizeof(tag), "s%d", count);
        rc = hvd_process_set_add_members(ranks, n, tag, &set);
        if (rc < 0)
            break;
        if (count == 0)
            first = set;
    }
    check(rc == -HVD_EINVAL && count > 20, "no room");
    check(hvd_process_set_add(ranks, n - 1, &set) < 0, "nor for others");
    check(hvd_process_set_remove(first) == 0, "remove");
    set = make(ranks, n, "again");
    sum_in(set, ranks, n);
    return 0;
}

/* uneven: rank 0 alone has no number left, so that no rank gets a set of
 * several; when it has one again, all do. */
static int verb_uneven(void)
{
    int zero = 0, both[2] = {0, 1}, last = 0, set, rc = 0;

    while (hvd_rank() == 0 && rc == 0) {
        rc = hvd_process_set_add_members(&zero, 1, "alone", &set);
        last = rc == 0 ? set : last;
    }
    check(rc == 0 || rc == -HVD_EINVAL, "no room");
    check(hvd_process_set_add(both, 2, &set) == -HVD_EINVAL, "nor for others");
    tell(HVD_EINVAL);
    if (last)
        check(hvd_process_set_remove(last) == 0, "remove");
    check(hvd_barrier(NULL) == 0, "barrier");
    check(hvd_process_set_add(both, 2, &set) == 0, "room again");
    if (hvd_rank() < 2)
        sum_in(set, both, 2);
    return 0;
}

/* wrong: arguments that are refused at once. */
static int verb_wrong(void)
{
    int ranks[64], twice[2] = {hvd_rank(), hvd_rank()}, set = -7;
    int other = hvd_rank() ? 0 : 1, beyond[2] = {hvd_rank(), hvd_size()};
    size_t n = every(1, 0, ranks);
    char longer[66];

    memset(longer, 'x', sizeof(longer));
    longer[65] = '\0';
#define REFUSED(...) \
    check(hvd_process_set_add_members(__VA_ARGS__) == -HVD_EINVAL, #__VA_ARGS__)
    REFUSED(NULL, n, "t", &set);
    REFUSED(ranks, n, NULL, &set);
    REFUSED(ranks, n, "t", NULL);
    REFUSED(ranks, 0, "t", &set);
    REFUSED(ranks, n + 1, "t", &set);
    REFUSED(ranks, n, "", &set);
    REFUSED(ranks, n, "a\tb", &set);
    REFUSED(ranks, n, longer, &set);
    REFUSED(twice, 2, "t", &set);
    REFUSED(beyond, 2, "t", &set);
    REFUSED(&other, 1, "t", &set);
#undef REFUSED
    check(set == -7, "set is untouched");
    longer[64] = '\0';
    set = make(ranks, n, longer);
    sum_in(set, ranks, n);
    return 0;
}

/* differ: the last rank names fewer ranks; absent: it does not come; die: it is
 * killed; leave: it shuts down.  The others tell what they get. */
static int fail(const char *how)
{
    int ranks[64], set, last = hvd_rank() == hvd_size() - 1;
    size_t n = every(1, 0, ranks);

    if (last && strcmp(how, "die") == 0)
        raise(SIGKILL);
    if (last && strcmp(how, "leave") == 0)
        return 0;
    if (last && strcmp(how, "differ") == 0) {
        ranks[1] = ranks[n - 1];
        n = 2;
    }
    if (!last || strcmp(how, "absent") != 0)
        tell(hvd_process_set_add_members(ranks, n, how, &set));
    if (strcmp(how, "absent") == 0)
        check(hvd_barrier(NULL) == 0, "barrier");
    return 0;
}

static void *shut_down(void *arg)
{
    check(hvd_barrier(NULL) == 0, "barrier");
    hvd_shutdown();
    return arg;
}

/* shutdown: every rank but the last waits, and shuts down in another thread. */
static int verb_shutdown(void)
{
    int ranks[64], set, rc;
    size_t n = every(1, 0, ranks);
    pthread_t thread;

    if (hvd_rank() == hvd_size() - 1)
        return hvd_barrier(NULL);
    check(pthread_create(&thread, NULL, shut_down, NULL) == 0, "thread");
    rc = hvd_process_set_add_members(ranks, n, "s", &set);
    pthread_join(thread, NULL);
    return !(rc == -HVD_ESHUTDOWN || rc == -HVD_EPEER || rc == -HVD_ENOTINIT);
}

/* Lets the others go on without rank `victim`, which dies. */
static void lose(int victim)
{
    int now = hvd_generation(), rc = hvd_barrier(NULL);

    if (hvd_rank() == victim)
        raise(SIGKILL);
    while (rc == 0)
        rc = hvd_barrier(NULL);
    check(rc == -HVD_ERESIZED && hvd_sync(NULL) == 0, "sync");
    check(hvd_generation() == now + 1, "the next generation");
}

/* keep: in an elastic job of five ranks, those of even and of odd ranks make
 * sets with different numbers; these keep their numbers and
 * the members that are left when rank 0 dies, and then what was rank 3. */
static int verb_keep(void)
{
    int ranks[64], own, twin, odd = hvd_rank() % 2;
    size_t n = every(2, odd, ranks);

    if (!odd)
        make(ranks, n, "more");
    own = make(ranks, n, "a");
    twin = make(ranks, n, "b");
    sum_in(own, ranks, n);
    lose(0);
    odd = !odd; /* by the numbers now */
    n = every(2, odd, ranks);
    sum_in(own, ranks, n);
    sum_in(twin, ranks, n);
    check(hvd_process_set_size(own) == (int)n, "its size");
    check(hvd_process_set_remove(own) == 0, "remove");
    lose(2);
    check(hvd_process_set_size(own) == -HVD_ENOSET, "it stays removed");
    /* 1 and 3 were odd, 0 and the one that died even; 3 is 2 now. */
    ranks[0] = odd ? 2 : 0;
    ranks[1] = 1;
    sum_in(twin, ranks, odd ? 2 : 1);
    check(hvd_process_set_size(twin) == (odd ? 2 : 1), "the size of the other");
    check(hvd_process_set_remove(twin) == 0, "remove the other");
    twin = make(ranks, odd ? 2 : 1, "a");
    sum_in(twin, ranks, odd ? 2 : 1);
    return 0;
}

int main(int argc, char **argv)
{
    const char *verb = argc == 2 ? argv[1] : "";
    int rc = 99;

    /* hvdrun sends it when a rank has died, which the others are to tell.
     * Before hvd_init, because a rank may die when it has passed that. */
    signal(SIGTERM, SIG_IGN);
    check(hvd_init() == 0, "init");
    if (strcmp(verb, "cycles") == 0)
        rc = verb_cycles();
    else if (strcmp(verb, "threads") == 0)
        rc = verb_threads();
    else if (strcmp(verb, "mixed") == 0)
        rc = verb_mixed();
    else if (strcmp(verb, "fill") == 0)
        rc = verb_fill();
    else if (strcmp(verb, "uneven") == 0)
        rc = verb_uneven();
    else if (strcmp(verb, "wrong") == 0)
        rc = verb_wrong();
    else if (strcmp(verb, "keep") == 0)
        rc = verb_keep();
    else if (strcmp(verb, "shutdown") == 0)
        rc = verb_shutdown();
    else if (argc == 2)
        rc = fail(verb);
    hvd_shutdown();
    return rc;
}
