/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction kernels: every tier that this CPU has, bit for bit, against a
 * scalar reference that shares no code with them, one element at a time.
 */
#include "runtime/plane/kernels/reduce.h"
#include "tests/unit/reduce_reference.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 64 };

static const enum hvd_op all_ops[] = {HVD_SUM,     HVD_MIN,  HVD_MAX,
                                      HVD_PRODUCT, HVD_BAND, HVD_BOR};
enum { NOPS = sizeof(all_ops) / sizeof(all_ops[0]) };
enum { NTIERS = HVD__SIMD_AVX512 + 1 };

/* ---- Trials ---------------------------------------------------------- */

/* Returns a bit pattern at or next to an edge of a float format. */
static uint64_t edge_bits(enum hvd_dtype t)
{
    int width = 8 * (int)elem_size[t];
    int mant = t == HVD_FLOAT16    ? 10
               : t == HVD_BFLOAT16 ? 7
               : t == HVD_FLOAT32  ? 23
                                   : 52;
    uint64_t one = (uint64_t)((1 << (width - mant - 2)) - 1) << mant;
    uint64_t inf = (one << 1) + (UINT64_C(1) << mant);
    uint64_t edges[] = {0,
                        1,
                        (UINT64_C(1) << mant) - 1,
                        UINT64_C(1) << mant,
                        one,
                        one + 1,
                        inf - 1,
                        inf,
                        inf + 1,
                        inf + (UINT64_C(1) << (mant - 1)) + 5};
    uint64_t pick = edges[unit_random() % (sizeof(edges) / sizeof(edges[0]))];

    return pick | (unit_random() & 1) << (width - 1);
}

enum fill {
    FILL_BITS,  /* any bit pattern */
    FILL_MILD,  /* floats of similar size: sums round, not saturate */
    FILL_EDGES, /* zeros, denormals, infinities, NaNs, the largest */
    NFILLS
};

static void fill(enum hvd_dtype t, enum fill how, char *p, size_t count)
{
    for (size_t i = 0; i < count; i++, p += elem_size[t]) {
        uint64_t bits = unit_random();

        if (t == HVD_BOOL)
            bits = unit_random() % 3 ? 0 : bits;
        if (is_float(t) && how == FILL_EDGES && unit_random() % 4)
            bits = edge_bits(t);
        if (is_float(t) && how == FILL_MILD)
            put_float(t, p, (double)(bits >> 11) * 0x1p-50 - 4);
        else
            memcpy(p, &bits, elem_size[t]);
    }
}

struct trial {
    enum hvd_dtype dtype;
    enum hvd_op op;
    int nsrc;
    size_t count;
    size_t skew;  /* elements past alignment; per buffer */
    int in_place; /* index of the source that is dst; -1: none */
    enum fill fill;
    struct hvd__reduce_args args;
};

/* Memory for all trials of a test; grows, and is freed with the process. */
struct arena {
    char *mem;
    size_t cap;
    const void *srcs[MAX_SRCS];
    char *dst, *saved, *expected;
    size_t bytes;
};

static char *take(char **next, size_t bytes)
{
    char *p = *next;

    *next += (bytes + 63) / 64 * 64;
    return p;
}

static void arena_init(struct arena *a, const struct trial *t)
{
    size_t size = elem_size[t->dtype], bytes = t->count * size;
    size_t slot = bytes + 64 * size + 2 * GUARD + 64;
    size_t need = ((size_t)t->nsrc + 3) * slot;
    char *next;

    if (a->cap < need) {
        free(a->mem);
        a->mem = malloc(a->cap = 2 * need);
        ck_assert_ptr_nonnull(a->mem);
    }
    next = a->mem + (64 - (uintptr_t)a->mem % 64);
    a->bytes = bytes;
    for (int k = 0; k <= t->nsrc; k++) {
        size_t skew = (t->skew * (size_t)(k + 1)) % 64 * size;

        a->dst = take(&next, slot - 64) + GUARD + skew;
        memset(a->dst - GUARD, 0x5a, GUARD);
        memset(a->dst + bytes, 0x5a, GUARD);
        if (k < t->nsrc) {
            a->srcs[k] = a->dst;
            fill(t->dtype, t->fill, a->dst, t->count);
        }
    }
    a->expected = take(&next, bytes);
    a->saved = take(&next, bytes);
}

