/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of both MPIs' command lines; see mpi_command.h. */
#include "cmd/hvdrun/mpi/mpi_command.h"

#include "lib/base/quote.h"
#include "lib/job/worker_env.h"
#include "lib/remote/rsh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int out_of_memory(struct hb_error *err)
{
    return hb_error_set(err, HVD_ENOMEM, "out of memory");
}

/* ---- Words ---- */

int mpi_add_words(struct hb_strv *argv, const char *const *words)
{
    int rc = 0;

    for (; rc == 0 && *words; words++)
        rc = hb_strv_add(argv, *words);
    return rc;
}

int mpi_add_joined(struct hb_strv *argv, const struct hb_strv *items, char sep)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        if (i)
            rc = hb_buf_putc(&text, sep);
        if (rc == 0)
            rc = hb_buf_puts(&text, items->items[i]);
    }
    if (rc == 0)
        rc = hb_strv_add(argv, hb_buf_data(&text));
    hb_buf_free(&text);
    return rc;
}

int64_t mpi_seconds(int64_t ms)
{
    return (ms + 999) / 1000;
}

static int split(const char *option, const char *text, struct hb_strv *words,
                 struct hb_error *err)
{
    int rc = text ? rsh_split(text, words, err) : 0;

    if (rc == -HVD_ENOMEM)
        return out_of_memory(err);
    return rc < 0 ? hb_error_context(err, "%s", option) : 0;
}

/* ---- The environment ---- */

static size_t name_len(const char *item)
{
    return strcspn(item, "=");
}

static int begins(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

int mpi_in_allocation(char *const *env)
{
    static const char *const names[] = {
        "SLURM_JOB_ID=",          "SLURM_JOBID=",    "PBS_NODEFILE=",
        "LSB_DJOB_HOSTFILE=",     "LSB_HOSTS=",      "PE_HOSTFILE=",
        "LSB_AFFINITY_HOSTFILE=", "COBALT_NODEFILE="};

    for (; env && *env; env++) {
        for (size_t i = 0; i < COUNT(names); i++) {
            if (begins(*env, names[i]))
                return 1;
        }
    }
    return 0;
}

/* Returns whether the variable is a setting of mpirun and its daemons, which
 * pass on what ranks need. */
static int is_launchers(const char *name)
{
    static const char *const prefixes[] = {"OMPI_",  "PMIX_",    "PRTE_",
                                           "HYDRA_", "MPIEXEC_", "HVD_MPIRUN"};

    for (size_t i = 0; i < COUNT(prefixes); i++) {
        if (begins(name, prefixes[i]))
            return 1;
    }
    return 0;
}

/* Returns whether an outer Open MPI job's mpirun set the variable for this one
 * process: another mpirun would take it for its own settings. */
static int is_outer(const char *item)
{
    static const char *const prefixes[] = {
        "OMPI_MCA_ess",   "OMPI_MCA_orte_",        "OMPI_MCA_pmix",
        "OMPI_MCA_plm",   "OMPI_MCA_rmaps_",       "OMPI_MCA_hwloc_",
        "OMPI_MCA_shmem", "OMPI_MCA_initial_wdir", "PRTE_"};

    if (begins(item, "OMPI_") && !begins(item, "OMPI_MCA_"))
        return 1;
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        if (begins(item, prefixes[i]))
            return 1;
    }
    return 0;
}

static int is_rank(char *const *env)
{
    for (; env && *env; env++) {
        if (begins(*env, "OMPI_COMM_WORLD_RANK="))
            return 1;
    }
    return 0;
}

static int drop_outer(struct hb_strv *env)
{
    struct hb_strv kept = HB_STRV_INIT;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < env->count; i++) {
        if (!is_outer(env->items[i]))
            rc = hb_strv_add(&kept, env->items[i]);
    }
    hb_strv_free(env);
    *env = kept;
    return rc;
}

/* Returns whether mpirun's lists can hold the name: ',' and '*' are special
 * there. */
