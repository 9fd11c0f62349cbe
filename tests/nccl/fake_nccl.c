/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Double of NCCL: communicators; see fake_nccl.h.
 *
 * Each has a thread that runs the requested tasks one after the other.  A
 * communicator is never freed, so that a stale handle is noticed.
 */
#include "tests/nccl/fake_nccl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMM = 0xc033, CONFIG = 0xcafebeef, NEVER_TWICE = 23003 };

static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t comms;
static atomic_ullong inits; /* communicators begun */

/* ---- Injected failures ------------------------------------------------- */

/* Finds FAKE_NCCL's entry for `fault` and this rank; 0 if there is none. */
static int find_fault(const char *fault, long *k, int *code)
{
    const char *text = getenv("FAKE_NCCL");
    char copy[512], *save, *entry, name[32];
    int rank, found = 0;

    if (!text)
        return 0;
    snprintf(copy, sizeof(copy), "%s", text);
    entry = strtok_r(copy, ",", &save);
    for (; entry && !found; entry = strtok_r(NULL, ",", &save)) {
        *k = 1;
        *code = 0;
        if (sscanf(entry, "%31[^:]:%d:%ld:%d", name, &rank, k, code) < 2)
            fake_misuse("FAKE_NCCL: '%s'", entry);
        found = strcmp(name, fault) == 0 && rank == fake_rank();
    }
    return found;
}

int fake_nccl_fault(const char *fault, uint64_t k, int *code)
{
    long wanted;

    return find_fault(fault, &wanted, code) && (uint64_t)wanted == k;
}

long fake_nccl_amount(const char *fault)
{
    long amount;
    int code;

    return find_fault(fault, &amount, &code) ? amount : 0;
}

/* ---- Errors and versions ----------------------------------------------- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)fake_setting("FAKE_NCCL_VERSION", 22809);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};

    return (unsigned)result < sizeof(texts) / sizeof(*texts)
               ? texts[result]
               : "unknown result code";
}

/* The text is per thread here; NCCL's is per process. */
static _Thread_local char last_error[256];

const char *ncclGetLastError(ncclComm_t comm)
{
    if (comm) {
        pthread_mutex_lock(&comm->lock);
        snprintf(last_error, sizeof(last_error), "%s", comm->text);
        pthread_mutex_unlock(&comm->lock);
    }
    return last_error;
}

void fake_comm_fails(ncclComm_t comm, ncclResult_t error, const char *text)
{
    pthread_mutex_lock(&comm->lock);
    if (!comm->error) {
        comm->error = error;
        snprintf(comm->text, sizeof(comm->text), "%s", text);
    }
    pthread_mutex_unlock(&comm->lock);
}

/* ---- Calls on a communicator ------------------------------------------- */

static void check_comm(ncclComm_t comm, const char *function)
{
    if (!comm || comm->magic != COMM)
        fake_misuse("%s: %p is no communicator", function, (void *)comm);
}

ncclResult_t fake_comm_enter(ncclComm_t comm, const char *function)
{
    ncclResult_t rc;
    int pending;

    check_comm(comm, function);
    if (atomic_fetch_add(&comm->inside, 1))
        fake_misuse("%s: another thread is in a call on the communicator",
                    function);
    pthread_mutex_lock(&comm->lock);
    pending = comm->pending;
    rc = comm->error;
    pthread_mutex_unlock(&comm->lock);
    if (pending && !comm->blocking && !rc && !atomic_load(&comm->quit))
        fake_misuse("%s: the communicator is in progress", function);
    if (comm->finalized)
        fake_misuse("%s: the communicator was finalized", function);
    if (!fake_context())
        fake_misuse("%s: no context is current", function);
    if (!rc && atomic_load(&comm->quit))
        rc = ncclInvalidUsage;
    if (rc)
        fake_comm_leave(comm);
    return rc;
}

void fake_comm_leave(ncclComm_t comm)
{
    atomic_fetch_sub(&comm->inside, 1);
}

/* Begins a call that is allowed on a communicator in progress, but not beside
 * another call. */
