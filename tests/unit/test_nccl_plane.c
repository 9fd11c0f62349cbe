/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL plug-in's plane on a plane of shared memory, over the doubles of
 * CUDA and NCCL: what a job on one host, through libhvd, does not come by.
 * Layers across hosts, ranks that are not alike, ranks that have joined, those
 * without room, and what fails.
 */
#include "lib/base/clock.h"
#include "runtime/plugins/gpu.h"
#include "runtime/plugins/plugin.h"
#include "tests/system/prog/nccl_cuda.h"
#include "tests/system/prog/nccl_values.h"
#include "tests/unit/shm_group.h"

#include <check.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, COUNT = 1003, HOST_BYTES = 16 };

static char build[4096]; /* where the tests are */

/* What is special; all else as usual. */
struct scene {
    int n;
    int hosts;           /* 0: one */
    int uneven;          /* one more rank on the first */
    int one_device;      /* of all ranks */
    const char *old;     /* the double of an NCCL that is old */
    const char *setting; /* NAME=VALUE, of `odd`, or of all: -1 */
    int odd;
    int is_hasty; /* it does not wait for long */
    int (*run)(struct shm_group *g, int me);
};

struct rank {
    const struct hvd__gpu *gpu;
    struct hvd__plane *plane;
    int n, me;
    int ranks[RANKS], host_index[RANKS];
    uint64_t seq;
    CUstream stream;
    struct hb_error err;
    _Atomic int over; /* what look says */
};

static struct rank self;

/* ---- A rank -------------------------------------------------------------- */

static const char *host_of(void *arg, int member)
{
    static const char *const names[] = {"n0", "n1", "n2", "n3"};

    return ((const struct rank *)arg)->host_index[member] >= 0
               ? names[member]
               : NULL;
}

static int look(void *arg, struct hb_error *err)
{
    struct rank *r = arg;

    return atomic_load(&r->over) ? hb_error_set(err, HVD_EPEER, "it is over")
                                 : 0;
}

static int host_index(const struct scene *s, int member)
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

static void set_environment(const struct scene *s, int me)
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
    set(s->is_hasty ? "HVD_NCCL_TIMEOUT=1" : "HVD_NCCL_TIMEOUT=30");
    if (s->setting && (s->odd < 0 || s->odd == me))
        set(s->setting);
}

static const struct hvd__gpu *load(struct hb_error *err)
{
    char path[4200];
    void *so, *symbol;
    hvd__gpu_plugin_fn *get;

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

/* The table, with CUDA and NCCL opened, and a plane. */
static int begin(struct shm_group *g, int me)
{
    const struct scene *s = g->arg;
    struct rank *r = &self;
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
    };

    set_environment(s, me);
    *r = (struct rank){.n = g->n, .me = me, .err = HB_ERROR_INIT};
    gpu_open(s->one_device ? 0 : me);
    r->stream = gpu_stream();
    for (int i = 0; i < g->n; i++) {
        r->ranks[i] = 100 + i;
        r->host_index[i] = host_index(s, i);
    }
    r->gpu = load(&r->err);
    must(r->gpu && r->gpu->open(&r->err) == 0);
    r->plane = r->gpu->plane(&config, &r->err);
    must(r->plane != NULL);
    return 0;
}

static int end(void)
{
    int live;

    self.plane->ops->leave(self.plane);
    self.plane->ops->free(self.plane);
    self.gpu->close();
    GPU(StreamDestroy, self.stream);
    gpu_close();
    live = gpu.live();
    must(live == 0);
    return 0;
}

/* ---- Operations ---------------------------------------------------------- */

static struct hvd__op op_of(enum hvd__kind kind, enum hvd_dtype dtype,
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
                                       op == HVD_AVERAGE ? self.n : 1, 0};
    o.flags = HVD__OP_DEVICE;
    o.entries = 1;
    return o;
}

/* As the engine does; host: of a rank that stands in. */
static int carry_out(struct hvd__op *o, int host)
{
    int rc;

    hb_error_clear(&self.err);
    o->err = &self.err;
    if (!o->first_signature) {
        o->first_signature = 1000 * ++self.seq;
        o->signature = o->first_signature;
    }
    if (!host) {
        rc = self.gpu->issue(self.stream, o->recvbuf, &o->ready, &self.err);
        if (rc < 0)
            return rc;
    }
    rc = shm_group_do(self.plane, o);
    if (o->ready)
        self.gpu->done(o->ready);
    o->ready = NULL;
    return rc;
}

