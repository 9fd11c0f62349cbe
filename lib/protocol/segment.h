/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of the shared segment: what the agent and the local ranks both
 * touch.  The rest of the segment is libhvd's own (runtime/plane/shm).
 *
 * The agent makes one memfd per epoch, sealed against shrinking and
 * growing (a hostile or broken worker cannot make the others fault),
 * fills the head, passes the descriptor to each local rank, and keeps the
 * head mapped.  When a rank dies it writes the culprit here and wakes
 * every sleeper, so a rank in the middle of a collective learns of it
 * from the memory it is already looking at.  A memfd has no name: nothing
 * is left in /dev/shm however the job ends.
 *
 * Threading: `abort_word` is set once, by compare-exchange from 0, so that
 * a process killed at any point has set it or has not; readers load it with
 * acquire.  abort_text is the agent's: only one process may write it, before
 * the word.
 * wake[i] is a futex on which only local rank i sleeps (FUTEX_WAIT, shared),
 * with several threads if it uses several planes; others bump it and wake.
 */
#ifndef HVD_PROTOCOL_SEGMENT_H
#define HVD_PROTOCOL_SEGMENT_H

#include "lib/protocol/status.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
    SEGMENT_MAGIC = 0x68764453, /* "hvDS" */
    SEGMENT_LAYOUT = 5,
    SEGMENT_LOCAL_MAX = 1024, /* local ranks */
    SEGMENT_LINE_BYTES = 128, /* two cache lines: the adjacent-line
                                 prefetcher pairs them */
    SEGMENT_TEXT_MAX = 256,
    SEGMENT_NONCE_BYTES = 16,
};

/* In place of a rank: it is not known which. */
#define SEGMENT_NO_RANK UINT32_MAX

struct segment_wake {
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint32_t word;
    _Atomic uint32_t sleeping; /* its owner's threads that may be in
                                  FUTEX_WAIT */
    _Atomic uint32_t left;     /* its owner has left: its process may end;
                                  for ranks that look after each other */
};

struct segment_head {
    uint32_t magic, layout, epoch, local_size;
    uint64_t segment_bytes;
    /* Of ranks without an agent: that it is the one they mean. */
    unsigned char nonce[SEGMENT_NONCE_BYTES];
    /* 0, or culprit world rank + 1 in the low 32 bits and an enum
     * hvd_status in the high ones (HVD_EPEER: died, HVD_ETIMEOUT: kept the
     * others waiting until the job was given up, HVD_ESHUTDOWN: left,
     * HVD_ECLOSED: is on another host, and the connection to it broke) */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t abort_word;
    char abort_text[SEGMENT_TEXT_MAX]; /* the agent's, for the first two */
    /* The agent's: whom the last report about ranks that wait has blamed.
     * Guarded as a rank's status (status.h). */
    _Alignas(SEGMENT_LINE_BYTES) _Atomic uint64_t blame_begun;
    _Atomic uint64_t blame_done;
    _Atomic uint64_t blame_ns;   /* CLOCK_MONOTONIC */
    _Atomic uint64_t blame_rank; /* SEGMENT_NO_RANK: that is not known */
    _Atomic uint64_t blame_text[SEGMENT_TEXT_MAX / 8];
    struct segment_wake wake[]; /* local_size of them */
};

/* Where the ranks' status begins, for n local ranks: whole pages, since the
 * ranks write there all the time. */
static inline uint64_t segment_status_at(uint32_t n)
{
    uint64_t bytes =
        sizeof(struct segment_head) + (uint64_t)n * sizeof(struct segment_wake);
    return (bytes + 4095) & ~(uint64_t)4095;
}

/* Bytes of the head for n local ranks, rounded up to 4096. */
static inline uint64_t segment_head_bytes(uint32_t n)
{
    uint64_t bytes = segment_status_at(n) + (uint64_t)n * STATUS_BYTES;
    return (bytes + 4095) & ~(uint64_t)4095;
}

/* Of local rank i of n. */
static inline struct segment_status *segment_status(struct segment_head *h,
                                                    uint32_t n, uint32_t i)
{
    char *at = (char *)h + segment_status_at(n) + (uint64_t)i * STATUS_BYTES;

    return (struct segment_status *)(void *)at;
}

/* Agent: lays out a fresh, zeroed head. */
void segment_head_init(struct segment_head *h, uint32_t epoch,
                       uint32_t local_size, uint64_t segment_bytes);
/* Worker: 0 or -HVD_EPROTO when the head is not what the agent promised.
 * The mapping must have at least segment_head_bytes(local_size) bytes. */
int segment_head_check(const struct segment_head *h, uint32_t epoch,
                       uint32_t local_size, uint64_t segment_bytes);
/* The agent, from one thread: a rank is dead.  status is an enum hvd_status,
 * other than HVD_ESHUTDOWN; the rank may be SEGMENT_NO_RANK; text is cut to
 * fit.  The first call of this or
 * of segment_miss wins; all wake every sleeper.  Returns 1 if this call set
 * the word. */
int segment_abort(struct segment_head *h, uint32_t local_size,
                  uint32_t culprit_rank, int status, const char *text);
/* Any rank, at any time: a rank that is waited for has left, which sets the
 * word to HVD_ESHUTDOWN, without a text.  Returns as segment_abort. */
int segment_miss(struct segment_head *h, uint32_t local_size, uint32_t rank);
/* The same with HVD_ECLOSED: the connection to a rank on another host
 * broke, and no agent knows why. */
int segment_lose(struct segment_head *h, uint32_t local_size, uint32_t rank);
/* The agent, from one thread: a report has blamed that rank, by its number in
 * the world or SEGMENT_NO_RANK; text is cut to fit.  now_ns 0: it has taken
 * that back. */
void segment_blame(struct segment_head *h, uint32_t rank, const char *text,
                   uint64_t now_ns);
/* Any rank: when that was last, whom (-1 for SEGMENT_NO_RANK) and why.  0:
 * never, or it is being written; the rest is nothing then. */
uint64_t segment_blamed(const struct segment_head *h, int *rank,
                        char text[SEGMENT_TEXT_MAX]);
/* Bumps and wakes one rank's futex if it sleeps. */
void segment_wake(struct segment_head *h, uint32_t local_rank);

#endif
