/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between a worker (libhvd) and its agent.
 *
 * Transport: a Unix stream socket in the abstract namespace, named in
 * HVD_RENDEZVOUS as `unix:@NAME` (`unix:/path` is accepted too).  NAME is
 * random, so nobody can take it beforehand, and no file is left behind however
 * the job ends; both sides check the peer's uid with SO_PEERCRED.  The socket
 * stays open from hvd_init to hvd_shutdown: its end tells the agent that the
 * worker left, and the worker that the agent is gone.
 *
 *     worker -> HELLO     u32 abi, u32 rank, u32 pid
 *     agent  -> WELCOME   or REFUSED with a line; in an elastic job only when
 *                         the rank is a member of a new generation
 *                         (control_generation.h)
 *     worker -> JOIN      u32 epoch, u64 segment bytes wanted
 *     agent  -> SEGMENT   once every local rank has joined that epoch;
 *                         the memfd travels as SCM_RIGHTS with the
 *                         frame's first byte
 *     agent  -> ABORT     u32 culprit rank, text: at any time
 *     worker -> LEAVE     u32 epoch; an orderly shutdown, then closes
 *     worker -> ROUTES    no payload
 *     agent  -> ROUTES_ARE  how this host reaches each host of the job
 *     worker -> RDV_FENCE a scope, a value
 *     agent  -> RDV_FENCED  the scope and all ranks' values, once all ranks
 *                         of the job have sent RDV_FENCE for it
 *     worker -> RDV       put, get, delete, or a fence of some ranks
 *     agent  -> RDV_REPLY in any order, matched by id
 *     worker -> STALLED   it waits too long for others, or no longer waits
 *     worker -> STATS     its statistics since JOIN: worker_stats.h
 *     worker -> BLAMES    u32 rank: this one fails because that one died or
 *                         left
 *     worker -> LATE      u32 ms: it has waited so long in hvd_init, and gives
 *                         up; TIMEOUT or ABORT names the missing rank
 *     worker -> NO_ANSWER u32 rank, u32 generation: the host of that rank has
 *                         not answered over the network for HVD_HEARTBEAT
 *                         seconds, or cannot be reached
 *     agent  -> TIMEOUT   as ABORT: the job ends because of such a wait
 *     agent  -> REMOVED   in place of WELCOME: the rank is in no generation any
 *                         more, as was asked, and why
 *
 * Everything is binary, because libhvd parses no JSON.  Epochs count the
 * hvd_init calls of a rank from 1: ranks of one world join the same one. Pure:
 * encoders append to a buffer, decoders read a payload.  In an elastic job the
 * epoch is the number of the generation, which the agent chooses.
 */
#ifndef HVD_PROTOCOL_WORKER_H
#define HVD_PROTOCOL_WORKER_H

#include "lib/protocol/frame.h"

enum worker_type {
    WORKER_HELLO = 64,
    WORKER_JOIN = 65,
    WORKER_LEAVE = 66,
    /* a request of rendezvous.h, except RDV_FENCE of all ranks */
    WORKER_RDV = 68,
    WORKER_RDV_FENCE = 71,
    WORKER_ROUTES = 73,
    WORKER_STALLED = 74,
    WORKER_STATS = 75, /* worker_stats.h */
    WORKER_BLAMES = 76,
    WORKER_LATE = 77,
    WORKER_NO_ANSWER = 78,
    WORKER_WELCOME = 96,
    WORKER_REFUSED = 97, /* text */
    WORKER_SEGMENT = 98,
    WORKER_ABORT = 99,
    WORKER_RDV_REPLY = 100,
    WORKER_RDV_FENCED = 102,
    WORKER_ROUTES_ARE = 104,
    WORKER_TIMEOUT = 105, /* as ABORT */
    WORKER_REMOVED = 106, /* text */
};

enum {
    WORKER_ABI = 10,
    WORKER_PAYLOAD_MAX = 64 << 10,
    WORKER_FENCED_MAX = 16 << 20, /* payload of RDV_FENCED */
    WORKER_SCOPE_MAX = 64,   /* bytes of a scope's name, with its final 0 */
    WORKER_VALUE_MAX = 1024, /* bytes of a rank's value in a fence */
    WORKER_ADDRESS_MAX = 64, /* bytes of an address, with its final 0 */
    WORKER_SECRET_BYTES = 32,
    WORKER_LOCAL_MAX = 1024,
    WORKER_TEXT_MAX = 256, /* bytes of a line, with its final 0 */
};

struct worker_hello {
    uint32_t abi, rank, pid;
};

struct worker_welcome {
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    char host[256]; /* this host's name in the plan */
    char job_id[64];
    unsigned char secret[WORKER_SECRET_BYTES];
    /* cores available to the local ranks together (affinity count) */
    uint32_t cpus;
    uint32_t local_count; /* entries of local_ranks, = local_size */
    uint32_t local_ranks[WORKER_LOCAL_MAX]; /* world rank of each local rank */
    /* Cache domain of each local rank: ranks with the same number, below
     * local_size, share a cache or a NUMA node.  All 0: unknown. */
    uint32_t local_domains[WORKER_LOCAL_MAX];
    /* In the plan; in an elastic job, among the hosts with a member. */
    uint32_t host_index, host_count;
    /* The generation's number (0: the job is not elastic), how many of its
     * members are new, how many of the one before were removed from it, and why
     * that ended ("": there was none). */
    uint32_t generation, joined, removed;
    char why[WORKER_TEXT_MAX];
};

