/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's answer to COUNTS_ASK: what its ranks have counted so far, which
 * they write into shared memory themselves.
 */
#include "lib/agent/agent_impl.h"

#include "lib/base/alloc.h"
#include "lib/protocol/control/control_counts.h"

int agent_on_counts_ask(struct agent *a, const struct frame *f,
                        struct hb_error *err)
{
    struct control_counts *all;
    int count = 0;

    if (f->len != 0)
        return hb_error_set(err, HVD_EPROTO, "a question with %zu bytes",
                            f->len);
    if (a->gone)
        return 0;
    all = hb_xcalloc((size_t)a->job.rank_count + 1, sizeof(*all));
    for (int i = 0; a->state == AGENT_RUNNING && i < a->job.rank_count; i++) {
        const struct segment_status *s = agent_status_of(a, i);

        if (!s)
            continue;
        all[count].rank = a->job.ranks[i].rank;
        status_read_counts(s, &all[count].counts);
        count++;
    }
    hb_must(control_encode_counts(&a->link.out, all, count));
    hb_free(all);
    return 0;
}
