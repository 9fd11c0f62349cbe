/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that uses device memory, for the system tests: `nccl_verbs VERB
 * ARGS...`. Needs a CUDA driver or the test double of one.  Lines for the test
 * go to stdout as `rank R: ...`.  The exit code is 0 when the verb's own checks
 * hold, 1 when they do not, 99 on misuse.
 */
#include "lib/base/env.h"
#include "tests/system/prog/nccl_rank.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static long number(const char *s)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t v;

    if (!s || hb_parse_i64(s, 0, INT64_MAX, &v, &err) < 0) {
        fprintf(stderr, "nccl_verbs: a number is missing or wrong\n");
        exit(99);
    }
    return (long)v;
}

static void tell(int status)
{
    printf("rank %d: %s: %s\n", hvd_rank(), hvd_status_text(status),
           status ? hvd_error_message() : "");
    fflush(stdout);
}

/* Calls hvd_init and gives each rank of a host a device of its own, as far as
 * there are enough. */
static void begin(int with_stream, uint64_t seed)
{
    int devices;

    must(hvd_init(), "hvd_init");
    gpu_open(0);
    GPU(DeviceGetCount, &devices);
    gpu_close();
    gpu_open(hvd_local_rank() % devices);
    rank_open(with_stream, seed);
}

static void end(void)
{
    must(hvd_shutdown(), "hvd_shutdown");
    rank_close();
    gpu_close();
}

static float *floats_new(size_t count, float value)
{
    float *p = gpu_alloc(count * sizeof(*p)), *host;

    host = malloc(count * sizeof(*host));
    check(host != NULL, "memory");
    for (size_t i = 0; i < count; i++)
        host[i] = value;
    gpu_write(p, host, count * sizeof(*p));
    free(host);
    return p;
}

static float float_at(const float *p, size_t i)
{
    float v;

    gpu_read(&v, p + i, sizeof(v));
    return v;
}

/* ---- Values ------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"allreduce", cases_allreduce},
    {"fused", cases_fused},
    {"wire", cases_wire},
    {"reducescatter", cases_reducescatter},
    {"broadcast", cases_broadcast},
    {"allgather", cases_allgather},
    {"alltoall", cases_alltoall},
    {"grouped", cases_grouped},
    {"gathered-groups", cases_gathered_groups},
    {"sets", cases_sets},
    {"join", cases_join},
    {"mixed", cases_mixed},
    {"large", cases_large},
};

static int is_among(char **names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return 1;
    return 0;
}

/* values null|own SEED [no-float8] [KIND]...: checks results against formulas,
 * on the default stream or one of its own, of each KIND; without KIND, of all
 * but large. */
