/* SPDX-License-Identifier: Apache-2.0 */
/* lib/protocol/control/control_stall and status: every message encoded and
 * decoded, and what is refused. */
#include "lib/protocol/control/control.h"
#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "tests/unit/unit.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static struct hb_buf out;

static void setup(void)
{
    hb_buf_clear(&out);
}

static void teardown(void)
{
    hb_buf_free(&out);
}

static struct frame sent(int type)
{
    struct frame f;

    ck_assert_int_eq(frame_decode(&out, FRAME_PAYLOAD_MAX, &f, NULL), 1);
    ck_assert_int_eq(f.type, type);
    return f;
}

/* ---- Messages ----------------------------------------------------------- */

START_TEST(stalled)
{
    const struct control_stalled m = {7, 61000, 60000, 0};
    struct control_stalled got;
    struct frame f;

    ck_assert_int_eq(control_encode_stalled(&out, &m), 0);
    f = sent(CONTROL_STALLED);
    ck_assert_int_eq(control_decode_stalled(f.payload, f.len, &got, NULL), 0);
    ck_assert_mem_eq(&m, &got, sizeof(m));
    ck_assert_int_lt(control_decode_stalled(f.payload, f.len - 1, &got, NULL),
                     0);
    ck_assert_int_lt(
        control_decode_stalled("\377\377\377\3770123456789ab", 16, &got, NULL),
        0);
}
END_TEST

START_TEST(no_answer)
{
    const struct control_no_answer m = {CONTROL_RANKS_MAX - 1, 3};
    struct control_no_answer got;
    struct frame f;

    ck_assert_int_eq(control_encode_no_answer(&out, &m), 0);
    f = sent(CONTROL_NO_ANSWER);
    ck_assert_int_eq(control_decode_no_answer(f.payload, f.len, &got, NULL), 0);
    ck_assert_int_eq(got.rank, m.rank);
    ck_assert_int_eq(got.peer, 3);
    ck_assert_int_lt(control_decode_no_answer(f.payload, f.len - 1, &got, NULL),
                     0);
    ck_assert_int_lt(
        control_decode_no_answer("\0\0\0\0\0\1\0\0", 8, &got, NULL), 0);
}
END_TEST

START_TEST(late)
{
    const struct control_late m = {CONTROL_RANKS_MAX - 1, INT32_MAX};
    struct control_late got;
    struct frame f;

    ck_assert_int_eq(control_encode_late(&out, &m), 0);
    f = sent(CONTROL_LATE);
    ck_assert_int_eq(control_decode_late(f.payload, f.len, &got, NULL), 0);
    ck_assert_mem_eq(&m, &got, sizeof(m));
    ck_assert_int_lt(control_decode_late(f.payload, f.len - 1, &got, NULL), 0);
    ck_assert_int_lt(control_decode_late("\0\1\0\0abcd", 8, &got, NULL), 0);
    ck_assert_int_lt(control_decode_late("\0\0\0\0\200\0\0\0", 8, &got, NULL),
                     0);
}
END_TEST

START_TEST(ask)
{
    struct control_stall_ask m = {.id = 3, .ranks = {4, 9}, .count = 2}, got;
    struct frame f;
    char bytes[4 + 4 * (CONTROL_STACKS_MAX + 1)] = {0};

    ck_assert_int_eq(control_encode_stall_ask(&out, &m), 0);
    f = sent(CONTROL_STALL_ASK);
    ck_assert_int_eq(control_decode_stall_ask(f.payload, f.len, &got, NULL), 0);
    ck_assert_mem_eq(&m, &got, sizeof(m));
    ck_assert_int_lt(control_decode_stall_ask(f.payload, f.len - 1, &got, NULL),
                     0);
    ck_assert_int_eq(
        control_decode_stall_ask(bytes, sizeof(bytes) - 4, &got, NULL), 0);
    ck_assert_int_eq(got.count, CONTROL_STACKS_MAX);
    ck_assert_int_lt(control_decode_stall_ask(bytes, sizeof(bytes), &got, NULL),
                     0);
}
END_TEST

