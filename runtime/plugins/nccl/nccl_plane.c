/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plane: its life, and an operation's stages; see nccl_impl.h.
 *
 * Until all ranks have agreed, an operation fails as on the base: on all ranks
 * alike.  After that, a failure on one rank breaks the plane for good, and the
 * others notice when they look (nccl_failure.c).
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <string.h>

#define LOOK_NS UINT64_C(1000000)
#define LEAVE_NS UINT64_C(30000000000)
#define CLOSE_NS UINT64_C(5000000000)

static struct nc_plane *plane_of(struct hvd__plane *plane)
{
    return (struct nc_plane *)plane;
}

/* ---- Agreeing ------------------------------------------------------------ */

/* Returns how many words this rank contributes to the agreement. */
static size_t agree_words(const struct nc_plane *p, const struct hvd__op *op)
{
    switch (op->kind) {
    case HVD__ALLGATHER: /* elements it has, and has room for */
        return 2;
    case HVD__ALLTOALL: /* elements it has for each rank, and has room for */
        return (size_t)p->n + 1;
    default:
        return 0;
    }
}

static int room_for_words(struct nc_plane *p, size_t each, struct hb_error *err)
{
    size_t need = each * ((size_t)p->n + 1);
    uint64_t *words;

    if (need <= p->words_cap)
        return 0;
    words = hb_realloc_array(p->words, need, sizeof(*words));
    if (!words)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", p->n);
    p->words = words;
    p->words_cap = need;
    return 0;
}

/* Starts the agreement.  This rank's words are in p->words behind those of all
 * ranks. */
static int agree_start(struct nc_plane *p)
{
    struct hvd__op *op = p->run.op, *base_op;
    size_t each = agree_words(p, op), last;
    int rc = room_for_words(p, each, op->err);

    if (rc < 0)
        return rc;
    if (each == 0) {
        nc_base_op(p, HVD__BARRIER, HVD_UINT8);
        return nc_base_op_start(p);
    }
    last = each - 1;
    base_op = nc_base_op(p, HVD__ALLGATHER, HVD_INT64);
    base_op->flags |= HVD__OP_WORDS;
    base_op->sendbuf = p->words + each * (size_t)p->n;
    base_op->recvbuf = p->words;
    base_op->count = each;
    base_op->recvcap = each * (size_t)p->n;
    for (size_t i = 0; i < last; i++)
        p->words[each * (size_t)p->n + i] =
            op->kind == HVD__ALLTOALL ? op->sendcounts[i] : op->count;
    p->words[each * (size_t)p->n + last] = op->alloc.fn  ? UINT64_MAX
                                           : op->recvbuf ? op->recvcap
                                                         : 0;
    return nc_base_op_start(p);
}

/* ---- Becoming connected -------------------------------------------------- */

static void enter_stage(struct nc_plane *p, enum nc_stage stage)
{
    p->run.stage = stage;
    p->run.since_ns = p->run.looked_ns = hb_now_ns();
    p->run.paused_ns = 0;
}

static int hello_start(struct nc_plane *p, struct hb_error *err)
{
    struct hvd__op *base_op;

    if (!p->hello)
        p->hello = hb_calloc((size_t)p->n + 1, sizeof(*p->hello));
    if (!p->hello)
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", p->n);
    nc_hello_fill(p, &p->hello[p->n]);
    base_op = nc_base_op(p, HVD__ALLGATHER, HVD_UINT8);
    base_op->flags |= HVD__OP_WORDS;
    base_op->sendbuf = &p->hello[p->n];
    base_op->recvbuf = p->hello;
    base_op->count = sizeof(*p->hello);
    base_op->recvcap = base_op->count * (size_t)p->n;
    enter_stage(p, NC_HELLO);
    return nc_base_op_start(p);
}

static int hello(struct nc_plane *p, struct hb_error *err)
{
    int rc = nc_base_op_progress(p);

    if (rc != 1)
        return rc;
    rc = nc_hello_read(p, err);
    if (rc < 0) {
        p->refused = *err;
        p->run.fails_alike = 1;
        return rc;
    }
    enter_stage(p, NC_CONNECT);
    return 0;
}

