/* SPDX-License-Identifier: Apache-2.0 */
/* See srun.h. */
#include "lib/remote/srun.h"

#include "lib/base/env.h"
#include "lib/hosts/batch/allocation.h"
#include "lib/hosts/batch/slurm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

int srun_check(struct hb_error *err)
{
    if (hb_variable("SLURM_JOB_ID"))
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "--launcher slurm: this is no job of Slurm: "
                        "SLURM_JOB_ID is not set");
}

/* Returns whether a list, the value of `name`, names the host. */
static int names_host(const char *name, const char *list, const char *host)
{
    struct hostlist l = HOSTLIST_INIT;
    int found = 0;

    hostlist_parse_value(name, list, &l, NULL);
    for (size_t i = 0; !found && i < l.count; i++)
        found = strcasecmp(l.entries[i].name, host) == 0;
    hostlist_free(&l);
    return found;
}

/* Finds the component of a heterogeneous job that has the host.  -1: the job is
 * not heterogeneous, -2: none has it. */
static int find_component(const char *host)
{
    char name[64];

    for (int i = 0; i < SLURM_COMPONENTS_MAX; i++) {
        const char *list;

        snprintf(name, sizeof(name), "SLURM_JOB_NODELIST_HET_GROUP_%d", i);
        list = hb_variable(name);
        if (!list)
            return i == 0 ? -1 : -2;
        if (names_host(name, list, host))
            return i;
    }
    return -2;
}

/* Returns the number of GPUs in a variable; 0: not given. */
static int number_of(const char *name)
{
    const char *text = hb_variable(name);

    return text ? slurm_count_gpus(text) : 0;
}

/* Returns the number of the host's GPUs in a job that asked for GPUs by task or
 * in all, the same on each host; 0: it asked otherwise.  Then a step has all
 * GPUs of the host by itself. */
static int64_t count_gpus(const char *host)
{
    int64_t each = number_of("SLURM_GPUS_PER_TASK");
    int64_t all = number_of("SLURM_GPUS"), gpus = 0;
    struct hb_strv env = {environ, 0, 0};
    const struct allocation_source source = {.env = &env};
    struct allocation a = {.system = NULL};

    while (environ && environ[env.count])
        env.count++;
    if ((!each && !all) ||
        allocation_read(&source, ALLOCATION_SLURM, &a, NULL) < 0)
        return 0;
    for (size_t i = 0; each && i < a.hosts.count; i++)
        if (strcasecmp(a.hosts.entries[i].name, host) == 0)
            gpus = each * a.hosts.entries[i].slots;
    if (!each && all % (int64_t)a.hosts.count == 0)
        gpus = all / (int64_t)a.hosts.count;
    allocation_free(&a);
    return gpus;
}

/* Appends the start of the command: variables that describe the job's tasks are
 * removed, as srun would apply them to the shell, which is one task, and give
 * it the processors and GPUs of one. */
static int add_program(struct hb_strv *argv)
{
    static const char *const removed[] = {
        "SLURM_CPUS_PER_TASK",   "SLURM_GPUS",         "SLURM_DISTRIBUTION",
        "SLURM_GPUS_PER_TASK",   "SLURM_HINT",         "SLURM_NTASKS_PER_GPU",
        "SLURM_NTASKS_PER_NODE", "SLURM_TRES_PER_TASK"};
    int rc = hb_strv_add(argv, "env");

    for (size_t i = 0; rc == 0 && i < COUNT(removed); i++) {
        rc = hb_strv_add(argv, "-u");
        if (rc == 0)
            rc = hb_strv_add(argv, removed[i]);
    }
    return rc == 0 ? hb_strv_add(argv, "srun") : rc;
}

int srun_argv(const char *host, struct hb_strv *argv, struct hb_error *err)
{
    /* Steps that overlap share the host's processors, memory and GPUs.
     * Unbuffered: srun otherwise waits for newlines. */
    static const char *const options[] = {"--overlap",    "--nodes=1",
                                          "--ntasks=1",   "--cpu-bind=none",
                                          "--unbuffered", "--quiet"};
    int64_t gpus = count_gpus(host);
    int component = find_component(host), rc;

    if (component == -2)
        return hb_error_set(err, HVD_EINVAL,
                            "srun: it is in no component of this "
                            "heterogeneous job");
    rc = add_program(argv);
    for (size_t i = 0; rc == 0 && i < COUNT(options); i++)
        rc = hb_strv_add(argv, options[i]);
    if (rc == 0)
        rc = hb_strv_addf(argv, "--nodelist=%s", host);
    if (rc == 0 && component >= 0)
        rc = hb_strv_addf(argv, "--het-group=%d", component);
    if (rc == 0 && gpus > 0)
        rc = hb_strv_addf(argv, "--gpus-per-node=%" PRId64, gpus);
    if (rc == 0)
        rc = hb_strv_add(argv, "/bin/sh");
    return rc < 0 ? hb_error_set(err, HVD_ENOMEM, "srun: out of memory") : 0;
}
