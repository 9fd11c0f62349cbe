/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The round of messages that finds the routes; see routes.h.  Each step looks
 * at all hosts for the ones that are waited for: rounds are rare and hosts few.
 */
#include "lib/job/route/routes_impl.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* Enough for one lost packet to be sent again (after 1 s, then 2 s); only pairs
 * that do not answer take so long. */
enum { REACH_TIMEOUT_MS = 2500, MEASURE_TIMEOUT_MS = 5000 };

/* ---- Life ---- */

int routes_check_networks(const char *network_interfaces, struct hb_error *err)
{
    struct route_filter filter;
    int rc = route_filter_parse(network_interfaces, &filter, err);

    if (rc == 0)
        route_filter_fini(&filter);
    return rc;
}

int routes_new(const struct routes_config *config, struct routes **out,
               struct hb_error *err)
{
    size_t n = (size_t)config->host_count;
    struct route_filter filter;
    struct routes *r;
    int rc = route_filter_parse(config->network_interfaces, &filter, err);

    if (rc < 0)
        return rc;
    r = hb_xcalloc(1, sizeof(*r));
    r->config = *config;
    r->config.names = NULL;
    r->filter = filter;
    if (config->network_interfaces)
        r->list = hb_xstrdup(config->network_interfaces);
    r->hosts = hb_xcalloc(n, sizeof(*r->hosts));
    r->choice.hosts = hb_xcalloc(n, sizeof(*r->choice.hosts));
    r->choice.count = config->host_count;
    for (size_t i = 0; i < n; i++) {
        r->hosts[i].name = hb_xstrdup(config->names[i]);
        r->hosts[i].measuring = r->hosts[i].measured_by = -1;
        r->choice.hosts[i].interfaces = &r->hosts[i].interfaces;
        r->choice.hosts[i].common = r->choice.hosts[i].popular = -1;
    }
    *out = r;
    return 0;
}

void routes_free(struct routes *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->config.host_count; i++) {
        hb_free(r->hosts[i].name);
        hb_free(r->hosts[i].machine);
        control_interfaces_fini(&r->hosts[i].interfaces);
    }
    route_filter_fini(&r->filter);
    hb_free(r->hosts);
    hb_free(r->choice.hosts);
    hb_free(r->to_measure);
    hb_free(r->list);
    explicit_bzero(r->token, sizeof(r->token));
    hb_free(r);
}

/* ---- What is sent ---- */

static int make_token(struct routes *r, struct hb_error *err)
{
    size_t have = 0;

    while (!r->has_token && have < sizeof(r->token)) {
        ssize_t n = getrandom(r->token + have, sizeof(r->token) - have, 0);

        if (n < 0 && errno != EINTR)
            return hb_error_sys(err, errno, "getrandom");
        have += n > 0 ? (size_t)n : 0;
    }
    r->has_token = 1;
    return 0;
}

static void send_listen(struct routes *r, int host)
{
    struct control_route_listen m = {
        .host = host,
        .reserve_port = r->config.reserve_port && host == 0,
    };
    struct hb_buf frame = HB_BUF_INIT;

    memcpy(m.token, r->token, sizeof(m.token));
    hb_must(control_encode_route_listen(&frame, &m));
    r->config.send(r->config.arg, host, &frame);
    explicit_bzero(hb_buf_data(&frame), hb_buf_len(&frame));
    hb_buf_free(&frame);
    control_route_listen_fini(&m);
}

static void send_probe(struct routes *r, int host,
                       struct control_route_probe *m)
{
    struct hb_buf frame = HB_BUF_INIT;

    hb_must(control_encode_route_probe(&frame, m));
    r->hosts[host].waiting = 1;
    r->config.send(r->config.arg, host, &frame);
    hb_buf_free(&frame);
}

