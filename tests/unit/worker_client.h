/* SPDX-License-Identifier: Apache-2.0 */
/* Raw clients of the worker endpoint, on its loop.  SIGPIPE is ignored.  World
 * ranks 10, 11 and 12 of 20 are on this host. */
#ifndef TESTS_UNIT_WORKER_CLIENT_H
#define TESTS_UNIT_WORKER_CLIENT_H

#include "lib/agent/endpoint.h"
#include "lib/protocol/worker.h"

enum { RANKS = 3, SEGMENT_BYTES = 1 << 20 };

struct client {
    int fd, passed_fd;
    struct hb_buf in;
};

extern uv_loop_t loop;
extern struct endpoint endpoint;
extern struct control_launch job;

/* For a checked fixture. */
void clients_setup(void);
/* The same in an elastic job on three hosts: ranks 0 to 9 are on the host
 * before this one, 13 to 19 on the one after it. */
void clients_setup_elastic(void);
void clients_teardown(void);

void client_open(struct client *c);
void client_close(struct client *c);
void client_send(struct client *c, struct hb_buf *b);
void send_hello(struct client *c, uint32_t rank, uint32_t abi);
void send_join(struct client *c, uint32_t epoch, uint64_t bytes);
void send_leave(struct client *c, uint32_t epoch);
/* Receives bytes, and a descriptor if one comes along.  Returns the number of
 * bytes, 0 at the end, -1 if nothing has come. */
ssize_t client_receive(struct client *c);
void run_turns(int turns);

/* Run the loop until the next message comes, which must be as expected. */
int client_next(struct client *c, struct frame *f); /* 0: the end */
void expect_text(struct client *c, int type, const char *text);
void expect_end(struct client *c);
void expect_welcome(struct client *c, struct worker_welcome *m);
struct segment_head *expect_segment(struct client *c, uint32_t epoch);
struct segment_head *expect_segment_of(struct client *c, uint32_t epoch,
                                       uint32_t local_size);

/* Connects and sends HELLO. */
void greet(struct client *c, uint32_t rank);
/* All ranks join epoch 1; heads may be NULL. */
void join_all(struct client c[RANKS], struct segment_head **heads);
void close_all(struct client *c, int count);

#endif
