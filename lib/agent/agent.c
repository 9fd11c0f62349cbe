/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's control: hvdrun's orders, the state machine, the end of the job.
 * See agent.h; launch.c starts ranks, death.c sees them end.
 */
#include "lib/agent/agent_impl.h"

#include "lib/agent/rank/tree.h"
#include "lib/agent/route/interfaces.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static void on_timer(uv_timer_t *timer);

/* ---- What the states do ---- */

static void start_timer(struct agent *a, uint64_t ms)
{
    uv_timer_start(&a->timer, on_timer, ms, 0);
}

/* Sends SIGTERM to the process groups of live ranks, and to each descendant
 * outside them, found by walking.  SIGCONT lets those that are stopped act on
 * it. */
static void do_term(struct agent *a)
{
    pid_t *groups = hb_xcalloc((size_t)a->job.rank_count + 1, sizeof(*groups));
    struct tree tree = TREE_INIT;
    size_t count = 0;

    for (int i = 0; i < a->job.rank_count; i++)
        if (a->ranks[i].pidfd >= 0)
            groups[count++] = a->ranks[i].pid;
    agent_signal_ranks(a, SIGTERM);
    if (a->wireup.helper) /* its server serves the ranks until they end */
        groups[count++] = a->wireup.helper;
    if (tree_read(getpid(), &tree) == 0) {
        tree_signal(&tree, SIGTERM, groups, count);
        tree_signal(&tree, SIGCONT, NULL, 0);
    } else {
        agent_signal_ranks(a, SIGCONT);
    }
    tree_free(&tree);
    hb_free(groups);
    start_timer(a, (uint64_t)a->job.spec.grace_ms);
    agent_check_empty(a); /* the last rank may have ended long ago */
}

/* Names the processes that SIGKILL did not end, and stops waiting for them: the
 * report must not be delayed for ever. */
static void give_up(struct agent *a)
{
    struct tree tree = TREE_INIT;

    if (tree_read(getpid(), &tree) < 0)
        hb_log(&a->log, HB_LOG_WARNING,
               "processes that the ranks started may be left: without this "
               "namespace's /proc they cannot be found");
    else
        for (size_t i = 0; i < tree.count; i++)
            if (tree.procs[i].state != 'Z')
                hb_log(&a->log, HB_LOG_WARNING,
                       "pid %d (%s) does not die of SIGKILL (state %c)",
                       (int)tree.procs[i].pid, tree.procs[i].name,
                       tree.procs[i].state);
    tree_free(&tree);
    agent_post(a, AGENT_STUCK);
}

/* Kills the ranks and, from the second round on, all that the process tree
 * holds: mostly the ranks are all there is. */
static void do_kill(struct agent *a)
{
    uint64_t now = hb_now_ns(), limit_ms;

    agent_signal_ranks(a, SIGKILL);
    if (a->kill_wait_ms == 0) {
        a->kill_wait_ms = AGENT_KILL_FIRST_MS;
        a->kill_since_ns = now;
    } else {
        tree_kill_round();
        if (a->kill_wait_ms < AGENT_KILL_MOST_MS)
            a->kill_wait_ms *= 2;
    }
    start_timer(a, a->kill_wait_ms);
    agent_reap_orphans(a);
    agent_check_empty(a);
    limit_ms = tree_can_read() ? AGENT_KILL_GIVE_UP_MS : AGENT_KILL_BLIND_MS;
    if ((now - a->kill_since_ns) / 1000000 > limit_ms)
        give_up(a);
}

static void do_drain(struct agent *a)
{
    uv_timer_stop(&a->timer);
    if (a->gone) {
        agent_post(a, AGENT_HANGUP);
        return;
    }
    if (a->pump_open && a->failure.text)
        pump_discard(&a->pump);
    else if (a->pump_open)
        pump_finish(&a->pump);
    if (!a->pump_open || a->pump.open_outputs == 0)
        agent_post(a, AGENT_DRAINED);
}