START_TEST(stack)
{
    struct control_stall_stack m = {
        .id = 1, .rank = 2, .found = 1, .text = (char *)"#0 a\n#1 b\n"};
    struct control_stall_stack got;
    struct frame f;

    ck_assert_int_eq(control_encode_stall_stack(&out, &m), 0);
    f = sent(CONTROL_STALL_STACK);
    ck_assert_int_eq(control_decode_stall_stack(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_int_eq(got.rank, 2);
    ck_assert_int_eq(got.found, 1);
    ck_assert_str_eq(got.text, m.text);
    control_stall_stack_fini(&got);
    ck_assert_int_lt(
        control_decode_stall_stack("\0\0\0\1\0\0\0\1\1a\0b", 12, &got, NULL),
        0);
    ck_assert_int_lt(
        control_decode_stall_stack("\0\0\0\1\0\0\0\1\2ab", 11, &got, NULL), 0);
    ck_assert_int_lt(control_decode_stall_stack("\0\0\0\1", 4, &got, NULL), 0);
}
END_TEST

static struct control_stall_op waits[2] = {
    {.age_ms = 60000,
     .key = UINT64_MAX,
     .kind = STATUS_JOIN,
     .set = 31,
     .where = STATUS_NOT_REACHED,
     .name = "layer.0.weight"},
    {.age_ms = 0, .kind = STATUS_BARRIER},
};

static struct control_stall_rank two[2] = {
    {.rank = 5,
     .pid = 4711,
     .state = 'T',
     .cpu_percent = -1,
     .known = 1,
     .inside = 1,
     .calls = 1ll << 40,
     .sets = {0x80000001, 0, 0, 1ull << 63},
     .total = 9,
     .waits = waits,
     .count = 2,
     .launched = {[0] = 3, [31] = UINT64_MAX, [255] = 1},
     .carried_out = {[0] = 1, [7] = 1ull << 40, [64] = 2},
     .in_init = 1,
     .last = {.age_ms = 5, .name = "x"}},
    {.rank = 6, .fresh = 1, .cpu_percent = 1600},
};

static const struct control_stall_ranks both = {
    .id = 9, .ranks = two, .count = 2};

START_TEST(ranks)
{
    struct control_stall_ranks got;
    struct frame f;

    ck_assert_int_eq(control_encode_stall_ranks(&out, &both), 0);
    f = sent(CONTROL_STALL_RANKS);
    ck_assert_int_eq(control_decode_stall_ranks(f.payload, f.len, &got, NULL),
                     0);
    ck_assert_int_eq(got.id, 9);
    ck_assert_int_eq(got.count, 2);
    for (int i = 0; i < 2; i++) {
        struct control_stall_rank *r = &got.ranks[i];

        ck_assert_int_eq(r->rank, two[i].rank);
        ck_assert_int_eq(r->pid, two[i].pid);
        ck_assert_int_eq(r->state, two[i].state);
        ck_assert_int_eq(r->cpu_percent, two[i].cpu_percent);
        ck_assert_int_eq(r->known, two[i].known);
        ck_assert_int_eq(r->fresh, two[i].fresh);
        ck_assert_int_eq(r->inside, two[i].inside);
        ck_assert_int_eq(r->calls, two[i].calls);
        ck_assert_mem_eq(r->sets, two[i].sets, sizeof(r->sets));
        ck_assert_int_eq(r->total, two[i].total);
        ck_assert_str_eq(r->last.name, two[i].last.name);
        ck_assert_int_eq(r->count, two[i].count);
        ck_assert_mem_eq(r->launched, two[i].launched, sizeof(r->launched));
        ck_assert_int_eq(r->in_init, two[i].in_init);
        ck_assert_mem_eq(r->carried_out, two[i].carried_out,
                         sizeof(r->carried_out));
    }
    ck_assert_uint_eq(got.ranks[0].waits[0].key, UINT64_MAX);
    ck_assert_int_eq(got.ranks[0].waits[0].set, 31);
    ck_assert_int_eq(got.ranks[0].waits[0].where, STATUS_NOT_REACHED);
    ck_assert_int_eq(got.ranks[0].waits[1].kind, STATUS_BARRIER);
    control_stall_ranks_fini(&got);
}
END_TEST

/* Cut anywhere, or with any byte of a number changed, a message is refused or
 * its values stay within limits. */
START_TEST(ranks_malformed)
{
    struct control_stall_ranks got;
    struct frame f;
    char *copy;

    ck_assert_int_eq(control_encode_stall_ranks(&out, &both), 0);
    f = sent(CONTROL_STALL_RANKS);
    for (size_t len = 0; len < f.len; len++)
        ck_assert_int_lt(control_decode_stall_ranks(f.payload, len, &got, NULL),
                         0);
    copy = malloc(f.len);
    for (size_t i = 0; i < f.len; i++) {
        memcpy(copy, f.payload, f.len);
        copy[i] = (char)0xff;
        if (control_decode_stall_ranks(copy, f.len, &got, NULL) < 0)
            continue;
        for (int r = 0; r < got.count; r++)
            ck_assert_int_le(got.ranks[r].count, STATUS_WAITS_MAX);
        control_stall_ranks_fini(&got);
    }
    free(copy);
}
END_TEST

START_TEST(ranks_must_ascend)
{
    struct control_stall_rank twice[2] = {{.rank = 5}, {.rank = 5}};
    const struct control_stall_ranks m = {.id = 9, .ranks = twice, .count = 2};
    struct control_stall_ranks got;
    struct frame f;

    ck_assert_int_eq(control_encode_stall_ranks(&out, &m), 0);
    f = sent(CONTROL_STALL_RANKS);
    ck_assert_int_lt(control_decode_stall_ranks(f.payload, f.len, &got, NULL),
                     0);
}
END_TEST

static int decode_ranks(void *arg)
{
    const struct frame *f = arg;
    struct control_stall_ranks got;
    int rc = control_decode_stall_ranks(f->payload, f->len, &got, NULL);

    control_stall_ranks_fini(&got);
    return rc;
}

START_TEST(no_memory)
{
    struct frame f;

    ck_assert_int_eq(control_encode_stall_ranks(&out, &both), 0);
    f = sent(CONTROL_STALL_RANKS);
    unit_fail_each(decode_ranks, &f);
}
END_TEST

/* A culprit, and none. */
START_TEST(blame)
{
    static const int culprits[] = {3, -1};
    char text[32];
    struct frame f;
    int rank;

    for (size_t i = 0; i < 2; i++) {
        hb_buf_clear(&out);
        ck_assert_int_eq(control_encode_stall_blame(&out, culprits[i], "why"),
                         0);
        f = sent(CONTROL_STALL_BLAME);
        ck_assert_int_eq(control_decode_abort(f.payload, f.len, &rank, text,
                                              sizeof(text), NULL),
                         0);
        ck_assert_int_eq(rank, culprits[i]);
        ck_assert_str_eq(text, "why");
    }
}
END_TEST

START_TEST(worker_stalled_there_and_back)
{
    const struct worker_stalled m = {1000, 500, UINT32_MAX};
    unsigned char bytes[WORKER_STALLED_BYTES];
    struct worker_stalled got;
    struct frame f;

    worker_write_stalled(bytes, &m);
    ck_assert_int_eq(hb_buf_append(&out, bytes, sizeof(bytes)), 0);
    f = sent(WORKER_STALLED);
    ck_assert_int_eq(worker_decode_stalled(f.payload, f.len, &got), 0);
    ck_assert_mem_eq(&m, &got, sizeof(m));
    ck_assert_int_lt(worker_decode_stalled(f.payload, f.len - 1, &got), 0);
}
END_TEST

/* ---- Status ------------------------------------------------------------- */

static struct segment_status status;

/* Not inlined: the compiler would warn about names that it knows to be
 * short. */
static __attribute__((noinline)) uint64_t call(uint64_t when_ns, unsigned kind,
                                               unsigned set, const char *name)
{
    return status_call(&status, when_ns, kind, set, name);
}

START_TEST(status_of_the_last_call)
{
    struct status_view v;
    uint64_t n;

    memset(&status, 0, sizeof(status));
    status_read(&status, &v);
    ck_assert_uint_eq(v.calls, 0);
    ck_assert_int_eq(v.inside, 0);
    n = call(123, STATUS_BROADCAST, 3, "weights");
    status_read(&status, &v);
    ck_assert_uint_eq(v.calls, 1);
    ck_assert_int_eq(v.inside, 1);
    ck_assert_uint_eq(v.call.when_ns, 123);
    ck_assert_int_eq(v.call.kind, STATUS_BROADCAST);
    ck_assert_int_eq(v.call.set, 3);
    ck_assert_str_eq(v.call.name, "weights");
    status_returned(&status, n);
    call(124, STATUS_ALLREDUCE, 0, "");
    status_read(&status, &v);
    ck_assert_str_eq(v.call.name, "");
    status_returned(&status, n + 1);
    status_read(&status, &v);
    ck_assert_int_eq(v.inside, 0);
}
END_TEST

START_TEST(status_names)
{
    struct status_view v;
    char name[300], printed[STATUS_NAME_BYTES];

    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    call(1, STATUS_ALLREDUCE, 0, name);
    status_read(&status, &v);
    snprintf(printed, sizeof(printed), "%.*s", STATUS_NAME_BYTES - 1, name);
    ck_assert_str_eq(v.call.name, printed);
    call(1, STATUS_ALLREDUCE, 0,
         "a\033[2J\xff"
         "b");
    status_read(&status, &v);
    ck_assert_str_eq(v.call.name, "a?[2J?b");
}
END_TEST

START_TEST(status_that_is_rubbish)
{
    struct status_view v;

    memset(&status, 0xff, sizeof(status));
    atomic_store(&status.call_begun, 1); /* torn for ever */
    status_read(&status, &v);
    ck_assert_int_eq(v.torn, 1);
    ck_assert_int_eq(v.count, STATUS_WAITS_MAX);
    for (int i = 0; i < v.count; i++) {
        ck_assert_int_lt(v.waits[i].kind, STATUS_KINDS);
        ck_assert_int_lt(v.waits[i].set, STATUS_SETS_MAX);
        ck_assert_uint_lt(strlen(v.waits[i].name), STATUS_NAME_BYTES);
    }
    ck_assert_uint_ge(v.total, (uint32_t)v.count);
}
END_TEST

/* The numbers that other processes read. */
START_TEST(names_of_kinds)
{
    static const char *const names[] = {
        "allreduce", "broadcast",     "allgather", "barrier",
        "alltoall",  "reducescatter", "join",      "?"};

    ck_assert_int_eq(STATUS_KINDS, 7);
    for (unsigned i = 0; i <= STATUS_KINDS; i++)
        ck_assert_str_eq(collective_name(i), names[i]);
    ck_assert_str_eq(collective_name(STATUS_JOIN), "join");
    ck_assert_str_eq(collective_name(UINT_MAX), "?");
}
END_TEST

/* Each rank's status is complete and aligned, after the futexes. */
START_TEST(status_in_the_segment)
{
    enum { N = 5 };
    uint64_t bytes = segment_head_bytes(N);
    struct segment_head *h = aligned_alloc(4096, bytes);
    char *last;

    memset(h, 0, bytes);
    segment_head_init(h, 1, N, bytes);
    for (uint32_t i = 0; i < N; i++) {
        char *at = (char *)segment_status(h, N, i);

        ck_assert(at >= (char *)&h->wake[N]);
        ck_assert_uint_eq((uintptr_t)at % 128, 0);
        last = at + STATUS_BYTES;
        ck_assert(last <= (char *)h + bytes);
    }
    free(h);
}
END_TEST

/* A reader never sees half a record: name, kind and time belong together. */
static _Atomic int stop;

static void *write_calls(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        char name[STATUS_NAME_BYTES];

        memset(name, (int)('a' + i % 26), sizeof(name));
        name[sizeof(name) - 1] = '\0';
        call(i % 26, (uint32_t)(i % 26 % STATUS_KINDS), 0, name);
        sched_yield(); /* a writer that never pauses is never read whole */
    }
    return NULL;
}

START_TEST(status_is_read_whole)
{
    struct status_view v;
    pthread_t writer;

    memset(&status, 0, sizeof(status));
    atomic_store(&stop, 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, write_calls, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        status_read(&status, &v);
        if (v.calls == 0 || v.torn)
            continue;
        ck_assert_uint_eq(strspn(v.call.name, (char[]){v.call.name[0], 0}),
                          STATUS_NAME_BYTES - 1);
        ck_assert_int_eq(v.call.name[0], (int)('a' + v.call.when_ns));
    }
    atomic_store(&stop, 1);
    pthread_join(writer, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("control_stall");
    TCase *tc = tcase_create("messages");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, stalled);
    tcase_add_test(tc, late);
    tcase_add_test(tc, no_answer);
    tcase_add_test(tc, ask);
    tcase_add_test(tc, stack);
    tcase_add_test(tc, ranks);
    tcase_add_test(tc, ranks_malformed);
    tcase_add_test(tc, ranks_must_ascend);
    tcase_add_test(tc, no_memory);
    tcase_add_test(tc, blame);
    tcase_add_test(tc, worker_stalled_there_and_back);
    suite_add_tcase(s, tc);
    tc = tcase_create("status");
    tcase_add_test(tc, status_of_the_last_call);
    tcase_add_test(tc, status_names);
    tcase_add_test(tc, status_that_is_rubbish);
    tcase_add_test(tc, names_of_kinds);
    tcase_add_test(tc, status_in_the_segment);
    tcase_add_test(tc, status_is_read_whole);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
