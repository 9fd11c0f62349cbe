/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of libhvd for the system tests: `coll VERB ARGS...`.  Lines for the
 * test go to stdout as `rank R: ...`.  The exit code is 0 when the verb's own
 * checks hold, 1 when they do not, 99 on misuse.
 */
#include "lib/base/env.h"
#include "lib/base/sys/clock.h"
#include "runtime/hvd.h"
#include "tests/system/prog/rank_checks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long number(const char *s)
{
    int64_t v;
    struct hb_error err = HB_ERROR_INIT;

    if (hb_parse_i64(s, -1, INT32_MAX, &v, &err) < 0) {
        fprintf(stderr, "coll: '%s': %s\n", s, err.text);
        exit(99);
    }
    return (long)v;
}

/* Sums rank + 1 over `count` floats and checks the result.  Returns the
 * status. */
static int sum(size_t count)
{
    float *x = malloc((count + 1) * sizeof(*x));
    float want = (float)(hvd_size() * (hvd_size() + 1) / 2);
    int rc;

    check(x != NULL, "memory");
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(hvd_rank() + 1);
    rc = hvd_allreduce(x, x, count, HVD_FLOAT32, HVD_SUM, NULL);
    for (size_t i = 0; rc == 0 && i < count; i++)
        check(x[i] == want, "allreduce");
    free(x);
    return rc;
}

static void init(void)
{
    if (hvd_init()) {
        fprintf(stderr, "hvd_init: %s\n", hvd_error_message());
        exit(1);
    }
}

