/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm.  Hosts and tasks come as two lists in the same order:
 *
 *     SLURM_JOB_NODELIST=node[01-03],gpu7   SLURM_TASKS_PER_NODE=2(x3),4
 *
 * In a step (srun), SLURM_TASKS_PER_NODE is the step's, while
 * SLURM_JOB_NODELIST stays the job's: if they do not match, the step's hosts
 * count.  A heterogeneous job has such lists for each of its components.
 */
#include "lib/base/env.h"
#include "lib/hosts/batch/batch.h"
#include "lib/hosts/batch/slurm.h"
#include "lib/hosts/hostparse.h"

#include <stdio.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 64,
    GPUS_MAX = 1 << 20,
    SHOWN_BYTES = 100,
};

#define END_MAX_S (INT64_C(1) << 40)

/* Names of the variables of a job, a step or a component. */
struct names {
    char nodes[NAME_MAX_BYTES], tasks[NAME_MAX_BYTES];
    char cpus[NAME_MAX_BYTES], cpus_per_task[NAME_MAX_BYTES];
};

static struct names name_variables(const char *suffix)
{
    struct names n = {.nodes = ""};

    snprintf(n.nodes, sizeof(n.nodes), "SLURM_JOB_NODELIST%s", suffix);
    snprintf(n.tasks, sizeof(n.tasks), "SLURM_TASKS_PER_NODE%s", suffix);
    snprintf(n.cpus, sizeof(n.cpus), "SLURM_JOB_CPUS_PER_NODE%s", suffix);
    snprintf(n.cpus_per_task, sizeof(n.cpus_per_task), "SLURM_CPUS_PER_TASK%s",
             suffix);
    return n;
}

/* ---- Lists of hosts ---- */

/* Parses a list of hosts, which has neither users nor slots. */
static int parse_nodes(struct batch *b, const char *name, struct hostlist *l)
{
    const char *text = batch_get(b, name);
    size_t plain;
    int rc;

    if (!text)
        return hb_error_set(b->err, HVD_EINVAL, "%s is not set", name);
    plain = strcspn(text, ":@ \t");
    if (text[plain])
        return hb_error_set(b->err, HVD_EINVAL,
                            "%s: column %zu: '%c' is not allowed in a list of "
                            "nodes",
                            name, plain + 1, text[plain]);
    rc = hostlist_parse_value(name, text, l, b->err);
    for (size_t i = 0; rc == 0 && i < l->count; i++)
        if (l->entries[i].slots) /* only repetitions count any */
            rc = hb_error_set(b->err, HVD_EINVAL, "%s: names host %s twice",
                              name, l->entries[i].name);
    return rc;
}

/* ---- Lists of numbers: 2(x3),1 ---- */

/* Reads digits at *p and moves it past them: a number from 1 to max, or 0. */
static int read_number(const char **p, int max)
{
    int n = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++)
        n = n > max ? n : n * 10 + (**p - '0');
    return n <= max ? n : 0;
}

/* Reads N or N(xREPEAT) at *p, and moves it past the comma that follows.
 * Returns whether it is well formed. */
static int read_run(const char **p, int *n, int *repeat)
{
    *n = read_number(p, HOSTS_SLOTS_MAX);
    *repeat = 1;
    if ((*p)[0] == '(' && (*p)[1] == 'x') {
        *p += 2;
        *repeat = read_number(p, HOSTS_COUNT_MAX);
        if (*(*p)++ != ')')
            return 0;
    }
    if (**p == ',')
        return *++*p != '\0' && *n && *repeat;
    return **p == '\0' && *n && *repeat;
}

/* Returns how many numbers the list has; -1 if it is malformed. */
static int64_t count_numbers(const char *text)
{
    int64_t total = 0;
    int n, repeat;

    do {
        if (!read_run(&text, &n, &repeat))
            return -1;
        total += repeat;
    } while (*text);
    return total;
}

/* Gives each host its number of the list, divided by `each`. */
static int set_slots(struct batch *b, const char *name, int each,
                     const char *nodes_name, struct hostlist *l)
{
    const char *text = batch_get(b, name);
    int64_t count = count_numbers(text);
    size_t i = 0;
    int n, repeat;

    if (count < 0)
        return hb_error_set(b->err, HVD_EINVAL,
                            "%s '%.*s': not a list of numbers like 2(x3),1",
                            name, SHOWN_BYTES, text);
    if ((size_t)count != l->count)
        return hb_error_set(b->err, HVD_EINVAL,
                            "%s '%.*s' has numbers for %lld host%s, but %s "
                            "names %zu",
                            name, SHOWN_BYTES, text, (long long)count,
                            count == 1 ? "" : "s", nodes_name, l->count);
    while (*text && read_run(&text, &n, &repeat))
        for (; repeat > 0; repeat--)
            l->entries[i++].slots = n > each ? n / each : 1;
    return 0;
}

