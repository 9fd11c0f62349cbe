/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-bench: its command line, and the data that it checks results with. */
#include "cmd/hvd-bench/bench_options.h"
#include "cmd/hvd-bench/data.h"
#include "cmd/hvd-bench/measure.h"
#include "cmd/hvd-bench/resnet50.h"
#include "cmd/hvd-bench/work.h"
#include "runtime/plane/kernels/reduce.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splits a command line at blanks and parses it. */
static int parse(struct bench_options *o, const char *line,
                 struct hb_error *err)
{
    char text[4096], *next = text, *word;
    char *argv[64];
    int n = 0;

    ck_assert_uint_lt(strlen(line), sizeof(text));
    strcpy(text, line);
    while ((word = strsep(&next, " ")) && *word)
        argv[n++] = word;
    argv[n] = NULL;
    hb_error_clear(err);
    return bench_options_parse(o, argv, err);
}

static struct bench_options good(const char *line)
{
    struct hb_error err;
    struct bench_options o;

    ck_assert_msg(parse(&o, line, &err) == 0, "%s: %s", line, err.text);
    return o;
}

static void bad(const char *line, const char *part)
{
    struct hb_error err;
    struct bench_options o;

    ck_assert_msg(parse(&o, line, &err) == -HVD_EINVAL, "%s: accepted", line);
    ck_assert_msg(strstr(err.text, part), "%s: '%s' is not in '%s'", line, part,
                  err.text);
    ck_assert_ptr_null(strchr(err.text, '\n'));
}

START_TEST(test_defaults)
{
    struct bench_options o = good("allreduce");

    ck_assert_int_eq(o.what, BENCH_ALLREDUCE);
    ck_assert_int_eq(o.dtype, HVD_FLOAT32);
    ck_assert_int_eq(o.op, HVD_SUM);
    ck_assert_uint_eq(o.nsizes, 10);
    ck_assert_uint_eq(o.sizes[0], 8);
    ck_assert_uint_eq(o.sizes[9], 64u << 20);
    ck_assert(o.check && !o.in_place && !o.json && !o.pin && !o.alloc);
    ck_assert(o.mode == BENCH_BLOCKING && o.tensors == 1 && o.nsets == 0);
    ck_assert_int_eq(o.wire, HVD_WIRE_FULL);
    ck_assert(o.iters == 0 && o.warmup == -1);
}
END_TEST

START_TEST(test_every_option)
{
    struct bench_options o = good(
        "--dtype=float64 allreduce --op max --iters 7 --warmup 0 --seconds "
        "1.5 --plane shm --in-place --async 3 --json --no-check --pin "
        "--sizes 64");

    ck_assert(o.dtype == HVD_FLOAT64 && o.op == HVD_MAX);
    ck_assert(o.iters == 7 && o.warmup == 0 && o.measure_ms == 1500);
    ck_assert(o.in_place && o.json && !o.check && o.pin);
    ck_assert(o.mode == BENCH_ASYNC && o.tensors == 3);
    ck_assert_int_eq(o.plane, BENCH_PLANE_SHM);
    ck_assert_int_eq(good("barrier --plane tcp").plane, BENCH_PLANE_TCP);
    ck_assert_int_eq(good("barrier").plane, BENCH_PLANE_AUTO);
    ck_assert(o.nsizes == 1 && o.sizes[0] == 64);
    ck_assert_int_eq(good("broadcast --in-place").what, BENCH_BROADCAST);
    ck_assert_int_eq(good("allgather").what, BENCH_ALLGATHER);
    ck_assert_int_eq(good("allgather --in-place").in_place, 1);
    ck_assert_int_eq(good("alltoall").what, BENCH_ALLTOALL);
    ck_assert_int_eq(good("reducescatter").what, BENCH_REDUCESCATTER);
    ck_assert_int_eq(good("barrier").what, BENCH_BARRIER);
    ck_assert_int_eq(good("allreduce --alloc").alloc, 1);
    ck_assert_int_eq(good("allreduce --wire bfloat16").wire, HVD_WIRE_BFLOAT16);
    ck_assert_int_eq(good("allreduce --op adasum").op, HVD_ADASUM);
    ck_assert_int_eq(good("idle 250ms").idle_ms, 250);
    ck_assert(good("--help").help && good("--version").version);
}
END_TEST

