/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders of all bytes that come over a connection.  The first byte picks the
 * decoder, by its letter in the table below; the rest is the stream or the
 * payload.  An accepted message is encoded again: a binary one must give the
 * same bytes, a JSON one must be accepted again.
 */
#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_counts.h"
#include "lib/protocol/worker.h"
#include "lib/protocol/worker_stats.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT_BYTES = 64 };

/* Checks that the frame in b carries exactly these bytes. */
static void check_same_payload(const struct hb_buf *b, const void *p,
                               size_t len)
{
    struct frame f;

    FUZZ_CHECK(frame_decode(b, FRAME_PAYLOAD_MAX, &f, NULL) == 1);
    FUZZ_CHECK(f.len == len && (len == 0 || !memcmp(f.payload, p, len)));
}

/* Decodes a stream that arrives in pieces of `step` bytes. */
static void fuzz_stream(const char *p, size_t len, size_t step)
{
    struct hb_buf in = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;
    size_t at, piece;
    int rc = 0;

    for (at = 0; at < len && rc >= 0; at += piece) {
        piece = len - at < step ? len - at : step;
        FUZZ_CHECK(hb_buf_append(&in, p + at, piece) == 0);
        while ((rc = frame_decode(&in, 1000, &f, &err)) == 1) {
            FUZZ_CHECK(f.len <= 1000);
            frame_done(&in, &f);
        }
        fuzz_check_error(rc, &err);
    }
    hb_buf_free(&in);
}

/* Noise plus the rest must be the input, in order. */
static void fuzz_sync(const char *p, size_t len, size_t step)
{
    struct hb_buf in = HB_BUF_INIT, noise = HB_BUF_INIT;
    size_t at = 0, piece, skipped;
    int rc = 0;

    while (at < len && rc == 0) {
        piece = len - at < step ? len - at : step;
        FUZZ_CHECK(hb_buf_append(&in, p + at, piece) == 0);
        at += piece;
        rc = frame_sync(&in, &noise, 100);
    }
    skipped = hb_buf_len(&noise);
    FUZZ_CHECK(skipped <= 100 && skipped + hb_buf_len(&in) == at);
    FUZZ_CHECK(at == 0 || !memcmp(hb_buf_data(&noise), p, skipped));
    FUZZ_CHECK(at == skipped ||
               !memcmp(hb_buf_data(&in), p + skipped, at - skipped));
    if (rc == 1)
        FUZZ_CHECK(!memcmp(hb_buf_data(&in), "hvD1", 4));
    hb_buf_free(&in);
    hb_buf_free(&noise);
}

