/* SPDX-License-Identifier: Apache-2.0 */
/* What requests of Horovod's ranks mean for the job's store; see
 * horovod_rdv.h, also for why the values kept here are never stale. */
#include "lib/agent/horovod/horovod_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    HOLD_MS = 1000, /* of a GET; Horovod's own time limit is in seconds */
    ASK_MS = 30000, /* for an answer of hvdrun */
};

/* Horovod's scopes begin so in the store, whose other names libhvd uses. */
#define SCOPE "horovod/"

_Static_assert(sizeof(SCOPE) + HTTP_NAME_BYTES <= RDV_NAME_BYTES,
               "a scope has room");
_Static_assert(HTTP_BODY_MAX <= (int)RDV_VALUE_MAX, "a body fits a value");

static void patience(struct horovod_conn *c, int ms)
{
    c->deadline_ns = hb_now_ns() + (uint64_t)ms * 1000000;
}

/* ---- Values ---- */

static struct horovod_value **bucket_of(struct horovod_rdv *h,
                                        const char *scope, const char *key)
{
    unsigned hash = 5381;

    for (; *scope; scope++)
        hash = 33 * hash + (unsigned char)*scope;
    for (; *key; key++)
        hash = 33 * hash + (unsigned char)*key;
    return &h->values[hash % HOROVOD_BUCKETS];
}

static struct horovod_value **find(struct horovod_rdv *h, const char *scope,
                                   const char *key)
{
    struct horovod_value **at = bucket_of(h, scope, key);

    while (*at &&
           (strcmp((*at)->key, key) != 0 || strcmp((*at)->scope, scope) != 0))
        at = &(*at)->next;
    return at;
}

/* Frees a value for which no connection waits. */
static void drop(struct horovod_rdv *h, struct horovod_value **at)
{
    struct horovod_value *v = *at;

    *at = v->next;
    h->value_count--;
    h->kept_bytes -= v->len;
    if (v->ask)
        relay_own_cancel(h->config.relay, v->ask);
    hb_free(v->bytes);
    hb_free(v);
}

static void drop_scope(struct horovod_rdv *h, const char *scope)
{
    for (int i = 0; i < HOROVOD_BUCKETS; i++) {
        struct horovod_value **at = &h->values[i];

        while (*at) {
            if (!(*at)->waiting && strcmp((*at)->scope, scope) == 0)
                drop(h, at);
            else
                at = &(*at)->next;
        }
    }
}

void horovod_drop_values(struct horovod_rdv *h)
{
    for (int i = 0; i < HOROVOD_BUCKETS; i++)
        while (h->values[i])
            drop(h, &h->values[i]);
}

static struct horovod_value *add(struct horovod_rdv *h, const char *scope,
                                 const char *key)
{
    struct horovod_value **bucket = bucket_of(h, scope, key);
    struct horovod_value *v = hb_xcalloc(1, sizeof(*v));

    v->server = h;
    snprintf(v->scope, sizeof(v->scope), "%s", scope);
    snprintf(v->key, sizeof(v->key), "%s", key);
    v->next = *bucket;
    *bucket = v;
    h->value_count++;
    return v;
}

/* Keeps a copy of the bytes, if there is room. */
static int keep(struct horovod_value *v, const void *bytes, size_t len)
{
    struct horovod_rdv *h = v->server;

    if (h->kept_bytes + len > HOROVOD_KEPT_BYTES_MAX)
        return 0;
    v->bytes = hb_xmalloc(len + 1);
    if (len)
        memcpy(v->bytes, bytes, len);
    v->len = len;
    h->kept_bytes += len;
    return 1;
}

/* Keeps what the connection has asked for, unless that is known by now. */
static void keep_seen(struct horovod_conn *c, const struct rdv_reply *m)
{
    struct horovod_rdv *h = c->server;
    const struct http_request *r = &c->request;

    if (h->value_count >= HOROVOD_VALUES_MAX || *find(h, r->scope, r->key))
        return;
    if (!keep(add(h, r->scope, r->key), m->value, m->len))
        drop(h, find(h, r->scope, r->key));
}

/* ---- Answers ---- */

/* Reports that the store refused a request. */
static void refused(struct horovod_conn *c, const struct rdv_reply *m)
{
    hb_log(c->server->config.log, HB_LOG_WARNING, "Horovod's rendezvous: %.*s",
           m->len > 200 ? 200 : (int)m->len,
           m->len ? (const char *)m->value : "");
    horovod_hang_up(c);
}

/* Handles the answer to PUT and DELETE. */
static void on_done(void *arg, const struct rdv_reply *m)
{
    struct horovod_conn *c = arg;

    c->ask = 0;
    if (m->status)
        refused(c, m);
    else
        horovod_reply(c, 200, NULL, 0);
}