START_TEST(test_modes)
{
    struct bench_options o = good("alltoall --burst 64");

    ck_assert(o.mode == BENCH_BURST && o.tensors == 64);
    o = good("reducescatter --group 5 --group 7");
    ck_assert(o.mode == BENCH_GROUP && o.tensors == 7);
    o = good("allreduce --resnet50");
    ck_assert(o.mode == BENCH_RESNET50 && o.tensors == RESNET50_TENSORS);
    bad("allreduce --burst 0", "--burst:");
    bad("allreduce --burst 1025", "--burst:");
    bad("allreduce --group x", "--group:");
    bad("allreduce --burst 2 --group 2", "only one of");
    bad("allreduce --async 2 --resnet50", "only one of");
    bad("alltoall --group 2", "alltoall has no --group");
    bad("broadcast --group 2", "broadcast has no --group");
    bad("allgather --resnet50", "allgather has no --resnet50");
}
END_TEST

START_TEST(test_devices)
{
    struct bench_options o = good("allreduce --device cuda");

    ck_assert(o.cuda && !o.stream && !o.events && !o.raw);
    ck_assert(!good("barrier --device host").cuda);
    o = good("alltoall --device=cuda --stream --raw --dtype bfloat16");
    ck_assert(o.cuda && o.stream && !o.events && o.raw);
    o = good("allgather --events --device cuda --burst 8 --plane nccl");
    ck_assert(o.stream && o.events && o.plane == BENCH_PLANE_NCCL);
    good("allreduce --device cuda --dtype uint16 --op band");
    good("broadcast --device cuda --raw --op band --dtype int32");
    bad("allreduce --device cud", "did you mean cuda?");
    bad("allreduce --device", "--device needs a value");
    bad("barrier --device cuda", "barrier has no --device cuda");
    bad("idle 1 --device cuda", "idle has no --device cuda");
    bad("allreduce --device cuda --alloc", "--alloc is memory of the host");
    bad("allreduce --stream", "--stream needs --device cuda");
    bad("allreduce --events", "--events needs --device cuda");
    bad("allreduce --raw --stream", "--raw needs --device cuda");
    bad("allreduce --device cuda --raw --dtype int16", "NCCL has no int16");
    bad("allreduce --device cuda --raw --dtype bool", "NCCL has no bool");
    bad("allreduce --device cuda --raw --op bor --dtype int8",
        "NCCL has no bor");
    bad("allreduce --device cuda --raw --wire float16", "NCCL has no --wire");
}
END_TEST

START_TEST(test_process_sets)
{
    struct bench_options o = good("allreduce --process-set 0-2,5/4");
    static const int want[] = {1, 1, 1, 0, 2, 1, 0};

    ck_assert_int_eq(o.nsets, 2);
    for (int r = 0; r < 7; r++)
        ck_assert_int_eq(o.set_of[r], want[r]);
    o = good("allreduce --process-set 0 --process-set 1023");
    ck_assert(o.nsets == 1 && o.set_of[0] == 0 && o.set_of[1023] == 1);
    bad("allreduce --process-set x", "--process-set: 'x'");
    bad("allreduce --process-set 0,,1", "--process-set: ''");
    bad("allreduce --process-set 0/", "--process-set: ''");
    bad("allreduce --process-set 3-1", "--process-set:");
    bad("allreduce --process-set 1024", "--process-set:");
    bad("allreduce --process-set 0-3/3", "rank 3 is there twice");
    bad("allreduce --process-set 0/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/"
        "18/19/20/21/22/23/24/25/26/27/28/29/30/31",
        "more than 31 sets");
}
END_TEST

