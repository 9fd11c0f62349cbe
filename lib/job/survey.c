/* SPDX-License-Identifier: Apache-2.0 */
/* Asks many hosts at once; see survey.h. */
#include "lib/job/survey.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/query.h"
#include "lib/remote/remote.h"

#include <string.h>

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
    uv_timer_start(&s->settle, on_settle, 0, 0);
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

static void host_close(struct survey_host *h)
{
    struct transport *t = h->transport;

    h->transport = NULL;
    if (t)
        transport_close(t);
}

static void host_lost(struct survey_host *h, const struct hb_error *err)
{
    struct survey *s = h->survey;
    int waited = is_waiting(h), connected = h->state != SURVEY_CONNECTING;

    if (h->state == SURVEY_LOST)
        return;
    h->state = SURVEY_LOST;
    h->error = *err;
    json_decref(h->answer);
    h->answer = NULL;
    host_close(h);
    if (connected && s->config.on_lost && !s->closing)
        s->config.on_lost(s->config.arg, (size_t)(h - s->hosts));
    if (waited)
        no_longer_waits(s);
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
        struct transport *t = h->transport;

        if (!is_waiting(h))
            continue;
        if (h->state == SURVEY_ASKED)
            hb_error_set(&err, HVD_ETIMEOUT, "the agent does not answer");
        else
            hb_error_set(&err, HVD_ETIMEOUT,
                         "time is up (see --start-timeout)%s%s",
                         h->setback.status ? "; last attempt: "
                         : h->stage[0]     ? "; last: "
                                           : "",
                         h->setback.status ? h->setback.text : h->stage);
        if (h->state != SURVEY_ASKED)
            hb_error_stage(&err, h->setback.stage);
        h->transport = NULL;
        host_lost(h, &err);
        if (t)
            /* do not wait for a host that does not answer */
            transport_cancel(t);
    }
}

/* ---- What agents say ---- */

static int take_hello(struct survey_host *h, const struct frame *f,
                      struct hb_error *err)
{
    int rc;

    if (h->state != SURVEY_CONNECTING)
        return hb_error_set(err, HVD_EPROTO, "a second hello");
    rc = control_decode_hello(f->payload, f->len, &h->hello, err);
    if (rc < 0)
        return rc;
    if (strcmp(h->hello.version, HVD_VERSION) != 0)
        return hb_error_set(err, HVD_EPROTO,
                            "hvd-agent is version %s, hvdrun %s; both must "
                            "be of one build",
                            h->hello.version, HVD_VERSION);
    h->connect_ns = hb_now_ns() - h->survey->began_ns;
    h->state = SURVEY_IDLE;
    no_longer_waits(h->survey);
    return 0;
}

static int take_answer(struct survey_host *h, const struct frame *f,
                       struct hb_error *err)
{
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

static int on_frame(struct survey_host *h, const struct frame *f,
                    struct hb_error *err)
{
    struct survey *s = h->survey;

    if (f->type == CONTROL_HELLO)
        return take_hello(h, f, err);
    if (f->type == CONTROL_LOG)
        return host_log_frame(&h->words, f, err);
    if (h->state == SURVEY_CONNECTING)
        return hb_error_set(err, HVD_EPROTO, "message %d before hello",
                            f->type);
    if (f->type == CONTROL_ANSWER)
        return take_answer(h, f, err);
    if (!s->config.on_frame)
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    return s->config.on_frame(s->config.arg, (size_t)(h - s->hosts), f, err);
}

/* ---- The connections ---- */

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct survey_host *h = arg;
    struct hb_error err = HB_ERROR_INIT;
    struct frame f;
    int rc = 0;

    xbuf_append(&h->in, bytes, len);
    while (h->state != SURVEY_LOST) {
        rc = frame_decode(
            &h->in, control_frame_max(&h->in, h->state != SURVEY_CONNECTING),
            &f, &err);
        if (rc <= 0)
            break;
        rc = on_frame(h, &f, &err);
        if (rc < 0)
            break;
        frame_done(&h->in, &f);
    }
    if (rc < 0)
        host_lost(h, &err);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct survey_host *h = arg;