static void say_difference(const struct trial *t, int tier,
                           const struct arena *a, const char *dst)
{
    size_t i = 0, size = elem_size[t->dtype];
    uint64_t got = 0, want = 0;

    while (memcmp(dst + i * size, a->expected + i * size, size) == 0)
        i++;
    memcpy(&got, dst + i * size, size);
    memcpy(&want, a->expected + i * size, size);
    ck_abort_msg("tier %d dtype %d op %d nsrc %d count %zu skew %zu "
                 "in place %d fill %d pre %g post %g div %d stream %d: "
                 "element %zu is %#jx, not %#jx",
                 tier, (int)t->dtype, (int)t->op, t->nsrc, t->count, t->skew,
                 t->in_place, (int)t->fill, t->args.pre, t->args.post,
                 t->args.divisor, t->args.stream, i, (uintmax_t)got,
                 (uintmax_t)want);
}

static void check_tier(const struct trial *t, int tier, struct arena *a)
{
    hvd__reduce_fn *fn =
        hvd__reduce_get_tier(t->dtype, t->op, (enum hvd__simd)tier);
    char *dst = a->dst;

    if (!fn)
        return;
    if (t->in_place >= 0) {
        dst += (const char *)a->srcs[t->in_place] - dst;
        memcpy(a->saved, dst, a->bytes);
    }
    fn(dst, a->srcs, t->nsrc, t->count, &t->args);
    if (memcmp(dst, a->expected, a->bytes) != 0)
        say_difference(t, tier, a, dst);
    for (size_t i = 0; i < GUARD; i++)
        if (dst[-1 - (ptrdiff_t)i] != 0x5a || dst[a->bytes + i] != 0x5a)
            ck_abort_msg("tier %d dtype %d: wrote beyond %zu elements", tier,
                         (int)t->dtype, t->count);
    if (t->in_place >= 0)
        memcpy(dst, a->saved, a->bytes);
}

static void run_trial(const struct trial *t)
{
    static struct arena a;

    if (!hvd__reduce_get_tier(t->dtype, t->op, HVD__SIMD_PORTABLE))
        return;
    arena_init(&a, t);
    reference(t->dtype, t->op, a.expected, a.srcs, t->nsrc, t->count, &t->args);
    for (int tier = 0; tier < NTIERS; tier++)
        check_tier(t, tier, &a);
}

/* Runs a trial for every op and every fill. */
static void run_trials(struct trial t)
{
    for (int o = 0; o < NOPS; o++)
        for (int f = 0; f < NFILLS; f++) {
            t.op = all_ops[o];
            t.fill = (enum fill)f;
            run_trial(&t);
        }
}

static struct trial trial(int dtype, int nsrc, size_t count)
{
    return (struct trial){.dtype = (enum hvd_dtype)dtype,
                          .nsrc = nsrc,
                          .count = count,
                          .in_place = -1,
                          .args = {.pre = 1, .post = 1, .divisor = 1}};
}

START_TEST(test_lengths)
{
    for (size_t n = 0; n <= 70; n++)
        for (int nsrc = 1; nsrc <= 3; nsrc++)
            run_trials(trial(_i, nsrc, n));
    for (size_t n = 255; n <= 1025; n += 77)
        run_trials(trial(_i, 2, n));
    run_trials(trial(_i, 2, 20011));
}
END_TEST

