/* SPDX-License-Identifier: Apache-2.0 */
/* The implementation of a transport: its struct begins with a struct transport
 * whose ops point to its functions. */
#ifndef HVD_TRANSPORT_IMPL_H
#define HVD_TRANSPORT_IMPL_H

#include "lib/transport/transport.h"

struct transport_ops {
    int (*write)(struct transport *t, const void *bytes, size_t len);
    size_t (*write_queued)(const struct transport *t);
    void (*close)(struct transport *t);
    void (*cancel)(struct transport *t); /* NULL: close is quick */
};

struct transport {
    const struct transport_ops *ops;
};

#endif
