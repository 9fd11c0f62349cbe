/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators: one of all ranks of the set, and for layered allreduces one
 * of the ranks of each host and one across hosts.  They are non-blocking, so
 * that no thread is ever inside NCCL when they have to be aborted.
 *
 * First, the ranks exchange hellos over the base plane: each learns whether
 * all can take part, and NCCL's ids.
 */
#include "runtime/plugins/nccl/nccl_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ABORT_NS UINT64_C(5000000000)

enum {
    FUSION_MIN_BYTES = 1 << 20,
    FUSION_MAX_BYTES = 64 << 20,
    SHARING_NCCL = 23003, /* from here on ranks can share a device, if asked
                             to */
};

/* ---- Where ranks are ------------------------------------------------------
 */

/* Returns a member's index among those of its host. */
static int local_of(const struct nc_plane *p, int member)
{
    int local = 0;

    for (int i = 0; i < member; i++)
        local += p->host_index[i] == p->host_index[member];
    return local;
}

static int size_of_host(const struct nc_plane *p, int host)
{
    int size = 0;

    for (int i = 0; i < p->n; i++)
        size += p->host_index[i] == host;
    return size;
}

/* Returns the member with index `local` on a host. */
static int member_at(const struct nc_plane *p, int host, int local)
{
    int i = 0;

    while (i < p->n && (p->host_index[i] != host || local-- > 0))
        i++;
    return i;
}

void nc_shape_find(struct nc_plane *p)
{
    struct nc_shape *s = &p->shape;

    s->host = p->host_index[p->me];
    s->local_me = local_of(p, p->me);
    s->local_size = size_of_host(p, s->host);
    s->hosts = 1;
    for (int i = 0; i < p->n; i++)
        if (p->host_index[i] >= s->hosts)
            s->hosts = p->host_index[i] + 1;
    s->even = 1;
    for (int h = 0; h < s->hosts; h++)
        s->even &= size_of_host(p, h) == s->local_size;
}

/* ---- Hello -----------------------------------------------------------------
 */

static size_t fusion_bytes(void)
{
    int64_t bytes = FUSION_MAX_BYTES;

    /* hvd_init has checked the value. */
    hb_knob_i64("FUSION_THRESHOLD", 0, INT64_MAX, &bytes, NULL);
    if (bytes > FUSION_MAX_BYTES)
        return FUSION_MAX_BYTES;
    return bytes < FUSION_MIN_BYTES ? FUSION_MIN_BYTES : (size_t)bytes;
}

static int is_set(const char *name)
{
    const char *value = hb_variable(name);

    return value && strcmp(value, "0") != 0;
}

/* Returns a hash of the user's host id for NCCL; 0: none. */
static uint64_t host_id(void)
{
    const char *id = hb_variable("NCCL_HOSTID");

    return id ? hvd__name_hash(id) : 0;
}

static int describe_device(struct nc_hello *h, struct hb_error *err)
{
    CUdevice d = nc_world.cu_device;
    CUuuid uuid;
    int major = 0, minor = 0, rc;

    rc = HVD__CU(err, DeviceGetUuid, &uuid, d);
    if (rc == 0)
        rc = HVD__CU(err, DeviceGetAttribute, &major,
                     CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d);
    if (rc == 0)
        rc = HVD__CU(err, DeviceGetAttribute, &minor,
                     CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d);
    if (rc == 0)
        memcpy(h->uuid, &uuid, sizeof(h->uuid));
    h->compute = (uint32_t)(10 * major + minor);
    return rc;
}

/* Makes NCCL ids for the groups whose first rank this one is. */
static int make_ids(const struct nc_plane *p, struct nc_hello *h,
                    struct hb_error *err)
{
    int is_own = !hvd__nccl.CommSplit && h->layers != NC_FLAT;
    const int makes[NC_COMMS] = {
        [NC_ALL] = p->me == 0,
        [NC_LOCAL] = is_own && p->shape.local_me == 0,
        [NC_CROSS] = is_own && p->shape.host == 0,
    };
    int rc = 0;

