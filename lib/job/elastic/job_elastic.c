/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generations of an elastic job (generations.h): messages in and out, the
 * timers, and what the user is told.
 *
 * While the job can go on, the death of a rank is reported at once, and is no
 * cause of the job's end.  job->failed and job->troubles hold what has happened
 * since the generation began: so if the job does end, its report names the
 * first failure that the ranks did not survive.
 */
#include "lib/job/elastic/job_elastic_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"
#include "lib/job/output/xbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Time for ranks that have called hvd_shutdown to call hvd_init again. */
    ELASTIC_SETTLE_MS = 1000,
    /* Exit code for --reset-limit, as of horovodrun. */
    ELASTIC_EXIT_RESETS = 1,
    ELASTIC_NAMED_MAX = 8, /* ranks listed one by one */
    /* Generations in a row that may fail before their first commit, where
     * ranks are started again and so without end. */
    ELASTIC_FRUITLESS_MAX = 3,
};

void job_elastic_open(struct job *job)
{
    const struct job_config *config = job->config;
    const struct generations_config generations = {
        .size = config->plan->size,
        .np = config->plan->np,
        .min_np = config->min_np,
        .most = config->most,
        .multiple = config->multiple,
        .reset_limit = config->reset_limit,
        .grows = config->most > 0,
    };
    size_t size = (size_t)config->plan->size;
    struct elastic *e;

    if (!config->spec.elastic)
        return;
    e = job->elastic = hb_xcalloc(1, sizeof(*e));
    generations_init(&e->generations, &generations);
    apart_init(&e->apart, config->plan->host_cap);
    restarts_init(&e->restarts, config->plan->size, config->restart_failed);
    e->pids = hb_xcalloc(size, sizeof(*e->pids));
    e->gone = hb_xcalloc(size, 1);
    e->members = hb_xcalloc(size, sizeof(*e->members));
    elastic_grow_open(job);
    for (int rank = config->plan->np; rank < config->plan->size; rank++) {
        job->exited[rank] = JOB_RANK_ENDED;
        job->exited_count++;
        job_stall_absent(job, rank);
    }
    e->leaving = hb_xcalloc(size, sizeof(*e->leaving));
}

void job_elastic_free(struct job *job)
{
    struct elastic *e = job->elastic;

    if (!e)
        return;
    for (size_t i = 0; i < e->lost_count; i++)
        hb_free(e->lost[i].phrase);
    elastic_grow_free(job);
    for (int i = 0; i < job->config->plan->size; i++)
        hb_free(e->leaving[i].why);
    hb_free(e->leaving);
    generations_fini(&e->generations);
    restarts_fini(&e->restarts);
    apart_fini(&e->apart);
    hb_free(e->lost);
    hb_free(e->pids);
    hb_free(e->gone);
    hb_free(e->members);
    hb_free(e->why);
    hb_free(e);
}

int job_elastic_goes_on(const struct job *job)
{
    return job->elastic && !job->has_verdict &&
           !job->elastic->generations.ended &&
           (job->state == JOB_LAUNCHING || job->state == JOB_RUNNING);
}

int job_elastic_is_done(const struct job *job)
{
    return job->elastic && job->elastic->is_done;
}

int job_elastic_is_gone(const struct job *job, int rank)
{
    return job->elastic && job->elastic->gone[rank];
}

void job_elastic_started(struct job *job, int rank, pid_t pid)
{
    if (job->elastic)
        job->elastic->pids[rank] = pid;
}

/* ---- Why a generation ends ---- */

/* Keeps why the generation ends, and since when its ranks have not worked. */
static void keep_why(struct elastic *e, const char *line, int exit_code,
                     uint64_t when_ns)
{
    if (!e->why) {
        e->why = hb_xstrdup(line);
        e->why_code = exit_code;
    }
    if (!e->stopped_ns || when_ns < e->stopped_ns)
        e->stopped_ns = when_ns;
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static int is_member(const struct elastic *e, int rank)
{
    return e->count > 0 && bsearch(&rank, e->members, (size_t)e->count,
                                   sizeof(*e->members), compare) != NULL;
}

/* ---- Messages ---- */

/* Sends a frame to each host with a member that lives, but not to `except`. */
static void send_to_members(struct job *job, const struct hb_buf *frame,
                            int except)
{
    const struct elastic *e = job->elastic;
    const struct plan *plan = job->config->plan;
    unsigned char *sent = hb_xcalloc((size_t)plan->host_count, 1);

    for (int i = 0; i < e->count; i++) {
        int host = plan->ranks[e->members[i]].host;

        if (sent[host] || host == except ||
            e->generations.ranks[e->members[i]].life != GENERATIONS_LIVES)
            continue;
        sent[host] = 1;
        job_send(job, host, frame);
    }
    hb_free(sent);
}

static void send_abort(struct job *job, int rank, const char *text)
{
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_abort(&frame, rank, text));
    send_to_members(job, &frame, job->config->plan->ranks[rank].host);
    hb_buf_free(&frame);
}

