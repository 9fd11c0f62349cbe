/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lookup of peer_uid.h.
 *
 * A socket that its process has closed may still be connected; the kernel then
 * gives 0 as its owner.  Its inode is 0, too, and only that tells it from a
 * socket of root.  A connected pair of addresses is used by one socket at a
 * time, so as long as `fd` is connected the answer is about its peer.
 */
#include "lib/agent/horovod/peer_uid.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The two ends of the connection. */
struct ends {
    const struct sockaddr_in *peer, *own;
};

static int is_connected(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);

    memset(&info, 0, sizeof(info));
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           (info.tcpi_state == TCP_ESTABLISHED ||
            info.tcpi_state == TCP_CLOSE_WAIT);
}

/* ---- sock_diag ---- */

static int ask_kernel(int netlink, const struct ends *e)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 request;
    } m = {
        .header = {.nlmsg_len = sizeof(m),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = AF_INET,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_states = UINT32_MAX,
                    .id = {.idiag_sport = e->peer->sin_port,
                           .idiag_dport = e->own->sin_port,
                           .idiag_src = {e->peer->sin_addr.s_addr},
                           .idiag_dst = {e->own->sin_addr.s_addr},
                           .idiag_cookie = {INET_DIAG_NOCOOKIE,
                                            INET_DIAG_NOCOOKIE}}},
    };

    return send(netlink, &m, sizeof(m), 0) == (ssize_t)sizeof(m) ? 0 : -1;
}

/* Reads the kernel's answer, which is there when the request was sent: 1 with
 * *uid, 0 if there is no such socket, -1 if the kernel cannot tell. */
static int read_answer(int netlink, const struct ends *e, uid_t *uid)
{
    union {
        struct nlmsghdr header;
        char bytes[4096];
    } in;
    ssize_t n = recv(netlink, &in, sizeof(in), MSG_DONTWAIT);
    const struct inet_diag_msg *found;
    const struct nlmsgerr *failed;

    if (n < 0 || !NLMSG_OK(&in.header, (size_t)n))
        return -1;
    if (in.header.nlmsg_type == NLMSG_ERROR) {
        failed = NLMSG_DATA(&in.header);
        return in.header.nlmsg_len >= NLMSG_LENGTH(sizeof(*failed)) &&
                       failed->error == -ENOENT
                   ? 0
                   : -1;
    }
    found = NLMSG_DATA(&in.header);
    if (in.header.nlmsg_len < NLMSG_LENGTH(sizeof(*found)))
        return -1;
    /* Without a connected socket it finds one that listens on that port. */
    if (found->id.idiag_dport != e->own->sin_port ||
        found->id.idiag_sport != e->peer->sin_port || found->idiag_inode == 0)
        return 0;
    *uid = found->idiag_uid;
    return 1;
}

/* Returns whether an error may pass: it is no reason to give up netlink. */
static int is_shortage(int e)
{
    return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM;
}

static int find_by_netlink(struct peer_uid *p, const struct ends *e, uid_t *uid)
{
    int rc;

    if (p->no_netlink)
        return -1;
    errno = 0;
    if (p->netlink < 0)
        p->netlink =
            socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    rc = p->netlink < 0 || ask_kernel(p->netlink, e) < 0
             ? -1
             : read_answer(p->netlink, e, uid);
    if (rc < 0) {
        p->no_netlink = !is_shortage(errno);
        peer_uid_fini(p);
    }
    return rc;
}

/* ---- /proc ---- */

/* Finds the socket, with the results of read_answer. */
static int find_in_proc(const struct ends *e, uid_t *uid)
{
    FILE *f = fopen("/proc/net/tcp", "re");
    char line[512];
    int rc = 0;

    if (!f)
        return -1;
    while (rc == 0 && fgets(line, sizeof(line), f)) {
        uint32_t from, to, from_port, to_port, owner;
        uint64_t inode;

        if (sscanf(line,
                   " %*u: %8" SCNx32 ":%4" SCNx32 " %8" SCNx32 ":%4" SCNx32
                   " %*s %*s %*s %*s %" SCNu32 " %*u %" SCNu64,
                   &from, &from_port, &to, &to_port, &owner, &inode) == 6 &&
            from == e->peer->sin_addr.s_addr && to == e->own->sin_addr.s_addr &&
            from_port == ntohs(e->peer->sin_port) &&
            to_port == ntohs(e->own->sin_port) && inode != 0) {
            *uid = owner;
            rc = 1;
        }
    }
    fclose(f);
    return rc;
}

/* ---- Public ---- */

int peer_uid_find(struct peer_uid *p, int fd, const struct sockaddr_in *own,
                  const struct sockaddr_in *peer, uid_t *uid)
{
    const struct ends e = {peer, own};
    uid_t found;
    int rc;

    rc = find_by_netlink(p, &e, &found);
    if (rc < 0)
        rc = find_in_proc(&e, &found);
    if (rc <= 0 || !is_connected(fd))
        return -1;
    *uid = found;
    return 0;
}

void peer_uid_fini(struct peer_uid *p)
{
    if (p->netlink >= 0)
        close(p->netlink);
    p->netlink = -1;
}
