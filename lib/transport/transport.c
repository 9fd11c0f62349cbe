/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a transport's functions; see transport.h. */
#include "lib/transport/transport_impl.h"

int transport_write(struct transport *t, const void *bytes, size_t len)
{
    return t->ops->write(t, bytes, len);
}

size_t transport_write_queued(const struct transport *t)
{
    return t->ops->write_queued(t);
}

void transport_close(struct transport *t)
{
    t->ops->close(t);
}

void transport_cancel(struct transport *t)
{
    if (t->ops->cancel)
        t->ops->cancel(t);
    else
        t->ops->close(t);
}
