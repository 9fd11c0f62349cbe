/* SPDX-License-Identifier: Apache-2.0 */
/* hvdrun's connection to an agent; see agent_link.h. */
#include "lib/job/agent_link.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"
#include "lib/remote/remote.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { LINK_IN_KEEP_BYTES = 64 << 10 };

/* ---- Messages ---- */

static int take_hello(struct agent_link *l, const struct frame *f,
                      struct hb_error *err)
{
    int rc;

    if (l->phase != AGENT_CONNECTING)
        return hb_error_set(err, HVD_EPROTO, "a second hello");
    rc = control_decode_hello(f->payload, f->len, &l->hello, err);
    if (rc < 0)
        return rc;
    hb_log(l->words.log, HB_LOG_DEBUG,
           "host %s: agent pid %d on %s, %s, %d cpus", l->words.name,
           (int)l->hello.pid, l->hello.host, l->hello.cpu, l->hello.cpus);
    if (strcmp(l->hello.version, HVD_VERSION) != 0)
        return hb_error_set(err, HVD_EPROTO,
                            "hvd-agent is version %s, hvdrun %s; both must "
                            "be of one build",
                            l->hello.version, HVD_VERSION);
    l->phase = AGENT_GREETED;
    l->stage[0] = '\0';
    hb_error_clear(&l->setback);
    return l->events->on_hello(l->arg, err);
}

static int take_frame(struct agent_link *l, const struct frame *f,
                      struct hb_error *err)
{
    const struct agent_message *m =
        &l->events->messages[f->type < AGENT_MESSAGES ? f->type : 0];

    if (f->type == CONTROL_HELLO)
        return take_hello(l, f, err);
    if (f->type == CONTROL_LOG)
        return host_log_frame(&l->words, f, err);
    if (!m->handle)
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    if (l->phase < m->since)
        return hb_error_set(err, HVD_EPROTO, "message %d before %s", f->type,
                            l->phase == AGENT_CONNECTING ? "hello" : "launch");
    return m->handle(l->arg, f, err);
}

static int take_frames(struct agent_link *l, struct hb_error *err)
{
    struct frame f;
    int rc = 0;

    while (!l->closing) {
        rc = frame_decode(
            &l->in, control_frame_max(&l->in, l->phase != AGENT_CONNECTING), &f,
            err);
        if (rc > 0)
            rc = take_frame(l, &f, err) < 0 ? -1 : 1;
        if (rc <= 0)
            break;
        frame_done(&l->in, &f);
    }
    return rc;
}

/* Gives memory back after a large message. */
static void keep_little(struct hb_buf *in)
{
    struct hb_buf rest = HB_BUF_INIT;

    if (in->cap <= LINK_IN_KEEP_BYTES ||
        hb_buf_len(in) > LINK_IN_KEEP_BYTES / 2)
        return;
    if (hb_buf_len(in) > 0)
        xbuf_append(&rest, hb_buf_data(in), hb_buf_len(in));
    hb_buf_free(in);
    *in = rest;
}

/* ---- The transport ---- */

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct agent_link *l = arg;
    struct hb_error err = HB_ERROR_INIT;

    if (l->events->on_heard)
        l->events->on_heard(l->arg);
    xbuf_append(&l->in, bytes, len);
    if (take_frames(l, &err) < 0 && !l->closing)
        l->events->on_lost(l->arg, AGENT_BROKE, &err);
    if (l->closing)
        hb_buf_free(&l->in);
    else
        keep_little(&l->in);
    if (l->events->on_handled)
        l->events->on_handled(l->arg);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct agent_link *l = arg;

    host_log_stderr(&l->words, bytes, len);
}

static void on_end(void *arg, const struct hb_error *err)
{
    struct agent_link *l = arg;
    struct hb_error orderly = HB_ERROR_INIT;

    if (!err)
        hb_error_set(&orderly, HVD_ECLOSED, "its connection ended");
    l->events->on_lost(l->arg, err ? AGENT_FAILED : AGENT_ENDED,
                       err ? err : &orderly);
}

static void on_close(void *arg)
{
    struct agent_link *l = arg;

    host_log_end(&l->words);
    l->transport = NULL;
    l->events->on_closed(l->arg);
}

static void on_stage(void *arg, const char *stage)
{
    struct agent_link *l = arg;

    snprintf(l->stage, sizeof(l->stage), "%s", stage);
    hb_log(l->words.log, HB_LOG_DEBUG, "host %s: %s", l->words.name, stage);
}

static void on_setback(void *arg, const struct hb_error *why)
{
    struct agent_link *l = arg;

    l->setback = *why;
}

/* ---- The owner's calls ---- */

int agent_link_open(struct agent_link *l, const struct agent_link_config *c,
                    struct hb_error *err)
{
    struct transport_config config = c->transport;

    config.host = c->entry->name;
    config.events = (struct transport_events){.on_read = on_read,
                                              .on_stderr = on_stderr,
                                              .on_end = on_end,
                                              .on_close = on_close,
                                              .on_stage = on_stage,
                                              .on_setback = on_setback};
    config.arg = l;
    *l = (struct agent_link){.events = c->events, .arg = c->arg};
    host_log_init(&l->words, config.log, config.host);
    assert(c->is_local || c->remote);
    if (c->is_local)
        return transport_open_local(&config, &l->transport, err);
    return transport_open_remote(c->remote, c->entry, &config, &l->transport,
                                 err);
}

static int is_open(const struct agent_link *l)
{
    return l->transport && !l->closing;
}

int agent_link_send(struct agent_link *l, const struct hb_buf *frame)
{
    if (!is_open(l))
        return -HVD_ECLOSED;
    return transport_write(l->transport, hb_buf_data(frame), hb_buf_len(frame));
}

size_t agent_link_queued(const struct agent_link *l)
{
    return is_open(l) ? transport_write_queued(l->transport) : 0;
}

void agent_link_close(struct agent_link *l)
{
    if (!is_open(l))
        return;
    l->closing = 1;
    transport_close(l->transport);
}

void agent_link_cancel(struct agent_link *l)
{
    agent_link_close(l);
    if (l->transport)
        transport_cancel(l->transport);
}

void agent_link_free(struct agent_link *l)
{
    hb_buf_free(&l->in);
    host_log_fini(&l->words);
    control_hello_fini(&l->hello);
}

char *agent_link_last(const struct agent_link *l)
{
    if (l->setback.status)
        return hb_xasprintf("; last attempt: %s", l->setback.text);
    return l->stage[0] ? hb_xasprintf("; last: %s", l->stage) : hb_xstrdup("");
}
