/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' input and output, between the pump and hvdrun. */
#include "lib/agent/agent_impl.h"

/* ---- Output ---- */

static void on_output(void *arg, int slot, int stream, const void *bytes,
                      size_t len)
{
    struct agent *a = arg;

    if (a->gone)
        return;
    control_encode_output(&a->link.out, a->job.ranks[slot].rank, stream, bytes,
                          len);
    if (link_full(&a->link))
        link_flush(&a->link);
    if (link_full(&a->link))
        pump_hold(&a->pump, 1);
}

static void on_all_ended(void *arg)
{
    struct agent *a = arg;

    if (a->state == AGENT_DRAINING)
        agent_post(a, AGENT_DRAINED);
}

int agent_on_output_ack(struct agent *a, const struct frame *f,
                        struct hb_error *err)
{
    uint32_t bytes;
    int rc = control_decode_u32(f->payload, f->len, &bytes, err);

    if (rc == 0 && a->pump_open)
        pump_ack(&a->pump, bytes);
    return rc;
}

/* ---- Input ---- */

static void on_stdin_taken(void *arg, int slot, uint32_t bytes)
{
    struct agent *a = arg;

    if (!a->gone)
        control_encode_stdin_ack(&a->link.out, a->job.ranks[slot].rank, bytes);
}

int agent_on_stdin(struct agent *a, const struct frame *f, struct hb_error *err)
{
    struct control_bytes m;
    int rc = control_decode_stdin(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    for (int i = 0; a->pump_open && i < a->job.rank_count; i++)
        if (a->job.ranks[i].rank == m.rank) {
            rc = pump_stdin(&a->pump, i, m.bytes, m.len);
            return rc < 0 ? hb_error_set(err, HVD_EPROTO,
                                         "more stdin than the window")
                          : 0;
        }
    return a->pump_open ? hb_error_set(err, HVD_EPROTO,
                                       "stdin for rank %d, not here", m.rank)
                        : 0;
}

const struct pump_events agent_pump_events = {
    .on_output = on_output,
    .on_stdin_taken = on_stdin_taken,
    .on_all_ended = on_all_ended,
};
