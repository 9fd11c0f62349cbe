/* SPDX-License-Identifier: Apache-2.0 */
/* The results of the routes, for ranks and for people; see routes.h. */
#include "lib/job/route/routes_impl.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <string.h>

enum { ADDRESSES_SHOWN = 4 };

/* ---- Pairs without a way ---- */

static int pair_fails(const struct routes *r, int from, int to)
{
    const struct route_try *t = route_find_try(&r->choice, from, to);

    return t && !t->reached && !r->choice.hosts[from].absent &&
           !r->choice.hosts[to].absent;
}

static int count_failing(const struct routes *r, int *from, int *to)
{
    int n = r->config.host_count, count = 0;

    for (int a = 0; a < n; a++)
        for (int i = 0; i < r->choice.hosts[a].try_count; i++) {
            int b = r->choice.hosts[a].tries[i].to;

            if (!pair_fails(r, a, b))
                continue;
            if (count++ == 0) {
                *from = a;
                *to = b;
            }
        }
    return count;
}

/* Counts the pairs that fail and have this host. */
static int count_failing_of(const struct routes *r, int host)
{
    int count = 0;

    for (int i = 0; i < r->config.host_count; i++)
        count += pair_fails(r, host, i) + pair_fails(r, i, host);
    return count;
}

int routes_culprit(const struct routes *r,
                   int (*may_leave)(void *arg, int host), void *arg)
{
    int from = 0, to = 0, allows_to;

    if (count_failing(r, &from, &to) == 0)
        return -1;
    allows_to = may_leave(arg, to);
    if (!may_leave(arg, from))
        return allows_to ? to : -1;
    return allows_to && count_failing_of(r, to) > count_failing_of(r, from)
               ? to
               : from;
}

/* Appends the first addresses tried; returns how many there are. */
static int put_tried(const struct routes *r, int from, int to,
                     struct hb_buf *text)
{
    int candidates[ROUTE_CANDIDATES_MAX];
    int count = route_candidates(&r->choice, from, to, candidates);
    char address[HB_NETADDR_TEXT_MAX];

    for (int i = 0; i < count && i < ADDRESSES_SHOWN; i++) {
        const struct control_interface *there =
            &r->hosts[to].interfaces.items[candidates[i]];

        hb_netaddr_format(&there->address, address);
        hb_must(hb_buf_printf(text, "%s%s", i ? ", " : "", address));
    }
    if (count > ADDRESSES_SHOWN)
        xbuf_puts(text, ", ...");
    return count;
}

static void put_more(const struct routes *r, int from, int to, int failing,
                     struct hb_buf *text)
{
    const struct route_try *back = route_find_try(&r->choice, to, from);

    if (back && back->reached)
        hb_must(hb_buf_printf(text, ", though %s can connect to %s",
                              r->hosts[to].name, r->hosts[from].name));
    failing -= 1 + (back && !back->reached);
    if (failing > 0)
        hb_must(hb_buf_printf(text, "; nor can %d other pair%s", failing,
                              failing == 1 ? "" : "s"));
}

static int no_way(const struct routes *r, int from, int to, int failing,
                  struct hb_error *err)
{
    struct hb_buf tried = HB_BUF_INIT, more = HB_BUF_INIT;

    if (put_tried(r, from, to, &tried) == 0) {
        hb_error_set(err, HVD_ENOENT,
                     "host %s: it has no address by which host %s could "
                     "reach it%s%s; give it one, or other networks with "
                     "--network-interfaces",
                     r->hosts[to].name, r->hosts[from].name,
                     r->list ? " within " : "", r->list ? r->list : "");
    } else {
        put_more(r, from, to, failing, &more);
        hb_error_set(err, HVD_ENOENT,
                     "host %s cannot connect to host %s (tried %s)%s; let "
                     "TCP pass between them (firewall?), or choose a network "
                     "with --network-interfaces",
                     r->hosts[from].name, r->hosts[to].name,
                     hb_buf_data(&tried), hb_buf_data(&more));
    }
    hb_buf_free(&tried);
    hb_buf_free(&more);
    return -HVD_ENOENT;
}

int routes_finish(struct routes *r, struct hb_error *err)
{
    int from = 0, to = 0;
    int failing = r->config.measure ? 0 : count_failing(r, &from, &to);

    if (failing > 0)
        return no_way(r, from, to, failing, err);
    route_choose(&r->choice);
    return 0;
}

/* ---- For ranks ---- */

static const struct control_interface *chosen(const struct routes *r, int from,
                                              int to)
{
    int i = route_pick(&r->choice, from, to);

    return i < 0 ? NULL : &r->hosts[to].interfaces.items[i];
}

static const char *address_of(const struct control_interface *i,
                              char text[HB_NETADDR_TEXT_MAX])
{
    text[0] = '\0';
    return i ? hb_netaddr_format(&i->address, text) : text;
}

