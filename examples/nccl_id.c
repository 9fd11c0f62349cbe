/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL called by the program itself, wired up by libhvd.
 *
 *     hvdrun -np 2 build/examples/nccl_id
 *
 * NCCL's communicator needs an id that one rank makes and all know.
 *
 *   1. Rank 0 makes the id; hvd_broadcast gives it to the others, from host
 *      memory to host memory.
 *   2. hvd_local_gpu says which GPU is this rank's: NCCL wants a different one
 *      for each rank of a host.
 *   3. All ranks create the communicator together.
 *   4. An allreduce on the GPUs adds the ranks' numbers, and each rank checks
 *      the sum.
 *
 * An allreduce alone needs none of this: hvd_allreduce takes device memory, and
 * uses NCCL itself.  This is for programs that have calls of NCCL already.
 */
#include "common.h"

#include <cuda.h>
#include <hvd.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 16 };

/* One GPU, used through CUDA's driver. */
struct gpu {
    CUdevice device;
    CUstream stream;
    CUdeviceptr values;
};

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "%s: rank %d: %s: %s\n", program, hvd_rank(), what, why);
    exit(1);
}

static void must_cuda(CUresult result, const char *what)
{
    const char *why = "unknown error";

    if (result == CUDA_SUCCESS)
        return;
    (void)cuGetErrorName(result, &why);
    give_up(what, why);
}

static void must_nccl(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess)
        give_up(what, ncclGetErrorString(result));
}

/* (2) Opens this rank's GPU and allocates the values. */
static void open_gpu(struct gpu *g)
{
    int number = hvd_local_gpu();
    CUcontext context;

    must_cuda(cuInit(0), "cuInit");
    must_cuda(cuDeviceGet(&g->device, number < 0 ? 0 : number), "cuDeviceGet");
    must_cuda(cuDevicePrimaryCtxRetain(&context, g->device),
              "cuDevicePrimaryCtxRetain");
    must_cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must_cuda(cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING),
              "cuStreamCreate");
    must_cuda(cuMemAlloc(&g->values, COUNT * sizeof(float)), "cuMemAlloc");
}

static void close_gpu(struct gpu *g)
{
    must_cuda(cuMemFree(g->values), "cuMemFree");
    must_cuda(cuStreamDestroy(g->stream), "cuStreamDestroy");
    must_cuda(cuDevicePrimaryCtxRelease(g->device),
              "cuDevicePrimaryCtxRelease");
}

/* (1, 3) Makes the communicator of all ranks, on the current GPU. */
static ncclComm_t open_nccl(void)
{
    ncclComm_t comm;
    ncclUniqueId id;

    if (hvd_rank() == 0)
        must_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    must(hvd_broadcast(&id, &id, sizeof(id), HVD_UINT8, 0, NULL),
         "hvd_broadcast of the id");
    must_nccl(ncclCommInitRank(&comm, hvd_size(), id, hvd_rank()),
              "ncclCommInitRank");
    return comm;
}

/* (4) Adds what all ranks have; returns the number of wrong sums. */
static int add(const struct gpu *g, ncclComm_t comm)
{
    float *values = must_alloc(COUNT, sizeof(*values));
    int size = hvd_size(), wrong = 0;

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(hvd_rank() + i % 7);
    must_cuda(cuMemcpyHtoD(g->values, values, COUNT * sizeof(*values)),
              "cuMemcpyHtoD");
    must_nccl(ncclAllReduce((const void *)g->values, (void *)g->values, COUNT,
                            ncclFloat, ncclSum, comm, g->stream),
              "ncclAllReduce");
    must_cuda(cuStreamSynchronize(g->stream), "cuStreamSynchronize");
    must_cuda(cuMemcpyDtoH(values, g->values, COUNT * sizeof(*values)),
              "cuMemcpyDtoH");
    for (int i = 0; i < COUNT; i++)
        wrong += values[i] != (float)(size * (size - 1) / 2 + size * (i % 7));
    free(values);
    return wrong;
}

int main(void)
{
    struct gpu gpu;
    ncclComm_t comm;
    int wrong;

    program = "nccl_id";
    must(hvd_init(), "hvd_init");
    open_gpu(&gpu);
    comm = open_nccl();
    wrong = add(&gpu, comm);
    must_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    close_gpu(&gpu);
    if (wrong)
        give_up("ncclAllReduce", "wrong sums");
    if (hvd_rank() == 0)
        printf("NCCL added %d numbers of %d ranks\n", COUNT, hvd_size());
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