static void send_change(struct job *job)
{
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_u32(&frame, CONTROL_CHANGE,
                               job->elastic->generations.number));
    send_to_members(job, &frame, -1);
    hb_buf_free(&frame);
}

static void send_generation(struct job *job, const char *why)
{
    struct elastic *e = job->elastic;
    struct control_generation m = {.number = e->generations.number,
                                   .joined = (uint32_t)e->generations.joined,
                                   .removed = (uint32_t)e->generations.removed,
                                   .ranks = e->members,
                                   .count = e->count};
    struct hb_buf frame = HB_BUF_INIT;

    snprintf(m.why, sizeof(m.why), "%s", why);
    hb_text_trim_cut(m.why);
    hb_must(control_encode_generation(&frame, &m));
    send_to_members(job, &frame, -1);
    hb_buf_free(&frame);
}

/* ---- A new generation ---- */

static char *rank_line(const struct job *job, int rank, const char *what)
{
    struct hb_buf text = HB_BUF_INIT;

    report_rank(&text, job->config->plan, rank, job->elastic->pids[rank]);
    xbuf_puts(&text, what);
    return hb_buf_detach(&text);
}

/* Returns how a member of the generation before came out of it: heap. */
static char *leaver_line(const struct job *job, int rank)
{
    const struct elastic *e = job->elastic;
    enum generations_life life = e->generations.ranks[rank].life;

    if (life == GENERATIONS_FINISHED)
        return rank_line(job, rank, ": exit code 0");
    if (life == GENERATIONS_REMOVED && e->leaving[rank].why)
        return hb_xstrdup(e->leaving[rank].why);
    return rank_line(job, rank, ": has left");
}

/* Returns why the generation before ended (heap); `before` are its members. */
static char *find_why(const struct job *job, const int *before, int count)
{
    const struct elastic *e = job->elastic;
    const struct generations_rank *ranks = e->generations.ranks;

    if (count == 0)
        return hb_xstrdup("");
    if (e->why)
        return hb_xstrdup(e->why);
    for (int i = 0; i < count; i++)
        if (!ranks[before[i]].member)
            return leaver_line(job, before[i]);
    /* All of them are members again; both lists are ascending. */
    for (int i = 0; i < e->count; i++)
        if (i >= count || before[i] != e->members[i])
            return rank_line(job, e->members[i], ": is ready to join");
    return hb_xstrdup("");
}

/* Tells the user how many ranks work now, if the number or the members have
 * changed or the job had stopped. */
static void say_made(struct job *job, int before, int is_same)
{
    const struct elastic *e = job->elastic;
    double ms = (double)(hb_now_ns() - e->stopped_ns) / 1e6;
    char stopped[64] = "";

    if (before == 0 && e->count < job->config->plan->np)
        job_say(job, "starting with %d of %d ranks (generation 1)", e->count,
                job->config->plan->np);
    if (before == 0 || (is_same && !e->stopped_ns))
        return;
    if (e->stopped_ns)
        snprintf(stopped, sizeof(stopped), ", stopped for %.*f %s", 1,
                 ms < 1000 ? ms : ms / 1000, ms < 1000 ? "ms" : "s");
    job_say(job, "%d -> %d ranks (generation %u)%s", before, e->count,
            e->generations.number, stopped);
}

static void on_made(struct job *job)
{
    struct elastic *e = job->elastic;
    size_t bytes = (size_t)job->config->plan->size * sizeof(*e->members);
    int *before = hb_xmalloc(bytes), count = e->count;
    char *why;

    memcpy(before, e->members, bytes);
    e->count = generations_members(&e->generations, e->members);
    why = find_why(job, before, count);
    send_generation(job, why);
    job_stall_members(job, e->members, e->count);
    say_made(job, count,
             count == e->count && memcmp(before, e->members,
                                         (size_t)count * sizeof(*before)) == 0);
    job_forget_failures(job);
    hb_free(e->why);
    e->why = NULL;
    e->stopped_ns = 0;
    e->has_said = 0;
    hb_free(why);
    hb_free(before);
}

