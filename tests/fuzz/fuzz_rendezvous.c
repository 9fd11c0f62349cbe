/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous.  The input is a series of requests, each with a length of two
 * bytes and an origin of one.  Requests that the decoder accepts go to a store,
 * as from agents, and to a relay, as from workers.  In all cases the store
 * keeps within its limits, and both can be freed.
 */
#include "lib/agent/rdv_relay.h"
#include "lib/rendezvous/store.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 4, BYTES_MAX = 64 << 10, WAITS_MAX = 32 };

static struct control_rank ranks[] = {{.rank = 0}, {.rank = 2}};
static const struct control_launch job = {.ranks = ranks, .rank_count = 2};

static void on_reply(void *arg, int origin, const struct rdv_reply *m)
{
    struct hb_buf out = HB_BUF_INIT;
    struct rdv_reply got;
    struct frame f;

    (void)arg;
    FUZZ_CHECK(origin >= 0 && origin < 256);
    FUZZ_CHECK(rdv_encode_reply(&out, CONTROL_RENDEZVOUS_REPLY, m) == 0);
    FUZZ_CHECK(frame_decode(&out, FRAME_PAYLOAD_MAX, &f, NULL) == 1);
    FUZZ_CHECK(rdv_decode_reply(f.payload, f.len, &got) == 0);
    FUZZ_CHECK(got.id == m->id && got.len == m->len);
    hb_buf_free(&out);
}

/* Checks that a request of the relay is one that an agent could send. */
static void on_ask(void *arg, const struct rdv_request *m)
{
    struct hb_buf out = HB_BUF_INIT;

    (void)arg;
    FUZZ_CHECK(rdv_encode_request(&out, CONTROL_RENDEZVOUS, m) == 0);
    hb_buf_free(&out);
}

static void on_answer(void *arg, int slot, const struct rdv_reply *m)
{
    (void)arg;
    (void)m;
    FUZZ_CHECK(slot == 0 || slot == 1);
}

static void on_own(void *arg, const struct rdv_reply *m)
{
    int *calls = arg;

    (void)m;
    ++*calls;
}

/* Checks that the agent's own request gets at most one answer, and none once it
 * is cancelled. */
static void take_own(struct relay *relay, const struct rdv_request *m,
                     int cancel)
{
    struct rdv_reply reply = {0};
    int calls = 0, fence = m->op == RDV_FENCE;

    reply.id = fence ? relay_own_fence(relay, m->scope, m->value, m->len,
                                       on_own, &calls)
                     : relay_own_request(relay, m, on_own, &calls);
    FUZZ_CHECK(reply.id != 0);
    if (cancel)
        relay_own_cancel(relay, reply.id);
    relay_answer(relay, &reply);
    relay_answer(relay, &reply);
    FUZZ_CHECK(calls == !cancel);
}

static void take(struct rdv_store *store, struct relay *relay, int origin,
                 const void *p, size_t len)
{
    struct rdv_reply reply = {.id = (uint32_t)len};
    struct rdv_request m;

    if (rdv_decode_request(p, len, RDV_VALUE_MAX, &m) < 0)
        return;
    rdv_store_request(store, origin, &m);
    relay_request(relay, origin & 1, &m);
    if (origin & 2)
        relay_answer(relay, &reply);
    if (origin & 4)
        relay_slot_gone(relay, origin & 1);
    if (origin & 16 && m.op != RDV_CANCEL && m.op != RDV_LEFT)
        take_own(relay, &m, origin & 32);
    if (origin & 8)
        rdv_store_origin_gone(store, origin);
    if (origin == 255)
        rdv_store_rank_gone(store, 3, RDV_ALL_EPOCHS, "gone");
    FUZZ_CHECK(rdv_store_waits(store) <= WAITS_MAX);
    FUZZ_CHECK(rdv_store_bytes(store) <= BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rdv_store_config config = {.ranks = RANKS,
                                      .bytes_max = BYTES_MAX,
                                      .waits_max = WAITS_MAX,
                                      .reply = on_reply};
    struct relay_config relay_config = {
        .job = &job, .ask = on_ask, .reply = on_answer};
    struct rdv_store *store = rdv_store_new(&config);
    struct relay relay;
    struct hb_reader r;

    relay_init(&relay, &relay_config);
    hb_reader_init(&r, data, size);
    while (r.left > 3) {
        size_t len = hb_read_u16(&r);
        int origin = hb_read_u8(&r);
        char *copy;

        if (len > r.left)
            len = r.left;
        copy = fuzz_copy(hb_read_bytes(&r, len), len);
        take(store, &relay, origin, copy, len);
        free(copy);
    }
    relay_fini(&relay);
    rdv_store_free(store);
    return 0;
}
