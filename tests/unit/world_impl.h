/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the test world's agent, which plays the agents of all hosts. */
#ifndef TESTS_UNIT_WORLD_IMPL_H
#define TESTS_UNIT_WORLD_IMPL_H

#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "tests/unit/forked.h"
#include "tests/unit/world.h"

#include <sys/types.h>

enum { CONNS_MAX = 4 * WORLD_RANKS_MAX };

struct conn {
    int fd;
    struct hb_buf in;
    int rank;
    uint32_t joined; /* epoch asked for and not yet got, or 0 */
    int is_ready;    /* waits for a generation */
    uint64_t segment_bytes;
    /* fence that it waits for, or "" */
    char scope[WORKER_SCOPE_MAX];
    unsigned char value[WORKER_VALUE_MAX];
    size_t value_len;
};

/* One per host of the world. */
struct host {
    int size; /* of what follows: the members of the world on it */
    int ranks[WORLD_RANKS_MAX];
    struct segment_head *head; /* of the latest epoch */
    uint64_t head_bytes;
};

struct agent {
    struct world *world;
    struct host hosts[WORLD_RANKS_MAX];
    int host_count;
    int listener;
    char address[64]; /* as in HVD_RENDEZVOUS */
    struct conn conns[CONNS_MAX];
    int conn_count;
    pid_t pids[WORLD_RANKS_MAX];
    int pidfds[WORLD_RANKS_MAX];
    int alive;
    /* Of an elastic job: the generation, and each rank's number in it, or -1;
     * whether it was in one, and why the last one has ended. */
    uint32_t generation;
    int size, number[WORLD_RANKS_MAX], was_member[WORLD_RANKS_MAX], joined;
    int removed; /* members of the last one that were */
    int dead;    /* number of a member that has died in it, plus 1; or 0 */
    char why[SEGMENT_TEXT_MAX];
};

static inline int world_host_of(const struct world *w, int rank)
{
    return w->place ? w->place[rank] - 'a' : 0;
}

/* Adds a rank to its host's members. */
void world_place(struct agent *a, int rank);
void world_say_welcome(const struct agent *a, const struct conn *c);

/* Sends a message, with a descriptor unless fd is negative. */
void world_say(const struct conn *c, const struct hb_buf *out, int fd);

/* ---- world_elastic.c ---- */

/* Returns whether the generation has ended, and then tells c. */
int world_elastic_ended(const struct agent *a, const struct conn *c);
/* Begins the next generation if all ranks are ready for it, or tells those of
 * the present one that others wait. */
void world_elastic_turn(struct agent *a);

/* ---- world_hosts.c: requests in worlds on several hosts only ---- */
void world_answer_routes(const struct agent *a, const struct conn *c);
void world_hear_fence(struct agent *a, struct conn *c, const struct frame *f);

#endif
