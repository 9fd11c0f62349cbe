/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepares an operation for launching: waits for the callers' streams, and
 * copies buffers in host memory to device memory.  A rank that has joined takes
 * part with host memory, which is copied; its results are dropped.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/alloc.h"

/* ---- Scratch memory --------------------------------------------------------
 */

/* Allocates from a stream-ordered pool if there is one. cuMemAlloc and
 * cuMemFree wait for all work on the device, which may include another set's
 * collective that waits for a rank that waits for this one. */
static int allocate(const struct nc_plane *p, CUdeviceptr *at, size_t bytes,
                    struct hb_error *err)
{
    return nc_world.has_pools
               ? HVD__CU(err, MemAllocAsync, at, bytes, p->on->cuda)
               : HVD__CU(err, MemAlloc, at, bytes);
}

static void free_memory(const struct nc_plane *p, void *ptr)
{
    if (nc_world.has_pools)
        hvd__cuda.MemFreeAsync((CUdeviceptr)ptr, p->on->cuda);
    else
        hvd__cuda.MemFree((CUdeviceptr)ptr);
}

void *nc_scratch_get(struct nc_plane *p, size_t bytes, struct hb_error *err)
{
    struct nc_scratch *s = hb_calloc(1, sizeof(*s));
    CUdeviceptr at = 0;

    if (!s) {
        hb_error_set(err, HVD_ENOMEM, "no memory for an operation");
        return NULL;
    }
    if (allocate(p, &at, bytes ? bytes : 1, err) < 0) {
        hb_error_context(err, "CUDA device %d: %zu bytes", nc_world.device,
                         bytes);
        hb_free(s);
        return NULL;
    }
    s->ptr = (void *)at;
    s->next = p->scratch;
    p->scratch = s;
    return s->ptr;
}

void nc_scratch_launched(struct nc_plane *p, uint64_t launch)
{
    for (struct nc_scratch *s = p->scratch; s && !s->launch; s = s->next)
        s->launch = launch;
}

void nc_scratch_free(struct nc_plane *p, int all)
{
    struct nc_scratch **at = &p->scratch;

    while (*at) {
        struct nc_scratch *s = *at;

        if (!all && nc_launch_test(p, s->launch, NULL) != 1) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free_memory(p, s->ptr);
        hb_free(s);
    }
}

/* ---- Host memory -----------------------------------------------------------
 */

static int to_device(const struct nc_plane *p, void *dst, const void *src,
                     size_t bytes, struct hb_error *err)
{
    if (bytes == 0)
        return 0;
    return HVD__CU(err, MemcpyAsync, (CUdeviceptr)dst, (CUdeviceptr)src, bytes,
                   p->on->cuda);
}

/* Returns a copy of `bytes` at src in device memory. */
static void *copy_of(struct nc_plane *p, const void *src, size_t bytes,
                     struct hb_error *err)
{
    void *dst = nc_scratch_get(p, bytes, err);

    return dst && to_device(p, dst, src, bytes, err) == 0 ? dst : NULL;
}

static int copy_parts(struct nc_plane *p, struct hb_error *err)
{
    struct hvd__op *view = &p->run.view;
    size_t bytes = hvd_dtype_size(view->part_dtype);

    hb_free(p->parts);
    p->parts = hb_calloc(view->nparts, sizeof(*p->parts));
    if (!p->parts)
        return hb_error_set(err, HVD_ENOMEM, "no memory for an operation");
    for (size_t i = 0; i < view->nparts; i++) {
        struct hvd__part *part = &p->parts[i];

        *part = view->parts[i];
        part->sendbuf = part->recvbuf =
            copy_of(p, part->sendbuf, part->count * bytes, err);
        if (!part->sendbuf)
            return -HVD_ENOMEM;
    }
    view->parts = p->parts;
    return 0;
}

static int copy_buffers(struct nc_plane *p, struct hb_error *err)
{
    struct hvd__op *view = &p->run.view;
    size_t bytes = view->count * view->elem_bytes;
    void *recvbuf = view->recvbuf;

    if (view->sendbuf) {
        view->recvbuf = copy_of(p, view->sendbuf, bytes, err);
        view->sendbuf = view->recvbuf;
        if (!view->sendbuf)
            return err->status;
    }
    if (recvbuf && (!view->recvbuf || view->kind == HVD__REDUCESCATTER))
        view->recvbuf = nc_scratch_get(p, bytes, err);
    return recvbuf && !view->recvbuf ? err->status : 0;
}

/* Returns whether the operation's buffers are in host memory.  Those in device
 * memory have an event. */
static int is_on_host(const struct hvd__op *op)
{
    const void *buf = op->sendbuf ? op->sendbuf : op->recvbuf;
    const void *ready = op->device.ready;

    if (op->parts && op->nparts) {
        buf = op->parts[0].sendbuf;
        ready = op->parts[0].ready;
    }
    return !ready && buf && nc_place(buf) == HVD__HOST;
}

/* ---- Before a launch -------------------------------------------------------
 */

static int wait_for(const struct nc_plane *p, void *ready, struct hb_error *err)
{
    const struct nc_ready *r = ready;

    return r ? HVD__CU(err, StreamWaitEvent, p->on->cuda, r->event, 0) : 0;
}

int nc_prepare_buffers(struct nc_plane *p, struct hb_error *err)
{
    struct hvd__op *op = p->run.op;
    int rc = wait_for(p, op->device.ready, err);

    for (size_t i = 0; op->parts && i < op->nparts && rc == 0; i++)
        if (op->parts[i].ready != op->device.ready)
            rc = wait_for(p, op->parts[i].ready, err);
    if (rc == 0)
        rc = nc_launch_begin(p, op, err);
    p->run.view = *op;
    if (rc < 0 || !is_on_host(op))
        return rc;
    return op->parts ? copy_parts(p, err) : copy_buffers(p, err);
}
