/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the TCP group.
 *
 * On a connection, an exchange is a head and its bytes; all others are bare
 * bytes, whose number both ends know.
 */
#ifndef HVD_PLANE_TCP_IMPL_H
#define HVD_PLANE_TCP_IMPL_H

#include "runtime/plane/tcp.h"

#include <sys/types.h>

enum {
    TCP_HEAD_BYTES = 20, /* u32 magic, u32 kind, u32 sequence, u64 length */
    TCP_HEAD_MAGIC = 0x68764445, /* "hvDE" */
    TCP_GONE_BYTES = 4,          /* u32 rank */
    TCP_HOST_BYTES = 64,
};

enum tcp_head_kind { TCP_HEAD_DATA = 1, TCP_HEAD_GONE = 2 };

enum { TCP_AHEAD_BYTES = 256 }; /* a small message whole */

struct tcp_conn {
    int fd; /* -1: this member itself */
    uint32_t rank;
    char host[TCP_HOST_BYTES];
    uint32_t watched; /* what epoll was told; 0: nothing */
    /* exchange: bytes moved, of all to be moved, heads included */
    size_t sent, to_send;
    size_t got, to_get; /* to_get: TCP_HEAD_BYTES until the head came */
    const unsigned char *out;
    unsigned char out_head[TCP_HEAD_BYTES], head[TCP_HEAD_BYTES];
    int is_gone; /* the head says that a rank has shut down */
    unsigned char gone[TCP_GONE_BYTES];
    int send_errno; /* sending failed; there may still be something to read */
    /* Received with a head: what comes after it, from `at` on. */
    unsigned char ahead[TCP_AHEAD_BYTES];
    size_t ahead_at, ahead_end;
};

enum tcp_mode { TCP_IDLE, TCP_EXCHANGE, TCP_STREAM, TCP_STEPS };

/* A place in a stream of parts. */
struct tcp_cursor {
    int step;
    size_t offset; /* bytes of that step's part */
    size_t total;  /* bytes of all steps so far */
};

/* A stream around the ring, or along a chain: tcp_stream.c. */
struct tcp_stream {
    int steps;           /* parts that each member sends and gets */
    int reduced;         /* so many of the first ones are reduced */
    int base;            /* the first part sent is me + base */
    int root;            /* of a chain, else -1 */
    const size_t *first; /* [n + 1]: units where parts begin; none: a chain */
    size_t unit_bytes;
    struct tcp_cursor in, out;
};

/* A step: this member sends a range of the vector, and gets one. */
struct tcp_range {
    size_t first, count; /* elements */
};
struct tcp_step {
    int to, from; /* -1: nobody */
    struct tcp_range out, in;
    int reduce; /* what comes; else it is stored */
    int last;   /* this one scales */
};

struct hvd__tcp {
    int n, me;
    struct tcp_conn *conns; /* [n] */
    size_t *parts;          /* [n + 1]: of an allreduce over the ring */
    struct hvd__tcp_model model;
    int epoll_fd;  /* what the operation waits for */
    int begins_fd; /* between operations: whatever a member sends */
    int event_fd;
    enum tcp_mode mode;
    int spins;    /* the operation is small enough for that */
    uint32_t seq; /* counts exchanges */

    /* waiting */
    uint64_t since_ns; /* nothing has moved since; 0: not read yet */
    int agent_ready;   /* it has something to say */
    int moved;         /* something did, in this turn */
    int lost;          /* member whose connection broke, or -1 */
    int lost_errno;    /* 0: end of file */
    uint64_t lost_ns;

    /* the operation */
    struct hvd__tcp_block *blocks;     /* exchange */
    int known;                         /* exchange: lengths are exact */
    int turns, late;                   /* exchange: whose block came last */
    struct hvd__tcp_reduction vector;  /* all others */
    size_t chunk_got;                  /* bytes of the chunk that came */
    struct tcp_stream stream;          /* stream */
    enum hvd__tcp_algorithm algorithm; /* steps */
    int root, step;                    /* steps */
    size_t step_sent, step_got;        /* bytes */

