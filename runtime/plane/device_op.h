/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plane for device memory tells about its operations: when the device
 * worked on them, and which it waits for.
 */
#ifndef HVD_PLANE_DEVICE_OP_H
#define HVD_PLANE_DEVICE_OP_H

#include "runtime/plane/op.h"

/* A timed operation (hvd__op_time) and when the device worked on it, in
 * hb_now_ns's time.  The strings live as long as the call. */
struct hvd__gpu_span {
    enum hvd__kind kind;
    enum hvd_dtype dtype; /* of the caller's memory */
    size_t count;
    const char *name, *algorithm;
    uint64_t began_ns, done_ns;
};

/* What a plane waits for: its oldest operation that is launched, or about to
 * be, and has not ended on the device. */
struct hvd__gpu_wait {
    uint64_t number; /* counts the plane's launches, from 1; the same on all
                        ranks */
    uint64_t since_ns;
    enum hvd__kind kind;
    const char *name;  /* lives as long as the call */
    int is_reached;    /* 0: the device is still busy with earlier work of
                          the caller */
    uint32_t limit_ms; /* time limit, after which the plane gives up */
};

#endif
