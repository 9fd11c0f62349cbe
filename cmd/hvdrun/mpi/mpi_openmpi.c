/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of Open MPI's mpirun.  From version 5 on mpirun is PRRTE's, which
 * has other names for output options and parameters.
 */
#include "cmd/hvdrun/mpi/mpi_command.h"

#include "lib/job/job.h"

#include <stdio.h>
#include <string.h>

enum {
    PRRTE_MAJOR = 5,
    /* Beyond so many hosts Open MPI starts its daemons over a tree, for which
     * hosts need ssh among themselves. */
    TREE_HOSTS = 64,
};

struct parameters {
    const char *flag; /* flag for the launcher's own parameters */
    const char *ssh_args, *no_tree, *concurrent, *interfaces;
};

static const struct parameters *parameters_of(const struct mpi_launcher *m)
{
    static const struct parameters orte = {
        "-mca", "plm_rsh_args", "plm_rsh_no_tree_spawn",
        "plm_rsh_num_concurrent", "oob_tcp_if_include"};
    static const struct parameters prrte = {
        "--prtemca", "plm_ssh_args", "plm_ssh_no_tree_spawn",
        "plm_ssh_num_concurrent", "prte_if_include"};

    return m->major < PRRTE_MAJOR ? &orte : &prrte;
}

static int add_hosts(const struct mpi_job *job, const struct mpi_parts *parts,
                     struct hb_strv *argv)
{
    const struct options *o = job->options;
    char number[16];
    int rc = 0;

    if (parts->hosts.count) {
        rc = mpi_add(argv, "-H");
        if (rc == 0)
            rc = mpi_add_joined(argv, &parts->hosts, ',');
    } else if (o->npernode) {
        snprintf(number, sizeof(number), "%d", o->npernode);
        rc = mpi_add(argv, "-N", number);
    }
    if (rc == 0 && o->oversubscribe)
        rc = mpi_add(argv, "--oversubscribe");
    return rc;
}

static int add_binding(const struct mpi_job *job, const struct mpi_parts *parts,
                       struct hb_strv *argv)
{
    static const char *const bindings[] = {
        [CONTROL_BIND_NONE] = "none",
        [CONTROL_BIND_CORE] = "core:overload-allowed",
        [CONTROL_BIND_NUMA] = "numa:overload-allowed",
    };
    const struct options *o = job->options;
    int rc;

    if (o->binding_args)
        return parts->binding.count
                   ? hb_strv_add_all(argv, parts->binding.items)
                   : 0;
    rc = mpi_add(argv, "--bind-to", bindings[o->spec.bind]);
    /* -N implies a mapping. */
    if (rc == 0 && (parts->hosts.count || !o->npernode))
        rc = mpi_add(argv, "--map-by",
                     o->map == PLAN_MAP_NODE ? "node" : "slot");
    return rc;
}

static int add_network(const struct mpi_job *job, const struct mpi_parts *parts,
                       struct hb_strv *argv)
{
    const struct parameters *p = parameters_of(job->launcher);
    const char *interfaces = job->options->network_interfaces;
    char number[24];
    int rc = 0;

    if (parts->ssh.count) {
        rc = mpi_add(argv, p->flag, p->ssh_args);
        if (rc == 0)
            rc = mpi_add_joined(argv, &parts->ssh, ' ');
    }
    if (rc == 0 && parts->hosts.count >= TREE_HOSTS) {
        snprintf(number, sizeof(number), "%zu", parts->hosts.count);
        rc = mpi_add(argv, p->flag, p->no_tree, "1", p->flag, p->concurrent,
                     number);
    }
    if (rc == 0 && interfaces)
        rc = mpi_add(argv, p->flag, p->interfaces, interfaces,
                     job->launcher->major < PRRTE_MAJOR ? "-mca" : "--mca",
                     "btl_tcp_if_include", interfaces);
    return rc;
}

/* Adds options that make files like hvdrun's tree, but without the job number
 * on top. */
static int add_output_orte(const struct options *o, struct hb_strv *argv)
{
    int rc = 0;

    if (o->tag)
        rc = mpi_add(argv, "--tag-output");
    if (rc == 0 && o->timestamp)
        rc = mpi_add(argv, "--timestamp-output");
    if (rc == 0 && o->output_filename) {
        rc = mpi_add(argv, "--output-filename");
        if (rc == 0)
            rc = hb_strv_addf(argv, "%s:nojobid", o->output_filename);
    }
    return rc;
}

