/* SPDX-License-Identifier: Apache-2.0 */
/* Of a program that the loader starts; see linkage.h. */
#include "lib/base/linkage.h"

int hb_may_load(struct hb_error *err)
{
    (void)err;
    return 0;
}
