/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs, cores and nodes from sysfs, and the binding plan; see cpus.h. */
#include "lib/agent/machine/cpus.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static void set_add(struct cpus_set *s, int id)
{
    if ((s->count & (s->count - 1)) == 0)
        s->ids = hb_xrealloc_array(s->ids, s->count ? 2 * (size_t)s->count : 1,
                                   sizeof(int));
    s->ids[s->count++] = id;
}

void cpus_set_fini(struct cpus_set *s)
{
    hb_free(s->ids);
    s->ids = NULL;
    s->count = 0;
}

int cpus_allowed(struct cpus_set *out, struct hb_error *err)
{
    struct cpus_set s = {NULL, 0};
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *mask = CPU_ALLOC(CPUS_MAX);

    if (!mask)
        return hb_error_set(err, HVD_ENOMEM, "affinity mask");
    if (sched_getaffinity(0, bytes, mask) < 0) {
        CPU_FREE(mask);
        return hb_error_sys(err, errno, "affinity mask");
    }
    for (int i = 0; i < CPUS_MAX; i++)
        if (CPU_ISSET_S((size_t)i, bytes, mask))
            set_add(&s, i);
    CPU_FREE(mask);
    *out = s;
    return 0;
}

/* Parses the digits at *p and moves *p past them; -1 if there are none or the
 * number is CPUS_MAX or more. */
static int parse_number(const char **p)
{
    int v = **p >= '0' && **p <= '9' ? 0 : -1;

    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (v >= 0)
            v = v * 10 + (**p - '0') < CPUS_MAX ? v * 10 + (**p - '0') : -1;
    return v;
}

int cpus_parse(const char *text, struct cpus_set *out)
{
    struct cpus_set s = {NULL, 0};
    const char *p = text;

    while (*p && *p != '\n') {
        int first = parse_number(&p), last = first;

        if (*p == '-') {
            p++;
            last = parse_number(&p);
        }
        if (first < 0 || last < first)
            goto bad;
        for (int i = first; i <= last; i++)
            set_add(&s, i);
        if (*p == ',')
            p++;
        else if (*p && *p != '\n')
            goto bad;
    }
    if (s.count > 0)
        qsort(s.ids, (size_t)s.count, sizeof(int), by_value);
    *out = s;
    return 0;
bad:
    cpus_set_fini(&s);
    return -HVD_EINVAL;
}

/* Reads a CPU list from a file.  0, or negative if the file is missing or
 * malformed. */
static int read_list(const char *path, struct cpus_set *out)
{
    char text[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return -HVD_ENOENT;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return -HVD_ENOENT;
    text[n] = '\0';
    return cpus_parse(text, out);
}

static int read_core(const char *sysfs, int id)
{
    struct cpus_set siblings = {NULL, 0};
    char path[512];
    int core = id;

    snprintf(path, sizeof(path),
             "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", sysfs,
             id);
    if (read_list(path, &siblings) == 0 && siblings.count > 0)
        core = siblings.ids[0];
    cpus_set_fini(&siblings);
    return core;
}

static void read_nodes(const char *sysfs, struct cpus *c)
{
    struct cpus_set online = {NULL, 0};
    char path[512];

    snprintf(path, sizeof(path), "%s/devices/system/node/online", sysfs);
    if (read_list(path, &online) < 0)
        return;
    for (int n = 0; n < online.count; n++) {
        struct cpus_set on = {NULL, 0};

        snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist",
                 sysfs, online.ids[n]);
        if (read_list(path, &on) == 0)
            for (int i = 0; i < c->count; i++)
                if (bsearch(&c->items[i].id, on.ids, (size_t)on.count,
                            sizeof(int), by_value))
                    c->items[i].node = online.ids[n];
        cpus_set_fini(&on);
    }
    cpus_set_fini(&online);
}

