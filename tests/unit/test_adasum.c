/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adasum against a scalar tree in double, on planes whose ranks are threads.
 */
#include "runtime/plane/adasum.h"

#include "lib/base/alloc.h"
#include "runtime/plane/kernels/cast.h"
#include "tests/unit/thread_plane.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = THREAD_RANKS_MAX, TENSORS = 4 };

/* ---- A world ---------------------------------------------------------- */

struct rank {
    struct thread_plane fake;
    struct hvd__adasum adasum;
    struct hvd__op op;
    struct hb_error err;
    struct hvd__part parts[TENSORS];
    unsigned char *in, *out;
    int rounds; /* how often the operation is repeated */
    int rc;
};

struct trial {
    int n;
    enum hvd_dtype dtype;
    size_t tensor[TENSORS]; /* elements */
    int tensors;            /* 0: a direct call of tensor[0] elements */
    int in_place;
    double pre, post;
    double *values[RANKS_MAX]; /* of each rank */
    struct rank rank[RANKS_MAX];
    struct thread_group group;
};

static size_t count_of(const struct trial *t)
{
    size_t count = t->tensor[0];

    for (int i = 1; i < t->tensors; i++)
        count += t->tensor[i];
    return count;
}

static void put(enum hvd_dtype t, void *to, const double *v, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (t == HVD_FLOAT32)
            ((float *)to)[i] = (float)v[i];
    if (t == HVD_FLOAT64 && count)
        memcpy(to, v, count * sizeof(double));
    if (t == HVD_FLOAT16 || t == HVD_BFLOAT16)
        hvd__cast_get(t, HVD_FLOAT64)(to, v, count, 1.0);
}

static void get(enum hvd_dtype t, double *v, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (t == HVD_FLOAT32)
            v[i] = (double)((const float *)from)[i];
    if (t == HVD_FLOAT64 && count)
        memcpy(v, from, count * sizeof(double));
    if (t == HVD_FLOAT16 || t == HVD_BFLOAT16)
        hvd__cast_get(HVD_FLOAT64, t)(v, from, count, 1.0);
}

static void set_parts(const struct trial *t, struct rank *r)
{
    size_t bytes = hvd_dtype_size(t->dtype), first = 0;

    for (int i = 0; i < t->tensors; i++) {
        r->parts[i] =
            (struct hvd__part){r->in + first * bytes, r->out + first * bytes,
                               first, t->tensor[i], NULL};
        first += t->tensor[i];
    }
    r->op.parts = t->tensors ? r->parts : NULL;
    r->op.nparts = (size_t)t->tensors;
    r->op.sendbuf = t->tensors ? NULL : r->in;
    r->op.recvbuf = t->tensors ? NULL : r->out;
}

/* Prepares a trial; makes random values unless they are set. */
static void trial_init(struct trial *t)
{
    size_t count = count_of(t), bytes = hvd_dtype_size(t->dtype);

    thread_group_init(&t->group, t->n);
    for (int k = 0; k < t->n; k++) {
        struct rank *r = &t->rank[k];

        if (!t->values[k])
            t->values[k] = calloc(count + 1, sizeof(double));
        thread_plane_init(&r->fake, &t->group, k);
        r->rounds = 1;
        r->in = malloc(count * bytes + 1);
        put(t->dtype, r->in, t->values[k], count);
        r->out = t->in_place ? r->in : malloc(count * bytes + 1);
        if (!t->in_place)
            memset(r->out, 0xee, count * bytes + 1);
        r->op = (struct hvd__op){.kind = HVD__ALLREDUCE,
                                 .dtype = t->dtype,
                                 .part_dtype = t->dtype,
                                 .op = HVD_ADASUM,
                                 .name = "",
                                 .signature = 77,
                                 .first_signature = 66,
                                 .entries = 1,
                                 .count = count,
                                 .elem_bytes = bytes,
                                 .args = {t->pre, t->post, 1, 0},
                                 .err = &r->err};
        set_parts(t, r);
    }
}

static void trial_fini(struct trial *t)
{
    for (int k = 0; k < t->n; k++) {
        hvd__adasum_fini(&t->rank[k].adasum);
        hvd__adasum_fini(&t->rank[k].adasum);
        if (!t->in_place)
            free(t->rank[k].out);
        free(t->rank[k].in);
        free(t->values[k]);
    }
    thread_group_fini(&t->group);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct thread_plane *f = &r->fake;

    for (int i = 0; i < r->rounds; i++) {
        f->begun = 0;
        r->rc = hvd__adasum_begin(&r->adasum, &f->plane, &r->op, f->group->n,
                                  f->me);
        while (r->rc == 0)
            r->rc = hvd__adasum_progress(&r->adasum);
    }
    return NULL;
}

