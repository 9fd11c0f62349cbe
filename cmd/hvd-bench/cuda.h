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

/* Opens the driver and the device of this number (counted round when there
 * are fewer), makes it the calling thread's, and makes a stream.  NULL, with
 * one line. */
struct bench_cuda *bench_cuda_open(int device, struct hb_error *err);
void bench_cuda_close(struct bench_cuda *c);

/* A CUstream that is not ordered with the default one. */
void *bench_cuda_stream(const struct bench_cuda *c);

/* 0, or -HVD_ESYSTEM (-HVD_ENOMEM: device memory) with one line. */
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
/* What the stream did between the two, by events; stop waits for it. */
int bench_cuda_start(struct bench_cuda *c, struct hb_error *err);
int bench_cuda_stop(struct bench_cuda *c, double *ns, struct hb_error *err);

/* ---- Libraries opened at run time ------------------------------------- */

struct bench_symbol {
    const char *name;  /* NULL ends a table */
    size_t at;         /* of the function's pointer in the struct of them */
    const char *older; /* the same where that is not there; or NULL */
};

/* Opens HVD_<knob>, if it is set, else `file`, and fills fns.  Returns the
 * library, which stays open; NULL, with one line. */
void *bench_open_library(const char *knob, const char *file,
                         const struct bench_symbol *symbols, void *fns,
                         struct hb_error *err);

#endif
