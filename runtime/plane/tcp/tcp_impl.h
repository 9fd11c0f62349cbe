/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the TCP group.
 *
 * On a connection, an exchange is a head and its bytes.  The other operations
 * send bare bytes, whose number both ends know.
 */
#ifndef HVD_PLANE_TCP_IMPL_H
#define HVD_PLANE_TCP_IMPL_H

#include "runtime/plane/tcp/tcp.h"
#include "runtime/plane/tcp/tcp_head.h"
#include "runtime/plane/tcp/tcp_mac.h"

#include <sys/socket.h>
#include <sys/types.h>

enum {
    TCP_HOST_BYTES = 64,
};

enum { TCP_AHEAD_BYTES = 256 }; /* room for a whole small message */

struct tcp_conn {
    int fd; /* -1: this member itself */
    uint32_t rank;
    char host[TCP_HOST_BYTES];
    uint32_t watched; /* events registered with epoll; 0: none */
    /* exchange: bytes moved and to be moved, heads included */
    size_t sent, to_send;
    size_t got, to_get; /* to_get: TCP_HEAD_BYTES until the head has arrived */
    const unsigned char *out;
    unsigned char out_head[TCP_HEAD_BYTES], head[TCP_HEAD_BYTES];
    size_t words; /* authenticated bytes, from the head */
    int is_gone;  /* the message says that a rank has shut down */
    unsigned char gone[TCP_GONE_BYTES];
    int send_errno; /* sending failed; there may still be data to read */
    /* Bytes received together with a head, unread from ahead_at on. */
    unsigned char ahead[TCP_AHEAD_BYTES];
    size_t ahead_at, ahead_end;
    struct tcp_mac mac_out, mac_in;
};

enum tcp_mode { TCP_IDLE, TCP_EXCHANGE, TCP_STREAM, TCP_STEPS };

/* A position in a stream of parts. */
struct tcp_cursor {
    int step;
    size_t offset; /* bytes of that step's part so far */
    size_t total;  /* bytes of all steps so far */
};

/* A stream around the ring, or along a chain: tcp_stream.c. */
struct tcp_stream {
    int steps;           /* parts that each member sends and receives */
    int reduced;         /* how many of them, the first ones, are reduced */
    int base;            /* the first part sent is me + base */
    int root;            /* of a chain, else -1 */
    const size_t *first; /* [n + 1]: units where parts begin; chain: NULL */
    size_t unit_bytes;
    struct tcp_cursor in, out;
};

/* A step: this member sends one range of the vector and receives another. */
struct tcp_range {
    size_t first, count; /* elements */
};
struct tcp_step {
    int to, from; /* members; -1: none */
    struct tcp_range out, in;
    int reduce; /* 1: reduce what arrives; 0: store it */
    int last;   /* last reduction: applies the factors */
};

struct hvd__tcp {
    int n, me;
    struct tcp_conn *conns; /* [n] */
    size_t *parts;          /* [n + 1]: part offsets of a ring allreduce */
    struct hvd__tcp_model model;
    int epoll_fd;  /* what the operation in progress waits for */
    int begins_fd; /* between operations: all connections */
    int event_fd;
    enum tcp_mode mode;
    int spins;    /* the operation is small enough to spin */
    uint32_t seq; /* counts exchanges */

    /* waiting */
    uint64_t since_ns; /* nothing has moved since then; 0: unset */
    int agent_ready;   /* agent_fd is readable, or it is time to ask */
    int moved;         /* bytes have moved in this turn */
    int lost;          /* member whose connection broke, or -1 */
    int lost_errno;    /* 0: end of file */
    uint64_t lost_ns;

    /* the operation */
    struct hvd__tcp_block *blocks;     /* exchange */
    int known;                         /* exchange: lengths are exact */
    int turns, late;                   /* exchange: late: member whose block
                                          came last */
    struct hvd__tcp_reduction vector;  /* all others */
    size_t chunk_got;                  /* bytes of the chunk received */
    struct tcp_stream stream;          /* stream */
    enum hvd__tcp_algorithm algorithm; /* steps */
    int root, step;                    /* steps */
    size_t step_sent, step_got;        /* bytes */

    int agent_fd;
    int (*agent_lost)(void *arg, struct hb_error *err);
    const char *(*host_of)(void *arg, uint32_t rank);
    uint32_t silence_ms;
    int (*no_answer)(void *arg, uint32_t rank);
    void *arg;
};

