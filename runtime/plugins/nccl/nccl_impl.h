/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the NCCL plug-in.  The contract: runtime/plugins/gpu.h.
 *
 * A process uses one device: that of the first device memory it is given.
 * Each plane has its own streams on it, one unless HVD_NUM_NCCL_STREAMS says
 * more, each with its own non-blocking communicators.  The first operation on
 * device memory makes them.  Launches use the streams in turn, so each has a
 * stream by its number, the same on all ranks.
 *
 * An operation on device memory goes through these stages (nccl_plane.c):
 *   AGREE    a barrier, or an allgather of counts, on the base plane
 *   HELLO    first time only: ranks exchange what they have, on the base plane
 *   CONNECT  first time only: makes communicators (comm.c)
 *   LAUNCH   puts NCCL calls and kernels on the stream (nccl_collectives.c and
 *            others); after each NCCL call, waits until NCCL has accepted it
 *   FLIGHT   waits until the device is done; not if the operation is ordered
 *   STAGED   replaces LAUNCH for what NCCL cannot do (staged.c)
 *
 * Locks, in the order in which they may be taken:
 *   watch.c's own    the list of watched planes; held while one is looked at
 *   nc_world.nccl    every call of NCCL; a plane's communicators
 *   nc_plane.lock    what was launched, and why the plane failed
 *   nc_world.lock    the device, spare events
 */
#ifndef HVD_NCCL_IMPL_H
#define HVD_NCCL_IMPL_H

#include "runtime/plugins/gpu.h"
#include "runtime/plugins/nccl/fuse.h"
#include "runtime/plugins/nccl/nccl.h"
#include "runtime/plugins/nccl/nccl_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NC_RING = 128, /* launches of a stream with an event of their own */
    NC_TEXT_BYTES = 200,
    NC_NAME_BYTES = 64,
    NC_STAGE_BYTES = 4 << 20, /* pinned host memory of a stream */
    NC_STREAMS = 8,           /* the most streams of a plane */
};

/* ---- The process: nccl_plugin.c
 * ----------------------------------------------- */

enum nc_layers { NC_FLAT, NC_HIERARCHICAL, NC_TORUS };

/* An event on a caller's stream: earlier work there is done. */
struct nc_ready {
    CUevent event;
    CUcontext ctx; /* the context it belongs to */
    struct nc_ready *next;
};

struct nc_world {
    pthread_mutex_t nccl; /* held in every call of NCCL */
    pthread_mutex_t lock; /* protects what follows, up to spare */
    int device;           /* ordinal; -1: not known yet */
    CUdevice cu_device;
    CUcontext ctx; /* the device's primary context; NULL: not known yet */
    int has_pools; /* memory pools for stream-ordered allocation */
    struct hvd__kernels kernels;
    struct nc_ready *spare;
    struct nc_plane *stranded; /* planes that the device never finished */
    /* Settings, constant while open. */
    int64_t limit_s; /* time limit of an operation */
    int ends_job;    /* the limit is that after which hvdrun ends the job */
    int64_t gpu;     /* HVD_GPU; -1: not set */
    int streams;     /* of each plane */
    enum nc_layers layers;
};

extern struct nc_world nc_world;

/* Implements an entry of the plug-in's table (runtime/plugins/gpu.h). */
enum hvd__place nc_place(const void *p);
/* Returns whether p is memory of the process's device. */
int nc_is_own(const void *p);

/* Chooses this process's device if no call has yet. */
int nc_device_any(struct hb_error *err);
/* Loads the kernels, once; needs the device's context to be current. */
int nc_kernels(struct hb_error *err);
/* Makes the device's context current in the calling thread; nc_leave restores
 * the former one.  In between, CUDA calls do not disturb other threads'
 * captures.  The device must be chosen. */
int nc_enter(struct hb_error *err);
int nc_enter_context(CUcontext ctx, struct hb_error *err); /* like nc_enter, any
                                                              context */
void nc_leave(void);
/* Enters as nc_enter, with the context of a caller's stream.  Also
 * -HVD_EUNSUPPORTED: the stream is being captured. */
int nc_enter_stream(CUstream stream, CUcontext *ctx, struct hb_error *err);

/* ---- Communicators: comm.c ----------------------------------------------- */

enum nc_comm_index { NC_ALL, NC_LOCAL, NC_CROSS, NC_COMMS };

/* How the set's ranks are spread over hosts. */
struct nc_shape {
    int local_size, local_me; /* this host's members, in the set's order */
    int hosts, host;
    int even; /* all hosts have equally many ranks */
};