    int agent_fd;
    int (*agent_lost)(void *arg, struct hb_error *err);
    const char *(*host_of)(void *arg, uint32_t rank);
    void *arg;
};

/* Where part i of so many begins: all alike but for one. */
static inline size_t tcp_part_first(size_t count, size_t parts, size_t i)
{
    size_t each = count / parts, rest = count % parts;

    return i * each + (i < rest ? i : rest);
}

/* ---- tcp_setup.c: connects conns[] ---- */
int tcp_setup(struct hvd__tcp *t, const struct hvd__tcp_config *config,
              struct hb_error *err);

/* ---- tcp.c ---- */

/* Moves bytes: how many, 0 when the socket would block; negative when the
 * connection has broken, and then the group waits for the agent's word. */
ssize_t tcp_send(struct hvd__tcp *t, int i, const void *p, size_t len);
ssize_t tcp_recv(struct hvd__tcp *t, int i, void *p, size_t len);
void tcp_set_lost(struct hvd__tcp *t, int i, int e);

/* Begins an operation of so many bytes. */
void tcp_begin(struct hvd__tcp *t, enum tcp_mode mode, size_t bytes);
/* An error that names a member. */
int tcp_blame(const struct hvd__tcp *t, int i, enum hvd_status status,
              const char *what, struct hb_error *err);

/* ---- tcp_head.c: a peer's bytes; see there ---- */
struct tcp_head {
    uint32_t kind, seq;
    uint64_t len;
};
void tcp_head_encode(const struct tcp_head *head,
                     unsigned char out[TCP_HEAD_BYTES]);
/* 0, or -HVD_EPROTO for what no member sends. */
int tcp_head_decode(const unsigned char in[TCP_HEAD_BYTES],
                    struct tcp_head *head);
/* tcp_exchange.c: sets err to who has shut down. */
int tcp_tell_who_left(const struct hvd__tcp *t,
                      const unsigned char gone[TCP_GONE_BYTES],
                      struct hb_error *err);

/* ---- tcp_measure.c: fills t->model ---- */
int tcp_measure(struct hvd__tcp *t, uint64_t deadline_ns, struct hb_error *err);

/* ---- Parts of a vector ---- */

/* Takes over what to reduce; a group of one has nothing else to do. */
void tcp_take_vector(struct hvd__tcp *t, const struct hvd__tcp_reduction *r);
/* This member's own contribution at a place in the result. */
static inline const unsigned char *tcp_own(const struct hvd__tcp *t,
                                           const unsigned char *dst)
{
    return (const unsigned char *)t->vector.src +
           (dst - (const unsigned char *)t->vector.buf);
}
/* Reduces the elements in `srcs` to the vector's at `dst`; scales if
 * `last`. */
void tcp_reduce(const struct hvd__tcp *t, void *dst, const void *const srcs[2],
                size_t bytes, int last);
/* Collects what arrives of `left` bytes in the chunk: the bytes in it when
 * it is full, or 0. */
size_t tcp_recv_chunk(struct hvd__tcp *t, int from, size_t left);

/* ---- One mode each: as progress; and the epoll events that the mode
 * waits for on a connection ---- */
int tcp_exchange_advance(struct hvd__tcp *t, struct hb_error *err);
uint32_t tcp_exchange_events(const struct hvd__tcp *t, int i);
int tcp_stream_advance(struct hvd__tcp *t);
uint32_t tcp_stream_events(const struct hvd__tcp *t, int i);
int tcp_steps_advance(struct hvd__tcp *t);
uint32_t tcp_steps_events(const struct hvd__tcp *t, int i);

/* Begin one; see tcp.h. */
void tcp_ring(struct hvd__tcp *t, const struct hvd__tcp_reduction *r);
void tcp_chain(struct hvd__tcp *t, void *buf, size_t bytes, int root);
void tcp_steps(struct hvd__tcp *t, const struct hvd__tcp_reduction *r,
               enum hvd__tcp_algorithm a, int root);

#endif
