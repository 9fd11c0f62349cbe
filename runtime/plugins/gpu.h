/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhvd-nccl.so: collectives on device memory.  libhvd.so opens it in
 * hvd_init where there is a CUDA driver; a host without one goes on without.
 *
 * A GPU plane stands on the plane of the set's host memory, its base.  What
 * is in host memory it passes on.  Of what is in device memory it lets the
 * base agree first: by a barrier, or an allgather of counts, that carries the
 * operation's signature.  So mismatches, cuts, dead and hung peers are found
 * before NCCL is called, and all ranks call NCCL in the same order.
 *
 * An operation is done, for the engine, when
 *   - its results are there, or
 *   - it is ordered (all its requests named a stream) and was launched: then
 *     op->launch is its number, and the plane itself watches over it.
 *
 * Finding and loading: core/plugin.h.
 */
#ifndef HVD_PLUGINS_GPU_H
#define HVD_PLUGINS_GPU_H

#include "lib/base/error.h"
#include "runtime/plane/plane.h"

#include <stddef.h>
#include <stdint.h>

enum hvd__place { HVD__HOST = 0, HVD__DEVICE = 1 };

/* An operation that was timed (hvd__op_time), and when the device worked on
 * it: on hb_now_ns's clock.  Texts live as long as the call. */
struct hvd__gpu_span {
    enum hvd__kind kind;
    enum hvd_dtype dtype; /* of the caller's memory */
    size_t count;
    const char *name, *algorithm;
    uint64_t began_ns, done_ns;
};

/* What a plane waits for: the oldest that is launched, or about to be, and has
 * not ended on the device. */
struct hvd__gpu_wait {
    uint64_t number; /* of its launches, from 1; the same on all ranks */
    uint64_t since_ns;
    enum hvd__kind kind;
    const char *name;  /* lives as long as the call */
    int is_reached;    /* 0: the device still does the caller's work before */
    uint32_t limit_ms; /* after which the plane gives up */
};

struct hvd__gpu_plane_config {
    struct hvd__plane *base; /* the plane's from now on; when NULL is returned,
                                it was made to leave, and freed */
    const int *ranks;        /* [n] of the world; copied; this one: ranks[me] */
    int n, me;
    int set;
    /* Ranks by host: host_index[i] of member i, 0 .. hosts - 1; copied. */
    const int *host_index;
    /* The host's name of member i, or NULL; until free. */
    const char *(*host_of)(void *arg, int member);
    void *host_arg;
    /* Any thread, while something launched is under way and no operation is:
     * whether the job is over, by looking at the base.  0, or negative with
     * err set.  Never blocks. */
    int (*look)(void *arg, struct hb_error *err);
    void *look_arg;
    /* Any thread: it is over.  NULL: nobody wants to know. */
    void (*ran)(void *arg, const struct hvd__gpu_span *span);
    void *ran_arg;
    /* Any thread.  launched: where to count launches, for those who look from
     * outside; NULL: nobody does.
     * waits: what it waits for, now and then while it has for longer than some
     * milliseconds; NULL: nothing any more.
     * culprit: before it gives up what it has told waits of: 1: who it is is
     * in err (rank -1: that is not known, and why), 0: that is being asked,
     * -1: there is nobody to ask.
     * All four may be NULL. */
    _Atomic uint64_t *launched;
    void (*waits)(void *arg, const struct hvd__gpu_wait *w);
    int (*culprit)(void *arg, uint64_t since_ns, struct hb_error *err);
    void *stall_arg;
};

struct hvd__gpu {
    const char *name; /* "nccl" */

    /* Opens the CUDA driver and NCCL.  0; or -HVD_EUNSUPPORTED with err
     * set: "no CUDA driver", no device, no NCCL or one before 2.14 (each with
     * what was looked for); -HVD_EINVAL (a knob). */
    int (*open)(struct hb_error *err);
    void (*close)(void); /* after the last plane was freed; open may follow */

    /* Where p lies.  Managed memory is the device's, pinned the host's.
     * Never fails: what CUDA does not know is the host's.  Any thread; also
     * when open has failed, for want of NCCL. */
    enum hvd__place (*place)(const void *p);

    /* The caller's thread, for an operation in device memory: writes down
     * what it has to wait for, in *ready, an event on the caller's stream
     * (NULL: CUDA's default stream).  -HVD_EUNSUPPORTED (the stream is being
     * captured into a graph), -HVD_ESYSTEM, -HVD_ENOMEM.  Given to done, when
     * the operation is over or never began. */
    int (*issue)(void *stream, const void *buf, void **ready,
                 struct hb_error *err);
    void (*done)(void *ready);

    /* A plane for a set; NULL with err set. */
    struct hvd__plane *(*plane)(const struct hvd__gpu_plane_config *config,
                                struct hb_error *err);

    /* Of what was launched.  Any thread, several at once.
     * wait: until it is done on the device; 0, or negative with err set.
     * test: 1, 0, negative.
     * order: the stream's later work comes after it; the host does not
     * wait. */
    int (*wait)(struct hvd__plane *p, uint64_t launch, struct hb_error *err);
    int (*test)(struct hvd__plane *p, uint64_t launch, struct hb_error *err);
    int (*order)(struct hvd__plane *p, uint64_t launch, void *stream,
                 struct hb_error *err);

    /* Of a plane that nobody drives any more: how many operations it has
     * launched; and that the last of them will not end, as not all members
     * have launched it. */
    uint64_t (*launched)(struct hvd__plane *p);
    void (*cancel)(struct hvd__plane *p, const struct hb_error *why);
};

/* The plug-in's HVD__PLUGIN_SYMBOL; abi: HVD__PLUGIN_ABI of the caller. */
typedef const struct hvd__gpu *hvd__gpu_plugin_fn(const char *abi,
                                                  struct hb_error *err);

#endif
