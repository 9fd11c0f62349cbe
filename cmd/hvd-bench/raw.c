/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives by NCCL alone; numbers and types equal those of nccl.h. */
#include "cmd/hvd-bench/raw.h"

#include "cmd/hvd-bench/bench_cuda.h"
#include "cmd/hvd-bench/bench_world.h"
#include "lib/base/alloc.h"

#include <string.h>

enum { NONE = -1 };

static const int dtypes[] = {
    [HVD_INT8] = 0,    [HVD_UINT8] = 1,    [HVD_INT32] = 2,
    [HVD_INT64] = 4,   [HVD_FLOAT16] = 6,  [HVD_FLOAT32] = 7,
    [HVD_FLOAT64] = 8, [HVD_BFLOAT16] = 9, [HVD_UINT16] = NONE,
    [HVD_BOOL] = NONE, [HVD_INT16] = NONE,
};

static const int ops[] = {
    [HVD_SUM] = 0,     [HVD_PRODUCT] = 1, [HVD_MAX] = 2,    [HVD_MIN] = 3,
    [HVD_AVERAGE] = 4, [HVD_BAND] = NONE, [HVD_BOR] = NONE, [HVD_ADASUM] = NONE,
};

struct unique_id { /* ncclUniqueId */
    char internal[128];
};

struct nccl {
    const char *(*error_string)(int result);
    int (*unique_id)(struct unique_id *id);
    int (*init)(void **comm, int n, struct unique_id id, int rank);
    int (*destroy)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*allreduce)(const void *send, void *recv, size_t count, int dtype,
                     int op, void *comm, void *stream);
    int (*broadcast)(const void *send, void *recv, size_t count, int dtype,
                     int root, void *comm, void *stream);
    int (*allgather)(const void *send, void *recv, size_t count, int dtype,
                     void *comm, void *stream);
    int (*reducescatter)(const void *send, void *recv, size_t count, int dtype,
                         int op, void *comm, void *stream);
    int (*send)(const void *buf, size_t count, int dtype, int peer, void *comm,
                void *stream);
    int (*recv)(void *buf, size_t count, int dtype, int peer, void *comm,
                void *stream);
};

#define AT(field) offsetof(struct nccl, field)
static const struct bench_symbol symbols[] = {
    {"ncclGetErrorString", AT(error_string), NULL},
    {"ncclGetUniqueId", AT(unique_id), NULL},
    {"ncclCommInitRank", AT(init), NULL},
    {"ncclCommDestroy", AT(destroy), NULL},
    {"ncclGroupStart", AT(group_start), NULL},
    {"ncclGroupEnd", AT(group_end), NULL},
    {"ncclAllReduce", AT(allreduce), NULL},
    {"ncclBroadcast", AT(broadcast), NULL},
    {"ncclAllGather", AT(allgather), NULL},
    {"ncclReduceScatter", AT(reducescatter), NULL},
    {"ncclSend", AT(send), NULL},
    {"ncclRecv", AT(recv), NULL},
    {NULL, 0, NULL},
};

struct bench_raw {
    struct nccl fn;
    void *comm;
    int size;
};

int bench_raw_check(const struct bench_options *o, struct hb_error *err)
{
    int reduces = o->what == BENCH_ALLREDUCE || o->what == BENCH_REDUCESCATTER;

    if (dtypes[o->dtype] == NONE)
        return hb_error_set(err, HVD_EINVAL, "--raw: NCCL has no %s",
                            hvd_dtype_name(o->dtype));
    if (reduces && ops[o->op] == NONE)
        return hb_error_set(err, HVD_EINVAL, "--raw: NCCL has no %s",
                            hvd_op_name(o->op));
    if (o->wire)
        return hb_error_set(err, HVD_EINVAL, "--raw: NCCL has no --wire");
    return 0;
}

static int check(const struct bench_raw *r, int result, const char *call,
                 struct hb_error *err)
{
    if (result == 0)
        return 0;
    return hb_error_set(err, HVD_ESYSTEM, "--raw: %s: %s", call,
                        r->fn.error_string(result));
}

