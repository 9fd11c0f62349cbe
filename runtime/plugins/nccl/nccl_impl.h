/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the NCCL plug-in.  The contract: runtime/plugins/gpu.h.
 *
 * A process has one device, that of the first device memory it is called
 * with.  Each plane has a stream of its own on it, and non-blocking
 * communicators, which the first operation in device memory makes.
 *
 * An operation on device memory goes through these stages (plane.c):
 *   AGREE    a barrier, or an allgather of counts, of the base plane
 *   HELLO    the first time: what each rank has, by the base plane
 *   CONNECT  the first time: communicators (comm.c)
 *   LAUNCH   calls of NCCL and kernels, put on the stream (collect.c and
 *            others); after each NCCL call, until NCCL has taken it
 *   FLIGHT   until the device has done it; not for what is ordered
 *   STAGED   after the beginning of LAUNCH: what NCCL cannot (staged.c)
 *
 * Locks, in the order in which they may be taken:
 *   watch.c's own    the planes that are watched; held while one is looked at
 *   nc_world.nccl    every call of NCCL; a plane's communicators
 *   nc_plane.lock    what was launched, and why the plane failed
 *   nc_world.lock    the device, spare events
 */
#ifndef HVD_NCCL_IMPL_H
#define HVD_NCCL_IMPL_H

#include "runtime/plugins/gpu.h"
#include "runtime/plugins/nccl/cuda.h"
#include "runtime/plugins/nccl/fuse.h"
#include "runtime/plugins/nccl/nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NC_RING = 128, /* launches that can be told apart */
    NC_TEXT_BYTES = 200,
    NC_NAME_BYTES = 64,
    NC_STAGE_BYTES = 4 << 20, /* pinned host memory, of a plane */
};

/* ---- The process: plugin.c ----------------------------------------------- */

enum nc_layers { NC_FLAT, NC_HIERARCHICAL, NC_TORUS };

/* An event that says when a caller's stream has come so far. */
struct nc_ready {
    CUevent event;
    CUcontext ctx; /* where it was made */
    struct nc_ready *next;
};

struct nc_world {
    pthread_mutex_t nccl; /* held in every call of NCCL */
    pthread_mutex_t lock; /* of all that follows up to spare */
    int device;           /* ordinal; -1: not known yet */
    CUdevice cu_device;
    CUcontext ctx; /* its primary one; NULL: not known yet */
    int has_pools; /* of memory that streams allocate and free in order */
    struct hvd__kernels kernels;
    struct nc_ready *spare;
    struct nc_plane *stranded; /* the device never came to an end with it */
    /* Settings, constant while open. */
    int64_t limit_s; /* of an operation that does not end */
    int ends_job;    /* it is the one after which hvdrun ends the job */
    int64_t gpu;     /* HVD_GPU; -1: not set */
    enum nc_layers layers;
};

extern struct nc_world nc_world;

/* The table's. */
int nc_open(struct hb_error *err);
void nc_close(void);
enum hvd__place nc_place(const void *p);
int nc_issue(void *stream, const void *buf, void **ready, struct hb_error *err);
void nc_done(void *ready);

/* Settles for a device, if no call has. */
int nc_device_any(struct hb_error *err);
/* Loads the kernels, once; the device's context is the current one. */
int nc_kernels(struct hb_error *err);
/* Makes the device's context the calling thread's, and nc_leave the one that
 * was; in between, what it calls goes past captures of other threads.  A
 * device is settled for. */
int nc_enter(struct hb_error *err);
int nc_enter_context(CUcontext ctx, struct hb_error *err); /* any */
void nc_leave(void);
/* The same with a caller's stream's; -HVD_EUNSUPPORTED too: it is being
 * captured. */
int nc_enter_stream(CUstream stream, CUcontext *ctx, struct hb_error *err);

/* ---- Communicators: comm.c ----------------------------------------------- */

enum nc_comm_index { NC_ALL, NC_LOCAL, NC_CROSS, NC_COMMS };

/* Where the set's ranks are. */
struct nc_shape {
    int local_size, local_me; /* of this host, in the set's order */
    int hosts, host;
    int even; /* as many ranks on each host */
};

/* What each rank tells all others before communicators are made. */
struct nc_hello {
    int32_t status; /* 0, or why it cannot take part: negative */
    uint32_t nccl;  /* versions */
    uint32_t compute;
    uint32_t layers;
    uint32_t shares; /* it may share its device with other ranks */
    uint32_t filler;
    uint64_t fusion_bytes, host_id;
    unsigned char uuid[16];
    ncclUniqueId id[NC_COMMS];
    char text[NC_TEXT_BYTES];
};