static int verb_values(char **args)
{
    char **wanted = args + 2;

    begin(strcmp(args[0], "own") == 0, (uint64_t)number(args[1]));
    if (is_among(wanted, "no-float8")) {
        values_no_float8 = 1;
        wanted++;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (is_among(wanted, kinds[i].name) ||
            (!*wanted && kinds[i].run != cases_large))
            kinds[i].run();
    end();
    return 0;
}

/* ---- Streams ------------------------------------------------------------ */

/* stream SEED: checks that an operation waits for earlier work on the stream,
 * and later work for the operation, while the host does not wait. */
static int verb_stream(char **args)
{
    enum { COUNT = 1000, ROUNDS = 12 };
    float want = 1;
    struct hvd_options o;
    size_t bytes = COUNT * sizeof(float);
    float *x, *y, *pinned;
    void *p;

    begin(1, (uint64_t)number(args[0]));
    o = options();
    x = floats_new(COUNT, 0);
    y = floats_new(COUNT, 0);
    GPU(MemHostAlloc, &p, 2 * bytes, 0);
    pinned = p;
    for (size_t i = 0; i < COUNT; i++)
        pinned[i] = 1;
    must(hvd_allreduce(y, y, COUNT, HVD_FLOAT32, HVD_SUM, &o), "first");
    /* sets x = 1, with a delay; then x = sum(x), y = x, ... all on the
     * stream */
    gpu_delay(rank.stream, 50 + 20 * (unsigned)hvd_rank());
    GPU(MemcpyAsync, (CUdeviceptr)x, (CUdeviceptr)pinned, bytes, rank.stream);
    for (int i = 0; i < ROUNDS; i++) {
        must(hvd_allreduce(x, x, COUNT, HVD_FLOAT32, HVD_SUM, &o), "sum");
        GPU(MemcpyAsync, (CUdeviceptr)y, (CUdeviceptr)x, bytes, rank.stream);
        must(hvd_allreduce(y, x, COUNT, HVD_FLOAT32, HVD_AVERAGE, &o), "mean");
        want *= (float)hvd_size();
    }
    printf("rank %d: launched %s\n", hvd_rank(),
           gpu.StreamQuery(rank.stream) == CUDA_ERROR_NOT_READY ? "ahead"
                                                                : "late");
    GPU(MemcpyAsync, (CUdeviceptr)(pinned + COUNT), (CUdeviceptr)x, bytes,
        rank.stream);
    GPU(StreamSynchronize, rank.stream);
    for (size_t i = COUNT; i < 2 * COUNT; i++)
        check(pinned[i] == want, "element %zu is %g, not %g", i - COUNT,
              (double)pinned[i], (double)want);
    gpu_free(x);
    gpu_free(y);
    GPU(MemFreeHost, pinned);
    end();
    return 0;
}

/* requests: checks that hvd_wait waits for the device, hvd_wait_on_stream makes
 * only the stream wait, and hvd_test tells when the result is there; and that
 * the device's work is timed. */
static int verb_requests(char **args)
{
    enum { COUNT = 500 };
    struct hvd_options o;
    struct hvd_stats stats;
    hvd_request *req;
    CUstream other;
    float *x, got;
    int done = 0;

    (void)args;
    begin(1, 1);
    o = options();
    x = floats_new(COUNT, 1);
    other = gpu_stream();
    for (int i = 0; i < 6; i++) {
        gpu_delay(rank.stream, 20);
        must(hvd_allreduce_async("x", x, x, COUNT, HVD_FLOAT32, HVD_AVERAGE, &o,
                                 &req),
             "async");
        if (i % 3 == 0) {
            must(hvd_wait(req), "wait");
        } else if (i % 3 == 1) {
            must(hvd_wait_on_stream(req, other), "wait_on_stream");
            GPU(StreamSynchronize, other);
        } else {
            while (!done)
                must(hvd_test(req, &done), "test");
            must(hvd_wait(req), "wait");
            done = 0;
        }
        /* rank.reader is a stream that waits for no other */
        GPU(MemcpyAsync, (CUdeviceptr)&got, (CUdeviceptr)(x + COUNT - 1),
            sizeof(got), rank.reader);
        GPU(StreamSynchronize, rank.reader);
        check(got == 1.0f, "round %d: %g", i, (double)got);
    }
    /* waits until all are timed: another thread may see them end */
    do {
        stats = (struct hvd_stats){.size = sizeof(stats)};
        must(hvd_stats(&stats), "stats");
    } while (stats.device_timed < 6);
    check(stats.device_timed == 6 && stats.device_ns > 0, "%llu timed, %llu ns",
          (unsigned long long)stats.device_timed,
          (unsigned long long)stats.device_ns);
    GPU(StreamDestroy, other);
    gpu_free(x);
    end();
    return 0;
}

/* ---- Memory ------------------------------------------------------------- */

/* places: checks which memory counts as device memory, and what is refused. */
static int verb_places(char **args)
{
    enum { N = 64 };
    struct hvd_options o, plain = HVD_OPTIONS_INIT;
    CUdeviceptr managed;
    CUgraph graph;
    float *x, *pinned, host[N], *m;
    void *p;

    (void)args;
    begin(1, 1);
    o = options();
    x = floats_new(N, 1);
    GPU(MemHostAlloc, &p, sizeof(host), 0);
    pinned = p;
    GPU(MemAllocManaged, &managed, sizeof(host), CU_MEM_ATTACH_GLOBAL);
    m = (float *)managed;
    for (int i = 0; i < N; i++)
        host[i] = pinned[i] = m[i] = 1;
    must(hvd_allreduce(host, host, N, HVD_FLOAT32, HVD_SUM, &plain), "host");
    must(hvd_allreduce(pinned, pinned, N, HVD_FLOAT32, HVD_SUM, &plain),
         "pinned");
    must(hvd_allreduce(m, m, N, HVD_FLOAT32, HVD_SUM, &plain), "managed");
    check(host[5] == (float)hvd_size() && pinned[6] == host[5] &&
              m[N - 1] == host[5],
          "sums");
    must_fail(hvd_allreduce(host, host, N, HVD_FLOAT32, HVD_SUM, &o),
              HVD_EINVAL, "host memory");
    must_fail(hvd_allreduce(x, host, N, HVD_FLOAT32, HVD_SUM, &plain),
              HVD_EINVAL, "some in host memory");
    must_fail(hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_ADASUM, &plain),
              HVD_EUNSUPPORTED, "adasum");
    must_fail(hvd_allreduce(host, host, N, HVD_FLOAT8_E4M3, HVD_SUM, &plain),
              HVD_EINVAL, "float8");
    GPU(StreamBeginCapture, rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    must_fail(hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_SUM, &o),
              HVD_EUNSUPPORTED, "graph");
    GPU(StreamEndCapture, rank.stream, &graph);
    must(hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_SUM, &o), "after");
    GPU(StreamSynchronize, rank.stream);
    check(float_at(x, N - 1) == (float)hvd_size(), "after");
    GPU(MemFree, managed);
    GPU(MemFreeHost, pinned);
    gpu_free(x);
    end();
    return 0;
}

