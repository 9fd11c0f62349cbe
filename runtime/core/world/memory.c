/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hvd_alloc and hvd_free: the arena of this rank.
 */
#include "runtime/core/world/context.h"
#include "runtime/core/world/message.h"
#include "runtime/hvd.h"

int hvd_alloc(size_t bytes, void **p)
{
    int rc;

    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    if (!p || bytes == 0)
        return hvd__fail(HVD_EINVAL, "hvd_alloc: p is NULL, or bytes is 0");
    rc = hvd__arena_alloc(&hvd__context.memory, bytes, p);
    if (rc == -HVD_ENOMEM)
        return hvd__fail(HVD_ENOMEM,
                         "hvd_alloc: no room for %zu bytes; HVD_ALLOC_BYTES "
                         "sets the limit",
                         bytes);
    return rc;
}

int hvd_free(void *p)
{
    if (!p)
        return 0;
    if (!hvd__alive())
        return hvd__fail(HVD_ENOTINIT, "hvd_init has not been called");
    if (hvd__arena_free(&hvd__context.memory, p) < 0)
        return hvd__fail(HVD_EINVAL,
                         "hvd_free: %p is not from hvd_alloc, or was freed", p);
    return 0;
}
