/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network interfaces of this host, for HELLO: what addresses it has,
 * how fast they are, and whether a device is behind them.
 *
 * `root` stands in for / in tests; "" is the system's.
 */
#ifndef HVD_AGENT_INTERFACES_H
#define HVD_AGENT_INTERFACES_H

#include "lib/protocol/control_route.h"

/* IPv4 and IPv6 addresses without those that mean nothing to another host
 * (link-local IPv6); an empty list when they cannot be read.  Of more than
 * CONTROL_INTERFACES_MAX, virtual ones are left out first. */
void interfaces_read(const char *root, struct control_interfaces *out);

/* In Mb/s; 0: unknown, or no such interface. */
int interfaces_speed(const char *root, const char *name);
/* 1 when neither it nor anything below it is a device of the machine. */
int interfaces_virtual(const char *root, const char *name);

/* control_hello.machine: boot and network namespace.  A heap string. */
char *interfaces_machine(const char *root);

#endif