static struct values values_of(enum hvd_dtype dtype, enum hvd_op op)
{
    return (struct values){.seed = self.seq + 7,
                           .dtype = dtype,
                           .op = op,
                           .pre = 1,
                           .post = 1,
                           .ranks = self.ranks,
                           .n = self.n,
                           .divisor = self.n};
}

/* Device memory with this rank's input. */
static void *filled(const struct values *v, size_t count)
{
    size_t bytes = count * hvd_dtype_size(v->dtype);
    void *at = gpu_alloc(bytes), *host = malloc(bytes);

    values_fill(v, self.ranks[self.me], host, count);
    gpu_write(at, host, bytes);
    free(host);
    return at;
}

static int is_right(const struct values *v, const void *at, size_t first,
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

/* One allreduce in place; the algorithm, or NULL when it is wrong. */
static const char *reduce_once(enum hvd_dtype dtype, enum hvd_op op,
                               size_t count, double pre)
{
    struct hvd__op o = op_of(HVD__ALLREDUCE, dtype, op);
    struct values v = values_of(dtype, op);
    void *at;
    int rc;

    v.pre = o.prescale = o.args.pre = pre;
    at = filled(&v, count);
    o.sendbuf = o.recvbuf = at;
    o.count = count;
    rc = carry_out(&o, 0);
    if (rc == 1 && !is_right(&v, at, 0, count))
        rc = 0;
    gpu_free(at);
    return rc == 1 ? o.algorithm : NULL;
}

static int sum_is(const char *algorithm)
{
    const char *was = reduce_once(HVD_FLOAT32, HVD_SUM, COUNT, 1);

    return was && strcmp(was, algorithm) == 0;
}

/* ---- Layers -------------------------------------------------------------- */

static int in_layers(const char *algorithm)
{
    static const enum hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX,
                                      HVD_PRODUCT};
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT16, HVD_INT32,
                                            HVD_INT64};
    static const size_t counts[] = {1, 2, 3, 64, COUNT};

    for (size_t d = 0; d < 4; d++)
        for (size_t i = 0; i < 5; i++) {
            const char *was = reduce_once(dtypes[d], ops[i], counts[i],
                                          i == 4 ? 1 : 1.25);

            if (!was)
                fprintf(stderr, "rank %d: %s\n", self.me, self.err.text);
            must(was && strcmp(was, algorithm) == 0);
        }
    return 0;
}

static int run_torus(struct shm_group *g, int me)
{
    return begin(g, me) || in_layers("nccl.allreduce.torus") || end();
}

static int run_hierarchical(struct shm_group *g, int me)
{
    return begin(g, me) || in_layers("nccl.allreduce.hierarchical") || end();
}

static int run_flat(struct shm_group *g, int me)
{
    return begin(g, me) || in_layers("nccl.allreduce") || end();
}

/* ---- Moves --------------------------------------------------------------- */

/* Elements of a rank in an allgather, and from where they are counted. */
static size_t ragged(int rank)
{
    return (size_t)(7 * rank + 3);
}

static size_t ragged_before(int rank)
{
    size_t sum = 0;

    for (int r = 0; r < rank; r++)
        sum += ragged(r);
    return sum;
}

static int *numbers(int rank, size_t count)
{
    int *v = malloc(count * sizeof(*v));

    for (size_t i = 0; i < count; i++)
        v[i] = 1000 * rank + (int)i;
    return v;
}

static int gathered_well(const void *at)
{
    size_t total = ragged_before(self.n);
    int *all = malloc(total * sizeof(*all)), good = 1;

    gpu_read(all, at, total * sizeof(*all));
    for (int r = 0; r < self.n; r++)
        for (size_t i = 0; i < ragged(r); i++)
            good &= all[ragged_before(r) + i] == 1000 * r + (int)i;
    free(all);
    return good;
}

