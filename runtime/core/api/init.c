/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_init and hvd_shutdown.
 */
#include "runtime/core/api/trace.h"
#include "runtime/core/set/provider.h"
#include "runtime/core/set/world_set.h"
#include "runtime/core/world/blame.h"
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"
#include "runtime/trace/stall.h"
#include "runtime/trace/stats.h"

#include <pthread.h>
#include <unistd.h>

/* Serialises init, shutdown and the exit handlers, and protects what follows;
 * drivers of an engine use `tuner` without it, between init and shutdown. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static int is_up;    /* hvd_init succeeded, no hvd_shutdown yet */
static pid_t opener; /* the process that called hvd_init */
static struct hvd__tuner tuner;

/* ---- Down ---------------------------------------------------------------- */

static void take_down(void)
{
    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        hvd__set_free(&hvd__context.sets[i]);
    hvd__providers_close();
    hvd__stats_close();
    hvd__stats_init(&hvd__context.removed, NULL, 0);
    atomic_store(&hvd__context.status, NULL);
    hvd__stall_close();
    hvd__tuner_close(&tuner);
    hvd__arena_fini(&hvd__context.memory);
    hvd__world_close();
    is_up = 0;
    atomic_store(&hvd__context.up, 0);
}

/* Tells peers and agent that this rank leaves the first `sets` process sets. */
static void say_goodbye(int sets)
{
    for (int i = sets - 1; i >= 0; i--)
        if (hvd__context.sets[i].plane)
            hvd__context.sets[i].plane->ops->leave(hvd__context.sets[i].plane);
    hvd__providers_leave();
    hvd__trace_close(hvd__world_agent(), &hvd__context.knobs.log);
    hvd__world_leave();
}

/* Leaves the sets in order when a program exits without hvd_shutdown: its peers
 * learn that it left, not that it died.  Nothing is freed, as other threads may
 * be in the library; if one makes or removes a set, only the world is left. */
static void leave(void)
{
    int all;

    if (!hvd__alive() || pthread_mutex_trylock(&life) != 0)
        return;
    all = hvd__sets_hold();
    if (is_up && opener == getpid())
        say_goodbye(all ? HVD_PROCESS_SETS_MAX : 1);
    if (all)
        hvd__sets_release();
    pthread_mutex_unlock(&life);
}

/* ---- Up ------------------------------------------------------------------ */

/* Opens the tuner if HVD_AUTOTUNE is set. */
static int open_tuner(struct hb_error *err)
{
    const struct hvd__context *ctx = &hvd__context;
    const struct hvd__set *world = &hvd__context.sets[HVD_WORLD];
    const struct hvd__tuner_config config = {
        .n = ctx->topology.size,
        .me = ctx->topology.rank,
        .defaults = {ctx->knobs.fusion_bytes, HVD__FUSION_PART_BYTES, 100},
        .fusion_pinned = ctx->knobs.fusion_pinned,
        .tcp = world->has_hosts ? world->hosts.tcp : NULL,
        .log = &ctx->knobs.log,
    };
    int rc = hvd__tuner_wanted(err);

    return rc > 0 ? hvd__tuner_open(&tuner, &config, err) : rc;
}

static int open_trace(struct hb_error *err)
{
    const struct hvd__timeline_owner owner = {
        .rank = hvd__context.topology.rank,
        .size = hvd__context.topology.size,
        .host = hvd__world_host(),
        .is_on = &hvd__context.timeline_on,
    };

    return hvd__trace_open(&owner, err);
}

static int bring_up(struct hb_error *err)
{
    const struct hvd__world_ops *launched;
    int rc = hvd__context_map(err);

    hvd__sets_init();
    if (rc == 0)
        rc = hvd__world_join(leave, err);
    launched = rc == 0 ? hvd__providers_world() : NULL;
    if (rc == 0)
        rc = hvd__knobs_read(&hvd__context.knobs,
                             hvd__context.topology.local_rank, err);
    if (rc == 0)
        rc = hvd__providers_open(&hvd__context.knobs.log, err);
    if (rc == 0)
        rc = open_tuner(err);
    if (rc == 0)
        rc = hvd__world_open(&tuner, err);
    if (rc == 0)
        rc = open_trace(err);
    /* No agent tells the others of a failure. */
    if (launched)
        rc = launched->agree(rc, err);
    if (rc < 0) {
        hvd__blame(err);
        /* Ranks that have come this far must not wait for this one. */
        if (hvd__world_has_peers())
            say_goodbye(HVD_PROCESS_SETS_MAX);
        take_down();
        return hb_error_context(err, "hvd_init");
    }
    if (hvd__context.topology.rank == 0)
        hvd__knobs_tell_idle(&hvd__context.knobs);
    opener = getpid();
    is_up = 1;
    atomic_store(&hvd__context.page->here, 1);
    atomic_store(&hvd__context.up, 1);
    /* Release: pairs with hvd__alive. */
    atomic_store_explicit(&hvd__context.page->alive, 1, memory_order_release);
    return 0;
}

int hvd_init(void)
{
    struct hb_error err = HB_ERROR_INIT;

    if (hvd__forked())
        return hvd__fail(HVD_EUNSUPPORTED,
                         "hvd_init: this process was forked from rank %d; a "
                         "worker's child cannot use the library",
                         hvd__context.topology.rank);
    pthread_mutex_lock(&life);
    if (!is_up)
        bring_up(&err);
    pthread_mutex_unlock(&life);
    return hvd__tell(&err);
}

int hvd_shutdown(void)
{
    if (hvd__forked())
        return 0;
    pthread_mutex_lock(&life);
    if (is_up) {
        struct hb_error why = HB_ERROR_INIT;

        hb_error_set(&why, HVD_ESHUTDOWN,
                     "hvd_shutdown was called before it completed");
        atomic_store(&hvd__context.page->alive, 0);
        hvd__set_stop(&hvd__context.sets[HVD_WORLD], &why);
        hvd__world_interrupt();
        hvd__sets_await_change();
        for (int i = HVD_PROCESS_SETS_MAX - 1; i >= 0; i--)
            hvd__set_stop(&hvd__context.sets[i], &why);
        say_goodbye(HVD_PROCESS_SETS_MAX);
        take_down();
    }
    pthread_mutex_unlock(&life);
    return 0;
}

static __attribute__((destructor)) void leave_at_exit(void)
{
    leave();
}
