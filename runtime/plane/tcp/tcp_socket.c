/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, listeners and options of TCP sockets. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/plane/tcp/tcp_impl.h"

enum {
    BACKLOG = 1024,
    /* TCP keepalive detects that a peer's machine has vanished.  The kernel
     * sends probes after half of the allowed silence, then every sixth of it.
     * The number of probes lets is_silent in tcp.c, which also informs the
     * agent, end the connection before the kernel does. */
    KEEP_COUNT = 10,
    KEEP_MAX_S = 32767, /* the kernel's limit */
};

int tcp_to_sockaddr(const char *address, uint16_t port,
                    struct sockaddr_storage *sa, socklen_t *len)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char service[8];

    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(address, service, &hints, &found) != 0)
        return -HVD_EINVAL;
    memcpy(sa, found->ai_addr, found->ai_addrlen);
    *len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

static int listen_on(const char *address, uint16_t *port)
{
    struct sockaddr_storage sa;
    socklen_t len;
    int fd, off = 0;

    memset(&sa, 0, sizeof(sa));
    if (tcp_to_sockaddr(address, 0, &sa, &len) < 0)
        return -1;
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* "::" accepts IPv4, too. */
    if (sa.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (struct sockaddr *)&sa, len) == 0 &&
        listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&sa, &len) == 0) {
        *port = sa.ss_family == AF_INET6
                    ? ntohs(((struct sockaddr_in6 *)&sa)->sin6_port)
                    : ntohs(((struct sockaddr_in *)&sa)->sin_port);
        return fd;
    }
    close(fd);
    return -1;
}

int hvd__tcp_listen(const char *address, int *fd, uint16_t *port,
                    struct hb_error *err)
{
    const char *tries[] = {address, "::", "0.0.0.0"};

    for (int i = address[0] ? 0 : 1; i < 3; i++) {
        *fd = listen_on(tries[i], port);
        if (*fd >= 0)
            return 0;
    }
    return hb_error_sys(err, errno, "listen for the other hosts' ranks");
}

static void set_option(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof(value));
}

static int keep_seconds(uint32_t s)
{
    return s < 1 ? 1 : s > KEEP_MAX_S ? KEEP_MAX_S : (int)s;
}

void tcp_tune(int fd, uint32_t silence_ms)
{
    uint32_t s = silence_ms / 1000;

    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (!silence_ms)
        return;
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, keep_seconds(s / 2));
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, keep_seconds(s / 6));
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
}