START_TEST(test_sizes)
{
    struct bench_options o = good("allreduce --sizes 8,1K:5K:x2,3M");

    ck_assert_uint_eq(o.nsizes, 5);
    ck_assert_uint_eq(o.sizes[0], 8);
    ck_assert_uint_eq(o.sizes[1], 1024);
    ck_assert_uint_eq(o.sizes[3], 4096);
    ck_assert_uint_eq(o.sizes[4], 3u << 20);
    ck_assert_uint_eq(good("barrier --sizes 8:64M:x2").nsizes, 24);
    ck_assert_uint_eq(good("barrier --sizes 64:64").nsizes, 1);
    ck_assert_uint_eq(good("barrier --sizes 1T").sizes[0], UINT64_C(1) << 40);
}
END_TEST

START_TEST(test_bad_sizes)
{
    bad("allreduce --sizes x", "--sizes: 'x' is not a size");
    bad("allreduce --sizes 8,,9", "--sizes: ''");
    bad("allreduce --sizes 8:4", "ends before");
    bad("allreduce --sizes 8:64:2", "'2' is no factor");
    bad("allreduce --sizes 8:64:x1", "--sizes:");
    bad("allreduce --sizes 8:64:x2:9", "--sizes:");
    bad("allreduce --sizes 0", "out of range");
    bad("allreduce --sizes 2T", "out of range");
    bad("allreduce --sizes 99999999999999999999", "out of range");
    bad("allreduce --sizes 2 --dtype float32", "less than one float32");
    bad("allreduce --sizes 8:1T:x2,8:1T:x2,8:1T:x2,8:1T:x2", "more than 128");
}
END_TEST

START_TEST(test_bad_lines)
{
    bad("", "no collective");
    bad("--json", "no collective");
    bad("allredoos", "did you mean allreduce?");
    bad("allreduce twice", "one word too many");
    bad("allreduce --itres 3", "did you mean --iters?");
    bad("allreduce --iters", "--iters needs a value");
    bad("allreduce --iters 0", "--iters:");
    bad("allreduce --iters 3x", "--iters:");
    bad("allreduce --json=1", "takes no value");
    bad("allreduce --dtype float31", "did you mean float32?");
    bad("allreduce --op adasum --dtype int32", "not defined for int32");
    bad("reducescatter --op adasum", "reducescatter has no op adasum");
    bad("reducescatter --op bor", "not defined for float32");
    bad("allreduce --wire int8", "no wire");
    bad("allgather --wire float16", "allgather has no --wire");
    bad("allreduce --op ?", "no op");
    bad("allreduce --op band", "not defined for float32");
    bad("allreduce --op average --dtype bool", "not defined for bool");
    bad("allreduce --plane ncll", "did you mean nccl?");
    bad("allreduce --async 0", "--async:");
    bad("allreduce --async 1025", "--async:");
    bad("allreduce --seconds -1", "--seconds:");
    bad("alltoall --in-place", "no --in-place");
    bad("reducescatter --in-place", "no --in-place");
    bad("idle", "needs SECONDS");
    bad("idle x", "not a duration");
}
END_TEST

START_TEST(test_empty_word)
{
    char *argv[] = {(char *)"allreduce", (char *)"--op", (char *)"", NULL};
    struct hb_error err = HB_ERROR_INIT;
    struct bench_options o;

    ck_assert_int_eq(bench_options_parse(&o, argv, &err), -HVD_EINVAL);
}
END_TEST

/* ---- Data ------------------------------------------------------------ */

enum { COUNT = 3000, MAX_RANKS = 64 };

static const enum hvd_op ops[] = {HVD_AVERAGE, HVD_SUM,  HVD_MIN, HVD_MAX,
                                  HVD_PRODUCT, HVD_BAND, HVD_BOR};

/* Data of all ranks, reduced by the kernels (which have their own tests), must
 * be what results are compared with. */
