/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes that ranks must agree on, on each plane: of every kind of collective,
 * in groups and alone, blocking and not; and shapes that do not fit the call.
 */
#include "runtime/hvd.h"
#include "tests/unit/unit.h"
#include "tests/unit/world.h"

#include <stdlib.h>
#include <string.h>

static const char *const places[] = {"a", "aa", "ab", "aaa", "aabb", "abc"};
enum { PLACES = sizeof(places) / sizeof(places[0]), ELEMS = 6, MEMBERS = 3 };

static int run_on(const char *place, world_fn *body)
{
    struct world w = {.size = (int)strlen(place), .body = body, .place = place};

    return world_run_with(&w);
}

static int64_t flat[] = {6}, wide[] = {2, 3}, tall[] = {3, 2};
static const struct hvd_shape is_flat = {1, flat}, is_wide = {2, wide},
                              is_tall = {2, tall};

/* The kinds, alone and as a group of MEMBERS equal tensors. */
enum kind {
    ALLREDUCE,
    BROADCAST,
    ALLGATHER,
    ALLTOALL,
    REDUCESCATTER,
    GROUP_ALLREDUCE,
    GROUP_ALLGATHER,
    GROUP_REDUCESCATTER,
    KINDS
};

static int32_t in[ELEMS], out[MEMBERS][16 * ELEMS];

/* Queues an operation on ELEMS elements (of each member) and waits.
 * Reductions scatter rows of row_elems. */
static int carry_out(enum kind kind, const char *name,
                     const struct hvd_shape *shapes, size_t row_elems)
{
    const void *sends[MEMBERS] = {in, in, in};
    void *recvs[MEMBERS] = {out[0], out[1], out[2]};
    const size_t counts[MEMBERS] = {ELEMS, ELEMS, ELEMS};
    const size_t caps[MEMBERS] = {16 * ELEMS, 16 * ELEMS, 16 * ELEMS};
    const size_t rows[MEMBERS] = {ELEMS / row_elems, ELEMS / row_elems,
                                  ELEMS / row_elems};
    const size_t widths[MEMBERS] = {row_elems, row_elems, row_elems};
    size_t splits[16] = {ELEMS};
    struct hvd_options o = HVD_OPTIONS_INIT;
    hvd_request *r = NULL;
    int rc;

    o.shapes = shapes;
    switch (kind) {
    case ALLREDUCE:
        rc = hvd_allreduce_async(name, in, out[0], ELEMS, HVD_INT32, HVD_SUM,
                                 &o, &r);
        break;
    case BROADCAST:
        rc = hvd_broadcast_async(name, in, out[0], ELEMS, HVD_INT32, 0, &o, &r);
        break;
    case ALLGATHER:
        rc = hvd_allgather_async(name, in, ELEMS, out[0], 16 * ELEMS, NULL,
                                 HVD_INT32, &o, &r);
        break;
    case ALLTOALL:
        rc = hvd_alltoall_async(name, in, splits, ELEMS, out[0], 16 * ELEMS,
                                NULL, HVD_INT32, &o, &r);
        break;
    case REDUCESCATTER:
        rc = hvd_reducescatter_async(name, in, out[0], rows[0], row_elems,
                                     HVD_INT32, HVD_SUM, &o, &r);
        break;
    case GROUP_ALLREDUCE:
        rc = hvd_grouped_allreduce_async(name, MEMBERS, sends, recvs, counts,
                                         HVD_INT32, HVD_SUM, &o, &r);
        break;
    case GROUP_ALLGATHER:
        rc = hvd_grouped_allgather_async(name, MEMBERS, sends, counts, recvs,
                                         caps, NULL, HVD_INT32, &o, &r);
        break;
    default:
        rc =
            hvd_grouped_reducescatter_async(name, MEMBERS, sends, recvs, rows,
                                            widths, HVD_INT32, HVD_SUM, &o, &r);
        break;
    }
    return rc < 0 ? rc : hvd_wait(r);
}

/* Returns whether the last error names rank 0 and another one, and what each
 * of them has. */
static int says(const char *first, const char *second)
{
    const char *text = hvd_error_message(), *a, *b;

    a = strstr(text, "rank 0 ");
    b = a ? strstr(a + 1, "rank ") : NULL;
    return a && b && strstr(a, first) && strstr(a, first) < b &&
           strstr(b, second);
}

/* ---- Ranks that differ --------------------------------------------------- */

