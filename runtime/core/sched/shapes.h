/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shapes that callers give with their tensors (hvd_options.shapes): in
 * signatures, in the tables that ranks exchange, and in messages.  Pure.
 *
 * A request has one shape, and a group one for each member.  Ranks must agree
 * on all dimensions, but for the first one of an allgather or alltoall, and on
 * whether shapes are given.
 *
 * In a table, a shape is u32 ndim, then u64 for each dimension, big-endian.
 */
#ifndef HVD_CORE_SHAPES_H
#define HVD_CORE_SHAPES_H

#include "lib/base/buf.h"
#include "runtime/plane/op.h"

#include <stddef.h>
#include <stdint.h>

/* Returns how many shapes an operation has if any are given. */
static inline size_t hvd__shapes_count(const struct hvd__op *op)
{
    return op->flags & HVD__OP_GROUP ? op->nparts : 1;
}

/* Hashes what ranks must agree on in n shapes. */
uint64_t hvd__shapes_hash(enum hvd__kind kind, const struct hvd_shape *shapes,
                          size_t n);

/* Returns the bytes of n shapes in memory (copy) and in a table (put). */
size_t hvd__shapes_copy_bytes(const struct hvd_shape *shapes, size_t n);
size_t hvd__shapes_put_bytes(const struct hvd_shape *shapes, size_t n);

/* Copies n shapes and their dimensions to a block of copy_bytes, aligned for
 * pointers.  Returns the copied shapes. */
const struct hvd_shape *
hvd__shapes_copy(void *block, const struct hvd_shape *shapes, size_t n);

/* Appends n shapes to a table with room for them. */
void hvd__shapes_put(struct hb_buf *b, const struct hvd_shape *shapes,
                     size_t n);

/* Moves `r` past the next n shapes of a table.  Returns where these shapes
 * begin, or NULL if they are malformed. */
const void *hvd__shapes_skip(struct hb_reader *r, size_t n);

/* A rank's shapes in a table, accepted by hvd__shapes_skip; NULL: none. */
struct hvd__shapes_party {
    struct hvd__party who;
    const void *shapes;
};

/* Compares the shapes of two ranks whose operations are of the same kind and
 * have as many members.  If they differ, sets HVD_EMISMATCH with a line that
 * names both ranks, both shapes and the member of a group, and returns 1; else
 * 0. */
int hvd__shapes_differ(const struct hvd__shapes_party *a,
                       const struct hvd__shapes_party *b, struct hb_error *err);

#endif