/* Gives the hosts their slots: tasks, or the processors that tasks need. */
static int find_slots(struct batch *b, const struct names *n,
                      struct hostlist *l)
{
    const char *cpus_per_task = batch_get(b, n->cpus_per_task);
    int64_t each = 1;

    if (batch_get(b, n->tasks))
        return set_slots(b, n->tasks, 1, n->nodes, l);
    if (!batch_get(b, n->cpus)) {
        for (size_t i = 0; i < l->count; i++)
            l->entries[i].slots = 1;
        return 0;
    }
    if (cpus_per_task &&
        hb_parse_i64(cpus_per_task, 1, HOSTS_SLOTS_MAX, &each, b->err) < 0)
        return hb_error_context(b->err, "%s", n->cpus_per_task);
    return set_slots(b, n->cpus, (int)each, n->nodes, l);
}

/* ---- Jobs ---- */

/* Reads the hosts of a job or, in a step of fewer hosts, those of the step. */
static int read_job(struct batch *b, struct hostlist *l)
{
    struct names n = name_variables("");
    const char *tasks;
    int rc;

    rc = parse_nodes(b, n.nodes, l);
    tasks = batch_get(b, n.tasks);
    if (rc == 0 && tasks && count_numbers(tasks) != (int64_t)l->count &&
        batch_get(b, "SLURM_STEP_NODELIST") &&
        batch_get(b, "SLURM_STEP_TASKS_PER_NODE")) {
        hostlist_free(l);
        snprintf(n.nodes, sizeof(n.nodes), "SLURM_STEP_NODELIST");
        snprintf(n.tasks, sizeof(n.tasks), "SLURM_STEP_TASKS_PER_NODE");
        rc = parse_nodes(b, n.nodes, l);
    }
    return rc < 0 ? rc : find_slots(b, &n, l);
}

/* Adds the hosts of a component to the list that `ps` builds: components may
 * share a host. */
static int add_component(struct batch *b, int i, struct host_parser *ps)
{
    struct hostlist part = HOSTLIST_INIT;
    char suffix[32];
    struct names n;
    int rc;

    snprintf(suffix, sizeof(suffix), "_HET_GROUP_%d", i);
    n = name_variables(suffix);
    rc = parse_nodes(b, n.nodes, &part);
    if (rc == 0)
        rc = find_slots(b, &n, &part);
    for (size_t k = 0; rc == 0 && k < part.count; k++) {
        const struct host_spec spec = {.name = part.entries[k].name,
                                       .name_len = strlen(part.entries[k].name),
                                       .slots = part.entries[k].slots};

        rc = host_add_spec(ps, &spec);
    }
    hostlist_free(&part);
    return rc;
}

static int read_components(struct batch *b, struct hostlist *l)
{
    const char *size = batch_get(b, "SLURM_HET_SIZE");
    struct host_parser ps;
    int64_t count = 0;
    int rc = 0;

    if (!size)
        return hb_error_set(b->err, HVD_EINVAL, "SLURM_HET_SIZE is not set");
    if (hb_parse_i64(size, 1, SLURM_COMPONENTS_MAX, &count, b->err) < 0)
        return hb_error_context(b->err, "SLURM_HET_SIZE");
    host_begin(&ps, "SLURM_JOB_NODELIST_HET_GROUP", "", 0, b->err);
    ps.line = -1;
    for (int i = 0; rc == 0 && i < count; i++)
        rc = add_component(b, i, &ps);
    return host_finish(&ps, rc, l);
}

int slurm_count_gpus(const char *text)
{
    int total = 0;

    for (;;) {
        size_t len = strcspn(text, ",");
        const char *colon = memchr(text, ':', len), *p = text;
        int n;

        for (; colon; colon = memchr(p, ':', (size_t)(text + len - p)))
            p = colon + 1;
        n = read_number(&p, GPUS_MAX);
        if (!n || p != text + len || total > GPUS_MAX - n)
            return 0;
        total += n;
        if (text[len] == '\0')
            return total;
        text += len + 1;
    }
}

/* Reads what is only shown: a malformed value counts as not given. */
static void read_remarks(struct batch *b)
{
    const char *gpus = batch_get(b, "SLURM_GPUS_PER_NODE");
    const char *here = batch_get(b, "SLURM_GPUS_ON_NODE");
    const char *end = batch_get(b, "SLURM_JOB_END_TIME");

    b->out->copies = batch_copies(b, "SLURM_STEP_NUM_TASKS");
    b->out->gpus_everywhere = gpus != NULL;
    if (gpus || here)
        b->out->gpus = slurm_count_gpus(gpus ? gpus : here);
    if (end)
        hb_parse_i64(end, 1, END_MAX_S, &b->out->end_s, NULL);
}

int batch_slurm(struct batch *b)
{
    int parts = batch_get(b, "SLURM_JOB_NODELIST_HET_GROUP_0") != NULL;

    read_remarks(b);
    return parts ? read_components(b, &b->out->hosts)
                 : read_job(b, &b->out->hosts);
}
