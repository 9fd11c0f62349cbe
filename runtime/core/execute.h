/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out one operation: on the plane, or as several operations of the
 * plane (Adasum; a group's members, one after the other).
 *
 * The first operation on the plane carries the whole's signature, so whether
 * all ranks mean the same is known before anything is touched.
 */
#ifndef HVD_CORE_EXECUTE_H
#define HVD_CORE_EXECUTE_H

#include "runtime/core/adasum.h"
#include "runtime/plane/plane.h"

struct hvd__execution {
    int n, me; /* of the process set; set once by the owner */
    struct hvd__plane *plane;
    struct hvd__op *op;
    struct hvd__op *members; /* NULL: op itself */
    size_t count, at;
    int started;         /* members[at] is */
    struct hb_error err; /* of that member */
    int is_adasum;
    struct hvd__adasum adasum;
};

/* op's signature, first_signature and entries are set; members (NULL: none)
 * are of op's kind.  0 or negative with op->err set. */
static inline int hvd__execute_begin(struct hvd__execution *x,
                                     struct hvd__plane *plane,
                                     struct hvd__op *op,
                                     struct hvd__op *members, size_t count)
{
    x->plane = plane;
    x->op = op;
    x->members = members;
    x->count = count;
    x->at = 0;
    x->started = 0;
    x->is_adasum = op->kind == HVD__ALLREDUCE && op->op == HVD_ADASUM;
    if (x->is_adasum)
        return hvd__adasum_begin(&x->adasum, plane, op, x->n, x->me);
    if (members)
        return 0;
    return plane->ops->start(plane, op);
}

/* For the next: what is several operations of the plane. */
int hvd__execute_several(struct hvd__execution *x);

/* As a plane's progress.  Of members that fail alone (HVD_EINVAL), the first
 * one's error is the outcome, after all are done. */
static inline int hvd__execute_progress(struct hvd__execution *x)
{
    if (x->is_adasum || x->members)
        return hvd__execute_several(x);
    return x->plane->ops->progress(x->plane, x->op);
}

void hvd__execute_fini(struct hvd__execution *x); /* idempotent */

#endif