int routes_peers(const struct routes *r, int host, struct hb_strv *peers)
{
    char text[HB_NETADDR_TEXT_MAX];
    int rc = 0;

    for (int to = 0; rc == 0 && to < r->config.host_count; to++)
        rc = hb_strv_add(peers, address_of(chosen(r, host, to), text));
    return rc;
}

int routes_same_peers(const struct routes *r, int a, int b)
{
    for (int to = 0; to < r->config.host_count; to++)
        if (route_pick(&r->choice, a, to) != route_pick(&r->choice, b, to))
            return 0;
    return 1;
}

/* Adds a name unless it is there. */
static int add_name(struct hb_strv *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0)
            return 0;
    return hb_strv_add(names, name);
}

/* Lists the interfaces over which others reach the host; in a job with one
 * host, those that the user allowed. */
static int carriers(const struct routes *r, int host, struct hb_strv *names)
{
    const struct route_host *h = &r->choice.hosts[host];
    int rc = 0;

    if (h->common >= 0)
        return add_name(names, h->interfaces->items[h->common].name);
    for (int from = 0; rc == 0 && from < r->config.host_count; from++) {
        const struct control_interface *i = chosen(r, from, host);

        if (i && from != host)
            rc = add_name(names, i->name);
    }
    for (int i = 0; rc == 0 && r->config.host_count == 1 &&
                    r->filter.count > 0 && i < h->interfaces->count;
         i++)
        if (h->usable & UINT64_C(1) << i)
            rc = add_name(names, h->interfaces->items[i].name);
    return rc;
}

/* Sets a variable unless the user has. */
static int set_new(struct hb_strv *env, const struct hb_strv *common,
                   const char *name, const char *value)
{
    return hb_env_get(common, name) ? 0 : hb_env_set(env, name, value);
}

static int set_interfaces(const struct routes *r, int host,
                          const struct hb_strv *common, struct hb_strv *env)
{
    struct hb_strv names = HB_STRV_INIT;
    struct hb_buf list = HB_BUF_INIT;
    int rc = carriers(r, host, &names);

    /* NCCL takes names as prefixes unless they begin with "=". */
    for (size_t i = 0; rc == 0 && i < names.count; i++)
        rc = hb_buf_printf(&list, "%s%s", i ? "," : "=", names.items[i]);
    if (rc == 0 && names.count > 0)
        rc = set_new(env, common, "NCCL_SOCKET_IFNAME", hb_buf_data(&list));
    if (rc == 0 && names.count > 0)
        rc = set_new(env, common, "GLOO_SOCKET_IFNAME", hb_buf_data(&list) + 1);
    if (rc == 0 && names.count > 0 && !hb_env_get(common, "HVD_GLOO_IFACE"))
        rc = set_new(env, common, "HOROVOD_GLOO_IFACE", names.items[0]);
    hb_buf_free(&list);
    hb_strv_free(&names);
    return rc;
}

static int set_master(const struct routes *r, int host,
                      const struct hb_strv *common, struct hb_strv *env)
{
    const struct route_host *first = &r->choice.hosts[0];
    const struct control_interface *i = chosen(r, host, 0);
    char text[HB_NETADDR_TEXT_MAX];
    int rc = 0;

    /* If others use several addresses of host 0, rank 0 takes the most
     * popular. */
    if (host == 0 && first->popular >= 0)
        i = &first->interfaces->items[first->popular];
    if (i)
        rc = set_new(env, common, "MASTER_ADDR", address_of(i, text));
    if (rc == 0 && r->reserved_port && !hb_env_get(common, "MASTER_PORT"))
        rc = hb_env_setf(env, "MASTER_PORT", "%d", r->reserved_port);
    return rc;
}

int routes_env(const struct routes *r, int host, const struct hb_strv *common,
               struct hb_strv *env)
{
    int rc = set_interfaces(r, host, common, env);

    if (rc == 0 && r->config.host_count > 1)
        rc = set_master(r, host, common, env);
    return rc;
}

/* ---- For doctor ---- */

void routes_pair(const struct routes *r, int from, int to,
                 struct routes_pair *out)
{
    const struct route_try *t = route_find_try(&r->choice, from, to);
    const struct control_interface *i = chosen(r, from, to);

    memset(out, 0, sizeof(*out));
    out->reached = -1;
    out->same_machine = route_same_machine(&r->choice, from, to);
    if (out->same_machine)
        out->reached = 1;
    if (t) {
        out->reached = t->reached != 0;
        out->rtt_us = t->rtt_us;
        out->bytes_per_s = t->bytes_per_s;
    }
    if (i) {
        out->address = i->address;
        out->name = i->name;
    }
}