/* ---- The end ---- */

/* Says why the caller ends the job by a failure. */
static void say_too_few(struct job *job)
{
    const struct generations *g = &job->elastic->generations;
    const struct job_config *c = job->config;
    int left = generations_left_count(g), is_less = left < c->min_np;

    if (is_less || c->multiple > 0)
        job_say(job, "%d rank%s left, %s %d: the job ends", left,
                left == 1 ? " is" : "s are",
                is_less ? "fewer than --min-np" : "too few for --np-multiple",
                is_less ? c->min_np : c->multiple);
    else
        job_say(job, "%d finished, fewer than --min-np %d: the job ends",
                g->lives[GENERATIONS_FINISHED], c->min_np);
}

/* Says once that ranks wait until there are enough. */
static void say_waiting(struct job *job)
{
    struct elastic *e = job->elastic;
    int left = generations_left_count(&e->generations);

    if (e->has_said || !e->grow || left >= job->config->min_np ||
        !generations_waits(&e->generations))
        return;
    e->has_said = 1;
    job_say(job, "%d rank%s, --min-np is %d: waiting for hosts (up to %g s)",
            left, left == 1 ? "" : "s", job->config->min_np,
            (double)job->config->elastic_timeout_ms / 1e3);
}

static void end_by_resets(struct job *job)
{
    const struct elastic *e = job->elastic;

    job_verdict(job, ELASTIC_EXIT_RESETS,
                "the job ends, because --reset-limit %d allows no generation "
                "%u%s%s",
                job->config->reset_limit, e->generations.number + 1,
                e->why ? ": " : "", e->why ? e->why : "");
    job_event(job, JOB_EV_FAILED);
}

/* Ends the job if its generations keep failing before their first commit.
 * Returns whether it does; to be called when the next one can be made. */
static int end_fruitless(struct job *job)
{
    struct elastic *e = job->elastic;
    uint32_t before = e->generations.number - 1;

    if (before == 0 || !e->why || !job->config->spec.restart)
        return 0;
    e->fruitless = e->progress < before ? e->fruitless + 1 : 0;
    if (e->fruitless < ELASTIC_FRUITLESS_MAX)
        return 0;
    job_verdict(job, e->why_code,
                "the job ends, because %d generations in a row have failed "
                "before a commit, the last by %s",
                e->fruitless, e->why);
    job_event(job, JOB_EV_FAILED);
    return 1;
}

static void end_overdue(struct job *job)
{
    const struct elastic *e = job->elastic;
    struct hb_buf names = HB_BUF_INIT;
    int count = 0;

    for (int rank = 0; rank < job->config->plan->size; rank++) {
        if (!generations_is_missing(&e->generations, rank))
            continue;
        if (count++ >= ELASTIC_NAMED_MAX)
            continue;
        xbuf_puts(&names, count > 1 ? ", " : "");
        report_rank(&names, job->config->plan, rank, e->pids[rank]);
    }
    if (count > ELASTIC_NAMED_MAX)
        hb_must(
            hb_buf_printf(&names, " and %d more", count - ELASTIC_NAMED_MAX));
    if (count == 0)
        hb_must(hb_buf_printf(
            &names, "hosts for more than %d rank%s",
            generations_left_count(&e->generations),
            generations_left_count(&e->generations) == 1 ? "" : "s"));
    job_verdict(job, JOB_EXIT_TIMEOUT,
                "ranks have waited in hvd_sync for %g s (--elastic-timeout); "
                "not there: %s",
                (double)job->config->elastic_timeout_ms / 1e3,
                hb_buf_data(&names));
    hb_buf_free(&names);
    job->urgent = 1;
    job_event(job, JOB_EV_TIMEOUT);
}

/* ---- Events ---- */

static void on_settled(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job_elastic_goes_on(job))
        elastic_act(job, generations_settled(&job->elastic->generations));
}

static void on_waited(uv_timer_t *timer)
{
    struct job *job = timer->data;

    if (job_elastic_goes_on(job))
        elastic_act(job, generations_overdue(&job->elastic->generations));
}

