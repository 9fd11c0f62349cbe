/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a measurement's buffers lie: in pages of this process, in hvd_alloc's
 * memory, or on a GPU.  GPU memory is filled and checked through a copy in
 * host memory, which grows as needed.
 */
#ifndef HVD_BENCH_MEMORY_H
#define HVD_BENCH_MEMORY_H

#include "cmd/hvd-bench/bench_cuda.h"

struct bench_memory {
    struct bench_cuda *cuda; /* NULL: in host memory */
    int alloc;               /* from hvd_alloc */
    void *copy;              /* host copy of GPU memory; owned */
    size_t copy_bytes;
};

/* Allocates zeroed, page-aligned memory.  Functions that return int: 0, or
 * negative with err set. */
int bench_memory_get(struct bench_memory *m, size_t bytes, void **p,
                     struct hb_error *err);
void bench_memory_free(struct bench_memory *m, void *p); /* p may be NULL */
void bench_memory_fini(struct bench_memory *m);

int bench_memory_set(struct bench_memory *m, void *p, int byte, size_t bytes,
                     struct hb_error *err);

/* Returns where to write p's new content: p itself, or a copy, which
 * bench_memory_put transfers to p.  NULL: out of memory. */
void *bench_memory_edit(struct bench_memory *m, void *p, size_t bytes,
                        struct hb_error *err);
int bench_memory_put(struct bench_memory *m, void *p, size_t bytes,
                     struct hb_error *err);

/* Returns p's content, valid until the next call: p itself, or the copy; NULL
 * with err set on failure. */
const void *bench_memory_look(struct bench_memory *m, const void *p,
                              size_t bytes, struct hb_error *err);

#endif
