/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory, for --device cuda: the few calls of the CUDA driver API that
 * hvd-bench needs.  The driver is opened at run time, so that one hvd-bench
 * serves hosts with and without it: libcuda.so.1, or what HVD_CUDA_LIBRARY
 * names.
 *
 * Every call leaves its result complete on the device before it returns,
 * unless it says otherwise: the default stream does not order the streams of
 * the library.
 */
#ifndef HVD_BENCH_CUDA_H
#define HVD_BENCH_CUDA_H

#include "lib/base/error.h"

#include <stddef.h>

struct bench_cuda;

/* Opens the driver and a device (device modulo their number), makes it
 * current in the calling thread, and creates a stream.  NULL with err
 * set on failure. */
struct bench_cuda *bench_cuda_open(int device, struct hb_error *err);
void bench_cuda_close(struct bench_cuda *c);

/* Returns a CUstream that is not ordered with the default stream. */
void *bench_cuda_stream(const struct bench_cuda *c);

/* Allocates, frees, sets or copies device memory.  0, or with err set
 * -HVD_ESYSTEM, or -HVD_ENOMEM if device memory runs out. */
int bench_cuda_alloc(struct bench_cuda *c, size_t bytes, void **p,
                     struct hb_error *err);
void bench_cuda_free(struct bench_cuda *c, void *p);
int bench_cuda_set(struct bench_cuda *c, void *p, int byte, size_t bytes,
                   struct hb_error *err);
int bench_cuda_write(struct bench_cuda *c, void *to, const void *from,
                     size_t bytes, struct hb_error *err);
int bench_cuda_read(struct bench_cuda *c, void *to, const void *from,
                    size_t bytes, struct hb_error *err);

/* Waits for the stream. */
int bench_cuda_wait(struct bench_cuda *c, struct hb_error *err);
/* Measures the stream's time between the two calls, by events; stop waits for
 * it. */
int bench_cuda_start(struct bench_cuda *c, struct hb_error *err);
int bench_cuda_stop(struct bench_cuda *c, double *ns, struct hb_error *err);

/* ---- Libraries opened at run time ------------------------------------- */

struct bench_symbol {
    const char *name;  /* NULL ends a table */
    size_t at;         /* offset of the function's pointer in fns */
    const char *older; /* name to try if `name` is missing; or NULL */
};

/* Opens HVD_<knob> if it is set, else `file`, and fills fns.  Returns the
 * library, which stays open; NULL with err set on failure. */
void *bench_open_library(const char *knob, const char *file,
                         const struct bench_symbol *symbols, void *fns,
                         struct hb_error *err);

#endif
