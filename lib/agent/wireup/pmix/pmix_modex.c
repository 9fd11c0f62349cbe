/* SPDX-License-Identifier: Apache-2.0 */
/* Fences and data between hosts; see pmix_modex.h. */
#include "lib/agent/wireup/pmix/pmix_modex.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <stdio.h>
#include <string.h>

static const char scope[] = "pmix";

/* A request to the store that is not yet answered. */
struct pmix_request {
    struct pmix_request *next;
    struct pmix_modex *modex;
    uint32_t relay_id;
    uint32_t id;     /* of the fence, or the rank */
    uint64_t due_ms; /* 0: there is no limit */
};

/* ---- Requests --------------------------------------------------------- */

static struct pmix_request *request_new(struct pmix_modex *x, uint32_t id)
{
    struct pmix_request *q = hb_xcalloc(1, sizeof(*q));

    q->modex = x;
    q->id = id;
    q->next = x->requests;
    x->requests = q;
    return q;
}

static void request_free(struct pmix_request *q)
{
    struct pmix_request **at = &q->modex->requests;

    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    hb_free(q);
}

/* Sends a request about a key: PUT, or GET that waits for the first value.
 * Returns 0, or -1 if there are too many. */
static int ask(struct pmix_modex *x, enum rdv_op op, const char *key,
               const struct hb_buf *value, relay_own_cb cb, uint32_t id)
{
    struct pmix_request *q = request_new(x, id);
    struct rdv_request m = {.op = op, .wait = op == RDV_GET};

    snprintf(m.scope, sizeof(m.scope), "%s", scope);
    snprintf(m.key, sizeof(m.key), "%s", key);
    if (value) {
        m.value = hb_buf_data(value);
        m.len = hb_buf_len(value);
    }
    q->relay_id = relay_own_request(x->relay, &m, cb, q);
    if (q->relay_id)
        return 0;
    request_free(q);
    return -1;
}

/* Forgets a PUT.  If it failed, the one who waits for the value gives up. */
static void on_put(void *arg, const struct rdv_reply *m)
{
    (void)m;
    request_free(arg);
}

/* ---- Fences ----------------------------------------------------------- */

/* Joins what the hosts gave: 0, or -HVD_EPROTO. */
static int join(const struct rdv_reply *m, struct hb_buf *out)
{
    struct rdv_record record;
    struct hb_reader r;
    int rc;

    hb_reader_init(&r, m->value, m->len);
    while ((rc = rdv_next_record(&r, &record)) > 0)
        if (record.len > 0)
            hb_must(hb_buf_append(out, record.value, record.len));
    if (rc == 0 && hb_buf_len(out) > PMIX_WIRE_DATA_MAX)
        rc = -HVD_EPROTO;
    return rc;
}

static void fence_failed(struct pmix_modex *x, uint32_t id, int blames,
                         const char *text)
{
    const struct pmix_wire_item m = {.id = id, .status = PMIX_WIRE_PEER_LOST};

    x->events->on_fence(x->arg, &m, blames, text);
}

static void on_fence(void *arg, const struct rdv_reply *m)
{
    struct pmix_request *q = arg;
    struct pmix_modex *x = q->modex;
    struct pmix_wire_item done = {.id = q->id};
    struct hb_buf all = HB_BUF_INIT;
    char text[256];
    int blames = 0;

    request_free(q);
    if (m->status == 0 && join(m, &all) == 0) {
        done.data = hb_buf_data(&all);
        done.len = hb_buf_len(&all);
        x->events->on_fence(x->arg, &done, 0, NULL);
    } else if (m->status == 0) {
        fence_failed(x, done.id, 0,
                     "the addresses of all ranks are too long for one message");
    } else {
        if (m->status == HVD_EPEER && m->version < (uint64_t)x->job->size)
            blames = 1 + (int)m->version;
        snprintf(text, sizeof(text), "%.*s",
                 m->len < sizeof(text) ? (int)m->len : (int)sizeof(text) - 1,
                 m->value ? (const char *)m->value : "");
        hb_text_sanitize(text);
        fence_failed(x, done.id, blames, text);
    }
    hb_buf_free(&all);
}