static void trial_run(struct trial *t)
{
    pthread_t thread[RANKS_MAX];

    for (int k = 0; k < t->n; k++)
        ck_assert_int_eq(
            pthread_create(&thread[k], NULL, rank_main, &t->rank[k]), 0);
    for (int k = 0; k < t->n; k++)
        pthread_join(thread[k], NULL);
}

/* ---- The reference ---------------------------------------------------- */

static double dot(const double *x, const double *y, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

static void pair(double *x, const double *y, size_t count)
{
    double xx = dot(x, x, count), yy = dot(y, y, count);
    double xy = dot(x, y, count);
    double f = xx < sqrt(2.2250738585072014e-308) ? 1 : 1 - xy / (2 * xx);
    double g = yy < sqrt(2.2250738585072014e-308) ? 1 : 1 - xy / (2 * yy);

    for (size_t i = 0; i < count; i++)
        x[i] = f * x[i] + g * y[i];
}

/* Combines n vectors level by level; the result is v[0]. */
static void reference(double **v, int n, size_t count)
{
    int left = n;

    while (left > 1) {
        for (int i = 0; i < left / 2; i++) {
            pair(v[2 * i], v[2 * i + 1], count);
            if (i)
                memcpy(v[i], v[2 * i], count * sizeof(double));
        }
        if (left % 2)
            memcpy(v[left / 2], v[left - 1], count * sizeof(double));
        left = left / 2 + left % 2;
    }
}

static void want(const struct trial *t, double *out)
{
    size_t count = count_of(t), first = 0;
    int tensors = t->tensors ? t->tensors : 1;

    for (int i = 0; i < tensors; i++) {
        double *v[RANKS_MAX];

        for (int k = 0; k < t->n; k++) {
            v[k] = calloc(count + 1, sizeof(double));
            memcpy(v[k], t->values[k] + first, t->tensor[i] * sizeof(double));
            for (size_t e = 0; e < t->tensor[i]; e++)
                v[k][e] *= t->pre;
        }
        reference(v, t->n, t->tensor[i]);
        for (size_t e = 0; e < t->tensor[i]; e++)
            out[first + e] = v[0][e] * t->post;
        for (int k = 0; k < t->n; k++)
            free(v[k]);
        first += t->tensor[i];
    }
}

static double precision(enum hvd_dtype t)
{
    return t == HVD_FLOAT64    ? 1e-12
           : t == HVD_FLOAT32  ? 1e-5
           : t == HVD_BFLOAT16 ? 1e-2
                               : 2e-3;
}

static void check_result(const struct trial *t)
{
    size_t count = count_of(t), bytes = hvd_dtype_size(t->dtype);
    double *expected = calloc(count + 1, sizeof(double));
    double *got = calloc(count + 1, sizeof(double));

    want(t, expected);
    get(t->dtype, got, t->rank[0].out, count);
    for (int k = 0; k < t->n; k++) {
        ck_assert_int_eq(t->rank[k].rc, 1);
        ck_assert_int_eq(memcmp(t->rank[k].out, t->rank[0].out, count * bytes),
                         0);
    }
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - expected[i]) <=
                          precision(t->dtype) * (1 + fabs(expected[i])),
                      "n %d, %s: element %zu of %zu is %g, not %g", t->n,
                      hvd_dtype_name(t->dtype), i, count, got[i], expected[i]);
    free(expected);
    free(got);
}

/* ---- Tests ------------------------------------------------------------ */

static double rnd(void)
{
    return (double)(unit_random() >> 44) / (1 << 20) - 0.4;
}

/* Draws values that the dtype can represent, so that the reference starts
 * equal. */
static void random_values(struct trial *t)
{
    size_t count = count_of(t);
    unsigned char *as_sent = malloc(count * sizeof(double) + 1);

    for (int k = 0; k < t->n; k++) {
        t->values[k] = calloc(count + 1, sizeof(double));
        for (size_t i = 0; i < count; i++)
            t->values[k][i] = rnd();
        put(t->dtype, as_sent, t->values[k], count);
        get(t->dtype, t->values[k], as_sent, count);
    }
    free(as_sent);
}

static void try_it(struct trial *t)
{
    random_values(t);
    trial_init(t);
    trial_run(t);
    check_result(t);
    trial_fini(t);
}

