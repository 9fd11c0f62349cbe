/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the shared-memory plane.
 *
 * The segment after its head has a part for each process set (a slot): one
 * struct shm_shared, one struct shm_rank per rank, two tables of counts and two
 * data regions per rank, then the slots of an exchange.  Each rank's part is
 * written by that rank only.  A new plane clears its rank's part, which an
 * earlier plane of the same slot may have used.
 *
 * Every operation has a number `seq`, counted alike on all ranks, and begins
 * with a header: each rank writes its line[seq & 1] (small payloads are inline
 * in it) and then the line's seq.  An operation ends only after all headers of
 * it were seen, so a rank that publishes header s + 1 is done with everything
 * of operation s, and header s + 2, which needs all of s + 1, may reuse the
 * line, the counts and the region of s: two of each, chosen by parity, and no
 * closing barrier.
 *
 * On a host with many ranks and several cache domains, ranks learn of the
 * headers through their domain's leader: shm_domains.c.
 *
 * Larger operations proceed in rounds.  The counters `filled` and `drained`
 * only ever grow; after an operation all ranks add its number of rounds to
 * their private `base`, whether or not they published each value.
 * shm_allreduce.c, shm_rounds.h and shm_exchange.h say what the counters mean.
 *
 * A rank whose buffers others use in place (it lends them) waits until all
 * have published `drained`.  If one of those is gone, it sets gave_up instead
 * and fails; the others check gave_up before they publish `drained`, so that
 * none mistakes what the lender has written since for data.
 *
 * The payload is plain memory: its writer stores seq or a counter with
 * release afterwards, its readers load that with acquire before.
 */
#ifndef HVD_PLANE_SHM_IMPL_H
#define HVD_PLANE_SHM_IMPL_H

#include "runtime/plane/shm/shm.h"

#include <stdatomic.h>

enum {
    SHM_CACHE_LINE = 64,
    SHM_LINE_BYTES = SEGMENT_LINE_BYTES,
    SHM_PAYLOAD_BYTES = SHM_LINE_BYTES - 40,
    SHM_TABLE_MAX = 4, /* up to so many ranks, the table is inline, too */
    SHM_SLOT_BYTES = 128 << 10,
    SHM_SLOTS = 4, /* slots of a region, used as a ring */
    SHM_REGION_BYTES = SHM_SLOTS * SHM_SLOT_BYTES,
    SHM_EXCHANGE_SLOTS = 4,
    SHM_SCRATCH_BYTES = 32 << 10,
    SHM_PIECE_BYTES = 16 << 10, /* fits the nearest cache */
    SHM_STREAM_BYTES = 8 << 20, /* results this large do not stay in the
                                   cache anyway */
};

/* Offsets in the segment of buffers that lie in an arena; 0: not in one. */
struct shm_places {
    uint64_t send, recv;
};

/* A rank's header: two cache lines.  While the ranks agree, a small operation
 * reads the first line only; just domain leaders read the fields at the end. */
struct shm_line {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t seq;
    uint64_t signature;
    union {
        uint64_t bytes; /* gathers */
        struct {        /* alltoall */
            uint32_t how;
            unsigned char table[SHM_TABLE_MAX];
        };
    };
    union {
        unsigned char payload[SHM_PAYLOAD_BYTES];
        struct shm_places places;
    };
    uint64_t first_signature;
    uint32_t entries;
};

/* The merged headers of several ranks: shm_domains.c. */
struct shm_merged {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t seq;
    uint64_t signature, first_signature; /* of one of the ranks */
    uint32_t alike, begin_alike;         /* do all have that signature, that
                                            first_signature? */
    uint32_t entries;                    /* fewest of any rank */
    int32_t late;                        /* rank that was waited for last */
};

struct shm_counter {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t value;
};

