/* SPDX-License-Identifier: Apache-2.0 */
/* See culprit.h. */
#include "lib/job/stall/culprit.h"

int culprit_find(const struct control_exited *failed, size_t count, size_t *at)
{
    size_t here = 0;

    for (size_t steps = 0; steps < count; steps++) {
        int blamed = failed[here].blames - 1;
        size_t next = 0;

        while (next < count && failed[next].rank != blamed)
            next++;
        if (next == count) {
            *at = here;
            return blamed;
        }
        here = next;
    }
    *at = 0;
    return -1;
}
