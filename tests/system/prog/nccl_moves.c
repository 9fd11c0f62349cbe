/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives in device memory that only move data, and all kinds mixed; see
 * nccl_rank.h.  The data are bytes, whatever the dtype.
 */
#include "tests/system/prog/nccl_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 3, MIXED = 40 };

/* Returns byte i of what rank `from` gives to rank `to`, or to all: -1. */
static unsigned char byte_of(int from, int to, size_t i)
{
    return (unsigned char)values_random(common(90), (uint64_t)from,
                                        (uint64_t)(to + 1) << 32 | i);
}

static void bytes_fill(unsigned char *at, int from, int to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = byte_of(from, to, i);
}

static void bytes_check(const unsigned char *at, int from, int to, size_t bytes,
                        const char *what)
{
    for (size_t i = 0; i < bytes; i++)
        check(at[i] == byte_of(from, to, i),
              "%s: byte %zu of %zu, from %d to %d, is wrong", what, i, bytes,
              from, to);
}

static unsigned char *host_memory(size_t bytes)
{
    unsigned char *p = malloc(bytes + 1);

    check(p != NULL, "memory");
    return p;
}

static struct array array_of(size_t count, enum hvd_dtype dtype, int to)
{
    struct array a = array_new(count, dtype);
    unsigned char *host = host_memory(a.bytes);

    bytes_fill(host, hvd_rank(), to, a.bytes);
    array_write(&a, host);
    free(host);
    return a;
}

/* ---- Broadcast --------------------------------------------------------------
 */

static void broadcast(enum hvd_dtype dtype, int root, size_t count, int alias)
{
    struct hvd_options o = options();
    int is_root = hvd_rank() == root;
    struct array in = {0}, out;
    unsigned char *host;

    if (is_root)
        in = array_of(count, dtype, -1);
    out = is_root && alias ? in : array_new(count, dtype);
    host = host_memory(out.bytes);
    must(hvd_broadcast(in.at, out.at, count, dtype, root, &o), "broadcast");
    array_read(&out, host);
    bytes_check(host, root, -1, out.bytes, "broadcast");
    free(host);
    if (out.at != in.at)
        array_free(&in);
    array_free(&out);
}

void cases_broadcast(void)
{
    for (int dtype = 0; dtype < VALUES_DTYPES; dtype++)
        for (int alias = 0; alias < 2; alias++) {
            next_case();
            broadcast((enum hvd_dtype)dtype,
                      (int)(common(1) % (unsigned)hvd_size()),
                      1 + common(2) % 3000, alias);
        }
    next_case();
    broadcast(HVD_FLOAT32, hvd_size() - 1, 200001, 0);
    next_case();
    broadcast(HVD_UINT8, 0, 0, 0);
}

/* ---- Allgather --------------------------------------------------------------
 */

enum shares { EVEN, RAGGED, ONE };

static size_t share(enum shares shares, int r, uint64_t place)
{
    if (shares == EVEN)
        return 1 + common(place) % 700;
    if (shares == ONE)
        return r == (int)(common(place) % (unsigned)hvd_size()) ? 99 : 0;
    return own(r, place) % 5 ? own(r, place + 1) % 900 : 0;
}

static void gathered(const struct array *out, enum shares shares,
                     uint64_t place, size_t elem, const char *what)
{
    unsigned char *host = host_memory(out->bytes);
    size_t at = 0;

    array_read(out, host);
    for (int r = 0; r < hvd_size(); r++) {
        size_t bytes = share(shares, r, place) * elem;

        bytes_check(host + at, r, -1, bytes, what);
        at += bytes;
    }
    free(host);
}

static size_t all_shares(enum shares shares, uint64_t place)
{
    size_t sum = 0;

    for (int r = 0; r < hvd_size(); r++)
        sum += share(shares, r, place);
    return sum;
}

/* Checks an allgather.  tight: the rank whose room is one element short, or
 * -1. */
static void allgather(enum hvd_dtype dtype, enum shares shares, int tight)
{
    size_t mine = share(shares, hvd_rank(), 10), all = all_shares(shares, 10);
    size_t counts[VALUES_RANKS] = {0};
    struct hvd_options o = options();
    struct array in = array_of(mine, dtype, -1), out = array_new(all, dtype);
    size_t cap = all - (size_t)(hvd_rank() == tight && all > 0);
    int rc = hvd_allgather(in.at, mine, out.at, cap, counts, dtype, &o);

    for (int r = 0; r < hvd_size(); r++)
        check(counts[r] == share(shares, r, 10), "recvcounts[%d] is %zu", r,
              counts[r]);
    if (cap < all) {
        must_fail(rc, HVD_EINVAL, "");
        check(array_untouched(&out), "recvbuf has changed");
    } else {
        must(rc, "allgather");
        gathered(&out, shares, 10, hvd_dtype_size(dtype), "allgather");
    }
    array_free(&in);
    array_free(&out);
}

