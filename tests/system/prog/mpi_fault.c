/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libhvd program for faults, under an MPI launcher:
 *
 *     mpi_fault DIR WAIT
 *
 * Makes a process set of all ranks but the last, and carries out every kind of
 * operation in the world and in the set, over and over.  At the end DIR/RANK
 * holds what each call gave on the first failure (status, the rank that the
 * message is about, text), or "0 no failure".  After a failure, waits at most
 * WAIT seconds for the files of all others before it ends, because the launcher
 * may then end them.  Exits 0, 1 after a failure, or 3 when a file of the
 * others did not come.
 */
#include "runtime/hvd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 96, RANKS_MAX = 8, ROUNDS = 3 };

static const char *dir;
static int wait_s, rank, size;

static int number(const char *openmpi, const char *mpich)
{
    const char *text = getenv(openmpi) ? getenv(openmpi) : getenv(mpich);

    return text ? (int)strtol(text, NULL, 10) : 0;
}

static void report(int rc, const char *call, const char *text)
{
    char path[512], temporary[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%d", dir, rank);
    snprintf(temporary, sizeof(temporary), "%s/.%d", dir, rank);
    f = fopen(temporary, "w");
    if (!f || fprintf(f, "%d %s %s\n", -rc, call, text) < 0 || fclose(f) ||
        rename(temporary, path) < 0)
        exit(99);
}

static int all_have(void)
{
    for (int r = 0; r < size; r++) {
        char path[512];

        snprintf(path, sizeof(path), "%s/%d", dir, r);
        if (access(path, F_OK) < 0)
            return 0;
    }
    return 1;
}

static void check(int rc, const char *call)
{
    if (rc >= 0)
        return;
    report(rc, call, hvd_error_message());
    for (int i = 0; i < 50 * wait_s && !all_have(); i++)
        usleep(20000);
    exit(!wait_s || all_have() ? 1 : 3);
}

#define CHECK(call, name) check(call, name)

static void work(int set, int n)
{
    static int32_t in[COUNT], out[COUNT * RANKS_MAX];
    size_t counts[RANKS_MAX], got[RANKS_MAX];
    struct hvd_options o = HVD_OPTIONS_INIT;

    o.process_set = set;
    for (int i = 0; i < COUNT; i++)
        in[i] = i;
    for (int r = 0; r < n; r++)
        counts[r] = 4;
    CHECK(hvd_allreduce(in, out, COUNT, HVD_INT32, HVD_SUM, &o), "allreduce");
    if (out[5] != 5 * n) {
        report(-1, "allreduce", "wrong result");
        exit(4);
    }
    CHECK(hvd_broadcast(in, in, COUNT, HVD_INT32, 1, &o), "broadcast");
    CHECK(hvd_allgather(in, (size_t)(1 + rank % 3), out, COUNT, got, HVD_INT32,
                        &o),
          "allgather");
    CHECK(
        hvd_alltoall(in, counts, (size_t)n * 4, out, COUNT, got, HVD_INT32, &o),
        "alltoall");
    CHECK(
        hvd_reducescatter(in, out, (size_t)(n * 4), 1, HVD_INT32, HVD_SUM, &o),
        "reducescatter");
    CHECK(hvd_barrier(&o), "barrier");
}

int main(int argc, char **argv)
{
    int members[RANKS_MAX], set = -1;

    if (argc != 3)
        return 99;
    dir = argv[1];
    wait_s = (int)strtol(argv[2], NULL, 10);
    rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    CHECK(hvd_init(), "init");
    work(HVD_WORLD, size);
    for (int r = 0; r < size - 1; r++)
        members[r] = r;
    CHECK(hvd_process_set_add(members, (size_t)size - 1, &set), "add");
    for (int i = 0; i < ROUNDS; i++) {
        work(HVD_WORLD, size);
        if (rank < size - 1)
            work(set, size - 1);
    }
    CHECK(hvd_process_set_remove(set), "remove");
    CHECK(hvd_barrier(NULL), "barrier");
    report(0, "-", "no failure");
    hvd_shutdown();
    return 0;
}
