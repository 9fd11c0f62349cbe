/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for tests of the NCCL plug-in; see nccl_world.h. */
#include "tests/unit/nccl_world.h"

#include "runtime/plugins/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char build[4096]; /* folder of the tests */

struct nccl_rank nccl_self;

/* ---- A rank -------------------------------------------------------------- */

static const char *host_of(void *arg, int member)
{
    static const char *const names[] = {"n0", "n1", "n2", "n3"};

    return ((const struct nccl_rank *)arg)->host_index[member] >= 0
               ? names[member]
               : NULL;
}

static int look(void *arg, struct hb_error *err)
{
    struct nccl_rank *r = arg;

    return atomic_load(&r->over) ? hb_error_set(err, HVD_EPEER, "it is over")
                                 : 0;
}

static void waits(void *arg, const struct hvd__gpu_wait *w)
{
    struct nccl_rank *r = arg;
    int hold = 1;

    if (w && !w->is_reached)
        atomic_fetch_add(&r->unreached, 1);
    if (w && atomic_compare_exchange_strong(&r->hold, &hold, 2))
        while (atomic_load(&r->hold) == 2)
            usleep(1000);
    atomic_store(&r->waits_for, w ? w->number : 0);
    hold = 3;
    if (w)
        atomic_compare_exchange_strong(&r->hold, &hold, 0);
}

static int culprit(void *arg, uint64_t since_ns, struct hb_error *err)
{
    struct nccl_rank *r = arg;

    if (!since_ns || !r->knows)
        return -1;
    if (atomic_fetch_add(&r->asks, 1) < 9)
        return 0;
    hb_error_set(err, HVD_ETIMEOUT, "rank 101 sleeps");
    err->rank = 101;
    return 1;
}

static int host_index(const struct nccl_scene *s, int member)
{
    int hosts = s->hosts ? s->hosts : 1;

    if (s->uneven)
        return member * hosts / (s->n + 1);
    return member * hosts / s->n;
}

static void set(const char *text)
{
    char name[64];
    const char *value = strchr(text, '=');

    snprintf(name, sizeof(name), "%.*s", (int)(value - text), text);
    setenv(name, value + 1, 1);
}

void nccl_set_environment(const struct nccl_scene *s, int me)
{
    char text[4200];

    snprintf(text, sizeof(text), "HVD_RANK=%d", me);
    set(text);
    snprintf(text, sizeof(text), "HVD_CUDA_LIBRARY=%s/nccl/libcuda.so.1",
             build);
    set(text);
    snprintf(text, sizeof(text), "HVD_NCCL_LIBRARY=%s/nccl/%s", build,
             s->old ? s->old : "libnccl.so.2");
    set(text);
    set("FAKE_CUDA_DELAY_US=20");
    snprintf(text, sizeof(text), "HVD_NCCL_TIMEOUT=%d",
             s->limit_s ? s->limit_s : 30);
    set(text);
    if (s->setting && (s->odd < 0 || s->odd == me))
        set(s->setting);
}

const struct hvd__gpu *nccl_load(struct hb_error *err)
{
    char path[4200];
    void *so, *symbol;
    hvd__plugin_fn *get;

    snprintf(path, sizeof(path), "%s/../lib/hvd/libhvd-nccl.so", build);
    so = dlopen(path, RTLD_NOW);
    if (!so) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    symbol = dlsym(so, HVD__PLUGIN_SYMBOL);
    memcpy(&get, &symbol, sizeof(get));
    return get(HVD__PLUGIN_ABI, err);
}

/* Loads the plug-in, which opens CUDA and NCCL, and makes a plane. */
int nccl_begin(struct shm_group *g, int me)
{
    const struct nccl_scene *s = g->arg;
    struct nccl_rank *r = &nccl_self;
    struct hvd__gpu_plane_config config = {
        .base = shm_group_plane(g, me),
        .ranks = r->ranks,
        .n = g->n,
        .me = me,
        .host_index = r->host_index,
        .host_of = host_of,
        .host_arg = r,
        .look = look,
        .look_arg = r,
        .launched = &r->launched,
        .waits = waits,
        .culprit = culprit,
        .stall_arg = r,
    };

    nccl_set_environment(s, me);
    *r = (struct nccl_rank){.n = g->n, .me = me, .err = HB_ERROR_INIT};
    gpu_open(s->one_device ? 0 : me);
    r->stream = gpu_stream();
    for (int i = 0; i < g->n; i++) {
        r->ranks[i] = 100 + i;
        r->host_index[i] = host_index(s, i);
    }
    r->gpu = nccl_load(&r->err);
    must(r->gpu && r->gpu->open(&r->err) == 0);
    r->plane = r->gpu->plane(&config, &r->err);
    must(r->plane != NULL);
    return 0;
}

