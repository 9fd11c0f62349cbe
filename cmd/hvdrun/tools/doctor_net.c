/* SPDX-License-Identifier: Apache-2.0 */
/* Reports which host reaches which, how fast, and what is unusual; see
 * doctor.h. */
#include "cmd/hvdrun/tools/doctor.h"

#include "cmd/hvdrun/tools/table.h"
#include "lib/base/alloc.h"
#include "lib/hosts/hostfold.h"
#include "lib/job/output/xbuf.h"
#include "lib/protocol/query.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLOW_FACTOR = 4,   /* worse than the median by this factor is slow */
    SLOW_RTT_US = 200, /* differences below this are noise */
};

static const char section[] = "network";

static const struct routes_pair *pair(const struct doctor_net *n, size_t from,
                                      size_t to)
{
    return &n->pairs[from * n->count + to];
}

/* ---- What is odd ---- */

/* Reports the hosts that `from` cannot reach, in one line per host, not per
 * pair. */
static void tell_unreached(const struct doctor_net *n, size_t from, int back,
                           const char *fix, struct findings *f)
{
    const char **to = hb_xcalloc(n->count + 1, sizeof(*to));
    size_t count = 0;
    char *list;

    for (size_t i = 0; i < n->count; i++)
        if (i != from && pair(n, from, i)->reached == 0 &&
            (pair(n, i, from)->reached == 1) == back)
            to[count++] = n->names[i];
    list = hostfold(to, count);
    if (count > 0)
        findings_add(f, FINDING_WRONG, section, n->names[from], fix,
                     back ? "cannot connect to %s, which can connect to it"
                          : "cannot connect to %s, nor the other way round",
                     list);
    hb_free(list);
    hb_free(to);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int64_t rtt_of(const struct routes_pair *p)
{
    return p->rtt_us;
}

static int64_t rate_of(const struct routes_pair *p)
{
    return p->bytes_per_s;
}

static int measured(const struct routes_pair *p)
{
    return p->reached == 1 && !p->same_machine;
}

/* Returns the median over the measured pairs; 0 if there are none. */
static int64_t median(const struct doctor_net *n,
                      int64_t (*value)(const struct routes_pair *p))
{
    size_t all = n->count * n->count, count = 0;
    int64_t *v = hb_xcalloc(all + 1, sizeof(*v)), m = 0;

    for (size_t i = 0; i < all; i++)
        if (measured(&n->pairs[i]) && value(&n->pairs[i]) > 0)
            v[count++] = value(&n->pairs[i]);
    if (count > 0) {
        qsort(v, count, sizeof(*v), by_value);
        m = v[count / 2];
    }
    hb_free(v);
    return m;
}

static void tell_slow(const struct doctor_net *n, struct findings *f)
{
    int64_t rtt = median(n, rtt_of), rate = median(n, rate_of);

    for (size_t from = 0; from < n->count; from++)
        for (size_t to = 0; to < n->count; to++) {
            const struct routes_pair *p = pair(n, from, to);

            if (!measured(p))
                continue;
            if (p->rtt_us > SLOW_RTT_US && p->rtt_us > SLOW_FACTOR * rtt)
                findings_add(f, FINDING_NOTE, section, n->names[from], "",
                             "%d us to %s and back, where %lld is usual",
                             p->rtt_us, n->names[to], (long long)rtt);
            if (p->bytes_per_s > 0 && p->bytes_per_s * SLOW_FACTOR < rate) {
                char *is = table_bytes(p->bytes_per_s);
                char *usual = table_bytes(rate);

                findings_add(f, FINDING_NOTE, section, n->names[from],
                             "look at the link's speed and duplex, and at its "
                             "error counters (ip -s link)",
                             "sends %s/s to %s, where %s/s is usual", is,
                             n->names[to], usual);
                hb_free(is);
                hb_free(usual);
            }
        }
}

void doctor_check_net(const struct doctor_net *n, struct findings *f)
{
    int64_t rtt = median(n, rtt_of), rate = median(n, rate_of);
    char *rate_text;

    if (n->count < 2)
        return;
    for (size_t i = 0; i < n->count; i++) {
        tell_unreached(n, i, 1,
                       "a firewall lets connections through one way only: "
                       "allow TCP among the hosts",
                       f);
        tell_unreached(n, i, 0,
                       "a firewall, or no network in common: allow TCP among "
                       "the hosts (see --network-interfaces)",
                       f);
    }
    tell_slow(n, f);
    if (findings_wrong(f, section) > 0)
        return;
    rate_text = table_bytes(rate);
    if (rtt > 0)
        findings_add(f, FINDING_OK, section, NULL, "",
                     "every host connects to every other, %lld us and %s/s "
                     "as a rule",
                     (long long)rtt, rate_text);
    else
        findings_add(f, FINDING_OK, section, NULL, "",
                     "every host connects to every other");
    hb_free(rate_text);
}

/* ---- The matrix ---- */

static char *cell(const struct routes_pair *p, int self)
{
    char *rate, *text;

    if (self)
        return hb_xstrdup("-");
    if (p->reached != 1)
        return hb_xstrdup(p->reached == 0 ? "NO" : "?");
    if (p->same_machine)
        return hb_xstrdup("same");
    if (p->rtt_us <= 0)
        return hb_xstrdup("yes");
    rate = table_bytes(p->bytes_per_s);
    text = p->bytes_per_s > 0 ? hb_xasprintf("%dus %s/s", p->rtt_us, rate)
                              : hb_xasprintf("%dus", p->rtt_us);
    hb_free(rate);
    return text;
}

static void whole(const struct doctor_net *n, struct hb_buf *out)
{
    struct table t = TABLE_INIT(n->count + 1, ~1u);

    table_add(&t, "from\\to");
    for (size_t to = 0; to < n->count; to++)
        table_add(&t, n->names[to]);
    for (size_t from = 0; from < n->count; from++) {
        table_add(&t, n->names[from]);
        for (size_t to = 0; to < n->count; to++) {
            char *text = cell(pair(n, from, to), from == to);

            table_add(&t, text);
            hb_free(text);
        }
    }
    table_format(&t, out);
    table_free(&t);
}

/* Returns the pair with the largest sign * value; -1: none was measured. */
static long worst_pair(const struct doctor_net *n, int sign,
                       int64_t (*value)(const struct routes_pair *p))
{
    long worst = -1;

    for (size_t i = 0; i < n->count * n->count; i++) {
        const struct routes_pair *p = &n->pairs[i];

        if (measured(p) && value(p) > 0 &&
            (worst < 0 || sign * value(p) > sign * value(&n->pairs[worst])))
            worst = (long)i;
    }
    return worst;
}

static void summary(const struct doctor_net *n, struct hb_buf *out)
{
    long far = worst_pair(n, 1, rtt_of), slow = worst_pair(n, -1, rate_of);
    char *text;

    if (far >= 0)
        hb_must(hb_buf_printf(out, "longest way: %s to %s, %d us\n",
                              n->names[(size_t)far / n->count],
                              n->names[(size_t)far % n->count],
                              n->pairs[far].rtt_us));
    if (slow < 0)
        return;
    text = table_bytes(n->pairs[slow].bytes_per_s);
    hb_must(hb_buf_printf(out, "slowest way: %s to %s, %s/s\n",
                          n->names[(size_t)slow / n->count],
                          n->names[(size_t)slow % n->count], text));
    hb_free(text);
}

void doctor_matrix(const struct doctor_net *n, struct hb_buf *out)
{
    if (n->count < 2)
        return;
    xbuf_puts(out, "\n");
    if (n->count <= DOCTOR_MATRIX_MAX)
        whole(n, out);
    else
        summary(n, out);
}

json_t *doctor_matrix_json(const struct doctor_net *n)
{
    json_t *list = json_array();

    for (size_t from = 0; from < n->count; from++)
        for (size_t to = 0; to < n->count; to++) {
            const struct routes_pair *p = pair(n, from, to);
            char text[HB_NETADDR_TEXT_MAX];

            if (from == to || p->reached < 0)
                continue;
            json_array_append_new(
                list,
                json_pack(
                    "{s:o, s:o, s:b, s:b, s:s, s:o, s:i, s:I}", "from",
                    query_text(n->names[from]), "to", query_text(n->names[to]),
                    "reached", p->reached == 1, "same_machine", p->same_machine,
                    "address", hb_netaddr_format(&p->address, text),
                    "interface", query_text(p->name ? p->name : ""), "rtt_us",
                    p->rtt_us, "bytes_per_s", (json_int_t)p->bytes_per_s));
        }
    return list;
}
