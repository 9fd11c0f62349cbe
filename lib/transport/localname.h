/* SPDX-License-Identifier: Apache-2.0 */
/* Which host names mean this machine, addresses of its interfaces
 * included. */
#ifndef HVD_TRANSPORT_LOCALNAME_H
#define HVD_TRANSPORT_LOCALNAME_H

/* As hosts_name_is_local, and 1 for a numeric address (without brackets,
 * an IPv6 zone allowed) that one of this machine's interfaces has, and for a
 * name that /etc/hosts gives such an IPv4 address.  Asks no server. */
int transport_name_is_local(const char *name, const char *hostname);

#endif