/* The last rank's shape differs in member `at`; or it gives none. */
static int differ_in(enum kind kind, const char *name, int at)
{
    const int is_odd = hvd_rank() == hvd_size() - 1;
    const int is_group = kind >= GROUP_ALLREDUCE;
    const int is_scatter = kind == REDUCESCATTER || kind == GROUP_REDUCESCATTER;
    int64_t cube[] = {2, 3, 1};
    struct hvd_shape s[MEMBERS] = {is_wide, is_wide, is_wide};
    char first[40];

    snprintf(first, sizeof(first), "[2, 3]%s%d", is_group ? " of member " : ",",
             at);
    if (!is_group)
        first[6] = '\0';
    if (is_odd)
        s[at] = is_scatter ? (struct hvd_shape){3, cube} : is_tall;
    want(carry_out(kind, name, s, 3) == -HVD_EMISMATCH);
    want(says(first, is_scatter ? "[2, 3, 1]" : "[3, 2]"));
    want(carry_out(kind, name, is_odd ? NULL : s, 3) == -HVD_EMISMATCH);
    want(says("shape [2, 3]", "no shape"));
    s[at] = is_wide;
    want(carry_out(kind, name, s, 3) == 0);
    want(carry_out(kind, name, NULL, 3) == 0);
    return 0;
}

static int differ_body(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    if (hvd_size() == 1) { /* nobody to differ from */
        for (int k = 0; k < KINDS; k++)
            want(carry_out((enum kind)k, NULL,
                           (struct hvd_shape[]){is_wide, is_wide, is_wide},
                           3) == 0);
        want(hvd_shutdown() == 0);
        return 0;
    }
    for (int step = 0; step < 3; step++)
        for (int k = 0; k < KINDS; k++) {
            want(differ_in((enum kind)k, NULL, 0) == 0);
            want(differ_in((enum kind)k, "w", 0) == 0);
            if (k >= GROUP_ALLREDUCE)
                want(differ_in((enum kind)k, "w", 1 + step % 2) == 0);
        }
    want(hvd_barrier(NULL) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_differ)
{
    ck_assert_int_eq(run_on(places[_i], differ_body), 0);
}
END_TEST

/* The first dimension of what is gathered may differ, and no other; the
 * number of dimensions may not. */
static int gather_body(int rank, void *arg)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    int64_t rows[] = {rank + 1, 3}, one[] = {3 * (rank + 1)};
    struct hvd_shape s = {2, rows};
    int32_t x[3 * 16], all[3 * 16 * 16];
    size_t n = (size_t)rank + 1, counts[16] = {0};

    (void)arg;
    memset(x, 0, sizeof(x));
    want(hvd_init() == 0);
    o.shapes = &s;
    for (int i = 0; i < 4; i++) {
        want(hvd_allgather(x, 3 * n, all, 3 * 16 * 16, counts, HVD_INT32, &o) ==
             0);
        for (int r = 0; r < hvd_size(); r++)
            want(counts[r] == 3 * ((size_t)r + 1));
    }
    if (rank)
        s = (struct hvd_shape){1, one};
    want(hvd_allgather(x, 3 * n, all, 3 * 16 * 16, NULL, HVD_INT32, &o) ==
         -HVD_EMISMATCH);
    want(says("[1, 3]", "[6]"));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_gather)
{
    ck_assert_int_eq(run_on(places[1 + _i], gather_body), 0);
}
END_TEST

/* A blocking call that repeats one without a shape, or with another shape, is
 * not taken for it. */
static int repeat_body(int rank, void *arg)
{
    struct hvd_options with = HVD_OPTIONS_INIT, *o;
    const struct hvd_shape *shapes[] = {NULL, &is_wide, &is_tall};

    (void)arg;
    want(hvd_init() == 0);
    for (int step = 0; step < 27; step++) {
        int mine = step % 3, other = step / 3 % 3;

        for (int i = 0; i < 3; i++)
            want(hvd_allreduce(in, out[0], ELEMS, HVD_INT32, HVD_SUM, NULL) ==
                 0);
        with.shapes = shapes[rank ? other : mine];
        o = with.shapes ? &with : NULL;
        want(hvd_allreduce(in, out[0], ELEMS, HVD_INT32, HVD_SUM, o) ==
             (mine == other ? 0 : -HVD_EMISMATCH));
    }
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_repeat)
{
    ck_assert_int_eq(run_on(places[1 + _i], repeat_body), 0);
}
END_TEST

/* A rank that has joined goes along with the others' shapes. */
static int joined_body(int rank, void *arg)
{
    const struct hvd_shape s[MEMBERS] = {is_wide, is_wide, is_wide};

    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < ELEMS; i++)
        in[i] = i + 1;
    for (int k = 0; k < KINDS && rank != 1; k++) {
        want(carry_out((enum kind)k, "j", s, 3) == 0);
        if (k == ALLREDUCE)
            for (int i = 0; i < ELEMS; i++)
                want(out[0][i] == (hvd_size() - 1) * (i + 1));
    }
    want(hvd_join(NULL, NULL) == 0);
    want(carry_out(ALLREDUCE, "j", rank ? &is_wide : &is_flat, 3) ==
         -HVD_EMISMATCH);
    want(says("[6]", "[2, 3]"));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_joined)
{
    ck_assert_int_eq(run_on(places[1 + _i], joined_body), 0);
}
END_TEST