static int can_be_named(const char *item)
{
    size_t len = name_len(item);

    return len && item[0] != '-' && item[0] != '.' &&
           strspn(item, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") >= len;
}

/* Keeps what mpirun itself needs: the agent's socket for its ssh, and
 * parameters for its libraries, which the rules for ranks would take for those
 * of an outer job. */
static int keep_for_mpirun(const struct mpi_job *job, struct hb_strv *env)
{
    int inside = is_rank(job->inherited);
    int rc = inside ? drop_outer(env) : 0;

    for (char *const *e = job->inherited; rc == 0 && e && *e; e++) {
        int wanted =
            begins(*e, "SSH_AUTH_SOCK=") ||
            (!inside && !job->options->no_env && begins(*e, "PMIX_MCA_"));
        char name[256];

        if (!wanted || name_len(*e) >= sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)name_len(*e), *e);
        if (!hb_env_get(env, name))
            rc = hb_strv_add(env, *e);
    }
    return rc;
}

/* Passes the interfaces on to NCCL and Gloo, if a program uses them. */
static int name_interfaces(const struct options *o, struct hb_strv *env)
{
    static const char *const names[] = {"NCCL_SOCKET_IFNAME",
                                        "GLOO_SOCKET_IFNAME"};
    const char *list = o->network_interfaces;
    int rc = 0;

    if (!list || strchr(list, '/'))
        return 0;
    for (size_t i = 0; rc == 0 && i < COUNT(names); i++) {
        if (!hb_env_get(env, names[i]))
            rc = hb_env_set(env, names[i], list);
    }
    return rc;
}

static int common_env(const struct mpi_job *job, int remote,
                      struct hb_strv *env, struct hb_error *err)
{
    const struct options *o = job->options;
    const struct worker_env_config config = {
        .inherited = job->inherited,
        .no_env = o->no_env,
        .remote = remote,
        .knobs = &o->knobs,
        .set_env = &o->set_env,
        .compat_dir = o->compat_dir,
        .compat_force = o->horovod == HOROVOD_FORCE,
    };
    int rc = worker_env_common(&config, env, err);

    if (rc == 0 && name_interfaces(o, env) < 0)
        rc = out_of_memory(err);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names of variables for ranks on other hosts; ranks on this host
 * inherit the rest. */
static int list_names(const struct mpi_job *job, struct hb_strv *names,
                      struct hb_error *err)
{
    struct hb_strv env = HB_STRV_INIT;
    int rc = common_env(job, 1, &env, err);

    for (size_t i = 0; rc == 0 && i < env.count; i++) {
        const char *item = env.items[i];

        if (!can_be_named(item) || is_launchers(item))
            continue;
        if (hb_strv_addf(names, "%.*s", (int)name_len(item), item) < 0)
            rc = out_of_memory(err);
    }
    if (rc == 0 && names->count)
        qsort(names->items, names->count, sizeof(*names->items), by_name);
    hb_strv_free(&env);
    return rc;
}

static int check_names(const struct options *o, struct hb_error *err)
{
    for (size_t i = 0; i < o->set_env.count; i++) {
        const char *item = o->set_env.items[i];

        if (!can_be_named(item))
            return hb_error_set(err, HVD_EINVAL,
                                "-x '%.*s': mpirun cannot pass on a variable "
                                "of this name",
                                (int)name_len(item), item);
    }
    return 0;
}

/* ---- Hosts ---- */

static int same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static int add_host(const struct plan_host *host, struct hb_strv *out,
                    struct hb_error *err)
{
    const char *name = host->entry->name;

    if (strchr(name, ':'))
        return hb_error_set(err, HVD_EINVAL,
                            "host %s: mpirun takes no IPv6 address; give it a "
                            "name, in /etc/hosts for one",
                            name);
    if (hb_strv_addf(out, "%s:%d", name, host->count) < 0)
        return out_of_memory(err);
    return 0;
}

/* Finds the login; mpirun's ssh uses one user and one port for all hosts. */
static int find_login(const struct mpi_job *job, const char **user, int *port,
                      struct hb_error *err)
{
    const struct host_entry *first = NULL;