/* Counts the distinct cores or, with `nodes`, NUMA nodes. */
static int distinct(const struct cpus *c, int nodes)
{
    int n = 0;

    for (int i = 0; i < c->count; i++) {
        int v = nodes ? c->items[i].node : c->items[i].core, seen = 0;

        for (int j = 0; j < i && !seen; j++)
            seen = v == (nodes ? c->items[j].node : c->items[j].core);
        n += !seen;
    }
    return n;
}

void cpus_read(const char *sysfs, const struct cpus_set *allowed,
               struct cpus *out)
{
    memset(out, 0, sizeof(*out));
    out->items = hb_xcalloc((size_t)allowed->count + 1, sizeof(*out->items));
    out->count = allowed->count;
    for (int i = 0; i < allowed->count; i++) {
        out->items[i].id = allowed->ids[i];
        out->items[i].core = read_core(sysfs, allowed->ids[i]);
    }
    read_nodes(sysfs, out);
    out->cores = distinct(out, 0);
    out->nodes = distinct(out, 1);
}

void cpus_fini(struct cpus *c)
{
    hb_free(c->items);
    memset(c, 0, sizeof(*c));
}

/* Orders CPUs by node, then by core, so that consecutive ranks are near. */
static int by_place(const void *a, const void *b)
{
    const struct cpus_cpu *x = a, *y = b;

    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Returns the index of the group (core or node) of sorted[i], given that of
 * sorted[i - 1]. */
static int next_group(const struct cpus_cpu *sorted, int i, int group,
                      int nodes)
{
    if (i == 0)
        return 0;
    if (nodes)
        return group + (sorted[i].node != sorted[i - 1].node);
    return group + (sorted[i].core != sorted[i - 1].core);
}

/* Returns whether `rank` gets this group.  With enough cores, rank r of n gets
 * cores [r * cores / n, (r + 1) * cores / n), the remainder going to the first
 * ranks. */
static int owns(int group, int groups, int rank, int ranks, int nodes)
{
    int base = groups / ranks, extra = groups % ranks;
    int first;

    if (nodes || groups < ranks)
        return group == rank % groups;
    first = rank * base + (rank < extra ? rank : extra);
    return group >= first && group < first + base + (rank < extra);
}

void cpus_plan(const struct cpus *c, enum control_bind bind, int ranks,
               struct cpus_set *sets)
{
    int nodes = bind == CONTROL_BIND_NUMA;
    int groups = nodes ? c->nodes : c->cores, group = 0;
    struct cpus_cpu *sorted;

    memset(sets, 0, (size_t)ranks * sizeof(*sets));
    if (bind == CONTROL_BIND_NONE || c->count == 0)
        return;
    sorted = hb_xcalloc((size_t)c->count, sizeof(*sorted));
    memcpy(sorted, c->items, (size_t)c->count * sizeof(*sorted));
    qsort(sorted, (size_t)c->count, sizeof(*sorted), by_place);
    for (int i = 0; i < c->count; i++) {
        group = next_group(sorted, i, group, nodes);
        for (int r = 0; r < ranks; r++)
            if (owns(group, groups, r, ranks, nodes))
                set_add(&sets[r], sorted[i].id);
    }
    for (int r = 0; r < ranks; r++)
        if (sets[r].count > 0)
            qsort(sets[r].ids, (size_t)sets[r].count, sizeof(int), by_value);
    hb_free(sorted);
}

/* ---- Domains ---- */

/* Numbers the distinct ids in order of rank.  Returns how many there are, or 0
 * if one is unknown. */
static int number(const int *ids, int ranks, uint32_t *domains)
{
    int count = 0;

    for (int r = 0; r < ranks; r++) {
        int first = 0;

        if (ids[r] < 0)
            return 0;
        while (ids[first] != ids[r])
            first++;
        domains[r] = first < r ? domains[first] : (uint32_t)count++;
    }
    return count;
}

/* Returns whether s is a subset of `all`. */
static int within(const struct cpus_set *s, const struct cpus_set *all)
{
    for (int i = 0; i < s->count; i++)
        if (!bsearch(&s->ids[i], all->ids, (size_t)all->count, sizeof(int),
                     by_value))
            return 0;
    return 1;
}

/* Returns the first CPU of the last-level cache that serves all CPUs of s, or
 * -1. */
static int cache_of(const char *sysfs, const struct cpus_set *s)
{
    int found = -1, more = s->count > 0;

    /* The kernel numbers a CPU's caches from the first level to the last. */
    for (int i = 0; more; i++) {
        struct cpus_set served = {NULL, 0};
        char path[512];

        snprintf(path, sizeof(path),
                 "%s/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list",
                 sysfs, s->ids[0], i);
        more = read_list(path, &served) == 0;
        if (more)
            found = served.count > 0 && within(s, &served) ? served.ids[0] : -1;
        cpus_set_fini(&served);
    }
    return found;
}

static int node_of(const struct cpus *c, const struct cpus_set *s)
{
    int node = -1, unlike = 0;

    for (int i = 0; i < c->count && s->count > 0; i++)
        if (bsearch(&c->items[i].id, s->ids, (size_t)s->count, sizeof(int),
                    by_value)) {
            unlike |= node >= 0 && node != c->items[i].node;
            node = c->items[i].node;
        }
    return unlike ? -1 : node;
}

void cpus_domains(const char *sysfs, const struct cpus *c,
                  const struct cpus_set *sets, int ranks, uint32_t *domains)
{
    int *ids = hb_xcalloc((size_t)ranks, sizeof(*ids)), count = 0;
    int tries = ranks <= c->count ? 2 : 0;

    for (int nodes = 0; nodes < tries && (count == 0 || 2 * count > ranks);
         nodes++) {
        for (int r = 0; r < ranks; r++)
            ids[r] = nodes ? node_of(c, &sets[r]) : cache_of(sysfs, &sets[r]);
        count = number(ids, ranks, domains);
    }
    if (count == 0 || 2 * count > ranks)
        memset(domains, 0, (size_t)ranks * sizeof(*domains));
    hb_free(ids);
}

int cpus_domains_parse(const char *text, int ranks, uint32_t *domains)
{
    int *ids = hb_xcalloc((size_t)ranks, sizeof(*ids)), n = 0, good;
    const char *p = text;

    do {
        int id = parse_number(&p);

        good = id >= 0 && (*p == ',' || !*p);
        if (n < ranks)
            ids[n++] = id;
    } while (good && *p++ == ',');
    for (; n < ranks; n++)
        ids[n] = ids[n - 1];
    if (good)
        number(ids, ranks, domains);
    hb_free(ids);
    return good ? 0 : -HVD_EINVAL;
}

char *cpus_remark(const struct cpus *c, enum control_bind bind, int ranks)
{
    if (bind != CONTROL_BIND_CORE || c->cores == 0 || ranks <= c->cores)
        return NULL;
    if (c->cores == 1)
        return hb_xasprintf("%d ranks on 1 core: they share it", ranks);
    return hb_xasprintf("%d ranks on %d cores: some share one", ranks,
                        c->cores);
}

int cpus_format(const struct cpus_set *s, struct hb_buf *out)
{
    int rc = s->count == 0 ? hb_buf_putc(out, '-') : 0;

    for (int i = 0, j; i < s->count && rc == 0; i = j + 1) {
        for (j = i; j + 1 < s->count && s->ids[j + 1] == s->ids[j] + 1; j++)
            ;
        rc = hb_buf_printf(out, i == j ? "%s%d" : "%s%d-%d", i ? "," : "",
                           s->ids[i], s->ids[j]);
    }
    return rc;
}

cpu_set_t *cpus_mask(const struct cpus_set *s, size_t *bytes)
{
    int top = s->count ? s->ids[s->count - 1] + 1 : 1;
    cpu_set_t *mask = CPU_ALLOC((size_t)top);

    *bytes = CPU_ALLOC_SIZE((size_t)top);
    if (!mask)
        return NULL;
    CPU_ZERO_S(*bytes, mask);
    for (int i = 0; i < s->count; i++)
        CPU_SET_S((size_t)s->ids[i], *bytes, mask);
    return mask;
}
