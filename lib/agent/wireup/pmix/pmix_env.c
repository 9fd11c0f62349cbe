/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of Open MPI: OMPI_MCA_X sets its parameter X.  Version 4 and before
 * decide by them whether they were started by a launcher; version 5 asks PMIx
 * alone, and ignores what it does not know.
 */
#include "lib/agent/wireup/pmix/pmix_env.h"

#include "lib/agent/machine/fabric.h"
#include "lib/agent/wireup/pmix/mca_params.h"
#include "lib/base/alloc.h"

#include <sched.h>
#include <string.h>

/* ---- A host without a fabric ------------------------------------------ */

void pmix_absent_init(const struct control_launch *job, const char *library,
                      struct pmix_absent *out)
{
    /* Open MPI loads these, for True Scale and Omni-Path, before they look for
     * their devices; the libraries that come along measure the processor's
     * clock for 0.1 s each. */
    static const char *const components[] = {"psm", "psm2"};
    const struct mca_search search = {
        .root = "",
        .library = library,
        .env = &job->env,
        .rank_env = &job->ranks[0].env,
    };

    *out = (struct pmix_absent){.fabric = !fabric_present("")};
    if (out->fabric)
        out->mtl = mca_leave_out(&search, "mtl", components, 2);
}

void pmix_absent_fini(struct pmix_absent *a)
{
    hb_free(a->mtl);
    a->mtl = NULL;
}

/* ---- hvd-pmix --------------------------------------------------------- */

struct hb_strv pmix_env_server(const struct hb_strv *job,
                               const struct pmix_absent *absent)
{
    /* A `=` ends a whole name. */
    static const char *const kept[] = {
        "HOME=", "LANG=", "LC_ALL=",   "LD_LIBRARY_PATH=", "HWLOC_",
        "PATH=", "USER=", "PMIX_MCA_", "LOGNAME="};
    /* MPI asks how far it is to the devices of fabrics, and no others.  Reading
     * a PCI device's registers takes some ms in a virtual machine. */
    static const char no_devices[] =
        "HWLOC_COMPONENTS=-linux:pci,-pci,-gl,-opencl,-cuda,-nvml,-rsmi,"
        "-levelzero";
    struct hb_strv env = HB_STRV_INIT;

    for (size_t i = 0; i < job->count; i++)
        for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++)
            if (strncmp(job->items[i], kept[k], strlen(kept[k])) == 0)
                hb_must(hb_strv_add(&env, job->items[i]));
    if (absent->fabric && !hb_env_get(job, "HWLOC_COMPONENTS"))
        hb_must(hb_strv_add(&env, no_devices));
    if (!env.items) { /* it must not be NULL */
        hb_must(hb_strv_add(&env, "LANG=C"));
    }
    return env;
}

/* ---- Ranks ------------------------------------------------------------ */

static int is_oversubscribed(const struct control_launch *job)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 &&
           job->rank_count > CPU_COUNT(&set);
}

/* Adds a variable, unless the user has set it. */
static void add_default(const struct control_launch *job, int slot,
                        const char *name, const char *value,
                        struct hb_strv *out)
{
    if (!hb_env_get(&job->env, name) &&
        !hb_env_get(&job->ranks[slot].env, name))
        hb_must(hb_strv_addf(out, "%s=%s", name, value));
}

/* Adds the variables by which scripts know mpirun's ranks. */
static void add_numbers(const struct control_launch *job, int slot,
                        struct hb_strv *out)
{
    const struct control_rank *r = &job->ranks[slot];
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"OMPI_COMM_WORLD_SIZE", job->size},
        {"OMPI_COMM_WORLD_RANK", r->rank},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", r->local_size},
        {"OMPI_COMM_WORLD_LOCAL_RANK", r->local_rank},
        {"OMPI_COMM_WORLD_NODE_RANK", r->local_rank},
        {"OMPI_UNIVERSE_SIZE", job->size},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        hb_must(hb_strv_addf(out, "%s=%d", numbers[i].name, numbers[i].value));
}

/* Lets MPI use the interfaces over which hvdrun found that the hosts reach each
 * other, as Gloo does; on others, such as bridges of containers, it could hang.
 */
static void add_interfaces(const struct control_launch *job, int slot,
                           struct hb_strv *out)
{
    const char *found = hb_env_get(&job->ranks[slot].env, "GLOO_SOCKET_IFNAME");
    const char excluded[] = "OMPI_MCA_btl_tcp_if_exclude";

    if (found && !hb_env_get(&job->env, excluded) &&
        !hb_env_get(&job->ranks[slot].env, excluded))
        add_default(job, slot, "OMPI_MCA_btl_tcp_if_include", found, out);
}

void pmix_env_rank(const struct control_launch *job, int slot, const char *dir,
                   const struct pmix_absent *absent, struct hb_strv *out)
{
    add_numbers(job, slot, out);
    /* Version 4 would else believe that nothing has started it, and make each
     * rank a world of its own. */
    hb_must(hb_strv_add(out, "OMPI_MCA_schizo=ompi"));
    /* hvdrun binds ranks to cores, or leaves them alone. */
    hb_must(hb_strv_add(out, "OMPI_MCA_orte_externally_bound=1"));
    add_default(job, slot, "OMPI_MCA_hwloc_base_binding_policy", "none", out);
    /* Shared memory has the same name in all jobs on hosts of one name. */
    add_default(job, slot, "OMPI_MCA_btl_vader_backing_directory", dir, out);
    add_default(job, slot, "OMPI_MCA_btl_sm_backing_directory", dir, out);
    add_interfaces(job, slot, out);
    if (absent->mtl)
        add_default(job, slot, "OMPI_MCA_mtl", absent->mtl, out);
    /* Waiting ranks then yield. */
    if (is_oversubscribed(job))
        add_default(job, slot, "OMPI_MCA_mpi_oversubscribe", "1", out);
}