/* Returns where part i of `parts` begins; lengths differ by at most one. */
static inline size_t tcp_part_first(size_t count, size_t parts, size_t i)
{
    size_t each = count / parts, rest = count % parts;

    return i * each + (i < rest ? i : rest);
}

/* ---- tcp_setup.c: connects conns[] ---- */
int tcp_setup(struct hvd__tcp *t, const struct hvd__tcp_config *config,
              struct hb_error *err);

/* ---- tcp_socket.c ---- */

/* Converts a numeric address.  0, or -HVD_EINVAL. */
int tcp_to_sockaddr(const char *address, uint16_t port,
                    struct sockaddr_storage *sa, socklen_t *len);
/* Sets the options of a connection; silence_ms as in struct hvd__tcp_config. */
void tcp_tune(int fd, uint32_t silence_ms);

/* ---- tcp.c ---- */

/* Ends this process by SIGSEGV if e is EFAULT: the program has passed memory
 * that it cannot access.  Over shared memory the access itself raises SIGSEGV.
 * No peer is to blame. */
void tcp_check_memory(int e);
/* Moves bytes; returns how many, 0 if the socket would block, negative if the
 * connection is broken. tcp_recv then has called tcp_set_lost; after tcp_send,
 * which returns -errno, the caller does. */
ssize_t tcp_send(struct hvd__tcp *t, int i, const void *p, size_t len);
ssize_t tcp_recv(struct hvd__tcp *t, int i, void *p, size_t len);
/* Notes the first connection that is lost, and by which errno; tells the agent
 * of each member whose host does not answer. */
void tcp_set_lost(struct hvd__tcp *t, int i, int e);

/* Begins an operation; up to SPIN_BYTES its waits spin. */
void tcp_begin(struct hvd__tcp *t, enum tcp_mode mode, size_t bytes);
/* Sets err, which names member i. */
int tcp_blame(const struct hvd__tcp *t, int i, enum hvd_status status,
              const char *what, struct hb_error *err);

/* Sets err: a message of member i has a wrong authentication code. */
int tcp_blame_changed(const struct hvd__tcp *t, int i, struct hb_error *err);
/* Sets err from a GONE message, which names the rank (in tcp_exchange.c). */
int tcp_tell_who_left(const struct hvd__tcp *t,
                      const unsigned char gone[TCP_GONE_BYTES],
                      struct hb_error *err);

/* ---- tcp_measure.c: fills t->model ---- */
int tcp_measure(struct hvd__tcp *t, uint64_t deadline_ns, struct hb_error *err);

/* ---- Parts of a vector ---- */

/* Copies *r to t->vector.  In a group of one, computes the result at once. */
void tcp_take_vector(struct hvd__tcp *t, const struct hvd__tcp_reduction *r);
/* Returns this member's own input for a place in the result. */
static inline const unsigned char *tcp_own(const struct hvd__tcp *t,
                                           const unsigned char *dst)
{
    return (const unsigned char *)t->vector.src +
           (dst - (const unsigned char *)t->vector.buf);
}
/* Reduces `srcs` (the second may be NULL) to the vector at `dst`; scales if
 * `last`. */
void tcp_reduce(const struct hvd__tcp *t, void *dst, const void *const srcs[2],
                size_t bytes, int last);
/* Receives into the chunk, of `left` bytes still to arrive.  Returns the bytes
 * in the chunk when it is full, else 0. */
size_t tcp_recv_chunk(struct hvd__tcp *t, int from, size_t left);

/* ---- One pair per mode: advance, like progress; and the epoll events that
 * the mode waits for on a connection ---- */
int tcp_exchange_advance(struct hvd__tcp *t, struct hb_error *err);
uint32_t tcp_exchange_events(const struct hvd__tcp *t, int i);
int tcp_stream_advance(struct hvd__tcp *t);
uint32_t tcp_stream_events(const struct hvd__tcp *t, int i);
int tcp_steps_advance(struct hvd__tcp *t);
uint32_t tcp_steps_events(const struct hvd__tcp *t, int i);

/* Begins an operation in the mode of the function's name; see tcp.h. */
void tcp_ring(struct hvd__tcp *t, const struct hvd__tcp_reduction *r);
void tcp_chain(struct hvd__tcp *t, void *buf, size_t bytes, int root);
void tcp_steps(struct hvd__tcp *t, const struct hvd__tcp_reduction *r,
               enum hvd__tcp_algorithm a, int root);

#endif
