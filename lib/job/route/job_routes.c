/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's use of routes.h: one round between the last HELLO and LAUNCH for jobs
 * on several hosts, and its results in LAUNCH.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

int job_routes_open(struct job *job, struct hb_error *err)
{
    const struct plan *plan = job->config->plan;
    struct routes_config config = {
        .host_count = plan->host_count,
        .network_interfaces = job->config->network_interfaces,
        .reserve_port = plan->host_count > 1,
        .send = job_send,
        .arg = job,
    };
    const char **names;
    int rc;

    if (plan->host_count == 1 && !config.network_interfaces)
        return 0;
    names = hb_xcalloc((size_t)plan->host_count, sizeof(*names));
    for (int i = 0; i < plan->host_count; i++)
        names[i] = plan->hosts[i].entry->name;
    config.names = names;
    rc = routes_new(&config, &job->routes, err);
    hb_free(names);
    return rc;
}

static void no_routes(struct job *job, const struct hb_error *err)
{
    job_verdict(job, JOB_EXIT_LAUNCHER, "%s", err->text);
    job_event(job, JOB_EV_FAILED);
}

static void finish(struct job *job)
{
    struct hb_error err = HB_ERROR_INIT;

    if (routes_finish(job->routes, &err) < 0)
        no_routes(job, &err);
    else
        job_event(job, JOB_EV_ROUTED);
}

int job_routes_hello(struct job_host *host, const struct control_hello *m,
                     struct hb_error *err)
{
    struct job *job = host->job;

    return job->routes ? routes_hello(job->routes, host->index, m, err) : 0;
}

void job_routes_begin(struct job *job)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    if (!job->routes) {
        job_event(job, JOB_EV_ROUTED);
        return;
    }
    rc = routes_begin(job->routes, &err);
    if (rc < 0)
        no_routes(job, &err);
    else if (rc > 0)
        finish(job);
}

int job_routes_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct job *job = host->job;
    int rc;

    /* The job is ending; answers to earlier probes still come. */
    if (job->has_verdict)
        return 0;
    if (job->state > JOB_ROUTING && job->config->most > 0)
        return job_grow_route_frame(host, f, err);
    if (!job->routes || job->state > JOB_ROUTING)
        return hb_error_set(err, HVD_EPROTO, "routes that nobody asked for");
    rc = routes_frame(job->routes, host->index, f, err);
    if (rc > 0)
        finish(job);
    return rc < 0 ? rc : 0;
}

/* ---- LAUNCH ---- */

void job_routes_fill(const struct job_host *host, struct control_launch *m)
{
    const struct job *job = host->job;

    m->host_index = host->index;
    if (!job->routes)
        return;
    if (job->config->plan->host_count > 1)
        hb_must(routes_peers(job->routes, host->index, &m->peers));
    for (int i = 0; i < m->rank_count; i++) {
        struct hb_strv env = HB_STRV_INIT;

        hb_must(hb_strv_add_all(&env, m->ranks[i].env.items));
        hb_must(routes_env(job->routes, host->index, &job->config->env, &env));
        m->ranks[i].env = env;
    }
}

void job_routes_release(const struct job_host *host, struct control_launch *m)
{
    hb_strv_free(&m->peers);
    for (int i = 0; host->job->routes && i < m->rank_count; i++)
        hb_strv_free(&m->ranks[i].env);
}
