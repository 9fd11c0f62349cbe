/* SPDX-License-Identifier: Apache-2.0 */
/* Asks many hosts at once; see survey.h. */
#include "lib/job/survey.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/base/text.h"
#include "lib/protocol/query.h"

enum { SURVEY_EXIT_WAIT_MS = 5000 };

/* ---- Rounds ---- */

static void on_settle(uv_timer_t *timer)
{
    struct survey *s = timer->data;

    if (!s->closing)
        s->config.on_settled(s->config.arg);
}

void survey_settle(struct survey *s)
{
    if (s->closing)
        return;
    uv_timer_stop(&s->deadline);
    uv_timer_start(&s->settle_timer, on_settle, 0, 0);
}

static void no_longer_waits(struct survey *s)
{
    if (--s->waiting == 0)
        survey_settle(s);
    if (s->config.on_progress && !s->closing)
        s->config.on_progress(s->config.arg);
}

static int is_waiting(const struct survey_host *h)
{
    return h->state == SURVEY_CONNECTING || h->state == SURVEY_ASKED;
}

static void on_lost(void *arg, enum agent_loss how, const struct hb_error *why)
{
    struct survey_host *h = arg;
    struct survey *s = h->survey;
    int waited = is_waiting(h), connected = h->state != SURVEY_CONNECTING;

    (void)how;
    if (h->state == SURVEY_LOST)
        return;
    h->state = SURVEY_LOST;
    h->error = *why;
    json_decref(h->answer);
    h->answer = NULL;
    agent_link_close(&h->link);
    if (connected && s->config.on_lost && !s->closing)
        s->config.on_lost(s->config.arg, (size_t)(h - s->hosts));
    if (waited)
        no_longer_waits(s);
}

/* Sets the error of a host that has not connected, or not answered, in time. */
static void set_overdue(const struct survey_host *h, struct hb_error *err)
{
    char *last;

    if (h->state == SURVEY_ASKED) {
        hb_error_set(err, HVD_ETIMEOUT, "the agent does not answer");
        return;
    }
    last = agent_link_last(&h->link);
    hb_error_set(err, HVD_ETIMEOUT, "time is up (see --start-timeout)%s", last);
    hb_error_stage(err, h->link.setback.stage);
    hb_free(last);
}

static void on_deadline(uv_timer_t *timer)
{
    struct survey *s = timer->data;

    /* In a round without questions. */
    if (s->waiting == 0)
        survey_settle(s);
    for (size_t i = 0; i < s->config.count && !s->closing; i++) {
        struct survey_host *h = &s->hosts[i];
        struct hb_error err = HB_ERROR_INIT;

        if (!is_waiting(h))
            continue;
        set_overdue(h, &err);
        on_lost(h, AGENT_FAILED, &err);
        /* do not wait for a host that does not answer */
        agent_link_cancel(&h->link);
    }
}

/* ---- What agents say ---- */

static int on_hello(void *arg, struct hb_error *err)
{
    struct survey_host *h = arg;

    (void)err;
    h->connect_ns = hb_now_ns() - h->survey->began_ns;
    h->state = SURVEY_IDLE;
    no_longer_waits(h->survey);
    return 0;
}

static int on_answer(void *arg, const struct frame *f, struct hb_error *err)
{
    struct survey_host *h = arg;
    int rc;

    if (h->state != SURVEY_ASKED)
        return hb_error_set(err, HVD_EPROTO, "an answer to no question");
    rc = query_decode(f->payload, f->len, f->type, &h->answer, err);
    if (rc < 0)
        return rc;
    h->answered_wall_ns = hb_wall_ns();
    h->state = SURVEY_IDLE;
    no_longer_waits(h->survey);
    return 0;
}

static int on_route(void *arg, const struct frame *f, struct hb_error *err)
{
    struct survey_host *h = arg;
    struct survey *s = h->survey;

    if (!s->config.on_frame)
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    return s->config.on_frame(s->config.arg, (size_t)(h - s->hosts), f, err);
}

/* Loses a host whose agent says why it ends. */
static int on_quitting(void *arg, const struct frame *f, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;

    if (f->len == 0)
        return hb_error_set(err, HVD_EPROTO, "quitting without a reason");
    hb_error_set(&why, HVD_ECLOSED, "%.*s", (int)f->len,
                 (const char *)f->payload);
    hb_text_sanitize(why.text);
    on_lost(arg, AGENT_ENDED, &why);
    return 0;
}