/* Shapes of many and of large dimensions travel whole; messages are cut. */
static int long_body(int rank, void *arg)
{
    int64_t dims[HVD_NDIM_MAX];
    struct hvd_shape s = {HVD_NDIM_MAX, dims};

    (void)arg;
    want(hvd_init() == 0);
    for (int i = 0; i < HVD_NDIM_MAX; i++)
        dims[i] = 1;
    dims[HVD_NDIM_MAX - 1] = ELEMS;
    want(carry_out(ALLREDUCE, NULL, &s, 3) == 0);
    if (rank) {
        dims[HVD_NDIM_MAX - 1] = 1;
        dims[HVD_NDIM_MAX - 2] = ELEMS;
    }
    want(carry_out(ALLREDUCE, NULL, &s, 3) == -HVD_EMISMATCH);
    want(says("[1, 1, 1, ", ", ...]"));
    dims[0] = 0;
    dims[1] = rank ? INT64_MAX : INT64_MAX - 1;
    {
        struct hvd_options o = HVD_OPTIONS_INIT;

        o.shapes = &s;
        want(hvd_allreduce(NULL, NULL, 0, HVD_INT32, HVD_SUM, &o) ==
             -HVD_EMISMATCH);
    }
    want(says("[0, 9223372036854775806, ", "[0, 9223372036854775807, "));
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_long)
{
    ck_assert_int_eq(run_on(places[1 + _i], long_body), 0);
}
END_TEST

/* ---- Shapes that do not fit ---------------------------------------------- */

static int64_t huge[] = {INT64_MAX, INT64_MAX, 2}, less[] = {-2, -3},
               other[] = {7};

static const struct {
    struct hvd_shape shape;
    const char *says;
} bad[] = {
    {{-1, wide}, "ndim -1 is not in 0..64"},
    {{65, wide}, "ndim 65 is not in 0..64"},
    {{2, NULL}, "dims is NULL"},
    {{2, less}, "dimension 0 is -2"},
    {{3, huge}, "do not fit in memory"},
    {{1, other}, "it has 7 elements and the call 6"},
    {{0, NULL}, "it has 1 elements and the call 6"},
};

static int unfit_body(int rank, void *arg)
{
    struct hvd_options o = HVD_OPTIONS_INIT;
    struct hvd_shape s[MEMBERS] = {is_wide, is_wide, is_wide};

    (void)rank;
    (void)arg;
    want(hvd_init() == 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        s[2] = bad[i].shape;
        want(carry_out(ALLREDUCE, NULL, &s[2], 3) == -HVD_EINVAL);
        want(strstr(hvd_error_message(), bad[i].says));
        want(carry_out(GROUP_ALLREDUCE, NULL, s, 3) == -HVD_EINVAL);
        want(strstr(hvd_error_message(), "member 2"));
        o.shapes = &s[2];
        want(hvd_allreduce(in, out[0], ELEMS, HVD_INT32, HVD_SUM, &o) ==
             -HVD_EINVAL);
    }
    o.shapes = &is_flat;
    want(hvd_barrier(&o) == -HVD_EINVAL);
    want(hvd_join(NULL, &o) == -HVD_EINVAL);
    /* rows are the first dimension of a reducescatter */
    want(carry_out(REDUCESCATTER, NULL, &is_tall, 3) == -HVD_EINVAL);
    want(strstr(hvd_error_message(), "the number of rows, 2"));
    want(carry_out(REDUCESCATTER, NULL, &is_tall, 2) == 0);
    want(carry_out(REDUCESCATTER, NULL, &is_flat, 1) == 0);
    want(hvd_shutdown() == 0);
    return 0;
}

START_TEST(test_unfit)
{
    ck_assert_int_eq(run_on(places[_i], unfit_body), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shapes");
    TCase *tc = tcase_create("shapes");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_differ, 0, PLACES);
    tcase_add_loop_test(tc, test_gather, 0, PLACES - 1);
    tcase_add_loop_test(tc, test_repeat, 0, PLACES - 1);
    tcase_add_loop_test(tc, test_joined, 0, PLACES - 1);
    tcase_add_loop_test(tc, test_long, 0, PLACES - 1);
    tcase_add_loop_test(tc, test_unfit, 0, 3);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