static void check_data(enum hvd_dtype dtype, enum hvd_op op, int size)
{
    struct bench_data d = {dtype, op, size, 12345u + (unsigned)size};
    struct hvd__reduce_args args = {1, 1, op == HVD_AVERAGE ? size : 1, 0};
    hvd__reduce_fn *fn = hvd__reduce_get(dtype, op);
    void *bufs[MAX_RANKS], *out = malloc(COUNT * 8);
    const void *srcs[MAX_RANKS];
    struct bench_wrong wrong = {0, 0, 0};

    for (int r = 0; r < size; r++) {
        srcs[r] = bufs[r] = malloc(COUNT * 8);
        ck_assert_ptr_nonnull(bufs[r]);
        bench_data_fill(&d, r, bufs[r], COUNT);
        ck_assert(bench_data_equal(&d, r, 0, bufs[r], COUNT, &wrong));
    }
    fn(out, srcs, size, COUNT, &args);
    ck_assert_msg(bench_data_equal(&d, BENCH_REDUCED, 0, out, COUNT, &wrong),
                  "dtype %d op %d size %d: %#jx, not %#jx", (int)dtype, (int)op,
                  size, (uintmax_t)wrong.got, (uintmax_t)wrong.want);
    for (int r = 0; r < size; r++)
        free(bufs[r]);
    free(out);
}

START_TEST(test_data_reduces)
{
    static const int sizes[] = {1, 2, 3, 4, 7, 16, 64};
    size_t nops = sizeof(ops) / sizeof(ops[0]);

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t i = 0; i < nops; i++)
            if (hvd__reduce_get((enum hvd_dtype)_i, ops[i]))
                check_data((enum hvd_dtype)_i, ops[i], sizes[s]);
}
END_TEST

/* One wrong element is found wherever it is, and its index reported. */
START_TEST(test_data_tells)
{
    struct bench_data d = {HVD_FLOAT32, HVD_SUM, 2, 7};
    float buf[COUNT];
    struct bench_wrong wrong = {0, 0, 0};

    bench_data_fill(&d, 1, buf, COUNT);
    ck_assert(bench_data_equal(&d, 1, 100, buf + 100, 50, &wrong));
    ck_assert(!bench_data_equal(&d, 1, 99, buf + 100, 50, &wrong));
    buf[1234] += 1;
    ck_assert(!bench_data_equal(&d, 1, 0, buf, COUNT, &wrong));
    ck_assert_uint_eq(wrong.at, 1234);
    ck_assert_uint_ne(wrong.got, wrong.want);
    ck_assert(!bench_data_equal(&d, 1, 1000, buf + 1000, 500, &wrong));
    ck_assert_uint_eq(wrong.at, 234);
    ck_assert(!bench_data_equal(&d, BENCH_REDUCED, 0, buf, COUNT, &wrong));
    ck_assert(!bench_data_equal(&d, 0, 0, buf, COUNT, &wrong));
}
END_TEST

/* With Adasum all ranks have the same vector, which contains no zeros. */
START_TEST(test_data_of_adasum)
{
    struct bench_data d = {HVD_FLOAT32, HVD_ADASUM, 3, 11};
    float one[COUNT], two[COUNT];
    struct bench_wrong wrong = {0, 0, 0};

    bench_data_fill(&d, 0, one, COUNT);
    bench_data_fill(&d, 2, two, COUNT);
    ck_assert_mem_eq(one, two, sizeof(one));
    ck_assert(bench_data_equal(&d, BENCH_REDUCED, 0, one, COUNT, &wrong));
    for (int i = 0; i < COUNT; i++)
        ck_assert(one[i] >= 1 && one[i] <= 128);
}
END_TEST

/* ---- Work ------------------------------------------------------------ */

enum { RANKS = 3, WORK_BYTES = 400000 };

static struct bench_options options_of(enum bench_what what)
{
    char line[64];

    snprintf(line, sizeof(line), "%s --burst 2", bench_what_name(what));
    return good(line);
}

