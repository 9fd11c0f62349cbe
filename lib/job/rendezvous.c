/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to requests of the store, and its replies to frames. */
#include "lib/job/rendezvous.h"

#include "lib/base/alloc.h"
#include "lib/rendezvous/store.h"

enum { STORE_BYTES_MAX = 256 << 20, STORE_WAITS_MAX = 1 << 20 };

struct job_rendezvous {
    struct rdv_store *store;
    void (*send)(void *arg, int host, const struct hb_buf *f);
    void *arg;
};

static void on_reply(void *arg, int origin, const struct rdv_reply *m)
{
    struct job_rendezvous *r = arg;
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(rdv_encode_reply(&frame, CONTROL_RENDEZVOUS_REPLY, m));
    r->send(r->arg, origin, &frame);
    hb_buf_free(&frame);
}

struct job_rendezvous *job_rendezvous_new(int ranks,
                                          void (*send)(void *arg, int host,
                                                       const struct hb_buf *f),
                                          void *arg)
{
    struct job_rendezvous *r = hb_xcalloc(1, sizeof(*r));
    struct rdv_store_config config = {
        .ranks = ranks,
        .bytes_max = STORE_BYTES_MAX,
        .waits_max = STORE_WAITS_MAX,
        .reply = on_reply,
        .arg = r,
    };

    r->send = send;
    r->arg = arg;
    r->store = rdv_store_new(&config);
    return r;
}

void job_rendezvous_free(struct job_rendezvous *r)
{
    if (!r)
        return;
    rdv_store_free(r->store);
    hb_free(r);
}

int job_rendezvous_frame(struct job_rendezvous *r, int host,
                         const struct frame *f, struct hb_error *err)
{
    struct rdv_request m;

    if (rdv_decode_request(f->payload, f->len, FRAME_PAYLOAD_MAX, &m) < 0)
        return hb_error_set(err, HVD_EPROTO, "malformed rendezvous request");
    rdv_store_request(r->store, host, &m);
    return 0;
}

void job_rendezvous_host_gone(struct job_rendezvous *r, int host)
{
    rdv_store_origin_gone(r->store, host);
}

void job_rendezvous_rank_gone(struct job_rendezvous *r, int rank,
                              const char *text)
{
    rdv_store_rank_gone(r->store, rank, text);
}
