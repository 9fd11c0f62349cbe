/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the tests of collectives in device memory; see nccl_rank.h. */
#include "tests/system/prog/nccl_rank.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = 0x5a, STAGE_BYTES = 16 << 20 };

struct rank rank;

/* Pinned memory for copies to the device; `staged` bytes of it are in use until
 * the next read. */
static unsigned char *stage;
static size_t staged;

void check(int ok, const char *format, ...)
{
    va_list args;

    if (ok)
        return;
    fprintf(stderr, "rank %d, case %llu of seed %llu: ", hvd_rank(),
            (unsigned long long)rank.cases, (unsigned long long)rank.seed);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (%s)\n", hvd_error_message());
    exit(1);
}

void must(int status, const char *what)
{
    check(status == 0, "%s: %s", what, hvd_status_text(status));
}

void must_fail(int status, int expected, const char *text)
{
    check(status == -expected, "%s instead of %s", hvd_status_text(status),
          hvd_status_text(expected));
    check(strstr(hvd_error_message(), text) != NULL, "no '%s' in the message",
          text);
}

void rank_open(int with_stream, uint64_t seed)
{
    void *p;

    rank.seed = seed;
    for (int i = 0; i < VALUES_RANKS; i++)
        rank.all[i] = i;
    rank.stream = with_stream ? gpu_stream() : NULL;
    rank.reader = gpu_stream();
    rank.empty = gpu_alloc(1);
    GPU(MemHostAlloc, &p, STAGE_BYTES, 0);
    stage = p;
}

void rank_close(void)
{
    GPU(CtxSynchronize);
    GPU(MemFreeHost, stage);
    gpu_free(rank.empty);
    GPU(StreamDestroy, rank.reader);
    if (rank.stream)
        GPU(StreamDestroy, rank.stream);
}

uint64_t next_case(void)
{
    return ++rank.cases;
}

uint64_t common(uint64_t place)
{
    return values_random(rank.seed, 1000 + rank.cases, place);
}

uint64_t own(int of_rank, uint64_t place)
{
    return values_random(common(place), 3, (uint64_t)of_rank);
}

struct hvd_options options(void)
{
    struct hvd_options o = HVD_OPTIONS_INIT;

    o.stream = rank.stream;
    return o;
}

struct array array_new(size_t count, enum hvd_dtype dtype)
{
    size_t bytes = hvd_dtype_size(dtype);
    struct array a = {.bytes = count * bytes};

    if (count == 0) {
        a.at = rank.stream ? NULL : rank.empty;
        return a;
    }
    a.before = own(hvd_rank(), count) % 5 * bytes;
    a.whole = gpu_alloc(a.before + a.bytes);
    a.at = a.whole + a.before;
    GPU(MemsetD8Async, (CUdeviceptr)a.whole, PATTERN, a.before + a.bytes,
        rank.stream);
    return a;
}

/* Copies from the device, on the stream that sees the results. */
static void read_bytes(void *to, const void *from, size_t bytes)
{
    CUstream stream = rank.stream ? rank.stream : rank.reader;

    check(bytes <= STAGE_BYTES, "%zu bytes", bytes);
    staged = 0;
    GPU(StreamSynchronize, rank.stream);
    GPU(MemcpyAsync, (CUdeviceptr)stage, (CUdeviceptr)from, bytes, stream);
    GPU(StreamSynchronize, stream);
    memcpy(to, stage, bytes);
}

void array_read(const struct array *a, void *to)
{
    CUstream stream = rank.stream ? rank.stream : rank.reader;

    if (!a->bytes)
        return;
    check(staged + a->bytes <= STAGE_BYTES, "%zu bytes", a->bytes);
    GPU(MemcpyAsync, (CUdeviceptr)(stage + staged), (CUdeviceptr)a->at,
        a->bytes, stream);
    GPU(StreamSynchronize, stream);
    memcpy(to, stage + staged, a->bytes);
}

void array_free(struct array *a)
{
    unsigned char before[64];

    if (!a->bytes)
        return;
    read_bytes(before, a->whole, a->before);
    for (size_t i = 0; i < a->before; i++)
        check(before[i] == PATTERN, "what is before an array has changed");
    gpu_free(a->whole);
    a->bytes = 0;
}

/* Copies `from` to the array, now and then with a delay on the device. */
void array_write(const struct array *a, const void *from)
{
    if (!a->bytes)
        return;
    if (staged + a->bytes > STAGE_BYTES) {
        GPU(StreamSynchronize, rank.stream);
        staged = 0;
    }
    if (own(hvd_rank(), 77) % 8 == 0)
        gpu_delay(rank.stream, 2);
    memcpy(stage + staged, from, a->bytes);
    GPU(MemcpyAsync, (CUdeviceptr)a->at, (CUdeviceptr)(stage + staged),
        a->bytes, rank.stream);
    staged += a->bytes;
}

int array_untouched(const struct array *a)
{
    unsigned char *host = malloc(a->bytes + 1);
    int same = 1;

    check(host != NULL, "memory");
    array_read(a, host);
    for (size_t i = 0; i < a->bytes; i++)
        same &= host[i] == PATTERN;
    free(host);
    return same;
}

struct values values_of(enum hvd_dtype dtype, enum hvd_op op, int n)
{
    return (struct values){
        .seed = common(0),
        .dtype = dtype,
        .op = op,
        .pre = 1,
        .post = 1,
        .ranks = rank.all,
        .n = n,
        .divisor = n,
    };
}

struct array array_filled(const struct values *v, size_t count)
{
    struct array a = array_new(count, v->dtype);
    void *host = malloc(a.bytes + 1);

    check(host != NULL, "memory");
    values_fill(v, hvd_rank(), host, count);
    array_write(&a, host);
    free(host);
    return a;
}

void array_check(const struct array *a, const struct values *v, size_t first,
                 size_t count, const char *what)
{
    char *host = malloc(a->bytes + 1);
    size_t right;

    check(host != NULL, "memory");
    array_read(a, host);
    right = values_check(v, host, first, count);
    check(right == count,
          "%s, %s of %s, %zu elements, pre %g, post %g, wire %d, %d ranks: "
          "element %zu",
          what, hvd_op_name(v->op), hvd_dtype_name(v->dtype), count, v->pre,
          v->post, v->wire, v->n, right);
    free(host);
}
