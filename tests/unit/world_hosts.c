/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of ranks of a test world on several hosts: routes, all of which lead
 * to this machine, and fences.
 */
#include "tests/unit/world_impl.h"

#include <string.h>

void world_answer_routes(const struct agent *a, const struct conn *c)
{
    static char loopback[] = "127.0.0.1";
    char *addresses[WORLD_RANKS_MAX];
    struct hb_buf out = HB_BUF_INIT;

    int hosts = 0;

    for (int i = 0; i < a->host_count; i++)
        if (a->hosts[i].size > 0)
            addresses[hosts++] = loopback;
    need(worker_encode_routes_are(&out, addresses, (size_t)hosts) == 0,
         "routes");
    world_say(c, &out, -1);
    hb_buf_free(&out);
}

static struct conn *fenced_conn(struct agent *a, int rank, const char *scope)
{
    for (int i = 0; i < a->conn_count; i++)
        if (a->conns[i].rank == rank && strcmp(a->conns[i].scope, scope) == 0)
            return &a->conns[i];
    return NULL;
}

/* Once all ranks of the world wait for the fence, sends all values to all. */
static void answer_fence(struct agent *a, const char *scope)
{
    struct conn *conns[WORLD_RANKS_MAX];
    struct hb_buf out = HB_BUF_INIT;
    uint32_t size = (uint32_t)a->size;
    size_t bytes = 0;

    for (int r = 0; r < a->world->size; r++) {
        struct conn *c = fenced_conn(a, r, scope);

        if (a->number[r] < 0)
            continue;
        if (!c)
            return;
        conns[a->number[r]] = c;
        bytes += c->value_len;
    }
    need(worker_begin_fenced(&out, scope, size, bytes) == 0, "fenced");
    for (uint32_t r = 0; r < size; r++)
        worker_put_fenced(&out, r, conns[r]->value, conns[r]->value_len);
    for (uint32_t r = 0; r < size; r++) {
        conns[r]->scope[0] = '\0';
        world_say(conns[r], &out, -1);
    }
    hb_buf_free(&out);
}

void world_hear_fence(struct agent *a, struct conn *c, const struct frame *f)
{
    struct worker_value v;
    char scope[WORKER_SCOPE_MAX];

    need(worker_decode_fence(f->payload, f->len, c->scope, &v) == 0, "FENCE");
    c->value_len = v.len;
    memcpy(c->value, v.value, v.len);
    memcpy(scope, c->scope, sizeof(scope));
    frame_done(&c->in, f);
    if (world_elastic_ended(a, c))
        c->scope[0] = '\0';
    else
        answer_fence(a, scope);
}