/* ---- Stages -------------------------------------------------------------- */

/* Checks now and then, without progress, whether there still can be any. */
static int check_progress(struct nc_plane *p, struct hb_error *err)
{
    uint64_t now_ns = hb_now_ns();
    /* Launches are timed separately. */
    uint64_t since_ns = p->run.stage == NC_FLIGHT ? 0 : p->run.since_ns;

    if (now_ns - p->run.looked_ns < LOOK_NS)
        return 0;
    p->run.looked_ns = now_ns;
    return nc_check(p, nc_ask_base, since_ns, err);
}

/* Notes that NCCL has failed with err. */
static int note_stuck(struct nc_plane *p, struct hb_error *err)
{
    p->run.awaits_reason = 1;
    nc_note_error(p, err);
    return 0;
}

static int agree(struct nc_plane *p)
{
    struct hvd__op *op = p->run.op;
    int rc = nc_base_op_progress(p);

    if (rc == HVD__CUT)
        op->agreed_entries = p->run.base_op.agreed_entries;
    if (rc != 1)
        return rc;
    if (op->kind == HVD__ALLGATHER)
        rc = nc_plan_gather(p);
    if (op->kind == HVD__ALLTOALL)
        rc = nc_plan_alltoall(p);
    if (rc < 0)
        return rc;
    if (!p->is_connected)
        return hello_start(p, op->err);
    enter_stage(p, NC_LAUNCH);
    return 0;
}

static int connect_all(struct nc_plane *p, struct hb_error *err)
{
    int rc = nc_connect(p, err);

    if (rc < 0)
        return note_stuck(p, err);
    if (rc == 0)
        return check_progress(p, err);
    hb_free(p->hello);
    p->hello = NULL;
    p->is_connected = 1;
    enter_stage(p, NC_LAUNCH);
    return 0;
}

/* Ends a launch, when all is on the stream: 1 if that completes the operation,
 * as it is ordered. */
static int launched(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;

    run->launch = nc_launch_end(p, run->op, err);
    if (!run->launch)
        return err->status;
    nc_scratch_launched(p, run->launch);
    enter_stage(p, NC_FLIGHT);
    /* One that fails on this rank alone must wait, to give its buffers back. */
    if (!run->op->device.ordered || run->alone.status)
        return 0;
    run->op->device.launch = run->launch;
    nc_watch_wake();
    return 1;
}

static int begin_launch(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int rc = nc_choose_collective(p, err);

    if (rc < 0) {
        run->fails_alike = 1;
        return rc;
    }
    run->is_begun = 1;
    p->on = nc_launch_stream(p, p->launched + 1);
    nc_scratch_free(p, 0);
    nc_ask_room(p);
    rc = nc_prepare_buffers(p, err);
    if (rc == 0)
        rc = nc_drain_refused(p, err);
    if (rc == 0)
        rc = nc_timing_begin(p, err);
    if (rc == 0 && !run->collective)
        enter_stage(p, NC_STAGED);
    return rc;
}

/* Returns like nc_comm_poll whether NCCL has accepted the last call. */
static int taken(struct nc_plane *p, struct hb_error *err)
{
    int rc;

    if (p->run.called < 0)
        return 1;
    rc = nc_lock(p, err);
    if (rc < 0)
        return rc;
    rc = nc_comm_poll(p, p->on->comm[p->run.called], err);
    nc_unlock();
    if (rc == 1)
        p->run.called = -1;
    return rc;
}

static int launch(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int rc = 0;

    if (!run->is_begun)
        rc = begin_launch(p, err);
    while (rc == 0 && run->stage == NC_LAUNCH && !run->awaits_reason) {
        rc = taken(p, err);
        if (rc < 0)
            return note_stuck(p, err);
        if (rc == 0)
            return check_progress(p, err);
        rc = run->collective(p, err);
    }
    return rc == 1 ? launched(p, err) : rc;
}

