/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where `hvdrun --http` listens: [ADDRESS:]PORT, of which the address is
 * numeric, an IPv6 one in brackets, and 127.0.0.1 if it is left out.
 */
#ifndef HVD_JOB_SERVE_ADDRESS_H
#define HVD_JOB_SERVE_ADDRESS_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/base/sys/netaddr.h"

struct serve_address {
    struct hb_netaddr host;
    uint16_t port; /* 0: any that is free */
};

/* Parses an address.  0, or -HVD_EINVAL with err set and *out untouched. */
int serve_address_parse(const char *text, struct serve_address *out,
                        struct hb_error *err);
/* Opens a socket that listens at the address, and sets a->port to its port.
 * Returns the descriptor, or negative with err set. */
int serve_address_listen(struct serve_address *a, struct hb_error *err);
/* Appends the URL of the page; `token` may be NULL. */
void serve_address_url(struct hb_buf *out, const struct serve_address *a,
                       const char *token);

#endif