/* Captures a stream that the default stream waits for, and one whose capture
 * has failed. */
static void capture_others(float *x, size_t n)
{
    struct hvd_options o = options();
    CUstream blocking;
    CUgraph graph;

    GPU(StreamCreate, &blocking, CU_STREAM_DEFAULT);
    GPU(StreamBeginCapture, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    must_fail(hvd_allreduce(x, x, n, HVD_FLOAT32, HVD_SUM, NULL),
              HVD_EUNSUPPORTED, "graph");
    GPU(StreamEndCapture, blocking, &graph);
    GPU(StreamDestroy, blocking);
    GPU(StreamBeginCapture, rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    check(gpu.StreamSynchronize(rank.stream) != CUDA_SUCCESS, "synchronize");
    must_fail(hvd_allreduce(x, x, n, HVD_FLOAT32, HVD_SUM, &o),
              HVD_EUNSUPPORTED, "graph");
    check(gpu.StreamEndCapture(rank.stream, &graph) != CUDA_SUCCESS, "end");
}

/* capture: checks that operations on other streams go on while the program
 * captures a stream for a graph, and do not break the capture. */
static int verb_capture(char **args)
{
    enum { N = 64 };
    struct hvd_options o;
    hvd_request *req;
    CUstream other;
    CUgraph graph;
    float *x;

    (void)args;
    begin(1, 1);
    o = options();
    x = floats_new(N, 1);
    other = gpu_stream();
    must(hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_AVERAGE, &o), "before");
    GPU(StreamBeginCapture, other, CU_STREAM_CAPTURE_MODE_GLOBAL);
    must(hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_AVERAGE, NULL), "blocking");
    must(hvd_allreduce_async("x", x, x, N, HVD_FLOAT32, HVD_SUM, &o, &req),
         "async");
    must(hvd_wait(req), "wait");
    GPU(StreamEndCapture, other, &graph);
    check(float_at(x, N - 1) == (float)hvd_size(), "sum");
    capture_others(x, N);
    GPU(StreamDestroy, other);
    gpu_free(x);
    end();
    return 0;
}

/* ---- Disagreement ------------------------------------------------------- */

/* The odd rank gives another shape of n elements than the others, or none. */
static void mismatch_of_shapes(float *x, size_t n, int odd)
{
    int64_t dims[] = {(int64_t)n, 1};
    const struct hvd_shape shape = {odd ? 2 : 1, dims};
    struct hvd_options o = options();

    o.shapes = &shape;
    must_fail(hvd_allreduce(x, x, n, HVD_FLOAT32, HVD_SUM, &o), HVD_EMISMATCH,
              "[100, 1]");
    o.shapes = odd ? NULL : &shape;
    must_fail(hvd_allreduce(x, x, n, HVD_FLOAT32, HVD_SUM, &o), HVD_EMISMATCH,
              "no shape");
}

