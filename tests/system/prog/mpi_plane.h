/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of mpi_plane share: checks that end the job, the world, and
 * a plane with one operation at a time.
 */
#ifndef TESTS_SYSTEM_MPI_PLANE_H
#define TESTS_SYSTEM_MPI_PLANE_H

#include "runtime/plugins/mpi_plugin.h"

extern const struct hvd__mpi *mpi;
extern struct hvd__mpi_world world;

enum { RANKS_MAX = 64 };

#define CHECK(x)                          \
    do {                                  \
        if (!(x))                         \
            fail(__FILE__, __LINE__, #x); \
    } while (0)
#define CHECK_RC(rc, want, err) check_rc(__FILE__, __LINE__, rc, want, err)

void fail(const char *file, int line, const char *what);
void check_rc(const char *file, int line, int rc, int want,
              const struct hb_error *err);

/* A member of a plane, and its operation. */
struct member {
    struct hvd__plane *plane;
    int n, me;
    uint64_t seq;
    int rc; /* what a thread's last call returned */
    struct hb_error err;
    struct hvd__op op;
};

/* Returns a deadline that no test reaches. */
uint64_t start_limit(void);
void open_world(void);
/* Returns this rank's member of a new plane of the n ranks, which include
 * it. */
struct member join_plane(const int *ranks, int n, uint32_t tag);
struct member join_world(uint32_t tag);
void part_from(struct member *m);

/* prepare resets the member's operation and returns it, without buffers;
 * reduces sets the reduction; sign sets the signature, when all else is set;
 * run starts the operation and waits for it.  run and finish return what
 * progress returned last. */
struct hvd__op *prepare(struct member *m, enum hvd__kind kind,
                        enum hvd_dtype dtype, size_t count);
void reduces(struct member *m, enum hvd_op how);
void sign(struct member *m);
int run(struct member *m);
int finish(struct member *m); /* waits for an operation that was started */
/* Signs and runs the operation, which must succeed. */
void done(struct member *m, const char *file, int line);
#define DONE(m) done(m, __FILE__, __LINE__)

/* mpi_plane_ops.c: operations of every kind, checked. */
void check_reductions(struct member *m);
void check_moves(struct member *m);
void check_barrier(struct member *m);
void check_small_allreduce(struct member *m);

#endif