    *user = job->options->ssh_user;
    *port = job->options->ssh_port;
    for (int i = 0; job->plan && i < job->plan->host_count; i++) {
        const struct host_entry *e = job->plan->hosts[i].entry;

        if (!e->user && !e->port && hosts_name_is_local(e->name, job->hostname))
            continue;
        if (first && (!same(e->user, first->user) || e->port != first->port))
            return hb_error_set(err, HVD_EINVAL,
                                "hosts %s and %s: mpirun logs in as one user "
                                "and at one port; put them into ~/.ssh/config",
                                first->name, e->name);
        first = e;
    }
    if (first && first->user)
        *user = first->user;
    if (first && first->port)
        *port = first->port;
    return 0;
}

/* Appends an argument for ssh. mpirun splits these at blanks, without
 * quotes. */
static int add_ssh(struct hb_strv *ssh, const char *flag, const char *option,
                   const char *value, struct hb_error *err)
{
    const char *equals = strchr(flag, '=');
    int rc;

    if (!value)
        return 0;
    if (!*value || value[0] == '-' || strpbrk(value, " \t\r\n\"'\\"))
        return hb_error_set(err, HVD_EINVAL,
                            "%s '%s': mpirun cannot pass this on to ssh; put "
                            "it into ~/.ssh/config",
                            option, value);
    if (equals)
        rc = mpi_add(ssh, "-o") < 0 ? -HVD_ENOMEM
                                    : hb_strv_addf(ssh, "%s%s", flag, value);
    else
        rc = mpi_add(ssh, flag, value);
    return rc < 0 ? out_of_memory(err) : 0;
}

static int list_ssh(const struct mpi_job *job, struct hb_strv *ssh,
                    struct hb_error *err)
{
    const struct options *o = job->options;
    char seconds[24], number[16];
    const char *user;
    int port;
    int rc = find_login(job, &user, &port, err);

    snprintf(number, sizeof(number), "%d", port);
    snprintf(seconds, sizeof(seconds), "%lld",
             (long long)mpi_seconds(o->start_timeout_ms));
    if (rc == 0 && port)
        rc = add_ssh(ssh, "-p", "--ssh-port", number, err);
    if (rc == 0)
        rc = add_ssh(ssh, "-l", "--ssh-user", user, err);
    if (rc == 0)
        rc = add_ssh(ssh, "-i", "--ssh-identity-file", o->ssh_identity, err);
    if (rc == 0)
        rc = add_ssh(ssh, "-F", "--ssh-config", o->ssh_config, err);
    if (rc == 0)
        rc = add_ssh(ssh, "UserKnownHostsFile=", "--ssh-known-hosts",
                     o->ssh_known_hosts, err);
    /* Only on request: mpirun has no limit by default. */
    if (rc == 0 && hb_env_get(&o->knobs, "HVD_START_TIMEOUT"))
        rc = add_ssh(ssh, "ConnectTimeout=", "--start-timeout", seconds, err);
    return rc;
}

/* ---- All of it ---- */

static int check_options(const struct options *o, struct hb_error *err)
{
    const char *program = o->command.items[0];

    if (!launcher_table[o->launcher].with_mpi)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "--launcher %s: with --mpi, mpirun reaches hosts, "
                            "by the ssh program",
                            launcher_table[o->launcher].name);
    if (o->binding_args &&
        (o->spec.bind != CONTROL_BIND_NONE || o->map != PLAN_MAP_SLOT))
        return hb_error_set(err, HVD_EINVAL,
                            "--binding-args takes the place of --bind-to and "
                            "--map-by; give one or the other");
    if (program[0] == '-')
        return hb_error_set(err, HVD_EINVAL,
                            "command '%s': mpirun would take it for an "
                            "option; write ./%s",
                            program, program);
    for (size_t i = 0; i < o->command.count; i++) {
        if (strcmp(o->command.items[i], ":") == 0)
            return hb_error_set(err, HVD_EINVAL,
                                "argument ':' of the command: mpirun would "
                                "take it for the end of the command");
    }
    return check_names(o, err);
}

