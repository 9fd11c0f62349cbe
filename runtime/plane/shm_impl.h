/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the shared-memory plane.
 *
 * The segment after its head has a part for each process set (a slot): one
 * struct shm_shared, one struct shm_rank per rank, then the data regions.
 * Everything of a rank is written by that rank only.  A new plane clears what
 * an earlier one of the same slot has left of its own rank.
 *
 * Every operation has a number `seq`, counted alike on all ranks, and
 * begins with a header: each rank writes its line[seq & 1] (small payloads
 * ride in it) and then the line's seq.  An operation ends only after all
 * headers of it were seen, so a rank that publishes header s + 1 is done
 * with everything of operation s, and header s + 2, which needs all of
 * s + 1, may reuse the line, the counts and the region of s: two of each,
 * chosen by parity, and no closing barrier.
 *
 * More than a few ranks, on cores that do not share a cache, see the headers
 * through their domain's leader: shm_domains.c.
 *
 * Larger operations go on in rounds.  `filled` and `drained` only ever
 * grow; all ranks advance the private `base` of both by the number of
 * rounds, whether or not they published each value.  What they mean is
 * said where they are used (shm_allreduce.c, shm_rounds.h).
 *
 * A rank whose buffers others use in place waits for `drained` of all.  It
 * cannot when one of them is gone: it says that it gives the operation up, and
 * others look for that before they publish `drained`, so that none takes what
 * it may have written since for data.
 *
 * The payload is plain memory: its writer stores seq or a counter with
 * release afterwards, its readers load that with acquire before.
 */
#ifndef HVD_PLANE_SHM_IMPL_H
#define HVD_PLANE_SHM_IMPL_H

#include "runtime/plane/shm.h"

#include <stdatomic.h>

enum {
    SHM_LINE_BYTES = SEGMENT_LINE_BYTES,
    SHM_PAYLOAD_BYTES = SHM_LINE_BYTES - 40,
    SHM_TABLE_MAX = 4, /* ranks whose table may ride, too */
    SHM_SLOT_BYTES = 128 << 10,
    SHM_SLOTS = 4, /* the ring of a region */
    SHM_REGION_BYTES = SHM_SLOTS * SHM_SLOT_BYTES,
    SHM_SCRATCH_BYTES = 32 << 10,
    SHM_PIECE_BYTES = 16 << 10, /* stays in the nearest cache */
    SHM_STREAM_BYTES = 8 << 20, /* results as large leave the caches anyway */
};

/* What does not ride in a header: where it is, if it is in an arena.
 * Offsets in the segment; 0: it is not. */
struct shm_places {
    uint64_t send, recv;
};

/* Two cache lines.  A small operation needs the first one only: of peers that
 * agree, none but a leader of a domain reads what comes last. */
