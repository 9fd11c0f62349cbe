/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test doubles of CUDA and NCCL by themselves: `nccl_double VERB`, which
 * forks the ranks that it needs.  Checks that the doubles give right results
 * and report wrong use: otherwise the tests that rely on them would prove
 * nothing.
 */
#include "tests/nccl/fake_nccl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 70000 };

static ncclUniqueId *id; /* shared by the ranks */
static int me;
static CUstream stream;
static ncclComm_t comm;

static void must(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "rank %d: %s: %d\n", me, what, rc);
        exit(1);
    }
}

#define MUST(call) must((int)(call), #call)

static void settle(ncclComm_t c, ncclResult_t rc)
{
    while (rc == ncclInProgress) {
        usleep(100);
        MUST(ncclCommGetAsyncError(c, &rc));
    }
    must((int)rc, "asynchronous");
}

static void start_cuda(void)
{
    CUcontext ctx;

    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&ctx, me));
    MUST(cuCtxSetCurrent(ctx));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void start_nccl(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t rc;

    config.blocking = 0;
    rc = ncclCommInitRankConfig(&comm, RANKS, *id, me, &config);
    settle(comm, rc);
}

static float *device_floats(float value)
{
    static float host[COUNT];
    CUdeviceptr p;

    for (int i = 0; i < COUNT; i++)
        host[i] = value + (float)(i % 7);
    MUST(cuMemAlloc(&p, sizeof(host)));
    MUST(cuMemcpyHtoD(p, host, sizeof(host)));
    return (float *)p;
}

static int count_wrong(const float *p, float factor, float more)
{
    static float host[COUNT];
    int wrong = 0;

    MUST(
        cuMemcpyAsync((CUdeviceptr)host, (CUdeviceptr)p, sizeof(host), stream));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        wrong += host[i] != factor * (float)(i % 7) + more;
    return wrong;
}

/* Checks sums, a ring of sends, and a communicator that is split off. */
static int verb_values(void)
{
    ncclComm_t half = NULL;
    float *x, *y;

    start_nccl();
    x = device_floats((float)me);
    y = device_floats(0);
    settle(comm,
           ncclAllReduce(x, y, COUNT, ncclFloat32, ncclSum, comm, stream));
    must(count_wrong(y, RANKS, 3), "sum");
    MUST(ncclGroupStart());
    MUST(ncclSend(x, COUNT, ncclFloat32, (me + 1) % RANKS, comm, stream));
    MUST(ncclRecv(y, COUNT, ncclFloat32, (me + RANKS - 1) % RANKS, comm,
                  stream));
    settle(comm, ncclGroupEnd());
    must(count_wrong(y, 1, (float)((me + RANKS - 1) % RANKS)), "ring");
    settle(comm,
           ncclCommSplit(comm, me ? 1 : NCCL_SPLIT_NOCOLOR, -me, &half, NULL));
    if (half) {
        settle(half, ncclBroadcast(x, y, COUNT, ncclFloat32, 0, half, stream));
        must(count_wrong(y, 1, RANKS - 1), "broadcast of the half");
        MUST(ncclCommDestroy(half));
    }
    settle(comm, ncclCommFinalize(comm));
    MUST(ncclCommDestroy(comm));
    return 0;
}

/* Checks that the stream stays busy until the abort if a rank never comes. */
static int verb_hang(void)
{
    float *x;

    start_nccl();
    x = device_floats(1);
    if (me == 1)
        return 0;
    settle(comm,
           ncclAllReduce(x, x, COUNT, ncclFloat32, ncclSum, comm, stream));
    usleep(50000);
    must(cuStreamQuery(stream) != CUDA_ERROR_NOT_READY, "not busy");
    MUST(ncclCommAbort(comm));
    MUST(cuStreamSynchronize(stream));
    return 0;
}

/* Checks that two streams without an order between them show wrong data at some
 * time. */
static int verb_order(void)
{
    float *x = device_floats(0), *y = device_floats(1);
    CUstream other;
    int seen = 0;

    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2000 && !seen; i++) {
        MUST(cuMemcpyAsync((CUdeviceptr)y, (CUdeviceptr)x, 4 * COUNT, other));
        seen = count_wrong(y, 1, 0) != 0;
        MUST(cuStreamSynchronize(other));
        MUST(cuMemsetD8Async((CUdeviceptr)y, 1, 4 * COUNT, stream));
        MUST(cuStreamSynchronize(stream));
    }
    must(!seen, "never out of order");
    return 0;
}

/* Each of these verbs does what the doubles must end the process for. */
static int verb_touch(void)
{
    volatile float *x = device_floats(1);

    return (int)x[0];
}

static int verb_host_memory(void)
{
    static float host[4];

    start_nccl();
    ncclAllReduce(host, host, 4, ncclFloat32, ncclSum, comm, stream);
    return 0;
}

static int verb_beyond(void)
{
    float *x = device_floats(1);

    start_nccl();
    ncclAllReduce(x, x, COUNT + 1, ncclFloat32, ncclSum, comm, stream);
    return 0;
}

static int verb_differ(void)
{
    float *x = device_floats(1);

    start_nccl();
    settle(comm, ncclAllReduce(x, x, (size_t)(10 + me), ncclFloat32, ncclSum,
                               comm, stream));
    cuStreamSynchronize(stream);
    return 0;
}

static int verb_progress(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float *x = device_floats(1);

    config.blocking = 0;
    ncclCommInitRankConfig(&comm, RANKS, *id, me, &config);
    ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comm, stream);
    return 0;
}

static int verb_event(void)
{
    CUevent e;

    MUST(cuEventCreate(&e, 0));
    MUST(cuEventDestroy(e));
    cuEventQuery(e);
    return 0;
}

/* dies: 1 if a signal must end the rank that runs the verb. */
static const struct {
    const char *name;
    int (*run)(void);
    int ranks, dies;
} verbs[] = {
    {"values", verb_values, RANKS, 0},
    {"hang", verb_hang, RANKS, 0},
    {"order", verb_order, 1, 0},
    {"touch", verb_touch, 1, 1},
    {"host-memory", verb_host_memory, RANKS, 1},
    {"beyond", verb_beyond, RANKS, 1},
    {"differ", verb_differ, RANKS, 1},
    {"progress", verb_progress, RANKS, 1},
    {"event", verb_event, 1, 1},
};

static int run(int (*verb)(void), int ranks, int dies)
{
    pid_t pids[RANKS];
    int status, bad = 0;

    for (me = 0; me < ranks; me++) {
        pids[me] = fork();
        if (pids[me] == 0) {
            alarm(60);
            signal(SIGSEGV, SIG_DFL);
            start_cuda();
            exit(verb());
        }
    }
    for (int r = 0; r < ranks; r++) {
        waitpid(pids[r], &status, 0);
        bad |= dies ? !WIFSIGNALED(status) || WTERMSIG(status) == SIGALRM
                    : !WIFEXITED(status) || WEXITSTATUS(status);
    }
    return bad;
}

int main(int argc, char **argv)
{
    id = mmap(NULL, sizeof(*id), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (id == MAP_FAILED || argc != 2)
        return 99;
    MUST(ncclGetUniqueId(id));
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return run(verbs[i].run, verbs[i].ranks, verbs[i].dies);
    return 99;
}
