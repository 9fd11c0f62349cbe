/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes calls fail in a program that uses MPI, into which it is preloaded:
 *
 *     MPI_FAIL="FUNCTION K RANK"   the Kth call of FUNCTION fails on RANK
 *     MALLOC_FAIL="K RANK"         the Kth allocation by libhvd fails on RANK
 *     SEGMENT_FAKE=1               a peer's segment is replaced by another one
 *                                  with the same header but for the last byte
 *                                  of its nonce
 *
 * A failing call is not carried out: its error handler is called as MPI would
 * do, which ends the process unless it was told otherwise, and the call returns
 * MPI_ERR_OTHER.  Built for each MPI, with every function that the plug-in
 * calls.
 */
#include "lib/protocol/segment.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int own_rank(void)
{
    const char *openmpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *text = openmpi ? openmpi : getenv("PMI_RANK");

    return text ? atoi(text) : -1;
}

/* ---- MPI ------------------------------------------------------------------
 */

static int is_it(const char *function)
{
    static atomic_int calls;
    const char *plan = getenv("MPI_FAIL");
    char name[64];
    int k, rank;

    if (!plan || sscanf(plan, "%63s %d %d", name, &k, &rank) != 3)
        return 0;
    if (strcmp(name, function) != 0 || own_rank() != rank)
        return 0;
    return atomic_fetch_add(&calls, 1) == k - 1;
}

