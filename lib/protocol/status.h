/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of a rank, written by itself into the head of the shared segment
 * (segment.h), where its agent can read it without the rank's help: the rank
 * may be stopped, or spin.  For the report about stalls (trace/stall.h).
 *
 * Two parts.  The last call is written by every operation with plain stores and
 * the coarse clock, in a few nanoseconds; threads that call at the same moment
 * may mix their records.  The list of operations that the rank waits for is
 * written, by one thread at a time, only when it has waited for a while or the
 * agent asks (`asked`).  Both are guarded by two counters: the writer sets
 * `begun`, writes, and sets `done`; a reader that finds them different reads
 * again.
 *
 * For operations on devices (plugins/gpu.h): `launched` is how many each
 * process set's plane has launched.  It is written at once, by a plain store,
 * so that it is known even if the rank is stopped or hangs in the next launch.
 * The oldest ones that the device has not completed are in the list.
 *
 * `carried_out` is how many operations this rank has carried out in each
 * process set, also written at once: all ranks of a set carry out the same
 * operations in the same order, so a rank that has carried out more than a
 * waiting rank does not keep it waiting.
 *
 * `counts` are what the rank has counted in all worlds, if it counts for hvdrun
 * (trace/stats.h): in the world's collectives, of which one thread at a time
 * adds, and in those of other process sets, to which several may.
 *
 * Readers must not trust any of it: status_read checks and cleans.  Times are
 * CLOCK_MONOTONIC, by its coarse reading.
 */
#ifndef HVD_PROTOCOL_STATUS_H
#define HVD_PROTOCOL_STATUS_H

#include "lib/protocol/collectives.h"

#include <endian.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum {
    STATUS_NAME_BYTES = 64, /* of an operation's name, with its final 0 */
    STATUS_NAME_WORDS = STATUS_NAME_BYTES / 8,
    STATUS_WAITS_MAX = 16,
    STATUS_SETS_MAX = 256, /* process sets */
    STATUS_SETS_WORDS = STATUS_SETS_MAX / 64,
    STATUS_BYTES = 6016, /* of one rank's status */
};

#define STATUS_KIND(symbol, ...) STATUS_##symbol
enum status_kind { COLLECTIVES_AND_JOIN(STATUS_KIND), STATUS_KINDS };

/* Where a pending operation is. */
enum status_where {
    STATUS_IN_QUEUE,
    /* launched there, or about to be; `key` is its number */
    STATUS_ON_DEVICE,
    STATUS_NOT_REACHED, /* launched, but the device has not come to it */
    STATUS_WHERES
};

/* An operation in shared memory; `key` is the same on all ranks. */
struct status_op {
    _Atomic uint64_t when_ns; /* when it was issued */
    _Atomic uint64_t key;     /* waits only */
    _Atomic uint32_t kind, set;
    _Atomic uint32_t where, filler; /* waits only */
    _Atomic uint64_t name[STATUS_NAME_WORDS];
};

struct segment_status {
    _Alignas(128) _Atomic uint64_t call_begun; /* number of the current call */
    _Atomic uint64_t done;
    /* number of the last call that returned; < done: inside a call */
    _Atomic uint64_t returned;
    _Atomic uint64_t returned_ns;
    struct status_op call;
    _Alignas(128) _Atomic uint64_t waits_begun;
    _Atomic uint64_t waits_done;
    _Atomic uint32_t total;  /* operations it waits for */
    _Atomic uint32_t listed; /* how many of these are in waits */
    /* incremented by the agent: publish the list again */
    _Atomic uint32_t asked;
    _Atomic uint32_t answered;
    /* bit n % 64 of word n / 64: member of process set n */
    _Atomic uint64_t sets[STATUS_SETS_WORDS];
    struct status_op waits[STATUS_WAITS_MAX];
    /* By process set: operations launched on the device. */
    _Alignas(128) _Atomic uint64_t launched[STATUS_SETS_MAX];
    /* By process set: operations that this rank has carried out. */
    _Alignas(128) _Atomic uint64_t carried_out[STATUS_SETS_MAX];
    _Alignas(128) struct {
        _Atomic uint64_t calls, bytes, waited_ns;
    } counts[2];
};

_Static_assert(sizeof(struct segment_status) <= STATUS_BYTES,
               "the rooms in the segment have a fixed size");

