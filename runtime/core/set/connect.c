/* SPDX-License-Identifier: Apache-2.0 */
/* The plane of a process set; see connect.h. */
#include "runtime/core/set/connect.h"

#include "runtime/core/set/provider.h"
#include "runtime/plane/hier/hier.h"
#include "runtime/plane/shm/shm.h"

static int agent_lost(void *arg, struct hb_error *err)
{
    return hvd__agent_check(arg, err);
}

/* The members of a set on this host. */
struct local {
    int count, me;
    uint32_t ranks[HVD__SHM_LOCAL_MAX]; /* of the world */
    int group[HVD__SHM_LOCAL_MAX];      /* places in the set */
    int index[HVD__SHM_LOCAL_MAX];      /* local ranks in the world */
    uint32_t domains[HVD__SHM_LOCAL_MAX];
};

static void find_local(const struct hvd__host *h, const struct hvd__set *s,
                       const int *ranks, int n, struct local *l)
{
    const struct worker_welcome *w = h->welcome;

    l->count = 0;
    l->me = -1;
    for (int i = 0; i < n; i++)
        for (uint32_t k = 0; k < w->local_size; k++) {
            if (w->local_ranks[k] != (uint32_t)ranks[i] ||
                (s->has_hosts && hvd__map_is_flat(&s->hosts.map) &&
                 w->rank != (uint32_t)ranks[i]))
                continue;
            if (w->rank == (uint32_t)ranks[i])
                l->me = l->count;
            l->ranks[l->count] = (uint32_t)ranks[i];
            l->group[l->count] = i;
            l->domains[l->count] = w->local_domains[k];
            l->index[l->count++] = (int)k;
        }
}

/* Sets what a rank that waits long calls to learn whether the job is over. */
static void set_watch(const struct hvd__host *h, struct hvd__set *s,
                      struct hvd__shm_config *config)
{
    const struct hvd__world_ops *world = hvd__providers_world();

    config->agent_lost = world ? world->lost : agent_lost;
    config->agent_arg = h->agent;
    if (!s->has_hosts)
        return;
    config->agent_lost = hvd__hosts_lost;
    config->agent_arg = &s->hosts;
    config->host_of = hvd__hosts_name;
}

static struct hvd__plane *make_shm(const struct hvd__host *h,
                                   struct hvd__set *s, const struct local *l)
{
    const struct worker_welcome *w = h->welcome;
    struct hvd__shm_config config = {
        .head = h->segment,
        .segment_ranks = (int)w->local_size,
        .slot = s->slot,
        .arena_bytes = h->arena_bytes,
        .exchange_bytes = h->exchange_bytes,
        .local_rank = l->me,
        .local_size = l->count,
        .world_ranks = l->ranks,
        .group_ranks = l->group,
        .local_index = l->index,
        .domains = l->domains,
        .host = w->host,
        .cpus = (int)w->cpus,
    };

    set_watch(h, s, &config);
    return hvd__shm_new(&config);
}

static struct hvd__plane *make_hier(const struct hvd__host *h,
                                    struct hvd__set *s, const struct local *l,
                                    int me)
{
    struct hvd__hier_config config = {
        .map = &s->hosts.map,
        .rank = (uint32_t)me,
        .shm = l->count > 1 ? make_shm(h, s, l) : NULL,
        .tcp = s->hosts.tcp,
        .head = h->segment,
        .segment_ranks = h->welcome->local_size,
    };
    struct hvd__plane *plane = NULL;

    if (config.shm || l->count == 1)
        plane = hvd__hier_new(&config);
    if (plane)
        return plane;
    if (config.shm)
        config.shm->ops->free(config.shm);
    hvd__tcp_free(config.tcp);
    return NULL;
}

int hvd__connect(const struct hvd__host *h, struct hvd__set *s,
                 const int *ranks, int n, int me, struct hb_error *err)
{
    struct local l;
    int rc = hvd__providers_plane(h, s, ranks, n, me, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (n == 1) {
        s->plane = hvd__self_plane();
        return 0;
    }
    find_local(h, s, ranks, n, &l);
    s->plane = s->has_hosts ? make_hier(h, s, &l, me) : make_shm(h, s, &l);
    if (!s->plane)
        return hb_error_set(err, HVD_ENOMEM, "no memory for a plane");
    return 0;
}
