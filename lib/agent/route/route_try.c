/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REACH: calls all addresses of all targets at once and reports which answer.
 *
 * A filtered address is silent, so waiting for all would take the whole
 * time-out.  Once an address of a host has answered, its better ones get
 * ROUTE_BETTER_MS and four round trips more, and the others ROUTE_OTHERS_MS:
 * hosts with the same reachable addresses should also report the same.
 */
#include "lib/agent/route/route_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

struct attempt {
    struct route_trial *trial;
    struct route_dial *dial; /* NULL: failed */
    int target, address;     /* indexes into the probe's arrays */
    int rtt_us;              /* -1: no answer */
};

struct target {
    int first, count; /* its attempts, best address first */
    int host;
    uint64_t answer_ns; /* time of the first answer; 0: none yet */
    uint64_t trips_ns;  /* four times its round trip */
};

struct route_trial {
    struct route *route;
    uv_timer_t timer;
    uint64_t deadline_ns;
    struct target *targets;
    int target_count;
    struct attempt *attempts;
    int attempt_count;
};

/* ---- The end ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    hb_free(handle->data);
}

static void trial_close(struct route_trial *t)
{
    for (int i = 0; i < t->attempt_count; i++)
        route_dial_close(t->attempts[i].dial);
    hb_free(t->attempts);
    hb_free(t->targets);
    t->route->trial = NULL;
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

void route_try_close(struct route *r)
{
    trial_close(r->trial);
}

static void finish(struct route_trial *t)
{
    struct route *r = t->route;
    struct control_route_result m = {0};

    m.answers = hb_xcalloc((size_t)t->attempt_count + 1, sizeof(*m.answers));
    for (int i = 0; i < t->attempt_count; i++) {
        const struct attempt *a = &t->attempts[i];

        if (a->rtt_us >= 0)
            m.answers[m.count++] = (struct control_route_answer){
                .host = t->targets[a->target].host,
                .address = a->address,
                .rtt_us = a->rtt_us,
            };
    }
    trial_close(t);
    r->on_result(r->arg, &m);
    control_route_result_fini(&m);
}

/* ---- Progress ---- */

/* Returns when to stop waiting for this target; 0: now. */
static uint64_t settles_at(const struct route_trial *t, const struct target *g)
{
    uint64_t wait_ms = ROUTE_BETTER_MS;

    for (int i = 0; i < g->count; i++) {
        const struct attempt *a = &t->attempts[g->first + i];

        if (a->rtt_us >= 0)
            wait_ms = ROUTE_OTHERS_MS;
        else if (a->dial && g->answer_ns)
            return g->answer_ns + g->trips_ns + wait_ms * 1000000;
        else if (a->dial)
            return t->deadline_ns;
    }
    return 0;
}

static void on_timer(uv_timer_t *timer);

static void check(struct route_trial *t)
{
    uint64_t now = hb_now_ns(), until = 0;

    for (int i = 0; i < t->target_count; i++) {
        uint64_t at = settles_at(t, &t->targets[i]);

        if (at > until)
            until = at;
    }
    if (until > t->deadline_ns)
        until = t->deadline_ns;
    if (until <= now) {
        finish(t);
        return;
    }
    uv_update_time(t->route->loop);
    uv_timer_start(&t->timer, on_timer, (until - now) / 1000000 + 1, 0);
}

static void on_timer(uv_timer_t *timer)
{
    check(timer->data);
}

static void on_answer(struct route_dial *d, int rc)
{
    struct attempt *a = d->arg;
    struct route_trial *t = a->trial;
    struct target *g = &t->targets[a->target];

    if (rc == 0) {
        a->rtt_us = d->rtt_us;
        if (g->answer_ns == 0) {
            g->answer_ns = hb_now_ns();
            g->trips_ns = 4000 * (uint64_t)d->rtt_us;
        }
    }
    route_dial_close(d);
    a->dial = NULL;
    check(t);
}

/* ---- The start ---- */

static void start_target(struct route_trial *t, int target,
                         const struct control_route_target *from)
{
    const struct route_call call = {ROUTE_MODE_REACH, t->route->host,
                                    from->host};

    t->targets[target] = (struct target){
        .first = t->attempt_count,
        .count = from->count,
        .host = from->host,
    };
    for (int i = 0; i < from->count; i++) {
        struct attempt *a = &t->attempts[t->attempt_count++];

        *a = (struct attempt){
            .trial = t, .target = target, .address = i, .rtt_us = -1};
        a->dial = route_dial_open(t->route, &call, &from->addresses[i],
                                  from->port, on_answer, a);
    }
}

void route_try_start(struct route *r, const struct control_route_probe *m)
{
    struct route_trial *t = hb_xcalloc(1, sizeof(*t));
    size_t attempts = 0;

    t->route = r;
    t->deadline_ns = hb_now_ns() + (uint64_t)m->timeout_ms * 1000000;
    for (int i = 0; i < m->count; i++)
        attempts += (size_t)m->targets[i].count;
    t->attempts = hb_xcalloc(attempts + 1, sizeof(*t->attempts));
    t->targets = hb_xcalloc((size_t)m->count + 1, sizeof(*t->targets));
    t->target_count = m->count;
    for (int i = 0; i < m->count; i++)
        start_target(t, i, &m->targets[i]);
    uv_timer_init(r->loop, &t->timer);
    t->timer.data = t;
    r->trial = t;
    /* All calls may have failed already; the result must not be reported from
     * inside this call. */
    uv_timer_start(&t->timer, on_timer, 0, 0);
}