/* topo: prints this rank's place in the world, its host and across hosts. */
static int verb_topo(char **args)
{
    (void)args;
    init();
    printf("rank %d/%d local %d/%d cross %d/%d\n", hvd_rank(), hvd_size(),
           hvd_local_rank(), hvd_local_size(), hvd_cross_rank(),
           hvd_cross_size());
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

/* feature NAME: prints what hvd_feature says in a world and after it. */
static int verb_feature(char **args)
{
    int inside;

    init();
    inside = hvd_feature(args[0]);
    check(hvd_shutdown() == 0, "shutdown");
    printf("%s: %d, %d\n", args[0], inside, hvd_feature(args[0]));
    return 0;
}

/* gpu: prints the device that this rank has, and those that it may see. */
static int verb_gpu(char **args)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int gpu;

    (void)args;
    init();
    gpu = hvd_local_gpu();
    check(gpu >= 0 || gpu == -HVD_ENOENT, "hvd_local_gpu");
    printf("%d: %d of %s\n", hvd_rank(), gpu, visible ? visible : "all");
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

/* sum COUNT TIMES: sums COUNT floats, TIMES times. */
static int verb_sum(char **args)
{
    init();
    for (long i = number(args[1]); i > 0; i--)
        check(sum((size_t)number(args[0])) == 0, "status");
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

/* Sums the two halves of x by requests of their own.  Odd ranks issue them in
 * the other order, so that the ranks have to agree on an order. */
static int sum_halves(float *x, size_t count)
{
    static const char *const names[] = {"first", "second"};
    size_t half = count / 2;
    hvd_request *reqs[2];
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        int which = (i + hvd_rank()) % 2;
        float *at = x + (which ? half : 0);

        rc = hvd_allreduce_async(names[which], at, at,
                                 which ? count - half : half, HVD_FLOAT32,
                                 HVD_SUM, NULL, &reqs[i]);
    }
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = hvd_wait(reqs[i]);
    return rc;
}

/* Sums rank + 1 over `count` floats, and adds to *wrong how many results are
 * wrong. */
static int sum_and_count(const char *how, float *x, size_t count, long *wrong)
{
    float want = (float)(hvd_size() * (hvd_size() + 1) / 2);
    int rc;

    for (size_t i = 0; i < count; i++)
        x[i] = (float)(hvd_rank() + 1);
    if (!strcmp(how, "halves"))
        rc = sum_halves(x, count);
    else
        rc = hvd_allreduce(x, x, count, HVD_FLOAT32, HVD_SUM, NULL);
    for (size_t i = 0; rc == 0 && i < count; i++)
        *wrong += x[i] != want;
    return rc;
}

/* trust HOW COUNT TIMES: sums COUNT floats, `whole` or as two `halves`, TIMES
 * times or until that fails.  Prints the last status and how many results were
 * wrong; exits with 1 if a call failed. */
static int verb_trust(char **args)
{
    size_t count = (size_t)number(args[1]);
    float *x = malloc(count * sizeof(*x));
    long wrong = 0;
    int rc;

    /* hvdrun ends this rank when the other one has failed */
    signal(SIGTERM, SIG_IGN);
    check(x != NULL, "memory");
    rc = hvd_init();
    for (long i = number(args[2]); i > 0 && rc == 0; i--)
        rc = sum_and_count(args[0], x, count, &wrong);
    printf("rank %s: %s, %ld wrong: %s\n", getenv("HVD_RANK"),
           hvd_status_text(rc), wrong, rc ? hvd_error_message() : "");
    fflush(stdout);
    free(x);
    check(hvd_shutdown() == 0 || rc, "shutdown");
    return rc ? 1 : 0;
}

/* again TIMES: calls hvd_init, works and shuts down, TIMES times in a row. */
static int verb_again(char **args)
{
    check(!hvd_is_initialized(), "initialized before hvd_init");
    check(sum(1) == -HVD_ENOTINIT, "a call before hvd_init");
    for (long i = number(args[0]); i > 0; i--) {
        init();
        check(hvd_is_initialized(), "not initialized");
        check(sum(1000) == 0, "status");
        check(hvd_shutdown() == 0, "shutdown");
        check(!hvd_is_initialized(), "initialized after hvd_shutdown");
    }
    check(sum(1) == -HVD_ENOTINIT, "a call after hvd_shutdown");
    return 0;
}

/* exec TIMES: calls hvd_init, works, shuts down, and executes this program
 * again, TIMES times in all: libhvd starts afresh under a pid that the agent
 * knows. */
static int verb_exec(char **args)
{
    long left = number(args[0]);
    char rest[24];

    init();
    check(sum(1000) == 0, "status");
    check(hvd_shutdown() == 0, "shutdown");
    if (left <= 1)
        return 0;
    snprintf(rest, sizeof(rest), "%ld", left - 1);
    execl("/proc/self/exe", "coll", "exec", rest, (char *)NULL);
    check(0, "execl");
    return 1;
}

/* Runs a collective of the given kind, large enough to be interrupted in the
 * middle. */
static int one(const char *kind)
{
    static float x[1 << 18];
    hvd_request *req;
    int rc;

    if (!strcmp(kind, "barrier"))
        return hvd_barrier(NULL);
    if (!strcmp(kind, "broadcast"))
        return hvd_broadcast(x, x, 1 << 18, HVD_FLOAT32, 0, NULL);
    if (!strcmp(kind, "allgather")) {
        static float all[64 * 1024];

        return hvd_allgather(x, 1024, all, 64 * 1024, NULL, HVD_FLOAT32, NULL);
    }
    if (!strcmp(kind, "small"))
        return hvd_allreduce(x, x, 2, HVD_FLOAT32, HVD_MAX, NULL);
    if (!strcmp(kind, "async")) {
        rc = hvd_allreduce_async("grad", x, x, 1 << 18, HVD_FLOAT32, HVD_MAX,
                                 NULL, &req);
        return rc ? rc : hvd_wait(req);
    }
    return hvd_allreduce(x, x, 1 << 18, HVD_FLOAT32, HVD_MAX, NULL);
}

static uint64_t *shared_word(const char *path)
{
    int fd = open(path, O_CREAT | O_RDWR, 0644);
    void *p;

    check(fd >= 0 && ftruncate(fd, 8) == 0, path);
    p = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(p != MAP_FAILED, "mmap");
    close(fd);
    return p;
}

static void leave(const char *how)
{
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    if (!strcmp(how, "segv"))
        raise(SIGSEGV);
    if (!strcmp(how, "shutdown")) {
        check(hvd_shutdown() == 0, "shutdown");
        exit(0);
    }
    exit((int)number(how));
}

/* lose KIND HOW RANK AFTER FILE: runs collectives of KIND.  After AFTER of them
 * RANK leaves: by kill, segv, shutdown or an exit code.  The others print their
 * error and its delay. */
static int verb_lose(char **args)
{
    long victim = number(args[2]), after = number(args[3]);
    volatile uint64_t *when = shared_word(args[4]);
    int rc;

    init();
    /* hvdrun would end this rank first, but the test is about libhvd */
    signal(SIGTERM, SIG_IGN);
    for (long i = 0;; i++) {
        if (i == after && hvd_rank() == victim) {
            /* lets the others enter the collective */
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
            *when = hb_now_ns();
            leave(args[1]);
        }
        rc = one(args[0]);
        if (rc)
            break;
        check(i <= after, "a collective succeeded without the dead rank");
    }
    printf("rank %d: %s: %s: after %llu ms\n", hvd_rank(), hvd_status_text(rc),
           hvd_error_message(),
           (unsigned long long)((hb_now_ns() - *when) / 1000000));
    fflush(stdout);
    check(one(args[0]) < 0, "a later collective succeeded");
    check(hvd_shutdown() == 0, "shutdown after an error");
    return 0;
}

/* spin KIND FILE: runs collectives of KIND until killed; FILE.RANK appears
 * after the first. */
static int verb_spin(char **args)
{
    char path[4096];
    int fd;

    init();
    check(one(args[0]) == 0, "first");
    snprintf(path, sizeof(path), "%s.%d", args[1], hvd_rank());
    fd = open(path, O_CREAT | O_WRONLY, 0644);
    check(fd >= 0, path);
    close(fd);
    while (one(args[0]) == 0)
        ;
    return 1;
}

static int differ(const char *what)
{
    static float x[64], all[256];
    int odd = hvd_rank() == 1;
    struct hvd_options opts = HVD_OPTIONS_INIT;

    if (!strcmp(what, "count"))
        return hvd_allreduce(x, x, odd ? 32 : 16, HVD_FLOAT32, HVD_SUM, NULL);
    if (!strcmp(what, "dtype"))
        return hvd_allreduce(x, x, 16, odd ? HVD_INT32 : HVD_FLOAT32, HVD_SUM,
                             NULL);
    if (!strcmp(what, "op"))
        return hvd_allreduce(x, x, 16, HVD_FLOAT32, odd ? HVD_MAX : HVD_SUM,
                             NULL);
    if (!strcmp(what, "root"))
        return hvd_broadcast(x, x, 16, HVD_FLOAT32, odd ? 1 : 0, NULL);
    if (!strcmp(what, "scale")) {
        opts.prescale = odd ? 0.5 : 1.0;
        return hvd_allreduce(x, x, 16, HVD_FLOAT32, HVD_SUM, &opts);
    }
    if (odd)
        return hvd_barrier(NULL);
    return hvd_allgather(x, 16, all, 256, NULL, HVD_FLOAT32, NULL);
}

/* mismatch WHAT: rank 1 gives another WHAT; all ranks must get an error, and
 * can go on. */
static int verb_mismatch(char **args)
{
    int rc;

    init();
    check(sum(100) == 0, "before");
    rc = differ(args[0]);
    tell(rc);
    check(rc == -HVD_EMISMATCH, "not a mismatch");
    check(sum(100) == 0, "after");
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

/* skip: rank 1 leaves out the first of two ragged allgathers.  All ranks must
 * get an error, and can go on when rank 1 has caught up. */
static int verb_skip(char **args)
{
    static float x[64], all[256];
    size_t own, counts[64];
    int rc = 0;

    (void)args;
    init();
    own = (size_t)hvd_rank() + 1;
    if (hvd_rank() != 1)
        rc = hvd_allgather(x, own, all, 256, counts, HVD_FLOAT32, NULL);
    if (hvd_rank() == 1)
        rc = hvd_allgather(x, 2 * own, all, 256, counts, HVD_FLOAT32, NULL);
    tell(rc);
    check(sum(100) == 0, "after");
    check(hvd_shutdown() == 0, "shutdown");
    return rc == -HVD_EMISMATCH ? 0 : 1;
}

/* burst N: issues N bursts of small allreduces, with and without names, and one
 * that is large enough to be copied in several rounds. */
static int verb_burst(char **args)
{
    static const char *const names[] = {"a", "b", "c", NULL, NULL};
    static float x[5][300], large[1 << 18];
    hvd_request *reqs[5];

    init();
    for (long i = number(args[0]); i > 0; i--) {
        for (int k = 0; k < 5; k++)
            check(hvd_allreduce_async(names[k], x[k], x[k], 300, HVD_FLOAT32,
                                      HVD_SUM, NULL, &reqs[k]) == 0,
                  "async");
        for (int k = 0; k < 5; k++)
            check(hvd_wait(reqs[k]) == 0, "wait");
    }
    check(hvd_allreduce(large, large, 1 << 18, HVD_FLOAT32, HVD_SUM, NULL) == 0,
          "large");
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

static uint64_t cpu_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* idle SECONDS LIMIT_MS: does nothing for SECONDS after hvd_init, and checks
 * that this costs less CPU time than LIMIT_MS. */
static int verb_idle(char **args)
{
    struct timespec t = {.tv_sec = number(args[0])};
    uint64_t before;

    init();
    check(sum(1000) == 0, "status");
    before = cpu_us();
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
    before = cpu_us() - before;
    printf("rank %d: idle cost %llu us\n", hvd_rank(),
           (unsigned long long)before);
    check(before < (uint64_t)number(args[1]) * 1000, "idle cost");
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

static long wakeups(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

/* wait SECONDS: rank 1 comes SECONDS late; the others print what waiting
 * costs. */
static int verb_wait(char **args)
{
    struct timespec t = {.tv_sec = number(args[0])};
    uint64_t before;
    long woken;

    init();
    check(sum(1000) == 0, "status");
    before = cpu_us();
    woken = wakeups();
    if (hvd_rank() == 1)
        while (nanosleep(&t, &t) && errno == EINTR)
            ;
    check(sum(1000) == 0, "status");
    printf("rank %d: waiting cost %llu us and %ld sleeps\n", hvd_rank(),
           (unsigned long long)(cpu_us() - before), wakeups() - woken);
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

/* Stores the cores on which thread tid may run.  Returns whether it is libhvd's
 * thread. */
static int engine_cores(const char *tid, char *cores, size_t size)
{
    char path[300], line[256];
    int is_engine = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (!strcmp(line, "Name:\thvd-engine\n"))
            is_engine = 1;
        if (!strncmp(line, "Cpus_allowed_list:\t", 19))
            snprintf(cores, size, "%.*s", (int)strcspn(line + 19, "\n"),
                     line + 19);
    }
    if (f)
        fclose(f);
    return is_engine;
}

/* cores: prints the cores on which libhvd's thread may run, once it runs. */
static int verb_cores(char **args)
{
    const struct timespec t = {.tv_nsec = 1000000};
    char cores[64] = "";
    float x = 1;
    hvd_request *req;
    int found = 0;

    (void)args;
    init();
    check(hvd_allreduce_async("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL,
                              &req) == 0,
          "allreduce_async");
    check(hvd_wait(req) == 0, "wait");
    while (!found) {
        DIR *d = opendir("/proc/self/task");
        struct dirent *e;

        check(d != NULL, "/proc/self/task");
        while (!found && (e = readdir(d)))
            found = engine_cores(e->d_name, cores, sizeof(cores));
        closedir(d);
        nanosleep(&t, NULL);
    }
    printf("rank %d: hvd-engine on %s\n", hvd_rank(), cores);
    check(hvd_shutdown() == 0, "shutdown");
    return 0;
}

/* quit CODE: exits with CODE, without hvd_shutdown. */
static int verb_quit(char **args)
{
    init();
    check(sum(10) == 0, "status");
    return (int)number(args[0]);
}

static ssize_t write_late(void *cookie, const char *bytes, size_t len)
{
    (void)cookie;
    (void)bytes;
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    return (ssize_t)len;
}

/* Exits with a code, slowly: exit() flushes the stream `late` last, after the
 * destructors of libraries, so the process lives on while libhvd has left. */
static void exit_late(int code)
{
    FILE *late =
        fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_late});

    check(late && fputs("x", late) >= 0, "fopencookie");
    exit(code);
}

/* desert HOW RANK CODE: RANK leaves in the middle with CODE, by exit or after
 * hvd_shutdown, and its process takes 300 ms to end.  The others exit with 1 as
 * soon as they are told, by exit or _exit. */
static int verb_desert(char **args)
{
    init();
    if (hvd_rank() == number(args[1])) {
        check(sum(10) == 0, "before");
        if (!strcmp(args[0], "shutdown"))
            hvd_shutdown();
        exit_late((int)number(args[2]));
    }
    while (sum(10) == 0)
        ;
    fprintf(stderr, "rank %d: %s\n", hvd_rank(), hvd_error_message());
    if (!strcmp(args[0], "_exit"))
        _exit(1);
    return 1;
}

/* reinit HOW MS: rank 1 leaves in the middle.  The others shut down and call
 * hvd_init again, MS later, three times. */
static int verb_reinit(char **args)
{
    struct timespec pause = {.tv_nsec = number(args[1]) * 1000000};
    int rc, rank;

    init();
    signal(SIGTERM, SIG_IGN); /* hvdrun ends the job */
    rank = hvd_rank();
    if (rank == 1) {
        check(sum(10) == 0, "before");
        leave(args[0]);
    }
    while (sum(10) == 0)
        ;
    for (int i = 0; i < 3; i++) {
        uint64_t before;

        check(hvd_shutdown() == 0, "shutdown");
        nanosleep(&pause, NULL);
        before = hb_now_ns();
        rc = hvd_init();
        printf("rank %d: again: %s: %s: after %llu ms\n", rank,
               hvd_status_text(rc), rc ? hvd_error_message() : "",
               (unsigned long long)((hb_now_ns() - before) / 1000000));
        fflush(stdout);
    }
    return rc == -HVD_EPEER ? 0 : 1;
}

static const struct verb {
    const char *name;
    int args;
    int (*run)(char **args);
} verbs[] = {
    {"topo", 0, verb_topo},         {"gpu", 0, verb_gpu},
    {"sum", 2, verb_sum},           {"again", 1, verb_again},
    {"lose", 5, verb_lose},         {"spin", 2, verb_spin},
    {"mismatch", 1, verb_mismatch}, {"idle", 2, verb_idle},
    {"wait", 1, verb_wait},         {"quit", 1, verb_quit},
    {"exec", 1, verb_exec},         {"cores", 0, verb_cores},
    {"desert", 3, verb_desert},     {"skip", 0, verb_skip},
    {"reinit", 2, verb_reinit},     {"burst", 1, verb_burst},
    {"feature", 1, verb_feature},   {"trust", 3, verb_trust},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (argc > 1 + verbs[i].args && !strcmp(argv[1], verbs[i].name))
            return verbs[i].run(argv + 2);
    fprintf(stderr, "usage: coll VERB ARGS...\n");
    return 99;
}
