/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hvdrun doctor`, step by step: connect; resolve names here while the hosts
 * examine themselves; compare clocks; let the hosts connect to each other;
 * report.  See doctor.h.
 */
#include "cmd/hvdrun/tools/doctor.h"

#include "cmd/hvdrun/run_job.h"
#include "cmd/hvdrun/tools/tool.h"
#include "lib/base/alloc.h"
#include "lib/base/sys/netaddr.h"
#include "lib/job/job.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/query.h"

#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    REPORT_TIMEOUT_MS = 60000,
    CLOCK_TIMEOUT_MS = 5000,
    CLOCK_ROUNDS = 4,
    ROUTES_TIMEOUT_MS = 60000,
    ROUTES_HOST_MS = 2000, /* added for each host */
    NAMES_MAX = 32,        /* names that each host is asked to resolve */
};

enum step { STEP_CONNECT, STEP_REPORT, STEP_CLOCK, STEP_ROUTES };

struct doctor;

struct lookup {
    uv_getaddrinfo_t request;
    struct doctor_host *host;
};

struct doctor {
    struct tool tool;
    enum step step;
    struct doctor_host *hosts; /* [tool.hosts.count] */
    struct lookup *lookups;
    int clock_round;

    struct routes *routes;
    const char **net_names; /* names of the hosts that take part */
    size_t *net_hosts;      /* index among these -> index in hosts */
    long *net_index;        /* the reverse; -1: takes no part */
    size_t net_count;
    int routes_done;
    struct hb_error routes_error;
};

/* ---- Names, from here ---- */

static void on_lookup(uv_getaddrinfo_t *request, int status,
                      struct addrinfo *list)
{
    struct lookup *l = request->data;

    l->host->dns_failed = status != 0;
    if (status != 0)
        l->host->dns_error = hb_xstrdup(uv_strerror(status));
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        char text[HB_NETADDR_TEXT_MAX];
        struct hb_netaddr address;

        if (hb_netaddr_from_sockaddr(a->ai_addr, &address) == 0)
            hb_must(hb_strv_add(&l->host->addresses,
                                hb_netaddr_format(&address, text)));
    }
    uv_freeaddrinfo(list);
}

static void look_up(struct doctor *d)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    for (size_t i = 0; i < d->tool.hosts.count; i++) {
        struct lookup *l = &d->lookups[i];
        int rc;

        l->host = &d->hosts[i];
        l->request.data = l;
        rc = uv_getaddrinfo(&d->tool.main.loop, &l->request, on_lookup,
                            d->hosts[i].name, NULL, &hints);
        if (rc < 0)
            on_lookup(&l->request, rc, NULL);
    }
}

/* ---- What the hosts say of themselves ---- */

static json_t *env_or_null(const char *name)
{
    struct hb_strv env = {environ, 0, 0};
    const char *value;

    while (environ[env.count])
        env.count++;
    value = hb_env_get(&env, name);
    return value ? query_text(value) : json_null();
}

static json_t *make_question(const struct doctor *d)
{
    const struct options *o = d->tool.options;
    json_t *argv = json_array(), *names = json_array();
    char cwd[PATH_MAX];

    for (size_t i = 0; i < o->command.count; i++)
        json_array_append_new(argv, query_text(o->command.items[i]));
    for (size_t i = 0; i < d->tool.hosts.count; i++)
        if (d->tool.survey->hosts[i].state == SURVEY_IDLE &&
            json_array_size(names) < NAMES_MAX)
            json_array_append_new(names, query_text(d->hosts[i].name));
    if (!getcwd(cwd, sizeof(cwd)))
        cwd[0] = '\0';
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "what", "doctor", "argv",
                     argv, "names", names, "cwd", query_text(cwd), "path",
                     env_or_null("PATH"), "library_path",
                     env_or_null("LD_LIBRARY_PATH"));
}

static void ask_reports(struct doctor *d)
{
    json_t *question = make_question(d);

    look_up(d);
    tool_ask_all(&d->tool, question, REPORT_TIMEOUT_MS);
    json_decref(question);
}

static void take_reports(struct doctor *d)
{
    for (size_t i = 0; i < d->tool.hosts.count; i++) {
        struct survey_host *h = &d->tool.survey->hosts[i];

        if (h->state == SURVEY_IDLE && h->answer)
            d->hosts[i].report = json_incref(h->answer);
    }
}

/* ---- Clocks ---- */

static void ask_clocks(struct doctor *d)
{
    json_t *question = json_pack("{s:s}", "what", "clock");

    tool_ask_all(&d->tool, question, CLOCK_TIMEOUT_MS);
    json_decref(question);
}

/* Estimates clock offsets; the quickest exchange is the most precise. */
static void take_clocks(struct doctor *d)
{
    for (size_t i = 0; i < d->tool.hosts.count; i++) {
        const struct survey_host *h = &d->tool.survey->hosts[i];
        struct doctor_host *out = &d->hosts[i];
        double there = (double)query_int(h->answer, "wall_ns", 0) / 1e6;
        double asked = (double)h->asked_wall_ns / 1e6;
        double answered = (double)h->answered_wall_ns / 1e6;
        double error = (answered - asked) / 2;

        if (h->state != SURVEY_IDLE || there <= 0 ||
            (out->has_clock && error >= out->offset_error_ms))
            continue;
        out->has_clock = 1;
        out->offset_error_ms = error;
        out->offset_ms = there - (asked + answered) / 2;
    }
}

/* ---- The network ---- */

static void on_routes_send(void *arg, int host, const struct hb_buf *frame)
{
    struct doctor *d = arg;

    (void)agent_link_send(&d->tool.survey->hosts[d->net_hosts[host]].link,
                          frame);
}

/* Handles the result of a routes_* call; ends the step when the routes are
 * done. */
static void routes_result(struct doctor *d, int rc, const struct hb_error *err)
{
    if (rc == 0 || d->routes_done)
        return;
    d->routes_done = 1;
    if (rc < 0)
        d->routes_error = *err;
    survey_settle(d->tool.survey);
}

static void pick_net_hosts(struct doctor *d)
{
    size_t count = d->tool.hosts.count;

    d->net_names = hb_xcalloc(count + 1, sizeof(*d->net_names));
    d->net_hosts = hb_xcalloc(count + 1, sizeof(*d->net_hosts));
    d->net_index = hb_xcalloc(count + 1, sizeof(*d->net_index));
    for (size_t i = 0; i < count; i++) {
        d->net_index[i] = -1;
        if (d->tool.survey->hosts[i].state != SURVEY_IDLE)
            continue;
        d->net_index[i] = (long)d->net_count;
        d->net_names[d->net_count] = d->hosts[i].name;
        d->net_hosts[d->net_count++] = i;
    }
}

static const struct control_hello *hello_of(const struct doctor *d, size_t host)
{
    return &d->tool.survey->hosts[host].link.hello;
}

/* Starts measuring; returns 1 if there is something to wait for. */
static int start_routes(struct doctor *d)
{
    struct routes_config config = {
        .network_interfaces = d->tool.options->network_interfaces,
        .measure = 1,
        .send = on_routes_send,
        .arg = d,
    };
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    pick_net_hosts(d);
    if (d->net_count < 2)
        return 0;
    config.host_count = (int)d->net_count;
    config.names = d->net_names;
    survey_wait(d->tool.survey,
                ROUTES_TIMEOUT_MS + (int64_t)d->net_count * ROUTES_HOST_MS);
    rc = routes_new(&config, &d->routes, &err);
    for (size_t i = 0; i < d->net_count && rc == 0; i++)
        rc =
            routes_hello(d->routes, (int)i, hello_of(d, d->net_hosts[i]), &err);
    if (rc == 0)
        rc = routes_begin(d->routes, &err);
    routes_result(d, rc, &err);
    return 1;
}

static int on_frame(void *arg, size_t host, const struct frame *f,
                    struct hb_error *err)
{
    const struct tool *t = arg;
    struct doctor *d = t->arg;
    int rc;

    if (d->step != STEP_ROUTES || !d->routes || d->net_index[host] < 0)
        return hb_error_set(err, HVD_EPROTO, "message of unknown type %d",
                            f->type);
    if (d->routes_done)
        return 0;
    rc = routes_frame(d->routes, (int)d->net_index[host], f, err);
    if (rc > 0)
        routes_result(d, rc, err);
    return rc < 0 ? rc : 0;
}

static void on_lost(void *arg, size_t host)
{
    const struct tool *t = arg;
    struct doctor *d = t->arg;
    struct hb_error err = HB_ERROR_INIT;

    if (d->step == STEP_ROUTES && d->routes && !d->routes_done &&
        d->net_index[host] >= 0)
        routes_result(d, routes_absent(d->routes, (int)d->net_index[host]),
                      &err);
}

/* ---- Steps ---- */

static void step(struct tool *t)
{
    struct doctor *d = t->arg;

    switch (d->step) {
    case STEP_CONNECT:
        d->step = STEP_REPORT;
        ask_reports(d);
        return;
    case STEP_REPORT:
        take_reports(d);
        d->step = STEP_CLOCK;
        ask_clocks(d);
        return;
    case STEP_CLOCK:
        take_clocks(d);
        if (++d->clock_round < CLOCK_ROUNDS) {
            ask_clocks(d);
            return;
        }
        d->step = STEP_ROUTES;
        if (start_routes(d))
            return;
        break;
    case STEP_ROUTES:
        break;
    }
    tool_end(t);
}

/* ---- Telling ---- */

/* Copies each host's error, without the host's name in front, as it is shown
 * in the host's own section. */
static void take_errors(struct doctor *d)
{
    for (size_t i = 0; i < d->tool.hosts.count; i++) {
        const struct survey_host *h = &d->tool.survey->hosts[i];
        struct doctor_host *out = &d->hosts[i];

        out->is_local = d->tool.is_local[i];
        out->reached = h->connect_ns > 0;
        out->connect_ms = (double)h->connect_ns / 1e6;
        out->status = h->error.status;
        out->stage = h->error.stage;
        out->error = h->state == SURVEY_LOST
                         ? h->error.text
                         : query_string(out->report, "error");
    }
}

/* Takes over what was measured; the rest stays unknown. */
static void take_pairs(struct doctor *d, struct doctor_net *net,
                       struct findings *f)
{
    struct routes_pair *pairs =
        hb_xcalloc(d->net_count * d->net_count + 1, sizeof(*pairs));
    struct hb_error err = HB_ERROR_INIT;
    int known = d->routes && d->routes_done && !d->routes_error.status &&
                routes_finish(d->routes, &err) == 0;

    for (size_t i = 0; i < d->net_count * d->net_count; i++) {
        pairs[i].reached = -1;
        if (known && i / d->net_count != i % d->net_count)
            routes_pair(d->routes, (int)(i / d->net_count),
                        (int)(i % d->net_count), &pairs[i]);
    }
    *net = (struct doctor_net){d->net_names, d->net_count, pairs};
    if (known) {
        doctor_check_net(net, f);
        return;
    }
    net->count = 0;
    if (d->net_count >= 2)
        findings_add(f, FINDING_WRONG, "network", NULL,
                     "see --network-interfaces, and the hosts' interfaces (ip "
                     "addr)",
                     "%s",
                     d->routes_error.status ? d->routes_error.text
                     : err.status           ? err.text
                                  : "the hosts did not finish connecting "
                                    "to each other in time");
}

static json_t *interfaces_json(const struct control_interfaces *list)
{
    json_t *all = json_array();

    for (int i = 0; i < list->count; i++) {
        const struct control_interface *n = &list->items[i];
        char text[HB_NETADDR_TEXT_MAX];

        json_array_append_new(
            all,
            json_pack("{s:o, s:s, s:i, s:i, s:b, s:b}", "name",
                      query_text(n->name), "address",
                      hb_netaddr_format(&n->address, text), "prefix", n->prefix,
                      "speed_mbps", n->speed_mbps, "loopback",
                      (n->flags & CONTROL_INTERFACE_LOOPBACK) != 0, "virtual",
                      (n->flags & CONTROL_INTERFACE_VIRTUAL) != 0));
    }
    return all;
}

static int is_first(const struct control_interfaces *list, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(list->items[k].name, list->items[i].name) == 0)
            return 0;
    return 1;
}

static void put_interfaces(const struct control_interfaces *list,
                           struct hb_buf *text)
{
    for (int i = 0; i < list->count; i++) {
        const struct control_interface *n = &list->items[i];

        if ((n->flags &
             (CONTROL_INTERFACE_LOOPBACK | CONTROL_INTERFACE_VIRTUAL)) ||
            !is_first(list, i))
            continue;
        hb_must(
            hb_buf_printf(text, "%s%s", hb_buf_len(text) ? ", " : "", n->name));
        if (n->speed_mbps > 0)
            hb_must(hb_buf_printf(text, " (%d Mb/s)", n->speed_mbps));
    }
}

/* Reports interfaces; hosts with the same ones share a line. */
static void tell_interfaces(const struct doctor *d, struct findings *f)
{
    for (size_t k = 0; k < d->net_count; k++) {
        size_t host = d->net_hosts[k];
        struct hb_buf text = HB_BUF_INIT;

        put_interfaces(&hello_of(d, host)->interfaces, &text);
        if (hb_buf_len(&text) > 0)
            findings_add(f, FINDING_OK, "network", d->hosts[host].name, "",
                         "%s", hb_buf_data(&text));
        hb_buf_free(&text);
    }
}

static json_t *host_json(const struct doctor *d, size_t i)
{
    const struct doctor_host *h = &d->hosts[i];
    json_t *addresses = json_array();

    for (size_t k = 0; k < h->addresses.count; k++)
        json_array_append_new(addresses, json_string(h->addresses.items[k]));
    return json_pack(
        "{s:o, s:b, s:b, s:o, s:f, s:o, s:o, s:o, s:o, s:O?}", "host",
        query_text(h->name), "local", h->is_local, "reached", h->reached,
        "error", query_text(h->error), "connect_ms", h->connect_ms, "addresses",
        addresses, "interfaces", interfaces_json(&hello_of(d, i)->interfaces),
        "clock_offset_ms", h->has_clock ? json_real(h->offset_ms) : json_null(),
        "clock_error_ms",
        h->has_clock ? json_real(h->offset_error_ms) : json_null(), "report",
        h->report);
}

static int print_json(const struct doctor *d, const struct findings *f,
                      const struct doctor_net *net)
{
    json_t *hosts = json_array();

    for (size_t i = 0; i < d->tool.hosts.count; i++)
        json_array_append_new(hosts, host_json(d, i));
    return tool_print_json(&d->tool,
                           json_pack("{s:o, s:o, s:o}", "hosts", hosts,
                                     "findings", findings_json(f), "matrix",
                                     doctor_matrix_json(net)));
}

static int print_text(const struct doctor *d, const struct findings *f,
                      const struct doctor_net *net)
{
    struct hb_buf out = HB_BUF_INIT;
    size_t wrong = findings_wrong(f, NULL);
    int rc;

    findings_format(f, doctor_sections, &out);
    doctor_matrix(net, &out);
    hb_must(hb_buf_printf(
        &out, "\n%zu host%s, %zu finding%s\n", d->tool.hosts.count,
        d->tool.hosts.count == 1 ? "" : "s", wrong, wrong == 1 ? "" : "s"));
    rc = tool_print(&d->tool, hb_xstrdup(hb_buf_data(&out)));
    hb_buf_free(&out);
    return rc;
}

static int print_findings(struct doctor *d)
{
    struct findings f = FINDINGS_INIT;
    struct doctor_net net = {NULL, 0, NULL};
    int rc;

    take_errors(d);
    doctor_check_hosts(d->hosts, d->tool.hosts.count, &f);
    tell_interfaces(d, &f);
    take_pairs(d, &net, &f);
    rc = d->tool.options->json ? print_json(d, &f, &net)
                               : print_text(d, &f, &net);
    if (rc == 0 && findings_wrong(&f, NULL) > 0)
        rc = DOCTOR_EXIT_FINDINGS;
    hb_free((void *)net.pairs);
    findings_free(&f);
    return rc;
}

static void doctor_fini(struct doctor *d)
{
    for (size_t i = 0; d->hosts && i < d->tool.hosts.count; i++) {
        hb_strv_free(&d->hosts[i].addresses);
        json_decref(d->hosts[i].report);
        hb_free(d->hosts[i].dns_error);
    }
    hb_free(d->hosts);
    hb_free(d->lookups);
    routes_free(d->routes);
    hb_free(d->net_names);
    hb_free(d->net_hosts);
    hb_free(d->net_index);
    tool_fini(&d->tool);
}

/* Allocates per-host data: the tool has read the hosts only now. */
static void first_step(struct tool *t)
{
    struct doctor *d = t->arg;

    d->hosts = hb_xcalloc(t->hosts.count, sizeof(*d->hosts));
    d->lookups = hb_xcalloc(t->hosts.count, sizeof(*d->lookups));
    for (size_t i = 0; i < t->hosts.count; i++)
        d->hosts[i].name = t->hosts.entries[i].name;
    t->step = step;
    step(t);
}

int doctor_run(const struct options *o, const struct hb_log *log)
{
    struct doctor d = {
        .tool = {.options = o,
                 .log = log,
                 .step = first_step,
                 .on_frame = on_frame,
                 .on_lost = on_lost},
        .routes_error = HB_ERROR_INIT,
    };
    struct hb_error err = HB_ERROR_INIT;
    int rc;

    d.tool.arg = &d;
    if (o->network_interfaces &&
        routes_check_networks(o->network_interfaces, &err) < 0) {
        hb_log(log, HB_LOG_ERROR, "%s", err.text);
        return EXIT_USAGE;
    }
    rc = tool_run(&d.tool);
    if (rc == 0)
        rc = print_findings(&d);
    doctor_fini(&d);
    return rc;
}
