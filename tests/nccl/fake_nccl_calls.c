/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of NCCL: collectives; see fake_nccl.h.
 *
 * The calls of a group become one job of the stream for each communicator.  In
 * a job all ranks walk through the elements in the same steps: each writes its
 * share where the others see it, all meet, each reads what it needs, all meet.
 * Sends and receives of a group progress side by side.
 */
#include "tests/nccl/fake_nccl.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct call {
    struct call *next; /* in the group, then in the job */
    ncclComm_t comm;
    CUstream stream;
    struct fake_head head; /* root: the peer of a send or receive */
    const unsigned char *in;
    unsigned char *out;
    size_t moved; /* bytes, of a send or receive */
    struct fake_reduction reduction;
    struct fake_op scale;
};

struct job {
    ncclComm_t comm;
    CUstream stream;
    struct call *calls;
    uint64_t number;
    int hangs, stops;
};

static atomic_ullong launches; /* of this rank, counted for FAKE_NCCL */
static atomic_int busy[FAKE_DEVICES_MAX];

static _Thread_local struct {
    int depth;
    struct call *first, **last;
    ncclResult_t failed;
} group;

/* ---- Collectives -------------------------------------------------------- */

/* Waits until all ranks are here; -1 if aborted. */
static int meet(ncclComm_t comm)
{
    struct fake_shared *shared = comm->shared;
    unsigned bell, want = ++comm->arrived;

    atomic_store(&shared->seats[comm->rank].arrived, want);
    fake_ring(shared);
    for (int r = 0; r < comm->n; r++)
        for (;;) {
            bell = atomic_load(&shared->bell);
            if ((int)(atomic_load(&shared->seats[r].arrived) - want) >= 0)
                break;
            if (fake_await(shared, bell, &comm->quit) < 0)
                return -1;
        }
    return 0;
}

static void check_heads(const struct call *c)
{
    const struct fake_seat *seats = c->comm->shared->seats;

    for (int r = 0; r < c->comm->n; r++) {
        const struct fake_head *h = &seats[r].head;

        if (memcmp(h, &c->head, sizeof(*h)) != 0)
            fake_misuse("ranks do not call the same: %d has call %d type %d "
                        "op %d root %d count %llu, %d call %d type %d op %d "
                        "root %d count %llu",
                        c->comm->rank, c->head.call, c->head.type, c->head.op,
                        c->head.root, (unsigned long long)c->head.count, r,
                        h->call, h->type, h->op, h->root,
                        (unsigned long long)h->count);
    }
}

/* Elements of a collective: all of them (total), those that this rank
 * contributes (put), and the range that it wants. */
struct walk {
    size_t total, put;
    size_t from, until;
};

static struct walk walk_of(const struct call *c)
{
    size_t count = c->head.count, me = (size_t)c->comm->rank;
    int root = c->head.root == c->comm->rank;

    switch (c->head.call) {
    case FAKE_REDUCE:
        return (struct walk){count, count, 0, root ? count : 0};
    case FAKE_BROADCAST:
        return (struct walk){count, root ? count : 0, 0, count};
    case FAKE_REDUCESCATTER:
        return (struct walk){count * (size_t)c->comm->n,
                             count * (size_t)c->comm->n, me * count,
                             (me + 1) * count};
    default:
        return (struct walk){count, count, 0, count};
    }
}

/* Takes the elements [low, high) of a step that began at `first`. */
static void take(const struct call *c, const struct walk *w, size_t first,
                 size_t low, size_t high)
{
    size_t bytes = fake_type_bytes((ncclDataType_t)c->head.type);
    struct fake_shared *shared = c->comm->shared;
    const unsigned char *srcs[FAKE_RANKS];
    unsigned char *to = c->out + (low - w->from) * bytes;

    for (int r = 0; r < c->comm->n; r++)
        srcs[r] = shared->slots[r] + (low - first) * bytes;
    if (c->head.call == FAKE_BROADCAST)
        memcpy(to, srcs[c->head.root], (high - low) * bytes);
    else if (c->head.call == FAKE_ALLGATHER)
        for (int r = 0; r < c->comm->n; r++)
            memcpy(to + (size_t)r * w->total * bytes, srcs[r],
                   (high - low) * bytes);
    else
        fake_reduce(&c->reduction, to, srcs, c->comm->n, high - low);
}

