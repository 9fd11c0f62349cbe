/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network interfaces of this host, for HELLO: what addresses it has,
 * how fast they are, and whether a device is behind them.
 *
 * `root` stands in for / in tests; "" is the system's.
 */
#ifndef HVD_AGENT_INTERFACES_H
#define HVD_AGENT_INTERFACES_H

#include "lib/protocol/control/control_route.h"

/* Lists IPv4 and IPv6 addresses, except link-local IPv6 ones, which mean
 * nothing to another host; an empty list if they cannot be read.  Beyond
 * CONTROL_INTERFACES_MAX, virtual ones are left out first. */
void interfaces_read(const char *root, struct control_interfaces *out);

/* Returns the speed in Mb/s; 0: unknown, or no such interface. */
int interfaces_speed(const char *root, const char *name);
/* Returns 1 if neither the interface nor any below it is a hardware device. */
int interfaces_virtual(const char *root, const char *name);

/* Returns control_hello.machine: boot id and network namespace (heap). */
char *interfaces_machine(const char *root);
/* Returns control_hello.namespaces (heap). */
char *interfaces_namespaces(const char *root);

#endif
