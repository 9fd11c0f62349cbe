/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flux says in JSON what a job has (RFC 20, version 1):
 *
 *     {"version": 1, "execution": {
 *         "R_lite": [{"rank": "0-1", "children": {"core": "0-7", "gpu":
 * "0-1"}}], "nodelist": ["node[01-02]"], "expiration": 1700000000}}
 *
 * The hosts of nodelist belong to the ranks of R_lite in ascending order.
 */
#include "lib/base/alloc.h"
#include "lib/hosts/batch/batch.h"
#include "lib/hosts/hostparse.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char source[] = "flux";

enum { ID_MAX = 1 << 24, SAID_BYTES = 200 };

#define END_MAX_S 1e12

/* What a rank of Flux, a host, has. */
struct node {
    int rank, cores, gpus;
};

struct nodes {
    struct node *items;
    size_t count, cap;
};

static int malformed(struct batch *b, const char *what)
{
    return hb_error_set(b->err, HVD_EINVAL,
                        "%s: its list of resources is malformed: %s; give -H, "
                        "or --allocation none",
                        source, what);
}

/* ---- Sets of numbers: 0-3,7 ---- */

static int read_id(const char **p, int *out)
{
    const char *start = *p;
    int n = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++)
        n = n > ID_MAX ? n : n * 10 + (**p - '0');
    *out = n;
    return *p != start && n <= ID_MAX;
}

/* Reads lo or lo-hi at *p, and moves it past the comma that follows.  Returns
 * whether it is well formed. */
static int read_ids(const char **p, int *lo, int *hi)
{
    if (!read_id(p, lo))
        return 0;
    *hi = *lo;
    if (**p == '-') {
        ++*p;
        if (!read_id(p, hi) || *hi < *lo)
            return 0;
    }
    if (**p == ',')
        return *++*p != '\0';
    return **p == '\0';
}

/* Counts the numbers of a set, up to HOSTS_SLOTS_MAX; -1: malformed, 0: NULL.
 */
static int count_ids(const char *text)
{
    int64_t total = 0;
    int lo, hi;

    if (!text)
        return 0;
    do {
        if (!read_ids(&text, &lo, &hi))
            return -1;
        total += hi - lo + 1;
    } while (*text);
    return total < HOSTS_SLOTS_MAX ? (int)total : HOSTS_SLOTS_MAX;
}

/* ---- R_lite ---- */

static int add_nodes(struct batch *b, struct nodes *nodes, const char *ranks,
                     int cores, int gpus)
{
    int lo, hi;

    do {
        if (!read_ids(&ranks, &lo, &hi))
            return malformed(b, "\"rank\"");
        for (; lo <= hi; lo++) {
            if (nodes->count == HOSTS_COUNT_MAX)
                return malformed(b, "more than 65536 hosts");
            if (nodes->count == nodes->cap) {
                nodes->cap = nodes->cap ? 2 * nodes->cap : 64;
                nodes->items = hb_xrealloc_array(nodes->items, nodes->cap,
                                                 sizeof(*nodes->items));
            }
            nodes->items[nodes->count++] = (struct node){lo, cores, gpus};
        }
    } while (*ranks);
    return 0;
}