static int run_collective(const struct call *c)
{
    size_t bytes = fake_type_bytes((ncclDataType_t)c->head.type);
    struct fake_shared *shared = c->comm->shared;
    struct walk w = walk_of(c);
    size_t step = FAKE_CHUNK / bytes, n, low, high;

    shared->seats[c->comm->rank].head = c->head;
    if (meet(c->comm) < 0)
        return -1;
    check_heads(c);
    for (size_t first = 0; first < w.total; first += n) {
        n = w.total - first < step ? w.total - first : step;
        if (w.put)
            memcpy(shared->slots[c->comm->rank], c->in + first * bytes,
                   n * bytes);
        if (meet(c->comm) < 0)
            return -1;
        low = first > w.from ? first : w.from;
        high = first + n < w.until ? first + n : w.until;
        if (low < high)
            take(c, &w, first, low, high);
        if (meet(c->comm) < 0)
            return -1;
    }
    return 0;
}

/* ---- Sends and receives ------------------------------------------------- */

static size_t total_of(const struct call *c)
{
    return c->head.count * fake_type_bytes((ncclDataType_t)c->head.type);
}

static int is_single(const struct call *c)
{
    return c->head.call == FAKE_SEND || c->head.call == FAKE_RECV;
}

/* Returns whether any bytes moved. */
static int move_out(struct call *c)
{
    ncclComm_t comm = c->comm;
    struct fake_letter *l = &comm->shared->letters[comm->rank][c->head.root];
    size_t left = total_of(c) - c->moved;

    if (atomic_load(&l->sent) != atomic_load(&l->taken))
        return 0;
    l->bytes = (uint32_t)(left < FAKE_LETTER ? left : FAKE_LETTER);
    l->total = total_of(c);
    memcpy(l->data, c->in + c->moved, l->bytes);
    c->moved += l->bytes;
    atomic_fetch_add(&l->sent, 1);
    fake_ring(comm->shared);
    return 1;
}

static int move_in(struct call *c)
{
    ncclComm_t comm = c->comm;
    struct fake_letter *l = &comm->shared->letters[c->head.root][comm->rank];

    if (atomic_load(&l->sent) == atomic_load(&l->taken))
        return 0;
    if (l->total != total_of(c))
        fake_misuse("ncclRecv: %zu bytes from %d, which sends %llu",
                    total_of(c), c->head.root, (unsigned long long)l->total);
    memcpy(c->out + c->moved, l->data, l->bytes);
    c->moved += l->bytes;
    atomic_fetch_add(&l->taken, 1);
    fake_ring(comm->shared);
    return 1;
}

/* Advances the first unfinished send and receive of each peer. */
static int run_singles(const struct job *job)
{
    struct fake_shared *shared = job->comm->shared;

    for (;;) {
        unsigned bell = atomic_load(&shared->bell);
        int left = 0, went = 0;
        uint32_t taken[2] = {0, 0};

        for (struct call *c = job->calls; c; c = c->next) {
            uint32_t bit = 1u << c->head.root;
            int out = c->head.call == FAKE_SEND;

            if (!is_single(c) || c->moved == total_of(c))
                continue;
            left = 1;
            if (!(taken[out] & bit))
                went |= out ? move_out(c) : move_in(c);
            taken[out] |= bit;
        }
        if (!left)
            return 0;
        if (!went && fake_await(shared, bell, &job->comm->quit) < 0)
            return -1;
    }
}

/* ---- Jobs --------------------------------------------------------------- */

/* Waits until earlier jobs of the communicator are done, on all streams, and,
 * with FAKE_NCCL_SERIAL, until the device is free. */
static int take_turn(const struct job *job, int serial)
{
    ncclComm_t comm = job->comm;
    int none = 0;

    pthread_mutex_lock(&comm->lock);
    while (comm->done + 1 < job->number)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    while (serial &&
           !atomic_compare_exchange_weak(&busy[comm->device], &none, 1)) {
        none = 0;
        if (atomic_load(&comm->quit))
            return -1;
        usleep(50);
    }
    return 0;
}

static void do_calls(const struct job *job)
{
    long slow_ms = fake_nccl_amount("slow");

    usleep((useconds_t)slow_ms * 1000);
    if (job->stops) {
        usleep(100 * 1000); /* lets the caller go on first */
        raise(SIGSTOP);     /* stops this thread at once, others soon */
    }
    while ((job->hangs || fake_context_error(job->comm->ctx)) &&
           !atomic_load(&job->comm->quit))
        usleep(1000);
    if (atomic_load(&job->comm->quit))
        return;
    for (struct call *c = job->calls; c; c = c->next)
        if (!is_single(c) && run_collective(c) < 0)
            return;
    run_singles(job);
}