static void do_report(struct agent *a)
{
    if (a->pump_open)
        pump_discard(&a->pump);
    if (a->job_held && !a->failure.text && !agent_trace_send(a)) {
        link_flush(&a->link);
        return;
    }
    a->reported = 1;
    agent_report_unstarted(a);
    if (a->failure.text)
        control_encode_failed(&a->link.out, &a->failure);
    else
        frame_encode(&a->link.out, CONTROL_DONE, NULL, 0);
    link_flush(&a->link);
}

static void do_exit(struct agent *a)
{
    if (a->closed)
        return;
    a->closed = 1;
    a->rc = a->gone && !a->idle;
    link_close(&a->link);
    query_close(&a->query);
    route_close(a->route);
    if (a->pump_open)
        pump_close(&a->pump);
    wireup_stop(&a->wireup);
    horovod_rdv_close(a->horovod);
    if (a->endpoint_open)
        endpoint_close(&a->endpoint);
    uv_close((uv_handle_t *)&a->death_poll, NULL);
    uv_close((uv_handle_t *)&a->signal_poll, NULL);
    uv_close((uv_handle_t *)&a->timer, NULL);
    uv_close((uv_handle_t *)&a->beat, NULL);
    uv_close((uv_handle_t *)&a->fault_timer, NULL);
    uv_close((uv_handle_t *)&a->dying_timer, NULL);
    agent_stall_close(a);
    agent_trace_close(a);
}

static void act(struct agent *a, enum agent_action action)
{
    switch (action) {
    case AGENT_NOTHING:
        break;
    case AGENT_DO_LINGER:
        start_timer(a, AGENT_LINGER_MS);
        break;
    case AGENT_DO_TERM:
        do_term(a);
        break;
    case AGENT_DO_KILL:
        do_kill(a);
        break;
    case AGENT_DO_DRAIN:
        do_drain(a);
        break;
    case AGENT_DO_REPORT:
        do_report(a);
        break;
    case AGENT_DO_EXIT:
        do_exit(a);
        break;
    }
}

/* ---- The state machine ---- */

static void step(struct agent *a, enum agent_event event)
{
    enum agent_action action;
    enum agent_state next = agent_next(a->state, event, &action);
    uint64_t now;

    if (next != a->state) {
        now = hb_now_ns();
        hb_log(&a->log, HB_LOG_DEBUG, "%s -> %s: %s, after %.3f s",
               agent_state_name(a->state), agent_state_name(next),
               agent_event_name(event), (double)(now - a->since_ns) / 1e9);
        a->state = next;
        a->since_ns = now;
    }
    act(a, action);
}

/* Queues `event` and handles all queued ones one after the other: actions post
 * events, which are never handled inside each other.  When the queue is full,
 * the new event is dropped: one of its kind is queued already. */
void agent_post(struct agent *a, enum agent_event event)
{
    if (a->event_count < AGENT_EVENTS_MAX)
        a->events[a->event_count++] = event;
    if (a->stepping)
        return;
    a->stepping = 1;
    while (a->event_count > 0) {
        event = a->events[0];
        a->event_count--;
        memmove(a->events, a->events + 1,
                (size_t)a->event_count * sizeof(a->events[0]));
        step(a, event);
    }
    a->stepping = 0;
}

void agent_check_empty(struct agent *a)
{
    if (a->live > 0 || a->state <= AGENT_PREPARING ||
        a->state >= AGENT_DRAINING ||
        (a->state == AGENT_RUNNING && a->job.spec.restart && !a->going))
        return;
    if (wireup_close(&a->wireup) == WIREUP_LATER)
        return;
    if (!tree_has_children())
        agent_post(a, AGENT_EMPTY);
    else if (a->state == AGENT_RUNNING)
        agent_post(a, a->failed ? AGENT_RANKS_BAD : AGENT_RANKS_OK);
}

static void on_timer(uv_timer_t *timer)
{
    agent_post(timer->data, AGENT_TIMEOUT);
}

/* ---- Rendezvous ---- */

void agent_ask_rendezvous(void *arg, const struct rdv_request *m)
{
    struct agent *a = arg;

    if (!a->gone)
        hb_must(rdv_encode_request(&a->link.out, CONTROL_RENDEZVOUS, m));
}

