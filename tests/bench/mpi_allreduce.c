/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of `hvd-bench allreduce --pin --json`: MPI_Allreduce of floats,
 * summed, out of place, with the same loop as cmd/hvd-bench/measure.c:
 * blocks of at least a millisecond after a barrier, warm-up of two blocks,
 * the time of a block is that of its slowest rank, statistics over blocks.
 * Each rank is pinned to one of its CPUs, buffers begin on a page and are
 * touched before, results are checked before and after.
 *
 *     mpi_allreduce SECONDS BYTES...
 *
 * One JSON object per size, with hvd-bench's names.  Built by any mpicc.
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK_NS = 1000000, ESTIMATE_NS = 2000000, PAGE = 4096 };
enum { BLOCKS_MIN = 5, BLOCKS_MAX = 10000 };

struct run {
    int rank, size;
    long count;
    float *send, *recv;
    unsigned seed;
};

static void die(const char *what)
{
    fprintf(stderr, "mpi_allreduce: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The n-th CPU that this process may use, counted round. */
static void pin(int n)
{
    cpu_set_t allowed, one;
    size_t cpu = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        die("cannot ask for the CPUs");
    n %= CPU_COUNT(&allowed);
    while (!CPU_ISSET(cpu, &allowed) || n-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        die("cannot pin");
}

static int local_rank(void)
{
    MPI_Comm host;
    int rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
}

static float *pages(long count)
{
    size_t room = ((size_t)count * sizeof(float) + PAGE) / PAGE * PAGE;
    float *p = aligned_alloc(PAGE, room);

    if (!p)
        die("no memory");
    memset(p, 0, room);
    return p;
}

/* A small integer, so that every order of adding gives the same sum. */
static float value_of(const struct run *run, int rank, long i)
{
    unsigned x = (unsigned)i * 2654435761u + run->seed;

    return (float)((x >> 16) * (unsigned)(rank + 1) % 251);
}

static void fill(struct run *run)
{
    for (long i = 0; i < run->count; i++)
        run->send[i] = value_of(run, run->rank, i);
}

static void verify(const struct run *run)
{
    for (long i = 0; i < run->count; i++) {
        float want = 0;

        for (int r = 0; r < run->size; r++)
            want += value_of(run, r, i);
        if (run->recv[i] != want)
            die("wrong result");
    }
}

static double time_block(const struct run *run, long n)
{
    double begin;

    MPI_Barrier(MPI_COMM_WORLD);
    begin = now_ns();
    while (n-- > 0)
        MPI_Allreduce(run->send, run->recv, (int)run->count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    return now_ns() - begin;
}

static void slowest(double *v, long count)
{
    MPI_Allreduce(MPI_IN_PLACE, v, (int)count, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(const struct run *run, double *ns, long nblocks, long block)
{
    double per = (double)block * 1e3, bytes = 4.0 * (double)run->count;
    double median, ranks = run->size;

    qsort(ns, (size_t)nblocks, sizeof(*ns), by_value);
    median = (ns[(nblocks - 1) / 2] + ns[nblocks / 2]) / 2 / per;
    printf("{\"bytes\":%.0f,\"count\":%ld,\"median_us\":%.4f,"
           "\"min_us\":%.4f,\"max_us\":%.4f,\"algbw_gbs\":%.4f,"
           "\"busbw_gbs\":%.4f,\"iters\":%ld,\"ranks\":%d}\n",
           bytes, run->count, median, ns[0] / per, ns[nblocks - 1] / per,
           bytes / median / 1e3, bytes / median / 1e3 * 2 * (ranks - 1) / ranks,
           block * nblocks, run->size);
    fflush(stdout);
}

static void measure(const struct run *run, double seconds)
{
    double ns = 0, once, *blocks;
    long n, block, nblocks;

    for (n = 1; n <= 1L << 24; n *= 2) {
        ns = time_block(run, n);
        slowest(&ns, 1);
        if (ns > ESTIMATE_NS)
            break;
    }
    once = ns / (double)n;
    block = (long)(BLOCK_NS / once) + 1;
    nblocks = (long)(seconds * 1e9 / ((double)block * once));
    if (nblocks < BLOCKS_MIN)
        nblocks = BLOCKS_MIN;
    if (nblocks > BLOCKS_MAX)
        nblocks = BLOCKS_MAX;
    blocks = calloc((size_t)nblocks, sizeof(*blocks));
    if (!blocks)
        die("no memory");
    time_block(run, 2 * block);
    for (long i = 0; i < nblocks; i++)
        blocks[i] = time_block(run, block);
    slowest(blocks, nblocks);
    if (run->rank == 0)
        report(run, blocks, nblocks, block);
    free(blocks);
}

int main(int argc, char **argv)
{
    struct run run = {.seed = 88172645};
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    double seconds;
    int len;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.size);
    if (argc < 3 || (seconds = strtod(argv[1], NULL)) <= 0)
        die("usage: mpi_allreduce SECONDS BYTES...");
    pin(local_rank());
    MPI_Get_library_version(version, &len);
    version[strcspn(version, ",\n")] = '\0';
    for (char *p = version; *p; p++)
        if (*p == '\t' || *p == '"')
            *p = ' ';
    if (run.rank == 0)
        printf("{\"version\":\"%s\"}\n", version);
    for (int i = 2; i < argc; i++) {
        run.count = strtol(argv[i], NULL, 10) / (long)sizeof(float);
        run.seed += (unsigned)i;
        if (run.count < 1 || run.count > 1L << 30)
            die("a size is out of range");
        run.send = pages(run.count);
        run.recv = pages(run.count);
        fill(&run);
        time_block(&run, 1);
        verify(&run);
        measure(&run, seconds);
        verify(&run);
        free(run.send);
        free(run.recv);
    }
    MPI_Finalize();
    return 0;
}