/* skip: where sendbuf lies in recvbuf; -1: elsewhere. */
static int gather(int skip, size_t room, int ordered)
{
    struct hvd__op o = op_of(HVD__ALLGATHER, HVD_INT32, 0);
    size_t own = ragged(self.me), counts[RANKS];
    int *mine = numbers(self.me, own);
    int *at = gpu_alloc(ragged_before(self.n) * sizeof(int) + 400);
    int *from = skip < 0 ? gpu_alloc(own * sizeof(int)) : at + skip, rc;

    gpu_write(from, mine, own * sizeof(int));
    free(mine);
    o.sendbuf = from;
    o.recvbuf = at;
    o.count = own;
    o.recvcap = room;
    o.recvcounts = counts;
    o.ordered = ordered;
    rc = carry_out(&o, 0);
    if (rc == 1 && ordered)
        must(o.launch && self.gpu->wait(self.plane, o.launch, &self.err) == 0);
    if (rc == -HVD_EINVAL)
        must(o.launch == 0);
    for (int r = 0; r < self.n; r++)
        must(counts[r] == ragged(r));
    must(rc != 1 || gathered_well(at));
    if (skip < 0)
        gpu_free(from);
    gpu_free(at);
    return rc;
}

static int run_gather(struct shm_group *g, int me)
{
    size_t total;

    if (begin(g, me))
        return 1;
    total = ragged_before(self.n);
    must(gather(-1, total, 0) == 1);
    must(gather((int)ragged_before(me), total, 0) == 1); /* in place */
    must(gather(2, total, 0) == 1);
    must(gather((int)total - 3, total, 1) == 1);
    for (int ordered = 0; ordered < 2; ordered++) {
        int is_short = me == 1;

        must(gather(-1, is_short ? total - 1 : total, ordered) ==
             (is_short ? -HVD_EINVAL : 1));
        must(!is_short || strstr(self.err.text, "room for 53 elements and 54"));
    }
    must(sum_is("nccl.allreduce"));
    return end();
}

/* Rank r sends r + to + 1 elements to each; the last one has too little
 * room. */
static int exchange(int last_has_room)
{
    struct hvd__op o = op_of(HVD__ALLTOALL, HVD_FLOAT64, 0);
    size_t splits[RANKS], counts[RANKS], total = 0, out = 0, i = 0;
    double *values, *at;
    int lacks = !last_has_room && self.me == self.n - 1, rc;

    for (int r = 0; r < self.n; r++) {
        splits[r] = (size_t)(self.me + r + 1);
        total += splits[r]; /* it is symmetric */
    }
    at = gpu_alloc(2 * total * sizeof(double));
    values = malloc(total * sizeof(double));
    for (int r = 0; r < self.n; r++)
        for (size_t k = 0; k < splits[r]; k++)
            values[out++] = 100.0 * self.me + r;
    gpu_write(at, values, total * sizeof(double));
    o.sendbuf = at;
    o.recvbuf = at + total;
    o.count = total;
    o.sendcounts = splits;
    o.recvcounts = counts;
    o.recvcap = lacks ? total - 1 : total;
    rc = carry_out(&o, 0);
    must(rc == (lacks ? -HVD_EINVAL : 1));
    gpu_read(values, at + total, total * sizeof(double));
    for (int r = 0; r < self.n; r++) {
        must(counts[r] == splits[r]);
        for (size_t k = 0; k < splits[r]; k++, i++)
            must(lacks || values[i] == 100.0 * r + self.me);
    }
    free(values);
    gpu_free(at);
    return 0;
}

static int run_exchange(struct shm_group *g, int me)
{
    return begin(g, me) || exchange(1) || exchange(0) || exchange(1) || end();
}

/* ---- Ranks that have joined ---------------------------------------------- */

/* The last one has joined: zeros from host memory, in one part. */
static int stand_in(struct hvd__op *o, size_t bytes)
{
    unsigned char *host = calloc(2, bytes);
    struct hvd__part part = {host, host, 0, o->count, NULL};
    int rc;

    o->sendbuf = host;
    o->recvbuf = host + bytes;
    if (o->parts) {
        o->parts = &part;
        o->nparts = 1;
        o->sendbuf = o->recvbuf = NULL;
    }
    rc = carry_out(o, 1);
    free(host);
    return rc;
}