static const enum hvd_dtype floats[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32,
                                        HVD_FLOAT64};

/* Sizes below and above the limit for whole vectors, in place or not. */
START_TEST(any_number_of_ranks)
{
    static const size_t sizes[] = {0, 1, 3, 1000, 40001};

    for (int n = 1; n <= RANKS_MAX; n++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            struct trial t = {.n = n,
                              .dtype = floats[_i],
                              .tensor = {sizes[s]},
                              .in_place = (n + (int)s) % 2,
                              .pre = 1,
                              .post = 1};

            try_it(&t);
        }
}
END_TEST

START_TEST(every_tensor_by_itself)
{
    static const size_t shapes[][TENSORS] = {
        {1, 0, 7, 200}, {5000, 0, 1, 40000}, {3, 70000, 12, 12}};

    for (int n = 2; n <= RANKS_MAX; n += 3)
        for (size_t s = 0; s < 3; s++) {
            struct trial t = {.n = n,
                              .dtype = floats[_i],
                              .tensors = TENSORS,
                              .in_place = (int)s % 2,
                              .pre = 1,
                              .post = 1};

            memcpy(t.tensor, shapes[s], sizeof(t.tensor));
            try_it(&t);
        }
}
END_TEST

START_TEST(scales)
{
    for (size_t count = 10; count < 100000; count *= 9000) {
        struct trial t = {.n = 3,
                          .dtype = floats[_i],
                          .tensor = {count},
                          .pre = 0.5,
                          .post = -4};

        try_it(&t);
    }
}
END_TEST

static double *constant(size_t count, double even, double odd)
{
    double *v = calloc(count + 1, sizeof(double));

    for (size_t i = 0; i < count; i++)
        v[i] = i % 2 ? odd : even;
    return v;
}

/* Orthogonal vectors are added and equal ones averaged.  Zeros, and the -0.0 of
 * a joined rank, do not change a bit. */
START_TEST(what_it_means)
{
    static const double in[][4] = {/* x even, odd, y even, odd */
                                   {3, 0, 0, 5},
                                   {3, 5, 3, 5},
                                   {3, 5, -0.0, -0.0},
                                   {-0.0, -0.0, -0.0, -0.0},
                                   {1e-200, 0, 1e-200, 1e-200}};
    static const double out[][2] = {
        {3, 5}, {3, 5}, {3, 5}, {-0.0, -0.0}, {2e-200, 1e-200}};

    for (size_t c = 0; c < sizeof(in) / sizeof(in[0]); c++)
        for (size_t count = 4; count <= 40000; count *= 10000) {
            struct trial t = {.n = 2,
                              .dtype = HVD_FLOAT64,
                              .tensor = {count},
                              .pre = 1,
                              .post = 1};
            const double *got;

            t.values[0] = constant(count, in[c][0], in[c][1]);
            t.values[1] = constant(count, in[c][2], in[c][3]);
            trial_init(&t);
            trial_run(&t);
            got = (const double *)(const void *)t.rank[1].out;
            ck_assert(got[0] == out[c][0] && got[1] == out[c][1]);
            ck_assert_int_eq(!signbit(got[0]), !signbit(out[c][0]));
            trial_fini(&t);
        }
}
END_TEST

START_TEST(nan_stays)
{
    struct trial t = {
        .n = 3, .dtype = HVD_FLOAT32, .tensor = {40000}, .pre = 1, .post = 1};
    const float *got;

    random_values(&t);
    t.values[1][7] = (double)NAN;
    trial_init(&t);
    trial_run(&t);
    for (int k = 0; k < t.n; k++) {
        got = (const float *)(const void *)t.rank[k].out;
        ck_assert(isnan(got[7]));
        ck_assert_int_eq(memcmp(got, t.rank[0].out, 40000 * sizeof(*got)), 0);
    }
    trial_fini(&t);
}
END_TEST

START_TEST(again_in_the_same_memory)
{
    struct trial t = {
        .n = 4, .dtype = HVD_FLOAT32, .tensor = {30000}, .pre = 1, .post = 1};

    random_values(&t);
    trial_init(&t);
    for (int k = 0; k < t.n; k++)
        t.rank[k].rounds = 3;
    trial_run(&t);
    check_result(&t);
    trial_fini(&t);
}
END_TEST

/* The first operation has the caller's signature.  The signatures of the others
 * follow from it and are the same on all ranks. */
