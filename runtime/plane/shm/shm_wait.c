/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting on the shared-memory plane: spin, then yield, then sleep.
 *
 * Waking a sleeper costs tens of microseconds on some machines, so a rank
 * first polls, yielding its core in between.  A sleeper sets `sleeping` in the
 * segment's head and looks again before FUTEX_WAIT; a publisher makes a system
 * call only for ranks that sleep for it.
 *
 * The publisher's store may become visible only after its load of `sleepers`.
 * Instead of a fence in every publication, the sleeper issues
 * membarrier(GLOBAL_EXPEDITED) between announcing itself and its last look at
 * the word: a full barrier on every core that runs a registered process.  A
 * rank that cannot register (an old kernel, a seccomp filter) fences instead,
 * and sets `fences`.  A sleeper that can neither issue the barrier nor rely on
 * the peer's fence cuts its sleep to 1 ms.
 */
#include "runtime/plane/shm/shm_impl.h"

#include "lib/base/sys/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Loads of a word before yielding the core: a few microseconds, or half a
     * microsecond where ranks share cores.  A yield that finds nobody to run
     * costs little more, so longer spinning would gain nothing on a free core
     * and lose much on a busy one. */
    SPINS_OWN_CORE = 128,
    SPINS_SHARED_CORE = 32,
    YIELD_NS = 300 * 1000,
    SLEEP_MS = 1000, /* then the agent's liveness is checked */
    SLEEP_MS_NO_BARRIER = 1,
};

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

void shm_wait_init(struct hvd__shm *p)
{
    struct shm_wait *w = &p->wait;

    w->spins = p->n <= p->config.cpus ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
    w->fences = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0;
    atomic_store(&p->ranks[p->me].fences, (uint32_t)w->fences);
}

void shm_wake_sleepers(struct hvd__shm *p)
{
    for (int r = 0; r < p->n; r++) {
        uint32_t whom =
            atomic_load_explicit(&p->ranks[r].sleeps_for, memory_order_relaxed);

        if (r != p->me &&
            (whom == (uint32_t)p->me || whom == (uint32_t)SHM_ANY))
            segment_wake(p->head, p->local_index[r]);
    }
}

void shm_interrupt(struct hvd__plane *plane)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    segment_wake(p->head, p->local_index[p->me]);
}

static struct segment_wake *own_wake(const struct hvd__shm *p)
{
    return &p->head->wake[p->local_index[p->me]];
}

/* Returns whether all ranks that this one waits for fence when they publish. */
static int peers_fence(const struct hvd__shm *p)
{
    if (p->wait.peer != SHM_ANY)
        return atomic_load(&p->ranks[p->wait.peer].fences) != 0;
    for (int r = 0; r < p->n; r++)
        if (r != p->me && !atomic_load(&p->ranks[r].fences))
            return 0;
    return 1;
}

static void arm(struct hvd__shm *p)
{
    struct shm_wait *w = &p->wait;
    struct segment_wake *wake = own_wake(p);

    shm_disarm(p);
    w->armed = 1;
    w->armed_for = w->peer;
    w->armed_word = atomic_load(&wake->word);
    atomic_store(&p->ranks[p->me].sleeps_for, (uint32_t)w->peer);
    atomic_fetch_add(&wake->sleeping, 1);
    atomic_fetch_add(&p->shared->sleepers, 1);
    w->sleep_ms =
        membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0 || peers_fence(p)
            ? SLEEP_MS
            : SLEEP_MS_NO_BARRIER;
}

void shm_disarm(struct hvd__shm *p)
{
    if (!p->wait.armed)
        return;
    p->wait.armed = 0;
    atomic_fetch_sub(&own_wake(p)->sleeping, 1);
    atomic_fetch_sub(&p->shared->sleepers, 1);
}

static void sleep_armed(struct hvd__shm *p, uint64_t now_ns, uint64_t until_ns)
{
    struct segment_wake *wake = own_wake(p);
    uint64_t ns =
        hb_sleep_ns((uint64_t)p->wait.sleep_ms * 1000000, now_ns, until_ns);
    struct timespec limit = {(time_t)(ns / 1000000000),
                             (long)(ns % 1000000000)};

    syscall(SYS_futex, &wake->word, FUTEX_WAIT, p->wait.armed_word, &limit,
            NULL, 0);
    shm_disarm(p);
}

void shm_pause(struct hvd__plane *plane, uint64_t until_ns)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    struct shm_wait *w = &p->wait;
    uint64_t now_ns = hb_now_ns();

    if (!w->since_ns)
        w->since_ns = now_ns;
    if (now_ns - w->since_ns < YIELD_NS)
        sched_yield();
    else if (!w->armed || w->armed_for != w->peer)
        arm(p);
    else
        sleep_armed(p, now_ns, until_ns);
}