static int compare(const void *va, const void *vb)
{
    const struct node *a = va, *b = vb;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int read_nodes(struct batch *b, const json_t *r_lite,
                      struct nodes *nodes)
{
    json_t *item;
    size_t i;

    json_array_foreach(r_lite, i, item)
    {
        const json_t *children = json_object_get(item, "children");
        const char *ranks = json_string_value(json_object_get(item, "rank"));
        int cores =
            count_ids(json_string_value(json_object_get(children, "core")));
        int gpus =
            count_ids(json_string_value(json_object_get(children, "gpu")));
        int rc;

        if (!ranks || cores < 0 || gpus < 0 || cores + gpus == 0)
            return malformed(b, "\"R_lite\"");
        rc = add_nodes(b, nodes, ranks, cores, gpus);
        if (rc < 0)
            return rc;
    }
    if (!nodes->count)
        return malformed(b, "\"R_lite\"");
    qsort(nodes->items, nodes->count, sizeof(*nodes->items), compare);
    return 0;
}

/* ---- Hosts ---- */

static int read_hosts(struct batch *b, const json_t *nodelist,
                      struct hostlist *l)
{
    struct hb_buf text = HB_BUF_INIT;
    json_t *item;
    size_t i;
    int rc;

    json_array_foreach(nodelist, i, item)
    {
        const char *names = json_string_value(item);

        if (names)
            hb_must(hb_buf_printf(&text, "%s%s", i ? "," : "", names));
    }
    rc = hostlist_parse_value(source, hb_buf_data(&text), l, b->err);
    hb_buf_free(&text);
    return rc;
}

/* Makes slots of GPUs, or of cores if there is no GPU.  A Flux for tests may
 * have many ranks on its only host. */
static int add_hosts(struct batch *b, const struct hostlist *l,
                     const struct nodes *nodes)
{
    int64_t gpus = 0;
    struct host_parser ps;
    int rc = 0;

    if (nodes->count != l->count && l->count != 1)
        return malformed(b, "\"nodelist\" has not one host for each rank");
    for (size_t i = 0; i < nodes->count; i++)
        gpus += nodes->items[i].gpus;
    host_begin(&ps, source, "", 0, b->err);
    ps.line = -1;
    for (size_t i = 0; rc == 0 && i < nodes->count; i++) {
        const struct node *n = &nodes->items[i];
        const char *name = l->entries[l->count == 1 ? 0 : i].name;
        const struct host_spec spec = {.name = name,
                                       .name_len = strlen(name),
                                       .slots = gpus ? n->gpus : n->cores};

        if (spec.slots)
            rc = host_add_spec(&ps, &spec);
    }
    return host_finish(&ps, rc, &b->out->hosts);
}

static int read_resources(struct batch *b, const json_t *root)
{
    const json_t *execution = json_object_get(root, "execution");
    double end = json_number_value(json_object_get(execution, "expiration"));
    struct hostlist l = HOSTLIST_INIT;
    struct nodes nodes = {NULL, 0, 0};
    int rc;

    if (json_integer_value(json_object_get(root, "version")) != 1)
        return malformed(b, "its version is not 1");
    if (end > 0 && end < END_MAX_S)
        b->out->end_s = (int64_t)end;
    rc = read_hosts(b, json_object_get(execution, "nodelist"), &l);
    if (rc == 0)
        rc = read_nodes(b, json_object_get(execution, "R_lite"), &nodes);
    if (rc == 0)
        rc = add_hosts(b, &l, &nodes);
    hb_free(nodes.items);
    hostlist_free(&l);
    return rc;
}

/* Reports what Flux said in place of JSON: its first line. */
static int no_json(struct batch *b, const char *command, const char *said)
{
    int len = (int)strcspn(said, "\n");

    return hb_error_set(b->err, HVD_EINVAL,
                        "FLUX_URI is set, but flux %s said: %.*s", command,
                        len < SAID_BYTES ? len : SAID_BYTES, said);
}

/* Asks Flux: in a job for what the job has, else, as in the script of flux
 * batch, for what this Flux has. */
int batch_flux(struct batch *b)
{
    const char *job = batch_get(b, "FLUX_JOB_ID");
    char *of_job[] = {(char *)"flux", (char *)"job", (char *)"info",
                      (char *)job,    (char *)"R",   NULL};
    char *of_flux[] = {(char *)"flux", (char *)"resource", (char *)"R", NULL};
    struct hb_buf out = HB_BUF_INIT;
    const char *text;
    json_t *root;
    int rc =
        b->source->run(b->source->arg, job ? of_job : of_flux, &out, b->err);

    if (job)
        b->out->copies = batch_copies(b, "FLUX_JOB_SIZE");
    if (rc < 0) {
        hb_buf_free(&out);
        return hb_error_context(b->err, "FLUX_URI is set");
    }
    text = strchr(hb_buf_data(&out), '{'); /* after warnings */
    root = text ? json_loads(text, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    rc = root ? read_resources(b, root)
              : no_json(b, job ? "job info" : "resource R", hb_buf_data(&out));
    json_decref(root);
    hb_buf_free(&out);
    return rc;
}