/* Fills t: 1, or 0 if there is nothing to try. */
static int make_target(struct routes *r, int to, const int *candidates,
                       int count, struct control_route_target *t)
{
    if (count == 0)
        return 0;
    t->host = to;
    t->port = r->hosts[to].port;
    t->count = count;
    t->addresses = hb_xcalloc((size_t)count, sizeof(*t->addresses));
    for (int i = 0; i < count; i++)
        t->addresses[i] = r->hosts[to].interfaces.items[candidates[i]].address;
    return 1;
}

static void probe_from(struct routes *r, int from)
{
    struct route_host *h = &r->choice.hosts[from];
    struct control_route_target targets[ROUTE_ALL_PAIRS];
    struct control_route_probe m = {
        .what = CONTROL_PROBE_REACH,
        .timeout_ms = REACH_TIMEOUT_MS,
        .targets = targets,
    };
    int hosts[ROUTE_ALL_PAIRS], candidates[ROUTE_CANDIDATES_MAX];
    int n = route_targets(r->config.host_count, from, hosts);

    for (int i = 0; i < n; i++) {
        int count;

        if (r->choice.hosts[hosts[i]].absent ||
            route_same_machine(&r->choice, from, hosts[i]))
            continue;
        h->tries[h->try_count++] = (struct route_try){.to = hosts[i]};
        count = route_candidates(&r->choice, from, hosts[i], candidates);
        m.count +=
            make_target(r, hosts[i], candidates, count, &targets[m.count]);
    }
    if (m.count > 0)
        send_probe(r, from, &m);
    for (int i = 0; i < m.count; i++)
        hb_free(targets[i].addresses);
}

/* ---- Measuring ---- */

/* Decides which pairs to measure.  With many hosts, only neighbours: else every
 * host would measure host 0. */
static void plan_measures(struct routes *r)
{
    int n = r->config.host_count;

    r->to_measure = hb_xcalloc((size_t)n, (size_t)n);
    for (int from = 0; from < n; from++) {
        const struct route_host *h = &r->choice.hosts[from];

        for (int i = 0; !h->absent && i < h->try_count; i++) {
            int away = (h->tries[i].to - from + n) % n;

            if (h->tries[i].reached &&
                (n <= ROUTE_ALL_PAIRS || away <= ROUTE_RING))
                r->to_measure[from * n + h->tries[i].to] = 1;
        }
    }
    route_choose(&r->choice);
}

static int is_free(const struct routes *r, int host)
{
    return r->hosts[host].measuring < 0 && r->hosts[host].measured_by < 0 &&
           !r->choice.hosts[host].absent;
}

static void measure(struct routes *r, int from, int to)
{
    struct control_route_target target;
    struct control_route_probe m = {
        .what = CONTROL_PROBE_MEASURE,
        .timeout_ms = MEASURE_TIMEOUT_MS,
        .targets = &target,
        .count = 1,
    };
    int address = route_pick(&r->choice, from, to);

    r->to_measure[from * r->config.host_count + to] = 0;
    if (!make_target(r, to, &address, address >= 0, &target))
        return;
    r->hosts[from].measuring = to;
    r->hosts[to].measured_by = from;
    send_probe(r, from, &m);
    hb_free(target.addresses);
}

/* Starts measurements; a host takes part in one at a time. */
static void measure_more(struct routes *r)
{
    int n = r->config.host_count;

    for (int from = 0; from < n; from++)
        for (int to = 0; to < n && is_free(r, from); to++)
            if (r->to_measure[from * n + to] && is_free(r, to))
                measure(r, from, to);
}

static void end_measure(struct routes *r, int from)
{
    int to = r->hosts[from].measuring;

    if (to >= 0)
        r->hosts[to].measured_by = -1;
    r->hosts[from].measuring = -1;
}

/* ---- The round ---- */

