/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adasum among any number of ranks, as a series of operations of a plane.
 *
 * The vectors of the ranks are combined by a binary tree: in each level
 * the 0th with the 1st, the 2nd with the 3rd, ...; the last one of an odd
 * number goes on as it is.  a and b become
 *
 *     (1 - a.b / 2a.a) a + (1 - a.b / 2b.b) b
 *
 * with a factor of 1 for a vector whose norm is too small to divide by.  So the
 * zeros that a joined rank contributes leave the other vector unchanged.  The
 * dot products are taken over each tensor (each part of the operation, or the
 * whole buffer of a direct one), in double.
 *
 * Long vectors are cut into one slice per rank.  An alltoall gives each rank
 * its slice of all vectors.  In each level the ranks compute partial dot
 * products of all pairs, add them up by one small allreduce, and combine their
 * slices in place.  An allgather in the end collects the result.  So each
 * element crosses the plane twice, for any number of ranks, where halving and
 * doubling needs a power of two.  Short vectors are allgathered, and every rank
 * combines all of them.
 *
 * float16, bfloat16 and float32 are combined in float32, float64 in float64.
 * Inputs are multiplied by args.pre and the result by args.post; it is rounded
 * once.  All ranks get the same bits.
 *
 * Source: Maleki et al., Scaling Distributed Training with Adaptive
 * Summation (MLSys 2021); the limit of the norm is Horovod's.
 */
#ifndef HVD_PLANE_ADASUM_H
#define HVD_PLANE_ADASUM_H

#include "runtime/plane/plane.h"

struct hvd__adasum {
    struct hvd__plane *plane;
    struct hvd__op *op;
    struct hvd__op sub; /* the plane's current operation */
    int stage;
    int n, me;
    int whole;           /* short vectors: every rank has all of them */
    int vectors;         /* left in this level */
    uint64_t steps;      /* operations begun on the plane */
    size_t first, count; /* this rank's slice, in elements */
    enum hvd_dtype work; /* float32 or float64 */
    size_t work_bytes;   /* of an element */

    unsigned char *memory; /* holds all arrays below; kept for the next
                              operation */
    size_t memory_bytes;
    unsigned char *inputs;  /* n slices as received; may be `values` */
    unsigned char *values;  /* n slices in the work dtype */
    unsigned char *tensors; /* all parts, packed */
    unsigned char *result;  /* the slice in op's dtype */
    double *dots;           /* a.b, a.a, b.b of each tensor of each pair */
    size_t *counts;         /* elements to each rank */
    unsigned char **vector; /* [vectors]: of this level, in `values` */
};

/* Begins op, an allreduce with HVD_ADASUM whose dtype and part_dtype are the
 * same float type.  me is this rank's place among n.  *a is zeroed before its
 * first use; op and its buffers stay valid until the end.
 *
 * The first operation on the plane carries op's signature, first_signature and
 * entries; the signatures of later ones are derived from these.  Returns 0, or
 * negative with op->err set: -HVD_ENOMEM, or the plane's status. */
int hvd__adasum_begin(struct hvd__adasum *a, struct hvd__plane *plane,
                      struct hvd__op *op, int n, int me);
/* Goes on; returns as a plane's progress.  HVD__CUT and -HVD_EMISMATCH come
 * from the first operation only, before any buffer of op was written. */
int hvd__adasum_progress(struct hvd__adasum *a);
/* Frees the memory; idempotent.  *a may be used again. */
void hvd__adasum_fini(struct hvd__adasum *a);

#endif
