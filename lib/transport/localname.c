/* SPDX-License-Identifier: Apache-2.0 */
/* Names and addresses of this machine; see localname.h. */
#include "lib/transport/localname.h"

#include "lib/hosts/hostlist.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>
#include <strings.h>

struct address {
    int family;
    unsigned char bytes[16];
    size_t len;
};

/* Parses a numeric address: 1, or 0 if `name` is not numeric. */
static int parse_address(const char *name, struct address *a)
{
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    size_t len = strcspn(name, "%");

    if (len >= sizeof(text))
        return 0;
    memcpy(text, name, len);
    text[len] = '\0';
    a->family = strchr(text, ':') ? AF_INET6 : AF_INET;
    a->len = a->family == AF_INET6 ? sizeof(struct in6_addr)
                                   : sizeof(struct in_addr);
    return inet_pton(a->family, text, a->bytes) == 1;
}

static int has_address(const struct ifaddrs *i, const struct address *a)
{
    const void *bytes;

    if (!i->ifa_addr || i->ifa_addr->sa_family != a->family)
        return 0;
    if (a->family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)
                     ->sin6_addr;
    else
        bytes =
            &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
    return memcmp(bytes, a->bytes, a->len) == 0;
}

static int names(const struct hostent *h, const char *name)
{
    if (strcasecmp(h->h_name, name) == 0)
        return 1;
    for (char **alias = h->h_aliases; *alias; alias++)
        if (strcasecmp(*alias, name) == 0)
            return 1;
    return 0;
}

static int is_loopback(const struct address *a)
{
    return a->family == AF_INET && a->bytes[0] == 127;
}

/* Finds a name in /etc/hosts, which gethostent reads without asking a server,
 * which could block.  A name that only a server knows counts as remote. */
static int listed_address(const char *name, struct address *a)
{
    struct hostent *h;
    int found = 0;

    sethostent(1);
    while (!found && (h = gethostent()))
        if (h->h_addrtype == AF_INET && h->h_addr_list[0] && names(h, name)) {
            a->family = AF_INET;
            a->len = sizeof(struct in_addr);
            memcpy(a->bytes, h->h_addr_list[0], a->len);
            found = 1;
        }
    endhostent();
    return found;
}

int transport_name_is_local(const char *name, const char *hostname)
{
    struct address a;
    struct ifaddrs *list, *i;
    int found = 0;

    if (hosts_name_is_local(name, hostname))
        return 1;
    if (!parse_address(name, &a) && !listed_address(name, &a))
        return 0;
    if (is_loopback(&a))
        return 1;
    if (getifaddrs(&list) < 0)
        return 0;
    for (i = list; i && !found; i = i->ifa_next)
        found = has_address(i, &a);
    freeifaddrs(list);
    return found;
}