int nccl_end(void)
{
    int live;

    nccl_self.plane->ops->leave(nccl_self.plane);
    nccl_self.plane->ops->free(nccl_self.plane);
    nccl_self.gpu->close();
    GPU(StreamDestroy, nccl_self.stream);
    gpu_close();
    live = gpu.live();
    must(live == 0);
    return 0;
}

/* ---- Operations ---------------------------------------------------------- */

struct hvd__op nccl_op(enum hvd__kind kind, enum hvd_dtype dtype,
                       enum hvd_op op)
{
    struct hvd__op o;

    hvd__op_init(&o);
    o.kind = kind;
    o.dtype = o.part_dtype = dtype;
    o.op = op;
    o.elem_bytes = hvd_dtype_size(dtype);
    o.prescale = o.postscale = 1.0;
    o.name = "t";
    o.row_elems = 1;
    o.reduce = hvd__reduce_get(dtype, op);
    o.args = (struct hvd__reduce_args){1.0, 1.0,
                                       op == HVD_AVERAGE ? nccl_self.n : 1, 0};
    o.flags = HVD__OP_DEVICE;
    o.entries = 1;
    return o;
}

int nccl_carry_out(struct hvd__op *o, int host)
{
    int rc;

    hb_error_clear(&nccl_self.err);
    o->err = &nccl_self.err;
    if (!o->first_signature) {
        o->first_signature = 1000 * ++nccl_self.seq;
        o->signature = o->first_signature;
    }
    if (!host) {
        rc = nccl_self.gpu->issue(nccl_self.stream, o->recvbuf,
                                  &o->device.ready, &nccl_self.err);
        if (rc < 0)
            return rc;
    }
    rc = plane_do(nccl_self.plane, o);
    if (o->device.ready)
        nccl_self.gpu->done(o->device.ready);
    o->device.ready = NULL;
    return rc;
}

int nccl_wait(uint64_t launch, uint64_t until_ns)
{
    return nccl_self.plane->ops->launches->wait(nccl_self.plane, launch, launch,
                                                until_ns, &nccl_self.err);
}

int nccl_order(uint64_t launch, CUstream stream)
{
    return nccl_self.plane->ops->launches->order(
        nccl_self.plane, launch, launch, stream, &nccl_self.err);
}

struct values nccl_values(enum hvd_dtype dtype, enum hvd_op op)
{
    return (struct values){.seed = nccl_self.seq + 7,
                           .dtype = dtype,
                           .op = op,
                           .pre = 1,
                           .post = 1,
                           .ranks = nccl_self.ranks,
                           .n = nccl_self.n,
                           .divisor = nccl_self.n};
}

void *nccl_filled(const struct values *v, size_t count)
{
    size_t bytes = count * hvd_dtype_size(v->dtype);
    void *at = gpu_alloc(bytes), *host = malloc(bytes);

    values_fill(v, nccl_self.ranks[nccl_self.me], host, count);
    gpu_write(at, host, bytes);
    free(host);
    return at;
}

int nccl_is_right(const struct values *v, const void *at, size_t first,
                  size_t count)
{
    size_t bytes = count * hvd_dtype_size(v->dtype);
    void *host = malloc(bytes);
    size_t good;

    gpu_read(host, at, bytes);
    good = values_check(v, host, first, count);
    free(host);
    return good == count;
}

const char *nccl_reduce(enum hvd_dtype dtype, enum hvd_op op, size_t count,
                        double pre)
{
    struct hvd__op o = nccl_op(HVD__ALLREDUCE, dtype, op);
    struct values v = nccl_values(dtype, op);
    void *at;
    int rc;

    v.pre = o.prescale = o.args.pre = pre;
    at = nccl_filled(&v, count);
    o.sendbuf = o.recvbuf = at;
    o.count = count;
    rc = nccl_carry_out(&o, 0);
    if (rc == 1 && !nccl_is_right(&v, at, 0, count))
        rc = 0;
    gpu_free(at);
    return rc == 1 ? o.trace.algorithm : NULL;
}

int nccl_sum_is(const char *algorithm)
{
    const char *was = nccl_reduce(HVD_FLOAT32, HVD_SUM, COUNT, 1);

    return was && strcmp(was, algorithm) == 0;
}

int nccl_failures(struct nccl_scene s)
{
    struct shm_group g = {.n = s.n, .body = s.run, .arg = &s};

    return shm_group_run(&g);
}

int nccl_find_build(void)
{
    ssize_t len = readlink("/proc/self/exe", build, sizeof(build) - 1);

    if (len < 0 || !strrchr(build, '/'))
        return -1;
    *strrchr(build, '/') = '\0';
    return 0;
}