    pthread_mutex_lock(&nc_world.nccl);
    for (int i = 0; i < NC_COMMS && rc == 0; i++)
        if (makes[i])
            rc = HVD__NCCL(err, NULL, GetUniqueId, &h->id[i]);
    pthread_mutex_unlock(&nc_world.nccl);
    return rc;
}

/* Allocates everything now, so that no rank runs out of memory later. */
static int prepare(struct nc_plane *p, struct nc_hello *h, struct hb_error *err)
{
    int rc = nc_kernels(err);

    for (int i = 0; i < p->nstreams && rc == 0; i++)
        rc = nc_stream_open(&p->streams[i], fusion_bytes(), err);
    if (rc == 0)
        rc = describe_device(h, err);
    if (rc == 0)
        rc = make_ids(p, h, err);
    if (rc == 0)
        rc = nc_watch_add(p, err);
    return rc;
}

void nc_hello_fill(struct nc_plane *p, struct nc_hello *h)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = nc_device_any(&err);

    memset(h, 0, sizeof(*h));
    h->nccl = (uint32_t)hvd__nccl.version;
    h->layers = nc_world.layers;
    h->shares = hvd__nccl.version >= SHARING_NCCL &&
                is_set("NCCL_MULTI_RANK_GPU_ENABLE");
    h->host_id = host_id();
    if (rc == 0)
        rc = nc_enter(&err);
    if (rc == 0) {
        rc = prepare(p, h, &err);
        nc_leave();
    }
    h->fusion_bytes = p->on->fusion.bytes;
    h->streams = (uint32_t)p->nstreams;
    h->status = rc;
    snprintf(h->text, sizeof(h->text), "%.*s", (int)sizeof(h->text) - 1,
             err.text);
}

static int check_members(const struct nc_plane *p, struct hb_error *err)
{
    char host[80];

    for (int i = 0; i < p->n; i++) {
        const struct nc_hello *h = &p->hello[i];

        if (h->status >= 0)
            continue;
        nc_name_member(p, i, err);
        return hb_error_set(err, hb_status_told(h->status),
                            "rank %d%s cannot use NCCL: %.*s", p->ranks[i],
                            nc_host_text(p, i, host, sizeof(host)),
                            (int)sizeof(h->text) - 1, h->text);
    }
    return 0;
}

static int check_versions(const struct nc_plane *p, struct hb_error *err)
{
    const struct nc_hello *first = &p->hello[0];
    char a[80], b[80];

    for (int i = 1; i < p->n; i++)
        if (p->hello[i].nccl != first->nccl)
            return hb_error_set(
                err, HVD_EUNSUPPORTED,
                "rank %d%s has NCCL %s and rank %d%s has %s; NCCL needs the "
                "same everywhere",
                p->ranks[0], nc_host_text(p, 0, a, sizeof(a)),
                hvd__nccl_version_text((int)first->nccl).text, p->ranks[i],
                nc_host_text(p, i, b, sizeof(b)),
                hvd__nccl_version_text((int)p->hello[i].nccl).text);
    return 0;
}

static int is_same_device(const struct nc_plane *p, int i, int j)
{
    const struct nc_hello *a = &p->hello[i], *b = &p->hello[j];

    return p->host_index[i] == p->host_index[j] &&
           memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
           a->host_id == b->host_id && !(a->shares && b->shares);
}

static int check_devices(const struct nc_plane *p, struct hb_error *err)
{
    char host[80];

    for (int i = 0; i < p->n; i++)
        for (int j = i + 1; j < p->n; j++)
            if (is_same_device(p, i, j))
                return hb_error_set(
                    err, HVD_EUNSUPPORTED,
                    "ranks %d and %d%s use the same GPU, which NCCL refuses; "
                    "start no more ranks than GPUs, or see "
                    "NCCL_MULTI_RANK_GPU_ENABLE of NCCL 2.30",
                    p->ranks[i], p->ranks[j],
                    nc_host_text(p, i, host, sizeof(host)));
    return 0;
}