    host_log_stderr(&h->words, bytes, len);
}

static void on_end(void *arg, const struct hb_error *err)
{
    struct hb_error orderly = HB_ERROR_INIT;

    if (!err) {
        hb_error_set(&orderly, HVD_ECLOSED, "its connection ended");
        err = &orderly;
    }
    host_lost(arg, err);
}

static void check_closed(struct survey *s)
{
    if (!s->closing || s->open_parts > 0 || s->told)
        return;
    s->told = 1;
    s->config.on_closed(s->config.arg);
}

static void on_close(void *arg)
{
    struct survey_host *h = arg;

    host_log_end(&h->words);
    h->survey->open_parts--;
    check_closed(h->survey);
}

static void on_stage(void *arg, const char *stage)
{
    struct survey_host *h = arg;

    if (h->state != SURVEY_CONNECTING)
        return;
    hb_free(h->stage);
    h->stage = hb_xstrdup(stage);
}

static void on_setback(void *arg, const struct hb_error *why)
{
    struct survey_host *h = arg;

    h->setback = *why;
}

static void host_open(struct survey *s, size_t i)
{
    const struct survey_config *c = &s->config;
    struct survey_host *h = &s->hosts[i];
    struct hb_error err = HB_ERROR_INIT;
    struct transport_config config = {
        .loop = c->loop,
        .log = c->log,
        .host = h->name,
        .agent_path = c->agent_path,
        .events = {.on_read = on_read,
                   .on_stderr = on_stderr,
                   .on_end = on_end,
                   .on_close = on_close,
                   .on_stage = on_stage,
                   .on_setback = on_setback},
        .arg = h,
        .exit_wait_ms = SURVEY_EXIT_WAIT_MS,
    };
    int rc = c->is_local[i]
                 ? transport_open_local(&config, &h->transport, &err)
                 : transport_open_remote(c->remote, &c->entries[i], &config,
                                         &h->transport, &err);

    if (rc == 0) {
        s->open_parts++;
        return;
    }
    h->transport = NULL;
    host_lost(h, &err);
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
    timer_open(s, &s->settle);
    uv_timer_start(&s->deadline, on_deadline,
                   (uint64_t)config->start_timeout_ms, 0);
    for (size_t i = 0; i < config->count; i++) {
        s->hosts[i].survey = s;
        s->hosts[i].name = config->entries[i].name;
        host_log_init(&s->hosts[i].words, config->log, s->hosts[i].name);
        s->hosts[i].stage = hb_xstrdup("");
    }
    for (size_t i = 0; i < config->count; i++)
        host_open(s, i);
    s->config.on_progress = config->on_progress;
    return s;
}

void survey_wait(struct survey *s, int64_t timeout_ms)
{
    uv_timer_stop(&s->settle);
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
    uv_timer_stop(&s->settle);
    h->asked_wall_ns = hb_wall_ns();
    /* A failure is reported by on_end. */
    (void)transport_write(h->transport, hb_buf_data(&frame),
                          hb_buf_len(&frame));
    hb_buf_free(&frame);
}

int survey_send(struct survey *s, size_t host, const struct hb_buf *frame)
{
    struct survey_host *h = &s->hosts[host];

    if (!h->transport)
        return -HVD_ECLOSED;
    return transport_write(h->transport, hb_buf_data(frame), hb_buf_len(frame));
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
    uv_close((uv_handle_t *)&s->settle, on_timer_closed);
    for (size_t i = 0; i < s->config.count; i++)
        host_close(&s->hosts[i]);
}

void survey_cancel(struct survey *s)
{
    for (size_t i = 0; i < s->config.count && !s->closing; i++) {
        struct transport *t = s->hosts[i].transport;

        host_close(&s->hosts[i]);
        if (t)
            transport_cancel(t);
    }
    survey_close(s);
}

void survey_free(struct survey *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->config.count; i++) {
        struct survey_host *h = &s->hosts[i];

        hb_free(h->stage);
        control_hello_fini(&h->hello);
        json_decref(h->answer);
        hb_buf_free(&h->in);
        host_log_fini(&h->words);
    }
    hb_free(s->hosts);
    hb_free(s);
}
