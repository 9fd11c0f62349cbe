/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective operation, as the engine hands it to a plane, and its
 * descriptor: what every rank must agree on before data is used.
 *
 * The signature is a 64-bit hash of the descriptor.  Planes compare the
 * signatures of all ranks; only when they differ do they look at the
 * descriptors, to say what differs.
 */
#ifndef HVD_PLANE_OP_H
#define HVD_PLANE_OP_H

#include "lib/base/error.h"
#include "runtime/hvd.h"
#include "runtime/plane/reduce.h"

enum { HVD__NAME_BYTES = 256 }; /* an operation's name with its final 0 */

enum hvd__kind {
    HVD__ALLREDUCE,
    HVD__BROADCAST,
    HVD__ALLGATHER,
    HVD__BARRIER,
    HVD__REDUCE_SCATTER, /* inside the hierarchical plane only */
};

struct hvd__op {
    enum hvd__kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op; /* allreduce only, else 0 */
    int root;       /* broadcast only, else 0 */
    int lanes;      /* reduce-scatter only: local ranks that get a part */
    double prescale, postscale;
    const char *name; /* "" when the caller gave none */
    uint64_t name_hash;
    uint64_t signature;

    const void *sendbuf;
    void *recvbuf;
    size_t count; /* elements that this rank sends */
    size_t elem_bytes;
    size_t recvcap;     /* allgather: elements of room in recvbuf */
    size_t *recvcounts; /* allgather: may be NULL */
    hvd__reduce_fn *reduce;
    struct hvd__reduce_args args;

    struct hb_error *err; /* why it failed */
};

/* Lives in shared memory; the same on every rank when all agree. */
struct hvd__descriptor {
    uint32_t kind, dtype, op;
    int32_t root;
    uint64_t count; /* 0 for allgather: counts may differ there */
    double prescale, postscale;
    uint64_t name_hash;
    char name[HVD__NAME_BYTES];
};

uint64_t hvd__name_hash(const char *name);

/* Sets op->signature from the other fields. */
void hvd__op_sign(struct hvd__op *op);

void hvd__op_describe(const struct hvd__op *op, struct hvd__descriptor *d);

/* A rank and what it was called with; host NULL: not told. */
struct hvd__party {
    const struct hvd__descriptor *d;
    int rank;
    const char *host;
};

/* If the two differ: sets HVD_EMISMATCH with one line that names both
 * ranks and both values of the first field that differs, and returns 1.
 * Both come from shared memory and need not be sane. */
int hvd__descriptor_differ(const struct hvd__party *a,
                           const struct hvd__party *b, struct hb_error *err);

const char *hvd__kind_name(uint32_t kind);

#endif
