/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving a port; see port.h. */
#include "lib/agent/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Binds [::]:0 for both families, or 0.0.0.0:0 where there is no IPv6. */
static int bind_any(int family)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    const struct sockaddr *addr = (const struct sockaddr *)&v4;
    socklen_t len = sizeof(v4);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -1;
    if (family == AF_INET6) {
        addr = (const struct sockaddr *)&v6;
        len = sizeof(v6);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, addr, len) == 0)
        return fd;
    close(fd);
    return -1;
}

int port_reserve(int *fd, int *port, struct hb_error *err)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof(bound);
    int f = bind_any(AF_INET6);

    if (f < 0)
        f = bind_any(AF_INET);
    if (f < 0)
        return hb_error_sys(err, errno, "cannot reserve a TCP port");
    if (getsockname(f, (struct sockaddr *)&bound, &len) < 0) {
        int e = errno;

        close(f);
        return hb_error_sys(err, e, "cannot reserve a TCP port");
    }
    *fd = f;
    *port = ntohs(bound.ss_family == AF_INET6
                      ? ((struct sockaddr_in6 *)&bound)->sin6_port
                      : ((struct sockaddr_in *)&bound)->sin_port);
    return 0;
}