struct nc_comms {
    ncclComm_t comm[NC_COMMS]; /* NULL: none */
    ncclComm_t child;          /* of a split; NCCL's until that is over */
    const char *call;          /* the last one, for messages */
    void *registered;          /* of the fusion buffer, with NC_ALL */
    int aborted;
    int at, is_called; /* connecting: which one; it was asked for */
};

/* A communicator that a thread aborts, which may last as long as work before
 * its own on the device. */
struct nc_abort {
    ncclComm_t comm;
    ncclComm_t *child; /* comes with the end of comm, of which it is split */
    CUcontext ctx;     /* nc_world's may go first */
    _Atomic int runs;
    pthread_t thread; /* to be joined, if has_thread */
    int has_thread;
};

struct nc_plane;

/* Of config's host_index. */
void nc_shape_find(struct nc_plane *p);
/* This rank's hello; what goes wrong is in it. */
void nc_hello_fill(struct nc_plane *p, struct nc_hello *h);
/* Everybody's, p->hello: 0, or negative with err set, the same on all
 * ranks. */
int nc_hello_read(struct nc_plane *p, struct hb_error *err);
/* Then, until it is 1: all communicators are there; 0, or negative. */
int nc_connect(struct nc_plane *p, struct hb_error *err);
/* nc_world.nccl, as long as there are communicators: 0, or negative. */
int nc_lock(struct nc_plane *p, struct hb_error *err);
void nc_unlock(void);
/* A call of NCCL by run.collective: writes down what it returned.  The caller
 * holds nc_world.nccl, and so it does for all that follow. */
void nc_called(struct nc_plane *p, enum nc_comm_index i, ncclResult_t result,
               const char *call);
