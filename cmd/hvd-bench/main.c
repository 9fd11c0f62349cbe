/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd-bench: times libhvd's collectives and checks their results.  Run by
 * hvdrun like any program, or alone as a world of one.  Only the first rank of
 * a set prints; a wrong result is reported by the rank that has it.
 */
#include "cmd/hvd-bench/bench_options.h"
#include "cmd/hvd-bench/bench_world.h"
#include "cmd/hvd-bench/measure.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2 };
enum { SETTLE_MS = 100 }; /* after the last operation, before idling */

static const char *const mode_names[] = {
    [BENCH_BLOCKING] = "blocking", [BENCH_ASYNC] = "async",
    [BENCH_BURST] = "burst",       [BENCH_GROUP] = "group",
    [BENCH_RESNET50] = "resnet50",
};

static int complain(const struct hb_error *err, int code)
{
    fprintf(stderr, "hvd-bench: %s\n", err->text);
    return code;
}

/* ---- Results --------------------------------------------------------- */

static void print_header(const struct bench_options *o,
                         const struct bench_set *set, enum bench_plane plane)
{
    int reduces = o->what == BENCH_ALLREDUCE || o->what == BENCH_REDUCESCATTER;

    printf("# hvd-bench %s: libhvd %s, %d rank%s, plane %s",
           bench_what_name(o->what), hvd_version(), set->size,
           set->size == 1 ? "" : "s", bench_plane_name(plane));
    if (o->what != BENCH_BARRIER)
        printf(", %s", hvd_dtype_name(o->dtype));
    if (reduces)
        printf(" %s", hvd_op_name(o->op));
    if (o->wire)
        printf(", %s wire", bench_wire_name(o->wire));
    if (o->in_place)
        printf(", in place");
    if (o->alloc)
        printf(", hvd_alloc");
    if (o->cuda)
        printf(", cuda%s", o->events   ? ", by events"
                           : o->stream ? ", on a stream"
                                       : "");
    if (o->mode != BENCH_BLOCKING)
        printf(", %s of %d", mode_names[o->mode], o->tensors);
    printf("\n#%11s %11s %12s %12s %12s %10s %10s %9s", "bytes", "count",
           "median_us", "min_us", "max_us", "algbw_GB/s", "busbw_GB/s",
           "iters");
    if (o->raw)
        printf(" %12s %9s %7s", "raw_us", "over_us", "of_raw");
    putchar('\n');
}

static void print_json(const struct bench_options *o,
                       const struct bench_set *set, enum bench_plane plane,
                       const struct bench_result *r)
{
    printf("{\"collective\":\"%s\",\"ranks\":%d,\"process_set\":%d,"
           "\"plane\":\"%s\",\"dtype\":\"%s\",\"op\":\"%s\",\"wire\":\"%s\",",
           bench_what_name(o->what), set->size, set->number,
           bench_plane_name(plane), hvd_dtype_name(o->dtype),
           hvd_op_name(o->op), bench_wire_name(o->wire));
    printf("\"in_place\":%s,\"alloc\":%s,\"mode\":\"%s\",\"tensors\":%d,"
           "\"async\":%d,",
           o->in_place ? "true" : "false", o->alloc ? "true" : "false",
           mode_names[o->mode], o->tensors,
           o->mode == BENCH_ASYNC ? o->tensors : 0);
    printf("\"device\":\"%s\",\"stream\":%s,\"events\":%s,",
           o->cuda ? "cuda" : "host", o->stream ? "true" : "false",
           o->events ? "true" : "false");
    if (o->raw)
        printf("\"raw_median_us\":%.4f,\"over_us\":%.4f,"
               "\"of_raw\":%.4f,",
               r->raw_us, r->over_us, r->of_raw);
    printf("\"bytes\":%zu,\"count\":%zu,\"median_us\":%.4f,\"min_us\":%.4f,"
           "\"max_us\":%.4f,\"algbw_gbs\":%.4f,\"busbw_gbs\":%.4f,"
           "\"iters\":%lld,\"checked\":%s,\"version\":\"%s\"}\n",
           r->bytes, r->count, r->median_us, r->min_us, r->max_us, r->algbw,
           r->busbw, (long long)r->iters,
           o->check && o->what != BENCH_BARRIER ? "true" : "false",
           hvd_version());
}

static void print_result(const struct bench_options *o,
                         const struct bench_set *set, enum bench_plane plane,
                         const struct bench_result *r)
{
    if (o->json) {
        print_json(o, set, plane, r);
    } else {
        printf("%12zu %11zu %12.3f %12.3f %12.3f %10.3f %10.3f %9lld", r->bytes,
               r->count, r->median_us, r->min_us, r->max_us, r->algbw, r->busbw,
               (long long)r->iters);
        if (o->raw)
            printf(" %12.3f %9.3f %7.3f", r->raw_us, r->over_us, r->of_raw);
        putchar('\n');
    }
    fflush(stdout);
}

