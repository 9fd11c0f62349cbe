/* SPDX-License-Identifier: Apache-2.0 */
/* Numeric addresses; see netaddr.h. */
#include "lib/base/sys/netaddr.h"

#include "lib/base/hvd_status.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static int native_family(const struct hb_netaddr *a)
{
    return a->family == 6 ? AF_INET6 : AF_INET;
}

int hb_netaddr_parse(const char *s, struct hb_netaddr *a)
{
    struct hb_netaddr made = {0};

    made.family = strchr(s, ':') ? 6 : 4;
    if (inet_pton(native_family(&made), s, made.bytes) != 1)
        return -HVD_EINVAL;
    *a = made;
    return 0;
}

const char *hb_netaddr_format(const struct hb_netaddr *a,
                              char text[HB_NETADDR_TEXT_MAX])
{
    text[0] = '\0';
    if (a->family)
        inet_ntop(native_family(a), a->bytes, text, HB_NETADDR_TEXT_MAX);
    return text;
}

int hb_netaddr_bits(const struct hb_netaddr *a)
{
    if (a->family == 0)
        return 0;
    return a->family == 6 ? 128 : 32;
}

int hb_netaddr_equal(const struct hb_netaddr *a, const struct hb_netaddr *b)
{
    return a->family == b->family &&
           memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

int hb_netaddr_same_net(const struct hb_netaddr *a, const struct hb_netaddr *b,
                        int prefix)
{
    int whole = prefix / 8, rest = prefix % 8;

    if (a->family != b->family || prefix < 0 || prefix > hb_netaddr_bits(a))
        return 0;
    if (memcmp(a->bytes, b->bytes, (size_t)whole) != 0)
        return 0;
    return rest == 0 || (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0;
}

int hb_netaddr_is_loopback(const struct hb_netaddr *a)
{
    static const uint8_t one[16] = {[15] = 1};

    if (a->family == 6)
        return memcmp(a->bytes, one, sizeof(one)) == 0;
    return a->family == 4 && a->bytes[0] == 127;
}

int hb_netaddr_is_link_local6(const struct hb_netaddr *a)
{
    return a->family == 6 && a->bytes[0] == 0xfe &&
           (a->bytes[1] & 0xc0) == 0x80;
}

socklen_t hb_netaddr_to_sockaddr(const struct hb_netaddr *a, uint16_t port,
                                 struct sockaddr_storage *out)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;

    memset(out, 0, sizeof(*out));
    if (a->family == 6) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        memcpy(&v6->sin6_addr, a->bytes, sizeof(v6->sin6_addr));
        return sizeof(*v6);
    }
    if (a->family != 4)
        return 0;
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    memcpy(&v4->sin_addr, a->bytes, sizeof(v4->sin_addr));
    return sizeof(*v4);
}

int hb_netaddr_from_sockaddr(const struct sockaddr *sa, struct hb_netaddr *a)
{
    const struct sockaddr_in6 *v6 = (const void *)sa;
    const struct sockaddr_in *v4 = (const void *)sa;

    if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
        return -HVD_EINVAL;
    memset(a, 0, sizeof(*a));
    a->family = sa->sa_family == AF_INET6 ? 6 : 4;
    if (a->family == 6)
        memcpy(a->bytes, &v6->sin6_addr, sizeof(v6->sin6_addr));
    else
        memcpy(a->bytes, &v4->sin_addr, sizeof(v4->sin_addr));
    return 0;
}
