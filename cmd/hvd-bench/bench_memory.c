/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in host memory and on a GPU; see memory.h. */
#include "cmd/hvd-bench/bench_memory.h"

#include "lib/base/alloc.h"
#include "runtime/hvd.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static int get_pages(const struct bench_memory *m, size_t room, void **p,
                     struct hb_error *err)
{
    int rc;

    if (m->alloc) {
        rc = hvd_alloc(room, p);
        return rc < 0 ? hb_error_set(err, (enum hvd_status) - rc,
                                     "rank %d: hvd_alloc: %s", hvd_rank(),
                                     hvd_error_message())
                      : 0;
    }
    *p = aligned_alloc(PAGE, room);
    if (!*p)
        return hb_error_set(err, HVD_ENOMEM,
                            "no memory for a buffer of %zu bytes", room);
    memset(*p, 0, room);
    return 0;
}

int bench_memory_get(struct bench_memory *m, size_t bytes, void **p,
                     struct hb_error *err)
{
    size_t room = (bytes + PAGE) / PAGE * PAGE;
    int rc;

    if (!m->cuda)
        return get_pages(m, room, p, err);
    rc = bench_cuda_alloc(m->cuda, room, p, err);
    return rc < 0 ? rc : bench_cuda_set(m->cuda, *p, 0, room, err);
}

void bench_memory_free(struct bench_memory *m, void *p)
{
    if (m->cuda)
        bench_cuda_free(m->cuda, p);
    else if (m->alloc)
        hvd_free(p);
    else
        free(p);
}

void bench_memory_fini(struct bench_memory *m)
{
    hb_free(m->copy);
    m->copy = NULL;
    m->copy_bytes = 0;
}

int bench_memory_set(struct bench_memory *m, void *p, int byte, size_t bytes,
                     struct hb_error *err)
{
    if (m->cuda)
        return bench_cuda_set(m->cuda, p, byte, bytes, err);
    memset(p, byte, bytes);
    return 0;
}

void *bench_memory_edit(struct bench_memory *m, void *p, size_t bytes,
                        struct hb_error *err)
{
    if (!m->cuda)
        return p;
    if (bytes > m->copy_bytes || !m->copy) {
        bench_memory_fini(m);
        m->copy = hb_malloc(bytes + 1);
        if (!m->copy) {
            hb_error_set(err, HVD_ENOMEM, "no memory for a copy of %zu bytes",
                         bytes);
            return NULL;
        }
        m->copy_bytes = bytes;
    }
    return m->copy;
}

int bench_memory_put(struct bench_memory *m, void *p, size_t bytes,
                     struct hb_error *err)
{
    return m->cuda ? bench_cuda_write(m->cuda, p, m->copy, bytes, err) : 0;
}

const void *bench_memory_look(struct bench_memory *m, const void *p,
                              size_t bytes, struct hb_error *err)
{
    void *copy;

    if (!m->cuda)
        return p;
    copy = bench_memory_edit(m, NULL, bytes, err);
    return copy && bench_cuda_read(m->cuda, copy, p, bytes, err) == 0 ? copy
                                                                      : NULL;
}