/* Writes what rank `rank` must receive in tensor i, given all ranks' inputs. */
static void deliver(struct bench_work *works, int rank, int i)
{
    struct bench_tensor *to = &works[rank].tensors[i];
    const struct bench_tensor *from;
    float *recv = to->recv;
    size_t part = to->recv_count / RANKS;

    for (size_t k = 0; k < to->recv_count; k++) {
        switch (works[rank].o->what) {
        case BENCH_BROADCAST:
            recv[k] = ((float *)works[0].tensors[i].send)[k];
            break;
        case BENCH_ALLGATHER:
            from = &works[k / part].tensors[i];
            recv[k] = ((float *)from->send)[k % part];
            break;
        case BENCH_ALLTOALL:
            from = &works[k / part].tensors[i];
            recv[k] = ((float *)from->send)[(size_t)rank * part + k % part];
            break;
        case BENCH_REDUCESCATTER:
            recv[k] = 0;
            for (int r = 0; r < RANKS; r++)
                recv[k] += ((float *)works[r]
                                .tensors[i]
                                .send)[(size_t)rank * to->recv_count + k];
            break;
        default:
            recv[k] = 0;
            for (int r = 0; r < RANKS; r++)
                recv[k] += ((float *)works[r].tensors[i].send)[k];
        }
    }
}

static void open_works(struct bench_work *works, const struct bench_options *o)
{
    struct hb_error err = HB_ERROR_INIT;

    for (int r = 0; r < RANKS; r++) {
        struct bench_set set = {0, r, RANKS, 0};

        ck_assert_int_eq(
            bench_work_open(&works[r], o, &set, NULL, WORK_BYTES, &err), 0);
    }
}

/* Each collective's right result passes; one wrong element fails the whole
 * check and some of the windows. */
START_TEST(test_work_is_checked)
{
    struct bench_options o = options_of((enum bench_what)_i);
    struct bench_work works[RANKS];
    struct hb_error err = HB_ERROR_INIT;
    struct bench_work *w = &works[1];
    float *last;
    int wrong = 0;

    open_works(works, &o);
    ck_assert_int_eq(w->ntensors, 2);
    ck_assert_uint_ge(w->bytes, WORK_BYTES);
    ck_assert_uint_eq(w->total_bytes, 2 * w->bytes);
    ck_assert_int_eq(bench_work_verify(w, &err), -HVD_EPROTO);
    for (int i = 0; i < 2; i++)
        deliver(works, 1, i);
    hb_error_clear(&err);
    ck_assert_msg(bench_work_verify(w, &err) == 0, "%s", err.text);
    for (int turn = 0; turn < 20; turn++)
        ck_assert_int_eq(bench_work_check(w, turn, &err), 0);
    last = (float *)w->tensors[1].recv + w->tensors[1].recv_count - 1;
    *last += 1;
    ck_assert_int_eq(bench_work_verify(w, &err), -HVD_EPROTO);
    for (int turn = 0; turn < 20; turn++)
        wrong += bench_work_check(w, turn, &err) == -HVD_EPROTO;
    ck_assert_int_gt(wrong, 0);
    *last -= 1;
    ck_assert_int_eq(bench_work_spoil(w, 5, &err), 0);
    ck_assert_int_eq(bench_work_check(w, 5, &err), -HVD_EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "wrong result"));
    for (int r = 0; r < RANKS; r++)
        bench_work_close(&works[r]);
}
END_TEST

/* In place, a buffer that is input is not spoiled. */
START_TEST(test_work_in_place)
{
    struct bench_options o = good("broadcast --in-place");
    struct bench_work works[RANKS];
    struct hb_error err = HB_ERROR_INIT;

    open_works(works, &o);
    ck_assert_int_eq(bench_work_spoil(&works[0], 0, &err), 0);
    ck_assert_int_eq(bench_work_check(&works[0], 0, &err), 0);
    ck_assert_int_eq(bench_work_check(&works[1], 0, &err), -HVD_EPROTO);
    ck_assert(bench_work_repeats(&works[0]));
    for (int r = 0; r < RANKS; r++)
        bench_work_close(&works[r]);
    o = good("allgather --in-place");
    open_works(works, &o);
    ck_assert_ptr_eq(works[2].tensors[0].send,
                     (char *)works[2].tensors[0].recv +
                         2 * works[2].tensors[0].send_count * sizeof(float));
    for (int r = 0; r < RANKS; r++)
        bench_work_close(&works[r]);
    o = good("allreduce --in-place");
    open_works(works, &o);
    ck_assert(!bench_work_repeats(&works[0]));
    ck_assert_int_eq(bench_work_zero(&works[0], &err), 0);
    ck_assert(((float *)works[0].tensors[0].recv)[77] == 0);
    for (int r = 0; r < RANKS; r++)
        bench_work_close(&works[r]);
}
END_TEST

