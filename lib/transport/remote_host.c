/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host's way to its agent: states, retries, bootstrap, and the plain
 * transport that it is afterwards; see remote_impl.h.
 */
#include "lib/transport/remote_impl.h"

#include "lib/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    PAUSE_FIRST_MS = 100,
    PAUSE_MAX_MS = 3000,
    PUSH_CHUNK_BYTES = 64 << 10, /* queued at most, per host */
    PUSH_TURN_BYTES = 1 << 20,   /* sent per turn of the loop */
    /* Who waits for agents tells a time-out better, knowing all hosts. */
    DEADLINE_AFTER_MS = 1000,
    PROXY_WAIT_MS = 500,
};

static struct remote_host *host_of(struct transport *t)
{
    return (struct remote_host *)t;
}

/* ---- States ---- */

int remote_step(enum remote_state from, enum remote_event event,
                enum remote_state *to)
{
    /* 0, which is NEW and nothing leads to, where an event cannot come. */
    static const unsigned char next[REMOTE_STATES][REMOTE_EVENTS] = {
        [REMOTE_NEW] = {[REMOTE_NEEDS_CONFIG] = REMOTE_QUEUED_CONFIG,
                        [REMOTE_CONFIGURED] = REMOTE_QUEUED,
                        [REMOTE_FAILED] = REMOTE_ENDED,
                        [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_QUEUED_CONFIG] = {[REMOTE_TURN] = REMOTE_CONFIG,
                                  [REMOTE_FAILED] = REMOTE_ENDED,
                                  [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_CONFIG] = {[REMOTE_CONFIGURED] = REMOTE_QUEUED,
                           [REMOTE_FAILED] = REMOTE_ENDED,
                           [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_QUEUED] = {[REMOTE_TURN] = REMOTE_STARTING,
                           [REMOTE_FAILED] = REMOTE_ENDED,
                           [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_STARTING] = {[REMOTE_DROPPED] = REMOTE_PAUSING,
                             [REMOTE_RAN] = REMOTE_RUNNING,
                             [REMOTE_FAILED] = REMOTE_ENDED,
                             [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_PAUSING] = {[REMOTE_RESUMED] = REMOTE_QUEUED,
                            [REMOTE_FAILED] = REMOTE_ENDED,
                            [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_RUNNING] =
            {[REMOTE_FAILED] = REMOTE_ENDED, [REMOTE_CLOSED] = REMOTE_CLOSING},
        [REMOTE_ENDED] = {[REMOTE_CLOSED] = REMOTE_CLOSING},
    };
    unsigned char state = next[from][event];

    if (!state)
        return -HVD_EINVAL;
    *to = (enum remote_state)state;
    return 0;
}

/* 0 when the event means nothing now. */
static int step(struct remote_host *h, enum remote_event event,
                const char *cause)
{
    static const char *const names[REMOTE_STATES] = {
        "new",           "queued for configuration",
        "asking ssh -G", "queued",
        "starting",      "pausing",
        "running",       "ended",
        "closing"};
    enum remote_state from = h->state;
    uint64_t now = uv_now(h->remote->loop);

    if (remote_step(from, event, &h->state) < 0)
        return 0;
    hb_log(h->remote->log, HB_LOG_DEBUG, "host %s: %s -> %s after %d ms: %s",
           h->name, names[from], names[h->state],
           (int)(now - h->state_since_ms), cause);
    h->state_since_ms = now;
    return 1;
}

static void stage(struct remote_host *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void stage(struct remote_host *h, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(h->stage, sizeof(h->stage), fmt, ap);
    va_end(ap);
    if (h->config.events.on_stage && h->state < REMOTE_RUNNING)
        h->config.events.on_stage(h->config.arg, h->stage);
}

static void host_resume(struct remote_host *h);

/* ---- Closing ---- */

static void host_free(struct remote_host *h)
{
    hb_buf_free(&h->answer);
    hb_buf_free(&h->early);
    bootstrap_fini(&h->boot);
    ssh_config_fini(&h->ssh);
    hb_free(h->name);
    hb_free(h->user);
    hb_free(h);
}

void remote_host_check_closed(struct remote_host *h)
{
    struct transport_config config = h->config;

    if (h->paused)
        host_resume(h);
    if (h->state != REMOTE_CLOSING || h->raw || h->ask || h->proxy ||
        h->handles > 0)
        return;
    host_free(h);
    config.events.on_close(config.arg);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct remote_host *h = handle->data;

    struct remote *r = h->remote;

    h->handles--;
    remote_pump(r);
    remote_host_check_closed(h);
}

/* Whatever is under way ends.  Who calls this pumps the queue later: the
 * caller may be closing every host, one after the other. */
static void host_stop(struct remote_host *h)
{
    uv_timer_stop(&h->timer);
    uv_timer_stop(&h->deadline);
    remote_dequeue(h);
    remote_close_ask(h);
    remote_close_raw(h);
    remote_leave(h);
}

static void host_close(struct transport *t)
{
    struct remote_host *h = host_of(t);

    if (!step(h, REMOTE_CLOSED, "closed by the caller"))
        return;
    host_stop(h);
    uv_close((uv_handle_t *)&h->timer, on_handle_closed);
    uv_close((uv_handle_t *)&h->deadline, on_handle_closed);
}

void remote_host_fail(struct remote_host *h, const struct hb_error *err)
{
    if (!step(h, REMOTE_FAILED, err ? err->text : "orderly end"))
        return;
    host_stop(h);
    h->config.events.on_end(h->config.arg, err);
    remote_pump(h->remote);
}

/* ---- Trying again ---- */

static int random_below(int n)
{
    unsigned v = 0;

    if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
        v = (unsigned)uv_hrtime();
    return (int)(v % (unsigned)n);
}

/* Grows, and is spread over half to one and a half of itself, so that hosts
 * that were dropped together do not come back together. */
static int pause_ms(int tries)
{
    int ms = tries < 6 ? PAUSE_FIRST_MS << (tries - 1) : PAUSE_MAX_MS;

    if (ms > PAUSE_MAX_MS)
        ms = PAUSE_MAX_MS;
    return ms / 2 + random_below(ms);
}

static void host_queue(struct remote_host *h)
{
    remote_enqueue(h);
    remote_pump(h->remote);
    if (h->queued && h->state == REMOTE_QUEUED)
        stage(h, "waiting for its turn");
}

static void host_resume(struct remote_host *h)
{
    h->paused = 1;
    if (h->state != REMOTE_PAUSING || h->raw || h->proxy ||
        !step(h, REMOTE_RESUMED, "pause is over"))
        return;
    host_queue(h);
}

static void on_pause_over(uv_timer_t *timer)
{
    host_resume(timer->data);
}

static void host_retry(struct remote_host *h, const struct hb_error *err)
{
    int ms;

    if (!step(h, REMOTE_DROPPED, err->text))
        return;
    h->last = *err;
    h->paused = 0;
    ms = pause_ms(++h->tries);
    remote_close_raw(h);
    remote_leave(h);
    remote_pump(h->remote);
    uv_timer_start(&h->timer, on_pause_over, (uint64_t)ms, 0);
    stage(h, "%.80s; trying again", err->text);
}

static int may_retry(const struct hb_error *err)
{
    return err->status == -HVD_ETIMEOUT || err->status == -HVD_ECLOSED;
}

static void on_deadline(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;
    struct hb_error err = HB_ERROR_INIT;

    if (h->state == REMOTE_PAUSING || (h->last.status && !h->raw))
        hb_error_set(&err, HVD_ETIMEOUT, "%s (tried %d times)", h->last.text,
                     h->tries);
    else
        hb_error_set(&err, HVD_ETIMEOUT, "no agent in time (%s)", h->stage);
    remote_host_fail(h, &err);
}

/* ---- The agent runs ---- */

static void host_ran(struct remote_host *h)
{
    struct hb_buf in = h->boot.in;
    static const struct hb_buf empty = HB_BUF_INIT;

    h->boot.in = empty;
    hb_buf_free(&h->boot.noise);
    hb_buf_free(&h->boot.errs);
    uv_timer_stop(&h->timer);
    uv_timer_stop(&h->deadline);
    if (hb_buf_len(&h->early) > 0)
        transport_write(h->raw, hb_buf_data(&h->early), hb_buf_len(&h->early));
    hb_buf_free(&h->early);
    step(h, REMOTE_RAN, "the agent has spoken");
    h->config.events.on_read(h->config.arg, hb_buf_data(&in), hb_buf_len(&in));
    hb_buf_free(&in);
}

/* ---- Sending the agent ---- */

static void on_push_turn(uv_timer_t *timer);

/* The next piece is sent when the last has left this process: how fast the
 * link is decides, and little is held here. */
static void host_push(struct remote_host *h)
{
    const struct bootstrap *b = &h->boot;
    const char *bytes;
    size_t len, turn = 0;
    int percent;

    while (turn < PUSH_TURN_BYTES && transport_write_queued(h->raw) == 0 &&
           (len = bootstrap_next(&h->boot, PUSH_CHUNK_BYTES, &bytes)) > 0) {
        turn += len;
        if (transport_write(h->raw, bytes, len) < 0)
            return; /* on_end tells */
    }
    percent = (int)(b->sent * 100 / b->image->len);
    if (percent != h->percent) {
        h->percent = percent;
        stage(h, "sending the agent, %d %%", percent);
    }
    if (h->state == REMOTE_STARTING && b->sent < b->image->len &&
        transport_write_queued(h->raw) == 0)
        uv_timer_start(&h->timer, on_push_turn, 0, 0);
}

static void on_push_turn(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;

    if (h->state == REMOTE_STARTING && h->boot.state == BOOTSTRAP_SENDING)
        host_push(h);
}

/* ---- The stream ---- */

static void raw_on_drain(void *arg)
{
    struct remote_host *h = arg;

    if (h->state == REMOTE_STARTING && h->boot.state == BOOTSTRAP_SENDING)
        host_push(h);
    else if (h->state == REMOTE_RUNNING && h->config.events.on_drain)
        h->config.events.on_drain(h->config.arg);
}

/* The bootstrap has gone on. */
static void host_started(struct remote_host *h, enum bootstrap_state before)
{
    if (before == BOOTSTRAP_ASKING && h->boot.state != before) {
        remote_leave(h);
        remote_pump(h->remote);
    }
    if (h->boot.state == BOOTSTRAP_RUNNING) {
        host_ran(h);
    } else if (h->boot.state == BOOTSTRAP_STARTING) {
        if (before != h->boot.state)
            stage(h, "starting the agent");
    } else if (h->boot.state == BOOTSTRAP_SENDING && h->boot.sent == 0) {
        hb_log(h->remote->log, HB_LOG_DEBUG, "host %s: sending the agent",
               h->name);
        h->percent = -1;
        host_push(h);
    }
}

static void raw_on_read(void *arg, const char *bytes, size_t len)
{
    struct remote_host *h = arg;
    struct hb_error err = HB_ERROR_INIT;
    enum bootstrap_state before = h->boot.state;

    if (h->state == REMOTE_RUNNING) {
        h->config.events.on_read(h->config.arg, bytes, len);
    } else if (h->state == REMOTE_STARTING) {
        if (bootstrap_read(&h->boot, bytes, len, &err) < 0)
            remote_host_fail(h, &err);
        else
            host_started(h, before);
    }
}

static void raw_on_stderr(void *arg, const char *bytes, size_t len)
{
    struct remote_host *h = arg;
    struct hb_error err = HB_ERROR_INIT;

    if (h->boot.state == BOOTSTRAP_RUNNING)
        h->config.events.on_stderr(h->config.arg, bytes, len);
    else if (bootstrap_stderr(&h->boot, bytes, len, &err) < 0)
        remote_host_fail(h, &err);
}

/* Another launcher serves what libssh2 cannot. */
static int host_falls_back(struct remote_host *h, const struct hb_error *err)
{
    if (err->status != -HVD_EUNSUPPORTED || h->launcher != REMOTE_SSH2 ||
        h->remote->options.launcher != REMOTE_AUTO)
        return 0;
    hb_log(h->remote->log, HB_LOG_INFO, "host %s: using the ssh program: %s",
           h->name, err->text);
    if (!step(h, REMOTE_DROPPED, err->text))
        return 1;
    remote_close_raw(h);
    remote_leave(h);
    h->launcher = REMOTE_OPENSSH;
    host_resume(h);
    return 1;
}

/* The stream ended before the agent ran. */
static void host_dropped(struct remote_host *h, const struct hb_error *ended)
{
    struct hb_error err = HB_ERROR_INIT;

    remote_explain(h, ended, &err);
    hb_error_clear(&h->ended);
    if (host_falls_back(h, &err))
        return;
    if (may_retry(&err))
        host_retry(h, &err);
    else
        remote_host_fail(h, &err);
}

static void on_proxy_wait(uv_timer_t *timer)
{
    remote_host_proxy_exited(timer->data);
}

void remote_host_proxy_exited(struct remote_host *h)
{
    struct hb_error ended = h->ended;

    if (h->state == REMOTE_STARTING && ended.status)
        host_dropped(h, &ended);
}

/* A proxy is given time to say why it has ended. */
static void raw_on_end(void *arg, const struct hb_error *ended)
{
    struct remote_host *h = arg;
    struct hb_error err = HB_ERROR_INIT;

    if (h->state == REMOTE_RUNNING) {
        remote_explain_lost(h, ended, &err);
        remote_host_fail(h, err.status ? &err : NULL);
    } else if (h->state == REMOTE_STARTING && ended && may_retry(ended) &&
               h->proxy && !h->proxy_exited) {
        h->ended = *ended;
        transport_close(h->raw);
        uv_timer_start(&h->timer, on_proxy_wait, PROXY_WAIT_MS, 0);
    } else if (h->state == REMOTE_STARTING) {
        host_dropped(h, ended);
    }
}

static void raw_on_close(void *arg)
{
    struct remote_host *h = arg;

    h->raw = NULL;
    if (h->proxy)
        child_close(h->proxy, PROXY_WAIT_MS);
    remote_host_check_closed(h);
}

static void raw_on_stage(void *arg, const char *what)
{
    struct remote_host *h = arg;

    if (h->state == REMOTE_STARTING && h->boot.state == BOOTSTRAP_ASKING)
        stage(h, "%s", what);
}

static int host_start(struct remote_host *h, struct hb_error *err)
{
    static const struct transport_events events = {
        .on_read = raw_on_read,
        .on_stderr = raw_on_stderr,
        .on_end = raw_on_end,
        .on_close = raw_on_close,
        .on_stage = raw_on_stage,
        .on_drain = raw_on_drain,
    };
    const char *agent = h->remote->options.remote_agent;
    const struct agent_image *image = NULL;
    struct hb_buf script = HB_BUF_INIT;
    int rc;

    if (!agent) {
        image = remote_image(h->remote, err);
        if (!image)
            return err->status;
    }
    bootstrap_fini(&h->boot);
    bootstrap_init(&h->boot, image, h->marker);
    h->paused = 0;
    rc = remote_open_raw(h, &events, err);
    if (rc < 0) /* on_failed_turn ends what was begun */
        return rc;
    if (bootstrap_script(&h->boot, agent, &script) < 0)
        hb_die_oom();
    transport_write(h->raw, hb_buf_data(&script), hb_buf_len(&script));
    hb_buf_free(&script);
    return 0;
}

/* ---- Turns ---- */

static void on_failed_turn(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;
    struct hb_error err = h->last;

    remote_host_fail(h, &err);
}

/* What fails in a turn is told later: the queue is being walked.  A caller
 * may close when it hears of the stage. */
void remote_host_turn(struct remote_host *h)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = 0;

    step(h, REMOTE_TURN, "its turn");
    stage(h, "%s",
          h->state == REMOTE_CONFIG ? "reading the ssh configuration"
                                    : "connecting");
    if (h->state == REMOTE_CONFIG)
        rc = remote_ask(h, &err);
    else if (h->state == REMOTE_STARTING)
        rc = host_start(h, &err);
    if (rc > 0)
        remote_host_configured(h);
    if (rc >= 0)
        return;
    h->last = err;
    uv_timer_start(&h->timer, on_failed_turn, 0, 0);
}

void remote_host_configured(struct remote_host *h)
{
    if (step(h, REMOTE_CONFIGURED, "configured"))
        host_queue(h);
}

static void on_begin(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;

    if (h->launcher == REMOTE_RSH) {
        remote_host_configured(h);
        return;
    }
    step(h, REMOTE_NEEDS_CONFIG, "opened");
    host_queue(h);
}

/* ---- The transport ---- */

static int host_write(struct transport *t, const void *bytes, size_t len)
{
    struct remote_host *h = host_of(t);

    if (h->state == REMOTE_RUNNING)
        return transport_write(h->raw, bytes, len);
    if (h->state >= REMOTE_ENDED)
        return -HVD_ECLOSED;
    return hb_buf_append(&h->early, bytes, len);
}

static size_t host_write_queued(const struct transport *t)
{
    const struct remote_host *h = (const struct remote_host *)t;

    return h->state == REMOTE_RUNNING ? transport_write_queued(h->raw)
                                      : hb_buf_len(&h->early);
}

static const struct transport_ops host_ops = {
    .write = host_write,
    .write_queued = host_write_queued,
    .close = host_close,
};

static void init_timer(struct remote_host *h, uv_timer_t *timer)
{
    uv_timer_init(h->remote->loop, timer);
    timer->data = h;
    h->handles++;
}

static int fill_marker(char *out)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[(BOOTSTRAP_MARKER_BYTES - 1) / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return -1;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        *out++ = digits[bytes[i] >> 4];
        *out++ = digits[bytes[i] & 15];
    }
    *out = '\0';
    return 0;
}

int transport_open_remote(struct remote *r, const struct host_entry *entry,
                          const struct transport_config *config,
                          struct transport **out, struct hb_error *err)
{
    struct remote_host *h = hb_xcalloc(1, sizeof(*h));
    uint64_t now = uv_now(r->loop);
    uint64_t end = r->deadline_ms + DEADLINE_AFTER_MS;

    if (fill_marker(h->marker) < 0) {
        hb_free(h);
        return hb_error_set(err, HVD_ESYSTEM, "host %s: no random bytes",
                            entry->name);
    }
    h->base.ops = &host_ops;
    h->remote = r;
    h->config = *config;
    h->name = hb_xstrdup(entry->name);
    h->user = entry->user ? hb_xstrdup(entry->user) : NULL;
    h->port = entry->port;
    h->launcher = remote_launcher(r);
    h->state_since_ms = now;
    bootstrap_init(&h->boot, NULL, h->marker);
    init_timer(h, &h->timer);
    init_timer(h, &h->deadline);
    uv_timer_start(&h->timer, on_begin, 0, 0);
    uv_timer_start(&h->deadline, on_deadline, end > now ? end - now : 0, 0);
    *out = &h->base;
    return 0;
}