/* What alloc answers, and what it was asked for. */
struct alloc_call {
    void *at;
    unsigned calls;
    size_t count;
};

static void *give(void *arg, size_t member, size_t count,
                  const size_t *recvcounts)
{
    struct alloc_call *call = arg;

    check(member == 0, "member is %zu", member);
    check(recvcounts[hvd_rank()] <= count, "recvcounts is wrong");
    call->calls++;
    call->count = count;
    return call->at;
}

enum answer { GIVES, HAS_NONE, GIVES_HOST };

/* Checks an allgather that asks for memory; rank `odd` answers otherwise than
 * with device memory, and fails alone. */
static void asking_allgather(enum shares shares, int odd, enum answer answer)
{
    size_t mine = share(shares, hvd_rank(), 10), all = all_shares(shares, 10);
    int fails = hvd_rank() == odd && answer != GIVES && all > 0, rc;
    struct array in = array_of(mine, HVD_FLOAT32, -1);
    struct array out = array_new(all, HVD_FLOAT32);
    unsigned char *host = host_memory(out.bytes + 4);
    struct alloc_call call = {.at = out.at};
    struct hvd_options o = options();

    o.alloc = give;
    o.alloc_arg = &call;
    if (fails)
        call.at = answer == GIVES_HOST ? host : NULL;
    rc = hvd_allgather(in.at, mine, NULL, 0, NULL, HVD_FLOAT32, &o);
    check(call.calls == 1 && call.count == all, "asked for %zu elements",
          call.count);
    if (fails) {
        must_fail(rc, answer == GIVES_HOST ? HVD_EINVAL : HVD_ENOMEM,
                  "options.alloc returned");
        check(array_untouched(&out), "memory that was not given has changed");
    } else {
        must(rc, "allgather");
        gathered(&out, shares, 10, 4, "allgather");
    }
    free(host);
    array_free(&in);
    array_free(&out);
}

static void cases_asking(void)
{
    for (int shares = EVEN; shares <= ONE; shares++)
        for (int answer = GIVES; answer <= GIVES_HOST; answer++) {
            next_case();
            asking_allgather((enum shares)shares,
                             (int)(common(3) % (unsigned)hvd_size()),
                             (enum answer)answer);
        }
}

void cases_allgather(void)
{
    cases_asking();
    for (int dtype = 0; dtype < VALUES_DTYPES; dtype++)
        for (int shares = EVEN; shares <= ONE; shares++) {
            next_case();
            allgather((enum hvd_dtype)dtype, (enum shares)shares, -1);
        }
    for (int i = 0; i < 6; i++) {
        next_case();
        allgather(HVD_FLOAT32, i % 2 ? EVEN : RAGGED, i % hvd_size());
    }
}

/* ---- Alltoall ---------------------------------------------------------------
 */

static size_t passed(int even, int from, int to)
{
    if (even)
        return 1 + common(7) % 200;
    return own(from, 100 + (uint64_t)to) % 4
               ? own(from, 200 + (uint64_t)to) % 500
               : 0;
}

static struct array alltoall_input(enum hvd_dtype dtype, int even,
                                   size_t *counts)
{
    size_t elem = hvd_dtype_size(dtype), sum = 0, at = 0;
    unsigned char *host;
    struct array in;

    for (int r = 0; r < hvd_size(); r++)
        sum += counts[r] = passed(even, hvd_rank(), r);
    in = array_new(sum, dtype);
    host = host_memory(in.bytes);
    for (int r = 0; r < hvd_size(); r++) {
        bytes_fill(host + at, hvd_rank(), r, counts[r] * elem);
        at += counts[r] * elem;
    }
    array_write(&in, host);
    free(host);
    return in;
}

static void alltoall_check(const struct array *out, const size_t *got,
                           enum hvd_dtype dtype, int even)
{
    unsigned char *host = host_memory(out->bytes);
    size_t elem = hvd_dtype_size(dtype), at = 0;

    array_read(out, host);
    for (int r = 0; r < hvd_size(); r++) {
        check(got[r] == passed(even, r, hvd_rank()), "recvcounts[%d] is %zu", r,
              got[r]);
        bytes_check(host + at, r, hvd_rank(), got[r] * elem, "alltoall");
        at += got[r] * elem;
    }
    free(host);
}

/* Checks an alltoall.  tight: the rank without room, or -1.  asks: all ranks
 * are asked for memory, which that rank does not have. */
