/* SPDX-License-Identifier: Apache-2.0 */
/* See growth.h. */
#include "cmd/hvdrun/growth.h"

#include "cmd/hvdrun/main_loop.h"
#include "lib/base/alloc.h"
#include "lib/job/discovery/discovery.h"

#include <string.h>
#include <strings.h>

enum {
    /* Numbers for ranks of a host that has fewer slots now. */
    ROOM = 16,
    /* Hosts that may come, beyond one for each rank. */
    MORE_HOSTS = 64,
};

/* ---- The first hosts ---- */

struct search {
    const struct options *options;
    struct main_loop main;
    struct discoverer *discoverer;
    uv_timer_t limit;
    struct hostlist *hosts;
    int slots;     /* found last */
    int exit_code; /* for a signal */
    struct hb_error *err;
};

static int slots_wanted(const struct options *o)
{
    return o->num_proc ? o->num_proc : o->min_np;
}

static void search_end(struct search *s)
{
    if (uv_is_closing((uv_handle_t *)&s->limit))
        return;
    uv_close((uv_handle_t *)&s->limit, NULL);
    discoverer_close(s->discoverer);
    main_loop_stop(&s->main);
}

static void on_first_hosts(void *arg, const struct hostlist *hosts, int slots)
{
    struct search *s = arg;

    s->slots = slots;
    if (slots < slots_wanted(s->options))
        return;
    discovery_copy(s->hosts, hosts);
    search_end(s);
}

static void on_first_trouble(void *arg, const char *why)
{
    struct search *s = arg;

    hb_error_set(s->err, HVD_EINVAL, "--host-discovery-script '%s': %s",
                 s->options->discovery_script, why);
    search_end(s);
}

static void on_search_limit(uv_timer_t *timer)
{
    struct search *s = timer->data;

    hb_error_set(s->err, HVD_ETIMEOUT,
                 "--host-discovery-script has found %d of %d slots within %g s "
                 "(--elastic-timeout)",
                 s->slots, slots_wanted(s->options),
                 (double)s->options->elastic_timeout_ms / 1e3);
    search_end(s);
}

static void on_search_signal(void *arg, const struct signalfd_siginfo *info)
{
    struct search *s = arg;

    s->exit_code = 128 + (int)info->ssi_signo;
    search_end(s);
}

int growth_discover(const struct options *o, const struct hb_log *log,
                    struct hostlist *hosts, struct hb_error *err)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct search s = {.options = o, .hosts = hosts, .err = err};
    struct discoverer_config config;
    int rc =
        main_loop_open(&s.main, signals, sizeof(signals) / sizeof(signals[0]),
                       on_search_signal, &s, err);

    if (rc < 0)
        return rc;
    growth_discoverer(o, &config);
    config.loop = &s.main.loop;
    config.log = log;
    config.on_hosts = on_first_hosts;
    config.on_trouble = on_first_trouble;
    config.arg = &s;
    uv_timer_init(&s.main.loop, &s.limit);
    s.limit.data = &s;
    uv_timer_start(&s.limit, on_search_limit, (uint64_t)o->elastic_timeout_ms,
                   0);
    s.discoverer = discoverer_open(&config);
    main_loop_run(&s.main);
    return s.exit_code ? s.exit_code : err->status;
}

/* ---- The job ---- */

static size_t find_entry(const struct hostlist *l, const char *name)
{
    size_t i = 0;

    while (i < l->count && strcasecmp(l->entries[i].name, name) != 0)
        i++;
    return i;
}

int growth_rename(struct hostlist *l,
                  const char *(*known_name)(void *arg, const char *name),
                  void *arg, struct hb_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < l->count; i++) {
        const char *name = known_name(arg, l->entries[i].name);
        size_t same;

        if (strcasecmp(name, l->entries[i].name) == 0)
            continue;
        same = find_entry(l, name);
        if (same < i) {
            rc = hostlist_merge(l, same, i--, err);
            continue;
        }
        hb_free(l->entries[i].name);
        l->entries[i].name = hb_xstrdup(name);
        if (same < l->count)
            rc = hostlist_merge(l, i, same, err);
    }
    return rc;
}

void growth_discoverer(const struct options *o, struct discoverer_config *out)
{
    *out = (struct discoverer_config){
        .script = o->discovery_script,
        .hostfile = o->hostfile,
        .slots = o->slots_per_host,
        .pause_ms = o->discovery_ms,
        .limit_ms = DISCOVERER_LIMIT_MS,
    };
}

int growth_most(const struct options *o, int np)
{
    return o->max_np > np ? o->max_np : np;
}

void growth_reserve(const struct options *o, struct plan *plan)
{
    int most = growth_most(o, plan->np) + o->spares;
    int room = most < ROOM ? most : ROOM;
    int64_t size = plan->size + (int64_t)room * (plan->host_count + most);
    int hosts = plan->host_count;
    int64_t host_cap = (int64_t)hosts + most + MORE_HOSTS;

    plan_reserve(plan, size < PLAN_RANKS_MAX ? (int)size : PLAN_RANKS_MAX,
                 host_cap < PLAN_RANKS_MAX ? (int)host_cap : PLAN_RANKS_MAX);
    for (int i = 0; i < hosts; i++) {
        int slots = plan->hosts[i].entry->slots;

        plan_bind(plan, i, slots > room ? slots : room, plan->hosts[i].count);
    }
}