static void parts_fini(struct mpi_parts *p)
{
    hb_strv_free(&p->hosts);
    hb_strv_free(&p->names);
    hb_strv_free(&p->ssh);
    hb_strv_free(&p->extra);
    hb_strv_free(&p->binding);
}

static int make_parts(const struct mpi_job *job, struct mpi_parts *p,
                      struct hb_error *err)
{
    const struct options *o = job->options;
    int rc = split("--mpi-args", o->mpi_args, &p->extra, err);

    p->ranks = job->plan ? job->plan->size : o->num_proc;
    if (rc == 0)
        rc = split("--binding-args", o->binding_args, &p->binding, err);
    for (int i = 0; rc == 0 && job->plan && i < job->plan->host_count; i++)
        rc = add_host(&job->plan->hosts[i], &p->hosts, err);
    if (rc == 0)
        rc = list_ssh(job, &p->ssh, err);
    return rc < 0 ? rc : list_names(job, &p->names, err);
}

static int make_env(const struct mpi_job *job, struct mpi_command *out,
                    struct hb_error *err)
{
    int rc = common_env(job, 0, &out->env, err);

    if (rc < 0)
        return rc;
    rc = keep_for_mpirun(job, &out->env);
    for (size_t i = 0; rc == 0 && i < out->settings.count; i++) {
        char *item = out->settings.items[i];
        size_t len = name_len(item);

        item[len] = '\0';
        rc = hb_env_set(&out->env, item, item + len + 1);
        item[len] = '=';
    }
    return rc < 0 ? out_of_memory(err) : 0;
}

static int compose(const struct mpi_job *job, const struct mpi_parts *parts,
                   struct mpi_command *out, struct hb_error *err)
{
    int rc = hb_strv_add(&out->argv, job->launcher->name);

    if (rc == 0 && job->launcher->kind == MPI_OPENMPI)
        rc = mpi_openmpi_args(job, parts, out, err);
    else if (rc == 0)
        rc = mpi_mpich_args(job, parts, out, err);
    if (rc == 0 && parts->extra.count)
        rc = hb_strv_add_all(&out->argv, parts->extra.items);
    if (rc == 0)
        rc = hb_strv_add_all(&out->argv, job->options->command.items);
    return rc == -HVD_ENOMEM ? out_of_memory(err) : rc;
}

int mpi_compose(const struct mpi_job *job, struct mpi_command *out,
                struct hb_error *err)
{
    struct mpi_parts parts = {.ranks = 0};
    int rc = check_options(job->options, err);

    if (rc == 0)
        rc = make_parts(job, &parts, err);
    if (rc == 0)
        rc = compose(job, &parts, out, err);
    if (rc == 0)
        rc = make_env(job, out, err);
    parts_fini(&parts);
    return rc;
}

void mpi_command_fini(struct mpi_command *c)
{
    hb_strv_free(&c->argv);
    hb_strv_free(&c->env);
    hb_strv_free(&c->settings);
}

/* Appends NAME='value': only the value is quoted. */
static int put_settings(const struct hb_strv *items, struct hb_buf *out)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < items->count; i++) {
        const char *item = items->items[i];
        size_t len = name_len(item) + 1;

        rc = hb_buf_append(out, item, len);
        if (rc == 0)
            rc = hb_quote_word(item + len, out);
        if (rc == 0)
            rc = hb_buf_putc(out, ' ');
    }
    return rc;
}

int mpi_command_text(const struct options *o, const struct mpi_command *c,
                     struct hb_buf *out)
{
    int rc = put_settings(&o->knobs, out);

    if (rc == 0)
        rc = put_settings(&c->settings, out);
    for (size_t i = 0; rc == 0 && i < c->argv.count; i++) {
        if (i)
            rc = hb_buf_putc(out, ' ');
        if (rc == 0)
            rc = hb_quote_word(c->argv.items[i], out);
    }
    if (rc == 0 && c->no_stdin)
        rc = hb_buf_puts(out, " </dev/null");
    return rc;
}
