/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: what PMIx asks goes to the agent as messages, and back.
 *
 * The main thread reads the agent's messages.  PMIx calls the functions of
 * upcalls.c in a thread of its own; these only note who waits, send a message
 * and return.
 */
#ifndef HVD_PMIX_SERVER_H
#define HVD_PMIX_SERVER_H

#include "cmd/hvd-pmix/library.h"
#include "lib/protocol/pmix_wire.h"

#include <pthread.h>

/* Someone in PMIx who waits for data: a fence or another rank's data. */
struct waiter {
    struct waiter *next;
    int is_fence;
    uint32_t id; /* of the fence, or the rank */
    pmix_modex_cbfunc_t done;
    void *arg;
};

struct server {
    int fd;
    struct library lib;
    struct pmix_setup job;

    pthread_mutex_t lock; /* protects what follows, and writing to fd */
    struct waiter *waiters;
    uint32_t fences; /* begun so far */
    int lost;        /* a rank died: fences fail */
};

/* There is one, because PMIx passes no argument to its upcalls. */
extern struct server server;

/* Sends a message to the agent.  Any thread.  Ends the process if the agent is
 * gone. */
void server_send(enum pmix_wire_type type, const struct pmix_wire_item *m);
void server_send_buf(const struct hb_buf *frame);

/* Notes who waits for a new fence, whose number goes to *id.  Called before the
 * request is sent.  0, or -HVD_EPEER if a rank was lost: nothing is noted. */
int server_wait_fence(pmix_modex_cbfunc_t done, void *arg, uint32_t *id);
/* Notes who waits for a rank's data, likewise.  1 if the data have been
 * requested already for somebody else who waits. */
int server_wait_data(uint32_t rank, pmix_modex_cbfunc_t done, void *arg);
/* Answers those that wait for the fence or the rank's data. */
void server_answer(int is_fence, const struct pmix_wire_item *m);
/* Fails all that wait, and all that come later. */
void server_lose(void);

/* ---- upcalls.c ---- */

/* Loads the library and registers the job with it.  0, or negative with err
 * set. */
int server_open(struct hb_error *err);
/* Asks PMIx for a local rank's data; ANSWER is sent later. */
void server_ask(uint32_t rank);

#endif
