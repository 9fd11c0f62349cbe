/* SPDX-License-Identifier: Apache-2.0 */
/* See outcome.h. */
#include "runtime/core/set/outcome.h"

#include <stdio.h>

void hvd__outcome_fill(struct hvd__outcome *own, const struct hb_error *err)
{
    own->status = err->status;
    own->about = err->rank;
    snprintf(own->text, sizeof(own->text), "%s", err->text);
}

int hvd__outcome_merge(const struct hvd__outcome *all, const int *ranks, int n,
                       struct hb_error *err)
{
    const struct hvd__outcome *cause = NULL;
    int rank = -1;

    for (int i = 0; i < n; i++) {
        const struct hvd__outcome *o = &all[i];
        int r = ranks ? ranks[i] : i;
        int is_better = err->status
                            ? r == err->rank && o->about < 0
                            : !cause || (cause->about >= 0 && o->about < 0);

        if (!o->status || !is_better)
            continue;
        cause = o;
        rank = r;
    }
    if (!cause)
        return err->status;
    hb_error_clear(err);
    err->is_told = 1;
    return hb_error_set(err, hb_status_told(cause->status), "rank %d: %.*s",
                        rank, (int)sizeof(cause->text) - 1, cause->text);
}