/* Starts or stops a timer; one that runs goes on. */
static void set_timer(uv_timer_t *timer, int on, uv_timer_cb cb, int64_t ms)
{
    if (!on)
        uv_timer_stop(timer);
    else if (!uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, cb, (uint64_t)ms, 0);
}

static void carry_out(struct job *job, enum generations_action action)
{
    switch (action) {
    case GENERATIONS_NOTHING:
        break;
    case GENERATIONS_TOO_FEW:
        say_too_few(job);
        break;
    case GENERATIONS_MADE:
        if (end_fruitless(job))
            return;
        on_made(job);
        break;
    case GENERATIONS_CHANGE:
        send_change(job);
        break;
    case GENERATIONS_DONE:
        job->elastic->is_done = 1;
        elastic_end_agents(job);
        break;
    case GENERATIONS_STOPPED:
        elastic_stopped(job);
        break;
    case GENERATIONS_TOO_MANY:
        end_by_resets(job);
        break;
    case GENERATIONS_OVERDUE:
        end_overdue(job);
        break;
    }
}

void elastic_act(struct job *job, enum generations_action action)
{
    struct generations *g = &job->elastic->generations;

    carry_out(job, action);
    /* After GENERATION, so that a rank that ends now is no member any more. */
    elastic_tell_removed(job);
    if (action == GENERATIONS_MADE) {
        carry_out(job, generations_begun(g));
        job_grow_soon(job);
    }
    set_timer(&job->settle_timer, generations_settles(g), on_settled,
              ELASTIC_SETTLE_MS);
    set_timer(&job->elastic_timer, generations_waits(g), on_waited,
              job->config->elastic_timeout_ms);
    elastic_set_restart_timer(job);
    say_waiting(job);
    elastic_set_leave_timer(job);
    elastic_end_idle_agents(job);
}

int job_elastic_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct job *job = host->job;
    int rank, ready;
    int rc = control_decode_ready(f->payload, f->len, &rank, &ready, err);

    if (rc == 0)
        rc = job_check_rank(host, rank, err);
    if (rc == 0 && !job->elastic)
        rc = hb_error_set(err, HVD_EPROTO,
                          "rank %d waits for a generation, but the job is not "
                          "elastic",
                          rank);
    if (rc < 0 || !job_elastic_goes_on(job))
        return rc;
    elastic_act(job, ready
                         ? generations_ready(&job->elastic->generations, rank)
                         : generations_left(&job->elastic->generations, rank));
    elastic_grow_ready(job);
    return 0;
}

int job_elastic_progress(void *arg, const struct frame *f, struct hb_error *err)
{
    struct job_host *host = arg;
    struct elastic *e = host->job->elastic;
    uint32_t generation;
    int rc = control_decode_u32(f->payload, f->len, &generation, err);

    if (rc == 0 && (!e || generation > e->generations.number))
        rc = hb_error_set(err, HVD_EPROTO, "progress in generation %u",
                          generation);
    if (rc == 0)
        generations_committed(&e->generations, generation);
    if (rc == 0 && generation > e->progress)
        e->progress = generation;
    return rc;
}

void job_elastic_finished(struct job *job, int rank)
{
    enum generations_action action;

    if (!job_elastic_goes_on(job))
        return;
    action = generations_ended(&job->elastic->generations, &rank, 1,
                               GENERATIONS_FINISHED);
    elastic_act(job, action);
    elastic_end_too_few(job, action, rank, "has ended, and too few are left");
}

