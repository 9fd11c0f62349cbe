/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the base plane inside one of the engine's: agreements,
 * exchanged counts, and reductions that NCCL lacks.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

/* Mixed into signatures, so that an operation on device memory never matches
 * one that the base carries out for a rank without this plane. */
enum { SUB_MARK = 0x6e63636c };

struct hvd__op *nc_sub(struct nc_plane *p, enum hvd__kind kind,
                       enum hvd_dtype dtype)
{
    struct hvd__op *sub = &p->run.sub;

    hvd__op_init(sub);
    sub->kind = kind;
    sub->dtype = sub->part_dtype = dtype;
    sub->elem_bytes = hvd_dtype_size(dtype);
    sub->prescale = sub->postscale = 1.0;
    sub->args = (struct hvd__reduce_args){1.0, 1.0, 1, 0};
    sub->row_elems = 1;
    return sub;
}

/* Starts a sub.  The first one carries the operation's signature, so that it
 * detects mismatches and cuts. */
int nc_sub_start(struct nc_plane *p)
{
    struct nc_run *run = &p->run;
    struct hvd__op *op = run->op, *sub = &run->sub;

    sub->name = op->name;
    sub->name_hash = op->name_hash;
    sub->signature = hvd__mix(op->signature, SUB_MARK);
    sub->first_signature = hvd__mix(op->first_signature, SUB_MARK);
    sub->entries = op->entries;
    if (run->subs++ == 0) {
        sub->agreed_ns = op->agreed_ns;
        sub->late_rank = op->late_rank;
    } else {
        sub->signature = hvd__mix(sub->signature, run->subs);
        sub->first_signature = sub->signature;
    }
    sub->err = op->err;
    run->sub_runs = 1;
    return p->base->ops->start(p->base, sub);
}

int nc_sub_progress(struct nc_plane *p)
{
    struct nc_run *run = &p->run;
    int rc = p->base->ops->progress(p->base, &run->sub);

    if (rc != 0)
        run->sub_runs = 0;
    if (run->subs > 1 && (rc == HVD__CUT || rc == -HVD_EMISMATCH)) {
        hb_error_clear(run->op->err);
        rc = hb_error_set(run->op->err, HVD_EPROTO,
                          "ranks are out of step within an operation");
    }
    if (run->subs == 1) {
        run->op->agreed_ns = run->sub.agreed_ns;
        run->op->late_rank = run->sub.late_rank;
    }
    return rc;
}

int nc_sub_broken(struct nc_plane *p, struct hb_error *err)
{
    int rc;

    if (!p->run.sub_runs || !atomic_load(&p->is_failed))
        return 0;
    rc = nc_failed(p, err);
    if (p->base->ops->abandon)
        p->base->ops->abandon(p->base);
    p->run.sub_runs = 0;
    return rc;
}
