/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous at the worker endpoint: turns frames into requests and replies
 * into frames.  WORKER_RDV_FENCE is a fence of all ranks whose reply has a form
 * of its own; its request id is ID_FENCE, which WORKER_RDV may not use. */
#include "lib/agent/endpoint_impl.h"

#include "lib/base/alloc.h"

#include <stdio.h>
#include <string.h>

enum { ID_FENCE = UINT32_MAX };

static void on_ask(void *arg, const struct rdv_request *m)
{
    struct endpoint *e = arg;

    if (e->ask)
        e->ask(e->ask_arg, m);
}

/* Makes RDV_FENCED from a reply's records. */
static int encode_fenced(struct hb_buf *out, const char *scope,
                         const struct rdv_reply *m)
{
    struct rdv_record record;
    struct hb_reader r;
    uint32_t count = 0;
    size_t bytes = 0;
    int rc;

    hb_reader_init(&r, m->value, m->len);
    while ((rc = rdv_next_record(&r, &record)) > 0) {
        count++;
        bytes += record.len;
    }
    if (rc == 0)
        rc = worker_begin_fenced(out, scope, count, bytes);
    if (rc < 0)
        return rc;
    hb_reader_init(&r, m->value, m->len);
    while (rdv_next_record(&r, &record) > 0)
        worker_put_fenced(out, record.rank, record.value, record.len);
    return 0;
}

static void fenced(struct endpoint_conn *c, const struct rdv_reply *m)
{
    struct hb_buf out = HB_BUF_INIT;
    char text[WORKER_TEXT_MAX];

    if (m->status == 0 && encode_fenced(&out, c->fence, m) == 0) {
        conn_queue(c, &out);
    } else if (m->status == HVD_EPEER) {
        struct worker_abort gone = {.rank = (uint32_t)m->version};

        snprintf(text, sizeof(text), "%.*s", (int)m->len,
                 (const char *)m->value);
        if (!c->endpoint->job->spec.elastic &&
            c->endpoint->slots[c->slot].epoch > 1)
            epoch_again_text(gone.text, sizeof(gone.text), gone.rank, "ended",
                             text);
        else
            memcpy(gone.text, text, sizeof(gone.text));
        if (worker_encode_abort(&out, &gone) == 0)
            conn_queue(c, &out);
    } else {
        snprintf(text, sizeof(text), "%.*s", (int)m->len,
                 m->status ? (const char *)m->value : "malformed fence");
        conn_refuse(c, text);
    }
    hb_buf_free(&out);
}

static void on_reply(void *arg, int slot, const struct rdv_reply *m)
{
    struct endpoint *e = arg;
    struct endpoint_conn *c = e->slots[slot].conn;
    struct hb_buf out = HB_BUF_INIT;

    if (!c)
        return;
    if (m->id == ID_FENCE) {
        fenced(c, m);
        return;
    }
    hb_must(rdv_encode_reply(&out, WORKER_RDV_REPLY, m));
    conn_queue(c, &out);
    hb_buf_free(&out);
}

void rdv_init(struct endpoint *e)
{
    struct relay_config config = {.job = e->job,
                                  .members =
                                      e->job->spec.elastic ? &e->members : NULL,
                                  .ask = on_ask,
                                  .reply = on_reply,
                                  .arg = e};

    relay_init(&e->relay, &config);
}

int rdv_on_request(struct endpoint_conn *c, const struct frame *f)
{
    struct rdv_request m;
    int rc = rdv_decode_request(f->payload, f->len, RDV_VALUE_MAX, &m);

    if (rc == 0 && (!c->endpoint->ask || m.id == ID_FENCE))
        rc = -HVD_EPROTO;
    return rc < 0 ? rc : relay_request(&c->endpoint->relay, c->slot, &m);
}

int rdv_on_fence(struct endpoint_conn *c, const struct frame *f)
{
    struct worker_value value;
    struct rdv_request m;

    if (!c->endpoint->ask ||
        worker_decode_fence(f->payload, f->len, c->fence, &value) < 0)
        return -HVD_EPROTO;
    m = (struct rdv_request){.id = ID_FENCE,
                             .op = RDV_FENCE,
                             .after = c->endpoint->slots[c->slot].epoch,
                             .value = value.value,
                             .len = value.len};
    snprintf(m.scope, sizeof(m.scope), "%s", c->fence);
    return relay_request(&c->endpoint->relay, c->slot, &m);
}

void endpoint_set_rendezvous(struct endpoint *e,
                             void (*ask)(void *arg,
                                         const struct rdv_request *m),
                             void *arg)
{
    e->ask = ask;
    e->ask_arg = arg;
}

void endpoint_answer(struct endpoint *e, const struct rdv_reply *m)
{
    relay_answer(&e->relay, m);
}