struct shm_line {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t seq;
    uint64_t signature;
    union {
        uint64_t bytes; /* of gathers */
        struct {        /* of alltoall */
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

/* What the headers of several ranks come to: shm_domains.c. */
struct shm_merged {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t seq;
    uint64_t signature, first_signature; /* of one of them */
    uint32_t alike, begin_alike; /* whether all have it: the one, the other */
    uint32_t entries;            /* the fewest */
    int32_t late;                /* who was waited for last */
};

struct shm_counter {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t value;
};

struct shm_rank {
    struct shm_line line[2];
    struct shm_counter filled, drained;
    /* Seldom written: whom it sleeps for, whether it has left. */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint32_t sleeps_for;
    _Atomic uint32_t left;
    _Atomic uint32_t fences;  /* it fences when it publishes */
    _Atomic uint32_t gave_up; /* an operation, and every later one */
    /* Alltoall: bytes for each rank, where they do not ride. */
    _Alignas(SEGMENT_LINE_BYTES) uint64_t counts[2][HVD__SHM_LOCAL_MAX];
    /* A leader's, by parity as the headers: of its domain, and of all. */
    struct shm_merged merged[2], released[2];
};

struct shm_shared {
    /* Ranks that sleep or are about to: what a publisher looks at.  A rank
     * that dies asleep leaves it too high, which costs time only. */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint32_t sleepers;
};

enum { SHM_ANY = -1 }; /* of peers */

/* Where waiting stands: shm_wait.c. */
struct shm_wait {
    const _Atomic uint64_t *word; /* what is waited for ... */
    uint64_t target;              /* ... to reach this value ... */
    int peer;                     /* ... by this local rank, or by any */
    uint64_t since_ns;            /* 0: the clock was not read yet */
    int armed;                    /* `sleeping` is set, for armed_for */
    int armed_for;
    uint32_t armed_word;
    int spins; /* looks at a word before giving up the pass */
    int sleep_ms;
    int fences; /* no membarrier reaches this process */
};

/* The operation in progress. */
struct shm_run {
    int matched; /* all headers seen and equal */
    int differ;  /* some that were seen do */
    int peer;    /* ranks below it have reached the present target */
    int stage;
    size_t round, rounds;
    size_t own_pieces; /* that this rank writes: shm_rounds.h */
    int streamed;      /* store past the cache */
    int lent;          /* some rank's memory is used where it is */
    int lends;         /* this rank's is */
    /* reductions */
    size_t block_elems; /* of a round; reduce-scatter: of one rank */
    /* gathers, alltoall */
    const unsigned char *send;
    int deliver;    /* recvbuf is wanted and large enough */
    int own_placed; /* this rank's part is in recvbuf */
    unsigned char how[HVD__SHM_LOCAL_MAX]; /* each rank's data travels */
    size_t offset[HVD__SHM_LOCAL_MAX + 1]; /* bytes before each rank's */
};

/* Who waits for whose header: shm_domains.c. */
struct shm_domains {
    int leader; /* of this rank's domain */
    int stage;
    int late; /* who was waited for last; -1: nobody */
    /* For a leader: the others of its domain, and the other leaders. */
    int members[HVD__SHM_LOCAL_MAX], leaders[HVD__SHM_LOCAL_MAX];
    int member_count, leader_count;
};

struct hvd__shm {
    struct hvd__plane plane;
    struct segment_head *head;
    struct shm_shared *shared;
    struct shm_rank *ranks;
    unsigned char *data;
    int n, me;
    uint64_t seq;  /* of the operation in progress, or of the last one */
    uint64_t base; /* of filled and drained */
    struct shm_wait wait;
    struct shm_run run;
    struct shm_domains domains;
    /* Once an operation was given up because a peer is gone, this rank is
     * out of step and must publish no more: the next header would go over
     * one that a slower rank still needs.  Every later operation fails
     * with the same. */
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

/* Where it is in the segment, if all of it is in this rank's arena; or 0. */
static inline uint64_t shm_place(const struct hvd__shm *p, const void *buf,
                                 size_t bytes)
{
    uintptr_t at = (uintptr_t)buf - (uintptr_t)p->arena;
    uint64_t room = p->config.arena_bytes;

    if (!p->arena || at >= room || bytes > room - at)
        return 0;
    return (uint64_t)((uintptr_t)buf - (uintptr_t)p->head);
}

static inline unsigned char *shm_at(const struct hvd__shm *p, uint64_t place)
{
    return (unsigned char *)p->head + place;
}

/* The region of a rank for the operation in progress. */
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

/* ---- shm_wait.c ---- */

void shm_wait_init(struct hvd__shm *p);
void shm_wake_sleepers(struct hvd__shm *p);
void shm_pause(struct hvd__plane *plane);
int shm_began(struct hvd__plane *plane, struct hb_error *err);
void shm_interrupt(struct hvd__plane *plane);
/* Ends a wait: a rank that runs is not to be woken. */
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

/* For the next: what is not there yet may never come. */
int shm_out_of_reach(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                     uint64_t target, struct hb_error *err);

/* 1 when `word` of `peer` has reached target; 0 to come again; negative
 * when it never will, with err set. */
static inline int shm_reached(struct hvd__shm *p, int peer,
                              const _Atomic uint64_t *word, uint64_t target,
                              struct hb_error *err)
{
    return shm_spin(p, word, target)
               ? 1
               : shm_out_of_reach(p, peer, word, target, err);
}
/* The same for a word that a rank publishes for others too: SHM_GONE when it
 * may never do so, because it has left or somebody has died. */
enum { SHM_GONE = 2 };
int shm_reached_by(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                   uint64_t target, struct hb_error *err);
/* The death of a rank, as an error: negative, or 0 when all live; find when
 * there is a word of one. */
int shm_find_abort(struct hvd__shm *p, struct hb_error *err);
static inline int shm_check_abort(struct hvd__shm *p, struct hb_error *err)
{
    /* Relaxed: looked at again. */
    if (!atomic_load_explicit(&p->head->abort_word, memory_order_relaxed))
        return 0;
    return shm_find_abort(p, err);
}

/* Before this rank says that it is done with memory of the others: 1, or
 * negative when one of them, whose operation has failed, may use it for
 * something else by now. */
int shm_still_lent(struct hvd__shm *p, struct hb_error *err);

/* Reads elements of the operation to the segment. */
void shm_pack(const struct hvd__shm *p, const struct hvd__op *op, void *dst,
              size_t first, size_t count);

/* Makes what this rank wrote before visible under `word`, and wakes those
 * who sleep for it. */
static inline void shm_publish(struct hvd__shm *p, _Atomic uint64_t *word,
                               uint64_t value)
{
    _Atomic uint32_t *sleepers = &p->shared->sleepers;
    uint32_t asleep;

    /* Release: pairs with the acquire in shm_reached. */
    atomic_store_explicit(word, value, memory_order_release);
    /* The store may still be in this core's buffer when the load below is
     * done; the sleeper's membarrier (shm_wait.c) closes that window, so
     * that no fence is paid for here.  Where that does not reach this
     * process, a read-modify-write pairs with the sleeper's. */
    atomic_signal_fence(memory_order_seq_cst);
    asleep = p->wait.fences
                 ? atomic_fetch_add(sleepers, 0)
                 : atomic_load_explicit(sleepers, memory_order_relaxed);
    if (asleep)
        shm_wake_sleepers(p);
}

/* All ranks, from run.peer on; resets run.peer when all have arrived. */
enum shm_word { SHM_FILLED, SHM_DRAINED };
int shm_all_reached(struct hvd__shm *p, enum shm_word which, uint64_t target,
                    struct hb_error *err);

/* ---- shm_domains.c ---- */

/* domains: of each rank, or NULL.  1 when the ranks are to agree by domain. */
int shm_domains_init(struct hvd__shm *p, const uint32_t *domains);
/* 1 when the headers of all ranks are there and agree; 0 to come again; what
 * progress returns when they differ, or when some will never come. */
int shm_domains_match(struct hvd__shm *p, struct hvd__op *op);

/* ---- the collectives ----
 * stage: what goes before the header (no waiting); advance: after all
 * headers matched, as progress. */

void shm_allreduce_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_allreduce_advance(struct hvd__shm *p, struct hvd__op *op);
void shm_gather_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_gather_advance(struct hvd__shm *p, struct hvd__op *op);
void shm_scatter_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_scatter_advance(struct hvd__shm *p, struct hvd__op *op);
void shm_alltoall_stage(struct hvd__shm *p, const struct hvd__op *op);
int shm_alltoall_advance(struct hvd__shm *p, struct hvd__op *op);

/* Orders everything before against everything after.  gcc's
 * ThreadSanitizer does not know C11's fences and refuses them; it sees one
 * process only, so what they order is beyond it anyway. */
static inline void shm_fence(void)
{
#ifdef __SANITIZE_THREAD__
    __sync_synchronize();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
