/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory; see device.h. */
#include "runtime/core/set/device.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "runtime/core/set/set.h"
#include "runtime/core/world/plugin_load.h"
#include "runtime/trace/stall.h"
#include "runtime/trace/timeline.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

static struct hvd__plugin plugin = {"libhvd-nccl.so", "CUDA", RTLD_LOCAL, NULL};

/* The plug-in while it is open, else NULL. */
static const struct hvd__gpu *_Atomic current;

/* As `current`, but set even if the plug-in could not be opened, for lack of
 * NCCL for example: it can still recognise device memory, which must not be
 * taken for host memory. */
static const struct hvd__gpu *_Atomic recogniser;

static struct hb_error why; /* why `current` is NULL */

/* users: calls that look at their buffers, and events not given back.  A call
 * may begin before hvd_shutdown and look at its buffers after it, so each side
 * writes its own variable and then reads the other's. */
static _Atomic unsigned users;
static _Atomic int closing;

/* Operations of all sets since hvd_init that were timed on the device, and
 * their time.  Any thread. */
static _Atomic uint64_t timed, timed_ns;

/* ---- The plug-in ------------------------------------------------------- */

/* Checks cheaply for a driver, to spare hosts without a GPU the loading. */
static int has_driver(void)
{
    static const char *const files[] = {"/proc/driver/nvidia/version",
                                        "/dev/nvidiactl", "/dev/dxg" /* WSL */};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (access(files[i], F_OK) == 0)
            return 1;
    return hb_knob("CUDA_LIBRARY") != NULL;
}

static int open_plugin(int wanted, struct hb_error *err)
{
    const struct hvd__gpu *gpu;
    int rc;

    if (!wanted && !has_driver())
        return hb_error_set(err, HVD_EUNSUPPORTED, "no CUDA driver");
    gpu = hvd__plugin_load(&plugin, err);
    if (!gpu)
        return err->status;
    recogniser = gpu;
    hvd__context.looks_at_buffers = 1;
    rc = gpu->open(err);
    if (rc == 0)
        current = gpu;
    return rc;
}

/* Loads the plug-in as HVD_NCCL says: 0 never; 1 fail without it; unset: where
 * there is a CUDA driver.  Logs at debug level why there is none. */
static int open_device(const struct hb_log *log, struct hb_error *err)
{
    int enabled = 1, wanted = hb_knob("NCCL") != NULL;
    int rc = hb_knob_bool("NCCL", &enabled, err);

    if (rc < 0 || !enabled)
        return rc;
    atomic_store(&timed, 0);
    atomic_store(&timed_ns, 0);
    rc = open_plugin(wanted, err);
    if (rc < 0)
        hb_error_context(err, "NCCL plane unavailable");
    if (rc == 0 || wanted || rc == -HVD_EINVAL)
        return rc;
    hb_log(log, HB_LOG_DEBUG, "%s", err->text);
    why = *err;
    hb_error_clear(err);
    return 0;
}

static int ask_version(const void *table)
{
    return ((const struct hvd__gpu *)table)->version();
}

int hvd__gpu_is_built(void)
{
    return hvd__plugin_ask(&plugin, NULL);
}

int hvd__gpu_nccl_version(void)
{
    return hvd__plugin_ask(&plugin, ask_version);
}

void hvd__gpu_use(const struct hvd__gpu *gpu)
{
    recogniser = current = gpu;
    hvd__context.looks_at_buffers = gpu != NULL;
}

void hvd__gpu_close(void)
{
    const struct hvd__gpu *gpu = current;

    hvd__context.looks_at_buffers = 0;
    recogniser = NULL;
    if (!gpu)
        return;
    atomic_store(&closing, 1);
    while (atomic_load(&users))
        sched_yield();
    gpu->close();
    current = NULL;
    atomic_store(&closing, 0);
}

/* ---- Planes ------------------------------------------------------------ */

static const char *host_of(void *arg, int member)
{
    const struct hvd__set *s = arg;

    if (s->has_hosts)
        return hvd__hosts_name((void *)(uintptr_t)&s->hosts, (uint32_t)member);
    return s->launched ? s->launched->host_name(s->ranks[member]) : NULL;
}