struct shm_rank {
    struct shm_line line[2];
    struct shm_counter filled, drained;
    /* Seldom written. sleeps_for: the rank that this one sleeps for, or
     * SHM_ANY. */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint32_t sleeps_for;
    _Atomic uint32_t left;
    _Atomic uint32_t fences;  /* its shm_publish includes a fence */
    _Atomic uint32_t gave_up; /* it failed; its later operations fail, too */
    /* Its config.exchange_bytes; written before its first header. */
    _Atomic uint32_t exchange_bytes;
    /* Leaders only, by parity: merged headers of its domain, and of all
     * ranks. */
    struct shm_merged merged[2], released[2];
};

struct shm_shared {
    /* Number of ranks that sleep or are about to; publishers check it.  A rank
     * that dies asleep leaves it too high, which only costs time. */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint32_t sleepers;
    _Atomic uint32_t is_claimed; /* hvd__shm_claim */
};

enum { SHM_ANY = -1 }; /* as peer: any rank */

/* The state of the current wait: shm_wait.c. */
struct shm_wait {
    const _Atomic uint64_t *word; /* waits for this word ... */
    uint64_t target;              /* ... to reach this value ... */
    int peer;                     /* ... set by this local rank or SHM_ANY */
    uint64_t since_ns;            /* 0: the clock was not read yet */
    int armed;                    /* announced as a sleeper for armed_for */
    int armed_for;
    uint32_t armed_word;
    int spins; /* loads of a word before shm_spin gives up */
    int sleep_ms;
    int fences; /* membarrier does not reach this process */
};

/* The operation in progress. */
struct shm_run {
    int matched; /* all headers were seen and agree */
    int differ;  /* some header differs */
    int peer;    /* all ranks below it have reached the current target */
    int stage;
    size_t round, rounds;
    size_t own_pieces; /* pieces that this rank writes: shm_rounds.h */
    int streamed;      /* uses non-temporal stores */
    int lent;          /* some rank's buffers are used in place */
    int lends;         /* this rank's are */
    /* reductions */
    size_t block_elems; /* elements per round; reduce-scatter: per round and
                           rank */
    int exchanges; /* it is an exchange, with what this rank sends and takes */
    size_t sent_bytes, taken_bytes;
    /* gathers, alltoall */
    const unsigned char *send;
    int deliver;    /* recvbuf is wanted and large enough */
    int own_placed; /* this rank's part is in recvbuf already */
    unsigned char how[HVD__SHM_LOCAL_MAX]; /* how each rank's data travels */
    size_t offset[HVD__SHM_LOCAL_MAX + 1]; /* bytes before each rank's part */
};

/* Which headers this rank waits for: shm_domains.c. */
struct shm_domains {
    int leader; /* of this rank's domain */
    int stage;
    int late; /* rank that was waited for last; -1: none */
    /* Leaders only: the other ranks of the domain, and the other leaders. */
    int members[HVD__SHM_LOCAL_MAX], leaders[HVD__SHM_LOCAL_MAX];
    int member_count, leader_count;
};

struct hvd__shm {
    struct hvd__plane plane;
    struct segment_head *head;
    struct shm_shared *shared;
    struct shm_rank *ranks;
    uint64_t *counts; /* shm_counts */
    unsigned char *data;
    unsigned char *exchange; /* four slots: shm_exchange.h */
    int n, me;
    uint64_t seq;  /* of the operation in progress, or of the last one */
    uint64_t base; /* value of filled and drained at the operation's begin */
    uint64_t exchanged;    /* blocks of all exchanges before the operation */
    size_t exchange_bytes; /* of a block; 0: none, or not yet agreed on */
    struct shm_wait wait;
    struct shm_run run;
    struct shm_domains domains;
    /* Set once an operation failed because a peer is gone.  This rank is then
     * out of step and must publish nothing: its next header might overwrite
     * one that a slower rank still needs.  Every later operation fails with
     * this error. */
    struct hb_error broken;
    struct hvd__shm_config config;
    uint32_t world_ranks[HVD__SHM_LOCAL_MAX];
    int group_ranks[HVD__SHM_LOCAL_MAX];
    uint32_t local_index[HVD__SHM_LOCAL_MAX];
    unsigned char *arena; /* this rank's, or NULL */
    void *scratch;        /* SHM_SCRATCH_BYTES */
    char host[64];
};

