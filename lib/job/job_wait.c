/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wait for hosts: checks who has connected, shows the progress line on a
 * terminal, and explains the end of --start-timeout.
 */
#include "lib/job/job_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/output/progress.h"
#include "lib/job/output/xbuf.h"
#include "lib/remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    WAIT_QUIET_MS = 500, /* before the first progress line */
    WAIT_TURN_MS = 200,  /* between progress lines */
    WAIT_COLUMNS = 80,   /* if the terminal's width is unknown */
};

/* ---- Progress ---- */

size_t job_terminal_width(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 2)
        return WAIT_COLUMNS;
    return size.ws_col - 1u; /* the last column would wrap */
}

/* Returns what the hosts are waited for (NULL: nothing), and in *until the
 * state that ends the wait. */
static const char *waited_for(const struct job *job, enum host_state *until)
{
    *until = HOST_CONNECTED;
    if (job->state == JOB_CONNECTING)
        return "ssh";
    *until = HOST_STARTED;
    return job->state == JOB_LAUNCHING ? "starting" : NULL;
}

static void show_progress(struct job *job)
{
    int total = job->config->plan->host_count;
    const char **names = hb_xcalloc((size_t)total, sizeof(*names));
    struct hb_buf text = HB_BUF_INIT;
    struct progress p = {.total = total, .names = names, .stage = ""};
    enum host_state until;

    p.what = waited_for(job, &until);
    for (int i = 0; p.what && i < total; i++) {
        if (job->hosts[i].state >= until) {
            p.done++;
            continue;
        }
        names[p.count++] = job->hosts[i].name;
        p.stage = job->hosts[i].link.stage;
    }
    p.width = job_terminal_width();
    if (p.count > 0)
        progress_format(&text, &p);
    output_status(job->output, hb_buf_data(&text));
    hb_buf_free(&text);
    hb_free(names);
}

static void on_wait(uv_timer_t *timer)
{
    show_progress(timer->data);
}

void job_wait_start(struct job *job)
{
    if (job->config->progress)
        uv_timer_start(&job->wait_timer, on_wait, WAIT_QUIET_MS, WAIT_TURN_MS);
}

void job_wait_end(struct job *job)
{
    uv_timer_stop(&job->wait_timer);
    output_status(job->output, "");
}

/* ---- Connecting ---- */

void job_check_connected(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++)
        if (job->hosts[i].state == HOST_CONNECTING)
            return;
    if (job->finished > 0) {
        job_event(job, JOB_EV_SETTLED);
    } else if (job_same_found(job)) {
        /* Not a verdict: a signal during the job's end may still be one. */
        job->same_host = 1;
        job_event(job, JOB_EV_SAME_HOST);
    } else {
        /* A job that grows reaches hosts later, too. */
        if (job->config->remote && job->config->most == 0)
            remote_release_keys(job->config->remote);
        job_event(job, JOB_EV_CONNECTED);
    }
}

/* ---- The start fails ---- */

static int by_host(const void *a, const void *b)
{
    const struct report_trouble *x = a, *y = b;

    return (x->host > y->host) - (x->host < y->host);
}

void job_start_failed(struct job *job)
{
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (host->state == HOST_CONNECTING && host->link.setback.status)
            job_host_trouble(host, JOB_EXIT_LAUNCHER, hb_now_ns(), 0, "%s",
                             host->link.setback.text);
    }
    qsort(job->troubles, job->trouble_count, sizeof(*job->troubles), by_host);
}

/* ---- The time-out ---- */

static enum host_state ready_state(const struct job *job)
{
    return job->state < JOB_ROUTING ? HOST_CONNECTED : HOST_STARTED;
}

/* Returns the host's state and why it got no further (heap). */
static char *host_doing(const struct job_host *host)
{
    const struct agent_link *link = &host->link;
    const char *state = host_state_name(host->state);

    if (host->state != HOST_CONNECTING)
        return hb_xstrdup(state);
    if (link->setback.status)
        return hb_xasprintf("%s; last attempt: %s", state, link->setback.text);
    return hb_xstrdup(link->stage[0] ? link->stage : state);
}

/* Lists the hosts that are waited for, with their state as text. */
static size_t find_waiting(struct job *job, struct report_trouble *waiting)
{
    enum host_state ready = ready_state(job);
    size_t count = 0;
    int first = -1;

    if (job->state == JOB_ROUTING && routes_waiting(job->routes, &first) > 0) {
        waiting[0] = (struct report_trouble){
            .host = first,
            .text = hb_xstrdup("trying the other hosts' addresses")};
        return 1;
    }
    for (int i = 0; i < job->config->plan->host_count; i++) {
        struct job_host *host = &job->hosts[i];

        if (host->state < ready)
            waiting[count++] =
                (struct report_trouble){.host = i, .text = host_doing(host)};
    }
    return count;
}

void job_start_timeout(struct job *job)
{
    const struct job_config *config = job->config;
    int total = config->plan->host_count;
    struct report_trouble *waiting =
        hb_xcalloc((size_t)total, sizeof(*waiting));
    size_t count = find_waiting(job, waiting), len;
    struct hb_buf text = HB_BUF_INIT;

    hb_must(hb_buf_printf(&text,
                          "the job did not start within %g s "
                          "(--start-timeout)",
                          (double)config->start_timeout_ms / 1e3));
    if (total > 1 && job->state != JOB_ROUTING)
        hb_must(hb_buf_printf(&text, "; %d of %d hosts are ready",
                              total - (int)count, total));
    xbuf_puts(&text, "\n");
    report_troubles(&text, "  ", config->plan, waiting, count);
    len = hb_buf_len(&text);
    job_verdict(job, JOB_EXIT_LAUNCHER, "%.*s", (int)len - 1,
                hb_buf_data(&text));
    hb_buf_free(&text);
    for (size_t i = 0; i < count; i++)
        hb_free(waiting[i].text);
    hb_free(waiting);
}
