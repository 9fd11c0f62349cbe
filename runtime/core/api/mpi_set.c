/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a process set from an MPI communicator.  Ranks outside it do not know
 * its members, so all ranks tell each other what they were given.
 */
#include "lib/base/alloc.h"
#include "runtime/core/api/context.h"
#include "runtime/core/api/message.h"
#include "runtime/core/api/words.h"
#include "runtime/core/world/mpi_context.h"

#include <stdlib.h>

enum { NOT_A_RANK = -1, REFUSED = -2 };

/* Rows of one number per rank of the world. */
struct rows {
    int size;
    int *own; /* ranks in this rank's communicator, ascending, then NOT_A_RANK;
                 REFUSED first: not found */
    int *all;
};

static int by_value(const void *pa, const void *pb)
{
    int a = *(const int *)pa, b = *(const int *)pb;

    return (a > b) - (a < b);
}

static void fill_own(struct rows *rows, const void *comm, struct hb_error *err)
{
    int n = comm ? hvd__mpi_comm_ranks(comm, rows->own, err)
                 : hb_error_set(err, HVD_EINVAL, "comm is NULL");

    for (int i = n < 0 ? 0 : n; i < rows->size; i++)
        rows->own[i] = NOT_A_RANK;
    if (n < 0)
        rows->own[0] = REFUSED;
    else
        qsort(rows->own, (size_t)n, sizeof(int), by_value);
}

static const int *row(const struct rows *rows, int rank)
{
    return rows->all + (size_t)rank * (size_t)rows->size;
}

static int same(const struct rows *rows, int a, int b)
{
    for (int i = 0; i < rows->size; i++)
        if (row(rows, a)[i] != row(rows, b)[i])
            return 0;
    return 1;
}

static int has(const struct rows *rows, int rank, int member)
{
    for (int i = 0; i < rows->size; i++)
        if (row(rows, rank)[i] == member)
            return 1;
    return 0;
}

/* Returns the lowest rank that was given a communicator, or negative with err
 * set if the communicators do not fit.  The same on all ranks. */
static int choose(const struct rows *rows, struct hb_error *err)
{
    int first = 0;

    for (int r = 0; r < rows->size; r++)
        if (row(rows, r)[0] == REFUSED)
            return hb_error_set(err, HVD_EINVAL,
                                "the communicator of rank %d is NULL, or not "
                                "one of ranks of the world",
                                r);
    while (first < rows->size && row(rows, first)[0] == NOT_A_RANK)
        first++;
    if (first == rows->size)
        return hb_error_set(err, HVD_EINVAL,
                            "MPI_COMM_NULL was given on every rank");
    for (int r = 0; r < rows->size; r++) {
        int given = row(rows, r)[0] != NOT_A_RANK;

        if (given && !same(rows, r, first))
            return hb_error_set(err, HVD_EMISMATCH,
                                "the communicators of rank %d and rank %d have "
                                "different ranks",
                                first, r);
        if (!given && has(rows, first, r))
            return hb_error_set(err, HVD_EMISMATCH,
                                "rank %d is in the communicator of rank %d and "
                                "was given MPI_COMM_NULL",
                                r, first);
    }
    return first;
}

static int find_members(struct rows *rows, const void *comm,
                        struct hb_error *err)
{
    size_t bytes = (size_t)rows->size * sizeof(int);
    struct hb_error why = HB_ERROR_INIT;
    int rc;

    fill_own(rows, comm, &why);
    rc = hvd__words_allgather(rows->own, bytes, rows->all,
                              bytes * (size_t)rows->size, err);
    if (rc < 0)
        return rc;
    if (why.status) {
        *err = why;
        return why.status;
    }
    return choose(rows, err);
}

/* Returns 0 if all ranks have memory, else fails on all. */
static int agree_on_memory(const struct rows *rows, struct hb_error *err)
{
    int32_t mine = rows->own && rows->all, least = 0;
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
    size_t size = (size_t)rows.size, count = 0;
    int first;

    rows.own = hb_calloc(size, sizeof(int));
    rows.all = hb_calloc(size * size, sizeof(int));
    first = agree_on_memory(&rows, err);
    if (first == 0)
        first = find_members(&rows, comm, err);
    while (first >= 0 && count < size && row(&rows, first)[count] >= 0)
        count++;
    if (first >= 0)
        hvd__set_add(row(&rows, first), count, set, err);
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