static void enter_alone(ncclComm_t comm, const char *function)
{
    check_comm(comm, function);
    if (atomic_fetch_add(&comm->inside, 1) || atomic_load(&comm->asking))
        fake_misuse("%s: another thread is in a call on the communicator",
                    function);
}

static void *comm_thread(void *arg)
{
    ncclComm_t comm = arg;
    struct fake_task *task;
    ncclResult_t rc;

    cuCtxPushCurrent(comm->ctx);
    pthread_mutex_lock(&comm->lock);
    for (;;) {
        while (!comm->first && !comm->closing)
            pthread_cond_wait(&comm->changed, &comm->lock);
        task = comm->first;
        if (!task)
            break;
        comm->first = task->next;
        if (!comm->first)
            comm->last = &comm->first;
        pthread_mutex_unlock(&comm->lock);
        rc = task->run(comm, task->arg);
        free(task);
        if (rc)
            fake_comm_fails(comm, rc, "");
        pthread_mutex_lock(&comm->lock);
        comm->pending--;
        pthread_cond_broadcast(&comm->changed);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

ncclResult_t fake_comm_task(ncclComm_t comm,
                            ncclResult_t (*run)(ncclComm_t, void *), void *arg)
{
    struct fake_task *task = fake_memory(sizeof(*task));
    ncclResult_t rc = ncclInProgress;

    task->run = run;
    task->arg = arg;
    pthread_mutex_lock(&comm->lock);
    *comm->last = task;
    comm->last = &task->next;
    comm->pending++;
    pthread_cond_broadcast(&comm->changed);
    while (comm->blocking && comm->pending)
        pthread_cond_wait(&comm->changed, &comm->lock);
    if (comm->blocking)
        rc = comm->error;
    pthread_mutex_unlock(&comm->lock);
    return rc;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    check_comm(comm, "ncclCommGetAsyncError");
    atomic_fetch_add(&comm->asking, 1);
    pthread_mutex_lock(&comm->lock);
    *error = comm->error     ? comm->error
             : comm->pending ? ncclInProgress
                             : ncclSuccess;
    pthread_mutex_unlock(&comm->lock);
    atomic_fetch_sub(&comm->asking, 1);
    return ncclSuccess;
}

/* ---- Set-up ------------------------------------------------------------- */

/* Waits until all ranks are here; -1 if aborted. */
static int meet(ncclComm_t comm)
{
    struct fake_shared *shared = comm->shared;
    unsigned bell, want = ++comm->booted;

    atomic_store(&shared->seats[comm->rank].booted, want);
    fake_ring(shared);
    for (int r = 0; r < comm->n; r++)
        for (;;) {
            bell = atomic_load(&shared->bell);
            if (atomic_load(&shared->seats[r].booted) >= want)
                break;
            if (fake_await(shared, bell, &comm->quit) < 0)
                return -1;
        }
    return 0;
}

/* Writes a name that identifies a device among all ranks of the host. */
static void name_device(char *name, size_t bytes, int device)
{
    const char *host = getenv("NCCL_HOSTID");
    CUuuid uuid;

    cuDeviceGetUuid(&uuid, device);
    snprintf(name, bytes, "%.16s %d %s", uuid.bytes, device, host ? host : "");
}

static ncclResult_t check_devices(ncclComm_t comm)
{
    struct fake_seat *seats = comm->shared->seats;
    char text[128];
    int version;

    ncclGetVersion(&version);
    for (int r = 0; r < comm->n && version < NEVER_TWICE; r++)
        if (r != comm->rank &&
            strcmp(seats[r].device, seats[comm->rank].device) == 0) {
            snprintf(text, sizeof(text),
                     "Duplicate GPU detected : rank %d and rank %d both on "
                     "CUDA device %d",
                     comm->rank, r, comm->device);
            fake_comm_fails(comm, ncclInvalidUsage, text);
            return ncclInvalidUsage;
        }
    return ncclSuccess;
}

/* Takes this rank's seat and waits until all ranks have theirs. */
static ncclResult_t join(ncclComm_t comm, const char *id)
{
    uint64_t k = atomic_fetch_add(&inits, 1) + 1;
    struct fake_seat *seat;
    int code;

    if (fake_nccl_fault("init", k, &code)) {
        fake_comm_fails(comm, code ? (ncclResult_t)code : ncclSystemError,
                        "injected into the double");
        return comm->error;
    }
    comm->shared = fake_shared_map(id);
    if (!comm->shared) {
        fake_comm_fails(comm, ncclRemoteError, "the maker of the id is gone");
        return ncclRemoteError;
    }
    seat = &comm->shared->seats[comm->rank];
    if (atomic_fetch_add(&seat->here, 1))
        fake_misuse("ncclCommInitRankConfig: rank %d twice", comm->rank);
    name_device(seat->device, sizeof(seat->device), comm->device);
    while (fake_nccl_fault("absent", k, &code) && !atomic_load(&comm->quit))
        usleep(1000);
    if (atomic_load(&comm->quit) || meet(comm) < 0)
        return ncclInternalError;
    return check_devices(comm);
}

static ncclComm_t make_comm(int n, int rank, const ncclConfig_t *config)
{
    ncclComm_t comm = fake_memory(sizeof(*comm));

    comm->magic = COMM;
    comm->n = n;
    comm->rank = rank;
    comm->blocking = !config || config->blocking != 0;
    comm->ctx = fake_context();
    cuCtxGetDevice(&comm->device);
    comm->last = &comm->first;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    if (pthread_create(&comm->thread, NULL, comm_thread, comm))
        fake_misuse("no thread for a communicator");
    pthread_mutex_lock(&comms_lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&comms_lock);
    fake_count(1);
    return comm;
}

/* Ids whose memory this process keeps open. */
static struct {
    char text[64];
    int fd;
} ids[64];

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int i = 0;

    memset(id, 0, sizeof(*id));
    pthread_mutex_lock(&comms_lock);
    while (i < 64 && ids[i].text[0])
        i++;
    if (i == 64)
        fake_misuse("ncclGetUniqueId: 64 ids were never used");
    fake_shared_make(ids[i].text, &ids[i].fd);
    memcpy(id->internal, ids[i].text, sizeof(ids[i].text));
    pthread_mutex_unlock(&comms_lock);
    return ncclSuccess;
}

/* Closes the memory of an id: its communicator is ready or has failed. */
static void forget_id(const char *text)
{
    pthread_mutex_lock(&comms_lock);
    for (int i = 0; i < 64; i++)
        if (strcmp(ids[i].text, text) == 0) {
            close(ids[i].fd);
            ids[i].text[0] = '\0';
        }
    pthread_mutex_unlock(&comms_lock);
}

static ncclResult_t run_init(ncclComm_t comm, void *arg)
{
    ncclResult_t rc = join(comm, arg);

    forget_id(arg);
    free(arg);
    return rc;
}

static void check_config(const ncclConfig_t *config)
{
    if (config && (config->magic != CONFIG || config->size < 24))
        fake_misuse("an ncclConfig_t was not initialised");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id,
                                    int rank, ncclConfig_t *config)
{
    char *text;

    check_config(config);
    if (!fake_context())
        fake_misuse("ncclCommInitRankConfig: no context is current");
    if (n < 1 || n > FAKE_RANKS || rank < 0 || rank >= n)
        return ncclInvalidArgument;
    text = fake_memory(64);
    memcpy(text, id.internal, 63);
    *comm = make_comm(n, rank, config);
    return fake_comm_task(*comm, run_init, text);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id,
                              int rank)
{
    return ncclCommInitRankConfig(comm, n, id, rank, NULL);
}

/* ---- Splitting ---------------------------------------------------------- */

struct split {
    int color, key;
    ncclComm_t child; /* NULL: no color */
    ncclComm_t *out;  /* the caller's; NULL until the split is done */
};

/* Computes this rank's place among those of its color, by key and then rank,
 * and their number. */
static void place_in_split(ncclComm_t comm, const struct split *s, int *place,
                           int *n, int *first)
{
    *place = *n = 0;
    *first = -1;
    for (int r = 0; r < comm->n; r++) {
        int color, key, before;

        if (sscanf(comm->shared->seats[r].note, "%d %d", &color, &key) != 2)
            fake_misuse("ncclCommSplit: rank %d does something else", r);
        if (color != s->color)
            continue;
        before = key < s->key || (key == s->key && r < comm->rank);
        *n += 1;
        *place += before;
        if (*first < 0)
            *first = r;
    }
}

static ncclResult_t split(ncclComm_t comm, const struct split *s)
{
    struct fake_seat *seats = comm->shared->seats;
    char made[64] = "", text[64];
    int first = -1, fd = -1;
    ncclResult_t rc = ncclSuccess;

    snprintf(seats[comm->rank].note, 64, "%d %d", s->color, s->key);
    if (meet(comm) < 0)
        return ncclInternalError;
    if (s->child)
        place_in_split(comm, s, &s->child->rank, &s->child->n, &first);
    if (first == comm->rank)
        fake_shared_make(made, &fd);
    if (meet(comm) < 0)
        return ncclInternalError;
    memcpy(seats[comm->rank].note, made, 64);
    if (meet(comm) < 0)
        return ncclInternalError;
    if (s->child) {
        memcpy(text, seats[first].note, 64);
        rc = join(s->child, text);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

static ncclResult_t run_split(ncclComm_t comm, void *arg)
{
    struct split *s = arg;
    ncclResult_t rc = split(comm, s);

    if (s->child) {
        pthread_mutex_lock(&s->child->lock);
        s->child->pending--;
        if (rc && !s->child->error)
            s->child->error = rc;
        pthread_mutex_unlock(&s->child->lock);
    }
    atomic_store(&comm->child, NULL);
    *s->out = s->child; /* set even if the split failed or was aborted */
    free(s);
    return rc;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *child, ncclConfig_t *config)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclCommSplit");
    ncclConfig_t same = NCCL_CONFIG_INITIALIZER;
    struct split *s;

    if (rc)
        return rc;
    check_config(config);
    same.blocking = comm->blocking;
    if (config && config->blocking != NCCL_CONFIG_UNDEF_INT)
        same.blocking = config->blocking;
    s = fake_memory(sizeof(*s));
    s->color = color;
    s->key = key;
    if (color != NCCL_SPLIT_NOCOLOR) {
        s->child = make_comm(0, 0, &same);
        s->child->pending = 1;
        atomic_store(&comm->child, s->child);
    }
    s->out = child;
    *child = NULL;
    rc = fake_comm_task(comm, run_split, s);
    fake_comm_leave(comm);
    return rc;
}

/* ---- Going away --------------------------------------------------------- */

/* Waits until all tasks and launches are done. */
static void settle(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->pending || comm->done < comm->launched)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

static ncclResult_t run_finalize(ncclComm_t comm, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&comm->lock);
    while (comm->done < comm->launched)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclCommFinalize");

    if (rc)
        return rc;
    comm->finalized = 1;
    rc = fake_comm_task(comm, run_finalize, NULL);
    fake_comm_leave(comm);
    return rc;
}

static void end(ncclComm_t comm)
{
    settle(comm);
    pthread_mutex_lock(&comm->lock);
    comm->closing = 1;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
    if (atomic_load(&comm->asking))
        fake_misuse("ncclCommGetAsyncError while a communicator goes away");
    comm->magic = 0;
    fake_shared_unmap(comm->shared);
    comm->shared = NULL;
    fake_count(-1);
}

/* Blocks until all work is done: work that hangs needs ncclCommAbort. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    enter_alone(comm, "ncclCommDestroy");
    end(comm);
    return ncclSuccess;
}

/* Also aborts a split in progress; its child stays the caller's to free. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclComm_t child;

    if (!comm)
        return ncclSuccess;
    enter_alone(comm, "ncclCommAbort");
    atomic_store(&comm->quit, 1);
    child = atomic_load(&comm->child);
    if (child)
        atomic_store(&child->quit, 1);
    end(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    enter_alone(comm, "ncclCommRevoke");
    if (flags)
        fake_misuse("ncclCommRevoke: flags %d", flags);
    atomic_store(&comm->quit, 1);
    settle(comm);
    fake_comm_leave(comm);
    return ncclSuccess;
}

/* ---- What it is --------------------------------------------------------- */

ncclResult_t ncclCommCount(const ncclComm_t comm, int *n)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclCommCount");

    if (rc)
        return rc;
    *n = comm->n;
    fake_comm_leave(comm);
    return rc;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclCommUserRank");

    if (rc)
        return rc;
    *rank = comm->rank;
    fake_comm_leave(comm);
    return rc;
}