static void fuzz_welcome(const char *p, size_t len)
{
    static struct worker_welcome m;
    struct hb_buf b = HB_BUF_INIT;

    if (worker_decode_welcome(p, len, &m) == 0) {
        FUZZ_CHECK(worker_encode_welcome(&b, &m) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_free(&b);
}

/* Tries all short messages on every payload: their lengths and contents
 * distinguish them well enough. */
static void fuzz_worker(const char *p, size_t len)
{
    struct hb_buf b = HB_BUF_INIT;
    struct worker_hello hello;
    struct worker_join join;
    struct worker_segment seg;
    struct worker_abort abort_message;
    char text[WORKER_TEXT_MAX];
    uint32_t epoch;

    if (worker_decode_hello(p, len, &hello) == 0) {
        FUZZ_CHECK(worker_encode_hello(&b, &hello) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_join(p, len, &join) == 0) {
        FUZZ_CHECK(worker_encode_join(&b, &join) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_segment(p, len, &seg) == 0) {
        FUZZ_CHECK(worker_encode_segment(&b, &seg) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_abort(p, len, &abort_message) == 0) {
        FUZZ_CHECK(worker_encode_abort(&b, &abort_message) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_refused(p, len, text, sizeof(text)) == 0) {
        FUZZ_CHECK(worker_encode_refused(&b, text) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_leave(p, len, &epoch) == 0) {
        FUZZ_CHECK(worker_encode_leave(&b, epoch) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_free(&b);
}

/* The messages of a fence, both ways; addresses and values of a small world. */
static void fuzz_worker_rdv(const char *p, size_t len)
{
    char scope[WORKER_SCOPE_MAX], addresses[4][WORKER_ADDRESS_MAX];
    char *texts[4] = {addresses[0], addresses[1], addresses[2], addresses[3]};
    struct worker_value v, values[4];
    struct hb_buf b = HB_BUF_INIT;

    if (worker_decode_fence(p, len, scope, &v) == 0) {
        FUZZ_CHECK(worker_encode_fence(&b, scope, v.value, v.len) == 0);
        check_same_payload(&b, p, len);
    }
    for (uint32_t n = 0; n <= 4; n++) {
        hb_buf_clear(&b);
        if (worker_decode_routes_are(p, len, n, addresses) == 0) {
            FUZZ_CHECK(worker_encode_routes_are(&b, texts, n) == 0);
            check_same_payload(&b, p, len);
        }
        if (worker_decode_fenced(p, len, "s", n, values) == 0)
            for (uint32_t i = 0; i < n; i++)
                FUZZ_CHECK(values[i].rank == i &&
                           (values[i].len == 0 || values[i].value));
    }
    hb_buf_free(&b);
}

static void fuzz_output(const char *p, size_t len)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf b = HB_BUF_INIT;
    struct control_bytes m;
    int rc = control_decode_output(p, len, &m, &err);

    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(
            control_encode_output(&b, m.rank, m.stream, m.bytes, m.len) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    hb_error_clear(&err);
    rc = control_decode_stdin(p, len, &m, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(control_encode_stdin(&b, m.rank, m.bytes, m.len) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_free(&b);
}

static void fuzz_numbers(const char *p, size_t len)
{
    struct hb_buf b = HB_BUF_INIT;
    char text[TEXT_BYTES];
    uint64_t at, then;
    uint32_t v;
    int n;

    if (control_decode_ping(p, len, &at, &v, NULL) == 0) {
        FUZZ_CHECK(control_encode_ping(&b, at, v) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_pong(p, len, &at, &then, NULL) == 0) {
        FUZZ_CHECK(control_encode_pong(&b, at, then) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_stdin_ack(p, len, &n, &v, NULL) == 0) {
        FUZZ_CHECK(control_encode_stdin_ack(&b, n, v) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_u32(p, len, &v, NULL) == 0) {
        FUZZ_CHECK(control_encode_u32(&b, CONTROL_KILL, v) == 0);
        check_same_payload(&b, p, len);
    }
    if (control_decode_log(p, len, &n, text, sizeof(text), NULL) == 0)
        FUZZ_CHECK(strlen(text) == (len - 1 < 63 ? len - 1 : 63));
    if (control_decode_abort(p, len, &n, text, sizeof(text), NULL) == 0)
        FUZZ_CHECK(strlen(text) == (len - 4 < 63 ? len - 4 : 63));
    hb_buf_free(&b);
}

static void fuzz_leaving(const char *p, size_t len)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf b = HB_BUF_INIT;
    char why[CONTROL_WHY_MAX];
    uint32_t left_ms;
    int rank, rc = control_decode_notice(p, len, &rank, &left_ms, &err);

    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(control_encode_notice(&b, rank, left_ms) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    err = (struct hb_error)HB_ERROR_INIT;
    rc = control_decode_going(p, len, &left_ms, why, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(left_ms <= CONTROL_LEFT_MAX_MS ||
                   left_ms == CONTROL_LEFT_ANY);
        FUZZ_CHECK(control_encode_going(&b, left_ms, why) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_free(&b);
}

static void fuzz_generation(const char *p, size_t len)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf b = HB_BUF_INIT;
    struct control_generation m;
    int rank, ready, rc = control_decode_generation(p, len, &m, &err);

    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(control_encode_generation(&b, &m) == 0);
        check_same_payload(&b, p, len);
    }
    control_generation_fini(&m);
    hb_buf_clear(&b);
    err = (struct hb_error)HB_ERROR_INIT;
    rc = control_decode_ready(p, len, &rank, &ready, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(control_encode_ready(&b, rank, ready) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_free(&b);
    fuzz_leaving(p, len);
}

/* Defines a function that decodes, encodes and decodes a JSON message. */
#define FUZZ_JSON(name)                                                     \
    static void fuzz_##name(const char *p, size_t len)                      \
    {                                                                       \
        struct hb_error err = HB_ERROR_INIT;                                \
        struct hb_buf b = HB_BUF_INIT;                                      \
        struct control_##name m;                                            \
        struct frame f;                                                     \
        int rc = control_decode_##name(p, len, &m, &err);                   \
                                                                            \
        fuzz_check_error(rc, &err);                                         \
        if (rc == 0) {                                                      \
            FUZZ_CHECK(control_encode_##name(&b, &m) == 0);                 \
            control_##name##_fini(&m);                                      \
            FUZZ_CHECK(frame_decode(&b, FRAME_PAYLOAD_MAX, &f, NULL) == 1); \
            FUZZ_CHECK(control_decode_##name(f.payload, f.len, &m, NULL) == \
                       0);                                                  \
        }                                                                   \
        control_##name##_fini(&m);                                          \
        hb_buf_free(&b);                                                    \
    }

FUZZ_JSON(hello)
FUZZ_JSON(launch)
FUZZ_JSON(started)
FUZZ_JSON(exited)
FUZZ_JSON(failed)
FUZZ_JSON(route_listen)
FUZZ_JSON(route_port)
FUZZ_JSON(route_probe)
FUZZ_JSON(route_result)

/* HOSTS replaces fields of a LAUNCH. */
static void fuzz_hosts(const char *p, size_t len)
{
    struct control_rank rank = {.rank = 1};
    struct control_launch m = {
        .host_index = 1, .size = 4, .ranks = &rank, .rank_count = 1};
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf b = HB_BUF_INIT;
    int hosts[4], rc = control_decode_hosts(p, len, &m, &err);
    struct frame f;

    fuzz_check_error(rc, &err);
    FUZZ_CHECK(rc == 0 || (!m.runs && m.peers.count == 0));
    if (rc == 0) {
        control_rank_hosts(&m, hosts);
        FUZZ_CHECK(hosts[1] == 1);
        for (int i = 0; i < 4; i++)
            FUZZ_CHECK(hosts[i] >= -1 && hosts[i] < (int)m.host_names.count);
        FUZZ_CHECK(control_encode_hosts(&b, &m) == 0);
        FUZZ_CHECK(frame_decode(&b, FRAME_PAYLOAD_MAX, &f, NULL) == 1);
        FUZZ_CHECK(control_decode_hosts(f.payload, f.len, &m, NULL) == 0);
    }
    m.ranks = NULL;
    m.rank_count = 0;
    control_launch_fini(&m);
    hb_buf_free(&b);
}

static void fuzz_route(const char *p, size_t len)
{
    fuzz_route_listen(p, len);
    fuzz_route_port(p, len);
    fuzz_route_probe(p, len);
    fuzz_route_result(p, len);
}

/* Reports of waiting ranks, from workers and from agents. */
static void fuzz_stall(const char *p, size_t len)
{
    struct control_stall_ranks ranks;
    struct control_stall_stack stack;
    struct control_stalled stalled;
    struct control_stall_ask ask;
    struct control_late late;
    struct control_no_answer no_answer;
    struct worker_no_answer peer;
    struct worker_stalled worker;
    unsigned char bytes[WORKER_STALLED_BYTES];
    struct hb_buf b = HB_BUF_INIT;
    uint32_t number;

    if (worker_decode_stalled(p, len, &worker) == 0) {
        worker_write_stalled(bytes, &worker);
        FUZZ_CHECK(hb_buf_append(&b, bytes, sizeof(bytes)) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_blames(p, len, &number) == 0) {
        worker_write_blames(bytes, number);
        FUZZ_CHECK(hb_buf_append(&b, bytes, WORKER_BLAMES_BYTES) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_late(p, len, &number) == 0) {
        worker_write_late(bytes, number);
        FUZZ_CHECK(hb_buf_append(&b, bytes, WORKER_LATE_BYTES) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (worker_decode_no_answer(p, len, &peer) == 0) {
        worker_write_no_answer(bytes, &peer);
        FUZZ_CHECK(hb_buf_append(&b, bytes, WORKER_NO_ANSWER_BYTES) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_no_answer(p, len, &no_answer, NULL) == 0) {
        FUZZ_CHECK(control_encode_no_answer(&b, &no_answer) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_late(p, len, &late, NULL) == 0) {
        FUZZ_CHECK(control_encode_late(&b, &late) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_stalled(p, len, &stalled, NULL) == 0) {
        FUZZ_CHECK(control_encode_stalled(&b, &stalled) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_stall_ask(p, len, &ask, NULL) == 0) {
        FUZZ_CHECK(control_encode_stall_ask(&b, &ask) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_clear(&b);
    if (control_decode_stall_ranks(p, len, &ranks, NULL) == 0) {
        FUZZ_CHECK(control_encode_stall_ranks(&b, &ranks) == 0);
        check_same_payload(&b, p, len);
        control_stall_ranks_fini(&ranks);
    }
    hb_buf_clear(&b);
    if (control_decode_stall_stack(p, len, &stack, NULL) == 0) {
        FUZZ_CHECK(control_encode_stall_stack(&b, &stack) == 0);
        check_same_payload(&b, p, len);
        control_stall_stack_fini(&stack);
    }
    hb_buf_free(&b);
}

/* What the ranks of a host have counted so far. */
static void fuzz_counts(const char *p, size_t len)
{
    static struct control_counts all[CONTROL_LOCAL_MAX + 1];
    struct hb_buf b = HB_BUF_INIT;
    int rc, count = 0;

    while ((rc = control_decode_counts(p, len, count, &all[count], NULL)) > 0)
        FUZZ_CHECK(++count <= CONTROL_LOCAL_MAX);
    if (rc == 0) {
        FUZZ_CHECK(control_encode_counts(&b, all, count) == 0);
        check_same_payload(&b, p, len);
    }
    hb_buf_free(&b);
}

/* A rank's counters: writing them again may drop only what adds nothing. */
static void fuzz_stats(const char *p, size_t len)
{
    static struct worker_stats m, again, sum;
    struct hb_buf a = HB_BUF_INIT, b = HB_BUF_INIT;

    if (worker_stats_read(p, len, &m) < 0)
        return;
    FUZZ_CHECK(m.blamed_count <= WORKER_STATS_BLAMED);
    FUZZ_CHECK(worker_stats_write(&a, &m) == 0);
    FUZZ_CHECK(hb_buf_len(&a) <= WORKER_STATS_MAX);
    FUZZ_CHECK(worker_stats_read(hb_buf_data(&a), hb_buf_len(&a), &again) == 0);
    FUZZ_CHECK(worker_stats_write(&b, &again) == 0);
    FUZZ_CHECK(hb_buf_len(&a) == hb_buf_len(&b) &&
               !memcmp(hb_buf_data(&a), hb_buf_data(&b), hb_buf_len(&a)));
    worker_stats_add(&sum, &m);
    FUZZ_CHECK(sum.blamed_count <= WORKER_STATS_BLAMED);
    hb_buf_free(&a);
    hb_buf_free(&b);
}

/* A rank's shared memory, as its agent reads it. */
static void fuzz_status(const char *p, size_t len)
{
    static struct segment_status status;
    struct status_view v;

    memset(&status, 0, sizeof(status));
    memcpy(&status, p, len < sizeof(status) ? len : sizeof(status));
    status_read(&status, &v);
    FUZZ_CHECK(v.count >= 0 && v.count <= STATUS_WAITS_MAX);
    for (int i = 0; i < v.count; i++)
        FUZZ_CHECK(v.waits[i].kind < STATUS_KINDS && v.waits[i].set >= 0 &&
                   v.waits[i].set < STATUS_SETS_MAX &&
                   memchr(v.waits[i].name, '\0', STATUS_NAME_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        char letter;
        void (*decode)(const char *p, size_t len);
    } decoders[] = {
        {'w', fuzz_welcome}, {'k', fuzz_worker},     {'o', fuzz_output},
        {'n', fuzz_numbers}, {'h', fuzz_hello},      {'l', fuzz_launch},
        {'s', fuzz_started}, {'e', fuzz_exited},     {'f', fuzz_failed},
        {'r', fuzz_route},   {'v', fuzz_worker_rdv}, {'t', fuzz_stall},
        {'u', fuzz_status},  {'a', fuzz_stats},      {'g', fuzz_generation},
        {'m', fuzz_hosts},   {'c', fuzz_counts},
    };
    char *p;
    size_t i;

    if (size < 1)
        return 0;
    p = fuzz_copy(data + 1, size - 1);
    if (data[0] == 'F')
        fuzz_stream(p, size - 1, 7);
    if (data[0] == 'S')
        fuzz_sync(p, size - 1, 5);
    for (i = 0; i < sizeof(decoders) / sizeof(decoders[0]); i++) {
        if (data[0] == decoders[i].letter)
            decoders[i].decode(p, size - 1);
    }
    free(p);
    return 0;
}