int nc_hello_read(struct nc_plane *p, struct hb_error *err)
{
    const struct nc_shape *s = &p->shape;
    int rc = check_members(p, err), streams = p->nstreams;

    if (rc == 0)
        rc = check_versions(p, err);
    if (rc == 0)
        rc = check_devices(p, err);
    if (rc < 0)
        return rc;
    p->fusion_bytes = p->on->fusion.bytes;
    p->has_float8 = 1;
    p->layers = nc_world.layers;
    for (int i = 0; i < p->n; i++) {
        const struct nc_hello *h = &p->hello[i];

        if (h->fusion_bytes < FUSION_MIN_BYTES)
            return hb_error_set(err, HVD_EPROTO,
                                "rank %d has no room for fused operations",
                                p->ranks[i]);
        if (h->layers > NC_TORUS)
            return hb_error_set(err, HVD_EPROTO,
                                "rank %d says nothing known of how it reduces",
                                p->ranks[i]);
        if (h->streams < 1 || h->streams > NC_STREAMS)
            return hb_error_set(err, HVD_EPROTO,
                                "rank %d wants %" PRIu32 " streams",
                                p->ranks[i], h->streams);
        if (h->streams < (uint32_t)streams)
            streams = (int)h->streams;
        if (h->layers != p->hello[0].layers)
            p->layers = NC_FLAT;
        if (h->fusion_bytes < p->fusion_bytes)
            p->fusion_bytes = (size_t)h->fusion_bytes;
        p->has_float8 &= h->nccl >= HVD__NCCL_FLOAT8 && h->compute >= 90;
    }
    if (!s->even || s->hosts == 1 || s->local_size == 1)
        p->layers = NC_FLAT;
    pthread_mutex_lock(&p->lock);
    p->nused = streams;
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* ---- Calls -----------------------------------------------------------------
 */

int nc_lock(struct nc_plane *p, struct hb_error *err)
{
    pthread_mutex_lock(&nc_world.nccl);
    if (!p->comms.aborted)
        return 0;
    pthread_mutex_unlock(&nc_world.nccl);
    return hb_error_set(err, HVD_ESYSTEM, "the communicator was aborted");
}

void nc_unlock(void)
{
    pthread_mutex_unlock(&nc_world.nccl);
}

/* Checks as hvd__nccl_check, and names the device. */
static int check(const struct nc_plane *p, ncclResult_t result, ncclComm_t comm,
                 struct hb_error *err)
{
    int rc = hvd__nccl_check(result, comm, p->comms.call, err);

    if (rc < 0)
        hb_error_context(err, "CUDA device %d", nc_world.device);
    return rc;
}

void nc_note_call(struct nc_plane *p, enum nc_comm_index i, ncclResult_t result,
                  const char *call)
{
    struct hb_error err = HB_ERROR_INIT;

    p->comms.call = call;
    p->run.called = result == ncclSuccess ? -1 : (int)i;
    if (check(p, result, p->on->comm[i], &err) < 0) {
        p->run.awaits_reason = 1;
        nc_note_error(p, &err);
    }
}

int nc_comm_poll(struct nc_plane *p, ncclComm_t comm, struct hb_error *err)
{
    ncclResult_t state = ncclSuccess;
    int rc;

    if (!comm)
        return 1;
    rc = HVD__NCCL(err, comm, CommGetAsyncError, comm, &state);
    if (rc == 0)
        rc = check(p, state, comm, err);
    if (rc < 0)
        return rc;
    return state != ncclInProgress;
}

/* ---- Making them ------------------------------------------------------------
 */

struct group {
    int size, me;
    int first; /* the member whose id it uses */
    int color; /* color in a split */
};

static struct group group_of(const struct nc_plane *p, enum nc_comm_index i)
{
    const struct nc_shape *s = &p->shape;

    switch (i) {
    case NC_LOCAL:
        return (struct group){s->local_size, s->local_me,
                              member_at(p, s->host, 0), s->host};
    case NC_CROSS:
        return (struct group){s->hosts, s->host, member_at(p, 0, s->local_me),
                              s->local_me};
    default:
        return (struct group){p->n, p->me, 0, 0};
    }
}

/* Returns the communicator from which the one that is being made is split; NULL
 * while there is none, for the first one. */
static ncclComm_t parent_of(const struct nc_plane *p)
{
    const struct nc_comms *c = &p->comms;

    return p->streams[c->at == NC_ALL ? 0 : c->stream].comm[NC_ALL];
}

static int call_for(struct nc_plane *p, ncclComm_t *made, struct hb_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct nc_comms *c = &p->comms;
    struct group g = group_of(p, (enum nc_comm_index)c->at);
    ncclComm_t parent = parent_of(p);
    ncclResult_t r;

    config.blocking = 0;
    if (parent && hvd__nccl.CommSplit) {
        c->call = "ncclCommSplit";
        r = hvd__nccl.CommSplit(parent, g.color, g.me, &c->child, &config);
        return check(p, r, parent, err);
    }
    c->call = "ncclCommInitRankConfig";
    r = hvd__nccl.CommInitRankConfig(made, g.size, p->hello[g.first].id[c->at],
                                     g.me, &config);
    return check(p, r, *made ? *made : parent, err);
}

/* Connects one communicator.  During a split, its state is that of the parent;
 * NCCL sets the child at the end, in a thread of its own. */
static int connect_one(struct nc_plane *p, ncclComm_t *made,
                       struct hb_error *err)
{
    struct nc_comms *c = &p->comms;
    int rc = 1;

    if (!c->is_called) {
        rc = call_for(p, made, err);
        if (rc < 0)
            return rc;
        c->is_called = 1;
    }
    rc = nc_comm_poll(p, parent_of(p), err);
    if (rc == 1 && c->child) {
        *made = c->child;
        c->child = NULL;
    }
    if (rc == 1)
        rc = nc_comm_poll(p, *made, err);
    return rc;
}

/* Connects the communicators of one stream. */
static int connect_stream(struct nc_plane *p, struct nc_stream *s,
                          struct hb_error *err)
{
    struct nc_comms *c = &p->comms;
    int last = p->layers == NC_FLAT ? NC_ALL : NC_CROSS, rc = 1;

    while (rc == 1 && c->at <= last) {
        rc = connect_one(p, &s->comm[c->at], err);
        if (rc == 1) {
            c->is_called = 0;
            c->at++;
        }
    }
    if (rc == 1)
        s->registered = hvd__fuse_register(&s->fusion, s->comm[NC_ALL]);
    return rc;
}

int nc_connect(struct nc_plane *p, struct hb_error *err)
{
    struct nc_comms *c = &p->comms;
    int rc = nc_lock(p, err);

    if (rc < 0)
        return rc;
    while (p->nstreams > p->nused)
        nc_stream_close(&p->streams[--p->nstreams]);
    rc = 1;
    while (rc == 1 && c->stream < p->nused) {
        rc = connect_stream(p, &p->streams[c->stream], err);
        if (rc == 1) {
            c->at = NC_ALL;
            c->stream++;
        }
    }
    nc_unlock();
    return rc;
}

/* ---- Ending them ------------------------------------------------------------
 */

static void *abort_one(void *arg)
{
    struct nc_abort *a = arg;

    if (nc_enter_context(a->ctx, NULL) == 0) {
        hvd__nccl.CommAbort(a->comm);
        if (a->child && *a->child)
            hvd__nccl.CommAbort(*a->child);
        nc_leave();
    }
    atomic_store(&a->runs, 0);
    return NULL;
}

/* Aborts in a thread: ncclCommAbort returns only when the device has done what
 * was launched, which may be behind work of the caller that never ends, or
 * behind another communicator that must be aborted, too. */
static void abort_apart(struct nc_abort *a, ncclComm_t comm, ncclComm_t *child)
{
    a->comm = comm;
    a->child = child;
    a->ctx = nc_world.ctx;
    atomic_store(&a->runs, 1);
    a->has_thread = pthread_create(&a->thread, NULL, abort_one, a) == 0;
    if (!a->has_thread)
        abort_one(a);
}

/* Returns whether an abort of a stream is in progress. */
static int is_aborting(const struct nc_stream *s)
{
    int runs = 0;

    for (int i = 0; i < NC_COMMS; i++)
        runs |= atomic_load(&s->aborts[i].runs);
    return runs;
}

/* Waits for the threads that abort, those of late streams too if asked to: 1
 * all ended; 0 deadline passed. */
static int await_aborts(struct nc_plane *p, int late_too, uint64_t deadline_ns)
{
    uint64_t paused_ns = 0;

    for (int i = 0; i < p->nstreams; i++)
        while (is_aborting(&p->streams[i]) &&
               (late_too || !nc_is_late(p, &p->streams[i]))) {
            if (hb_now_ns() >= deadline_ns)
                return 0;
            nc_pause(&paused_ns, &p->wake);
        }
    return 1;
}

/* Aborts all communicators.  Does not deregister: NCCL does so itself in an
 * abort, whereas deregistering may wait for peers that hang. */
void nc_comms_abort(struct nc_plane *p, uint64_t deadline_ns)
{
    struct nc_comms *c = &p->comms;
    ncclComm_t parent;

    pthread_mutex_lock(&nc_world.nccl);
    c->aborted = 1;
    parent = c->is_called ? parent_of(p) : NULL;
    for (int i = 0; i < p->nstreams * NC_COMMS; i++) {
        struct nc_stream *s = &p->streams[i / NC_COMMS];
        ncclComm_t *comm = &s->comm[i % NC_COMMS];

        s->registered = NULL;
        if (*comm)
            abort_apart(&s->aborts[i % NC_COMMS], *comm,
                        *comm == parent ? &c->child : NULL);
        *comm = NULL;
    }
    pthread_mutex_unlock(&nc_world.nccl);
    await_aborts(p, 0, deadline_ns);
}

int nc_abort_wait(struct nc_plane *p, uint64_t deadline_ns)
{
    return await_aborts(p, 1, deadline_ns);
}
/* Finalizes and destroys a communicator: 1, or 0 if it does not end. */
static int finalize(struct nc_plane *p, ncclComm_t *comm, uint64_t deadline_ns)
{
    ncclResult_t r = hvd__nccl.CommFinalize(*comm);
    uint64_t paused_ns = 0;
    int rc = r == ncclSuccess || r == ncclInProgress ? 0 : -HVD_ESYSTEM;

    while (rc == 0) {
        rc = nc_comm_poll(p, *comm, NULL);
        if (rc != 0 || hb_now_ns() >= deadline_ns)
            break;
        nc_unlock();
        nc_pause(&paused_ns, &p->wake);
        pthread_mutex_lock(&nc_world.nccl);
    }
    if (rc != 1)
        return 0;
    hvd__nccl.CommDestroy(*comm);
    *comm = NULL;
    return 1;
}

/* Destroys the communicators of a stream: 1, or 0 if one does not end. */
static int finalize_stream(struct nc_plane *p, struct nc_stream *s,
                           uint64_t deadline_ns)
{
    int goes_well = 1;

    hvd__fuse_deregister(s->comm[NC_ALL], s->registered);
    for (int i = NC_COMMS - 1; i >= 0 && goes_well; i--)
        if (s->comm[i])
            goes_well = finalize(p, &s->comm[i], deadline_ns);
    return goes_well;
}

/* Closes all communicators.  Finalizing flushes what peers may not have
 * received yet. */
void nc_comms_close(struct nc_plane *p, uint64_t deadline_ns)
{
    int goes_well = nc_streams_query(p) == CUDA_SUCCESS && p->is_connected;

    if (nc_lock(p, NULL) < 0)
        return;
    for (int i = p->nused - 1; i >= 0 && goes_well; i--)
        goes_well = finalize_stream(p, &p->streams[i], deadline_ns);
    nc_unlock();
    nc_comms_abort(p, hb_now_ns() + ABORT_NS);
}
