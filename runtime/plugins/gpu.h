/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhvd-nccl.so: collectives on device memory. libhvd.so opens it in hvd_init
 * if there is a CUDA driver; without one, host memory still works.
 *
 * A GPU plane uses the set's plane for host memory as its base.  Operations on
 * host memory are passed to the base.  For an operation on device memory, the
 * ranks first agree over the base, by a barrier or an allgather of counts that
 * carries the operation's signature.  So mismatches, cuts, dead and hung peers
 * are found before NCCL is called, and all ranks call NCCL in the same order.
 *
 * An operation is done, for the engine, when
 *   - its results are there, or
 *   - it is ordered (all its requests named a stream) and was launched: then
 *     op->device.launch is its number, and the plane itself watches over it.
 *     A group has the op->device.earlier numbers before that, too.
 *
 * Finding and loading: core/world/plugin_load.h.
 */
#ifndef HVD_PLUGINS_GPU_H
#define HVD_PLUGINS_GPU_H

#include "lib/base/error.h"
#include "runtime/plane/device_op.h"
#include "runtime/plane/plane.h"
#include "runtime/plugins/plugin.h"

#include <stddef.h>
#include <stdint.h>

enum hvd__place { HVD__HOST = 0, HVD__DEVICE = 1 };

struct hvd__gpu_plane_config {
    struct hvd__plane *base; /* owned by the new plane; on failure, made to
                                leave and freed */
    const int *ranks;        /* [n]: world ranks; copied; this rank is
                                ranks[me] */
    int n, me;
    int set;
    /* Ranks by host: host_index[i] of member i, 0 .. hosts - 1; copied. */
    const int *host_index;
    /* Returns the host name of member i, or NULL.  Used until free. */
    const char *(*host_of)(void *arg, int member);
    void *host_arg;
    /* Asks whether the job is over, by looking at the base: 0, or negative
     * with err set.  Never blocks.  Called by any thread while a launch is
     * pending and no operation is in progress. */
    int (*look)(void *arg, struct hb_error *err);
    void *look_arg;
    /* Called by any thread when a timed operation is over.  May be NULL. */
    void (*ran)(void *arg, const struct hvd__gpu_span *span);
    void *ran_arg;
    /* For stall reports; called by any thread; all may be NULL.
     * launched: counter of launches, for outside observers.
     * waits: told now and then what the plane has waited for, for longer
     *   than some milliseconds; w NULL: nothing any more.
     * culprit: asked before the plane gives up what it told waits of.
     *   1: err names the culprit (rank -1: unknown, with the reason);
     *   0: the answer is pending; -1: there is nobody to ask. */
    _Atomic uint64_t *launched;
    void (*waits)(void *arg, const struct hvd__gpu_wait *w);
    int (*culprit)(void *arg, uint64_t since_ns, struct hb_error *err);
    void *stall_arg;
};

struct hvd__gpu {
    const char *name; /* "nccl" */

    /* Returns the version of NCCL on this host, 21805 for 2.18.5; 0 if there is
     * none that can be used.  Needs no open, and no GPU.  Any thread. */
    int (*version)(void);

    /* Opens the CUDA driver and NCCL.  0, or with err set
     *
     * - -HVD_EUNSUPPORTED: no driver, no device, no NCCL, or one before
     *   2.14; err says what was looked for
     * - -HVD_ESYSTEM: cuInit failed
     * - -HVD_EINVAL: a bad setting */
    int (*open)(struct hb_error *err);
    void (*close)(void); /* call after the last plane was freed; open may
                            follow */

    /* Returns where p lies.  Managed memory counts as the device's, pinned
     * memory as the host's, memory that CUDA does not know as the host's.
     * Never fails.  Any thread; also when open has failed for lack of NCCL. */
    enum hvd__place (*memory_of)(const void *p);

    /* Called in the caller's thread for an operation on device memory: records
     * in *ready what it must wait for, an event on the caller's stream (NULL:
     * CUDA's default stream).  0, or with err set -HVD_EUNSUPPORTED (the
     * stream is being captured into a graph; memory of another device),
     * -HVD_ESYSTEM, -HVD_ENOMEM.  Pass *ready to done when the operation is
     * over or never began. */
    int (*issue)(void *stream, const void *buf, void **ready,
                 struct hb_error *err);
    void (*done)(void *ready);

    /* Makes a plane for a set; NULL with err set on failure. */
    struct hvd__plane *(*plane)(const struct hvd__gpu_plane_config *config,
                                struct hb_error *err);
};

#endif
