/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out one operation, or several for one; see execute.h. */
#include "runtime/plane/execute.h"

#include <string.h>

static int start_member(struct hvd__execution *x)
{
    struct hvd__op *m = &x->members[x->at];

    m->signature = x->op->signature;
    m->first_signature = x->op->first_signature;
    m->entries = x->op->entries;
    if (x->at > 0)
        m->signature = m->first_signature = hvd__mix(m->signature, x->at);
    hb_error_clear(&x->err);
    m->err = &x->err;
    x->started = 1;
    return x->plane->ops->start(x->plane, m);
}

/* Ends a member with outcome rc.  Returns whether the group goes on. */
static int member_over(struct hvd__execution *x, int rc)
{
    struct hvd__op *m = &x->members[x->at];
    struct hvd__op_device *d = &x->op->device;

    if (rc == HVD__CUT)
        x->op->agreed_entries = m->agreed_entries;
    if (rc < 0 && !x->op->err->status)
        *x->op->err = x->err;
    x->op->trace.algorithm = m->trace.algorithm;
    if (m->device.launch) {
        if (d->launch)
            d->earlier += (uint32_t)(m->device.launch - d->launch);
        d->launch = m->device.launch;
    }
    if (rc < 0 && x->op->err->status == rc)
        x->op->alloc.status = m->alloc.status;
    x->started = 0;
    x->at++;
    return rc == 1 || hvd__op_alone(m, rc);
}

static int progress_members(struct hvd__execution *x)
{
    while (x->at < x->count) {
        int rc = x->started ? 0 : start_member(x);

        if (rc == 0)
            rc = x->plane->ops->progress(x->plane, &x->members[x->at]);
        if (rc == 0)
            return 0;
        if (!member_over(x, rc))
            return rc;
    }
    return x->op->err->status ? x->op->err->status : 1;
}

int hvd__execute_several(struct hvd__execution *x)
{
    if (x->is_adasum)
        return hvd__adasum_progress(&x->adasum);
    return progress_members(x);
}

void hvd__execute_fini(struct hvd__execution *x)
{
    hvd__adasum_fini(&x->adasum);
}