/* What each rank tells all others before communicators are made. */
struct nc_hello {
    int32_t status; /* 0; or negative: why this rank cannot take part */
    uint32_t nccl;  /* version of the library */
    uint32_t compute;
    uint32_t layers;
    uint32_t shares;  /* may share its device with other ranks */
    uint32_t streams; /* that it wants to use */
    uint64_t fusion_bytes, host_id;
    unsigned char uuid[16];
    ncclUniqueId id[NC_COMMS];
    char text[NC_TEXT_BYTES];
};

struct nc_comms {
    ncclComm_t child; /* result of a split, written by NCCL */
    const char *call; /* name of the last call, for messages */
    int aborted;
    /* While connecting: */
    int stream, at; /* indices of the communicator that is being made */
    int is_called;  /* its call was made */
};

/* A communicator that a thread aborts, which may take as long as earlier work
 * on the device. */
struct nc_abort {
    ncclComm_t comm;
    ncclComm_t *child; /* being split from comm; aborted with it */
    CUcontext ctx;     /* copied, as nc_world's may go first */
    _Atomic int runs;
    pthread_t thread; /* join it if has_thread */
    int has_thread;
};

struct nc_plane;

/* Sets p->shape from config's host_index. */
void nc_shape_find(struct nc_plane *p);
/* Fills in this rank's hello; a failure goes into h->status and text. */
void nc_hello_fill(struct nc_plane *p, struct nc_hello *h);
/* Checks all ranks' hellos in p->hello: 0, or negative with err set, the same
 * on all ranks. */
int nc_hello_read(struct nc_plane *p, struct hb_error *err);
/* Makes the communicators; call until it returns 1.  0: call again; or
 * negative. */
int nc_connect(struct nc_plane *p, struct hb_error *err);
/* Takes nc_world.nccl: 0, or negative, not taken, if the communicators are
 * aborted. */
int nc_lock(struct nc_plane *p, struct hb_error *err);
void nc_unlock(void);
/* Records the result of an NCCL call made by run.collective.  The caller of
 * this and of nc_comm_poll holds nc_world.nccl. */
void nc_note_call(struct nc_plane *p, enum nc_comm_index i, ncclResult_t result,
                  const char *call);
