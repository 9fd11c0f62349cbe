/* SPDX-License-Identifier: Apache-2.0 */
/* Where the status is served; see serve_address.h. */
#include "lib/job/serve/serve_address.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "lib/job/output/xbuf.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 64 };

/* Splits [ADDRESS:]PORT, and removes the brackets of an address of IPv6.  Sets
 * *host to a heap string, or to NULL if there is no address.  Returns the
 * port's text; NULL: it has another form. */
static const char *split(const char *text, char **host)
{
    const char *colon = strrchr(text, ':'), *end;

    *host = NULL;
    if (!colon)
        return text;
    if (text[0] == '[') {
        end = strchr(text, ']');
        if (!end || end + 1 != colon)
            return NULL;
        *host = hb_xasprintf("%.*s", (int)(end - text - 1), text + 1);
    } else {
        if (strchr(text, ':') != colon)
            return NULL;
        *host = hb_xasprintf("%.*s", (int)(colon - text), text);
    }
    return colon + 1;
}

int serve_address_parse(const char *text, struct serve_address *out,
                        struct hb_error *err)
{
    struct serve_address a;
    char *host;
    const char *port = split(text, &host);
    int64_t number = 0;
    int rc = 0;

    if (!port || hb_netaddr_parse(host ? host : "127.0.0.1", &a.host) < 0 ||
        (a.host.family == 6) != (text[0] == '['))
        rc = hb_error_set(err, HVD_EINVAL,
                          "it must be PORT, ADDRESS:PORT or [ADDRESS]:PORT, "
                          "with a numeric address");
    hb_free(host);
    if (rc == 0)
        rc = hb_parse_i64(port, 0, UINT16_MAX, &number, err);
    if (rc < 0)
        return rc;
    a.port = (uint16_t)number;
    *out = a;
    return 0;
}

static uint16_t port_of(const struct sockaddr_storage *at)
{
    return ntohs(
        at->ss_family == AF_INET6
            ? ((const struct sockaddr_in6 *)(const void *)at)->sin6_port
            : ((const struct sockaddr_in *)(const void *)at)->sin_port);
}

int serve_address_listen(struct serve_address *a, struct hb_error *err)
{
    struct sockaddr_storage at;
    socklen_t len = hb_netaddr_to_sockaddr(&a->host, a->port, &at);
    int fd =
        socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, rc;

    if (fd < 0)
        return hb_error_sys(err, errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        rc = hb_error_sys(err, errno, "cannot listen on port %d", a->port);
        close(fd);
        return rc;
    }
    a->port = port_of(&at);
    return fd;
}

void serve_address_url(struct hb_buf *out, const struct serve_address *a,
                       const char *token)
{
    char text[HB_NETADDR_TEXT_MAX];
    int is_v6 = a->host.family == 6;

    hb_must(hb_buf_printf(out, "http://%s%s%s:%d/%s%s", is_v6 ? "[" : "",
                          hb_netaddr_format(&a->host, text), is_v6 ? "]" : "",
                          a->port, token ? "?token=" : "", token ? token : ""));
}