static int run_sizes(const struct bench_options *o, const struct bench_set *set,
                     struct hb_error *err)
{
    int one = o->what == BENCH_BARRIER || o->mode == BENCH_RESNET50;
    size_t n = one ? 1 : o->nsizes;
    enum bench_plane plane = BENCH_PLANE_AUTO;
    struct bench_result result;
    struct bench_gpu gpu;
    int rc = bench_find_plane(o, set, &plane, err);

    if (rc < 0)
        return rc;
    rc = bench_gpu_open(o, set, &gpu, err);
    if (rc == 0 && set->rank == 0 && !o->json)
        print_header(o, set, plane);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = bench_measure(o, set, &gpu, o->sizes[i], &result, err);
        if (rc == 0 && set->rank == 0)
            print_result(o, set, plane, &result);
    }
    bench_gpu_close(&gpu);
    return rc;
}

/* Measures in this rank's set.  Ranks in no set, and of sets that are done,
 * wait for the others. */
static int run_sets(const struct bench_options *o, struct hb_error *err)
{
    struct bench_set set;
    int rc = bench_join_set(o, &set, err);

    if (rc == 0 && set.size > 0)
        rc = run_sizes(o, &set, err);
    if (rc == 0 && o->nsets > 0) {
        rc = hvd_barrier(NULL);
        rc = rc < 0 ? bench_library_error(err, "barrier", rc) : 0;
    }
    return rc;
}

/* ---- Idle ------------------------------------------------------------ */

/* Usage of all threads of this process. */
struct usage {
    double cpu_s, wakeups;
};

static struct usage usage_now(void)
{
    struct timespec t;
    struct rusage r;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    getrusage(RUSAGE_SELF, &r);
    return (struct usage){(double)t.tv_sec + 1e-9 * (double)t.tv_nsec,
                          (double)r.ru_nvcsw};
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

/* Uses the library once, so that it has started all its threads. */
static int wake_everything(struct hb_error *err)
{
    hvd_request *req;
    int rc = hvd_barrier_async("idle", NULL, &req);

    if (rc == 0)
        rc = hvd_wait(req);
    return rc < 0 ? bench_library_error(err, "idle", rc) : 0;
}

/* Measures what a process costs that only has the library open: CPU time of
 * all its threads, and their wake-ups, while this thread sleeps. */
static int run_idle(const struct bench_options *o, struct hb_error *err)
{
    struct usage before, after;
    uint64_t begin;
    double wall, most[2] = {0, 0};
    int rc = wake_everything(err);

    if (rc < 0)
        return rc;
    sleep_ms(SETTLE_MS);
    begin = hb_now_ns();
    before = usage_now();
    sleep_ms(o->idle_ms);
    after = usage_now();
    wall = (double)(hb_now_ns() - begin) * 1e-9;
    if (wall > 0) {
        most[0] = 100 * (after.cpu_s - before.cpu_s) / wall;
        most[1] = (after.wakeups - before.wakeups) / wall;
    }
    rc = hvd_allreduce(most, most, 2, HVD_FLOAT64, HVD_MAX, NULL);
    if (rc < 0)
        return bench_library_error(err, "idle", rc);
    if (hvd_rank() > 0)
        return 0;
    if (o->json)
        printf("{\"idle_seconds\":%.3f,\"ranks\":%d,"
               "\"cpu_percent\":%.4f,\"wakeups_per_s\":%.4f}\n",
               wall, hvd_size(), most[0], most[1]);
    else
        printf("idle for %.3f s: %.4f %% of a core and %.2f wake-ups a "
               "second, the busiest of %d ranks\n",
               wall, most[0], most[1], hvd_size());
    return 0;
}

/* ---- Main ------------------------------------------------------------ */

static int run(const struct bench_options *o, struct hb_error *err)
{
    int rc = bench_ask_plane(o, err);

    if (rc < 0)
        return rc;
    rc = hvd_init();
    if (rc < 0)
        return bench_library_error(err, "init", rc);
    if (o->pin)
        rc = bench_pin(hvd_local_rank(), err);
    if (rc == 0)
        rc = o->what == BENCH_IDLE ? run_idle(o, err) : run_sets(o, err);
    if (rc < 0)
        return rc; /* no shutdown: peers may be gone */
    rc = hvd_shutdown();
    return rc < 0 ? bench_library_error(err, "shutdown", rc) : 0;
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
