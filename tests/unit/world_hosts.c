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

    for (int i = 0; i < a->host_count; i++)
        addresses[i] = loopback;
    need(worker_encode_routes_are(&out, addresses, (size_t)a->host_count) == 0,
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

/* Once all ranks wait for the fence, sends all values to all. */
static void answer_fence(struct agent *a, const char *scope)
{
    struct conn *conns[WORLD_RANKS_MAX];
    struct hb_buf out = HB_BUF_INIT;
    uint32_t size = (uint32_t)a->world->size;
    size_t bytes = 0;

    for (uint32_t r = 0; r < size; r++) {
        conns[r] = fenced_conn(a, (int)r, scope);
        if (!conns[r])
            return;
        bytes += conns[r]->value_len;
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
    answer_fence(a, scope);
}
