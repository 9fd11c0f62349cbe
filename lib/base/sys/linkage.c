/* SPDX-License-Identifier: Apache-2.0 */
/* For a dynamically linked program; see linkage.h. */
#include "lib/base/sys/linkage.h"

int hb_may_load(struct hb_error *err)
{
    (void)err;
    return 0;
}