START_TEST(test_sources)
{
    static const int counts[] = {4, 5, 7, 8, 9, 16, 17, 63, 64};

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        run_trials(trial(_i, counts[c], 7));
        run_trials(trial(_i, counts[c], 131));
    }
    run_trials(trial(_i, 9, 9001));
    run_trials(trial(_i, 64, 4099));
}
END_TEST

START_TEST(test_misaligned)
{
    for (size_t skew = 1; skew < 16; skew++) {
        struct trial t = trial(_i, 3, 150 + skew);

        t.skew = skew;
        run_trials(t);
    }
}
END_TEST

START_TEST(test_in_place)
{
    static const int nsrcs[] = {1, 2, 3, 8, 9, 20};
    static const size_t counts[] = {1, 5, 33, 127, 128, 300, 9001};

    for (size_t s = 0; s < sizeof(nsrcs) / sizeof(nsrcs[0]); s++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            struct trial t = trial(_i, nsrcs[s], counts[c]);

            t.skew = c;
            for (t.in_place = 0;
                 t.in_place<t.nsrc; t.in_place += t.nsrc> 3 ? t.nsrc - 1 : 1)
                run_trials(t);
        }
}
END_TEST

START_TEST(test_scaled)
{
    static const struct hvd__reduce_args scales[] = {
        {1, 1, 2, 0},          {1, 1, 3, 0},      {1, 1, 64, 0},
        {1, 1, 1000, 0},       {0.5, 1, 1, 0},    {1, 0.3, 1, 0},
        {3.7, 1, 7, 0},        {1, 2.5, 4, 0},    {-0.1, -1e3, 3, 0},
        {1e300, 1, 1, 0},      {1, 1e-300, 1, 0}, {0, 1, 1, 0},
        {(double)NAN, 1, 1, 0}};

    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++)
        for (int nsrc = 1; nsrc <= 10; nsrc += nsrc < 3 ? 1 : 7) {
            struct trial t = trial(_i, nsrc, 93);

            t.args = scales[s];
            run_trials(t);
            t.in_place = nsrc - 1;
            t.count = 13;
            run_trials(t);
        }
}
END_TEST

START_TEST(test_streamed)
{
    for (size_t skew = 0; skew < 5; skew++)
        for (int nsrc = 1; nsrc <= 9; nsrc += 4) {
            struct trial t = trial(_i, nsrc, 5000 + 999 * skew);

            t.skew = skew;
            t.args.stream = 1;
            run_trials(t);
            t.in_place = 0;
            t.args.divisor = nsrc;
            run_trials(t);
        }
}
END_TEST

/* All 65536 half-precision values, and every rounding boundary between two. */
START_TEST(test_halves_exhaustive)
{
    enum { ALL = 65536 };
    struct hvd__reduce_args args = {.pre = 1, .post = 1, .divisor = 2};
    uint16_t *in = malloc(ALL * 2), *next = malloc(ALL * 2);
    uint16_t *out = malloc(ALL * 2), *want = malloc(ALL * 2);
    const void *srcs[2] = {in, next};

    ck_assert(in && next && out && want);
    for (int i = 0; i < ALL; i++) {
        in[i] = (uint16_t)i;
        next[i] = (uint16_t)(i + 1);
    }
    for (int nsrc = 1; nsrc <= 2; nsrc++) {
        args.divisor = nsrc;
        reference((enum hvd_dtype)_i, HVD_SUM, (char *)want, srcs, nsrc, ALL,
                  &args);
        for (int tier = 0; tier < NTIERS; tier++) {
            hvd__reduce_fn *fn = hvd__reduce_get_tier(
                (enum hvd_dtype)_i, HVD_SUM, (enum hvd__simd)tier);

            if (!fn)
                continue;
            fn(out, srcs, nsrc, ALL, &args);
            for (int i = 0; i < ALL; i++)
                if (out[i] != want[i])
                    ck_abort_msg("tier %d nsrc %d: %#x gives %#x, not %#x",
                                 tier, nsrc, (unsigned)i, (unsigned)out[i],
                                 (unsigned)want[i]);
        }
    }
    free(in);
    free(next);
    free(out);
    free(want);
}
END_TEST

