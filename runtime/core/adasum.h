/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adasum of any number of ranks, as several operations of a plane.
 *
 * The vectors of the ranks are combined by a binary tree: in each level
 * the 0th with the 1st, the 2nd with the 3rd, ...; the last one of an odd
 * number goes on as it is.  a and b become
 *
 *     (1 - a.b / 2a.a) a + (1 - a.b / 2b.b) b
 *
 * with a factor of 1 for a vector whose norm is too small to divide by; so
 * zeros, as a joined rank gives them, leave the other one as it is.
 * The dot products are those of each tensor (each part of the operation, or
 * all of one that is direct), in double.
 *
 * Vectors that are long are cut into a slice per rank:  alltoall (each rank
 * gets its slice of all vectors); per level, the partial dot products of
 * all pairs and one small allreduce of them, then the slices are combined
 * where they are; in the end an allgather.  So each element crosses the
 * plane twice, for any number of ranks, where halving and doubling needs a
 * power of two.  Short ones are gathered, and every rank does the same
 * with all of them.
 *
 * float16, bfloat16 and float32 are combined in float32 and float64 in
 * float64, from inputs times args.pre to a result times args.post, which is
 * rounded once.  All ranks get the same bits.
 *
 * Source: Maleki et al., Scaling Distributed Training with Adaptive
 * Summation (MLSys 2021); the limit of the norm is Horovod's.
 */
#ifndef HVD_CORE_ADASUM_H
#define HVD_CORE_ADASUM_H

#include "runtime/plane/plane.h"

struct hvd__adasum {
    struct hvd__plane *plane;
    struct hvd__op *op;
    struct hvd__op sub; /* what the plane carries out */
    int stage;
    int n, me;
    int whole;           /* no slices: all of all vectors are here */
    int vectors;         /* that are left in this level */
    uint64_t steps;      /* operations begun on the plane */
    size_t first, count; /* of the slice, in elements */
    enum hvd_dtype work; /* float32 or float64 */
    size_t work_bytes;   /* of an element */

    unsigned char *memory; /* all below is in it; kept for the next one */
    size_t memory_bytes;
    unsigned char *inputs;  /* n slices as they came; perhaps `values` */
    unsigned char *values;  /* n slices of work elements */
    unsigned char *tensors; /* all parts in one piece */
    unsigned char *result;  /* the slice, as it goes out */
    double *dots;           /* a.b, a.a, b.b of each tensor of each pair */
    size_t *counts;         /* elements to each rank */
    unsigned char **vector; /* [vectors] of the level, in `values` */
};

/* Begins op, an allreduce of HVD_ADASUM, of rank me of n, whose dtype is one
 * of the four floats and its part_dtype too.  a is zeroed before the first
 * call; op and its buffers stay until the end.
 *
 * The first operation on the plane carries op's signature, first_signature
 * and entries; those after it are signed by what follows from these.
 * Returns 0, or a negative status with op->err set: -HVD_ENOMEM, or the
 * plane's. */
int hvd__adasum_begin(struct hvd__adasum *a, struct hvd__plane *plane,
                      struct hvd__op *op, int n, int me);
/* As a plane's progress: HVD__CUT and -HVD_EMISMATCH come from the first
 * operation, before a buffer of op was written. */
int hvd__adasum_progress(struct hvd__adasum *a);
/* Gives the memory back; idempotent.  It may be used again after. */
void hvd__adasum_fini(struct hvd__adasum *a);

#endif
