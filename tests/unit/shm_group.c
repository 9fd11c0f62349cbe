/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on one host for tests; see shm_group.h. */
#include "tests/unit/shm_group.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 300, EPOCH = 1, MET = SHM_GROUP_MAX, FLAGS };

static uint64_t segment_bytes(const struct shm_group *g)
{
    return hvd__shm_segment_bytes(g->n) + (uint64_t)g->n * g->arena_bytes;
}

static int member(void *arg, int me)
{
    struct shm_group *g = arg;

    return g->body(g, me);
}

static int index_of(const pid_t *pids, int n, pid_t pid)
{
    int i = 0;

    while (i < n && pids[i] != pid)
        i++;
    return i;
}

/* Waits for one rank; if it failed, tells the others not to wait for it. */
static void reap(struct shm_group *g, const pid_t *pids)
{
    int status, i;
    pid_t pid = wait(&status);

    need(pid > 0, "wait");
    i = index_of(pids, g->n, pid);
    need(i < g->n, "whose child");
    g->wait_status[i] = status;
    if (status)
        segment_abort(g->head, (uint32_t)g->n, (uint32_t)(100 + i), HVD_EPEER,
                      "it was killed");
}

static void open_segment(struct shm_group *g)
{
    need(g->n <= SHM_GROUP_MAX, "ranks");
    g->head = forked_shared(segment_bytes(g));
    segment_head_init(g->head, EPOCH, (uint32_t)g->n, segment_bytes(g));
    g->flags = forked_shared(FLAGS * sizeof(*g->flags));
}

/* Returns how many ranks have failed. */
static int close_segment(struct shm_group *g)
{
    int failed = 0;

    for (int i = 0; i < g->n; i++)
        failed += g->wait_status[i] != 0;
    munmap((void *)g->flags, FLAGS * sizeof(*g->flags));
    munmap(g->head, segment_bytes(g));
    return failed;
}

int shm_group_run(struct shm_group *g)
{
    pid_t pids[SHM_GROUP_MAX];

    open_segment(g);
    forked_start(g->n, LIMIT_S, member, g, pids);
    for (int i = 0; i < g->n; i++)
        reap(g, pids);
    return close_segment(g);
}

struct member_thread {
    struct shm_group *g;
    pthread_t thread;
    int me;
};

static void *member_thread(void *arg)
{
    struct member_thread *m = arg;

    m->g->wait_status[m->me] = m->g->body(m->g, m->me);
    if (m->g->wait_status[m->me])
        segment_miss(m->g->head, (uint32_t)m->g->n, (uint32_t)(100 + m->me));
    return NULL;
}

int shm_group_run_threads(struct shm_group *g)
{
    struct member_thread members[SHM_GROUP_MAX];

    open_segment(g);
    for (int i = 0; i < g->n; i++) {
        members[i] = (struct member_thread){.g = g, .me = i};
        need(pthread_create(&members[i].thread, NULL, member_thread,
                            &members[i]) == 0,
             "pthread_create");
    }
    for (int i = 0; i < g->n; i++)
        pthread_join(members[i].thread, NULL);
    return close_segment(g);
}

struct hvd__plane *shm_group_set(const struct shm_group *g, int slot,
                                 const int *members, int count, int me)
{
    uint32_t world[SHM_GROUP_MAX], domains[SHM_GROUP_MAX];
    int index[SHM_GROUP_MAX];
    const struct hvd__shm_config config = {
        .head = g->head,
        .segment_ranks = g->n,
        .slot = slot,
        .local_rank = me,
        .local_size = count,
        .world_ranks = world,
        .local_index = index,
        .domains = g->domains ? domains : NULL,
        .host = "testhost",
        .cpus = 2,
        .arena_bytes = g->arena_bytes,
        .exchange_bytes = g->exchange_bytes,
    };

    for (int i = 0; i < count; i++) {
        index[i] = members ? members[i] : i;
        world[i] = (uint32_t)(100 + index[i]);
        domains[i] = g->domains ? g->domains[index[i]] : 0;
    }
    return hvd__shm_new(&config);
}

struct hvd__plane *shm_group_plane(const struct shm_group *g, int me)
{
    return shm_group_set(g, 0, NULL, g->n, me);
}

void shm_group_arena(const struct shm_group *g, int me, struct hvd__arena *a)
{
    unsigned char *at = (unsigned char *)g->head;

    hvd__arena_init(a, at + hvd__shm_arena_at(g->n, me, g->arena_bytes),
                    g->arena_bytes);
}

void shm_group_meet(struct shm_group *g)
{
    int round = atomic_fetch_add(&g->flags[MET], 1) / g->n;

    while (atomic_load(&g->flags[MET]) < (round + 1) * g->n)
        sched_yield();
}