/* Sums of many inputs must be rounded once, not between blocks. */
START_TEST(test_half_rounds_once)
{
    struct hvd__reduce_args args = {.pre = 1, .post = 1, .divisor = 1};
    uint16_t one = 0x3c00, big = 0x6800 /* 2048: ulp 2 */, out[1];
    const void *srcs[MAX_SRCS] = {&big};

    for (int k = 1; k < MAX_SRCS; k++)
        srcs[k] = &one;
    hvd__reduce_get(HVD_FLOAT16, HVD_SUM)(out, srcs, 63, 1, &args);
    ck_assert_uint_eq(out[0], 0x6800 + 31); /* 2110 */
}
END_TEST

START_TEST(test_undefined_pairs)
{
    static const enum hvd_dtype floats[] = {HVD_FLOAT16, HVD_BFLOAT16,
                                            HVD_FLOAT32, HVD_FLOAT64};

    for (int i = 0; i < 4; i++) {
        ck_assert_ptr_null(hvd__reduce_get(floats[i], HVD_BAND));
        ck_assert_ptr_null(hvd__reduce_get(floats[i], HVD_BOR));
        ck_assert_ptr_nonnull(hvd__reduce_get(floats[i], HVD_AVERAGE));
    }
    ck_assert_ptr_null(hvd__reduce_get(HVD_BOOL, HVD_AVERAGE));
    ck_assert_ptr_nonnull(hvd__reduce_get(HVD_BOOL, HVD_BAND));
    ck_assert_ptr_null(hvd__reduce_get((enum hvd_dtype)11, HVD_SUM));
    ck_assert_ptr_null(hvd__reduce_get((enum hvd_dtype) - 1, HVD_SUM));
    ck_assert_ptr_null(hvd__reduce_get(HVD_FLOAT32, (enum hvd_op)2));
    ck_assert_ptr_null(hvd__reduce_get(HVD_FLOAT32, (enum hvd_op)8));
    ck_assert_ptr_null(
        hvd__reduce_get_tier(HVD_INT8, HVD_SUM, (enum hvd__simd)3));
    ck_assert_ptr_eq(hvd__reduce_get(HVD_INT64, HVD_AVERAGE),
                     hvd__reduce_get(HVD_INT64, HVD_SUM));
}
END_TEST

static hvd__reduce_fn *asked(const char *tier)
{
    ck_assert_int_eq(setenv("HVD_SIMD", tier, 1), 0);
    return hvd__reduce_get(HVD_FLOAT32, HVD_SUM);
}

static hvd__reduce_fn *best(void)
{
    hvd__reduce_fn *fn = NULL;

    for (int tier = NTIERS - 1; tier >= 0 && !fn; tier--)
        fn = hvd__reduce_get_tier(HVD_FLOAT32, HVD_SUM, (enum hvd__simd)tier);
    return fn;
}

START_TEST(test_knob_portable)
{
    ck_assert_ptr_eq(
        asked("portable"),
        hvd__reduce_get_tier(HVD_FLOAT32, HVD_SUM, HVD__SIMD_PORTABLE));
    ck_assert_msg(asked("avx2") == asked("portable"), "read more than once");
}
END_TEST

START_TEST(test_knob_unknown)
{
    ck_assert_ptr_eq(asked("sse9"), best());
}
END_TEST

#ifdef __x86_64__
enum { NO_PTRACE = 77, MAX_STEPS = 100000 };

