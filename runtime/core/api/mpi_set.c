/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a process set from an MPI communicator.  Ranks outside it do not know
 * its members, so all ranks tell each other what they were given.
 */
#include "lib/base/alloc.h"
#include "runtime/core/set/mpi_context.h"
#include "runtime/core/set/set_change.h"
#include "runtime/core/set/words.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"

#include <string.h>

/* What each rank tells: whether it was given a communicator of ranks of the
 * world, and for each rank of the world, whether it is in it. */
enum given { GIVEN_NULL, GIVEN_COMM, GIVEN_NONSENSE };

struct rows {
    int size;           /* of the world */
    int *ranks;         /* [size] */
    unsigned char *own; /* [size + 1]: the members, then enum given */
    unsigned char *all; /* [size * (size + 1)] */
};

static const unsigned char *row(const struct rows *rows, int rank)
{
    return rows->all + (size_t)rank * (size_t)(rows->size + 1);
}

static enum given given(const struct rows *rows, int rank)
{
    return (enum given)row(rows, rank)[rows->size];
}

static void fill_own(struct rows *rows, const void *comm, struct hb_error *err)
{
    int n = comm ? hvd__mpi_comm_ranks(comm, rows->ranks, err)
                 : hb_error_set(err, HVD_EINVAL, "comm is NULL");

    for (int i = 0; i < n; i++)
        rows->own[rows->ranks[i]] = 1;
    rows->own[rows->size] = n < 0   ? GIVEN_NONSENSE
                            : n > 0 ? GIVEN_COMM
                                    : GIVEN_NULL;
}

/* Returns the lowest rank that was given a communicator, or negative with err
 * set if the communicators do not fit.  The same on all ranks. */
static int choose(const struct rows *rows, struct hb_error *err)
{
    int first = 0, size = rows->size;

    for (int r = 0; r < size; r++)
        if (given(rows, r) == GIVEN_NONSENSE)
            return hb_error_set(err, HVD_EINVAL,
                                "the communicator of rank %d is NULL, or not "
                                "one of ranks of the world",
                                r);
    while (first < size && given(rows, first) == GIVEN_NULL)
        first++;
    if (first == size)
        return hb_error_set(err, HVD_EINVAL,
                            "MPI_COMM_NULL was given on every rank");
    for (int r = 0; r < size; r++) {
        if (given(rows, r) == GIVEN_NULL && row(rows, first)[r])
            return hb_error_set(err, HVD_EMISMATCH,
                                "rank %d is in the communicator of rank %d and "
                                "was given MPI_COMM_NULL",
                                r, first);
        if (given(rows, r) == GIVEN_COMM &&
            memcmp(row(rows, r), row(rows, first), (size_t)size) != 0)
            return hb_error_set(err, HVD_EMISMATCH,
                                "the communicators of rank %d and rank %d have "
                                "different ranks",
                                first, r);
    }
    return first;
}

/* Returns the number of members, with their ranks in rows->ranks; or negative
 * with err set. */
static int find_members(struct rows *rows, const void *comm,
                        struct hb_error *err)
{
    size_t bytes = (size_t)rows->size + 1;
    struct hb_error why = HB_ERROR_INIT;
    int rc, n = 0;

    fill_own(rows, comm, &why);
    rc = hvd__words_allgather(rows->own, bytes, rows->all,
                              bytes * (size_t)rows->size, err);
    if (rc < 0)
        return rc;
    if (why.status) {
        *err = why;
        return why.status;
    }
    rc = choose(rows, err);
    for (int r = 0; rc >= 0 && r < rows->size; r++)
        if (row(rows, rc)[r])
            rows->ranks[n++] = r;
    return rc < 0 ? rc : n;
}

/* Returns 0 if all ranks have memory, else fails on all. */
static int agree_on_memory(const struct rows *rows, struct hb_error *err)
{
    int32_t mine = rows->ranks && rows->own && rows->all, least = 0;
    int rc = hvd__words_allreduce(&mine, &least, 1, HVD_INT32, HVD_MIN, err);

    if (rc < 0)
        return rc;
    if (least)
        return 0;
    return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks on %s rank",
                        rows->size, mine ? "another" : "this");
}

static int add(const void *comm, int *set, struct hb_error *err)
{
    struct rows rows = {.size = hvd__context.topology.size};
    size_t size = (size_t)rows.size;
    int n;

    rows.ranks = hb_calloc(size, sizeof(int));
    rows.own = hb_calloc(size + 1, 1);
    rows.all = hb_calloc(size, size + 1);
    n = agree_on_memory(&rows, err);
    if (n == 0)
        n = find_members(&rows, comm, err);
    if (n >= 0)
        hvd__set_add(rows.ranks, (size_t)n, set, err);
    hb_free(rows.ranks);
    hb_free(rows.own);
    hb_free(rows.all);
    return err->status;
}

int hvd_process_set_add_mpi(const void *comm, int *set)
{
    struct hb_error err = HB_ERROR_INIT;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    if (hvd__mpi_is_open()) /* a bad argument must reach the others too */
        add(comm, set, &err);
    else if (!comm)
        hb_error_set(&err, HVD_EINVAL, "comm is NULL");
    else
        hb_error_set(&err, HVD_EUNSUPPORTED,
                     "the ranks are not MPI's; use hvd_process_set_add");
    if (err.status)
        hb_error_context(&err, "hvd_process_set_add_mpi");
    return hvd__tell(&err);
}