static void run_job(void *arg)
{
    struct job *job = arg;
    ncclComm_t comm = job->comm;
    int serial = fake_setting("FAKE_NCCL_SERIAL", 0) != 0;

    if (take_turn(job, serial) == 0) {
        do_calls(job);
        if (serial)
            atomic_store(&busy[comm->device], 0);
    }
    for (struct call *c = job->calls, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    pthread_mutex_lock(&comm->lock);
    comm->done = job->number;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    free(job);
}

/* Runs on the communicator's thread. */
static ncclResult_t run_launch(ncclComm_t comm, void *arg)
{
    struct job *job = arg;
    uint64_t k = atomic_fetch_add(&launches, 1) + 1;
    int code;

    if (!comm->blocking)
        usleep((useconds_t)(k * 7919 % 5 * 40));
    job->hangs = fake_nccl_fault("hang", k, &code);
    job->stops = fake_nccl_fault("stop", k, &code);
    if (fake_nccl_fault("error", k, &code)) {
        job->hangs = 1;
        fake_comm_fails(comm, code ? (ncclResult_t)code : ncclSystemError,
                        "injected into the double");
    }
    pthread_mutex_lock(&comm->lock);
    job->number = ++comm->launched;
    pthread_mutex_unlock(&comm->lock);
    if (!fake_submit(job->stream, run_job, job))
        fake_misuse("NCCL in a stream that is captured");
    return ncclSuccess;
}

/* ---- Groups ------------------------------------------------------------- */

static ncclResult_t launch(ncclComm_t comm, struct call *calls)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclGroupEnd");
    struct job *job;
    int code;

    while (rc == ncclSuccess &&
           fake_nccl_fault("stuck", atomic_load(&launches) + 1, &code))
        pause();
    if (rc == ncclSuccess &&
        fake_nccl_fault("call", atomic_load(&launches) + 1, &code)) {
        atomic_fetch_add(&launches, 1);
        fake_comm_leave(comm);
        rc = code ? (ncclResult_t)code : ncclUnhandledCudaError;
    }
    if (rc) {
        for (struct call *next; calls; calls = next) {
            next = calls->next;
            free(calls);
        }
        return rc;
    }
    job = fake_memory(sizeof(*job));
    job->comm = comm;
    job->calls = calls;
    job->stream = calls->stream;
    for (struct call *c = calls; c; c = c->next)
        if (c->stream != job->stream)
            fake_misuse("ncclGroupEnd: two streams for one communicator");
    rc = fake_comm_task(comm, run_launch, job);
    fake_comm_leave(comm);
    return rc;
}

ncclResult_t ncclGroupStart(void)
{
    if (group.depth++ == 0) {
        group.first = NULL;
        group.last = &group.first;
        group.failed = ncclSuccess;
    }
    return ncclSuccess;
}

/* Removes from the group the calls of the first call's communicator. */
static struct call *take_comm(void)
{
    ncclComm_t comm = group.first->comm;
    struct call *taken = NULL, **end = &taken, **link = &group.first;

    while (*link) {
        struct call *c = *link;

        if (c->comm != comm) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        c->next = NULL;
        *end = c;
        end = &c->next;
    }
    group.last = link;
    return taken;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t rc;

    if (group.depth == 0)
        return ncclInvalidUsage;
    if (--group.depth > 0)
        return ncclSuccess;
    rc = group.failed;
    while (group.first) {
        struct call *calls = take_comm();
        ncclResult_t one = launch(calls->comm, calls);

        if (rc == ncclSuccess || rc == ncclInProgress)
            rc = one ? one : rc;
    }
    return rc;
}

/* ---- Calls -------------------------------------------------------------- */

static int overlaps(const unsigned char *a, size_t na, const unsigned char *b,
                    size_t nb)
{
    return a < b + nb && b < a + na;
}

/* Aborts if the buffers overlap without being in place, where a rank's element
 * has the same address in both. */
static void check_overlap(const struct call *c, size_t in, size_t out,
                          const char *function)
{
    size_t apart = 0, bytes = fake_type_bytes((ncclDataType_t)c->head.type);
    const unsigned char *a = c->in, *b = c->out;

    if (!a || !b || !overlaps(a, in, b, out))
        return;
    if (c->head.call == FAKE_ALLGATHER)
        b += apart = (size_t)c->comm->rank * c->head.count * bytes;
    if (c->head.call == FAKE_REDUCESCATTER)
        a += apart = (size_t)c->comm->rank * c->head.count * bytes;
    if (a != b)
        fake_misuse("%s: buffers overlap, and not in place", function);
}