/* mismatch: checks that ranks that disagree get an error and can go on. */
static int verb_mismatch(char **args)
{
    enum { N = 100 };
    struct hvd_options o;
    int odd;
    float *x, host[N] = {0};

    (void)args;
    begin(1, 1);
    odd = hvd_rank() == hvd_size() - 1;
    o = options();
    x = floats_new(N, 1);
    must_fail(hvd_allreduce(x, x, odd ? N : N - 1, HVD_FLOAT32, HVD_SUM, &o),
              HVD_EMISMATCH, "99");
    must_fail(
        hvd_allreduce(x, x, N, odd ? HVD_FLOAT32 : HVD_INT32, HVD_SUM, &o),
        HVD_EMISMATCH, "int32");
    must_fail(hvd_allreduce(x, x, N, HVD_FLOAT32, odd ? HVD_MAX : HVD_SUM, &o),
              HVD_EMISMATCH, "max");
    must_fail(odd ? hvd_broadcast(x, x, N, HVD_FLOAT32, 0, &o)
                  : hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_SUM, &o),
              HVD_EMISMATCH, "broadcast");
    must_fail(odd ? hvd_allreduce(host, host, N, HVD_FLOAT32, HVD_SUM, NULL)
                  : hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_SUM, &o),
              HVD_EMISMATCH, "device");
    mismatch_of_shapes(x, N, odd);
    check(float_at(x, 0) == 1.0f, "a buffer has changed");
    must(hvd_allreduce(x, x, N, HVD_FLOAT32, HVD_SUM, &o), "after");
    GPU(StreamSynchronize, rank.stream);
    check(float_at(x, 0) == (float)hvd_size(), "after");
    gpu_free(x);
    end();
    return 0;
}

/* ---- Life --------------------------------------------------------------- */

static int sum_once(const struct hvd_options *o)
{
    float *x = floats_new(100, (float)(hvd_rank() + 1));
    int rc = hvd_allreduce(x, x, 100, HVD_FLOAT32, HVD_SUM, o);

    if (rc == 0)
        check(float_at(x, 99) == (float)(hvd_size() * (hvd_size() + 1)) / 2,
              "sum");
    gpu_free(x);
    return rc;
}

/* again TIMES: calls hvd_init, works and shuts down, TIMES times, and checks
 * that no object of CUDA or NCCL is left. */
static int verb_again(char **args)
{
    int live = -1;

    gpu_open(0);
    for (long i = number(args[0]); i > 0; i--) {
        begin(0, 1);
        must(sum_once(NULL), "sum");
        must(sum_once(NULL), "sum");
        end();
        check(!gpu.live || live < 0 || gpu.live() == live,
              "%d objects of CUDA and NCCL are left, %d before", gpu.live(),
              live);
        live = gpu.live ? gpu.live() : -1;
    }
    GPU(CtxSetCurrent, NULL);
    return 0;
}

/* alone: checks a collective in host memory, and prints the status of one with
 * a stream. */
static int verb_alone(char **args)
{
    double x = 1;
    struct hvd_options o = HVD_OPTIONS_INIT;

    (void)args;
    must(hvd_init(), "hvd_init");
    must(hvd_allreduce(&x, &x, 1, HVD_FLOAT64, HVD_SUM, NULL), "host");
    check(x == hvd_size(), "sum");
    o.stream = &x;
    tell(hvd_allreduce(&x, &x, 1, HVD_FLOAT64, HVD_SUM, &o));
    must(hvd_shutdown(), "shutdown");
    return 0;
}

/* init: prints what hvd_init says. */
static int verb_init(char **args)
{
    int rc = hvd_init();

    (void)args;
    printf("%s: %s\n", hvd_status_text(rc), rc ? hvd_error_message() : "");
    return 0;
}

/* ---- Failures ----------------------------------------------------------- */

/* work null|own|packed TIMES: averages TIMES times or until a failure, and
 * prints that; packed: with 16 bits on the wire. */