static inline int shm_parity(const struct hvd__shm *p)
{
    return (int)(p->seq & 1);
}

static inline size_t shm_bytes(const struct hvd__op *op)
{
    return op->count * op->elem_bytes;
}

/* Returns the offset of a buffer in the segment if all of it lies in this
 * rank's arena; else 0. */
static inline uint64_t shm_place(const struct hvd__shm *p, const void *buf,
                                 size_t bytes)
{
    uintptr_t at = (uintptr_t)buf - (uintptr_t)p->arena;
    uint64_t room = p->config.arena_bytes;

    if (!p->arena || at >= room || bytes > room - at)
        return 0;
    return (uint64_t)((uintptr_t)buf - (uintptr_t)p->head);
}

static inline unsigned char *shm_at(const struct hvd__shm *p, uint64_t offset)
{
    return (unsigned char *)p->head + offset;
}

/* Returns whether `bytes` from an offset that a rank announced lie in its
 * arena.  0 (not in an arena) is valid. */
static inline int shm_is_place(const struct hvd__shm *p, int rank,
                               uint64_t offset, uint64_t bytes)
{
    uint64_t room = p->config.arena_bytes, at;

    if (!offset)
        return 1;
    at = offset - hvd__shm_arena_at(p->config.segment_ranks,
                                    (int)p->local_index[rank], room);
    return at < room && bytes <= room - at;
}

/* Returns a rank's region for the operation in progress. */
static inline unsigned char *shm_region(const struct hvd__shm *p, int rank)
{
    size_t index = (size_t)rank * 2 + (size_t)shm_parity(p);

    return p->data + index * SHM_REGION_BYTES;
}

static inline unsigned char *shm_slot(const struct hvd__shm *p, int rank,
                                      size_t round)
{
    return shm_region(p, rank) + round % SHM_SLOTS * SHM_SLOT_BYTES;
}

static inline struct shm_line *shm_line(const struct hvd__shm *p, int rank)
{
    return &p->ranks[rank].line[shm_parity(p)];
}

/* Returns the bytes that a rank sends to each other in the alltoall in
 * progress, if they are not in the header. */
static inline uint64_t *shm_counts(const struct hvd__shm *p, int rank)
{
    size_t index = (size_t)rank * 2 + (size_t)shm_parity(p);

    return p->counts + index * (size_t)p->config.segment_ranks;
}

/* Returns whether the ranks of this plane send each other data by the exchange
 * of shm_exchange.h. */
static inline int shm_exchanges(const struct hvd__shm *p)
{
    return p->exchange_bytes != 0;
}

/* ---- shm_wait.c ---- */

void shm_wait_init(struct hvd__shm *p);
void shm_wake_sleepers(struct hvd__shm *p);
void shm_pause(struct hvd__plane *plane, uint64_t until_ns);
int shm_began(struct hvd__plane *plane, struct hb_error *err);
void shm_interrupt(struct hvd__plane *plane);
/* Ends a wait: withdraws the announcement that this rank sleeps. */
void shm_disarm(struct hvd__shm *p);
static inline void shm_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline int shm_spin(const struct hvd__shm *p,
                           const _Atomic uint64_t *word, uint64_t target)
{
    for (int i = 0; i < p->wait.spins; i++) {
        /* Acquire: pairs with the release in shm_publish. */
        if (atomic_load_explicit(word, memory_order_acquire) >= target)
            return 1;
        shm_relax();
    }
    return 0;
}

/* Returns 0 to keep waiting, 1 if `word` has reached target after all, or
 * negative with err set if `peer` died or left and will never publish it: the
 * slow path of shm_reached. */
int shm_out_of_reach(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                     uint64_t target, struct hb_error *err);

/* Returns 1 if `word` of `peer` has reached target, 0 to call again, or
 * negative with err set if it never will. */
