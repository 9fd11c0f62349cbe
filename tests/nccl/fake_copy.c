/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of the CUDA driver API: copies and fills; see fake_cuda.h.
 *
 * As CUDA documents (API synchronization behavior): when an asynchronous copy
 * returns, pageable source memory has been read and pageable destination memory
 * written; pinned and device memory follow the order of the stream only.
 */
#include "tests/nccl/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    void *staged; /* freed after the copy */
    int fill;     /* a byte; -1: this is a copy */
};

static void run_copy(void *arg)
{
    struct copy *c = arg;

    if (c->fill >= 0)
        memset(c->to, c->fill, c->bytes);
    else
        memmove(c->to, c->from, c->bytes);
    free(c->staged);
    free(c);
}

/* Returns whether the driver knows this memory. */
static int known(const void *p)
{
    unsigned type;

    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 (CUdeviceptr)p) == CUDA_SUCCESS;
}

static CUresult submit_copy(struct copy copy, CUstream s, int wait)
{
    struct copy *c = fake_memory(sizeof(*c));
    uint64_t number;

    *c = copy;
    number = fake_submit(s, run_copy, c);
    if (!number) {
        free(c->staged);
        free(c);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (wait)
        fake_wait(s, number);
    return CUDA_SUCCESS;
}

static CUresult copy_async(void *to, const void *from, size_t bytes, CUstream s,
                           const char *function)
{
    struct copy c = {.bytes = bytes, .fill = -1};
    int wait = !known(to);

    if (bytes == 0)
        return CUDA_SUCCESS;
    c.to = wait ? to : fake_reach(to, bytes, function);
    if (known(from)) {
        c.from = fake_reach(from, bytes, function);
    } else {
        c.staged = fake_memory(bytes);
        memcpy(c.staged, from, bytes);
        c.from = c.staged;
    }
    return submit_copy(c, s, wait);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream s)
{
    CUresult rc = fake_enter("cuMemcpyAsync", FAKE_CONTEXT);

    if (rc)
        return rc;
    return copy_async((void *)to, (const void *)from, bytes,
                      fake_stream(s, "cuMemcpyAsync"), "cuMemcpyAsync");
}

/* Runs a synchronous copy on the default stream. */
static CUresult copy_now(void *to, const void *from, size_t bytes,
                         const char *function)
{
    CUresult rc = fake_enter(function, FAKE_CONTEXT);
    CUstream s;

    if (rc)
        return rc;
    s = fake_stream(NULL, function);
    rc = copy_async(to, from, bytes, s, function);
    return rc ? rc : cuStreamSynchronize(NULL);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now((void *)to, (const void *)from, bytes, "cuMemcpy");
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_now((void *)to, from, bytes, "cuMemcpyHtoD");
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_now(to, (const void *)from, bytes, "cuMemcpyDtoH");
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                         CUstream s)
{
    CUresult rc = fake_enter("cuMemsetD8Async", FAKE_CONTEXT);
    struct copy c = {.bytes = bytes, .fill = value};

    if (rc || bytes == 0)
        return rc;
    c.to = fake_reach((void *)to, bytes, "cuMemsetD8Async");
    return submit_copy(c, fake_stream(s, "cuMemsetD8Async"), 0);
}
