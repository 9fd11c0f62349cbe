/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the peers of hvd-bench. */
#include "tests/bench/peer.h"

#include "cmd/hvd-bench/resnet50.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BLOCK_NS = 1000000,
    ESTIMATE_NS = 2000000,
    SETTLE_NS = 20000000,
    PAGE = 4096
};
enum { BLOCKS_MIN = 7, BLOCKS_MAX = 10000, WINDOW = 16384, SPOILED = 0xee };

static const char *const kind_names[] = {
    [PEER_ALLREDUCE] = "allreduce",         [PEER_BROADCAST] = "broadcast",
    [PEER_ALLGATHER] = "allgather",         [PEER_ALLTOALL] = "alltoall",
    [PEER_REDUCESCATTER] = "reducescatter", [PEER_BARRIER] = "barrier",
    [PEER_RESNET50] = "resnet50",
};

enum peer_kind peer_kind_of(const char *name)
{
    int i = 0;

    while (i < PEER_KINDS && strcmp(kind_names[i], name) != 0)
        i++;
    return (enum peer_kind)i;
}

void peer_die(const char *what)
{
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

void peer_pin(int n)
{
    cpu_set_t allowed, one;
    size_t cpu = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        peer_die("cannot ask for the CPUs");
    n %= CPU_COUNT(&allowed);
    while (!CPU_ISSET(cpu, &allowed) || n-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        peer_die("cannot pin");
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- Buffers and results --------------------------------------------- */

static float *pages(size_t count)
{
    size_t room = (count * sizeof(float) + PAGE) / PAGE * PAGE;
    float *p = aligned_alloc(PAGE, room);

    if (!p)
        peer_die("no memory");
    memset(p, 0, room);
    return p;
}

/* Returns element i of a rank's input: a small integer, so that the sum is the
 * same in every order. */
static float value_of(const struct peer *p, int rank, size_t i)
{
    unsigned x = (unsigned)i * 2654435761u + p->seed;

    return (float)((x >> 16) * (unsigned)(rank + 1) % 251);
}

/* Returns the value that recv[i] must have. */
static float wanted(const struct peer *p, size_t i)
{
    size_t part = p->recv_count / (size_t)p->size, own = (size_t)p->rank;
    float sum = 0;

    switch (p->kind) {
    case PEER_BROADCAST:
        return value_of(p, 0, i);
    case PEER_ALLGATHER:
        return value_of(p, (int)(i / part), i % part);
    case PEER_ALLTOALL:
        return value_of(p, (int)(i / part), own * part + i % part);
    case PEER_REDUCESCATTER:
        i += own * p->recv_count;
        break;
    default:
        break;
    }
    for (int r = 0; r < p->size; r++)
        sum += value_of(p, r, i);
    return sum;
}

static void check(const struct peer *p, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (p->recv[i] != wanted(p, i))
            peer_die("wrong result");
}

static void window(const struct peer *p, int turn, size_t *begin, size_t *end)
{
    size_t places = (p->recv_count + WINDOW - 1) / WINDOW;

    *begin = places ? (size_t)turn % places * WINDOW : 0;
    *end = *begin + WINDOW < p->recv_count ? *begin + WINDOW : p->recv_count;
}

static void open_buffers(struct peer *p, size_t bytes)
{
    size_t ranks = (size_t)p->size, count = bytes / sizeof(float);
    size_t part = (count + ranks - 1) / ranks;

    if (p->kind == PEER_RESNET50)
        count = RESNET50_ELEMENTS;
    if (p->kind == PEER_BARRIER)
        count = part = 0;
    p->send_count = p->recv_count = count;
    if (p->kind == PEER_ALLTOALL || p->kind == PEER_REDUCESCATTER)
        p->send_count = part * ranks;
    if (p->kind == PEER_ALLTOALL || p->kind == PEER_ALLGATHER)
        p->recv_count = part * ranks;
    if (p->kind == PEER_ALLGATHER)
        p->send_count = part;
    if (p->kind == PEER_REDUCESCATTER)
        p->recv_count = part;
    p->seed += (unsigned)count;
    p->recv = pages(p->recv_count);
    p->send = p->kind == PEER_BROADCAST ? p->recv : pages(p->send_count);
    if (p->kind == PEER_BROADCAST && p->rank > 0)
        return;
    for (size_t i = 0; i < p->send_count; i++)
        p->send[i] = value_of(p, p->rank, i);
}

static void close_buffers(struct peer *p)
{
    if (p->send != p->recv)
        free(p->send);
    free(p->recv);
}

/* ---- The loop -------------------------------------------------------- */

static double time_block(struct peer *p, long n)
{
    double begin;

    p->barrier(p);
    begin = now_ns();
    while (n-- > 0)
        p->call(p);
    return now_ns() - begin;
}

static double checked_block(struct peer *p, long n, int turn)
{
    int is_input = p->kind == PEER_BROADCAST && p->rank == 0;
    size_t begin, end;
    double ns;

    window(p, turn, &begin, &end);
    if (!is_input)
        memset(p->recv + begin, SPOILED, (end - begin) * sizeof(float));
    ns = time_block(p, n);
    check(p, begin, end);
    return ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(const struct peer *p, double *ns, int nblocks, long block)
{
    double per = (double)block * 1e3, median, ranks = p->size, factor = 1;
    size_t count =
        p->send_count > p->recv_count ? p->send_count : p->recv_count;
    double bytes = (double)(count * sizeof(float));

    qsort(ns, (size_t)nblocks, sizeof(*ns), by_value);
    median = (ns[(nblocks - 1) / 2] + ns[nblocks / 2]) / 2 / per;
    if (p->kind == PEER_ALLREDUCE || p->kind == PEER_RESNET50)
        factor = 2 * (ranks - 1) / ranks;
    else if (p->kind != PEER_BROADCAST)
        factor = (ranks - 1) / ranks;
    printf("{\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%.0f,"
           "\"count\":%zu,\"median_us\":%.4f,\"min_us\":%.4f,"
           "\"max_us\":%.4f,\"algbw_gbs\":%.4f,\"busbw_gbs\":%.4f,"
           "\"iters\":%ld}\n",
           kind_names[p->kind], p->size, bytes, count, median, ns[0] / per,
           ns[nblocks - 1] / per, bytes / median / 1e3,
           bytes / median / 1e3 * factor, block * nblocks);
    fflush(stdout);
}

/* Returns the time of the quickest iteration, in blocks that grow until two are
 * long enough. */
static double estimate(struct peer *p)
{
    double ns, once = 1e18, total = 0;
    int enough = 0;

    for (long n = 1; enough < 2 || total < SETTLE_NS;) {
        ns = time_block(p, n);
        p->maximum(p, &ns, 1);
        total += ns;
        if (ns / (double)n < once)
            once = ns / (double)n;
        if (ns > ESTIMATE_NS || n >= 1L << 24)
            enough++;
        else
            n *= 2;
    }
    return once;
}

static void measure(struct peer *p, double seconds)
{
    double once = estimate(p), *blocks;
    int nblocks = BLOCKS_MAX;
    long block;

    block = (long)(BLOCK_NS / once) + 1;
    if (seconds * 1e9 / ((double)block * once) < BLOCKS_MAX)
        nblocks = (int)(seconds * 1e9 / ((double)block * once));
    if (nblocks < BLOCKS_MIN)
        nblocks = BLOCKS_MIN;
    blocks = calloc((size_t)nblocks, sizeof(*blocks));
    if (!blocks)
        peer_die("no memory");
    time_block(p, 2 * block);
    for (int i = 0; i < nblocks; i++)
        blocks[i] = checked_block(p, block, i);
    p->maximum(p, blocks, nblocks);
    if (p->rank == 0)
        report(p, blocks, nblocks, block);
    free(blocks);
}

void peer_run(struct peer *p, double seconds, size_t bytes)
{
    open_buffers(p, bytes);
    p->call(p);
    check(p, 0, p->recv_count);
    measure(p, seconds);
    check(p, 0, p->recv_count);
    close_buffers(p);
}