static int on_rendezvous_reply(struct agent *a, const struct frame *f,
                               struct hb_error *err)
{
    struct rdv_reply m;

    if (rdv_decode_reply(f->payload, f->len, &m) < 0)
        return hb_error_set(err, HVD_EPROTO, "malformed rendezvous reply");
    if (a->endpoint_open)
        endpoint_answer(&a->endpoint, &m);
    return 0;
}

/* ---- Orders ---- */

static int on_launch(struct agent *a, const struct frame *f,
                     struct hb_error *err)
{
    int rc;

    rc = control_decode_launch(f->payload, f->len, &a->job, err);
    if (rc < 0)
        return rc;
    a->job_held = 1;
    route_close(a->route);
    if (a->config.grace_ms)
        atomic_store(a->config.grace_ms, (uint32_t)a->job.spec.grace_ms);
    rc = agent_launch(a);
    if (rc < 0)
        agent_post(a, AGENT_LAUNCH_FAILED);
    else
        agent_post(a, rc == WIREUP_LATER ? AGENT_PREPARES : AGENT_LAUNCHED);
    return 0;
}

/* Reports at once, without waiting for timelines: a KILL with grace 0 came
 * during the report. */
static void stop_sending(struct agent *a)
{
    if (a->state != AGENT_REPORTING || a->reported)
        return;
    agent_trace_keep(a);
    do_report(a);
}

static int on_trace_taken(struct agent *a, const struct frame *f,
                          struct hb_error *err)
{
    uint32_t all;
    int rc = control_decode_u32(f->payload, f->len, &all, err);

    if (rc == 0)
        rc = agent_trace_taken(a, all, err);
    if (rc == 0 && a->state == AGENT_REPORTING && !a->reported)
        do_report(a);
    return rc;
}

static int on_signal(struct agent *a, const struct frame *f,
                     struct hb_error *err)
{
    uint32_t signo;
    int rc = control_decode_u32(f->payload, f->len, &signo, err);

    if (rc == 0 && (signo < 1 || signo >= 64))
        rc = hb_error_set(err, HVD_EPROTO, "signal %u", signo);
    if (rc == 0)
        agent_signal_ranks(a, (int)signo);
    return rc;
}

static int on_kill(struct agent *a, const struct frame *f, struct hb_error *err)
{
    uint32_t grace_ms;
    int rc = control_decode_u32(f->payload, f->len, &grace_ms, err);

    if (rc < 0)
        return rc;
    if (grace_ms == 0) {
        stop_sending(a);
        agent_post(a, AGENT_KILL_NOW);
        return 0;
    }
    if (a->state < AGENT_TERMINATING)
        a->job.spec.grace_ms = grace_ms;
    agent_post(a, AGENT_KILL);
    return 0;
}

/* Handles ABORT, STALL_BLAME and STALL_END, whose payloads are alike. */
static int on_abort(struct agent *a, const struct frame *f,
                    struct hb_error *err)
{
    char text[SEGMENT_TEXT_MAX];
    int rank, rc;

    rc = control_decode_abort(f->payload, f->len, &rank, text, sizeof(text),
                              err);
    if (rc < 0)
        return rc;
    if (!a->endpoint_open)
        return 0;
    if (f->type == CONTROL_STALL_BLAME)
        endpoint_blame(&a->endpoint, (uint32_t)rank, text);
    else
        endpoint_abort(&a->endpoint, (uint32_t)rank,
                       f->type == CONTROL_STALL_END ? HVD_ETIMEOUT : HVD_EPEER,
                       text);
    return 0;
}

static void on_answer(void *arg, const struct hb_buf *frame)
{
    struct agent *a = arg;

    if (a->gone ||
        hb_buf_append(&a->link.out, hb_buf_data(frame), hb_buf_len(frame)) < 0)
        return;
    link_flush(&a->link);
}

static int on_query(struct agent *a, const struct frame *f,
                    struct hb_error *err)
{
    return query_ask(&a->query, a->config.loop, f->payload, f->len, on_answer,
                     a, err);
}

