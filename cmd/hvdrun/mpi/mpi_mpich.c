/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of MPICH's mpiexec, Hydra.  Arguments for ssh and the time limit
 * can only be given in its environment.
 */
#include "cmd/hvdrun/mpi/mpi_command.h"

#include "lib/base/alloc.h"
#include "lib/job/job.h"

#include <stdio.h>
#include <string.h>

static int cannot(const char *option, const char *why, struct hb_error *err)
{
    return hb_error_set(err, HVD_EUNSUPPORTED, "%s: MPICH's mpiexec %s", option,
                        why);
}

static int check(const struct mpi_job *job, struct hb_error *err)
{
    const struct options *o = job->options;

    if (o->output_filename)
        return cannot("--output-filename",
                      "cannot write files and the terminal both; redirect "
                      "its output, or see -outfile-pattern for --mpi-args",
                      err);
    if (o->timestamp)
        return cannot("--prefix-output-with-timestamp",
                      "cannot tell the time of a line", err);
    if (o->stdin_rank != JOB_STDIN_NONE && o->stdin_rank != 0)
        return cannot("--stdin", "lets rank 0 read, or none", err);
    if (o->network_interfaces && strpbrk(o->network_interfaces, ",/."))
        return cannot("--network-interfaces", "takes one interface, by name",
                      err);
    return 0;
}

/* Returns whether all hosts have equally many ranks: Hydra places ranks in turn
 * by a fixed number per host. */
static int even(const struct plan *plan)
{
    for (int i = 1; plan && i < plan->host_count; i++) {
        if (plan->hosts[i].count != plan->hosts[0].count)
            return 0;
    }
    return 1;
}

static int add_hosts(const struct mpi_job *job, const struct mpi_parts *parts,
                     struct hb_strv *argv, struct hb_error *err)
{
    const struct options *o = job->options;
    int each = job->plan ? 0 : o->npernode;
    int rc = 0;

    if (o->map == PLAN_MAP_NODE && !o->binding_args) {
        if (!even(job->plan) || each > 1)
            return cannot("--map-by node",
                          "needs as many ranks on every host for that", err);
        each = 1;
    }
    if (parts->hosts.count) {
        rc = mpi_add(argv, "-hosts");
        if (rc == 0)
            rc = mpi_add_joined(argv, &parts->hosts, ',');
    }
    if (rc == 0 && each)
        rc = mpi_add(argv, "-ppn");
    if (rc == 0 && each)
        rc = hb_strv_addf(argv, "%d", each);
    return rc;
}

static int add_binding(const struct mpi_job *job, const struct mpi_parts *parts,
                       struct hb_strv *argv)
{
    const struct options *o = job->options;

    if (o->binding_args)
        return parts->binding.count
                   ? hb_strv_add_all(argv, parts->binding.items)
                   : 0;
    if (o->spec.bind == CONTROL_BIND_NONE) /* Hydra's default */
        return 0;
    return mpi_add(argv, "-bind-to",
                   o->spec.bind == CONTROL_BIND_CORE ? "core" : "numa");
}

static int add_settings(const struct mpi_job *job,
                        const struct mpi_parts *parts, struct mpi_command *out)
{
    const struct options *o = job->options;
    struct hb_strv joined = HB_STRV_INIT;
    int rc = 0;

    if (parts->ssh.count) {
        rc = mpi_add_joined(&joined, &parts->ssh, ' ');
        if (rc == 0)
            rc = hb_env_set(&out->settings, "HYDRA_LAUNCHER_EXTRA_ARGS",
                            joined.items[0]);
    }
    if (rc == 0 && o->timeout_ms)
        rc = hb_env_setf(&out->settings, "MPIEXEC_TIMEOUT", "%lld",
                         (long long)mpi_seconds(o->timeout_ms));
    hb_strv_free(&joined);
    return rc;
}

int mpi_mpich_args(const struct mpi_job *job, const struct mpi_parts *parts,
                   struct mpi_command *out, struct hb_error *err)
{
    const struct options *o = job->options;
    struct hb_strv *argv = &out->argv;
    int rc = check(job, err);

    if (rc == 0)
        rc = mpi_add(argv, "-n");
    if (rc == 0)
        rc = hb_strv_addf(argv, "%d", parts->ranks);
    if (rc == 0)
        rc = add_hosts(job, parts, argv, err);
    if (rc == 0)
        rc = add_binding(job, parts, argv);
    if (rc == 0 && o->network_interfaces)
        rc = mpi_add(argv, "-iface", o->network_interfaces);
    if (rc == 0 && o->tag)
        rc = mpi_add(argv, "-l");
    if (rc == 0 && o->wdir)
        rc = mpi_add(argv, "-wdir", o->wdir);
    if (rc == 0 && parts->names.count) {
        rc = mpi_add(argv, "-genvlist");
        if (rc == 0)
            rc = mpi_add_joined(argv, &parts->names, ',');
    }
    out->no_stdin = o->stdin_rank == JOB_STDIN_NONE;
    return rc < 0 ? rc : add_settings(job, parts, out);
}