#define NC_CALL(p, i, name, ...) \
    nc_called(p, i, hvd__nccl.name(__VA_ARGS__), "nccl" #name)
/* Whether NCCL has taken the last call of a communicator: 1, 0, negative: it
 * failed. */
int nc_comm_poll(struct nc_plane *p, enum nc_comm_index i,
                 struct hb_error *err);
/* Aborts them, by other threads, for which it waits: a while; or, with now,
 * not at all.  The caller does not hold nc_world.nccl. */
void nc_comms_abort(struct nc_plane *p, int now);
/* Until they have ended: 1; or the deadline: 0. */
int nc_abort_wait(struct nc_plane *p, uint64_t deadline_ns);
/* Flushes and frees them; aborts what does not end by then. */
void nc_comms_close(struct nc_plane *p, uint64_t deadline_ns);

/* ---- A plane ---------------------------------------------------------------
 */

enum nc_stage {
    NC_IDLE,
    NC_HOST, /* the base's operation */
    NC_AGREE,
    NC_HELLO,
    NC_CONNECT,
    NC_LAUNCH,
    NC_FLIGHT,
    NC_STAGED
};

/* How the elements of a reduction are scaled: by our kernels before, within
 * NCCL, by our kernels after. */
struct nc_reduction {
    double pre; /* 1: not at all */
    ncclRedOp_t op;
    double premul; /* op is PreMulSum with it; 0: it is not */
    struct hvd__reduce_args post;
    int has_post;
};

/* The operation in progress; of the driver only. */
struct nc_run {
    struct hvd__op *op;  /* the engine's */
    struct hvd__op view; /* the same, but all in device memory */
    enum nc_stage stage;
    uint64_t since_ns, looked_ns, paused_ns;
    struct hvd__op sub; /* the base's */
    unsigned subs;      /* of this operation */
    int sub_runs;       /* sub is in progress */
    int is_alike;       /* it fails on all ranks: nothing is broken */
    int is_stuck;       /* NCCL has failed: only looks any more */
    int is_timed;       /* by events */
    int is_begun;       /* LAUNCH: some of it is on the stream */
    int called;         /* the communicator of the last NCCL call; -1 */
    int (*collective)(struct nc_plane *p, struct hb_error *err);
    int step;
    size_t at, block; /* elements done; those under way */
    struct nc_reduction how;
    size_t total;          /* allgather, alltoall: elements that arrive */
    int deliver;           /* and recvbuf has room for them */
    struct hb_error alone; /* fails on this rank only, when it is done */
    uint64_t launch;
};

/* What was put on the stream. */
struct nc_launch {
    CUevent event;
    CUevent begun;   /* of the ring: recorded before what was ordered */
    CUevent reached; /* when the device has come to it; NULL: not known */
    uint64_t number; /* the last one of its place in the ring */
    enum hvd__kind kind;
    enum hvd_dtype dtype;
    size_t count;
    const char *algorithm;
    char name[NC_NAME_BYTES];
    CUevent from, to; /* timed: when the device worked on it */
    int is_timed;
};

/* What lasts: the oldest launch that has not ended, or the operation that the
 * driver is about to launch. */
struct nc_wait {
    uint64_t number, since_ns;
    CUevent reached; /* as nc_launch's */
    enum hvd__kind kind;
    char name[NC_NAME_BYTES];
    int is_launched;
    int is_own; /* the device has not even come to it */
};

/* Device memory of one operation. */
struct nc_scratch {
    void *ptr;
    uint64_t launch; /* free after it; 0: it is not launched yet */
    struct nc_scratch *next;
};

struct nc_plane {
    struct hvd__plane plane;
    struct hvd__plane *base;
    struct hvd__gpu_plane_config config; /* but for the arrays, copied: */
    int n, me;
    int *ranks, *host_index;
    struct nc_shape shape;

    /* Of the driver. */
    struct nc_run run;
    struct hb_error refused; /* all ranks have agreed that they cannot */
    int is_connected;
    _Atomic int has_left;   /* as the base was told; also at exit */
    struct nc_hello *hello; /* [n + 1], while connecting; the last: own */
    uint64_t *words;        /* of the agreement: own ones come first */
    size_t words_cap;
    size_t *offset;          /* [n + 1] */
    struct hvd__part *parts; /* of view, where they differ from op's */
    struct nc_scratch *scratch;
    void *pinned; /* [NC_STAGE_BYTES] of host memory */

    /* Settled by the hello. */
    CUstream stream;
    struct hvd__fuse_buffer fusion;
    size_t fusion_bytes; /* the least of any rank */
    enum nc_layers layers;
    int has_float8; /* all can reduce it */

    struct nc_comms comms; /* under nc_world.nccl */
    struct nc_abort aborts[NC_COMMS];

    pthread_mutex_t lock; /* of what follows */
    int is_ending;        /* communicators are being aborted */
    int is_late;          /* as work of the caller's does not end */
    struct hb_error failed;
    struct hb_error suspect; /* maybe because of what the base will tell */
    struct hb_error left;    /* a peer has, and it may be all right */
    uint64_t suspect_ns, left_ns;
    struct nc_launch ring[NC_RING];
    uint64_t launched, finished; /* numbers */
    uint64_t told;               /* of finished: by timing.c */
    CUevent clock;               /* recorded when the host's was clock_ns */
    uint64_t clock_ns;
    uint64_t began_ns; /* when the oldest could begin */
    uint64_t own_ns;   /* when the device was last seen before the oldest */

    _Atomic int busy;      /* the driver is in an operation */
    _Atomic int has_told;  /* of what lasts */
    _Atomic int is_failed; /* failed is set */
    _Atomic uint32_t wake; /* a futex */

    struct nc_plane *watched_next; /* of watch.c */
};

/* ---- plane.c ---- */
struct hvd__plane *nc_plane_new(const struct hvd__gpu_plane_config *config,
                                struct hb_error *err);

/* ---- sub.c ---- */
/* An operation of the base inside the one in progress: its elements, kind and
 * buffers are set, nc_sub_start does the rest; then nc_sub_progress, as
 * progress. */
struct hvd__op *nc_sub(struct nc_plane *p, enum hvd__kind kind,
                       enum hvd_dtype dtype);
int nc_sub_start(struct nc_plane *p);
int nc_sub_progress(struct nc_plane *p);
/* While there is one: negative, with err set, when the plane has failed in
 * what was launched before: the peer that is waited for may never come. */
int nc_sub_broken(struct nc_plane *p, struct hb_error *err);

/* ---- fail.c: when it cannot go on ---- */
/* Why the plane failed: negative with err set; or 0.  Any thread. */
int nc_failed(struct nc_plane *p, struct hb_error *err);
/* It has failed for good, by err: aborts its communicators and fails all that
 * wait; or it had before, and then err becomes that.  Negative.  Any thread,
 * with no lock of the plug-in's. */
int nc_break(struct nc_plane *p, struct hb_error *err);
/* An operation has failed on all ranks alike, or on this one when NCCL's part
 * of it was launched: no peer waits for it. */
int nc_is_harmless(const struct nc_run *run, int rc);
/* NCCL has failed, by err, which is cleared.  The base may soon know why;
 * until then nc_look is 0. */
void nc_suspect(struct nc_plane *p, struct hb_error *err);
/* Whether what is under way can still end: 0; or negative, and the plane has
 * failed.  asks: about the job (NULL: cannot now).  since_ns: since when the
 * caller has waited; 0: nothing but what was launched.  Any thread. */
typedef int nc_ask_fn(struct nc_plane *p, struct hb_error *err);
int nc_look(struct nc_plane *p, nc_ask_fn *ask, uint64_t since_ns,
            struct hb_error *err);
/* What lasted does not any more. */
void nc_wait_over(struct nc_plane *p);
int nc_ask_base(struct nc_plane *p, struct hb_error *err); /* the driver's */
int nc_ask_job(struct nc_plane *p, struct hb_error *err);  /* any thread's */
/* Names a member and its host in err, which is not set yet. */
void nc_name(const struct nc_plane *p, int member, struct hb_error *err);
/* " on host n3", or "" */
const char *nc_on_host(const struct nc_plane *p, int member, char *out,
                       size_t size);

/* ---- launch.c: numbers of what was launched ---- */
int nc_launch_init(struct nc_plane *p, struct hb_error *err);
void nc_launch_fini(struct nc_plane *p);
/* Before and after an operation is put on the stream: its number, or 0 with
 * err set. */
int nc_launch_begin(struct nc_plane *p, const struct hvd__op *op,
                    struct hb_error *err);
uint64_t nc_launch_end(struct nc_plane *p, const struct hvd__op *op,
                       struct hb_error *err);
/* 1 done, 0, or negative: the plane has failed. */
int nc_launch_test(struct nc_plane *p, uint64_t launch, struct hb_error *err);
/* The oldest that is not over as far as is known; 0: none. */
uint64_t nc_launch_pending(struct nc_plane *p);
/* Until nothing is on the stream, or it cannot end any more, or the
 * deadline; ask as nc_look's. */
void nc_drain(struct nc_plane *p, nc_ask_fn *ask, uint64_t deadline_ns);
/* The table's: */
int nc_wait(struct hvd__plane *p, uint64_t launch, struct hb_error *err);
int nc_test(struct hvd__plane *p, uint64_t launch, struct hb_error *err);
int nc_order(struct hvd__plane *p, uint64_t launch, void *stream,
             struct hb_error *err);
/* Waits for a launch: before this rank aborts its communicators, since all
 * ranks have launched it, and it ends on none if one aborts. */
void nc_launch_settle(struct nc_plane *p, uint64_t launch,
                      uint64_t deadline_ns);
uint64_t nc_launched(struct hvd__plane *p);
void nc_cancel(struct hvd__plane *p, const struct hb_error *why);
/* One step of waiting for the device since *since_ns (0: it begins). */
void nc_pause(uint64_t *since_ns, _Atomic uint32_t *wake);
void nc_wake(_Atomic uint32_t *wake);

/* ---- timing.c: when the device worked on what is timed ---- */
/* Before it is put on the stream, and after. */
int nc_timing_begin(struct nc_plane *p, struct hb_error *err);
int nc_timing_end(struct nc_plane *p, struct nc_launch *l,
                  struct hb_error *err);
/* Of what is over by now, with no lock.  Any thread. */
void nc_timing_tell(struct nc_plane *p);
void nc_timing_fini(struct nc_plane *p);

/* ---- bring.c: what an operation needs before it is launched ---- */
/* Waits, on the stream, for what the callers' streams have to have done, and
 * makes run.view of the operation. */
int nc_bring(struct nc_plane *p, struct hb_error *err);
/* Device memory until the operation is done; NULL with err set. */
void *nc_scratch_get(struct nc_plane *p, size_t bytes, struct hb_error *err);
/* That of the operation in progress is free after a launch. */
void nc_scratch_launched(struct nc_plane *p, uint64_t launch);
/* Frees what is; all: in any case. */
void nc_scratch_free(struct nc_plane *p, int all);

/* ---- collect.c: one step each.  1: all is on the stream; 0: NCCL was
 * called, again when it has taken it; or negative ---- */
int nc_choose(struct nc_plane *p, struct hb_error *err); /* run.collective */
/* Of allgather and alltoall, when counts are known. */
void nc_plan_gather(struct nc_plane *p);
void nc_plan_alltoall(struct nc_plane *p);
int nc_broadcast(struct nc_plane *p, struct hb_error *err);
int nc_allgather(struct nc_plane *p, struct hb_error *err);
int nc_alltoall(struct nc_plane *p, struct hb_error *err);

/* ---- reduce.c: the same ---- */
/* 0, or -HVD_EUNSUPPORTED on all ranks. */
int nc_reduce_plan(struct nc_plane *p, struct hb_error *err);
int nc_allreduce(struct nc_plane *p, struct hb_error *err);
int nc_reducescatter(struct nc_plane *p, struct hb_error *err);

/* ---- staged.c ---- */
int nc_staged_needed(const struct hvd__op *op);
/* As progress: 1: all is on the stream. */
int nc_staged(struct nc_plane *p, struct hb_error *err);

/* ---- watch.c ---- */
int nc_watch_add(struct nc_plane *p, struct hb_error *err);
void nc_watch_remove(struct nc_plane *p); /* nobody looks at it any more */
void nc_watch_stop(void);                 /* after the last plane */
void nc_watch_wake(void);                 /* something was launched */

#endif