/* ---- The rank -------------------------------------------------------- */

static inline uint64_t status_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void status_put(_Atomic uint64_t *word, uint64_t v)
{
    /* Release: pairs with status_read's acquire, so that a reader that sees
     * this store also sees `call_begun`.  A plain store on x86. */
    atomic_store_explicit(word, v, memory_order_release);
}

static inline void status_put_name(struct status_op *op, const char *name)
{
    size_t len = name[0] ? strnlen(name, STATUS_NAME_BYTES - 1) : 0;
    size_t whole = len / 8;
    uint64_t word = 0;

    for (size_t i = 0; i < whole; i++) {
        uint64_t eight;

        memcpy(&eight, name + 8 * i, 8);
        status_put(&op->name[i], eight);
    }
    /* Built in a register: loading as a word what was stored as bytes
     * stalls. */
    for (size_t i = 8 * whole; i < len; i++)
        word |= (uint64_t)(unsigned char)name[i] << 8 * (i % 8);
    status_put(&op->name[whole], htole64(word));
}

static inline void status_put_op(struct status_op *op, uint32_t kind,
                                 uint32_t set, const char *name)
{
    atomic_store_explicit(&op->kind, kind, memory_order_release);
    atomic_store_explicit(&op->set, set, memory_order_release);
    status_put_name(op, name);
}

/* Records that an operation is issued.  Returns its number, for
 * status_returned. */
static inline uint64_t status_call(struct segment_status *s, uint64_t now_ns,
                                   uint32_t kind, uint32_t set,
                                   const char *name)
{
    uint64_t n = atomic_load_explicit(&s->done, memory_order_relaxed) + 1;

    status_put(&s->call_begun, n);
    status_put(&s->call.when_ns, now_ns);
    status_put_op(&s->call, kind, set, name);
    status_put(&s->done, n);
    return n;
}

/* The counts of a rank's collectives. */
struct status_counts {
    uint64_t calls, bytes, waited_ns;
};

/* Adds to a word that no other thread writes at the same time. */
static inline void status_add(_Atomic uint64_t *word, uint64_t more)
{
    atomic_store_explicit(
        word, atomic_load_explicit(word, memory_order_relaxed) + more,
        memory_order_relaxed);
}

/* Adds a call of the world, or of another process set, to what the rank has
 * counted. */
static inline void status_add_call(struct segment_status *s, int is_world,
                                   uint64_t bytes, uint64_t waited_ns)
{
    if (is_world) {
        status_add(&s->counts[0].calls, 1);
        status_add(&s->counts[0].bytes, bytes);
        status_add(&s->counts[0].waited_ns, waited_ns);
        return;
    }
    atomic_fetch_add_explicit(&s->counts[1].calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->counts[1].bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->counts[1].waited_ns, waited_ns,
                              memory_order_relaxed);
}

/* Records that the call has returned to the program. */
static inline void status_returned(struct segment_status *s, uint64_t n)
{
    atomic_store_explicit(&s->returned, n, memory_order_relaxed);
}

/* ---- The agent ------------------------------------------------------- */

struct status_view_op {
    uint64_t when_ns, key;
    enum status_kind kind;
    int set;
    enum status_where where;
    char name[STATUS_NAME_BYTES]; /* printable */
};

struct status_view {
    uint64_t calls; /* issued so far; 0: `call` is not valid */
    int inside;     /* the last call has not returned */
    int torn;       /* the rest may mix several states */
    struct status_view_op call;
    uint64_t sets[STATUS_SETS_WORDS];
    uint32_t total;
    int fresh; /* the list was published after the last request */
    int count;
    struct status_view_op waits[STATUS_WAITS_MAX];
    uint64_t launched[STATUS_SETS_MAX], carried_out[STATUS_SETS_MAX];
};

/* Sets the counts of the rank's earlier worlds; no thread may add yet. */
void status_put_counts(struct segment_status *s, const struct status_counts *c);
/* Reads what the rank has counted; each number is whole, but they may be of
 * different moments. */
void status_read_counts(const struct segment_status *s,
                        struct status_counts *c);
/* Reads a consistent view; a torn one if the rank died while writing or keeps
 * writing.  Every field is within its limits. */
void status_read(const struct segment_status *s, struct status_view *v);

#endif