void pmix_modex_fence(struct pmix_modex *x, const struct pmix_wire_item *m)
{
    struct pmix_request *q = request_new(x, m->id);
    char name[32];

    snprintf(name, sizeof(name), "%s.%u", scope, m->id);
    q->relay_id = relay_own_fence(x->relay, name, m->data, m->len, on_fence, q);
    if (q->relay_id)
        return;
    request_free(q);
    fence_failed(x, m->id, 0,
                 "the addresses of this host's ranks are too long for one "
                 "message");
}

/* ---- Data of one rank ------------------------------------------------- */

static void no_data(struct pmix_modex *x, uint32_t rank)
{
    const struct pmix_wire_item m = {.id = rank, .status = PMIX_WIRE_NO_DATA};

    x->events->on_data(x->arg, &m);
}

static void on_data(void *arg, const struct rdv_reply *m)
{
    struct pmix_request *q = arg;
    struct pmix_modex *x = q->modex;
    const unsigned char *p = m->value;
    struct pmix_wire_item got = {.id = q->id};

    request_free(q);
    if (m->status != 0 || m->len < 1 || p[0] != PMIX_WIRE_OK ||
        m->len - 1 > PMIX_WIRE_DATA_MAX) {
        no_data(x, got.id);
        return;
    }
    got.data = p + 1;
    got.len = m->len - 1;
    x->events->on_data(x->arg, &got);
}

void pmix_modex_want(struct pmix_modex *x, uint32_t rank, uint64_t due_ms)
{
    char key[32];
    int host;

    if (rank >= (uint32_t)x->job->size || !x->asked) {
        no_data(x, rank);
        return;
    }
    host = x->hosts[rank];
    snprintf(key, sizeof(key), "want.%d", host);
    if (!x->asked[host] && ask(x, RDV_PUT, key, NULL, on_put, 0) == 0)
        x->asked[host] = 1;
    snprintf(key, sizeof(key), "data.%u", rank);
    if (ask(x, RDV_GET, key, NULL, on_data, rank) < 0)
        no_data(x, rank);
    else
        x->requests->due_ms = due_ms;
}

uint64_t pmix_modex_expire(struct pmix_modex *x, uint64_t now_ms)
{
    struct pmix_request *next;
    uint64_t first = 0;

    for (struct pmix_request *q = x->requests; q; q = next) {
        uint32_t rank = q->id;

        next = q->next;
        if (q->due_ms > now_ms && (first == 0 || q->due_ms < first))
            first = q->due_ms;
        if (q->due_ms == 0 || q->due_ms > now_ms)
            continue;
        relay_own_cancel(x->relay, q->relay_id);
        request_free(q);
        x->events->on_late(x->arg, rank);
    }
    return first;
}

void pmix_modex_answer(struct pmix_modex *x, const struct pmix_wire_item *m)
{
    struct hb_buf value = HB_BUF_INIT;
    int ok = m->status == PMIX_WIRE_OK && m->len < RDV_VALUE_MAX;
    char key[32];

    hb_must(hb_buf_put_u8(&value, ok ? PMIX_WIRE_OK : PMIX_WIRE_NO_DATA));
    if (ok && m->len > 0)
        hb_must(hb_buf_append(&value, m->data, m->len));
    snprintf(key, sizeof(key), "data.%u", m->id);
    (void)ask(x, RDV_PUT, key, &value, on_put, 0);
    hb_buf_free(&value);
}

static void on_wanted(void *arg, const struct rdv_reply *m)
{
    struct pmix_request *q = arg;
    struct pmix_modex *x = q->modex;

    request_free(q);
    if (m->status == 0)
        x->events->on_wanted(x->arg);
}

/* ---- Opening and closing ---------------------------------------------- */

void pmix_modex_open(struct pmix_modex *x)
{
    char key[32];

    x->hosts = hb_xcalloc((size_t)x->job->size, sizeof(*x->hosts));
    control_rank_hosts(x->job, x->hosts);
    if (x->job->host_names.count < 2)
        return;
    x->asked = hb_xcalloc(x->job->host_names.count, 1);
    snprintf(key, sizeof(key), "want.%d", x->job->host_index);
    (void)ask(x, RDV_GET, key, NULL, on_wanted, 0);
}

void pmix_modex_close(struct pmix_modex *x)
{
    while (x->requests) {
        relay_own_cancel(x->relay, x->requests->relay_id);
        request_free(x->requests);
    }
    hb_free(x->asked);
    hb_free(x->hosts);
    x->asked = NULL;
    x->hosts = NULL;
}