static int host_index(const struct hvd__set *s, const int *ranks, int i)
{
    if (s->has_hosts)
        return (int)s->hosts.map.host_of[i];
    return s->launched ? s->launched->host(ranks[i]) : 0;
}

/* ---- Callbacks of a plane for device memory (plugins/gpu.h) ---- */

static int look_at_engine(void *arg, struct hb_error *err)
{
    struct hvd__set *s = arg;

    return hvd__engine_look(&s->engine, err);
}

#define ACTIVITY(symbol, ...) "NCCL_" #symbol

static void trace(const struct hvd__set *s, const struct hvd__gpu_span *span)
{
    static const char *const activities[] = {COLLECTIVES(ACTIVITY)};
    struct hvd__op op;
    struct hvd__timeline_event e = {
        .what = HVD__TIMELINE_ACTIVITY,
        .op = &op,
        .plane = "nccl",
        .activity = activities[span->kind],
        .set = s->id,
        .fused = 1,
        .began_ns = span->began_ns,
        .done_ns = span->done_ns,
    };

    hvd__op_init(&op);
    op.kind = span->kind;
    op.dtype = op.part_dtype = span->dtype;
    op.elem_bytes = hvd_dtype_size(span->dtype);
    op.count = span->count;
    op.name = span->name;
    op.trace.algorithm = span->algorithm;
    hvd__timeline_add(&e);
}

/* Counts and traces an operation that the device has finished. */
static void ran(void *arg, const struct hvd__gpu_span *span)
{
    atomic_fetch_add_explicit(&timed, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&timed_ns, span->done_ns - span->began_ns,
                              memory_order_relaxed);
    if (hvd__timeline_on())
        trace(arg, span);
}

static void waits(void *arg, const struct hvd__gpu_wait *w)
{
    const struct hvd__set *s = arg;

    hvd__stall_device(hvd__stall_on(), s->engine.stall.set, w);
}

static int culprit(void *arg, uint64_t since_ns, struct hb_error *err)
{
    (void)arg;
    return hvd__stall_culprit(since_ns, err);
}

static void add_stats(struct hvd_stats *stats)
{
    stats->device_timed = atomic_load_explicit(&timed, memory_order_relaxed);
    stats->device_ns = atomic_load_explicit(&timed_ns, memory_order_relaxed);
}

int hvd__gpu_wrap(struct hvd__set *s, const int *ranks, int n, int me,
                  struct hb_error *err)
{
    struct hvd__gpu_plane_config config = {
        .base = s->plane,
        .ranks = ranks,
        .n = n,
        .me = me,
        .set = s->id,
        .host_of = host_of,
        .host_arg = s,
        .look = look_at_engine,
        .look_arg = s,
        .ran = ran,
        .ran_arg = s,
        .launched = hvd__stall_launched(hvd__stall_on(), s->engine.stall.set),
        .waits = waits,
        .culprit = culprit,
        .stall_arg = s,
    };
    int *hosts;

    if (!current)
        return 0;
    if (config.launched)
        atomic_store(config.launched, 0);
    hosts = hb_calloc((size_t)n, sizeof(*hosts));
    if (!hosts) {
        /* The other ranks have their plane and must not wait for this one. */
        s->plane->ops->leave(s->plane);
        s->plane->ops->free(s->plane);
        s->plane = NULL;
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", n);
    }
    for (int i = 0; i < n; i++)
        hosts[i] = host_index(s, ranks, i);
    config.host_index = hosts;
    s->plane = current->plane(&config, err);
    hb_free(hosts);
    return s->plane ? 0 : err->status;
}

/* ---- Calls ------------------------------------------------------------- */

/* What has been seen of a call's buffers. */
struct seen {
    unsigned places;    /* bits: 1 << enum hvd__place */
    const void *device; /* a buffer in device memory */
};

static void look_at(struct seen *s, const void *buf)
{
    const struct hvd__gpu *gpu = recogniser;
    enum hvd__place memory;

    if (!buf)
        return;
    memory = gpu ? gpu->memory_of(buf) : HVD__HOST;
    s->places |= 1u << memory;
    if (memory == HVD__DEVICE)
        s->device = buf;
}