static int stage(struct nc_plane *p, struct hb_error *err)
{
    int rc = nc_staged_progress(p, err);

    if (rc == 0 && !p->run.base_op_runs)
        return check_progress(p, err);
    return rc == 1 ? launched(p, err) : rc;
}

static int fly(struct nc_plane *p, struct hb_error *err)
{
    struct nc_run *run = &p->run;
    int rc = nc_launch_test(p, run->launch, err);

    if (rc == 0)
        return check_progress(p, err);
    if (rc == 1 && run->alone.status) {
        *err = run->alone;
        return err->status;
    }
    return rc;
}

/* Runs the stage with the device's context current. */
static int on_device(struct nc_plane *p, struct hb_error *err)
{
    static int (*const stages[])(struct nc_plane *, struct hb_error *) = {
        [NC_CONNECT] = connect_all,
        [NC_LAUNCH] = launch,
        [NC_STAGED] = stage,
        [NC_FLIGHT] = fly,
    };
    int rc = nc_enter(err);

    if (rc < 0)
        return rc;
    rc = p->run.awaits_reason ? check_progress(p, err)
                              : stages[p->run.stage](p, err);
    nc_leave();
    return rc;
}

/* Runs stages until one does not finish. */
static int advance(struct nc_plane *p, struct hb_error *err)
{
    enum nc_stage before;
    int rc;

    do {
        before = p->run.stage;
        if (before == NC_AGREE)
            rc = agree(p);
        else if (before == NC_HELLO)
            rc = hello(p, err);
        else
            rc = on_device(p, err);
    } while (rc == 0 && p->run.stage != before);
    return rc == 0 ? nc_base_op_check(p, err) : rc;
}

/* ---- Operations -----------------------------------------------------------
 */

static int supports(const struct hvd__plane *plane, const struct hvd__op *op)
{
    const struct nc_plane *p = (const struct nc_plane *)plane;

    if (op->flags & HVD__OP_DEVICE)
        return op->kind == HVD__BARRIER || collective_nccl(op->kind);
    return p->base->ops->supports(p->base, op);
}

/* Returns the plane's failure, if any; tells the peers once, which then blame
 * this rank. */
static int has_failed(struct nc_plane *p, struct hb_error *err)
{
    int rc = nc_failure(p, err);

    if (rc < 0 && !p->has_left) {
        p->has_left = 1;
        p->base->ops->leave(p->base);
    }
    return rc;
}

static void end(struct nc_plane *p, int rc)
{
    struct nc_run *run = &p->run;

    if (rc < 0 && !nc_is_harmless(run, rc)) {
        run->op->alloc.status = 0; /* no longer the reason */
        nc_fail(p, run->op->err);
        has_failed(p, NULL);
    }
    /* Other pending launches will be reported again. */
    nc_wait_ended(p);
    run->stage = NC_IDLE;
    run->op = NULL;
    atomic_store(&p->busy, 0);
}

static int start_device(struct nc_plane *p, struct hvd__op *op)
{
    struct nc_run *run = &p->run;

    run->fails_alike = p->refused.status != 0;
    if (run->fails_alike) {
        *op->err = p->refused;
        return op->err->status;
    }
    run->is_timed = op->trace.agreed_ns == HVD__OP_TIMED && p->config.ran;
    run->base_ops = 0;
    run->base_op_runs = run->awaits_reason = run->is_begun = 0;
    run->called = -1;
    run->collective = NULL;
    run->step = 0;
    run->at = run->block = 0;
    hb_error_clear(&run->alone);
    run->launch = op->device.launch = op->device.earlier = 0;
    enter_stage(p, NC_AGREE);
    return agree_start(p);
}

