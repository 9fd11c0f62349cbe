/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's part in generations (control_generation.h): passes messages
 * between hvdrun and the endpoint. */
#include "lib/agent/agent_impl.h"

#include "lib/base/alloc.h"

void agent_on_ready(void *arg, int slot, int ready)
{
    struct agent *a = arg;

    if (a->gone)
        return;
    hb_must(control_encode_ready(&a->link.out, a->job.ranks[slot].rank, ready));
    link_flush(&a->link);
}

int agent_on_generation(struct agent *a, const struct frame *f,
                        struct hb_error *err)
{
    struct control_generation m;
    int rc = control_decode_generation(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (a->endpoint_open)
        rc = endpoint_generation(&a->endpoint, &m, err);
    control_generation_fini(&m);
    return rc;
}

int agent_on_change(struct agent *a, const struct frame *f,
                    struct hb_error *err)
{
    uint32_t generation;
    int rc = control_decode_u32(f->payload, f->len, &generation, err);

    if (rc == 0 && a->endpoint_open)
        endpoint_change(&a->endpoint, generation);
    return rc;
}