/* Translates the buffers to the double's own mapping. */
static void reach_buffers(struct call *c, const void *in, void *out,
                          const char *function)
{
    size_t one = total_of(c), all = one * (size_t)c->comm->n;
    int call = c->head.call, root = c->head.root == c->comm->rank;
    size_t bytes_in = call == FAKE_REDUCESCATTER ? all : one;
    size_t bytes_out = call == FAKE_ALLGATHER ? all : one;

    if (call == FAKE_RECV || (call == FAKE_BROADCAST && !root))
        bytes_in = 0;
    if (call == FAKE_SEND || (call == FAKE_REDUCE && !root))
        bytes_out = 0;
    c->in = fake_reach(in, bytes_in, function);
    c->out = fake_reach(out, bytes_out, function);
    check_overlap(c, bytes_in, bytes_out, function);
}

/* Replaces ncclAvg and custom operators by a sum and a scale. */
static void resolve(struct call *c, ncclRedOp_t op)
{
    ncclDataType_t type = (ncclDataType_t)c->head.type;
    int made = (int)op - ncclNumOps;

    c->reduction =
        (struct fake_reduction){.type = type, .op = (int)op, .divisor = 1};
    if (made >= 0) {
        if (made >= FAKE_OPS || !c->comm->ops[made].used ||
            c->comm->ops[made].type != type)
            fake_misuse("operator %d is none of the communicator and type",
                        (int)op);
        c->scale = c->comm->ops[made];
        c->reduction.op = ncclSum;
        c->reduction.scale = &c->scale;
        /* Factors and their numbers may differ between ranks. */
        c->head.op = ncclNumOps;
    } else if (op == ncclAvg) {
        double one = 1, n = c->comm->n;

        c->reduction.op = ncclSum;
        c->reduction.divisor = c->comm->n;
        if (fake_is_float(type)) {
            c->scale.factor = fake_rounded(type, one / n);
            c->reduction.scale = &c->scale;
        }
    }
}

struct request {
    enum fake_call call;
    const char *function;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    int op, root; /* 0 if the call has none */
};

static ncclResult_t enqueue(struct request q, ncclComm_t comm,
                            cudaStream_t stream)
{
    ncclResult_t rc = fake_comm_enter(comm, q.function);
    struct call *c;

    if (rc) {
        group.failed = rc;
        return rc;
    }
    fake_comm_leave(comm);
    if (q.root < 0 || q.root >= comm->n)
        return group.failed = ncclInvalidArgument;
    if (q.count == 0)
        return ncclSuccess;
    ncclGroupStart();
    c = fake_memory(sizeof(*c));
    c->comm = comm;
    c->stream = fake_stream((CUstream)stream, q.function);
    if (c->stream->ctx->device != comm->device)
        fake_misuse("%s: a stream of another device", q.function);
    c->head =
        (struct fake_head){q.count, (int)q.call, (int)q.type, q.op, q.root};
    reach_buffers(c, q.in, q.out, q.function);
    if (q.call == FAKE_ALLREDUCE || q.call == FAKE_REDUCE ||
        q.call == FAKE_REDUCESCATTER)
        resolve(c, (ncclRedOp_t)q.op);
    *group.last = c;
    group.last = &c->next;
    return ncclGroupEnd();
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue((struct request){FAKE_ALLREDUCE, "ncclAllReduce", in, out,
                                    count, type, (int)op, 0},
                   comm, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return enqueue((struct request){FAKE_REDUCE, "ncclReduce", in, out, count,
                                    type, (int)op, root},
                   comm, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue((struct request){FAKE_BROADCAST, "ncclBroadcast", in, out,
                                    count, type, 0, root},
                   comm, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue((struct request){FAKE_ALLGATHER, "ncclAllGather", in, out,
                                    count, type, 0, 0},
                   comm, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return enqueue((struct request){FAKE_REDUCESCATTER, "ncclReduceScatter", in,
                                    out, count, type, (int)op, 0},
                   comm, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(
        (struct request){FAKE_SEND, "ncclSend", in, NULL, count, type, 0, peer},
        comm, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return enqueue((struct request){FAKE_RECV, "ncclRecv", NULL, out, count,
                                    type, 0, peer},
                   comm, stream);
}
