/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host's way to its agent: states, turns, pauses, closing, and the plain
 * transport that it becomes; see remote_impl.h.
 */
#include "lib/remote/remote_impl.h"

#include "lib/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    PAUSE_FIRST_MS = 100,
    PAUSE_MAX_MS = 3000,
    /* The job's own time-out explains more, as it knows all hosts: this one
     * comes later. */
    DEADLINE_AFTER_MS = 1000,
};

static struct remote_host *host_of(struct transport *t)
{
    return (struct remote_host *)t;
}

/* ---- States ---- */

int remote_step(enum remote_state from, enum remote_event event,
                enum remote_state *to)
{
    /* 0 (REMOTE_NEW, to which nothing leads): the event cannot come. */
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

int remote_host_step(struct remote_host *h, enum remote_event event,
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
    if (from < REMOTE_RUNNING && h->state >= REMOTE_RUNNING)
        remote_ready(h->remote);
    hb_log(h->remote->log, HB_LOG_DEBUG, "host %s: %s -> %s after %d ms: %s",
           h->name, names[from], names[h->state],
           (int)(now - h->state_since_ms), cause);
    h->state_since_ms = now;
    return 1;
}

void remote_host_stage(struct remote_host *h, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(h->stage, sizeof(h->stage), fmt, ap);
    va_end(ap);
    if (h->config.events.on_stage && h->state < REMOTE_RUNNING)
        h->config.events.on_stage(h->config.arg, h->stage);
}

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
        remote_host_resume(h);
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

/* Ends all that is in progress.  The caller pumps the queue afterwards, because
 * it may be closing all hosts one by one. */
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

    if (!remote_host_step(h, REMOTE_CLOSED, "closed by the caller"))
        return;
    host_stop(h);
    uv_close((uv_handle_t *)&h->timer, on_handle_closed);
    uv_close((uv_handle_t *)&h->deadline, on_handle_closed);
}

/* Closes without waiting for the other end, which may be unreachable. */
static void host_cancel(struct transport *t)
{
    struct remote_host *h = host_of(t);

    host_close(t);
    if (h->raw)
        transport_cancel(h->raw);
    if (h->proxy)
        child_close(h->proxy, 0);
}

void remote_host_fail(struct remote_host *h, const struct hb_error *err)
{
    if (!remote_host_step(h, REMOTE_FAILED, err ? err->text : "orderly end"))
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

/* Returns a pause that grows with the tries, at random between half and one and
 * a half of its mean, so that hosts that were dropped together do not return
 * together. */
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
        remote_host_stage(h, "waiting for its turn");
}

void remote_host_resume(struct remote_host *h)
{
    h->paused = 1;
    if (h->state != REMOTE_PAUSING || h->raw || h->proxy ||
        !remote_host_step(h, REMOTE_RESUMED, "pause is over"))
        return;
    host_queue(h);
}

static void on_pause_over(uv_timer_t *timer)
{
    remote_host_resume(timer->data);
}

void remote_host_retry(struct remote_host *h, const struct hb_error *err)
{
    int ms;

    if (!remote_host_step(h, REMOTE_DROPPED, err->text))
        return;
    h->last = *err;
    h->paused = 0;
    ms = pause_ms(++h->tries);
    remote_close_raw(h);
    remote_leave(h);
    remote_pump(h->remote);
    uv_timer_start(&h->timer, on_pause_over, (uint64_t)ms, 0);
    if (h->config.events.on_setback)
        h->config.events.on_setback(h->config.arg, err);
    remote_host_stage(h, "%.80s; trying again", err->text);
}

static void on_deadline(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;
    struct hb_error err = HB_ERROR_INIT;

    if (h->tries == 0) {
        hb_error_set(&err, HVD_ETIMEOUT, "no agent in time (%s)", h->stage);
    } else {
        hb_error_set(&err, HVD_ETIMEOUT, "%s (tried %d time%s%s%s)",
                     h->last.text, h->tries, h->tries == 1 ? "" : "s",
                     h->state == REMOTE_STARTING ? "; now " : "",
                     h->state == REMOTE_STARTING ? h->stage : "");
        hb_error_stage(&err, h->last.stage);
    }
    remote_host_fail(h, &err);
}

/* ---- Turns ---- */

static void on_failed_turn(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;
    struct hb_error err = h->last;

    remote_host_fail(h, &err);
}

/* Begins the host's turn in the queue.  A failure is reported later, because
 * the queue is being walked.  The caller may close the transport when it hears
 * of the stage. */
void remote_host_turn(struct remote_host *h)
{
    struct hb_error err = HB_ERROR_INIT;
    int rc = 0;

    remote_host_step(h, REMOTE_TURN, "its turn");
    remote_host_stage(h, "%s",
                      h->state == REMOTE_CONFIG
                          ? "reading the ssh configuration"
                          : "connecting");
    if (h->state == REMOTE_CONFIG)
        rc = remote_ask(h, &err);
    else if (h->state == REMOTE_STARTING)
        rc = remote_start(h, &err);
    if (rc > 0)
        remote_host_configured(h);
    if (rc >= 0)
        return;
    h->last = err;
    uv_timer_start(&h->timer, on_failed_turn, 0, 0);
}

void remote_host_configured(struct remote_host *h)
{
    if (remote_host_step(h, REMOTE_CONFIGURED, "configured"))
        host_queue(h);
}

static void on_begin(uv_timer_t *timer)
{
    struct remote_host *h = timer->data;

    if (!h->launcher->needs_config) {
        remote_host_configured(h);
        return;
    }
    remote_host_step(h, REMOTE_NEEDS_CONFIG, "opened");
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
    .cancel = host_cancel,
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
        return hb_error_set(err, HVD_ESYSTEM, "no random bytes");
    }
    h->base.ops = &host_ops;
    h->remote = r;
    r->unready++;
    h->config = *config;
    h->name = hb_xstrdup(entry->name);
    h->user = entry->user ? hb_xstrdup(entry->user) : NULL;
    h->port = entry->port;
    h->launcher = &launcher_table[r->options.launcher];
    h->state_since_ms = now;
    bootstrap_init(&h->boot, NULL, h->marker);
    init_timer(h, &h->timer);
    init_timer(h, &h->deadline);
    uv_timer_start(&h->timer, on_begin, 0, 0);
    uv_timer_start(&h->deadline, on_deadline, end > now ? end - now : 0, 0);
    *out = &h->base;
    return 0;
}