static inline int shm_reached(struct hvd__shm *p, int peer,
                              const _Atomic uint64_t *word, uint64_t target,
                              struct hb_error *err)
{
    return shm_spin(p, word, target)
               ? 1
               : shm_out_of_reach(p, peer, word, target, err);
}
/* Like shm_reached, for a word that depends on other ranks, too.  SHM_GONE if
 * it may never be published: `peer` has left or some rank has died. */
enum { SHM_GONE = 2 };
int shm_reached_by(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                   uint64_t target, struct hb_error *err);
/* Checks for the death of a rank: 0 if all live, or negative with err set.
 * shm_find_abort is the slow path, for when abort_word is set. */
int shm_find_abort(struct hvd__shm *p, struct hb_error *err);
static inline int shm_check_abort(struct hvd__shm *p, struct hb_error *err)
{
    /* Relaxed: shm_find_abort loads it again, with acquire. */
    if (!atomic_load_explicit(&p->head->abort_word, memory_order_relaxed))
        return 0;
    return shm_find_abort(p, err);
}

/* Returns 1, or negative with err set if a lender's operation has failed, so
 * that it may have reused its memory.  Called before this rank publishes that
 * it is done with lent memory of others. */
int shm_still_lent(struct hvd__shm *p, struct hb_error *err);

/* Packs elements of the operation to the segment. */
void shm_pack(const struct hvd__shm *p, const struct hvd__op *op, void *dst,
              size_t first, size_t count);

/* Makes what this rank wrote before visible under `word`, and wakes the ranks
 * that sleep for it. */
static inline void shm_publish(struct hvd__shm *p, _Atomic uint64_t *word,
                               uint64_t value)
{
    _Atomic uint32_t *sleepers = &p->shared->sleepers;
    uint32_t asleep;

    /* Release: pairs with the acquire in shm_spin. */
    atomic_store_explicit(word, value, memory_order_release);
    /* The store may still be in this core's buffer when the load below
     * executes.  The sleeper's membarrier (shm_wait.c) closes that window
     * without a fence here.  Where membarrier does not reach this process, a
     * read-modify-write pairs with the sleeper's. */
    atomic_signal_fence(memory_order_seq_cst);
    asleep = p->wait.fences
                 ? atomic_fetch_add(sleepers, 0)
                 : atomic_load_explicit(sleepers, memory_order_relaxed);
    if (asleep)
        shm_wake_sleepers(p);
}

/* Like shm_reached for all ranks from run.peer on; resets run.peer when all
 * have reached target. */
enum shm_word { SHM_FILLED, SHM_DRAINED };
int shm_all_reached(struct hvd__shm *p, enum shm_word which, uint64_t target,
                    struct hb_error *err);

/* ---- shm_domains.c ---- */

/* Computes this rank's role; `domains` holds each rank's cache domain, or is
 * NULL.  1: match headers with shm_domains_match; 0: directly. */
int shm_domains_init(struct hvd__shm *p, const uint32_t *domains);
/* Returns 1 if all headers have arrived and agree, 0 to call again, else what
 * progress returns: they differ, or some will never arrive. */
int shm_domains_match(struct hvd__shm *p, struct hvd__op *op);

/* ---- the collectives ----
 * stage: what precedes the header, never waits; advance: like progress, called
 * after all headers have matched. */

void shm_allreduce_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_allreduce_advance(struct hvd__shm *p, struct hvd__op *op);
void shm_gather_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_gather_advance(struct hvd__shm *p, struct hvd__op *op);
void shm_scatter_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_scatter_advance(struct hvd__shm *p, struct hvd__op *op);
void shm_alltoall_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_alltoall_advance(struct hvd__shm *p, struct hvd__op *op);

/* Issues a full memory fence. gcc's ThreadSanitizer refuses C11 fences; it sees
 * one process only, so it could not check what they order anyway. */
static inline void shm_fence(void)
{
#ifdef __SANITIZE_THREAD__
    __sync_synchronize();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