static int fails(MPI_Comm comm)
{
    int initialized = 0;

    PMPI_Initialized(&initialized);
    if (initialized)
        PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

#define CALL(comm, name, parameters, arguments) \
    int MPI_##name parameters                   \
    {                                           \
        if (is_it("MPI_" #name))                \
            return fails(comm);                 \
        return PMPI_##name arguments;           \
    }
#define ANY MPI_COMM_WORLD
#define REQ MPI_Request *req

CALL(ANY, Init_thread, (int *a, char ***b, int l, int *p), (a, b, l, p))
CALL(ANY, Initialized, (int *flag), (flag))
CALL(ANY, Finalized, (int *flag), (flag))
CALL(ANY, Finalize, (void), ())
CALL(ANY, Query_thread, (int *level), (level))
CALL(ANY, Get_library_version, (char *text, int *len), (text, len))
CALL(ANY, Get_processor_name, (char *text, int *len), (text, len))
CALL(ANY, Error_string, (int e, char *text, int *len), (e, text, len))

CALL(ANY, Comm_free, (MPI_Comm * c), (c))
CALL(c, Comm_group, (MPI_Comm c, MPI_Group *g), (c, g))
CALL(c, Comm_rank, (MPI_Comm c, int *n), (c, n))
CALL(c, Comm_size, (MPI_Comm c, int *n), (c, n))
CALL(c, Comm_test_inter, (MPI_Comm c, int *n), (c, n))
CALL(c, Comm_idup, (MPI_Comm c, MPI_Comm *to, REQ), (c, to, req))
CALL(c, Comm_get_errhandler, (MPI_Comm c, MPI_Errhandler *h), (c, h))
CALL(c, Comm_set_errhandler, (MPI_Comm c, MPI_Errhandler h), (c, h))
CALL(ANY, Errhandler_free, (MPI_Errhandler * h), (h))
CALL(c, Comm_set_attr, (MPI_Comm c, int key, void *v), (c, key, v))
CALL(c, Comm_create_group, (MPI_Comm c, MPI_Group g, int tag, MPI_Comm *to),
     (c, g, tag, to))
CALL(ANY, Comm_create_keyval,
     (MPI_Comm_copy_attr_function * copy, MPI_Comm_delete_attr_function *drop,
      int *key, void *x),
     (copy, drop, key, x))
CALL(ANY, Group_free, (MPI_Group * g), (g))
CALL(ANY, Group_incl, (MPI_Group g, int n, const int r[], MPI_Group *to),
     (g, n, r, to))
CALL(ANY, Group_translate_ranks,
     (MPI_Group a, int n, const int r[], MPI_Group b, int to[]),
     (a, n, r, b, to))
CALL(ANY, Op_create, (MPI_User_function * f, int commutes, MPI_Op *op),
     (f, commutes, op))
CALL(ANY, Op_free, (MPI_Op * op), (op))

CALL(ANY, Cancel, (REQ), (req))
CALL(ANY, Wait, (REQ, MPI_Status *s), (req, s))
CALL(ANY, Test, (REQ, int *flag, MPI_Status *s), (req, flag, s))
CALL(c, Irecv,
     (void *b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c, REQ),
     (b, n, t, p, tag, c, req))
CALL(c, Isend,
     (const void *b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c, REQ),
     (b, n, t, p, tag, c, req))

CALL(c, Allreduce,
     (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
     (s, r, n, t, op, c))
CALL(c, Iallreduce,
     (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c,
      REQ),
     (s, r, n, t, op, c, req))
CALL(c, Reduce_scatter,
     (const void *s, void *r, const int n[], MPI_Datatype t, MPI_Op op,
      MPI_Comm c),
     (s, r, n, t, op, c))
CALL(c, Ireduce_scatter,
     (const void *s, void *r, const int n[], MPI_Datatype t, MPI_Op op,
      MPI_Comm c, REQ),
     (s, r, n, t, op, c, req))
CALL(c, Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c),
     (b, n, t, root, c))
CALL(c, Ibcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, REQ),
     (b, n, t, root, c, req))
CALL(c, Allgather,
     (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u,
      MPI_Comm c),
     (s, n, t, r, m, u, c))
CALL(c, Iallgather,
     (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u,
      MPI_Comm c, REQ),
     (s, n, t, r, m, u, c, req))
CALL(c, Allgatherv,
     (const void *s, int n, MPI_Datatype t, void *r, const int m[],
      const int d[], MPI_Datatype u, MPI_Comm c),
     (s, n, t, r, m, d, u, c))
CALL(c, Iallgatherv,
     (const void *s, int n, MPI_Datatype t, void *r, const int m[],
      const int d[], MPI_Datatype u, MPI_Comm c, REQ),
     (s, n, t, r, m, d, u, c, req))
CALL(c, Alltoall,
     (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u,
      MPI_Comm c),
     (s, n, t, r, m, u, c))
CALL(c, Ialltoall,
     (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u,
      MPI_Comm c, REQ),
     (s, n, t, r, m, u, c, req))
CALL(c, Alltoallv,
     (const void *s, const int n[], const int d[], MPI_Datatype t, void *r,
      const int m[], const int e[], MPI_Datatype u, MPI_Comm c),
     (s, n, d, t, r, m, e, u, c))
CALL(c, Ialltoallv,
     (const void *s, const int n[], const int d[], MPI_Datatype t, void *r,
      const int m[], const int e[], MPI_Datatype u, MPI_Comm c, REQ),
     (s, n, d, t, r, m, e, u, c, req))

/* ---- Memory ---------------------------------------------------------------
 */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);

/* Returns whether this allocation must fail.  Counts only what hb_malloc and
 * the like request, in libhvd or the plug-in. */
static int has_none(const void *caller)
{
    static atomic_int calls;
    static _Thread_local int inside;
    const char *plan = inside ? NULL : getenv("MALLOC_FAIL"), *slash;
    int k, rank, fail = 0;
    Dl_info info;

    if (!plan || sscanf(plan, "%d %d", &k, &rank) != 2 || own_rank() != rank)
        return 0;
    inside = 1;
    if (dladdr(caller, &info) && info.dli_fname) {
        slash = strrchr(info.dli_fname, '/');
        if (strncmp(slash ? slash : info.dli_fname, "/libhvd", 7) == 0)
            fail = atomic_fetch_add(&calls, 1) == k - 1;
    }
    inside = 0;
    if (fail)
        errno = ENOMEM;
    return fail;
}

void *malloc(size_t size)
{
    return has_none(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return has_none(__builtin_return_address(0)) ? NULL
                                                 : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
    return has_none(__builtin_return_address(0)) ? NULL
                                                 : __libc_realloc(p, size);
}

/* ---- The segment ----------------------------------------------------------
 */

static int fake(int real)
{
    struct segment_head head;
    struct stat st;
    int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fstat(real, &st) < 0 || ftruncate(fd, st.st_size) < 0 ||
        pread(real, &head, sizeof(head), 0) != sizeof(head))
        abort();
    head.nonce[SEGMENT_NONCE_BYTES - 1] ^= 1;
    if (pwrite(fd, &head, sizeof(head), 0) != sizeof(head))
        abort();
    close(real);
    return fd;
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;
    int fd, pid, n;

    va_start(ap, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && getenv("SEGMENT_FAKE") &&
        sscanf(path, "/proc/%d/fd/%d", &pid, &n) == 2)
        return fake(fd);
    return fd;
}
