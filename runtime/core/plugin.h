/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding and loading a plug-in: libhvd-mpi.so and libhvd-nccl.so, in
 * HVD_PLUGIN_DIR, or else in the folder hvd/ beside libhvd.so.
 */
#ifndef HVD_CORE_PLUGIN_H
#define HVD_CORE_PLUGIN_H

#include "runtime/plugins/gpu.h"
#include "runtime/plugins/plugin.h"

/* The MPI plug-in; the same at every call, never unloaded.  NULL with err
 * set: HVD_EUNSUPPORTED (there is none), HVD_ESYSTEM (it cannot be loaded, and
 * the loader's text says why), HVD_EPROTO (of another release). */
const struct hvd__mpi *hvd__plugin_mpi(struct hb_error *err);

/* The NCCL plug-in, likewise. */
const struct hvd__gpu *hvd__plugin_gpu(struct hb_error *err);

#endif
