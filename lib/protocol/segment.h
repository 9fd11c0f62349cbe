/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of the shared segment, used by the agent and the local ranks.  The
 * rest of the segment is libhvd's own (runtime/plane/shm/shm).
 *
 * The agent makes one memfd per epoch, sealed against shrinking and growing (so
 * that a hostile or broken worker cannot make the others fault), fills the
 * head, passes the descriptor to each local rank, and keeps the head mapped.
 * When a rank dies it writes the culprit here and wakes every sleeper: a rank
 * inside a collective learns of it from memory that it already polls.  A memfd
 * has no name, so nothing is left in /dev/shm however the job ends.
 *
 * Threading: `abort_word` is set once, by compare-exchange from 0, so that a
 * process killed at any point either has set it or has not; readers load it
 * with acquire.  abort_text is written before the word and by one process only,
 * the agent.  Only threads of local rank i sleep on the futex wake[i]
 * (FUTEX_WAIT, shared), several if it uses several planes; other processes
 * increment and wake it.
 */
#ifndef HVD_PROTOCOL_SEGMENT_H
#define HVD_PROTOCOL_SEGMENT_H

#include "lib/protocol/status.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
    SEGMENT_MAGIC = 0x68764453, /* "hvDS" */
    SEGMENT_LAYOUT = 9,
    SEGMENT_LOCAL_MAX = 1024, /* local ranks */
    /* two cache lines, which the adjacent-line prefetcher pairs */
    SEGMENT_LINE_BYTES = 128,
    SEGMENT_TEXT_MAX = 256,
    SEGMENT_NONCE_BYTES = 16,
};

/* In place of a rank that is not known. */
#define SEGMENT_NO_RANK UINT32_MAX

struct segment_wake {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint32_t word;
    /* threads of its owner that may be in FUTEX_WAIT */
    _Atomic uint32_t sleeping;
    /* its owner has left, and its process may end; for ranks that check on each
     * other */
    _Atomic uint32_t left;
    /* Written by the agent: when its owner is killed because it is to leave, by
     * CLOCK_MONOTONIC; UINT64_MAX: never; 0: it is not to leave. */
    _Atomic uint64_t notice_ns;
};

struct segment_head {
    uint32_t magic, layout, epoch, local_size;
    uint64_t segment_bytes;
    /* For ranks without an agent: identifies this segment. */
    unsigned char nonce[SEGMENT_NONCE_BYTES];
    /* 0, or the culprit's world rank + 1 in the low 32 bits and an enum
     * hvd_status in the high ones:
     * - HVD_EPEER: it died
     * - HVD_ETIMEOUT: the others waited for it until the job was given up
     * - HVD_ESHUTDOWN: it left
     * - HVD_ECLOSED: the connection to it, on another host, broke */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t abort_word;
    /* of the first two; written by the agent */
    char abort_text[SEGMENT_TEXT_MAX];
    /* Written by the agent: the rank blamed by the last report about waiting
     * ranks.  Guarded like a rank's status (status.h). */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t blame_begun;
    _Atomic uint64_t blame_done;
    _Atomic uint64_t blame_ns;   /* CLOCK_MONOTONIC */
    _Atomic uint64_t blame_rank; /* may be SEGMENT_NO_RANK */
    _Atomic uint64_t blame_text[SEGMENT_TEXT_MAX / 8];
    /* Written by the agent: 1 if the ranks are to meet again at their next
     * commit (control_generation.h). */
    _Atomic uint32_t change;
    /* Written by the ranks: 1 once they have committed a state. */
    _Atomic uint32_t committed;
    struct segment_wake wake[]; /* [local_size] */
};

/* Returns the offset of the ranks' status, for n local ranks: on pages of its
 * own, because the ranks write there all the time. */
static inline uint64_t segment_status_at(uint32_t n)
{
    uint64_t bytes =
        sizeof(struct segment_head) + (uint64_t)n * sizeof(struct segment_wake);
    return (bytes + 4095) & ~(uint64_t)4095;
}

/* Returns the bytes of the head for n local ranks, a multiple of 4096. */
static inline uint64_t segment_head_bytes(uint32_t n)
{
    uint64_t bytes = segment_status_at(n) + (uint64_t)n * STATUS_BYTES;
    return (bytes + 4095) & ~(uint64_t)4095;
}

/* Returns the status of local rank i of n. */
static inline struct segment_status *segment_status(struct segment_head *h,
                                                    uint32_t n, uint32_t i)
{
    char *at = (char *)h + segment_status_at(n) + (uint64_t)i * STATUS_BYTES;

    return (struct segment_status *)(void *)at;
}

/* Fills a new, zeroed head; called by the agent. */
void segment_head_init(struct segment_head *h, uint32_t epoch,
                       uint32_t local_size, uint64_t segment_bytes);
/* Checks the head against the agent's SEGMENT, in a worker: 0 or -HVD_EPROTO.
 * The mapping must have at least segment_head_bytes(local_size) bytes. */
int segment_head_check(const struct segment_head *h, uint32_t epoch,
                       uint32_t local_size, uint64_t segment_bytes);
/* Sets the abort word, because a rank is dead; called by one thread of the
 * agent. status: an enum hvd_status other than HVD_ESHUTDOWN; the rank may be
 * SEGMENT_NO_RANK; text is cut to fit.  The first call of this, segment_miss or
 * segment_lose wins; every call wakes all sleepers.  Returns 1 if this call set
 * the word. */
int segment_abort(struct segment_head *h, uint32_t local_size,
                  uint32_t culprit_rank, int status, const char *text);
/* Sets the abort word to HVD_ESHUTDOWN, because a rank that is waited for has
 * left; called by any rank, at any time.  No text.  Returns as
 * segment_abort. */
int segment_miss(struct segment_head *h, uint32_t local_size, uint32_t rank);
/* Sets the abort word as segment_miss, but to HVD_ECLOSED: the connection to a
 * rank on another host broke, and no agent knows why. */
int segment_lose(struct segment_head *h, uint32_t local_size, uint32_t rank);
/* Stores the rank that a report has blamed (a world rank or SEGMENT_NO_RANK),
 * from one thread of the agent; text is cut to fit.  now_ns 0 clears it. */
void segment_blame(struct segment_head *h, uint32_t rank, const char *text,
                   uint64_t now_ns);
/* Reads the last blame, in any rank: its time (hb_now_ns), rank (-1 for
 * SEGMENT_NO_RANK) and text.  0 if there is none or a write is in progress:
 * then rank and text are not valid. */
uint64_t segment_blamed(const struct segment_head *h, int *rank,
                        char text[SEGMENT_TEXT_MAX]);
/* Tells the ranks that they are to meet again; wakes nobody, as they read it
 * when they commit.  Called by the agent. */
static inline void segment_change(struct segment_head *h)
{
    /* Release: pairs with hvd_commit's acquire, for the notices before. */
    atomic_store_explicit(&h->change, 1, memory_order_release);
}

/* Tells a rank that it is to leave, and until when; wakes nobody.  Called by
 * the agent. */
static inline void segment_notice(struct segment_head *h, uint32_t local_rank,
                                  uint64_t until_ns)
{
    atomic_store_explicit(&h->wake[local_rank].notice_ns, until_ns,
                          memory_order_relaxed);
}

/* Increments a rank's futex, and wakes the rank if it sleeps. */
void segment_wake(struct segment_head *h, uint32_t local_rank);

#endif
