/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_init and hvd_shutdown.
 */
#include "runtime/core/api/life.h"
#include "runtime/core/api/trace.h"
#include "runtime/core/set/mpi_context.h"
#include "runtime/core/set/provider.h"
#include "runtime/core/set/set_keep.h"
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
/* The last bring_up_once failed because a rank died or left. */
static int generation_ended;

/* ---- Down ---------------------------------------------------------------- */

/* Frees all that the world holds.  With `keep`, memory from hvd_alloc stays
 * valid.  Returns 0, or -HVD_ENOMEM: then some of that memory is lost. */
static int take_down(int keep)
{
    int rc = 0;

    for (int i = 0; i < HVD_PROCESS_SETS_MAX; i++)
        hvd__set_free(&hvd__context.sets[i]);
    hvd__providers_close();
    hvd__trace_unwatch();
    hvd__stats_close();
    hvd__stats_init(&hvd__context.removed, NULL, 0);
    atomic_store(&hvd__context.status, NULL);
    hvd__stall_close();
    hvd__context.watches_itself = 0;
    hvd__tuner_close(&tuner);
    if (keep)
        rc = hvd__arena_detach(&hvd__context.memory);
    if (!keep || rc < 0)
        hvd__arena_fini(&hvd__context.memory);
    hvd__world_close();
    is_up = 0;
    atomic_store(&hvd__context.up, 0);
    atomic_store(&hvd__context.generation, 0);
    return rc;
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

int hvd__begins_again(const struct hb_error *err)
{
    return err->status == -HVD_ERESIZED || hvd__generation_ended(err) ||
           (atomic_load(&hvd__context.generation) && err->is_told);
}

/* Reads how long operations may wait in a world of MPI, in which each rank
 * checks that itself because no agent does. */
static int watch_waits(int is_launched, struct hb_error *err)
{
    struct hvd__stall_limits *l = &hvd__context.stall_limits;
    int rc = is_launched ? hvd__stall_limits(l, err) : 0;

    hvd__context.watches_itself =
        is_launched && rc == 0 && (l->warning_ms || l->shutdown_ms);
    return rc;
}

/* Joins the world and opens everything; on failure, closes it. */
static int bring_up_once(struct hb_error *err)
{
    const struct hvd__world_ops *launched;
    int rc = hvd__context_map(err);

    hvd__sets_init();
    if (rc == 0)
        rc = hvd__world_join(leave, err);
    hvd__sets_enter(atomic_load(&hvd__context.generation));
    launched = rc == 0 ? hvd__providers_world() : NULL;
    if (rc == 0)
        rc = hvd__knobs_read(&hvd__context.knobs,
                             hvd__context.topology.local_rank, err);
    if (rc == 0)
        rc = watch_waits(launched != NULL, err);
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
        generation_ended = hvd__begins_again(err);
        take_down(1);
        return hb_error_context(err, "hvd_init");
    }
    if (hvd__context.topology.rank == 0)
        hvd__knobs_tell_idle(&hvd__context.knobs);
    atomic_store(&hvd__context.resized, 0);
    opener = getpid();
    is_up = 1;
    atomic_store(&hvd__context.page->here, 1);
    atomic_store(&hvd__context.up, 1);
    /* Release: pairs with hvd__alive. */
    atomic_store_explicit(&hvd__context.page->alive, 1, memory_order_release);
    return 0;
}

/* Ends the world's operations with `why`, and the making and removing of
 * sets. */
static void end_world(const struct hb_error *why)
{
    atomic_store(&hvd__context.page->alive, 0);
    hvd__set_stop(&hvd__context.sets[HVD_WORLD], why);
    hvd__world_interrupt();
    hvd__sets_await_change();
}

/* Ends the operations of all sets with `why` and leaves the other ranks, after
 * end_world. */
static void end_sets(const struct hb_error *why)
{
    for (int i = HVD_PROCESS_SETS_MAX - 1; i >= 0; i--)
        hvd__set_stop(&hvd__context.sets[i], why);
    say_goodbye(HVD_PROCESS_SETS_MAX);
}

/* Makes the process sets of the generation before; on failure, closes the
 * world.  The other ranks then begin again, without this one if its program
 * gives up. */
static int remake_sets(struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;

    if (hvd__sets_remake(err) == 0)
        return 0;
    generation_ended = hvd__begins_again(err);
    hb_error_set(&why, HVD_ERESIZED, "%s", err->text);
    end_world(&why);
    end_sets(&why);
    take_down(1);
    return hb_error_context(err, "hvd_init");
}

/* Joins the world as bring_up_once does, but in an elastic job begins again
 * with the next generation if a rank dies or leaves meanwhile. */
static int bring_up(struct hb_error *err)
{
    int rc = 0;

    do {
        generation_ended = 0;
        hb_error_clear(err);
        rc = bring_up_once(err);
        if (rc == 0)
            rc = remake_sets(err);
    } while (rc < 0 && generation_ended);
    return rc;
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
        end_world(&why);
        end_sets(&why);
        take_down(0);
    }
    hvd__sets_forget();
    pthread_mutex_unlock(&life);
    return 0;
}

int hvd__renew(int begins, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    int rc = 0;

    pthread_mutex_lock(&life);
    if (!is_up)
        rc = hb_error_set(err, HVD_ENOTINIT, "hvd_init has not been called");
    if (rc == 0) {
        hb_error_set(&why, HVD_ERESIZED,
                     "hvd_sync was called before it completed");
        end_world(&why);
        if (begins)
            hvd__sets_begin_again();
        rc = hvd__sets_remember(err);
        end_sets(&why);
        if (take_down(1) < 0 && rc == 0)
            rc = hb_error_set(err, HVD_ENOMEM,
                              "no memory to keep what hvd_alloc has given");
    }
    if (rc == 0)
        rc = bring_up(err);
    pthread_mutex_unlock(&life);
    return rc;
}

static __attribute__((destructor)) void leave_at_exit(void)
{
    leave();
}