static int start(struct hvd__plane *plane, struct hvd__op *op)
{
    struct nc_plane *p = plane_of(plane);
    int rc = has_failed(p, op->err);

    if (rc < 0)
        return rc;
    atomic_store(&p->busy, 1);
    p->run.op = op;
    p->run.stage = NC_HOST;
    rc = op->flags & HVD__OP_DEVICE ? start_device(p, op)
                                    : p->base->ops->start(p->base, op);
    if (rc < 0)
        end(p, rc);
    return rc;
}

static int progress(struct hvd__plane *plane, struct hvd__op *op)
{
    struct nc_plane *p = plane_of(plane);
    int rc = p->run.stage == NC_HOST ? p->base->ops->progress(p->base, op)
                                     : advance(p, op->err);

    if (rc != 0) {
        end(p, rc);
        /* A mismatch may come without an error text. */
        if (rc < 0 && op->err->status)
            rc = op->err->status;
    }
    return rc;
}

static int waits_for_base(const struct nc_run *run)
{
    return run->stage == NC_IDLE || run->stage == NC_HOST || run->base_op_runs;
}

static void pause_step(struct hvd__plane *plane, uint64_t until_ns)
{
    struct nc_plane *p = plane_of(plane);

    if (waits_for_base(&p->run))
        p->base->ops->pause(p->base, until_ns);
    else
        nc_pause(&p->run.paused_ns, &p->wake);
}

static int missing(struct hvd__plane *plane, uint64_t *number, int *reports)
{
    struct nc_plane *p = plane_of(plane);

    return p->base->ops->missing && waits_for_base(&p->run)
               ? p->base->ops->missing(p->base, number, reports)
               : -1;
}

static void give_up(struct hvd__plane *plane, const struct hb_error *why)
{
    struct nc_plane *p = plane_of(plane);

    if (p->base->ops->give_up && waits_for_base(&p->run))
        p->base->ops->give_up(p->base, why);
}

static int began(struct hvd__plane *plane, struct hb_error *err)
{
    struct nc_plane *p = plane_of(plane);
    int rc = has_failed(p, err);

    return rc < 0 ? rc : p->base->ops->began(p->base, err);
}

static void interrupt(struct hvd__plane *plane)
{
    struct nc_plane *p = plane_of(plane);

    p->base->ops->interrupt(p->base);
    nc_wake(&p->wake);
}

static void abandon(struct hvd__plane *plane)
{
    struct nc_plane *p = plane_of(plane);
    struct hb_error err = HB_ERROR_INIT;
    struct nc_run *run = &p->run;

    if (p->base->ops->abandon && waits_for_base(run))
        p->base->ops->abandon(p->base);
    /* Up to NC_AGREE nothing is on the stream. */
    if (run->stage <= NC_AGREE || !p->is_connected || nc_enter(NULL) < 0)
        return;
    hb_error_set(&err, HVD_ESHUTDOWN, "this rank has left");
    nc_launch_await(p, p->launched - (run->stage == NC_FLIGHT),
                    hb_now_ns() + CLOSE_NS);
    nc_fail(p, &err);
    nc_drain(p, NULL, hb_now_ns() + CLOSE_NS);
    nc_leave();
}

/* Drains first: peers need this rank until its launches are over. */
static void leave(struct hvd__plane *plane)
{
    struct nc_plane *p = plane_of(plane);

    if (!p->has_left && p->is_connected && nc_enter(NULL) == 0) {
        nc_drain(p, nc_ask_job, hb_now_ns() + LEAVE_NS);
        nc_leave();
    }
    p->has_left = 1;
    p->base->ops->leave(p->base);
}

/* ---- Life -----------------------------------------------------------------
 */

static void release(struct nc_plane *p)
{
    p->base->ops->free(p->base);
    for (int i = 0; i < p->nstreams * NC_COMMS; i++) {
        struct nc_abort *a = &p->streams[i / NC_COMMS].aborts[i % NC_COMMS];

        if (a->has_thread) /* it has ended */
            pthread_join(a->thread, NULL);
    }
    pthread_mutex_destroy(&p->lock);
    hb_free(p->hello);
    hb_free(p->words);
    hb_free(p->offset);
    hb_free(p->parts);
    hb_free(p->ranks);
    hb_free(p->host_index);
    hb_free(p->streams);
    hb_free(p);
}