static void look_at_op(struct seen *s, const struct hvd__op *op, int me)
{
    if (op->kind != HVD__BROADCAST || op->root == me)
        look_at(s, op->sendbuf);
    look_at(s, op->recvbuf);
    for (size_t i = 0; op->parts && i < op->nparts; i++) {
        look_at(s, op->parts[i].sendbuf);
        look_at(s, op->parts[i].recvbuf);
    }
}

static int on_host(const struct hvd__issue *i, struct hb_error *err)
{
    const struct hvd__op *op = &i->req->op;

    if (i->stream && !current)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "hvd_options: stream is set, and this process "
                            "cannot use device memory; hvdrun --check-build "
                            "says why");
    if (i->stream)
        return hb_error_set(err, HVD_EINVAL,
                            "hvd_options: stream is set, and the buffers are "
                            "in host memory");
    if (op->op != HVD_ADASUM && !op->reduce && collective_reduces(op->kind))
        return hb_error_set(err, HVD_EINVAL,
                            "%s of %s is not defined in host memory",
                            hvd_op_name(op->op), hvd_dtype_name(op->dtype));
    return 0;
}

static int can_run(const struct hvd__op *op, struct hb_error *err)
{
    if (!current)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "the buffers are in device memory: %s", why.text);
    if (op->kind == HVD__ALLREDUCE && op->op == HVD_ADASUM)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "adasum of device memory is not supported; copy "
                            "it to host memory");
    return 0;
}

/* Hands the event to the operation.  For all parts it is enough that the first
 * waits for it; members may be launched on different streams. */
static void hand_over(const struct hvd__issue *i, void *ready)
{
    struct hvd__op *op = &i->req->op;
    int ordered = i->stream != NULL;

    op->device.ready = ready;
    op->device.ordered = ordered;
    op->flags |= HVD__OP_DEVICE;
    if (op->parts)
        i->parts[0].ready = ready;
    for (size_t k = 0; k < i->req->member_count; k++) {
        i->req->members[k].device.ready = ready;
        i->req->members[k].device.ordered = ordered;
        i->req->members[k].flags |= HVD__OP_DEVICE;
    }
}

static int look_and_issue(const struct hvd__issue *i)
{
    struct hvd__op *op = &i->req->op;
    struct hb_error *err = &i->req->err;
    struct seen seen = {0};
    void *ready = NULL;
    int rc;

    look_at_op(&seen, op, i->me);
    for (size_t k = 0; k < i->req->member_count; k++)
        look_at_op(&seen, &i->req->members[k], i->me);
    if (seen.places == (1u << HVD__HOST | 1u << HVD__DEVICE))
        return hb_error_set(err, HVD_EINVAL,
                            "some of the buffers are in device memory and "
                            "some in host memory");
    /* Without any buffer, as on a rank that has nothing to send or receive, the
     * stream tells that it is in device memory. */
    if (!(seen.places & 1u << HVD__DEVICE) &&
        (seen.places || !i->stream || !current || op->kind == HVD__BARRIER ||
         op->kind == HVD__JOIN))
        return on_host(i, err);
    rc = can_run(op, err);
    if (rc == 0)
        rc = current->issue(i->stream, seen.device, &ready, err);
    if (rc == 0)
        hand_over(i, ready);
    return rc;
}

static void leave(void)
{
    atomic_fetch_sub(&users, 1);
}

/* Counts a user.  Returns 0, and counts none, while hvd_shutdown closes the
 * plug-in. */
static int enter(void)
{
    atomic_fetch_add(&users, 1);
    if (!atomic_load(&closing))
        return 1;
    leave();
    return 0;
}

static int issue(const struct hvd__issue *i)
{
    int rc;

    if (!enter())
        return hb_error_set(&i->req->err, HVD_ENOTINIT,
                            "hvd_init has not been called");
    rc = look_and_issue(i);
    if (!i->req->op.device.ready)
        leave();
    return rc;
}

static void release(void *ready)
{
    const struct hvd__gpu *gpu = current;

    gpu->done(ready);
    leave();
}

const struct hvd__provider hvd__gpu_provider = {
    .open = open_device,
    .wrap = hvd__gpu_wrap,
    .issue = issue,
    .release = release,
    .stats = add_stats,
    .close = hvd__gpu_close,
};
