/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the base plane inside one of the engine's: agreements,
 * exchanged counts, and reductions that NCCL lacks.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

/* Mixed into signatures, so that an operation on device memory never matches
 * one that the base carries out for a rank without this plane. */
enum { BASE_OP_MARK = 0x6e63636c };

struct hvd__op *nc_base_op(struct nc_plane *p, enum hvd__kind kind,
                           enum hvd_dtype dtype)
{
    struct hvd__op *base_op = &p->run.base_op;

    hvd__op_init(base_op);
    base_op->kind = kind;
    base_op->dtype = base_op->part_dtype = dtype;
    base_op->elem_bytes = hvd_dtype_size(dtype);
    base_op->prescale = base_op->postscale = 1.0;
    base_op->args = (struct hvd__reduce_args){1.0, 1.0, 1, 0};
    base_op->row_elems = 1;
    return base_op;
}

/* Starts the operation of the base.  The first one carries the signature of the
 * operation in progress, so that it detects mismatches and cuts. */
int nc_base_op_start(struct nc_plane *p)
{
    struct nc_run *run = &p->run;
    struct hvd__op *op = run->op, *base_op = &run->base_op;

    base_op->name = op->name;
    base_op->hashes.name = op->hashes.name;
    base_op->signature = hvd__mix(op->signature, BASE_OP_MARK);
    base_op->first_signature = hvd__mix(op->first_signature, BASE_OP_MARK);
    base_op->entries = op->entries;
    if (run->base_ops++ == 0) {
        base_op->trace.agreed_ns = op->trace.agreed_ns;
        base_op->trace.late_rank = op->trace.late_rank;
    } else {
        base_op->signature = hvd__mix(base_op->signature, run->base_ops);
        base_op->first_signature = base_op->signature;
    }
    base_op->err = op->err;
    run->base_op_runs = 1;
    return p->base->ops->start(p->base, base_op);
}

int nc_base_op_progress(struct nc_plane *p)
{
    struct nc_run *run = &p->run;
    int rc = p->base->ops->progress(p->base, &run->base_op);

    if (rc != 0)
        run->base_op_runs = 0;
    if (run->base_ops > 1 && (rc == HVD__CUT || rc == -HVD_EMISMATCH)) {
        hb_error_clear(run->op->err);
        rc = hb_error_set(run->op->err, HVD_EPROTO,
                          "ranks are out of step within an operation");
    }
    if (run->base_ops == 1) {
        run->op->trace.agreed_ns = run->base_op.trace.agreed_ns;
        run->op->trace.late_rank = run->base_op.trace.late_rank;
    }
    return rc;
}

int nc_base_op_check(struct nc_plane *p, struct hb_error *err)
{
    int rc;

    if (!p->run.base_op_runs || !atomic_load(&p->is_failed))
        return 0;
    rc = nc_failure(p, err);
    if (p->base->ops->abandon)
        p->base->ops->abandon(p->base);
    p->run.base_op_runs = 0;
    return rc;
}
