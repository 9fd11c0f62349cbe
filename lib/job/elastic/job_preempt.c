/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of an elastic job that will go away (--preempt-file,
 * --preempt-script): their ranks are asked to leave before. */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"
#include "lib/job/elastic/preempt.h"

#include <strings.h>

enum { FILE_PAUSE_MS = 1000, SCRIPT_PAUSE_MS = 5000, SCRIPT_LIMIT_MS = 10000 };

/* What to ask, and for whom. */
struct source {
    struct job *job;
    const char *what;
    struct preempt *preempt; /* NULL: not open */
    int unknown;             /* a host that the job does not have was named */
    void (*on_close)(struct job *job);
};

struct job_preempt {
    struct source sources[2];
};

/* Finds a host by one of its names. */
static int find_host(void *arg, const char *host)
{
    struct source *s = arg;
    const struct job *job = s->job;

    if (job->config->known_name)
        host = job->config->known_name(job->arg, host);
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (strcasecmp(job->hosts[i].name, host) == 0)
            return i;
    if (s->unknown++ == 0)
        hb_log(job->config->log, HB_LOG_WARNING,
               "%s: host %s is none of the job", s->what, host);
    return -1;
}

static void on_going(void *arg, const struct going *list, size_t count)
{
    struct source *s = arg;

    job_these_hosts_go(s->job, list, count, find_host, s, s->what);
}

static void on_trouble(void *arg, const char *why)
{
    const struct source *s = arg;

    hb_log(s->job->config->log, HB_LOG_WARNING, "%s: %s", s->what, why);
}

static void on_close(void *arg)
{
    struct source *s = arg;

    s->preempt = NULL;
    s->on_close(s->job);
}

static void open_source(struct job *job, struct source *s,
                        struct preempt_config config)
{
    s->job = job;
    s->what = config.file ? "preempt-file" : "preempt-script";
    config.loop = job->config->loop;
    config.log = job->config->log;
    config.limit_ms = SCRIPT_LIMIT_MS;
    config.on_going = on_going;
    config.on_trouble = on_trouble;
    config.on_close = on_close;
    config.arg = s;
    s->preempt = preempt_open(&config);
}

void job_preempt_open(struct job *job)
{
    const struct job_config *c = job->config;

    if (!job->elastic || (!c->preempt_file && !c->preempt_script))
        return;
    job->preempt = hb_xcalloc(1, sizeof(*job->preempt));
    if (c->preempt_file)
        open_source(job, &job->preempt->sources[0],
                    (struct preempt_config){.file = c->preempt_file,
                                            .pause_ms = FILE_PAUSE_MS});
    if (c->preempt_script)
        open_source(job, &job->preempt->sources[1],
                    (struct preempt_config){.script = c->preempt_script,
                                            .pause_ms = SCRIPT_PAUSE_MS});
}

int job_preempt_close(struct job *job, void (*closed)(struct job *job))
{
    int count = 0;

    for (int i = 0; job->preempt && i < 2; i++) {
        struct source *s = &job->preempt->sources[i];

        if (!s->preempt)
            continue;
        s->on_close = closed;
        preempt_close(s->preempt);
        count++;
    }
    return count;
}

void job_preempt_free(struct job *job)
{
    hb_free(job->preempt);
}