/* ---- Opening ----------------------------------------------------------- */

/* Broadcasts the first member's id, or that it could not make one. */
static int share_id(const struct bench_raw *r, const struct bench_set *set,
                    struct unique_id *id, struct hb_error *err)
{
    struct {
        int32_t made;
        struct unique_id id;
    } m = {0};
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int rc = 0;

    opts.process_set = set->number;
    if (set->rank == 0) {
        rc = check(r, r->fn.unique_id(&m.id), "ncclGetUniqueId", err);
        m.made = rc == 0;
    }
    rc = hvd_broadcast(&m, &m, sizeof(m), HVD_UINT8, set->root, &opts);
    if (rc < 0)
        return bench_library_error(err, "broadcast", rc);
    if (!m.made)
        return hb_error_set(err, HVD_ESYSTEM,
                            "--raw: rank %d could not make an NCCL id",
                            set->root);
    *id = m.id;
    return 0;
}

struct bench_raw *bench_raw_open(const struct bench_set *set,
                                 struct hb_error *err)
{
    struct bench_raw *r = hb_calloc(1, sizeof(*r));
    struct unique_id id;

    if (!r) {
        hb_error_set(err, HVD_ENOMEM, "no memory");
        return NULL;
    }
    r->size = set->size;
    if (bench_open_library("NCCL_LIBRARY", "libnccl.so.2", symbols, &r->fn,
                           err) &&
        share_id(r, set, &id, err) == 0 &&
        check(r, r->fn.init(&r->comm, set->size, id, set->rank),
              "ncclCommInitRank", err) == 0)
        return r;
    hb_free(r);
    return NULL;
}

void bench_raw_close(struct bench_raw *r)
{
    if (!r)
        return;
    r->fn.destroy(r->comm);
    hb_free(r);
}

/* ---- Calls ------------------------------------------------------------- */

static int alltoall(struct bench_raw *r, const struct bench_tensor *t,
                    int dtype, void *stream)
{
    size_t part = t->send_count / (size_t)r->size;
    size_t bytes = part * hvd_dtype_size(t->data.dtype);
    int rc = r->fn.group_start();

    for (int i = 0; i < r->size && rc == 0; i++) {
        rc = r->fn.send((char *)t->send + (size_t)i * bytes, part, dtype, i,
                        r->comm, stream);
        if (rc == 0)
            rc = r->fn.recv((char *)t->recv + (size_t)i * bytes, part, dtype, i,
                            r->comm, stream);
    }
    return rc ? rc : r->fn.group_end();
}

static int call(struct bench_raw *r, const struct bench_options *o,
                const struct bench_tensor *t, void *stream)
{
    int dtype = dtypes[o->dtype], op = ops[o->op];

    switch (o->what) {
    case BENCH_BROADCAST:
        return r->fn.broadcast(t->send, t->recv, t->send_count, dtype, 0,
                               r->comm, stream);
    case BENCH_ALLGATHER:
        return r->fn.allgather(t->send, t->recv, t->send_count, dtype, r->comm,
                               stream);
    case BENCH_ALLTOALL:
        return alltoall(r, t, dtype, stream);
    case BENCH_REDUCESCATTER:
        return r->fn.reducescatter(t->send, t->recv, t->recv_count, dtype, op,
                                   r->comm, stream);
    default:
        return r->fn.allreduce(t->send, t->recv, t->send_count, dtype, op,
                               r->comm, stream);
    }
}

int bench_raw_iterate(struct bench_raw *r, const struct bench_work *w,
                      void *stream, struct hb_error *err)
{
    int group = w->o->mode == BENCH_GROUP;
    int rc = group ? r->fn.group_start() : 0;

    for (int i = 0; i < w->ntensors && rc == 0; i++)
        rc = call(r, w->o, &w->tensors[i], stream);
    if (group && rc == 0)
        rc = r->fn.group_end();
    return check(r, rc, bench_what_name(w->o->what), err);
}