static int verb_work(char **args)
{
    int own_stream = strcmp(args[0], "own") == 0, rc = 0;
    long times = number(args[1]);
    struct hvd_options o;

    begin(own_stream, 1);
    o = options();
    if (strcmp(args[0], "packed") == 0)
        o.wire = HVD_WIRE_FLOAT16;
    for (long i = 0; i < times && rc == 0; i++) {
        float *x = floats_new(1000, 1);

        rc = hvd_allreduce(x, x, 1000, HVD_FLOAT32, HVD_AVERAGE, &o);
        if (rc == 0 && own_stream)
            gpu.StreamSynchronize(rank.stream);
        if (rc)
            break; /* the device may not work any more */
        check(float_at(x, 999) == 1.0f || own_stream, "value");
        gpu_free(x);
    }
    tell(rc);
    must(hvd_shutdown(), "shutdown");
    return 0;
}

/* retry: sums until a failure, then calls hvd_init again and works. */
static int verb_retry(char **args)
{
    int rc;

    (void)args;
    begin(0, 1);
    for (int i = 0; i < 10; i++) {
        rc = sum_once(NULL);
        if (rc)
            break;
    }
    tell(rc);
    end();
    begin(0, 1);
    must(sum_once(NULL), "sum after it");
    end();
    return 0;
}

/* die RANK K kill|exit|stop|later: before its K-th sum, RANK is killed, exits,
 * stops for good, or (later) is killed half a second after.  The others print
 * their status. */
static int verb_die(char **args)
{
    const struct itimerval soon = {.it_value.tv_usec = 500000};
    int rc = 0;

    signal(SIGTERM, SIG_IGN); /* which hvdrun then sends to the others */
    begin(0, 1);
    for (long i = 0; i < 20 && rc == 0; i++) {
        if (hvd_rank() == number(args[0]) && i == number(args[1])) {
            if (strcmp(args[2], "exit") == 0)
                exit(0);
            if (strcmp(args[2], "later") == 0)
                setitimer(ITIMER_REAL, &soon, NULL);
            else
                raise(strcmp(args[2], "stop") == 0 ? SIGSTOP : SIGKILL);
        }
        rc = sum_once(NULL);
    }
    tell(rc);
    hvd_shutdown();
    return 0;
}

/* ---- Elastic jobs -------------------------------------------------------- */

/* Makes the set of the ranks 0 and 2, unless it is there, and sums in it. */
static int sum_in_set(int64_t *set)
{
    struct hvd_options o = options();
    int pair[2] = {0, 2}, members[64], made = -1, rc = 0, n;
    float want = 0, *x;

    if (hvd_process_set_size((int)*set) < 0 && hvd_size() > 2) {
        rc = hvd_process_set_add(pair, 2, &made);
        *set = made;
    }
    if (rc < 0 || hvd_process_set_rank((int)*set) < 0)
        return rc;
    n = hvd_process_set_ranks((int)*set, members, 64);
    for (int i = 0; i < n; i++)
        want += (float)(members[i] + 1);
    o.process_set = (int)*set;
    x = floats_new(5000, (float)(hvd_rank() + 1));
    rc = hvd_allreduce(x, x, 5000, HVD_FLOAT32, HVD_SUM, &o);
    if (rc == 0)
        check(float_at(x, 4999) == want, "the sum in the set");
    gpu_free(x);
    return rc;
}

/* Sums by two operations that are in flight together; both are waited for. */
static int sum_async(void)
{
    int n = hvd_size(), rc[2] = {0, 0};
    hvd_request *req[2];
    float *x[2];

    for (int i = 0; i < 2; i++) {
        x[i] = floats_new(300, (float)(hvd_rank() + 1 + i));
        rc[i] = hvd_allreduce_async(i ? "b" : "a", x[i], x[i], 300, HVD_FLOAT32,
                                    HVD_SUM, NULL, &req[i]);
    }
    for (int i = 0; i < 2; i++) {
        if (rc[i] == 0)
            rc[i] = hvd_wait(req[i]);
        if (rc[i] == 0)
            check(float_at(x[i], 299) == (float)(n * (n + 1) / 2 + i * n),
                  "sum %d", i);
    }
    for (int i = 0; i < 2; i++)
        gpu_free(x[i]);
    return rc[0] ? rc[0] : rc[1];
}

