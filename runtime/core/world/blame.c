/* SPDX-License-Identifier: Apache-2.0 */
/* See blame.h. */
#include "runtime/core/world/blame.h"

#include "runtime/core/world/context.h"

#include <pthread.h>

/* Protects the pointer: a thread whose operation fails runs beside
 * hvd_shutdown, which closes the agent's socket. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hvd__agent *agent;

static void set_agent(struct hvd__agent *a)
{
    pthread_mutex_lock(&lock);
    agent = a;
    pthread_mutex_unlock(&lock);
}

void hvd__blame_open(struct hvd__agent *a)
{
    set_agent(a);
}

void hvd__blame_close(void)
{
    set_agent(NULL);
}

static int is_departure(const struct hb_error *err)
{
    return err->rank >= 0 &&
           (err->status == -HVD_EPEER || err->status == -HVD_ESHUTDOWN ||
            err->status == -HVD_ECLOSED);
}

int hvd__generation_ended(const struct hb_error *err)
{
    return atomic_load(&hvd__context.generation) &&
           (err->status == -HVD_EPEER || is_departure(err));
}

void hvd__blame(const struct hb_error *err)
{
    unsigned char frame[WORKER_BLAMES_BYTES];

    /* In a forked child the socket is the parent's, and a thread that the fork
     * did not copy may hold the lock. */
    if (hvd__forked() || !is_departure(err))
        return;
    worker_write_blames(frame, (uint32_t)err->rank);
    pthread_mutex_lock(&lock);
    if (agent)
        hvd__agent_say(agent, frame, sizeof(frame));
    agent = NULL;
    pthread_mutex_unlock(&lock);
}
