/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream to a host's shell: the bootstrap on it, sending the agent, and
 * what follows when it ends; see remote_impl.h.
 */
#include "lib/remote/remote_impl.h"

#include "lib/base/alloc.h"

enum {
    PUSH_CHUNK_BYTES = 64 << 10, /* most that is queued per host */
    PUSH_TURN_BYTES = 1 << 20,   /* sent per turn of the loop */
    PROXY_WAIT_MS = 500,         /* for the proxy to report why it ended */
};

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
    remote_host_step(h, REMOTE_RAN, "the agent has spoken");
    h->config.events.on_read(h->config.arg, hb_buf_data(&in), hb_buf_len(&in));
    hb_buf_free(&in);
}

/* ---- Sending the agent ---- */

static void on_push_turn(uv_timer_t *timer);

/* Sends the next piece only when the last has left this process: the link sets
 * the pace, and little is buffered here. */
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
            return; /* on_end reports it */
    }
    percent = (int)(b->sent * 100 / b->image->len);
    if (percent != h->percent) {
        h->percent = percent;
        remote_host_stage(h, "sending the agent, %d %%", percent);
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

/* Handles a change of the bootstrap's state. */
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
            remote_host_stage(h, "starting the agent");
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

    if (h->state == REMOTE_CLOSING && h->launcher->ends_loudly)
        return;
    if (h->boot.state == BOOTSTRAP_RUNNING)
        h->config.events.on_stderr(h->config.arg, bytes, len);
    else if (bootstrap_stderr(&h->boot, bytes, len, &err) < 0)
        remote_host_fail(h, &err);
}

static int may_retry(const struct hb_error *err)
{
    return err->status == -HVD_ETIMEOUT || err->status == -HVD_ECLOSED;
}

/* Switches to another launcher if err says that this one cannot serve the host:
 * 1, else 0. */
static int falls_back(struct remote_host *h, const struct hb_error *err)
{
    if (err->status != -HVD_EUNSUPPORTED || !h->launcher->instead)
        return 0;
    hb_log(h->remote->log, HB_LOG_INFO, "host %s: using the ssh program: %s",
           h->name, err->text);
    if (!remote_host_step(h, REMOTE_DROPPED, err->text))
        return 1;
    remote_close_raw(h);
    remote_leave(h);
    h->launcher = h->launcher->instead;
    remote_host_resume(h);
    return 1;
}

/* Tries again or fails, because the stream ended before the agent ran. */
static void host_dropped(struct remote_host *h, const struct hb_error *ended)
{
    struct hb_error err = HB_ERROR_INIT;

    remote_explain(h, ended, &err);
    hb_error_clear(&h->ended);
    if (falls_back(h, &err))
        return;
    if (may_retry(&err))
        remote_host_retry(h, &err);
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

/* Handles the stream's end.  If there is a proxy, waits a moment for it to
 * report why it ended. */
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
        remote_host_stage(h, "%s", what);
}

int remote_start(struct remote_host *h, struct hb_error *err)
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
    rc = h->launcher->open(h, &events, err);
    if (rc < 0) /* on_failed_turn ends what has been started */
        return rc;
    if (bootstrap_script(&h->boot, agent, &script) < 0)
        hb_die_oom();
    transport_write(h->raw, hb_buf_data(&script), hb_buf_len(&script));
    hb_buf_free(&script);
    return 0;
}