/* Calls hvd__reduce_get twice, and stops before and after the second call. */
static void look_up_again(void)
{
    setenv("HVD_SIMD", "avx2", 1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(NO_PTRACE);
    if (!hvd__reduce_get(HVD_FLOAT32, HVD_SUM))
        _exit(1);
    raise(SIGSTOP);
    if (!hvd__reduce_get(HVD_FLOAT32, HVD_SUM))
        _exit(1);
    raise(SIGSTOP);
    _exit(0);
}

/* Waits until a traced process stops and returns the signal; 0 if it may not be
 * traced. */
static int stop_of(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PTRACE)
        return 0;
    ck_assert_msg(WIFSTOPPED(status), "status 0x%x", (unsigned)status);
    return WSTOPSIG(status);
}

/* CPUID takes 1 to 10 us in a virtual machine, and kernels are looked up for
 * each operation. */
START_TEST(test_looked_up_without_cpuid)
{
    struct user_regs_struct regs;
    pid_t pid = fork();
    int steps = 0, cpuids = 0, stop;

    if (pid == 0)
        look_up_again();
    stop = stop_of(pid);
    if (stop == 0)
        return;
    ck_assert_int_eq(stop, SIGSTOP);
    do {
        ck_assert_int_eq(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
        cpuids += (ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.rip, NULL) &
                   0xffff) == 0xa20f;
        steps++;
        ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
    } while (stop_of(pid) == SIGTRAP && steps < MAX_STEPS);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_gt(steps, 20);
    ck_assert_int_eq(cpuids, 0);
}
END_TEST
#endif

/* Copies plainly, with non-temporal stores, or to shared memory. */
static void copy(int how, void *dst, const void *src, size_t bytes)
{
    if (how == 2)
        hvd__copy_shared(dst, src, bytes);
    else
        hvd__copy(dst, src, bytes, how);
}

START_TEST(test_copy)
{
    static const size_t sizes[] = {0,    1,    63,   1023,  1024,
                                   4095, 4096, 4097, 100003};
    char *src = malloc(100200), *dst = malloc(100200);

    ck_assert(src && dst);
    fill(HVD_UINT8, FILL_BITS, src, 100200);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t skew = 0; skew < 80; skew += 13) {
            memset(dst, 0x5a, 100200);
            copy(_i, dst + 1 + skew, src + 80 - skew, sizes[s]);
            ck_assert_mem_eq(dst + 1 + skew, src + 80 - skew, sizes[s]);
            ck_assert(dst[skew] == 0x5a && dst[1 + skew + sizes[s]] == 0x5a);
        }
    copy(_i, NULL, NULL, 0);
    free(src);
    free(dst);
}
END_TEST

static Suite *reduce_suite(void)
{
    Suite *s = suite_create("reduce");
    TCase *kernels = tcase_create("kernels");
    TCase *choice = tcase_create("choice");

    tcase_set_timeout(kernels, 120);
    tcase_add_loop_test(kernels, test_lengths, 0, NDTYPES);
    tcase_add_loop_test(kernels, test_sources, 0, NDTYPES);
    tcase_add_loop_test(kernels, test_misaligned, 0, NDTYPES);
    tcase_add_loop_test(kernels, test_in_place, 0, NDTYPES);
    tcase_add_loop_test(kernels, test_scaled, 0, NDTYPES);
    tcase_add_loop_test(kernels, test_streamed, 0, NDTYPES);
    tcase_add_loop_test(kernels, test_halves_exhaustive, HVD_FLOAT16,
                        HVD_FLOAT16 + 1);
    tcase_add_loop_test(kernels, test_halves_exhaustive, HVD_BFLOAT16,
                        HVD_BFLOAT16 + 1);
    tcase_add_test(kernels, test_half_rounds_once);
    tcase_add_loop_test(kernels, test_copy, 0, 3);
    suite_add_tcase(s, kernels);
    tcase_add_test(choice, test_undefined_pairs);
    tcase_add_test(choice, test_knob_portable);
    tcase_add_test(choice, test_knob_unknown);
#ifdef __x86_64__
    tcase_add_test(choice, test_looked_up_without_cpuid);
#endif
    suite_add_tcase(s, choice);
    return s;
}

int main(void)
{
    return unit_run(reduce_suite());
}
