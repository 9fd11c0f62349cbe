/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd-bench: times libhvd's collectives and checks their results.  Run by
 * hvdrun as any program, or alone as a world of one.  Only rank 0 prints;
 * a wrong result is told by the rank that has it.
 */
#include "cmd/hvd-bench/measure.h"
#include "cmd/hvd-bench/options.h"
#include "lib/base/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2 };

static int complain(const struct hb_error *err, int code)
{
    fprintf(stderr, "hvd-bench: %s\n", err->text);
    return code;
}

static int library_error(struct hb_error *err, const char *call, int rc)
{
    return hb_error_set(err, (enum hvd_status) - rc, "%s: %s", call,
                        hvd_error_message());
}

/* The n-th CPU that this process may use, from 0, counted round. */
static int pin(int n, struct hb_error *err)
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

/* The plane that the library uses for these ranks; the same on all. */
static int plane_in_use(enum bench_plane *plane, struct hb_error *err)
{
    int32_t most = hvd_local_size();
    int rc = hvd_allreduce(&most, &most, 1, HVD_INT32, HVD_MAX, NULL);

    if (rc < 0)
        return library_error(err, "allreduce", rc);
    *plane = hvd_size() == 1                  ? BENCH_PLANE_SELF
             : hvd_local_size() == hvd_size() ? BENCH_PLANE_SHM
             : most == 1                      ? BENCH_PLANE_TCP
                                              : BENCH_PLANE_HIER;
    return 0;
}

/* One of the ranks may be alone with shared memory. */
static int check_plane(const struct bench_options *o, enum bench_plane used,
                       struct hb_error *err)
{
    if (o->plane == BENCH_PLANE_AUTO || o->plane == used ||
        (o->plane == BENCH_PLANE_SHM && used == BENCH_PLANE_SELF))
        return 0;
    return hb_error_set(err, HVD_EUNSUPPORTED,
                        "--plane %s: %d rank%s placed like this use %s",
                        bench_plane_name(o->plane), hvd_size(),
                        hvd_size() == 1 ? "" : "s", bench_plane_name(used));
}

static void print_header(const struct bench_options *o, enum bench_plane plane)
{
    int moves = o->what != BENCH_BARRIER;

    printf("# hvd-bench %s: libhvd %s, %d rank%s, plane %s%s%s%s%s%s",
           bench_what_name(o->what), hvd_version(), hvd_size(),
           hvd_size() == 1 ? "" : "s", bench_plane_name(plane),
           moves ? ", " : "", moves ? hvd_dtype_name(o->dtype) : "",
           o->what == BENCH_ALLREDUCE ? " " : "",
           o->what == BENCH_ALLREDUCE ? hvd_op_name(o->op) : "",
           o->in_place ? ", in place" : "");
    if (o->async)
        printf(", %d in flight", o->async);
    printf("\n#%11s %11s %12s %12s %12s %10s %10s %9s\n", "bytes", "count",
           "median_us", "min_us", "max_us", "algbw_GB/s", "busbw_GB/s",
           "iters");
}

static void print_result(const struct bench_options *o, enum bench_plane plane,
                         const struct bench_result *r)
{
    if (o->json)
        printf("{\"collective\":\"%s\",\"ranks\":%d,\"plane\":\"%s\","
               "\"dtype\":\"%s\","
               "\"op\":\"%s\",\"in_place\":%s,\"async\":%d,\"bytes\":%zu,"
               "\"count\":%zu,\"median_us\":%.4f,\"min_us\":%.4f,"
               "\"max_us\":%.4f,\"algbw_gbs\":%.4f,\"busbw_gbs\":%.4f,"
               "\"iters\":%lld,\"checked\":%s,\"version\":\"%s\"}\n",
               bench_what_name(o->what), hvd_size(), bench_plane_name(plane),
               hvd_dtype_name(o->dtype), hvd_op_name(o->op),
               o->in_place ? "true" : "false", o->async, r->bytes, r->count,
               r->median_us, r->min_us, r->max_us, r->algbw, r->busbw,
               (long long)r->iters,
               o->check && o->what != BENCH_BARRIER ? "true" : "false",
               hvd_version());
    else
        printf("%12zu %11zu %12.3f %12.3f %12.3f %10.3f %10.3f %9lld\n",
               r->bytes, r->count, r->median_us, r->min_us, r->max_us, r->algbw,
               r->busbw, (long long)r->iters);
    fflush(stdout);
}

static int run_sizes(const struct bench_options *o, struct hb_error *err)
{
    size_t n = o->what == BENCH_BARRIER ? 1 : o->nsizes;
    enum bench_plane plane = BENCH_PLANE_AUTO;
    struct bench_result result;
    int rc = plane_in_use(&plane, err);

    if (rc == 0)
        rc = check_plane(o, plane, err);
    if (rc == 0 && hvd_rank() == 0 && !o->json)
        print_header(o, plane);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = bench_measure(o, o->sizes[i], &result, err);
        if (rc == 0 && hvd_rank() == 0)
            print_result(o, plane, &result);
    }
    return rc;
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a process costs that only has the library open: CPU time of all
 * its threads while this one sleeps. */
static int run_idle(const struct bench_options *o, struct hb_error *err)
{
    struct timespec left = {o->idle_ms / 1000, o->idle_ms % 1000 * 1000000};
    uint64_t begin = hb_now_ns();
    double used = cpu_seconds(), wall, percent;
    int rc;

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
    used = cpu_seconds() - used;
    wall = (double)(hb_now_ns() - begin) * 1e-9;
    percent = wall > 0 ? 100 * used / wall : 0;
    rc = hvd_allreduce(&percent, &percent, 1, HVD_FLOAT64, HVD_MAX, NULL);
    if (rc < 0)
        return library_error(err, "idle", rc);
    if (hvd_rank() > 0)
        return 0;
    if (o->json)
        printf("{\"idle_seconds\":%.3f,\"ranks\":%d,"
               "\"cpu_percent\":%.4f}\n",
               wall, hvd_size(), percent);
    else
        printf("idle for %.3f s: %.4f %% of a core, the busiest of %d "
               "ranks\n",
               wall, percent, hvd_size());
    return 0;
}

static int run(const struct bench_options *o, struct hb_error *err)
{
    int rc = hvd_init();

    if (rc < 0)
        return library_error(err, "init", rc);
    if (o->pin)
        rc = pin(hvd_local_rank(), err);
    if (rc == 0)
        rc = o->what == BENCH_IDLE ? run_idle(o, err) : run_sizes(o, err);
    if (rc < 0)
        return rc; /* no shutdown: peers may not be there to agree */
    rc = hvd_shutdown();
    return rc < 0 ? library_error(err, "shutdown", rc) : 0;
}

int main(int argc, char **argv)
{
    struct hb_error err = HB_ERROR_INIT;
    struct bench_options o;

    if (bench_options_parse(&o, argv + (argc > 0), &err) < 0)
        return complain(&err, EXIT_USAGE);
    if (o.help)
        fputs(bench_help, stdout);
    else if (o.version)
        puts("hvd-bench " HVD_VERSION);
    if (o.help || o.version)
        return 0;
    return run(&o, &err) < 0 ? complain(&err, EXIT_WRONG) : 0;
}
