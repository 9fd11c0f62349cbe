/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this host has a fabric: a network that MPIs drive by libraries of
 * their own, and not by TCP. */
#ifndef HVD_AGENT_FABRIC_H
#define HVD_AGENT_FABRIC_H

/* Returns whether the kernel shows a device of a fabric below `root`, which is
 * "" or a fixture. */
int fabric_present(const char *root);

#endif
