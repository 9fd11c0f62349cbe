/* SPDX-License-Identifier: Apache-2.0 */
/* Where hvd-bench runs: its CPU, its process set, the plane in use. */
#include "cmd/hvd-bench/bench_world.h"

#include "cmd/hvd-bench/raw.h"
#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int bench_library_error(struct hb_error *err, const char *call, int rc)
{
    return hb_error_set(err, (enum hvd_status) - rc, "%s: %s", call,
                        hvd_error_message());
}

int bench_pin(int n, struct hb_error *err)
{
    cpu_set_t allowed, one;
    size_t cpu = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return hb_error_sys(err, errno, "ask for this process's CPUs");
    n %= CPU_COUNT(&allowed);
    while (!CPU_ISSET(cpu, &allowed) || n-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        return hb_error_sys(err, errno, "pin to CPU %zu", cpu);
    return 0;
}

/* ---- Process sets ---------------------------------------------------- */

static int add_set(const struct bench_options *o, int nth,
                   struct bench_set *set, struct hb_error *err)
{
    int ranks[BENCH_RANKS_MAX], n = 0, number = 0, rc;

    for (int r = 0; r < BENCH_RANKS_MAX; r++)
        if (o->set_of[r] == nth)
            ranks[n++] = r;
    rc = hvd_process_set_add(ranks, (size_t)n, &number);
    if (rc < 0)
        return bench_library_error(err, "--process-set", rc);
    rc = hvd_process_set_rank(number);
    if (rc >= 0)
        *set = (struct bench_set){number, rc, n, ranks[0]};
    return 0;
}

int bench_join_set(const struct bench_options *o, struct bench_set *set,
                   struct hb_error *err)
{
    int rc = 0;

    *set = (struct bench_set){0, 0, 0, 0};
    if (o->nsets == 0)
        *set = (struct bench_set){HVD_WORLD, hvd_rank(), hvd_size(), 0};
    for (int i = 1; i <= o->nsets && rc == 0; i++)
        rc = add_set(o, i, set, err);
    return rc;
}

/* ---- Devices --------------------------------------------------------- */

int bench_gpu_open(const struct bench_options *o, const struct bench_set *set,
                   struct bench_gpu *gpu, struct hb_error *err)
{
    int64_t device = hvd_local_rank();

    *gpu = (struct bench_gpu){NULL, NULL};
    if (!o->cuda)
        return 0;
    if (hb_knob_i64("GPU", 0, INT32_MAX, &device, err) == 0)
        gpu->cuda = bench_cuda_open((int)device, err);
    if (gpu->cuda && o->raw)
        gpu->raw = bench_raw_open(set, err);
    return gpu->cuda && (gpu->raw || !o->raw)
               ? 0
               : hb_error_context(err, "rank %d", hvd_rank());
}

void bench_gpu_close(struct bench_gpu *gpu)
{
    bench_raw_close(gpu->raw);
    bench_cuda_close(gpu->cuda);
}

/* ---- Planes ---------------------------------------------------------- */

int bench_ask_plane(const struct bench_options *o, struct hb_error *err)
{
    if (o->plane == BENCH_PLANE_TCP && setenv("HVD_FORCE_TCP", "1", 1) < 0)
        return hb_error_sys(err, errno, "set HVD_FORCE_TCP");
    if (o->plane == BENCH_PLANE_MPI && setenv("HVD_CPU_PLANE", "mpi", 1) < 0)
        return hb_error_sys(err, errno, "set HVD_CPU_PLANE");
    /* With HVD_NCCL set, hvd_init says why NCCL cannot be used. */
    if (o->cuda && setenv("HVD_NCCL", "1", 0) < 0)
        return hb_error_sys(err, errno, "set HVD_NCCL");
    return 0;
}

/* Returns a hash (FNV-1a) of the host's name as hvdrun gave it, else as the
 * host names itself. */
static int64_t host_id(void)
{
    char own[256] = "";
    const char *s = hb_knob("HOSTNAME");
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (!s && gethostname(own, sizeof(own) - 1) == 0)
        s = own;
    for (; s && *s; s++)
        hash = (hash ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return (int64_t)hash;
}

/* Returns how many ids equal the i-th. */
static int count_same(const int64_t *ids, int n, int i)
{
    int same = 0;

    for (int k = 0; k < n; k++)
        same += ids[k] == ids[i];
    return same;
}

static enum bench_plane plane_of(const int64_t *ids, int n)
{
    int most = 0, same;

    for (int i = 0; i < n; i++) {
        same = count_same(ids, n, i);
        most = same > most ? same : most;
    }
    return most == n   ? BENCH_PLANE_SHM
           : most == 1 ? BENCH_PLANE_TCP
                       : BENCH_PLANE_HIER;
}

/* Returns the plane if an MPI launcher started the ranks, not hvdrun. */
static enum bench_plane plane_under_mpi(const int64_t *ids, int n)
{
    const char *asked = hb_knob("CPU_PLANE"), *also = hb_knob("CPU_OPERATIONS");
    int mpi = asked ? strcmp(asked, "mpi") == 0
                    : also && strcasecmp(also, "mpi") == 0;

    return mpi || count_same(ids, n, 0) < n ? BENCH_PLANE_MPI : BENCH_PLANE_SHM;
}

static int plane_in_use(const struct bench_options *o,
                        const struct bench_set *set, enum bench_plane *plane,
                        struct hb_error *err)
{
    struct hvd_options opts = HVD_OPTIONS_INIT;
    int64_t own = host_id(), *ids = hb_calloc((size_t)set->size, sizeof(*ids));
    int force = 0, rc;

    if (!ids)
        return hb_error_set(err, HVD_ENOMEM, "no memory");
    opts.process_set = set->number;
    rc = hvd_allgather(&own, 1, ids, (size_t)set->size, NULL, HVD_INT64, &opts);
    if (rc < 0)
        rc = bench_library_error(err, "allgather", rc);
    else
        rc = hb_knob_bool("FORCE_TCP", &force, err);
    if (rc == 0)
        *plane = o->cuda                 ? BENCH_PLANE_NCCL
                 : set->size == 1        ? BENCH_PLANE_SELF
                 : force                 ? BENCH_PLANE_TCP
                 : hb_knob("RENDEZVOUS") ? plane_of(ids, set->size)
                                         : plane_under_mpi(ids, set->size);
    hb_free(ids);
    return rc;
}

int bench_find_plane(const struct bench_options *o, const struct bench_set *set,
                     enum bench_plane *plane, struct hb_error *err)
{
    int rc = plane_in_use(o, set, plane, err);

    /* A single rank always uses the self plane. */
    if (rc < 0 || o->plane == BENCH_PLANE_AUTO || o->plane == *plane ||
        *plane == BENCH_PLANE_SELF)
        return rc;
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "--plane %s: %d rank%s placed like this use %s",
                        bench_plane_name(o->plane), set->size,
                        set->size == 1 ? "" : "s", bench_plane_name(*plane));
}