#define NC_CALL(p, i, name, ...) \
    nc_note_call(p, i, hvd__nccl.name(__VA_ARGS__), "nccl" #name)
/* Returns 1 if NCCL has accepted the last call of a communicator, or comm is
 * NULL; 0 if not yet; or negative: it failed. */
int nc_comm_poll(struct nc_plane *p, ncclComm_t comm, struct hb_error *err);
/* Aborts the communicators in threads, and waits for those of streams that are
 * not late until the deadline.  The caller must not hold nc_world.nccl. */
void nc_comms_abort(struct nc_plane *p, uint64_t deadline_ns);
/* Waits for all threads that abort: 1 all ended; 0 deadline passed. */
int nc_abort_wait(struct nc_plane *p, uint64_t deadline_ns);
/* Finalizes and destroys the communicators; aborts those that do not end by
 * the deadline. */
void nc_comms_close(struct nc_plane *p, uint64_t deadline_ns);

/* ---- A plane ---------------------------------------------------------------
 */

enum nc_stage {
    NC_IDLE,
    NC_HOST, /* operation on host memory, on the base */
    NC_AGREE,
    NC_HELLO,
    NC_CONNECT,
    NC_LAUNCH,
    NC_FLIGHT,
    NC_STAGED
};

/* How a reduction is scaled: by our kernels before, within NCCL, by our
 * kernels after. */
struct nc_reduction {
    double pre; /* 1: no scaling before */
    ncclRedOp_t op;
    double premul; /* op is PreMulSum with this factor; 0: it is not */
    struct hvd__reduce_args post;
    int has_post;
};

/* The operation in progress; used by the driver only. */
struct nc_run {
    struct hvd__op *op;  /* the engine's operation */
    struct hvd__op view; /* the same, with all buffers in device memory */
    enum nc_stage stage;
    uint64_t since_ns, looked_ns, paused_ns;
    struct hvd__op base_op; /* operation of the base */
    unsigned base_ops;      /* number of base_ops so far */
    int base_op_runs;       /* base_op is in progress */
    int fails_alike;   /* it fails on all ranks alike, so nothing is broken */
    int awaits_reason; /* NCCL has failed: only wait for the reason */
    int is_timed;      /* timed by events */
    int is_begun;      /* LAUNCH: has begun to use the stream */
    int called;        /* communicator of the last NCCL call, -1: accepted */
    int (*collective)(struct nc_plane *p, struct hb_error *err);
    int step;
    size_t at, block; /* elements done; elements in progress */
    struct nc_reduction how;
    size_t total;          /* allgather, alltoall: elements that arrive */
    int deliver;           /* recvbuf has room for them */
    struct hb_error alone; /* set: fails on this rank only, once it is done */
    uint64_t launch;
};

/* A launched operation: what was put on the stream. */
struct nc_launch {
    CUevent event;
    CUevent start_event; /* this slot's event, recorded before an ordered
                      operation */
    CUevent reached;     /* event: the device has reached it; NULL: unknown */
    uint64_t number;     /* number of the slot's latest launch */
    enum hvd__kind kind;
    enum hvd_dtype dtype;
    size_t count;
    const char *algorithm;
    char name[NC_NAME_BYTES];
    CUevent from, to; /* timed: around the device's work */
    int is_timed;
};

/* What the plane waits for: the oldest launch that has not ended, or the
 * operation that the driver is about to launch. */
struct nc_wait {
    uint64_t number, since_ns;
    CUevent reached; /* as in nc_launch */
    enum hvd__kind kind;
    char name[NC_NAME_BYTES];
    int is_launched;
    int is_own; /* the device is still busy with this rank's earlier work */
};

/* Device memory that belongs to one operation. */
struct nc_scratch {
    void *ptr;
    uint64_t launch; /* free when this launch ends; 0: not launched */
    struct nc_scratch *next;
};

/* A stream of the plane, and what its launches use. */
struct nc_stream {
    CUstream cuda;
    ncclComm_t comm[NC_COMMS]; /* NULL: none; under nc_world.nccl */
    void *registered; /* handle of fusion with comm[NC_ALL]; the same lock */
    struct nc_abort aborts[NC_COMMS];
    struct hvd__fuse_buffer fusion;
    void *pinned; /* [NC_STAGE_BYTES] of host memory */
    struct nc_launch ring[NC_RING];
    /* Under nc_plane.lock: */
    uint64_t finished; /* its last launch that is over; 0: none */
    uint64_t began_ns; /* when its oldest launch could begin */
    uint64_t own_ns;   /* when the device was last seen not to have reached
                          it */
    int is_late;       /* the plane has failed, and work of the caller's before
                          the stream's launches does not end */
};

struct nc_plane {
    struct hvd__plane plane;
    struct hvd__plane *base;
    struct hvd__gpu_plane_config config; /* its arrays are copied to these: */
    int n, me;
    int *ranks, *host_index;
    struct nc_shape shape;

    /* Used by the driver only. */
    struct nc_run run;
    struct hb_error refused; /* set: all ranks agreed that NCCL cannot be
                                used */
    int is_connected;
    _Atomic int has_left;   /* base->leave was called; also at exit */
    struct nc_hello *hello; /* [n + 1], while connecting; own one is last */
    uint64_t *words;        /* words of the agreement; own ones come last */
    size_t words_cap;
    size_t *offset;          /* [n + 1] */
    struct hvd__part *parts; /* view's parts, if they differ from op's */
    struct nc_scratch *scratch;
    struct nc_stream *on; /* the stream of the operation in progress */

    /* Determined by the hello. */
    size_t fusion_bytes; /* the least of any rank */
    int nused;           /* streams in use: the fewest of any rank */
    enum nc_layers layers;
    int has_float8; /* all devices can reduce float8 */

    struct nc_comms comms;     /* under nc_world.nccl */
    struct nc_stream *streams; /* [nstreams] */
    int nstreams;

    pthread_mutex_t lock; /* protects what follows */
    int is_ending;        /* communicators are being aborted */
    struct hb_error failed;
    struct hb_error suspect; /* NCCL's error; the base may soon know its
                                cause */
    struct hb_error left;    /* a peer has left, perhaps regularly */
    uint64_t suspect_ns, left_ns;
    uint64_t launched;  /* number of the last launch */
    uint64_t oldest_ns; /* when the oldest pending launch became the oldest */
    uint64_t reported;  /* launches that timing.c has looked at */
    CUevent clock;      /* event recorded when the host's clock was clock_ns */
    uint64_t clock_ns;

    _Atomic int busy;              /* the driver is in an operation */
    _Atomic int has_reported_wait; /* config.waits was told of a wait */
    _Atomic int is_failed;         /* failed is set */
    _Atomic uint32_t wake;         /* a futex */

    struct nc_plane *watched_next; /* list of watch.c */
};

/* ---- nccl_plane.c ---- */
struct hvd__plane *nc_plane_new(const struct hvd__gpu_plane_config *config,
                                struct hb_error *err);

/* ---- base_op.c ---- */
/* Prepares an operation of the base inside the one in progress.  The caller
 * sets elements, kind and buffers; nc_base_op_start starts it;
 * nc_base_op_progress returns like progress. */
struct hvd__op *nc_base_op(struct nc_plane *p, enum hvd__kind kind,
                           enum hvd_dtype dtype);
int nc_base_op_start(struct nc_plane *p);
int nc_base_op_progress(struct nc_plane *p);
/* Returns negative with err set if the plane has failed in an earlier launch,
 * as the peer that the base's operation waits for may never come; else 0.
 * Called while one is in progress. */
int nc_base_op_check(struct nc_plane *p, struct hb_error *err);

/* ---- nccl_failure.c: when it cannot go on ---- */
/* Returns why the plane failed: negative with err set; or 0.  Any thread. */
int nc_failure(struct nc_plane *p, struct hb_error *err);
/* Fails the plane for good with err: aborts its communicators and wakes all
 * waiters.  If it had failed before, sets err to that reason.  Negative.  Any
 * thread that holds no lock of the plug-in. */
int nc_fail(struct nc_plane *p, struct hb_error *err);
/* Returns whether the failure rc leaves the plane usable, because all ranks
 * failed alike, or only this one after its NCCL part was launched, so that no
 * peer waits. */
int nc_is_harmless(const struct nc_run *run, int rc);
/* Notes that NCCL has failed with err, and clears err.  The base may soon know
 * the cause; until then nc_check returns 0. */
void nc_note_error(struct nc_plane *p, struct hb_error *err);
/* Checks whether pending work can still end: 0; or negative with err set: the
 * plane has failed. ask: asks whether the job is over (NULL: do not).
 * since_ns: since when the caller has waited for its operation; 0: only
 * launches count.  Any thread. */
typedef int nc_ask_fn(struct nc_plane *p, struct hb_error *err);
int nc_check(struct nc_plane *p, nc_ask_fn *ask, uint64_t since_ns,
             struct hb_error *err);
/* Tells config.waits that the wait is over. */
void nc_wait_ended(struct nc_plane *p);
int nc_ask_base(struct nc_plane *p, struct hb_error *err); /* for the driver */
int nc_ask_job(struct nc_plane *p, struct hb_error *err);  /* for any thread */
/* Sets err's rank and host to a member's; err has no status yet. */
void nc_name_member(const struct nc_plane *p, int member, struct hb_error *err);
/* Writes " on host n3", or "", to `out`, and returns it. */
const char *nc_host_text(const struct nc_plane *p, int member, char *out,
                         size_t size);

/* ---- nccl_launch.c: streams, and numbers of what was launched ---- */
/* Allocates what a stream needs; fusion: bytes of its fusion buffer.  0, or
 * negative with err set: close it then, too. */
int nc_stream_open(struct nc_stream *s, size_t fusion, struct hb_error *err);
void nc_stream_close(struct nc_stream *s);
/* Returns the stream of a launch, and its slot, which a later launch of that
 * stream may have taken. */
struct nc_stream *nc_launch_stream(const struct nc_plane *p, uint64_t launch);
struct nc_launch *nc_launch_slot(const struct nc_plane *p, uint64_t launch);
/* Returns whether a launch is known to be over; the caller holds p->lock. */
int nc_launch_is_over(const struct nc_plane *p, uint64_t launch);
/* Returns the oldest launch not known to be over; 0: none.  The caller holds
 * p->lock. */
uint64_t nc_launch_oldest(const struct nc_plane *p);
/* Returns the same for one stream, or the number of its next launch. */
uint64_t nc_launch_next(const struct nc_plane *p, int stream);
/* Returns since when the plane has waited for its oldest launch.  The caller
 * holds p->lock. */
uint64_t nc_launch_since(const struct nc_plane *p, uint64_t oldest);
/* Begins, and ends, putting an operation on the stream. begin: 0 or negative;
 * end: the launch's number, or 0 with err set. */
int nc_launch_begin(struct nc_plane *p, const struct hvd__op *op,
                    struct hb_error *err);
uint64_t nc_launch_end(struct nc_plane *p, const struct hvd__op *op,
                       struct hb_error *err);
/* Returns 1 if the launch is over, 0 if not yet, negative if the plane has
 * failed. */
int nc_launch_test(struct nc_plane *p, uint64_t launch, struct hb_error *err);
/* Returns nc_launch_oldest; 0 also if the plane is being aborted. */
uint64_t nc_launch_pending(struct nc_plane *p);
/* Returns CUDA_ERROR_NOT_READY if a stream is not empty, else the first error,
 * else CUDA_SUCCESS. */
CUresult nc_streams_query(const struct nc_plane *p);
/* Waits until the streams are empty, the plane has failed, or the deadline;
 * ask: as of nc_check. */
void nc_drain(struct nc_plane *p, nc_ask_fn *ask, uint64_t deadline_ns);
/* Waits, after an abort, until streams that are not late are empty, or the
 * deadline. */
void nc_drain_aborted(struct nc_plane *p, uint64_t deadline_ns);
/* Returns whether the stream waits for work of the caller's that does not
 * end. */
int nc_is_late(struct nc_plane *p, const struct nc_stream *s);
/* Implements an entry of the plug-in's table. */
int nc_wait(struct hvd__plane *p, uint64_t first, uint64_t last,
            uint64_t until_ns, struct hb_error *err);
int nc_test(struct hvd__plane *p, uint64_t first, uint64_t last,
            struct hb_error *err);
int nc_order(struct hvd__plane *p, uint64_t first, uint64_t last, void *stream,
             struct hb_error *err);
/* Waits for all launches up to `launch` before this rank aborts its
 * communicators: all ranks have launched them, and they end on none of them if
 * one aborts. */
void nc_launch_await(struct nc_plane *p, uint64_t launch, uint64_t deadline_ns);
uint64_t nc_launched(struct hvd__plane *p);
void nc_cancel(struct hvd__plane *p, const struct hb_error *why);
/* Waits a step for the device; *since_ns: start of the wait, 0 at first. */
void nc_pause(uint64_t *since_ns, _Atomic uint32_t *wake);
void nc_wake(_Atomic uint32_t *wake);

/* ---- timing.c: when the device worked on what is timed ---- */
/* Times an operation; called before and after it is put on the stream. */
int nc_timing_begin(struct nc_plane *p, struct hb_error *err);
int nc_timing_end(struct nc_plane *p, struct nc_launch *l,
                  struct hb_error *err);
/* Reports timed operations that are over.  Any thread, holding no lock. */
void nc_timing_report(struct nc_plane *p);
void nc_timing_fini(struct nc_plane *p);

/* ---- nccl_buffers.c: what an operation needs before it is launched ---- */
/* Makes the stream wait for the callers' streams, and sets run.view. */
int nc_prepare_buffers(struct nc_plane *p, struct hb_error *err);
/* Allocates device memory for the operation in progress; NULL with err set. */
void *nc_scratch_get(struct nc_plane *p, size_t bytes, struct hb_error *err);
/* Marks the operation's memory as free once `launch` has ended. */
void nc_scratch_launched(struct nc_plane *p, uint64_t launch);
/* Frees memory whose launch has ended, or with `all` any. */
void nc_scratch_free(struct nc_plane *p, int all);

/* ---- nccl_collectives.c: one step each.  1: all is on the stream; 0: NCCL was
 * called, call again when it has accepted the call; or negative ---- */
int nc_choose_collective(struct nc_plane *p, struct hb_error *err); /* sets
                                                            run.collective */
/* Plans an allgather or alltoall, when counts are known. */
int nc_plan_gather(struct nc_plane *p);
int nc_plan_alltoall(struct nc_plane *p);
/* Asks the operation's alloc, if it has one, for recvbuf; sets run.deliver, or
 * run.alone.  With the device's context current. */
void nc_ask_room(struct nc_plane *p);
/* Gives run.view a recvbuf if alloc gave none: 0, or negative with err set. */
int nc_drain_refused(struct nc_plane *p, struct hb_error *err);
int nc_broadcast(struct nc_plane *p, struct hb_error *err);
int nc_allgather(struct nc_plane *p, struct hb_error *err);
int nc_alltoall(struct nc_plane *p, struct hb_error *err);

/* ---- nccl_reduce.c: as in nccl_collectives.c ---- */
/* Sets run.how: 0, or -HVD_EUNSUPPORTED on all ranks. */
int nc_reduce_plan(struct nc_plane *p, struct hb_error *err);
int nc_allreduce(struct nc_plane *p, struct hb_error *err);
int nc_reducescatter(struct nc_plane *p, struct hb_error *err);

/* ---- staged.c ---- */
int nc_needs_staging(const struct hvd__op *op);
/* Returns like progress; 1: all is on the stream. */
int nc_staged_progress(struct nc_plane *p, struct hb_error *err);

/* ---- watch.c ---- */
int nc_watch_add(struct nc_plane *p, struct hb_error *err);
void nc_watch_remove(struct nc_plane *p); /* on return it is no longer looked
                                             at */
void nc_watch_stop(void);                 /* after the last plane */
void nc_watch_wake(void);                 /* call after a launch */

#endif