static int joined(enum hvd__kind kind, enum hvd_dtype dtype, int in_parts)
{
    struct hvd__op o = op_of(kind, dtype, HVD_SUM);
    struct values v = values_of(dtype, HVD_SUM);
    size_t size = hvd_dtype_size(dtype);
    unsigned char *at, *out = gpu_alloc(COUNT * size);
    struct hvd__share own = {0, COUNT};
    struct hvd__part parts[2];

    v.n--;
    at = filled(&v, COUNT);
    parts[0] = (struct hvd__part){at, out, 0, 400, NULL};
    parts[1] = (struct hvd__part){at + 400 * size, out + 400 * size, 400,
                                  COUNT - 400, NULL};
    o.count = COUNT;
    o.sendbuf = at;
    o.recvbuf = out;
    if (in_parts) {
        o.parts = parts;
        o.nparts = 2;
    }
    if (kind == HVD__REDUCESCATTER)
        own = hvd__op_share(&o, self.me, self.n);
    if (self.me == self.n - 1) {
        must(stand_in(&o, COUNT * size) == 1);
    } else {
        must(carry_out(&o, 0) == 1);
        must(is_right(&v, out, own.first, own.count));
    }
    gpu_free(out);
    gpu_free(at);
    return 0;
}

static int run_joined(struct shm_group *g, int me)
{
    return begin(g, me) || joined(HVD__ALLREDUCE, HVD_FLOAT32, 0) ||
           joined(HVD__ALLREDUCE, HVD_INT16, 0) ||
           joined(HVD__ALLREDUCE, HVD_INT32, 1) ||
           joined(HVD__ALLREDUCE, HVD_BOOL, 1) ||
           joined(HVD__REDUCESCATTER, HVD_INT64, 0) ||
           joined(HVD__REDUCESCATTER, HVD_UINT16, 0) || end();
}

/* ---- Ranks that do not agree --------------------------------------------- */

