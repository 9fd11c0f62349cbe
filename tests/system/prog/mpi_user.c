/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses MPI itself, beside libhvd:
 *
 *     mpi_user level single|serialized|multiple   initialises MPI first
 *     mpi_user finalized     has also finalised it before hvd_init
 *     mpi_user early         finalises MPI before hvd_shutdown
 *     mpi_user refused V     rank 1 has nonsense in variable V
 *     mpi_user stopped MS LATE   a rank is stopped for MS milliseconds, and
 *                                another one begins LATE milliseconds late
 *     mpi_user absent        rank 1 does not call hvd_init
 *     mpi_user comm          makes process sets from communicators
 *     mpi_user beside ROUNDS sends messages of its own
 *
 * Built with the compiler of each MPI.  Exits 0 when all was as it should be,
 * else 1 after a line.
 */
#include "runtime/hvd.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

#define WANT(ok)                                                          \
    do {                                                                  \
        if (!(ok)) {                                                      \
            printf("mpi_user.c:%d: rank %d: not so: %s (%s)\n", __LINE__, \
                   rank, #ok, hvd_error_message());                       \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

static void begin(int level)
{
    int provided;

    WANT(MPI_Init_thread(NULL, NULL, level, &provided) == MPI_SUCCESS);
    WANT(provided >= level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static void sum_up(int set, int expected)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    int32_t v = hvd_rank() + 1;

    o.process_set = set;
    WANT(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, &o) == 0);
    WANT(v == expected);
}

/* ---- MPI that the program began --------------------------------------- */

static int level(const char *name)
{
    int finalized = 0, granted;

    begin(strcmp(name, "single") == 0       ? MPI_THREAD_SINGLE
          : strcmp(name, "serialized") == 0 ? MPI_THREAD_SERIALIZED
                                            : MPI_THREAD_MULTIPLE);
    if (strcmp(name, "single") == 0) {
        WANT(hvd_init() == -HVD_EUNSUPPORTED);
        WANT(strstr(hvd_error_message(), "MPI_THREAD_SERIALIZED"));
    } else {
        WANT(hvd_init() == 0);
        WANT(hvd_rank() == rank && hvd_size() == size);
        MPI_Query_thread(&granted);
        WANT(hvd_feature("mpi_threads_supported") ==
             (granted == MPI_THREAD_MULTIPLE));
        sum_up(HVD_WORLD, size * (size + 1) / 2);
        WANT(hvd_shutdown() == 0);
        WANT(hvd_init() == 0);
        sum_up(HVD_WORLD, size * (size + 1) / 2);
        WANT(hvd_shutdown() == 0);
    }
    /* MPI is still the program's */
    MPI_Finalized(&finalized);
    WANT(!finalized);
    WANT(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
    MPI_Finalize();
    return 0;
}

static int finalized(void)
{
    begin(MPI_THREAD_SERIALIZED);
    MPI_Finalize();
    WANT(hvd_init() == -HVD_EUNSUPPORTED);
    WANT(strstr(hvd_error_message(), "finalized") ||
         strstr(hvd_error_message(), "MPI_Finalize"));
    return 0;
}

/* Finalises MPI before hvd_shutdown.  This ends libhvd's operations if they use
 * MPI, and libhvd calls MPI no more. */
static int early(void)
{
    const char *plane = getenv("HVD_CPU_PLANE");
    int32_t v = 1;

    begin(MPI_THREAD_SERIALIZED);
    WANT(hvd_init() == 0);
    sum_up(HVD_WORLD, size * (size + 1) / 2);
    MPI_Finalize();
    if (plane && strcmp(plane, "mpi") == 0) {
        WANT(hvd_allreduce(&v, &v, 1, HVD_INT32, HVD_SUM, NULL) ==
             -HVD_ESHUTDOWN);
        WANT(strstr(hvd_error_message(), "MPI was finalised"));
    } else {
        MPI_Comm world = MPI_COMM_WORLD;
        int set = -1;

        sum_up(HVD_WORLD, size * (size + 1) / 2);
        WANT(hvd_process_set_add_mpi(&world, &set) == -HVD_EUNSUPPORTED);
        WANT(strstr(hvd_error_message(), "MPI was finalised"));
    }
    if (rank == 0) /* the others shut down at exit */
        WANT(hvd_shutdown() == 0);
    return 0;
}

/* Checks that hvd_init, which here initialises MPI itself, fails on every rank
 * if rank 1 has nonsense in `variable`. */
static int refused_by_one(const char *variable)
{
    const char *openmpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *mine = openmpi ? openmpi : getenv("PMI_RANK");

    rank = mine ? (int)strtol(mine, NULL, 10) : -1;
    if (rank == 1)
        setenv(variable, "nonsense", 1);
    WANT(hvd_init() < 0);
    WANT(strstr(hvd_error_message(), rank == 1 ? variable : "rank"));
    return 0;
}

/* Makes a child that stops this process for `ms`, 20 ms after a byte arrives.
 * Returns the descriptor for that byte. */
static int stopper(int ms)
{
    pid_t parent = getpid();
    int fds[2];
    char byte;

    WANT(pipe(fds) == 0);
    if (fork() == 0) {
        close(fds[1]);
        if (read(fds[0], &byte, 1) == 1) {
            usleep(20000);
            kill(parent, SIGSTOP);
            usleep((useconds_t)ms * 1000);
            kill(parent, SIGCONT);
        }
        _exit(0);
    }
    close(fds[0]);
    return fds[1];
}

/* Stops rank 2 of three for `ms` in an operation.  Rank 1 has begun it, leaves,
 * and does not know that all ranks have begun it, as rank 2 cannot tell it.
 * Rank 0 does know; if it begins so late that rank 1 is leaving, it must not go
 * on by itself. */
static int stopped(int ms, int late_ms)
{
    int stop = stopper(ms), rc;
    hvd_request *request;
    int32_t v = 1;

    WANT(hvd_init() == 0);
    rank = hvd_rank();
    WANT(hvd_barrier(NULL) == 0);
    usleep(rank == 2   ? 0
           : rank == 0 ? 60000 + (useconds_t)late_ms * 1000
                       : 60000);
    WANT(hvd_allreduce_async("a", &v, &v, 1, HVD_INT32, HVD_SUM, NULL,
                             &request) == 0);
    if (rank == 2)
        WANT(write(stop, "", 1) == 1);
    if (rank == 1) {
        usleep(60000);
        hvd_shutdown();
    }
    rc = hvd_wait(request);
    WANT(rc == 0 ? v == 3 : rc == -HVD_ESHUTDOWN);
    return 0;
}

/* Initialises MPI on all ranks, of which rank 1 never calls hvd_init. */
static int absent(void)
{
    begin(MPI_THREAD_SERIALIZED);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 1) {
        WANT(hvd_init() == -HVD_ETIMEOUT);
        puts(hvd_error_message());
        fflush(stdout);
    }
    /* waits, because the launcher ends the other ranks when one exits */
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

/* ---- Process sets of communicators -------------------------------------- */

static void refused(const MPI_Comm *comm, int status, const char *text)
{
    int set = -1;

    WANT(hvd_process_set_add_mpi(comm, &set) == -status);
    WANT(strstr(hvd_error_message(), text));
    WANT(set == -1);
}

static int comm(void)
{
    MPI_Comm parts, last, null = MPI_COMM_NULL;
    int set = -1, in_even, in_last, sum = 0;

    begin(MPI_THREAD_SERIALIZED);
    WANT(hvd_init() == 0);
    in_even = rank % 2 == 0;
    in_last = rank > 0;
    /* in another order than that of the world */
    MPI_Comm_split(MPI_COMM_WORLD, in_even, -rank, &parts);
    MPI_Comm_split(MPI_COMM_WORLD, in_last ? 0 : MPI_UNDEFINED, rank, &last);
    WANT(hvd_process_set_add_mpi(in_even ? &parts : &null, &set) == 0);
    WANT(hvd_process_set_size(set) == (size + 1) / 2);
    for (int r = 0; r < size; r += 2)
        sum += r + 1;
    if (in_even)
        sum_up(set, sum);
    refused(&parts, HVD_EMISMATCH, "have different ranks");
    refused(&null, HVD_EINVAL, "MPI_COMM_NULL was given on every rank");
    if (size > 2)
        refused(rank == 1 ? &null : &last, HVD_EMISMATCH,
                "is in the communicator of rank");
    refused(NULL, HVD_EINVAL, "comm is NULL");
    refused(rank == 1 ? NULL : &null, HVD_EINVAL,
            rank == 1 ? "comm is NULL" : "the communicator of rank 1 is NULL");
    MPI_Comm_free(&parts);
    if (in_even)
        sum_up(set, sum);
    WANT(hvd_process_set_remove(set) == 0);
    if (last != MPI_COMM_NULL)
        MPI_Comm_free(&last);
    WANT(hvd_shutdown() == 0);
    MPI_Finalize();
    return 0;
}

/* ---- Messages of the program's own --------------------------------------- */

/* Receives messages from any source with any tag between operations of libhvd:
 * none of libhvd's messages must arrive here. */
static int beside(int rounds)
{
    begin(MPI_THREAD_SERIALIZED);
    WANT(hvd_init() == 0);
    for (int i = 0; i < rounds; i++) {
        int mine[2] = {rank, i}, theirs[2] = {-1, -1};
        MPI_Request request;
        MPI_Status status;

        MPI_Isend(mine, 2, MPI_INT, (rank + 1) % size, i % 7, MPI_COMM_WORLD,
                  &request);
        sum_up(HVD_WORLD, size * (size + 1) / 2);
        MPI_Recv(theirs, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                 MPI_COMM_WORLD, &status);
        WANT(theirs[0] == (rank + size - 1) % size && theirs[1] == i);
        WANT(status.MPI_TAG == i % 7);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    WANT(hvd_shutdown() == 0);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "level") == 0 && argc == 3)
        return level(argv[2]);
    if (strcmp(what, "finalized") == 0)
        return finalized();
    if (strcmp(what, "refused") == 0 && argc == 3)
        return refused_by_one(argv[2]);
    if (strcmp(what, "stopped") == 0 && argc == 4)
        return stopped((int)strtol(argv[2], NULL, 10),
                       (int)strtol(argv[3], NULL, 10));
    if (strcmp(what, "absent") == 0)
        return absent();
    if (strcmp(what, "early") == 0)
        return early();
    if (strcmp(what, "comm") == 0)
        return comm();
    if (strcmp(what, "beside") == 0 && argc == 3)
        return beside(argv[2][0] - '0');
    fprintf(
        stderr,
        "usage: mpi_user level L | finalized | early | refused V | stopped MS "
        "LATE | absent | comm | beside N\n");
    return 99;
}
