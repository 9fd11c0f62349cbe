/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the TCP group.
 *
 * On a connection, an exchange is a head and its bytes; a ring and a chain
 * are bare bytes, whose number both ends know.
 */
#ifndef HVD_PLANE_TCP_IMPL_H
#define HVD_PLANE_TCP_IMPL_H

#include "runtime/plane/tcp.h"

#include <sys/types.h>

enum {
    TCP_HEAD_BYTES = 16, /* u32 magic, u32 kind, u32 sequence, u32 length */
    TCP_HEAD_MAGIC = 0x68764454, /* "hvDT" */
    TCP_GONE_BYTES = 4,          /* u32 rank */
    TCP_HOST_BYTES = 64,
};

enum tcp_head_kind { TCP_HEAD_DATA = 1, TCP_HEAD_GONE = 2 };

struct tcp_conn {
    int fd; /* -1: this member itself */
    uint32_t rank;
    char host[TCP_HOST_BYTES];
    uint32_t watched; /* what epoll was told; 0: nothing */
    /* exchange: bytes moved, head included */
    size_t sent, got;
    unsigned char head[TCP_HEAD_BYTES];
    size_t expected; /* length that the head gave */
    int is_gone;     /* the head says that a rank has shut down */
    unsigned char gone[TCP_GONE_BYTES];
    int send_errno; /* sending failed; there may still be something to read */
};

enum tcp_mode { TCP_IDLE, TCP_EXCHANGE, TCP_RING, TCP_CHAIN };

/* A stream of 2 (n - 1) parts (ring), or of one (chain). */
struct tcp_cursor {
    int step;
    size_t offset; /* bytes of that step's part */
    size_t total;  /* bytes of all steps so far */
};

struct hvd__tcp {
    int n, me;
    struct tcp_conn *conns; /* [n] */
    int epoll_fd, event_fd;
    enum tcp_mode mode;
    uint32_t seq; /* counts exchanges */

    /* waiting */
    uint64_t since_ns; /* nothing has moved since; 0: not read yet */
    int agent_ready;   /* it has something to say */
    int moved;         /* something did, in this turn */
    int lost;          /* member whose connection broke, or -1 */
    int lost_errno;    /* 0: end of file */
    uint64_t lost_ns;

    /* exchange */
    const unsigned char *send;
    size_t send_len;
    unsigned char send_head[TCP_HEAD_BYTES];
    struct hvd__tcp_block *blocks;

    /* ring and chain */
    struct hvd__tcp_ring ring;
    int root;
    struct tcp_cursor in, out;
    size_t chunk_got; /* bytes of the present chunk that came */

    int agent_fd;
    int (*agent_lost)(void *arg, struct hb_error *err);
    const char *(*host_of)(void *arg, uint32_t rank);
    void *arg;
};

/* ---- tcp_setup.c: connects conns[] ---- */
int tcp_setup(struct hvd__tcp *t, const struct hvd__tcp_config *config,
              struct hb_error *err);

/* ---- tcp.c ---- */

/* Moves bytes: how many, 0 when the socket would block; negative when the
 * connection has broken, and then the group waits for the agent's word. */
ssize_t tcp_send(struct hvd__tcp *t, int i, const void *p, size_t len);
ssize_t tcp_recv(struct hvd__tcp *t, int i, void *p, size_t len);
void tcp_set_lost(struct hvd__tcp *t, int i, int e);

/* ---- One mode each: as progress; and the epoll events that the mode
 * waits for on a connection ---- */
int tcp_exchange_advance(struct hvd__tcp *t, struct hb_error *err);
uint32_t tcp_exchange_events(const struct hvd__tcp *t, int i);
int tcp_stream_advance(struct hvd__tcp *t, struct hb_error *err);
uint32_t tcp_stream_events(const struct hvd__tcp *t, int i);

#endif