/* When a message may come. */
enum {
    BEFORE_LAUNCH = 1u << 0,
    AFTER_LAUNCH = 1u << 1,
    WITHOUT_JOB = 1u << 2, /* ended before LAUNCH */
    ANY_TIME = BEFORE_LAUNCH | AFTER_LAUNCH | WITHOUT_JOB,
};

static unsigned time_of(const struct agent *a)
{
    if (a->job_held)
        return AFTER_LAUNCH;
    return a->state == AGENT_WAITING ? BEFORE_LAUNCH : WITHOUT_JOB;
}

static const struct order {
    unsigned when;
    int (*handle)(struct agent *a, const struct frame *f, struct hb_error *err);
} orders[] = {
    [CONTROL_LAUNCH] = {BEFORE_LAUNCH, on_launch},
    [CONTROL_STDIN] = {ANY_TIME, agent_on_stdin},
    [CONTROL_OUTPUT_ACK] = {ANY_TIME, agent_on_output_ack},
    [CONTROL_SIGNAL] = {ANY_TIME, on_signal},
    [CONTROL_KILL] = {ANY_TIME, on_kill},
    [CONTROL_ABORT] = {ANY_TIME, on_abort},
    [CONTROL_PING] = {ANY_TIME, agent_on_ping},
    [CONTROL_ROUTE_LISTEN] = {BEFORE_LAUNCH | AFTER_LAUNCH,
                              agent_on_route_listen},
    [CONTROL_ROUTE_PROBE] = {BEFORE_LAUNCH | AFTER_LAUNCH,
                             agent_on_route_probe},
    [CONTROL_RENDEZVOUS_REPLY] = {ANY_TIME, on_rendezvous_reply},
    [CONTROL_QUERY] = {BEFORE_LAUNCH, on_query},
    [CONTROL_STALL_ASK] = {AFTER_LAUNCH, agent_on_stall_ask},
    [CONTROL_STALL_END] = {ANY_TIME, on_abort},
    [CONTROL_TRACE_TAKEN] = {ANY_TIME, on_trace_taken},
    [CONTROL_STALL_BLAME] = {ANY_TIME, on_abort},
    [CONTROL_GENERATION] = {AFTER_LAUNCH, agent_on_generation},
    [CONTROL_CHANGE] = {AFTER_LAUNCH, agent_on_change},
    [CONTROL_RESTART] = {AFTER_LAUNCH, agent_on_restart},
    [CONTROL_HOSTS] = {AFTER_LAUNCH, agent_on_hosts},
    [CONTROL_REMOVED] = {AFTER_LAUNCH, agent_on_removed},
    [CONTROL_EVICT] = {AFTER_LAUNCH, agent_on_evict},
    [CONTROL_NOTICE] = {AFTER_LAUNCH, agent_on_notice},
    [CONTROL_COUNTS_ASK] = {ANY_TIME, agent_on_counts_ask},
};
enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };

static int on_frame(void *arg, const struct frame *f, struct hb_error *err)
{
    const struct order *order = &orders[f->type < ORDERS ? f->type : 0];
    struct agent *a = arg;

    a->beats_missed = 0;
    if (!order->handle)
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    if (!(order->when & time_of(a)))
        return hb_error_set(err, HVD_EPROTO, "message %d out of order",
                            f->type);
    return order->handle(a, f, err);
}

/* ---- The connection ---- */

void agent_hang_up(struct agent *a)
{
    if (a->gone)
        return;
    a->gone = 1;
    horovod_rdv_close(a->horovod);
    if (a->pump_open)
        pump_sink(&a->pump);
    agent_post(a, AGENT_HANGUP);
}

/* Handles the signals that have come to the agent, before it hangs up.  sshd
 * closes the agent's input when the guardian dies, and still passes on what the
 * agent writes: hvdrun is to learn of the death now, not when the last rank has
 * ended. */
static void on_link_eof(void *arg)
{
    agent_read_signals(arg);
}

static void on_link_end(void *arg, const struct hb_error *err)
{
    struct agent *a = arg;

    /* Log lines reach nobody any more, but stderr may. */
    if (err)
        dprintf(2, "hvd-agent: control connection: %s\n", err->text);
    a->idle = !err && !a->job_held;
    agent_hang_up(a);
}