static int add_output_prrte(const struct options *o, struct hb_strv *argv)
{
    struct hb_strv what = HB_STRV_INIT;
    int rc = 0;

    if (o->tag)
        rc = mpi_add(&what, "tag");
    if (rc == 0 && o->timestamp)
        rc = mpi_add(&what, "timestamp");
    if (rc == 0 && o->output_filename)
        rc = hb_strv_addf(&what, "dir=%s", o->output_filename);
    if (rc == 0 && what.count) {
        rc = mpi_add(argv, "--output");
        if (rc == 0)
            rc = mpi_add_joined(argv, &what, ',');
    }
    hb_strv_free(&what);
    return rc;
}

static int add_output(const struct mpi_job *job, struct hb_strv *argv,
                      struct hb_error *err)
{
    const struct options *o = job->options;

    if (o->output_filename && strpbrk(o->output_filename, ",:"))
        return hb_error_set(err, HVD_EINVAL,
                            "--output-filename '%s': Open MPI cannot take a "
                            "name with a comma or a colon",
                            o->output_filename);
    return job->launcher->major < PRRTE_MAJOR ? add_output_orte(o, argv)
                                              : add_output_prrte(o, argv);
}

static int add_run(const struct mpi_job *job, struct hb_strv *argv,
                   struct hb_error *err)
{
    const struct options *o = job->options;
    char number[24];
    int rc;

    /* Before version 5 ranks never see the end of their input. */
    if (o->stdin_rank == JOB_STDIN_ALL && job->launcher->major < PRRTE_MAJOR)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "--stdin all: Open MPI before version 5 hangs "
                            "then; let one rank read");
    snprintf(number, sizeof(number), "%d", o->stdin_rank);
    rc = mpi_add(argv, "--stdin",
                 o->stdin_rank == JOB_STDIN_NONE  ? "none"
                 : o->stdin_rank == JOB_STDIN_ALL ? "all"
                                                  : number);
    if (rc == 0 && o->wdir)
        rc = mpi_add(argv, "--wdir", o->wdir);
    if (rc == 0 && o->timeout_ms) {
        snprintf(number, sizeof(number), "%lld",
                 (long long)mpi_seconds(o->timeout_ms));
        rc = mpi_add(argv, "--timeout", number);
    }
    return rc;
}

/* Returns whether this machine's ranks outnumber its processors. */
static int outnumber(const struct mpi_job *job)
{
    for (int i = 0; job->plan && i < job->plan->host_count; i++) {
        const struct plan_host *h = &job->plan->hosts[i];

        if (hosts_name_is_local(h->entry->name, job->hostname))
            return job->cpus && h->count > job->cpus;
    }
    return 0;
}

/* Makes idle ranks yield if they share processors.  Open MPI assumes a
 * processor per slot; ranks that wait without yielding then keep others from
 * running, and a collective takes as long as the scheduler's time slices. */
static int add_waiting(const struct mpi_job *job, struct mpi_command *out)
{
    static const char name[] = "OMPI_MCA_mpi_yield_when_idle";

    if (!outnumber(job) || hb_env_get(&job->options->set_env, name))
        return 0;
    for (char *const *e = job->inherited; e && *e; e++)
        if (!strncmp(*e, name, sizeof(name) - 1) &&
            (*e)[sizeof(name) - 1] == '=')
            return 0;
    return hb_env_set(&out->settings, name, "1");
}

int mpi_openmpi_args(const struct mpi_job *job, const struct mpi_parts *parts,
                     struct mpi_command *out, struct hb_error *err)
{
    struct hb_strv *argv = &out->argv;
    int rc = 0;

    if (job->root)
        rc = mpi_add(argv, "--allow-run-as-root");
    if (rc == 0)
        rc = mpi_add(argv, "-np");
    if (rc == 0)
        rc = hb_strv_addf(argv, "%d", parts->ranks);
    if (rc == 0)
        rc = add_hosts(job, parts, argv);
    if (rc == 0)
        rc = add_binding(job, parts, argv);
    if (rc == 0)
        rc = add_network(job, parts, argv);
    if (rc == 0)
        rc = add_output(job, argv, err);
    if (rc == 0)
        rc = add_run(job, argv, err);
    for (size_t i = 0; rc == 0 && i < parts->names.count; i++)
        rc = mpi_add(argv, "-x", parts->names.items[i]);
    return rc < 0 ? rc : add_waiting(job, out);
}
