/* SPDX-License-Identifier: Apache-2.0 */
/* Which host names mean this machine, including addresses of its interfaces. */
#ifndef HVD_TRANSPORT_LOCALNAME_H
#define HVD_TRANSPORT_LOCALNAME_H

/* Returns 1 where hosts_name_is_local does, but also for a numeric address
 * (without brackets, an IPv6 zone allowed) of one of this machine's interfaces,
 * and for a name to which /etc/hosts gives such an IPv4 address.  Asks no
 * server. */
int transport_name_is_local(const char *name, const char *hostname);

#endif