/* Continues what waited until everything queued was written: stall messages,
 * timelines, output of the ranks.  Doing so may queue more; then this function
 * is called again when that is written. */
static void on_link_flushed(void *arg)
{
    struct agent *a = arg;

    agent_stall_flush(a);
    if (a->state == AGENT_REPORTING && a->reported)
        agent_post(a, AGENT_FLUSHED);
    else if (a->state == AGENT_REPORTING)
        agent_trace_send(a);
    else if (a->pump_open)
        pump_hold(&a->pump, 0);
}

static void send_log(void *arg, enum hb_log_level level, const char *line)
{
    struct agent *a = arg;

    if (!a->gone)
        control_encode_log(&a->link.out, (int)level, line);
}

static void say_hello(struct agent *a)
{
    char version[] = HVD_VERSION, host[256] = "";
    struct utsname u;
    cpu_set_t set;
    struct control_hello m = {.version = version, .host = host};

    uname(&u);
    gethostname(host, sizeof(host) - 1);
    m.cpu = u.machine;
    m.pid = getpid();
    m.cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    m.machine = interfaces_machine("");
    m.namespaces = interfaces_namespaces("");
    interfaces_read("", &m.interfaces);
    control_encode_hello(&a->link.out, &m);
    link_flush(&a->link);
    hb_free(m.machine);
    hb_free(m.namespaces);
    control_interfaces_fini(&m.interfaces);
}

/* ---- Start and finish ---- */

int agent_start(const struct agent_config *config, struct agent **out,
                struct hb_error *err)
{
    struct agent *a = hb_xcalloc(1, sizeof(*a));
    struct link_options link = {
        .loop = config->loop,
        .in_fd = config->in_fd,
        .out_fd = config->out_fd,
        .events = {.on_frame = on_frame,
                   .on_eof = on_link_eof,
                   .on_end = on_link_end,
                   .on_flushed = on_link_flushed},
        .arg = a,
    };
    int rc;

    a->config = *config;
    a->parent = getppid();
    a->port_fd = -1;
    a->since_ns = hb_now_ns();
    a->log = (struct hb_log){
        .program = NULL,
        .level = HB_LOG_INFO,
        .sink = send_log,
        .sink_arg = a,
    };
    uv_timer_init(config->loop, &a->timer);
    uv_timer_init(config->loop, &a->beat);
    uv_timer_init(config->loop, &a->fault_timer);
    uv_timer_init(config->loop, &a->dying_timer);
    agent_stall_init(a);
    agent_trace_init(a);
    a->timer.data = a->beat.data = a->fault_timer.data = a;
    a->dying_timer.data = a;
    rc = agent_watch_signals(a, err);
    if (rc == 0)
        rc = agent_watch_deaths(a, err);
    if (rc == 0)
        rc = link_init(&a->link, &link, err);
    if (rc < 0) {
        hb_free(a); /* the process ends */
        return rc;
    }
    say_hello(a);
    *out = a;
    return 0;
}

int agent_finish(struct agent *a)
{
    int rc = a->rc;

    link_fini(&a->link);
    query_fini(&a->query);
    route_free(a->route);
    route_free(a->old_route);
    if (a->pump_open)
        pump_free_memory(&a->pump);
    wireup_fini(&a->wireup);
    agent_launch_drop(a);
    horovod_rdv_free(a->horovod);
    if (a->endpoint_open)
        endpoint_fini(&a->endpoint);
    agent_stall_fini(a);
    agent_trace_fini(a);
    if (a->cause_open)
        cause_fini(&a->cause);
    if (a->port_fd >= 0)
        close(a->port_fd);
    close(a->death_fd);
    close(a->signal_fd);
    for (int i = 0; a->ranks && i < a->job.rank_count; i++)
        agent_forget_end(&a->ranks[i]);
    if (a->job_held)
        control_launch_fini(&a->job);
    hb_free(a->failure.text);
    hb_free(a->tmpdir);
    hb_free(a->ranks);
    hb_free(a);
    return rc;
}
