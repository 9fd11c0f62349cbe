/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP port kept for rank 0's own server (MASTER_PORT): bound, never listened
 * on.  With SO_REUSEADDR on both sides rank 0 can bind and listen on it, while
 * nobody else's bind to port 0 gets it.
 */
#ifndef HVD_AGENT_PORT_H
#define HVD_AGENT_PORT_H

#include "lib/base/error.h"

/* Reserves a port.  0, with *port and in *fd the descriptor that keeps it
 * (close-on-exec); or negative with err set. */
int port_reserve(int *fd, int *port, struct hb_error *err);

#endif