/* Handles the answer to a GET that does not wait. */
static void on_looked(void *arg, const struct rdv_reply *m)
{
    struct horovod_conn *c = arg;

    c->ask = 0;
    if (m->status == HVD_ENOENT) {
        horovod_reply(c, 404, NULL, 0);
    } else if (m->status) {
        refused(c, m);
    } else {
        keep_seen(c, m);
        horovod_reply(c, 200, m->value, m->len);
    }
}

/* Gives a value that has come to those that wait for it. */
static void on_value(void *arg, const struct rdv_reply *m)
{
    struct horovod_value *v = arg;
    struct horovod_conn *c;

    v->ask = 0;
    while ((c = v->waiting)) {
        v->waiting = c->next_waiting;
        c->value = NULL;
        if (m->status)
            refused(c, m);
        else
            horovod_reply(c, 200, m->value, m->len);
    }
    if (m->status || !keep(v, m->value, m->len))
        drop(v->server, find(v->server, v->scope, v->key));
}

/* ---- Requests ---- */

/* Returns whether ranks read the key before it is there: those are numbers of
 * ranks. */
static int is_awaited(const char *key)
{
    return strspn(key, "0123456789") == strlen(key);
}

static int is_elastic(const struct http_request *r)
{
    return strcmp(r->scope, "rank_and_size") == 0 ||
           strcmp(r->scope, "worker_addresses") == 0;
}

static void fill(struct rdv_request *m, enum rdv_op op, const char *scope,
                 const char *key)
{
    memset(m, 0, sizeof(*m));
    m->op = op;
    snprintf(m->scope, sizeof(m->scope), SCOPE "%s", scope);
    snprintf(m->key, sizeof(m->key), "%s", key);
}

/* Asks the store for the connection. */
static void ask(struct horovod_conn *c, enum rdv_op op, relay_own_cb done)
{
    const struct http_request *r = &c->request;
    struct rdv_request m;

    fill(&m, op, r->scope, r->key);
    m.len = r->body_len;
    m.value = m.len ? hb_buf_data(&c->in) + r->head_len : NULL;
    c->ask = relay_own_request(c->server->config.relay, &m, done, c);
    if (!c->ask)
        horovod_hang_up(c);
    else
        patience(c, ASK_MS);
}

/* Adds the value that the connection asks for to those awaited, or returns
 * NULL: there are too many. */
static struct horovod_value *await(struct horovod_rdv *h,
                                   const struct http_request *r)
{
    struct horovod_value *v;
    struct rdv_request m;

    if (h->value_count >= HOROVOD_VALUES_MAX)
        return NULL;
    fill(&m, RDV_GET, r->scope, r->key);
    m.wait = 1;
    v = add(h, r->scope, r->key);
    v->ask = relay_own_request(h->config.relay, &m, on_value, v);
    if (v->ask)
        return v;
    drop(h, find(h, r->scope, r->key));
    return NULL;
}

static void get(struct horovod_conn *c)
{
    const struct http_request *r = &c->request;
    struct horovod_value *v = *find(c->server, r->scope, r->key);

    if (!v && !is_awaited(r->key)) {
        ask(c, RDV_GET, on_looked);
        return;
    }
    if (!v)
        v = await(c->server, r);
    if (!v) {
        horovod_reply(c, 404, NULL, 0);
    } else if (!v->ask) {
        horovod_reply(c, 200, v->bytes, v->len);
    } else {
        c->value = v;
        c->next_waiting = v->waiting;
        v->waiting = c;
        patience(c, HOLD_MS);
    }
}

void horovod_serve(struct horovod_conn *c)
{
    if (is_elastic(&c->request)) {
        horovod_reply(c, 404, NULL, 0);
        return;
    }
    switch (c->request.method) {
    case HTTP_GET:
        get(c);
        break;
    case HTTP_PUT:
        ask(c, RDV_PUT, on_done);
        break;
    case HTTP_DELETE:
        drop_scope(c->server, c->request.scope);
        ask(c, RDV_END_ROUND, on_done);
        break;
    }
}

void horovod_forget(struct horovod_conn *c)
{
    struct horovod_conn **at;

    if (c->ask)
        relay_own_cancel(c->server->config.relay, c->ask);
    c->ask = 0;
    if (!c->value)
        return;
    for (at = &c->value->waiting; *at != c;)
        at = &(*at)->next_waiting;
    *at = c->next_waiting;
    c->value = NULL;
}

void horovod_hold_over(struct horovod_conn *c)
{
    horovod_forget(c);
    horovod_reply(c, 404, NULL, 0);
}