int routes_waiting(const struct routes *r, int *first)
{
    int count = 0;

    *first = -1;
    for (int i = 0; i < r->config.host_count; i++) {
        int due =
            r->phase == ROUTES_PORTS ? !r->hosts[i].port : r->hosts[i].waiting;

        if (!due || r->choice.hosts[i].absent)
            continue;
        if (count++ == 0)
            *first = i;
    }
    return count;
}

static int advance(struct routes *r)
{
    int first;

    if (r->phase == ROUTES_PORTS && routes_waiting(r, &first) == 0) {
        r->phase = ROUTES_REACH;
        for (int i = 0; i < r->config.host_count; i++)
            if (!r->choice.hosts[i].absent)
                probe_from(r, i);
    }
    if (r->phase == ROUTES_REACH && routes_waiting(r, &first) == 0) {
        r->phase = r->config.measure ? ROUTES_MEASURE : ROUTES_DONE;
        if (r->config.measure)
            plan_measures(r);
    }
    if (r->phase == ROUTES_MEASURE) {
        measure_more(r);
        if (routes_waiting(r, &first) == 0)
            r->phase = ROUTES_DONE;
    }
    return r->phase == ROUTES_DONE;
}

static void copy_interfaces(const struct control_interfaces *from,
                            struct control_interfaces *to)
{
    to->items = hb_xcalloc((size_t)from->count + 1, sizeof(*to->items));
    to->count = from->count;
    for (int i = 0; i < from->count; i++) {
        to->items[i] = from->items[i];
        to->items[i].name = hb_xstrdup(from->items[i].name);
    }
}

int routes_hello(struct routes *r, int host, const struct control_hello *m,
                 struct hb_error *err)
{
    struct routes_host *h = &r->hosts[host];
    int rc;

    if (h->machine)
        return hb_error_set(err, HVD_EPROTO, "a second hello");
    h->machine = hb_xstrdup(m->machine);
    copy_interfaces(&m->interfaces, &h->interfaces);
    if (r->config.host_count == 1)
        return 0;
    rc = make_token(r, err);
    if (rc == 0)
        send_listen(r, host);
    return rc;
}

static int same_addresses(const struct control_interfaces *a,
                          const struct control_interfaces *b)
{
    if (a->count != b->count)
        return 0;
    for (int i = 0; i < a->count; i++)
        if (a->items[i].index != b->items[i].index ||
            !hb_netaddr_equal(&a->items[i].address, &b->items[i].address))
            return 0;
    return 1;
}

/* Returns whether both hosts are one machine.  Virtual machines that go on from
 * one snapshot of memory differ in their addresses only. */
static int same_machine(const struct routes_host *a,
                        const struct routes_host *b)
{
    return a->machine && strcmp(a->machine, b->machine) == 0 &&
           same_addresses(&a->interfaces, &b->interfaces);
}

/* Gives hosts on one machine the same number. */
static void number_machines(struct routes *r)
{
    for (int i = 0; i < r->config.host_count; i++) {
        int first = 0;

        if (!r->hosts[i].machine || !r->hosts[i].machine[0])
            continue;
        while (!same_machine(&r->hosts[first], &r->hosts[i]))
            first++;
        r->choice.hosts[i].machine = first + 1;
    }
}

static int nothing_matches(const struct routes *r, int host,
                           struct hb_error *err)
{
    const struct control_interfaces *list = &r->hosts[host].interfaces;
    struct hb_buf text = HB_BUF_INIT;
    char address[HB_NETADDR_TEXT_MAX];

    for (int i = 0; i < list->count; i++) {
        hb_netaddr_format(&list->items[i].address, address);
        hb_must(hb_buf_printf(&text, "%s%s %s", i ? ", " : "",
                              list->items[i].name, address));
    }
    hb_error_set(err, HVD_EINVAL,
                 "host %s: --network-interfaces %s matches nothing there; "
                 "it has %.300s",
                 r->hosts[host].name, r->list,
                 list->count ? hb_buf_data(&text) : "no address");
    hb_buf_free(&text);
    return -HVD_EINVAL;
}

