/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for tests: forks the ranks and plays their agent, so that the real
 * hvd_init runs, over the real socket and segment, without hvdrun.
 *
 *     static int body(int rank, void *arg)
 *     {
 *         want(hvd_init() == 0);
 *         ...
 *         return 0;
 *     }
 *     ck_assert_int_eq(world_run(4, body, NULL), 0);
 *
 * A rank's body returns 0 if all is well; a failed want() prints to stderr and
 * makes the body return 1.  The agent runs in the calling process, which must
 * have no other children.
 */
#ifndef TESTS_UNIT_WORLD_H
#define TESTS_UNIT_WORLD_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

enum { WORLD_RANKS_MAX = 65, WORLD_THREADS_MAX = 4 };

/* How the agent misbehaves. */
enum world_fault {
    WORLD_GOOD,
    WORLD_REFUSES,       /* answers HELLO with REFUSED */
    WORLD_IS_SILENT,     /* never answers HELLO */
    WORLD_TALKS_RUBBISH, /* answers with bytes that are no frame */
    WORLD_HANGS_UP,      /* closes after HELLO */
    WORLD_WRONG_SIZE,    /* announces one rank more than the environment */
    WORLD_SMALL_SEGMENT, /* hands out a segment that is too small */
    WORLD_BAD_HEAD,      /* hands out a segment with another epoch's head */
    WORLD_NO_MEMFD,      /* sends SEGMENT without a descriptor */
    WORLD_GONE,          /* exits once all have their segment */
};

/* What the ranks and the agent share. */
struct world_board {
    _Atomic int flag[WORLD_RANKS_MAX]; /* free for the test to use */
    _Atomic int kill_rank;             /* rank + 1: the agent kills that rank */
    _Atomic int change; /* 1: the agent lets the generation end at a commit */
    _Atomic int remove; /* 1 + the rank that is then removed, or 0 */
    _Atomic int spare;  /* 1 + the rank that then waits for the one after */
    _Atomic uint64_t word[16];
};

typedef int world_fn(int rank, void *arg);

struct world {
    int size;
    world_fn *body;
    void *arg;
    enum world_fault fault;
    uint32_t cpus; /* number told to the ranks; 0: the real one */
    /* One letter per rank for its host, "a" for the first; NULL: all on one.
     * The agent plays all hosts, each with its own segment.  They are called
     * host-a and so on; a single host is called testhost. */
    const char *place;
    /* By local rank, as in worker.h; NULL: all ranks in one domain. */
    const uint32_t *domains;
    /* 1: an elastic job, in which the agent makes generations: all processes
     * that live, once all of them wait for one; the first without the last
     * `late` ranks. */
    int elastic, late;
    /* Out: how each rank ended, as waitpid reports it. */
    int wait_status[WORLD_RANKS_MAX];
};

extern struct world_board *world_board; /* for ranks and test */

/* Returns the name of a rank's host. */
const char *world_host(const struct world *w, int rank);

/* Runs a world to its end; returns how many ranks did not exit with 0. */
int world_run_with(struct world *w);
int world_run(int size, world_fn *body, void *arg);

/* In a rank: runs body(0) to body(n - 1) in one thread each; returns how many
 * did not return 0. */
int world_threads(int n, int (*body)(int i));

#define want(cond)                                                          \
    do {                                                                    \
        if (!(cond)) {                                                      \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, \
                    #cond, hvd_error_message());                            \
            return 1;                                                       \
        }                                                                   \
    } while (0)

#endif