struct worker_join {
    uint32_t epoch;
    uint64_t segment_bytes; /* every local rank must ask for the same */
};

struct worker_segment {
    uint32_t epoch;
    uint64_t segment_bytes;
};

struct worker_abort {
    uint32_t rank;              /* UINT32_MAX: unknown, in TIMEOUT */
    char text[WORKER_TEXT_MAX]; /* "rank 3 on host a: killed by signal 9 (...)"
                                 */
};

/* With the limits from the rank's environment, which counts, not hvdrun's. */
struct worker_stalled {
    uint32_t waited_ms; /* 0: no longer waiting */
    uint32_t warning_ms;
    uint32_t shutdown_ms; /* 0: never */
};

enum { WORKER_STALLED_BYTES = FRAME_HEADER_BYTES + 12 };

/* Writes a whole frame, without allocating. */
void worker_write_stalled(unsigned char out[WORKER_STALLED_BYTES],
                          const struct worker_stalled *m);

enum { WORKER_BLAMES_BYTES = FRAME_HEADER_BYTES + 4 };

void worker_write_blames(unsigned char out[WORKER_BLAMES_BYTES], uint32_t rank);

enum { WORKER_LATE_BYTES = FRAME_HEADER_BYTES + 4 };

void worker_write_late(unsigned char out[WORKER_LATE_BYTES], uint32_t ms);

struct worker_no_answer {
    uint32_t rank, generation; /* generation: as in WELCOME */
};

enum { WORKER_NO_ANSWER_BYTES = FRAME_HEADER_BYTES + 8 };

void worker_write_no_answer(unsigned char out[WORKER_NO_ANSWER_BYTES],
                            const struct worker_no_answer *m);

/* Appends a frame.  0, -HVD_ENOMEM, or -HVD_EINVAL for a message that its
 * decoder would refuse.  Texts are cut to WORKER_TEXT_MAX. */
int worker_encode_hello(struct hb_buf *out, const struct worker_hello *m);
int worker_encode_welcome(struct hb_buf *out, const struct worker_welcome *m);
int worker_encode_refused(struct hb_buf *out, const char *text);
int worker_encode_removed(struct hb_buf *out, const char *text);
int worker_encode_join(struct hb_buf *out, const struct worker_join *m);
int worker_encode_segment(struct hb_buf *out, const struct worker_segment *m);
int worker_encode_abort(struct hb_buf *out, const struct worker_abort *m);
int worker_encode_timeout(struct hb_buf *out, const struct worker_abort *m);
int worker_encode_leave(struct hb_buf *out, uint32_t epoch);

/* Appends FENCE; -HVD_EINVAL unless scope and value are within their limits. */
int worker_encode_fence(struct hb_buf *out, const char *scope,
                        const void *value, size_t len);
/* Begins RDV_FENCED for count values of value_bytes in all; call
 * worker_put_fenced once per rank, ascending. */
int worker_begin_fenced(struct hb_buf *out, const char *scope, uint32_t count,
                        size_t value_bytes);
void worker_put_fenced(struct hb_buf *out, uint32_t rank, const void *value,
                       size_t len);
int worker_encode_routes(struct hb_buf *out);
/* Appends the routes' addresses: addresses[i] is numeric; for the own host it
 * may be "", any address. */
int worker_encode_routes_are(struct hb_buf *out, char *const *addresses,
                             size_t count);

/* Decodes a payload.  0, or -HVD_EPROTO with *m untouched.  Lengths must match
 * exactly, ranges are checked, texts are bounded and hold no 0 byte.  The text
 * of REFUSED and REMOVED is cut to text_size. */
int worker_decode_hello(const void *p, size_t len, struct worker_hello *m);
int worker_decode_welcome(const void *p, size_t len, struct worker_welcome *m);
int worker_decode_refused(const void *p, size_t len, char *text,
                          size_t text_size);
int worker_decode_removed(const void *p, size_t len, char *text,
                          size_t text_size);
int worker_decode_join(const void *p, size_t len, struct worker_join *m);
int worker_decode_segment(const void *p, size_t len, struct worker_segment *m);
int worker_decode_stalled(const void *p, size_t len, struct worker_stalled *m);
int worker_decode_blames(const void *p, size_t len, uint32_t *rank);
int worker_decode_late(const void *p, size_t len, uint32_t *ms);
int worker_decode_no_answer(const void *p, size_t len,
                            struct worker_no_answer *m);
/* Decodes ABORT or TIMEOUT. */
int worker_decode_abort(const void *p, size_t len, struct worker_abort *m);
int worker_decode_leave(const void *p, size_t len, uint32_t *epoch);

/* A rank's value in a fence; borrowed from the payload. */
struct worker_value {
    uint32_t rank;
    const void *value;
    size_t len;
};

int worker_decode_fence(const void *p, size_t len, char scope[WORKER_SCOPE_MAX],
                        struct worker_value *v);
/* Checks and decodes RDV_FENCED: the scope, and one value for each rank of a
 * world of `size`, into values[0 .. size). */
int worker_decode_fenced(const void *p, size_t len, const char *scope,
                         uint32_t size, struct worker_value *values);
/* Decodes exactly `count` addresses. */
int worker_decode_routes_are(const void *p, size_t len, uint32_t count,
                             char (*addresses)[WORKER_ADDRESS_MAX]);

#endif
