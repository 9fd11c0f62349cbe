/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces may be used; see route_filter.h. */
#include "lib/job/route/route_filter.h"

#include "lib/base/alloc.h"
#include "lib/base/strv.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

enum { NAME_MAX_LEN = 15 }; /* of an interface in Linux */

/* Parses a decimal number of 0 .. most, or returns -1. */
static int parse_prefix(const char *s, int most)
{
    int v = 0;

    if (!*s)
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        v = 10 * v + (*s - '0');
        if (v > most)
            return -1;
    }
    return v;
}

static int parse_network(const char *item, struct route_filter_item *out,
                         struct hb_error *err)
{
    const char *slash = strchr(item, '/');
    char *address = hb_strndup(item, (size_t)(slash - item));
    int rc = address ? hb_netaddr_parse(address, &out->net) : -HVD_ENOMEM;

    hb_free(address);
    out->prefix =
        rc == 0 ? parse_prefix(slash + 1, hb_netaddr_bits(&out->net)) : -1;
    if (rc == -HVD_ENOMEM)
        hb_die_oom();
    if (out->prefix < 0)
        return hb_error_set(err, HVD_EINVAL,
                            "--network-interfaces: '%s' is not a network; "
                            "write it as 10.1.0.0/16 or fd00::/8",
                            item);
    return 0;
}

static int parse_name(const char *item, struct route_filter_item *out,
                      struct hb_error *err)
{
    if (!*item)
        return hb_error_set(err, HVD_EINVAL,
                            "--network-interfaces: an item is empty; give "
                            "names and networks, separated by commas");
    if (strlen(item) > NAME_MAX_LEN || strpbrk(item, " \t\n:"))
        return hb_error_set(err, HVD_EINVAL,
                            "--network-interfaces: '%s' is neither the name "
                            "of an interface nor a network",
                            item);
    out->name = hb_xstrdup(item);
    return 0;
}

static int parse_item(const char *item, struct route_filter_item *out,
                      struct hb_error *err)
{
    if (strchr(item, '/'))
        return parse_network(item, out, err);
    if (hb_netaddr_parse(item, &out->net) == 0) {
        out->prefix = hb_netaddr_bits(&out->net);
        return 0;
    }
    return parse_name(item, out, err);
}

int route_filter_parse(const char *list, struct route_filter *f,
                       struct hb_error *err)
{
    struct hb_strv items = HB_STRV_INIT;
    int rc = 0;

    memset(f, 0, sizeof(*f));
    if (!list)
        return 0;
    hb_must(hb_strv_split(&items, list, ","));
    f->items = hb_xcalloc(items.count, sizeof(*f->items));
    for (size_t i = 0; rc == 0 && i < items.count; i++) {
        rc = parse_item(items.items[i], &f->items[f->count], err);
        f->count += rc == 0;
    }
    hb_strv_free(&items);
    if (rc < 0)
        route_filter_fini(f);
    return rc;
}

void route_filter_fini(struct route_filter *f)
{
    for (int i = 0; i < f->count; i++)
        hb_free(f->items[i].name);
    hb_free(f->items);
    memset(f, 0, sizeof(*f));
}

/* Returns whether the item names the interface; "eth0" also matches the alias
 * "eth0:1". */
static int same_name(const char *item, const char *name)
{
    size_t len = strlen(item);

    return strncmp(item, name, len) == 0 && (!name[len] || name[len] == ':');
}

int route_filter_match(const struct route_filter *f,
                       const struct control_interface *i)
{
    for (int k = 0; k < f->count; k++) {
        const struct route_filter_item *item = &f->items[k];

        if (item->name
                ? same_name(item->name, i->name)
                : hb_netaddr_same_net(&i->address, &item->net, item->prefix))
            return 1;
    }
    return f->count == 0;
}