/* elastic RANK K kill|later STEPS RANKS: a training of so many steps on the
 * device, and of more until there are so many ranks.  RANK dies in its K-th
 * step, or half a second after.  The others go on, check all sums, and that
 * what they had in CUDA and NCCL is freed. */
static int verb_elastic(char **args)
{
    const struct itimerval soon = {.it_value.tv_usec = 500000};
    struct {
        int64_t step, set;
    } at = {0, -1};
    hvd_state *s;
    int rc, live;

    gpu_open(0);
    live = gpu.live ? gpu.live() : 0;
    begin(0, 1);
    must(hvd_state_new(&s), "state");
    must(hvd_state_add(s, "at", &at, sizeof(at), 0), "state");
    rc = hvd_sync(s);
    while (rc == 0 &&
           (at.step < number(args[3]) || hvd_size() < number(args[4]))) {
        if (hvd_generation() == 1 && hvd_rank() == number(args[0]) &&
            at.step == number(args[1])) {
            if (strcmp(args[2], "later") != 0)
                raise(SIGKILL);
            setitimer(ITIMER_REAL, &soon, NULL);
        }
        rc = sum_once(NULL);
        if (rc == 0)
            rc = sum_in_set(&at.set);
        if (rc == 0)
            rc = sum_async();
        at.step += rc == 0;
        if (rc == 0)
            rc = hvd_commit(s);
        if (rc == -HVD_ERESIZED) {
            tell(rc);
            rc = hvd_sync(s);
        }
    }
    must(rc, "training");
    printf("rank %d: done, %d ranks, %d in the set\n", hvd_rank(), hvd_size(),
           hvd_process_set_size((int)at.set));
    hvd_state_free(s);
    end();
    check(!gpu.live || gpu.live() == live,
          "%d objects of CUDA and NCCL are left, %d before", gpu.live(), live);
    return 0;
}

/* ---- Main --------------------------------------------------------------- */

/* remove TIMES: removes a set of all but rank 0 while an operation of it is
 * anywhere between issued and done, at a different place on each rank. */
static int verb_remove(char **args)
{
    int members[64], set;
    struct hvd_options o;
    float *x;

    begin(1, 1);
    for (int i = 1; i < hvd_size(); i++)
        members[i - 1] = i;
    x = floats_new(100, 1);
    for (long i = number(args[0]); i > 0; i--) {
        hvd_request *req = NULL;

        must(hvd_process_set_add(members, (size_t)hvd_size() - 1, &set), "add");
        o = options();
        o.process_set = set;
        if (hvd_rank() > 0) {
            must(hvd_allreduce(x, x, 100, HVD_FLOAT32, HVD_MAX, &o), "first");
            must(hvd_allreduce_async("late", x, x, 100, HVD_FLOAT32, HVD_MAX,
                                     &o, &req),
                 "late");
        }
        if (hvd_rank() > 1)
            usleep((unsigned)(i * 37 % 200));
        must(hvd_process_set_remove(set), "remove");
        if (req) {
            int rc = hvd_wait(req);

            check(rc == 0 || rc == -HVD_ENOSET, "%d: %s", rc,
                  hvd_error_message());
        }
    }
    must(hvd_allreduce(x, x, 100, HVD_FLOAT32, HVD_MAX, NULL), "last");
    gpu_free(x);
    end();
    return 0;
}

static const struct {
    const char *name;
    int (*run)(char **args);
    int args; /* at least so many */
} verbs[] = {
    {"values", verb_values, 2},     {"stream", verb_stream, 1},
    {"requests", verb_requests, 0}, {"places", verb_places, 0},
    {"mismatch", verb_mismatch, 0}, {"again", verb_again, 1},
    {"alone", verb_alone, 0},       {"init", verb_init, 0},
    {"work", verb_work, 2},         {"retry", verb_retry, 0},
    {"die", verb_die, 3},           {"remove", verb_remove, 1},
    {"capture", verb_capture, 0},   {"elastic", verb_elastic, 5},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(*verbs); i++)
        if (strcmp(argv[1], verbs[i].name) == 0 && argc - 2 >= verbs[i].args)
            return verbs[i].run(argv + 2);
    fprintf(stderr, "usage: nccl_verbs VERB ARGS...\n");
    return 99;
}