/* ---- Memory and operators ----------------------------------------------- */

ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
    CUdevice device;
    uintptr_t at;

    if (fake_fault("ncclMemAlloc") || cuCtxGetDevice(&device))
        return ncclUnhandledCudaError;
    if (fake_alloc(FAKE_NCCL, device, bytes, &at))
        return ncclUnhandledCudaError;
    *p = (void *)at;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
    if (!p)
        return ncclSuccess;
    fake_drain(fake_context());
    fake_release(FAKE_NCCL, (uintptr_t)p, "ncclMemFree");
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t bytes,
                              void **handle)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclCommRegister");
    int i = 0;

    if (rc)
        return rc;
    fake_reach(p, bytes, "ncclCommRegister");
    while (i < FAKE_OPS && comm->registered[i].bytes)
        i++;
    if (i == FAKE_OPS)
        fake_misuse("ncclCommRegister: %d pieces of memory already", i);
    if (fake_fault("ncclCommRegister")) {
        rc = ncclUnhandledCudaError;
    } else {
        comm->registered[i] = (struct fake_registration){p, bytes};
        *handle = &comm->registered[i];
    }
    fake_comm_leave(comm);
    return rc;
}

/* Aborts unless the memory still exists.  NCCL would ask the peers about it and
 * wait for them for ever. */
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    struct fake_registration *r = handle;
    int works;

    enter_alone(comm, "ncclCommDeregister");
    pthread_mutex_lock(&comm->lock);
    works = comm->pending || comm->done < comm->launched;
    pthread_mutex_unlock(&comm->lock);
    if (works)
        fake_misuse("ncclCommDeregister: peers may hang, as the communicator "
                    "has work under way");
    if (r < comm->registered || r >= comm->registered + FAKE_OPS || !r->bytes)
        fake_misuse("ncclCommDeregister: %p is not the communicator's", handle);
    fake_reach(r->p, r->bytes, "ncclCommDeregister");
    r->bytes = 0;
    fake_comm_leave(comm);
    return ncclSuccess;
}