static int differ(uint64_t signature, uint64_t first, uint32_t entries,
                  struct hvd__op *out)
{
    struct hvd__op o = op_of(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    void *at = gpu_alloc(4 * COUNT);
    int rc;

    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.signature = signature;
    o.first_signature = first;
    o.entries = entries;
    rc = carry_out(&o, 0);
    gpu_free(at);
    *out = o;
    return rc;
}

static int run_differ(struct shm_group *g, int me)
{
    struct hvd__op o, host;
    uint32_t one[1] = {1};

    if (begin(g, me))
        return 1;
    must(differ(50 + (uint64_t)me, 50 + (uint64_t)me, 1, &o) ==
         -HVD_EMISMATCH);
    must(differ(50 + (uint64_t)me, 50, 2 + (uint32_t)me, &o) == HVD__CUT);
    must(o.agreed_entries == 2);
    must(sum_is("nccl.allreduce"));
    /* One whose memory is the host's, as of a rank without this plug-in. */
    if (me > 0) {
        must(differ(60, 60, 1, &o) == -HVD_EMISMATCH);
    } else {
        host = op_of(HVD__ALLREDUCE, HVD_INT32, HVD_SUM);
        host.sendbuf = host.recvbuf = one;
        host.count = 1;
        host.flags = 0;
        host.signature = host.first_signature = 60;
        must(carry_out(&host, 1) == -HVD_EMISMATCH && one[0] == 1);
    }
    must(sum_is("nccl.allreduce"));
    return end();
}

/* ---- What cannot be ------------------------------------------------------ */

/* In host memory it goes on. */
static int host_sum(void)
{
    struct hvd__op o = op_of(HVD__ALLREDUCE, HVD_INT32, HVD_SUM);
    int v = 1;

    o.flags = 0;
    o.sendbuf = o.recvbuf = &v;
    o.count = 1;
    must(carry_out(&o, 1) == 1 && v == self.n);
    return 0;
}

static const char *expected;
static int expected_status;

static int run_refused(struct shm_group *g, int me)
{
    if (begin(g, me))
        return 1;
    for (int i = 0; i < 2; i++) {
        must(!sum_is("nccl.allreduce"));
        must(self.err.status == expected_status);
        must(strstr(self.err.text, expected) != NULL);
        if (host_sum())
            return 1;
    }
    return end();
}

/* ---- Failures -------------------------------------------------------------- */

/* Sums on the stream until one fails, or is not over in time. */
static int until_failure(int ordered, int *waited)
{
    struct hvd__op o;
    void *at = gpu_alloc(4 * COUNT);
    int rc = 1;

    *waited = 0;
    for (int i = 0; i < 8 && rc == 1 && !*waited; i++) {
        o = op_of(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
        o.sendbuf = o.recvbuf = at;
        o.count = COUNT;
        o.ordered = ordered;
        rc = carry_out(&o, 0);
        if (rc == 1 && ordered) {
            rc = self.gpu->wait(self.plane, o.launch, &self.err);
            *waited = rc < 0;
            rc = rc < 0 ? rc : 1;
        }
    }
    gpu_free(at);
    return rc;
}

/* It lasts. */
static int failed_for_good(int status)
{
    int waited;

    if (self.err.status != status)
        fprintf(stderr, "rank %d: %s\n", self.me, self.err.text);
    must(self.err.status == status);
    must(until_failure(0, &waited) == status);
    must(self.plane->ops->began(self.plane, &self.err) == status);
    return end();
}

static int is_ordered;

static int run_hung(struct shm_group *g, int me)
{
    int waited;

    if (begin(g, me))
        return 1;
    must(until_failure(is_ordered, &waited) < 0 && waited == is_ordered);
    must(strstr(self.err.text, "HVD_NCCL_TIMEOUT"));
    return failed_for_good(-HVD_ETIMEOUT);
}

/* The odd one fails by itself; the others, in an operation, when it leaves,
 * as the base tells. */
static int run_broken(struct shm_group *g, int me)
{
    const struct scene *s = g->arg;
    int waited, rc;

    if (begin(g, me))
        return 1;
    rc = until_failure(0, &waited);
    must(rc < 0);
    if (me == s->odd ? !strstr(self.err.text, expected)
                     : self.err.rank != 100 + s->odd)
        fprintf(stderr, "rank %d: %s\n", me, self.err.text);
    if (me == s->odd)
        must(rc == -HVD_ESYSTEM && strstr(self.err.text, expected));
    else
        must(self.err.rank == 100 + s->odd);
    return failed_for_good(rc);
}

/* Without an operation in progress only look can tell. */
static int run_over(struct shm_group *g, int me)
{
    struct hvd__op o;
    void *at;

    if (begin(g, me))
        return 1;
    at = gpu_alloc(4 * COUNT);
    o = op_of(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.ordered = 1;
    must(carry_out(&o, 0) == 1);
    atomic_store(&self.over, 1);
    must(self.gpu->wait(self.plane, o.launch, &self.err) == -HVD_EPEER);
    must(strcmp(self.err.text, "it is over") == 0);
    gpu_free(at);
    return failed_for_good(-HVD_EPEER);
}

static int run_killed(struct shm_group *g, int me)
{
    int waited;

    if (begin(g, me))
        return 1;
    must(sum_is("nccl.allreduce"));
    if (me == 1)
        raise(SIGKILL);
    must(until_failure(0, &waited) == -HVD_EPEER);
    must(self.err.rank == 101);
    return failed_for_good(-HVD_EPEER);
}

/* ---- Many launches ----------------------------------------------------------- */

static int run_many(struct shm_group *g, int me)
{
    enum { MANY = 300 };
    struct hvd__op o;
    CUstream other;
    float *at, got = 1;

    if (begin(g, me))
        return 1;
    other = gpu_stream();
    at = gpu_alloc(sizeof(got));
    gpu_write(at, &got, sizeof(got));
    for (int i = 1; i <= MANY; i++) {
        o = op_of(HVD__ALLREDUCE, HVD_FLOAT32, HVD_AVERAGE);
        o.sendbuf = o.recvbuf = at;
        o.count = 1;
        o.ordered = 1;
        must(carry_out(&o, 0) == 1 && o.launch == (uint64_t)i);
    }
    must(self.gpu->order(self.plane, MANY, other, &self.err) == 0);
    GPU(StreamSynchronize, other);
    must(self.gpu->wait(self.plane, 1, &self.err) == 0);
    must(self.gpu->wait(self.plane, MANY / 2, &self.err) == 0);
    must(self.gpu->wait(self.plane, MANY, &self.err) == 0);
    must(self.gpu->test(self.plane, MANY, &self.err) == 1);
    gpu_read(&got, at, sizeof(got));
    must(got == 1.0f);
    GPU(StreamDestroy, other);
    gpu_free(at);
    return end();
}

/* The buffers are the caller's again, whatever the peers do. */
static int run_abandon(struct shm_group *g, int me)
{
    struct hvd__op o;
    void *at;
    int rc = 0;

    if (begin(g, me))
        return 1;
    must(sum_is("nccl.allreduce"));
    if (me > 0) {
        shm_group_meet(g);
        return end();
    }
    at = gpu_alloc(4 * COUNT);
    o = op_of(HVD__ALLREDUCE, HVD_FLOAT32, HVD_SUM);
    o.sendbuf = o.recvbuf = at;
    o.count = COUNT;
    o.signature = o.first_signature = 77;
    o.err = &self.err;
    must(self.plane->ops->start(self.plane, &o) == 0);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = self.plane->ops->progress(self.plane, &o);
    must(rc == 0);
    self.plane->ops->leave(self.plane);
    self.plane->ops->abandon(self.plane);
    gpu_free(at);
    shm_group_meet(g);
    return end();
}

/* ---- Opening ------------------------------------------------------------------ */

/* open with a setting: its status, and that its text has `text` in it. */
static int opens(const char *setting, const char *text)
{
    const struct scene s = {.n = 1, .odd = -1, .setting = setting};
    struct hb_error err = HB_ERROR_INIT;
    const struct hvd__gpu *table;
    int rc;

    set_environment(&s, 0);
    table = load(&err);
    must(table != NULL);
    rc = table->open(&err);
    if (rc == 0)
        table->close();
    if (!strstr(err.text, text)) {
        fprintf(stderr, "%s: %s\n", setting, err.text);
        return 1;
    }
    exit(-rc == expected_status ? 0 : 1);
}

static int run_open(struct shm_group *g, int me)
{
    const struct scene *s = g->arg;

    (void)me;
    return opens(s->setting, expected);
}

/* ---- The suite -------------------------------------------------------------- */

static int failures(struct scene s)
{
    struct shm_group g = {.n = s.n, .body = s.run, .arg = &s};

    return shm_group_run(&g);
}

static int wanted(int status, const char *text, struct scene s)
{
    expected_status = status;
    expected = text;
    return failures(s);
}

START_TEST(test_layers)
{
    static const char *const libraries[] = {"libnccl.so.2",
                                            "libnccl-old.so.2"};

    for (int i = 0; i < 2; i++) {
        struct scene s = {.n = 4, .hosts = 2, .odd = -1, .old = libraries[i]};

        s.setting = "HVD_TORUS_ALLREDUCE=1";
        s.run = run_torus;
        ck_assert_int_eq(failures(s), 0);
        s.setting = "HOROVOD_HIERARCHICAL_ALLREDUCE=1";
        s.run = run_hierarchical;
        ck_assert_int_eq(failures(s), 0);
        s.run = run_flat;
        s.odd = 0; /* not all want it */
        ck_assert_int_eq(failures(s), 0);
        s.odd = -1;
        s.n = 3;
        s.uneven = 1;
        ck_assert_int_eq(failures(s), 0);
    }
}
END_TEST

START_TEST(test_moves)
{
    ck_assert_int_eq(failures((struct scene){.n = 4, .run = run_gather}), 0);
    ck_assert_int_eq(failures((struct scene){.n = 3, .run = run_exchange}), 0);
}
END_TEST

START_TEST(test_joined)
{
    ck_assert_int_eq(failures((struct scene){.n = 3, .run = run_joined}), 0);
}
END_TEST

START_TEST(test_differ)
{
    ck_assert_int_eq(failures((struct scene){.n = 3, .run = run_differ}), 0);
}
END_TEST

START_TEST(test_refused)
{
    struct scene s = {.n = 3, .hosts = 3, .odd = 1, .run = run_refused};

    s.setting = "FAKE_CUDA_FAIL=cuStreamCreate:2:1:2";
    ck_assert_int_eq(
        wanted(-HVD_ENOMEM, "rank 101 on host n1 cannot use NCCL: cuStream", s),
        0);
    s.setting = "FAKE_CUDA_FAIL=cuDeviceGetUuid:1:1:1";
    ck_assert_int_eq(wanted(-HVD_ESYSTEM, "cuDeviceGetUuid", s), 0);
    s.setting = "FAKE_NCCL_VERSION=22703";
    ck_assert_int_eq(wanted(-HVD_EUNSUPPORTED,
                            "rank 100 on host n0 has NCCL 2.28.9 and rank 101 "
                            "on host n1 has 2.27.3",
                            s),
                     0);
    s.hosts = 1;
    s.setting = NULL;
    s.one_device = 1;
    ck_assert_int_eq(wanted(-HVD_EUNSUPPORTED,
                            "ranks 100 and 101 on host n0 use the same GPU", s),
                     0);
    s.n = 2;
    s.setting = "NCCL_HOSTID=another";
    s.run = run_flat;
    ck_assert_int_eq(failures(s), 0);
}
END_TEST

START_TEST(test_failures)
{
    struct scene s = {.n = 3, .odd = 1};

    s.run = run_broken;
    s.setting = "FAKE_NCCL=error:1:3";
    ck_assert_int_eq(wanted(0, "injected into the double", s), 0);
    s.setting = "FAKE_NCCL=call:1:3";
    ck_assert_int_eq(wanted(0, "CUDA device 1: ncclAllReduce", s), 0);
    s.setting = "FAKE_NCCL=init:1:1";
    ck_assert_int_eq(wanted(0, "ncclCommInitRankConfig", s), 0);
    s.setting = "FAKE_CUDA_FAIL=cuEventRecord:700:1:10";
    ck_assert_int_eq(wanted(0, "cuEventRecord", s), 0);
    s.setting = NULL;
    s.run = run_killed;
    ck_assert_int_eq(failures(s), 1);
}
END_TEST

START_TEST(test_hung)
{
    struct scene s = {.n = 2, .odd = 1, .is_hasty = 1, .run = run_hung};

    for (is_ordered = 0; is_ordered < 2; is_ordered++) {
        s.setting = "FAKE_NCCL=hang:1:3";
        ck_assert_int_eq(failures(s), 0);
    }
    s.run = run_over;
    s.is_hasty = 0;
    s.setting = "FAKE_NCCL=hang:1:1";
    ck_assert_int_eq(failures(s), 0);
}
END_TEST

START_TEST(test_many)
{
    ck_assert_int_eq(failures((struct scene){.n = 2, .run = run_many}), 0);
    ck_assert_int_eq(failures((struct scene){.n = 1, .run = run_many}), 0);
    ck_assert_int_eq(failures((struct scene){.n = 2, .run = run_abandon}), 0);
}
END_TEST

START_TEST(test_open)
{
    struct scene s = {.n = 1, .odd = -1, .run = run_open};

    s.setting = "HVD_CUDA_LIBRARY=/nonexistent";
    ck_assert_int_eq(wanted(HVD_EUNSUPPORTED, "no CUDA driver", s), 0);
    s.setting = "HVD_NCCL_LIBRARY=/nonexistent";
    ck_assert_int_eq(wanted(HVD_EUNSUPPORTED, "NCCL", s), 0);
    s.setting = "FAKE_NCCL_VERSION=21304";
    ck_assert_int_eq(wanted(HVD_EUNSUPPORTED, "2.14", s), 0);
    s.setting = "HVD_NCCL_TIMEOUT=0";
    ck_assert_int_eq(wanted(HVD_EINVAL, "HVD_NCCL_TIMEOUT", s), 0);
    s.setting = "HVD_STALL_SHUTDOWN_TIME_SECONDS=soon";
    ck_assert_int_eq(
        wanted(HVD_EINVAL, "HVD_STALL_SHUTDOWN_TIME_SECONDS", s), 0);
    s.setting = "HVD_TORUS_ALLREDUCE=perhaps";
    ck_assert_int_eq(wanted(HVD_EINVAL, "TORUS_ALLREDUCE", s), 0);
    s.setting = "FAKE_CUDA_DEVICES=4";
    ck_assert_int_eq(wanted(0, "", s), 0);
}
END_TEST

static Suite *nccl_plane_suite(void)
{
    Suite *s = suite_create("nccl_plane");
    TCase *tc = tcase_create("nccl_plane");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, test_layers);
    tcase_add_test(tc, test_moves);
    tcase_add_test(tc, test_joined);
    tcase_add_test(tc, test_differ);
    tcase_add_test(tc, test_refused);
    tcase_add_test(tc, test_failures);
    tcase_add_test(tc, test_hung);
    tcase_add_test(tc, test_many);
    tcase_add_test(tc, test_open);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    SRunner *sr = srunner_create(nccl_plane_suite());
    ssize_t len = readlink("/proc/self/exe", build, sizeof(build) - 1);
    int failed;

    if (len < 0 || !strrchr(build, '/'))
        return 1;
    *strrchr(build, '/') = '\0';
    srunner_run_all(sr, CK_ENV);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : 0;
}