/* Frees what the hello made, in reverse order.  0: the device may still use
 * it. */
static int close_device(struct nc_plane *p)
{
    uint64_t deadline_ns = hb_now_ns() + CLOSE_NS;

    nc_drain(p, NULL, deadline_ns);
    nc_comms_close(p, deadline_ns);
    if (!nc_abort_wait(p, deadline_ns) ||
        nc_streams_query(p) == CUDA_ERROR_NOT_READY)
        return 0;
    nc_scratch_free(p, 1);
    nc_timing_fini(p);
    for (int i = 0; i < p->nstreams; i++)
        nc_stream_close(&p->streams[i]);
    return 1;
}

/* Keeps the plane for ever: freeing what the device uses would never return. */
static void strand(struct nc_plane *p)
{
    p->base->ops->free(p->base);
    pthread_mutex_lock(&nc_world.lock);
    p->watched_next = nc_world.stranded;
    nc_world.stranded = p;
    pthread_mutex_unlock(&nc_world.lock);
}

static void free_plane(struct hvd__plane *plane)
{
    struct nc_plane *p = plane_of(plane);
    int is_closed = 1;

    nc_watch_remove(p);
    if (p->streams[0].cuda && nc_enter(NULL) == 0) {
        is_closed = close_device(p);
        nc_leave();
    }
    nc_wait_ended(p);
    if (is_closed)
        release(p);
    else
        strand(p);
}

static const struct hvd__launch_ops nc_launches = {
    .wait = nc_wait,
    .test = nc_test,
    .order = nc_order,
    .count = nc_launched,
    .cancel = nc_cancel,
};

static const struct hvd__plane_ops nc_ops = {
    .name = "nccl",
    .launches = &nc_launches,
    .supports = supports,
    .start = start,
    .progress = progress,
    .pause = pause_step,
    .began = began,
    .interrupt = interrupt,
    .missing = missing,
    .give_up = give_up,
    .abandon = abandon,
    .leave = leave,
    .free = free_plane,
};

/* Returns how many streams to use.  Communicators for more than one are split
 * from the first stream's. */
static int streams_wanted(void)
{
    return hvd__nccl.CommSplit ? nc_world.streams : 1;
}

static int allocate(struct nc_plane *p,
                    const struct hvd__gpu_plane_config *config)
{
    size_t n = (size_t)config->n;

    p->ranks = hb_calloc(n, sizeof(*p->ranks));
    p->host_index = hb_calloc(n, sizeof(*p->host_index));
    p->offset = hb_calloc(n + 1, sizeof(*p->offset));
    p->streams = hb_calloc((size_t)p->nstreams, sizeof(*p->streams));
    if (!p->ranks || !p->host_index || !p->offset || !p->streams)
        return -HVD_ENOMEM;
    p->on = p->streams;
    memcpy(p->ranks, config->ranks, n * sizeof(*p->ranks));
    memcpy(p->host_index, config->host_index, n * sizeof(*p->host_index));
    return 0;
}

struct hvd__plane *nc_plane_new(const struct hvd__gpu_plane_config *config,
                                struct hb_error *err)
{
    struct nc_plane *p = hb_calloc(1, sizeof(*p));

    if (p) {
        p->plane.ops = &nc_ops;
        p->base = config->base;
        p->config = *config;
        p->n = config->n;
        p->me = config->me;
        p->nstreams = streams_wanted();
        p->nused = 1;
        pthread_mutex_init(&p->lock, NULL);
        if (allocate(p, config) == 0) {
            nc_shape_find(p);
            return &p->plane;
        }
        config->base->ops->leave(config->base);
        release(p);
    } else {
        config->base->ops->leave(config->base);
        config->base->ops->free(config->base);
    }
    hb_error_set(err, HVD_ENOMEM, "no memory for %d ranks", config->n);
    return NULL;
}