START_TEST(signatures)
{
    for (size_t count = 8; count <= 80000; count *= 10000) {
        struct trial t = {.n = 5,
                          .dtype = HVD_FLOAT32,
                          .tensor = {count},
                          .pre = 1,
                          .post = 1};
        const struct thread_plane *f = &t.rank[0].fake;

        random_values(&t);
        trial_init(&t);
        for (int k = 0; k < t.n; k++)
            t.rank[k].op.entries = 3;
        trial_run(&t);
        ck_assert_int_eq(f->begun, count == 8 ? 1 : 5);
        ck_assert(f->kind[0] == (count == 8 ? HVD__ALLGATHER : HVD__ALLTOALL));
        ck_assert(f->signature[0] == 77 && f->first_signature[0] == 66);
        ck_assert_uint_eq(f->entries[0], 3);
        ck_assert_ptr_nonnull(t.rank[0].op.trace.algorithm);
        for (int i = 1; i < f->begun; i++) {
            for (int k = 0; k < i; k++)
                ck_assert(f->signature[i] != f->signature[k]);
            for (int k = 1; k < t.n; k++)
                ck_assert(f->signature[i] == t.rank[k].fake.signature[i]);
        }
        trial_fini(&t);
    }
}
END_TEST

static void check_untouched(struct trial *t, int rc)
{
    size_t bytes = count_of(t) * hvd_dtype_size(t->dtype);

    for (int k = 0; k < t->n; k++) {
        ck_assert_int_eq(t->rank[k].rc, rc);
        for (size_t i = 0; i < bytes; i++)
            ck_assert_uint_eq(t->rank[k].out[i], 0xee);
    }
}

START_TEST(ranks_disagree)
{
    for (size_t count = 8; count <= 80000; count *= 10000) {
        struct trial t = {.n = 3,
                          .dtype = HVD_FLOAT32,
                          .tensor = {count},
                          .pre = 1,
                          .post = 1};

        trial_init(&t);
        t.rank[1].op.signature = 5;
        t.rank[0].op.entries = 4;
        t.rank[1].op.entries = 2;
        t.rank[2].op.entries = 3;
        trial_run(&t);
        check_untouched(&t, HVD__CUT);
        for (int k = 0; k < t.n; k++)
            ck_assert_uint_eq(t.rank[k].op.agreed_entries, 2);
        t.rank[1].op.first_signature = 6;
        trial_run(&t);
        check_untouched(&t, -HVD_EMISMATCH);
        trial_fini(&t);
    }
}
END_TEST

START_TEST(plane_fails)
{
    for (int at = 0; at < 4; at++) {
        struct trial t = {.n = 3,
                          .dtype = HVD_FLOAT32,
                          .tensor = {80000},
                          .pre = 1,
                          .post = 1};

        trial_init(&t);
        for (int k = 0; k < t.n; k++)
            t.rank[k].fake.fail_at = at;
        trial_run(&t);
        check_untouched(&t, -HVD_EPEER);
        ck_assert_str_eq(t.rank[0].err.text, "rank 1 is dead");
        trial_fini(&t);
    }
}
END_TEST

START_TEST(no_memory)
{
    struct trial t = {
        .n = 1, .dtype = HVD_FLOAT16, .tensor = {8}, .pre = 1, .post = 1};
    struct rank *r = &t.rank[0];

    trial_init(&t);
    hb_alloc_fail_after(0);
    rank_main(r);
    ck_assert_int_eq(hb_alloc_fail_after(-1), 1);
    check_untouched(&t, -HVD_ENOMEM);
    ck_assert_int_eq(r->err.status, -HVD_ENOMEM);
    ck_assert_int_eq(r->fake.begun, 0);
    r->op.count = SIZE_MAX / 4;
    hb_error_clear(&r->err);
    rank_main(r);
    ck_assert_int_eq(r->rc, -HVD_ENOMEM);
    trial_fini(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adasum");
    TCase *tc = tcase_create("adasum");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, any_number_of_ranks, 0, 4);
    tcase_add_loop_test(tc, every_tensor_by_itself, 0, 4);
    tcase_add_loop_test(tc, scales, 0, 4);
    tcase_add_test(tc, what_it_means);
    tcase_add_test(tc, nan_stays);
    tcase_add_test(tc, again_in_the_same_memory);
    tcase_add_test(tc, signatures);
    tcase_add_test(tc, ranks_disagree);
    tcase_add_test(tc, plane_fails);
    tcase_add_test(tc, no_memory);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