int job_elastic_failed(struct job *job, const struct control_exited *m,
                       uint64_t when_ns)
{
    struct elastic *e = job->elastic;
    struct hb_buf text = HB_BUF_INIT;
    enum generations_action action;
    uint64_t due_ns;
    char *line;

    if (!job_elastic_goes_on(job))
        return 0;
    if (elastic_removed_failed(job, m))
        return 1;
    due_ns = elastic_plan_restart(job, m->rank);
    action =
        generations_ended(&e->generations, &m->rank, 1,
                          due_ns ? GENERATIONS_PENDING : GENERATIONS_FAILED);
    hb_must(control_exited_phrase(&text, m));
    elastic_keep_lost(e, m->rank, hb_xstrdup(hb_buf_data(&text)));
    hb_buf_clear(&text);
    report_rank(&text, job->config->plan, m->rank, m->pid);
    xbuf_puts(&text, ": ");
    hb_must(control_exited_phrase(&text, m));
    line = hb_buf_detach(&text);
    if (is_member(e, m->rank))
        keep_why(e, line, m->exit_code, when_ns);
    if (action != GENERATIONS_TOO_FEW)
        elastic_report_failed(job, m);
    if (action != GENERATIONS_TOO_FEW && is_member(e, m->rank)) {
        job_death_text(job, &text, m);
        send_abort(job, m->rank, hb_buf_data(&text));
        hb_buf_free(&text);
    }
    if (!due_ns && !m->blames && action != GENERATIONS_TOO_FEW)
        job_grow_strike(&job->hosts[job->config->plan->ranks[m->rank].host]);
    if (due_ns)
        job_say(job, "rank %d starts again in %.1f s (%d of %d)", m->rank,
                (double)(due_ns - hb_now_ns()) / 1e9,
                e->restarts.ranks[m->rank].used, e->restarts.most);
    elastic_act(job, action);
    if (job->config->whole_hosts && !due_ns && !m->blames)
        elastic_leave_with(job, m->rank, line);
    hb_free(line);
    return action != GENERATIONS_TOO_FEW;
}

/* Tells everybody but the agents that the rank is lost with its host. */
static void lose_rank(struct job *job, int rank, const char *line)
{
    struct elastic *e = job->elastic;

    e->gone[rank] = 1;
    elastic_keep_lost(e, rank, hb_xstrdup(line));
    job_rendezvous_rank_gone(job->rendezvous, rank, line);
    job_stall_rank_gone(job, rank);
    if (job->input)
        input_rank_gone(job->input, rank);
}

int job_elastic_host_lost(struct job_host *host, uint64_t when_ns,
                          const char *why)
{
    struct job *job = host->job;
    struct elastic *e = job->elastic;
    enum generations_action action;
    int count = 0, pending_count = 0, member = -1;
    int *ranks, *pending;
    char *line;

    if (elastic_stopped_there(host))
        return 1;
    if (!job_elastic_goes_on(job) || job->state != JOB_RUNNING)
        return 0;
    ranks = hb_xcalloc((size_t)host->plan->count + 1, sizeof(*ranks));
    pending = hb_xcalloc((size_t)host->plan->count + 1, sizeof(*pending));
    for (int i = 0; i < host->plan->count; i++) {
        int rank = host->plan->ranks[i];

        if (e->gone[rank])
            continue;
        if (e->generations.ranks[rank].life == GENERATIONS_PENDING)
            pending[pending_count++] = rank;
        if (job->exited[rank])
            continue;
        ranks[count++] = rank;
        if (is_member(e, rank))
            member = rank;
    }
    action = generations_ended(&e->generations, pending, pending_count,
                               GENERATIONS_FAILED);
    if (action != GENERATIONS_TOO_FEW)
        action = generations_ended(&e->generations, ranks, count,
                                   GENERATIONS_FAILED);
    hb_free(pending);
    if (action != GENERATIONS_TOO_FEW) {
        line = hb_xasprintf("host %s: %s", host->name, why);
        hb_text_sanitize(line);
        for (int i = 0; i < count; i++)
            lose_rank(job, ranks[i], line);
        if (count > 0)
            job_say(job, "%s; its %d rank%s %s gone", line, count,
                    count > 1 ? "s" : "", count > 1 ? "are" : "is");
        else
            job_say(job, "%s", line);
        if (member >= 0) {
            keep_why(e, line, JOB_EXIT_LAUNCHER, when_ns);
            send_abort(job, member, line);
        }
        hb_free(line);
        job_grow_strike(host);
    }
    hb_free(ranks);
    elastic_act(job, action);
    return action != GENERATIONS_TOO_FEW;
}

/* ---- Life ---- */

void job_elastic_end(struct job *job)
{
    uv_timer_stop(&job->settle_timer);
    uv_timer_stop(&job->elastic_timer);
    uv_timer_stop(&job->restart_timer);
    uv_timer_stop(&job->leave_timer);
    uv_timer_stop(&job->apart_timer);
    job_grow_end(job);
}

void job_elastic_resumed(struct job *job)
{
    if (!job_elastic_goes_on(job))
        return;
    uv_timer_stop(&job->settle_timer);
    uv_timer_stop(&job->elastic_timer);
    elastic_act(job, GENERATIONS_NOTHING);
}