int shm_find_abort(struct hvd__shm *p, struct hb_error *err)
{
    /* Acquire: pairs with segment_abort, which writes abort_text first. */
    uint64_t word =
        atomic_load_explicit(&p->head->abort_word, memory_order_acquire);
    uint32_t status = (uint32_t)(word >> 32), rank = (uint32_t)word - 1;
    const char *host = rank == SEGMENT_NO_RANK ? "" : p->host;

    if (status != HVD_EPEER && status != HVD_ESHUTDOWN &&
        status != HVD_ECLOSED && status != HVD_ETIMEOUT)
        return 0;
    if (p->config.host_of && rank != SEGMENT_NO_RANK)
        host = p->config.host_of(p->config.agent_arg, rank);
    if (err) {
        err->rank = (int)rank;
        snprintf(err->host, sizeof(err->host), "%s", host);
    }
    if (status == HVD_ESHUTDOWN)
        return hb_error_set(err, HVD_ESHUTDOWN,
                            "rank %u on host %s has shut down", rank, host);
    if (status == HVD_ECLOSED)
        return hb_error_set(err, HVD_EPEER,
                            "rank %u on host %s: connection lost", rank, host);
    return hb_error_set(err, (enum hvd_status)status, "%.*s", SEGMENT_TEXT_MAX,
                        p->head->abort_text);
}

int shm_still_lent(struct hvd__shm *p, struct hb_error *err)
{
    if (!p->run.lent)
        return 1;
    /* Orders the reads of lent memory before the loads of gave_up; pairs with
     * the fence in give_up (shm.c). */
    shm_fence();
    for (int r = 0; r < p->n; r++) {
        int rc;

        if (r == p->me || !atomic_load(&p->ranks[r].gave_up))
            continue;
        rc = shm_check_abort(p, err);
        return rc < 0 ? rc
                      : hb_error_set(err, HVD_EPEER,
                                     "rank %u on host %s has given up",
                                     p->world_ranks[r], p->host);
    }
    return 1;
}

/* Reports `peer`, which has left, to all ranks: otherwise they might blame
 * each other for leaving because of it. */
static int missed(struct hvd__shm *p, int peer, struct hb_error *err)
{
    segment_miss(p->head, (uint32_t)p->config.segment_ranks,
                 p->world_ranks[peer]);
    return shm_check_abort(p, err);
}

/* Sets what this rank waits for; word NULL: any peer's next header. */
static void wait_for(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                     uint64_t target)
{
    struct shm_wait *w = &p->wait;

    if (w->word == word && w->target == target)
        return;
    w->word = word;
    w->target = target;
    w->peer = peer;
    w->since_ns = 0;
    shm_disarm(p);
}

static int agent_lost(struct hvd__shm *p, struct hb_error *err)
{
    return p->wait.armed && p->config.agent_lost
               ? p->config.agent_lost(p->config.agent_arg, err)
               : 0;
}

int shm_out_of_reach(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                     uint64_t target, struct hb_error *err)
{
    int left;

    wait_for(p, peer, word, target);
    /* A value published before its rank left or died counts, so the word is
     * loaded after these checks. */
    left = (int)atomic_load(&p->ranks[peer].left);
    if (left || shm_check_abort(p, NULL) < 0) {
        if (atomic_load(word) >= target)
            return 1;
        return left ? missed(p, peer, err) : shm_check_abort(p, err);
    }
    return agent_lost(p, err);
}

int shm_reached_by(struct hvd__shm *p, int peer, const _Atomic uint64_t *word,
                   uint64_t target, struct hb_error *err)
{
    if (shm_spin(p, word, target))
        return 1;
    wait_for(p, peer, word, target);
    if (atomic_load(&p->ranks[peer].left) || shm_check_abort(p, NULL) < 0)
        return SHM_GONE;
    return agent_lost(p, err);
}

int shm_all_reached(struct hvd__shm *p, enum shm_word which, uint64_t target,
                    struct hb_error *err)
{
    struct shm_run *run = &p->run;

    for (; run->peer < p->n; run->peer++) {
        struct shm_rank *r = &p->ranks[run->peer];
        int rc;

        if (run->peer == p->me)
            continue;
        rc = shm_reached(p, run->peer,
                         which == SHM_FILLED ? &r->filled.value
                                             : &r->drained.value,
                         target, err);
        if (rc <= 0)
            return rc;
    }
    run->peer = 0;
    return 1;
}

/* ---- Between operations ---------------------------------------------- */

static int any_began(const struct hvd__shm *p)
{
    uint64_t next = p->seq + 1;

    for (int r = 0; r < p->n; r++)
        /* Acquire: as in shm_reached. */
        if (r != p->me && atomic_load_explicit(&p->ranks[r].line[next & 1].seq,
                                               memory_order_acquire) >= next)
            return 1;
    return 0;
}

static int any_left(const struct hvd__shm *p)
{
    for (int r = 0; r < p->n; r++)
        if (r != p->me && atomic_load(&p->ranks[r].left))
            return r;
    return -1;
}

int shm_began(struct hvd__plane *plane, struct hb_error *err)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;
    int rc = shm_check_abort(p, err), left;

    if (rc < 0)
        return rc;
    if (p->broken.status) {
        *err = p->broken;
        return p->broken.status;
    }
    wait_for(p, SHM_ANY, NULL, p->seq + 1);
    /* any_left before any_began: a header published before its rank left
     * counts. */
    left = any_left(p);
    if (any_began(p)) {
        shm_disarm(p);
        return 1;
    }
    return left >= 0 ? missed(p, left, err) : agent_lost(p, err);
}
