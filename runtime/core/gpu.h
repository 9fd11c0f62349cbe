/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: whether this process can use it (the NCCL plug-in, see
 * plugins/gpu.h), whether a call's buffers lie in it, and waiting for what
 * was only launched when the engine was done with it.
 *
 * On a host without a CUDA driver a call costs one load more.
 */
#ifndef HVD_CORE_GPU_H
#define HVD_CORE_GPU_H

#include "runtime/core/call.h"
#include "runtime/plugins/gpu.h"

/* The plug-in while it is open, else NULL. */
extern const struct hvd__gpu *_Atomic hvd__gpu;

/* The plug-in too when it could not be opened, for want of NCCL say: it still
 * knows device memory, which must not be taken for the host's. */
extern const struct hvd__gpu *_Atomic hvd__gpu_places;

/* HVD_NCCL: 0 never, 1 or else hvd_init fails, unset: where there is a CUDA
 * driver.  0; or negative with err set.  Why there is none is logged, at
 * debug. */
int hvd__gpu_open(const struct hb_log *log, struct hb_error *err);
/* After the last plane; idempotent.  Calls of other threads that come too late
 * end first. */
void hvd__gpu_close(void);

/* Puts a plane for device memory on s->plane, if there is the plug-in: for n
 * ranks of the world, this one is ranks[me].  0; or negative with err set, and
 * then s->plane is NULL. */
int hvd__gpu_wrap(struct hvd__set *s, const int *ranks, int n, int me,
                  struct hb_error *err);

/* A call with its buffers: finds out where these lie, refuses what cannot be,
 * and writes down what the device has to wait for. */
int hvd__gpu_issue(struct hvd__call *c);
void hvd__gpu_give_back(void *ready);
/* The operation is over, or never began. */
static inline void hvd__gpu_done(struct hvd__op *op)
{
    if (op->ready)
        hvd__gpu_give_back(op->ready);
    op->ready = NULL;
}

/* Of an operation that the engine has finished with status 0, and whose
 * launch is not 0.  Called while the plane is there. */
int hvd__gpu_wait(struct hvd__engine *e, struct hvd_request *req);
int hvd__gpu_test(struct hvd__engine *e, struct hvd_request *req);
/* What the device has done. */
void hvd__gpu_stats(struct hvd_stats *stats);

/* The stream's later work comes after it. */
int hvd__gpu_order(struct hvd__engine *e, struct hvd_request *req,
                   void *stream);

#endif
