/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a measurement's buffers lie: in pages of this process, in hvd_alloc's
 * memory, or on a GPU.  What lies on a GPU is filled and looked at through a
 * copy in host memory, which grows as needed.
 */
#ifndef HVD_BENCH_MEMORY_H
#define HVD_BENCH_MEMORY_H

#include "cmd/hvd-bench/cuda.h"

struct bench_memory {
    struct bench_cuda *cuda; /* NULL: in host memory */
    int alloc;               /* from hvd_alloc */
    void *copy;              /* of what lies on a GPU; owned */
    size_t copy_bytes;
};

/* Zeroed, from the start of a page.  0, or negative with one line; so for the
 * others too. */
int bench_memory_get(struct bench_memory *m, size_t bytes, void **p,
                     struct hb_error *err);
void bench_memory_free(struct bench_memory *m, void *p); /* takes NULL */
void bench_memory_fini(struct bench_memory *m);

int bench_memory_set(struct bench_memory *m, void *p, int byte, size_t bytes,
                     struct hb_error *err);

/* Where to write what p is to hold: p itself, or the copy, which put brings
 * to p.  NULL: no memory. */
void *bench_memory_edit(struct bench_memory *m, void *p, size_t bytes,
                        struct hb_error *err);
int bench_memory_put(struct bench_memory *m, void *p, size_t bytes,
                     struct hb_error *err);

/* What p holds, until the next call: p itself, or the copy; NULL with one
 * line. */
const void *bench_memory_look(struct bench_memory *m, const void *p,
                              size_t bytes, struct hb_error *err);

#endif