static int on_failed(void *arg, const struct frame *f, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;
    struct control_failed m;
    int rc = control_decode_failed(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    hb_error_set(&why, HVD_ECLOSED, "%s", m.text);
    hb_text_sanitize(why.text);
    control_failed_fini(&m);
    on_lost(arg, AGENT_ENDED, &why);
    return 0;
}

static const struct agent_message survey_messages[AGENT_MESSAGES] = {
    [CONTROL_FAILED] = {AGENT_CONNECTING, on_failed},
    [CONTROL_QUITTING] = {AGENT_GREETED, on_quitting},
    [CONTROL_ANSWER] = {AGENT_GREETED, on_answer},
    [CONTROL_ROUTE_PORT] = {AGENT_GREETED, on_route},
    [CONTROL_ROUTE_RESULT] = {AGENT_GREETED, on_route},
};

/* ---- The connections ---- */

static void check_closed(struct survey *s)
{
    if (!s->closing || s->open_parts > 0 || s->closed_reported)
        return;
    s->closed_reported = 1;
    s->config.on_closed(s->config.arg);
}

static void on_closed(void *arg)
{
    struct survey_host *h = arg;

    h->survey->open_parts--;
    check_closed(h->survey);
}

static const struct agent_events survey_events = {
    .messages = survey_messages,
    .on_hello = on_hello,
    .on_lost = on_lost,
    .on_closed = on_closed,
};

static void host_open(struct survey *s, size_t i)
{
    const struct survey_config *c = &s->config;
    struct survey_host *h = &s->hosts[i];
    struct hb_error err = HB_ERROR_INIT;
    const struct agent_link_config config = {
        .transport = {.loop = c->loop,
                      .log = c->log,
                      .agent_path = c->agent_path,
                      .exit_wait_ms = SURVEY_EXIT_WAIT_MS},
        .is_local = c->is_local[i],
        .remote = c->remote,
        .entry = &c->entries[i],
        .events = &survey_events,
        .arg = h,
    };

    if (agent_link_open(&h->link, &config, &err) == 0)
        s->open_parts++;
    else
        on_lost(h, AGENT_FAILED, &err);
}

/* ---- The owner's calls ---- */

static void timer_open(struct survey *s, uv_timer_t *timer)
{
    uv_timer_init(s->config.loop, timer);
    timer->data = s;
    s->open_parts++;
}

struct survey *survey_open(const struct survey_config *config)
{
    struct survey *s = hb_xcalloc(1, sizeof(*s));

    s->config = *config;
    s->config.on_progress = NULL; /* never from inside this call */
    s->began_ns = hb_now_ns();
    s->hosts = hb_xcalloc(config->count + 1, sizeof(*s->hosts));
    s->waiting = config->count;
    timer_open(s, &s->deadline);
    timer_open(s, &s->settle_timer);
    uv_timer_start(&s->deadline, on_deadline,
                   (uint64_t)config->start_timeout_ms, 0);
    for (size_t i = 0; i < config->count; i++) {
        s->hosts[i].survey = s;
        s->hosts[i].name = config->entries[i].name;
    }
    for (size_t i = 0; i < config->count; i++)
        host_open(s, i);
    s->config.on_progress = config->on_progress;
    return s;
}

void survey_wait(struct survey *s, int64_t timeout_ms)
{
    uv_timer_stop(&s->settle_timer);
    uv_timer_start(&s->deadline, on_deadline, (uint64_t)timeout_ms, 0);
}

void survey_ask(struct survey *s, size_t host, const json_t *question,
                int64_t timeout_ms)
{
    struct survey_host *h = &s->hosts[host];
    struct hb_buf frame = HB_BUF_INIT;

    if (s->waiting == 0)
        survey_wait(s, timeout_ms);
    if (h->state != SURVEY_IDLE) {
        if (s->waiting == 0)
            survey_settle(s);
        return;
    }
    json_decref(h->answer);
    h->answer = NULL;
    hb_must(query_encode(&frame, CONTROL_QUERY, question));
    h->state = SURVEY_ASKED;
    s->waiting++;
    uv_timer_stop(&s->settle_timer);
    h->asked_wall_ns = hb_wall_ns();
    /* A failure is reported by on_lost. */
    (void)agent_link_send(&h->link, &frame);
    hb_buf_free(&frame);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct survey *s = handle->data;

    s->open_parts--;
    check_closed(s);
}

void survey_close(struct survey *s)
{
    if (s->closing)
        return;
    s->closing = 1;
    uv_close((uv_handle_t *)&s->deadline, on_timer_closed);
    uv_close((uv_handle_t *)&s->settle_timer, on_timer_closed);
    for (size_t i = 0; i < s->config.count; i++)
        agent_link_close(&s->hosts[i].link);
}

void survey_cancel(struct survey *s)
{
    for (size_t i = 0; i < s->config.count && !s->closing; i++)
        agent_link_cancel(&s->hosts[i].link);
    survey_close(s);
}

void survey_free(struct survey *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->config.count; i++) {
        agent_link_free(&s->hosts[i].link);
        json_decref(s->hosts[i].answer);
    }
    hb_free(s->hosts);
    hb_free(s);
}
