/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of MPI alone, without libhvd:
 *
 *     mpi_program hello       prints "rank R of N, L here", after checking an
 *                             allreduce, and messages between all ranks
 *     mpi_program stay        the same, but then waits for ever
 *     mpi_program meet        calls MPI_Init and MPI_Finalize
 *     mpi_program abort CODE  rank 1 calls MPI_Abort, the others wait for it
 *     mpi_program pause WHERE rank 0 never begins WHERE: init, finalize, or
 *                             middle, a message that the others wait for;
 *                             each writes its pid to pid.R before WHERE
 *     mpi_program spawn       prints what MPI_Comm_spawn and
 *                             MPI_Comm_spawn_multiple return
 *     mpi_program quit        rank 1 exits with 0 without MPI_Finalize
 *     mpi_program leave       rank 1 closes its connections after MPI_Init, and
 *                             lives on
 *     mpi_program none        does not call MPI
 *     mpi_program speed       rank 0 prints the microseconds of a message of 8
 *                             bytes to the last rank, and of allreduces
 *
 * Built with the compiler of each MPI.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 99);
    return 99;
}

static void begin(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static int hello(int stays)
{
    MPI_Comm here;
    int sum, all, local, *got;

    begin();
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2)
        return fail("wrong sum");
    got = calloc((size_t)size, 2 * sizeof(*got));
    for (int i = 0; i < size; i++)
        got[size + i] = 100 * rank + i;
    MPI_Alltoall(got + size, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        if (got[i] != 100 * i + rank)
            return fail("wrong message");
    free(got);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &here);
    MPI_Comm_size(here, &local);
    MPI_Allreduce(&local, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Comm_free(&here);
    printf("rank %d of %d, %d here\n", rank, size, local);
    while (stays)
        pause();
    MPI_Finalize();
    return 0;
}

static int meet(void)
{
    begin();
    MPI_Finalize();
    return 0;
}

static int call_abort(int code)
{
    begin();
    if (rank == 1)
        MPI_Abort(MPI_COMM_WORLD, code);
    MPI_Barrier(MPI_COMM_WORLD);
    return fail("MPI_Abort of another rank did not end this one");
}

/* ---- Ranks to be killed ----------------------------------------------- */

/* Returns the rank before MPI_Init. */
static int early_rank(void)
{
    const char *text = getenv("HVD_RANK");

    return text ? atoi(text) : 0;
}

static void arrive(const char *at, const char *where)
{
    char name[32], temporary[40];
    FILE *f;

    if (strcmp(at, where) != 0)
        return;
    snprintf(name, sizeof(name), "pid.%d", rank);
    snprintf(temporary, sizeof(temporary), "%s.new", name);
    f = fopen(temporary, "w");
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
    rename(temporary, name);
    while (rank == 0)
        pause();
}

static int pause_at(const char *where)
{
    int value = 0;

    rank = early_rank();
    arrive("init", where);
    begin();
    arrive("middle", where);
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    arrive("finalize", where);
    MPI_Finalize();
    return 0;
}

/* ---- What is refused -------------------------------------------------- */

static void print_error(const char *call, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int class = 0, len;

    MPI_Error_class(rc, &class);
    MPI_Error_string(class, text, &len);
    printf("%s: %s\n", call, text);
}

static int spawn(void)
{
    char name[] = "true", *commands[] = {name, name};
    int counts[] = {1, 1}, rc;
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm children;

    begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    rc = MPI_Comm_spawn(name, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF,
                        &children, MPI_ERRCODES_IGNORE);
    print_error("MPI_Comm_spawn", rc);
    rc = MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, counts, infos, 0,
                                 MPI_COMM_SELF, &children, MPI_ERRCODES_IGNORE);
    print_error("MPI_Comm_spawn_multiple", rc);
    MPI_Finalize();
    return 0;
}

static int quit(void)
{
    begin();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        _exit(0);
    MPI_Finalize();
    return 0;
}

static int leave(void)
{
    begin();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int fd = 3; rank == 1 && fd < 1024; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (rank == 1)
        execlp("sleep", "sleep", "300", (char *)NULL);
    MPI_Finalize();
    return 0;
}

/* ---- Measuring -------------------------------------------------------- */

enum { LARGE = 1 << 18 }; /* floats: 1 MiB */

static float from[LARGE], to[LARGE];

static void ping(void)
{
    int peer = rank == 0 ? size - 1 : 0;

    if (rank != 0 && rank != size - 1)
        return;
    if (rank == 0) {
        MPI_Send(from, 2, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
        MPI_Recv(to, 2, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(to, 2, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(from, 2, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
    }
}

static void add_small(void)
{
    MPI_Allreduce(from, to, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void add_large(void)
{
    MPI_Allreduce(from, to, LARGE, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Prints the time of one call, divided by `parts`. */
static void measure(const char *name, void (*call)(void), int count, int parts)
{
    double begin;

    for (int i = 0; i < count / 10; i++)
        call();
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (int i = 0; i < count; i++)
        call();
    if (rank == 0)
        printf("%s %.3f\n", name, (MPI_Wtime() - begin) / count / parts * 1e6);
}

static int speed(void)
{
    begin();
    measure("message_8_B", ping, 10000, 2);
    measure("allreduce_8_B", add_small, 10000, 1);
    measure("allreduce_1_MiB", add_large, 100, 1);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "hello") == 0)
        return hello(0);
    if (strcmp(what, "stay") == 0)
        return hello(1);
    if (strcmp(what, "meet") == 0)
        return meet();
    if (strcmp(what, "abort") == 0 && argc > 2)
        return call_abort(atoi(argv[2]));
    if (strcmp(what, "pause") == 0 && argc > 2)
        return pause_at(argv[2]);
    if (strcmp(what, "spawn") == 0)
        return spawn();
    if (strcmp(what, "quit") == 0)
        return quit();
    if (strcmp(what, "leave") == 0)
        return leave();
    if (strcmp(what, "none") == 0)
        return 0;
    if (strcmp(what, "speed") == 0)
        return speed();
    fprintf(stderr, "mpi_program: hello, stay, meet, abort, pause, spawn, "
                    "quit, leave, none or speed\n");
    return 2;
}