START_TEST(test_resnet50)
{
    size_t counts[RESNET50_TENSORS], sum = 0;
    struct bench_options o = good("allreduce --resnet50");
    struct bench_set set = {0, 0, 1, 0};
    struct hb_error err = HB_ERROR_INIT;
    struct bench_work w;

    bench_resnet50(counts);
    for (int i = 0; i < RESNET50_TENSORS; i++) {
        ck_assert_uint_gt(counts[i], 0);
        sum += counts[i];
    }
    ck_assert_uint_eq(sum, RESNET50_ELEMENTS);
    ck_assert_uint_eq(counts[0], 1000);        /* last bias */
    ck_assert_uint_eq(counts[1], 2048 * 1000); /* last layer */
    ck_assert_uint_eq(counts[RESNET50_TENSORS - 1], 64 * 3 * 7 * 7);
    ck_assert_int_eq(bench_work_open(&w, &o, &set, NULL, 8, &err), 0);
    ck_assert_uint_eq(w.count, RESNET50_ELEMENTS);
    ck_assert_uint_eq(w.bytes, w.total_bytes);
    ck_assert_str_eq(w.tensors[160].name, "resnet50.160");
    bench_work_close(&w);
}
END_TEST

/* Bus factors equal the table in nccl-tests' doc/PERFORMANCE.md. */
START_TEST(test_bus_factors)
{
    ck_assert(bench_bus_factor(BENCH_ALLREDUCE, 4) == 1.5);
    ck_assert(bench_bus_factor(BENCH_REDUCESCATTER, 4) == 0.75);
    ck_assert(bench_bus_factor(BENCH_ALLGATHER, 4) == 0.75);
    ck_assert(bench_bus_factor(BENCH_ALLTOALL, 4) == 0.75);
    ck_assert(bench_bus_factor(BENCH_BROADCAST, 4) == 1);
    ck_assert(bench_bus_factor(BENCH_ALLREDUCE, 1) == 0);
}
END_TEST

static Suite *bench_suite(void)
{
    Suite *s = suite_create("bench");
    TCase *options = tcase_create("options");
    TCase *data = tcase_create("data");
    TCase *work = tcase_create("work");

    tcase_add_test(options, test_defaults);
    tcase_add_test(options, test_every_option);
    tcase_add_test(options, test_modes);
    tcase_add_test(options, test_devices);
    tcase_add_test(options, test_process_sets);
    tcase_add_test(options, test_sizes);
    tcase_add_test(options, test_bad_sizes);
    tcase_add_test(options, test_bad_lines);
    tcase_add_test(options, test_empty_word);
    suite_add_tcase(s, options);
    tcase_add_loop_test(data, test_data_reduces, 0, HVD_BFLOAT16 + 1);
    tcase_add_test(data, test_data_tells);
    tcase_add_test(data, test_data_of_adasum);
    suite_add_tcase(s, data);
    tcase_add_loop_test(work, test_work_is_checked, BENCH_ALLREDUCE,
                        BENCH_BARRIER);
    tcase_add_test(work, test_work_in_place);
    tcase_add_test(work, test_resnet50);
    tcase_add_test(work, test_bus_factors);
    suite_add_tcase(s, work);
    return s;
}

int main(void)
{
    return unit_run(bench_suite());
}
