/* SPDX-License-Identifier: Apache-2.0 */
/* The list of providers; see provider.h. */
#include "runtime/core/set/provider.h"

#include "runtime/core/set/device.h"
#include "runtime/core/set/mpi_context.h"
#include "runtime/core/set/set.h"

static const struct hvd__provider *const providers[] = {&hvd__gpu_provider,
                                                        &hvd__mpi_provider};

enum { PROVIDERS = sizeof(providers) / sizeof(providers[0]) };

int hvd__providers_open(const struct hb_log *log, struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < PROVIDERS && rc == 0; i++) {
        if (providers[i]->release && !hvd__context.release)
            hvd__context.release = providers[i]->release;
        if (providers[i]->open)
            rc = providers[i]->open(log, err);
    }
    return rc;
}

int hvd__providers_plane(const struct hvd__host *h, struct hvd__set *s,
                         const int *ranks, int n, int me, struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < PROVIDERS && rc == 0; i++)
        if (providers[i]->plane)
            rc = providers[i]->plane(h, s, ranks, n, me, err);
    return rc;
}

int hvd__providers_wrap(struct hvd__set *s, const int *ranks, int n, int me,
                        struct hb_error *err)
{
    int rc = 0;

    s->launched = hvd__providers_world();
    for (int i = 0; i < PROVIDERS && rc == 0; i++)
        if (providers[i]->wrap)
            rc = providers[i]->wrap(s, ranks, n, me, err);
    return rc;
}

int hvd__providers_issue(const struct hvd__issue *issue)
{
    int i = 0;

    while (!providers[i]->issue)
        i++;
    return providers[i]->issue(issue);
}

int hvd__providers_started(int has_agent, const struct hvd__world_ops **world,
                           struct hb_error *err)
{
    int rc = 0;

    *world = NULL;
    for (int i = 0; i < PROVIDERS && rc == 0; i++) {
        const struct hvd__world_ops *ops = providers[i]->world;

        if (ops)
            rc = has_agent ? ops->wanted(err) : ops->started(err);
        if (rc > 0)
            *world = ops;
    }
    return rc < 0 ? rc : 0;
}

const struct hvd__world_ops *hvd__providers_world(void)
{
    for (int i = 0; i < PROVIDERS; i++)
        if (providers[i]->world && providers[i]->world->is_open())
            return providers[i]->world;
    return NULL;
}

int hvd__providers_refuse(struct hb_error *err)
{
    int rc = 0;

    for (int i = 0; i < PROVIDERS && rc == 0; i++)
        if (providers[i]->world)
            rc = providers[i]->world->refuse(err);
    return rc;
}

void hvd__providers_stats(struct hvd_stats *stats)
{
    for (int i = 0; i < PROVIDERS; i++)
        if (providers[i]->stats)
            providers[i]->stats(stats);
}

void hvd__providers_leave(void)
{
    for (int i = 0; i < PROVIDERS; i++)
        if (providers[i]->leave)
            providers[i]->leave();
}

void hvd__providers_close(void)
{
    for (int i = 0; i < PROVIDERS; i++)
        if (providers[i]->close)
            providers[i]->close();
}
