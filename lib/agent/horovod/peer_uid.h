/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells which user is at the other end of a TCP connection over 127.0.0.1: asks
 * the kernel for the owner of that socket (sock_diag(7)), or reads
 * /proc/net/tcp where the kernel lacks sock_diag.
 */
#ifndef HVD_AGENT_PEER_UID_H
#define HVD_AGENT_PEER_UID_H

#include <netinet/in.h>
#include <sys/types.h>

struct peer_uid {
    int netlink; /* -1: not yet open, or not available */
    int no_netlink;
};

#define PEER_UID_INIT \
    {                 \
        -1, 0         \
    }

/* Sets *uid to the owner of the socket that `fd`, whose own address is `own`,
 * is connected to at `peer`.  0, or -1 if it cannot be told: above all, if that
 * socket is no longer open. */
int peer_uid_find(struct peer_uid *p, int fd, const struct sockaddr_in *own,
                  const struct sockaddr_in *peer, uid_t *uid);
void peer_uid_fini(struct peer_uid *p);

#endif