static int filter_host(struct routes *r, int host, struct hb_error *err)
{
    struct route_host *h = &r->choice.hosts[host];

    for (int i = 0; i < h->interfaces->count; i++)
        if ((h->interfaces->items[i].flags & CONTROL_INTERFACE_UP) &&
            route_filter_match(&r->filter, &h->interfaces->items[i]))
            h->usable |= UINT64_C(1) << i;
    if (r->filter.count > 0 && h->usable == 0 && !h->absent)
        return nothing_matches(r, host, err);
    return 0;
}

int routes_begin(struct routes *r, struct hb_error *err)
{
    int rc = 0;

    number_machines(r);
    for (int i = 0; rc == 0 && i < r->config.host_count; i++)
        rc = filter_host(r, i, err);
    if (rc < 0)
        return rc;
    r->phase = r->config.host_count == 1 ? ROUTES_DONE : ROUTES_PORTS;
    return advance(r);
}

int routes_absent(struct routes *r, int host)
{
    r->choice.hosts[host].absent = 1;
    r->hosts[host].waiting = 0;
    end_measure(r, host);
    return advance(r);
}

/* ---- What agents say ---- */

static int on_port(struct routes *r, int host, const struct frame *f,
                   struct hb_error *err)
{
    struct control_route_port m;
    int rc = control_decode_route_port(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (!r->hosts[host].machine || r->hosts[host].port)
        return hb_error_set(err, HVD_EPROTO, "a port that nobody asked for");
    if (r->config.reserve_port && host == 0 && !m.reserved)
        return hb_error_set(err, HVD_EPROTO, "no port for rank 0");
    r->hosts[host].port = m.port;
    if (host == 0)
        r->reserved_port = m.reserved;
    control_route_port_fini(&m);
    return advance(r);
}

/* Converts an answer's address to an index into the target's interfaces; -1 if
 * it was not asked for. */
static int asked_for(const struct routes *r, int from,
                     const struct control_route_answer *a)
{
    int candidates[ROUTE_CANDIDATES_MAX], count;

    if (r->phase == ROUTES_MEASURE)
        return a->host == r->hosts[from].measuring && a->address == 0
                   ? route_pick(&r->choice, from, a->host)
                   : -1;
    if (!route_find_try(&r->choice, from, a->host))
        return -1;
    count = route_candidates(&r->choice, from, a->host, candidates);
    return a->address < count ? candidates[a->address] : -1;
}

static int take_answer(struct routes *r, int from,
                       const struct control_route_answer *a,
                       struct hb_error *err)
{
    int address = asked_for(r, from, a);
    struct route_try *t;

    if (address < 0)
        return hb_error_set(err, HVD_EPROTO,
                            "a route to host %d that was not tried", a->host);
    t = (struct route_try *)route_find_try(&r->choice, from, a->host);
    t->reached |= UINT64_C(1) << address;
    t->rtt_us = a->rtt_us;
    t->bytes_per_s = a->bytes_per_s;
    return 0;
}

static int on_result(struct routes *r, int host, const struct frame *f,
                     struct hb_error *err)
{
    struct control_route_result m;
    int rc = control_decode_route_result(f->payload, f->len, &m, err);

    if (rc < 0)
        return rc;
    if (!r->hosts[host].waiting)
        rc = hb_error_set(err, HVD_EPROTO, "routes that nobody asked for");
    for (int i = 0; rc == 0 && i < m.count; i++)
        rc = take_answer(r, host, &m.answers[i], err);
    control_route_result_fini(&m);
    if (rc < 0)
        return rc;
    r->hosts[host].waiting = 0;
    end_measure(r, host);
    return advance(r);
}

int routes_frame(struct routes *r, int host, const struct frame *f,
                 struct hb_error *err)
{
    if (f->type == CONTROL_ROUTE_PORT)
        return on_port(r, host, f, err);
    return on_result(r, host, f, err);
}