static int64_t whole_scalar(ncclDataType_t type, const void *scalar)
{
    int64_t v = 0;

    memcpy(&v, scalar, fake_type_bytes(type));
    return v;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
                                      ncclDataType_t type,
                                      ncclScalarResidence_t residence,
                                      ncclComm_t comm)
{
    ncclResult_t rc = fake_comm_enter(comm, "ncclRedOpCreatePreMulSum");
    int i = 0;

    if (rc)
        return rc;
    if (residence != ncclScalarHostImmediate)
        fake_misuse("ncclRedOpCreatePreMulSum: a scalar on the device");
    while (i < FAKE_OPS && comm->ops[i].used)
        i++;
    if (i == FAKE_OPS)
        fake_misuse("ncclRedOpCreatePreMulSum: %d were not destroyed", i);
    comm->ops[i] = (struct fake_op){
        .used = 1,
        .type = type,
        .factor = fake_float(type, scalar),
        .whole = whole_scalar(type, scalar),
    };
    *op = (ncclRedOp_t)(ncclNumOps + i);
    fake_comm_leave(comm);
    return rc;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    int i = (int)op - ncclNumOps;

    enter_alone(comm, "ncclRedOpDestroy");
    if (i < 0 || i >= FAKE_OPS || !comm->ops[i].used)
        fake_misuse("ncclRedOpDestroy: %d is none", (int)op);
    comm->ops[i].used = 0;
    fake_comm_leave(comm);
    return ncclSuccess;
}