static void alltoall(enum hvd_dtype dtype, int even, int tight, int asks)
{
    size_t counts[VALUES_RANKS], got[VALUES_RANKS] = {0}, all = 0, cap;
    struct hvd_options o = options();
    struct array in = alltoall_input(dtype, even, counts), out;
    struct alloc_call call = {0};
    int rc;

    for (int r = 0; r < hvd_size(); r++)
        all += passed(even, r, hvd_rank());
    out = array_new(all, dtype);
    cap = all - (size_t)(hvd_rank() == tight && all > 0);
    if (asks) {
        call.at = cap < all ? NULL : out.at;
        o.alloc = give;
        o.alloc_arg = &call;
    }
    rc = hvd_alltoall(in.at, even ? NULL : counts,
                      in.bytes / hvd_dtype_size(dtype), asks ? NULL : out.at,
                      asks ? 0 : cap, got, dtype, &o);
    check(!asks || (call.calls == 1 && call.count == all),
          "asked for %zu elements", call.count);
    if (cap < all) {
        must_fail(rc, asks ? HVD_ENOMEM : HVD_EINVAL, "");
        check(array_untouched(&out), "recvbuf has changed");
    } else {
        must(rc, "alltoall");
        alltoall_check(&out, got, dtype, even);
    }
    array_free(&in);
    array_free(&out);
}

void cases_alltoall(void)
{
    for (int dtype = 0; dtype < VALUES_DTYPES; dtype++)
        for (int even = 0; even < 2; even++) {
            next_case();
            alltoall((enum hvd_dtype)dtype, even, -1, dtype % 2);
        }
    for (int i = 0; i < 8; i++) {
        next_case();
        alltoall(HVD_INT32, i % 2, i % hvd_size(), i / 4);
    }
}

/* ---- Groups ------------------------------------------------------------- */

static void grouped_allgather(enum hvd_dtype dtype, enum shares shares)
{
    const void *ins[GROUP];
    void *outs[GROUP];
    size_t mine[GROUP], caps[GROUP], counts[GROUP * VALUES_RANKS];
    struct array in[GROUP], out[GROUP];
    struct hvd_options o = options();

    for (uint64_t i = 0; i < GROUP; i++) {
        mine[i] = share(shares, hvd_rank(), 10 * i);
        caps[i] = all_shares(shares, 10 * i);
        in[i] = array_of(mine[i], dtype, -1);
        out[i] = array_new(caps[i], dtype);
        ins[i] = in[i].at;
        outs[i] = out[i].at;
    }
    must(hvd_grouped_allgather(GROUP, ins, mine, outs, caps, counts, dtype, &o),
         "grouped_allgather");
    for (uint64_t i = 0; i < GROUP; i++) {
        gathered(&out[i], shares, 10 * i, hvd_dtype_size(dtype),
                 "grouped_allgather");
        for (int r = 0; r < hvd_size(); r++)
            check(counts[(int)i * hvd_size() + r] == share(shares, r, 10 * i),
                  "recvcounts");
        array_free(&in[i]);
        array_free(&out[i]);
    }
}

void cases_gathered_groups(void)
{
    for (int i = 0; i < 6; i++) {
        next_case();
        grouped_allgather(i % 2 ? HVD_FLOAT32 : HVD_UINT8,
                          i % 3 ? RAGGED : EVEN);
    }
}

/* ---- All mixed ---------------------------------------------------------- */

/* Sums in host memory, which operations in device memory must not disturb. */
static void host_sum(void)
{
    double x[3] = {1, (double)hvd_rank(), 3};
    int n = hvd_size();

    must(hvd_allreduce(x, x, 3, HVD_FLOAT64, HVD_SUM, NULL), "host allreduce");
    check(x[0] == n && x[1] == n * (n - 1) / 2.0 && x[2] == 3.0 * n,
          "host allreduce");
}

static void sum(void)
{
    struct values v = values_of(HVD_FLOAT32, HVD_SUM, hvd_size());
    struct array a = array_filled(&v, 100);
    struct hvd_options o = options();

    must(hvd_allreduce(a.at, a.at, 100, v.dtype, v.op, &o), "allreduce");
    array_check(&a, &v, 0, 100, "mixed");
    array_free(&a);
}

void cases_mixed(void)
{
    struct hvd_options o = HVD_OPTIONS_INIT;

    for (int i = 0; i < MIXED; i++) {
        next_case();
        switch (common(1) % 7) {
        case 0:
            host_sum();
            break;
        case 1:
            broadcast(HVD_INT16, 0, 77, 0);
            break;
        case 2:
            allgather(HVD_BOOL, RAGGED, -1);
            break;
        case 3:
            alltoall(HVD_FLOAT64, 0, -1, 0);
            break;
        case 4:
            must(hvd_barrier(&o), "barrier");
            break;
        case 5:
            grouped_allgather(HVD_FLOAT16, RAGGED);
            break;
        default:
            sum();
            break;
        }
    }
}
