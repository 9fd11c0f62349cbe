/* SPDX-License-Identifier: Apache-2.0 */
/* Converts frames to requests of the store, and its replies to frames. */
#include "lib/job/job_rendezvous.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/rendezvous/store.h"

enum { STORE_BYTES_MAX = 256 << 20, STORE_WAITS_MAX = 1 << 20 };

struct job_rendezvous {
    struct job_rendezvous_config config;
    struct rdv_store *store;
    unsigned char *deaf; /* [hosts]: a reply was dropped */
};

static void on_reply(void *arg, int origin, const struct rdv_reply *m)
{
    struct job_rendezvous *r = arg;
    struct hb_buf frame = HB_BUF_INIT;

    if (r->deaf[origin] || r->config.queued(r->config.arg, origin) + m->len >
                               JOB_RENDEZVOUS_QUEUE_MAX) {
        r->deaf[origin] = 1;
        return;
    }
    hb_must(rdv_encode_reply(&frame, CONTROL_RENDEZVOUS_REPLY, m));
    r->config.send(r->config.arg, origin, &frame);
    hb_buf_free(&frame);
}

struct job_rendezvous *
job_rendezvous_new(const struct job_rendezvous_config *config)
{
    struct job_rendezvous *r = hb_xcalloc(1, sizeof(*r));
    struct rdv_store_config store = {
        .ranks = config->plan->size,
        .bytes_max = STORE_BYTES_MAX,
        .waits_max = STORE_WAITS_MAX,
        .reply = on_reply,
        .arg = r,
    };

    r->config = *config;
    r->store = rdv_store_new(&store);
    r->deaf = hb_xcalloc((size_t)config->plan->host_cap, 1);
    return r;
}

void job_rendezvous_free(struct job_rendezvous *r)
{
    if (!r)
        return;
    rdv_store_free(r->store);
    hb_free(r->deaf);
    hb_free(r);
}

/* Returns whether the host may speak for the rank. */
static int is_of_host(const struct plan *plan, uint32_t rank, int host)
{
    return rank < (uint32_t)plan->size && plan->ranks[rank].is_bound &&
           plan->ranks[rank].host == host;
}

static int on_left(struct job_rendezvous *r, int host,
                   const struct rdv_request *m, struct hb_error *err)
{
    const struct plan *plan = r->config.plan;
    uint32_t rank = rdv_member(m, 0);
    char *text;

    if (!is_of_host(plan, rank, host))
        return hb_error_set(err, HVD_EPROTO,
                            "says that a rank of another host has left");
    if (m->after == 0) {
        rdv_store_rank_back(r->store, (int)rank);
        return 0;
    }
    text = hb_xasprintf("%.*s", m->len > 255 ? 255 : (int)m->len,
                        (const char *)m->value);
    hb_text_sanitize(text);
    rdv_store_rank_gone(r->store, (int)rank, m->after, text);
    hb_free(text);
    return 0;
}

static int records_are_of(const struct job_rendezvous *r,
                          const struct rdv_request *m, int host)
{
    const struct plan *plan = r->config.plan;
    struct rdv_record record;
    struct hb_reader reader;
    int rc;

    hb_reader_init(&reader, m->value, m->len);
    while ((rc = rdv_next_record(&reader, &record)) > 0)
        if (!is_of_host(plan, record.rank, host))
            return 0;
    return rc == 0;
}

int job_rendezvous_frame(struct job_rendezvous *r, int host,
                         const struct frame *f, struct hb_error *err)
{
    struct rdv_request m;

    if (r->deaf[host])
        return hb_error_set(err, HVD_ECLOSED,
                            "does not take the answers that its ranks ask "
                            "for (%d MiB wait)",
                            JOB_RENDEZVOUS_QUEUE_MAX >> 20);
    if (rdv_decode_request(f->payload, f->len, FRAME_PAYLOAD_MAX, &m) < 0)
        return hb_error_set(err, HVD_EPROTO, "malformed rendezvous request");
    if (m.op == RDV_LEFT)
        return on_left(r, host, &m, err);
    if (m.op == RDV_FENCE && !records_are_of(r, &m, host))
        return hb_error_set(err, HVD_EPROTO,
                            "gives to a fence for ranks of another host");
    rdv_store_request(r->store, host, &m);
    return 0;
}

void job_rendezvous_host_gone(struct job_rendezvous *r, int host)
{
    rdv_store_origin_gone(r->store, host);
    r->deaf[host] = 0;
}

void job_rendezvous_rank_gone(struct job_rendezvous *r, int rank,
                              const char *text)
{
    rdv_store_rank_gone(r->store, rank, RDV_ALL_EPOCHS, text);
}

void job_rendezvous_rank_restarted(struct job_rendezvous *r, int rank)
{
    rdv_store_rank_restarted(r->store, rank);
}
