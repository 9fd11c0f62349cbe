/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numeric IPv4 and IPv6 addresses, without ports and zones.  Pure: no name
 * is looked up.
 */
#ifndef HB_NETADDR_H
#define HB_NETADDR_H

#include <stdint.h>
#include <sys/socket.h>

struct hb_netaddr {
    uint8_t family;    /* 4 or 6; 0: none */
    uint8_t bytes[16]; /* network order; IPv4 has 4, then zeros */
};

enum { HB_NETADDR_TEXT_MAX = 46 };

/* Parses an address.  0, or -HVD_EINVAL with *a untouched. */
int hb_netaddr_parse(const char *s, struct hb_netaddr *a);
/* Formats an address into text and returns it; "" for family 0. */
const char *hb_netaddr_format(const struct hb_netaddr *a,
                              char text[HB_NETADDR_TEXT_MAX]);

int hb_netaddr_bits(const struct hb_netaddr *a); /* 32, 128, or 0 */
int hb_netaddr_equal(const struct hb_netaddr *a, const struct hb_netaddr *b);
/* Returns 1 if both have one family and agree in the first `prefix` bits. */
int hb_netaddr_same_net(const struct hb_netaddr *a, const struct hb_netaddr *b,
                        int prefix);
int hb_netaddr_is_loopback(const struct hb_netaddr *a);
/* Returns whether the address is an IPv6 link-local one, which means nothing
 * without its interface. */
int hb_netaddr_is_link_local6(const struct hb_netaddr *a);

/* Converts to a socket address and returns its length, 0 for family 0; or from
 * one and returns 0, or -HVD_EINVAL for another family. */
socklen_t hb_netaddr_to_sockaddr(const struct hb_netaddr *a, uint16_t port,
                                 struct sockaddr_storage *out);
int hb_netaddr_from_sockaddr(const struct sockaddr *sa, struct hb_netaddr *a);

#endif
