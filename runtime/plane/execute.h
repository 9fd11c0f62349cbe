/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out one operation: as one operation of the plane, or as several
 * (Adasum; the members of a group, one after the other).
 *
 * The first operation on the plane carries the signature of the whole, so the
 * ranks find out whether they all mean the same before any buffer is touched.
 */
#ifndef HVD_PLANE_EXECUTE_H
#define HVD_PLANE_EXECUTE_H

#include "runtime/plane/adasum.h"
#include "runtime/plane/plane.h"

struct hvd__execution {
    int n, me; /* place in the process set; set once by the owner */
    struct hvd__plane *plane;
    struct hvd__op *op;
    struct hvd__op *members; /* of a group; NULL: op itself is carried out */
    size_t count, at;
    int started;         /* members[at] has been started */
    struct hb_error err; /* error of members[at] */
    int is_adasum;
    struct hvd__adasum adasum;
};

/* Begins op, whose signature, first_signature and entries are set.  members:
 * NULL, or the `count` members of a group, of op's kind.  Returns 0, or
 * negative with op->err set. */
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
    if (members) {
        op->device.launch = op->device.earlier = 0;
        return 0;
    }
    return plane->ops->start(plane, op);
}

/* Progresses Adasum or the members of a group: the slow path of
 * hvd__execute_progress. */
int hvd__execute_several(struct hvd__execution *x);

/* Goes on; returns as a plane's progress.  A member that fails on this rank
 * alone does not end its group: after all are done, the first such error is the
 * outcome. */
static inline int hvd__execute_progress(struct hvd__execution *x)
{
    if (x->is_adasum || x->members)
        return hvd__execute_several(x);
    return x->plane->ops->progress(x->plane, x->op);
}

void hvd__execute_fini(struct hvd__execution *x); /* idempotent */

#endif
