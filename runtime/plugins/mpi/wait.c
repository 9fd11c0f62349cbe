/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for peers: spin (in header.c), then yield, then sleep.  MPI wakes no
 * sleeper, so sleeps are short and grow to a millisecond; an interrupt ends
 * one.  While data moves there is no sleep, as MPI moves it only when called.
 */
#include "runtime/plugins/mpi/mpi_impl.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS_OWN_CORE = 64,
    SPINS_SHARED_CORE = 4,
    YIELD_NS = 300 * 1000,
    SLEEP_MIN_NS = 50 * 1000,
    SLEEP_MAX_NS = 1000 * 1000,
};

void mp_wait_init(struct mp_plane *p)
{
    p->wait.spins = mp_world.crowded ? SPINS_SHARED_CORE : SPINS_OWN_CORE;
}

void mp_wait_reset(struct mp_plane *p)
{
    p->wait.since_ns = 0;
    p->wait.armed = 0;
    p->wait.sleep_ns = SLEEP_MIN_NS;
}

static void sleep_armed(struct mp_plane *p)
{
    struct timespec limit = {0, p->wait.sleep_ns};

    syscall(SYS_futex, &p->wake, FUTEX_WAIT_PRIVATE, p->wait.armed_word, &limit,
            NULL, 0);
    p->wait.sleep_ns *= 2;
    if (p->wait.sleep_ns > SLEEP_MAX_NS)
        p->wait.sleep_ns = SLEEP_MAX_NS;
    p->wait.armed_word = atomic_load(&p->wake);
}

/* Waits a step.  The pause that arms reads the word; the next one sleeps.  An
 * interrupt in between changes the word, so that the futex does not sleep.
 * until_ns need not be looked at: no sleep lasts longer than a millisecond.
 */
void mp_pause(struct hvd__plane *plane, uint64_t until_ns)
{
    struct mp_plane *p = (struct mp_plane *)plane;
    struct mp_wait *w = &p->wait;
    uint64_t now_ns;

    (void)until_ns;
    if (p->stage == MP_DATA) {
        sched_yield();
        return;
    }
    now_ns = hb_now_ns();
    if (!w->since_ns)
        w->since_ns = now_ns;
    if (now_ns - w->since_ns < YIELD_NS) {
        sched_yield();
    } else if (!w->armed) {
        w->armed = 1;
        w->armed_word = atomic_load(&p->wake);
    } else {
        sleep_armed(p);
    }
}

void mp_interrupt(struct hvd__plane *plane)
{
    struct mp_plane *p = (struct mp_plane *)plane;

    atomic_fetch_add(&p->wake, 1);
    syscall(SYS_futex, &p->wake, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
