/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI as a peer of `hvd-bench COLLECTIVE --pin --json`: floats, which
 * reductions sum; out of place except for MPI_Bcast, which has no such form.
 * Built by any mpicc; tests/bench runs it.
 *
 *     mpi_peer COLLECTIVE SECONDS BYTES...
 *     mpi_peer resnet50 SECONDS
 */
#include "cmd/hvd-bench/resnet50.h"
#include "tests/bench/peer.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 1024 };

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

static void barrier(struct peer *p)
{
    (void)p;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void maximum(struct peer *p, double *v, int count)
{
    (void)p;
    MPI_Allreduce(MPI_IN_PLACE, v, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void allreduce(struct peer *p)
{
    MPI_Allreduce(p->send, p->recv, (int)p->send_count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void broadcast(struct peer *p)
{
    MPI_Bcast(p->recv, (int)p->recv_count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void allgather(struct peer *p)
{
    MPI_Allgather(p->send, (int)p->send_count, MPI_FLOAT, p->recv,
                  (int)p->send_count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void alltoall(struct peer *p)
{
    int part = (int)p->send_count / p->size;

    MPI_Alltoall(p->send, part, MPI_FLOAT, p->recv, part, MPI_FLOAT,
                 MPI_COMM_WORLD);
}

/* Reduces and scatters by MPI_Reduce_scatter.  At some sizes Open MPI is
 * many times faster by this call than by MPI_Reduce_scatter_block, at others
 * slower. */
static void reduce_scatter(struct peer *p)
{
    static int counts[RANKS_MAX];

    if (p->size > RANKS_MAX)
        peer_die("more ranks than mpi_peer can serve");
    for (int i = 0; i < p->size; i++)
        counts[i] = (int)p->recv_count;
    MPI_Reduce_scatter(p->send, p->recv, counts, MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
}

static void reduce_scatter_block(struct peer *p)
{
    MPI_Reduce_scatter_block(p->send, p->recv, (int)p->recv_count, MPI_FLOAT,
                             MPI_SUM, MPI_COMM_WORLD);
}

static void resnet50(struct peer *p)
{
    const size_t *counts = p->context;
    size_t at = 0;

    for (int i = 0; i < RESNET50_TENSORS; at += counts[i++])
        MPI_Allreduce(p->send + at, p->recv + at, (int)counts[i], MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
}

static void (*const calls[])(struct peer *) = {
    [PEER_ALLREDUCE] = allreduce,
    [PEER_BROADCAST] = broadcast,
    [PEER_ALLGATHER] = allgather,
    [PEER_ALLTOALL] = alltoall,
    [PEER_REDUCESCATTER] = reduce_scatter,
    [PEER_BARRIER] = barrier,
    [PEER_RESNET50] = resnet50,
};

static void print_version(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;

    MPI_Get_library_version(version, &len);
    version[strcspn(version, ",\n")] = '\0';
    for (char *c = version; *c; c++)
        if (*c == '\t' || *c == '"')
            *c = ' ';
    printf("{\"version\":\"%s\"}\n", version);
}

int main(int argc, char **argv)
{
    size_t counts[RESNET50_TENSORS];
    struct peer peer = {.barrier = barrier, .maximum = maximum, .seed = 881};
    double seconds;
    int one;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    peer.kind = argc > 1 ? peer_kind_of(argv[1]) : PEER_KINDS;
    if (argc < 3 || peer.kind == PEER_KINDS ||
        (seconds = strtod(argv[2], NULL)) <= 0)
        peer_die("usage: mpi_peer COLLECTIVE SECONDS BYTES...");
    peer_pin(local_rank());
    bench_resnet50(counts);
    peer.context = counts;
    peer.call = calls[peer.kind];
    if (peer.rank == 0)
        print_version();
    one = peer.kind == PEER_BARRIER || peer.kind == PEER_RESNET50;
    if (one)
        peer_run(&peer, seconds, 0);
    for (int i = 3; i < argc && !one; i++) {
        size_t bytes = strtoul(argv[i], NULL, 10);

        peer.call = calls[peer.kind];
        peer_run(&peer, seconds, bytes);
        if (peer.kind != PEER_REDUCESCATTER)
            continue;
        peer.call = reduce_scatter_block;
        peer_run(&peer, seconds, bytes);
    }
    MPI_Finalize();
    return 0;
}
